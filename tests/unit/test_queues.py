"""The order among jobs: Priority, DRF, both merged; shares as the specification's examples have them."""

from collections.abc import Mapping

import pytest
from hypothesis import HealthCheck, given, settings

from arranger.model.config import CycleConfig
from arranger.model.job import ScheduleState
from arranger.model.steps import Steps
from arranger.projections.jobs.records import JobRecord
from arranger.scheduling.cluster.view import ClusterView
from arranger.scheduling.cycle import take_cycle
from arranger.scheduling.queues import registry
from arranger.scheduling.queues import waiting as queue
from arranger.scheduling.queues.dominant_shares import WHOLE, Shares, share_of
from arranger.scheduling.queues.policies import DRF, JobQueue, QueuePolicy, Turn
from tests.one_by_one import OneByOne
from tests.random_clusters import JobDraw, NodeDraw, jobs_drawn, nodes_drawn, observed
from tests.world import GIB, World, shape

BY_CHANCE = settings(max_examples=60, print_blob=True, suppress_health_check=[HealthCheck.too_slow])

#: Job UID, and its share after its turn, in billionths.
Trace = list[tuple[str, int]]


def bare_node(world: World, name: str, **amounts: object) -> None:
    """A node that has only what is named, and room for 110 pods."""
    world.node(name, **{"cpu": 0, "memory": 0, **amounts})  # type: ignore[arg-type]


def order_of(world: World) -> list[str]:
    """The waiting jobs' names in the order of their first turns if nobody got anything."""
    return [job.seen.name for job in queue.in_order(world.state, world.config)]


def test_an_order_in_steps_leaves_out_the_jobs_that_go_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "_JOBS_A_STEP", 2)
    world = World()
    jobs = [world.job(f"j{number}") for number in range(6)]
    order = Steps(queue.order_in_steps(world.state, world.config))
    steps = iter(order)
    next(steps)
    world.job_gone(jobs[0])  # seen by an earlier step
    world.job("late")
    next(steps)
    next(steps)
    world.job_gone(jobs[1])
    next(steps)
    world.job_gone(jobs[2])  # too late
    for _ in steps:
        pass
    assert [job.seen.name for job in order.result] == ["j2", "j3", "j4", "j5"]
    assert order_of(world) == ["j3", "j4", "j5", "late"]


def placed(job: JobRecord) -> int:
    """Pods that have a node."""
    return len(job.placements)


class Watched(QueuePolicy):
    """DRF, under its own name, with a note of every turn that changed a share."""

    name, version = "DRF", DRF.version

    def __init__(self) -> None:
        self.trace: Trace = []

    def queue(self, jobs: list[JobRecord], shares: Shares) -> JobQueue:
        """DRF's own queue, watched."""
        return _WatchedQueue(DRF().queue(jobs, shares), shares, self.trace)


class _WatchedQueue(JobQueue):
    def __init__(self, inner: JobQueue, shares: Shares, trace: Trace) -> None:
        self._inner, self._shares, self._trace = inner, shares, trace
        self._last: dict[str, int] = {}

    def head(self) -> Turn | None:
        turn = self._inner.head()
        if turn is not None:
            self._last.setdefault(turn.job.uid, self._shares.allocated(turn.job))
        return turn

    def taken(self, *, more: bool) -> None:
        turn = self._inner.head()
        assert turn is not None
        share = self._shares.allocated(turn.job)
        if share != self._last[turn.job.uid]:
            self._trace.append((turn.job.uid, share))
            self._last[turn.job.uid] = share
        self._inner.taken(more=more)


def trace_of(world: World) -> Trace:
    """The turns of a cycle whose jobs all go by DRF."""
    watched = Watched()
    take_cycle(world.state, world.config, world.now_ms, policies=registry.policies_with(queue=[watched]))
    return watched.trace


# --- shares -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("total", "allocated", "share"),
    [
        (dict(cpu=10, mem=10, gpu=0), dict(cpu=2, mem=5), 0.5),
        (dict(cpu=10, gpu=0), dict(cpu=0, gpu=1), 1.0),
        (dict(cpu=10), dict(cpu=0), 0.0),
        (dict(cpu=10, gpu=4), dict(cpu=4, gpu=1), 0.4),
        (dict(cpu=10), dict(cpu=1, gpu=0), 0.1),
        (dict(cpu=10), {}, 0.0),
        ({}, dict(cpu=1), 1.0),
        (dict(cpu=10), dict(cpu=15), 1.5),
    ],
)
def test_a_share_is_the_largest_part_of_any_resource(
    total: Mapping[str, int], allocated: Mapping[str, int], share: float
) -> None:
    assert share_of(allocated, total) == round(share * WHOLE)


