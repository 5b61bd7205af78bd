"""Where jobs stood in the order of a recorded cycle, by its settings and on the state before it, and why there."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from arranger.events.kinds import CycleTaken
from arranger.model.pod import QosClass
from arranger.projections.derived.queue_counts import queue_of
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import State
from arranger.scheduling import Policies, Priority, in_order_among, policy_of

#: Why a job comes after another one of the same priority or share.
HELD_BACK = "the API server refused the pods of the other job at its last start"


class Seniority(NamedTuple):
    """What decides between jobs of one queue whose shares are equal or don't count, first things first. `priority` is
    that which counts in the queue; `created_ms` in milliseconds since 1970."""

    priority: int
    held_back: bool
    qos_rank: int
    qos: QosClass | None
    created_ms: int
    uid: str


class InTurn(NamedTuple):
    """A job in the order of a cycle: its position among those that were asked about, from 1, its queue, and the policy
    that gave it its turn there, empty for seniority."""

    position: int
    queue: str
    policy: str
    seniority: Seniority


#: UID → where the job stood.
Order = Mapping[str, InTurn]


def order_of(state: State, taken: CycleTaken, uids: Collection[str], policies: Policies) -> Order:
    """Where these jobs stood in a cycle that was taken on this state. A policy that isn't installed doesn't count."""
    policies, config = policies.nearest(taken.config)
    found = {}
    for position, job in enumerate(in_order_among(state, uids, config, policies, time_ms=taken.time_ms), start=1):
        policy = policy_of(state, job, config, policies)
        of_policy = policy if policy != Priority.name else ""
        found[job.uid] = InTurn(position, queue_of(state, job), of_policy, seniority_of(job))
    return found


def seniority_of(job: JobRecord) -> Seniority:
    """What decides about a job as a cycle counts it."""
    spec, seen = job.valid_spec, job.seen
    held_back = bool(job.back_offs.held_back)
    return Seniority(spec.priority, held_back, spec.qos_rank, spec.qos, seen.created_ms, seen.uid)


def by_seniority(other: Seniority, job: Seniority) -> str:
    """Why another job comes before this one, in words, with both values."""
    if other.priority != job.priority:
        return f"priority {other.priority} against {job.priority}"
    if other.held_back != job.held_back:
        return HELD_BACK
    if other.qos_rank != job.qos_rank:
        return f"QoS class {other.qos} against {job.qos}"
    if other.created_ms != job.created_ms:
        return f"created {(job.created_ms - other.created_ms) / 1000:g} s earlier"
    return f"the lower UID, {other.uid} against {job.uid}"
