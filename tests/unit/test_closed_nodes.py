"""A node that closes between the state that a decision rests on and its place in the log takes no new pod.

Nobody but the fold can know: the scheduler saw the node open, and the log has both in one order.
"""

from collections.abc import Callable

import msgspec
import pytest

from arranger.events import kinds as k
from arranger.model.config import CycleConfig
from arranger.model.node import Taint
from arranger.model.pod import Toleration
from arranger.projections.jobs.records import JobRecord
from arranger.scheduling.cycle import VERSIONS, take_cycle
from tests.world import World, shape

BUSY = Taint("user/busy", "yes", "NoSchedule")
GOING = Taint("user/going", "", "NoExecute")
CLOSED: dict[str, dict[str, object]] = {
    "node n1 is not ready": {"ready": False},
    "node n1 is cordoned": {"cordoned": True},
    "node n1 has the taint user/busy=yes:NoSchedule": {"taints": [BUSY]},
    "node n1 has the taint user/going:NoExecute": {"taints": [GOING]},
}


def world_of(*tolerations: Toleration, config: CycleConfig | None = None) -> tuple[World, JobRecord]:
    world = World(config=config or CycleConfig(versions=VERSIONS))
    world.node("n1", cpu=8)
    job = world.job("ppo", leader=shape(cpu=1, tolerations=tolerations), workers=2, min_workers=2)
    return world, job


def raced(world: World, closes: Callable[[], object]) -> tuple[bool, str]:
    """A cycle is taken, the node changes, and then the cycle's batch comes into the log."""
    events = take_cycle(world.state, world.config, world.now_ms)
    assert any(isinstance(event, k.Placed) for event in events)
    closes()
    world.say(*events)
    verdict = world.verdict("Placed")
    return verdict.accepted, verdict.reason


@pytest.mark.parametrize("why", CLOSED)
def test_a_placement_on_a_node_that_closed_since_the_cycle_began_is_void(why: str) -> None:
    world, job = world_of()
    assert raced(world, lambda: world.node("n1", cpu=8, **CLOSED[why])) == (False, why)  # type: ignore[arg-type]
    assert not job.placements and int(world.state.nodes.used.sum()) == 0


@pytest.mark.parametrize("why", CLOSED)
def test_the_job_is_placed_as_soon_as_the_node_opens_again(why: str) -> None:
    world, job = world_of()
    raced(world, lambda: world.node("n1", cpu=8, **CLOSED[why]))  # type: ignore[arg-type]
    world.node("n1", cpu=8)
    world.cycle()
    assert world.verdict("Placed").accepted and len(job.placements) == 3


@pytest.mark.parametrize(
    "changes",
    [
        {"taints": [msgspec.structs.replace(BUSY, effect="PreferNoSchedule")]},
        {"labels": {"a": "b"}},
        {"gpus": 4},
    ],
)
def test_a_change_that_closes_nothing_voids_nothing(changes: dict[str, object]) -> None:
    world, _ = world_of()
    assert raced(world, lambda: world.node("n1", cpu=8, **changes))[0]  # type: ignore[arg-type]


def test_a_taint_that_every_pod_tolerates_voids_nothing_and_one_group_that_does_not_voids_all() -> None:
    world, _ = world_of(Toleration("user/busy", "Exists", "", "NoSchedule"))
    assert raced(world, lambda: world.node("n1", cpu=8, taints=[BUSY]))[0]
    world, _ = world_of(Toleration("user/busy", "Exists", "", "NoSchedule"))
    assert not raced(world, lambda: world.node("n1", cpu=8, taints=[BUSY, GOING]))[0]
    world = World(config=CycleConfig(versions=VERSIONS))
    world.node("n1", cpu=8)
    tolerant = shape(cpu=1, tolerations=[Toleration("", "Exists", "", "")])
    world.job("ppo", leader=tolerant, workers=2, worker=shape(cpu=1), min_workers=2)
    assert not raced(world, lambda: world.node("n1", cpu=8, taints=[BUSY]))[0]


def test_whatever_a_cycle_places_on_the_state_that_it_saw_is_accepted() -> None:
    """The verdict asks for nothing that the filters of the cycle don't."""
    world = World(config=CycleConfig(versions=VERSIONS))
    closed = [{"ready": False}, {"cordoned": True}, {"taints": [BUSY]}, {"taints": [GOING]}, {}]
    for number, facts in enumerate(closed):
        world.node(f"n{number}", cpu=2, **facts)  # type: ignore[arg-type]
    for number, tolerated in enumerate(
        ((), (Toleration("user/busy", "Exists", "", ""),), (Toleration("", "Exists", "", ""),))
    ):
        world.job(f"j{number}", leader=shape(cpu=1, tolerations=tolerated), workers=1, min_workers=1)
    events = world.cycle()
    assert sum(isinstance(event, k.Placed) for event in events) == 3
    assert all(verdict.accepted for verdict in world.verdicts)


def kept_worker(world: World, job: JobRecord) -> tuple[str, k.EndedWorker]:
    """A worker fails, and would stay on its node."""
    world.settle()
    uid = job.bound[(1, 1)]
    world.change_pod(uid, phase="Failed", ready=False)
    return uid, k.EndedWorker(k.Slot(1, 1), uid, "SameNode", True)


@pytest.mark.parametrize("why", CLOSED)
def test_a_worker_is_not_replaced_on_its_node_if_that_closed_since(why: str) -> None:
    world, job = world_of()
    uid, kept = kept_worker(world, job)
    world.node("n1", cpu=8, **CLOSED[why])  # type: ignore[arg-type]
    world.say(k.WorkersReplaced(job.uid, job.version, 0, (kept,), ()))
    assert (world.verdict("WorkersReplaced").accepted, world.verdict("WorkersReplaced").reason) == (False, why)
    assert job.bound[(1, 1)] == uid


def test_a_worker_is_replaced_on_its_node_though_that_was_marked_unhealthy_and_is_ready_again() -> None:
    world, job = world_of()
    _, kept = kept_worker(world, job)
    world.node("n1", cpu=8, taints=[Taint("node.kubernetes.io/memory-pressure", "", "NoSchedule")])
    world.say(k.WorkersReplaced(job.uid, job.version, 0, (kept,), ()))
    assert world.verdict("WorkersReplaced").accepted
