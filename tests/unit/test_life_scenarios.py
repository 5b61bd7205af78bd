"""Four ways in which other schedulers lost count, each by the name that it has in our list of scenarios."""

from collections.abc import Callable

import pytest

from arranger.model.job import Stage
from arranger.model.pod import PodOwner
from arranger.projections import snapshot
from arranger.projections.consistency import validate
from arranger.projections.jobs.parts import LEADER
from arranger.projections.jobs.records import JobRecord
from tests.world import World, shape


def running(**job: object) -> tuple[World, JobRecord]:
    """A leader and two workers of 1 cpu on one node; Running."""
    world = World()
    world.node("n1", cpu=8)
    record = world.job("ppo", **{"workers": 2, "min_workers": 2, "restart_limit": 3, **job})  # type: ignore[arg-type]
    world.settle()
    assert record.stage == Stage.RUNNING
    return world, record


# --- I03: an eviction does not consume the restart budget ---------------------------------------------------------


@pytest.mark.parametrize("slot", [LEADER, (1, 0)], ids=["leader", "worker"])
@pytest.mark.parametrize("reason", ["Evicted", "Preempting", "NodeShutdown", "OutOfcpu"])
@pytest.mark.parametrize("limit", [0, 3])
def test_i03_five_evictions_in_a_row_consume_no_restart_and_never_fail_the_job(
    slot: tuple[int, int], reason: str, limit: int
) -> None:
    world, job = running(restart_limit=limit)
    stages = set()
    for number in range(1, 6):
        world.change_pod(job.bound[slot], phase="Failed", ready=False, reason=reason)
        while world.control():
            stages.add(job.stage)
        world.pass_time(61)  # a node that refused a pod is avoided no longer
        world.settle()
        assert (job.stage, job.attempt) == (Stage.RUNNING, number)
    assert (job.leader.restarts, sum(job.spent.values()), job.slots.given_up) == (0, 0, {})
    assert stages <= {Stage.RESCHEDULING, Stage.PENDING, Stage.STARTING, Stage.RUNNING}


# --- I04: news of a pod of an earlier attempt, or of an earlier job of that name ----------------------------------


def test_i04_a_failed_pod_of_an_earlier_attempt_has_no_effect() -> None:
    world, job = running()
    world.change_pod(job.bound[LEADER], phase="Failed", ready=False, reason="Evicted")
    world.control()
    assert job.attempt == 1
    before = (job.version, job.leader.restarts, dict(job.spent), job.stage)
    for index in (0, 1):
        world.change_pod(f"uid-ppo-actors-{index}", phase="Failed", ready=False)
    world.pass_time(600)
    assert world.control() == [] and (job.version, job.leader.restarts, job.spent, job.stage) == before


def test_i04_a_failed_pod_of_an_earlier_job_of_that_name_has_no_effect() -> None:
    world, old = running()
    world.job_gone(old)
    new = world.job("ppo", uid="uid-again", workers=2, min_workers=2)
    before = (new.version, new.stage, new.bound)
    for pod in list(world.state.pods.values()):
        world.change_pod(pod.uid, phase="Failed", ready=False)
    world.pass_time(600)
    assert world.control() == [] and (new.version, new.stage, new.bound) == before


@pytest.mark.parametrize(("slot", "attempt"), [(LEADER, 1), ((1, 0), 0)], ids=["leader", "worker"])
def test_i04_a_failed_pod_of_this_attempt_is_a_restart(slot: tuple[int, int], attempt: int) -> None:
    world, job = running()
    world.change_pod(job.bound[slot], phase="Failed", ready=False)
    world.pass_time(world.lifecycle.back_off_ms / 1000)
    world.settle()
    world.wait_for_back_offs()
    world.settle()
    assert (job.stage, job.attempt, job.leader.restarts + sum(job.spent.values())) == (Stage.RUNNING, attempt, 1)


# --- J05: what is decided and not yet confirmed counts as used ----------------------------------------------------


def test_j05_a_placement_whose_pod_was_not_seen_yet_takes_its_room_from_the_next_cycle() -> None:
    world = World()
    world.node("n1", cpu=4)
    first = world.job("a", leader=shape(cpu=3))
    world.cycle()
    assert first.placements == {LEADER: "n1"} and not first.bound
    second = world.job("b", created=1, leader=shape(cpu=3))
    world.cycle()
    assert not second.placements and second.stage == Stage.PENDING and second.waits is not None
    validate(world.state)


def test_j05_decided_and_bound_pods_never_exceed_a_node_at_any_point_of_the_log() -> None:
    world = World()
    world.node("n1", cpu=4)
    jobs = [world.job(name, created=number, leader=shape(cpu=1.5)) for number, name in enumerate("abcd")]
    peak = 0
    for _ in range(12):
        world.cycle()
        validate(world.state)
        peak = max(peak, world.used("n1"))
        world.control()
        world.apply()
        running_now = [job for job in jobs if job.stage == Stage.RUNNING]
        if running_now:
            world.change_pod(running_now[0].bound[LEADER], phase="Succeeded", ready=False)
    assert peak == 3000 and all(job.stage == Stage.SUCCEEDED for job in jobs)


# --- J06: pods known before their node, and a node that comes back ------------------------------------------------

Steps = list[Callable[[World], object]]
NODE: Steps = [lambda w: w.node("n1", cpu=4, uid="uid-1")]
POD: Steps = [
    lambda w: w.pod("p", "n1", cpu=3),
    lambda w: w.pod("ppo-learner-0", "n1", cpu=0.5, owner=PodOwner("uid-ppo", 0, "learner", True, 0)),
]
GONE: Steps = [lambda w: w.node_gone("n1", uid="uid-1")]
AGAIN: Steps = [lambda w: w.node("n1", cpu=4, uid="uid-2")]


def used_after(*steps: Callable[[World], object]) -> tuple[World, int, int]:
    world = World()
    for step in steps:
        step(world)
    assert snapshot.digest(snapshot.restore(snapshot.encode(world.state))) == world.digest()
    return world, world.used("n1"), world.used("n1", "pods")


def test_j06_what_is_used_on_a_node_is_the_same_whether_it_or_its_pods_are_seen_first() -> None:
    assert used_after(*NODE, *POD)[1:] == used_after(*POD, *NODE)[1:] == (3500, 2)


def test_j06_a_node_that_is_deleted_and_added_again_has_its_pods_still() -> None:
    world, cpu, pods = used_after(*NODE, *POD, *GONE, *AGAIN)
    assert (cpu, pods) == (3500, 2)
    job = world.job("next", leader=shape(cpu=1))
    world.cycle()
    assert not job.placements, "there is room for half a core only"
