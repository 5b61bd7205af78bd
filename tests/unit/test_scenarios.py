"""Scheduling cases restated from other schedulers' tests and issue threads, through whole cycles."""

from collections import Counter
from collections.abc import Iterable
from itertools import permutations
from typing import Any

import pytest

from arranger.events import kinds as k
from arranger.messages.shortages import shortage_text
from arranger.model.config import CycleConfig
from arranger.model.job import ScheduleState
from arranger.model.pod import PodShape
from arranger.model.reasons import Reason, ReasonKind, insufficient
from arranger.projections.jobs.records import JobRecord
from arranger.scheduling.cluster.view import ClusterView
from arranger.scheduling.cycle import take_cycle
from arranger.scheduling.policies.base import PlacementRequest, weight_of
from arranger.scheduling.policies.binpack import BinPack
from tests.random_clusters import POD_POLICIES
from tests.unit.replay_worlds import explained
from tests.world import World, shape


def bare_node(world: World, name: str, **amounts: object) -> None:
    """A node that has only what is named, and room for 110 pods."""
    world.node(name, **{"cpu": 0, "memory": 0, **amounts})  # type: ignore[arg-type]


def placed(job: JobRecord) -> dict[str, int]:
    """Pods by node."""
    return dict(Counter(job.placements.values()))


def waits_of(events: Iterable[k.Event], job: JobRecord) -> k.Waits:
    return next(event for event in events if isinstance(event, k.Waits) and event.job_uid == job.uid)


# --- gangs and quorums --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [("j1", "j2"), ("j2", "j1")])
def test_a_gang_that_fits_is_placed_and_one_that_does_not_gets_no_part_of_what_is_left(order: tuple[str, ...]) -> None:
    world = World()
    bare_node(world, "n", memory=300, pods=32)
    jobs = {"j1": dict(created=1, workers=2, min_workers=2, leader=shape(memory=50)),
            "j2": dict(created=2, workers=3, min_workers=3, leader=shape(memory=100))}  # fmt: skip
    for name in order:
        world.job(name, **jobs[name])  # type: ignore[arg-type]
    world.cycle()
    assert placed(world.state.jobs["uid-j1"]) == {"n": 3} and not placed(world.state.jobs["uid-j2"])
    assert world.used("n", "memory") == 150


def test_of_two_gangs_the_one_of_higher_priority_is_placed_though_it_came_later() -> None:
    world = World()
    bare_node(world, "n", memory=300, pods=32)
    low = world.job("low", priority=5, created=1, workers=2, min_workers=2, leader=shape(memory=100))
    high = world.job("high", priority=9, created=2, workers=2, min_workers=2, leader=shape(memory=50))
    world.cycle()
    assert placed(high) == {"n": 3} and not placed(low)


def test_a_gang_that_cannot_be_placed_does_not_block_a_later_single_pod() -> None:
    world = World()
    for name, cpu in (("n1", 6), ("n2", 2), ("n3", 2), ("n4", 2)):
        bare_node(world, name, cpu=cpu)
    big = world.job("big", created=1, workers=5, min_workers=5, leader=shape(cpu=4))
    small = world.job("small", created=2, leader=shape(cpu=2))
    world.cycle()
    assert not placed(big) and sum(placed(small).values()) == 1


def test_room_that_is_enough_in_sum_but_on_no_node_is_not_enough() -> None:
    world = World()
    for number in (1, 2):
        bare_node(world, f"n{number}", cpu=2)
        world.pod(f"r{number}", f"n{number}", cpu=1)
    job = world.job("j", leader=shape(cpu=1.5))
    waits = waits_of(world.cycle(), job)
    assert not placed(job)
    assert waits.shortage.reasons == ((insufficient("cpu", 1500, 1000), 2),)
    assert shortage_text(waits.shortage) == (
        "0 of 1 required pods fit; learner: 0 of 2 nodes fit: 2 insufficient cpu (needs 1500m, at most 1 free)"
    )


def test_what_a_failed_gang_held_is_free_again_in_the_same_cycle() -> None:
    world = World()
    bare_node(world, "n1", cpu=9)
    gang = world.job("g", created=1, workers=9, min_workers=9, leader=shape(cpu=1))
    single = world.job("s", created=2, leader=shape(cpu=9))
    events = world.cycle()
    assert placed(single) == {"n1": 1} and not placed(gang)
    short = waits_of(events, gang).shortage
    assert (short.found, short.asked, short.further) == (9, 10, False)


