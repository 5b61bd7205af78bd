"""The record of preemptions, alone: one that answers another, and one too many, are problems."""

from types import SimpleNamespace
from typing import Any
from unittest import mock

import msgspec
import pytest

from arranger.events import kinds as k
from arranger.events.facts import LackOfNodes, PreemptionKind, Victim
from arranger.model.job import ScheduleState, Stage
from arranger.model.pod import PodRules
from arranger.projections.jobs.records import JobRecord
from arranger.scheduling.cycle import take_cycle
from arranger.scheduling.queues import known_jobs
from arranger.scheduling.room.backfill import Backfill
from arranger.scheduling.room.preemption import PreemptionSearch
from arranger.scheduling.room.reservation_search import ReservationSearch
from arranger.scheduling.room.returning import Returning
from tests.simulation import room_rules
from tests.simulation.conservation import needless
from tests.simulation.returning import given_back
from tests.simulation.room_record import TIMES, RoomRecord
from tests.unit.test_kept_limits import at_its_limit, end
from tests.unit.test_kept_limits import small as small_job
from tests.unit.test_limits_of_hosts import behind
from tests.unit.test_preemption import GPU, running, waiting, world
from tests.unit.test_reservations_of_borrowers import beside_a_borrower, submit
from tests.unit.test_room_of_returning_jobs import leaving as leaving_victim
from tests.unit.test_room_of_returning_jobs import victims_in_a_row
from tests.world import World, shape

SURPLUS, PRIORITY, RECLAIM, GUEST, GUEST_SURPLUS = PreemptionKind


def preempted(uid: str, *victims: str, kind: PreemptionKind = PRIORITY) -> k.Preempted:
    """A preemption of whole jobs or their surplus for the job of this UID."""
    of = tuple(Victim(victim, 1, 0, kind, (), 0) for victim in victims)
    return k.Preempted(k.Placed(uid, 1, 0, ScheduleState.SUCCEED, ()), of, (), (), 0)


def problems(*events: tuple[int, k.Preempted], **fields: Any) -> list[str]:
    """The problem of each preemption at its time, in milliseconds; `fields` of the record are set before the last."""
    record, found = RoomRecord(SimpleNamespace()), []  # type: ignore[arg-type]
    for number, (time_ms, event) in enumerate(events, start=1):
        if number == len(events):
            vars(record).update({f"_{name}": value for name, value in fields.items()})
        found.append(record._again(time_ms, event))
        record._accepted.append((time_ms, event))
    return found


@pytest.mark.parametrize("kind", [SURPLUS, PRIORITY])
def test_two_jobs_that_take_room_from_each_other_are_a_problem(kind: PreemptionKind) -> None:
    first, answer = preempted("a", "x", "b"), preempted("b", "a", kind=kind)
    assert problems((1_000, first), (2_000, answer))[1]
    assert problems((1_000, first), (3_700_000, answer)) == ["", ""]  # an hour later
    assert problems((1_000, first), (2_000, preempted("c", "a"))) == ["", ""]


def test_an_edit_between_two_preemptions_excuses_the_second_one() -> None:
    both = (1_000, preempted("a", "b")), (3_000, preempted("b", "a"))
    assert problems(*both, edited_ms={"a": 2_000}) == ["", ""]
    assert problems(*both, rules_ms=2_000) == ["", ""]
    assert problems(*both, edited_ms={"a": 500, "c": 2_000})[1]
    assert problems(*both, demand_ms=2_000)[1], "demand decides on shares alone"


def test_shares_follow_demand_so_queues_may_take_turns_after_it_changed() -> None:
    both = (1_000, preempted("a", "b", kind=RECLAIM)), (3_000, preempted("b", "a", kind=RECLAIM))
    assert problems(*both)[1]
    assert problems(*both, demand_ms=2_000) == ["", ""]


def test_surplus_of_another_queue_is_given_by_shares_too() -> None:
    record = RoomRecord(SimpleNamespace())  # type: ignore[arg-type]
    record._accepted.append((1_000, preempted("a", "b", kind=SURPLUS)))
    record._demand_ms = 2_000
    answer = preempted("b", "a", kind=SURPLUS)
    assert record._again(3_000, answer)
    assert not record._again(3_000, answer, elsewhere=["a"])


