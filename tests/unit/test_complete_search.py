"""A quorum that fits is found: the complete search after the simple ways have failed."""

import random
from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arranger.events import kinds as k
from arranger.events.codec import decode_batch, encode_batch
from arranger.events.facts import LackOfNodes
from arranger.messages.shortages import shortage_text
from arranger.model.config import SEARCHES, CycleConfig
from arranger.model.pod import HostPort, PodRules, PodShape, PodTerm, PodTraits, Requirement
from arranger.model.reasons import Reason, ReasonKind
from arranger.projections.jobs.records import JobRecord
from arranger.projections.jobs.worker_groups import parted
from arranger.replay.explain.shortfall import ShortfallObserver
from arranger.replay.reading.history import Span
from arranger.replay.reading.verify import Survey, Verification
from arranger.scheduling.cycle import take_cycle
from arranger.scheduling.placing.placement_try import CycleObserver, PlacementTry
from arranger.scheduling.policies.binpack import BinPack
from arranger.scheduling.queues.registry import BUILT_IN, policies_with
from arranger.scheduling.search import packing
from arranger.scheduling.search.placer import Placer
from arranger.scheduling.search.rules import GroupRule, RuleKind, RulesQuestion
from arranger.scheduling.search.rules_search import place_by_rules
from arranger.settings import SEARCH_NODES
from tests.depth import extent
from tests.exhaustive import HOST, KINDS, Exhaustive, random_world, searching
from tests.random_clusters import ALL_POLICIES
from tests.unit.replay_worlds import explained
from tests.world import World, shape


def placed(job: JobRecord) -> dict[str, Counter[int]]:
    """Node → pods by group."""
    found: dict[str, Counter[int]] = {}
    for (group, _), node in job.placements.items():
        found.setdefault(node, Counter())[group] += 1
    return found


#: A seed shrinks less well than drawn numbers, but such clusters are as different as they should be.
SEEDED = st.integers(0, 1 << 48).map(random.Random)


# --- what the simple ways miss --------------------------------------------------------------------------------------


def binpack(world: World) -> JobRecord:
    world.node("n1", cpu=2, labels={"disk": "ssd"})
    world.node("n2", cpu=4)
    worker = shape(cpu=2, selector={"disk": "ssd"})
    return world.job("j", leader=shape(cpu=2), workers=1, worker=worker, min_workers=1)


def leader_first(world: World) -> JobRecord:
    world.node("n1", gpus=8)
    world.node("n2", gpus=1)
    leader, worker = shape(gpus=1), shape(gpus=8)
    return world.job("j", leader=leader, workers=1, worker=worker, min_workers=1, policy="LeaderFirst")


def gang(world: World) -> JobRecord:
    world.node("n0", cpu=8, labels={HOST: "n0"})
    world.node("n1", cpu=4, gpus=4)
    sets = [("a", 1, shape(cpu=3)), ("b", 2, shape(cpu=2, gpus=1))]
    return world.job("j", leader=shape(cpu=1, selector={HOST: "n0"}), workers=sets, min_workers=3, policy="Gang")


def several_sets(world: World) -> JobRecord:
    """A worker of the second set fits only where the policy puts the leader, and either set may give the workers."""
    world.node("n1", cpu=4, gpus=4)
    world.node("n2", cpu=8, pods=2)
    sets = [("cpus", 1, shape(cpu=2)), ("gpus", 2, shape(cpu=3, gpus=2))]
    return world.job("j", leader=shape(cpu=3), workers=sets, min_workers=2, policy="BinPack")


def joining(world: World) -> JobRecord:
    """The leader must join a worker, so the worker comes first."""
    world.node("n1", cpu=5, labels={"zone": "a"})
    beside = PodRules(affinity=(PodTerm("zone", (Requirement("app", "In", ("b",)),)),))
    sets = [("a", 1, shape(cpu=2, labels={"app": "b"}, rules=beside)), ("b", 1, shape(cpu=4, labels={"app": "b"}))]
    return world.job("j", leader=shape(cpu=1, labels={"app": "a"}, rules=beside), workers=sets, min_workers=1)


