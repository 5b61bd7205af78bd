"""Forecasts as events: what the fold keeps of them, what a status shows, and what the role records."""

import asyncio

import pytest

from arranger.events import kinds as k
from arranger.events.facts import BeyondLimit
from arranger.lifecycle.desired import desired_status
from arranger.lifecycle.giving_way import expected_start_ms
from arranger.projections import snapshot
from arranger.projections.consistency import validate
from arranger.projections.folding.forecasts import expected_start, says_more
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import Forecasted
from arranger.replay.console.moment import standings
from arranger.replay.explain import room_words
from arranger.replay.explain.expected import Certainty, NoStart, Start, start_of
from arranger.replay.forecast.starts import forecast
from arranger.replay.reading.describe import describe
from arranger.workers.deciding.forecaster import Forecaster, news
from arranger.workers.flow.standstill import Standstill
from tests.parts import parts
from tests.unit.test_forecast import GPU, guessing, running, submit, world
from tests.world import World, shape


def waiting() -> tuple[World, JobRecord, JobRecord]:
    """`second` waits with a reservation, `third` without."""
    of = world(preemption=None)
    running(of, "first", 4, expected_s=100)
    second = submit(of, "second", 4, expected_s=50, priority=9)
    of.settle()
    third = submit(of, "third", 4)
    of.settle()
    assert [*of.state.reservations] == [second.uid]
    return of, second, third


def told(of: World, job: JobRecord, expected_ms: int, *, based_on: int | None = None) -> None:
    of.say(k.StartForecast(job.uid, job.version if based_on is None else based_on, expected_ms, 1, 2))


def recorded(of: World) -> list[k.StartForecast]:
    return news(of.state, forecast(of.state, of.config, of.now_ms, first=10))


def test_a_forecast_is_the_expected_start_of_a_job_without_a_reservation() -> None:
    of, second, third = waiting()
    events = recorded(of)
    assert [event.job_uid for event in events] == [third.uid]
    promised_ms = expected_start_ms(of.state, second)
    of.say(*events)
    assert expected_start_ms(of.state, third) == of.now_ms + 150_000
    assert expected_start_ms(of.state, second) == promised_ms == of.now_ms + 100_000
    found = expected_start(of.state, third)
    assert found is not None and found.forecast is not None and found.forecast.time_ms == of.now_ms
    told(of, second, 5)
    assert expected_start_ms(of.state, second) == promised_ms  # the reservation's promise stays
    validate(of.state)
    assert snapshot.restore(snapshot.encode(of.state)).forecasts == of.state.forecasts


def test_a_job_whose_reservation_waits_for_an_unknown_end_has_one_unknown_start_everywhere() -> None:
    """A forecast would say that a job of which nothing is known runs as long again: at once, at its beginning."""
    of = world(preemption=None)
    running(of, "hog", 4)
    large = submit(of, "large", 4, expected_s=50, priority=9)
    of.settle()
    assert of.state.reservations[large.uid].decided.start_ms == 0
    told(of, large, of.now_ms + 1)
    start = start_of(of.state, of.state.jobs[large.uid])
    assert start == Start(Certainty.UNKNOWN, why=NoStart.AWAITED, endless=("default/hog",))
    [row] = [
        one for one in standings(of.state, of.config, lambda *_: None, complete=True).jobs if one.job == "default/large"
    ]
    assert row.position == 1 and row.expected is None


def test_of_the_jobs_that_a_reservation_waits_for_those_are_named_of_which_nothing_is_known() -> None:
    of = world(preemption=None)
    running(of, "short", 2, expected_s=50)
    running(of, "hog", 2)
    large = submit(of, "large", 4, priority=9)
    of.settle()
    start = start_of(of.state, of.state.jobs[large.uid])
    assert start is not None and (start.why, start.endless) == (NoStart.AWAITED, ("default/hog",))


