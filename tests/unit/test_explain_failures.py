"""Pods that fail and are tried again: `explain` says which, how often, with which exit code, and until when."""

import pytest

from arranger.cli.rendering import output
from arranger.cli.rendering.explain_page import ExplanationPrinter
from arranger.lifecycle.desired import desired_status
from arranger.model.job import RestartPolicy, RestartScope, Stage
from arranger.model.pod import ContainerEnd
from arranger.model.text import rfc3339
from arranger.projections.jobs.records import JobRecord
from arranger.replay.explain.answer import Explanation
from arranger.replay.reading.describe import message_of
from tests.unit.replay_worlds import explained
from tests.unit.test_lifecycle_workers import LEADER, fail, later, running
from tests.world import World, shape

KILLED = ContainerEnd("main", 137, 0, "OOMKilled")
ERROR = ContainerEnd("main", 1, 0, "Error")
KILLED_TEXT = "OOMKilled, exit code 137 (SIGKILL) of container main"


def crash_loop(world: World, job: JobRecord, times: int) -> None:
    """The leader's kubelet restarts its container after each end, with a back-off."""
    for number in range(1, times + 1):
        more = {"waiting": "CrashLoopBackOff", "message": "back-off 10s restarting failed container"}
        world.change_pod(job.bound[LEADER], restarts=number, ended=KILLED, ready=False, **more)
        world.pass_time(10)


def page(answer: Explanation) -> str:
    with output.captured() as lines:
        ExplanationPrinter(answer, again="arranger explain ppo --at", everything=False).print()
    return "\n".join(lines)


def test_a_crash_looping_learner_is_told_with_its_exit_code_and_how_often() -> None:
    world, job = running(restart_limit=50)
    crash_loop(world, job, 7)
    said = (
        "pod ppo-learner-0 can't start on n1: CrashLoopBackOff: back-off 10s restarting failed container; "
        f"it was restarted 7 times, the last time after {KILLED_TEXT}"
    )
    assert said in message_of(world.state, job) and said in desired_status(world.state, job)["message"]
    answer = explained(world.entries, "ppo")
    assert answer.standing.stuck == said
    [failed] = answer.standing.failed
    assert (failed.pod, failed.node, failed.times, failed.ended) == ("ppo-learner-0", "n1", 7, KILLED)
    assert failed.again == "started again by its kubelet: CrashLoopBackOff: back-off 10s restarting failed container"
    assert failed.last_ms == world.now_ms - 10_000 and failed.text == f"failed 7 times, last with {KILLED_TEXT}"
    restarted = [one.message for one in answer.consequences]
    assert restarted == [f"a container of ppo-learner-0 was restarted by its kubelet ({KILLED_TEXT})"] * 7
    told = page(answer).split("Pods of it that failed, the last first")[1]
    assert all(words in told for words in (failed.pod, failed.text, failed.again))


def test_a_learner_that_runs_between_two_crashes_is_told_with_its_exit_code() -> None:
    world, job = running(restart_limit=50)
    crash_loop(world, job, 2)
    world.change_pod(job.bound[LEADER], waiting="", message="")
    said = f"pod ppo-learner-0 on n1 was restarted 2 times, the last time after {KILLED_TEXT}"
    assert said in message_of(world.state, job) and said in desired_status(world.state, job)["message"]
    assert [one.again for one in explained(world.entries, "ppo").standing.failed] == ["it runs and isn't ready"]
    world.change_pod(job.bound[LEADER], ready=True)
    assert "restarted" not in message_of(world.state, job)
    assert [one.again for one in explained(world.entries, "ppo").standing.failed] == ["it is ready again"]


