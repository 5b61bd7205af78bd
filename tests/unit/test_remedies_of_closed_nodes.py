"""What explain offers for a job that nodes refuse though they have room: no step that isn't needed is named."""

from typing import Any

import msgspec
import pytest

from arranger.messages.failures import failure_remedy_text
from arranger.model.job import Topology
from arranger.model.node import Taint
from arranger.model.pod import HostPort, PodRules, PodTerm, Requirement, SpreadRule
from arranger.replay.explain.in_queue import KeptBy
from arranger.replay.explain.waiting import Waiting
from arranger.replay.ledger.causes import Cause, causes_of
from tests.unit.replay_worlds import explained
from tests.unit.test_preemption import CONFIG
from tests.world import World, shape

HOST, ZONE = "kubernetes.io/hostname", "zone"
OWN = (Requirement("app", "In", ("j",)),)
PORT = PodRules(host_ports=(HostPort(8080),))
APART = PodRules(anti_affinity=(PodTerm(HOST, OWN),))
SPREAD = PodRules(spread=(SpreadRule(HOST, 1, OWN),))
APART_BY_ZONE = PodRules(anti_affinity=(PodTerm(ZONE, OWN),))


def _node(world: World, name: str, *, cordoned: bool = False, taints: tuple[Taint, ...] = (), **labels: str) -> int:
    world.node(name, cordoned=cordoned, taints=taints, labels={HOST: name, **labels})
    return world.state.offset


def _waiting(world: World, rules: PodRules, *, workers: int = 3) -> Waiting:
    world.job(
        "j", workers=workers, worker=shape(cpu=1, rules=rules, labels={"app": "j"}), min_workers=workers, equals=True
    )
    world.cycle()
    waiting = explained(world.entries, "j").waiting
    assert waiting is not None
    return waiting


@pytest.mark.parametrize("rules", [PORT, APART, SPREAD])
def test_labels_that_the_job_does_not_read_are_not_restored(rules: PodRules) -> None:
    world = World()
    for name in ("n1", "n2", "n3"):
        _node(world, name)
    _node(world, "n3", rack="r1")
    cordoned = _node(world, "n3", cordoned=True)
    _node(world, "n4", rack="r2")
    tainted = _node(world, "n4", taints=(Taint("team", "a", "NoSchedule"),))
    waiting = _waiting(world, rules)
    told = [(remedy.text, remedy.undoes, remedy.several) for remedy in waiting.remedies if remedy.kind != "node"]
    assert told[:2] == [
        ("uncordon n3", cordoned, False),
        ("remove taint team=a:NoSchedule from n4, or tolerate it", tainted, False),
    ]
    assert "label" not in " ".join(text for text, *_ in told)
    assert cordoned in [one.offset for one in waiting.earlier]


@pytest.mark.parametrize("rules", [PORT, APART])
def test_one_more_node_is_offered_where_every_node_has_what_the_job_avoids(rules: PodRules) -> None:
    world = World()
    for name in ("n1", "n2"):
        _node(world, name)
    waiting = _waiting(world, rules)
    assert "one more node like n2" in [remedy.text for remedy in waiting.remedies]


def test_a_lost_topology_key_is_restored_with_the_repair_that_it_needs() -> None:
    world = World()
    for number, zone in enumerate("abc", start=1):
        _node(world, f"n{number}", zone=zone)
    _node(world, "n3", zone="a", rack="r1")
    _node(world, "n3", zone="a", rack="r1", cordoned=True)
    texts = [remedy.text for remedy in _waiting(world, APART_BY_ZONE).remedies]
    assert texts[0] == "uncordon n3 and label n3 zone=c"


def test_a_topology_key_that_a_node_lost_or_changed_is_restored_alone() -> None:
    world = World()
    for number, zone in enumerate("abc", start=1):
        _node(world, f"n{number}", zone=zone)
    _node(world, "n3", zone="a", rack="r1")
    changed = world.state.offset
    _node(world, "n3", zone="a")  # another label, later
    remedy = _waiting(world, APART_BY_ZONE).remedies[0]
    assert (remedy.text, remedy.undoes) == ("label n3 zone=c", changed)


def test_the_level_of_a_topology_that_a_node_lost_is_restored() -> None:
    world = World()
    _node(world, "n1", rack="r1")
    _node(world, "n2", rack="r1")
    _node(world, "n2")
    lost = world.state.offset
    one = shape(cpu=48)
    world.job("j", workers=2, worker=one, min_workers=2, equals=True, topologies={"": Topology(("rack",))})
    world.cycle()
    waiting = explained(world.entries, "j").waiting
    assert waiting is not None
    assert [(one.text, one.undoes) for one in waiting.remedies if one.kind == "label"] == [("label n2 rack=r1", lost)]


def _kept_by(world: World) -> KeptBy | None:
    waiting = explained(world.entries, "j").waiting
    assert waiting is not None and waiting.in_queue is not None
    return waiting.in_queue.kept_by


