"""Shares of queues: what holds for every tree, and published examples.

`SOAK=1 python -m pytest tests/unit/test_queue_shares.py` takes 20,000 random trees for each property.
"""

from collections.abc import Iterator, Mapping, Sequence
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arranger.scheduling.queues.fair_shares import Claims, Division, QueueClaims, fill
from tests.depth import extent
from tests.queue_shares import queue_shares
from tests.queue_trees import CPU, GPU, by_hand, in_fractions, in_units, totals, trees

on_random_trees = settings(max_examples=extent(200, 20_000), deadline=None, print_blob=True)

Shares = Mapping[str, Mapping[str, int]]


def changed(queues: Sequence[QueueClaims], name: str, **fields: object) -> list[QueueClaims]:
    """The queues with one of them changed."""
    return [msgspec.structs.replace(queue, **fields) if queue.name == name else queue for queue in queues]


def below(queues: Sequence[QueueClaims], name: str) -> Iterator[str]:
    """The queue and its descendants."""
    yield name
    for queue in queues:
        if queue.parent == name:
            yield from below(queues, queue.name)


def own_shares(queues: Sequence[QueueClaims], shares: Shares, resource: str) -> dict[str, int]:
    """Queue → the part of its share that its children's shares leave."""
    return {
        queue.name: shares[queue.name][resource]
        - sum(shares[child.name][resource] for child in queues if child.parent == queue.name)
        for queue in queues
    }


def scaled(amounts: Mapping[str, int], factor: int) -> dict[str, int]:
    return {resource: amount * factor for resource, amount in amounts.items()}


# --- what holds for every tree --------------------------------------------------------------------------------------


@on_random_trees
@given(trees(), totals)
def test_shares_are_those_of_units_given_one_by_one(queues: list[QueueClaims], total: dict[str, int]) -> None:
    assert queue_shares(queues, total) == by_hand(queues, total, in_units)


@on_random_trees
@given(trees(), totals)
def test_no_share_exceeds_demand_capability_or_the_cluster(queues: list[QueueClaims], total: dict[str, int]) -> None:
    shares = queue_shares(queues, total)
    for resource, amount in total.items():
        assert sum(shares[queue.name][resource] for queue in queues if not queue.parent) <= amount
        own = own_shares(queues, shares, resource)
        for queue in queues:
            assert shares[queue.name][resource] <= queue.capability.get(resource, amount)
            assert 0 <= own[queue.name] <= queue.demand.get(resource, 0), "its own jobs and the children explain it"


@on_random_trees
@given(trees(), totals)
def test_nothing_is_left_over_while_a_queue_wants_more(queues: list[QueueClaims], total: dict[str, int]) -> None:
    """Only a full capability on the path, or a full cluster, keeps a queue below its demand; unused guarantees count as
    used."""
    shares = queue_shares(queues, total)
    by_name = {queue.name: queue for queue in queues}
    for resource, amount in total.items():
        own = own_shares(queues, shares, resource)
        held: dict[str, int] = {"": 0}
        for queue in reversed(queues):  # children are behind their parents
            inside = own[queue.name] + sum(held[child.name] for child in queues if child.parent == queue.name)
            most = queue.capability.get(resource, inside + amount + 99)
            held[queue.name] = min(most, max(inside, queue.guarantee.get(resource, 0)))
            held[""] += 0 if queue.parent else held[queue.name]
        for queue in queues:
            if own[queue.name] < queue.demand.get(resource, 0):
                path = [queue]
                while path[-1].parent:
                    path.append(by_name[path[-1].parent])
                full = [one.name for one in path if held[one.name] == one.capability.get(resource)]
                assert full or held[""] >= amount, queue.name


@on_random_trees
@given(trees(flat=True), totals)
def test_a_guarantee_is_there_whoever_else_wants_it(queues: list[QueueClaims], total: dict[str, int]) -> None:
    guarantees = {queue.name: min(queue.guarantee.get(GPU, 0), queue.capability.get(GPU, 99)) for queue in queues}
    total = {GPU: total[GPU] + sum(guarantees.values())}
    shares = queue_shares(queues, total)
    for queue in queues:
        assert shares[queue.name][GPU] >= min(guarantees[queue.name], queue.demand.get(GPU, 0))
        others = sum(shares[other.name][GPU] for other in queues if other is not queue)
        assert others <= total[GPU] - guarantees[queue.name], "and it is never lent"


