"""What nodes that take no pods count for in the shares of queues: what jobs hold there, and no more."""

import pytest

from arranger.events import kinds as k
from arranger.model.job import Stage
from arranger.projections.jobs.records import JobRecord
from arranger.scheduling.queues.offer import offered
from tests.unit.test_preemption import running, waiting, world
from tests.world import World

GPU = "nvidia.com/gpu"


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
