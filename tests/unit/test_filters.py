"""Filters that depend on other pods, and preferences, to the letter of Kubernetes' documentation."""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arranger.events import kinds as k
from arranger.messages.shortages import node_text
from arranger.model.job import ScheduleState
from arranger.model.node import Taint
from arranger.model.pod import (
    HostPort,
    PodRules,
    PodShape,
    PodTerm,
    PodTraits,
    Preference,
    Requirement,
    Selector,
    SpreadRule,
    Toleration,
)
from arranger.model.reasons import FITS, Reason, ReasonKind, insufficient
from arranger.projections.jobs.records import JobRecord
from arranger.scheduling.cluster.neighbours import Neighbour, PortTakers, SelectedPods, neighbour_of
from arranger.scheduling.cluster.view import Chosen, ClusterView
from arranger.scheduling.cycle import VERSIONS, Cycles, take_cycle
from arranger.scheduling.filters.nodes import Filters
from arranger.scheduling.placing.placement_try import CycleObserver, PlacementTry, Shortage
from arranger.scheduling.policies.base import PlacementRequest
from arranger.scheduling.queues.registry import BUILT_IN
from arranger.scheduling.search.placer import Placer
from tests.unit.replay_worlds import explained
from tests.world import World, shape

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"


def wants(operator: str, *values: str, key: str = "app") -> Requirement:
    return Requirement(key, operator, values)


APP = (wants("In", "a"),)


def zones(world: World, **nodes: str) -> None:
    """Nodes by name with their zones; a node without zone has an empty one."""
    for name, zone in nodes.items():
        world.node(name, cpu=8, labels={HOST: name} | ({ZONE: zone} if zone else {}))


def see(world: World, node: str, traits: PodTraits | None = None, **more: object) -> str:
    """A stranger's pod on a node, app=a by default."""
    traits = PodTraits((("app", "a"),)) if traits is None else traits
    return world.pod(f"pod-{len(world.state.pods)}", node, traits=traits, **more)  # type: ignore[arg-type]


def asking(labels: str = "", *, namespace: str = "default", **rules: object) -> PodShape:
    return shape(cpu=1, labels={"app": labels} if labels else {}, rules=PodRules(**rules))  # type: ignore[arg-type]


def verdicts(world: World, pod: PodShape, *, namespace: str = "default") -> dict[str, Reason]:
    """For each node why it refuses such a pod of a new job, or `FITS`; the reasons add up to the nodes."""
    job = world.job("asking", leader=pod, namespace=namespace)
    view = Placer(world.state, world.config, BUILT_IN).view
    filters, seen = Filters(view, BUILT_IN.filters), neighbour_of(job, 0)
    found = {name: filters.refusal(pod, row, seen) for row, name in enumerate(view.names)}
    assert dict(filters.reasons(pod, seen)) == Counter(found.values())
    assert [reason == FITS for reason in found.values()] == (filters.room(pod, seen) > 0).tolist()
    assert [reason == FITS for reason in found.values()] == filters.allowed(pod, seen).tolist()
    names = [of.name for of in BUILT_IN.filters]
    for order in (names[::-1], names[3::4], [*names[9:], *names[:2]]):
        other = Filters(view, BUILT_IN.filters, order=order)
        refused = {name: other.refusal(pod, row, seen) for row, name in enumerate(view.names)}
        assert dict(other.reasons(pod, seen)) == Counter(refused.values())
        assert (other.room(pod, seen) == filters.room(pod, seen)).all()
        assert other.allowed(pod, seen).tolist() == filters.allowed(pod, seen).tolist()
    return found


def fitting(world: World, pod: PodShape, *, namespace: str = "default") -> set[str]:
    return {name for name, reason in verdicts(world, pod, namespace=namespace).items() if reason == FITS}


def nodes_of(job: JobRecord) -> Counter[str]:
    return Counter(job.placements.values())


def waits(events: Iterable[k.Event]) -> k.Waits:
    return next(event for event in events if isinstance(event, k.Waits))


# --- label selectors ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("selector", "matched"),
    [
        (None, set()),
        ((), {"a", "b", ""}),
        ((wants("In", "a", "b"),), {"a", "b"}),
        ((wants("In", "c"),), set()),
        ((wants("In"),), set()),
        ((wants("NotIn", "a"),), {"b", ""}),
        ((wants("NotIn"),), {"a", "b", ""}),
        ((wants("Exists"),), {"a", "b"}),
        ((wants("DoesNotExist"),), {""}),
        ((wants("Exists"), wants("NotIn", "b")), {"a"}),
        ((wants("Exists"), wants("Exists", key="other")), set()),
        ((wants("Gt", "0"),), set()),
    ],
)
def test_a_label_selector_matches(selector: Selector, matched: set[str]) -> None:
    selected = SelectedPods(((None, selector),))
    found = {app for app in ("a", "b", "") if selected.matches(Neighbour("n", (("app", app),) if app else ()))}
    assert found == matched


@pytest.mark.parametrize(
    ("namespaces", "refusing"),
    [((("",)), "own"), (("other",), "other"), (("", "other"), "both"), (None, "both"), ((), "none")],
)
def test_a_term_looks_at_its_namespaces(namespaces: tuple[str, ...] | None, refusing: str) -> None:
    world = World()
    zones(world, n1="z", n2="z2", n3="z3")
    see(world, "n1", namespace="team")
    see(world, "n2", namespace="other")
    pod = asking(anti_affinity=(PodTerm(HOST, APP, namespaces),))
    expected = {"own": {"n2", "n3"}, "other": {"n1", "n3"}, "both": {"n3"}, "none": {"n1", "n2", "n3"}}[refusing]
    assert fitting(world, pod, namespace="team") == expected


