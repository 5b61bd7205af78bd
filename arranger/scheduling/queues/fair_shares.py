"""Shares of queues: how much of each resource of the cluster a queue is entitled to now.

The shares are weighted max-min fair (progressive filling: Bertsekas and Gallager, "Data Networks", 1992, section
6.5.2), for each resource alone, down a tree of queues. At every queue, its children divide what the queue has, in three
steps. Each step divides what the previous one left:

1. Guarantees, in proportion if not all can be met. A queue's guarantee is its own, or the sum of its children's where
   that is more, as where it states none (`queues/tree` sees to it that a stated one isn't exceeded).
2. Deserved amounts beyond the guarantees, in proportion if not all can be met. A queue that states none deserves what
   its children deserve together.
3. The rest by weight, among the queues that still want more.

The steps follow Volcano (`guarantee`, `deserved` and `weight` of its capacity and proportion plugins) and KAI's
division of resources. H-DRF (Bhattacharya et al., SoCC 2013) divides down a tree too. A queue's own jobs beside its
children are one more child, with weight 1, no guarantee and no deserved amount.

What a queue can take is limited by its demand (what its jobs hold and what they still request) and by its capability.
There is one exception: a guarantee is never lent, so a queue takes its guarantee even if it demands less. The
difference is *reserved*. It belongs to no share, no other queue's share includes it, and it counts towards the
capabilities above it. So the shares are work-conserving in this sense: if a queue's share is less than its demand, then
on its path the shares and reserved amounts fill a capability or the whole cluster.

Amounts are whole numbers. So each step gives its units one by one, to the queue with the lowest (2 x units it got + 1)
/ weight, ties by name (the method of Webster and Sainte-Laguë). Unlike the largest remainder, this never takes a unit
from a queue because there is more to divide.
"""

from bisect import bisect
from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple

import msgspec

#: Resource → amount in its base unit.
ByResource = Mapping[str, int]

#: The weight of a queue's own jobs beside its children.
OWN_WEIGHT = 1

#: The parent of queues without one. No queue has this name.
ROOT = ""


class QueueClaims(msgspec.Struct, frozen=True, kw_only=True):
    """What one queue may claim, and what its own jobs demand.

    `demand` is what its own jobs hold plus what its waiting jobs still request, without its descendants' jobs. A
    resource without an amount in `capability` has no limit.
    """

    name: str
    parent: str = ROOT
    weight: int = 1
    guarantee: ByResource = {}
    deserved: ByResource = {}
    capability: ByResource = {}
    demand: ByResource = {}


class QueueParts(NamedTuple):
    """A queue, by its position in `Claims.queues` and -1 for the root, and the parts into which what it has is divided:
    its children, by name, and its own jobs among them. The own jobs of the queue `n` of `count` are at `count + n`."""

    parent: int
    parts: list[int]
    weights: list[int]


class Claims:
    """The queues that the root leads to: parents before their children, and siblings by name."""

    def __init__(self, queues: Iterable[QueueClaims]) -> None:
        children: dict[str, list[QueueClaims]] = {}
        for queue in sorted(queues, key=_name):
            children.setdefault(queue.parent, []).append(queue)
        self.queues: list[QueueClaims] = list(children.get(ROOT, ()))
        #: The number of queues below the root: the first ones.
        self.first = len(self.queues)
        #: The position in `queues` of each one's parent, -1 for the root, and of its children.
        self.parents: list[int] = [-1] * self.first
        self.children: list[range] = []
        for at, queue in enumerate(self.queues):  # which grows
            below = children.get(queue.name, ())
            self.children.append(range(len(self.queues), len(self.queues) + len(below)))
            self.queues += below
            self.parents += [at] * len(below)
        self.at = {queue.name: at for at, queue in enumerate(self.queues)}
        #: The queues that are divided, parents first.
        self.families = [QueueParts(-1, list(range(self.first)), [of.weight for of in self.queues[: self.first]])]
        self.families += [self._family(at, below) for at, below in enumerate(self.children) if below]

    def of_own(self, shares: Sequence[int]) -> list[int]:
        """What the own jobs of each queue have of its share: what its children leave."""
        own = list(shares)
        for at in range(self.first, len(own)):
            own[self.parents[at]] -= shares[at]
        return own

    def with_descendants(self, own: Sequence[int]) -> list[int]:
        """The sums of each queue's own amount and those of its descendants."""
        sums, parents = list(own), self.parents
        for at in range(len(own) - 1, self.first - 1, -1):
            sums[parents[at]] += sums[at]
        return sums

    def _family(self, at: int, below: range) -> QueueParts:
        parts, weights = list(below), [queue.weight for queue in self.queues[below.start : below.stop]]
        own = bisect([queue.name for queue in self.queues[below.start : below.stop]], self.queues[at].name)
        parts.insert(own, len(self.queues) + at)
        weights.insert(own, OWN_WEIGHT)
        return QueueParts(at, parts, weights)