def avoiding(world: World) -> JobRecord:
    """The worker may not be where a pod of that kind is, and neither beside the leader."""
    world.node("n1", cpu=6, labels={"zone": "a"})
    world.node("n2", cpu=8, labels={"zone": "b"})
    world.pod("other", "n2", traits=PodTraits((("app", "a"),)), cpu=1)
    alone = PodRules(anti_affinity=(PodTerm("zone", (Requirement("app", "In", ("a",)),)),))
    worker = shape(cpu=3, labels={"app": "a"}, rules=alone)
    return world.job("j", leader=shape(cpu=4, labels={"app": "a"}), workers=1, worker=worker, min_workers=1)


CASES = pytest.mark.parametrize("case", [binpack, leader_first, gang, several_sets, joining, avoiding])


@CASES
def test_a_quorum_that_the_simple_ways_miss_is_found(case: Callable[[World], JobRecord]) -> None:
    simple, world = World(config=searching(0)), World(config=searching())
    missed, job = case(simple), case(world)
    simple.cycle()
    assert not missed.placements and missed.waits is not None
    events = world.cycle()
    assert isinstance(events[-1], k.Placed) and world.verdict("Placed").accepted
    workers = missed.pods_desired() - 1 if case is gang else missed.valid_spec.min_workers
    assert len(job.placements) >= 1 + workers


def test_the_leader_goes_where_its_policy_likes_it_best_among_the_nodes_that_leave_room() -> None:
    world = World(config=searching())
    world.node("n0", gpus=8)
    for name, gpus in (("n1", 2), ("n2", 1), ("n3", 4)):
        world.node(name, gpus=gpus)
    job = world.job("j", leader=shape(gpus=1), workers=1, worker=shape(gpus=8), min_workers=1, policy="LeaderFirst")
    world.cycle()
    assert job.placements == {(0, 0): "n3", (1, 0): "n0"}


def test_the_rest_of_a_job_that_holds_nodes_is_found_too() -> None:
    world = World(config=searching())
    world.node("n1", cpu=4, gpus=1)
    sets = [("a", 2, shape(cpu=2)), ("b", 2, shape(cpu=1, gpus=1))]
    job = world.job("j", leader=shape(cpu=1), workers=sets, min_workers=2)
    world.cycle()
    world.control()
    world.apply()
    held = len(job.placements)
    world.node("n2", cpu=4, gpus=1)
    world.job("j", leader=shape(cpu=1), workers=sets, min_workers=4)
    world.cycle()
    assert held == 3 and len(job.placements) == 5


# --- compared with trying everything --------------------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=extent(1000, 20_000), deadline=None, print_blob=True)
@given(rng=SEEDED, kind=st.sampled_from(KINDS), policy=st.sampled_from(ALL_POLICIES))
def test_no_quorum_that_fits_is_missed(rng: random.Random, kind: str, policy: str) -> None:
    nodes, pods = extent((6, 8), (8, 10))
    minimums, groups = rng.random() < 0.5, rng.random() < 0.3
    world, job = random_world(rng, nodes=nodes, pods=pods, kind=kind, policy=policy, with_minimums=minimums,
                              with_worker_groups=groups)  # fmt: skip
    check = Exhaustive(world, job, states=20_000)
    world.cycle()
    assert not job.placements or world.verdict("Placed").accepted
    assert not parted(job.valid_spec, job.placements)
    if not job.placements:
        assert job.waits is not None and not check.fits(), (kind, policy)
    elif len(job.placements) == check.asked:
        assert check.fits() is not False, "the check knows every rule that the scheduler knows"


@settings(max_examples=extent(200, 2000), deadline=None, print_blob=True)
@given(rng=SEEDED, kind=st.sampled_from(KINDS))
def test_nothing_is_left_behind_by_a_search(rng: random.Random, kind: str) -> None:
    world, job = random_world(rng, nodes=6, pods=8, kind=kind, policy=rng.choice(ALL_POLICIES))
    placer = Placer(world.state, world.config, BUILT_IN)
    free, content = placer.view.free.copy(), placer.view.content
    fits = placer.fits(job)
    assert (placer.view.free == free).all() and placer.view.content == content
    assert placer.quorum(job).quorum_stands == fits


@pytest.mark.parametrize("number", [1870, 3567])
def test_a_quorum_that_is_lost_in_one_order_is_found_in_another(number: int) -> None:
    rng = random.Random(f"103-{number}")
    kind, policy = rng.choice(KINDS), rng.choice(ALL_POLICIES)
    world, job = random_world(rng, nodes=12, pods=12, kind=kind, policy=policy,
                              config=searching(20_000, small=SEARCH_NODES))  # fmt: skip
    world.cycle()
    assert job.placements and world.verdict("Placed").accepted


