"""One scheduling cycle: cases restated from other schedulers' tests and threads, and what holds on any cluster."""

import dataclasses
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby, permutations
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from arranger.events import kinds as k
from arranger.model.config import CycleConfig
from arranger.model.job import ScheduleState, Stage
from arranger.model.node import NodeFacts, Taint
from arranger.model.pod import PodShape, Requirement, Toleration
from arranger.projections.jobs import JobRecord, expand
from arranger.scheduling.cycle import VERSIONS, take_cycle
from arranger.scheduling.filters import Filters, untolerated
from arranger.scheduling.policies.base import Ask, weight_of
from arranger.scheduling.policies.binpack import BinPack
from arranger.scheduling.view import ClusterView
from tests.random_worlds import LONG, Step, live_through, steps
from tests.world import GIB, World, shape

BY_CHANCE = settings(max_examples=100, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])


def bare_node(world: World, name: str, **amounts: object) -> None:
    """A node that has only what is named, and room for 110 pods."""
    world.node(name, **{"cpu": 0, "memory": 0, **amounts})  # type: ignore[arg-type]


def placed(job: JobRecord) -> dict[str, int]:
    """Pods by node."""
    return dict(Counter(job.placements.values()))


def matches(facts: NodeFacts, name: str, pod: PodShape) -> bool:
    """Whether the filters let this pod onto a healthy node with these labels."""
    world = World()
    world.node(name, labels=dict(facts.labels))
    return bool(Filters(ClusterView(world.state.nodes)).static(pod)[0])


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
    assert waits.reasons == (("lack cpu (need 1500m, most free 1)", 2),)
    assert waits.message == (
        "0 of 1 pods find room together; no node for learner: 2 nodes: 2 lack cpu (need 1500m, most free 1)"
    )


def test_what_a_failed_gang_held_is_free_again_in_the_same_cycle() -> None:
    world = World()
    bare_node(world, "n1", cpu=9)
    gang = world.job("g", created=1, workers=9, min_workers=9, leader=shape(cpu=1))
    single = world.job("s", created=2, leader=shape(cpu=9))
    events = world.cycle()
    assert placed(single) == {"n1": 1} and not placed(gang)
    assert "9 of 10 pods find room together" in waits_of(events, gang).message


def test_a_set_whose_selector_matches_no_node_does_not_hold_up_the_others() -> None:
    world = World()
    bare_node(world, "n1", cpu=3, memory=4, labels={"nodeRole": "worker"})
    sets = [("m", 1, shape(cpu=1, memory=1, selector={"nodeRole": "master"})),
            ("w", 1, shape(cpu=1, memory=1, selector={"nodeRole": "worker"}))]  # fmt: skip
    job = world.job("j", workers=sets, min_workers=0)
    events = world.cycle()
    assert set(job.placements) == {(0, 0), (2, 0)} and job.schedule_state == ScheduleState.PARTLY
    assert waits_of(events, job).group == 1
    assert waits_of(events, job).reasons == (("node selector doesn't match", 1),)


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


def test_jobs_that_ended_are_leaving_or_are_wrong_want_no_nodes() -> None:
    world = World()
    world.node("n1")
    world.job("leaving", deleting=True)
    world.job("wrong", invalid="spec.leader: required")
    world.job("asked-to-end", terminating=True)
    ended = world.job("ended")
    world.say(k.StageDecided(ended.uid, ended.version, 0, "Failed", "ImageError", ""))
    assert world.cycle() == ()


def test_a_cycle_with_nothing_new_to_say_says_nothing() -> None:
    world = World()
    bare_node(world, "n1", cpu=1)
    world.job("a", leader=shape(cpu=1))
    world.job("b", created=1, leader=shape(cpu=1))
    assert len(world.cycle()) == 3
    assert world.cycle() == ()


# --- BinPack ------------------------------------------------------------------------------------------------------