def test_a_guess_is_one_in_the_log_the_status_the_table_and_the_explanation() -> None:
    of = world(nodes=2, preemption=None)
    guessing(of)
    second = of.state.jobs["uid-second"]
    events = recorded(of)
    assert {event.job_uid: event.guess for event in events}[second.uid]
    of.say(*events)
    assert recorded(of) == []
    assert "(a guess), likely from " in describe(events[-1], of.state)
    assert desired_status(of.state, second)["expectedStart"].endswith("Z (a guess)")
    start = start_of(of.state, second)
    assert start is not None and start.guess and start.latest_ms > 0
    rows = {row.job: row for row in standings(of.state, of.config, lambda *_: None, complete=True).jobs}
    assert rows["default/second"].guess
    known = of.state.forecasts[second.uid]
    sure = k.StartForecast(second.uid, second.version, events[-1].expected_ms, 1, events[-1].latest_ms)
    assert says_more(known, sure, of.now_ms)


def test_a_forecast_that_says_the_same_is_not_recorded() -> None:
    of, _, third = waiting()
    of.say(*recorded(of))
    assert recorded(of) == []
    of.pass_time(5)
    assert recorded(of) == []
    known = of.state.forecasts[third.uid]
    near = k.StartForecast(third.uid, third.version, known.decided.expected_ms + 9_000, 1, known.decided.latest_ms)
    assert not says_more(known, near, of.now_ms)
    far = k.StartForecast(third.uid, third.version, known.decided.expected_ms + 60_000, 1, known.decided.latest_ms)
    assert says_more(known, far, of.now_ms)
    unknown = k.StartForecast(third.uid, third.version, known.decided.expected_ms, 1, 0)
    assert says_more(known, unknown, of.now_ms) and says_more(Forecasted(unknown, 0), known.decided, of.now_ms)


def test_a_forecast_of_an_earlier_version_of_the_job_is_refused() -> None:
    of, _, third = waiting()
    told(of, third, 5, based_on=third.version - 1)
    assert not of.verdict("StartForecast").accepted and of.state.forecasts == {}


def test_a_forecast_ends_with_the_waiting() -> None:
    of, second, third = waiting()
    told(of, third, of.now_ms + 5)
    first = of.state.jobs["uid-first"]
    of.change_pod(first.bound[0, 0], phase="Succeeded", ready=False)
    of.settle()
    assert second.placements and [*of.state.forecasts] == [third.uid]
    of.job_gone(third)
    assert of.state.forecasts == {}
    told(of, second, 5)
    assert "it has nodes already" in of.verdict("StartForecast").reason and of.state.forecasts == {}


def test_a_forecast_is_no_reason_for_a_cycle() -> None:
    of, _, third = waiting()
    before = of.state.scheduling_changes
    told(of, third, of.now_ms + 5)
    assert of.state.scheduling_changes == before and not of.changes.schedulable
    assert third.uid in of.changes.jobs  # its status changes


class _Following:
    """The follower and the writer of a role, on a world."""

    def __init__(self, of: World) -> None:
        self.world, self.state, self.still = of, of.state, Standstill()

    def fresh(self) -> bool:
        return True

    async def append_and_fold(self, events: list[k.StartForecast]) -> None:
        self.world.say(*events)


def test_the_role_records_what_it_forecasts_and_nothing_twice() -> None:
    of, _, third = waiting()
    following = _Following(of)
    role = Forecaster(parts(follower=following, writer=following))
    asyncio.run(role.make())
    assert of.verdict("StartForecast").accepted and expected_start_ms(of.state, third) > 0
    entries = len(of.entries)
    asyncio.run(role.make())
    assert len(of.entries) == entries


