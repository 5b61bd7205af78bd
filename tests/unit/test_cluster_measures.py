"""What the metrics say of a cluster: jobs by stage, waiting jobs by cause, GPUs by node pool; and who measures it."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from arranger.metrics import Metrics
from arranger.model.job import Dependency
from arranger.model.queue import DEFAULT_QUEUE
from arranger.workers.health.measuring import KEY, ROLE, Measuring
from arranger.workers.log import cluster_measures
from arranger.workers.log.cluster_measures import NONE, OTHER, ClusterMeasures, MeasuredQueues, NodePools
from tests.parts import parts
from tests.unit.queue_table import GPU
from tests.unit.replay_worlds import crowded, gpu_job, preempting, with_room_rules
from tests.unit.test_applier import Following, until
from tests.world import World, shape

GKE, KARPENTER = "cloud.google.com/gke-nodepool", "karpenter.sh/nodepool"


def measured(world: World, label: str = "") -> ClusterMeasures:
    found = ClusterMeasures(world.state, NodePools(label), MeasuredQueues())
    for job in world.state.jobs.values():
        found.add(job)
    found.finish()
    return found


def test_jobs_are_counted_by_queue_and_stage_and_waiting_ones_by_cause() -> None:
    world = crowded()
    world.job("later", after=[Dependency("big")], created=world.now_ms)
    world.job("idle", suspend=True, created=world.now_ms)
    world.settle()
    found = measured(world)
    stages = [str(job.stage) for job in world.state.jobs.values()]
    assert found.jobs == {(DEFAULT_QUEUE, stage): stages.count(stage) for stage in sorted(stages)}
    assert found.waiting == {
        (DEFAULT_QUEUE, "Room"): 2,
        (DEFAULT_QUEUE, "Infeasible"): 1,
        (DEFAULT_QUEUE, "Dependency"): 1,
    }


def test_gpus_are_divided_into_used_and_idle_by_pool_and_queue() -> None:
    world = World()
    world.queue("a")
    world.node("n1", gpus=8, labels={GKE: "large"})
    world.node("n2", gpus=8, labels={GKE: "large"}, cordoned=True)
    world.node("n3", gpus=4, labels={KARPENTER: "small"})
    world.node("n4", gpus=2)
    world.node("n5", labels={GKE: "without"})
    world.pod("foreign", "n3", gpus=3)
    selector = {GKE: "large"}
    world.job("j", leader=shape(gpus=1, selector=selector), workers=2, worker=shape(gpus=2, selector=selector),
              of_queue="a")  # fmt: skip
    world.settle()
    found = measured(world)
    assert found.there == {"large": 16, "small": 4, NONE: 2}
    assert found.used == {("large", "a"): 5, ("small", NONE): 3}
    assert found.idle == {"large": 3, "small": 1, NONE: 2}
    assert measured(world, KARPENTER).there == {"small": 4, NONE: 18}


def test_gpus_that_are_kept_for_waiting_jobs_are_reserved() -> None:
    world = with_room_rules(preemption=None)
    gpu_job(world, "first", 3, expected_s=1000)
    world.settle()
    gpu_job(world, "large", 4, priority=9)
    world.cycle()
    found = measured(world)
    assert (found.used, found.reserved) == ({(NONE, DEFAULT_QUEUE): 3}, {(NONE, DEFAULT_QUEUE): 4})
    assert found.idle == {NONE: 1}


def test_idle_gpus_that_a_reservation_keeps_are_told_apart() -> None:
    world = with_room_rules(preemption=None)
    gpu_job(world, "first", 3, expected_s=1000)
    world.settle()
    gpu_job(world, "large", 4, priority=9)
    world.cycle()
    world.node("n9", gpus=2)
    found = measured(world)
    assert (found.idle, found.reserved_idle) == ({NONE: 3}, {NONE: 1})


def test_room_that_preempted_pods_are_to_leave_is_reserved_and_still_used() -> None:
    world = with_room_rules(reservations=0)
    gpu_job(world, "low", 4, priority=1)
    world.settle()
    gpu_job(world, "high", 4, priority=9)
    world.cycle()
    found = measured(world)
    assert found.reserved == {(NONE, DEFAULT_QUEUE): 4}
    assert found.used == {(NONE, NONE): 4}  # pods that are leaving fill no slot
    assert found.idle == {NONE: 0}


def test_idle_gpus_that_typical_pods_cannot_use_are_fragmented() -> None:
    world = World()
    for number in range(4):
        world.node(f"n{number}", gpus=4)
        world.pod(f"foreign{number}", f"n{number}", gpus=1)
    assert measured(world).fragmented == {NONE: 0}
    world.job("whole", leader=shape(gpus=4))
    assert measured(world).fragmented == {NONE: 12}
    world.job("one", leader=shape(gpus=1))
    assert measured(world).fragmented == {NONE: 6}


def test_names_beyond_the_bounds_share_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_measures, "QUEUES_MEASURED", 2)
    monkeypatch.setattr(cluster_measures, "POOLS_MEASURED", 1)
    world = World()
    for number in range(3):
        world.queue(f"q{number}")
        world.node(f"n{number}", gpus=1 + number, labels={GKE: f"pool{number}"})
        world.job(f"j{number}", leader=shape(gpus=1), of_queue=f"q{number}")
    world.job("nowhere", of_queue="invented")
    found = measured(world)
    assert found.jobs == {("q0", "Pending"): 1, (OTHER, "Pending"): 3}
    assert found.there == {"pool2": 3, OTHER: 3}


def test_what_is_used_and_idle_is_what_open_nodes_have() -> None:
    for world in (crowded(), preempting()):
        found = measured(world)
        closed = sum(
            of.allocatable and dict(of.allocatable).get(GPU, 0)
            for of in world.state.nodes.facts
            if of.cordoned or not of.ready
        )
        assert sum(found.there.values()) == sum(found.used.values()) + sum(found.idle.values()) + closed


class Redis:
    """A server that tells how much memory it uses."""

    async def info(self, section: str) -> dict[str, Any]:
        return {"used_memory": 70, "maxmemory": 100} if section == "memory" else {}


class Shares:
    """Whether this process measures the cluster."""

    def __init__(self) -> None:
        self.ours = True

    def owns(self, key: str, role: str) -> bool:
        assert (key, role) == (KEY, ROLE)
        return self.ours


async def test_one_process_measures_and_stops_when_another_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arranger.workers.health.measuring._EVERY_S", 0.02)
    monkeypatch.setattr("arranger.workers.health.measuring._AGAIN_S", 0.02)
    world, shares = crowded(), Shares()
    given: Mapping[str, Any] = {"follower": Following(world.state), "membership": shares, "redis": Redis()}
    own = parts(**given)
    running = asyncio.create_task(Measuring(own).run())

    def value(metrics: Metrics, stage: str = "Running") -> float | None:
        return metrics.registry.get_sample_value("arranger_jobs", {"queue": DEFAULT_QUEUE, "stage": stage})

    await until(lambda: value(own.metrics) == 2)
    assert own.metrics.registry.get_sample_value("arranger_gpus_idle", {"pool": NONE}) is not None
    memory = [
        own.metrics.registry.get_sample_value("arranger_redis_memory_bytes", {"memory": name})
        for name in ("used", "limit")
    ]
    assert memory == [70, 100]
    shares.ours = False
    await until(lambda: value(own.metrics) is None)
    assert own.metrics.registry.get_sample_value("arranger_gpus_idle", {"pool": NONE}) is None
    running.cancel()


async def test_a_measurement_that_fails_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("arranger.workers.health.measuring._EVERY_S", 0.02)
    broken = True

    def add(_self: ClusterMeasures, _job: object) -> None:
        if broken:
            raise KeyError("a defect")

    monkeypatch.setattr(ClusterMeasures, "add", add)
    own = parts(follower=Following(crowded().state), membership=Shares(), redis=Redis())
    running = asyncio.create_task(Measuring(own).run())
    await until(lambda: "a measurement failed" in caplog.text)
    broken = False
    await until(lambda: own.metrics.registry.get_sample_value("arranger_gpus", {"pool": NONE}) is not None)
    running.cancel()
