"""Room that comes by itself: nobody gives room for it, and it isn't waited for once it doesn't come."""

from itertools import permutations

import msgspec
import pytest

from arranger.events import kinds as k
from arranger.lifecycle.stages import next_decision
from arranger.model.job import Stage
from arranger.model.pod import PodTimes
from arranger.model.stages import StageReason
from arranger.projections import snapshot
from arranger.projections.consistency import validate
from arranger.projections.jobs.records import JobRecord
from arranger.scheduling import NoRoomKind, why_no_room
from arranger.scheduling.cycle import Cycles
from tests.unit.test_preemption import GPU, SMALL, preempted, running, waiting, world
from tests.world import World, shape

GPUS = (("nvidia.com/gpu", 4),)


def led(of: World, name: str, workers: int, **spec: object) -> JobRecord:
    """A job with a leader that runs: its workers have a GPU each, the leader none."""
    job = of.job(name, leader=SMALL, workers=workers, worker=GPU, min_workers=workers, **spec)  # type: ignore[arg-type]
    of.settle()
    assert job.stage == Stage.RUNNING
    of.pass_time(10)
    return job


def delete(of: World, uid: str, *, grace_s: float = 30) -> None:
    """A pod is being deleted, and has this long to end."""
    of.change_pod(uid, deleting=True, times=PodTimes(leave_by_ms=of.now_ms + round(grace_s * 1000)))


def leader_of(of: World, job: JobRecord) -> str:
    return of.pods_of(job)[0, 0].uid


def no_room(of: World, job: JobRecord) -> list[NoRoomKind]:
    found = why_no_room(of.state, job, of.config, of.now_ms, lacks=None, infeasible=False)
    return [one.kind for one in found]


@pytest.mark.parametrize("order", list(permutations(("pod seen", "stage decided", "cycle"))), ids=", ".join)
def test_nobody_gives_room_while_another_job_ends_in_whatever_order_that_is_seen(
    order: tuple[str, ...],
) -> None:
    """The first demo preempted a job at the moment in which another one's leader had ended, and its workers hadn't."""
    of = world(nodes=2)
    first, elastic = led(of, "first", 4, priority=8), running(of, "elastic", 4, priority=1)
    high = waiting(of, "high", 4, priority=6)
    takes: list[k.Preempted | None] = []

    def cycle() -> None:
        takes.append(preempted(of))

    def pod_seen() -> None:
        of.change_pod(leader_of(of, first), phase="Succeeded", ready=False)

    def stage_decided() -> None:  # as far as a controller knows of it
        decision = next_decision(of.state, first, of.lifecycle, of.now_ms)
        if decision is not None:
            of.say(decision)

    steps = {"pod seen": pod_seen, "stage decided": stage_decided, "cycle": cycle}
    for step in order:
        if step == "cycle" and "pod seen" not in order[: order.index(step)]:
            continue  # nobody knows of the end yet: it takes room, and rightly so
        steps[step]()
    cycle()
    assert takes == [None] * len(takes) and elastic.stage == Stage.RUNNING
    if first.stage == Stage.RUNNING:
        assert no_room(of, high) == [NoRoomKind.COMES]
    of.settle()
    assert (first.stage, high.stage, elastic.stage) == (Stage.SUCCEEDED, Stage.RUNNING, Stage.RUNNING)


@pytest.mark.parametrize("how", ["failed", "gone", "deleted"])
def test_the_whole_room_of_a_job_comes_once_its_leader_ends_in_any_way(how: str) -> None:
    of = world(nodes=2)
    first, elastic = led(of, "first", 4, priority=2), running(of, "elastic", 4, priority=1)
    waiting(of, "high", 4, priority=6)
    leader = leader_of(of, first)
    if how == "gone":
        of.pod_gone(leader)
    elif how == "deleted":
        delete(of, leader)
    else:
        of.change_pod(leader, phase="Failed", ready=False)
    assert preempted(of) is None
    assert (first.stage, elastic.stage) == (Stage.RUNNING, Stage.RUNNING)


def test_a_job_that_has_succeeded_gives_no_room_even_if_its_own_is_not_enough() -> None:
    """It would run again from the start."""
    of = world(nodes=2)
    first, other = led(of, "first", 4, priority=1), led(of, "other", 4, priority=2)
    waiting(of, "high", 8, priority=6)
    of.change_pod(leader_of(of, first), phase="Succeeded", ready=False)
    assert preempted(of) is None, "one victim will do once the first job has left"
    of.control()
    decision = preempted(of)
    assert decision is not None and [victim.job_uid for victim in decision.victims] == [other.uid]


def test_a_job_whose_pods_show_its_end_gets_no_further_nodes() -> None:
    of = world(nodes=1)
    sets = [("needed", 2, shape(cpu=1, gpus=2)), ("further", 1, shape(cpu=1, gpus=4))]
    job = of.job("a", workers=sets, min_workers=2, equals=True, success=(1,))
    of.settle()
    assert len(job.placements) == 2
    for number in range(2):
        of.run_pod(job, (1, number), "n0", phase="Succeeded")
    of.cycle()
    assert not job.placements


def test_a_pod_of_another_owner_that_is_being_deleted_is_waited_for_until_it_hangs() -> None:
    of = world(nodes=2)
    foreign = of.pod("foreign", "n0", amounts=GPUS)
    low = running(of, "low", 4, priority=1)
    high = waiting(of, "high", 4, priority=9)
    delete(of, foreign)
    assert preempted(of) is None and no_room(of, high) == [NoRoomKind.COMES]
    of.pass_time(89)
    assert preempted(of) is None, "its grace period and the bound aren't over"
    of.pass_time(2)
    decision = preempted(of)
    assert decision is not None and [victim.job_uid for victim in decision.victims] == [low.uid]


