"""A leader whose restarts count against its limit within a window."""

import pytest

from arranger.events import kinds as k
from arranger.kube.translate import job_status_seen
from arranger.lifecycle.desired import desired_status
from arranger.messages.decisions import stage_text
from arranger.model.job import RestartPolicy, Stage
from arranger.model.tyjob import job_spec
from arranger.projections import snapshot
from arranger.projections.consistency import validate
from arranger.projections.jobs.records import JobRecord
from arranger.replay.explain.causes import restarts_used
from tests.unit.tyjob_table import tyjob_with
from tests.world import World

LEADER = (0, 0)
#: Longer than every back-off of these tests, in seconds.
WAIT_S = 41.0


def running(limit: int = 1, window_s: int | None = 1000) -> tuple[World, JobRecord]:
    world = World()
    world.node("n1", cpu=4)
    policy = RestartPolicy(limit=limit, window_s=window_s)
    job = world.job("ppo", workers=1, restart={"learner": policy})
    world.settle()
    return world, job


def fail(world: World, job: JobRecord, **more: object) -> None:
    world.change_pod(job.bound[LEADER], **{"phase": "Failed", "ready": False, "reason": "Error", **more})
    world.settle()
    world.pass_time(WAIT_S)
    world.settle()
    validate(world.state)


def test_the_window_is_a_part_of_the_spec() -> None:
    spec = job_spec(tyjob_with({"spec/leader/restart": {"windowSeconds": 60}}))
    assert spec.restart_of(0) == RestartPolicy(limit=3, window_s=60)


def test_the_message_says_whether_the_limit_is_the_leaders_own() -> None:
    world = World()
    world.node("n1", cpu=4)
    own = job_spec(tyjob_with({"spec/leader/restart": {"limit": 0}})).restart_of(0)
    assert own == RestartPolicy(limit=0, own_limit=True)
    job = world.job("ppo", workers=1, restart={"learner": own})
    world.settle()
    world.change_pod(job.bound[LEADER], restarts=1)
    world.settle()
    assert desired_status(world.state, job)["message"] == "the leader restarted 1 time; leader.restart.limit is 0"


def test_failures_within_the_window_fail_the_job_beyond_the_limit() -> None:
    world, job = running()
    fail(world, job)
    decided = next(step for step, _ in job.steps if step.reason == "LeaderFailed")
    assert stage_text(decided) == "the leader failed (Error); restart 1 of 1 in 1000 s"
    assert (job.stage, job.attempt, restarts_used(job, world.state)["learner"]) == (Stage.RUNNING, 1, 1)
    fail(world, job)
    assert (job.stage, job.leader.restarts) == (Stage.FAILED, 1)
    assert desired_status(world.state, job)["message"] == "the leader failed (Error) and restartLimit is 1 in 1000 s"


def test_failures_outside_of_the_window_of_each_other_restart_the_job_without_end() -> None:
    world, job = running()
    for times in range(1, 6):
        fail(world, job)
        assert (job.stage, job.attempt, job.leader.restarts) == (Stage.RUNNING, times, times)
        world.pass_time(1000)


def test_without_a_window_the_limit_is_that_of_the_jobs_life() -> None:
    world, job = running(window_s=None)
    fail(world, job)
    world.pass_time(100_000)
    fail(world, job)
    assert job.stage == Stage.FAILED and not job.slots.charged


def test_restarts_of_its_containers_count_too() -> None:
    world, job = running()
    world.change_pod(job.bound[LEADER], restarts=1)
    world.settle()
    assert job.stage == Stage.RUNNING and job.slots.charged[LEADER][0] == 1
    world.change_pod(job.bound[LEADER], restarts=2)
    world.settle()
    assert job.stage == Stage.FAILED
    assert desired_status(world.state, job)["message"] == "the leader restarted 2 times; restartLimit is 1 in 1000 s"


@pytest.mark.parametrize("end", [{"reason": "Evicted"}, {"deleting": True}])
def test_ends_that_are_not_its_own_fault_count_nothing(end: dict[str, object]) -> None:
    world, job = running(limit=0)
    fail(world, job, **end)
    assert (job.attempt, job.slots.charged) == (1, {}) and not job.ended


def test_a_workers_end_that_restarts_the_job_forgives_the_leader_nothing() -> None:
    world, job = running()
    fail(world, job)
    world.node_gone("n1")
    world.pod_gone(job.bound[LEADER])
    world.node("n2", cpu=4)
    world.settle()
    world.pass_time(WAIT_S)
    world.settle()
    assert (job.attempt, job.stage) == (2, Stage.RUNNING) and job.slots.charged[LEADER][0] == 1


def test_a_new_epoch_takes_the_count_from_the_status() -> None:
    world, job = running()
    fail(world, job)
    status = desired_status(world.state, job)
    assert status["restartsInWindow"] == 1
    seen = job_status_seen(status, job.spec)
    assert seen is not None and seen.charged == ((0, ((0, 0, 1),)),)
    again = World()
    again.node("n1", cpu=4)
    policy = RestartPolicy(limit=1, window_s=1000)
    taken = again.job("ppo", workers=1, restart={"learner": policy}, status=seen)
    assert taken.slots.charged == {LEADER: (1, again.now_ms)}
    assert snapshot.digest(snapshot.restore(snapshot.encode(again.state))) == again.digest()


def test_a_status_of_any_content_gives_no_count() -> None:
    for told in (None, -1, "3", [], 2.5, True):
        seen = job_status_seen({"stage": "Running", "restartsInWindow": told}, job_spec(tyjob_with({})))
        assert seen is not None and seen.charged == ()


def test_a_leader_of_an_older_log_has_no_window() -> None:
    world, job = running(window_s=None)
    assert isinstance(job.seen, k.JobSeen) and job.valid_spec.restart_of(0).window_s is None
    assert "restartsInWindow" not in desired_status(world.state, job)
