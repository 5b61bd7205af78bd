"""Reservations of the first waiting jobs, and who may go before them."""

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

from arranger.events import kinds as k
from arranger.model.config import CycleConfig
from arranger.model.job import Stage
from arranger.model.pod import PodTimes
from arranger.model.queue import Preemption, PreemptionMode
from arranger.model.reasons import ReasonKind
from arranger.model.stages import StageReason
from arranger.projections import snapshot
from arranger.projections.consistency import validate
from arranger.projections.jobs.records import JobRecord
from arranger.scheduling.cycle import VERSIONS, Cycles
from arranger.scheduling.queues.registry import BUILT_IN
from arranger.scheduling.room.bound import RoomBound
from arranger.scheduling.room.no_room import NoRoomKind, why_no_room
from arranger.scheduling.room.reservation_search import ReservationSearch
from arranger.scheduling.search.placer import Placer
from tests.world import World, shape

CONFIG = CycleConfig(
    versions=VERSIONS,
    refusal_avoid_ms=60_000,
    reservations=1,
    reservation_refresh_ms=30_000,
    search_steps=30_000,
)
GPU = shape(cpu=1, gpus=1)


def world(nodes: int = 1, *, gpus: int = 4, **config: object) -> World:
    of = World(config=msgspec.structs.replace(CONFIG, **config))
    for number in range(nodes):
        of.node(f"n{number}", cpu=64, gpus=gpus)
    return of


def submit(of: World, name: str, workers: int, **spec: object) -> JobRecord:
    return of.job(name, workers=workers, worker=GPU, min_workers=workers, equals=True, **spec)  # type: ignore[arg-type]


def running(of: World, name: str, workers: int, **spec: object) -> JobRecord:
    job = submit(of, name, workers, **spec)
    of.settle()
    assert job.stage == Stage.RUNNING
    return job


def end(of: World, job: JobRecord) -> None:
    of.say(k.StageDecided(job.uid, job.version, job.attempt, Stage.SUCCEEDED, StageReason.TERMINATED))
    of.settle()


def started(of: World, *jobs: JobRecord) -> list[bool]:
    of.settle()
    validate(of.state)
    return [job.stage == Stage.RUNNING for job in jobs]


def test_the_first_job_that_lacks_room_gets_a_reservation_at_the_expected_ends() -> None:
    of = world()
    first = running(of, "first", 2, expected_s=100)
    second = running(of, "second", 2, expected_s=200)
    large = submit(of, "large", 4, priority=9)
    of.settle()
    reservation = of.state.reservations[large.uid]
    assert reservation.decided.start_ms == second.began_ms + 200_000 == reservation.first_ms
    assert sorted(reservation.decided.awaits) == [first.uid, second.uid]
    assert [pods.node for pods in reservation.decided.pods] == ["n0"]
    assert snapshot.restore(snapshot.encode(of.state)).reservations == of.state.reservations


def test_the_end_of_a_job_is_known_that_is_about_to_start() -> None:
    """It has taken its nodes, and starts once the others have left them."""
    of = world(preemption=Preemption())
    running(of, "low", 4, priority=1)
    first = submit(of, "first", 4, priority=9, expected_s=100)
    of.cycle()
    assert first.placements and first.stage == Stage.PENDING
    large = submit(of, "large", 4)
    of.cycle()
    assert first.slots.room is not None
    gone_ms = first.slots.room.until_ms - of.config.room_bound_ms  # the grace periods of the others are over
    assert of.state.reservations[large.uid].decided.start_ms == gone_ms + 100_000


def test_a_job_behind_may_not_delay_the_start() -> None:
    of = world()
    first = running(of, "first", 2, expected_s=100)
    large = submit(of, "large", 4, priority=9)
    small = submit(of, "small", 1, priority=1)
    assert started(of, large, small) == [False, False]
    assert small.waits is not None
    assert [reason.kind for reason, _ in small.waits.shortage.reasons] == [ReasonKind.RESERVED]
    end(of, first)
    assert started(of, large, small) == [True, False]


def test_a_job_that_ends_in_time_may_go_first() -> None:
    of = world()
    running(of, "first", 2, expected_s=100)
    large = submit(of, "large", 4, priority=9)
    short = submit(of, "short", 1, priority=1, expected_s=90)
    long = submit(of, "long", 1, priority=1, expected_s=110)
    assert started(of, large, short, long) == [False, True, False]


