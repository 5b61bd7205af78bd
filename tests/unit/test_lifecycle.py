"""The life cycle as a table of what happens to what: each test is a row or a rule of it."""

import re

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings

from arranger.events import kinds as k
from arranger.kube.times import parse_time_ms
from arranger.lifecycle.desired import MESSAGE_LIMIT, desired_pods, desired_status, orphans
from arranger.messages.decisions import stage_text
from arranger.messages.departures import deleted_pods_text
from arranger.messages.shortages import counted_of, shortage_text, waits_text
from arranger.model.allocations import decode_allocations, runs_of
from arranger.model.job import ENDED, CleanPodPolicy, JobStatusSeen, PlacedPods, ScheduleState, Stage
from arranger.model.node import Taint
from arranger.model.pod import STOPPED, PodOwner
from arranger.model.quota import LimitKind, QuotaLack
from arranger.projections.consistency import validate
from arranger.projections.jobs.records import JobRecord, compact
from tests.random_worlds import LONG, Step, calm_down, live_through, steps
from tests.unit.replay_worlds import explained
from tests.world import World, shape, starting

LEADER = (0, 0)


def running_world(**job: object) -> tuple[World, JobRecord]:
    world = World()
    world.node("n1", cpu=8)
    record = world.job("ppo", **{"workers": 3, "min_workers": 2, **job})  # type: ignore[arg-type]
    world.settle()
    return world, record


def starting_world(**job: object) -> tuple[World, JobRecord]:
    """A job of three workers whose leader was asked for, and no pod of it is there."""
    return starting(cpu=8, **{"workers": 3, "min_workers": 2, **job})


def reason(job: JobRecord) -> str:
    return job.decided.reason if job.decided is not None else ""


def test_a_job_that_fits_runs_leader_first() -> None:
    world = World()
    world.node("n1", cpu=8)
    job = world.job("ppo", workers=3, min_workers=2)
    world.cycle()
    assert (job.schedule_state, job.stage) == (ScheduleState.SUCCEED, Stage.STARTING)
    assert job.times.start_ms == world.now_ms and reason(job) == "Scheduled" and world.control() == []
    world.apply()
    assert [pod.name for pod in world.state.pods.values()] == ["ppo-learner-0"]
    world.settle()
    assert job.stage == Stage.RUNNING and len(job.bound) == 4


def test_a_finished_leader_ends_the_job_and_its_pods_are_cleaned() -> None:
    world, job = running_world()
    world.change_pod(job.bound[(0, 0)], phase="Succeeded")
    world.settle()
    assert job.stage == Stage.SUCCEEDED
    assert not world.state.pods and not world.state.nodes.used.any()


def test_clean_pod_policy_none_keeps_every_pod() -> None:
    world, job = running_world(clean=CleanPodPolicy.NONE)
    world.change_pod(job.bound[(0, 0)], phase="Succeeded")
    world.settle()
    assert job.stage == Stage.SUCCEEDED and len(world.state.pods) == 4


def test_a_lost_leader_means_a_new_attempt_that_waits_for_the_old_pods() -> None:
    world, job = running_world()
    world.pod_gone(job.bound[(0, 0)])
    world.control()
    assert (job.stage, job.attempt, job.leader.restarts) == (Stage.RESCHEDULING, 1, 0)
    assert world.cycle() == ()
    world.settle()
    assert job.stage == Stage.RUNNING
    assert {pod.owner.attempt for pod in world.state.pods.values() if pod.owner} == {1}


def test_leader_failures_beyond_the_limit_fail_the_job() -> None:
    world, job = running_world(restart_limit=2)
    for restarts in (1, 2):
        uid = job.bound[(0, 0)]
        world.change_pod(uid, phase="Failed")
        world.settle()
        world.wait_for_back_offs()
        world.settle()
        assert (job.stage, job.leader.restarts) == (Stage.RUNNING, restarts)
    uid = job.bound[(0, 0)]
    world.change_pod(uid, phase="Failed")
    world.settle()
    assert job.stage == Stage.FAILED


def test_an_evicted_leader_does_not_eat_the_budget() -> None:
    world, job = running_world(restart_limit=0)
    for _ in range(5):
        uid = job.bound[(0, 0)]
        world.pod("l", "n1", uid=uid, phase="Failed", reason="Evicted", owner=world.state.pods[uid].owner)
        world.settle()
    assert (job.stage, job.leader.restarts, job.attempt) == (Stage.RUNNING, 0, 5)


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
    job = world.job("bad", invalid="spec.leader")
    other = world.job("good")
    world.settle()
    assert job.stage == Stage.FAILED and job.decided is not None
    assert stage_text(job.decided) == "spec.leader: Required value"
    assert other.stage == Stage.RUNNING


def test_the_further_pods_that_fit_are_said_to_be_of_their_worker_set() -> None:
    """Of a job with several sets, those of one were said to be all."""
    world = World()
    world.node("n1", cpu=4)
    sets = [("actors", 4, shape(cpu=1)), ("critics", 3, shape(cpu=1))]
    job = world.job("ppo", workers=sets, minimums={"actors": 1})
    world.settle()
    assert len(job.placements) == 4 and job.waits is not None
    assert waits_text(job).startswith("2 of 3 further pods of actors fit; ") and job.pods_desired() == 8
    waiting = explained(world.entries, "ppo").waiting
    assert waiting is not None and waiting.why.startswith("0 of 1 further pods of actors fit; ")
    world.node("n0", cpu=2)
    world.settle()
    assert waits_text(job).startswith("1 of 3 further pods of critics fit; ")


