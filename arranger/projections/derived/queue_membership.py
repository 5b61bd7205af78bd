"""Which queue a job belongs to, who submitted it, and why the queue gives it no nodes."""

from collections.abc import Collection
from enum import StrEnum

import msgspec

from arranger.model.job import Stage
from arranger.projections.derived.queue_counts import queue_of, sum_of
from arranger.projections.jobs.parts import SlotKey
from arranger.projections.jobs.records import JobRecord
from arranger.projections.queues.tree import QueueProblem
from arranger.projections.queues.use import JOBS, NOTHING_FREED, Use, less, non_preemptible_amounts, resource_of
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


#: (queue, namespace) → why its jobs can't use the queue.
Known = dict[tuple[str, str], Denial | None]


def submitter_of(job: JobRecord) -> str:
    """Whose job it is: the user of its label, else its namespace."""
    return job.seen.user or job.seen.namespace


def own_priority(job: JobRecord) -> int | None:
    """The priority of a job; None if it isn't known: the value of its PriorityClass isn't, or the job is invalid."""
    return job.spec.priority if job.spec is not None and job.spec.priority_known else None


def known_priority(state: State, job: JobRecord) -> int | None:
    """The priority that counts in a job's queue; None if the job's own isn't known."""
    return counted_priority(state, job) if own_priority(job) is not None else None


def counted_priority(state: State, job: JobRecord) -> int:
    """The job's priority as it counts in its queue: at most that which each queue on the way to the root allows."""
    priority, most = job.valid_spec.priority, most_priority(state, queue_of(state, job))
    return priority if most is None else min(priority, most)


def most_priority(state: State, queue: str) -> int | None:
    """The highest priority that counts in a queue; None for any."""
    tree = state.queue_tree
    limits = [tree.specs[name].max_priority for name in tree.paths.get(queue, ())]
    return min((limit for limit in limits if limit is not None), default=None)


def denied(state: State, job: JobRecord, known: Known | None = None) -> Denial | None:
    """Why the job can't use its queue; None if it can. `known` keeps the answers for many jobs of one state."""
    key = (queue_of(state, job), job.seen.namespace)
    if known is None:
        return _denied(state, *key)
    if key not in known:
        known[key] = _denied(state, *key)
    return known[key]


def _denied(state: State, name: str, of: str) -> Denial | None:
    """Why jobs of a namespace can't use a queue."""
    tree = state.queue_tree
    path = tree.paths.get(name)
    if path is None:
        problem = tree.problems.get(name)
        return Denial(DenialKind.PROBLEM if problem else DenialKind.NO_QUEUE, name, problem=problem)
    rule, namespace = tree.specs[name].namespaces, state.namespaces.get(of)
    if rule is not None and not rule.admits(of, dict(namespace.labels) if namespace is not None else {}):
        return Denial(DenialKind.NOT_ADMITTED, name)
    closed = next((each for each in path if each in tree.closed), "")
    return Denial(DenialKind.CLOSED, name, closed=closed) if closed else None


def kept_out(state: State, job: JobRecord) -> Denial | None:
    """Why a waiting job gets no nodes for its quorum, because of its queue; None if it may. A job that has nodes keeps
    them and gets others for its further pods, whatever becomes of its queue."""
    if job.stage not in _WAITING or not job.active or job.stands_still:
        return None
    return denied(state, job)


def queue_out_of_reach(state: State, job: JobRecord) -> str:
    """The queue because of which a waiting job gets no nodes; empty if it may get some."""
    denial = kept_out(state, job)
    return denial.queue if denial is not None else ""


def outside_its_queue(state: State, job: JobRecord) -> str:
    """Why a placement of a job is against the rules of its queue; empty if it isn't."""
    denial = kept_out(state, job)
    return f"it can't use queue {denial.queue}: {denial.kind}" if denial is not None else ""


def beyond_its_queue(state: State, job: JobRecord, desired: Collection[SlotKey], freed: Use = NOTHING_FREED) -> str:
    """Which limit of a queue on the job's way to the root a placement of these slots exceeds; empty if none. `freed` is
    what the own jobs of queues use and will not use any more."""
    tree, totals = state.queue_tree, state.queue_totals
    if freed:
        totals = less(totals, freed, tree.paths)
    limited = [name for name in tree.paths.get(queue_of(state, job), ()) if tree.specs[name].limited]
    asked = sum_of(job, desired) if limited else {}
    if limited and not job.valid_spec.preemptible:
        asked.update(non_preemptible_amounts(asked.items()))
    for name in limited:
        spec, used = tree.specs[name], totals.get(name, {})
        for of, limit in (*spec.capability, *non_preemptible_amounts(spec.most_non_preemptible)):
            more, whose = asked.get(of, 0), "" if of == resource_of(of) else " for jobs that can't be preempted"
            if more and used.get(of, 0) + more > limit:
                return f"queue {name} has too little {resource_of(of)}{whose}: {used.get(of, 0)} + {more} of {limit}"
        if spec.max_running is not None and not job.placements and used.get(JOBS, 0) >= spec.max_running:
            return f"queue {name} has {used.get(JOBS, 0)} jobs with nodes, and maxRunning {spec.max_running}"
    return ""


def against_its_queue(state: State, job: JobRecord, desired: Collection[SlotKey], freed: Use = NOTHING_FREED) -> str:
    """Why a placement is against the rules and limits of the job's queue; empty if it isn't. `freed` as in
    `beyond_its_queue`."""
    return outside_its_queue(state, job) or beyond_its_queue(state, job, desired, freed)