def test_what_the_reservation_leaves_may_be_used_by_anybody() -> None:
    of = world(nodes=2)
    running(of, "first", 3, expected_s=100)
    running(of, "other", 2)
    large = submit(of, "large", 4, priority=9)
    small = submit(of, "small", 2, priority=2)
    more = submit(of, "more", 1, priority=1)
    assert started(of, large, small, more) == [False, True, False]  # one of three free GPUs is reserved


def test_small_jobs_that_never_stop_coming_do_not_keep_a_large_one_waiting() -> None:
    of = world(nodes=2)
    jobs = [submit(of, f"s{number}", 1, priority=3) for number in range(8)]
    of.settle()
    large = submit(of, "large", 8, priority=9)
    for number in range(8, 40):
        jobs.append(submit(of, f"s{number}", 1, priority=3))
        oldest = next((job for job in jobs if job.stage == Stage.RUNNING), None)
        if oldest is not None:
            end(of, oldest)
        of.pass_time(31)
        of.settle()
        if large.stage == Stage.RUNNING:
            break
    assert large.stage == Stage.RUNNING
    assert sum(job.ended for job in jobs) == 8  # it waited for those that ran, and for no others


def test_one_that_outlives_its_expectation_moves_the_reservation() -> None:
    of = world()
    first = running(of, "first", 2, expected_s=100)
    large = submit(of, "large", 4, priority=9)
    of.settle()
    promised_ms = of.state.reservations[large.uid].decided.start_ms
    of.pass_time(110)
    of.settle()
    moved = of.state.reservations[large.uid]
    assert moved.decided.outlived == (first.uid,)
    assert moved.decided.start_ms > promised_ms == moved.first_ms


def test_a_reservation_ends_with_its_reason() -> None:
    of = world()
    running(of, "first", 2)
    large = submit(of, "large", 4, priority=9)
    of.settle()
    assert of.state.reservations[large.uid].decided.start_ms == 0
    of.job("large", workers=4, worker=GPU, min_workers=4, equals=True, priority=9, suspend=True, generation=2)
    small = submit(of, "small", 1, priority=1)
    assert started(of, small) == [True]
    assert of.state.reservations == {}


@pytest.mark.parametrize("policy", ["Priority", "DRF"])
def test_a_job_that_comes_later_and_goes_before_another_gets_a_reservation_too(policy: str) -> None:
    """Without one, a job of a low priority would be promised room that the first job of its queue gets."""
    of = world(nodes=2, queue_policy=policy)
    first = running(of, "first", 4, preemptible=False, expected_s=100)
    second = running(of, "second", 4, preemptible=False, expected_s=200)
    low = submit(of, "low", 4, priority=3)
    of.settle()
    assert of.state.reservations[low.uid].decided.start_ms == first.began_ms + 100_000
    high = submit(of, "high", 4, priority=8)
    behind = submit(of, "behind", 4, priority=2)
    of.settle()
    of.cycle()
    starts = {uid: known.decided.start_ms for uid, known in of.state.reservations.items()}
    assert starts == {high.uid: first.began_ms + 100_000, low.uid: second.began_ms + 200_000}
    end(of, first)
    assert started(of, high, low, behind) == [True, False, False]
    end(of, second)
    assert started(of, low, behind) == [True, False]


def test_of_jobs_that_come_later_only_the_first_get_reservations() -> None:
    of = world(nodes=2)
    running(of, "first", 8, preemptible=False, expected_s=100)
    submit(of, "low", 8, priority=3)
    of.settle()
    of.pass_time(1)
    jobs = [submit(of, f"j{priority}", 8, priority=priority) for priority in (5, 6, 7, 8)]
    of.settle()
    assert of.state.reservations.keys() == {jobs[-1].uid}  # beside it, `low` has no room


def test_a_job_that_never_fits_leaves_reservations_to_others() -> None:
    of = world(nodes=2)
    of.pod("other", "n1", gpus=1)
    running(of, "first", 4, preemptible=False, expected_s=100)
    low = submit(of, "low", 7, priority=3)
    of.settle()
    promised = of.state.reservations[low.uid].decided
    submit(of, "never", 8, priority=8)
    of.settle()
    assert {low.uid: promised} == {uid: known.decided for uid, known in of.state.reservations.items()}


