"""What each queue may still have in one cycle: the limits on the way from it to the root.

`capability`: a queue and those below it never use more. Guarantees are never lent, so what is guaranteed to an open
queue is held for it, used or not. A queue holds what its own jobs use and what its children hold, at least its
guarantee and at most its capability, or what it uses if that is more: jobs keep their nodes where a capability was
lowered. What the queues below the root hold together is at most what the nodes offer
(`queues/offer`), and what is held within a queue is at most its capability. A placement that lies within a guarantee
takes what is held already, so it is never refused for the sake of another guarantee.

`nonPreemptible: WithinDeserved`: jobs that can't be preempted use at most what the queue deserves. It is as the
capability of resources that only these jobs use (`non_preemptible_amounts`), beside what they request.

A cycle may look at the limits of a thousand queues for each of their thousands of jobs. So the queues have positions,
amounts are lists by position, and only those on the way to the root that state an amount of a resource are looked at.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from arranger.model.job import PodGroup
from arranger.model.queue import Amounts
from arranger.model.quota import LimitKind, LimitName, QuotaLack
from arranger.projections.queues.tree import QueueTree
from arranger.projections.queues.use import (
    JOBS,
    counted_name,
    is_non_preemptible,
    non_preemptible_amounts,
    offered_resource,
    resource_of,
)
from arranger.projections.state import State
from arranger.scheduling.queues.fair_shares import ROOT
from arranger.scheduling.queues.offer import offered

#: The position of the root: lists have it last.
_ROOT = -1
#: More than any amount.
_NO_LIMIT = 1 << 200


class QueueLimits:
    """The limits of a tree: of the queues with a way to the root, parents first, and of the root. They depend on no
    job, so a process keeps them while no queue changes."""

    def __init__(self, tree: QueueTree) -> None:
        paths = sorted(tree.paths.items(), key=_depth)
        self.names = [*(name for name, _ in paths), ROOT]
        self.at = {name: at for at, (name, _) in enumerate(paths)}
        self.parents = [self.at[path[1]] if len(path) > 1 else _ROOT for _, path in paths]
        self.max_running = [tree.specs[name].max_running for name, _ in paths]
        #: Whether some queue limits its jobs with nodes.
        self.counts_jobs = any([most is not None for most in self.max_running])
        kept = _kept(tree)
        #: Resources of which some queue has a guarantee.
        self.guaranteed = {resource for guarantee in kept.values() for resource, _ in guarantee}
        #: The resources that the limits of each queue are about.
        self.limited: list[tuple[str, ...]] = []
        #: Resource → each queue's capability, `_NO_LIMIT` for none, and its guarantee.
        self.most: dict[str, list[int]] = {}
        self.promised: dict[str, list[int]] = {}
        everywhere = dict.fromkeys(sorted(self.guaranteed))
        for name in everywhere:
            self._of(name)
        for at, (name, _) in enumerate(paths):
            spec = tree.specs[name]
            above = self.limited[self.parents[at]] if self.parents[at] != _ROOT else tuple(everywhere)
            most = (*spec.capability, *non_preemptible_amounts(spec.most_non_preemptible))
            own = [resource for resource, _ in most]
            self.limited.append(above if set(above).issuperset(own) else tuple(dict.fromkeys((*above, *own))))
            for resource, amount in most:
                self._of(resource)[0][at] = amount
            for resource, amount in kept[name]:
                self._of(resource)[1][at] = amount
        #: Resource → for each queue, those on its way to the root that limit the resource or have a guarantee of it.
        self.ways = {resource: self._ways_of(resource) for resource in self.most}

    @property
    def counts_non_preemptible(self) -> bool:
        """Whether some queue limits what its jobs use that can't be preempted."""
        return any(map(is_non_preemptible, self.most))

    def _ways_of(self, resource: str) -> list[tuple[int, ...]]:
        ways: list[tuple[int, ...]] = [()] * len(self.names)
        most, promised = self.most[resource], self.promised[resource]
        for at, above in enumerate(self.parents):
            ways[at] = (at, *ways[above]) if most[at] != _NO_LIMIT or promised[at] else ways[above]
        return ways

    def _of(self, resource: str) -> tuple[list[int], list[int]]:
        count = len(self.names)
        most = self.most.setdefault(resource, [])
        promised = self.promised.setdefault(resource, [])
        if not most:
            most += [_NO_LIMIT] * count
            promised += [0] * count
        return most, promised