def spread_over_zones(of_others: tuple[int, ...], skew: int) -> RulesQuestion:
    """Three pods that spread over zones, and four that only count there, with so many other pods by zone: zones 1 and 2
    have six nodes each, and zone 3 has no room."""
    zones, nodes = tuple(1 + node % 2 for node in range(12)), tuple(range(12))
    there, counted = ((0, *of_others),), frozenset({0, 1})
    rule = GroupRule(RuleKind.SPREAD, 0, (zones,), there, counted, True, frozenset(nodes), (1, 2, 3), skew)
    free = tuple((200 + node,) for node in nodes)
    return RulesQuestion(((100,), (100,)), (3, 4), free, (nodes, nodes), (rule,), 7, (3, 4))


def test_domains_that_no_pod_to_come_can_open_are_left_out_at_once() -> None:
    found = place_by_rules(spread_over_zones((3, 0, 0), 3), 10_000)
    assert found.pods is not None and {node % 2 for group, node in found.pods if not group} == {1}
    none = place_by_rules(spread_over_zones((3, 2, 0), 2), 10_000)
    assert none.pods is None and none.complete and none.steps < 500


# --- the bound ------------------------------------------------------------------------------------------------------


def test_without_steps_there_is_no_search_as_in_older_logs() -> None:
    world = World(config=searching(0))
    job = gang(world)
    taken, waits = world.cycle()
    assert isinstance(taken, k.CycleTaken) and taken.search_steps == 0
    assert isinstance(waits, k.Waits) and waits.shortage.searched == 0 and not job.placements


def test_a_search_that_ends_at_its_bound_says_so_and_never_that_nothing_fits() -> None:
    world = World(config=searching(50))
    gang(world)
    taken, waits = world.cycle()
    assert isinstance(taken, k.CycleTaken) and taken.search_steps == 50
    assert isinstance(waits, k.Waits) and waits.shortage.searched == 50
    text = shortage_text(waits.shortage)
    assert text.startswith(
        "2 of 4 required pods found nodes; nodes for all of them were not found within 50 steps; beside them, b: "
    )
    assert "pods fit" not in text and not waits.shortage.infeasible


def test_a_search_that_is_complete_keeps_the_present_words() -> None:
    world = World(config=searching())
    world.node("n1", cpu=3, gpus=2)
    world.node("n2", cpu=3, gpus=2)
    sets = [("a", 2, shape(cpu=2)), ("b", 1, shape(cpu=2, gpus=1))]
    world.job("j", leader=shape(cpu=1), workers=sets, min_workers=3)
    taken, waits = world.cycle()
    assert isinstance(taken, k.CycleTaken) and taken.search_steps > 0
    assert isinstance(waits, k.Waits) and waits.shortage.searched == 0
    assert shortage_text(waits.shortage).endswith(
        "can't hold it: 3 of 4 required pods fit; beside them, b: 0 of 2 nodes fit: "
        "2 insufficient cpu (needs 2, at most 1 free)"
    )


def unfitting(world: World, jobs: int) -> list[JobRecord]:
    """Jobs for which only a search finds that they don't fit: either set alone does, but a node takes one of these
    workers, and there are more workers than nodes. No two jobs are alike."""
    for number in range(6):
        world.node(f"n{number}", cpu=5, gpus=2, labels={HOST: f"n{number}"})
    return [
        world.job(f"j{number:02}", created=number, leader=shape(cpu=1), min_workers=7,
                  workers=[("a", 4, shape(cpu=3)), ("b", 3, shape(cpu=2.9 - number / 1000, gpus=1))])
        for number in range(jobs)
    ]  # fmt: skip


def test_the_searches_of_a_cycle_have_a_bound_together() -> None:
    world = World(config=searching(200))
    jobs = unfitting(world, 40)
    taken = world.cycle()[0]
    assert isinstance(taken, k.CycleTaken) and taken.search_steps <= 200 * SEARCHES + 200
    said = [job.waits.shortage.searched for job in jobs if job.waits is not None]
    assert len(said) == 40 and said[-1] == 1, "what a cycle has no steps left for, it doesn't rule out"


@pytest.mark.parametrize(("nodes", "bound"), [(0, 2000), (1, 2000), (20, 2000), (100, 400), (199, 200), (5000, 200)])
def test_a_search_in_a_small_cluster_may_take_more_steps(nodes: int, bound: int) -> None:
    assert searching(200, small=200).search_bound(nodes) == bound
    assert searching(200).search_bound(nodes) == 200
    assert searching(0, small=200).search_bound(nodes) == 0