def test_a_reservation_is_revised_at_once_when_a_job_that_it_waits_for_has_gone() -> None:
    """It waited for an unknown end. Without that, it has a start, before which another job ends."""
    of = world(nodes=4)
    running(of, "holds", 12, preemptible=False, expected_s=240)
    unknown = running(of, "unknown", 4, preemptible=False)
    large = submit(of, "large", 16, priority=9)
    of.settle()
    assert of.state.reservations[large.uid].decided.start_ms == 0
    of.job_gone(unknown)
    for pod in [pod for pod in of.state.pods.values() if pod.owner is not None and pod.owner.job_uid == unknown.uid]:
        of.pod_gone(pod.uid)
    short = submit(of, "short", 2, preemptible=False, expected_s=10)
    of.cycle()
    assert of.state.reservations[large.uid].decided.start_ms > of.now_ms and short.placements


def test_a_reservation_is_revised_for_a_node_that_came_though_nothing_else_changes() -> None:
    """It waits for an unknown end. With the new node, it has a start."""
    of = world(nodes=2)
    running(of, "known", 4, preemptible=False, expected_s=240)
    running(of, "unknown", 4, preemptible=False)
    large = submit(of, "large", 8, priority=9)
    cycles = Cycles(BUILT_IN)
    _until_quiet(of, cycles)
    assert of.state.reservations[large.uid].decided.start_ms == 0
    of.node("n2", cpu=64, gpus=4)
    for _ in range(3):  # changed reasons are told only after a while
        _until_quiet(of, cycles)
        of.pass_time(15)
    _until_quiet(of, cycles)
    assert of.state.reservations[large.uid].decided.start_ms > of.now_ms
    of.pass_time(300)
    _until_quiet(of, cycles)
    of.pass_time(31)
    before = of.state.offset
    _until_quiet(of, cycles)
    assert of.state.offset == before  # where nothing changes, nothing is sought again


def _until_quiet(of: World, cycles: Cycles) -> None:
    while events := cycles.take(of.state, of.config, of.now_ms):
        of.say(*events)


def test_without_reservations_nothing_is_kept() -> None:
    of = world(reservations=0)
    running(of, "first", 2, expected_s=100)
    large = submit(of, "large", 4, priority=9)
    small = submit(of, "small", 1, priority=1)
    assert started(of, large, small) == [False, True]
    assert of.state.reservations == {}


def test_a_quorum_that_needs_nobody_lacks_no_room() -> None:
    """What a cycle last said of its job may be out of date."""
    of = world()
    job = running(of, "first", 4)
    placer = Placer(of.state, of.config, BUILT_IN, time_ms=of.now_ms)
    assert not RoomBound(placer, job).lacks(np.zeros(0, np.int64), np.zeros((0, 0), np.int64))


def test_a_job_behind_takes_no_room_that_a_reservation_awaits() -> None:
    of = world(preemption=Preemption())
    of.queue("a", preemption=Preemption(*[PreemptionMode.NEVER] * 3))
    of.queue("b")
    first = running(of, "first", 4, expected_s=100, priority=1, of_queue="b")
    large = submit(of, "large", 4, of_queue="a")
    of.settle()
    assert of.state.reservations[large.uid].decided.awaits == (first.uid,)
    behind = submit(of, "behind", 4, priority=9, of_queue="b")
    of.settle()
    assert first.stage == Stage.RUNNING
    why = why_no_room(of.state, behind, of.config, of.now_ms, lacks=None, infeasible=False)
    assert [(one.kind, one.jobs, one.hosts) for one in why] == [(NoRoomKind.AWAITED, (first.uid,), (large.uid,))]


def test_a_job_behind_takes_no_room_that_pods_leave_for_a_reservation() -> None:
    of = world(2, preemption=Preemption())
    of.queue("a", preemption=Preemption(*[PreemptionMode.NEVER] * 3))
    of.queue("b")
    first = running(of, "first", 2, expected_s=100, priority=1, of_queue="a")
    ended = running(of, "ended", 2, priority=1, of_queue="a")
    low = running(of, "low", 4, priority=1, of_queue="b")
    of.say(k.StageDecided(ended.uid, ended.version, ended.attempt, Stage.SUCCEEDED, StageReason.TERMINATED))
    large = submit(of, "large", 4, of_queue="a")
    behind = submit(of, "behind", 5, priority=9, of_queue="b")
    of.cycle()
    assert of.state.reservations[large.uid].decided.awaits == (first.uid,)
    assert (low.stage, behind.placements) == (Stage.RUNNING, {})