def _kept(tree: QueueTree) -> dict[str, Amounts]:
    """What is guaranteed to each queue; no job of a closed one may start in what would be kept for it."""
    return {name: () if tree.is_closed(name) else spec.guarantee for name, spec in tree.specs.items()}


def _depth(entry: tuple[str, tuple[str, ...]]) -> int:
    return len(entry[1])


class _Limit(NamedTuple):
    """What a limit leaves of a resource for one queue's jobs: maybe less than 0."""

    left: int
    kind: LimitKind
    queue: str
    most: int


class _Resource:
    """One limited resource in one cycle; lists are by position, and kept up to date for the queues that state an amount
    of it. `used` is by a queue and the queues below it; `inside` is what its own jobs use and its children hold, empty
    for a resource without guarantees."""

    def __init__(self, limits: QueueLimits, name: str, state: State, total: int) -> None:
        self._limits = limits
        self._ways, self._most, self._promised = limits.ways[name], limits.most[name], limits.promised[name]
        totals = state.queue_totals
        self._used = [totals[of].get(name, 0) if of in totals else 0 for of in limits.names]
        self._total = total
        self._kind = LimitKind.NON_PREEMPTIBLE if is_non_preemptible(name) else LimitKind.CAPABILITY
        #: Whether the guarantees keep nothing, for a while.
        self.lends = False
        self._inside = self._held(name, state) if name in limits.guaranteed else []

    def _held(self, name: str, state: State) -> list[int]:
        """What is held within each queue. A queue without a way to the root uses what the nodes offer, too."""
        inside, most, promised = [0] * len(self._used), self._most, self._promised
        for queue, amounts in state.queue_use.own.items():
            if name in amounts:
                inside[self._limits.at.get(queue, _ROOT)] += amounts[name]
        parents = self._limits.parents
        for at in range(len(parents) - 1, -1, -1):
            inside[parents[at]] += _holds(inside[at], self._used[at], promised[at], most[at])
        return inside

    def offer(self, amount: int) -> None:
        """The nodes offer so much more, or less."""
        self._total += amount

    def use(self, at: int, amount: int) -> None:
        """The own jobs of a queue use so much more, or less."""
        way, used, inside = self._ways[at], self._used, self._inside
        for queue in way:
            used[queue] += amount
        if not inside:
            return
        more = amount
        for queue in way:
            before, most, promised = inside[queue], self._most[queue], self._promised[queue]
            inside[queue] = after = before + more
            more = _holds(after, used[queue], promised, most) - _holds(before, used[queue] - amount, promised, most)
        inside[_ROOT] += more

    def left(self, at: int) -> int:
        """What the tightest limit of a queue leaves: the least of `limits`."""
        used, inside, least, slack = self._used, self._inside if not self.lends else (), _NO_LIMIT, 0
        for queue in self._ways[at]:
            most = self._most[queue]
            least = min(least, most - used[queue])
            if inside:
                held, promised = inside[queue], self._promised[queue]
                if promised > held:
                    slack += promised - held
                    held = promised
                least = min(least, slack + max(most - held, 0))
        return min(least, slack + max(self._total - inside[_ROOT], 0)) if inside else least

    def exceeds_guarantee(self, at: int) -> bool:
        """Whether a queue holds more than is guaranteed to it; where nothing is, it may."""
        promised = self._promised[at]
        return not promised or max(self._used[at], self._inside[at] if self._inside else 0) > promised

    def limits(self, at: int) -> Iterator[_Limit]:
        """Every limit from a queue to the root."""
        slack, names, kept = 0, self._limits.names, bool(self._inside) and not self.lends
        for queue in self._ways[at]:
            most, inside = self._most[queue], self._inside[queue] if kept else 0
            promised = self._promised[queue]
            slack += max(promised - inside, 0)
            if most != _NO_LIMIT:
                yield _Limit(most - self._used[queue], self._kind, names[queue], most)
            if most != _NO_LIMIT and kept:
                free = max(most - max(promised, inside), 0)
                yield _Limit(slack + free, LimitKind.GUARANTEES, names[queue], most)
        if kept:
            free = max(self._total - self._inside[_ROOT], 0)
            yield _Limit(slack + free, LimitKind.GUARANTEES, ROOT, self._total)


