"""Queues as people see them: what each one uses, demands and is entitled to, and who holds what.

The commands, the status of Queues and the metrics show this view. The scheduler doesn't need it.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from functools import lru_cache
from operator import itemgetter

import msgspec

from arranger.model.job import Stage
from arranger.model.queue import DEFAULT_QUEUE, QueueSpec, QueueState
from arranger.model.reasons import similar_resource
from arranger.projections.derived.queue_counts import queue_of, sum_of
from arranger.projections.derived.queue_membership import DenialKind, kept_out, submitter_of
from arranger.projections.jobs.parts import SlotKey
from arranger.projections.jobs.records import JobRecord, holds
from arranger.projections.queues.tree import QueueProblem, QueueProblemKind, QueueTree
from arranger.projections.queues.use import JOBS
from arranger.projections.state import State
from arranger.projections.verdicts.preemption import leaves
from arranger.scheduling.queues.demand import NonPreemptibleLeft, beyond_limits
from arranger.scheduling.queues.standing import QueueStanding
from arranger.scheduling.queues.waiting import considered, waiting_jobs

#: Resource → amount in its base unit, as in `PodShape`.
Sums = dict[str, int]

_WAITING = (Stage.PENDING, Stage.RESCHEDULING)


class QueueView(msgspec.Struct, frozen=True, kw_only=True):
    """One queue at one moment. Amounts are by resource, in base units.

    `used` is what its jobs' placements hold, and `demand` that plus what its waiting jobs still request; both include
    the queues below it, and `own_used` and `own_demand` don't. Jobs that can't use the queue, or that a cycle doesn't
    consider, demand nothing, and no job demands a resource that is probably misspelt. `share` is what it is entitled to
    now (`queues/fair_shares`), empty without a way to the root. `usage` is what its jobs and those below used on
    average, if there is a half-life; 0 is left out.

    `waiting` counts the jobs without nodes that aren't suspended, `running` those with nodes, both including the queues
    below; `own_waiting` and `own_running` don't. `denials` counts its own waiting jobs that can't use it, by reason.

    `spec` is None for an invalid queue, and for one that doesn't exist and that jobs name nevertheless. `path` has the
    names from the queue to the one below the root, the queue first. `closed` is the closed queue on it, if any.
    """

    name: str
    uid: str = ""
    spec: QueueSpec | None = None
    path: tuple[str, ...] = ()
    problem: QueueProblem | None = None
    closed: str = ""
    used: Sums = {}
    own_used: Sums = {}
    demand: Sums = {}
    own_demand: Sums = {}
    share: Sums = {}
    usage: Sums = {}
    waiting: int = 0
    running: int = 0
    own_waiting: int = 0
    own_running: int = 0
    denials: dict[DenialKind, int] = {}

    @property
    def created(self) -> bool:
        """Whether it exists as an object; `default` exists without one."""
        return self.uid != ""

    @property
    def exists(self) -> bool:
        """Whether it exists at all; jobs may name a queue that doesn't."""
        return self.created or self.name == DEFAULT_QUEUE

    @property
    def state(self) -> str:
        """Open, Closed (itself or by a queue above it), or Unusable for a queue without a way to the root."""
        if not self.path:
            return "Unusable"
        return "Closed" if self.closed else "Open"

    @property
    def depth(self) -> int:
        """The number of queues from it to the root, itself included; 0 without a way to the root."""
        return len(self.path)


class QueuesView(msgspec.Struct, frozen=True):
    """All queues by name, parents before their children, those without a way to the root last. `total` is what the
    nodes offer to jobs (`queues/offer`)."""

    queues: dict[str, QueueView]
    total: Sums


class HolderKind(StrEnum):
    """By what holders are grouped."""

    QUEUE = "queue"
    NAMESPACE = "namespace"
    USER = "user"
    JOB = "job"


class HolderView(msgspec.Struct, frozen=True):
    """What the placements of some jobs hold: the jobs of one queue, namespace or submitter, or one job
    (`namespace/name`). `queue` is that of a single job. The name is empty for pods that fill no slot of a job:
    with `leaving` those of jobs that are about to leave their room, which may be another job's already, and all others
    without."""

    name: str
    amounts: Sums
    jobs: int
    pods: int
    queue: str = ""
    leaving: bool = False


class _Own:
    """What a queue's own jobs add up to."""

    def __init__(self, used: Mapping[str, int]) -> None:
        self.used = {resource: amount for resource, amount in used.items() if resource != JOBS}
        self.demand = dict(self.used)
        self.waiting = 0
        self.running = used.get(JOBS, 0)
        self.denials: dict[DenialKind, int] = {}


