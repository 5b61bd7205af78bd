"""Who gives room to a job whose queue is in a random tree: somebody exactly if the line for reclaim lets enough give.

The pods that run have one GPU. They are on one node, or the job has one pod, which needs one. So who may give is a
matter of numbers: how many of each queue.
"""

import itertools
from collections.abc import Iterator, Mapping

import msgspec
import pytest
from hypothesis import HealthCheck, event, example, given, settings
from hypothesis import strategies as st

from arranger.events import kinds as k
from arranger.projections.derived.queue_counts import queue_of
from arranger.projections.jobs.records import JobRecord
from arranger.scheduling.cycle import VERSIONS, take_cycle
from arranger.scheduling.queues.standing import QueueStanding
from arranger.settings import Settings
from tests.world import World, shape

pytestmark = pytest.mark.slow

CONFIG = msgspec.structs.replace(Settings(min_runtime_s=0).cycle_config(VERSIONS), dry_run=False, reservations=0)
GPU = "nvidia.com/gpu"
ONE = shape(cpu=0, gpus=1)

#: The parent of each of four queues, by number: 0 is the root, a queue has one of those before it. Most draws have two
#: below one that has a neighbour.
trees = st.one_of(st.just((0, 1, 1, 0)), st.just((0, 0, 2, 2)), st.tuples(*[st.integers(0, n) for n in range(4)]))
of_queue = st.one_of(
    st.just((1, 0)), st.tuples(st.integers(1, 3), st.sampled_from([0, 2, 4]))
)  # weight, GPUs that it deserves
#: Of each queue the priorities of its jobs that run; those of 0 aren't preemptible.
running = st.lists(st.sampled_from([1, 2, 3, 1, 2, 3, 0]), max_size=7)
few = st.lists(st.sampled_from([1, 2, 3, 0]), max_size=2)


def build(tree: tuple[int, ...], of_queues: list[tuple[int, int]], jobs: list[list[list[int]]], free: int) -> World:
    """On each node jobs of each queue with these priorities, and so many GPUs that are free."""
    of = World(config=CONFIG)
    of.watch_queues()
    for number, (parent, (weight, deserved)) in enumerate(zip(tree, of_queues, strict=True), 1):
        of.queue(f"q{number}", weight=weight, deserved=((GPU, deserved),), parent=f"q{parent}" if parent else "")
    for node, there in enumerate(jobs):
        of.node(f"n{node}", cpu=64, gpus=sum(map(len, there)) + free, labels={"node": f"n{node}"})
        for queue, priorities in enumerate(there, 1):
            for number, priority in enumerate(priorities):
                of.job(f"run{node}-{queue}-{number}", equals=True, workers=1, min_workers=1, priority=priority,
                       worker=shape(cpu=0, gpus=1, selector={"node": f"n{node}"}), of_queue=f"q{queue}",
                       preemptible=priority > 0)  # fmt: skip
        of.settle()
        of.pass_time(10)
    return of


class Line:
    """The line for reclaim, in numbers."""

    def __init__(self, of: World, job: JobRecord) -> None:
        state = of.state
        self._paths, self._own = state.queue_tree.paths, queue_of(state, job)
        [self._asked] = [of.count * amount for of in job.valid_spec.groups for name, amount in of.shape.requests
                         if name == GPU]  # fmt: skip
        shares = QueueStanding(state, [job], of.now_ms).shares
        self._share = {name: shares.get(name, {}).get(GPU, 0) for name in self._paths}
        self._used = {name: state.queue_totals.get(name, {}).get(GPU, 0) for name in self._paths}
        for name in [name for name in self._paths if state.queue_tree.children.get(name)]:
            below = state.queue_tree.children[name]
            self._share[f"{name} itself"] = self._share[name] - sum(self._share[one] for one in below)
            self._used[f"{name} itself"] = self._used[name] - sum(self._used[one] for one in below)
            self._paths = {**self._paths, name: (f"{name} itself", *self._paths[name])}

    def allows(self, gives: Mapping[str, int]) -> bool:
        """Whether so many jobs of these queues may give room in one decision."""
        way = self._paths[self._own]
        below = {name: sum(many for of, many in gives.items() if name in self._paths[of]) for name in self._used}
        for queue in [of for of, many in gives.items() if many and of != self._own]:
            others = [name for name in self._paths[queue] if name not in way]
            mine = [name for name in way if name not in self._paths[queue]]
            assert others and mine
            if any(self._used[name] + self._asked - below[name] > self._share[name] for name in mine):
                return False
            if any(self._used[name] - (below[name] - 1) <= self._share[name] for name in others):
                return False
        return True

    def above(self) -> bool:
        """Whether the job would lift a queue above its share if nobody gave it room."""
        return any(self._used[name] + self._asked > self._share[name] for name in self._paths[self._own])


