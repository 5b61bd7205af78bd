"""Failed pods that stay for their logs although other pods took their slots: which, how long, and with which names."""

import pytest

from arranger.events import kinds as k
from arranger.kube.translate import job_status_seen
from arranger.lifecycle.desired import desired_pods, desired_status
from arranger.model.job import CleanPodPolicy, RestartPolicy, RestartScope, Stage
from arranger.model.pod import ContainerEnd
from arranger.model.stages import StageReason
from arranger.projections import snapshot
from arranger.projections.consistency import validate
from arranger.projections.jobs.parts import LEADER
from arranger.projections.jobs.records import JobRecord
from tests.world import World

KILLED = ContainerEnd("main", 137, reason="OOMKilled")


def running(*, keep: int = 2, **job: object) -> tuple[World, JobRecord]:
    world = World()
    world.node("n1", cpu=10)
    spec = {"workers": 3, "min_workers": 1, "restart_limit": 9, "clean": CleanPodPolicy.RUNNING, **job}
    record = world.job("ppo", keep_failed=keep, **spec)  # type: ignore[arg-type]
    world.settle()
    return world, record


def fail(world: World, job: JobRecord, slot: tuple[int, int]) -> str:
    """The pod of a slot fails by its own fault, and another takes its place after the back-off; returns its UID."""
    uid = job.bound[slot]
    world.change_pod(uid, phase="Failed", ready=False, ended=KILLED)
    world.pass_time(world.lifecycle.longest_back_off_ms / 1000)
    world.settle()
    world.wait_for_back_offs()
    world.settle()
    return uid


def new_epoch(world: World, job: JobRecord, *, keep: int = 2, **spec: object) -> tuple[World, JobRecord]:
    """The job in another epoch, which begins with its status and its pods."""
    seen = job_status_seen(desired_status(world.state, job), job.spec)
    later = World(listed=False)
    later.now_ms = world.now_ms
    later.node("n1", cpu=10)
    for pod in sorted(world.state.pods.values(), key=lambda pod: pod.uid):
        fields = [getattr(pod, name) for name in pod.__struct_fields__]
        later.say(k.PodSeen(later.terms[k.Watched.POD], *fields[1:]))
    spec = {"workers": 3, "min_workers": 1, "restart_limit": 9, "clean": CleanPodPolicy.RUNNING, **spec}
    again = later.job("ppo", keep_failed=keep, status=seen, **spec)  # type: ignore[arg-type]
    later.list_all()
    later.settle()
    assert later.state.pods.keys() == world.state.pods.keys()
    validate(later.state)
    return later, again


def names(world: World) -> dict[str, str]:
    return {pod.name: pod.phase for pod in world.state.pods.values()}


def test_a_replaced_worker_stays_for_its_log_and_the_next_one_has_another_name() -> None:
    world, job = running()
    uid = fail(world, job, (1, 1))
    assert names(world)["ppo-actors-1"] == "Failed" and names(world)["ppo-actors-1-f1"] == "Running"
    assert (job.stage, job.attempt, job.kept, job.retired) == (Stage.RUNNING, 0, {uid}, {})
    assert world.used("n1") == 4000, "its room is the next one's"
    assert desired_status(world.state, job)["ready"] == "3/3"
    validate(world.state)


def test_the_next_pod_does_not_wait_for_the_failed_one_to_go() -> None:
    world, job = running()
    world.change_pod(job.bound[1, 1], phase="Failed", ready=False)
    world.pass_time(60)
    world.control()
    desired = desired_pods(world.state, job)
    assert (desired.create, desired.delete) == ([((1, 1), "n1")], [])


@pytest.mark.parametrize("keep", [0, 1, 2])
def test_only_the_newest_failed_pods_of_each_group_are_kept(keep: int) -> None:
    world, job = running(keep=keep)
    uids = [fail(world, job, slot) for slot in ((1, 0), (1, 1), (1, 0), (1, 2))]
    assert job.sets["actors"].kept == (tuple(uids[-keep:]) if keep else ())
    assert {pod.uid for pod in world.state.pods.values() if pod.phase == "Failed"} == job.kept
    assert len(job.bound) == 4 and job.stage == Stage.RUNNING
    validate(world.state)


@pytest.mark.parametrize("scope", [RestartScope.WORKER, RestartScope.SET, RestartScope.JOB])
def test_of_many_that_fail_at_once_the_one_that_the_message_names_stays(scope: RestartScope) -> None:
    spec = {"workers": 8, "min_workers": 8, "restart": {"actors": RestartPolicy(scope, 9)}}
    world, job = running(keep=3, **spec)
    workers = [job.bound[1, index] for index in range(8)]
    for uid in workers:
        world.change_pod(uid, phase="Failed", ready=False, ended=KILLED)
    world.pass_time(60)
    world.settle()
    world.wait_for_back_offs()
    world.settle()
    causes = job.replaced.causes
    ended = [step for step, _ in job.steps if step.reason == StageReason.WORKER_ENDED]
    assert [of.facts.cause.first.index for of in ended] + [of.first.index for of in causes] == [0]
    assert job.kept == set(workers[:3])
    told = [failure["pod"] for failure in desired_status(world.state, job)["lastFailures"]]
    assert told == [f"ppo-actors-{index}" for index in range(5)]
    assert new_epoch(world, job, keep=3, **spec)[1].kept == job.kept
    validate(world.state)