def test_a_job_in_a_small_cluster_says_after_how_many_steps_its_search_ended() -> None:
    world = World(config=searching(20, small=12))
    [job] = unfitting(world, 1)
    world.cycle()
    assert job.waits is not None and job.waits.shortage.searched == 40


# --- records --------------------------------------------------------------------------------------------------------


def test_a_cycle_with_a_search_is_the_same_when_it_is_verified() -> None:
    world = World(config=searching(2000))
    for number, kind in enumerate(KINDS):
        other, _ = random_world(random.Random(number), nodes=5, pods=8, kind=kind, policy="BinPack")
        for event in (event for entry in other.entries for event in entry.batch.events):
            if isinstance(event, k.NodeSeen | k.JobSeen):
                name = f"{event.name}-{number}"
                world.say(type(event)(**{**_fields(event), "name": name, "uid": f"{event.uid}-{number}"}))
        world.cycle()
    unfitting(world, 5)
    world.cycle()
    spent = [
        event.search_steps for entry in world.entries for event in entry.batch.events if isinstance(event, k.CycleTaken)
    ]
    survey = Survey(Span())
    for entry in world.entries:
        survey.feed(entry)
    verification = Verification(type(world.state)(), survey)
    for entry in world.entries:
        verification.feed(entry)
    report = verification.report
    assert report.sound and report.identical == report.cycles == len(spent) and any(spent)


def _fields(event: k.NodeSeen | k.JobSeen) -> dict[str, object]:
    return {name: getattr(event, name) for name in event.__struct_fields__}


def test_cycles_and_reasons_of_older_logs_are_read_as_before() -> None:
    config = CycleConfig()
    batch = k.Batch("w", 1, 0, (k.CycleTaken(1, 2, config), k.Waits("u", 1, "Unscheduled", LackOfNodes(0, 1))))  # type: ignore[arg-type]
    read = decode_batch(encode_batch(batch), 1).events
    assert read == batch.events and config.search_steps == 0
    assert isinstance(read[0], k.CycleTaken) and read[0].search_steps == 0


def test_only_a_bound_that_was_reached_is_news_in_an_otherwise_equal_reason() -> None:
    facts = LackOfNodes(1, 2, ((Reason(ReasonKind.CORDONED), 1),), group="a")
    reached = LackOfNodes(1, 2, facts.reasons, searched=7, group="a")
    assert facts.amounts() != reached.amounts() and facts.kinds() == reached.kinds()


# --- memory ---------------------------------------------------------------------------------------------------------


def test_a_search_is_not_repeated_while_its_inputs_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[bytes] = []
    real = packing._pack
    monkeypatch.setattr(
        packing, "_pack", lambda question, limit: (runs.append(question.digest), real(question, limit))[1]
    )
    packing._kept.cache_clear()
    world = World(config=searching())
    unfitting(world, 2)
    first = take_cycle(world.state, world.config, world.now_ms)
    count = len(runs)
    world.node("full", cpu=0)  # no pod of the quorum fits it
    assert count == 2 and len(set(runs)) == 2
    again = take_cycle(world.state, world.config, world.now_ms)
    assert len(runs) == count and first[0].search_steps == again[0].search_steps  # type: ignore[union-attr]
    world.node("more", cpu=2)  # the leader fits it, and no worker
    take_cycle(world.state, world.config, world.now_ms)
    assert len(runs) == 2 * count


def test_equal_jobs_are_searched_for_once_in_a_cycle_with_and_without_an_observer() -> None:
    world = World(config=searching())
    unfitting(world, 1)
    alone = take_cycle(world.state, world.config, world.now_ms)[0]
    job = world.state.jobs["uid-j00"]
    assert job.spec is not None
    for number in range(3):
        world.job(f"same{number}", created=5, leader=shape(cpu=1), min_workers=7,
                  workers=[(group.name, group.count, group.shape) for group in job.spec.groups[1:]])  # fmt: skip
    plain = take_cycle(world.state, world.config, world.now_ms)
    assert plain == take_cycle(world.state, world.config, world.now_ms, CycleObserver())
    assert plain[0].search_steps == alone.search_steps > 0  # type: ignore[union-attr]


