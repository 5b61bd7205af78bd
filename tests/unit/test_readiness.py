"""Whether a job's quorum is ready: the condition, its time, and the one sentence that every place shows."""

import msgspec
import pytest

from arranger.events import kinds as k
from arranger.kube.times import parse_time_ms
from arranger.kube.translate import job_status_seen
from arranger.lifecycle.desired import desired_status
from arranger.messages.readiness import below_quorum_text
from arranger.model.job import JobStatusSeen, Stage
from arranger.projections import snapshot
from arranger.projections.consistency import validate
from arranger.projections.jobs.parts import LEADER
from arranger.projections.jobs.records import JobRecord
from arranger.replay.explain.headline import headline
from arranger.replay.reading.overview import overview
from tests.unit.replay_worlds import explained
from tests.world import Edited, World, shape


def running(**job: object) -> tuple[World, JobRecord]:
    """A running job with four trainers, of which all are needed, and six actors, of which none is."""
    world = World()
    world.node("n1")
    sets = [("trainers", 4, shape(cpu=1)), ("actors", 6, shape(cpu=1))]
    record = world.job("ppo", **{"workers": sets, "minimums": {"trainers": 4}, **job})  # type: ignore[arg-type]
    world.settle()
    assert record.stage == Stage.RUNNING
    return world, record


def told(world: World, job: JobRecord, name: str = "Ready") -> dict[str, str]:
    return next(one for one in desired_status(world.state, job)["conditions"] if one["type"] == name)


def adopted(world: World, job: JobRecord) -> JobStatusSeen:
    seen = job_status_seen(desired_status(world.state, job), job.spec)
    assert seen is not None
    return seen


def test_a_job_is_ready_as_long_as_its_quorum_is() -> None:
    world, job = running()
    assert (told(world, job)["status"], told(world, job)["reason"]) == ("True", "QuorumReady")
    world.change_pod(job.bound[2, 0], ready=False)
    assert told(world, job)["status"] == "True", "an actor that no quorum needs"
    world.change_pod(job.bound[1, 2], ready=False)
    assert (told(world, job)["status"], told(world, job)["reason"]) == ("False", "BelowQuorum")
    assert job.stage == Stage.RUNNING and world.control() == []
    world.change_pod(job.bound[1, 2], ready=True)
    assert told(world, job)["status"] == "True"
    validate(world.state)


def test_every_place_says_the_same_of_a_running_job_below_its_quorum() -> None:
    world, job = running()
    world.change_pod(job.bound[1, 2], ready=False)
    said = "running below its quorum: 3 of 4 workers of set trainers are ready"
    status = desired_status(world.state, job)
    assert status["message"] == told(world, job)["message"] == told(world, job, "Running")["message"] == said
    assert told(world, job, "Running")["status"] == "True"
    assert overview(world.state, world.config).jobs[0].message == said
    assert (status["ready"], status["readyWorkers"]) == ("9/10", 9)


@pytest.mark.parametrize(
    ("unready", "said"),
    [
        ([LEADER], "the leader isn't ready"),
        ([(2, 0), (2, 1), (2, 2)], "7 of 8 workers are ready"),
        ([LEADER, (1, 0), (2, 0), (2, 1)], "the leader isn't ready, 3 of 4 workers of set trainers are ready, "
         "7 of 8 workers are ready"),
        ([(1, index) for index in range(3)], "1 of 4 workers of set trainers is ready, 7 of 8 workers are ready"),
    ],
)  # fmt: skip
def test_the_sentence_names_every_part_that_lacks_pods(unready: list[tuple[int, int]], said: str) -> None:
    world, job = running(min_workers=8)
    for slot in unready:
        world.change_pod(job.bound[slot], ready=False)
    assert below_quorum_text(world.state, job) == f"running below its quorum: {said}"
    assert f": running below its quorum: {said}" in headline(explained(world.entries, job.seen.name), str)


