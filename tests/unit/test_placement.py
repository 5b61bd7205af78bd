"""Placing in closed form, and the shortcuts of a cycle: as one by one, on arrays and with many jobs alike."""

import itertools
from collections.abc import Callable
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from arranger.events import kinds as k
from arranger.projections.jobs.records import expand
from arranger.scheduling.cluster.view import Chosen
from arranger.scheduling.cycle import take_cycle
from arranger.scheduling.placing.placement_try import CycleObserver, PlacementTry
from arranger.scheduling.placing.pods import Placing
from arranger.scheduling.policies.base import PlacementRequest, PodPolicy
from arranger.scheduling.policies.closed_form import Scores, fill, fill_by_margins
from arranger.scheduling.queues.registry import BUILT_IN
from arranger.scheduling.search import placer
from arranger.scheduling.search.quorum_memory import QuorumMemory
from tests.interpreter import told_elsewhere
from tests.one_by_one import OneByOne, counted
from tests.random_clusters import asking_worlds
from tests.world import World, shape

BY_CHANCE = settings(max_examples=200, print_blob=True, suppress_health_check=[HealthCheck.too_slow])

#: Node → scores for its first pod, its second …
Table = list[list[int]]


def one_by_one(table: Table, count: int) -> dict[int, int]:
    """Each pod to the node with the best score at its turn, the first among equals."""
    got = dict.fromkeys(range(len(table)), 0)
    for _ in range(count):
        offers = [(table[row][got[row]], -row) for row in got if got[row] < len(table[row])]
        if not offers:
            break
        got[-max(offers)[1]] += 1
    return {row: pods for row, pods in got.items() if pods}


def margins(table: Table) -> Callable[[int], Scores]:
    """The scores of all nodes after so many pods; what stands beyond a node's room must not matter."""
    return lambda depth: np.array([row[depth] if depth < len(row) else 1 << 40 for row in table], np.int64)


tables = st.lists(st.lists(st.integers(-4, 4), max_size=7), max_size=9)


@BY_CHANCE
@given(table=tables, count=st.integers(0, 30))
def test_any_scores_filled_by_margins_are_filled_as_one_by_one(table: Table, count: int) -> None:
    room = np.array([len(row) for row in table], np.int64)
    chosen = fill_by_margins(margins(table), room, count)
    assert dict(chosen) == one_by_one(table, count) and len(dict(chosen)) == len(chosen)


@BY_CHANCE
@given(table=tables, count=st.integers(0, 30))
def test_rising_scores_filled_node_by_node_are_filled_as_one_by_one(table: Table, count: int) -> None:
    rising = [list(itertools.accumulate(row, lambda a, b: a + abs(b))) for row in table]
    room = np.array([len(row) for row in rising], np.int64)
    scores = np.array([row[0] if row else 9 for row in rising], np.int64)
    assert dict(fill(scores, room, count)) == one_by_one(rising, count)