def test_failed_workers_in_back_off_are_told_with_exit_code_and_time() -> None:
    world, job = running(restart_limit=50)
    fail(world, job, 1, ended=ERROR)
    later(world)
    fail(world, job, 1, ended=ERROR)
    world.pass_time(1)
    fail(world, job, 2, ended=KILLED)
    failing = f"failed workers of actors come again from {rfc3339(job.sets['actors'].replaced_ms + 20_000)}"
    said = f"{failing}: actors-1 (exit code 1 of container main) and 1 more"
    assert said in message_of(world.state, job) and said in desired_status(world.state, job)["message"]
    answer = explained(world.entries, "ppo")
    assert said in answer.standing.message and said == answer.standing.stuck
    again_ms = job.sets["actors"].replaced_ms + 20_000
    assert [(one.pod, one.times, one.ended, one.again_ms) for one in answer.standing.failed] == [
        ("ppo-actors-2", 1, KILLED, again_ms),
        ("ppo-actors-1", 2, ERROR, again_ms),
    ]
    assert {one.again for one in answer.standing.failed} == {f"replaced from {rfc3339(again_ms)} on"}


GONE = "restartLimit is 0"


@pytest.mark.parametrize("phase", ["Failed", "Running"])
def test_workers_that_are_about_to_be_given_up_are_not_said_to_come_again(phase: str) -> None:
    """The decision waits a moment to see whether the leader failed too."""
    world, job = running(restart_limit=0, min_workers=1)
    for index in (1, 2):
        world.change_pod(job.bound[(1, index)], phase=phase, ready=False, restarts=int(phase == "Running"), ended=ERROR)
    due = rfc3339(world.now_ms + world.lifecycle.settle_ms)
    said = (
        f"failed workers of actors are to be given up from {due} ({GONE}), unless the leader failed too: "
        "actors-1 (exit code 1 of container main) and 1 more"
    )
    assert said in message_of(world.state, job) and said in desired_status(world.state, job)["message"]
    answer = explained(world.entries, "ppo")
    assert [one.again for one in answer.standing.failed] == [f"to be given up from {due} on, because {GONE}"] * 2
    later(world)
    assert len(job.slots.given_up) == 2 and "to be given up" not in message_of(world.state, job)


def test_workers_within_their_limit_come_again_beside_those_beyond_it() -> None:
    world, job = running(restart_limit=1, min_workers=1)
    fail(world, job, 1, ended=ERROR)
    later(world)
    fail(world, job, 1, ended=ERROR)
    fail(world, job, 2, ended=ERROR)
    told = desired_status(world.state, job)["message"]
    assert "are to be given up" in told and "(restartLimit is 1), unless the leader failed too: actors-1" in told
    assert "failed workers of actors come again from" in told and "actors-2 (exit code 1" in told
    again = {one.pod: one.again.partition(" from")[0] for one in explained(world.entries, "ppo").standing.failed}
    assert again == {"ppo-actors-1": "to be given up", "ppo-actors-2": "replaced"}


@pytest.mark.parametrize("limit", [0, 1])
def test_a_failed_worker_that_restarts_or_ends_the_whole_job_does_not_come_again_alone(limit: int) -> None:
    policy = RestartPolicy(RestartScope.JOB, limit, own_limit=True)
    world, job = running(restart={"actors": policy})
    fail(world, job, 1, ended=ERROR)
    told, [failed] = message_of(world.state, job), explained(world.entries, "ppo").standing.failed
    if limit:
        assert "failed workers of actors restart the whole job from" in told
        assert failed.again.startswith("the job is scheduled again from")
    else:
        assert "failed workers of actors end the job from" in told
        assert "(workerSets[actors].restart.limit is 0), unless the leader failed too: actors-1" in told
        assert failed.again.startswith("the job is to fail from")
    later(world)
    assert str(job.stage) != "Running" or job.attempt == 1


def test_a_job_that_goes_on_without_workers_that_are_given_up_says_so() -> None:
    world, job = running(restart_limit=0, min_workers=1)
    fail(world, job, 1, ended=ERROR)
    later(world)
    told = "the leader runs and enough workers are ready; 1 of 3 workers of actors is given up"
    assert message_of(world.state, job) == desired_status(world.state, job)["message"] == told
    fail(world, job, 2, ended=ERROR)
    later(world)
    assert message_of(world.state, job).endswith("; 2 of 3 workers of actors are given up")


