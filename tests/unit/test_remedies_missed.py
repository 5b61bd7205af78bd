"""The usual edits of a job that explain doesn't name don't help it either, nor do ends of other jobs: what-if says so,
in random worlds."""

from collections.abc import Iterator

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from arranger.model.job import JobSpec, Topology, TopologyMode, TopologyScope, with_needed
from arranger.model.pod import PodRules, PodTerm, Requirement
from arranger.projections.jobs.records import JobRecord
from arranger.replay.what_if import hypothesis
from arranger.replay.what_if.one_cycle import Variation
from tests.unit.replay_worlds import explained, with_room_rules
from tests.unit.test_remedies_what_if import Cycle, pods
from tests.world import World, shape

RACK = "rack"


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Nodes in racks or in none, jobs on them, and jobs that wait, some of them for a rack."""
    world = with_room_rules(guests=draw(st.booleans()))
    for number in range(draw(st.integers(1, 4))):
        rack = draw(st.sampled_from(["r1", "r1", "r2", ""]))
        world.node(f"m{number}", cpu=64, gpus=8, labels={RACK: rack} if rack else {})
    for number in range(draw(st.integers(0, 2))):
        world.job(f"runs{number}", leader=shape(cpu=1, gpus=draw(st.integers(1, 4))), created=1)
        world.settle()
    for number in range(draw(st.integers(1, 3))):
        submitted(draw, world, f"waits{number}", created=2 + number)
        world.cycle()
    world.pass_time(60)
    world.cycle()
    return world


def submitted(draw: st.DrawFn, world: World, name: str, *, created: int) -> JobRecord:
    counts = draw(st.lists(st.integers(1, 6), min_size=1, max_size=2))
    sets = [(f"set{at}", count, shape(cpu=1, gpus=draw(st.integers(1, 8)))) for at, count in enumerate(counts)]
    scope = draw(st.sampled_from([TopologyScope.JOB, TopologyScope.SET]))
    topology = Topology((RACK,), TopologyMode.REQUIRED, scope) if draw(st.booleans()) else None
    whole = scope == TopologyScope.JOB
    return world.job(
        name, leader=shape(cpu=1), workers=sets, created=created, priority=draw(st.sampled_from([5, 5, 6])),
        min_workers=draw(st.integers(0, sum(counts))),
        minimums={of: draw(st.integers(0, count)) for of, count, _ in sets},
        topologies={"" if whole else of: topology for of, *_ in sets},
    )  # fmt: skip


def edits(spec: JobSpec) -> Iterator[tuple[str, JobSpec]]:
    """The most that each kind of change may do, with a word of it: no required topology, the leader alone, one GPU."""

    def looser(of: Topology | None) -> Topology | None:
        return msgspec.structs.replace(of, mode=TopologyMode.PREFERRED) if of is not None else None

    def groups(**of: object) -> JobSpec:
        changed = [msgspec.structs.replace(group, **of) for group in spec.groups]
        return msgspec.structs.replace(spec, groups=tuple(changed))

    loose = [msgspec.structs.replace(group, topology=looser(group.topology)) for group in spec.groups]
    yield "topology", msgspec.structs.replace(spec, groups=tuple(loose), topology=looser(spec.topology))
    few = msgspec.structs.replace(groups(min_count=0, needed=0), min_workers=0)
    yield "min", msgspec.structs.replace(few, groups=with_needed(few.groups, 0))
    small = [msgspec.structs.replace(of, shape=shape(cpu=1, gpus=1)) if of.shape != shape(cpu=1) else of
             for of in spec.groups]  # fmt: skip
    yield "asking for", msgspec.structs.replace(spec, groups=tuple(small))


@settings(max_examples=150)
@given(worlds())
def test_what_explain_does_not_offer_does_not_help(world: World) -> None:
    state = world.state.as_of(world.now_ms)
    for job in [of for of in state.jobs.values() if not of.placements]:
        waiting = explained(world.entries, job.seen.name).waiting
        assert waiting is not None
        cycle = Cycle(state, world.config, state.time_ms)
        for word, spec in edits(job.valid_spec):
            was, would = cycle.of(Variation(added=(hypothesis.job_seen(job, state, spec),)), job)
            offered = [of.text for of in waiting.remedies if word in of.text]
            assert offered or pods(would) <= pods(was) or not waiting.shortfall, f"{job.seen.name}: {word}"


@st.composite
def racks(draw: st.DrawFn) -> World:
    """Two racks of two nodes with jobs on them, where several pods of one or two sets don't find a rack, or may not
    share one."""
    world = World()
    for number in range(4):
        world.node(f"m{number}", cpu=64, gpus=8, labels={RACK: f"r{number // 2}", "node": str(number)})
        if used := draw(st.sampled_from([0, 3, 4, 5])):
            world.job(f"runs{number}", leader=shape(gpus=used, selector={"node": str(number)}), created=1)
            world.settle()
    terms = (PodTerm(RACK, (Requirement("app", "In", ("j",)),)),)
    rules = draw(st.sampled_from([None, None, PodRules(affinity=terms), PodRules(anti_affinity=terms)]))
    sets = [
        (
            f"set{at}",
            draw(st.integers(2, 4)),
            shape(cpu=1, gpus=draw(st.integers(2, 4)), labels={"app": "j"}, rules=rules),
        )
        for at in range(draw(st.integers(1, 2)))
    ]
    scope = draw(st.sampled_from([TopologyScope.JOB, TopologyScope.SET]))
    topology = Topology((RACK,), TopologyMode.REQUIRED, scope) if rules is None else None
    world.job(
        "j", workers=sets, min_workers=sum(count for _, count, _ in sets), equals=True, created=2,
        topologies={"" if scope == TopologyScope.JOB else of: topology for of, *_ in sets},
    )  # fmt: skip
    world.cycle()
    return world


@settings(max_examples=80)
@given(racks())
def test_where_explain_names_no_end_of_another_job_none_helps(world: World) -> None:
    state = world.state.as_of(world.now_ms)
    job, waiting = state.jobs["uid-j"], explained(world.entries, "j").waiting
    if waiting is None or any(of.kind == "capacity" for of in waiting.remedies):
        return
    cycle = Cycle(state, world.config, state.time_ms)
    for other in [of for of in state.jobs.values() if of.placements and of is not job]:
        ended = hypothesis.job_ended(other, state, world.config)
        was, would = cycle.of(Variation(added=ended), job)
        assert pods(would) <= pods(was), f"the end of {other.seen.name}"