# --- host ports ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("there", "desired", "taken"),
    [
        (HostPort(80), HostPort(80), True),
        (HostPort(80), HostPort(81), False),
        (HostPort(80, "UDP"), HostPort(80), False),
        (HostPort(80, "UDP"), HostPort(80, "UDP"), True),
        (HostPort(80, "SCTP"), HostPort(80, "UDP"), False),
        (HostPort(80, "TCP", "10.0.0.1"), HostPort(80), True),
        (HostPort(80), HostPort(80, "TCP", "10.0.0.1"), True),
        (HostPort(80, "TCP", "10.0.0.1"), HostPort(80, "TCP", "10.0.0.1"), True),
        (HostPort(80, "TCP", "10.0.0.1"), HostPort(80, "TCP", "10.0.0.2"), False),
        (HostPort(80, "TCP", "::"), HostPort(80, "TCP", "10.0.0.1"), False),
    ],
)
def test_a_host_port_is_taken(there: HostPort, desired: HostPort, taken: bool) -> None:
    assert PortTakers(desired).matches(Neighbour("n", (), (HostPort(9), there))) == taken
    world = World()
    zones(world, n1="z")
    see(world, "n1", PodTraits(host_ports=(there,)))
    expected = Reason(ReasonKind.HOST_PORT, desired.protocol, needed=desired.port) if taken else FITS
    assert verdicts(world, asking(host_ports=(desired,))) == {"n1": expected}


def test_a_pod_that_has_ended_takes_no_port() -> None:
    world = World()
    zones(world, n1="z")
    see(world, "n1", PodTraits(host_ports=(HostPort(80),)), phase="Succeeded")
    assert fitting(world, asking(host_ports=(HostPort(80),))) == {"n1"}


def test_pods_that_take_a_host_port_go_to_one_node_each() -> None:
    world = World()
    zones(world, n1="z", n2="z", n3="z")
    see(world, "n2", PodTraits(host_ports=(HostPort(80),)))
    job = world.job("j", workers=3, min_workers=0, worker=asking(host_ports=(HostPort(80),)))
    short = waits(world.cycle())
    assert nodes_of(job) == {"n1": 2, "n3": 1}  # the leader takes no port
    assert short.shortage.reasons == ((Reason(ReasonKind.HOST_PORT, "TCP", needed=80), 3),)


# --- pod affinity -------------------------------------------------------------------------------------------------

JOIN = PodTerm(ZONE, APP)
AWAY = Reason(ReasonKind.AFFINITY, ZONE)


def test_a_pod_joins_the_zone_of_the_pods_that_it_selects() -> None:
    world = World()
    zones(world, n1="z1", n2="z1", n3="z2", n4="")
    see(world, "n1")
    assert verdicts(world, asking(affinity=(JOIN,))) == {
        "n1": FITS, "n2": FITS, "n3": AWAY, "n4": Reason(ReasonKind.NO_AFFINITY_LABEL, ZONE),
    }  # fmt: skip


def test_where_nobody_is_selected_only_a_pod_that_selects_itself_may_be_the_first() -> None:
    world = World()
    zones(world, n1="z1", n2="")
    assert fitting(world, asking("a", affinity=(JOIN,))) == {"n1"}
    assert fitting(world, asking("b", affinity=(JOIN,))) == set()


def test_a_pod_that_selects_itself_is_not_the_first_while_others_are_anywhere_else() -> None:
    world = World()
    zones(world, n1="z1", n2="z2")
    see(world, "n2")
    assert fitting(world, asking("a", affinity=(JOIN,))) == {"n2"}


def test_selected_pods_outside_every_topology_or_ended_or_on_lost_nodes_count_for_nothing() -> None:
    world = World()
    zones(world, n1="z1", n2="")
    see(world, "n2")
    see(world, "lost")
    see(world, "n1", phase="Failed")
    assert fitting(world, asking("a", affinity=(JOIN,))) == {"n1"}  # the first
    assert fitting(world, asking(affinity=(JOIN,))) == set()


def test_one_pod_must_be_selected_by_all_the_terms() -> None:
    both = (JOIN, PodTerm(HOST, (wants("In", "x", key="tier"),)))
    world = World()
    zones(world, n1="z1", n2="z1")
    see(world, "n1", PodTraits((("app", "a"),)))
    see(world, "n1", PodTraits((("tier", "x"),)))
    assert fitting(world, asking(affinity=both)) == set()
    see(world, "n2", PodTraits((("app", "a"), ("tier", "x"))))
    assert fitting(world, asking(affinity=both)) == {"n2"}


def test_all_pods_of_a_job_can_be_kept_in_one_zone() -> None:
    world = World()
    zones(world, n1="z1", n2="z2", n3="z1", n4="z2")
    world.pod("full", "n1", cpu=6)
    together = PodRules(affinity=(PodTerm(ZONE, (wants("In", "j", key="arranger.dev/job"),)),))
    pod = shape(cpu=1, rules=together)
    job = world.job("j", leader=pod, workers=12, min_workers=0, worker=pod)
    short = waits(world.cycle())
    assert nodes_of(job) == {"n1": 2, "n3": 8}
    assert dict(short.shortage.reasons) == {AWAY: 2, insufficient("cpu", 1000, 0): 2}


def test_a_quorum_that_must_be_together_finds_the_zone_that_holds_it() -> None:
    world = World()
    zones(world, n1="z1", n2="z2", n3="z3", n4="z2")
    world.pod("used", "n1", cpu=4)  # BinPack would begin here
    together = PodRules(affinity=(PodTerm(ZONE, (wants("In", "j", key="arranger.dev/job"),)),))
    pod = shape(cpu=3, rules=together)
    job = world.job("j", leader=shape(cpu=1), workers=4, min_workers=4, worker=pod)
    world.cycle()
    assert set(nodes_of(job)) == {"n2", "n4"}


