"""Because of which jobs a reservation doesn't promise a start. They may take the reserved room, or stay in it: jobs
ahead in the same queue, which lack something other than room now, or which have begun and lack further pods
(`may_go_first`); jobs of other queues, whose turns may come first (`is_contested`); and guests of other queues
(`has_guests`).
"""

from collections.abc import Iterator

from arranger.events.facts import LackOfNodes
from arranger.projections.derived.queue_counts import queue_of
from arranger.projections.derived.queue_membership import counted_priority
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import State


def lacks_further(job: JobRecord) -> bool:
    """Whether a job has nodes, and further pods of it get some as soon as there is room."""
    shortage = job.waits.shortage if job.waits is not None else None
    return bool(job.placements) and isinstance(shortage, LackOfNodes) and shortage.further and not shortage.infeasible


def may_go_first(state: State, job: JobRecord) -> Iterator[JobRecord]:
    """Jobs ahead of `job`: active ones of its queue that are to get nodes before its quorum does, even in room that is
    reserved for `job`. Those of a higher priority that have begun and lack further pods; and those of a higher one, or
    an older one of the same, that have neither nodes nor a reservation and wait for something other than room (a quota,
    a plugin)."""
    queue, priority = queue_of(state, job), counted_priority(state, job)
    for other in state.jobs.values():
        if not other.active or other.valid_spec.priority < priority or queue_of(state, other) != queue:
            continue
        higher = counted_priority(state, other) > priority  # a queue caps all of its jobs alike
        before = higher or _seniority(other) < _seniority(job)
        if (higher and lacks_further(other)) or (before and _waits_for_no_room(state, other)):
            yield other


def is_contested(state: State, job: JobRecord) -> bool:
    """Whether jobs of other queues wait to start, or for further pods. Whose turn is first depends on what the queues
    use by then."""
    queue = queue_of(state, job)
    active = (of for of in state.jobs.values() if of.active and not of.stands_still)
    return any(queue_of(state, of) != queue for of in active if not of.placements or lacks_further(of))


def has_guests(state: State, job: JobRecord) -> bool:
    """Whether a job of another queue runs in room that is reserved for a job, which doesn't wait for its end. It may
    stay all the same, as far as that queue uses no more than its share by then."""
    queue, with_nodes = queue_of(state, job), (of for of in state.jobs.values() if of.placements)
    guests = (of for of in with_nodes if job.uid in of.slots.hosts or of.slots.lent_by(job.uid))
    return any(queue_of(state, of) != queue and not state.awaits_end(job.uid, of.uid) for of in guests)


def _seniority(job: JobRecord) -> tuple[bool, int, str]:
    """The order of the quorums of one priority, as cycles see it (`queues.policies.seniority`), but for the QoS class:
    whether that counts is a setting of theirs."""
    return job.back_offs.held_back, job.seen.created_ms, job.uid


def _waits_for_no_room(state: State, job: JobRecord) -> bool:
    """Whether a quorum waits for something other than room."""
    if job.waits is None or job.placements or job.stands_still or job.uid in state.reservations:
        return False
    return not isinstance(job.waits.shortage, LackOfNodes)
