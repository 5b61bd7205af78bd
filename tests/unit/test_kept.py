"""A process keeps its view of the nodes and its rankings from cycle to cycle. Its events are always those of a cycle
that keeps nothing."""

from typing import Any
from unittest import mock

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arranger.events import kinds as k
from arranger.model.config import CycleConfig
from arranger.model.pod import PodShape
from arranger.model.queue import Preemption
from arranger.model.stages import Stage, StageReason
from arranger.projections.cluster import nodes
from arranger.projections.state import ASSUMED_MS
from arranger.scheduling.cluster import view as views
from arranger.scheduling.cluster.view import ClusterView
from arranger.scheduling.cycle import VERSIONS, Cycles, take_cycle
from arranger.scheduling.placing.kept import KeptRankings
from arranger.scheduling.policies.base import PlacementRequest
from arranger.scheduling.policies.binpack import BinPack
from arranger.scheduling.policies.closed_form import Scores
from arranger.scheduling.queues.registry import policies_with
from tests.random_clusters import ALL_POLICIES
from tests.random_worlds import Step, live_through, steps
from tests.world import World, shape, starting

#: A ranking updates single rows only in a cluster of many more nodes than changed.
_NODES = 40

_CONFIG = CycleConfig(
    versions=VERSIONS, refusal_avoid_ms=60_000, search_steps=2_000, preemption=Preemption(),
    room_bound_ms=60_000,
)  # fmt: skip
_CONFIGS = (
    *[_CONFIG] * 6,
    msgspec.structs.replace(_CONFIG, weights=(("cpu", 1), ("memory", 7))),
    msgspec.structs.replace(_CONFIG, pod_policy="Gang", queue_policy="DRF"),
    msgspec.structs.replace(_CONFIG, reservations=1, reservation_refresh_ms=20_000),
)  # fmt: skip


def wide() -> World:
    """A cluster of many nodes, some of them equal."""
    world = World(config=_CONFIG)
    world.watch_quotas()
    for number in range(_NODES):
        world.node(f"n{number}", cpu=4 + number % 3, gpus=number % 4, labels={"pool": str(number % 2)})
    return world


def one_of_few_kinds(world: World, number: int, kind: int) -> None:
    """A further job, whose pods are mostly like those of other jobs."""
    workers = [("actors", kind % 5, shape(cpu=1, gpus=kind % 2)), ("eval", kind % 3, shape(cpu=2))]
    policy = ALL_POLICIES[number % 8] if number % 3 == 0 else ""
    world.job(f"more-{number}", leader=shape(cpu=1 + kind % 2), workers=workers, min_workers=min(kind % 5, 2),
              policy=policy, queue=("", "DRF")[number % 2])  # fmt: skip


def infeasible(world: World, number: int, kind: int) -> None:
    """Further jobs that fit on no node, among them equal ones."""
    for more in range(1 + kind % 3):
        gpus, memory = (100, 0) if kind % 2 else (0, 1 << 60)
        one_in_line(world, f"infeasible-{number}-{more}", kind, shape(cpu=1 + kind % 2, gpus=gpus, memory=memory),
                    ("default", "other")[kind % 2])  # fmt: skip


def one_in_line(world: World, name: str, kind: int, leader: PodShape, namespace: str) -> None:
    world.job(name, leader=leader, workers=[("actors", kind % 2, shape(cpu=1))], priority=kind % 4, min_workers=0,
              namespace=namespace, queue=("", "", "DRF")[kind % 3], created=kind)  # fmt: skip


def with_hope(world: World, kind: int) -> None:
    """Something changes on which it depends that a job is infeasible: a node, a quota of its namespace, or the job."""
    found = [job for job in world.state.jobs.values() if job.seen.name.startswith("infeasible-")]
    if kind % 5 == 0:
        world.node(f"n{kind}", cpu=8, gpus=100 * (kind % 2), memory=2 << 60, labels={"pool": "1"})
    elif kind % 5 == 1 and found:
        world.job_gone(found[kind % len(found)])
    elif kind % 5 == 2:
        world.quota("small", {"pods": kind % 7}, {"pods": 0}, namespace=("default", "other")[kind % 2])
    elif found:
        seen = found[kind % len(found)].seen
        one_in_line(world, seen.name, kind, shape(cpu=1, gpus=100 * (kind % 3)), seen.namespace)