def test_binpack_scores_are_the_weighted_utilisation_after_placing() -> None:
    config = CycleConfig(weights=(("cpu", 2), ("memory", 3), ("nvidia.com/gpu", 7), ("foo", 8)))
    world = World()
    bare_node(world, "n1", cpu=2, memory=4)
    bare_node(world, "n2", cpu=4, memory=16, gpus=4)
    bare_node(world, "n3", cpu=2, memory=4, foo=16)
    world.pod("on-n1", "n1", cpu=1, memory=1)
    world.pod("on-n3", "n3", cpu=1.5)
    view = ClusterView(world.state.nodes)

    def scores(**amounts: float) -> list[int]:
        return BinPack().scores(view, Ask(shape(**amounts), 1, leader=False), config).tolist()

    assert scores(cpu=1, memory=1)[:2] == [700_000, 137_500]
    assert scores(cpu=1.5)[1] == 375_000
    assert scores(cpu=2, memory=10, gpus=2)[1] == 531_250
    assert scores(cpu=3, memory=4, foo=3)[1] == 173_076  # nothing of `foo` there: adds nothing, its weight counts


def test_a_resource_without_a_weight_has_no_say_and_every_gpu_has_that_of_gpus() -> None:
    config = CycleConfig()
    assert weight_of("nvidia.com/gpu", config) == weight_of("amd.com/gpu", config) == 5
    assert (weight_of("cpu", config), weight_of("rdma/hca", config)) == (1, 0)
    world = World()
    bare_node(world, "n1", **{"rdma/hca": 9})
    bare_node(world, "n2", **{"rdma/hca": 2})
    job = world.job("j", leader=shape(**{"rdma/hca": 1}))
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
    assert "most free 0" in waits_of(events, memory).message


# --- why a job waits ----------------------------------------------------------------------------------------------


def test_every_node_is_counted_under_the_first_reason_that_keeps_the_pod_away() -> None:
    world = World()
    world.node("n1", ready=False, cordoned=True)
    world.node("n2", cordoned=True, taints=[Taint("infra", "yes", "NoSchedule")])
    world.node("n3", taints=[Taint("infra", "yes", "NoExecute"), Taint("b", "", "NoSchedule")])
    world.node("n4", labels={"pool": "other"})
    world.node("n5", labels={"pool": "gpu"}, cpu=1, gpus=2)
    world.node("n6", labels={"pool": "gpu"}, cpu=1, gpus=6)
    world.node("n7", labels={"pool": "gpu"}, cpu=1, gpus=8)
    job = world.job("j", leader=shape(cpu=2, gpus=8, selector={"pool": "gpu"}))
    waits = waits_of(world.cycle(), job)
    assert waits.reasons == (
        ("lack nvidia.com/gpu (need 8, most free 6)", 2),
        ("cordoned", 1),
        ("lack cpu (need 2, most free 1)", 1),
        ("node selector doesn't match", 1),
        ("not ready", 1),
        ("taint infra=yes:NoExecute not tolerated", 1),
    )


def test_without_nodes_a_job_says_that_there_are_none() -> None:
    world = World()
    job = world.job("j")
    assert "0 nodes: there are none" in waits_of(world.cycle(), job).message


def test_amounts_in_reasons_read_as_people_write_them() -> None:
    world = World()
    bare_node(world, "n1", memory=3 * GIB + 512 * 1024 * 1024)
    job = world.job("j", leader=shape(memory=16 * GIB))
    assert "lack memory (need 16Gi, most free 3.5Gi)" in waits_of(world.cycle(), job).message


def test_a_reason_with_other_numbers_is_news_after_a_while_and_another_kind_of_reason_at_once() -> None:
    world = World()
    bare_node(world, "n1", cpu=4)
    job = world.job("j", leader=shape(cpu=3))
    uid = world.pod("p", "n1", cpu=2)
    world.cycle()
    world.change_pod(uid, requests=(("cpu", 3000),))
    world.pass_time(world.config.reasons_refresh_ms / 1000 - 0.001)
    assert world.cycle() == ()
    world.pass_time(0.001)
    assert "most free 1)" in waits_of(world.cycle(), job).message
    bare_node(world, "n1", cpu=4, cordoned=True)
    assert waits_of(world.cycle(), job).reasons == (("cordoned", 1),)


