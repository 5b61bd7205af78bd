"""A job is infeasible if its pods fit the empty nodes one by one, but not all together."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from arranger.messages.shortages import shortage_text
from arranger.model.config import CycleConfig
from arranger.model.job import JobSpec, Stage, Topology, TopologyMode, TopologyScope
from arranger.model.pod import PodRules, PodTerm, Requirement
from arranger.projections.jobs.records import JobRecord
from arranger.replay.ledger.causes import Cause, causes_of
from arranger.scheduling.queues.demand import beyond_limits
from arranger.scheduling.search import together
from tests.exhaustive import searching
from tests.world import World, shape

RACK, BLOCK, HOST = "x.io/rack", "x.io/block", "kubernetes.io/hostname"
WHOLE = Topology((RACK,))
SET, GROUP = TopologyScope.SET, TopologyScope.GROUP


def racks(*, nodes: int = 4, of: int = 2, used: int = 0, steps: int = 20_000) -> World:
    """Nodes of 8 GPUs, of which strangers use some, in racks of so many."""
    world = World(config=searching(steps))
    for number in range(nodes):
        labels = {RACK: f"r{number // of}", HOST: f"n{number}"}
        world.node(f"n{number}", cpu=64, gpus=8, labels=labels)
        if used:
            world.pod(f"on-n{number}", f"n{number}", gpus=used)
    return world


def job_of(world: World, *workers: int, leader: int = 0, each: int = 8, least: int = 0, **more: object) -> JobRecord:
    """A job with worker sets of so many pods, and a leader if that asks for GPUs; all pods are needed."""
    more.setdefault("topologies", {"": WHOLE})
    sets = [(f"set{at}", count, shape(cpu=1, gpus=each)) for at, count in enumerate(workers)]
    return world.job("j", leader=shape(cpu=1, gpus=leader) if leader else None, workers=sets, equals=not leader,
                     min_workers=least or sum(workers), **more)  # fmt: skip


def infeasible(job: JobRecord) -> bool:
    return job.waits is not None and job.waits.shortage.infeasible


@pytest.mark.parametrize("used", [0, 4, 8])
@pytest.mark.parametrize(
    ("leader", "workers", "levels"),
    [(8, (2,), (RACK,)), (4, (2,), (RACK,)), (0, (2, 2), (RACK,)), (8, (2,), (HOST, RACK)), (2, (1, 1), (RACK,))],
)
def test_what_no_rack_holds_together_is_infeasible_however_full_the_cluster_is(
    used: int, leader: int, workers: tuple[int, ...], levels: tuple[str, ...]
) -> None:
    world = racks(used=used)
    job = job_of(world, *workers, leader=leader, topologies={"": Topology(levels)})
    world.cycle()
    assert job.waits is not None
    pods = sum(workers) + (leader > 0)
    text = shortage_text(job.waits.shortage)
    assert text.startswith("even an empty cluster of these nodes can't hold it: ")
    assert f"takes all {pods} pods of the job" in text
    assert job.uid in beyond_limits(world.state, [job])


def test_its_wait_counts_as_that_of_what_no_cluster_holds_and_it_fails_after_the_grace() -> None:
    world = racks()
    job = job_of(world, 2, leader=8)
    world.cycle()
    assert [cause for cause, _ in causes_of(world.state, job)] == [Cause.INFEASIBLE]
    world.pass_time(world.config.infeasible_grace_ms / 1000 + 1)
    world.settle()
    assert job.stage == Stage.FAILED


@pytest.mark.parametrize(
    ("workers", "more"),
    [
        ((1,), {"leader": 8}),
        ((1, 1), {}),
        ((2, 2), {"least": 2}),
        ((2, 2), {"topologies": {"": Topology((RACK,), TopologyMode.PREFERRED)}}),
        ((2,), {"leader": 8, "topologies": {"": Topology((RACK, "zone"))}}),
    ],
)
def test_what_some_domain_holds_waits_for_room(workers: tuple[int, ...], more: dict[str, object]) -> None:
    world = racks(used=8)
    for number in range(4):
        world.node(f"n{number}", cpu=64, gpus=8, labels={RACK: f"r{number // 2}", HOST: f"n{number}", "zone": "z"})
    job = job_of(world, *workers, **more)  # type: ignore[arg-type]
    world.cycle()
    assert job.waits is not None and not infeasible(job)


def test_sets_of_which_each_needs_a_rack_and_a_leader_that_needs_some_of_one_never_fit_two_racks() -> None:
    world = racks(used=8)
    of_sets = {f"set{at}": Topology((RACK,), within=SET) for at in range(2)}
    job = job_of(world, 2, 2, leader=1, topologies=of_sets)
    world.cycle()
    assert infeasible(job)
    world.node("n4", gpus=8, labels={})
    world.cycle()
    assert not infeasible(job)


def test_worker_groups_of_which_each_needs_a_rack_and_a_leader_beside_them() -> None:
    found = []
    for count in (4, 6):
        world = racks(nodes=6, used=8)
        topologies = {"set0": Topology((RACK,), within=GROUP)}
        job = job_of(world, count, leader=1, topologies=topologies, group_size=2)
        world.cycle()
        found.append(infeasible(job))
    assert found == [False, True]


def test_pods_of_several_templates_that_need_no_domain() -> None:
    """On three nodes of 8 GPUs, three workers of 6 leave no 4 to the leader, although 24 are more than 22."""
    world = racks(nodes=3, used=8)
    job = job_of(world, 3, leader=4, each=6, topologies={})
    world.cycle()
    assert infeasible(job)


def test_pods_that_avoid_each_other_in_a_rack() -> None:
    """A rack has two nodes, of which each takes one of these pods."""
    found = []
    for count in (2, 3):
        world = racks(nodes=6, used=8)
        apart = PodRules(anti_affinity=(PodTerm(HOST, (Requirement("app", "In", ("j",)),)),))
        worker = shape(gpus=1, labels={"app": "j"}, rules=apart)
        job = world.job("j", workers=count, worker=worker, min_workers=count, equals=True, topologies={"": WHOLE})
        world.cycle()
        found.append(infeasible(job))
    assert found == [False, True]


def test_a_search_that_ends_at_its_bound_proves_nothing() -> None:
    world = racks(used=8, steps=10)
    world.config = CycleConfig(search_steps=10)
    job = job_of(world, 2, leader=8)
    world.cycle()
    assert job.waits is not None and not infeasible(job)


def test_a_kind_of_job_is_searched_for_once_a_change_of_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    searched = []
    forbid = together.forbid
    monkeypatch.setattr(together, "forbid", lambda *a, **b: (searched.append(1), forbid(*a, **b))[1])
    world = racks(used=8)
    for number in range(5):
        world.job(f"j{number}", leader=shape(gpus=8), workers=2, min_workers=2, priority=number, topologies={"": WHOLE})
        world.cycle()
    assert len(searched) == 1
    assert all(map(infeasible, world.state.jobs.values()))
    world.node("n9", gpus=8, labels={RACK: "r0"})
    world.cycle()
    assert len(searched) == 1  # there, the simple ways place it
    assert not any(map(infeasible, world.state.jobs.values()))


def test_many_equal_domains_are_one_question() -> None:
    world = racks(nodes=400, used=8)
    sets = {f"set{at}": Topology((RACK,), within=SET) for at in range(2)}
    for name, topologies in (("whole", {"": WHOLE}), ("sets", {"": WHOLE, **sets})):
        world.job(name, workers=[("set0", 2, shape(gpus=8)), ("set1", 2, shape(gpus=8))], min_workers=4, equals=True,
                  topologies=topologies)  # fmt: skip
    world.cycle()
    assert all(map(infeasible, world.state.jobs.values()))


# --- against every way ------------------------------------------------------------------------------------------


def ways(spec: JobSpec) -> Iterator[list[tuple[int, int]]]:
    """The pods of each quorum, as group and index."""
    workers = spec.groups[1:]
    for counts in product(*(range(of.min_count, of.count + 1, of.group_size) for of in workers)):
        if sum(counts) == spec.min_workers:
            pods = [(0, 0)] * spec.groups[0].count
            yield pods + [(at, index) for at, count in enumerate(counts, start=1) for index in range(count)]


def together_in(topology: Topology | None, labels: Sequence[Mapping[str, str]]) -> bool:
    """Whether pods on nodes with these labels are in one domain of a level."""
    if topology is None or topology.mode == TopologyMode.PREFERRED or not labels:
        return True
    paths = [topology.levels[at:] for at in range(len(topology.levels))]
    return any(
        path[0] in labels[0] and len({tuple(of.get(key) for key in path) for of in labels}) == 1 for path in paths
    )


def holds(spec: JobSpec, gpus: Sequence[int], labels: Sequence[Mapping[str, str]]) -> bool:
    """Whether empty nodes hold some quorum."""
    return any(_placed(spec, pods, [], list(gpus), labels) for pods in ways(spec))


def _placed(
    spec: JobSpec,
    pods: list[tuple[int, int]],
    nodes: list[int],
    free: list[int],
    labels: Sequence[Mapping[str, str]],
) -> bool:
    if not _in_domains(spec, pods, nodes, labels):
        return False
    if len(nodes) == len(pods):
        return True
    asked = dict(spec.groups[pods[len(nodes)][0]].shape.requests).get("nvidia.com/gpu", 0)
    for node, there in enumerate(free):
        if there >= asked:
            free[node] -= asked
            if _placed(spec, pods, [*nodes, node], free, labels):
                return True
            free[node] += asked
    return False


def _in_domains(
    spec: JobSpec, pods: list[tuple[int, int]], nodes: list[int], labels: Sequence[Mapping[str, str]]
) -> bool:
    units: dict[tuple[int, int], list[Mapping[str, str]]] = {}
    for (group, index), node in zip(pods, nodes, strict=False):
        if spec.topology_of(group) is not None:
            units.setdefault((group, index // spec.unit_size(group)), []).append(labels[node])
    every = [labels[node] for node in nodes]
    return together_in(spec.whole_topology, every) and all(
        together_in(spec.topology_of(group), of) for (group, _), of in units.items()
    )


LEVELS = st.sampled_from([(RACK,), (BLOCK,), (RACK, BLOCK), (HOST, RACK)])
MODES = st.sampled_from([TopologyMode.REQUIRED] * 4 + [TopologyMode.PREFERRED])


@st.composite
def jobs(draw: st.DrawFn) -> dict[str, object]:
    """What `World.job` makes a job of: a leader or none, one or two sets, and topologies."""
    in_groups = draw(st.integers(0, 3)) == 0
    size = 2 if in_groups else 1
    amounts = st.integers(1, 4)
    sets = [
        (f"set{at}", size * draw(st.integers(1, 2 if in_groups else 3)), shape(gpus=draw(amounts)))
        for at in range(1 if in_groups else draw(st.integers(1, 2)))
    ]
    total = sum(count for _, count, _ in sets)
    own = [SET, GROUP] if in_groups else [SET]
    topologies = {
        name: Topology(draw(LEVELS), draw(MODES), draw(st.sampled_from(own)))
        for name in ("", *(name for name, *_ in sets))
        if name and draw(st.booleans())
    }
    if draw(st.booleans()):
        topologies[""] = Topology(draw(LEVELS), draw(MODES))
    leader = draw(st.integers(0, 4))
    least = size * draw(st.integers(1, total // size)) if draw(st.booleans()) else total
    return {"leader": shape(gpus=leader) if leader else None, "equals": not leader, "workers": sets,
            "min_workers": least, "group_size": size, "topologies": topologies}  # fmt: skip


@given(
    gpus=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    places=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=4, max_size=4),
    asked=jobs(),
)
@settings(max_examples=300, print_blob=True, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_a_job_is_infeasible_if_and_only_if_no_way_places_it_on_the_empty_nodes(
    gpus: list[int], places: list[tuple[int, int]], asked: dict[str, object]
) -> None:
    found = []
    labels = [
        {HOST: f"n{number}", **{key: f"{at}" for key, at in ((RACK, rack), (BLOCK, block)) if at}}
        for number, (rack, block) in enumerate(places[: len(gpus)])
    ]
    for used in (False, True):
        world = World(config=searching())
        for number, amount in enumerate(gpus):
            world.node(f"n{number}", gpus=amount, labels=labels[number])
            if used:
                world.pod(f"on-n{number}", f"n{number}", gpus=amount)
        job = world.job("j", **asked)  # type: ignore[arg-type]
        world.cycle()
        found.append(job)
    alone, beside = found
    fits = holds(alone.valid_spec, gpus, labels)
    assert bool(alone.placements) == fits
    assert infeasible(alone) == infeasible(beside) == (not fits)
    assert fits or (alone.waits is not None and beside.waits is not None)
    assert fits or alone.waits.shortage == beside.waits.shortage