def test_a_limit_of_jobs_counts_the_further_pods_of_all_sets() -> None:
    quota = QuotaLack("", "jobs", 1, 0, 1, "q", LimitKind.MAX_RUNNING)
    assert (counted_of("actors", quota), counted_of("actors", None)) == ("", "actors")


def test_a_partly_scheduled_job_runs_and_fills_up_later() -> None:
    world = World()
    world.node("n1", cpu=3)
    job = world.job("ppo", workers=4, min_workers=2)
    world.settle()
    assert (job.schedule_state, job.stage, len(job.placements)) == (ScheduleState.PARTLY, Stage.RUNNING, 3)
    assert job.waits is not None
    assert shortage_text(job.waits.shortage).startswith("0 of 2 further pods of actors fit; actors: ")
    world.node("n0", cpu=1)
    world.settle()
    assert len(job.placements) == 4
    assert waits_text(job).startswith("0 of 1 further pods of actors fit; actors: "), (
        "the reason is of before the fourth"
    )
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


# --- starting -----------------------------------------------------------------------------------------------------


def test_no_worker_is_created_before_the_leaders_address_is_in_the_log() -> None:
    world, job = starting_world()
    assert [slot for slot, _ in desired_pods(world.state, job).create] == [LEADER]
    uid = world.run_pod(job, LEADER, "n1", ip="")
    assert world.control() == [] and desired_pods(world.state, job).create == []
    based_on = job.version
    world.change_pod(uid, ip="10.0.0.7")
    assert (job.leader.address, job.stage, job.version) == ("10.0.0.7", Stage.STARTING, based_on)
    assert world.control() == []
    assert [slot for slot, _ in desired_pods(world.state, job).create] == [(1, 0), (1, 1), (1, 2)]


def test_a_leader_replaced_with_another_address_has_its_workers_started_again_in_the_next_attempt() -> None:
    world, job = running_world()
    first = set(world.state.pods)
    world.pod_gone(job.bound[LEADER])
    world.settle()
    assert (job.stage, job.attempt) == (Stage.RUNNING, 1)
    assert len(job.bound) == 4
    assert first.isdisjoint(world.state.pods)


def test_a_leader_whose_pod_gets_another_address_is_scheduled_again_with_its_workers() -> None:
    world, job = running_world()
    world.change_pod(job.bound[LEADER], ip="10.9.9.9")
    world.control()
    assert (job.stage, reason(job), job.attempt) == (Stage.RESCHEDULING, "LeaderMoved", 1)
    assert job.decided is not None and "from 10.0.0.0 to 10.9.9.9" in stage_text(job.decided)
    world.settle()
    assert (job.stage, job.attempt, job.leader.restarts) == (Stage.RUNNING, 1, 0)
    assert job.leader.address == "10.0.0.0"  # that of the new pod


def test_a_leader_behind_a_service_keeps_its_workers_whatever_its_address() -> None:
    world, job = running_world(leader_service=True)
    workers = dict(job.bound)
    world.change_pod(job.bound[LEADER], ip="10.9.9.9")
    world.settle()
    assert (job.stage, job.attempt, job.leader.address) == (Stage.RUNNING, 0, "10.9.9.9")
    assert job.bound == workers


def test_a_leader_whose_address_is_not_known_for_a_while_stays() -> None:
    world, job = running_world()
    world.change_pod(job.bound[LEADER], ip="")
    assert world.control() == [] and job.stage == Stage.RUNNING


def test_a_leader_that_is_going_away_gives_no_address() -> None:
    world, job = starting_world()
    uid = world.run_pod(job, LEADER, "n1", ip="")
    world.change_pod(uid, deleting=True, ip="10.0.0.7")
    assert world.control() == [] and job.leader.address == ""


def test_a_job_runs_once_enough_workers_are_ready_and_not_before() -> None:
    world, job = starting_world()
    world.run_pod(job, LEADER, "n1")
    world.control()
    uids = [world.run_pod(job, (1, index), "n1") for index in range(2)]
    world.change_pod(uids[1], ready=False)
    assert world.control() == [] and job.stage == Stage.STARTING
    world.change_pod(uids[1], ready=True)
    world.control()
    assert job.stage == Stage.RUNNING


@pytest.mark.parametrize("waiting", ["ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"])
def test_a_leader_image_that_cannot_be_pulled_fails_the_job_after_the_grace_and_not_before(waiting: str) -> None:
    world, job = starting_world()
    uid = world.run_pod(job, LEADER, "n1", phase="Pending", ip="")
    world.pass_time(world.lifecycle.image_grace_ms / 1000 + 1)
    world.change_pod(uid, waiting=waiting, ready=False, ip="")
    assert world.control() == []
    world.pass_time(world.lifecycle.image_grace_ms / 1000 - 1)
    assert world.control() == []
    world.pass_time(6)  # until its watch is made sure of again
    world.settle()
    assert (job.stage, reason(job)) == (Stage.FAILED, "ImageError")
    assert job.decided is not None and waiting in stage_text(job.decided)
    assert not world.state.nodes.used.any()