def test_room_that_is_kept_for_a_pod_that_may_come_ends_no_reservation() -> None:
    """It is kept for seconds: the quorum fits as others end."""
    of = world()
    first = running(of, "first", 2, expected_s=100)
    large = submit(of, "large", 4, priority=9)
    of.settle()
    promised_ms = of.state.reservations[large.uid].decided.start_ms
    of.pass_time(25)
    lost = submit(of, "lost", 2, expected_s=5)
    of.cycle()
    of.job_gone(lost)
    of.pass_time(5)
    behind = submit(of, "behind", 2)
    of.cycle()
    assert of.state.assumed and of.state.reservations[large.uid].decided.start_ms == promised_ms
    of.wait_for_late_pods()
    assert started(of, behind) == [False]
    end(of, first)
    assert started(of, large) == [True]


def test_a_quorum_that_only_waits_for_room_that_is_kept_is_promised_the_time_when_it_is_free() -> None:
    of = world()
    lost = submit(of, "lost", 2)
    of.cycle()
    of.job_gone(lost)
    large = submit(of, "large", 4, priority=9)
    of.cycle()
    [kept] = {pod.until_ms for pod in of.state.assumed.values()}
    assert of.state.reservations[large.uid].decided.start_ms >= kept
    behind = submit(of, "behind", 2)
    of.cycle()
    of.wait_for_late_pods()
    assert started(of, large, behind) == [True, False]


def test_what_one_job_leaves_counts_for_one_reservation_alone() -> None:
    """Two reservations wait for the end of one job: with what it leaves, they need the free room, too."""
    of = world(gpus=16, reservations=2)
    soon, later = running(of, "soon", 8, expected_s=100), running(of, "later", 4, expected_s=200)
    first, second = submit(of, "first", 10, priority=9), submit(of, "second", 6, priority=8)
    of.settle()
    assert set(of.state.reservations[second.uid].decided.awaits) == {soon.uid, later.uid}
    behind = submit(of, "behind", 2)
    assert started(of, behind) == [False]
    end(of, soon)
    end(of, later)
    assert started(of, first, second) == [True, True]


@pytest.mark.parametrize(("gpus", "expected"), [(4, False), (2, True)])
def test_no_two_jobs_are_promised_the_same_room(gpus: int, expected: bool) -> None:
    """Whoever waits for room that another one gets first would be told a start that can't be."""
    of = world(reservations=2)
    first = running(of, "first", 4, expected_s=100)
    second, third = submit(of, "second", gpus, priority=9), submit(of, "third", gpus, priority=8)
    of.settle()
    starts = {uid: known.decided.start_ms for uid, known in of.state.reservations.items()}
    promised_ms = first.began_ms + 100_000
    assert starts == {second.uid: promised_ms, **({third.uid: promised_ms} if expected else {})}
    end(of, first)
    assert started(of, second, third) == [True, expected]


@pytest.mark.parametrize("way", ["taken", "free"])
def test_what_is_reserved_for_a_job_is_kept_from_none_before_it(way: str) -> None:
    """It was kept from a more senior job whose turn came after that of a job behind both: the lower one got the node,
    and lost it to the other a moment later."""
    of = world(3, queue_policy="DRF", preemption=Preemption())

    def job(name: str, gpus: int, priority: int, expected_s: int | None = None) -> JobRecord:
        pod = shape(cpu=1, gpus=gpus)
        return of.job(name, workers=1, worker=pod, min_workers=1, priority=priority, expected_s=expected_s, equals=True)

    gives = job("gives", 4, 7, 300)
    of.settle()
    stay = [job(f"stays{number}", 4, 9) for number in range(2)]
    of.settle()
    large = job("large", 4, 6)
    of.settle()
    job("small", 2, 1)
    of.settle()
    assert of.state.reservations[large.uid].decided.awaits == (gives.uid,)
    wants = job("wants", 4, 8)
    if way == "free":
        end(of, gives)
    of.settle()
    assert wants.placements
    assert way == "taken" or wants.taken is None
    assert all(of.placements for of in stay) and not (wants.placements and large.placements)
    validate(of.state)