def test_a_queue_that_got_more_since_may_give_room_back() -> None:
    both = (1_000, preempted("a", "b", kind=RECLAIM)), (3_000, preempted("b", "a", kind=RECLAIM))
    assert problems(*both, grown={"a": None}) == ["", ""]
    assert problems(*both, grown={"b": None})[1]


def test_no_job_loses_its_pods_too_often() -> None:
    often = [(number, preempted(f"job{number}", "poor")) for number in range(TIMES + 1)]
    assert [bool(problem) for problem in problems(*often)] == [False] * TIMES + [True]
    surplus = [(time_ms, preempted(event.placed.job_uid, "poor", kind=SURPLUS)) for time_ms, event in often]
    assert not any(problems(*surplus))


def test_a_beneficiary_whose_own_pods_fail_counts_once() -> None:
    often = [(1_000 * number, preempted("poor", "rich")) for number in range(1, 2 * TIMES)]
    assert problems(*often)[-1]
    assert not problems(*often, failed_ms={"poor": 1_000 * (TIMES + 1)})[-1]


def test_who_gives_room_to_a_job_that_fails_again_and_again_may_take_some_each_time() -> None:
    record = RoomRecord(SimpleNamespace())  # type: ignore[arg-type]
    record._note_failing(2_000, preempted("failing", "middle"))
    assert record._failed_ms == {}
    record._failed_ms["failing"] = 1_000
    record._note_failing(2_000, preempted("failing", "other", kind=SURPLUS))
    record._note_failing(2_000, preempted("failing", "middle"))
    assert record._failed_ms == {"failing": 1_000, "middle": 2_000}
    record._note_failing(3_700_000, preempted("failing", "late"))
    assert "late" not in record._failed_ms


def test_a_queue_takes_no_room_back_before_the_minimum_runtime_is_over() -> None:
    of = World()
    of.queue("a", min_runtime_s=60)
    of.queue("b")
    for name, queue in (("taker", "a"), ("loser", "b")):
        of.job(name, workers=1, equals=True, of_queue=queue)
    record = RoomRecord(SimpleNamespace())  # type: ignore[arg-type]
    back = preempted("uid-loser", "uid-taker", kind=RECLAIM)
    record.took["uid-taker"] = (1_000, {"b": None})
    assert "takes room back from taker after 59000 of 60000 ms" in record._back_at_once(of.state, back, 60_000)
    assert record._back_at_once(of.state, back, 61_000) == ""
    record.took["uid-taker"] = (1_000, {"c": None})
    assert record._back_at_once(of.state, back, 60_000) == ""


def test_who_is_kept_from_its_share_by_a_borrowers_reservation_is_a_problem() -> None:
    of, wide = beside_a_borrower()
    v2 = submit(of, "v2", "vision", created=9)
    with mock.patch.object(PreemptionSearch, "comes_first_by_victims", lambda *_: False):
        assert not [event for event in take_cycle(of.state, of.config, of.now_ms) if isinstance(event, k.Preempted)]
        [(uid, problem)] = room_rules.kept_by_borrowers(of.state, of.config, of.now_ms)
        decided = of.state.reservations[wide.uid].decided
        first = k.Reserved(v2.uid, v2.version, 0, decided.pods)  # kept from all until the next cycle
        assert not list(room_rules.kept_by_borrowers(of.state, of.config, of.now_ms, [first]))
    assert uid == v2.uid and wide.seen.name in problem
    of.job_gone(v2)
    submit(of, "both", "vision", 2, created=9)
    assert not list(room_rules.kept_by_borrowers(of.state, of.config, of.now_ms))


def test_between_queues_shares_say_whose_turns_are_before() -> None:
    of = world()
    for name in ("a", "b"):
        of.queue(name)
    running(of, "runs", 4, of_queue="a")
    senior, junior = waiting(of, "senior", 2, of_queue="a", priority=9), waiting(of, "junior", 2, of_queue="a")
    other = waiting(of, "other", 2, of_queue="b")
    cycle = k.CycleTaken(of.state.offset, of.now_ms, of.config)
    assert [job.seen.name for job in room_rules._turns_before(of.state, cycle, junior)] == ["other", "senior"]
    assert room_rules._turns_before(of.state, cycle, other) == []
    assert room_rules.by_seniority(of.state, cycle)[0] is senior