def _name(queue: QueueClaims) -> str:
    return queue.name


class _Siblings:
    """The parts of a family, with what they claim of one resource; lists have one item for each part. It remembers its
    last division, because most queues don't change between two cycles."""

    __slots__ = ("_amount", "_beyond", "_got", "_guarantees", "_needs", "_weights")

    def __init__(self, weights: list[int], guarantees: list[int], deserved: list[int]) -> None:
        self._weights = weights
        self._guarantees = guarantees
        #: What each deserves beyond its guarantee; empty if that is nothing.
        beyond = [max(more - has, 0) for more, has in zip(deserved, guarantees, strict=True)]
        self._beyond = beyond if any(beyond) else []
        self._amount, self._needs, self._got = -1, [0], [0]

    def divide(self, amount: int, needs: list[int]) -> list[int]:
        """What each part gets of an amount, its reserved amount included: at most its need, and all of that if the
        amount suffices. No need is below the guarantee."""
        if amount != self._amount or needs != self._needs:
            self._amount, self._needs = amount, needs
            self._got = needs if sum(needs) <= amount else self._scarce(amount, needs)
        return self._got

    def _scarce(self, amount: int, needs: list[int]) -> list[int]:
        got = self._guarantees
        left = amount - sum(got)
        if left <= 0:
            return fill(amount, got, got)
        if self._beyond:
            limits = [min(more, need - has) for more, need, has in zip(self._beyond, needs, got, strict=True)]
            got = [has + more for has, more in zip(got, fill(left, self._beyond, limits), strict=True)]
            left = amount - sum(got)
        limits = [need - has for need, has in zip(needs, got, strict=True)]
        return [has + more for has, more in zip(got, fill(left, self._weights, limits), strict=True)]


