"""Shares of queues: how much of each resource of the cluster a queue is entitled to now.

The shares are weighted max-min fair (progressive filling: Bertsekas and Gallager, "Data Networks", 1992, section
6.5.2), for each resource alone, down a tree of queues. At every queue, its children divide what the queue has, in three
steps. Each step divides what the previous one left:

1. Guarantees, in proportion if not all can be met. A queue's guarantee is its own, or the sum of its children's where
   that is more.
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

from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heapreplace

import msgspec

#: Resource → amount in its base unit.
Amounts = Mapping[str, int]

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
    guarantee: Amounts = {}
    deserved: Amounts = {}
    capability: Amounts = {}
    demand: Amounts = {}


def queue_shares(queues: Iterable[QueueClaims], total: Amounts) -> dict[str, dict[str, int]]:
    """Name → each resource of `total` → the share of the queue and its descendants, in the resource's base unit.

    `total` is what the ready nodes have. Names must be unique, weights positive and amounts not negative. A queue whose
    ancestors don't lead to the root (an unknown parent, a cycle) has no share and is not in the result.
    """
    branches = tree(queues)
    shares: dict[str, dict[str, int]] = {queue.name: {} for queue, _ in branches}
    for resource, amount in total.items():
        for name, share in _Division(branches, resource).shares(amount).items():
            shares[name][resource] = share
    return shares


#: A queue and its children, by name.
Branch = tuple[QueueClaims, tuple[QueueClaims, ...]]


def tree(queues: Iterable[QueueClaims]) -> list[Branch]:
    """The queues that the root leads to, parents first."""
    children: dict[str, list[QueueClaims]] = {}
    for queue in sorted(queues, key=_name):
        children.setdefault(queue.parent, []).append(queue)
    branches: list[Branch] = []
    level = children.get(ROOT, [])
    while level:
        below = [(queue, tuple(children.get(queue.name, ()))) for queue in level]
        branches += below
        level = [child for _, of in below for child in of]
    return branches


def _name(queue: QueueClaims) -> str:
    return queue.name


class _Part(msgspec.Struct, gc=False):
    """What one of several siblings claims of a resource. Guarantee ≤ need: the most that it can take."""

    name: str
    weight: int
    guarantee: int
    deserved: int
    need: int


class _Division:
    """The division of one resource."""

    def __init__(self, branches: Sequence[Branch], resource: str) -> None:
        self._branches = branches
        self._demand = {queue.name: queue.demand.get(resource, 0) for queue, _ in branches}
        #: Queue with children → what these and its own jobs claim.
        self._parts: dict[str, list[_Part]] = {}
        claims: dict[str, _Part] = {}
        for queue, children in reversed(branches):
            guarantee, need = queue.guarantee.get(resource, 0), self._demand[queue.name]
            deserved = queue.deserved.get(resource)
            if children:
                parts = [claims[child.name] for child in children]
                if need:
                    parts.append(_Part(queue.name, OWN_WEIGHT, 0, 0, need))
                    parts.sort(key=_name_of)
                self._parts[queue.name] = parts
                guarantee = max(guarantee, sum([part.guarantee for part in parts]))
                need = sum([part.need for part in parts])
                if deserved is None:
                    deserved = sum([part.deserved for part in parts])
            limit = queue.capability.get(resource)
            if limit is not None:
                guarantee, need = min(guarantee, limit), min(need, limit)
            need = need if need > guarantee else guarantee
            claims[queue.name] = _Part(queue.name, queue.weight, guarantee, deserved or 0, need)
        self._parts[ROOT] = [claims[queue.name] for queue, _ in branches if queue.parent == ROOT]

    def shares(self, total: int) -> dict[str, int]:
        """Each queue's share."""
        #: Queue → its share and what is reserved in it.
        rooms = self._divide(ROOT, total)
        shares: dict[str, int] = {}
        for queue, children in self._branches:
            name = queue.name
            if children:
                below = self._divide(name, rooms[name])
                shares[name] = below.pop(name, 0)  # of its own jobs; its children's are added in the end
                rooms.update(below)
            else:
                room, demand = rooms[name], self._demand[name]
                shares[name] = room if room < demand else demand
        for queue, _ in reversed(self._branches):
            if queue.parent != ROOT:
                shares[queue.parent] += shares[queue.name]
        return shares

    def _divide(self, name: str, amount: int) -> dict[str, int]:
        parts = self._parts[name]
        return dict(zip([part.name for part in parts], divide(amount, parts), strict=True))


def _name_of(part: _Part) -> str:
    return part.name


def divide(amount: int, parts: Sequence[_Part]) -> list[int]:
    """What each sibling gets of an amount, its reserved amount included: at most its need."""
    needs = [part.need for part in parts]
    if sum(needs) <= amount:
        return needs
    got = [part.guarantee for part in parts]
    left = amount - sum(got)
    if left <= 0:
        return fill(amount, got, got)
    beyond = [max(part.deserved - part.guarantee, 0) if part.deserved else 0 for part in parts]
    if any(beyond):
        limits = [min(more, need - has) for more, need, has in zip(beyond, needs, got, strict=True)]
        got = [has + more for has, more in zip(got, fill(left, beyond, limits), strict=True)]
        left = amount - sum(got)
    limits = [need - has for need, has in zip(needs, got, strict=True)]
    further = fill(left, [part.weight for part in parts], limits)
    return [has + more for has, more in zip(got, further, strict=True)]


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
