"""Jobs that have their quorums and wait for nodes for further pods. Such pods may take what is reserved for a job
behind them, whose start is then no promise."""

from collections.abc import Iterator

from arranger.events.facts import LackOfNodes
from arranger.projections.derived.queue_counts import queue_of
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import State


def lacks_further(job: JobRecord) -> bool:
    """Whether a job has nodes, and further pods of it get some as soon as there is room."""
    shortage = job.waits.shortage if job.waits is not None else None
    return bool(job.placements) and isinstance(shortage, LackOfNodes) and shortage.further and not shortage.infeasible


def ahead_with_further(state: State, job: JobRecord) -> Iterator[JobRecord]:
    """The jobs of a higher priority in the queue of a waiting one that lack further pods. Those precede its quorum,
    also in the room that is reserved for it."""
    queue, priority = queue_of(state, job), job.valid_spec.priority
    for other in state.jobs.values():
        lacks = other.active and lacks_further(other) and other.valid_spec.priority > priority
        if lacks and queue_of(state, other) == queue:
            yield other
