"""Where each pod of a job has room on some node, and only all of them together have none, explain still finds those
whose end gives it nodes."""

import pytest

from arranger.model.job import Topology, TopologyMode, TopologyScope
from arranger.model.pod import PodRules, PodTerm, Requirement
from arranger.replay.explain.waiting import Waiting
from tests.unit.replay_worlds import explained, with_room_rules
from tests.world import World, shape

GPU, HOST, RACK = "nvidia.com/gpu", "kubernetes.io/hostname", "rack"
WHOLE = {"": Topology((RACK,), TopologyMode.REQUIRED, TopologyScope.JOB)}
OF_SET = {"actors": Topology((RACK,), TopologyMode.REQUIRED, TopologyScope.SET)}


def four(*used: int, gpus: int = 8) -> World:
    """Four nodes of 8 GPUs, n1 and n2 in one rack, n3 and n4 in another; a job uses 4 GPUs on each of these."""
    world = World()
    for number, rack in enumerate(("r1", "r1", "r2", "r2"), start=1):
        world.node(f"n{number}", cpu=64, gpus=gpus, labels={RACK: rack, HOST: f"n{number}"})
    for number in used:
        on(world, number, 4)
    return world


def on(world: World, number: int, gpus: int, cpu: float = 1) -> None:
    """A job on one of the nodes."""
    world.job(f"f{number}", leader=shape(cpu=cpu, gpus=gpus, selector={HOST: f"n{number}"}), created=1)
    world.settle()


def workers(world: World, pods: int = 4, gpus: int = 4, rules: PodRules | None = None, **spec: object) -> None:
    worker = shape(cpu=1, gpus=gpus, labels={"app": "j"}, rules=rules)
    world.job("j", workers=pods, worker=worker, min_workers=pods, equals=True, created=2, **spec)  # type: ignore[arg-type]


def waits(world: World) -> Waiting:
    world.cycle()
    waiting = explained(world.entries, "j").waiting
    assert waiting is not None and not waiting.gets
    return waiting


def ends(world: World) -> list[str]:
    return [one.text for one in waits(world).remedies if one.kind == "capacity"]


@pytest.mark.parametrize("topologies", [WHOLE, OF_SET])
def test_the_end_of_a_job_in_a_rack_where_every_node_takes_one_pod(topologies: dict[str, Topology]) -> None:
    world = four(1, 3)
    workers(world, topologies=topologies)
    waiting = waits(world)
    said = [one.text for one in waiting.remedies if one.kind == "capacity"]
    assert said == [f"when default/f3 (4 {GPU} on n3) ends", f"when default/f1 (4 {GPU} on n1) ends"]
    assert len(waiting.earlier) == 2 and not waiting.blockers, "their placements are what keeps it waiting"
    assert [taker.job for taker in waiting.takers] == ["default/f1", "default/f3"]


def test_the_end_of_two_jobs_of_one_rack() -> None:
    world = four(1, 2, 3, 4)
    workers(world, topologies=WHOLE)
    assert ends(world) == [f"when these end: default/f4 (4 {GPU} on n4); default/f3 (4 {GPU} on n3)"]


def test_what_the_racks_are_short_of_and_not_only_what_one_odd_node_is() -> None:
    """Only the node without enough CPUs lacks something for one pod, and it is in no rack that could take them all."""
    world = four(1, 3)
    world.node("n5", cpu=4, gpus=8, labels={RACK: "r3", HOST: "n5"})
    on(world, 5, 0, cpu=4)
    workers(world, topologies=WHOLE)
    assert sorted(ends(world)) == [f"when default/f{of} (1 cpu, 4 {GPU} on n{of}) ends" for of in (1, 3)]


def test_who_only_uses_what_the_racks_have_enough_of_is_no_candidate() -> None:
    world = four(1, 3)
    on(world, 2, 0, cpu=8)
    workers(world, topologies=WHOLE)
    waiting = waits(world)
    assert [taker.job for taker in waiting.takers] == ["default/f1", "default/f3"]


def test_the_end_of_a_job_in_another_rack_than_that_where_the_first_pods_are() -> None:
    world = four(1, 2, 3)
    join = PodRules(affinity=(PodTerm(RACK, (Requirement("app", "In", ("j",)),)),))
    workers(world, rules=join)
    assert f"when default/f3 (4 {GPU} on n3) ends" in ends(world)


def test_pods_of_two_sets_that_avoid_each_other_and_select_other_nodes() -> None:
    """The pod that finds no node could only have the one of the other set, which could go where the other job is."""
    world = four(2)
    for number in (3, 4):
        world.node_gone(f"n{number}")
    apart = PodRules(anti_affinity=(PodTerm(HOST, (Requirement("app", "In", ("j",)),)),))
    any_node = shape(cpu=1, gpus=8, labels={"app": "j"}, rules=apart)
    bound = shape(cpu=1, gpus=1, labels={"app": "j"}, rules=apart, selector={HOST: "n1"})
    world.job("j", workers=[("any", 1, any_node), ("bound", 1, bound)], min_workers=2, equals=True, created=2)
    assert ends(world) == [f"when default/f2 (4 {GPU} on n2) ends"]


def test_each_of_two_sets_lacks_something_else() -> None:
    world = World()
    world.node("n1", cpu=16, labels={HOST: "n1"})
    world.node("n2", cpu=16, gpus=8, labels={HOST: "n2"})
    on(world, 1, 0, cpu=16)
    on(world, 2, 8, cpu=1)
    sets = [("wide", 1, shape(cpu=16)), ("deep", 1, shape(cpu=1, gpus=8))]
    world.job("j", workers=sets, min_workers=2, equals=True, created=2)
    assert len(ends(world)) == 1 and ends(world)[0].startswith("when these end: ")


def test_pods_that_leave_a_rack_where_every_node_takes_one_pod() -> None:
    world = four(3)
    world.pod("old", "n1", gpus=4, deleting=True)
    workers(world, topologies=WHOLE)
    assert any(one.text.startswith("when the pod that leaves is gone: default/old") for one in waits(world).remedies)


def test_who_cannot_be_preempted_in_such_a_rack_may_be_let() -> None:
    world = with_room_rules()
    world.node_gone("n1")
    for number, rack in enumerate(("r1", "r1", "r2", "r2"), start=1):
        world.node(f"n{number}", cpu=64, gpus=8, labels={RACK: rack, HOST: f"n{number}"})
    for number in (1, 3):
        lead = shape(cpu=1, gpus=4, selector={HOST: f"n{number}"})
        world.job(f"f{number}", leader=lead, created=1, priority=1, preemptible=False)
        world.settle()
    workers(world, topologies=WHOLE, priority=9)
    assert "preemptible true of default/f" in " ".join(one.text for one in waits(world).remedies)