@on_random_trees
@given(trees(flat=True), totals)
def test_deserved_amounts_come_before_weights(queues: list[QueueClaims], total: dict[str, int]) -> None:
    """While a queue lacks something that it deserves, no other has more than it is guaranteed and deserves."""
    shares = queue_shares(queues, total)
    for resource in total:
        entitled = {
            queue.name: max(queue.deserved.get(resource, 0), queue.guarantee.get(resource, 0)) for queue in queues
        }
        lacking = [
            queue
            for queue in queues
            if shares[queue.name][resource]
            < min(entitled[queue.name], queue.demand.get(resource, 0), queue.capability.get(resource, 99))
        ]
        if lacking:
            assert all(shares[queue.name][resource] <= entitled[queue.name] for queue in queues)


@on_random_trees
@given(trees(), totals, st.integers(0, 2**32))
def test_a_higher_weight_takes_from_siblings_and_never_from_itself(
    queues: list[QueueClaims], total: dict[str, int], seed: int
) -> None:
    rng = Random(seed)
    queue = rng.choice(queues)
    before = queue_shares(queues, total)
    after = queue_shares(changed(queues, queue.name, weight=queue.weight + rng.randint(1, 9)), total)
    inside = set(below(queues, queue.name))
    beside = {
        name for one in queues if one.parent == queue.parent and one is not queue for name in below(queues, one.name)
    }
    for resource in total:
        assert all(after[name][resource] >= before[name][resource] for name in inside)
        assert all(after[name][resource] <= before[name][resource] for name in beside)
        assert all(after[one.name] == before[one.name] for one in queues if one.name not in inside | beside)


@on_random_trees
@given(trees(), totals, st.integers(1, 7))
def test_a_larger_cluster_lowers_no_share(queues: list[QueueClaims], total: dict[str, int], more: int) -> None:
    before = queue_shares(queues, total)
    after = queue_shares(queues, {resource: amount + more for resource, amount in total.items()})
    assert all(after[name][resource] >= share for name in before for resource, share in before[name].items())


@on_random_trees
@given(trees(), totals, st.integers(0, 2**32))
def test_more_demand_never_lowers_a_queues_share(queues: list[QueueClaims], total: dict[str, int], seed: int) -> None:
    rng = Random(seed)
    queue = rng.choice(queues)
    demand = {resource: queue.demand.get(resource, 0) + rng.randint(0, 5) for resource in (GPU, CPU)}
    before, after = queue_shares(queues, total), queue_shares(changed(queues, queue.name, demand=demand), total)
    assert all(after[queue.name][resource] >= share for resource, share in before[queue.name].items())


@on_random_trees
@given(trees(), totals, st.integers(0, 2**32))
def test_the_order_in_which_queues_and_resources_come_changes_nothing(
    queues: list[QueueClaims], total: dict[str, int], seed: int
) -> None:
    shares = queue_shares(queues, total)
    shuffled = Random(seed).sample(queues, len(queues))
    assert queue_shares(shuffled, dict(reversed(total.items()))) == shares
    alone = queue_shares(queues, {GPU: total[GPU]})
    assert all(alone[name][GPU] == shares[name][GPU] for name in shares), "each resource is divided alone"


@on_random_trees
@given(trees(), totals, st.integers(2, 1000))
def test_only_the_proportion_of_weights_counts(queues: list[QueueClaims], total: dict[str, int], factor: int) -> None:
    """Among siblings; own jobs beside children have weight 1, so those queues have none here."""
    parents = {queue.parent for queue in queues}
    queues = [msgspec.structs.replace(one, demand={}) if one.name in parents else one for one in queues]
    heavier = [msgspec.structs.replace(queue, weight=queue.weight * factor) for queue in queues]
    assert queue_shares(heavier, total) == queue_shares(queues, total)


@on_random_trees
@given(trees(), totals)
def test_in_small_units_shares_are_exact_but_for_a_few_units(queues: list[QueueClaims], total: dict[str, int]) -> None:
    exact = by_hand(queues, total, in_fractions)
    factor = 10**100
    finer = [
        msgspec.structs.replace(
            queue,
            guarantee=scaled(queue.guarantee, factor),
            deserved=scaled(queue.deserved, factor),
            capability=scaled(queue.capability, factor),
            demand=scaled(queue.demand, factor),
        )
        for queue in queues
    ]
    found = queue_shares(finer, scaled(total, factor))
    for name, shares in exact.items():
        for resource, share in shares.items():
            assert abs(found[name][resource] - share * factor) <= len(queues) ** 2