def _gang_beside_a_known_end(large_pods: int = 12) -> tuple[World, JobRecord, JobRecord]:
    """A gang on three nodes of which no end is known, and a job that is promised the room of another one instead."""
    of = world(nodes=6)
    gang = running(of, "gang", 12)
    running(of, "known", 12, expected_s=600)
    large = submit(of, "large", large_pods, priority=9)
    of.cycle()
    assert large.uid in of.state.reservations
    return of, gang, large


def _is_deleted(of: World, gang: JobRecord) -> None:
    """With `--cascade=foreground`: its pods are deleted while the TYJob is still there."""
    submit(of, "gang", 12, terminating=True)
    assert gang.placements


def _is_gone(of: World, gang: JobRecord) -> None:
    of.job_gone(gang)


def _is_suspended(of: World, gang: JobRecord) -> None:
    submit(of, "gang", 12, suspend=True, generation=2)


def _has_ended(of: World, gang: JobRecord) -> None:
    of.say(k.StageDecided(gang.uid, gang.version, gang.attempt, Stage.SUCCEEDED, StageReason.TERMINATED))


@pytest.mark.parametrize("begin", [_is_deleted, _is_gone, _is_suspended, _has_ended])
def test_a_reservation_follows_a_gang_that_begins_to_leave(begin: Callable[[World, JobRecord], None]) -> None:
    """A small job doesn't get the first GPU that the gang leaves, because the one with the reservation can have it."""
    of, gang, large = _gang_beside_a_known_end()
    pods = [pod.uid for _, pod in sorted(of.pods_of(gang).items())]
    of.pass_time(1)
    begin(of, gang)
    small = submit(of, "small", 1, priority=1)
    for uid in pods[:6]:
        of.change_pod(uid, deleting=True, times=PodTimes(leave_by_ms=of.now_ms + 20_000))
    of.cycle()
    decided = of.state.reservations[large.uid].decided
    assert {pods.node for pods in decided.pods} == {"n0", "n1", "n2"}
    assert decided.start_ms == of.now_ms + 30_000  # those that are still to be deleted have all of their grace period
    for uid in pods:
        of.pod_gone(uid)
        of.pass_time(1)
        of.cycle()
        assert not small.placements
    if gang.uid in of.state.jobs:
        of.job_gone(gang)
        of.pass_time(30)  # no pod of it may come any more
    of.cycle()
    assert large.placements and not small.placements


def test_a_reservation_follows_pods_of_others_that_begin_to_leave() -> None:
    of = world(nodes=4, room_bound_ms=60_000)
    others = [of.pod(f"other-{number}", f"n{number // 4}", gpus=1) for number in range(8)]
    known = running(of, "known", 8, expected_s=600)
    large = submit(of, "large", 8, priority=9)
    of.cycle()
    assert of.state.reservations[large.uid].decided.awaits == (known.uid,)
    small = submit(of, "small", 1, priority=1)
    of.pass_time(1)
    for uid in others:
        of.change_pod(uid, deleting=True, times=PodTimes(leave_by_ms=of.now_ms + 20_000))
    of.cycle()
    decided = of.state.reservations[large.uid].decided
    assert (decided.awaits, decided.start_ms) == ((), of.now_ms + 20_000)
    for uid in others:
        of.pod_gone(uid)
        of.cycle()
        assert not small.placements
    assert large.placements


@pytest.mark.parametrize(
    "change",
    [
        lambda of: of.node("n9", cpu=64, gpus=12),
        lambda of: of.node("n0", cpu=64, gpus=12),
        lambda of: submit(of, "gang", 12, deadline_s=100, generation=2),
    ],
)
def test_a_reservation_follows_what_its_start_rests_on(change: Callable[[World], object]) -> None:
    of, _, large = _gang_beside_a_known_end(16)
    before = of.state.reservations[large.uid].decided
    of.pass_time(1)
    change(of)
    of.cycle()
    assert of.state.reservations[large.uid].decided != before