def queues_view(state: State) -> QueuesView:
    """Every queue, and those that jobs name and that don't exist. It looks once at each queue and job."""
    tree = state.queue_tree
    jobs, _ = considered(state, waiting_jobs(state, state.time_ms))
    standing = QueueStanding(state, jobs, state.time_ms)
    beyond = beyond_limits(state, jobs)
    own = _own(state, [job for job in jobs if job.uid not in beyond])
    views = {
        name: _view(state, name, own.get(name) or _Own({}), standing)
        for name in sorted({*tree.specs, *tree.problems, *own})
    }
    _add_below(tree, views)
    _add_problems(tree, views, standing.total)
    _add_unknown_resources(tree, views, state.nodes.columns)
    return QueuesView({name: views[name] for name in _tree_order(tree, views)}, standing.total)


def positions(state: State, order: Iterable[JobRecord]) -> dict[str, tuple[str, int]]:
    """Job UID → its queue and its position there, from 1. `order` has the waiting jobs in their order."""
    counts: dict[str, int] = {}
    found = {}
    for job in order:
        name = queue_of(state, job)
        counts[name] = counts.get(name, 0) + 1
        found[job.uid] = (name, counts[name])
    return found


def holders(state: State, by: HolderKind, *, within: str = "") -> list[HolderView]:
    """Who holds something, by name, and in the end, the pods that fill no slot. `within` selects the jobs of one queue
    and of those below it, and leaves such pods out."""
    paths = state.queue_tree.paths
    found: dict[str, tuple[Sums, list[int], str]] = {}
    for job in state.jobs.values():
        queue = queue_of(state, job)
        within_it = not within or within in paths.get(queue, (queue,))
        if within_it and (slots := [*state.slots_in_use(job)]):
            amounts, counts, _ = found.setdefault(_holder_name(job, queue, by), ({}, [0, 0], queue))
            _add(amounts, sum_of(job, slots))
            counts[0] += 1
            counts[1] += len(slots)
    lines = [
        HolderView(name, amounts, jobs, pods, queue if by == HolderKind.JOB else "")
        for name, (amounts, (jobs, pods), queue) in sorted(found.items())
    ]
    return lines if within else [*lines, *_in_no_slot(state)]


def _holder_name(job: JobRecord, queue: str, by: HolderKind) -> str:
    if by == HolderKind.QUEUE:
        return queue
    if by == HolderKind.NAMESPACE:
        return job.seen.namespace
    return submitter_of(job) if by == HolderKind.USER else f"{job.seen.namespace}/{job.seen.name}"


def _in_no_slot(state: State) -> list[HolderView]:
    """The pods that hold something without a slot of a job, and of them apart those that leave."""
    bound = {uid for job in state.jobs.values() for uid in job.bound.values()}
    pods = [pod for uid, pod in state.pods.items() if uid not in bound and holds(pod)]
    found = []
    for leaving in (True, False):
        these = [pod for pod in pods if leaves(state, pod) == leaving]
        amounts: Sums = {}
        for pod in these:
            _add(amounts, dict(pod.requests))
        if these:
            found.append(HolderView("", amounts, 0, len(these), leaving=leaving))
    return found


def _own(state: State, demanding: Iterable[JobRecord]) -> dict[str, _Own]:
    """Queue → what its own jobs add up to; only queues with jobs that hold or wait for something."""
    found = {name: _Own(used) for name, used in state.queue_use.own.items()}
    for job in state.jobs.values():
        if not job.placements and job.active and not job.stands_still and job.stage in _WAITING:
            own = found.setdefault(queue_of(state, job), _Own({}))
            own.waiting += 1
            denial = kept_out(state, job)
            if denial is not None:
                own.denials[denial.kind] = own.denials.get(denial.kind, 0) + 1
    non_preemptible = NonPreemptibleLeft(state)
    for job in demanding:
        _add(
            found.setdefault(queue_of(state, job), _Own({})).demand, non_preemptible.take(job, _sum(job, _lacking(job)))
        )
    known = frozenset(state.nodes.columns)
    for own in found.values():
        own.demand = {name: of for name, of in own.demand.items() if name in own.used or not _misspelt(name, known)}
    return found


@lru_cache(maxsize=4096)
def _misspelt(resource: str, known: frozenset[str]) -> bool:
    """Whether no node has had a resource, and one has a similar name. It may look like a GPU, and none is asked for.
    Nodes of another one, with no similar name, may still come."""
    return resource not in known and bool(similar_resource(resource, known))