@on_random_trees
@given(trees(), totals)
def test_a_queue_is_entitled_to_nothing_if_its_exact_share_is_nothing(
    queues: list[QueueClaims], total: dict[str, int]
) -> None:
    by_name = {queue.name: queue for queue in queues}

    def closed(name: str) -> bool:
        return bool(name) and (by_name[name].capability.get(GPU) == 0 or closed(by_name[name].parent))

    exact, claims = by_hand(queues, total, in_fractions), Claims(queues)
    wanted = {name: 0 if closed(name) else queue.demand.get(GPU, 0) for name, queue in by_name.items()}
    parts = 10**9
    whole, own = Division(claims, GPU, parts).entitled_to_nothing(
        [queue.demand.get(GPU, 0) * parts for queue in claims.queues], total[GPU] * parts
    )
    assert {claims.queues[at].name for at in whole} == {
        name for name in by_name if not exact[name][GPU] and any(wanted[one] for one in below(queues, name))
    }
    left = {
        name: exact[name][GPU] - sum(exact[one.name][GPU] for one in queues if one.parent == name) for name in by_name
    }
    assert {claims.queues[at].name for at in own} == {name for name in by_name if not left[name] and wanted[name]}


@on_random_trees
@given(st.integers(0, 100), st.integers(1, 12), st.integers(0, 2**32))
def test_weights_of_any_size_give_the_same_as_unit_by_unit(amount: int, parts: int, seed: int) -> None:
    rng = Random(seed)
    weights = [rng.randint(1, 2 ** rng.choice((2, 16, 60))) for _ in range(parts)]
    limits = [rng.randint(0, 30) for _ in range(parts)]
    assert fill(amount, weights, limits) == in_units(amount, weights, limits)  # type: ignore[arg-type]


# --- by example -----------------------------------------------------------------------------------------------------


def gpus(name: str, demand: int = 99, *, parent: str = "", weight: int = 1, **amounts: int) -> QueueClaims:
    """A queue with amounts of GPUs."""
    fields = {field: {GPU: amount} for field, amount in amounts.items()}
    return QueueClaims(name=name, parent=parent, weight=weight, demand={GPU: demand}, **fields)


def gpu_shares(total: int, *queues: QueueClaims) -> dict[str, int]:
    return {name: share[GPU] for name, share in queue_shares(queues, {GPU: total}).items()}


def test_shares_follow_weights() -> None:
    assert gpu_shares(100, gpus("a", weight=1), gpus("b", weight=2)) == {"a": 33, "b": 67}
    assert gpu_shares(96, gpus("a", weight=3), gpus("b", weight=2), gpus("c", weight=1)) == {"a": 48, "b": 32, "c": 16}


def test_what_a_queue_does_not_want_goes_to_the_others_by_weight() -> None:
    assert gpu_shares(12, gpus("a", 1), gpus("b", weight=2), gpus("c")) == {"a": 1, "b": 7, "c": 4}
    assert gpu_shares(12, gpus("a", 2), gpus("b", 3)) == {"a": 2, "b": 3}, "nobody gets more than it wants"


def test_shares_go_down_the_tree() -> None:
    """Volcano's example of a hierarchy: 50 % for default, 20 % for A1, 30 % for A2."""
    tree = [gpus("default"), gpus("A", 0), gpus("A1", parent="A", weight=2), gpus("A2", parent="A", weight=3)]
    assert gpu_shares(10, *tree) == {"default": 5, "A": 5, "A1": 2, "A2": 3}
    tree[0] = gpus("default", 0)
    assert gpu_shares(10, *tree) == {"default": 0, "A": 10, "A1": 4, "A2": 6}


def test_own_jobs_beside_children_are_one_more_child_of_weight_1() -> None:
    assert gpu_shares(12, gpus("a"), gpus("a1", parent="a", weight=2)) == {"a": 12, "a1": 8}


@pytest.mark.parametrize(
    ("total", "weights", "demands", "capability", "expected"),
    [
        (15, (2, 2), (6, 6), 99, (6, 6)),
        (12, (2, 2), (6, 6), 99, (6, 6)),
        (8, (1, 3), (6, 6), 99, (3, 5)),
        (12, (2, 2), (6, 6), 5, (5, 6)),
        (11, (1, 4), (10, 10), 99, (3, 8)),
        (11, (2, 2), (6, 6), 99, (6, 5)),
        (4, (1, 9), (6, 6), 99, (2, 2)),
    ],
    ids=["plenty", "exactly enough", "by weight", "capability", "remainder", "tie", "deserved only"],
)
def test_weights_divide_what_is_left_of_deserved_amounts(
    total: int, weights: tuple[int, int], demands: tuple[int, int], capability: int, expected: tuple[int, int]
) -> None:
    """KAI's examples of two queues that deserve 2 GPUs each. A tie goes to the first name, there to the older queue."""
    a = gpus("a", demands[0], weight=weights[0], deserved=2, capability=capability)
    b = gpus("b", demands[1], weight=weights[1], deserved=2)
    assert tuple(gpu_shares(total, a, b).values()) == expected