@pytest.mark.parametrize("how", [{"deadline_s": 60}, {"expected_s": 60}])
def test_the_known_end_of_a_job_counts_that_got_nodes_in_the_same_cycle(how: dict[str, int]) -> None:
    of = world(2)
    running(of, "long", 4, priority=9, expected_s=900)
    first, waits = submit(of, "first", 4, priority=8, **how), submit(of, "waits", 4, priority=6)
    of.cycle()
    assert first.placements and of.state.reservations[waits.uid].decided.start_ms > of.now_ms + 800_000
    placed_ms = of.now_ms
    of.pass_time(1)
    of.cycle()
    reserved = of.state.reservations[waits.uid].decided
    assert placed_ms + 60_000 <= reserved.start_ms <= placed_ms + 61_000 and reserved.awaits == (first.uid,)
    of.pass_time(1)
    assert of.cycle() == ()


def test_a_reservation_is_sought_again_only_when_something_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    searches, search = [], ReservationSearch.find

    def counted(self: ReservationSearch, job: JobRecord, *given: Any) -> object:
        searches.extend([job.uid] if not given else [])  # else as others leave anyway, without their ends
        return search(self, job, *given)

    monkeypatch.setattr(ReservationSearch, "find", counted)
    of, gang, large = _gang_beside_a_known_end()
    pods = [pod.uid for pod in of.pods_of(gang).values()]
    assert searches == [large.uid]
    for number in range(5):
        submit(of, f"small-{number}", 1, priority=1)
        of.cycle()
    assert len(searches) == 1
    of.job_gone(gang)
    of.cycle()
    assert len(searches) == 2
    for uid in pods:  # as expected
        of.change_pod(uid, deleting=True, times=PodTimes(leave_by_ms=of.now_ms + 20_000))
        of.pass_time(1)
        of.cycle()
        of.pod_gone(uid)
        of.cycle()
    assert len(searches) == 2 and large.placements
    assert snapshot.restore(snapshot.encode(of.state)).room_news == of.state.room_news


def test_a_reservation_is_revised_in_the_cycle_after_that_in_which_a_job_before_it_got_its_room() -> None:
    """`urgent` ends at an unknown time. The promise stayed until it was old enough to be revised."""
    of = world(nodes=2)
    first = running(of, "first", 4, expected_s=100)
    large = submit(of, "large", 8, priority=5)
    of.settle()
    promised = of.state.reservations[large.uid].decided
    assert promised.start_ms and promised.awaits == (first.uid,)
    urgent = submit(of, "urgent", 4, priority=9)
    of.cycle()
    of.cycle()
    decided = of.state.reservations[large.uid].decided
    assert urgent.placements and not large.placements
    assert (decided.start_ms, set(decided.awaits)) == (0, {first.uid, urgent.uid})
    of.settle()
    assert of.state.reservations[large.uid].decided == decided


@pytest.mark.parametrize("spec", [{"expected_s": 300}, {}], ids=["known", "unknown"])
def test_a_reservation_whose_room_was_taken_is_sought_once(
    monkeypatch: pytest.MonkeyPatch, spec: dict[str, int]
) -> None:
    """And not for those before it that are to leave its room by its start, nor for its guests."""
    searches, search = [], ReservationSearch.find

    def counted(self: ReservationSearch, job: JobRecord, *given: Any) -> object:
        searches.extend([job.uid] if not given else [])
        return search(self, job, *given)

    def cycles() -> int:
        for _ in range(5):
            of.settle()
            of.pass_time(1)
        return len(searches)

    of = world(nodes=3, guests=True)
    running(of, "first", 6, expected_s=100)
    large = submit(of, "large", 12, priority=5)
    of.settle()
    known = of.state.reservations[large.uid].decided
    monkeypatch.setattr(ReservationSearch, "find", counted)
    short = submit(of, "short", 2, priority=9, deadline_s=50)
    cycles()
    searches.clear()  # a known end is news
    guest = submit(of, "guest", 2, priority=1)
    assert cycles() == 0 and short.placements and guest.slots.hosts == (large.uid,)
    assert of.state.reservations[large.uid].decided == known
    end(of, short)
    searches.clear()
    urgent = submit(of, "urgent", 2, priority=9, **spec)
    found = cycles()
    decided = of.state.reservations[large.uid].decided
    assert urgent.placements and urgent.uid in decided.awaits
    assert decided.start_ms == (urgent.began_ms + 300_000 if spec else 0)
    assert found == 1
