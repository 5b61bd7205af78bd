"""A job that starts without all of its quorum: how long it may hold the part that it has, and what ends that."""

from arranger.events import kinds as k
from arranger.messages.decisions import stage_text
from arranger.model.job import Slot, Stage
from arranger.projections import snapshot
from arranger.projections.consistency import validate
from tests.world import starting


def test_a_job_whose_minimum_is_raised_while_it_starts_gives_its_nodes_up_after_the_grace_and_not_before() -> None:
    world, job = starting(cpu=3, workers=4, min_workers=1)
    assert len(job.placements) == 3
    world.pass_time(60)
    world.job("ppo", workers=4, min_workers=4, generation=2)
    grace_s = world.lifecycle.quorum_ms / 1000
    world.pass_time(grace_s - 1)
    assert world.control() == []
    world.pass_time(1)
    [decision] = world.control()
    assert isinstance(decision, k.StageDecided)
    assert (decision.stage, decision.reason) == ("Rescheduling", "QuorumIncomplete")
    assert (job.placements, job.attempt, job.leader.restarts) == ({}, 1, 0)
    world.settle()
    assert (job.stage, job.placements) == (Stage.RESCHEDULING, {})
    world.node("n2", cpu=2)
    world.wait_for_late_pods()
    world.settle()
    assert (job.stage, len(job.bound)) == (Stage.RUNNING, 5)
    validate(world.state)


def test_a_minimum_raised_and_lowered_again_in_time_costs_a_starting_job_nothing() -> None:
    world, job = starting(cpu=3, workers=4, min_workers=1)
    world.job("ppo", workers=4, min_workers=4, generation=2)
    world.pass_time(world.lifecycle.quorum_ms / 1000 - 1)
    world.job("ppo", workers=4, min_workers=2, generation=3)
    world.pass_time(world.lifecycle.quorum_ms / 1000)
    world.settle()
    assert (job.stage, job.attempt) == (Stage.RUNNING, 0)


def test_a_running_job_whose_minimum_is_raised_keeps_its_nodes_for_the_grace_and_no_longer() -> None:
    world, job = starting(cpu=3, workers=4, min_workers=1)
    world.settle()
    assert job.stage == Stage.RUNNING and len(job.placements) == 3
    world.job("ppo", workers=4, min_workers=4, generation=2)
    world.pass_time(world.lifecycle.quorum_ms / 1000 - 1)
    world.settle()
    assert (job.stage, job.attempt) == (Stage.RUNNING, 0)
    world.pass_time(1)
    [decision] = world.control()
    assert isinstance(decision, k.StageDecided)
    assert (decision.stage, decision.reason) == ("Rescheduling", "QuorumIncomplete")
    world.node("n2", cpu=2)
    world.wait_for_late_pods()
    world.settle()
    assert (job.stage, len(job.bound), job.leader.restarts) == (Stage.RUNNING, 5, 0)
    validate(world.state)


def test_a_running_job_of_whose_quorum_a_pod_is_refused_is_scheduled_again_after_the_grace() -> None:
    world, job = starting(cpu=3, workers=2, min_workers=2)
    world.settle()
    world.pod_gone(job.bound[1, 1])
    refused = k.EffectFailed(job.uid, 0, "create", Slot(1, 1), 403, "Forbidden", "exceeded quota: compute", False, 1)
    world.say(refused)
    world.pass_time(world.lifecycle.quorum_ms / 1000 - 1)
    assert world.control() == [] and job.stage == Stage.RUNNING
    world.pass_time(1)
    world.control()
    assert (job.stage, job.attempt) == (Stage.RESCHEDULING, 1)


def test_a_job_of_which_a_pod_is_refused_gives_its_nodes_up_after_the_grace() -> None:
    world, job = starting(cpu=3, workers=2, min_workers=2)
    world.run_pod(job, (0, 0), "n1")
    world.control()
    world.run_pod(job, (1, 0), "n1")
    refused = k.EffectFailed(job.uid, 0, "create", Slot(1, 1), 403, "Forbidden", "exceeded quota: compute", False)
    world.say(refused)
    world.pass_time(world.lifecycle.quorum_ms / 1000 - 1)
    assert world.control() == []
    world.say(refused)  # told again: that doesn't begin the grace again
    world.pass_time(1)
    [decision] = world.control()
    assert isinstance(decision, k.StageDecided)
    assert decision.reason == "QuorumIncomplete" and "exceeded quota: compute" in stage_text(decision)
    world.wait_for_late_pods()
    world.settle()
    assert (job.stage, job.attempt, len(job.bound)) == (Stage.RUNNING, 1, 3)
    validate(world.state)


def test_a_refused_pod_beyond_the_quorum_and_a_slow_start_are_no_reason_to_give_nodes_up() -> None:
    world, job = starting(cpu=4, workers=3, min_workers=1)
    world.run_pod(job, (0, 0), "n1")
    world.control()
    uid = world.run_pod(job, (1, 0), "n1", phase="Pending")
    world.change_pod(uid, ready=False)
    world.say(k.EffectFailed(job.uid, 0, "create", Slot(1, 2), 403, "Forbidden", "exceeded quota", False))
    world.pass_time(2 * world.lifecycle.quorum_ms / 1000)
    assert world.control() == []
    assert (job.stage, job.attempt) == (Stage.STARTING, 0)


def test_since_when_a_quorum_lacks_a_part_is_in_a_snapshot() -> None:
    world, job = starting(cpu=3, workers=4, min_workers=1)
    world.job("ppo", workers=4, min_workers=4, generation=2)
    assert job.times.short_ms == world.now_ms
    assert snapshot.restore(snapshot.encode(world.state)).jobs[job.uid].times.short_ms == job.times.short_ms
