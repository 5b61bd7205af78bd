"""Forecasts as events: what the fold keeps of them, what a status shows, and what the role records."""

import asyncio
import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from arranger.clock import SystemClock
from arranger.errors import LogUnavailable
from arranger.events import kinds as k
from arranger.events.facts import BeyondLimit
from arranger.lifecycle.desired import desired_status
from arranger.lifecycle.giving_way import expected_start_ms
from arranger.model.config import CycleConfig
from arranger.model.job import Stage
from arranger.model.stages import StageReason
from arranger.model.text import rfc3339
from arranger.projections import snapshot
from arranger.projections.consistency import validate
from arranger.projections.folding.forecasts import ExpectedStart, expected_start, says_more
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import Forecasted, State
from arranger.replay.console.moment import standings
from arranger.replay.explain import room_words
from arranger.replay.explain.expected import Certainty, NoStart, Start, start_of
from arranger.replay.forecast.starts import Forecast, forecast
from arranger.replay.reading.describe import describe
from arranger.workers.deciding import forecaster
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
    told(of, third, of.now_ms + 500_000)
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


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The times as of which forecasts are made."""
    found: list[int] = []

    def noted(state: State, config: CycleConfig, time_ms: int, **more: Any) -> Forecast:
        found.append(time_ms)
        return forecast(state, config, time_ms, **more)

    monkeypatch.setattr(forecaster, "forecast", noted)
    monkeypatch.setattr(forecaster, "processor_s", lambda: 0.0)
    return found


class _WorldClock(SystemClock):
    """The time of a world."""

    def __init__(self, of: World) -> None:
        self._world = of

    def now_ms(self) -> int:
        return self._world.now_ms

    def monotonic_s(self) -> float:
        return self._world.now_ms / 1000


def role_of(of: World, **given: Any) -> Forecaster:
    following = _Following(of)
    never = {"preemption": dict.fromkeys(("surplus", "priority", "reclaim"), "Never")}
    return Forecaster(parts(follower=following, writer=following, clock=_WorldClock(of), settings=never, **given))


def test_no_forecast_is_made_while_nobody_waits(made: list[int]) -> None:
    of = world(preemption=None)
    running(of, "first", 2, expected_s=100)
    asyncio.run(role_of(of).make())
    assert made == []


def test_no_forecast_is_made_again_until_something_changes_or_a_start_did_not_come(made: list[int]) -> None:
    of, _, _ = waiting()
    role = role_of(of)
    asyncio.run(role.make())
    of.pass_time(20)
    asyncio.run(role.make())
    assert len(made) == 1
    submit(of, "fourth", 1)
    asyncio.run(role.make())
    assert len(made) == 2
    of.pass_time(70)
    asyncio.run(role.make())
    assert len(made) == 2
    of.pass_time(20)  # `second` should have started by now
    asyncio.run(role.make())
    assert len(made) == 3


def test_forecasts_take_at_most_a_twentieth_of_a_processor(made: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    of, _, _ = waiting()
    role, spent_s = role_of(of), itertools.count(0.0, 0.5)
    monkeypatch.setattr(forecaster, "processor_s", lambda: next(spent_s))
    asyncio.run(role.make())
    rested_s, took_s = 0, next(spent_s) - 0.5
    assert took_s >= 1
    while len(made) == 1:
        rested_s += 1
        of.pass_time(1)
        submit(of, f"later-{rested_s}", 1)
        asyncio.run(role.make())
    assert rested_s >= 20 * 1.0, "at least 0.5 s for the copy, and 0.5 s for the forecast"


def test_a_forecast_stands_still_while_a_cycle_is_taken(made: list[int]) -> None:
    of, _, _ = waiting()
    asked = itertools.count()
    following = _Following(of)
    role = Forecaster(parts(follower=following, writer=following), in_cycle=lambda: next(asked) < 3)
    asyncio.run(role.make())
    assert next(asked) > 3 and of.verdict("StartForecast").accepted


def test_a_forecast_that_the_log_did_not_take_is_made_again(made: list[int]) -> None:
    of, _, third = waiting()
    role = role_of(of)
    taken, role._writer.append_and_fold = role._writer.append_and_fold, _refuses  # type: ignore[method-assign]
    with pytest.raises(LogUnavailable):
        asyncio.run(role.make())
    role._writer.append_and_fold = taken  # type: ignore[method-assign]
    asyncio.run(role.make())
    assert len(made) == 2 and expected_start_ms(of.state, third) > 0


async def _refuses(*_: Any, **__: Any) -> None:
    raise LogUnavailable("no log")


def test_a_forecast_that_fails_rests_as_one_that_succeeds(monkeypatch: pytest.MonkeyPatch) -> None:
    of, _, _ = waiting()
    role, spent_s = role_of(of), [0.0]

    def fails(*_: Any, **__: Any) -> Forecast:
        spent_s[0] += 2.0
        raise ValueError("a policy failed")

    monkeypatch.setattr(forecaster, "forecast", fails)
    monkeypatch.setattr(forecaster, "processor_s", lambda: spent_s[0])
    with pytest.raises(ValueError, match="a policy failed"):
        asyncio.run(role.make())
    of.pass_time(39)
    asyncio.run(role.make())
    of.pass_time(2)
    with pytest.raises(ValueError, match="a policy failed"):
        asyncio.run(role.make())


def test_a_forecast_is_made_again_once_the_stage_of_a_job_was_decided(made: list[int]) -> None:
    """With its stage, the end that is expected of a job begins or ceases to be known."""
    of, _, _ = waiting()
    role, small = role_of(of), of.job("small", leader=shape(cpu=1), expected_s=60)
    of.cycle()
    assert small.placements and small.stage == Stage.STARTING
    asyncio.run(role.make())
    of.say(k.StageDecided(small.uid, small.version, small.attempt, Stage.RUNNING, StageReason.WORKERS_READY))
    assert of.verdict("StageDecided").accepted
    asyncio.run(role.make())
    assert len(made) == 2


def test_a_tick_of_the_scheduler_that_reacts_to_changes_is_passed_on_once_in_a_period() -> None:
    of, _, _ = waiting()
    members, pushed = [SimpleNamespace(aside=False)] * 2, list[str]()

    async def push(tick: str) -> bool:
        pushed.append(tick)
        return True

    membership = SimpleNamespace(seen=lambda _: members, owns=lambda *_: True)
    role = role_of(of, membership=membership, ticker=SimpleNamespace(push=push))
    asyncio.run(role.tick())
    asyncio.run(role.tick())
    assert pushed == [forecaster.TICK], "the second one came back: no other process takes any"
    of.pass_time(10)
    asyncio.run(role.tick())
    assert pushed == [forecaster.TICK] * 2
    members.pop()
    asyncio.run(role.tick())
    assert len(pushed) == 2 and role._due.is_set(), "it makes the forecast if it is alone"


@pytest.mark.parametrize(("owns", "others", "makes"), [(True, 0, True), (True, 1, False), (False, 1, True)])
def test_a_scheduler_that_reacts_to_changes_leaves_forecasts_to_others(
    made: list[int], *, owns: bool, others: int, makes: bool
) -> None:
    of, _, _ = waiting()
    members = [SimpleNamespace(aside=False)] * (1 + others) + [SimpleNamespace(aside=True)]
    membership = SimpleNamespace(seen=lambda _: members, owns=lambda *_: owns)
    role = role_of(of, membership=membership, ticker=SimpleNamespace(push=lambda _: asyncio.sleep(0)))

    async def ticked() -> None:
        running = asyncio.create_task(role.run())
        await role.tick()
        await asyncio.sleep(0.2)
        running.cancel()

    asyncio.run(ticked())
    assert bool(made) == makes


def two_queues() -> tuple[World, JobRecord, JobRecord]:
    """`mine` has a reservation, and `theirs` waits in another queue, whose turn is first by then."""
    of = world(preemption=None, reservations=1)
    of.queue("a")
    of.queue("b")
    running(of, "first", 4, of_queue="a", expected_s=100)
    mine = submit(of, "mine", 4, of_queue="a", expected_s=50)
    of.settle()
    assert [*of.state.reservations] == [mine.uid]
    theirs = submit(of, "theirs", 4, of_queue="b", expected_s=30)
    of.settle()
    return of, mine, theirs


def test_where_other_queues_may_go_first_a_forecast_says_when_a_job_starts() -> None:
    of, mine, theirs = two_queues()
    reserved_ms = of.state.reservations[mine.uid].decided.start_ms
    assert desired_status(of.state, mine)["expectedStart"].endswith("Z or later")
    events = {event.job_uid: event for event in recorded(of)}
    assert {mine.uid, theirs.uid} == events.keys()
    of.say(*events.values())
    told = events[mine.uid]
    assert told.expected_ms >= reserved_ms
    assert expected_start_ms(of.state, mine) == told.expected_ms
    assert desired_status(of.state, mine)["expectedStart"] == rfc3339(told.expected_ms)
    start = start_of(of.state, mine)
    assert start is not None and (start.certainty, start.latest_ms) == (Certainty.FORECAST, told.latest_ms)


def test_a_forecast_is_withdrawn_once_a_reservation_promises_the_start() -> None:
    of, mine, theirs = two_queues()
    of.say(*recorded(of))
    assert expected_start(of.state, mine) != ExpectedStart(of.state.reservations[mine.uid].decided.start_ms, None)
    of.job_gone(theirs)
    [event] = recorded(of)
    assert (event.job_uid, event.expected_ms) == (mine.uid, 0)
    of.say(event)
    reserved_ms = of.state.reservations[mine.uid].decided.start_ms
    assert expected_start(of.state, mine) == ExpectedStart(reserved_ms, None)
    assert recorded(of) == []


def test_a_reservation_that_moves_to_a_later_start_than_was_forecast_says_more() -> None:
    of, mine, _ = two_queues()
    before_ms = of.state.reservations[mine.uid].decided.start_ms
    told(of, mine, before_ms + 1_000)
    assert expected_start_ms(of.state, mine) == before_ms + 1_000
    of.pass_time(101)  # `first` has outlived its expectation
    of.settle()
    moved_ms = of.state.reservations[mine.uid].decided.start_ms
    assert moved_ms > before_ms + 1_000 and expected_start_ms(of.state, mine) == moved_ms
    assert desired_status(of.state, mine)["expectedStart"].endswith("Z or later")
    validate(of.state)


def test_a_forecast_that_did_not_come_true_leaves_what_the_reservation_says() -> None:
    of, mine, _ = two_queues()
    reserved = of.state.reservations[mine.uid].decided
    told(of, mine, of.now_ms + 5_000)
    of.pass_time(10)
    of.state.time_ms = of.now_ms
    start = start_of(of.state, mine)
    assert start is not None and (start.certainty, start.expected_ms) == (Certainty.PROMISED, reserved.start_ms)


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
