"""A job that gave its room away takes its turns while its own pods leave: what it would get is kept for it."""

import msgspec
import pytest

from arranger.events import kinds as k
from arranger.model.job import HANGS_AFTER_MS, Stage
from arranger.model.pod import PodTimes
from arranger.projections import snapshot
from arranger.projections.consistency import validate
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import Reservation
from arranger.replay.explain.expected import start_of
from arranger.replay.explain.in_queue import KeptBy
from arranger.replay.explain.room_words import overdue_text
from arranger.scheduling import Cycles, in_order
from tests.unit.replay_worlds import explained
from tests.unit.test_preemption import CONFIG
from tests.world import World, shape

NODE = shape(cpu=1, gpus=8)
GRACE_S = 30


def submit(of: World, name: str, priority: int, workers: int = 1, **spec: object) -> JobRecord:
    return of.job(name, workers=workers, worker=NODE, min_workers=workers, priority=priority, equals=True, **spec)  # type: ignore[arg-type]


def world(nodes: int = 2, **config: object) -> tuple[World, str]:
    """Each node has 8 GPUs. The job `victim` has given n0 to `taker`, and its pod there, whose UID is given, has half a
    minute to end; the other nodes are used by the job `other`, which keeps them."""
    config = {"reservations": 1, "reservation_refresh_ms": 30_000, "guests": True, "room_bound_ms": 60_000} | config
    of = World(config=msgspec.structs.replace(CONFIG, **config))
    for number in range(nodes):
        of.node(f"n{number}", cpu=64, gpus=8)
    submit(of, "victim", 5)
    of.settle()
    submit(of, "other", 9, nodes - 1, preemptible=False)
    of.settle()
    victim, taker = of.state.jobs["uid-victim"], submit(of, "taker", 8)
    of.cycle()
    of.control()
    assert victim.stage == Stage.RESCHEDULING and taker.placements == {(1, 0): "n0"}
    uid = next(iter(of.state.pods_of[victim.uid]))
    of.change_pod(uid, deleting=True, times=PodTimes(of.now_ms + GRACE_S * 1000, 0, 0))
    return of, uid


def free_node(of: World) -> None:
    """The nodes that `other` uses become free."""
    other = of.state.jobs["uid-other"]
    of.say(k.StageDecided(other.uid, other.version, other.attempt, Stage.SUCCEEDED, "Terminated"))  # type: ignore[arg-type]
    for pod in list(of.state.pods_of[other.uid]):
        of.pod_gone(pod)


def cycle(of: World, cycles: Cycles) -> tuple[k.Event, ...]:
    events = cycles.take(of.state, of.config, of.now_ms)
    if events:
        of.say(*events)
    return events


@pytest.mark.parametrize("guests", [True, False])
def test_nobody_behind_it_starts_where_it_would_start(guests: bool) -> None:
    of, uid = world(guests=guests)
    victim, behind = of.state.jobs["uid-victim"], submit(of, "behind", 3)
    free_node(of)
    of.cycle()
    assert not behind.placements and not victim.placements
    reserved = of.state.reservations[victim.uid].decided
    assert [pods.node for pods in reserved.pods] == ["n1"] and reserved.awaits == ()
    assert reserved.start_ms == of.state.pods[uid].times.leave_by_ms
    assert snapshot.digest(snapshot.restore(snapshot.encode(of.state))) == snapshot.digest(of.state)
    of.pod_gone(uid)
    of.settle()
    assert victim.placements == {(1, 0): "n1"} and victim.attempt == 1 and not behind.placements
    assert victim.uid not in of.state.reservations
    validate(of.state)


def test_what_others_are_still_to_leave_for_a_job_before_it_isnt_in_its_way() -> None:
    """On n1, two GPUs are free beside the reservation of `big`, for which `other` is to leave four more."""
    of = World(config=msgspec.structs.replace(CONFIG, reservations=1, reservation_refresh_ms=30_000, guests=True))

    def of_gpus(name: str, priority: int, gpus: int) -> JobRecord:
        worker = shape(cpu=1, gpus=gpus)
        of_job = {"priority": priority, "preemptible": name == "victim", "equals": True}
        return of.job(name, workers=1, worker=worker, min_workers=1, **of_job)  # type: ignore[arg-type]

    of.node("n0", cpu=64, gpus=4)
    victim, _ = of_gpus("victim", 5, 2), of_gpus("beside", 9, 2)
    of.settle()
    of.node("n1", cpu=64, gpus=8)
    other, over = of_gpus("other", 9, 4), of_gpus("over", 9, 4)
    of.settle()
    taker = of_gpus("taker", 8, 2)
    of.cycle()
    of.control()
    assert victim.stage == Stage.RESCHEDULING and taker.placements == {(1, 0): "n0"}
    for uid in of.state.pods_of[victim.uid]:
        of.change_pod(uid, deleting=True, times=PodTimes(of.now_ms + GRACE_S * 1000, 0, 0))
    of.say(k.StageDecided(over.uid, over.version, over.attempt, Stage.SUCCEEDED, "Terminated"))  # type: ignore[arg-type]
    for uid in list(of.state.pods_of[over.uid]):
        of.pod_gone(uid)
    big = of_gpus("big", 7, 6)
    of.cycle()
    assert of.state.reservations[big.uid].decided.awaits == (other.uid,)
    assert [pods.node for pods in of.state.reservations[victim.uid].decided.pods] == ["n1"]