def forbidden(of: World, *, least_ms: int = 0) -> list[str]:
    """What is wrong, if jobs keep their quorums so long, with the preemption of a cycle that knows nothing of it."""
    events = take_cycle(of.state, of.config, of.now_ms)
    [event] = [event for event in events if isinstance(event, k.Preempted)]
    config = msgspec.structs.replace(of.config, min_runtime_ms=least_ms)
    cycle = k.CycleTaken(of.state.offset, of.now_ms, config)
    return list(room_rules._forbidden(of.state, cycle, of.state.jobs[event.placed.job_uid], event, ()))


@pytest.mark.parametrize(("took", "own_s"), [(True, None), (True, 0), (False, None)])
def test_a_job_that_gives_a_quorum_that_it_took_before_the_least_time_is_over_is_a_problem(
    took: bool, own_s: int | None
) -> None:
    of = world()
    of.watch_queues()
    of.queue("default", min_runtime_s=own_s)
    running(of, "low", 4, priority=1).slots.took = took
    waiting(of, "high", 4, priority=9)
    assert forbidden(of) == []
    found = forbidden(of, least_ms=60_000)
    assert [("it took its nodes and has run for 10000 ms of 60000" in problem) for problem in found] == [True] * (
        took and own_s is None
    )


def awaiting() -> World:
    """`mid` waits for the pods of `low` to leave, and `high` comes."""
    of = world()
    running(of, "low", 4, priority=1)
    waiting(of, "mid", 4, priority=5)
    of.cycle()
    of.pass_time(50)
    assert of.state.jobs["uid-mid"].slots.room is not None
    return of


def test_that_a_job_gives_room_for_which_it_waits_is_no_problem() -> None:
    of = awaiting()
    waiting(of, "high", 4, priority=9)
    assert forbidden(of, least_ms=60_000) == []


def test_that_the_least_time_counts_before_a_job_has_begun_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    of = awaiting()
    of.settle()
    of.pass_time(20)
    waiting(of, "high", 4, priority=9)
    assert of.state.jobs["uid-mid"].stage == Stage.RUNNING
    monkeypatch.setattr(JobRecord, "room_since_ms", property(lambda job: job.began_ms))
    of.config = msgspec.structs.replace(of.config, min_runtime_ms=60_000)
    [problem] = forbidden(of, least_ms=60_000)
    assert "it took its nodes and has run for 20000 ms of 60000" in problem


def test_a_job_whose_leader_has_finished_and_that_gives_room_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_jobs, "ends_by_itself", lambda _, job, time_ms: False)
    of = world()
    low = of.job("low", leader=shape(cpu=1), workers=4, worker=GPU, min_workers=4, priority=1)
    of.settle()
    waiting(of, "high", 4, priority=9)
    of.change_pod(low.bound[0, 0], phase="Succeeded", ready=False)
    assert ["its leader has finished" in problem for problem in forbidden(of)] == [True]


def waits_without_need(of: World) -> list[str]:
    """The jobs (UIDs) that wait without need after a cycle that decides nothing."""
    cycle = k.CycleTaken(of.state.offset, of.now_ms, of.config)
    return [uid for uid, _ in needless(of.state, cycle, [], before=None, events=[cycle])]


def test_that_a_job_waits_which_would_use_a_quota_that_the_job_in_front_needs_is_no_problem() -> None:
    of, _, small = behind(quota={"count/pods": 9})
    assert waits_without_need(of) == []
    of.quota("few", {"count/pods": 10})
    assert waits_without_need(of) == [small.uid], "there is enough for both"


