"""Jobs that may take what is reserved for another one, whose start is then no promise: they go first, and now lack
something else than room, or further pods.
"""

from collections.abc import Iterator

from arranger.events.facts import LackOfNodes
from arranger.projections.derived.queue_counts import queue_of
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import State


def lacks_further(job: JobRecord) -> bool:
    """Whether a job has nodes, and further pods of it get some as soon as there is room."""
    shortage = job.waits.shortage if job.waits is not None else None
    return bool(job.placements) and isinstance(shortage, LackOfNodes) and shortage.further and not shortage.infeasible


def may_go_first(state: State, job: JobRecord) -> Iterator[JobRecord]:
    """The jobs of a higher priority in the queue of a waiting one for which nothing is reserved: those that have begun
    and lack further pods, and those that wait for something else than room, such as a quota. They precede its quorum,
    also in the room that is reserved for it."""
    queue, priority = queue_of(state, job), job.valid_spec.priority
    for other in state.jobs.values():
        first = other.active and other.valid_spec.priority > priority
        if first and (lacks_further(other) or _waits_for_another(state, other)) and queue_of(state, other) == queue:
            yield other


def _waits_for_another(state: State, job: JobRecord) -> bool:
    """Whether a quorum waits for something else than room."""
    if job.waits is None or job.placements or job.stands_still or job.uid in state.reservations:
        return False
    return not isinstance(job.waits.shortage, LackOfNodes)
