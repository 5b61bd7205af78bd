"""The order among queues, down the tree, as jobs get nodes: the lowest ratio first, ties by the most senior job."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from arranger.scheduling.queues.fair_shares import Claims, QueueClaims
from arranger.scheduling.queues.order import WHOLE, QueueOrder, Seniority
from tests.depth import extent
from tests.queue_shares import queue_shares
from tests.queue_trees import CPU, GPU, totals, trees

on_random_trees = settings(max_examples=extent(200, 20_000), deadline=None, print_blob=True)

Amounts = Mapping[str, int]

MEMORY = "memory"


class ByHand:
    """The order, found again from nothing each time."""

    def __init__(
        self,
        queues: Sequence[QueueClaims],
        total: Amounts,
        shares: Mapping[str, Amounts],
        waiting: dict[str, Seniority],
    ) -> None:
        self.total = total
        self.queues = sorted(queues, key=lambda queue: queue.name)
        self.shares = shares
        self.waiting, self.at_first = set(waiting), waiting
        self.used = {queue.name: {GPU: 0, CPU: 0} for queue in queues}

    def children(self, name: str) -> list[str]:
        return [queue.name for queue in self.queues if queue.parent == name]

    def turns(self, name: str) -> bool:
        """Whether the queue or one below has jobs to place."""
        below = [child for child in self.children(name) if self.turns(child)]
        return name in self.waiting or bool(below)

    def uses(self, name: str, resource: str) -> int:
        return self.used[name][resource] + sum(self.uses(child, resource) for child in self.children(name))

    def ratio(self, used: Amounts, share: Amounts) -> int:
        counting = [one for one in (GPU, CPU) if used[one] or share[one]]
        found = [
            Fraction(used[one], share[one]) if share[one] else 1 + Fraction(used[one], max(self.total[one], 1))
            for one in counting
        ]
        return int(max(found, default=Fraction(1)) * WHOLE)

    def of(self, name: str) -> int:
        return self.ratio({one: self.uses(name, one) for one in (GPU, CPU)}, self.shares[name])

    def own(self, name: str) -> int:
        share = {
            one: self.shares[name][one] - sum(self.shares[child][one] for child in self.children(name))
            for one in (GPU, CPU)
        }
        return self.ratio(self.used[name], share)

    def first_job(self, name: str) -> Seniority:
        """The most senior job of the queue and those below it when the cycle began."""
        own = [(*self.at_first[name], name)] if name in self.at_first else []
        below = [self.first_job(child) for child in self.children(name) if self.had_turns(child)]
        return min(own + below)

    def had_turns(self, name: str) -> bool:
        return name in self.at_first or any(self.had_turns(child) for child in self.children(name))

    def head(self, name: str = "") -> str | None:
        children = [
            (self.of(child), self.first_job(child), child) for child in self.children(name) if self.turns(child)
        ]
        if name in self.waiting:
            children.append((self.own(name), (*self.at_first[name], name), name))
        if not children:
            return None
        first = min(children)[2]
        return first if first == name else self.head(first)


@on_random_trees
@given(trees(), totals, st.integers(0, 2**32))
def test_the_order_is_that_of_comparing_all_queues_again_each_time(
    queues: list[QueueClaims], total: dict[str, int], seed: int
) -> None:
    rng = Random(seed)
    shares = queue_shares(queues, total)
    names = [queue.name for queue in queues]
    waiting: dict[str, Seniority] = {
        name: (rng.randint(0, 2),) for name in rng.sample(names, rng.randint(0, len(names)))
    }
    used = {name: {GPU: 2, CPU: 1} for name in rng.sample(names, rng.randint(0, len(names)))}
    order, by_hand = (
        QueueOrder(Claims(queues), total, shares=shares, used=used, waiting=waiting),
        ByHand(queues, total, shares, waiting),
    )
    for name, amounts in used.items():
        by_hand.used[name].update(amounts)
    for _ in range(40):
        head = order.head()
        assert head == by_hand.head()
        if head is None:
            break
        what = rng.randint(0, 9)
        if what == 0:
            order.finish(head)
            by_hand.waiting.discard(head)
        else:
            name = head if what < 8 else rng.choice(sorted(by_hand.waiting))
            got = {GPU: rng.randint(0, 3), CPU: rng.randint(0, 3)}
            order.give(name, {**got, "fpga": 1})
            by_hand.used[name] = {one: by_hand.used[name][one] + got[one] for one in got}
            assert order.ratio(name) == by_hand.of(name)


def play(total: Amounts, tasks: Mapping[str, Amounts], *queues: QueueClaims) -> dict[str, int]:
    """Give each turn one task, until nothing fits: queue → tasks. Every queue has tasks for the whole cluster."""
    most = max(total.values())
    claims = [
        QueueClaims(
            name=queue.name,
            parent=queue.parent,
            weight=queue.weight,
            demand={one: amount * most for one, amount in tasks.get(queue.name, {}).items()},
        )
        for queue in queues
    ]
    order = QueueOrder(
        Claims(claims), total, shares=queue_shares(claims, total), used={}, waiting=dict.fromkeys(tasks, ())
    )
    free, placed = dict(total), dict.fromkeys(tasks, 0)
    while (name := order.head()) is not None:
        if any(amount > free[one] for one, amount in tasks[name].items()):
            order.finish(name)
            continue
        for one, amount in tasks[name].items():
            free[one] -= amount
        placed[name] += 1
        order.give(name, tasks[name])
    return placed


def test_the_published_example_of_drf() -> None:
    """9 CPUs and 18 GB; A's tasks want 1 CPU and 4 GB, B's 3 CPUs and 1 GB: both end with 2/3 of one resource."""
    tasks = {"A": {CPU: 1000, MEMORY: 4}, "B": {CPU: 3000, MEMORY: 1}}
    placed = play({CPU: 9000, MEMORY: 18}, tasks, QueueClaims(name="A"), QueueClaims(name="B"))
    assert placed == {"A": 3, "B": 2}
    assert 3 * 4 / 18 == 2 * 3000 / 9000 == 2 / 3


def test_weighted_drf() -> None:
    """With twice the weight a queue gets twice the dominant share."""
    tasks = {"A": {CPU: 1000, MEMORY: 4}, "B": {CPU: 3000, MEMORY: 1}}
    placed = play({CPU: 65_000, MEMORY: 130}, tasks, QueueClaims(name="A", weight=2), QueueClaims(name="B"))
    assert placed == {"A": 30, "B": 10}
    assert 30 * 4 / 130 == 2 * (10 * 3000 / 65_000)


def test_hierarchical_drf_neither_starves_nor_blocks_complementary_children() -> None:
    """The two examples of H-DRF with the allocations that Volcano's tests of it expect."""
    cpu, gpu, both = {CPU: 1000}, {GPU: 1}, {CPU: 1000, GPU: 1}
    n2 = [QueueClaims(name="n2"), QueueClaims(name="n21", parent="n2"), QueueClaims(name="n22", parent="n2")]
    tasks: dict[str, Amounts] = {"n1": both, "n21": cpu, "n22": gpu}
    placed = play({CPU: 10_000, GPU: 10}, tasks, QueueClaims(name="n1"), *n2)
    assert placed == {"n1": 5, "n21": 5, "n22": 5}
    n3 = [QueueClaims(name="n3"), QueueClaims(name="n31", parent="n3"), QueueClaims(name="n32", parent="n3")]
    others = [QueueClaims(name=name) for name in ("n1", "n2", "n4")]
    tasks = {"n1": cpu, "n2": cpu, "n31": cpu, "n32": gpu, "n4": gpu}
    placed = play({CPU: 30_000, GPU: 30}, tasks, *others, *n3)
    assert placed == {"n1": 10, "n2": 10, "n31": 10, "n32": 15, "n4": 15}