def test_a_reason_that_stays_true_is_never_said_again() -> None:
    world = World()
    bare_node(world, "n1", cpu=4)
    world.pod("p", "n1", cpu=2)
    world.job("j", leader=shape(cpu=3))
    assert world.cycle() != ()
    world.pass_time(3600)
    assert world.cycle() == ()


# --- what can never fit -------------------------------------------------------------------------------------------


def test_a_quorum_that_no_empty_cluster_holds_fails_after_the_grace_and_not_before() -> None:
    world = World()
    bare_node(world, "n1", cpu=4)
    job = world.job("j", leader=shape(cpu=5))
    waits = waits_of(world.cycle(), job)
    assert waits.infeasible and waits.message.endswith("even an empty cluster of these nodes can't hold it")
    world.pass_time(world.config.infeasible_grace_ms / 1000 - 0.001)
    assert world.cycle() == () and job.schedule_state == ScheduleState.UNSCHEDULED
    world.pass_time(0.001)
    assert waits_of(world.cycle(), job).schedule_state == ScheduleState.FAILED
    assert world.cycle() == ()


def test_the_grace_begins_anew_when_a_node_came_that_could_hold_the_job() -> None:
    world = World()
    bare_node(world, "n1", cpu=4)
    job = world.job("j", leader=shape(cpu=5))
    world.cycle()
    world.pass_time(299)
    bare_node(world, "n2", cpu=5)
    world.pod("p", "n2", cpu=5)
    world.cycle()
    assert job.infeasible_since_ms == 0
    world.node_gone("n2")
    world.cycle()
    world.pass_time(299)
    world.cycle()
    assert job.schedule_state == ScheduleState.UNSCHEDULED
    world.pass_time(1)
    world.cycle()
    assert job.schedule_state == ScheduleState.FAILED


