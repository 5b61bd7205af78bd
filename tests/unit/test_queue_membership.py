"""Which queue a job belongs to, and why it can't use it: then it waits, holds nothing, and says why."""

import pytest

from arranger.events import kinds as k
from arranger.kube.translate import job_seen
from arranger.lifecycle.desired import desired_status
from arranger.messages.queues import problem_text
from arranger.model.job import PlacedPods, ScheduleState, Stage
from arranger.model.pod import Requirement
from arranger.model.queue import NamespaceRule, QueueState
from arranger.projections.consistency import validate
from arranger.projections.derived.queue_counts import queue_of
from arranger.projections.derived.queue_membership import (
    Denial,
    DenialKind,
    counted_priority,
    denied,
    kept_out,
    submitter_of,
)
from arranger.projections.jobs.records import JobRecord
from arranger.projections.queues.tree import QueueProblem, QueueProblemKind
from arranger.replay.explain.awaited import What, awaited
from arranger.replay.reading.describe import message_of
from tests.unit.tyjob_table import tyjob
from tests.world import Edited, World, shape

GPU = "nvidia.com/gpu"
CLOSED = QueueState.CLOSED
TEAM = NamespaceRule(selector=(Requirement("team", "In", ("rl",)),))


def world() -> World:
    made = World()
    made.node("n1", cpu=8)
    return made


def test_the_queue_of_a_job_is_its_own_else_its_namespaces_else_default() -> None:
    there = world()
    there.namespace("research", queue="rl")
    state = there.state
    assert queue_of(state, there.job("a", namespace="research", of_queue="own")) == "own"
    assert queue_of(state, there.job("b", namespace="research")) == "rl"
    assert queue_of(state, there.job("c", namespace="unseen")) == "default"
    there.namespace("research")
    assert queue_of(state, state.jobs["uid-b"]) == "default"
    assert queue_of(state, there.job("d", invalid="spec.leader")) == "default"


def test_the_submitter_is_the_user_of_the_label_else_the_namespace() -> None:
    there = world()
    assert submitter_of(there.job("a", namespace="research", user="ann")) == "ann"
    before = there.state.scheduling_changes
    assert submitter_of(there.job("a", namespace="research")) == "research"
    assert there.state.scheduling_changes == before + 1 and there.changes.schedulable
    job = tyjob()
    job["metadata"] |= {"uid": "u", "labels": {"arranger.dev/user": "ann"}}
    assert job_seen(job, 1, with_status=False).user == "ann"
    job["metadata"]["labels"] = None
    assert job_seen(job, 1, with_status=False).user == ""


def test_the_priority_counts_up_to_what_each_queue_on_the_way_allows() -> None:
    there = world()
    there.queue("all", max_priority=4)
    there.queue("rl", parent="all", max_priority=7)
    there.queue("vision", parent="all", max_priority=2)
    state = there.state
    jobs = [there.job(name, of_queue=name, priority=9) for name in ("rl", "vision", "default", "none")]
    assert [counted_priority(state, job) for job in jobs] == [4, 2, 9, 9]
    assert counted_priority(state, there.job("low", of_queue="rl", priority=1)) == 1


def none_such(there: World) -> Denial:
    return Denial(DenialKind.NO_QUEUE, "rl")


def closed(there: World) -> Denial:
    there.queue("rl", state=CLOSED)
    return Denial(DenialKind.CLOSED, "rl", closed="rl")


def closed_above(there: World) -> Denial:
    there.queue("all", state=CLOSED)
    there.queue("rl", parent="all")
    return Denial(DenialKind.CLOSED, "rl", closed="all")


def for_others(there: World) -> Denial:
    there.queue("rl", namespaces=NamespaceRule(("vision",)))
    return Denial(DenialKind.NOT_ADMITTED, "rl")


def for_labels(there: World) -> Denial:
    there.namespace("default", team="vision")
    there.queue("rl", namespaces=TEAM)
    return Denial(DenialKind.NOT_ADMITTED, "rl")


def of_unknown_labels(there: World) -> Denial:
    there.queue("rl", namespaces=TEAM)
    return Denial(DenialKind.NOT_ADMITTED, "rl")


def no_parent(there: World) -> Denial:
    there.queue("rl", parent="all")
    return Denial(DenialKind.PROBLEM, "rl", problem=QueueProblem(QueueProblemKind.UNKNOWN_PARENT, "rl", "all"))


def invalid(there: World) -> Denial:
    there.queue("rl", invalid="spec")
    return Denial(DenialKind.PROBLEM, "rl", problem=QueueProblem(QueueProblemKind.INVALID, "rl"))


CASES = {
    none_such: "waits for queue rl, which doesn't exist: create it, or name another in spec.queue",
    closed: "waits for queue rl, which is closed",
    closed_above: "waits for queue rl, which is closed, because all is",
    for_others: "can't use queue rl: its spec.namespaces doesn't include the job's namespace",
    for_labels: "can't use queue rl: its spec.namespaces doesn't include the job's namespace",
    of_unknown_labels: "can't use queue rl: its spec.namespaces doesn't include the job's namespace",
    no_parent: "can't use queue rl: queue rl is below all, which doesn't exist: create it, or edit spec.parent",
    invalid: "can't use queue rl: queue rl is invalid: edit it",
}