def _view(state: State, name: str, own: _Own, standing: QueueStanding) -> QueueView:
    tree, seen = state.queue_tree, state.queues.get(name)
    path = tree.paths.get(name, ())
    closed = [each for each in path if tree.specs[each].state == QueueState.CLOSED]
    averages = standing.averages.get(name, {})  # in thousandths
    return QueueView(
        name=name,
        uid=seen.uid if seen is not None else "",
        spec=tree.specs.get(name),
        path=path,
        problem=tree.problems.get(name),
        closed=closed[0] if closed else "",
        used=dict(own.used),
        own_used=own.used,
        demand=dict(own.demand),
        own_demand=own.demand,
        share=dict(standing.shares.get(name, {})),
        usage={of: average // 1000 for of, average in averages.items() if average >= 1000 and of != JOBS},
        waiting=own.waiting,
        running=own.running,
        own_waiting=own.waiting,
        own_running=own.running,
        denials=own.denials,
    )


def _add_below(tree: QueueTree, views: dict[str, QueueView]) -> None:
    """Add to each queue what the queues below it use, used and demand, and their jobs."""
    for name in sorted(tree.paths, key=lambda name: -len(tree.paths[name])):
        view, parent = views[name], tree.specs[name].parent
        if parent:
            above = views[parent]
            _add(above.used, view.used)
            _add(above.demand, view.demand)
            _add(above.usage, view.usage)
            counts = {"waiting": above.waiting + view.waiting, "running": above.running + view.running}
            views[parent] = msgspec.structs.replace(above, **counts)


def _add_problems(tree: QueueTree, views: dict[str, QueueView], total: Mapping[str, int]) -> None:
    """Give the queues with a guarantee, and without another problem, that all guarantees are more than the nodes offer.
    A resource that no node has counts for nothing: no job gets it anyway."""
    promised = {name: amount for name, amount in _guaranteed(tree).items() if amount > total.get(name, amount)}
    for name in tree.paths if promised else ():
        for resource, amount in tree.specs[name].guarantee:
            if amount and resource in promised and views[name].problem is None and not views[name].closed:
                problem = QueueProblem(
                    QueueProblemKind.ABOVE_CLUSTER,
                    name,
                    field="guarantee",
                    resource=resource,
                    amount=promised[resource],
                    limit=total[resource],
                )
                views[name] = msgspec.structs.replace(views[name], problem=problem)


def _add_unknown_resources(tree: QueueTree, views: dict[str, QueueView], known: Collection[str]) -> None:
    """Give the open queues without another problem the first resource that no node has had and that is probably
    misspelt. Nodes of another one, with no similar name, may still come."""
    for name in tree.paths:
        spec = tree.specs[name]
        amounts = [
            (field, resource)
            for field in ("guarantee", "deserved", "capability")
            for resource, _ in getattr(spec, field)
            if resource not in known
        ]
        for field, resource in amounts:
            meant = similar_resource(resource, known)
            if meant and views[name].problem is None and not views[name].closed:
                problem = QueueProblem(
                    QueueProblemKind.UNKNOWN_RESOURCE, name, field=field, resource=resource, meant=meant
                )
                views[name] = msgspec.structs.replace(views[name], problem=problem)


def _guaranteed(tree: QueueTree) -> Sums:
    """What all open queues together are guaranteed: a queue's guarantee is its own, or the sum of its children's where
    that is more, and at most its capability."""
    below: dict[str, Sums] = {}
    for name in sorted(tree.paths, key=lambda name: -len(tree.paths[name])):
        spec, most = tree.specs[name], dict(tree.specs[name].capability)
        amounts, own = below.get(name, {}), dict(spec.guarantee) if not tree.is_closed(name) else {}
        for resource in sorted({*amounts, *own}):
            amount = max(amounts.get(resource, 0), own.get(resource, 0))
            _add(below.setdefault(spec.parent, {}), {resource: min(amount, most.get(resource, amount))})
    return below.get("", {})


def _tree_order(tree: QueueTree, views: Mapping[str, QueueView]) -> list[str]:
    """The queues depth first, each level by name, then those without a way to the root."""
    order: list[str] = []
    left = [*reversed(tree.children.get("", ()))]
    while left:
        order.append(left.pop())
        left += reversed(tree.children.get(order[-1], ()))
    return [*order, *(name for name in views if name not in tree.paths)]


def _lacking(job: JobRecord) -> dict[int, int]:
    """How many pods of each group still need nodes."""
    slots = job.slots
    there = _counts(slots.nodes) + _counts(slots.given_up) + _counts(slots.finished)
    lacking = {number: of.count - there[number] for number, of in enumerate(job.valid_spec.groups)}
    return {number: count for number, count in lacking.items() if count > 0}


def _counts(slots: Iterable[SlotKey]) -> Counter[int]:
    """How many of the slots each group has."""
    return Counter(map(itemgetter(0), slots))


def _sum(job: JobRecord, counts: Mapping[int, int]) -> Sums:
    """The requests of so many pods of each group."""
    amounts: Sums = {}
    for number, count in counts.items():
        for resource, amount in job.valid_spec.groups[number].shape.requests:
            amounts[resource] = amounts.get(resource, 0) + amount * count
    return amounts


def _add(amounts: Sums, more: Mapping[str, int]) -> None:
    for resource, amount in more.items():
        amounts[resource] = amounts.get(resource, 0) + amount