@pytest.mark.parametrize("when", ["it fits already", "it has a reservation"])
def test_room_that_a_job_before_it_gets_does_not_come_for_the_one_behind(when: str) -> None:
    """explain said of the job behind that it has room once the pods have left that leave anyway."""
    of = world(nodes=1)
    of.config = msgspec.structs.replace(of.config, reservations=1)
    left = running(of, "left", 4)
    first, behind = waiting(of, "first", 4, priority=4), waiting(of, "behind", 4, priority=1)
    of.cycle()
    assert first.uid in of.state.reservations
    pods = of.pods_of(left).values()
    for pod in pods:
        delete(of, pod.uid)
    of.say(k.StageDecided(left.uid, left.version, left.attempt, Stage.SUCCEEDED, StageReason.TERMINATED))
    assert no_room(of, first) == [NoRoomKind.COMES]
    if when == "it fits already":
        for pod in pods:
            of.pod_gone(pod.uid)
    assert no_room(of, behind) == [NoRoomKind.NOBODY]
    assert not first.placements and not behind.placements
    validate(of.state)


@pytest.mark.parametrize("owner", ["gone", "ended", "deleted"])
def test_a_pod_of_a_job_that_hangs_in_terminating_holds_room_like_any_other(owner: str) -> None:
    """The first job in line waited for ever, and those behind it took room."""
    of = world(nodes=2)
    left = running(of, "left", 4)
    low = running(of, "low", 4, priority=1)
    for pod in of.pods_of(left).values():
        delete(of, pod.uid)
    if owner == "gone":
        of.job_gone(left)
    elif owner == "ended":
        of.say(k.StageDecided(left.uid, left.version, left.attempt, Stage.SUCCEEDED, StageReason.TERMINATED))
    else:
        of.say(msgspec.structs.replace(left.seen, deleting=True))
    high = waiting(of, "high", 4, priority=9)
    assert preempted(of) is None and no_room(of, high) == [NoRoomKind.COMES]
    of.pass_time(91)
    decision = preempted(of)
    assert decision is not None and [victim.job_uid for victim in decision.victims] == [low.uid]
    assert decision.leaving == () and {pods.node for pods in decision.placed.pods} == {"n1"}


def test_a_pod_whose_job_is_gone_and_that_nobody_deletes_holds_room_like_any_other() -> None:
    of = world(nodes=2)
    left = running(of, "left", 4)
    low = running(of, "low", 4, priority=1)
    of.job_gone(left)
    high = waiting(of, "high", 4, priority=9)
    of.pass_time(119)
    assert preempted(of) is None and no_room(of, high) == [NoRoomKind.COMES]
    again = snapshot.restore(snapshot.encode(of.state))
    assert again.orphaned == of.state.orphaned != {}
    of.pass_time(2)
    decision = preempted(of)
    assert decision is not None and [victim.job_uid for victim in decision.victims] == [low.uid]
    for uid in list(of.state.pods_of[left.uid]):
        of.pod_gone(uid)
    assert of.state.orphaned == {}
    validate(of.state)


def test_pods_that_are_listed_before_their_job_are_no_orphans() -> None:
    of = world()
    job = running(of, "left", 4)
    seen = of.state.jobs[job.uid].seen
    of.job_gone(job)
    assert job.uid in of.state.orphaned
    of.say(seen)
    assert of.state.orphaned == {}


def test_a_process_that_remembers_looks_again_once_a_pod_hangs() -> None:
    of = world(nodes=2)
    left = running(of, "left", 4)
    running(of, "low", 4, priority=1)
    for pod in of.pods_of(left).values():
        delete(of, pod.uid)
    of.job_gone(left)
    waiting(of, "high", 4, priority=9)
    cycles = Cycles()
    while events := cycles.take(of.state, of.config, of.now_ms):
        of.say(*events)
    of.pass_time(91)
    assert any(isinstance(event, k.Preempted) for event in cycles.take(of.state, of.config, of.now_ms))


def test_several_jobs_start_beside_one_pod_that_hangs() -> None:
    of = world(nodes=4)
    left = running(of, "left", 4)
    for number in range(3):
        running(of, f"low{number}", 4, priority=1)
    for pod in of.pods_of(left).values():
        delete(of, pod.uid)
    of.job_gone(left)
    of.pass_time(91)
    high = [waiting(of, f"high{number}", 4, priority=9) for number in range(3)]
    of.settle()
    assert [job.stage for job in high] == [Stage.RUNNING] * 3


def test_a_pod_that_hangs_is_in_nobodys_share() -> None:
    """Else a queue that borrows all the rest would be within its share, and keep what another deserves."""
    of = world(nodes=3)
    of.watch_queues()
    left = running(of, "left", 4)
    of.queue("owner", deserved=(("nvidia.com/gpu", 8),))
    of.queue("borrower")
    lent = [running(of, f"lent{number}", 4, of_queue="borrower") for number in range(2)]
    for pod in of.pods_of(left).values():
        delete(of, pod.uid)
    of.job_gone(left)
    of.pass_time(91)
    mine = waiting(of, "mine", 4, of_queue="owner")
    decision = preempted(of)
    assert decision is not None and decision.victims[0].job_uid in {job.uid for job in lent}
    of.settle()
    assert mine.stage == Stage.RUNNING