def test_a_set_whose_selector_matches_no_node_does_not_hold_up_the_others() -> None:
    world = World()
    bare_node(world, "n1", cpu=3, memory=4, labels={"nodeRole": "worker"})
    sets = [("m", 1, shape(cpu=1, memory=1, selector={"nodeRole": "master"})),
            ("w", 1, shape(cpu=1, memory=1, selector={"nodeRole": "worker"}))]  # fmt: skip
    job = world.job("j", workers=sets, min_workers=0)
    events = world.cycle()
    assert set(job.placements) == {(0, 0), (2, 0)} and job.schedule_state == ScheduleState.PARTLY
    assert waits_of(events, job).shortage.group == "m"
    assert waits_of(events, job).shortage.reasons == ((Reason(ReasonKind.NODE_SELECTOR), 1),)


def test_gang_means_every_pod_of_the_job_whatever_min_workers_says() -> None:
    for policy, expected in (("Gang", {}), ("BinPack", {"n1": 3})):
        world = World()
        bare_node(world, "n1", cpu=3)
        job = world.job("j", workers=3, min_workers=1, policy=policy, leader=shape(cpu=1))
        world.settle()
        assert placed(job) == expected
        bare_node(world, "n1", cpu=4)
        world.settle()
        assert placed(job) == {"n1": 4}


def test_two_gangs_that_each_fit_alone_never_hold_half_of_the_cluster_each() -> None:
    world = World()
    for number in range(4):
        bare_node(world, f"n{number}", cpu=1)
    jobs = [world.job(f"g{n}", created=n, workers=2, min_workers=2, leader=shape(cpu=1)) for n in range(2)]
    world.settle()
    assert [sum(placed(job).values()) for job in jobs] == [3, 0]
    world.job("g0", created=0, workers=2, min_workers=2, leader=shape(cpu=1), terminating=True)
    world.settle()
    assert [sum(placed(job).values()) for job in jobs] == [0, 3]


def test_the_quorum_takes_the_worker_sets_in_the_order_given() -> None:
    world = World()
    bare_node(world, "n1", cpu=4)
    sets = [("a", 2, shape(cpu=1)), ("b", 2, shape(cpu=1))]
    job = world.job("j", workers=sets, min_workers=3, leader=shape(cpu=1))
    world.cycle()
    assert set(job.placements) == {(0, 0), (1, 0), (1, 1), (2, 0)}


# --- the queue ----------------------------------------------------------------------------------------------------


def test_two_pods_of_one_job_share_a_node_that_holds_both() -> None:
    world = World()
    bare_node(world, "n1", cpu=2, memory=4)
    job = world.job("j", workers=1, leader=shape(cpu=1, memory=1))
    world.cycle()
    assert placed(job) == {"n1": 2}


def test_a_job_too_big_for_every_node_does_not_block_the_next() -> None:
    world = World()
    bare_node(world, "n1", cpu=2, memory=4)
    first = world.job("j1", created=1, leader=shape(cpu=3, memory=1))
    second = world.job("j2", created=2, leader=shape(cpu=1, memory=1))
    world.cycle()
    assert not placed(first) and placed(second) == {"n1": 1}


def test_equal_priorities_go_by_creation_and_then_by_uid() -> None:
    for names, created, winner in ((("a", "b"), (2, 1), "b"), (("b", "a"), (1, 1), "a"), (("a", "b"), (1, 2), "a")):
        world = World()
        bare_node(world, "n0", gpus=1)
        for name, at in zip(names, created, strict=True):
            world.job(name, created=at, leader=shape(gpus=1))
        world.cycle()
        assert [job.seen.name for job in world.state.jobs.values() if job.placements] == [winner]


def test_a_flood_of_jobs_for_other_nodes_does_not_keep_an_important_one_waiting() -> None:
    world = World()
    bare_node(world, "n1", cpu=4, labels={"pool": "low"})
    bare_node(world, "n2", cpu=4, labels={"pool": "high"})
    for number in range(1000):
        world.job(f"f{number:03}", priority=1, created=1, leader=shape(cpu=1, selector={"pool": "low"}))
    vip = world.job("vip", priority=10, created=2, leader=shape(cpu=4, selector={"pool": "high"}))
    world.cycle()
    assert placed(vip) == {"n2": 1}
    assert sum(placed(job).get("n1", 0) for job in world.state.jobs.values()) == 4


def test_within_one_priority_all_quorums_come_before_anybodys_further_pods() -> None:
    world = World()
    bare_node(world, "n1", cpu=4)
    first = world.job("first", created=1, workers=3, min_workers=0, leader=shape(cpu=1))
    second = world.job("second", created=2, workers=1, min_workers=1, leader=shape(cpu=1))
    world.cycle()
    assert (placed(first), placed(second)) == ({"n1": 2}, {"n1": 2})
    assert (first.schedule_state, second.schedule_state) == (ScheduleState.PARTLY, ScheduleState.SUCCEED)


