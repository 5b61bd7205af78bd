"""The rules about who may use a queue, beside the product's own."""

from arranger.model.queue import DEFAULT_QUEUE, MAX_DEPTH, QueueState
from arranger.projections.jobs import JobRecord
from arranger.projections.state import State


def unusable(state: State, job: JobRecord) -> str:
    """Why a job may not use its queue, from the observed objects alone; empty if it may."""
    space = state.namespaces.get(job.seen.namespace)
    labels = dict(space.labels) if space is not None else {}
    name = (job.spec.queue if job.spec is not None else "") or (space.queue if space is not None else "")
    name = name or DEFAULT_QUEUE
    way: list[str] = []
    while name:
        seen = state.queues.get(name)
        if seen is None:
            return "" if name == DEFAULT_QUEUE else f"queue {name} isn't there"
        if name in way or len(way) == MAX_DEPTH:
            return f"queue {way[0]} has no way to the root"
        if seen.spec is None or seen.spec.state == QueueState.CLOSED:
            return f"queue {name} is closed or invalid"
        rule = seen.spec.namespaces
        if not way and rule is not None and not rule.admits(job.seen.namespace, labels):
            return f"queue {name} isn't for {job.seen.namespace}"
        way.append(name)
        name = seen.spec.parent
    return ""