@pytest.mark.parametrize("rules", [PORT, APART, SPREAD])
def test_what_rules_about_other_pods_keep_waiting_is_not_kept_by_room(rules: PodRules) -> None:
    world = World()
    for name in ("n1", "n2"):
        _node(world, name)
    _node(world, "n3", cordoned=True)
    _waiting(world, rules)
    assert _kept_by(world) == KeptBy.RULES


def test_what_only_closed_nodes_keep_waiting_is_kept_by_them_though_it_selects_no_others() -> None:
    world = World()
    _node(world, "n1")
    _node(world, "n2", cordoned=True, gpu="h100")
    _node(world, "n3", taints=(Taint("team", "a", "NoSchedule"),), gpu="h100")
    world.job("j", leader=shape(cpu=1, selector={"gpu": "h100"}))
    world.cycle()
    assert _kept_by(world) == KeptBy.CLOSED_NODES


@pytest.mark.parametrize("selects", [True, False])
@pytest.mark.parametrize("how", ["cordon", "taint"])
def test_a_closed_node_is_named_too_where_the_job_would_take_room_on_it(how: str, selects: bool) -> None:
    """Only closed nodes with free room were tried. So nothing named one that was full of a job of lower priority, and
    who waits for it was said to be kept by its own selection of nodes."""
    world = World(config=CONFIG)
    _node(world, "a")
    _node(world, "n1", pool="x")
    for name, priority in (("low", 1), ("high", 9)):
        world.job(name, leader=shape(cpu=64), priority=priority)
        world.settle()
    [closed] = world.state.jobs["uid-low"].placements.values()
    taints = (Taint("team", "a", "NoSchedule"),) if how == "taint" else ()
    labels = {"pool": "x"} if closed == "n1" else {}
    offset = _node(world, closed, cordoned=how == "cordon", taints=taints, **labels)
    world.job("j", leader=shape(cpu=64, selector={HOST: closed} if selects else {}), priority=6)
    world.cycle()
    waiting = explained(world.entries, "j").waiting
    assert waiting is not None and waiting.shortfall is not None and waiting.shortfall.closest is not None
    remedy = next(of for of in waiting.remedies if of.kind in ("uncordon", "taint"))
    assert remedy.undoes == offset and closed in remedy.text
    if selects:
        assert _kept_by(world) == KeptBy.CLOSED_NODES
        assert waiting.shortfall.closest.node == closed


def test_what_its_own_selector_keeps_waiting_is_kept_by_that() -> None:
    world = World()
    _node(world, "n1")
    world.job("j", leader=shape(cpu=1, selector={"gpu": "h100"}))
    world.cycle()
    assert _kept_by(world) == KeptBy.SELECTION


@pytest.mark.parametrize("cordoned", [False, True])
def test_what_no_rack_of_its_own_selection_could_hold_is_kept_by_the_nodes(cordoned: bool) -> None:
    """It was said to select none of the nodes: those that it does were counted as fitting one pod alone."""
    world = World()
    for number in range(8):
        pool = {"gpu": "h100" if number < 5 else "l40"}
        world.node(f"n{number}", gpus=8, cordoned=cordoned, labels={"rack": f"r{number // 3}"} | pool)
    pod = shape(gpus=8, selector={"gpu": "h100"})
    world.job("j", workers=4, worker=pod, min_workers=4, equals=True, topologies={"": Topology(("rack",))})
    world.cycle()
    assert _kept_by(world) == KeptBy.INFEASIBLE
    world.pass_time(world.config.infeasible_grace_ms / 1000 + 1)
    world.settle()
    [job] = world.state.jobs.values()
    assert job.decided is not None
    assert failure_remedy_text(job.decided).startswith(
        "request less for a pod, need fewer pods at once (minWorkersNum, minCount), let its topology be Preferred or "
        "have larger domains, or add nodes that hold it, or correct the nodeSelector of its pods"
    )


@pytest.mark.parametrize(
    "rules", [APART_BY_ZONE, PodRules(spread=(SpreadRule(ZONE, 1, OWN),))], ids=["apart", "spread"]
)
def test_what_its_own_rules_keep_from_the_nodes_that_it_selects_is_not_kept_by_its_selection(rules: PodRules) -> None:
    world = World(config=msgspec.structs.replace(CONFIG, search_steps=20_000))
    for number in range(6):
        pool = {"gpu": "h100" if number < 4 else "l40"}
        world.node(f"n{number}", gpus=4, labels={ZONE: "z0" if number < 3 else f"z{number}"} | pool)
    pod = shape(gpus=4, selector={"gpu": "h100"}, rules=rules, labels={"app": "j"})
    world.job("j", workers=4, worker=pod, min_workers=4, equals=True)
    world.cycle()
    assert _kept_by(world) != KeptBy.SELECTION


