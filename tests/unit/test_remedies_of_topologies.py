"""What explain offers a job whose topology keeps it from nodes: a looser one, smaller requests, and nodes there."""

import msgspec
import pytest

from arranger.events.facts import LevelLack, UnitLack
from arranger.messages.shortages import unit_text
from arranger.model.job import Topology, TopologyMode, TopologyScope
from arranger.projections.jobs.records import JobRecord
from arranger.replay.explain.remedies import Remedy
from tests.unit.replay_worlds import explained, with_room_rules
from tests.world import World, shape

GPU, RACK = "nvidia.com/gpu", "rack"
IN_A_RACK = Topology((RACK,), TopologyMode.REQUIRED, TopologyScope.SET)
LOOSER = "topology Preferred instead of Required for actors"


def racks() -> World:
    """Four nodes of 8 GPUs, two in the first rack, one in the second and one in none; one GPU is in use."""
    world = with_room_rules(guests=True)
    world.node_gone("n1")
    for number, rack in enumerate(("r1", "r1", "r2", "")):
        world.node(f"n{number}", cpu=64, gpus=8, labels={RACK: rack} if rack else {})
    world.job("one", leader=shape(cpu=1, gpus=1), created=1)
    world.settle()
    return world


def in_a_rack(world: World, name: str, workers: int, gpus: int = 4, **spec: object) -> JobRecord:
    """A job of workers that need one rack, and a small leader."""
    spec = {"topologies": {"actors": IN_A_RACK}, "min_workers": workers, **spec}
    leader, worker = shape(cpu=1), shape(cpu=1, gpus=gpus)
    return world.job(name, leader=leader, workers=workers, worker=worker, **spec)  # type: ignore[arg-type]


def helps(world: World, job: str) -> list[Remedy]:
    waiting = explained(world.entries, job).waiting
    assert waiting is not None
    return [one for one in waiting.remedies if one.gives]


def told(world: World, job: str) -> list[str]:
    return [one.text for one in helps(world, job)]


def test_a_looser_topology_is_offered_behind_another_job_that_waits_for_a_domain() -> None:
    world = racks()
    first = in_a_rack(world, "first", 4, created=2)
    world.cycle()
    assert list(world.state.reservations) == [first.uid]
    in_a_rack(world, "later", 6, created=3)
    world.cycle()
    assert LOOSER in told(world, "later")
    looser = {"actors": msgspec.structs.replace(IN_A_RACK, mode=TopologyMode.PREFERRED)}
    later = in_a_rack(world, "later", 6, topologies=looser, created=3)
    world.cycle()
    assert len(later.placements) == 7, "it does what it says"


@pytest.mark.parametrize("whole_job", [False, True])
def test_a_running_job_is_offered_a_node_in_the_rack_that_it_is_bound_to(whole_job: bool) -> None:
    """The larger node elsewhere was taken as the model, in a rack that is of no use to it."""
    world = with_room_rules()
    world.node_gone("n1")
    for number, rack in enumerate(("r1", "r2", "r2")):
        world.node(f"n{number}", cpu=64, gpus=8 if rack == "r1" else 16, labels={RACK: rack})
    for number in (1, 2):
        world.job(f"big{number}", leader=shape(cpu=1, gpus=16), created=1)
    world.settle()
    whole = Topology((RACK,), TopologyMode.REQUIRED, TopologyScope.JOB)
    bound = {"topologies": {"": whole} if whole_job else {"actors": IN_A_RACK}}
    world.job("tp", workers=2, worker=shape(cpu=1, gpus=6), min_workers=1, equals=True, created=2, **bound)  # type: ignore[arg-type]
    world.settle()
    assert len(world.state.jobs["uid-tp"].placements) == 1
    assert "one more node like n0" in told(world, "tp")
    lack = UnitLack(TopologyScope.JOB, 0, 1, 1, (LevelLack(RACK, 1, 0),))
    assert unit_text(lack, "a") == "1 pod of the job must join the 1 pod that has a node: 0 in its rack fit"


def test_of_several_topologies_only_those_that_keep_the_job_from_nodes_are_loosened() -> None:
    world = racks()
    sets = [("actors", 6, shape(cpu=1, gpus=4)), ("critics", 1, shape(cpu=1, gpus=1))]
    topologies = {"actors": IN_A_RACK, "critics": IN_A_RACK}
    world.job("j", leader=shape(cpu=1), workers=sets, min_workers=7, topologies=topologies, created=2)
    world.cycle()
    assert [text for text in told(world, "j") if "topology" in text] == [LOOSER]


def test_several_topologies_that_keep_the_job_from_nodes_are_loosened_together() -> None:
    world = racks()
    sets = [("actors", 3, shape(cpu=1, gpus=5)), ("critics", 5, shape(cpu=3, gpus=3))]
    topologies = {"actors": IN_A_RACK, "critics": IN_A_RACK}
    world.job("j", leader=shape(cpu=1), workers=sets, min_workers=8, topologies=topologies, created=2)
    world.cycle()
    assert [text for text in told(world, "j") if "topology" in text] == [f"{LOOSER} and critics"]


def test_smaller_requests_with_which_a_domain_takes_all_pods_are_offered() -> None:
    world = racks()
    in_a_rack(world, "j", 4, created=2)
    world.cycle()
    assert f"actors asking for 3 {GPU} instead of 4" in told(world, "j")
    again = in_a_rack(world, "j", 4, 3, created=2)
    world.cycle()
    assert len(again.placements) == 5


def test_a_job_that_no_domain_could_ever_hold_may_ask_for_less_too() -> None:
    world = racks()
    in_a_rack(world, "j", 6, created=2)
    world.cycle()
    assert f"actors asking for 2 {GPU} instead of 4" in told(world, "j")
    assert LOOSER in told(world, "j")


def test_smaller_requests_are_offered_where_each_node_has_room_for_a_pod() -> None:
    """Nothing that a pod asks for is short on any node: only the domains are too small."""
    world = racks()
    whole = {"": Topology((RACK,))}
    in_a_rack(world, "j", 3, 7, topologies=whole, created=2)
    world.cycle()
    assert any(text.startswith("actors asking for ") for text in told(world, "j"))


def test_nodes_are_added_to_the_largest_domain() -> None:
    world = racks()
    in_a_rack(world, "j", 6, created=2)
    world.cycle()
    assert "2 more nodes like n1" in told(world, "j")


def test_a_level_that_no_node_has_is_probably_one_that_some_have() -> None:
    world = racks()
    rakc = Topology(("rakc",), TopologyMode.REQUIRED, TopologyScope.JOB)
    in_a_rack(world, "misspelt", 2, topologies={"": rakc, "actors": rakc})
    world.cycle()
    assert "topology level rack instead of rakc" in told(world, "misspelt")
