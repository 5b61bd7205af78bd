"""TYJobs that nobody should write: valid, small enough for an API server, and with thousands of parts for a scheduler.

Nothing here measures time. What such a job cost before was minutes in every cycle, on a cluster of this size.
"""

import gc
import tracemalloc
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arranger.events.kinds import Watched
from arranger.kube.translate import job_seen, pod_seen
from arranger.model.config import CycleConfig
from arranger.model.pod import HostPort, PodRules, PodTerm, PodTraits, Requirement
from arranger.model.reasons import Reason, ReasonKind
from arranger.scheduling.cluster.neighbours import PortTakers, around, neighbour_of
from arranger.scheduling.cluster.view import ClusterView
from arranger.scheduling.cycle import VERSIONS, take_cycle
from arranger.scheduling.filters.nodes import Filters
from arranger.scheduling.placing.placement_try import CycleObserver, PlacementTry
from tests.unit.tyjob_table import REQUIRED, Object, tyjob
from tests.world import World, shape

HOSTNAME = "kubernetes.io/hostname"
NODES = 3_000


def job_with(**spec: Any) -> Object:
    """A job whose workers' PodSpec has this, and whose leader's has its affinity."""
    job = tyjob("hostile")
    job["metadata"] |= {"namespace": "default", "uid": "uid-hostile", "resourceVersion": "1"}
    for group in (job["spec"]["leader"], *job["spec"]["workerSets"]):
        group["template"]["metadata"] = {"labels": {"app": "hostile"}}
        group["template"]["spec"] |= spec
    job["spec"]["workerSets"][0]["counts"] = 200
    return job


def terms(count: int, *expressions: Object) -> Object:
    """Required node affinity of so many terms."""
    required = {"nodeSelectorTerms": [{"matchExpressions": list(expressions)} for _ in range(count)]}
    return {"affinity": {"nodeAffinity": {REQUIRED: required}}}


def names(count: int) -> list[str]:
    """Values that no label has."""
    return [f"no-{number:05}" for number in range(count)]