def test_an_image_that_can_be_pulled_in_between_has_its_grace_again() -> None:
    world, job = starting_world()
    world.lifecycle = msgspec.structs.replace(world.lifecycle, start_ms=world.lifecycle.ready_ms)
    uid = world.run_pod(job, LEADER, "n1", phase="Pending")
    for _ in range(3):  # of several containers one after the other, say
        world.change_pod(uid, waiting="ErrImagePull", ready=False, ip="")
        assert world.control() == []
        world.pass_time(world.lifecycle.image_grace_ms / 1000 - 1)
        assert world.control() == []
        world.change_pod(uid, waiting="")
        assert world.control() == []
        world.pass_time(1)


@pytest.mark.parametrize("waiting", ["CrashLoopBackOff", "ContainerCreating", ""])
def test_any_other_reason_to_wait_is_no_image_error(waiting: str) -> None:
    world, job = starting_world()
    world.change_pod(world.run_pod(job, LEADER, "n1", phase="Pending"), waiting=waiting, ip="")
    world.pass_time(2 * world.lifecycle.image_grace_ms / 1000)
    assert world.control() == [] and job.stage == Stage.STARTING


def test_a_hiccup_of_the_registry_does_not_fail_a_job_that_has_run() -> None:
    world, job = running_world()
    world.pass_time(10_000)
    world.change_pod(job.bound[LEADER], waiting="ErrImagePull", ready=False, restarts=1)
    world.settle()
    assert job.stage == Stage.RUNNING


def test_a_leader_whose_node_is_gone_before_its_pod_was_created_is_scheduled_elsewhere() -> None:
    world, job = starting_world()
    world.node_gone("n1")
    world.node("n2", cpu=8)
    world.settle()
    assert (job.stage, job.attempt, set(job.placements.values())) == (Stage.RUNNING, 1, {"n2"})


def test_a_leader_that_vanished_before_it_had_an_address_is_created_again() -> None:
    world, job = starting_world()
    world.pod_gone(world.run_pod(job, LEADER, "n1", phase="Pending", ip=""))
    assert [slot for slot, _ in desired_pods(world.state, job).create] == [LEADER]
    world.settle()
    assert (job.stage, job.attempt) == (Stage.RUNNING, 0)


# --- workers ------------------------------------------------------------------------------------------------------


def test_evicted_workers_never_fail_a_job() -> None:
    world, job = running_world(restart_limit=0)
    for _ in range(5):
        for index in (0, 1):
            world.change_pod(job.bound[(1, index)], phase="Failed", ready=False, reason="Evicted")
        world.settle()
    assert (job.stage, job.attempt, job.leader.restarts) == (Stage.RUNNING, 5, 0)


def test_a_worker_deleted_by_the_user_is_replaced_alone() -> None:
    world, job = running_world()
    uid = world.pods_of(job)[(1, 1)].uid
    world.change_pod(uid, deleting=True, phase="Failed", ready=False)
    assert world.control() == []
    world.pod_gone(uid)
    world.settle()
    assert (job.stage, job.attempt, len(job.bound)) == (Stage.RUNNING, 0, 4)


def test_workers_lost_with_their_node_mean_a_new_attempt_once_too_few_are_left() -> None:
    world = World()
    world.node("n1", cpu=2)
    world.node("n2", cpu=2)
    job = world.job("ppo", workers=3, min_workers=2)
    world.settle()
    on_n2 = [pod.uid for pod in world.pods_of(job).values() if pod.node == "n2"]
    assert len(on_n2) == 2 and job.placements[LEADER] == "n1"
    world.node_gone("n2")
    assert world.control() == []  # the pods are still there: the node may come back
    for uid in on_n2:
        world.pod_gone(uid)
    world.control()
    assert (job.stage, reason(job), job.attempt) == (Stage.RESCHEDULING, "WorkersLost", 1)
    world.node("n3", cpu=2)
    world.settle()
    assert (job.stage, job.leader.restarts, set(job.placements.values())) == (Stage.RUNNING, 0, {"n1", "n3"})


# --- the leader ---------------------------------------------------------------------------------------------------


def test_a_leader_deleted_by_the_user_does_not_eat_the_budget() -> None:
    world, job = running_world(restart_limit=0)
    uid = job.bound[LEADER]
    world.change_pod(uid, deleting=True, phase="Failed", ready=False)
    world.settle()
    assert job.stage == Stage.RESCHEDULING and world.cycle() == ()
    world.pod_gone(uid)
    world.settle()
    assert (job.stage, job.attempt, job.leader.restarts) == (Stage.RUNNING, 1, 0)


DISRUPTED = "DisruptionTarget: DeletionByPodGC"


def test_a_leader_that_is_failed_because_its_node_is_gone_does_not_eat_the_budget() -> None:
    """The caretaker of pods fails it before it deletes it, mostly before the node counts as lost for us."""
    world, job = running_world(restart_limit=0)
    world.node("n2", cpu=8)
    world.node_gone("n1")
    world.change_pod(job.bound[LEADER], phase="Failed", ready=False, reason=DISRUPTED)
    world.control()
    assert (job.stage, reason(job)) == (Stage.RESCHEDULING, "LeaderEvicted")
    world.settle()
    assert (job.stage, job.attempt, job.leader.restarts) == (Stage.RUNNING, 1, 0)