def test_a_guest_that_uses_a_quota_which_its_host_needs_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Backfill, "_needs_its_quota", lambda *_: False)
    for pods, problems in ((9, 1), (10, 0)):
        of, gang, small = behind(quota={"count/pods": pods}, settled=False)
        cycle, *events = take_cycle(of.state, of.config, of.now_ms)
        [placed] = [event for event in events if isinstance(event, k.Placed)]
        assert placed.job_uid == small.uid and placed.hosts == (gang.uid,)
        found = [problem for _, problem in room_rules._in_the_way(of.state, cycle, placed, (), events)]
        assert ["uses a quota that this needs" in problem for problem in found] == [True] * problems


def taken_before(nodes: dict[str, int], rules: PodRules | None = None) -> list[str]:
    """What is wrong with a cycle that gives nodes to a small job, while 7 CPUs of `n0` come by themselves, and a job
    before it in its queue needs 9 of a node."""
    of = World()
    of.node("n0", cpu=10)
    old = of.job("old", leader=shape(cpu=1), workers=1, worker=shape(cpu=7), min_workers=1)
    of.settle()
    for name, cpu in nodes.items():
        of.node(name, cpu=cpu)
    of.change_pod(old.bound[0, 0], phase="Succeeded", ready=False)
    of.job("large", leader=shape(cpu=9, rules=rules), priority=9)
    of.job("small", leader=shape(cpu=2, rules=rules))
    cycle, *events = take_cycle(of.state, of.config, of.now_ms)
    assert [event.job_uid for event in events if isinstance(event, k.Placed)] == ["uid-small"]
    return [problem for _, problem in room_rules.taken_before(of.state, cycle, [cycle, *events])]


def test_who_takes_room_that_would_come_for_a_job_before_it_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReservationSearch, "after_departures", lambda *_: None)
    assert taken_before({}) == ["gets nodes that large would have got by itself, which comes before it"]


def test_who_takes_a_claim_that_a_job_before_it_would_use_alone_is_none() -> None:
    assert taken_before({"n1": 2}, PodRules(exclusive=("own",))) == []


def test_that_a_limit_is_kept_for_a_job_that_lacks_room_by_now_and_has_none_reserved_is_no_problem() -> None:
    of, runners, large = at_its_limit()
    for number, node in enumerate(of.state.nodes.rows):
        if not any(node in job.placements.values() for job in runners):
            of.pod(f"other-{number}", node, gpus=4)
    [taken] = runners[0].placements.values()
    end(of, runners[0])
    of.pod("other", taken, gpus=4)
    end(of, runners[1])
    assert isinstance(large.waits.shortage, LackOfNodes) and large.uid in of.state.kept_limits
    assert large.uid not in of.state.reservations
    behind_it = small_job(of, "behind it", preemptible=False)
    assert behind_it.waits.shortage.kept_by == (large.uid,)
    assert waits_without_need(of) == []


def test_who_takes_room_that_a_job_takes_back_as_soon_as_its_own_pods_have_left_is_a_problem() -> None:
    of, _, _ = leaving_victim()
    waiting(of, "between", 4, priority=3)
    with mock.patch.object(Returning, "before", lambda *_: iter(())):
        cycle, *events = take_cycle(of.state, of.config, of.now_ms)
        assert isinstance(cycle, k.CycleTaken)
        [(uid, problem)] = given_back(of.state, cycle, [cycle, *events])
    assert uid == "uid-between" and problem == "takes room that victim takes as soon as its own pods have left"


def test_who_takes_room_that_a_victim_of_the_same_cycle_takes_back_is_a_problem() -> None:
    of = victims_in_a_row()
    with mock.patch.object(Returning, "before", lambda *_: iter(())):
        cycle, *events = take_cycle(of.state, of.config, of.now_ms)
        assert isinstance(cycle, k.CycleTaken)
        assert [uid for uid, _ in given_back(of.state, cycle, [cycle, *events])] == ["uid-between"]


def test_who_keeps_what_it_takes_while_others_own_pods_leave_is_none() -> None:
    of, _, _ = leaving_victim()
    waiting(of, "behind", 4, priority=5)
    cycle, *events = take_cycle(of.state, of.config, of.now_ms)
    assert isinstance(cycle, k.CycleTaken) and any(isinstance(event, k.Preempted) for event in events)
    assert not list(given_back(of.state, cycle, [cycle, *events]))
