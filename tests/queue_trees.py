"""Random trees of queues, and their shares by hand: units given one by one, or exact fractions.

The division here shares only `QueueClaims` with the product. It is slow and simple: each queue asks its children what
they are guaranteed and what they can take, and hands out what it has step by step.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from random import Random

from hypothesis import strategies as st

from arranger.scheduling.queues.fair_shares import QueueClaims

GPU, CPU = "nvidia.com/gpu", "cpu"

#: amount, weights, limits → what each gets.
Fill = Callable[[Fraction, Sequence[Fraction], Sequence[Fraction]], list[Fraction]]


# --- random trees ---------------------------------------------------------------------------------------------------


def _amounts(rng: Random) -> dict[str, int]:
    resources = rng.choice(((), (GPU,), (GPU, CPU)))
    return {resource: rng.choice((0, rng.randint(0, 12))) for resource in resources}


def random_tree(rng: Random, size: int, *, flat: bool = False) -> list[QueueClaims]:
    """Queues in a tree, with small amounts, so that roundings and ties are frequent. The names are in another order."""
    names = [f"q{(5 * index + 3) % 16:02}" for index in range(size)]
    return [
        QueueClaims(
            name=name,
            parent="" if flat else rng.choice(["", *names[:index]]),
            weight=rng.randint(1, 9),
            guarantee=_amounts(rng),
            deserved=_amounts(rng),
            capability=_amounts(rng),
            demand=_amounts(rng),
        )
        for index, name in enumerate(names)
    ]


@st.composite
def trees(draw: st.DrawFn, *, flat: bool = False) -> list[QueueClaims]:
    """Trees of one to eleven queues."""
    return random_tree(Random(draw(st.integers(0, 2**32))), draw(st.integers(1, 11)), flat=flat)


totals = st.builds(lambda gpu, cpu: {GPU: gpu, CPU: cpu}, st.integers(0, 40), st.integers(0, 40))


# --- shares by hand -------------------------------------------------------------------------------------------------


class ByHand:
    """The shares of one resource."""

    def __init__(self, queues: Sequence[QueueClaims], resource: str, fill: Fill) -> None:
        self.resource = resource
        self.fill = fill
        self.queues = {queue.name: queue for queue in queues}
        self.shares: dict[str, Fraction] = {}

    def children(self, name: str) -> list[QueueClaims]:
        return [self.queues[other] for other in sorted(self.queues) if self.queues[other].parent == name]

    def most(self, queue: QueueClaims) -> int:
        """The capability, where there is one."""
        return queue.capability.get(self.resource, 10**18)

    def guaranteed(self, queue: QueueClaims) -> int:
        below = sum(self.guaranteed(child) for child in self.children(queue.name))
        return min(self.most(queue), max(queue.guarantee.get(self.resource, 0), below))

    def takes(self, queue: QueueClaims) -> int:
        below = sum(self.takes(child) for child in self.children(queue.name))
        return min(self.most(queue), max(self.guaranteed(queue), queue.demand.get(self.resource, 0) + below))

    def deserved(self, queue: QueueClaims) -> int:
        below = sum(self.deserved(child) for child in self.children(queue.name))
        return queue.deserved.get(self.resource, below)

    def all(self, total: int) -> dict[str, Fraction]:
        self.hand_out("", Fraction(total))
        return self.shares

    def hand_out(self, name: str, amount: Fraction) -> Fraction:
        """Divide what a queue got; the sum of the shares below."""
        siblings = self.children(name)
        own = self.queues[name].demand.get(self.resource, 0) if name else 0
        if own or not siblings:
            siblings = sorted(
                [*siblings, QueueClaims(name=name, demand={self.resource: own})], key=lambda one: one.name
            )
        is_own = [one.name == name for one in siblings]
        floors = [Fraction(0 if own else self.guaranteed(one)) for one, own in zip(siblings, is_own, strict=True)]
        most = [
            Fraction(one.demand[self.resource] if own else self.takes(one))
            for one, own in zip(siblings, is_own, strict=True)
        ]
        got = self.fill(amount, floors, floors)
        deserved = [0 if own else self.deserved(one) for one, own in zip(siblings, is_own, strict=True)]
        beyond = [max(Fraction(amount) - floor, Fraction(0)) for amount, floor in zip(deserved, floors, strict=True)]
        limits = [min(more, top - has) for more, top, has in zip(beyond, most, got, strict=True)]
        if sum(floors) <= amount:
            got = [has + more for has, more in zip(got, self.fill(amount - sum(got), beyond, limits), strict=True)]
            weights = [Fraction(one.weight) for one in siblings]
            limits = [top - has for top, has in zip(most, got, strict=True)]
            got = [has + more for has, more in zip(got, self.fill(amount - sum(got), weights, limits), strict=True)]
        share = Fraction(0)
        for one, own, has in zip(siblings, is_own, got, strict=True):
            share += has if own else self.hand_out(one.name, has)
        if name:
            self.shares[name] = share
        return share


def in_units(amount: Fraction, weights: Sequence[Fraction], limits: Sequence[Fraction]) -> list[Fraction]:
    """Unit by unit to the part that has least for its weight, counted to the middle of its next unit."""
    got = [Fraction(0)] * len(limits)
    while sum(got) < amount:
        below = [index for index, limit in enumerate(limits) if got[index] < limit]
        if not below:
            break
        got[min(below, key=lambda index: ((2 * got[index] + 1) / weights[index], index))] += 1
    return got


def in_fractions(amount: Fraction, weights: Sequence[Fraction], limits: Sequence[Fraction]) -> list[Fraction]:
    """All levels rise together, each by its weight, until they reach their limits or nothing is left."""
    got = [Fraction(0)] * len(limits)
    left = amount
    while below := [index for index, limit in enumerate(limits) if got[index] < limit]:
        rise = min((limits[index] - got[index]) / weights[index] for index in below)
        rise = min(rise, left / sum(weights[index] for index in below))
        for index in below:
            got[index] += rise * weights[index]
        left -= rise * sum(weights[index] for index in below)
        if not left:
            break
    return got


def by_hand(queues: Sequence[QueueClaims], total: dict[str, int], fill: Fill) -> dict[str, dict[str, Fraction]]:
    """Name → resource → share."""
    found: dict[str, dict[str, Fraction]] = {queue.name: {} for queue in queues}
    for resource, amount in total.items():
        for name, share in ByHand(queues, resource, fill).all(amount).items():
            found[name][resource] = share
    return found