SELECTOR = {"matchLabels": {"app": "hostile"}}
HOSTILE = {
    "values": terms(1, {"key": HOSTNAME, "operator": "In", "values": names(40_000)}),
    "requirements": terms(64, *({"key": HOSTNAME, "operator": "NotIn", "values": [name]} for name in names(32))),
    "numbers": terms(64, *({"key": "number", "operator": "Gt", "values": [str(each)]} for each in range(32))),
    "selector": {"nodeSelector": {f"example.com/{name}": "x" for name in names(20_000)}},
    "topologies": {
        "topologySpreadConstraints": [
            {"topologyKey": name, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": SELECTOR}
            for name in names(8_000)
        ]
    },
    "avoided": {
        "affinity": {
            "podAntiAffinity": {
                REQUIRED: [
                    {
                        "topologyKey": HOSTNAME,
                        "labelSelector": {
                            **SELECTOR,
                            "matchExpressions": [{"key": str(term), "operator": "NotIn", "values": names(2_000)}],
                        },
                    }
                    for term in range(32)
                ]
            }
        }
    },
}


@pytest.mark.parametrize("spec", HOSTILE.values(), ids=HOSTILE)
def test_a_job_of_a_thousand_conditions_holds_up_no_other(spec: Object) -> None:
    world = World()
    for number in range(NODES):
        world.node(f"n{number:05}", labels={HOSTNAME: f"n{number:05}", "number": str(number)})
    seen = job_seen(job_with(**spec), world.terms[Watched.JOB], with_status=False)
    assert seen.faults == ()
    world.say(seen)
    good = world.job("good", created=1)
    for cordoned in (True, False):
        world.node(
            "n00000", cordoned=cordoned, labels={HOSTNAME: "n00000"}
        )  # what is known of all nodes' facts is void
        world.cycle()
    assert good.placements


def test_two_jobs_of_ten_thousand_host_ports_take_a_node_each() -> None:
    world = World()
    for number in range(300):
        world.node(f"n{number:03}")
    ports = tuple(HostPort(port) for port in range(1, 10_001))
    asked = shape(cpu=1, rules=PodRules(host_ports=ports))
    jobs = [world.job(f"j{number}", worker=asked, workers=200) for number in range(2)]
    world.cycle()
    world.cycle()
    assert [len(job.placements) for job in jobs] == [201, 101]
    assert jobs[1].waits is not None
    assert (Reason(ReasonKind.HOST_PORT, "TCP", needed=1), 300) in jobs[1].waits.shortage.reasons


_VALUES = st.sampled_from(("a", "b", "1", "+5", "-7", "007", "9" * 19, "9" * 40, "x1", "", "٣"))
_REQUIREMENTS = st.builds(
    Requirement,
    key=st.sampled_from(("here", "nowhere")),
    operator=st.sampled_from(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Has")),
    values=st.lists(_VALUES, max_size=3).map(tuple),
)


@given(st.lists(st.none() | _VALUES, min_size=1, max_size=6), st.lists(_REQUIREMENTS, min_size=1, max_size=3))
def test_node_affinity_says_what_its_operators_say_node_by_node(
    labels: list[str | None], requirements: list[Requirement]
) -> None:
    world = World()
    for number, value in enumerate(labels):
        world.node(f"n{number}", labels={} if value is None else {"here": value})
    asked = msgspec.structs.replace(shape(), required_terms=(tuple(requirements),))
    found = Filters(ClusterView(world.state.nodes)).static(asked).tolist()
    assert found == [all(_holds(one, value if one.key == "here" else None) for one in requirements) for value in labels]


def _holds(requirement: Requirement, value: str | None) -> bool:
    if requirement.operator in ("Gt", "Lt"):
        left, right = _number(value), _number(next(iter(requirement.values), None))
        if left is None or right is None:
            return False
        return left > right if requirement.operator == "Gt" else left < right
    return {
        "In": value in requirement.values,
        "NotIn": value not in requirement.values,
        "Exists": value is not None,
        "DoesNotExist": value is None,
    }.get(requirement.operator, False)


def _number(text: str | None) -> int | None:
    if text is None or not text.isascii() or not text.lstrip("+-").isdigit() or len(text) > 20:
        return None
    return int(text) if abs(int(text)) < 1 << 63 else None


_PORTS = st.lists(
    st.builds(
        HostPort, st.integers(1, 3), st.sampled_from(("TCP", "UDP")), st.sampled_from(("", "10.0.0.1", "10.0.0.2"))
    ),
    max_size=4,
    unique=True,
).map(lambda found: tuple(sorted(found)))


@given(st.lists(_PORTS, max_size=4), _PORTS)
def test_each_node_has_the_first_port_that_is_taken_there(there: list[tuple[HostPort, ...]], desired: Any) -> None:
    world = World()
    for number in range(3):
        world.node(f"n{number}")
    for number, ports in enumerate(there):
        world.pod(f"p{number}", f"n{number % 3}", traits=PodTraits((), ports))
    job = world.job("asking", leader=shape(rules=PodRules(host_ports=desired or (HostPort(9),))))
    view = ClusterView(world.state.nodes)
    neighbours = around(world.state, view.node_index.rows())
    assert neighbours is not None
    pod = neighbour_of(job, 0)
    left = [True] * 3
    for port in pod.host_ports:
        taken = (neighbours.count(PortTakers(port)) > 0).tolist()
        expected = [row for row in range(3) if taken[row] and left[row]]
        found = [mask.tolist() for at, mask in neighbours.ports_taken(pod) if at == port]
        assert [row for row in range(3) if found and found[0][row] and left[row]] == expected
        left = [one and not of for one, of in zip(left, taken, strict=True)]


class Tries(CycleObserver):
    """Counts how often a quorum was tried in vain."""

    def __init__(self) -> None:
        self.count = 0

    def undone(self, tried: PlacementTry) -> None:
        self.count += 1


@pytest.mark.parametrize(("bound", "tries"), [(0, 9), (1, 1), (12, 2), (13, 3), (10_000, 9)])
def test_further_ways_to_place_a_quorum_are_tried_until_so_many_pods_were_placed_in_vain(
    bound: int, tries: int
) -> None:
    world = World(config=CycleConfig(versions=VERSIONS, tried_pods=bound))
    for number in range(6):
        world.node(f"n{number}", labels={HOSTNAME: f"n{number}"})
    alone = PodRules(anti_affinity=(PodTerm(HOSTNAME, (Requirement("app", "In", ("a",)),)),))
    worker = shape(cpu=1, labels={"app": "a"}, rules=alone)
    job = world.job("j", leader=worker, workers=[(f"w{number}", 1, worker) for number in range(8)], min_workers=8)
    seen = Tries()
    take_cycle(world.state, world.config, world.now_ms, seen)
    assert (seen.count, job.placements) == (tries, {})


def test_all_ways_are_tried_where_pods_ask_nothing_of_each_other() -> None:
    world = World(config=CycleConfig(versions=VERSIONS, tried_pods=1))
    world.node("n1", cpu=64)
    job = world.job("j", workers=[("large", 9, shape(cpu=32)), ("small", 9, shape(cpu=1))], min_workers=9)
    world.cycle()
    assert job.placements


def test_huge_pods_that_came_and_went_leave_nothing_behind() -> None:
    """Answers for equal pods are remembered and shared; what is large is not, whoever sends it again and again."""
    world = World()
    world.node("n1")
    world.job("asking", leader=shape(rules=PodRules(host_ports=(HostPort(1),))))
    tracemalloc.start()
    try:
        sizes = []
        for number in range(60):
            _come_and_go(world, number)
            if number % 20 == 19:
                gc.collect()
                sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert sizes[2] - sizes[0] < 5_000_000, "forty of them take four times that"


def _come_and_go(world: World, number: int) -> None:
    limits = {f"example.com/{number}-{each}": 1 for each in range(1_500)}
    labels = {f"{number}-{each}": "x" for each in range(500)}
    pod = {
        "metadata": {"name": "p", "namespace": "a", "uid": f"u{number}", "resourceVersion": "1", "labels": labels},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "resources": {"limits": limits}}]},
        "status": {"startTime": "x" * 10_000},
    }
    world.say(pod_seen(pod, world.terms[Watched.POD]))
    world.cycle()
    world.pod_gone(f"u{number}")
    world.entries.clear()
