"""Quorums that don't start give their nodes up in time, back off, and say which pod kept them from starting."""

import msgspec
import pytest

from arranger.events import kinds as k
from arranger.lifecycle.desired import desired_status
from arranger.messages.decisions import stage_text
from arranger.model.config import StartBounds
from arranger.model.job import Stage
from arranger.model.pod import PodTimes
from arranger.model.text import rfc3339_from
from arranger.projections.consistency import validate
from arranger.projections.jobs.parts import LEADER
from arranger.projections.jobs.records import JobRecord
from arranger.replay.explain.headline import headline
from tests.unit.replay_worlds import explained
from tests.world import World, shape, starting


def led(*, workers: int = 2, min_workers: int = 2, **more: object) -> tuple[World, JobRecord]:
    """A starting job whose leader runs, and whose workers have nodes."""
    world, job = starting(cpu=workers + 1, workers=workers, min_workers=min_workers)
    if more:
        world.job("ppo", workers=workers, min_workers=min_workers, generation=2, **more)  # type: ignore[arg-type]
    world.run_pod(job, LEADER, "n1")
    world.control()
    return world, job


def unable(world: World, job: JobRecord, index: int = 0, *, waiting: str = "ErrImagePull") -> str:
    """A worker that its kubelet can't start; its UID."""
    uid = world.run_pod(job, (1, index), "n1", phase="Pending", ip="", ready=False)
    world.change_pod(uid, waiting=waiting, ready=False, ip="", message="no such thing")
    return uid


def given_up(world: World) -> k.StageDecided:
    [decision] = world.control()
    assert isinstance(decision, k.StageDecided)
    assert (decision.stage, decision.reason) == (Stage.RESCHEDULING, "StartTimeout")
    return decision


@pytest.mark.parametrize("waiting", ["ErrImagePull", "CreateContainerConfigError", "InvalidImageName"])
def test_workers_that_cannot_start_beside_a_good_leader_give_their_nodes_up_after_the_grace(waiting: str) -> None:
    world, job = led()
    unable(world, job, 0, waiting=waiting)
    unable(world, job, 1, waiting=waiting)
    world.pass_time(world.lifecycle.start_ms / 1000 - 1)
    assert world.control() == []
    world.pass_time(1)
    decision = given_up(world)
    said = stage_text(decision)
    assert said == (
        f"worker actors-0 and 1 more couldn't start in 300 s on n1 ({waiting}: no such thing); it gives its nodes up"
    )
    assert (job.placements, job.attempt, job.leader.restarts, job.spent) == ({}, 1, 0, {})
    assert decision.back_off_ms == 10_000 and job.back_offs.held_back
    validate(world.state)
    assert desired_status(world.state, job)["message"].startswith(said)


def test_a_leader_that_lacks_its_configuration_gives_the_nodes_up_too() -> None:
    world, job = starting(cpu=3, workers=2, min_workers=2)
    uid = world.run_pod(job, LEADER, "n1", phase="Pending", ip="", ready=False)
    world.change_pod(uid, waiting="CreateContainerConfigError", ready=False, ip="")
    world.pass_time(world.lifecycle.start_ms / 1000)
    assert stage_text(given_up(world)).startswith(
        "the leader couldn't start in 300 s on n1 (CreateContainerConfigError)"
    )


@pytest.mark.parametrize("own_s", [None, 10])
def test_a_wrong_image_of_the_leader_fails_the_job_however_soon_it_would_give_its_nodes_up(own_s: int | None) -> None:
    """With a start grace below that for images, each attempt would have begun the latter anew, for ever."""
    world, job = starting(cpu=3, workers=2, min_workers=2)
    world.lifecycle = msgspec.structs.replace(world.lifecycle, start_ms=20_000)
    if own_s is not None:
        world.job("ppo", workers=2, min_workers=2, generation=2, start_grace_s=own_s)
    world.change_pod(world.run_pod(job, LEADER, "n1", phase="Pending", ip="", ready=False), waiting="ErrImagePull")
    for _ in range(15):
        world.control()
        world.pass_time(10)
    assert (job.stage, job.attempt) == (Stage.FAILED, 0)