def _holds(inside: int, used: int, promised: int, most: int) -> int:
    """What a queue with these amounts holds."""
    return max(used, min(max(inside, promised), most))


class QueueRoom:
    """The limits of all queues in one cycle; what is placed counts at once. `time_ms` decides which assumed pods still
    hold their room."""

    def __init__(self, state: State, time_ms: int, limits: QueueLimits | None = None) -> None:
        self._limits = limits = QueueLimits(state.queue_tree) if limits is None else limits
        self.counts_jobs, self.guaranteed = limits.counts_jobs, limits.guaranteed
        self.counts_non_preemptible = limits.counts_non_preemptible
        total = offered(state, time_ms)
        self._resources = {name: _Resource(limits, name, state, total.get(name, 0)) for name in limits.most}
        totals = state.queue_totals
        #: The jobs with nodes of each queue and those below it.
        self._running = [totals.get(name, _NOTHING).get(JOBS, 0) for name in limits.names] if self.counts_jobs else []

    def limited(self, name: str) -> tuple[str, ...]:
        """The resources that the limits of a queue's jobs are about; none for a queue without a way to the root."""
        at = self._limits.at.get(name)
        return self._limits.limited[at] if at is not None else ()

    def use(self, name: str, resource: str, amount: int) -> None:
        """The jobs of a queue use so much more; less, if that is undone. A name of `offered_amounts` says how much more
        the nodes offer."""
        if offered_name := offered_resource(resource):
            if offered_name in self._resources:
                self._resources[offered_name].offer(amount)
            return
        of = self._resources.get(resource)
        if of is not None:
            of.use(self._limits.at.get(name, _ROOT), amount)

    def begin(self, name: str, jobs: int = 1) -> None:
        """Jobs of a queue have got their first nodes, or lost their last ones (negative)."""
        at = self._limits.at.get(name, _ROOT)
        while at != _ROOT:
            self._running[at] += jobs
            at = self._limits.parents[at]

    def lend(self, lends: bool) -> None:
        """From now on the guarantees keep nothing, or keep again what they did."""
        for of in self._resources.values():
            of.lends = lends

    def left(self, name: str, resource: str) -> int:
        """What the tightest limit leaves of a limited resource."""
        return self._resources[resource].left(self._limits.at[name])

    def leaves(self, name: str, needed: Mapping[str, int]) -> bool:
        """Whether the limits of a queue leave all these amounts. An amount of 0 needs nothing."""
        at = self._limits.at.get(name)
        if at is None:
            return True
        for resource in self._limits.limited[at]:
            amount = needed.get(resource)
            if amount and amount > self._resources[resource].left(at):
                return False
        return True

    def limits(self, name: str, resource: str) -> Iterator[_Limit]:
        """Everything that limits how much of a resource the jobs of a queue get, from the queue to the root."""
        of = self._resources.get(resource)
        return of.limits(self._limits.at.get(name, _ROOT)) if of is not None else iter(())

    def lending(self, resource: str) -> set[str]:
        """The queues whose jobs leave some of a resource to all others as they end: each queue directly below the root
        that holds more than is guaranteed to it, with those below it."""
        of, limits, found = self._resources.get(resource), self._limits, set[str]()
        if of is None:
            return found
        for at, name in enumerate(limits.names[:_ROOT]):
            above = limits.parents[at]
            if limits.names[above] in found or (above == _ROOT and of.exceeds_guarantee(at)):
                found.add(name)
        return found

    def left_of(self, limit: LimitName) -> int:
        """What one limit of a queue leaves: maybe less than 0."""
        if limit.limit == LimitKind.MAX_RUNNING:
            at = self._limits.at[limit.queue]
            return (self._limits.max_running[at] or 0) - self._running[at]
        limits = self.limits(limit.queue, counted_name(limit))
        return next(of.left for of in limits if (of.queue, of.kind) == (limit.queue, limit.limit))

    def over(self, name: str) -> bool:
        """Whether a queue, or one above it, has more than a limit allows."""
        at = self._limits.at.get(name)
        while at is not None and at != _ROOT:
            most = self._limits.max_running[at]
            if most is not None and self._running[at] > most:
                return True
            at = self._limits.parents[at]
        limits = (limit for resource in self.limited(name) for limit in self.limits(name, resource))
        return any(limit.left < 0 for limit in limits if limit.kind == LimitKind.CAPABILITY)

    def full(self, name: str) -> QuotaLack | None:
        """The lack if no more jobs of a queue may get their first nodes."""
        at = self._limits.at.get(name, _ROOT) if self.counts_jobs else _ROOT
        while at != _ROOT:
            most = self._limits.max_running[at]
            if most is not None and self._running[at] >= most:
                return QuotaLack("", JOBS, 1, 0, most, self._limits.names[at], LimitKind.MAX_RUNNING)
            at = self._limits.parents[at]
        return None


