"""What follows from the nodes' facts is computed once for each version of them."""

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