def test_a_higher_prioritys_further_pods_come_before_a_lower_prioritys_quorum() -> None:
    world = World()
    bare_node(world, "n1", cpu=4)
    high = world.job("high", priority=6, created=2, workers=3, min_workers=0, leader=shape(cpu=1))
    low = world.job("low", priority=5, created=1, leader=shape(cpu=1))
    world.cycle()
    assert (placed(high), placed(low)) == ({"n1": 4}, {})


# --- BinPack ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "scores"),
    [
        (dict(cpu=1, memory=1), {"n1": 70.0, "n2": 13.75}),
        (dict(cpu=1.5), {"n2": 37.5}),
        (dict(cpu=2, memory=10, gpus=2), {"n2": 53.125}),
        (dict(cpu=3, memory=4, foo=3), {}),
    ],
)
def test_binpack_scores_are_the_weighted_utilisation_after_placing(
    asked: dict[str, Any], scores: dict[str, float]
) -> None:
    world = World(config=CycleConfig(weights=(("cpu", 2), ("memory", 3), ("nvidia.com/gpu", 7), ("foo", 8))))
    bare_node(world, "n1", cpu=2, memory=4)
    bare_node(world, "n2", cpu=4, memory=16, gpus=4)
    bare_node(world, "n3", cpu=2, memory=4, foo=16)
    world.pod("on-n1", "n1", cpu=1, memory=1)
    world.pod("on-n3", "n3", cpu=1.5)
    job = world.job("j", leader=shape(**asked), policy="BinPack")
    world.cycle()
    assert list(placed(job)) == [max(scores, key=lambda name: scores[name])] if scores else not placed(job)
    ranking = explained(world.entries, "j").placement_explanations[0].ranking if scores else ()
    assert {ranked.node: ranked.score for ranked in ranking} == pytest.approx(scores, abs=1e-4)


def test_a_weighted_resource_that_a_node_has_nothing_of_adds_nothing_but_its_weight_counts() -> None:
    config = CycleConfig(weights=(("cpu", 2), ("memory", 3), ("foo", 8)))
    world = World()
    bare_node(world, "n2", cpu=4, memory=16)
    request = PlacementRequest(shape(cpu=3, memory=4, foo=3), 1, leader=False)
    assert BinPack().scores(ClusterView(world.state.nodes), request, config).tolist() == [173_076]


def test_a_resource_without_a_weight_has_no_say_and_every_gpu_has_that_of_gpus() -> None:
    config = CycleConfig()
    assert weight_of("nvidia.com/gpu", config) == weight_of("amd.com/gpu", config) == 5
    assert (weight_of("cpu", config), weight_of("rdma/hca", config)) == (1, 0)
    world = World()
    bare_node(world, "n1", **{"rdma/hca": 9})
    bare_node(world, "n2", **{"rdma/hca": 2})
    job = world.job("j", leader=PodShape((("rdma/hca", 1),)))
    world.cycle()
    assert placed(job) == {"n1": 1}


def test_the_default_policy_counts_every_weighted_resource_of_a_node_whether_or_not_a_pod_asks_for_it() -> None:
    world = World(config=CycleConfig(weights=(("*/gpu", 5), ("cpu", 2), ("rdma/hca", 1))))
    bare_node(world, "n1", cpu=4, gpus=4)
    bare_node(world, "n2", cpu=8)
    world.pod("on-n1", "n1", cpu=1, gpus=2)
    job = world.job("j", leader=shape(cpu=1))
    world.cycle()
    # n1: 2 of 4 cpus and 2 of 4 GPUs. n2 has no GPU that could stay idle. No node has the third resource.
    assert placed(job) == {"n2": 1}
    (n2, n1) = explained(world.entries, "j").placement_explanations[0].ranking
    assert (n2.score, n1.score) == pytest.approx(
        (100 * (2 * 1 / 8 + 5) / 7, 100 * (2 * 2 / 4 + 5 * 2 / 4) / 7), abs=1e-4
    )
    assert [(term.name, term.weight, term.shown) for term in n1.terms] == [
        ("cpu", 2, "50.0%"),
        ("nvidia.com/gpu", 5, "50.0%"),
    ]


def test_pods_without_gpus_leave_idle_gpus_their_cpus() -> None:
    for policy, node in (("", "n2"), ("BinPack", "n1")):
        world = World()
        bare_node(world, "n1", cpu=16, gpus=2)
        bare_node(world, "n2", cpu=32, gpus=2)
        world.pod("cpus", "n1", cpu=8)
        world.pod("gpus", "n2", cpu=8, gpus=2)
        job = world.job("j", leader=shape(cpu=4), policy=policy)
        world.cycle()
        assert placed(job) == {node: 1}


