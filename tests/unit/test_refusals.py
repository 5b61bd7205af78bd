"""Pods that a node's kubelet refuses: placed elsewhere at nobody's expense, and the node is avoided for a while."""

import math

import pytest

from arranger.events.kinds import Placed, Waits
from arranger.model.config import CycleConfig
from arranger.model.job import Stage
from arranger.model.reasons import Reason, ReasonKind, insufficient
from arranger.projections import snapshot
from arranger.projections.jobs.records import JobRecord
from arranger.scheduling.cycle import VERSIONS, Cycles, take_cycle
from arranger.scheduling.filters.refusals import next_end_ms
from tests.unit.replay_worlds import verified
from tests.world import World, shape

REFUSED = Reason(ReasonKind.REFUSED_RECENTLY)
REASONS = ["OutOfcpu", "OutOfpods", "UnexpectedAdmissionError", "NodeAffinity", "TopologyAffinityError"]


def running(**job: object) -> tuple[World, JobRecord]:
    world = World()
    world.node("n1", cpu=8)
    world.node("n2", cpu=8)
    record = world.job("ppo", **{"workers": 3, "min_workers": 1, "restart_limit": 0, **job})  # type: ignore[arg-type]
    world.settle()
    assert set(record.placements.values()) == {"n1"}
    return world, record


def refuse(world: World, job: JobRecord, slot: tuple[int, int], reason: str = "OutOfcpu") -> None:
    world.change_pod(job.bound[slot], phase="Failed", ready=False, reason=reason)


@pytest.mark.parametrize("reason", REASONS)
def test_a_refused_worker_goes_elsewhere_at_once_and_eats_no_budget(reason: str) -> None:
    world, job = running()
    refuse(world, job, (1, 1), reason)
    world.settle()
    assert (job.stage, job.attempt, job.spent, job.slots.given_up) == (Stage.RUNNING, 0, {}, {})
    assert job.placements[(1, 1)] == "n2" and len(job.bound) == 4


def test_a_refused_leader_is_scheduled_again_on_another_node() -> None:
    world, job = running()
    refuse(world, job, (0, 0))
    world.settle()
    assert (job.stage, job.attempt, job.leader.restarts) == (Stage.RUNNING, 1, 0)
    assert set(job.placements.values()) == {"n2"}


def test_a_node_that_refused_is_avoided_by_that_job_alone_and_for_a_while_only() -> None:
    world, job = running()
    world.node("n2", cpu=0)
    refuse(world, job, (1, 1))
    world.control()
    world.apply()
    [_, waits] = world.cycle()
    assert isinstance(waits, Waits)
    assert waits.shortage.reasons == ((insufficient("cpu", 1000, 0), 1), (REFUSED, 1))
    other = world.job("other")
    world.settle()
    assert other.placements == {(0, 0): "n1"}
    world.pass_time(59.999)
    assert not any(isinstance(event, Placed) for event in world.cycle())
    world.pass_time(0.001)
    world.settle()
    assert job.placements[(1, 1)] == "n1" and job.stage == Stage.RUNNING


def test_a_quorum_that_only_an_avoided_node_could_hold_waits_and_is_not_called_impossible() -> None:
    world = World()
    world.node("n1", cpu=8)
    job = world.job("ppo", workers=1, min_workers=1, worker=shape(cpu=3))
    world.settle()
    refuse(world, job, (0, 0))
    world.settle()
    assert job.stage == Stage.RESCHEDULING and job.waits is not None and not job.waits.shortage.infeasible
    assert job.waits.shortage.reasons == ((REFUSED, 1),)
    world.pass_time(60)
    world.settle()
    assert job.stage == Stage.RUNNING


def test_a_process_that_remembers_silence_wakes_when_the_while_is_over() -> None:
    world, job = running()
    world.node("n2", cpu=0)
    refuse(world, job, (1, 1))
    world.control()
    world.apply()
    world.cycle()
    cycles = Cycles()
    assert cycles.take(world.state, world.config, world.now_ms) == ()
    world.pass_time(60)
    assert any(isinstance(event, Placed) for event in cycles.take(world.state, world.config, world.now_ms))


def test_a_twin_that_was_not_refused_is_placed_as_ever_in_the_same_cycle() -> None:
    world, job = running()
    refuse(world, job, (0, 0))
    twin = world.job("twin", workers=3, min_workers=1, restart_limit=0, priority=9)
    world.control()
    for uid in [pod.uid for pod in world.state.pods.values()]:
        world.pod_gone(uid)
    world.cycle()
    assert set(job.placements.values()) == {"n2"} and set(twin.placements.values()) == {"n1"}


def test_a_configuration_from_before_avoids_nothing() -> None:
    world, job = running()
    refuse(world, job, (1, 1))
    world.control()
    world.apply()
    before = CycleConfig(versions=VERSIONS)
    assert next_end_ms(job, before, world.now_ms) == math.inf
    [_, placed] = take_cycle(world.state, before, world.now_ms)
    assert isinstance(placed, Placed) and placed.pods[0].node == "n1"


def test_cycles_with_refusals_are_verified_and_survive_a_snapshot() -> None:
    world, job = running()
    world.node("n2", cpu=1)
    for slot in ((1, 1), (1, 2)):
        refuse(world, job, slot)
    world.settle()
    world.pass_time(61)
    world.settle()
    assert job.placements[(1, 2)] == "n1" or job.placements[(1, 1)] == "n1"
    report = verified(world.entries)
    assert report.cycles == report.identical >= 3 and report.sound
    restored = snapshot.restore(snapshot.encode(world.state))
    assert restored.jobs[job.uid].refusals == {"n1": job.refusals["n1"]}