def foreign(world: World, number: int, node: int) -> None:
    """A pod of another owner comes, or goes again."""
    if f"uid-f{number % 7}" in world.state.pods:
        world.pod_gone(f"uid-f{number % 7}")
    else:
        world.pod(f"f{number % 7}", f"n{node}", cpu=1 + number % 3, gpus=node % 2)


_acts = st.tuples(steps(least=1, most=1), st.integers(0, 8), st.integers(0, _NODES))


@pytest.mark.slow
@settings(print_blob=True)
@given(history=st.lists(_acts, min_size=10, max_size=60), changes=st.sampled_from((1 << 15, 1 << 15, 40)))
def test_a_cycle_that_keeps_says_what_one_that_does_not_would_say(
    history: list[tuple[list[Step], int, int]], changes: int
) -> None:
    """With few changes, what is kept is often dropped. One process is told which jobs change."""
    with mock.patch.object(nodes, "_CHANGES_KEPT", changes), mock.patch.object(views, "_JOURNAL", 2 * changes):
        world, cycles, telling = wide(), Cycles(), Cycles()
        steady = sum(a for *_, a in history) % 4
        for number, (step, action, a) in enumerate(history):
            if action < 2:
                live_through(step, world)
            elif action == 2:
                foreign(world, number, a)
            elif action == 3:
                world.node(f"n{a}", cpu=number % 7, gpus=number % 3, cordoned=a % 3 == 0, labels={"pool": "1"})
            elif action < 6:
                one_of_few_kinds(world, number, a)
            elif action < 8:
                infeasible(world, number, a)
            else:
                with_hope(world, a)
            found: tuple[k.Event, ...] = ()
            for pause_s in (0, 11, 301, 0):
                at = a if not steady else len(_CONFIGS) - steady
                time_ms, config = world.now_ms + pause_s * 1000, _CONFIGS[at % len(_CONFIGS)]
                telling.note(world.touched)
                world.touched.clear()
                telling._until_ms = 0.0  # it is asked even if nothing has changed
                found = telling.take(world.state, config, time_ms)
                assert found == take_cycle(world.state, config, time_ms)
                if not config.reservations:  # one without a known start isn't revised because of the time alone
                    assert found == cycles.take(world.state, config, time_ms)
            if found and action != 1:  # otherwise another process was first
                world.say(*found)


def same(kept: KeptRankings, world: World) -> bool:
    """Whether the kept view shows what a new one does."""
    found, fresh = kept.rankings(world.state, world.config).view, ClusterView.of(world.state)
    return found.names == fresh.names and np.array_equal(found.free, fresh.free)


def test_the_kept_view_shows_what_a_new_one_does() -> None:
    world, kept = wide(), KeptRankings()
    before = kept.rankings(world.state, world.config).view
    world.pod("a", "n3", cpu=2)
    world.pod("b", "nowhere", cpu=2)
    assert same(kept, world)
    world.pod_gone("uid-a")
    world.pod_gone("uid-b")
    before.take([(4, 2)], before.request(shape(cpu=1)))
    before.count_free("n7", shape(cpu=1).requests)
    assert same(kept, world)
    assert kept.rankings(world.state, world.config).view is before