def test_without_any_weighted_resource_the_lowest_name_wins() -> None:
    world = World(config=CycleConfig(weights=(("cpu", 0),)))
    bare_node(world, "n1", cpu=4)
    bare_node(world, "n2", cpu=2)
    job = world.job("j", leader=shape(cpu=1))
    world.cycle()
    assert placed(job) == {"n1": 1}


def test_binpack_takes_the_node_that_is_fullest_afterwards() -> None:
    world = World()
    bare_node(world, "n1", cpu=2, memory=4)
    bare_node(world, "n2", cpu=4, memory=8)
    job = world.job("j", leader=shape(cpu=1, memory=1))
    world.cycle()
    assert placed(job) == {"n1": 1}


def test_equal_scores_go_to_the_lowest_name_in_every_order_of_the_nodes() -> None:
    for order in permutations(["n1", "n2", "n3"]):
        world = World()
        for name in order:
            bare_node(world, name, cpu=4)
        job = world.job("j", leader=shape(cpu=1))
        world.cycle()
        assert placed(job) == {"n1": 1}


def test_among_many_equal_nodes_the_lowest_names_are_filled_first() -> None:
    world = World()
    for number in reversed(range(300)):
        bare_node(world, f"n{number:03}", cpu=1 + number % 2)
    job = world.job("j", workers=59, min_workers=59, leader=shape(cpu=1))
    world.cycle()
    assert sorted(placed(job)) == [f"n{number:03}" for number in range(0, 120, 2)]


def test_what_is_decided_and_in_flight_counts_in_the_next_cycle() -> None:
    world = World()
    bare_node(world, "n1", cpu=4)
    a = world.job("a", leader=shape(cpu=3))
    world.cycle()
    b = world.job("b", created=1, leader=shape(cpu=3))
    world.cycle()
    assert placed(a) == {"n1": 1} and not placed(b)


@pytest.mark.filterwarnings("error")
def test_a_node_that_strangers_overbooked_takes_nothing_more_and_breaks_nothing() -> None:
    world = World()
    bare_node(world, "n1", cpu=1, memory=1)
    bare_node(world, "n2", cpu=1)
    world.pod("greedy", "n1", cpu=1, memory=1 << 53)
    world.pod("another", "n1", cpu=1, memory=1 << 53)
    job = world.job("j", leader=shape(cpu=1))
    memory = world.job("memory", created=1, leader=shape(cpu=0.1, memory=1))
    events = world.cycle()
    assert placed(job) == {"n2": 1} and not placed(memory)
    assert waits_of(events, memory).shortage.reasons == ((insufficient("cpu", 100, 0), 2),)


@pytest.mark.parametrize(
    ("policy", "workers", "node"),
    [("", 0, "n1"), ("BinPack", 0, "n1"), ("Gang", 0, "n1"), ("LeaderFirst", 0, "n2"), ("JobAntiAffinity", 0, "n2")],
)
def test_most_allocated_packs_and_least_allocated_spreads(policy: str, workers: int, node: str) -> None:
    world = World()
    bare_node(world, "n1", cpu=2, memory=4)
    bare_node(world, "n2", cpu=4, memory=8)
    job = world.job("j", leader=shape(cpu=1, memory=1), policy=policy)
    world.cycle()
    assert placed(job) == {node: 1}


def test_a_worker_under_leader_first_goes_to_the_node_that_is_fullest_afterwards() -> None:
    world = World()
    bare_node(world, "n0", gpus=1)
    bare_node(world, "n1", cpu=2, memory=4)
    bare_node(world, "n2", cpu=4, memory=8)
    job = world.job("j", leader=shape(gpus=1), workers=1, worker=shape(cpu=1, memory=1), policy="LeaderFirst")
    world.cycle()
    assert placed(job) == {"n0": 1, "n1": 1}


def test_the_balanced_node_is_preferred_by_min_fragment() -> None:
    for policy, node in (("MinFragment", "n1"), ("LeaderFirst", "n2")):
        world = World()
        bare_node(world, "n1", cpu=2, memory=2)
        bare_node(world, "n2", cpu=4, memory=2)
        job = world.job("j", leader=shape(cpu=1, memory=1), policy=policy)
        world.cycle()
        assert placed(job) == {node: 1}


def test_of_equal_nodes_the_same_is_chosen_every_time() -> None:
    for policy in POD_POLICIES:
        world = World()
        for name in ("n3", "n1", "n2"):
            bare_node(world, name, cpu=4)
        job = world.job("j", leader=shape(cpu=1), policy=policy)
        plans = [take_cycle(world.state, world.config, world.now_ms) for _ in range(100)]
        assert all(plan == plans[0] for plan in plans)
        world.cycle()
        assert placed(job) == {"n1": 1}
