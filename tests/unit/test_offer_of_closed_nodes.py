"""What nodes that take no pods count for in the shares of queues: what jobs hold there, and no more."""

import pytest

from arranger.events import kinds as k
from arranger.model.job import CleanPodPolicy, Stage
from arranger.model.pod import Phase
from arranger.projections.jobs.records import JobRecord
from arranger.scheduling.queues.offer import offered
from tests.unit.test_preemption import GPU as GPU_POD
from tests.unit.test_preemption import running, waiting, world
from tests.world import World, shape

GPU, NONE = "nvidia.com/gpu", CleanPodPolicy.NONE


def offer(of: World) -> int:
    return offered(of.state, of.now_ms)[GPU]


@pytest.mark.parametrize("closed", [{"cordoned": True}, {"ready": False}])
def test_free_room_of_a_closed_node_is_not_offered(closed: dict[str, bool]) -> None:
    of = world(nodes=2, gpus=4)
    running(of, "both", 6)
    assert offer(of) == 8
    [held] = [list(job.placements.values()).count("n1") for job in of.state.jobs.values()]
    of.node("n1", cpu=16, gpus=4, **closed)
    assert offer(of) == 4 + held


def emptied(**queue: object) -> tuple[World, JobRecord]:
    """Two nodes, one of them cordoned and empty, the other full of jobs of queue b."""
    of = world(nodes=2, gpus=4)
    of.node("n1", cpu=16, gpus=4, cordoned=True)
    of.watch_queues()
    of.queue("a", **queue)
    of.queue("b")
    for number in range(4):
        running(of, f"b{number}", 1, of_queue="b")
    return of, waiting(of, "mine", 2, of_queue="a")


@pytest.mark.parametrize("queue", [{}, {"deserved": ((GPU, 2),)}])
def test_a_queue_takes_back_its_part_of_what_the_open_nodes_have(queue: dict[str, object]) -> None:
    """A cordoned empty node counted as half of the cluster: no queue seemed to be above its share."""
    of, mine = emptied(**queue)
    [decision] = [event for event in of.cycle() if isinstance(event, k.Preempted)]
    assert len(decision.victims) == 2
    of.settle()
    assert mine.stage == Stage.RUNNING


def test_a_guarantee_is_kept_of_what_the_open_nodes_have() -> None:
    of = world(nodes=2, gpus=4)
    of.node("n1", cpu=16, gpus=4, cordoned=True)
    of.watch_queues()
    of.queue("a", guarantee=((GPU, 2),))
    of.queue("b")
    other = waiting(of, "other", 3, of_queue="b")
    of.settle()
    assert other.placements == {}
    mine = running(of, "mine", 2, of_queue="a")
    assert mine.stage == Stage.RUNNING


def test_a_job_that_tolerates_a_cordon_lifts_use_and_offer_alike() -> None:
    of, mine = emptied()
    before = offer(of)
    [name] = [name for name in of.state.nodes.rows if name == "n1"]
    of.node(name, cpu=16, gpus=4)
    of.settle()
    assert mine.stage == Stage.RUNNING
    of.node(name, cpu=16, gpus=4, cordoned=True)
    assert offer(of) == before + 2


def drained() -> tuple[World, JobRecord]:
    """Nodes of 4 GPUs, all but one of them full of jobs of queue b; the last one is kept for queue a. The node of the
    first job is drained: its pod is seen gone, and may have been created again there."""
    of = world(nodes=3, gpus=4)
    of.watch_queues()
    of.queue("a", guarantee=((GPU, 4),))
    of.queue("b")
    first, _ = (running(of, f"b{number}", 4, of_queue="b", preemptible=False) for number in range(2))
    [name] = {*first.placements.values()}
    of.node(name, cpu=16, gpus=4, cordoned=True)
    for uid in [*first.bound.values()]:
        of.pod_gone(uid)
    of.control()
    assert first.stage == Stage.RESCHEDULING and of.state.assumed
    return of, first


def test_room_kept_for_a_pod_that_may_still_come_to_a_closed_node_is_not_offered() -> None:
    """No queue counts the pod, so its room was offered to others, on the open nodes."""
    of, _ = drained()
    assert offer(of) == 8


def test_a_job_whose_node_is_drained_does_not_get_what_is_guaranteed_to_another_queue() -> None:
    of, job = drained()
    of.cycle()
    assert job.placements == {}
    mine = running(of, "mine", 4, of_queue="a")
    assert mine.stage == Stage.RUNNING
    of.wait_for_late_pods()
    of.settle()
    assert job.placements == {}


def test_what_a_job_has_on_a_closed_node_whose_pods_show_its_success_is_not_offered() -> None:
    """Its queue counts it no longer, although the stage that says so comes later, and its workers still run."""
    of = world(nodes=2, gpus=4)
    job = of.job("done", leader=shape(cpu=1), workers=3, worker=GPU_POD, min_workers=3)
    of.settle()
    for name in ("n0", "n1"):
        of.node(name, cpu=16, gpus=4, cordoned=True)
    assert offer(of) == 3
    of.change_pod(job.bound[0, 0], phase=Phase.SUCCEEDED)
    assert job.stage == Stage.RUNNING and not of.state.queue_use.own
    assert offer(of) == 0


def test_room_kept_for_a_pod_that_may_still_come_beyond_what_an_open_node_has_is_not_offered() -> None:
    of, _ = drained()
    [name] = {pod.node for pod in of.state.assumed.values()}
    of.node(name, cpu=16, gpus=1)
    assert offer(of) == 9


def test_who_takes_room_of_a_job_that_is_partly_on_a_closed_node_gets_no_more_than_that_leaves_open() -> None:
    """What the job has on the closed node goes out of the offer with it: the rest would come out of a guarantee."""
    of = world(nodes=3, gpus=4)
    of.watch_queues()
    of.queue("a", guarantee=((GPU, 4),))
    of.queue("b")
    low = running(of, "low", 8, of_queue="b", priority=1)
    [closed, *_] = {*low.placements.values()}
    of.node(closed, cpu=16, gpus=4, cordoned=True)
    high = waiting(of, "high", 8, of_queue="b", priority=9)
    of.settle()
    assert (high.placements, low.stage) == ({}, Stage.RUNNING)
    small = waiting(of, "small", 4, of_queue="b", priority=9)
    of.settle()
    assert (small.stage, len(low.placements)) == (Stage.RUNNING, 0)
    assert running(of, "mine", 4, of_queue="a").stage == Stage.RUNNING


def test_pods_that_outlive_their_job_are_nobodys_and_what_they_hold_is_not_offered() -> None:
    """They counted as pods that leave: a guarantee of what they hold seemed to be kept."""
    of = world(nodes=2, gpus=4)
    of.watch_queues()
    of.queue("a", capability=((GPU, 4),))
    job = of.job("a0", leader=shape(cpu=1), workers=1, worker=shape(cpu=1, gpus=4), of_queue="a", clean=NONE)
    of.settle()
    assert job.stage == Stage.RUNNING and offer(of) == 8
    of.change_pod(job.bound[0, 0], phase=Phase.SUCCEEDED, ready=False)
    of.settle()
    [worker] = [pod.uid for pod in of.state.pods.values() if pod.phase == Phase.RUNNING]
    assert job.stage == Stage.SUCCEEDED and offer(of) == 4
    of.pod_gone(worker)
    assert offer(of) == 8
