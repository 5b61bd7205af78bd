"""Because of which jobs a reservation doesn't promise a start: they may take the reserved room, or stay in it."""

from collections.abc import Collection, Iterator
from enum import Enum, auto

from arranger.events.facts import LackOfNodes
from arranger.projections.derived.queue_counts import queue_of
from arranger.projections.derived.queue_membership import counted_priority
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import State


class Way(Enum):
    """How a job may be in the way of one with a reservation."""

    #: It is ahead in the same queue, and is to get nodes before, even in reserved room: it has a higher priority, has
    #: begun and lacks further pods; or it has a higher one, or is an older one of the same, and has neither nodes nor a
    #: reservation, and waits for something other than room (a quota, a plugin).
    AHEAD = auto()
    #: It is in another queue, and waits to start, or for further pods. Whose turn is first depends on what the queues
    #: use by then.
    CONTESTS = auto()
    #: It is a guest of another queue, and may stay if that uses no more than its share by then, otherwise than is known
    #: now.
    GUEST = auto()


def lacks_further(job: JobRecord) -> bool:
    """Whether a job has nodes, and further pods of it get some as soon as there is room."""
    shortage = job.waits.shortage if job.waits is not None else None
    return bool(job.placements) and isinstance(shortage, LackOfNodes) and shortage.further and not shortage.infeasible


def in_the_way(state: State, job: JobRecord) -> Iterator[tuple[Way, JobRecord]]:
    """The jobs because of which a reservation doesn't promise `job` a start, each with how; in one walk, since all jobs
    are looked at."""
    queue, priority = queue_of(state, job), counted_priority(state, job)
    for other in state.jobs.values():
        if queue_of(state, other) == queue:
            if _goes_first(state, job, priority, other):
                yield Way.AHEAD, other
            continue
        if other.active and not other.stands_still and (not other.placements or lacks_further(other)):
            yield Way.CONTESTS, other
        if _is_guest(state, job, other):
            yield Way.GUEST, other


def are_estimated(state: State, uids: Collection[str]) -> bool:
    """Whether the end of one of these jobs, for which a reservation waits, is known from earlier runs alone."""
    running = [job for uid in uids if (job := state.jobs.get(uid)) is not None and not job.ended]
    specs = [job.spec for job in running if job.spec is not None and not job.seen.deleting]
    return any(spec.expected_s is None and spec.deadline_s is None for spec in specs)


def _goes_first(state: State, job: JobRecord, priority: int, other: JobRecord) -> bool:
    """Whether an active job of the queue of `job`, which has this priority there, is to get nodes before its quorum
    does."""
    if not other.active or other.valid_spec.priority < priority:
        return False
    higher = counted_priority(state, other) > priority  # a queue caps all of its jobs alike
    before = higher or _seniority(other) < _seniority(job)
    return (higher and lacks_further(other)) or (before and _waits_for_no_room(state, other))


def _is_guest(state: State, job: JobRecord, other: JobRecord) -> bool:
    """Whether another job runs in room that is reserved for `job`, which doesn't wait for its end."""
    here = other.placements and (job.uid in other.slots.hosts or other.slots.lent_by(job.uid))
    return bool(here) and not state.awaits_end(job.uid, other.uid)


def _seniority(job: JobRecord) -> tuple[bool, int, str]:
    """The order of the quorums of one priority, as cycles see it (`queues.policies.seniority`), but for the QoS class:
    whether that counts is a setting of theirs."""
    return job.back_offs.held_back, job.seen.created_ms, job.uid


def _waits_for_no_room(state: State, job: JobRecord) -> bool:
    """Whether a quorum waits for something other than room."""
    if job.waits is None or job.placements or job.stands_still or job.uid in state.reservations:
        return False
    return not isinstance(job.waits.shortage, LackOfNodes)
