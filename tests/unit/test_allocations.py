"""Allocations in a TYJob's status."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arranger.model.allocations import decode_allocations, encode_allocations, merged
from arranger.model.job import PlacedPods

NAMES = ("learner", "actors", "evaluators", "replay")


@st.composite
def allocations(draw: st.DrawFn) -> tuple[PlacedPods, ...]:
    """Any placement of a leader and up to 60 workers on up to 6 nodes, in any order and in any pieces."""
    nodes = st.sampled_from([f"node-{number}" for number in range(6)])
    placed = [PlacedPods(draw(nodes), 0, ((0, 0),))] if draw(st.booleans()) else []
    for group in (1, 2, 3):
        for index in draw(st.sets(st.integers(0, 40), max_size=20)):
            placed.append(PlacedPods(draw(nodes), group, ((index, index),)))
    return tuple(draw(st.permutations(placed)))


def members(placed: tuple[PlacedPods, ...]) -> set[tuple[str, int, int]]:
    return {(part.node, part.group, index) for part in placed for a, b in part.indices for index in range(a, b + 1)}


@given(allocations())
def test_what_is_written_is_what_is_read(placed: tuple[PlacedPods, ...]) -> None:
    status = msgspec.json.decode(msgspec.json.encode(encode_allocations(placed, NAMES)))
    found = decode_allocations(status, NAMES)
    assert found == merged(placed)
    assert members(found) == members(placed)


@given(allocations())
def test_each_node_and_group_stands_once_with_the_fewest_runs(placed: tuple[PlacedPods, ...]) -> None:
    found = merged(placed)
    assert len({(part.node, part.group) for part in found}) == len(found)
    for part in found:
        assert all(last + 1 < first for (_, last), (first, _) in zip(part.indices, part.indices[1:], strict=False))


def test_a_status_reads_well() -> None:
    placed = (
        PlacedPods("gpu-1", 0, ((0, 0),)),
        PlacedPods("gpu-1", 1, ((0, 3), (7, 7))),
        PlacedPods("gpu-2", 2, ((0, 0),)),
    )
    assert encode_allocations(placed, NAMES) == [
        {"node": "gpu-1", "leader": True, "workers": [{"set": "actors", "indices": "0-3,7"}]},
        {"node": "gpu-2", "workers": [{"set": "evaluators", "indices": "0"}]},
    ]


def test_a_job_of_5000_workers_each_on_its_own_node_stays_far_below_the_size_limit() -> None:
    placed = [
        PlacedPods(f"ip-10-0-{n // 250}-{n % 250}.eu-central-1.compute.internal", 1, ((n, n),)) for n in range(5000)
    ]
    assert len(msgspec.json.encode(encode_allocations(placed, NAMES))) < 750_000


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=4), lambda inner: (
    st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["node", "leader", "workers", "set", "indices"]), inner, max_size=5)
)))  # fmt: skip
def test_reading_never_fails(junk: Any) -> None:
    decode_allocations(junk, NAMES)


@pytest.mark.parametrize(
    "indices", ["", "a", "3-1", "1-", "-1", "1,,2", "1 - 2", "0-9999999", "99999999", 3, None, "1\n"]
)
def test_indices_that_say_nothing_are_left_out(indices: Any) -> None:
    status = [{"node": "n", "leader": True, "workers": [{"set": "actors", "indices": indices}]}]
    assert decode_allocations(status, NAMES) == (PlacedPods("n", 0, ((0, 0),)),)


def test_a_set_that_the_job_does_not_have_is_left_out() -> None:
    status = [{"node": "n", "workers": [{"set": "learner", "indices": "0"}, {"set": "gone", "indices": "0"}]}]
    assert decode_allocations(status, NAMES) == ()
