"""Which queue a job belongs to, who submitted it, and why the queue gives it no nodes."""

from enum import StrEnum

import msgspec

from arranger.model.job import Stage
from arranger.model.queue import DEFAULT_QUEUE, QueueState
from arranger.projections.jobs import JobRecord
from arranger.projections.queue_tree import QueueProblem
from arranger.projections.state import State

#: The stages in which a job holds no nodes.
_WAITING = (Stage.PENDING, Stage.RESCHEDULING)


class DenialKind(StrEnum):
    """Why a job can't use its queue."""

    NO_QUEUE = "NoQueue"
    PROBLEM = "Problem"
    NOT_ADMITTED = "NotAdmitted"
    CLOSED = "Closed"


class Denial(msgspec.Struct, frozen=True):
    """Why a job can't use its `queue`. CLOSED: `closed` is the closed one, the queue itself or one above it. PROBLEM:
    `problem` is that of the queue."""

    kind: DenialKind
    queue: str
    closed: str = ""
    problem: QueueProblem | None = None


def queue_of(state: State, job: JobRecord) -> str:
    """The name of the job's queue: the one that its spec names, else its namespace's, else `default`. It may not
    exist."""
    if job.spec is not None and job.spec.queue:
        return job.spec.queue
    namespace = state.namespaces.get(job.seen.namespace)
    return (namespace.queue if namespace is not None else "") or DEFAULT_QUEUE


def submitter_of(job: JobRecord) -> str:
    """Whose job it is: the user of its label, else its namespace."""
    return job.seen.user or job.seen.namespace


def counted_priority(state: State, job: JobRecord) -> int:
    """The job's priority as it counts in its queue: at most that which each queue on the way to the root allows."""
    tree, priority = state.queue_tree, job.valid_spec.priority
    limits = [tree.specs[name].max_priority for name in tree.paths.get(queue_of(state, job), ())]
    return min([priority, *(limit for limit in limits if limit is not None)])


def denied(state: State, job: JobRecord) -> Denial | None:
    """Why the job can't use its queue; None if it can."""
    name, tree = queue_of(state, job), state.queue_tree
    path = tree.paths.get(name)
    if path is None:
        problem = tree.problems.get(name)
        return Denial(DenialKind.PROBLEM if problem else DenialKind.NO_QUEUE, name, problem=problem)
    rule, namespace = tree.specs[name].namespaces, state.namespaces.get(job.seen.namespace)
    labels = dict(namespace.labels) if namespace is not None else {}
    if rule is not None and not rule.admits(job.seen.namespace, labels):
        return Denial(DenialKind.NOT_ADMITTED, name)
    closed = [each for each in path if tree.specs[each].state == QueueState.CLOSED]
    return Denial(DenialKind.CLOSED, name, closed=closed[0]) if closed else None


def kept_out(state: State, job: JobRecord) -> Denial | None:
    """Why a waiting job gets no nodes for its quorum, because of its queue; None if it may. A job that has nodes keeps
    them and gets others for its further pods, whatever becomes of its queue."""
    waits = job.active and not job.stands_still and job.spec is not None and job.stage in _WAITING
    return denied(state, job) if waits else None


def queue_out_of_reach(state: State, job: JobRecord) -> str:
    """The queue because of which a waiting job gets no nodes; empty if it may get some."""
    denial = kept_out(state, job)
    return denial.queue if denial is not None else ""


def outside_its_queue(state: State, job: JobRecord) -> str:
    """Why a placement of a job is against the rules of its queue; empty if it isn't."""
    denial = kept_out(state, job)
    return f"it can't use queue {denial.queue}: {denial.kind}" if denial is not None else ""