def test_the_reason_why_a_pod_cannot_start_follows_the_sentence() -> None:
    world, job = running()
    world.change_pod(job.bound[1, 2], ready=False, waiting="CrashLoopBackOff")
    said = "3 of 4 workers of set trainers are ready; pod ppo-trainers-2 can't start on n1: CrashLoopBackOff"
    assert desired_status(world.state, job)["message"] == f"running below its quorum: {said}"


def test_workers_that_have_finished_count_towards_no_quorum() -> None:
    world, job = running()
    world.change_pod(job.bound[1, 3], phase="Succeeded", ready=False)
    world.settle()
    said = "running below its quorum: 3 of 4 workers of set trainers are ready (1 has finished)"
    assert told(world, job)["message"] == said
    assert (job.stage, job.attempt, len(job.bound)) == (Stage.RUNNING, 0, 11), "that is no reason to begin again"


def test_a_starting_job_whose_workers_have_finished_is_not_running() -> None:
    world = World()
    world.node("n1")
    job = world.job("ppo", workers=2, min_workers=2)
    world.cycle()
    world.run_pod(job, LEADER, "n1")
    for index in range(2):
        world.change_pod(world.run_pod(job, (1, index), "n1"), phase="Succeeded", ready=False)
    world.control()
    assert job.stage == Stage.STARTING
    said = "the leader runs; waits until 2 workers are ready; 2 have finished"
    assert desired_status(world.state, job)["message"] == said
    world.change_pod(job.bound[LEADER], phase="Succeeded", ready=False)
    world.control()
    assert job.stage == Stage.SUCCEEDED


def test_a_pod_that_is_being_deleted_is_not_ready() -> None:
    world, job = running()
    world.change_pod(job.bound[1, 0], deleting=True)
    assert told(world, job)["status"] == "False"


def test_the_condition_has_the_time_of_its_last_change_and_counts_do_not_change_it() -> None:
    world, job = running()

    def since() -> int:
        return parse_time_ms(told(world, job)["lastTransitionTime"])

    began = since()
    assert began == world.now_ms // 1000 * 1000
    world.pass_time(10)
    for index in range(3):
        world.change_pod(job.bound[2, index], ready=False)
    assert since() == began
    world.change_pod(job.bound[1, 0], ready=False)
    assert since() == began + 10_000
    world.pass_time(10)
    world.change_pod(job.bound[1, 1], ready=False)
    assert since() == began + 10_000
    world.change_pod(job.bound[1, 0], ready=True)
    world.change_pod(job.bound[1, 1], ready=True)
    assert since() == began + 20_000
    assert snapshot.restore(snapshot.encode(world.state)).jobs[job.uid].times == job.times


def test_a_replaced_worker_makes_the_job_unready_until_the_next_one_is_ready() -> None:
    world, job = running()
    world.pod_gone(job.bound[1, 0])
    assert told(world, job)["status"] == "False"
    world.settle()
    assert told(world, job)["status"] == "True"


def test_a_lowered_minimum_makes_a_job_ready_at_once() -> None:
    world, job = running()
    world.change_pod(job.bound[1, 0], ready=False)
    sets = [("trainers", 4, shape(cpu=1)), ("actors", 6, shape(cpu=1))]
    world.job("ppo", workers=sets, minimums={"trainers": 3}, generation=2)
    assert told(world, job)["status"] == "True"
    validate(world.state)


@pytest.mark.parametrize("pods_first", [True, False])
def test_a_new_epoch_keeps_the_time_of_the_condition(pods_first: bool) -> None:
    world, job = running()
    before, status = told(world, job), adopted(world, job)
    pods = [world.state.pods[uid] for uid in job.bound.values()]
    later = World(listed=False)
    later.now_ms = world.now_ms + 60_000
    later.node("n1")
    seen = job.seen
    steps = [
        lambda: later.say(*(k.PodSeen(later.terms[k.Watched.POD], *_of(pod)[1:]) for pod in pods)),
        lambda: later.say(msgspec.structs.replace(seen, term=later.terms[k.Watched.JOB], status=status)),
    ]
    for step in steps if pods_first else steps[::-1]:
        step()
    later.list_all()
    again = later.state.jobs[job.uid]
    assert told(later, again) == before
    assert told(later, again, "Running")["message"] == "the leader runs and enough workers are ready"