_NOTHING: Mapping[str, int] = {}


class QueueAccount:
    """The limits for the jobs of one queue, as an account of `Quotas`."""

    def __init__(self, room: QueueRoom, name: str, *, non_preemptible: bool = False) -> None:
        """`non_preemptible`: of those of its jobs that can't be preempted."""
        self._room = room
        self._name = name
        self._limited = tuple([of for of in room.limited(name) if non_preemptible or not is_non_preemptible(of)])
        self._non_preemptible = any([is_non_preemptible(of) for of in self._limited])
        #: The last group whose pods were asked for, and what one of them uses.
        self._group: PodGroup | None = None
        self._uses: dict[str, int] = {}

    @property
    def limited(self) -> bool:
        """Whether anything limits these jobs."""
        return bool(self._limited)

    @property
    def left(self) -> Mapping[str, int]:
        """Resource → what the tightest limit leaves."""
        return {resource: self._room.left(self._name, resource) for resource in self._limited}

    def leaves(self, resource: str, amount: int) -> bool:
        """Whether the limits leave so much of a limited resource."""
        return amount <= self._room.left(self._name, resource)

    def uses(self, group: PodGroup) -> dict[str, int]:
        """What a pod of the group uses of the limited resources."""
        if group is not self._group:
            self._group = group
            requests = group.shape.requests
            amounts = (*requests, *non_preemptible_amounts(requests)) if self._non_preemptible else requests
            self._uses = {name: value for name, value in amounts if value and name in self._limited}
        return self._uses

    def take(self, resource: str, amount: int) -> None:
        self._room.use(self._name, resource, amount)

    def lacks(self, needed: Mapping[str, int]) -> list[QuotaLack]:
        """The first lack of every resource that is needed beyond what is left."""
        short = [name for name, value in needed.items() if value and not self.leaves(name, value)]
        return [self._lack(name, needed[name]) for name in sorted(short)]

    def _lack(self, resource: str, needed: int) -> QuotaLack:
        short = [limit for limit in self._room.limits(self._name, resource) if needed > limit.left]
        lacks = [QuotaLack("", resource_of(resource), needed, of.left, of.most, of.queue, of.kind) for of in short]
        return min(lacks, key=lambda lack: (not lack.never, lack.limit))