@pytest.mark.parametrize("change", ["a node", "another table", "another configuration", "many changes", "long journal"])
def test_a_view_of_something_else_is_not_kept(change: str) -> None:
    world, kept = wide(), KeptRankings()
    before = kept.rankings(world.state, world.config).view
    if change == "a node":
        world.node("n3", cpu=1)
    elif change == "another table":
        world.state.nodes = world.state.nodes.copy()
    elif change == "another configuration":
        world.config = _CONFIGS[-1]
    elif change == "many changes":
        for _ in range(nodes._CHANGES_KEPT // 2 + 1):
            world.state.nodes.hold("n5", ())
            world.state.nodes.release("n5", ())
    else:
        before.journal += [0] * (views._JOURNAL + 1)
    assert same(kept, world)
    assert kept.rankings(world.state, world.config).view is not before


def test_a_cycle_that_fails_leaves_nothing_behind() -> None:
    class Moody(BinPack):
        name = "Moody"
        fails = False

        def scores(self, view: ClusterView, request: PlacementRequest, config: CycleConfig, extra: int = 0) -> Scores:
            if self.fails:
                raise RuntimeError
            return super().scores(view, request, config, extra)

    moody = Moody()
    policies = policies_with(pod=[moody])
    world, cycles = wide(), Cycles(policies)
    for number in range(6):
        world.job(f"j{number}", leader=shape(cpu=1), workers=2, policy="Moody")
        if number % 2:
            moody.fails = True
            with pytest.raises(RuntimeError):
                cycles.take(world.state, _CONFIG, world.now_ms)
            moody.fails = False
        found = cycles.take(world.state, _CONFIG, world.now_ms)
        assert found == take_cycle(world.state, _CONFIG, world.now_ms, policies=policies)
        world.say(*found)


def test_scores_by_the_mix_of_the_cluster_are_those_of_the_present_mix() -> None:
    class Typical(BinPack):
        name, weighs_mix = "Typical", True

        def scores(self, view: ClusterView, request: PlacementRequest, config: CycleConfig, extra: int = 0) -> Scores:
            return np.arange(len(view)) * (1 if sum(one.pods for one in request.mix) % 2 else -1)

    policies = policies_with(pod=[Typical()])
    world, cycles = wide(), Cycles(policies)
    for number in range(6):
        world.job(f"j{number}", leader=shape(cpu=1), workers=number % 2, policy="Typical")
        found = cycles.take(world.state, _CONFIG, world.now_ms)
        assert found == take_cycle(world.state, _CONFIG, world.now_ms, policies=policies)
        world.say(*found)


def test_room_that_only_time_freed_is_taken_back() -> None:
    """The room of a pod that may still come is free for a later time, and not for an earlier one."""
    world, job = starting(cpu=2, leader=shape(cpu=2))
    world.say(k.StageDecided(job.uid, job.version, 0, Stage.RESCHEDULING, StageReason.AS_RECORDED))
    world.job("other", leader=shape(cpu=2), priority=9)
    cycles = Cycles()
    for pause_ms in (ASSUMED_MS, 0, ASSUMED_MS, 0):
        found: Any = cycles.take(world.state, world.config, world.now_ms + pause_ms)
        assert found == take_cycle(world.state, world.config, world.now_ms + pause_ms)
        assert any(isinstance(event, k.Placed) for event in found) == bool(pause_ms)


def test_the_room_of_a_job_that_moved_is_where_it_is_now() -> None:
    """Its old nodes keep their amounts for pods that may still come."""
    world, cycles = World(config=_CONFIG), Cycles()

    def cycle() -> None:
        found = cycles.take(world.state, world.config, world.now_ms)
        assert found == take_cycle(world.state, world.config, world.now_ms)
        world.say(*found)

    world.node("n0", cpu=2)
    world.node("n1", cpu=2)
    world.node("n2", cpu=3)
    of_n1 = world.pod("of-n1", "n1", cpu=2)
    world.pod("of-n2", "n2", cpu=1)
    low = world.job("low", leader=shape(cpu=2), priority=1)
    cycle()
    world.job("large", leader=shape(cpu=3), priority=9)
    cycle()
    world.say(k.StageDecided(low.uid, low.version, 0, Stage.RESCHEDULING, StageReason.AS_RECORDED))
    world.pod_gone(of_n1)
    world.pod("also-of-n2", "n2", cpu=2)
    cycle()
    assert low.placements == {(0, 0): "n1"} and world.used("n0") == 2000
    world.job("high", leader=shape(cpu=2), priority=5)
    cycle()
    assert all(verdict.accepted for verdict in world.verdicts)