def test_shares_of_what_jobs_ask_for_are_those_of_the_worked_example() -> None:
    world = World()
    bare_node(world, "n1", cpu=10, memory=20 * GIB)
    first = world.job("job1", leader=shape(cpu=1, memory=4 * GIB), workers=1, queue="DRF", created=2)
    second = world.job("job2", leader=shape(cpu=2, memory=2 * GIB), workers=1, worker=shape(cpu=3, memory=2 * GIB),
                       queue="DRF", created=1)  # fmt: skip
    shares = Shares(ClusterView(world.state.nodes))
    assert [shares.requested(job) for job in (first, second)] == [400_000_000, 500_000_000]
    assert order_of(world) == ["job1", "job2"]


def test_what_a_job_has_counts_whether_its_pods_were_seen_or_not() -> None:
    world = World()
    bare_node(world, "n1", cpu=10)
    job = world.job("j", workers=3, min_workers=3)
    for _ in range(2):
        world.settle()
        assert Shares(ClusterView(world.state.nodes)).allocated(job) == 400_000_000


# --- DRF ----------------------------------------------------------------------------------------------------------


def test_progressive_filling_is_that_of_the_worked_example() -> None:
    world = World()
    bare_node(world, "n", cpu=9, memory=18 * GIB)
    a = world.job("A", created=1, leader=shape(cpu=1, memory=4 * GIB), workers=9, queue="DRF")
    b = world.job("B", created=2, leader=shape(cpu=3, memory=1 * GIB), workers=9, queue="DRF")
    trace = [(uid, round(share / WHOLE, 3)) for uid, share in trace_of(world)]
    assert trace == [(a.uid, 0.222), (b.uid, 0.333), (a.uid, 0.444), (b.uid, 0.667), (a.uid, 0.667)]
    world.cycle()
    assert (placed(a), placed(b)) == (3, 2)
    assert (world.used("n"), world.used("n", "memory")) == (9000, 14 * GIB)
    assert [Shares(ClusterView(world.state.nodes)).allocated(job) * 3 // WHOLE for job in (a, b)] == [1, 1]


@BY_CHANCE
@given(nodes=nodes_drawn, jobs=jobs_drawn(queues=["DRF"], alike=2))
def test_fair_turns_are_those_of_one_by_one(nodes: list[NodeDraw], jobs: list[JobDraw]) -> None:
    world, records = observed(nodes, jobs)
    expected = OneByOne(world)
    expected.plan(records)
    assert trace_of(world) == [(uid, share * WHOLE // 1) for uid, share in expected.trace]


def test_a_job_that_has_less_goes_before_one_of_higher_priority() -> None:
    world = World()
    bare_node(world, "n1", cpu=3)
    world.job("rich", workers=1, min_workers=1, queue="DRF")
    world.cycle()
    rich = world.job("rich", workers=3, min_workers=1, priority=9, queue="DRF")
    poor = world.job("poor", priority=1, created=5, queue="DRF")
    assert order_of(world) == ["poor", "rich"]
    world.cycle()
    assert (placed(rich), placed(poor)) == (2, 1)


def test_ties_go_to_the_lower_request_then_priority_then_creation_then_uid() -> None:
    world = World()
    bare_node(world, "n1", cpu=100)
    for name, cpu, priority, created in (
        ("f", 2, 9, 0), ("e", 1, 1, 0), ("d", 1, 5, 2), ("c", 1, 5, 1), ("b", 1, 5, 1), ("a", 1, 9, 3),
    ):  # fmt: skip
        world.job(name, leader=shape(cpu=cpu), priority=priority, created=created, queue="DRF")
    assert order_of(world) == ["a", "b", "c", "d", "e", "f"]


def test_of_two_unstarted_jobs_the_one_that_asks_for_less_is_first_though_it_came_later() -> None:
    world = World()
    bare_node(world, "n", cpu=4)
    big = world.job("big", created=1, leader=shape(cpu=4), queue="DRF")
    small = world.job("small", created=2, leader=shape(cpu=1), queue="DRF")
    world.cycle()
    assert (placed(big), placed(small)) == (0, 1)


def test_a_resource_that_the_cluster_lacks_makes_a_whole_share_and_blocks_nobody() -> None:
    world = World()
    bare_node(world, "n", cpu=4)
    never = world.job("never", created=1, leader=shape(gpus=1), queue="DRF")
    other = world.job("other", created=2, leader=shape(cpu=4), queue="DRF")
    assert Shares(ClusterView(world.state.nodes)).requested(never) == WHOLE
    world.cycle()
    assert (placed(never), placed(other)) == (0, 1)


@pytest.mark.parametrize("policy", ["Priority", "DRF"])
def test_a_job_that_does_not_fit_never_blocks_those_behind_it(policy: str) -> None:
    world = World()
    bare_node(world, "n", cpu=4)
    for number in range(3):
        world.job(f"big{number}", priority=9, created=number, leader=shape(cpu=5), queue=policy)
    partly = world.job("partly", priority=8, created=5, workers=9, min_workers=1, queue=policy)
    small = world.job("small", priority=8, created=6, queue=policy)
    world.cycle()
    assert (placed(partly), placed(small)) == (3, 1)
    assert partly.schedule_state == ScheduleState.PARTLY


# --- both at once -------------------------------------------------------------------------------------------------


def test_jobs_of_two_policies_stand_in_one_line_in_which_a_policy_orders_only_neighbours() -> None:
    world = World()
    bare_node(world, "n", cpu=100)
    for name, queue_policy, priority, cpu, created in (
        ("p1", "Priority", 9, 4, 1), ("f1", "DRF", 9, 5, 2), ("f2", "DRF", 9, 3, 3), ("p2", "", 9, 1, 4),
        ("f3", "DRF", 9, 1, 5), ("f4", "DRF", 5, 2, 1), ("f5", "DRF", 5, 1, 2),
    ):  # fmt: skip
        world.job(name, queue=queue_policy, priority=priority, leader=shape(cpu=cpu), created=created)
    # f2 asks for less than f1 and stands next to it; f3 asks for less still, and p2 stands before it.
    assert order_of(world) == ["p1", "f2", "f1", "p2", "f3", "f5", "f4"]


def test_beside_jobs_of_another_policy_a_higher_priority_comes_first_in_drf_too() -> None:
    world = World()
    bare_node(world, "n", cpu=100)
    world.job("small", queue="DRF", priority=1, leader=shape(cpu=1))
    world.job("big", queue="DRF", priority=9, leader=shape(cpu=9))
    assert order_of(world) == ["small", "big"]
    world.job("other", queue="Priority", priority=5, leader=shape(cpu=2))
    assert order_of(world) == ["big", "other", "small"]


def test_a_job_without_a_queue_policy_or_with_one_that_is_not_installed_goes_by_the_default() -> None:
    for default, expected in (("Priority", ["big", "small"]), ("DRF", ["small", "big"])):
        world = World(config=CycleConfig(queue_policy=default))
        bare_node(world, "n", cpu=100)
        world.job("big", leader=shape(cpu=9), created=1)
        world.job("small", leader=shape(cpu=1), created=2, queue="NotInstalled")
        assert order_of(world) == expected


# --- another split of a quorum ------------------------------------------------------------------------------------


def split_of(job: JobRecord) -> list[int]:
    """Placed pods by group."""
    assert job.spec is not None
    return [sum(of == group for of, _ in job.placements) for group in range(len(job.spec.groups))]


def test_the_order_given_is_kept_where_it_fits_and_another_split_is_found_where_it_does_not() -> None:
    sets = [("big", 3, shape(cpu=4)), ("small", 3, shape(cpu=1))]
    for cpu, expected in ((13, [1, 3, 0]), (12, [1, 2, 3]), (8, [1, 1, 3]), (4, [1, 0, 3]), (3, [0, 0, 0])):
        world = World()
        bare_node(world, "n", cpu=cpu)
        job = world.job("j", workers=sets, min_workers=3)
        world.cycle()
        assert split_of(job) == expected, f"{cpu} cores"


def test_a_set_that_no_node_takes_is_replaced_by_the_others_from_any_place_in_the_order() -> None:
    for at in range(3):
        world = World()
        bare_node(world, "n", cpu=9)
        sets = [(f"s{n}", 2, shape(gpus=1) if n == at else shape(cpu=1)) for n in range(3)]
        job = world.job("j", workers=sets, min_workers=4)
        world.cycle()
        assert split_of(job) == [1, *(0 if n == at else 2 for n in range(3))]


def test_a_gang_is_never_split_otherwise() -> None:
    world = World()
    bare_node(world, "n", cpu=9)
    job = world.job("j", workers=[("a", 2, shape(gpus=1)), ("b", 2, shape(cpu=1))], min_workers=2, policy="Gang")
    world.cycle()
    assert split_of(job) == [0, 0, 0]


def test_a_quorum_with_pods_already_placed_is_completed_from_other_sets() -> None:
    world = World()
    bare_node(world, "n", cpu=3)
    sets = [("a", 3, shape(cpu=1)), ("b", 3, shape(gpus=1))]
    job = world.job("j", workers=sets, min_workers=1)
    world.settle()
    assert split_of(job) == [1, 2, 0]
    bare_node(world, "n", cpu=3, gpus=2)
    world.job("j", workers=sets, min_workers=4)
    world.cycle()
    assert split_of(job) == [1, 2, 2]
