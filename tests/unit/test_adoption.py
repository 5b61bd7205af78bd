"""What a TYJob's status keeps for the epoch after a lost log, beyond stage and allocations."""

import pytest

from arranger.kube.cluster import Object
from arranger.kube.translate import job_status_seen
from arranger.lifecycle.desired import desired_pods, desired_status
from arranger.model.job import Stage
from arranger.projections.consistency import validate
from arranger.projections.jobs.records import JobRecord
from tests.world import World

SPEC = {"workers": 3, "min_workers": 1, "restart_limit": 3}


def running() -> tuple[World, JobRecord]:
    """A leader and three workers of 1 cpu on two nodes; Running."""
    world = World()
    world.node("n1", cpu=3)
    world.node("n2", cpu=3)
    record = world.job("ppo", **SPEC)  # type: ignore[arg-type]
    world.settle()
    assert record.stage == Stage.RUNNING
    return world, record


def after_the_loss(
    world: World, job: JobRecord, *, order: str = "pods first", status: Object | None = None
) -> tuple[World, JobRecord]:
    """A new epoch that lists what is there: nodes, pods, and the TYJob with the status that it has now, or this one."""
    status = status or desired_status(world.state, job)
    new = World(listed=False)
    new.now_ms = world.now_ms + 10_000
    new.node("n1", cpu=3)
    new.node("n2", cpu=3)

    def pods() -> None:
        for pod in world.state.pods.values():
            new.pod(
                pod.name, pod.node, owner=pod.owner, phase=pod.phase, ready=pod.ready, restarts=pod.restarts, ip=pod.ip,
                cpu=1, uid=pod.uid,
            )  # fmt: skip

    def jobs() -> None:
        new.job("ppo", **SPEC, status=job_status_seen(status, job.spec))  # type: ignore[arg-type]

    for listing in (pods, jobs) if order == "pods first" else (jobs, pods):
        listing()
    new.list_all()
    return new, new.state.jobs[job.uid]


def fail(world: World, job: JobRecord, index: int, **more: object) -> str:
    uid = job.bound[(1, index)]
    world.change_pod(uid, **{"phase": "Failed", "ready": False, **more})
    world.pass_time(world.lifecycle.back_off_ms / 1000)
    world.control()
    return uid


@pytest.mark.parametrize("order", ["pods first", "jobs first"])
def test_a_worker_whose_ended_pod_outlives_the_log_is_charged_once(order: str) -> None:
    world, job = running()
    uid = fail(world, job, 1, restarts=1)
    assert desired_status(world.state, job)["workers"][0]["replacing"] == "1"
    new, again = after_the_loss(world, job, order=order)
    assert again.spent == {"actors": 2} and [pod.uid for pod in desired_pods(new.state, again).delete] == [uid]
    new.pass_time(600)
    new.settle()
    assert again.spent == {"actors": 2} and (again.stage, len(again.bound)) == (Stage.RUNNING, 4)
    assert desired_status(new.state, again)["workers"][0]["restarts"] == 2
    validate(new.state)


def test_a_next_pod_that_is_there_already_is_not_taken_for_the_one_that_it_replaces() -> None:
    world, job = running()
    uid = fail(world, job, 1)
    told = desired_status(world.state, job)
    world.pod_gone(uid)
    world.settle()
    assert "replacing" in told["workers"][0] and "replacing" not in desired_status(world.state, job)["workers"][0]
    _, again = after_the_loss(world, job, status=told)
    assert again.bound == job.bound and not again.retired


@pytest.mark.parametrize("order", ["pods first", "jobs first"])
def test_once_pods_are_listed_no_later_pod_is_taken_for_a_replaced_one(order: str) -> None:
    world, job = running()
    uid = fail(world, job, 1)
    told = desired_status(world.state, job)
    new = World(listed=order == "pods first")
    new.node("n1", cpu=3)
    new.node("n2", cpu=3)
    pods = [pod for pod in world.state.pods.values() if pod.uid != uid]
    for pod in pods:
        new.pod(pod.name, pod.node, owner=pod.owner, ip=pod.ip, cpu=1, uid=pod.uid)
    again = new.job("ppo", **SPEC, status=job_status_seen(told, job.spec))  # type: ignore[arg-type]
    if order != "pods first":
        assert again.slots.leaving == ((1, 1),)
        new.list_all()
    assert again.slots.leaving == ()
    new.settle()
    new.change_pod(again.bound[(1, 1)], phase="Failed", ready=False)
    new.pass_time(600)
    new.settle()
    assert again.spent == {"actors": 2}


def test_a_lost_worker_that_still_seems_to_run_is_not_taken_back() -> None:
    world, job = running()
    [node] = {"n1", "n2"} - {job.placements[(0, 0)]}
    lost = {slot: uid for slot, uid in job.bound.items() if job.placements[slot] == node}
    world.node(node, cpu=3, ready=False)
    world.pass_time(60)
    world.control()
    assert lost
    new, again = after_the_loss(world, job)
    assert not lost.keys() & again.bound.keys() and again.retired.keys() == set(lost.values())
    assert {pod.uid for pod in desired_pods(new.state, again).delete} == set(lost.values())


def test_why_and_since_when_a_job_is_where_it_is_outlives_the_log() -> None:
    world, job = running()
    world.pass_time(100)
    world.change_pod(job.bound[(0, 0)], phase="Failed", ready=False)
    world.settle()
    world.wait_for_back_offs()
    world.settle()
    before = desired_status(world.state, job)
    new, again = after_the_loss(world, job)
    assert desired_status(new.state, again) == before
    world.change_pod(job.bound[(0, 0)], phase="Succeeded", ready=False)
    world.control()
    before = desired_status(world.state, job)
    new, again = after_the_loss(world, job)
    assert desired_status(new.state, again)["conditions"] == before["conditions"]
    assert before["conditions"][2]["reason"] == "LeaderSucceeded"


def test_a_suspended_job_that_is_resumed_while_the_log_is_away_is_scheduled_again() -> None:
    world, job = running()
    world.job("ppo", **SPEC, suspend=True)  # type: ignore[arg-type]
    world.settle()
    new, again = after_the_loss(world, job)
    assert again.suspended
    new.settle()
    assert (again.stage, again.leader.restarts) == (Stage.RUNNING, 0)


def test_what_a_status_of_another_hand_says_is_taken_as_far_as_it_makes_sense() -> None:
    _, job = running()
    for junk in (
        {"conditions": "none"},
        {"conditions": [1, {"type": 2}, {"type": "Running", "status": "True", "lastTransitionTime": 7, "reason": []}]},
        {"workers": [{"name": "actors", "replacing": "0-99"}, {"name": "actors", "replacing": 5}]},
    ):
        new = World()
        again = new.job("ppo", **SPEC, status=job_status_seen({"stage": "Running", **junk}, job.spec))  # type: ignore[arg-type]
        assert again.decided is not None and again.decided.reason == "Adopted"
        assert desired_status(new.state, again)["conditions"][1]["status"] == "True"
