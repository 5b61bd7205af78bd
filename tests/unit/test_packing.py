"""Packings: groups of equal pods on nodes, compared with trying everything."""

import random
from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arranger.scheduling.search import packing
from arranger.scheduling.search.packing import Packing, StepCount, pack
from tests.depth import extent

SEEDED = st.integers(0, 1 << 48).map(random.Random)
BY_CHANCE = settings(max_examples=extent(150, 3000), deadline=None, print_blob=True)
UNBOUND = 1 << 40


def random_packing(rng: random.Random, *, groups: int = 3, nodes: int = 4) -> Packing:
    groups, nodes = rng.randint(1, groups), rng.randint(1, nodes)
    requests = np.array([[1, rng.randint(0, 3), rng.randint(0, 2)] for _ in range(groups)], np.int64)
    caps = np.array([rng.randint(1, 3) for _ in range(groups)], np.int64)
    free = np.array([[rng.randint(0, 5) for _ in range(3)] for _ in range(nodes)], np.int64)
    room = np.array([[most(of_node, asked) * rng.choice([0, 1, 1]) for asked in requests] for of_node in free])
    quotas = rng.choice([0, 2])
    uses = np.array([[rng.randint(0, 2) for _ in range(quotas)] for _ in range(groups)], np.int64)
    left = np.array([rng.randint(0, 6) for _ in range(quotas)], np.int64)
    asked = rng.randint(1, int(caps.sum()))
    least = np.array([rng.randint(0, cap) * rng.choice([0, 0, 1]) for cap in caps.tolist()], np.int64)
    asked = max(asked, int(least.sum()))
    return Packing(requests, caps, free, np.minimum(room, caps), asked, least, uses, left)


def most(free: np.ndarray, asked: np.ndarray) -> int:  # type: ignore[type-arg]
    return int(min(have // need for have, need in zip(free, asked, strict=True) if need))


def holds(question: Packing, counts: np.ndarray) -> None:  # type: ignore[type-arg]
    """The counts are what was asked for."""
    assert (counts >= 0).all() and (counts <= question.room).all()
    assert (counts @ question.requests <= question.free).all()
    pods = counts.sum(axis=0)
    assert pods.sum() == question.asked and (pods <= question.caps).all()
    assert (pods >= question.least).all()
    assert not question.left.size or (pods @ question.uses <= question.left).all()


def fits(question: Packing) -> bool:
    """Whether there is a way, by trying all of them."""
    reached = {(0,) * len(question.caps)}
    for node in range(len(question.free)):
        ways = list(_ways(question, node))
        reached = {tuple(a + b for a, b in zip(so_far, way, strict=True)) for so_far in reached for way in ways}
        reached = {of for of in reached if (np.array(of) <= question.caps).all()}
    return any(_enough(question, np.array(of)) for of in reached)


def _ways(question: Packing, node: int) -> Iterator[tuple[int, ...]]:
    for way in product(*(range(int(most) + 1) for most in question.room[node])):
        if (np.array(way) @ question.requests <= question.free[node]).all():
            yield way


def _enough(question: Packing, pods: np.ndarray) -> bool:  # type: ignore[type-arg]
    if pods.sum() != question.asked or (pods < question.least).any():
        return False
    return bool((pods @ question.uses <= question.left).all())


@BY_CHANCE
@given(rng=SEEDED)
def test_a_way_is_found_exactly_if_there_is_one(rng: random.Random) -> None:
    question = random_packing(rng)
    found = pack(question, UNBOUND)
    assert found.complete and (found.counts is not None) == fits(question)
    if found.counts is not None:
        holds(question, found.counts)


@BY_CHANCE
@given(rng=SEEDED)
def test_the_beam_search_finds_the_same_if_it_may_take_long_enough(rng: random.Random) -> None:
    question = random_packing(rng, groups=5, nodes=6)
    found = packing._Search(question, StepCount(UNBOUND)).beam()
    assert (found is not None) == (pack(question, UNBOUND).counts is not None)
    if found is not None:
        holds(question, found)


def test_a_table_that_would_be_too_large_is_replaced_by_a_beam() -> None:
    """Seven groups of which a node takes one pod: the table has 100,000 cells for each node."""
    requests = np.array([[1, 2**group, 127 - 2**group] for group in range(7)], np.int64)
    caps = np.full(7, 6)
    free = np.array([[2, 127, 127 * 2 - 127]] * 24, np.int64)
    room = np.minimum(np.array([[most(of_node, asked) for asked in requests] for of_node in free]), caps)
    question = Packing(requests, caps, free, room, 24, np.zeros(7, np.int64))
    assert not packing._Search(question, StepCount(20_000)).fits_a_table()
    found = pack(question, 20_000)
    assert found.counts is not None
    holds(question, found.counts)


@BY_CHANCE
@given(rng=SEEDED, limit=st.integers(0, 400))
def test_a_bound_changes_nothing_but_that_a_search_may_end(rng: random.Random, limit: int) -> None:
    question = random_packing(rng)
    found, whole = pack(question, limit), pack(question, UNBOUND)
    assert found.steps <= limit
    if found.counts is not None:
        holds(question, found.counts)
    elif found.complete:
        assert whole.counts is None
    else:
        assert found.steps == limit


@pytest.mark.parametrize("nodes", [1, 40])
def test_equal_nodes_are_computed_once(nodes: int) -> None:
    """Forty times as many equal nodes don't cost forty times as much: two of them hold all the pods."""
    requests = np.array([[1, 2], [1, 3]], np.int64)
    free = np.repeat(np.array([[4, 8]], np.int64), nodes, axis=0)
    room = np.repeat(np.array([[3, 2]], np.int64), nodes, axis=0)
    found = pack(Packing(requests, np.array([3, 2]), free, room, 5, np.zeros(2, np.int64)), 1000)
    assert (found.counts is not None) == (nodes > 1) and found.steps < 500
