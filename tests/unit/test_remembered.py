"""What follows from the nodes' facts is computed once for each version of them."""

from unittest import mock

import numpy as np

from arranger.projections.cluster import remembered as kept
from arranger.projections.cluster.nodes import Version
from arranger.projections.cluster.remembered import remembered
from tests.world import World


def test_a_value_is_computed_once_until_a_fact_changes() -> None:
    world = World()
    world.node("n1", cpu=8)
    nodes, computed = world.state.nodes, []

    def ask() -> int:
        return remembered(nodes.facts_version, "how many", lambda: computed.append(1) or len(computed))

    assert (ask(), ask()) == (1, 1)
    world.job("ppo")
    world.cycle()
    assert ask() == 1, "use is no fact"
    world.node("n1", cpu=8, cordoned=True)
    assert ask() == 2


def test_a_copy_shares_what_was_computed_until_one_of_them_changes() -> None:
    world = World()
    world.node("n1", cpu=8)
    copy = world.state.nodes.copy()
    assert copy.facts_version is world.state.nodes.facts_version
    world.node("n2", cpu=8)
    assert copy.facts_version is not world.state.nodes.facts_version
    assert copy.names_version is not world.state.nodes.names_version


def test_a_changed_fact_leaves_the_names_as_they_are() -> None:
    world = World()
    world.node("n1", cpu=8)
    before = world.state.nodes.names_version
    world.node("n1", cpu=16)
    assert world.state.nodes.names_version is before


def test_values_that_are_asked_for_in_turn_are_computed_once() -> None:
    """As the shapes of 10,000 waiting jobs are in each cycle: a limit that drops the oldest would drop each of them
    before its turn."""
    version, computed = Version(), list[int]()
    for _ in range(3):
        for number in range(10_000):
            assert remembered(version, number, lambda number=number: computed.append(number) or str(number)) == str(
                number
            )
    assert computed == list(range(10_000))


def test_what_was_not_asked_for_lately_is_dropped_once_there_is_too_much() -> None:
    version, computed = Version(), list[str]()

    def ask(key: str) -> None:
        remembered(version, key, lambda: computed.append(key) or np.zeros(1000))

    with mock.patch.object(kept, "_KEPT_BYTES", 20_000):
        ask("asked for again")
        for number in range(100):
            ask(str(number))
            ask("asked for again")
        assert computed.count("asked for again") == 1
        assert len(version.notes) + len(version.older) < 12
        ask("0")
    assert computed.count("0") == 2
