"""The life cycle as a table of what happens to what: each test is a row or a rule of it."""

from arranger.model.job import CleanPodPolicy, ScheduleState, Stage
from tests.world import World, shape


def running_world(**job: object) -> tuple[World, object]:
    world = World()
    world.node("n1", cpu=8)
    record = world.job("ppo", workers=3, min_workers=2, **job)  # type: ignore[arg-type]
    world.settle()
    return world, record


def test_a_job_that_fits_runs_leader_first() -> None:
    world = World()
    world.node("n1", cpu=8)
    job = world.job("ppo", workers=3, min_workers=2)
    world.cycle()
    assert job.schedule_state == ScheduleState.SUCCEED and job.stage == Stage.PENDING
    world.control()
    assert job.stage == Stage.STARTING
    world.apply()
    assert [pod.name for pod in world.state.pods.values()] == ["ppo-learner-0-0"]
    world.settle()
    assert job.stage == Stage.RUNNING and len(job.bound) == 4


def test_a_finished_leader_ends_the_job_and_its_pods_are_cleaned() -> None:
    world, job = running_world()
    world.pod("l", "n1", uid=job.bound[(0, 0)], phase="Succeeded", owner=world.state.pods[job.bound[(0, 0)]].owner)
    world.settle()
    assert job.stage == Stage.SUCCEEDED
    assert not world.state.pods and not world.state.nodes.used.any()


def test_clean_pod_policy_none_keeps_every_pod() -> None:
    world, job = running_world(clean=CleanPodPolicy.NONE)
    world.pod("l", "n1", uid=job.bound[(0, 0)], phase="Succeeded", owner=world.state.pods[job.bound[(0, 0)]].owner)
    world.settle()
    assert job.stage == Stage.SUCCEEDED and len(world.state.pods) == 4


def test_a_lost_leader_means_a_new_attempt_that_waits_for_the_old_pods() -> None:
    world, job = running_world()
    world.pod_gone(job.bound[(0, 0)])
    world.control()
    assert (job.stage, job.attempt, job.restarts) == (Stage.RESCHEDULING, 1, 0)
    assert world.cycle() == ()
    world.settle()
    assert job.stage == Stage.RUNNING
    assert {pod.owner.attempt for pod in world.state.pods.values() if pod.owner} == {1}


def test_leader_failures_beyond_the_limit_fail_the_job() -> None:
    world, job = running_world(restart_limit=2)
    for restarts in (1, 2):
        uid = job.bound[(0, 0)]
        world.pod("l", "n1", uid=uid, phase="Failed", owner=world.state.pods[uid].owner)
        world.settle()
        assert (job.stage, job.restarts) == (Stage.RUNNING, restarts)
    uid = job.bound[(0, 0)]
    world.pod("l", "n1", uid=uid, phase="Failed", owner=world.state.pods[uid].owner)
    world.settle()
    assert job.stage == Stage.FAILED


def test_an_evicted_leader_does_not_eat_the_budget() -> None:
    world, job = running_world(restart_limit=0)
    for _ in range(5):
        uid = job.bound[(0, 0)]
        world.pod("l", "n1", uid=uid, phase="Failed", reason="Evicted", owner=world.state.pods[uid].owner)
        world.settle()
    assert (job.stage, job.restarts, job.attempt) == (Stage.RUNNING, 0, 5)


def test_terminating_ends_a_waiting_job_as_succeeded() -> None:
    world = World()
    job = world.job("ppo", workers=1, min_workers=1)
    world.settle()
    assert job.stage == Stage.PENDING
    world.job("ppo", workers=1, min_workers=1, terminating=True)
    world.settle()
    assert job.stage == Stage.SUCCEEDED


def test_an_invalid_job_fails_with_its_message_and_holds_nothing() -> None:
    world = World()
    world.node("n1")
    job = world.job("bad", invalid="spec.priority: Invalid value: 11")
    other = world.job("good")
    world.settle()
    assert job.stage == Stage.FAILED and job.decided is not None
    assert job.decided.message == "spec.priority: Invalid value: 11"
    assert other.stage == Stage.RUNNING


def test_a_partly_scheduled_job_runs_and_fills_up_later() -> None:
    world = World()
    world.node("n1", cpu=3)
    job = world.job("ppo", workers=4, min_workers=2)
    world.settle()
    assert (job.schedule_state, job.stage, len(job.placements)) == (ScheduleState.PARTLY, Stage.RUNNING, 3)
    assert job.waits is not None and "0 of 2 further pods placed" in job.waits.message
    world.node("n2", cpu=8)
    world.settle()
    assert (job.schedule_state, len(job.bound)) == (ScheduleState.SUCCEED, 5)


def test_a_job_that_fits_no_empty_cluster_fails_after_its_grace_and_a_full_cluster_never_fails_one() -> None:
    world = World()
    world.node("n1", cpu=4)
    never = world.job("never", leader=shape(cpu=5))
    world.job("first", leader=shape(cpu=4), created=1)
    waits = world.job("waits", leader=shape(cpu=4), created=2)
    world.settle()
    for _ in range(40):
        world.pass_time(10)
        world.settle()
    assert (never.schedule_state, never.stage) == (ScheduleState.FAILED, Stage.FAILED)
    assert (waits.schedule_state, waits.stage) == (ScheduleState.UNSCHEDULED, Stage.PENDING)