def order_of(
    used: Mapping[str, int],
    averages: Mapping[str, int] | None = None,
    first_jobs: Mapping[str, Seniority] | None = None,
) -> list[str]:
    """The order of queues with a share of 10 GPUs each."""
    queues = [QueueClaims(name=name, demand={GPU: 10}) for name in used]
    total = {GPU: 10 * len(queues)}
    order = QueueOrder(
        Claims(queues),
        total,
        shares=queue_shares(queues, total),
        used={name: {GPU: amount} for name, amount in used.items()},
        waiting=first_jobs or dict.fromkeys(used, ()),
        averages={name: {GPU: amount} for name, amount in (averages or {}).items()},
    )
    found = []
    while (name := order.head()) is not None:
        found.append(name)
        order.finish(name)
    return found


def test_a_queue_that_used_less_of_its_share_is_first() -> None:
    assert order_of({"a": 5, "b": 4}) == ["b", "a"], "0.4 before 0.5"
    assert order_of({"b": 5, "a": 5, "c": 0}) == ["c", "a", "b"], "ties by name"


def test_of_equal_ratios_the_one_with_the_more_senior_job_is_first() -> None:
    assert order_of({"a": 5, "b": 5, "c": 5}, first_jobs={"a": (2, 1), "b": (1, 9), "c": (1, 8)}) == ["c", "b", "a"]
    assert order_of({"a": 5, "b": 6}, first_jobs={"a": (2,), "b": (1,)}) == ["a", "b"], "the ratio counts first"