def test_a_quorum_that_must_be_together_and_fits_no_zone_gets_nothing_and_says_what_lacks() -> None:
    world = World()
    zones(world, n1="z1", n2="z2", n3="z3")
    together = PodRules(affinity=(PodTerm(ZONE, (wants("In", "j", key="arranger.dev/job"),)),))
    pod = shape(cpu=3, rules=together)
    job = world.job("j", leader=pod, workers=3, min_workers=3, worker=pod)
    short = waits(world.cycle())
    assert not job.placements and dict(short.shortage.reasons) == {AWAY: 2, insufficient("cpu", 3000, 2000): 1}
    other = world.job("other", leader=shape(cpu=8), workers=2, worker=shape(cpu=8), min_workers=2)
    world.cycle()
    assert len(other.placements) == 3  # nothing of what was tried is held


# --- pod anti-affinity --------------------------------------------------------------------------------------------

AVOID = PodTerm(ZONE, APP)
AVOIDED = Reason(ReasonKind.ANTI_AFFINITY, ZONE)
REFUSED = Reason(ReasonKind.AVOIDED, ZONE)


def test_a_pod_avoids_the_zones_of_the_pods_that_it_selects_and_may_run_outside_every_zone() -> None:
    world = World()
    zones(world, n1="z1", n2="z1", n3="z2", n4="")
    see(world, "n1")
    see(world, "n4")
    assert verdicts(world, asking(anti_affinity=(AVOID,))) == {"n1": AVOIDED, "n2": AVOIDED, "n3": FITS, "n4": FITS}


def test_a_node_is_named_as_such_in_a_reason() -> None:
    world = World()
    zones(world, n1="z1")
    see(world, "n1")
    pod = asking(anti_affinity=(PodTerm(HOST, APP),))
    found = verdicts(world, pod)
    assert found == {"n1": Reason(ReasonKind.ANTI_AFFINITY, HOST)}
    assert node_text(found["n1"]) == "on the same node as pods it must avoid (anti-affinity)"


def test_any_term_of_anti_affinity_is_enough_to_refuse() -> None:
    world = World()
    zones(world, n1="z1", n2="z2", n3="z3")
    see(world, "n1")
    see(world, "n2", PodTraits((("app", "b"),)))
    pod = asking(anti_affinity=(AVOID, PodTerm(ZONE, (wants("In", "b"),))))
    assert fitting(world, pod) == {"n3"}


def test_pods_that_are_there_keep_away_those_that_they_select_and_no_others() -> None:
    world = World()
    zones(world, n1="z1", n2="z1", n3="z2")
    see(world, "n1", PodTraits(anti_affinity=(AVOID,)))
    assert verdicts(world, shape(cpu=1, labels={"app": "a"})) == {"n1": REFUSED, "n2": REFUSED, "n3": FITS}
    assert fitting(world, shape(cpu=1, labels={"app": "b"})) == {"n1", "n2", "n3"}
    assert fitting(world, shape(cpu=1, labels={"app": "a"}), namespace="other") == {"n1", "n2", "n3"}


@pytest.mark.parametrize("selector", [(), (wants("NotIn", "b"),), (wants("In", "a", "c"),), (wants("Exists"),)])
def test_whatever_the_selector_of_a_pod_that_repels_it_keeps_the_selected_away(selector: Selector) -> None:
    world = World()
    zones(world, n1="z1", n2="z2")
    see(world, "n1", PodTraits(anti_affinity=(PodTerm(ZONE, selector, None),)))
    assert fitting(world, shape(cpu=1, labels={"app": "a"}), namespace="other") == {"n2"}


def test_a_placement_whose_pod_is_not_there_yet_keeps_away_as_the_pod_will() -> None:
    world = World()
    zones(world, n1="z1", n2="z2")
    first = world.job("first", leader=asking("a", anti_affinity=(AVOID,)))
    world.cycle()
    assert nodes_of(first) == {"n1": 1}
    assert verdicts(world, shape(cpu=1, labels={"app": "a"})) == {"n1": REFUSED, "n2": FITS}
    world.run_pod(first, (0, 0), "n1")
    assert verdicts(world, shape(cpu=1, labels={"app": "a"})) == {"n1": REFUSED, "n2": FITS}


def test_a_pod_that_stops_repelling_lets_others_in() -> None:
    world = World()
    zones(world, n1="z1")
    uid = see(world, "n1", PodTraits(anti_affinity=(AVOID,)))
    job = world.job("j", leader=shape(cpu=1, labels={"app": "a"}))
    world.cycle()
    assert not job.placements
    world.change_pod(uid, traits=PodTraits())
    world.cycle()
    assert nodes_of(job) == {"n1": 1}


def test_workers_that_avoid_each_other_get_a_node_each() -> None:
    world = World()
    zones(world, n1="z1", n2="z1", n3="z2")
    apart = asking("a", anti_affinity=(PodTerm(HOST, APP),))
    job = world.job("j", workers=5, min_workers=3, worker=apart)
    short = waits(world.cycle())
    assert nodes_of(job) == {"n1": 2, "n2": 1, "n3": 1}
    assert short.shortage.reasons == ((Reason(ReasonKind.ANTI_AFFINITY, HOST), 3),)


def test_a_quorum_that_does_not_come_together_leaves_nobody_behind_that_others_must_avoid() -> None:
    world = World()
    zones(world, n1="z1", n2="z2")
    apart = asking("a", anti_affinity=(AVOID,))
    big = world.job("big", leader=apart, workers=2, min_workers=2, worker=apart)
    small = world.job("small", leader=apart, workers=1, min_workers=1, worker=apart, created=1)
    events = world.cycle()
    assert not big.placements and nodes_of(small) == {"n1": 1, "n2": 1}
    assert waits(events).job_uid == big.uid


