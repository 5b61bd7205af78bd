"""FragmentGradient on a cluster's own columns: sums by hand, the definition on random clusters, ties by name."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arranger.model.config import CycleConfig
from arranger.model.node import NodeFacts
from arranger.model.pod import PodShape
from arranger.projections.cluster.nodes import NodeTable
from arranger.scheduling.cluster.fragmentation import STEP_MILLI
from arranger.scheduling.cluster.mix import MOST_SHAPES, mix_of
from arranger.scheduling.cluster.view import ClusterView
from arranger.scheduling.policies.fragment_gradient import scores

CONFIG = CycleConfig()
GPU = "nvidia.com/gpu"


def view(*nodes: tuple[int, int]) -> ClusterView:
    """Nodes of (millicores, GPUs), all free."""
    table = NodeTable()
    for number, (cpu, gpus) in enumerate(nodes):
        allocatable = tuple(sorted({"cpu": cpu, "pods": 110, GPU: gpus}.items()))
        table.see(
            f"n{number:02}",
            f"uid-{number}",
            "1",
            NodeFacts(allocatable=allocatable, ready=True, cordoned=False),
            time_ms=0,
        )
    return ClusterView(table)


def shape(cpu: int, gpus: int = 0, resource: str = GPU) -> PodShape:
    requests = {"cpu": cpu, resource: gpus}
    return PodShape(tuple(sorted((name, amount) for name, amount in requests.items() if amount)))


def test_a_small_pod_leaves_the_node_that_a_large_one_needs() -> None:
    cluster = view((64_000, 8), (64_000, 3))
    mix = [(shape(1000, 8), 1), (shape(1000, 1), 3)]
    # Of 4 typical pods one needs 8 GPUs. The first node: none is a fragment; after 1 is taken the 7 others are to it:
    # -7 / 4 of a GPU. The second: 3 are a fragment to it, 2 afterwards: 1 / 4.
    expected = [-7000 // 4 // STEP_MILLI, 1000 // 4 // STEP_MILLI]
    assert scores(cluster, shape(1000, 1), mix).tolist() == expected


def test_cpu_that_gpus_need_is_not_given_to_pods_without_gpus() -> None:
    cluster = view((16_000, 8), (64_000, 1), (64_000, 0))
    mix = [(shape(2000, 1), 1)]
    # The first node would keep 1000 millicores and lose all of its 8 GPUs.
    assert scores(cluster, shape(15_000), mix).tolist() == [-8000 // STEP_MILLI, 0, 0]


def test_pods_without_gpus_count_all_idle_gpus_as_fragments() -> None:
    cluster = view((64_000, 2), (64_000, 4))
    mix = [(shape(1000), 1), (shape(1000, 1), 1)]
    assert scores(cluster, shape(1000, 1), mix).tolist() == [500 // STEP_MILLI] * 2


def test_a_typical_pod_uses_nothing_where_it_is_not_allowed() -> None:
    cluster = view((64_000, 2), (64_000, 2))
    mix = [(shape(1000, 1), 1)]
    found = scores(cluster, shape(1000, 1), mix, allowed=lambda typical: np.array([True, False]))
    assert found.tolist() == [0, 1000 // STEP_MILLI]


def test_gpus_of_another_kind_are_fragments() -> None:
    cluster = view((64_000, 2))
    mix = [(shape(1000, 1, "amd.com/gpu"), 1)]
    assert scores(cluster, shape(1000, 1), mix).tolist() == [1000 // STEP_MILLI]


def test_an_empty_mix_prefers_no_node() -> None:
    assert scores(view((1000, 1), (2000, 2)), shape(1000, 1), []).tolist() == [0, 0]


shapes = st.builds(shape, st.integers(1, 8).map(lambda cpus: cpus * 1000), st.sampled_from([0, 1, 2, 4]))


@given(
    nodes=st.lists(
        st.tuples(st.integers(0, 9).map(lambda cpus: cpus * 1000), st.integers(0, 6)), min_size=1, max_size=4
    ),
    mix=st.lists(st.tuples(shapes, st.integers(1, 5)), min_size=1, max_size=4),
    pod=shapes,
)
def test_scores_are_the_gradient_of_the_definition(
    nodes: list[tuple[int, int]], mix: list[tuple[PodShape, int]], pod: PodShape
) -> None:
    weight = sum(count for _, count in mix)
    asks = dict(pod.requests)
    found = scores(view(*nodes), pod, mix)
    for row, (cpu, gpus) in enumerate(nodes):
        left = cpu - asks["cpu"], gpus - asks.get(GPU, 0)
        if min(left) >= 0:
            gradient = by_definition((cpu, gpus), mix) - by_definition(left, mix)
            assert found[row] == gradient * 1000 // (STEP_MILLI * weight)


def by_definition(free: tuple[int, int], mix: list[tuple[PodShape, int]]) -> int:
    total = 0
    for typical, count in mix:
        asks = dict(typical.requests)
        runs = asks["cpu"] <= free[0] and 0 < asks.get(GPU, 0) <= free[1]
        total += 0 if runs else count * free[1]
    return total


@given(
    pod=shapes,
    mix=st.lists(st.tuples(shapes, st.integers(1, 5)), min_size=1, max_size=4),
    extra=st.integers(0, 3),
)
def test_scores_after_some_pods_are_the_scores_with_them_taken(
    pod: PodShape, mix: list[tuple[PodShape, int]], extra: int
) -> None:
    early, late = view((64_000, 16), (40_000, 20)), view((64_000, 16), (40_000, 20))
    request = late.request(pod)
    late.free[:, : len(request)] -= request * extra
    assert scores(early, pod, mix, extra=extra).tolist() == scores(late, pod, mix).tolist()


def test_a_resource_that_no_node_has_yet_is_none_there() -> None:
    cluster = view((64_000, 2))
    mix = [(shape(1000, 1, "example.com/gpu"), 1), (shape(1000, 1), 1)]
    # Nothing is usable to the first before or after; the second loses no GPU. What it would take isn't there anyway.
    assert scores(cluster, shape(1000, 1, "other.example.com/gpu"), mix).tolist() == [1000 // STEP_MILLI]


def test_the_mix_adds_up_equal_shapes_and_keeps_the_most_frequent() -> None:
    counted = [(shape(cpu), cpu) for cpu in range(1, MOST_SHAPES + 20)]
    mix = mix_of([*counted, (shape(1), 1000), *counted])
    assert mix[0] == (shape(1), 1002)
    assert mix[1] == (shape(MOST_SHAPES + 19), 2 * (MOST_SHAPES + 19))
    assert len(mix) == MOST_SHAPES
    assert mix == mix_of([*reversed(counted), *counted, (shape(1), 1000)])


@pytest.mark.parametrize("count", [1, 7])
def test_the_order_of_counting_does_not_decide_between_equals(count: int) -> None:
    alike = [(shape(cpu, gpus), count) for cpu in range(1, 30) for gpus in range(4)]
    assert mix_of(alike) == mix_of(list(reversed(alike)))