def choices(of: World, job: JobRecord, needed: int, node: str) -> Iterator[dict[str, int]]:
    """Every way to get so many GPUs of a node from queues, whatever their shares."""
    most: dict[str, int] = {}
    for other in [other for other in of.state.jobs.values() if node in other.placements.values()]:
        queue, spec = queue_of(of.state, other), other.valid_spec
        lower = queue != queue_of(of.state, job) or spec.priority < job.valid_spec.priority
        if other.placements and spec.preemptible and lower:
            most[queue] = most.get(queue, 0) + 1
    for numbers in itertools.product(*[range(many + 1) for many in most.values()]):
        if sum(numbers) == needed:
            yield dict(zip(most, numbers, strict=True))


@example((0, 1, 1, 0), [(1, 0)] * 4, 0, [[], [], [1, 1], [1, 1, 1]], 2, 1, 2, False).via("a sibling opens the others")
@settings(max_examples=400, print_blob=True, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(tree=trees, of_queues=st.lists(of_queue, min_size=4, max_size=4), free=st.integers(0, 1),
       jobs=st.lists(running, min_size=4, max_size=4), queue=st.integers(1, 4), priority=st.integers(1, 3),
       asks=st.integers(1, 6), idle=st.booleans())  # fmt: skip
def test_room_is_taken_in_a_tree_exactly_if_the_shares_let_enough_give(
    tree: tuple[int, ...],
    of_queues: list[tuple[int, int]],
    free: int,
    jobs: list[list[int]],
    queue: int,
    priority: int,
    asks: int,
    idle: bool,
) -> None:
    if idle:
        jobs[queue - 1] = []
    gpus = sum(map(len, jobs)) + free
    of = build(tree, of_queues, [jobs], free)
    job = of.job("new", equals=True, workers=asks, worker=ONE, min_workers=asks, priority=priority,
                 of_queue=f"q{queue}")  # fmt: skip
    needed = asks - free
    if needed > 0 and asks <= gpus:
        check(of, job, needed)


@example((0, 1, 1, 0), [(1, 16), (1, 8), (1, 8), (1, 0)], [[[], [], [1], [1]], [[], [], [1, 1], []]], 2, 1, 2).via(
    "those that lose the least are on another node"
)
@settings(max_examples=300, print_blob=True, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(tree=trees, of_queues=st.lists(of_queue, min_size=4, max_size=4),
       jobs=st.lists(st.lists(few, min_size=4, max_size=4), min_size=2, max_size=3), queue=st.integers(1, 4),
       priority=st.integers(1, 3), asks=st.integers(1, 4))  # fmt: skip
def test_one_pod_gets_the_room_of_any_node_on_which_the_shares_let_enough_give(
    tree: tuple[int, ...],
    of_queues: list[tuple[int, int]],
    jobs: list[list[list[int]]],
    queue: int,
    priority: int,
    asks: int,
) -> None:
    of = build(tree, of_queues, jobs, 0)
    if max(sum(map(len, there)) for there in jobs) >= asks:
        check(of, of.job("new", equals=True, workers=1, worker=shape(cpu=0, gpus=asks), min_workers=1,
                         priority=priority, of_queue=f"q{queue}"), asks)  # fmt: skip


def check(of: World, job: JobRecord, needed: int) -> None:
    """A cycle takes room for a job exactly if it may have so much of one node."""
    line = Line(of, job)
    may = any(line.allows(gives) for node in of.state.nodes.rows for gives in choices(of, job, needed, node))
    found = [event for event in take_cycle(of.state, of.config, of.now_ms) if isinstance(event, k.Preempted)]
    assert bool(found) == may
    for decision in found:
        gave: dict[str, int] = {}
        for victim in decision.victims:
            name = queue_of(of.state, of.state.jobs[victim.job_uid])
            gave[name] = gave.get(name, 0) + 1
        assert sum(gave.values()) == needed
        assert line.allows(gave), f"{gave} may not give"
        event(f"from {len(gave)} queues, {'some' if line.above() else 'none'} would be above its share")
