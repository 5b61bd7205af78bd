"""The measure of fragmentation and its gradient, against sums done by hand and against the definition, term by term."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arranger.scheduling.cluster.fragmentation import (
    NO_FIT,
    STEP_MILLI,
    Mix,
    NodeStates,
    Request,
    fragments,
    most_frequent,
    score_placements,
    usable,
)

MODELS = ("A", "B")


def states(*nodes: tuple[int, list[int], str]) -> NodeStates:
    """Nodes of (free millicores, free milli-GPU by device, model)."""
    devices = max(len(free) for _, free, _ in nodes)
    return NodeStates(
        np.array([cpu for cpu, _, _ in nodes], np.int64),
        np.array([free + [0] * (devices - len(free)) for _, free, _ in nodes], np.int64),
        np.array([MODELS.index(model) for _, _, model in nodes], np.int64),
    )


def everywhere(nodes: NodeStates) -> np.ndarray:
    return np.ones(len(nodes.model), bool)


def test_fragments_are_what_each_typical_pod_could_not_use() -> None:
    mix = Mix(
        [
            (Request(4000, 1, 1000), 3),  # runs; can't use the 300 of the second GPU: 3 · 300
            (Request(1000, 1, 500), 2),  # runs; the same: 2 · 300
            (Request(1000, 0, 0), 1),  # asks for no GPU, so all is idle to it: 1 · 1300
            (Request(16000, 1, 200), 4),  # lacks cpu: 4 · 1300
            (Request(1000, 2, 1000), 5),  # lacks a second whole GPU: 5 · 1300
            (Request(1000, 1, 100, ("B",)), 6),  # the node has another model: 6 · 1300
            (Request(1000, 1, 300, ("B", "A")), 7),  # runs on both GPUs: 0
        ],
        MODELS,
    )
    node = states((8000, [1000, 300], "A"))
    assert fragments(node, mix).tolist() == [3 * 300 + 2 * 300 + 16 * 1300]
    assert usable(node, mix).tolist() == [28 * 1300 - fragments(node, mix)[0]]


def test_a_node_without_idle_gpus_has_no_fragments() -> None:
    mix = Mix([(Request(1000, 1, 500), 2), (Request(1000, 0, 0), 1)], MODELS)
    assert fragments(states((8000, [0, 0], "A"), (8000, [], "B")), mix).tolist() == [0, 0]


@st.composite
def requests(draw: st.DrawFn) -> Request:
    gpus = draw(st.sampled_from([0, 1, 1, 2, 4]))
    milli = 0 if not gpus else 1000 if gpus > 1 else draw(st.sampled_from([100, 430, 500, 1000]))
    return Request(draw(st.integers(0, 9)) * 1000, gpus, milli, draw(st.sampled_from([(), ("A",), ("A", "B")])))


nodes_of_any_kind = st.lists(
    st.tuples(
        st.integers(0, 9).map(lambda cpus: cpus * 1000),
        st.lists(st.sampled_from([0, 70, 430, 500, 570, 1000]), min_size=1, max_size=4),
        st.sampled_from(MODELS),
    ),
    min_size=1,
    max_size=5,
)
mixes = st.lists(st.tuples(requests(), st.integers(1, 9)), max_size=5)


def by_definition(node: tuple[int, list[int], str], mix: list[tuple[Request, int]]) -> int:
    cpu, free, model = node
    total = 0
    for request, weight in mix:
        big_enough = [idle for idle in free if idle >= request.gpu_milli]
        runs = cpu >= request.cpu_milli and request.accepts(model) and len(big_enough) >= request.gpus
        lost = sum(free) - sum(big_enough) if runs and request.gpus else sum(free)
        total += weight * lost
    return total


@given(nodes=nodes_of_any_kind, mix=mixes)
def test_all_nodes_at_once_give_the_definition(
    nodes: list[tuple[int, list[int], str]], mix: list[tuple[Request, int]]
) -> None:
    assert fragments(states(*nodes), Mix(mix, MODELS)).tolist() == [by_definition(node, mix) for node in nodes]


@given(nodes=nodes_of_any_kind, mix=mixes.filter(bool), request=requests().filter(lambda one: one.gpus > 0))
def test_the_score_is_the_gradient_of_the_best_device_in_steps(
    nodes: list[tuple[int, list[int], str]], mix: list[tuple[Request, int]], request: Request
) -> None:
    weight = sum(count for _, count in mix)
    every = states(*nodes)
    fits = every.cpu_milli >= request.cpu_milli
    scores, devices = score_placements(every, request, fits, Mix(mix, MODELS))
    for row, (cpu, free, model) in enumerate(nodes):
        takes = _ways(free, request) if fits[row] else []
        if not takes:
            assert scores[row] == NO_FIT
            continue
        offers = []
        for device, after in takes:
            gradient = by_definition((cpu, free, model), mix) - by_definition(
                (cpu - request.cpu_milli, after, model), mix
            )
            room = free[device] if request.shared else 0
            offers.append((gradient // (STEP_MILLI * weight), -room, -device))
        steps, room, device = max(offers)
        assert (scores[row] - room) % 2000 == 0
        assert (scores[row] - room) // 2000 == steps
        assert devices[row] == (-device if request.shared else 0)


def _ways(free: list[int], request: Request) -> list[tuple[int, list[int]]]:
    """Each way to take the GPUs: the device that is shared (or 0), and what is free afterwards."""
    if request.shared:
        places = [place for place, idle in enumerate(free) if idle >= request.gpu_milli]
        return [(p, [idle - request.gpu_milli * (q == p) for q, idle in enumerate(free)]) for p in places]
    whole = [place for place, idle in enumerate(free) if idle == 1000][: request.gpus]
    return [(0, [0 if p in whole else idle for p, idle in enumerate(free)])] if len(whole) == request.gpus else []


def test_a_shared_pod_prefers_what_was_a_fragment_already() -> None:
    mix = Mix([(Request(1000, 1, 1000), 1)], MODELS)
    nodes = states((8000, [1000, 1000], "A"), (8000, [1000, 600], "A"))
    scores, devices = score_placements(nodes, Request(1000, 1, 500), everywhere(nodes), mix)
    # On the first node 500 become a fragment: -500 / 80 is -6.25, rounded down -7. On the second, 600 that were a
    # fragment become 100: +500 / 80 is 6.25, rounded down 6.
    assert scores.tolist() == [-7 * 2000 - 1000, 6 * 2000 - 600]
    assert devices.tolist() == [0, 1]


def test_equal_steps_take_the_tightest_device_and_then_the_first() -> None:
    mix = Mix([(Request(1000, 1, 900), 1)], MODELS)  # none of these devices is of any use to it
    nodes = states((8000, [700, 450, 600, 450], "A"))
    scores, devices = score_placements(nodes, Request(1000, 1, 400), everywhere(nodes), mix)
    assert devices.tolist() == [1]
    assert scores.tolist() == [400 // STEP_MILLI * 2000 - 450]


def test_cpu_taken_from_others_counts_as_fragmentation() -> None:
    mix = Mix([(Request(4000, 1, 1000), 1)], MODELS)
    nodes = states((5000, [1000, 1000], "A"), (9000, [1000, 1000], "A"))
    scores, _ = score_placements(nodes, Request(2000, 1, 1000), everywhere(nodes), mix)
    # The first node keeps 3000 millicores, too few for the typical pod: its other GPU is lost. The second keeps 7000.
    assert scores.tolist() == [-1000 // STEP_MILLI * 2000, 0]


def test_pods_that_do_not_fit_have_no_score() -> None:
    mix = Mix([(Request(1000, 1, 1000), 1)], MODELS)
    nodes = states((8000, [1000, 400], "A"), (8000, [1000, 1000], "A"), (8000, [1000, 1000], "A"))
    scores, _ = score_placements(nodes, Request(1000, 2, 1000), np.array([True, True, False]), mix)
    assert (scores == NO_FIT).tolist() == [True, False, True]
    scores, _ = score_placements(nodes, Request(1000, 1, 500), np.array([False, True, True]), mix)
    assert (scores == NO_FIT).tolist() == [True, False, False]


@pytest.mark.parametrize(("share_percent", "kept"), [(100, 3), (90, 2), (60, 1), (61, 2)])
def test_the_most_frequent_requests_are_as_few_as_make_up_the_share(share_percent: int, kept: int) -> None:
    small, large, rare = Request(1000, 1, 500), Request(2000, 1, 1000), Request(9000, 8, 1000)
    found = most_frequent([rare, *[small] * 6, *[large] * 3], share_percent=share_percent)
    assert found == [(small, 6), (large, 3), (rare, 1)][:kept]
