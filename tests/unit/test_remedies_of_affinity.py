"""What explain says and offers where the required node affinity of a pod selects no node."""

import msgspec
import pytest

from arranger.messages.shortages import waits_text
from arranger.model.pod import PodShape, Requirement
from tests.unit.replay_worlds import explained
from tests.unit.test_remedies_of_specs import HOST, cluster, helps
from tests.world import World, shape


def affine(*terms: str, **of: object) -> PodShape:
    """A pod that needs a GPU and a node of one of these terms, each written as "zone In a b, gpu Exists"."""
    split = [[one.split() for one in term.split(", ")] for term in terms]
    required = tuple(tuple(Requirement(key, what, tuple(values)) for key, what, *values in term) for term in split)
    return msgspec.structs.replace(shape(gpus=1, **of), required_terms=required)  # type: ignore[arg-type]


def asking(*terms: str, world: World | None = None, **of: object) -> World:
    world = world or cluster(2)
    world.job("j", leader=affine(*terms, **of))
    world.cycle()
    return world


def test_the_affinity_is_named_where_no_node_matches() -> None:
    world = asking("zone In a b")
    said = "learner: 0 of 2 nodes fit: 2 required node affinity doesn't match (zone In a,b)"
    waiting = explained(world.entries, "j", node="n1").waiting
    assert waiting is not None and waiting.shortfall is not None and waiting.why.endswith(said)
    assert waits_text(world.state.jobs["uid-j"]).endswith(said), "kubectl says it, too"
    assert waiting.shortfall.node is not None and waiting.shortfall.node.refused.endswith("(zone In a,b)")
    assert (waiting.shortfall.affinity, waiting.shortfall.selector) == ("zone In a,b", "")


@pytest.mark.parametrize(
    ("term", "label"), [("zone In a b", "zone=a"), ("rl Exists", "rl=true"), ("zone In a, rl Exists", "zone=a,rl=true")]
)
def test_the_affinity_may_be_left_out_and_a_node_labelled(term: str, label: str) -> None:
    world = asking(term)
    said = term.replace(" b", ",b").replace(", ", " and ")
    assert helps(world) == [f"without the required node affinity {said}"]
    assert helps(world, kind="label") == [f"label n1 {label}", f"label n2 {label}"]
    assert helps(world, kind="node") == [f"one more node like n2 with the label{'s' * (',' in label)} {label}"]


def test_of_several_terms_one_that_labels_can_meet_is_met() -> None:
    assert helps(asking("pool NotIn x, size Gt 3", "zone In b"), kind="label") == ["label n1 zone=b", "label n2 zone=b"]


@pytest.mark.parametrize("term", ["size Gt 3", f"{HOST} In n9", "topology.kubernetes.io/zone In a", "gpu-type In h100"])
def test_no_node_is_told_to_be_another(term: str) -> None:
    world = World()
    world.node("n1", gpus=8, labels={HOST: "n1", "gpu-type": "a100"})
    asking(term, world=world)
    assert helps(world, kind="label") == []
    assert helps(world) == [f"without the required node affinity {term}"]


def test_a_former_value_comes_back_before_a_new_one() -> None:
    world = cluster(1, zone="b")
    world.node("n1", gpus=8, labels={HOST: "n1"})
    assert helps(asking("zone In a b", world=world), kind="label") == ["label n1 zone=b"]


def test_a_wrong_selector_and_a_wrong_affinity_are_left_out_together() -> None:
    world = asking("zone In a", selector={"pool": "rl"})
    assert helps(world) == ["nodeSelector without pool=rl and without the required node affinity zone In a"]
    assert helps(world, kind="label") == [f"label n{n} pool=rl and label n{n} zone=a" for n in (1, 2)]


def test_an_affinity_that_selects_a_full_node_stays() -> None:
    world = cluster(1, gpus=1, zone="a")
    world.job("first", leader=shape(gpus=1))
    world.settle()
    assert helps(asking("zone In a", world=world)) == []