class Division:
    """The division of one resource among these queues. `shares` gives the same whatever it was asked before.

    With `parts` of a unit, everything that the queues state is in these, and so is what the methods take and give.
    """

    def __init__(self, claims: Claims, resource: str, parts: int = 1) -> None:
        self._claims = claims
        nothing = [0] * len(claims.queues)
        self._limits = [_times(queue.capability.get(resource), parts) for queue in claims.queues]
        self._guarantees = [queue.guarantee.get(resource, 0) * parts for queue in claims.queues]
        self._guarantees = [
            has if limit is None or has < limit else limit
            for has, limit in zip(self._guarantees, self._limits, strict=True)
        ]
        guarantees = self._guarantees + nothing
        deserved = [_times(queue.deserved.get(resource), parts) for queue in claims.queues] + nothing
        self._siblings: list[_Siblings] = []
        for family in reversed(claims.families):
            at, of_parts = family.parent, [guarantees[part] for part in family.parts]
            deserving = [deserved[part] or 0 for part in family.parts]
            self._siblings.append(_Siblings(family.weights, of_parts, deserving))
            if at >= 0:
                limit, guaranteed = self._limits[at], max(guarantees[at], sum(of_parts))
                guarantees[at] = guaranteed if limit is None else min(guaranteed, limit)
                self._guarantees[at] = guarantees[at]
                if deserved[at] is None:
                    deserved[at] = sum(deserving)
        self._siblings.reverse()

    def shares(self, demand: Sequence[int], total: int) -> list[int]:
        """The share of each queue; `demand` is that of each one's own jobs."""
        if not any(demand):
            return [0] * len(demand)
        needs = self._needs(demand)
        #: What each queue, and then what each one's own jobs have: shares and what is reserved.
        rooms = [*needs, total]  # so that the root is at -1
        for (at, parts, _), siblings in zip(self._claims.families, self._siblings, strict=True):
            most = [needs[part] for part in parts]
            got = siblings.divide(rooms[at], most)
            if got is not most:
                for part, amount in zip(parts, got, strict=True):
                    rooms[part] = amount
        shares = [min(room, desired) for room, desired in zip(rooms, demand, strict=False)]
        for at, _, _ in self._claims.families[1:]:
            shares[at] = rooms[len(demand) + at]
        return self._claims.with_descendants(shares)

    def entitled_to_nothing(self, demand: Sequence[int], total: int) -> tuple[list[int], list[int]]:
        """The positions of queues whose jobs, and those of the queues below, demand something and have no share, and of
        queues of which the own jobs do. Jobs below a capability of 0 can't run, so they don't count."""
        claims, shares, requested = self._claims, self.shares(demand, total), list(demand)
        closed = [limit == 0 for limit in self._limits]
        for at, parent in enumerate(claims.parents):
            closed[at] = closed[at] or (parent >= 0 and closed[parent])
            if closed[at]:
                requested[at] = 0
        whole, own = claims.with_descendants(requested), claims.of_own(shares)
        return (
            [at for at, (wants, share) in enumerate(zip(whole, shares, strict=True)) if wants and not share],
            [at for at, (wants, share) in enumerate(zip(requested, own, strict=True)) if wants and not share],
        )

    def _needs(self, demand: Sequence[int]) -> list[int]:
        """What each queue with its descendants can take, and then what each one's own jobs can."""
        needs = [*demand, *demand]
        parents, limits, guarantees = self._claims.parents, self._limits, self._guarantees
        first = self._claims.first
        for at in range(len(demand) - 1, -1, -1):
            need, limit, guarantee = needs[at], limits[at], guarantees[at]
            if limit is not None and need > limit:
                need = limit
            needs[at] = need = max(need, guarantee)
            if at >= first:
                needs[parents[at]] += need
        return needs


def _times(amount: int | None, parts: int) -> int | None:
    return None if amount is None else amount * parts


def fill(amount: int, weights: Sequence[int], limits: Sequence[int]) -> list[int]:
    """Divide an amount by weight, with a limit for each part, to the last unit; of equal parts the earlier is first.

    The result is the same as giving units one by one to the part below its limit with the lowest (2 x got + 1) /
    weight. A part with weight 0 must have limit 0.
    """
    if sum(limits) <= amount:
        return list(limits)
    got = _below(amount, weights, limits)
    # Two different ratios of numbers with so many bits differ by more than one unit of this scale.
    scale = 2 * max(weights).bit_length() + 1
    waiting = [
        (((2 * has + 1) << scale) // weight, index)
        for index, (has, weight, limit) in enumerate(zip(got, weights, limits, strict=True))
        if has < limit
    ]
    heapify(waiting)
    for _ in range(amount - sum(got)):
        index = waiting[0][1]
        got[index] += 1
        if got[index] < limits[index]:
            heapreplace(waiting, (((2 * got[index] + 1) << scale) // weights[index], index))
        else:
            heappop(waiting)
    return got


def _below(amount: int, weights: Sequence[int], limits: Sequence[int]) -> list[int]:
    """What each part has at some moment of giving units one by one, at most one unit for each part before the end.

    With the threshold t, a part has min(limit, round(t x weight)) units, which is at most half a unit more than
    min(limit, t x weight). Here t is such that the latter add up to the amount less half a unit for each part.
    """
    got = [0] * len(limits)
    below = [index for index, limit in enumerate(limits) if limit]
    twice_left = 2 * amount - len(below)
    while twice_left > 0:
        weight = sum([weights[index] for index in below])
        full = [index for index in below if 2 * limits[index] * weight <= twice_left * weights[index]]
        if not full:
            for index in below:
                got[index] = (twice_left * weights[index] + weight) // (2 * weight)
            break
        for index in full:
            got[index] = limits[index]
            twice_left -= 2 * limits[index]
        below = [index for index in below if got[index] < limits[index]]
    return got