def test_what_fits_no_rack_now_is_kept_by_room_and_not_by_its_selection() -> None:
    world = World()
    for number in range(6):
        world.node(f"n{number}", gpus=8, labels={"rack": f"r{number // 2}", "gpu": "h100" if number < 4 else "l40"})
    for number in (0, 2):
        world.pod(f"p{number}", f"n{number}", gpus=8)
    pod = shape(gpus=8, selector={"gpu": "h100"})
    world.job("j", workers=2, worker=pod, min_workers=2, equals=True, topologies={"": Topology(("rack",))})
    world.cycle()
    assert _kept_by(world) == KeptBy.ROOM


def test_what_lacks_room_on_any_node_is_kept_by_room() -> None:
    world = World()
    _node(world, "n1")
    _node(world, "n2", cordoned=True)
    world.pod("p1", "n1", cpu=1)
    world.pod("p2", "n2", cpu=1)
    world.job("j", leader=shape(cpu=64))
    world.cycle()
    assert _kept_by(world) == KeptBy.ROOM


def test_what_no_node_could_hold_is_kept_by_the_nodes_however_full_or_closed_they_are() -> None:
    world = World()
    _node(world, "n1")
    _node(world, "n2", cordoned=True)
    world.pod("p1", "n1", cpu=64)
    world.job("j", leader=shape(cpu=65))
    world.cycle()
    assert _kept_by(world) == KeptBy.INFEASIBLE


def _causes(world: World) -> list[Cause]:
    [job] = world.state.jobs.values()
    return [cause for cause, _ in causes_of(world.state, job)]


def test_a_closed_node_that_it_does_not_select_either_keeps_nothing_waiting() -> None:
    """A platform engineer's node was cordoned, and the job was said to wait for it though its selector matches none."""
    world = World()
    _node(world, "n1")
    _node(world, "n2", cordoned=True)
    world.job("j", leader=shape(cpu=1, selector={"gpu": "h100"}))
    world.cycle()
    assert _kept_by(world) == KeptBy.SELECTION


def test_a_closed_node_keeps_a_job_waiting_that_fills_all_others_by_itself() -> None:
    world = World()
    for name in ("n1", "n2"):
        _node(world, name)
    _node(world, "n3", cordoned=True)
    world.job("j", workers=3, worker=shape(cpu=48), min_workers=3, equals=True)
    world.cycle()
    assert _kept_by(world) == KeptBy.CLOSED_NODES and _causes(world) == [Cause.CLOSED]


@pytest.mark.parametrize("workers", [3, 4])
@pytest.mark.parametrize(
    "how", [{"cordoned": True}, {"ready": False}, {"taints": (Taint("team", "a", "NoSchedule"),)}], ids=str
)
@pytest.mark.parametrize("closed", [1, 3])
def test_what_even_all_nodes_open_and_empty_could_not_hold_is_kept_by_the_nodes(
    how: dict[str, Any], closed: int, workers: int
) -> None:
    world = World()
    for number in range(3):
        world.node(f"n{number}", **(how if number < closed else {}))
    world.job("j", workers=workers, worker=shape(cpu=48), min_workers=workers, equals=True)
    world.cycle()
    assert _kept_by(world) == (KeptBy.INFEASIBLE if workers > 3 else KeptBy.CLOSED_NODES)


def _full_and_cordoned(jobs: int) -> World:
    """The only node is cordoned, and `jobs` jobs of a CPU fill it."""
    world = World()
    world.node("n1", cpu=jobs)
    for number in range(jobs):
        world.job(f"held-{number}", leader=shape(cpu=1))
        world.settle()
        world.pass_time(1)
    world.node("n1", cpu=jobs, cordoned=True)
    return world


@pytest.mark.parametrize(
    ("asked", "when"),
    [(1, "default/held-2 ends, which has"), (2, "default/held-2 and default/held-1 end, which have")],
)
def test_a_node_that_is_cordoned_and_full_is_offered_with_the_end_of_those_on_it(asked: int, when: str) -> None:
    world = _full_and_cordoned(3)
    world.job("j", leader=shape(cpu=asked))
    world.cycle()
    waiting = explained(world.entries, "j").waiting
    assert waiting is not None
    assert [of.text for of in waiting.remedies if of.kind == "uncordon"] == [f"uncordon n1, and when {when} pods there"]


def test_ends_beside_a_repair_are_offered_only_where_ends_alone_cannot_help() -> None:
    world = _full_and_cordoned(2)
    world.node("n2", cpu=1)
    world.job("held", leader=shape(cpu=1))
    world.settle()
    world.job("j", leader=shape(cpu=1))
    world.cycle()
    waiting = explained(world.entries, "j").waiting
    assert waiting is not None
    assert [of.text for of in waiting.remedies if of.kind in ("uncordon", "capacity")] == [
        "when default/held (1 cpu on n2) ends"
    ]
