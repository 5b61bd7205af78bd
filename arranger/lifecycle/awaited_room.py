"""Nodes that a job has before it begins, because other pods are still to leave them: whether their room is free, and
how long the job waits for it."""

from arranger.model.job import Stage
from arranger.projections.jobs import JobRecord, requests_of
from arranger.projections.nodes import Amounts
from arranger.projections.openness import closed_to_next
from arranger.projections.state import State

#: How long a job waits for which no decision says that, because a new epoch adopted it with its nodes, in milliseconds.
_ADOPTED_MS = 120_000


def awaited_until_ms(job: JobRecord) -> int | None:
    """Until when a job that hasn't begun waits for the room of its nodes, in milliseconds since 1970; None without
    nodes."""
    if job.stage not in (Stage.PENDING, Stage.RESCHEDULING) or not job.placements:
        return None
    return job.slots.room.until_ms if job.slots.room is not None else job.times.scheduled_ms + _ADOPTED_MS


def room_is_free(state: State, job: JobRecord, time_ms: int) -> bool:
    """Whether no node of the job has more in use than it can give, the job's pods included. Pods that may have come
    until then and were never seen don't count any more; in a quiet log, no entry drops them."""
    freed: dict[str, Amounts] = {}
    for pod in state.assumed_until(time_ms):
        amounts = state.nodes.vector(pod.requests)
        freed[pod.node] = freed[pod.node] + amounts if pod.node in freed else amounts
    groups = {(node, slot[0]): slot for slot, node in job.placements.items()}
    return not any(
        state.nodes.overbooked(node, requests_of(job, slot), freed.get(node, 0)) for (node, _), slot in groups.items()
    )


def room_lost(state: State, job: JobRecord, time_ms: int) -> bool:
    """Whether a job has waited long enough, or one of its nodes is gone or closed."""
    until_ms = awaited_until_ms(job)
    if until_ms is not None and state.known_ms(time_ms) >= until_ms:
        return True
    if not all(map(state.nodes.has, job.placements.values())):
        return True
    return bool(closed_to_next(state.nodes, job.valid_spec, job.placements))