def test_a_failed_leader_stays_and_holds_the_next_attempt_up_no_longer() -> None:
    world, job = running()
    uid = fail(world, job, LEADER)
    assert (job.stage, job.attempt, job.leader.kept) == (Stage.RUNNING, 1, (uid,))
    assert names(world)["ppo-learner-0"] == "Failed" and names(world)["ppo-learner-0-r1"] == "Running"
    for _ in range(3):
        fail(world, job, LEADER)
    assert len(job.leader.kept) == 2 and job.attempt == 4 and len(world.state.pods) == 6


def test_workers_that_failed_before_their_leader_are_kept_too() -> None:
    world, job = running()
    failed = job.bound[1, 2]
    world.change_pod(failed, phase="Failed", ready=False)
    fail(world, job, LEADER)
    assert job.sets["actors"].kept == (failed,) and not job.slots.failed_before


def test_evicted_and_deleted_pods_are_not_kept() -> None:
    world, job = running()
    world.change_pod(job.bound[1, 0], phase="Failed", ready=False, reason="Evicted")
    world.change_pod(job.bound[1, 1], phase="Failed", ready=False, deleting=True)
    world.settle()
    assert (job.kept, job.slots.failed_before) == (set(), {})


def test_of_a_set_that_restarts_as_a_whole_the_failed_pod_stays() -> None:
    world, job = running(restart={"actors": RestartPolicy(RestartScope.SET, 9)})
    uid = fail(world, job, (1, 1))
    assert job.kept == {uid} and len(job.bound) == 4
    live = {pod.name for pod in world.state.pods.values() if pod.phase == "Running"}
    assert live == {"ppo-learner-0", "ppo-actors-0", "ppo-actors-1-f1", "ppo-actors-2"}


@pytest.mark.parametrize("policy", CleanPodPolicy)
def test_they_stay_after_the_end_of_the_job_whatever_its_policy(policy: CleanPodPolicy) -> None:
    world, job = running(clean=policy)
    kept = {fail(world, job, (1, 1)), fail(world, job, LEADER)}
    world.change_pod(job.bound[LEADER], phase="Succeeded", ready=False)
    world.settle()
    assert job.stage == Stage.SUCCEEDED
    assert kept <= world.state.pods.keys()
    if policy == CleanPodPolicy.ALL:
        assert world.state.pods.keys() == kept
    elif policy == CleanPodPolicy.RUNNING:
        assert world.state.pods.keys() == kept | {
            uid for uid, pod in world.state.pods.items() if pod.owner.attempt == 1
        }  # type: ignore[union-attr]


@pytest.mark.parametrize("keep", [0, 1, 3])
def test_the_failed_pods_of_the_end_stay_where_all_others_are_deleted(keep: int) -> None:
    world, job = running(keep=keep, clean=CleanPodPolicy.ALL, restart_limit=0, min_workers=2)
    pods = dict(job.bound)
    for slot in ((1, 0), (1, 1)):
        world.change_pod(pods[slot], phase="Failed", ready=False)
    world.pass_time(600)
    world.settle()
    validate(world.state)
    assert (job.stage, job.decided and job.decided.reason) == (Stage.FAILED, "WorkersFailed")
    left = [pods[slot] for slot in ((1, 0), (1, 1))][:keep]
    assert sorted(world.state.pods) == sorted(left)


def test_a_lowered_number_and_a_deletion_by_hand_are_noted() -> None:
    world, job = running()
    first, second = fail(world, job, (1, 0)), fail(world, job, (1, 1))
    world.pod_gone(first)
    assert job.kept == {second}
    spec = {"workers": 3, "min_workers": 1, "restart_limit": 9, "clean": CleanPodPolicy.RUNNING}
    world.job("ppo", keep_failed=0, generation=2, **spec)  # type: ignore[arg-type]
    assert job.kept == set() and [pod.uid for pod in desired_pods(world.state, job).delete] == [second]
    world.settle()
    assert len(world.state.pods) == 4
    validate(world.state)


def test_a_slot_that_comes_back_after_an_edit_takes_no_name_of_a_kept_pod() -> None:
    world, job = running()
    fail(world, job, (1, 2))
    spec = {"min_workers": 1, "restart_limit": 9, "clean": CleanPodPolicy.RUNNING, "keep_failed": 2}
    world.job("ppo", workers=1, generation=2, **spec)  # type: ignore[arg-type]
    world.settle()
    world.job("ppo", workers=3, generation=3, **spec)  # type: ignore[arg-type]
    world.settle()
    assert names(world)["ppo-actors-2"] == "Failed" and names(world)["ppo-actors-2-f1"] == "Running"


def test_kept_pods_are_in_a_snapshot() -> None:
    world, job = running()
    fail(world, job, (1, 1))
    fail(world, job, LEADER)
    fail(world, job, (1, 1))
    again = snapshot.restore(snapshot.encode(world.state)).jobs[job.uid]
    assert again == job and again.kept == job.kept and again.slots.failed_before == {(1, 1): 1}


def test_the_last_failures_name_the_pods_that_stay() -> None:
    world, job = running()
    fail(world, job, (1, 1))
    fail(world, job, (1, 1))
    told = [one["pod"] for one in desired_status(world.state, job)["lastFailures"]]
    assert told == ["ppo-actors-1-f1", "ppo-actors-1"]
    assert set(told) < set(names(world))


def test_a_new_epoch_finds_the_kept_pods_and_the_names() -> None:
    world, job = running()
    kept = {fail(world, job, LEADER), fail(world, job, (1, 1))}
    before = desired_status(world.state, job)
    later, again = new_epoch(world, job)
    assert (again.kept, again.slots.failed_before) == (kept, {(1, 1): 1})
    assert again.bound == job.bound
    assert before["lastFailures"] == desired_status(later.state, again)["lastFailures"]