def test_deserved_amounts_beyond_the_cluster_are_met_in_proportion() -> None:
    assert gpu_shares(12, gpus("a", deserved=20), gpus("b", deserved=10), gpus("c", weight=9)) == {
        "a": 8,
        "b": 4,
        "c": 0,
    }
    assert gpu_shares(12, gpus("a", 3, deserved=20), gpus("b", deserved=10)) == {"a": 3, "b": 9}


def test_a_queue_that_states_no_deserved_amount_deserves_what_its_children_do() -> None:
    tree = [gpus("a", 0), gpus("a1", parent="a", deserved=5), gpus("a2", parent="a", deserved=3), gpus("b", weight=9)]
    assert gpu_shares(10, *tree) == {"a": 8, "a1": 5, "a2": 3, "b": 2}
    tree[0] = gpus("a", 0, deserved=4)
    assert gpu_shares(10, *tree) == {"a": 5, "a1": 3, "a2": 2, "b": 5}, "4 and a tenth of the rest"


def test_deserved_amounts_are_lent_while_they_are_not_used() -> None:
    assert gpu_shares(10, gpus("a", 0, deserved=6), gpus("b", deserved=4)) == {"a": 0, "b": 10}


def test_guarantees_are_not_lent() -> None:
    """Volcano's examples: one queue reserves the whole cluster, or half of it, and uses nothing."""
    assert gpu_shares(8, gpus("a", 0, guarantee=8), gpus("b")) == {"a": 0, "b": 0}
    assert gpu_shares(8, gpus("a", 0, guarantee=4), gpus("b")) == {"a": 0, "b": 4}
    assert gpu_shares(8, gpus("a", 1, guarantee=4), gpus("b")) == {"a": 1, "b": 4}


def test_a_childs_guarantee_holds_against_the_whole_tree() -> None:
    tree = [gpus("a", 0), gpus("a1", 0, parent="a", guarantee=3), gpus("a2", parent="a"), gpus("b", weight=9)]
    assert gpu_shares(10, *tree) == {"a": 1, "a1": 0, "a2": 1, "b": 6}
    tree[0] = gpus("a", 0, capability=3)
    assert gpu_shares(10, *tree) == {"a": 0, "a1": 0, "a2": 0, "b": 7}, "with it the capability is used up"


def test_guarantees_beyond_the_cluster_are_met_in_proportion() -> None:
    assert gpu_shares(6, gpus("a", guarantee=8), gpus("b", guarantee=4), gpus("c")) == {"a": 4, "b": 2, "c": 0}


def test_complementary_children_do_not_take_from_each_other() -> None:
    """Volcano's tests of H-DRF: what the leaves get there, ten CPUs and GPUs (rescaling), thirty of each (blocking)."""
    wants = {"cpu": {CPU: 30}, "gpu": {GPU: 30}, "both": {CPU: 30, GPU: 30}}

    def shares(total: int, **queues: str) -> dict[str, tuple[int, int]]:
        claims = [
            QueueClaims(name=name, parent=name[:2] if len(name) > 2 else "", demand=wants.get(kind, {}))
            for name, kind in queues.items()
        ]
        found = queue_shares(claims, {CPU: total, GPU: total})
        return {name: (share[CPU], share[GPU]) for name, share in found.items() if queues[name]}

    assert shares(10, n1="both", n2="", n21="cpu", n22="gpu") == {"n1": (5, 5), "n21": (5, 0), "n22": (0, 5)}
    assert shares(30, n1="cpu", n2="cpu", n3="", n31="cpu", n32="gpu", n4="gpu") == {
        "n1": (10, 0), "n2": (10, 0), "n31": (10, 0), "n32": (0, 15), "n4": (0, 15)
    }  # fmt: skip


def test_queues_that_the_root_does_not_lead_to_have_no_share() -> None:
    tree = [
        gpus("a"),
        gpus("lost", parent="unknown"),
        gpus("x", parent="y"),
        gpus("y", parent="x"),
        gpus("z", parent="z"),
    ]
    assert gpu_shares(10, *tree) == {"a": 10}


def test_every_resource_of_the_cluster_and_no_other_has_a_share() -> None:
    claims = [QueueClaims(name="a", demand={GPU: 1, "fpga": 1})]
    assert queue_shares(claims, {GPU: 8, CPU: 1000}) == {"a": {GPU: 1, CPU: 0}}
    assert queue_shares([], {GPU: 8}) == {}