def test_on_the_nodes_that_its_own_pods_leave_it_keeps_nobody_from_free_ones() -> None:
    of, uid = world()
    victim, behind = of.state.jobs["uid-victim"], submit(of, "behind", 3)
    of.job_gone(of.state.jobs["uid-taker"])
    free_node(of)
    of.cycle()
    assert behind.placements == {(1, 0): "n1"}
    assert [pods.node for pods in of.state.reservations[victim.uid].decided.pods] == ["n0"]
    of.pod_gone(uid)
    of.cycle()
    assert victim.placements == {(1, 0): "n0"}


def test_room_that_its_own_pods_leave_counts() -> None:
    """It needs two nodes: one is free, and its pod leaves the other."""
    of = World(config=msgspec.structs.replace(CONFIG, reservations=1, reservation_refresh_ms=30_000, guests=True))
    for number in range(3):
        of.node(f"n{number}", cpu=64, gpus=8)
    victim = submit(of, "victim", 5, 2)
    of.settle()
    other = submit(of, "other", 9, preemptible=False)
    of.settle()
    submit(of, "taker", 8)
    of.cycle()
    of.control()
    assert victim.stage == Stage.RESCHEDULING
    for uid in of.state.pods_of[victim.uid]:
        of.change_pod(uid, deleting=True, times=PodTimes(of.now_ms + GRACE_S * 1000, 0, 0))
    behind = submit(of, "behind", 3)
    of.say(k.StageDecided(other.uid, other.version, other.attempt, Stage.SUCCEEDED, "Terminated"))  # type: ignore[arg-type]
    for uid in list(of.state.pods_of[other.uid]):
        of.pod_gone(uid)
    of.cycle()
    assert not behind.placements
    assert len(of.state.reservations[victim.uid].decided.pods) == 2
    for uid in list(of.state.pods_of[victim.uid]):
        of.pod_gone(uid)
    of.cycle()
    assert len(victim.placements) == 2 and not behind.placements


@pytest.mark.parametrize("alone", [True, False])
def test_once_its_pod_hangs_nothing_is_kept(alone: bool) -> None:
    of, _ = world()
    victim = of.state.jobs["uid-victim"]
    free_node(of)
    cycles = Cycles()
    cycle(of, cycles)
    assert victim.uid in of.state.reservations and cycle(of, cycles) == ()
    behind = None if alone else submit(of, "behind", 3)
    cycle(of, cycles)
    of.pass_time(GRACE_S + HANGS_AFTER_MS / 1000 - 1)
    cycle(of, cycles)
    assert victim.uid in of.state.reservations and (behind is None or not behind.placements)
    of.pass_time(1)
    cycle(of, cycles)
    assert victim.uid not in of.state.reservations and (behind is None or behind.placements)
    validate(of.state)


def test_a_pod_that_it_waits_for_is_called_its_own() -> None:
    of, uid = world()
    victim = of.state.jobs["uid-victim"]
    decided = k.Reserved(victim.uid, victim.version, of.now_ms - 1000, (k.PlacedPods("n0", 1, ((0, 0),)),))
    of.state.reservations[victim.uid] = Reservation(decided, of.now_ms, decided.start_ms, of.now_ms)
    pod = of.state.pods[uid]
    start = start_of(of.state, victim)
    assert start is not None and start.leaving == (f"default/{pod.name}",)
    assert overdue_text(start, str) == f"it waits for 1 pod of its own to leave those nodes (default/{pod.name})"
    other = of.pod("other", "n0", cpu=1, deleting=True)
    start = start_of(of.state, victim)
    assert start is not None and overdue_text(start, str).startswith(
        "it waits for 2 pods, 1 of them its own, to leave those"
    )
    of.pod_gone(uid)
    start = start_of(of.state, victim)
    assert start is not None and overdue_text(start, str) == "it waits for 1 pod to leave those nodes (default/other)"
    of.pod_gone(other)
    start = start_of(of.state, victim, 30_000)
    by_ms = of.now_ms + 30_000
    assert start is not None and overdue_text(start, str) == f"a cycle decides anew by {by_ms} at the latest"
    of.pass_time(30)
    of.node("n9", cpu=1)  # an event, so that the state knows the time
    start = start_of(of.state, victim, 30_000)
    assert start is not None and overdue_text(start, str) == "the next cycle decides anew"


def test_without_reservations_nothing_is_kept() -> None:
    of, _ = world(reservations=0)
    behind = submit(of, "behind", 3)
    free_node(of)
    of.cycle()
    assert behind.placements and not of.state.reservations


def test_it_takes_nobody_elses_reservation() -> None:
    """What is kept for it isn't one of as many as the setting allows."""
    of, _ = world(nodes=3)
    large = submit(of, "large", 4, 3)
    of.cycle()
    assert large.uid in of.state.reservations
    free_node(of)
    of.cycle()
    assert {"uid-victim", large.uid} <= of.state.reservations.keys()


def test_what_is_said_of_it_and_of_who_waits_behind_it() -> None:
    of, _ = world()
    free_node(of)
    of.cycle()
    submit(of, "behind", 3)
    of.cycle()
    assert [job.seen.name for job in in_order(of.state, of.config)] == ["victim", "behind"]
    victim, behind = explained(of.entries, "victim").waiting, explained(of.entries, "behind").waiting
    assert victim is not None and behind is not None and behind.shortfall is not None
    assert victim.why.startswith("it gets no nodes yet: it waits for the pods of its earlier attempt to be gone (pod")
    assert [(change.pods, change.text) for change in victim.remedies][:1] == [
        (1, "when the pods of its earlier attempt are gone: victim-actors-0")
    ]
    assert [one.job for one in behind.reserved] == ["default/victim"]
    assert behind.in_queue is not None and (behind.in_queue.position, behind.in_queue.kept_by) == (2, KeptBy.RESERVED)
