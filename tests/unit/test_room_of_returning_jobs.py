"""Who only waits for its own pods to leave comes back: until then nobody behind it takes room of others that it would
take from it at once."""

import msgspec
import pytest

from arranger.events import kinds as k
from arranger.model.job import HANGS_AFTER_MS, Stage
from arranger.model.node import Taint
from arranger.model.pod import PodTimes, Toleration
from arranger.model.stages import StageReason
from arranger.projections.jobs.records import JobRecord
from arranger.replay.explain.room_words import takes_none_text
from arranger.replay.explain.taken_room import TakesNone
from arranger.scheduling import Cycles, NoRoom, NoRoomKind, why_no_room
from tests.unit.replay_worlds import explained
from tests.unit.test_preemption import preempted, running, waiting, world
from tests.world import World, shape

GRACE_S = 120


def leaving(*, reservations: int = 0) -> tuple[World, JobRecord, JobRecord]:
    """The job `low` runs on n0. The job `victim`, of a higher priority, has given n1 to `taker`, and its pods there
    have some time to end."""
    of = world(nodes=2, reservations=reservations)
    low, victim = running(of, "low", 4, priority=1), running(of, "victim", 4, priority=5)
    waiting(of, "taker", 4, priority=8, preemptible=False)
    of.node("n0", cpu=16, gpus=4, cordoned=True)
    assert preempted(of) is not None
    of.node("n0", cpu=16, gpus=4)
    of.control()
    assert victim.stage == Stage.RESCHEDULING and set(low.placements.values()) == {"n0"}
    for uid in of.state.pods_of[victim.uid]:
        of.change_pod(uid, deleting=True, times=PodTimes(of.now_ms + GRACE_S * 1000, 0, 0))
    return of, low, victim


def end(of: World, job: JobRecord) -> None:
    for uid in list(of.state.pods_of[job.uid]):
        of.pod_gone(uid)


def why_not(of: World, job: JobRecord) -> list[NoRoom]:
    found = why_no_room(of.state, of.state.jobs[job.uid], of.config, of.now_ms, lacks=None, infeasible=False)
    return [*found]


def victims_in_a_row() -> World:
    """The job `high` takes the node of `middle`, whose priority is next to it, and then `low` and `between`."""
    of = world(nodes=1, gpus=4)
    running(of, "low", 4, priority=1)
    of.node("new", cpu=16, gpus=4, labels={"pool": "new"})
    running(of, "middle", 4, priority=3)
    there = shape(cpu=1, gpus=1, selector={"pool": "new"})
    of.job("high", workers=4, worker=there, min_workers=4, equals=True, priority=4)
    waiting(of, "between", 4, priority=2)
    return of


def test_nobody_takes_room_that_a_victim_of_the_same_cycle_would_take_in_the_next_one() -> None:
    """The lowest job gave room to one that lost it a second later to the victim of the highest."""
    of = victims_in_a_row()
    of.settle()
    decided = [event for entry in of.entries for event in entry.batch.events if isinstance(event, k.Preempted)]
    assert [event.placed.job_uid for event in decided] == ["uid-high", "uid-middle"]
    assert {job.seen.name for job in of.state.jobs.values() if job.placements} == {"high", "middle"}


@pytest.mark.parametrize("reservations", [0, 1])
def test_nobody_behind_takes_room_for_as_long_as_the_pods_of_a_job_ahead_leave(reservations: int) -> None:
    of, low, victim = leaving(reservations=reservations)
    between = waiting(of, "between", 4, priority=3)
    for _ in range(4):
        assert preempted(of) is None
        of.pass_time(GRACE_S / 4)
    why = NoRoom(NoRoomKind.RETURNING, jobs=(low.uid,), hosts=(victim.uid,))
    assert why_not(of, between) == [why, NoRoom(NoRoomKind.NOT_LOWER, jobs=("uid-taker",))]
    told = TakesNone(why.kind, ("default/low",), 0, hosts=("default/victim",))
    said = "default/victim may take their room once pods of an earlier attempt have left: default/low"
    assert takes_none_text(told, str) == said
    end(of, victim)
    event = preempted(of)
    assert event is not None and event.placed.job_uid == victim.uid
    assert [of.job_uid for of in event.victims] == [low.uid] and not between.placements


def test_once_a_pod_of_the_job_ahead_hangs_others_take_room() -> None:
    of, low, _ = leaving()
    between = waiting(of, "between", 4, priority=3)
    of.pass_time(GRACE_S + HANGS_AFTER_MS / 1000 - 1)
    assert preempted(of) is None
    of.pass_time(1)
    assert preempted(of) is not None
    assert between.placements and not low.placements


def test_the_first_cycle_after_that_comes_by_itself() -> None:
    """Nothing else happens, so the time alone must bring it."""
    of, _, _ = leaving()
    waiting(of, "between", 4, priority=3)
    cycles = Cycles()
    while events := cycles.take(of.state, of.config, of.now_ms):
        of.say(*events)
    of.pass_time(GRACE_S + HANGS_AFTER_MS / 1000)
    assert any(isinstance(event, k.Preempted) for event in cycles.take(of.state, of.config, of.now_ms))


@pytest.mark.parametrize("priority", [5, 6])
def test_only_those_give_way_to_it_from_whom_it_would_take_room(priority: int) -> None:
    """A younger job of the same priority keeps what it takes."""
    of, low, _ = leaving()
    behind = waiting(of, "behind", 4, priority=priority)
    assert preempted(of) is not None
    assert behind.placements and not low.placements