def test_a_reservation_promises_nothing_while_further_pods_of_a_job_ahead_may_take_the_room() -> None:
    """Further workers of a higher priority precede quorums of a lower one."""
    of = world(preemption=None)
    first = running(of, "first", 2, expected_s=45)
    elastic = of.job("elastic", leader=shape(cpu=1), workers=4, min_workers=2, worker=GPU, priority=6, expected_s=90)
    of.settle()
    assert len(elastic.placements) == 3
    late = submit(of, "late", 2, expected_s=20, priority=5)
    of.settle()
    start_ms = of.state.reservations[late.uid].decided.start_ms
    start = start_of(of.state, late)
    assert start is not None and start.ahead == ("default/elastic",) and start.expected_ms == start_ms
    said = room_words._start(start, of.now_ms, str)
    assert "expected by its reservation (pods of default/elastic go first, also there)" in said
    assert "promised" not in said
    [event] = recorded(of)
    assert event.job_uid == late.uid and event.expected_ms > start_ms
    of.say(event)
    start = start_of(of.state, late)
    assert start is not None and (start.certainty, start.expected_ms) == (Certainty.FORECAST, event.expected_ms)
    assert expected_start_ms(of.state, late) == event.expected_ms
    of.pass_time(45)
    of.change_pod(first.bound[0, 0], phase="Succeeded", ready=False)
    of.settle()
    assert len(elastic.placements) == 5 and not late.placements
    start = start_of(of.state, late)
    assert start is not None and not start.ahead


def test_a_reservation_promises_nothing_while_a_job_ahead_lacks_a_quota_that_others_will_leave() -> None:
    """It takes the room as soon as the quota is there."""
    of = world(preemption=None)
    of.quota("gpus", {"requests.nvidia.com/gpu": 2}, {"requests.nvidia.com/gpu": 2}, namespace="team")
    running(of, "first", 4, expected_s=45)
    ahead = submit(of, "ahead", 2, namespace="team", priority=7)
    late = submit(of, "late", 2, expected_s=20, priority=5)
    of.settle()
    assert isinstance(ahead.waits and ahead.waits.shortage, BeyondLimit)
    start = start_of(of.state, late)
    assert start is not None and start.expected_ms and start.ahead == ("team/ahead",)
    of.quota("gpus", {"requests.nvidia.com/gpu": 4}, {"requests.nvidia.com/gpu": 2}, namespace="team")
    of.settle()
    start = start_of(of.state, late)
    assert start is not None and not start.ahead


@pytest.mark.parametrize(
    ("most", "ahead", "late", "first"),
    [
        (None, 7, 5, True),
        (None, 5, 7, False),
        (None, 5, 5, True),  # it is older
        (5, 7, 9, True),  # in their queue, both count as 5
        (5, 9, 7, True),
        (5, 3, 9, False),
    ],
)
def test_a_job_ahead_is_one_that_cycles_serve_first(most: int | None, ahead: int, late: int, *, first: bool) -> None:
    of = world(preemption=None)
    of.queue("default", max_priority=most)
    of.quota("gpus", {"requests.nvidia.com/gpu": 2}, {"requests.nvidia.com/gpu": 2}, namespace="team")
    runs = running(of, "first", 4, expected_s=45)
    lacks_quota = submit(of, "ahead", 2, namespace="team", priority=ahead)
    reserved = submit(of, "late", 3, expected_s=20, priority=late)
    of.settle()
    start = start_of(of.state, reserved)
    assert start is not None and start.ahead == (("team/ahead",) if first else ())
    of.quota("gpus", {"requests.nvidia.com/gpu": 4}, {"requests.nvidia.com/gpu": 2}, namespace="team")
    of.pass_time(45)
    of.change_pod(runs.bound[0, 0], phase="Succeeded", ready=False)
    of.settle()
    assert (bool(lacks_quota.placements), bool(reserved.placements)) == (first, not first)


def test_further_pods_go_first_only_where_the_priority_that_counts_is_higher() -> None:
    """Within one priority all quorums precede them."""
    of = world(preemption=None)
    of.queue("default", max_priority=5)
    first = running(of, "first", 2, expected_s=45)
    elastic = of.job("elastic", leader=shape(cpu=1), workers=4, min_workers=2, worker=GPU, priority=6, expected_s=90)
    of.settle()
    late = submit(of, "late", 2, expected_s=20, priority=5)
    of.settle()
    start = start_of(of.state, late)
    assert start is not None and not start.ahead
    of.pass_time(45)
    of.change_pod(first.bound[0, 0], phase="Succeeded", ready=False)
    of.settle()
    assert len(elastic.placements) == 3 and late.placements
