"""Every pod policy: by the specification's formulas, and placing equal pods together as one by one."""

import dataclasses
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from arranger.events import kinds as k
from arranger.model.pod import PodRules, PodShape, PodTerm, Requirement
from arranger.projections.jobs.parts import SlotKey
from arranger.projections.jobs.records import JobRecord, expand
from arranger.replay.explain.cluster_context import ClusterContext
from arranger.replay.explain.placement_explanations import ExplanationObserver
from arranger.replay.explain.story import Placement, Story
from arranger.replay.explain.waiting import explain_waiting
from arranger.scheduling.cycle import take_cycle
from arranger.scheduling.placing.placement_try import CycleObserver
from tests.one_by_one import OneByOne, counted
from tests.random_clusters import (
    ALL_POLICIES,
    POD_POLICIES,
    JobDraw,
    NodeDraw,
    asking_worlds,
    jobs_drawn,
    nodes_drawn,
    observed,
    see_jobs,
    see_node,
)  # fmt: skip
from tests.unit.replay_worlds import verified
from tests.world import GIB, World, shape

BY_CHANCE = settings(max_examples=60, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
QUEUES = ("", "Priority", "DRF")


def assert_as_one_by_one(world: World) -> None:
    """The world's next cycle places what one by one would place, and the fold takes all of it."""
    jobs = [world.state.jobs[uid] for uid in sorted(world.state.jobs)]
    expected = counted(OneByOne(world).plan(jobs))
    world.verdicts.clear()
    watched = take_cycle(world.state, world.config, world.now_ms, CycleObserver())
    assert world.cycle() == watched
    assert counted({job.uid: job.placements for job in jobs}) == expected
    assert all(verdict.accepted for verdict in world.verdicts)


@pytest.mark.parametrize("policy", POD_POLICIES[1:])
@BY_CHANCE
@given(data=st.data())
def test_placing_equal_pods_together_is_placing_them_one_by_one(policy: str, data: st.DataObject) -> None:
    nodes = data.draw(nodes_drawn)
    jobs = data.draw(jobs_drawn(policies=[policy], queues=QUEUES))
    assert_as_one_by_one(observed(nodes, jobs)[0])


@BY_CHANCE
@given(nodes=nodes_drawn, jobs=jobs_drawn(queues=QUEUES, alike=5))
def test_jobs_alike_are_placed_as_each_for_itself(nodes: list[NodeDraw], jobs: list[JobDraw]) -> None:
    nodes = [dataclasses.replace(node, cpu=4 * node.cpu, gpus=4 * node.gpus, pods=4 * node.pods) for node in nodes]
    assert_as_one_by_one(observed(nodes, jobs)[0])


@BY_CHANCE
@given(nodes=nodes_drawn, later=nodes_drawn, jobs=jobs_drawn(queues=QUEUES, alike=2), more=jobs_drawn(most=2),
       grow=st.lists(st.integers(0, 3), max_size=3), quorum=st.integers(0, 3), start=st.booleans())  # fmt: skip
def test_what_jobs_have_already_counts_when_more_is_placed(
    nodes: list[NodeDraw], later: list[NodeDraw], jobs: list[JobDraw], more: list[JobDraw],
    grow: list[int], quorum: int, start: bool,
) -> None:  # fmt: skip
    world, _ = observed(nodes, jobs)
    world.cycle()
    if start:
        world.control()
        world.apply()
        world.control()
    for number, node in enumerate(later):
        see_node(world, number + len(nodes) // 2, node)
    for number, job in enumerate(jobs[: 1 + len(grow)]):
        see_jobs(world, number, job.grown(grow, quorum))
    for number, job in enumerate(more):
        see_jobs(world, len(jobs) + number, job)
    assert_as_one_by_one(world)


# --- what the policies are for ------------------------------------------------------------------------------------


def nodes_of(job: JobRecord, group: int = 0) -> list[str]:
    """The nodes of a group's pods, by index."""
    return [node for (of, _), node in sorted(job.placements.items()) if of == group]


def test_job_affinity_begins_where_the_rest_of_the_job_can_follow_by_its_selectors_too() -> None:
    world = World()
    world.node("n1", cpu=8, labels={"pool": "a"})
    world.node("n2", cpu=8, labels={"pool": "b"})
    job = world.job("j", workers=3, worker=shape(cpu=1, selector={"pool": "b"}), policy="JobAffinity")
    world.cycle()
    assert set(job.placements.values()) == {"n2"}


def test_job_affinity_takes_the_node_with_room_for_most_of_the_job_and_not_the_fullest() -> None:
    world = World()
    world.node("n1", cpu=2)
    world.node("n2", cpu=8)
    world.node("n3", cpu=3)
    job = world.job("j", workers=3, min_workers=1, policy="JobAffinity")
    world.cycle()
    assert set(job.placements.values()) == {"n2"}


def test_job_affinity_counts_pods_beyond_the_quorum_and_those_that_come_one_by_one() -> None:
    for queue in ("Priority", "DRF"):
        world = World()
        world.node("n1", cpu=3)
        world.node("n2", cpu=9)
        job = world.job("j", workers=7, min_workers=1, policy="JobAffinity", queue=queue)
        world.cycle()
        assert set(job.placements.values()) == {"n2"}


def test_job_affinity_goes_on_where_the_job_is() -> None:
    world = World()
    world.node("n1", cpu=2)
    job = world.job("j", workers=1, min_workers=1, policy="JobAffinity")
    world.cycle()
    world.node("n0", cpu=3)
    world.node("n1", cpu=4)
    world.job("j", workers=3, min_workers=1, policy="JobAffinity")
    world.cycle()
    assert nodes_of(job, 1) == ["n1", "n1", "n1"]


def test_job_affinity_waits_for_a_resource_that_no_node_has_and_holds_up_nobody() -> None:
    world = World()
    world.node("n1", cpu=2)
    world.job("j", workers=1, min_workers=1, worker=PodShape((("never/seen", 1),)), policy="JobAffinity")
    other = world.job("other", created=1)
    world.cycle()
    assert nodes_of(other) == ["n1"]


def test_job_anti_affinity_spreads_evenly_and_prefers_the_emptier_of_equals() -> None:
    world = World()
    for name, cpu in (("n1", 4), ("n2", 16), ("n3", 8)):
        world.node(name, cpu=cpu)
    job = world.job("j", workers=4, min_workers=4, policy="JobAntiAffinity")
    world.cycle()
    assert Counter(job.placements.values()) == {"n2": 2, "n3": 2, "n1": 1}
    assert nodes_of(job) == ["n2"]


def test_leader_first_gives_the_leader_the_emptiest_node_by_gpus_and_the_workers_the_fullest_by_cpu() -> None:
    world = World()
    world.node("n1", cpu=16, gpus=8)
    world.node("n2", cpu=16, gpus=8)
    world.node("n3", cpu=4)
    world.pod("on-n1", "n1", gpus=2)
    world.pod("on-n2", "n2", cpu=8)
    job = world.job("j", leader=shape(cpu=1, gpus=1), workers=2, min_workers=2, worker=shape(cpu=1),
                    policy="LeaderFirst")  # fmt: skip
    world.cycle()
    assert nodes_of(job, 0) == ["n2"], "its GPUs are free, and they weigh more than its cpu"
    assert nodes_of(job, 1) == ["n2", "n2"], "10 of 16 and 11 of 16 cores are more than 1 of 4"


def test_min_fragment_keeps_cpu_and_memory_in_step() -> None:
    world = World()
    world.node("n1", cpu=8, memory=8 * GIB)
    world.node("n2", cpu=8, memory=8 * GIB)
    world.pod("on-n1", "n1", cpu=6, memory=GIB)
    world.pod("on-n2", "n2", cpu=1, memory=2 * GIB)
    packed = world.job("packed", leader=shape(cpu=2, memory=GIB), policy="BinPack")
    balanced = world.job("balanced", leader=shape(cpu=2, memory=GIB), policy="MinFragment", created=-1)
    world.cycle()
    assert (nodes_of(balanced), nodes_of(packed)) == (["n2"], ["n1"])


# --- the record, taken again and explained -------------------------------------------------------------------------


def explained_winners(world: World) -> tuple[dict[tuple[str, SlotKey], str], dict[tuple[str, SlotKey], str]]:
    """Of the world's next cycle: where each pod went, and which node its of_pod has first."""
    base, recorded, shown = world.state.offset, {}, {}
    for event in take_cycle(world.state, world.config, world.now_ms):
        if not isinstance(event, k.Placed):
            continue
        job = world.state.jobs[event.job_uid]
        assert job.spec is not None
        taken = k.CycleTaken(base, world.now_ms, world.config)
        placement = Placement(0, 0, taken, world.now_ms, job.seen.name, job.uid, job.attempt, job.spec, event.pods)
        for slot, node in expand(event.pods).items():
            observer = ExplanationObserver(placement, slot)
            take_cycle(world.state, world.config, world.now_ms, observer)
            (of_pod,) = observer.placement_explanations
            assert of_pod.node == of_pod.retaken_on == node
            assert of_pod.passed + sum(count for _, count in of_pod.refused) == of_pod.nodes
            recorded[job.uid, slot], shown[job.uid, slot] = node, of_pod.ranking[0].node
    return recorded, shown


@pytest.mark.parametrize("policy", ALL_POLICIES[1:])
@settings(BY_CHANCE, max_examples=25)
@given(data=st.data())
def test_the_explanation_of_every_pod_has_its_own_node_first(policy: str, data: st.DataObject) -> None:
    nodes = data.draw(nodes_drawn)
    jobs = data.draw(jobs_drawn(policies=[policy], queues=QUEUES, most=3))
    recorded, shown = explained_winners(observed(nodes, jobs)[0])
    assert shown == recorded


@settings(BY_CHANCE, max_examples=40)
@given(world=asking_worlds())
def test_so_has_the_explanation_of_pods_that_ask_something_of_others(world: World) -> None:
    recorded, shown = explained_winners(world)
    assert shown == recorded


def lived(data: st.DataObject) -> World:
    """A world with a past: jobs of all policies partly placed and started, then more nodes and jobs."""
    nodes, jobs = (
        data.draw(nodes_drawn),
        data.draw(jobs_drawn(policies=ALL_POLICIES, queues=QUEUES, alike=2, most=4)),
    )
    world = observed(nodes, jobs)[0]
    world.cycle()
    for number, node in enumerate(data.draw(nodes_drawn)):
        world.pass_time(1)
        see_node(world, number + 2, node)
        if number % 2:
            world.cycle()
            world.control()
            world.apply()
    for number, job in enumerate(data.draw(jobs_drawn(policies=ALL_POLICIES, queues=QUEUES, most=3))):
        see_jobs(world, len(jobs) - 1 + number, job)
    return world


@BY_CHANCE
@given(data=st.data())
def test_cycles_of_all_policies_come_out_as_recorded(data: st.DataObject) -> None:
    world = lived(data)
    late = take_cycle(world.state, world.config, world.now_ms)
    world.settle()
    if late:
        world.say(*late)
    report = verified(world.entries)
    cycles = [entry for entry in world.entries if isinstance(entry.batch.events[0], k.CycleTaken)]
    assert report.sound and report.identical == report.cycles == len(cycles)


def story_of(world: World, job: JobRecord) -> Story:
    """A job's story at the end of the log, where the next cycle would have the world's configuration."""
    return Story(world.state, job.uid, ClusterContext(world.config), began=0)


@pytest.mark.slow
@BY_CHANCE
@given(data=st.data())
def test_why_a_job_waits_is_what_its_cycle_would_say(data: st.DataObject) -> None:
    world = lived(data)
    told = {event.job_uid: event for event in take_cycle(world.state, world.config, world.now_ms)
            if isinstance(event, k.Waits)}  # fmt: skip
    for job in list(world.state.jobs.values()):
        if job.waits is None and len(job.placements) < job.pods_desired():
            waiting = explain_waiting(story_of(world, job), job)
            assert waiting is not None
            assert (waiting.shortfall is not None) == (job.uid in told)
            if waiting.shortfall is not None:
                assert told[job.uid].shortage.reasons == waiting.shortfall.reasons
                told_of = (told[job.uid].shortage.found, told[job.uid].shortage.asked)
                assert told_of == (waiting.shortfall.found, waiting.shortfall.asked)


def test_why_a_job_waits_is_not_what_failed_of_a_split_before_another_came_about() -> None:
    world = World()
    world.node("n1", cpu=3)
    job = world.job("j", workers=[("a", 2, shape(gpus=1)), ("b", 2, shape(cpu=1))], min_workers=2)
    told = [event for event in take_cycle(world.state, world.config, world.now_ms) if isinstance(event, k.Waits)]
    waiting = explain_waiting(story_of(world, job), job)
    assert waiting is not None and waiting.shortfall is not None
    short = told[0].shortage
    assert (short.found, short.asked, short.further) == (0, 2, True)
    assert (waiting.shortfall.found, waiting.shortfall.asked) == (0, 2)


def test_the_explanation_of_a_quorum_that_was_moved_to_another_place_counts_the_nodes_elsewhere() -> None:
    together = PodRules(affinity=(PodTerm("pool", (Requirement("app", "In", ("rl",)),)),))
    world = World()
    world.node("n1", cpu=4, gpus=2, labels={"pool": "a"})
    world.node("n2", cpu=8, gpus=2, labels={"pool": "b"})
    world.pod("stranger", "n1", cpu=2)
    world.job("j", leader=shape(cpu=1, labels={"app": "rl"}), workers=1, min_workers=1,
              worker=shape(cpu=2, gpus=1, rules=together))  # fmt: skip
    recorded, shown = explained_winners(world)
    assert shown == recorded and set(recorded.values()) == {"n2"}