@pytest.mark.parametrize(
    "end", [{"deleting": True, "reason": STOPPED}, {"reason": "Terminated"}, {"reason": DISRUPTED, "deleting": True}]
)
def test_a_leader_that_ends_well_only_because_it_is_told_to_go_has_not_finished(end: dict[str, object]) -> None:
    """One that saves its state at a SIGTERM: its node is drained or shut down, or somebody deletes its pod."""
    world, job = running_world(restart_limit=0)
    uid = job.bound[LEADER]
    world.change_pod(uid, phase="Succeeded", ready=False, **end)
    world.control()
    assert (job.stage, reason(job)) == (Stage.RESCHEDULING, "LeaderEvicted")
    world.pod_gone(uid)
    world.settle()
    assert (job.stage, job.attempt, job.leader.restarts) == (Stage.RUNNING, 1, 0)


def test_a_leader_that_had_finished_when_it_was_deleted_has() -> None:
    world, job = running_world()
    world.change_pod(job.bound[LEADER], phase="Succeeded", ready=False, deleting=True)
    world.settle()
    assert (job.stage, reason(job)) == (Stage.SUCCEEDED, "LeaderSucceeded")


def test_container_restarts_and_new_pods_eat_one_budget() -> None:
    world, job = running_world(restart_limit=3)
    world.change_pod(job.bound[LEADER], restarts=2)
    assert world.control() == []
    world.change_pod(job.bound[LEADER], phase="Failed", ready=False)
    world.settle()
    world.wait_for_back_offs()
    world.settle()
    assert (job.stage, job.leader.restarts, job.attempt) == (Stage.RUNNING, 3, 1)
    world.change_pod(job.bound[LEADER], restarts=1)
    world.settle()
    assert (job.stage, reason(job)) == (Stage.FAILED, "RestartLimit")


@pytest.mark.parametrize("stage", [Stage.STARTING, Stage.RUNNING])
def test_a_finished_leader_ends_the_job_from_every_stage_it_can_be_in(stage: Stage) -> None:
    world, job = running_world() if stage == Stage.RUNNING else starting_world()
    uid = job.bound[LEADER] if stage == Stage.RUNNING else world.run_pod(job, LEADER, "n1")
    world.change_pod(uid, phase="Succeeded", ready=False)
    world.settle()
    assert (job.stage, reason(job)) == (Stage.SUCCEEDED, "LeaderSucceeded")


# --- ending -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", [Stage.PENDING, Stage.STARTING, Stage.RUNNING, Stage.RESCHEDULING])
def test_terminating_ends_the_job_as_succeeded_from_every_stage(stage: Stage) -> None:
    worlds = {Stage.PENDING: lambda: running_world(leader=shape(cpu=99)), Stage.STARTING: starting_world}
    world, job = worlds.get(stage, running_world)()
    if stage == Stage.RESCHEDULING:
        world.pod_gone(job.bound[LEADER])
        world.control()
    assert job.stage == stage
    world.job("ppo", workers=3, min_workers=2, terminating=True, leader=job.spec and job.spec.groups[0].shape)
    world.settle()
    assert (job.stage, reason(job)) == (Stage.SUCCEEDED, "Terminated")
    world.wait_for_late_pods()
    assert not world.state.pods and not world.state.nodes.used.any()


@pytest.mark.parametrize("ended", [Stage.SUCCEEDED, Stage.FAILED])
@pytest.mark.parametrize(
    ("clean", "kept"),
    [(CleanPodPolicy.ALL, set()), (CleanPodPolicy.RUNNING, {LEADER, (1, 0)}),
     (CleanPodPolicy.NONE, {LEADER, (1, 0), (1, 1), (1, 2)})],
)  # fmt: skip
def test_the_clean_pod_policy_says_which_pods_of_an_ended_job_are_deleted(
    clean: CleanPodPolicy, kept: set[tuple[int, int]], ended: Stage
) -> None:
    world, job = running_world(clean=clean, restart_limit=0)
    uids = {slot: pod.uid for slot, pod in world.pods_of(job).items()}
    world.change_pod(uids[(1, 0)], phase="Succeeded", ready=False)
    world.change_pod(uids[LEADER], phase="Succeeded" if ended == Stage.SUCCEEDED else "Failed", ready=False)
    world.settle()
    assert job.stage == ended
    assert {slot for slot, uid in uids.items() if uid in world.state.pods} == kept


def test_pods_of_an_earlier_attempt_are_deleted_whatever_the_policy_keeps() -> None:
    world, job = running_world(clean=CleanPodPolicy.NONE)
    world.pod_gone(job.bound[LEADER])
    world.control()
    world.job("ppo", workers=3, min_workers=2, clean=CleanPodPolicy.NONE, terminating=True)
    world.settle()
    assert job.stage == Stage.SUCCEEDED and not world.state.pods