def test_a_job_says_that_an_annotation_of_its_namespace_names_a_queue_that_does_not_exist() -> None:
    there = world()
    there.namespace("default", queue="nope")
    job = there.job("j", workers=1)
    there.settle()
    assert message_of(there.state, job) == (
        "waits for queue nope, which the annotation arranger.dev/queue of namespace default names and which doesn't "
        "exist: create it, edit the annotation, or name another in spec.queue"
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_a_job_that_cannot_use_its_queue_waits_holds_nothing_and_says_why(case: object) -> None:
    assert callable(case)
    there = world()
    expected, text = case(there), CASES[case]  # type: ignore[index]
    job = there.job("j", of_queue="rl", workers=1)
    assert denied(there.state, job) == kept_out(there.state, job) == expected
    there.settle()
    assert job.stage == Stage.PENDING and not job.placements and there.used("n1") == 0
    status = desired_status(there.state, job)
    assert status["message"] == text == message_of(there.state, job)
    assert text in [condition["message"] for condition in status["conditions"]]
    assert awaited(there.state, job).what == What.QUEUE
    there.namespace("default", team="rl")
    there.queue("all")
    there.queue("rl", parent="all", namespaces=TEAM)
    assert job.uid in there.changes.jobs and there.changes.schedulable
    there.settle()
    assert job.stage == Stage.RUNNING and denied(there.state, job) is None
    validate(there.state)


def test_where_the_api_server_refuses_queues_the_job_says_so() -> None:
    there = world()
    there.say(k.WatchRefused(k.Watched.QUEUE, there.watch_queues(), 404))
    job = there.job("j", of_queue="rl")
    assert "doesn't let Arranger list queues (404)" in message_of(there.state, job)


def test_a_job_that_has_nodes_runs_on_in_a_closed_queue_and_gets_its_further_workers() -> None:
    there = world()
    there.queue("rl")
    job = there.job("j", of_queue="rl", workers=9, min_workers=1, worker=shape(cpu=1))
    there.settle()
    assert job.schedule_state == ScheduleState.PARTLY and len(job.placements) == 8
    there.queue("rl", state=CLOSED)
    there.node("n2", cpu=8)
    there.settle()
    assert job.stage == Stage.RUNNING and len(job.placements) == 10
    assert denied(there.state, job) is not None and kept_out(there.state, job) is None


def placed(there: World, job: JobRecord) -> str:
    slots = (PlacedPods("n1", 0, ((0, 0),)),)
    taken = k.CycleTaken(there.state.offset, there.now_ms, there.config)
    there.say(taken, k.Placed(job.uid, job.version, job.attempt, ScheduleState.SUCCEED, slots))
    return there.verdict("Placed").reason


def test_a_placement_into_a_queue_that_has_closed_meanwhile_is_rejected_at_its_own_offset() -> None:
    there = world()
    there.queue("rl", state=CLOSED)
    job = there.job("j", of_queue="rl")
    assert placed(there, job) == "it can't use queue rl: Closed"
    assert not job.placements
    there.queue("rl")
    assert placed(there, job) == ""


def test_a_job_may_go_to_another_queue_while_it_holds_no_nodes() -> None:
    there = world()
    there.queue("rl")
    there.queue("vision")
    edited = Edited(there, of_queue="rl", worker=shape(cpu=1))
    job = edited.job
    there.settle()
    assert job.stage == Stage.RUNNING
    edited.edit(of_queue="vision")
    assert [fault.field for fault in job.refused] == ["spec.queue"] and queue_of(there.state, job) == "rl"
    edited.edit(of_queue="rl")
    there.node_gone("n1")
    there.pod_gone(job.bound[0, 0])
    there.control()
    assert job.stage == Stage.RESCHEDULING
    edited.edit(of_queue="vision")
    assert not job.refused and queue_of(there.state, job) == "vision"


PROBLEMS = [
    (QueueProblem(QueueProblemKind.CYCLE, "a", "b"),
     "queue a would be below itself, by way of its parent b: edit spec.parent of one of them"),
    (QueueProblem(QueueProblemKind.TOO_DEEP, "a", "b", 9),
     "queue a is at depth 9, and the most is 8: edit spec.parent"),
    (QueueProblem(QueueProblemKind.ABOVE_PARENT, "a", "b", 0, "deserved", "memory", 3 << 29, 1 << 30),
     "deserved of memory is 1.5Gi, above that of the parent b, which is 1Gi"),
    (QueueProblem(QueueProblemKind.GUARANTEE_CUT, "a", "b", 0, "guarantee", "nvidia.com/gpu", 4, 2),
     "of its guarantee of 4 nvidia.com/gpu, 2 are kept, because the guarantees below b add up to more than is kept for "
     "that: lower some"),
]  # fmt: skip


@pytest.mark.parametrize(("problem", "text"), PROBLEMS)
def test_a_problem_of_a_queue_is_told_in_words(problem: QueueProblem, text: str) -> None:
    assert problem_text(problem) == text