def test_an_ended_job_shows_the_workers_that_it_had() -> None:
    world, job = running()
    world.change_pod(job.bound[2, 0], phase="Succeeded", ready=False)
    world.change_pod(job.bound[2, 1], ready=False)
    assert desired_status(world.state, job)["ready"] == "8/10"
    world.change_pod(job.bound[LEADER], phase="Succeeded", ready=False)
    world.settle()
    assert (job.stage, job.bound, world.state.pods) == (Stage.SUCCEEDED, {}, {})
    status = desired_status(world.state, job)
    assert (status["ready"], status["readyWorkers"], status["totalWorkers"]) == ("9/10", 9, 10), "a finished one counts"
    assert [(of["name"], of["ready"]) for of in status["workers"]] == [("trainers", 4), ("actors", 5)]
    assert told(world, job)["status"] == "False"
    assert snapshot.restore(snapshot.encode(world.state)).jobs[job.uid].sets == job.sets


def test_a_failed_job_shows_which_workers_had_failed() -> None:
    world, job = running(restart_limit=0)
    for slot in [(1, 1), LEADER]:
        world.change_pod(job.bound[slot], phase="Failed", ready=False)
    world.settle()
    status = desired_status(world.state, job)
    assert (job.stage, status["ready"]) == (Stage.FAILED, "9/10")
    assert [(of["ready"], of["failed"]) for of in status["workers"]] == [(3, 1), (6, 0)]


def test_a_new_epoch_keeps_what_an_ended_job_had() -> None:
    world, job = running()
    world.change_pod(job.bound[LEADER], phase="Succeeded", ready=False)
    world.settle()
    status, later = adopted(world, job), World()
    again = later.job("ppo", workers=[("trainers", 4, shape(cpu=1)), ("actors", 6, shape(cpu=1))], status=status)
    assert desired_status(later.state, again)["ready"] == "10/10"
    assert desired_status(later.state, again)["workers"] == desired_status(world.state, job)["workers"]


def _of(event: k.PodSeen | k.JobSeen) -> tuple[object, ...]:
    return tuple(getattr(event, name) for name in event.__struct_fields__)


def test_the_sentence_of_an_unready_quorum_is_not_taken_for_the_reason_of_the_stage() -> None:
    world, job = running()
    world.change_pod(job.bound[1, 0], ready=False)
    assert (adopted(world, job).reason, adopted(world, job).message) == ("WorkersReady", "")


def test_a_job_whose_leader_has_finished_ends_and_does_not_run_below_its_quorum() -> None:
    world, job = running()
    leader = job.bound[LEADER]
    world.change_pod(leader, phase="Succeeded", ready=False)
    said = "the leader has finished"
    for gone in (False, True):
        if gone:
            world.pod_gone(leader)
        status = desired_status(world.state, job)
        assert (
            status["message"]
            == told(world, job)["message"]
            == overview(world.state, world.config).jobs[0].message
            == said
        )
        assert (told(world, job)["status"], told(world, job)["reason"]) == ("False", "Ending")
        assert below_quorum_text(world.state, job) == ""
    world.control()
    assert (job.stage, told(world, job)["reason"]) == (Stage.SUCCEEDED, "LeaderSucceeded")


@pytest.mark.parametrize(("how", "said"), [
    ({"terminating": True}, "ended by spec.terminating"),
    ({"suspend": True}, "suspended by spec.suspend"),
    ({"deleting": True}, "it is being deleted"),
])  # fmt: skip
def test_a_job_that_somebody_ends_does_not_run_below_its_quorum(how: dict[str, bool], said: str) -> None:
    world = World()
    world.node("n1", cpu=16)
    edited = Edited(world, workers=2, worker=shape(), min_workers=2, equals=True)
    world.settle()
    edited.edit(**how)
    world.change_pod(edited.job.bound[1, 1], ready=False, deleting=True)
    assert edited.job.stage == Stage.RUNNING
    assert (told(world, edited.job)["reason"], told(world, edited.job)["message"]) == ("Ending", said)