def test_an_ended_job_is_never_reopened() -> None:
    world, job = running_world(clean=CleanPodPolicy.NONE)
    world.change_pod(job.bound[LEADER], phase="Succeeded", ready=False)
    world.settle()
    completion = job.times.completion_ms
    world.pass_time(60)
    for pod in list(world.state.pods.values()):
        world.change_pod(pod.uid, phase="Failed")
    world.node_gone("n1")
    world.job("ppo", workers=1, min_workers=1, clean=CleanPodPolicy.NONE, terminating=True, priority=9)
    world.settle()
    assert (job.stage, job.times.completion_ms, reason(job)) == (Stage.SUCCEEDED, completion, "LeaderSucceeded")


def test_a_job_whose_template_was_edited_before_anybody_was_told_that_it_starts_starts_again_with_that() -> None:
    """The API server takes an edit for as long as the status says Pending; the log may have been further by then."""
    world, job = starting_world()
    world.job("ppo", workers=3, min_workers=2, leader=shape(cpu=2), generation=2)
    [decision] = world.control()
    assert isinstance(decision, k.StageDecided)
    assert (decision.stage, decision.reason) == ("Rescheduling", "TemplateEdited")
    world.wait_for_late_pods()
    world.settle()
    assert (job.stage, job.attempt, job.leader.restarts, job.refused) == (Stage.RUNNING, 1, 0, ())
    assert world.state.pods[job.bound[LEADER]].requests == shape(cpu=2).requests
    validate(world.state)


def test_a_job_whose_template_was_edited_once_its_pods_were_there_fails_and_no_pod_is_made_from_that() -> None:
    world, job = running_world()
    world.pod_gone(job.bound[(1, 0)])
    assert [slot for slot, _ in desired_pods(world.state, job).create] == [(1, 0)]
    world.job("ppo", workers=3, min_workers=2, leader=shape(cpu=2), generation=2)
    assert desired_pods(world.state, job).create == []  # room was decided for another template
    world.settle()
    assert (job.stage, reason(job)) == (Stage.FAILED, "InvalidSpec")


def test_a_leader_that_finished_and_whose_pod_was_gone_before_anybody_decided_has_finished() -> None:
    world, job = running_world()
    world.change_pod(job.bound[LEADER], phase="Succeeded", ready=False)
    world.pod_gone(job.bound[LEADER])
    world.settle()
    assert (job.stage, reason(job)) == (Stage.SUCCEEDED, "LeaderSucceeded")
    world, job = running_world()
    world.change_pod(
        job.bound[LEADER], phase="Succeeded", ready=False, reason="Terminated"
    )  # told to go: not its work's end
    world.pod_gone(job.bound[LEADER])
    world.control()
    assert (job.stage, reason(job)) == (Stage.RESCHEDULING, "LeaderLost")


def test_a_job_being_deleted_is_left_to_the_garbage_collector() -> None:
    world, _ = running_world()
    world.job("ppo", workers=3, min_workers=2, deleting=True)
    assert world.cycle() == () and world.control() == [] and world.apply() == 0


def test_room_that_no_pod_of_a_job_being_deleted_will_fill_is_free_however_long_a_finalizer_keeps_it() -> None:
    world, job = starting_world()
    world.job("ppo", workers=3, min_workers=2, deleting=True)
    [decision] = world.control()
    assert isinstance(decision, k.StageDecided) and (decision.stage, decision.reason) == ("Failed", "Deleted")
    world.wait_for_late_pods()
    assert world.used("n1") == 0 and not job.placements
    assert world.cycle() == () and world.control() == [] and world.apply() == 0
    world, job = running_world()
    world.job("ppo", workers=3, min_workers=2, deleting=True)
    for uid in list(job.bound.values()):
        world.pod_gone(uid)  # nobody makes another in its place, so nobody waits for one
    assert world.used("n1") == 0 and not job.placements
    assert world.cycle() == () and world.control() == [] and world.apply() == 0


def test_pods_of_a_job_being_deleted_hold_their_room_while_they_are_there() -> None:
    world, job = running_world()
    world.job("ppo", workers=3, min_workers=2, deleting=True)
    world.pod_gone(job.bound[(1, 0)])
    assert world.used("n1") == 3000 and len(world.state.pods) == 3
    world.settle()
    assert world.used("n1") == 3000 and len(world.state.pods) == 3


def test_pods_whose_job_is_gone_are_deleted_once_the_jobs_are_listed() -> None:
    world, job = running_world()
    assert orphans(world.state, job.uid).delete == []
    uids = set(world.state.pods)
    world.job_gone(job)
    assert {pod.uid for pod in orphans(world.state, job.uid).delete} == uids
    world.change_pod(next(iter(uids)), deleting=True)
    assert len(orphans(world.state, job.uid).delete) == len(uids) - 1
    unlisted = World(listed=False)
    unlisted.node("n1")
    unlisted.pod("p", "n1", owner=PodOwner("uid-ppo", 0, "learner", True, 0))
    assert orphans(unlisted.state, "uid-ppo").delete == []
    unlisted.list_all()
    assert [pod.name for pod in orphans(unlisted.state, "uid-ppo").delete] == ["p"]


def test_nothing_is_created_or_deleted_before_everything_is_listed() -> None:
    world = World(listed=False)
    status = JobStatusSeen("Running", "ScheduledSucceed", 0, 0, "10.0.0.1", (PlacedPods("n1", 0, ((0, 0),)),))
    job = world.job("ppo", workers=1, status=status)
    world.node("n1")
    world.pod("stale", "n1", owner=PodOwner(job.uid, 7, "learner", True, 0))
    desired = desired_pods(world.state, job)
    assert (desired.create, desired.delete) == ([], [])