def test_equal_jobs_are_told_apart_where_pods_refuse_only_one_of_them() -> None:
    world = World()
    zones(world, n1="z1")
    see(world, "n1", PodTraits(anti_affinity=(PodTerm(ZONE, APP, ("closed",)),)))
    pod = shape(cpu=1, labels={"app": "a"})
    jobs = [world.job(f"j{i}", leader=pod, namespace=["open", "closed", "open"][i], created=i) for i in range(3)]
    world.cycle()
    assert [len(job.placements) for job in jobs] == [1, 0, 1]


def test_selectors_see_arrangers_own_labels_of_pods_that_run_and_of_those_to_come() -> None:
    world = World()
    zones(world, n1="z1", n2="z2", n3="z3")
    eval_set = (wants("In", "eval", key="arranger.dev/worker-set"), wants("In", "j", key="arranger.dev/job"))
    pod = shape(cpu=1, rules=PodRules(anti_affinity=(PodTerm(ZONE, eval_set),)))
    job = world.job("j", workers=[("eval", 1, pod), ("actors", 2, shape(cpu=1))], min_workers=3)
    world.settle()
    assert nodes_of(job) == {"n1": 4}
    world.job("j", workers=[("eval", 3, pod), ("actors", 2, shape(cpu=1))], min_workers=3)
    world.cycle()
    assert nodes_of(job) == {"n1": 4, "n2": 1, "n3": 1}


# --- topology spread ----------------------------------------------------------------------------------------------


def spread(key: str = ZONE, skew: int = 1, **more: object) -> SpreadRule:
    return SpreadRule(key, skew, APP, **more)  # type: ignore[arg-type]


def over(*rules: SpreadRule, app: str = "a", selector: Mapping[str, str] | None = None) -> PodShape:
    return shape(cpu=1, labels={"app": app}, rules=PodRules(spread=rules), selector=selector)


def four_nodes(world: World, *pods: str) -> World:
    """Two zones of two nodes, with pods on these nodes: the clusters of Kubernetes' documentation."""
    zones(world, n1="zA", n2="zA", n3="zB", n4="zB")
    for node in pods:
        see(world, node)
    return world


FULL_ZONE = Reason(ReasonKind.TOPOLOGY_SPREAD, ZONE, needed=1)


def test_a_pod_goes_where_it_does_not_exceed_the_skew() -> None:
    world = four_nodes(World(), "n1", "n2", "n3")
    assert verdicts(world, over(spread())) == {"n1": FULL_ZONE, "n2": FULL_ZONE, "n3": FITS, "n4": FITS}
    assert fitting(world, over(spread(skew=2))) == {"n1", "n2", "n3", "n4"}


def test_constraints_hold_together() -> None:
    world = four_nodes(World(), "n1", "n2", "n3")
    assert fitting(world, over(spread(), spread(HOST))) == {"n4"}


def test_constraints_that_exclude_each_other_leave_no_node() -> None:
    world = World()
    zones(world, n1="zA", n2="zA", n3="zB")
    for node in ("n1", "n1", "n2", "n3", "n3"):
        see(world, node)
    assert verdicts(world, over(spread(), spread(HOST))) == {
        "n1": FULL_ZONE, "n2": FULL_ZONE, "n3": Reason(ReasonKind.TOPOLOGY_SPREAD, HOST, needed=1),
    }  # fmt: skip


def test_a_zone_that_the_pod_can_not_use_is_not_spread_over_unless_the_policy_is_to_ignore_that() -> None:
    world = four_nodes(World(), "n1", "n2", "n3")
    world.node("n5", labels={HOST: "n5", ZONE: "zC"}, taints=[Taint("t", "", "NoSchedule")])
    world.node("n6", labels={HOST: "n6", ZONE: "zA", "disk": "ssd"})
    world.node("n7", labels={HOST: "n7", ZONE: "zB", "disk": "ssd"})
    ssd = {"disk": "ssd"}
    # Only n6 and n7 are counted, and nobody runs there.
    assert fitting(world, over(spread(), selector=ssd)) == {"n6", "n7"}
    # With every node counted, zC has no pod, zA two and zB one.
    assert fitting(world, over(spread(honor_affinity=False), selector=ssd)) == set()
    assert fitting(world, over(spread())) == set()
    assert fitting(world, over(spread(honor_taints=True))) == {"n3", "n4", "n7"}


def test_nodes_without_the_label_are_refused_and_not_counted() -> None:
    world = World()
    zones(world, n1="zA", n2="", n3="zB")
    see(world, "n2")
    assert verdicts(world, over(spread())) == {"n1": FITS, "n2": Reason(ReasonKind.NO_SPREAD_LABEL, ZONE), "n3": FITS}


def test_with_fewer_places_than_min_domains_the_fewest_count_as_none() -> None:
    world = four_nodes(World(), "n1", "n3")
    assert fitting(world, over(spread())) == {"n1", "n2", "n3", "n4"}
    assert fitting(world, over(spread(min_domains=2))) == {"n1", "n2", "n3", "n4"}
    assert fitting(world, over(spread(min_domains=3))) == set()
    assert fitting(world, over(spread(skew=2, min_domains=3))) == {"n1", "n2", "n3", "n4"}


def test_a_pod_that_does_not_select_itself_adds_nothing_to_the_skew() -> None:
    world = four_nodes(World(), "n1")
    assert fitting(world, over(spread(), app="b")) == {"n1", "n2", "n3", "n4"}
    see(world, "n2")
    assert fitting(world, over(spread(), app="b")) == {"n3", "n4"}


def test_pods_being_deleted_or_ended_or_of_another_namespace_are_not_counted() -> None:
    world = four_nodes(World())
    see(world, "n1", deleting=True)
    see(world, "n1", phase="Succeeded")
    see(world, "n1", namespace="other")
    assert fitting(world, over(spread())) == {"n1", "n2", "n3", "n4"}


