"""The rules about who may use a queue and how much, beside the product's own."""

from arranger.events.kinds import Placed
from arranger.model.queue import DEFAULT_QUEUE, DEFAULT_SPEC, MAX_DEPTH, QueueState
from arranger.projections.jobs import JobRecord
from arranger.projections.state import State


def way_of(state: State, name: str) -> list[str]:
    """The queues from one to the root; empty if it has no way there."""
    way: list[str] = []
    while name:
        seen = state.queues.get(name)
        if name in way or len(way) == MAX_DEPTH or (seen is None and name != DEFAULT_QUEUE):
            return []
        if seen is not None and seen.spec is None:
            return []
        way.append(name)
        name = seen.spec.parent if seen is not None and seen.spec is not None else ""
    return way


def name_of(state: State, job: JobRecord) -> str:
    """The queue that a job belongs to."""
    space = state.namespaces.get(job.seen.namespace)
    return (
        (job.spec.queue if job.spec is not None else "") or (space.queue if space is not None else "") or DEFAULT_QUEUE
    )


def above_limits(state: State, job: JobRecord, event: Placed) -> str:
    """Which limit of a queue a placement that was just accepted has exceeded, counted from the jobs alone."""
    groups = job.valid_spec.groups
    asked = {resource for of in event.pods for resource, amount in groups[of.group].shape.requests if amount}
    ways = {uid: way_of(state, name_of(state, of)) for uid, of in state.jobs.items()}
    for name in ways[job.uid]:
        seen = state.queues.get(name)
        spec = seen.spec if seen is not None and seen.spec is not None else DEFAULT_SPEC
        there = [of for uid, of in state.jobs.items() if name in ways[uid] and of.placements]
        for resource, limit in spec.capability:
            pods = [of.valid_spec.groups[group].shape.requests for of in there for group, _ in of.placements]
            used = sum(dict(requests).get(resource, 0) for requests in pods)
            if resource in asked and used > limit:
                return f"queue {name} has {used} {resource}, its capability is {limit}"
        began = len(job.placements) == sum(last - first + 1 for of in event.pods for first, last in of.indices)
        if began and spec.max_running is not None and len(there) > spec.max_running:
            return f"queue {name} has {len(there)} jobs with nodes, its maxRunning is {spec.max_running}"
    return ""


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