def test_a_job_in_back_off_is_told_with_the_pod_that_failed() -> None:
    world, job = running(restart_limit=50)
    world.change_pod(job.bound[LEADER], phase="Failed", ready=False, ended=KILLED)
    world.settle()
    assert str(job.stage) == "Rescheduling"
    [failed] = explained(world.entries, "ppo").standing.failed
    assert (failed.pod, failed.times, failed.again_ms) == ("ppo-learner-0", 1, job.not_before_ms)
    assert failed.again == f"the job is scheduled again from {rfc3339(job.not_before_ms)} on"
    assert failed.text == f"failed with {KILLED_TEXT}"
    later(world, 60)
    assert str(job.stage) == "Running"
    [failed] = explained(world.entries, "ppo").standing.failed
    assert (failed.pod, failed.again, failed.again_ms) == ("ppo-learner-0", "", 0)


def test_a_worker_that_is_given_up_and_an_ended_job() -> None:
    world, job = running(restart_limit=0, min_workers=1)
    fail(world, job, 1, ended=ERROR)
    later(world)
    answer = explained(world.entries, "ppo")
    assert [one.again for one in answer.standing.failed] == ["given up"]
    assert [(one.what, one.message.partition(" (")[0]) for one in answer.consequences] == [
        ("GivenUp", "workers given up: actors 1")
    ]
    world.change_pod(job.bound[LEADER], phase="Succeeded", ready=False)
    world.settle()
    assert job.stage == Stage.SUCCEEDED and explained(world.entries, "ppo").standing.failed == ()


def test_causes_of_workers_that_are_given_up_are_not_repeated_before_the_failure_of_their_job() -> None:
    world, job = running(restart_limit=0, workers=2, min_workers=2)
    fail(world, job, 0, ended=ERROR)
    fail(world, job, 1, ended=ERROR)
    later(world)
    assert job.stage == Stage.FAILED
    answer = explained(world.entries, "ppo")
    assert [one.what for one in answer.consequences] == ["GivenUp", "Failed"]
    assert answer.consequences[0].causes == answer.consequences[1].causes != ()
    told = [line for line in page(answer).partition("What happened to it")[2].splitlines() if " because " in line]
    assert len(told) == len(answer.consequences[0].causes), told


def test_how_often_a_pod_failed_is_told_of_all_that_was_seen_and_not_only_of_the_jobs_last_failures() -> None:
    """A job keeps its last five failures: the counts of a pod that is gone went down as others failed."""
    world, job = running(restart_limit=3, min_workers=1)
    for times in range(1, 5):
        for slot in ((1, 0), (1, 1)):
            if slot in job.bound:
                world.change_pod(job.bound[slot], restarts=times, ended=KILLED, ready=False)
                world.pass_time(1)
        later(world, 0)
        told = {
            one.pod: (one.times, one.again == "given up") for one in explained(world.entries, "ppo").standing.failed
        }
        assert told == {f"ppo-actors-{index}": (times, times > 3) for index in (0, 1)}


def test_nodes_that_got_more_pods_in_later_steps_are_counted_once_and_not_if_they_are_shown() -> None:
    world, one = World(), shape(gpus=1)
    world.node("n1", gpus=5)
    for workers in (1, 2, 3, 4):
        world.job("ppo", leader=one, workers=workers, worker=one, generation=workers)
        world.settle()
    answer = explained(world.entries, "ppo")
    assert len(answer.placement_explanations) > 3
    assert "Other pods of it got these nodes too: --pod NAME, or --all" in page(answer)
    world.node("n2", gpus=8)
    for workers in (5, 6, 7):
        world.job("ppo", leader=one, workers=workers, worker=one, generation=workers)
        world.settle()
    assert "1 more node got pods of it: --pod NAME, or --all" in page(explained(world.entries, "ppo"))