def test_without_seniorities_it_is_the_name_of_each_queue_that_decides() -> None:
    """The names of the queues below one say nothing."""
    queues = [QueueClaims(name="b"), QueueClaims(name="c"), QueueClaims(name="a", parent="c")]
    shares = {name: {GPU: 4} for name in ("a", "b", "c")}
    order = QueueOrder(Claims(queues), {GPU: 8}, shares=shares, used={}, waiting={"a": (), "b": ()})
    assert order.head() == "b"


def test_a_queue_is_as_senior_as_the_first_job_of_those_below_it() -> None:
    queues = [QueueClaims(name="a"), QueueClaims(name="b"), QueueClaims(name="b1", parent="b")]
    shares = {name: {GPU: 4} for name in ("a", "b", "b1")}
    first_jobs: dict[str, Seniority] = {"a": (5,), "b": (9,), "b1": (3,)}
    order = QueueOrder(Claims(queues), {GPU: 8}, shares=shares, used={}, waiting=first_jobs)
    assert order.head() == "b1"


def test_with_a_half_life_earlier_use_counts_too() -> None:
    assert order_of({"a": 0, "b": 0}, {"a": 1, "b": 0}) == ["b", "a"], "even a thousandth"
    assert order_of({"a": 3, "b": 5}, {"a": 1_999, "b": 0}) == ["a", "b"]
    assert order_of({"a": 3, "b": 5}, {"a": 2_001, "b": 0}) == ["b", "a"]


def test_the_resource_that_decides_is_named_with_its_share() -> None:
    """A queue that uses 2 GPUs of which its share is 0 was said to use more than its share of CPU."""
    queues, total = [QueueClaims(name=name) for name in "abc"], {GPU: 32, CPU: 16}
    shares = {"a": {GPU: 0, CPU: 8}, "b": {GPU: 4, CPU: 8}, "c": {GPU: 0, CPU: 0}}
    used = {"a": {GPU: 2, CPU: 4}, "b": {GPU: 1, CPU: 4}}
    order = QueueOrder(Claims(queues), total, shares=shares, used=used, waiting=dict.fromkeys("abc", ()))
    assert [order.dominant(name) for name in "abc"] == [(GPU, 0), (CPU, 8), ("", 0)]
    assert order.ratio("a") == WHOLE + WHOLE // 16 and order.ratio("b") == WHOLE // 2


def test_a_queue_that_is_entitled_to_nothing_does_not_come_before_one_that_lacks_something() -> None:
    queues = [QueueClaims(name="a", demand={GPU: 9}), QueueClaims(name="b", deserved={GPU: 8}, demand={GPU: 8})]
    order = QueueOrder(
        Claims(queues),
        {GPU: 8},
        shares=queue_shares(queues, {GPU: 8}),
        used={"b": {GPU: 7}},
        waiting=dict.fromkeys("ab", ()),
    )
    assert (order.head(), order.ratio("a")) == ("b", WHOLE)
    order.give("b", {GPU: 2})
    assert order.head() == "a", "b has more than its share now"


def test_queues_that_are_entitled_to_nothing_take_turns() -> None:
    queues = [QueueClaims(name=name, demand={GPU: 9}) for name in "ab"]
    queues.append(QueueClaims(name="c", guarantee={GPU: 8}))
    order = QueueOrder(
        Claims(queues), {GPU: 8}, shares=queue_shares(queues, {GPU: 8}), used={}, waiting=dict.fromkeys("ab", ())
    )
    found = []
    for _ in range(4):
        found.append(order.head())
        order.give(str(found[-1]), {GPU: 1})
    assert found == ["a", "b", "a", "b"]


def test_finishing_a_queue_does_not_finish_its_descendants() -> None:
    queues = [
        QueueClaims(name="a", demand={GPU: 9}),
        QueueClaims(name="a1", parent="a", demand={GPU: 9}),
        QueueClaims(name="b", demand={GPU: 9}),
    ]
    shares = queue_shares(queues, {GPU: 8})
    order = QueueOrder(Claims(queues), {GPU: 8}, shares=shares, used={}, waiting=dict.fromkeys(["a", "a1", "b"], ()))
    order.finish("a")
    assert order.head() == "a1"
    order.finish("a1")
    assert order.head() == "b"
    order.finish("b")
    assert order.head() is None
    assert QueueOrder(Claims(queues), {GPU: 8}, shares=shares, used={}, waiting={}).head() is None