@settings(max_examples=extent(60, 600), deadline=None)
@given(rng=SEEDED, kind=st.sampled_from(KINDS), steps=st.sampled_from([1, 300, 20_000]))
def test_what_is_remembered_is_what_would_be_found_again(rng: random.Random, kind: str, steps: int) -> None:
    world, _ = random_world(rng, nodes=6, pods=8, kind=kind, policy=rng.choice(ALL_POLICIES),
                            config=searching(steps))  # fmt: skip
    plans = []
    for forget in (True, False, True):
        if forget:
            packing._kept.cache_clear()
        plans.append(take_cycle(world.state, world.config, world.now_ms))
    assert plans[0] == plans[1] == plans[2]


# --- other observers and policies -----------------------------------------------------------------------------------


class Watching(CycleObserver):
    """Follows which placements stand."""

    def __init__(self) -> None:
        self.placed: list[tuple[int, int]] = []

    def placing(self, tried: PlacementTry, group: int, *, indices: Sequence[int], chosen, **_) -> None:  # type: ignore[no-untyped-def, override]
        self.placed += [(group, index) for index in indices[: sum(count for _, count in chosen)]]

    def undone(self, tried: PlacementTry) -> None:
        self.placed.clear()


@CASES
def test_an_observer_sees_the_placements_that_stand(case: Callable[[World], JobRecord]) -> None:
    world = World(config=searching())
    job = case(world)
    seen, short = Watching(), ShortfallObserver(job.uid)
    events = take_cycle(world.state, world.config, world.now_ms, seen)
    assert events == take_cycle(world.state, world.config, world.now_ms, short)
    assert short.shortfall is None or short.shortfall.further
    world.say(*events)
    assert sorted(seen.placed) == sorted(job.placements)


@CASES
def test_explain_says_which_nodes_were_kept_for_the_rest_of_the_quorum(case: Callable[[World], JobRecord]) -> None:
    world = World(config=searching())
    job = case(world)
    world.cycle()
    found = explained(world.entries, "j").placement_explanations
    quorum = [one for one in found if one.why.endswith("found room for the whole quorum")]
    assert all(one.node == one.retaken_on for one in found) and quorum
    assert {one.node for one in found} == set(job.placements.values())
    kept = {reason.kind for one in quorum for reason, _ in one.refused}
    assert ReasonKind.REST_OF_QUORUM in kept or case in (joining, avoiding)


def test_explain_says_that_a_search_ended_at_its_bound() -> None:
    world = World(config=searching(50))
    gang(world)
    world.cycle()
    waiting = explained(world.entries, "j").waiting
    assert waiting is not None and waiting.shortfall is not None and waiting.shortfall.searched == 50
    assert "nodes for all of them were not found within 50 steps" in waiting.why


class Picky(BinPack):
    """A policy that leaves room unused."""

    name, version = "Picky", 1
    rising = local = False

    def fill(self, view, request, room, config):  # type: ignore[no-untyped-def, override]
        return super().fill(view, request, room * (not request.leader or len(view.journal) < 1), config)


def test_a_policy_that_leaves_room_unused_keeps_its_shortage() -> None:
    policies = policies_with(pod=[Picky()])
    world = World(config=searching())
    world.node("n1", cpu=2, labels={"disk": "ssd"})
    world.node("n2", cpu=4)
    job = world.job("j", leader=shape(cpu=2), workers=1, worker=shape(cpu=2, selector={"disk": "ssd"}), min_workers=1,
                    policy="Picky")  # fmt: skip
    placer = Placer(world.state, world.config, policies)
    free = placer.view.free.copy()
    tried = placer.quorum(job)
    assert not tried.quorum_stands and tried.shortage is not None and not tried.pieces and not tried.by_search
    assert (placer.view.free == free).all()


def test_pods_that_need_the_same_port_are_told_apart_from_those_that_need_other_ports() -> None:
    world = World(config=searching())
    for name in ("n1", "n2"):
        world.node(name, cpu=4)

    def port(number: int) -> PodShape:
        return shape(cpu=2, rules=PodRules(host_ports=(HostPort(number),)))

    job = world.job("j", leader=port(80), workers=[("a", 1, port(80)), ("b", 1, port(81)), ("c", 1, port(81))],
                    min_workers=3)  # fmt: skip
    world.cycle()
    assert {node: sum(of.values()) for node, of in placed(job).items()} == {"n1": 2, "n2": 2}