def test_who_runs_on_other_nodes_takes_room_there() -> None:
    of, low, _ = leaving()
    of.node("far", cpu=16, gpus=4, labels={"pool": "far"}, taints=(Taint("far", "", "NoSchedule"),))
    there = shape(cpu=1, gpus=1, selector={"pool": "far"}, tolerations=(Toleration("far", "Exists", "", ""),))
    first = of.job("first", workers=4, worker=there, min_workers=4, equals=True, priority=1)
    of.settle()
    assert first.stage == Stage.RUNNING
    of.pass_time(10)
    behind = of.job("behind", workers=4, worker=there, min_workers=4, equals=True, priority=3)
    event = preempted(of)
    assert event is not None and event.placed.job_uid == behind.uid and low.placements


def test_a_job_ahead_that_gets_nothing_from_others_is_in_nobodys_way() -> None:
    """It took room in vain, takes none by its spec, or needs more than those behind it have."""
    of, low, victim = leaving()
    behind = waiting(of, "behind", 4, priority=3)
    assert preempted(of) is None
    spec = victim.seen.spec
    assert spec is not None
    of.say(msgspec.structs.replace(victim.seen, spec=msgspec.structs.replace(spec, preempts=False), generation=2))
    assert preempted(of) is not None
    assert behind.placements and not low.placements


def test_a_job_ahead_for_which_nobody_has_enough_is_in_nobodys_way() -> None:
    of = world(nodes=3)
    low = running(of, "low", 4, priority=1)
    victim = running(of, "victim", 8, priority=5)
    of.node("n0", cpu=16, gpus=4, cordoned=True)
    waiting(of, "taker", 8, priority=8, preemptible=False)
    assert preempted(of) is not None
    of.node("n0", cpu=16, gpus=4)
    of.control()
    for uid in of.state.pods_of[victim.uid]:
        of.change_pod(uid, deleting=True, times=PodTimes(of.now_ms + GRACE_S * 1000, 0, 0))
    behind = waiting(of, "behind", 4, priority=3)
    assert preempted(of) is not None
    assert behind.placements and not low.placements


def test_a_job_ahead_that_has_room_without_others_is_in_nobodys_way() -> None:
    """What it gets by itself is reserved for it."""
    of, low, victim = leaving(reservations=1)
    of.node("free", cpu=16, gpus=4)
    behind = waiting(of, "behind", 4, priority=3)
    event = preempted(of)
    assert event is not None and event.placed.job_uid == behind.uid and not low.placements
    assert victim.uid in of.state.reservations


def test_jobs_of_other_queues_are_in_nobodys_way() -> None:
    """Shares decide between queues, and what one reclaims the other can't take back."""
    of = world(nodes=2)
    of.queue("a")
    of.queue("b")
    low = running(of, "low", 4, of_queue="b", priority=1)
    victim = running(of, "victim", 4, of_queue="a", priority=5)
    of.node("n0", cpu=16, gpus=4, cordoned=True)
    waiting(of, "taker", 4, of_queue="a", priority=8, preemptible=False)
    assert preempted(of) is not None
    of.node("n0", cpu=16, gpus=4)
    of.control()
    for uid in of.state.pods_of[victim.uid]:
        of.change_pod(uid, deleting=True, times=PodTimes(of.now_ms + GRACE_S * 1000, 0, 0))
    behind = waiting(of, "behind", 4, of_queue="b", priority=3)
    assert preempted(of) is not None
    assert behind.placements and not low.placements


def test_explain_says_to_whom_room_is_left() -> None:
    of, _, _ = leaving(reservations=1)
    waiting(of, "between", 4, priority=3)
    of.cycle()
    waits = explained(of.entries, "between").waiting
    assert waits is not None
    why = waits.takes_none[0]
    assert (why.kind, why.jobs, why.hosts) == (NoRoomKind.RETURNING, ("default/low",), ("default/victim",))


def whose_quota_keeps_a_reservation() -> tuple[World, JobRecord, JobRecord]:
    """A node of 8 GPUs: `low` uses 2 and a pod of others one. The pods of `first` leave the rest, and 4 of that are
    reserved for `ahead`: so `first` surely lacks some, as long as a quota leaves enough to `ahead`."""
    of = world(gpus=8, reservations=1)
    low = running(of, "low", 2, priority=1)
    first = running(of, "first", 5, priority=5, namespace="team", grace_s=GRACE_S)
    of.pod("other", "n0", gpus=1)
    of.quota("objects", {"pods": 7}, {"pods": 3})
    of.say(k.StageDecided(first.uid, first.version, 0, Stage.RESCHEDULING, StageReason.AS_RECORDED))
    for uid in of.state.pods_of[first.uid]:
        of.change_pod(uid, deleting=True, times=PodTimes(of.now_ms + GRACE_S * 1000, 0, 0))
    ahead = waiting(of, "ahead", 4, priority=7)
    assert preempted(of) is None
    assert ahead.uid in of.state.reservations
    return of, low, first


def test_a_job_ahead_that_a_reservation_keeps_out_counts_if_it_ends_by_what_others_use_of_a_quota() -> None:
    """Who takes room and what `ahead` needs of a quota ends its reservation, and `first` would take all of that."""
    of, low, first = whose_quota_keeps_a_reservation()
    between = waiting(of, "between", 3, priority=3)
    assert preempted(of) is None and low.placements
    assert why_not(of, between)[0] == NoRoom(NoRoomKind.RETURNING, jobs=(low.uid,), hosts=(first.uid,))


def test_a_job_ahead_that_a_reservation_keeps_out_is_in_nobodys_way_who_uses_no_quota_of_it() -> None:
    of, low, _ = whose_quota_keeps_a_reservation()
    between = waiting(of, "between", 3, priority=3, namespace="team")
    assert preempted(of) is not None
    assert between.placements and not low.placements