@settings(BY_CHANCE, max_examples=30)
@given(nodes=st.integers(60, 400), levels=st.integers(1, 5), room=st.integers(1, 3), data=st.data())
def test_of_many_nodes_only_the_best_are_looked_at_and_ties_at_the_edge_go_by_row(
    nodes: int, levels: int, room: int, data: st.DataObject
) -> None:
    count = data.draw(st.integers(1, nodes // 8))
    scores = np.array([(row * 7919) % levels for row in range(nodes)], np.int64)
    table = [[int(score)] * room for score in scores]
    rooms = np.full(nodes, room)
    assert dict(fill(scores, rooms, count)) == one_by_one(table, count)
    assert dict(fill_by_margins(margins(table), rooms, count)) == one_by_one(table, count)


# --- shortcuts for jobs alike -------------------------------------------------------------------------------------


@settings(BY_CHANCE, max_examples=60)
@given(data=st.data())
def test_many_jobs_alike_are_placed_as_each_for_itself(data: st.DataObject) -> None:
    """Equal quorums repeated, failures remembered and rankings kept change nothing in the plan."""
    number = st.integers(0, 6)
    shapes = st.builds(shape, cpu=number, memory=number, gpus=st.integers(0, 1))
    world = World()
    for row in range(data.draw(st.integers(1, 4), label="nodes")):
        world.node(f"n{row}", cpu=data.draw(st.integers(2, 24)), memory=data.draw(st.integers(2, 24)),
                   gpus=data.draw(st.integers(0, 9)), pods=data.draw(st.sampled_from([9, 110])))  # fmt: skip
    for kind in range(data.draw(st.integers(1, 2), label="kinds of jobs")):
        leader = data.draw(shapes)
        sets = [(f"s{at}", data.draw(st.integers(1, 4)), data.draw(shapes)) for at in range(data.draw(number) // 2)]
        quorum = data.draw(st.integers(0, sum(count for _, count, _ in sets)))
        policy = data.draw(st.sampled_from(["BinPack", "Gang", "LeaderFirst", "MinFragment", "JobAntiAffinity"]))
        for copy in range(data.draw(st.integers(2, 7), label="alike")):
            world.job(f"j{kind}-{copy}", leader=leader, workers=sets, min_workers=quorum, policy=policy)
    jobs = [world.state.jobs[uid] for uid in sorted(world.state.jobs)]
    expected = counted(OneByOne(world).plan(jobs))
    assert take_cycle(world.state, world.config, world.now_ms, CycleObserver()) == world.cycle()
    assert counted({job.uid: job.placements for job in jobs}) == expected


def test_a_hundred_equal_jobs_go_where_each_for_itself_would() -> None:
    world = World()
    for row in range(12):
        world.node(f"n{row:02}", cpu=5 + 3 * (row % 4), memory=64, gpus=row % 3)
    for number in range(100):
        world.job(f"j{number:03}", leader=shape(cpu=0.5), workers=2, worker=shape(cpu=0.3, memory=1), min_workers=1)
    jobs = [world.state.jobs[uid] for uid in sorted(world.state.jobs)]
    expected = counted(OneByOne(world).plan(jobs))
    world.cycle()
    assert counted({job.uid: job.placements for job in jobs}) == expected


# --- determinism --------------------------------------------------------------------------------------------------

#: Prints the plan of a fixed world, as a digest.
_DIGEST = (
    "import hashlib, sys\n"
    "from arranger.events import kinds as k\n"
    "from arranger.events.codec import encode_batch\n"
    "from arranger.scheduling.cycle import take_cycle\n"
    "from tests.random_clusters import mixed\n"
    "world = mixed()\n"
    "events = take_cycle(world.state, world.config, world.now_ms)\n"
    "again = take_cycle(world.state, world.config, world.now_ms)\n"
    "assert events == again\n"
    "placed = sum(isinstance(event, k.Placed) for event in events)\n"
    "print(placed, len(events), hashlib.sha256(encode_batch(k.Batch('', 1, 0, events))).hexdigest())\n"
)


def simd_features() -> str:
    """Everything beyond numpy's baseline that it would use on this machine."""
    umath = np._core._multiarray_umath  # type: ignore[attr-defined]
    return " ".join(name for name in umath.__cpu_dispatch__ if umath.__cpu_features__.get(name))


def test_a_plan_is_the_same_in_every_process_under_every_hash_seed_and_without_simd() -> None:
    features = simd_features()
    plain = told_elsewhere(_DIGEST, PYTHONHASHSEED="0")
    assert int(plain.split()[0]) > 20, "many jobs are placed"
    assert told_elsewhere(_DIGEST, PYTHONHASHSEED="4242", NPY_DISABLE_CPU_FEATURES=features) == plain


def test_a_plan_without_simd_is_one_where_it_was_switched_off() -> None:
    features = simd_features()
    if not features:
        pytest.skip("numpy uses nothing beyond its baseline on this machine")
    script = (
        "import numpy._core._multiarray_umath as umath\n"
        "print(sum(umath.__cpu_features__[name] for name in umath.__cpu_dispatch__))\n"
    )
    assert told_elsewhere(script, NPY_DISABLE_CPU_FEATURES=features).strip() == "0"


# --- what pods ask of each other and prefer -------------------------------------------------------------------------


class PodByPod(Placing):
    """Places every pod for itself."""

    def _one_by_one(self, tried: PlacementTry, group: int) -> bool:
        return True

    def _choose(self, policy: PodPolicy, request: PlacementRequest) -> Chosen:
        return self._fill(self.filters, policy, request)


class NothingRemembered(QuorumMemory):
    """Every quorum is sought as if it were the first of its kind."""

    def again(self, tried: PlacementTry) -> bool:
        return False


def settled_pods(events: tuple[k.Event, ...]) -> dict[tuple[str, int, str], int]:
    """Pods by job, group and node."""
    return counted({event.job_uid: expand(event.pods) for event in events if isinstance(event, k.Placed)})


@pytest.mark.parametrize("policy", sorted(BUILT_IN.pod))
@settings(BY_CHANCE, max_examples=50)
@given(data=st.data())
def test_whatever_pods_ask_of_each_other_or_prefer_they_are_placed_as_one_by_one(
    policy: str, data: st.DataObject
) -> None:
    world = data.draw(asking_worlds(policies=[policy]))
    together = take_cycle(world.state, world.config, world.now_ms)
    with mock.patch.multiple(placer, Placing=PodByPod, QuorumMemory=NothingRemembered):
        apart = take_cycle(world.state, world.config, world.now_ms)
    assert settled_pods(together) == settled_pods(apart)
    world.cycle()
    assert all(verdict.accepted for verdict in world.verdicts)