@pytest.mark.parametrize(
    "trouble",
    [
        {"ready": False},
        {"cordoned": True},
        {"cordoned": True, "taints": [Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")]},
        {"ready": False, "taints": [Taint("node.kubernetes.io/not-ready", "", "NoExecute")]},
        {"ready": False, "taints": [Taint("node.kubernetes.io/unreachable", "", "NoSchedule"),
                                    Taint("node.kubernetes.io/unreachable", "", "NoExecute")]},
        {"taints": [Taint("node.kubernetes.io/disk-pressure", "", "NoSchedule")]},
    ],
)  # fmt: skip
def test_a_cluster_that_is_full_cordoned_or_ill_never_fails_a_job(trouble: Mapping[str, object]) -> None:
    world = World()
    bare_node(world, "full", cpu=4)
    world.pod("p", "full", cpu=4)
    bare_node(world, "ill", cpu=4, **trouble)
    job = world.job("j", workers=1, min_workers=1, leader=shape(cpu=4))
    for _ in range(3):
        world.pass_time(10_000)
        world.settle()
    assert (job.schedule_state, job.stage) == (ScheduleState.UNSCHEDULED, Stage.PENDING)
    assert job.waits is not None and not job.waits.infeasible


def test_an_admins_taint_on_every_node_does_fail_a_job_that_does_not_tolerate_it() -> None:
    world = World()
    world.node("n1", taints=[Taint("dedicated", "infra", "NoSchedule")])
    job = world.job("j")
    assert waits_of(world.cycle(), job).infeasible


def test_a_running_job_whose_quorum_grew_out_of_reach_waits_for_more_and_is_never_failed() -> None:
    world = World()
    bare_node(world, "n1", cpu=4)
    job = world.job("j", workers=3, min_workers=1, leader=shape(cpu=1))
    world.settle()
    world.job("j", workers=9, min_workers=9, leader=shape(cpu=1))
    for _ in range(3):
        world.settle()
        world.pass_time(10_000)
    assert (job.stage, job.schedule_state) == (Stage.RUNNING, ScheduleState.PARTLY)
    assert job.waits is not None and not job.waits.infeasible and placed(job) == {"n1": 4}


# --- filters, to the letter of Kubernetes -------------------------------------------------------------------------

TAINT = Taint("dedicated", "gpu", "NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "welcome"),
    [
        (Toleration("dedicated", "Equal", "gpu", "NoSchedule"), True),
        (Toleration("dedicated", "Equal", "gpu", ""), True),
        (Toleration("dedicated", "", "gpu", ""), True),
        (Toleration("dedicated", "Exists", "", "NoSchedule"), True),
        (Toleration("dedicated", "Exists", "", ""), True),
        (Toleration("", "Exists", "", ""), True),
        (Toleration("", "Exists", "", "NoSchedule"), True),
        (Toleration("", "Exists", "", "NoExecute"), False),
        (Toleration("dedicated", "Equal", "cpu", ""), False),
        (Toleration("dedicated", "Equal", "", ""), False),
        (Toleration("dedicated", "Exists", "", "NoExecute"), False),
        (Toleration("other", "Exists", "", ""), False),
        (Toleration("other", "Equal", "gpu", "NoSchedule"), False),
    ],
)
def test_a_toleration_welcomes_a_taint(toleration: Toleration, welcome: bool) -> None:
    pod = PodShape((), tolerations=(toleration,))
    assert (untolerated((TAINT,), pod) is None) == welcome


def test_taints_that_keep_a_pod_away_and_one_that_only_advises() -> None:
    pod = PodShape((), tolerations=(Toleration("a", "Exists", "", ""),))
    assert untolerated((), pod) is None
    assert untolerated((Taint("b", "", "PreferNoSchedule"),), pod) is None
    assert untolerated((Taint("a", "", "NoSchedule"), Taint("b", "", "NoExecute")), pod) == Taint("b", "", "NoExecute")


def requirement(operator: str, *values: str, key: str = "pool", field: bool = False) -> Requirement:
    return Requirement(key, operator, values, field)


@pytest.mark.parametrize(
    ("term", "expected"),
    [
        ((requirement("In", "a", "b"),), {"a", "b"}),
        ((requirement("In"),), set()),
        ((requirement("NotIn", "a"),), {"b", "none", "5", "-7"}),
        ((requirement("NotIn"),), {"a", "b", "none", "5", "-7"}),
        ((requirement("Exists"),), {"a", "b", "5", "-7"}),
        ((requirement("DoesNotExist"),), {"none"}),
        ((requirement("Gt", "4"),), {"5"}),
        ((requirement("Gt", "5"),), set()),
        ((requirement("Lt", "5"),), {"-7"}),
        ((requirement("Lt", "6"),), {"5", "-7"}),
        ((requirement("Gt", "a"),), set()),
        ((requirement("Lt", "99999999999999999999"),), set()),  # no 64-bit integer
        ((requirement("Gt"),), set()),
        ((requirement("Unknown", "a"),), set()),
        ((requirement("Exists"), requirement("NotIn", "a")), {"b", "5", "-7"}),
        ((requirement("In", "a", "none", key="metadata.name", field=True),), {"a", "none"}),
        ((requirement("NotIn", "a", key="metadata.name", field=True),), {"b", "none", "5", "-7"}),
        ((requirement("In", "b", key="metadata.name", field=True), requirement("In", "a")), set()),
        ((), set()),
    ],
)
def test_a_term_of_required_node_affinity_matches(term: tuple[Requirement, ...], expected: set[str]) -> None:
    pod = PodShape((), required_terms=(term,))
    found = set()
    for name in ("a", "b", "none", "5", "-7"):
        labels = () if name == "none" else (("pool", name),)
        if matches(NodeFacts((), True, False, labels), name, pod):
            found.add(name)
    assert found == expected


def test_terms_are_alternatives_and_no_terms_match_nothing() -> None:
    facts = NodeFacts((), True, False, (("pool", "a"),))
    assert matches(facts, "n", PodShape((), required_terms=((requirement("In", "b"),), (requirement("Exists"),))))
    assert not matches(facts, "n", PodShape((), required_terms=()))
    assert matches(facts, "n", PodShape((), required_terms=None))


def test_a_node_selector_and_required_affinity_must_both_hold() -> None:
    facts = NodeFacts((), True, False, (("pool", "a"), ("zone", "1")))
    affine = ((requirement("Exists"),),)
    assert matches(facts, "n", PodShape((), node_selector=(("zone", "1"),), required_terms=affine))
    assert not matches(facts, "n", PodShape((), node_selector=(("zone", "2"),), required_terms=affine))
    assert not matches(facts, "n", PodShape((), node_selector=(("absent", ""),)))


def test_a_pod_without_requests_still_needs_room_for_a_pod() -> None:
    world = World()
    bare_node(world, "n1", pods=1)
    first, second = world.job("a", leader=shape()), world.job("b", created=1, leader=shape())
    events = world.cycle()
    assert placed(first) == {"n1": 1} and not placed(second)
    assert waits_of(events, second).reasons == (("lack pods (need 1, most free 0)", 1),)


# --- on any cluster -----------------------------------------------------------------------------------------------

SHAPES = (
    shape(cpu=1), shape(cpu=2, memory=GIB), shape(gpus=1), shape(cpu=0.5, gpus=2), shape(),
    shape(cpu=1, selector={"pool": "1"}), shape(memory=3 * GIB), shape(**{"rdma/hca": 1}),
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class NodeDraw:
    cpu: int
    gpus: int
    pods: int
    hca: int
    pool: str
    trouble: int
    stranger: int


@dataclasses.dataclass(frozen=True)
class JobDraw:
    leader: int
    sets: tuple[tuple[int, int], ...]
    quorum: int
    priority: int
    created: int
    policy: str

    @property
    def min_workers(self) -> int:
        return min(self.quorum, sum(count for count, _ in self.sets))


nodes_drawn = st.lists(
    st.builds(NodeDraw, cpu=st.integers(0, 6), gpus=st.integers(0, 4), pods=st.integers(0, 6), hca=st.integers(0, 2),
              pool=st.sampled_from("01"), trouble=st.integers(0, 9), stranger=st.integers(0, 3)),
    max_size=7,
)  # fmt: skip
jobs_drawn = st.lists(
    st.builds(JobDraw, leader=st.integers(0, 7),
              sets=st.lists(st.tuples(st.integers(1, 8), st.integers(0, 7)), max_size=3).map(tuple),
              quorum=st.integers(0, 9), priority=st.integers(1, 2), created=st.integers(0, 2),
              policy=st.sampled_from(["", "BinPack", "Gang"])),
    min_size=1, max_size=6,
)  # fmt: skip


def observed(
    nodes: list[NodeDraw], jobs: list[JobDraw], order: Iterable[int] | None = None
) -> tuple[World, list[JobRecord]]:
    """A world of these nodes and jobs, seen in this order of their numbers, nodes counted first."""
    world = World()
    seen = list(order) if order is not None else range(len(nodes) + len(jobs))
    for number in seen:
        if number < len(nodes):
            node = nodes[number]
            taints = (Taint("infra", "", "NoSchedule"),) if node.trouble == 2 else ()
            world.node(f"n{number}", cpu=node.cpu, memory=4 * GIB, gpus=node.gpus, pods=node.pods,
                       ready=node.trouble != 0, cordoned=node.trouble == 1, taints=taints,
                       labels={"pool": node.pool}, **{"rdma/hca": node.hca})  # fmt: skip
            if node.stranger:
                world.pod(f"s{number}", f"n{number}", cpu=node.stranger / 2)
        else:
            job = jobs[number - len(nodes)]
            sets = [(f"set{i}", count, SHAPES[of]) for i, (count, of) in enumerate(job.sets)]
            world.job(f"j{number - len(nodes)}", leader=SHAPES[job.leader], workers=sets, min_workers=job.min_workers,
                      priority=job.priority, created=job.created, policy=job.policy)  # fmt: skip
    return world, [world.state.jobs[f"uid-j{number}"] for number in range(len(jobs))]


class OneByOne:
    """The specification read literally: one pod at a time, every node looked at for each."""

    def __init__(self, world: World) -> None:
        nodes = world.state.nodes
        self.names = sorted(nodes.rows)
        self.facts = {name: nodes.facts[nodes.rows[name]] for name in self.names}
        self.used = {name: {r: int(nodes.used[nodes.rows[name], c]) for r, c in nodes.columns.items()}
                     for name in self.names}  # fmt: skip
        self.config = world.config

    def plan(self, jobs: Iterable[JobRecord]) -> dict[str, dict[tuple[int, int], str]]:
        plan: dict[str, dict[tuple[int, int], str]] = {}
        queue = sorted(jobs, key=lambda job: (-job.spec.priority, job.seen.created_ms, job.uid))  # type: ignore[union-attr]
        for _, level in groupby(queue, key=lambda job: job.spec.priority):  # type: ignore[union-attr]
            of_level = list(level)
            for job in of_level:
                plan[job.uid] = self._quorum(job)
            for job in of_level:
                if plan[job.uid]:
                    self._further(job, plan[job.uid])
        return plan

    def _quorum(self, job: JobRecord) -> dict[tuple[int, int], str]:
        """The workers in the order of the sets, or else what each set can give, in other orders of the sets."""
        assert job.spec is not None
        workers = [(g, i) for g, group in enumerate(job.spec.groups) if g for i in range(group.count)]
        if job.spec.pod_policy == "Gang":
            return self._exactly(job, [(0, 0), *workers])
        placed = self._exactly(job, [(0, 0), *workers[: job.spec.min_workers]])
        sets = list(range(1, len(job.spec.groups)))
        by_size = sorted(sets, key=lambda group: (self._size(job, group), group))
        rotations = [sets[at:] + sets[:at] for at in range(len(sets))]
        for order in [by_size, by_size[::-1], *rotations] if len(sets) > 1 else []:
            placed = placed or self._from_sets(job, order)
        return placed

    def _size(self, job: JobRecord, group: int) -> int:
        assert job.spec is not None
        size = 0
        for resource, amount in job.spec.groups[group].shape.requests:
            total = sum(dict(self.facts[name].allocatable).get(resource, 0) for name in self.names)
            size += max(weight_of(resource, self.config), 1) * (amount * 10**9 // total if total else 1 << 40)
        return size

    def _from_sets(self, job: JobRecord, order: list[int]) -> dict[tuple[int, int], str]:
        assert job.spec is not None
        leader = self._best(job, 0)
        if leader is None:
            return {}
        self._hold(leader, job, 0, 1)
        placed = {(0, 0): leader}
        for group in order:
            for index in range(job.spec.groups[group].count):
                node = self._best(job, group) if len(placed) <= job.spec.min_workers else None
                if node is not None:
                    self._hold(node, job, group, 1)
                    placed[(group, index)] = node
        if len(placed) > job.spec.min_workers:
            return placed
        for (group, _), held in placed.items():
            self._hold(held, job, group, -1)
        return {}

    def _exactly(self, job: JobRecord, wanted: list[tuple[int, int]]) -> dict[tuple[int, int], str]:
        placed: dict[tuple[int, int], str] = {}
        for place in wanted:
            node = self._best(job, place[0])
            if node is None:
                for (group, _), held in placed.items():
                    self._hold(held, job, group, -1)
                return {}
            self._hold(node, job, place[0], 1)
            placed[place] = node
        return placed

    def _further(self, job: JobRecord, placed: dict[tuple[int, int], str]) -> None:
        assert job.spec is not None
        for number, group in enumerate(job.spec.groups):
            for index in range(group.count):
                if (number, index) not in placed:
                    node = self._best(job, number)
                    if node is not None:
                        self._hold(node, job, number, 1)
                        placed[(number, index)] = node

    def _best(self, job: JobRecord, group: int) -> str | None:
        assert job.spec is not None
        pod = job.spec.groups[group].shape
        fitting = [name for name in self.names if self._fits(name, pod)]
        return min(fitting, key=lambda name: (-self._score(name, pod), name), default=None)

    def _fits(self, name: str, pod: PodShape) -> bool:
        facts, allocatable = self.facts[name], dict(self.facts[name].allocatable)
        labels = dict(facts.labels)
        return (
            facts.ready
            and not facts.cordoned
            and not facts.taints
            and all(labels.get(key) == value for key, value in pod.node_selector)
            and all(
                self.used[name].get(resource, 0) + amount <= allocatable.get(resource, 0)
                for resource, amount in (*pod.requests, ("pods", 1))
            )
        )

    def _score(self, name: str, pod: PodShape) -> int:
        allocatable = dict(self.facts[name].allocatable)
        weighted = [(resource, amount, weight_of(resource, self.config)) for resource, amount in pod.requests]
        total = sum(
            weight * round((self.used[name].get(resource, 0) + amount) / allocatable[resource] * 1_000_000)
            for resource, amount, weight in weighted
            if weight
        )
        weights = sum(weight for _, _, weight in weighted)
        return total // weights if weights else 0

    def _hold(self, name: str, job: JobRecord, group: int, sign: int) -> None:
        assert job.spec is not None
        for resource, amount in (*job.spec.groups[group].shape.requests, ("pods", 1)):
            self.used[name][resource] = self.used[name].get(resource, 0) + sign * amount


@BY_CHANCE
@given(nodes=nodes_drawn, jobs=jobs_drawn)
def test_placing_equal_pods_together_is_placing_them_one_by_one(nodes: list[NodeDraw], jobs: list[JobDraw]) -> None:
    world, records = observed(nodes, jobs)
    expected = OneByOne(world).plan(records)
    world.cycle()
    assert {job.uid: job.placements for job in records} == expected
    assert all(verdict.accepted for verdict in world.verdicts)


@BY_CHANCE
@given(nodes=nodes_drawn, jobs=jobs_drawn)
def test_no_plan_oversubscribes_a_node_or_places_part_of_a_quorum(nodes: list[NodeDraw], jobs: list[JobDraw]) -> None:
    world, records = observed(nodes, jobs)
    table = world.state.nodes
    before = table.used.copy()
    events = world.cycle()
    assert all(verdict.accepted for verdict in world.verdicts)
    size = before.shape[1]
    over = (table.used[: len(before), :size] > table.allocatable[: len(before), :size]) & (
        table.used[: len(before), :size] > before
    )
    assert not over.any()
    for job in records:
        assert not job.placements or job.quorum_placed()
        assert job.spec is not None
        if job.spec.pod_policy == "Gang":
            assert len(job.placements) in (0, job.pods_wanted())
        assert (job.schedule_state == ScheduleState.SUCCEED) == (len(job.placements) == job.pods_wanted())
        assert (job.schedule_state == ScheduleState.UNSCHEDULED) == (not job.placements)
    for event in events:
        if isinstance(event, k.Waits):
            assert sum(count for _, count in event.reasons) == len(nodes)
            assert all(reason != "fit" and count > 0 for reason, count in event.reasons)


@BY_CHANCE
@given(nodes=nodes_drawn, of=st.integers(0, 7))
def test_reasons_counted_for_the_cluster_are_those_of_its_nodes(nodes: list[NodeDraw], of: int) -> None:
    view = ClusterView(observed(nodes, [])[0].state.nodes)
    filters = Filters(view)
    by_node = Counter(filters.refusal(SHAPES[of], row).split(" (")[0] for row in range(len(view)))
    counted = {reason.split(" (")[0].replace("lack ", "lacks "): n for reason, n in filters.reasons(SHAPES[of])}
    assert counted == by_node
    fit = [filters.refusal(SHAPES[of], row) == "fit" for row in range(len(view))]
    assert (filters.room(SHAPES[of]) > 0).tolist() == fit


def told(events: Iterable[k.Event]) -> Iterator[k.Event]:
    """Decisions without the offsets that they are based on."""
    for event in events:
        if isinstance(event, k.Placed | k.Waits):
            yield msgspec.structs.replace(event, based_on=0)


@BY_CHANCE
@given(nodes=nodes_drawn, jobs=jobs_drawn, data=st.data())
def test_the_order_in_which_nodes_and_jobs_were_seen_changes_nothing_in_the_plan(
    nodes: list[NodeDraw], jobs: list[JobDraw], data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(len(nodes) + len(jobs))))
    plan = list(told(observed(nodes, jobs)[0].cycle()))
    assert list(told(observed(nodes, jobs, order)[0].cycle())) == plan


@BY_CHANCE
@given(history=steps())
@example(history=list(LONG))
def test_a_cycle_taken_twice_gives_the_same_plan_and_leaves_the_state_as_it_was(history: list[Step]) -> None:
    world = live_through(history)
    before = world.digest()
    plan = take_cycle(world.state, world.config, world.now_ms)
    assert take_cycle(world.state, world.config, world.now_ms) == plan
    assert world.digest() == before


@BY_CHANCE
@given(history=steps(least=10))
@example(history=list(LONG))
def test_what_a_cycle_decides_on_the_present_state_is_accepted_whole(history: list[Step]) -> None:
    world = live_through(history)
    world.verdicts.clear()
    events = world.cycle()
    assert all(verdict.accepted for verdict in world.verdicts) and len(world.verdicts) == len(events)
    for event in events:
        if isinstance(event, k.Placed):
            assert expand(event.pods).items() <= world.state.jobs[event.job_uid].placements.items()


def test_the_plans_of_a_history_are_the_same_under_every_hash_seed() -> None:
    script = (
        "import hashlib, msgspec\n"
        "from tests.random_worlds import LONG, live_through\n"
        "plans = [e.batch for e in live_through(LONG).entries]\n"
        "print(len(plans), hashlib.sha1(msgspec.msgpack.encode(plans)).hexdigest())\n"
    )
    answers = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        ).stdout
        for seed in ("0", "1", "4242")
    }
    assert len(answers) == 1


def test_the_record_of_a_cycle_names_its_inputs() -> None:
    world = World()
    world.node("n1")
    world.job("j")
    base = world.state.offset
    taken = world.cycle()[0]
    assert taken == k.CycleTaken(base, world.now_ms, world.config)
    assert {"BinPack", "Gang", "Priority", "DRF", "NodeAffinity"} < {name for name, _ in VERSIONS}


def test_jobs_in_the_record_stand_in_the_order_in_which_the_cycle_took_them() -> None:
    world = World()
    bare_node(world, "n1", cpu=1)
    for name, priority, created in (("c", 5, 1), ("a", 5, 2), ("b", 9, 3)):
        world.job(name, priority=priority, created=created, leader=shape(cpu=1))
    assert [event.job_uid for event in world.cycle() if not isinstance(event, k.CycleTaken)] == [
        "uid-b", "uid-c", "uid-a"
    ]  # fmt: skip
