"""The rules about who may use a queue and how much, beside the product's own."""

from collections import Counter
from collections.abc import Collection

import numpy as np

from arranger.events import kinds as k
from arranger.events.log import Entry
from arranger.model.queue import DEFAULT_QUEUE, DEFAULT_SPEC, MAX_DEPTH, NonPreemptible, QueueSpec, QueueState
from arranger.model.quota import LimitKind, QuotaLack
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import State
from tests.reasons import lacking_quota

#: What jobs use that can't be preempted, as a resource of this and its name.
KEPT = "non-preemptible "


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


class Limits:
    """The use beyond limits of queues, entry by entry: only observations may lift it. A decision may not, but users
    lower a limit below what is used, and bring queues and their jobs below another one."""

    def __init__(self) -> None:
        self._beyond: dict[tuple[str, str], int] = {}

    def begin(self, state: State) -> None:
        """The next entry follows this state."""
        self._beyond = beyond_limits(state)

    def lifted(self, state: State, entry: Entry) -> str:
        """Which use beyond a limit an entry without observations lifted; empty if none."""
        before = self._beyond
        self.begin(state)
        if any(isinstance(event, k.Observation) for event in entry.batch.events):
            return ""
        more = sorted(key for key, amount in self._beyond.items() if amount > before.get(key, 0))
        return ", ".join(f"queue {name} by {self._beyond[name, of]} {of or 'jobs with nodes'}" for name, of in more)


def beyond_limits(state: State) -> dict[tuple[str, str], int]:
    """(Queue, resource) → how much more than the queue's capability its jobs and those below it use, counted from the
    jobs alone. The resource "" is for jobs with nodes, and `maxRunning`, and those of `KEPT` are for jobs that can't be
    preempted, and what the queue deserves, if it keeps these from borrowing."""
    limits = {name: _limits(seen.spec) for name, seen in state.queues.items() if seen.spec is not None}
    used = use_of_queues(state) if any(limits.values()) else {}
    found = {}
    for name, of_queue in limits.items():
        amounts = used.get(name, {})
        found |= {(name, of): more for of, limit in of_queue.items() if (more := amounts.get(of, 0) - limit) > 0}
    return found


def _limits(spec: QueueSpec) -> dict[str, int]:
    limits = dict(spec.capability) | ({} if spec.max_running is None else {"": spec.max_running})
    if spec.non_preemptible == NonPreemptible.WITHIN_DESERVED:
        limits |= {KEPT + of: amount for of, amount in spec.deserved}
    return limits


def use_of_queues(state: State) -> dict[str, Counter[str]]:
    """Queue → resource → what the nodes of its jobs and of those below it are for; "" counts these jobs, and names of
    `KEPT` are for those that can't be preempted. A job whose pods show its success uses nothing of its queue any more,
    although the stage that says so may be decided later."""
    used: dict[str, Counter[str]] = {}
    for job in state.jobs.values():
        if not job.placements or job.slots.done:
            continue
        amounts = Counter({"": 1})
        for group, _ in job.placements:
            requests = dict(job.valid_spec.groups[group].shape.requests)
            amounts.update(requests)
            if not job.valid_spec.preemptible:
                amounts.update({KEPT + of: amount for of, amount in requests.items()})
        for name in way_of(state, name_of(state, job)):
            used.setdefault(name, Counter()).update(amounts)
    return used


def crowded(state: State, job: JobRecord, waiting: Collection[str]) -> bool:
    """Whether a queue on a job's way has `maxWaiting` other jobs among the waiting ones (UIDs)."""
    ways = [way_of(state, name_of(state, state.jobs[uid])) for uid in waiting if uid != job.uid]
    for name in way_of(state, name_of(state, job)):
        seen = state.queues.get(name)
        most = seen.spec.max_waiting if seen is not None and seen.spec is not None else None
        if most is not None and sum(name in way for way in ways) >= most:
            return True
    return False


def hopeless(job: JobRecord) -> bool:
    """Whether a job says that not even an empty cluster, queue or namespace could hold it."""
    lack = lacking_quota(job.waits)
    return (lack is not None and lack.never) or (job.waits is not None and job.waits.shortage.infeasible)


def outdated_reason(state: State, job: JobRecord, lack: QuotaLack) -> str:
    """Why what a job says about a limit of a queue isn't true now; empty if it is."""
    seen = state.queues.get(lack.queue)
    spec = seen.spec if seen is not None and seen.spec is not None else DEFAULT_SPEC
    if lack.limit == LimitKind.GUARANTEES:
        return untrue_guarantee(state, job)
    if lack.queue not in way_of(state, name_of(state, job)):
        return f"it isn't below queue {lack.queue}"
    used = use_of_queues(state).get(lack.queue, Counter())
    if lack.limit == LimitKind.CAPABILITY:
        limit = dict(spec.capability).get(lack.resource)
        fits = limit is None or used[lack.resource] + lack.needed <= limit
        return f"queue {lack.queue} has {used[lack.resource]} of {limit} {lack.resource}" if fits else ""
    if lack.limit == LimitKind.MAX_RUNNING:
        fits = spec.max_running is None or used[""] < spec.max_running
        return f"queue {lack.queue} has {used['']} of {spec.max_running} jobs with nodes" if fits else ""
    if lack.limit == LimitKind.NON_PREEMPTIBLE:
        limit, amount = _limits(spec).get(KEPT + lack.resource), used[KEPT + lack.resource]
        fits = limit is None or job.valid_spec.preemptible or amount + lack.needed <= limit
        return f"queue {lack.queue} has {amount} of {limit} {lack.resource} for such jobs" if fits else ""
    others = [of.uid for of in state.jobs.values() if of.active and not of.placements and not hopeless(of)]
    return "" if crowded(state, job, others) else f"queue {lack.queue} has fewer waiting jobs than its maxWaiting"


def untrue_guarantee(state: State, job: JobRecord) -> str:
    """Why guarantees don't keep the room that a job says that they keep; empty if they do, or if it says nothing."""
    lack, way = lacking_quota(job.waits), way_of(state, name_of(state, job))
    if lack is None or not of_guarantee(job):
        return ""
    nodes = state.nodes
    if lack.resource in nodes.columns:  # what pods of ended jobs leave counts as use of their queues for a while
        free = np.maximum(nodes.allocatable - nodes.used, 0).sum(axis=0)
        if free[nodes.columns[lack.resource]] >= lack.needed:
            return ""
    used = use_of_queues(state)
    for name, seen in state.queues.items():
        above = [state.queues[of].spec for of in way_of(state, name) if of in state.queues]
        shut = any(spec is not None and spec.state == QueueState.CLOSED for spec in above)
        promised = dict(seen.spec.guarantee).get(lack.resource, 0) if seen.spec is not None and not shut else 0
        if name not in way and promised > used.get(name, Counter())[lack.resource]:
            return ""
    return f"none keeps any {lack.resource}"


def of_guarantee(job: JobRecord) -> bool:
    """Whether a job says that guarantees keep room from it."""
    lack = lacking_quota(job.waits)
    return lack is not None and lack.limit == LimitKind.GUARANTEES


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