def test_a_missing_selector_counts_nobody() -> None:
    world = four_nodes(World(), "n1", "n2")
    assert fitting(world, over(SpreadRule(ZONE, 1, None))) == {"n1", "n2", "n3", "n4"}


def test_a_jobs_workers_are_spread_over_zones_pod_by_pod() -> None:
    world = World()
    zones(world, n1="zA", n2="zB", n3="zC")
    job = world.job("j", leader=shape(), workers=7, min_workers=7, worker=over(spread()))
    world.cycle()
    workers = Counter(node for (group, _), node in job.placements.items() if group)
    assert sorted(workers.values()) == [2, 2, 3]


# --- what could ever fit ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "infeasible"),
    [
        (PodRules(host_ports=(HostPort(80),)), True),
        (PodRules(anti_affinity=(PodTerm(HOST, APP),)), True),
        (PodRules(anti_affinity=(PodTerm(HOST, (wants("In", "b"),)),)), False),
        (PodRules(affinity=(PodTerm(ZONE, (wants("In", "database"),)),)), False),
        (PodRules(spread=(spread(min_domains=9),)), False),
    ],
)
def test_only_what_no_other_pod_can_mend_makes_a_job_infeasible(rules: PodRules, infeasible: bool) -> None:
    world = World()
    zones(world, n1="z1", n2="z2")
    for node in ("n1", "n2"):
        see(world, node, PodTraits((("app", "b"),)))
    pod = shape(cpu=1, labels={"app": "a"}, rules=rules)
    world.job("j", leader=pod, workers=3, min_workers=3, worker=pod)
    assert waits(world.cycle()).shortage.infeasible == infeasible


def test_pods_that_others_keep_away_for_now_wait_and_never_fail() -> None:
    world = World()
    zones(world, n1="z1")
    see(world, "n1", PodTraits((("app", "a"),), (HostPort(80),), (AVOID,)))
    job = world.job("j", leader=asking("a", host_ports=(HostPort(80),), anti_affinity=(AVOID,)))
    for _ in range(3):
        world.pass_time(1_000)
        world.settle()
    assert job.schedule_state == ScheduleState.UNSCHEDULED
    assert job.waits is not None
    assert job.waits.shortage.reasons == ((Reason(ReasonKind.HOST_PORT, "TCP", needed=80), 1),)


# --- preferences --------------------------------------------------------------------------------------------------


def prefers(weight: int, **labels: str) -> Preference:
    return Preference(weight, tuple(wants("In", value, key=key) for key, value in labels.items()))


def first_choice(world: World, pod: PodShape, policy: str = "") -> str:
    job = world.job("j", leader=pod, policy=policy)
    world.cycle()
    return job.placements[0, 0]


def disks(world: World) -> World:
    for name, disk in (("n1", "hdd"), ("n2", "ssd"), ("n3", "nvme")):
        world.node(name, cpu=8, labels={"disk": disk})
    return world


@pytest.mark.parametrize("policy", ["BinPack", "LeaderFirst", "MinFragment", "JobAffinity", "JobAntiAffinity"])
def test_among_nodes_that_a_policy_scores_alike_the_preferred_one_wins(policy: str) -> None:
    pod = shape(cpu=1, preferred=[prefers(1, disk="ssd"), prefers(2, disk="nvme")])
    assert first_choice(disks(World()), pod, policy) == "n3"


def test_weights_of_preferences_that_a_node_satisfies_add_up() -> None:
    pod = shape(cpu=1, preferred=[prefers(1, disk="ssd"), prefers(1, disk="ssd"), prefers(1, disk="nvme")])
    assert first_choice(disks(World()), pod) == "n2"


def test_a_preference_without_requirements_prefers_nothing() -> None:
    assert first_choice(disks(World()), shape(cpu=1, preferred=[prefers(100), prefers(1, disk="ssd")])) == "n2"


def test_a_preference_never_outweighs_the_policys_score() -> None:
    world = disks(World())
    world.pod("p", "n1", cpu=0.001)
    assert first_choice(world, shape(cpu=1, preferred=[prefers(100, disk="ssd")])) == "n1"


def test_a_node_that_is_advised_against_comes_last_unless_the_pod_tolerates_it() -> None:
    world = World()
    for name, taints in (("n1", ["a", "b"]), ("n2", ["a"]), ("n3", ["c"])):
        world.node(name, taints=[Taint(key, "", "PreferNoSchedule") for key in taints])
    assert first_choice(world, shape(cpu=1)) == "n2"
    tolerant = shape(cpu=1, tolerations=[Toleration("c", "Exists", "", "PreferNoSchedule")])
    world.job_gone(world.state.jobs["uid-j"])
    world.wait_for_late_pods()
    assert first_choice(world, tolerant) == "n3"


def test_equal_pods_fill_preferred_nodes_first_as_one_by_one() -> None:
    for policy in ("BinPack", "JobAntiAffinity"):
        together, one_by_one = disks(World()), disks(World())
        pod = shape(cpu=3, preferred=[prefers(1, disk="ssd")])
        job = together.job("j", leader=pod, workers=4, worker=pod, policy=policy)
        together.cycle()
        other = one_by_one.job("j", leader=pod, workers=0, worker=pod, policy=policy)
        for count in range(5):
            one_by_one.job("j", leader=pod, workers=count, worker=pod, policy=policy)
            one_by_one.cycle()
        assert nodes_of(job) == nodes_of(other)


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.sampled_from(["hdd", "ssd", "nvme"]), st.integers(1, 6), st.booleans()), max_size=5),
    st.lists(st.tuples(st.integers(1, 3), st.sampled_from(["hdd", "ssd", "nvme"])), max_size=3),
    st.sampled_from(["BinPack", "LeaderFirst", "MinFragment", "JobAntiAffinity"]),
    st.integers(1, 6),
)
def test_with_preferences_equal_pods_go_where_they_would_go_one_by_one(
    nodes: list[tuple[str, int, bool]], preferred: list[tuple[int, str]], policy: str, workers: int
) -> None:
    pod = shape(cpu=1, preferred=[prefers(weight, disk=disk) for weight, disk in preferred])
    jobs = []
    for steps in ([workers], range(workers + 1)):
        world = World()
        for number, (disk, cpu, advised) in enumerate(nodes):
            taints = [Taint("t", "", "PreferNoSchedule")] if advised else []
            world.node(f"n{number}", cpu=cpu, labels={"disk": disk}, taints=taints)
        for count in steps:
            jobs.append(world.job("j", leader=pod, workers=count, worker=pod, policy=policy))
            world.cycle()
    assert nodes_of(jobs[0]) == nodes_of(jobs[-1])