AGAIN = "; to correct a template, delete the job and create it again"


def test_a_leader_without_its_image_says_when_the_job_fails_and_what_to_do() -> None:
    world = World()
    world.lifecycle = msgspec.structs.replace(world.lifecycle, image_grace_ms=60_000)
    world.config = msgspec.structs.replace(world.config, starts=StartBounds(60_000, 300_000, 0))
    world.node("n1", cpu=3)
    job = world.job("ppo", workers=2, min_workers=2)
    world.cycle()
    world.control()
    world.pass_time(7)
    world.change_pod(world.run_pod(job, LEADER, "n1", phase="Pending", ip="", ready=False), waiting="ErrImagePull")
    world.control()
    due_ms = world.now_ms + 60_000
    world.pass_time(30)
    world.change_pod(job.bound[LEADER], waiting="ImagePullBackOff")
    assert desired_status(world.state, job, world.lifecycle)["message"] == (
        f"pod ppo-learner-0 can't start on n1: ImagePullBackOff; if that lasts, the job fails after 60 s of it{AGAIN}"
    )
    answer = explained(world.entries, "ppo")
    told = answer.standing
    assert told.gives_up == f"if that lasts, the job fails soon after {rfc3339_from(due_ms)}"
    assert told.remedy.startswith(
        "mend the registry or the secret that pulls the image, and the pod starts by itself; "
    )
    assert "delete the job, correct it and create it again" in told.remedy
    assert headline(answer, str).endswith(f"on n1: ImagePullBackOff; {told.gives_up}")
    world.change_pod(job.bound[LEADER], waiting="")
    told = explained(world.entries, "ppo").standing
    assert (told.gives_up, told.remedy) == ("", "")


def test_a_log_of_an_earlier_version_has_no_bounds_of_starts_but_remedies() -> None:
    world, job = led()
    for index in (0, 1):
        unable(world, job, index)
    told = explained(world.entries, "ppo").standing
    assert told.gives_up == "" and told.remedy


@pytest.mark.parametrize("grace_s", [None, 90])
def test_workers_that_cannot_start_say_when_their_job_gives_its_nodes_up(grace_s: int | None) -> None:
    world, job = led(**({"start_grace_s": grace_s} if grace_s else {}))
    since_ms = job.times.stage_ms
    world.pass_time(50)
    unable(world, job, waiting="CreateContainerConfigError")
    world.control()
    bound_s = grace_s or world.lifecycle.start_ms // 1000
    message = desired_status(world.state, job, world.lifecycle)["message"]
    due = rfc3339_from(since_ms + bound_s * 1000)
    assert f"no such thing; if that lasts, it gives its nodes up soon after {due}{AGAIN}" in message
    assert "mend the ConfigMap, Secret or other object" in explained(world.entries, "ppo").standing.remedy
    world.pass_time(bound_s - 50)
    given_up(world)


def test_a_quorum_that_is_whole_without_the_pod_gives_nothing_up() -> None:
    world, job = led(workers=3, min_workers=2)
    unable(world, job)
    assert "if that lasts" not in desired_status(world.state, job)["message"]


def test_a_pod_that_the_quorum_does_not_need_keeps_no_job_from_its_nodes() -> None:
    world, job = led(workers=3, min_workers=2)
    unable(world, job, 0)
    for index in (1, 2):
        world.change_pod(world.run_pod(job, (1, index), "n1"), ready=False)
    world.pass_time(world.lifecycle.start_ms / 1000)
    assert world.control() == [] and job.stage == Stage.STARTING, "two are slow, and enough"