def test_pods_go_highest_index_first_and_the_leader_never_for_lowered_counts() -> None:
    world, job = running_world(workers=6, min_workers=1)
    world.job("ppo", workers=2, min_workers=1)
    assert [pod.owner.index for pod in desired_pods(world.state, job).delete if pod.owner] == [5, 4, 3, 2]


def test_pods_of_strangers_are_never_wanted_gone() -> None:
    world, job = running_world()
    world.pod("ppo-actors-9", "n1", cpu=1)
    world.job_gone(job)
    assert "uid-ppo-actors-9" not in {pod.uid for pod in orphans(world.state, job.uid).delete}
    assert orphans(world.state, "").delete == []


# --- the status ---------------------------------------------------------------------------------------------------


def conditions(world: World, job: JobRecord) -> dict[str, tuple[str, str]]:
    told = desired_status(world.state, job)["conditions"]
    assert all(re.fullmatch(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?", one["reason"]) for one in told)
    assert all(one["lastTransitionTime"].endswith("Z") for one in told)
    return {one["type"]: (one["status"], one["reason"]) for one in told}


def test_conditions_say_what_kubectl_can_wait_for() -> None:
    world, job = running_world()
    assert conditions(world, job) == {
        "Scheduled": ("True", "ScheduledSucceed"),
        "Running": ("True", "WorkersReady"),
        "Ready": ("True", "QuorumReady"),
        "Succeeded": ("False", "WorkersReady"),
        "Failed": ("False", "WorkersReady"),
        "Suspended": ("False", "WorkersReady"),
        "Finished": ("False", "WorkersReady"),
    }
    world.change_pod(job.bound[LEADER], phase="Succeeded")
    world.settle()
    assert conditions(world, job)["Succeeded"] == conditions(world, job)["Finished"] == ("True", "LeaderSucceeded")
    assert conditions(world, job)["Running"][0] == conditions(world, job)["Failed"][0] == "False"


def test_a_condition_keeps_the_time_at_which_it_last_turned() -> None:
    world = World()
    job = world.job("ppo", workers=1, min_workers=1, created=world.now_ms)

    def since() -> dict[str, int]:
        told = desired_status(world.state, job)["conditions"]
        assert all(one["observedGeneration"] == job.seen.generation for one in told)
        return {one["type"]: parse_time_ms(one["lastTransitionTime"]) - begin for one in told}

    begin = world.now_ms
    never = dict.fromkeys(("Scheduled", "Running", "Ready", "Succeeded", "Failed", "Suspended", "Finished"), 0)
    world.pass_time(10)
    world.cycle()
    assert since() == never, "it waits, as before"
    world.node("n1", cpu=9)
    world.cycle()
    assert since() == {**never, "Scheduled": 10_000}
    world.pass_time(10)
    world.settle()
    running = {**never, "Scheduled": 10_000, "Running": 20_000, "Ready": 20_000}
    assert since() == running
    world.pass_time(10)
    world.job("ppo", workers=10, min_workers=1, created=begin, generation=2)
    world.settle()
    assert (job.stage, job.schedule_state) == (Stage.RUNNING, ScheduleState.PARTLY)
    assert since() == running, "scheduled partly is scheduled still"
    world.change_pod(job.bound[LEADER], phase="Succeeded")
    world.settle()
    ended = dict.fromkeys(("Running", "Ready", "Succeeded", "Finished"), 30_000)
    assert since() == {**never, "Scheduled": 10_000, **ended}


def test_a_waiting_job_says_why_in_its_status() -> None:
    world = World()
    world.node("n1", cpu=2, taints=[Taint("infra", "", "NoSchedule")])
    job = world.job("ppo")
    assert desired_status(world.state, job)["message"] == "waits for the next scheduling cycle"
    world.cycle()
    status = desired_status(world.state, job)
    assert "1 taint infra:NoSchedule not tolerated" in status["message"]
    assert (status["stage"], status["scheduleState"], status["ready"]) == ("Pending", "Unscheduled", "0/0")
    assert conditions(world, job)["Scheduled"] == ("False", "Unscheduled")
    assert "startTime" not in status and "completionTime" not in status and "leaderAddress" not in status


def test_the_status_counts_workers_by_set() -> None:
    world = World()
    world.node("n1", cpu=9)
    job = world.job("ppo", workers=[("actors", 3, shape(cpu=1)), ("eval", 2, shape(cpu=1))], min_workers=1)
    world.settle()
    world.change_pod(job.bound[(1, 1)], phase="Failed", ready=False, restarts=2)
    world.change_pod(job.bound[(2, 0)], restarts=1, ready=False)
    status = desired_status(world.state, job)
    assert (status["totalWorkers"], status["readyWorkers"], status["ready"]) == (5, 3, "3/5")
    assert status["workers"] == [
        {
            "name": "actors",
            "total": 3,
            "ready": 2,
            "failed": 1,
            "restarts": 2,
            "restartsOfEarlierPods": 0,
            "restartsByIndex": "1:3",
        },
        {
            "name": "eval",
            "total": 2,
            "ready": 1,
            "failed": 0,
            "restarts": 1,
            "restartsOfEarlierPods": 0,
            "restartsByIndex": "0:1",
        },
    ]
    assert (status["leaderAddress"], status["attempt"], status["observedGeneration"]) == ("10.0.0.0", 0, 1)


def test_a_status_of_5000_workers_stays_small_and_can_be_adopted() -> None:
    world = World()
    for number in range(5000):
        world.node(f"a-node-with-a-rather-long-name-in-a-large-cluster-{number:04}", cpu=1)
    job = world.job("huge", leader=shape(), workers=5000, worker=shape(cpu=1), min_workers=5000)
    world.cycle()
    assert job.schedule_state == ScheduleState.SUCCEED
    status = desired_status(world.state, job)
    assert len(msgspec.json.encode(status)) < 750_000
    names = [group.name for group in job.spec.groups] if job.spec else []
    assert decode_allocations(status["allocations"], names) == compact(job.placements)


def test_a_status_of_5000_workers_stays_small_in_every_trouble() -> None:
    world = World()
    for number in range(626):
        world.node(f"gpu-node-{number:04}.cluster.example.com", cpu=8)
    job = world.job("huge", leader=shape(cpu=1), workers=5000, worker=shape(cpu=1), min_workers=0, restart_limit=1)
    world.settle()
    healthy = len(msgspec.json.encode(desired_status(world.state, job)))
    assert job.stage == Stage.RUNNING and healthy < 80_000, healthy
    for index in range(0, 5000, 2):
        restarts = int(index < 3000)
        world.change_pod(job.bound[(1, index)], phase="Failed", ready=False, message="x" * 300, restarts=restarts)
    world.pass_time(world.lifecycle.back_off_ms / 1000)
    world.control()
    status = desired_status(world.state, job)
    of_set = status["workers"][0]
    assert len(job.slots.given_up) == 1500 and len(job.retired) == 1000
    assert len(runs_of(of_set["givenUp"])) == 1500 and len(runs_of(of_set["replacing"])) == 1000
    troubled = len(msgspec.json.encode(status))
    assert troubled < 100_000, troubled


def test_a_message_stays_short_however_long_the_trouble() -> None:
    world = World()
    job = world.job("bad")
    world.say(k.EffectFailed(job.uid, 0, "create", None, 422, "Invalid", "x" * 100_000, permanent=True))
    world.control()
    status = desired_status(world.state, job)
    assert len(status["message"]) == MESSAGE_LIMIT and len(msgspec.json.encode(status)) < 10_000


def test_a_refused_pod_shows_in_the_message_until_it_is_there() -> None:
    world, job = starting_world()
    world.say(k.EffectFailed(job.uid, 0, "create", k.Slot(0, 0), 403, "Forbidden", "exceeded quota", False))
    assert desired_status(world.state, job)["message"] == "create refused: exceeded quota"
    assert world.control() == []
    world.run_pod(job, LEADER, "n1")
    assert "quota" not in desired_status(world.state, job)["message"]


def test_the_message_of_a_starting_job_says_what_is_awaited() -> None:
    world, job = starting_world(workers=2, min_workers=2)

    def message() -> str:
        told: str = desired_status(world.state, job)["message"]
        return told

    assert message() == "its quorum has nodes; the leader is started first"
    world.run_pod(job, LEADER, "n1", phase="Pending")
    world.change_pod(job.bound[LEADER], ip="")
    assert message() == "waits for the leader's pod ppo-learner-0 to run on n1"
    world.change_pod(job.bound[LEADER], waiting="ErrImagePull", message="no such image x")
    assert message().startswith("pod ppo-learner-0 can't start on n1: ErrImagePull: no such image x; if that lasts, ")
    world.change_pod(job.bound[LEADER], phase="Running", ip="10.0.0.0", waiting="", message="")
    world.control()
    assert message() == "the leader runs; waits until 2 workers are ready"
    for index in (0, 1):
        world.run_pod(job, (1, index), "n1", phase="Pending")
        world.change_pod(job.bound[(1, index)], waiting="CreateContainerConfigError", ready=False)
    assert message().startswith("pod ppo-actors-0 and 1 more can't start on n1: CreateContainerConfigError; if that ")
    world.node("n2", cpu=8)
    world.run_pod(job, (1, 1), "n2", phase="Pending")
    world.change_pod(job.bound[(1, 1)], waiting="CreateContainerConfigError", ready=False)
    assert message().startswith("pod ppo-actors-0 and 1 more can't start on 2 nodes: CreateContainerConfigError; ")


def test_a_running_job_tells_of_a_worker_that_cannot_start_and_of_those_that_have_no_node() -> None:
    world = World()
    world.node("n1", cpu=3)
    job = world.job("ppo", workers=3, min_workers=1)
    world.settle()
    world.change_pod(job.bound[(1, 1)], phase="Pending", ready=False, waiting="ImagePullBackOff")
    message = desired_status(world.state, job)["message"]
    assert job.stage == Stage.RUNNING and message.startswith("pod ppo-actors-1 can't start on n1: ImagePullBackOff; ")
    assert "cpu" in message


def test_pods_that_leave_are_named_with_the_nodes_of_all() -> None:
    world = World()
    for number in range(3):
        world.node(f"n{number}", gpus=1)
    job = world.job("a", workers=3, min_workers=3, worker=shape(gpus=1))
    world.settle()
    assert len(set(job.placements.values())) == 3
    for pod in list(world.state.pods):
        world.change_pod(pod, deleting=True)
    [first, *others] = sorted(world.state.pods.values(), key=lambda of: of.name)
    on = ", ".join(sorted(of.node for of in others))
    assert (
        deleted_pods_text(world.state, job) == f"pod {first.name} on {first.node} and 3 more on {on} is being deleted"
    )


def test_the_message_of_a_job_that_starts_again_says_that_old_pods_have_to_go_first() -> None:
    world, job = running_world()
    world.change_pod(job.bound[LEADER], phase="Failed", ready=False, reason="Evicted")
    world.control()
    message = desired_status(world.state, job)["message"]
    assert message == (
        "the leader's pod ended (Evicted); scheduled again; the pods of the earlier attempt have to go first: pod "
        f"ppo-actors-0 and {len(job.retired) + len(world.state.pods) - 1} more on n1"
    )
    world.apply()
    assert "earlier attempt" not in desired_status(world.state, job)["message"]


def test_a_pod_that_can_never_be_created_fails_the_job() -> None:
    world, job = starting_world()
    world.say(k.EffectFailed(job.uid, 0, "create", k.Slot(0, 0), 422, "Invalid", "no such field", True))
    world.settle()
    assert (job.stage, reason(job)) == (Stage.FAILED, "PodRefused")
    assert "no such field" in desired_status(world.state, job)["message"]


def test_the_status_counts_the_gpus_of_pods_with_nodes() -> None:
    world = World()
    world.node("n1", cpu=9, gpus=4)
    job = world.job("ppo", leader=shape(cpu=1), workers=[("actors", 3, shape(cpu=1, gpus=2))], min_workers=1)
    assert desired_status(world.state, job)["gpus"] == 0
    world.settle()
    assert desired_status(world.state, job)["gpus"] == 4


# --- whatever happened before -------------------------------------------------------------------------------------

BY_CHANCE = settings(max_examples=100, print_blob=True, suppress_health_check=[HealthCheck.too_slow])


@BY_CHANCE
@given(history=steps(least=20, most=80))
@example(history=list(LONG))
def test_once_faults_stop_every_job_has_ended_or_runs_or_says_why_it_waits(history: list[Step]) -> None:
    world = live_through(history)
    calm_down(world)
    for job in world.state.jobs.values():
        if job.ended or job.seen.deleting:
            continue
        leader = world.state.pods.get(job.bound.get(LEADER, ""))
        assert job.spec is not None
        if job.spec.suspend:
            assert job.stage == Stage.PENDING and not job.placements and not job.bound
        elif job.stage in (Stage.PENDING, Stage.RESCHEDULING):
            assert job.waits is not None and not job.placements
        else:
            assert (leader is not None) == (job.spec.has_leader and LEADER not in job.slots.finished)
            absent = job.placements.keys() - job.bound.keys()
            assert not any(job.may_start(group) for group, _ in absent)
            assert not absent or "starts once" in desired_status(world.state, job)["message"]
            phases = [world.state.pods[uid].phase for uid in job.bound.values()]
            assert "Failed" not in phases, "whoever failed was replaced or given up"
            assert not job.retired
            assert job.quorum_placed() or job.waits is not None  # an edit can make a started job's quorum grow


@BY_CHANCE
@given(history=steps(least=20, most=80))
def test_attempts_never_go_back_and_ended_is_final(history: list[Step]) -> None:
    world = World()
    before: dict[str, tuple[int, Stage]] = {}
    for step in history:
        live_through([step], world)
        now = {uid: (job.attempt, job.stage) for uid, job in world.state.jobs.items()}
        for uid, (attempt, stage) in now.items():
            was_attempt, was_stage = before.get(uid, (0, Stage.PENDING))
            assert attempt >= was_attempt
            assert was_stage not in ENDED or stage == was_stage
        before = now


def test_a_forbidden_edit_of_a_started_job_fails_it_with_the_field_and_changes_nothing_else() -> None:
    world = World()
    world.node("n1", cpu=8)
    job = world.job("ppo", workers=3, min_workers=2, leader=shape(cpu=1))
    world.settle()
    before = dict(job.placements)
    world.job("ppo", workers=3, min_workers=2, leader=shape(cpu=2), generation=2)
    assert job.placements == before and job.spec is not None and job.spec.groups[0].shape == shape(cpu=1)
    world.settle()
    assert job.stage == Stage.FAILED and job.decided is not None
    assert stage_text(job.decided).startswith("spec.leader, spec.workerSets: can't be changed once the job has started")


def test_another_version_that_reads_the_same_job_in_another_way_fails_nobody() -> None:
    world = World()
    world.node("n1", cpu=8)
    job = world.job("ppo", workers=3, min_workers=2, leader=shape(cpu=1))
    world.settle()
    world.job("ppo", workers=3, min_workers=2, leader=shape(cpu=1, memory=1), worker=shape(cpu=1), generation=1)
    world.settle()
    assert job.stage == Stage.RUNNING