# --- what it costs, and what is recorded --------------------------------------------------------------------------


def test_pods_are_not_looked_at_while_none_asks_anything_of_others() -> None:
    world = World()
    zones(world, n1="z1")
    see(world, "n1", PodTraits((("app", "a"),), (HostPort(80),)))
    world.job("plain", leader=shape(cpu=1, labels={"app": "a"}))
    assert Placer(world.state, world.config, BUILT_IN).view.neighbours is None


def test_only_pods_that_repel_are_looked_at_while_no_job_asks_anything() -> None:
    world = World()
    zones(world, n1="z1")
    see(world, "n1", PodTraits(anti_affinity=(AVOID,)))
    world.job("plain", leader=shape(cpu=1))
    neighbours = Placer(world.state, world.config, BUILT_IN).view.neighbours
    assert neighbours is not None and not neighbours.complete


def test_every_filter_is_recorded_and_one_that_a_cycle_did_not_have_is_left_out_of_it() -> None:
    added = {"NodePorts", "PodAffinity", "PodAntiAffinity", "PodTopologySpread", "NodePreference"}
    assert added <= {name for name, _ in VERSIONS}
    world = World()
    zones(world, n1="z1")
    see(world, "n1")
    world.job("j", leader=asking(anti_affinity=(AVOID,)))
    old = tuple(version for version in VERSIONS if version[0] not in added)
    world.config = world.config.__class__(versions=old)
    without = BUILT_IN.recorded(world.config)
    placed = take_cycle(world.state, world.config, world.now_ms, policies=without)
    assert any(isinstance(event, k.Placed) for event in placed)
    assert waits(world.cycle()).shortage.reasons == ((AVOIDED, 1),)


def test_a_process_that_remembers_its_last_cycle_looks_again_when_only_a_pods_labels_change() -> None:
    world = World()
    zones(world, n1="z1")
    uid = see(world, "n1")
    world.job("j", leader=asking(anti_affinity=(AVOID,)))
    cycles = Cycles()
    world.say(*cycles.take(world.state, world.config, world.now_ms))
    assert cycles.take(world.state, world.config, world.now_ms) == ()
    world.change_pod(uid, traits=PodTraits((("app", "b"),)))
    assert any(isinstance(event, k.Placed) for event in cycles.take(world.state, world.config, world.now_ms))


# --- explained ----------------------------------------------------------------------------------------------------


def test_a_job_that_other_pods_keep_waiting_is_told_which_nodes_and_why() -> None:
    world = World()
    zones(world, n1="z1", n2="z2")
    see(world, "n1")
    world.pod("full", "n2", cpu=8)
    world.job("j", leader=asking(anti_affinity=(AVOID,)))
    waiting = explained(world.entries, "j").waiting
    assert waiting is not None and waiting.shortfall is not None and waiting.shortfall.closest is not None
    assert dict(waiting.shortfall.reasons) == {AVOIDED: 1, insufficient("cpu", 1000, 0): 1}
    assert waiting.shortfall.candidates == ("n2",)
    assert waiting.shortfall.closest.node == "n2"


def test_every_pod_placed_one_by_one_is_explained_at_its_own_turn() -> None:
    world = World()
    zones(world, n1="z1", n2="z2", n3="z3")
    apart = asking("a", anti_affinity=(AVOID,))
    world.job("j", leader=apart, workers=2, min_workers=2, worker=apart)
    world.cycle()
    first, second, third = explained(world.entries, "j").placement_explanations
    assert [of_pod.node for of_pod in (first, second, third)] == ["n1", "n2", "n3"]
    assert [of_pod.passed for of_pod in (first, second, third)] == [3, 2, 1]
    assert third.refused == ((AVOIDED, 2),) and third.why == "the only node that could take it"
    assert all(of_pod.node == of_pod.retaken_on == of_pod.ranking[0].node for of_pod in (first, second, third))


def test_a_node_that_won_by_preference_is_said_to() -> None:
    world = disks(World())
    world.job("j", leader=shape(cpu=1, preferred=[prefers(1, disk="ssd")]))
    world.cycle()
    (of_pod,) = explained(world.entries, "j").placement_explanations
    assert of_pod.node == of_pod.ranking[0].node == "n2"
    assert of_pod.why.endswith("its node is preferred, 200 against 0")


# --- pod by pod, on any cluster -----------------------------------------------------------------------------------

JOIN_JOB = PodTerm(ZONE, (wants("In", "j0", "j1", key="arranger.dev/job"),))
TERMS = [
    PodTerm(key, selector, namespaces)
    for key in (ZONE, HOST)
    for selector in (APP, (wants("In", "b"),), (wants("Exists"),), (wants("NotIn", "a"),))
    for namespaces in (("",), None)
] + [JOIN_JOB]
SPREADS = [
    SpreadRule(key, skew, selector, least, affinity, taints)
    for key in (ZONE, HOST)
    for skew in (1, 2)
    for selector in (APP, (wants("Exists"),))
    for least, affinity, taints in ((1, True, False), (3, False, True))
]
PORTS = [HostPort(80), HostPort(80, "UDP"), HostPort(80, "TCP", "10.0.0.1"), HostPort(81)]