def test_what_is_slow_has_much_more_time_than_what_cannot_start() -> None:
    world, job = led()
    for index in range(2):
        world.change_pod(world.run_pod(job, (1, index), "n1"), ready=False)
    world.pass_time(world.lifecycle.ready_ms / 1000 - 1)
    assert world.control() == []
    world.pass_time(1)
    assert stage_text(given_up(world)) == (
        "worker actors-0 and 1 more weren't ready in 7200 s on n1; it gives its nodes up"
    )


def test_a_pod_that_its_kubelet_took_later_has_its_own_grace() -> None:
    world, job = led(workers=1, min_workers=1)
    world.pass_time(world.lifecycle.start_ms / 1000 - 10)
    uid = unable(world, job)
    world.change_pod(uid, waiting="ErrImagePull", ready=False, ip="", times=PodTimes(0, world.now_ms, 0))
    world.pass_time(20)
    assert world.control() == []
    world.pass_time(world.lifecycle.start_ms / 1000 - 20)
    given_up(world)


def test_the_job_itself_may_say_how_long_its_start_may_take() -> None:
    world, job = led(start_grace_s=40)
    for index in range(2):
        world.change_pod(world.run_pod(job, (1, index), "n1"), ready=False)
    world.pass_time(39)
    assert world.control() == []
    world.pass_time(1)
    assert given_up(world).facts.limit_s == 40
    world, job = led(start_grace_s=4000)
    unable(world, job)
    world.pass_time(world.lifecycle.start_ms / 1000)
    assert world.control() == [], "the job's own bound holds, also where it is longer"


def test_a_running_job_keeps_its_nodes_whatever_a_replaced_worker_lacks() -> None:
    world, job = led(workers=1, min_workers=1)
    uid = world.run_pod(job, (1, 0), "n1")
    world.control()
    assert job.stage == Stage.RUNNING
    world.change_pod(uid, waiting="ErrImagePull", ready=False)
    world.pass_time(10_000)
    assert world.control() == [] and job.stage == Stage.RUNNING


def test_a_crashing_worker_is_left_to_the_limit_of_its_restarts() -> None:
    world, job = led()
    unable(world, job, waiting="CrashLoopBackOff")
    world.pass_time(world.lifecycle.start_ms / 1000)
    assert world.control() == []


@pytest.mark.parametrize("grace_s", [None, 900, 10_000])
def test_its_back_off_grows_however_long_it_holds_its_nodes_each_time(grace_s: int | None) -> None:
    world = World()
    world.node("n1", gpus=8)
    job = world.job("j", workers=1, worker=shape(gpus=8), min_workers=1, equals=True, start_grace_s=grace_s)
    waited = []
    for _ in range(7):
        world.cycle()
        world.control()
        assert job.stage == Stage.STARTING
        uid = world.run_pod(job, (1, 0), "n1", phase="Pending", ip="", ready=False)
        world.change_pod(uid, waiting="CreateContainerError", ready=False, ip="")
        world.pass_time(grace_s or world.lifecycle.start_ms / 1000)
        waited.append(given_up(world).back_off_ms // 1000)
        world.pod_gone(uid)
        world.wait_for_back_offs()
        world.wait_for_late_pods()
    assert waited == [10, 20, 40, 80, 160, 300, 300]


def test_a_set_that_waits_for_one_that_cannot_start_counts_for_no_quorum() -> None:
    world = World()
    world.node("n1", cpu=4)
    sets = [("rollout", 1, shape(cpu=1)), ("envs", 2, shape(cpu=1))]
    job = world.job("j", workers=sets, min_workers=2, equals=True, start_after={"envs": 1})
    world.cycle()
    world.control()
    assert len(job.placements) == 3
    uid = world.run_pod(job, (1, 0), "n1", phase="Pending", ip="", ready=False)
    world.change_pod(uid, waiting="CreateContainerConfigError", ready=False, ip="")
    world.pass_time(world.lifecycle.start_ms / 1000)
    assert stage_text(given_up(world)).startswith("worker rollout-0 couldn't start")
