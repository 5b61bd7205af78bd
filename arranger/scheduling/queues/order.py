"""The order among queues in one cycle: whose job is next.

The ratio of a queue is dominant, as in DRF (Ghodsi et al., NSDI 2011): the largest, over the resources, of what the
queue and its descendants use / their share. It is at least 1 for a queue whose jobs request a resource of which it is
entitled to nothing: the first of them would lift it above its share, and jobs of queues within theirs would take the
room back. The walk begins at the root and goes to the child with the lowest ratio, ties by the seniority of the first
job that waits there, until it reaches jobs. A queue's own jobs beside its children are one more child, as in
`queues/fair_shares`, and their share is what the children's shares leave.

With a half-life, a queue's average use (`arranger.model.decayed_usage`) is added to what it uses now. So a queue that
used its share for long and now uses nothing has the ratio 1, as one that uses its share now and never did before.

Shares are for each resource alone. So children that use different resources don't add up against their parent, for
which H-DRF (Bhattacharya et al., SoCC 2013) rescales them: while every queue is within its share, no ratio exceeds 1.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple

from arranger.scheduling.queues.fair_shares import ROOT, ByResource, Claims

#: The ratio 1: ratios are in billionths.
WHOLE = 1_000_000_000

#: Use is counted in thousandths of the base unit, as averages are.
_THOUSANDTHS = 1000
_SCALE = WHOLE // _THOUSANDTHS


def _ratio(used: int, share: int, total: int) -> int:
    """The ratio of one resource, in billionths. Without a share, 1 and the part of the cluster that is used."""
    return used * _SCALE // share if share else WHOLE + used * _SCALE // max(total, 1)


def _dominant(used: Sequence[int], share: Sequence[int], total: Sequence[int]) -> int:
    """The highest ratio of all resources that are used or shared; 1 without any: such a queue has all that it is
    entitled to."""
    highest = -1
    for has, part, whole in zip(used, share, total, strict=True):  # a loop takes half as long as a comprehension
        if has or part:
            ratio = has * _SCALE // part if part else _ratio(has, 0, whole)
            if ratio > highest:  # noqa: PLR1730  # max() takes a tenth of the time
                highest = ratio
    return highest if highest >= 0 else WHOLE


class Unentitled(NamedTuple):
    """The queues whose jobs request something of which they are entitled to nothing, each with the first such resource
    by name: those with the jobs below them, and those whose own jobs do."""

    queues: Mapping[str, str]
    own: Mapping[str, str]


#: The seniority of a line's first job: the smaller, the more senior.
Seniority = tuple[object, ...]


class _Child:
    """A queue, or a queue's own jobs, in the order. Amounts are lists by resource; `used` is in thousandths.
    `first_job` is that of the most senior job; it ends with the name of its line, so no two siblings have the same."""

    __slots__ = ("children", "first_job", "name", "open", "parent", "ratio", "share", "used")

    def __init__(self, name: str, parent: "_Child | None", share: list[int], used: list[int], ratio: int) -> None:
        self.name = name
        self.parent = parent
        self.share = share
        self.used = used
        self.ratio = ratio
        self.first_job: Seniority = ()
        #: A heap by ratio and first job, None for jobs. A ratio in it is too low if the child got amounts since it was
        #: last first.
        self.children: list[tuple[int, Seniority, _Child]] | None = None
        self.open = True

    def first(self) -> "_Child | None":
        """The open child with the lowest ratio; None without one."""
        while self.children:
            ratio, first_job, child = self.children[0]
            if not child.open:
                heappop(self.children)
            elif ratio != child.ratio:
                heapreplace(self.children, (child.ratio, first_job, child))
            else:
                return child
        return None


class QueueOrder:
    """The queues with jobs to place in one cycle, each with what it uses, which grows as its jobs get nodes."""

    def __init__(
        self,
        claims: Claims,
        total: ByResource,
        *,
        shares: Mapping[str, ByResource],
        used: Mapping[str, ByResource],
        waiting: Mapping[str, Seniority],
        averages: Mapping[str, ByResource] | None = None,
        unentitled: Unentitled | None = None,
    ) -> None:
        """Begin a cycle.

        `shares` is what `queues/fair_shares` found for the same queues and total. `used`: queue → what its own jobs
        use, in base units; `averages`: the same on average with a half-life, in thousandths of base units; both without
        the descendants' jobs. `waiting`: the queues with jobs of their own to place, each with the seniority of the
        first one. `unentitled` is of the same shares. A queue that the root doesn't lead to gets no turn.
        """
        resources = sorted(total)
        self._resources = {resource: index for index, resource in enumerate(resources)}
        self._total = [total[name] for name in resources]
        self._unentitled = unentitled or Unentitled({}, {})
        self._head: str | None = None
        names = [queue.name for queue in claims.queues]
        own = [_own(one, names, used, averages or {}) for one in resources]
        of_queues = [[shares[name][one] for one in resources] for name in names]
        self._root = _Child(ROOT, None, [], [], WHOLE)
        self._root.children = []
        #: Where the way to the next head begins.
        self._from = self._root
        self._queues = {ROOT: self._root}
        #: Queue → what stands for its own jobs: itself, or one more child beside its children.
        self._jobs: dict[str, _Child] = {}
        entered = self._enter(claims, [name in waiting for name in names], of_queues, own)
        for name, child in self._jobs.items():
            child.first_job = (*waiting[name], name)
        _heap(entered)
        heapify(self._root.children)

    def _enter(
        self, claims: Claims, waiting: Sequence[bool], shares: Sequence[list[int]], own: Sequence[list[int]]
    ) -> list[_Child]:
        """Enter the queues with jobs to place, parents first; `own` has a list for each resource."""
        totals = [*zip(*map(claims.with_descendants, own), strict=True)] or [()] * len(shares)
        entered = []
        for at in _turns(claims, waiting):
            name, parent = claims.queues[at].name, claims.queues[at].parent
            child = self._queues[name] = self._add(name, parent, shares[at], totals[at], self._unentitled.queues)
            entered.append(child)
            if waiting[at] and claims.children[at]:
                below = [shares[of] for of in claims.children[at]]
                left = [has - sum(of) for has, *of in zip(shares[at], *below, strict=True)]
                child = self._add(name, name, left, [of[at] for of in own], self._unentitled.own)
                entered.append(child)
            if waiting[at]:
                self._jobs[name] = child
        return entered

    def _add(
        self, name: str, parent: str, share: list[int], used: Sequence[int], unentitled: Collection[str]
    ) -> _Child:
        above = self._queues[parent]
        if above.children is None:
            above.children = []
        ratio = _dominant(used, share, self._total)
        return _Child(name, above, share, list(used), max(ratio, WHOLE) if name in unentitled else ratio)

    def head(self) -> str | None:
        """The queue whose own jobs are next; None if no queue is left."""
        if self._head is None:
            child = self._from
            while child.children is not None:
                first = child.first()
                if first is None and child.parent is None:
                    return None
                if first is None:
                    child.open = False
                child = first or child.parent or self._root
            self._head, self._from = child.name, self._root
        return self._head

    def ratio(self, name: str, *, own: bool = False) -> int:
        """What the queue and its descendants use now / their share, in billionths; with `own`, that of its own jobs
        beside those of its children.

        Raises KeyError for a queue that has no jobs to place, itself or below.
        """
        return self._child(name, own=own).ratio

    def has_share(self, name: str, *, own: bool = False) -> bool:
        """Whether there is a share of anything. Raises KeyError as `ratio`."""
        return any(self._child(name, own=own).share)

    def _child(self, name: str, *, own: bool) -> _Child:
        return (self._jobs if own else self._queues)[name]

    def dominant(self, name: str, *, own: bool = False) -> tuple[str, int]:
        """The resource that decides the `ratio`, and the share of it, in its unit; no name if nothing is used. Raises
        KeyError as `ratio`."""
        child, found = self._child(name, own=own), ("", 0)
        for resource, index in self._resources.items():
            has, part = child.used[index], child.share[index]
            if has and _ratio(has, part, self._total[index]) == child.ratio and not found[0]:
                found = resource, part
        return found

    def give(self, name: str, amounts: ByResource) -> None:
        """Count amounts that jobs of the queue itself got, in base units; resources that the cluster lacks don't count.

        Amounts are never taken back in a cycle: ratios only grow. Raises KeyError for a queue that wasn't waiting.
        """
        self._head, self._from = None, self._root
        given = [
            (self._resources[resource], amount * _THOUSANDTHS)
            for resource, amount in amounts.items()
            if amount and resource in self._resources
        ]
        child = self._jobs[name]
        while child.parent is not None:
            used, share, ratio = child.used, child.share, child.ratio
            for index, amount in given:
                used[index] = has = used[index] + amount
                part = share[index]
                reached = has * _SCALE // part if part else _ratio(has, 0, self._total[index])
                if reached > ratio:  # noqa: PLR1730  # max() takes a tenth of this method's time
                    ratio = reached
            child.ratio = ratio
            child = child.parent

    def finish(self, name: str) -> None:
        """The queue itself has no more jobs to place in this cycle. Its descendants may have."""
        child = self._jobs[name]
        child.open = False
        # No ratio changes, so those that were before the others on the way to the head still are.
        self._from = child.parent if name == self._head and child.parent is not None else self._root
        self._head = None


def _heap(entered: Sequence[_Child]) -> None:
    """Put each child, parents first, into the heap of its parent. A queue is as senior as the first of its children;
    without seniorities, its own name decides."""
    for child in reversed(entered):
        if child.children is not None:
            heapify(child.children)
            first_job = min(first_job for _, first_job, _ in child.children)
            child.first_job = first_job if len(first_job) > 1 else (child.name,)
        if child.parent is not None and child.parent.children is not None:
            child.parent.children.append((child.ratio, child.first_job, child))


def _own(
    resource: str, names: Iterable[str], used: Mapping[str, ByResource], averages: Mapping[str, ByResource]
) -> list[int]:
    """What each queue's own jobs use of a resource, with their average, in thousandths."""
    now = [used.get(name, _NOTHING).get(resource, 0) * _THOUSANDTHS for name in names]
    if not averages:
        return now
    return [has + averages.get(name, _NOTHING).get(resource, 0) for name, has in zip(names, now, strict=True)]


_NOTHING: ByResource = {}


def _turns(claims: Claims, waiting: Sequence[bool]) -> list[int]:
    """The queues that have jobs to place, themselves or below."""
    turns = list(waiting)
    for at in range(len(turns) - 1, claims.first - 1, -1):
        if turns[at]:
            turns[claims.parents[at]] = True
    return [at for at, has in enumerate(turns) if has]