def few(pool: Sequence[object]) -> st.SearchStrategy[tuple[object, ...]]:
    return st.lists(st.sampled_from(pool), max_size=2).map(tuple)


apps = st.sampled_from(["", "a", "b"])
pods_drawn = st.builds(
    lambda app, rules, pool: shape(cpu=1, labels={"app": app} if app else {}, rules=rules,
                                   selector={"pool": "1"} if pool else None),
    apps,
    st.builds(PodRules, host_ports=few(PORTS), affinity=few(TERMS), anti_affinity=few(TERMS), spread=few(SPREADS))
    | st.builds(PodRules, anti_affinity=few(TERMS))
    | st.none(),
    st.booleans(),
)  # fmt: skip
nodes_drawn = st.lists(st.tuples(st.sampled_from(["", "x", "y", "z"]), st.booleans(), st.booleans()), max_size=6)
strangers_drawn = st.lists(
    st.tuples(st.integers(0, 6), st.sampled_from(["default", "other"]), st.booleans(),
              st.builds(lambda app, ports, terms: PodTraits((("app", app),) if app else (), ports, terms),
                        apps, few(PORTS), few(TERMS))),
    max_size=5,
)  # fmt: skip
jobs_drawn = st.lists(
    st.tuples(pods_drawn, pods_drawn, st.integers(0, 5), st.integers(0, 3), st.sampled_from(["default", "other"]),
              st.sampled_from(["BinPack", "LeaderFirst", "MinFragment", "JobAffinity", "JobAntiAffinity"])),
    min_size=1, max_size=3,
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class There:
    """A pod on a node, as the literal check below keeps it."""

    node: str
    pod: Neighbour
    leaving: bool = False


class Literal(CycleObserver):
    """Reads Kubernetes' rules literally, for one pod and one node at a time, and looks on at every placement."""

    def __init__(self, world: World) -> None:
        nodes = world.state.nodes
        self.names = [name for name in sorted(nodes.rows) if nodes.has(name)]
        self.labels = {name: dict(nodes.facts[nodes.rows[name]].labels) for name in self.names}
        self.tainted = {name: bool(nodes.facts[nodes.rows[name]].taints) for name in self.names}
        self.room = {name: 8 - int(nodes.used[nodes.rows[name], nodes.columns["cpu"]]) // 1000 for name in self.names}
        self.there = [
            There(pod.node, as_seen(pod), pod.deleting) for pod in world.state.pods.values() if pod.node in self.names
        ]
        self.of_attempt: list[There] = []

    def placing(
        self, tried: PlacementTry, group: int, *, request: PlacementRequest, indices: Sequence[int], chosen: Chosen,
        view: ClusterView, filters: Filters,
    ) -> None:  # fmt: skip
        """Each pod must be allowed where it goes, at its turn."""
        if not tried.pieces:
            self.of_attempt = []  # a new attempt has nothing to give back
        pod = neighbour_of(tried.job, group)
        for row, count in chosen:
            for _ in range(count):
                node = view.names[row]
                assert self.refuses(node, request.shape, pod) == "", (node, request.shape, pod)
                self.there.append(There(node, pod))
                self.of_attempt.append(self.there[-1])
                self.room[node] -= 1

    def fell_short(self, tried: PlacementTry, shortage: Shortage, *, view: ClusterView, filters: Filters) -> None:
        """No node may take the pod that found none."""
        assert tried.job.spec is not None
        shape_of = tried.job.spec.groups[shortage.group].shape
        pod = neighbour_of(tried.job, shortage.group)
        for name in self.names:
            assert self.refuses(name, shape_of, pod) != "", (name, shape_of, pod)
        assert sum(count for _, count in shortage.reasons) == len(self.names)
        assert FITS not in dict(shortage.reasons)

    def undone(self, tried: PlacementTry) -> None:
        """What was tried for the quorum is given back."""
        for one in self.of_attempt:
            self.there.remove(one)
            self.room[one.node] += 1
        self.of_attempt = []

    def refuses(self, node: str, of: PodShape, pod: Neighbour) -> str:
        """Why the node may not take the pod; empty if it may."""
        labels = self.labels[node]
        if self.tainted[node] or any(labels.get(key) != value for key, value in of.node_selector):
            return "facts"
        if not self.room[node]:
            return "cpu"
        rules = of.rules or PodRules()
        if any(
            PortTakers(port).matches(one.pod) for port in rules.host_ports for one in self.there if one.node == node
        ):
            return "ports"
        return (
            self._avoided(node, pod, rules.anti_affinity)
            or self._affinity(node, pod, rules.affinity)
            or self._spread(node, of, pod, rules.spread)
        )

    def _same_domain(self, key: str, node: str, other: str) -> bool:
        domain = self.labels[node].get(key)
        return domain is not None and self.labels[other].get(key) == domain

    def _selects(self, owner: Neighbour, term: PodTerm, pod: Neighbour) -> bool:
        namespaces = None if term.namespaces is None else tuple(one or owner.namespace for one in term.namespaces)
        return SelectedPods(((namespaces, term.selector),)).matches(pod)

    def _avoided(self, node: str, pod: Neighbour, terms: tuple[PodTerm, ...]) -> str:
        for one in self.there:
            for term in terms:
                if self._selects(pod, term, one.pod) and self._same_domain(term.topology_key, node, one.node):
                    return "anti-affinity"
            for term in one.pod.anti_affinity:
                if self._selects(one.pod, term, pod) and self._same_domain(term.topology_key, node, one.node):
                    return "anti-affinity of another"
        return ""

    def _affinity(self, node: str, pod: Neighbour, terms: tuple[PodTerm, ...]) -> str:
        if any(term.topology_key not in self.labels[node] for term in terms):
            return "no label"
        joined = [one for one in self.there if all(self._selects(pod, term, one.pod) for term in terms)]
        if all(any(self._same_domain(term.topology_key, node, one.node) for one in joined) for term in terms):
            return ""
        placed = any(term.topology_key in self.labels[one.node] for term in terms for one in joined)
        return "" if not placed and all(self._selects(pod, term, pod) for term in terms) else "affinity"

    def _spread(self, node: str, of: PodShape, pod: Neighbour, rules: tuple[SpreadRule, ...]) -> str:
        for rule in rules:
            if rule.topology_key not in self.labels[node]:
                return "no label"
            counted = [name for name in self.names if self._counts(name, of, rule, rules)]
            pods = {self.labels[name][rule.topology_key]: 0 for name in counted}
            selected = SelectedPods((((pod.namespace,), rule.selector),))
            for one in self.there:
                if one.node in counted and not one.leaving and selected.matches(one.pod):
                    pods[self.labels[one.node][rule.topology_key]] += 1
            least = min(pods.values()) if len(pods) >= rule.min_domains else 0
            here = pods.get(self.labels[node][rule.topology_key], 0) + selected.matches(pod)
            if here - least > rule.max_skew:
                return "spread"
        return ""

    def _counts(self, name: str, of: PodShape, rule: SpreadRule, rules: tuple[SpreadRule, ...]) -> bool:
        if any(other.topology_key not in self.labels[name] for other in rules):
            return False
        if rule.honor_affinity and any(self.labels[name].get(key) != value for key, value in of.node_selector):
            return False
        return not (rule.honor_taints and self.tainted[name])


def as_seen(pod: k.PodSeen) -> Neighbour:
    return Neighbour(pod.namespace, pod.traits.labels, pod.traits.host_ports, pod.traits.anti_affinity)


@given(nodes_drawn, strangers_drawn, jobs_drawn)
def test_no_pod_is_placed_where_kubernetes_would_not_allow_it_and_none_waits_that_it_would(
    nodes: list[tuple[str, bool, bool]],
    strangers: list[tuple[int, str, bool, PodTraits]],
    jobs: list[tuple[PodShape, PodShape, int, int, str, str]],
) -> None:
    world = World()
    for number, (zone, pool, tainted) in enumerate(nodes):
        labels = {HOST: f"n{number}", "pool": str(int(pool))} | ({ZONE: zone} if zone else {})
        taints = [Taint("t", "", "NoSchedule")] if tainted and number % 2 else []
        world.node(f"n{number}", cpu=8, labels=labels, taints=taints)
    for at, namespace, deleting, traits in strangers:
        see(world, f"n{at}", traits, namespace=namespace, deleting=deleting)
    for number, (leader, worker, count, least, namespace, policy) in enumerate(jobs):
        world.job(f"j{number}", leader=leader, workers=count, min_workers=min(least, count), worker=worker,
                  namespace=namespace, policy=policy, created=number)  # fmt: skip
    literal = Literal(world)
    events = take_cycle(world.state, world.config, world.now_ms, literal)
    assert take_cycle(world.state, world.config, world.now_ms) == events, "with and without an observer"
    placed = [event for event in events if isinstance(event, k.Placed)]
    assert sum(last - first + 1 for event in placed for of in event.pods for first, last in of.indices) == len(
        literal.there
    ) - len([pod for pod in world.state.pods.values() if pod.node in literal.names])


# --- the order of the filters -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("order", "reasons"),
    [
        ((), {ReasonKind.CORDONED: 2, ReasonKind.NODE_SELECTOR: 1, ReasonKind.ANTI_AFFINITY: 1}),
        (("NodeSelector",), {ReasonKind.NODE_SELECTOR: 2, ReasonKind.CORDONED: 1, ReasonKind.ANTI_AFFINITY: 1}),
        (("PodAntiAffinity",), {ReasonKind.ANTI_AFFINITY: 2, ReasonKind.CORDONED: 1, ReasonKind.NODE_SELECTOR: 1}),
        (("NodeSelector", "PodAntiAffinity"), {ReasonKind.NODE_SELECTOR: 2, ReasonKind.ANTI_AFFINITY: 2}),
    ],
)  # fmt: skip
def test_a_node_counts_under_the_first_filter_of_the_order_that_refuses_it(
    order: tuple[str, ...], reasons: dict[ReasonKind, int]
) -> None:
    world = World()
    world.config = msgspec.structs.replace(world.config, filter_order=order)
    world.node("n1", cordoned=True, labels={HOST: "n1", "a": "x"})
    world.node("n2", cordoned=True, labels={HOST: "n2"})
    world.node("n3", labels={HOST: "n3"})
    world.node("n4", labels={HOST: "n4", "a": "x"})
    for node in ("n1", "n4"):
        see(world, node)
    pod = asking(anti_affinity=(PodTerm(HOST, APP),))
    world.job("j", leader=msgspec.structs.replace(pod, node_selector=(("a", "x"),)))
    taken = world.cycle()
    found: Counter[ReasonKind] = Counter()
    for reason, nodes in waits(taken).shortage.reasons:
        found[reason.kind] += nodes
    assert found == reasons
    assert isinstance(taken[0], k.CycleTaken) and taken[0].config.filter_order == order


def test_the_order_of_filters_changes_no_placement() -> None:
    plans = []
    for order in ((), tuple(of.name for of in reversed(BUILT_IN.filters))):
        world = World()
        world.config = msgspec.structs.replace(world.config, filter_order=order)
        zones(world, n1="a", n2="b", n3="b")
        world.node("n4", cordoned=True)
        see(world, "n1")
        world.job("j", leader=asking(anti_affinity=(PodTerm(ZONE, APP),)), workers=3, min_workers=3)
        plans.append(world.cycle()[1:])
    assert plans[0] == plans[1] and any(isinstance(event, k.Placed) for event in plans[0])
