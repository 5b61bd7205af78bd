"""What if: the same prefix of a log, something otherwise, and what differs."""

from typing import Any

import pytest

from arranger.events import kinds as k
from arranger.events.log import Entry
from arranger.model.config import CycleConfig
from arranger.projections import snapshot
from arranger.projections.fold import apply_entry
from arranger.projections.state import Changes, State
from arranger.replay.what_if.one_cycle import CyclePlan, JobPlan, Scout, Variation, differences, take_plan, vary
from arranger.replay.what_if.overrides import Overrides
from arranger.scheduling.queues.registry import BUILT_IN
from tests.unit.replay_worlds import contended, crowded
from tests.world import World, shape


def state_at(entries: list[Entry], offset: int) -> State:
    state = State()
    for entry in entries:
        if entry.last <= offset:
            apply_entry(state, entry, Changes())
    return state


def cycles(world: World) -> list[tuple[Entry, k.CycleTaken]]:
    return [(entry, e) for entry in world.entries for e in entry.batch.events if isinstance(e, k.CycleTaken)]


def plans(world: World, **variation: Any) -> tuple[CyclePlan, CyclePlan]:
    """The plan of the world's present state as it is, and with something otherwise."""
    copy = snapshot.restore(snapshot.encode(world.state))
    varied = Variation(**variation)
    vary(copy, varied, world.now_ms)
    config, by = varied.overrides.of(world.config, BUILT_IN)
    return (
        take_plan(world.state, world.config, world.now_ms)[0],
        take_plan(copy, config, world.now_ms, policies=by)[0],
    )


def of(plan: CyclePlan, job: str) -> JobPlan:
    return next(one for one in plan.jobs if one.job == f"default/{job}")


@pytest.mark.parametrize("world", [crowded(), contended()])
def test_with_nothing_otherwise_every_recorded_cycle_comes_out_as_recorded(world: World) -> None:
    for entry, taken in cycles(world):
        state = state_at(world.entries, taken.base)
        before = snapshot.digest(state)
        vary(state, Variation(), taken.time_ms)
        assert snapshot.digest(state) == before
        config, by = Overrides().of(taken.config, BUILT_IN)
        plan, events = take_plan(state, config, taken.time_ms, policies=by)
        assert events == entry.batch.events
        assert snapshot.digest(state) == before
        assert plan.pods == sum(len(_places(e)) for e in events if isinstance(e, k.Placed))


def _places(event: k.Placed) -> list[int]:
    return [i for pods in event.pods for first, last in pods.indices for i in range(first, last + 1)]


def test_another_queue_policy_gives_the_room_to_another_job() -> None:
    world = contended()
    _, taken = next(pair for pair in cycles(world) if any(_is_placed(e, "large") for e in pair[0].batch.events))
    state = state_at(world.entries, taken.base)
    one, _ = take_plan(state, taken.config, taken.time_ms)
    config, by = Overrides(queue_policy="DRF").of(taken.config, BUILT_IN)
    other, _ = take_plan(state, config, taken.time_ms, policies=by)
    assert (of(one, "large").nodes, of(one, "small").nodes) == ({"n1": "learner"}, {})
    assert (of(other, "large").nodes, of(other, "small").nodes) == ({}, {"n1": "learner"})
    assert of(other, "large").waits.startswith("0 of 1 required pods fit; learner: 0 of ")
    assert [(d.job, d.differs) for d in differences(one, other)] == [
        ("default/large", ("queue", "nodes", "waits")),
        ("default/small", ("queue", "nodes", "waits")),
    ]
    assert (other.pods, other.quorums, other.waiting, other.given) == (1, 1, 1, "2 nvidia.com/gpu")


def _is_placed(event: k.Event, job: str) -> bool:
    return isinstance(event, k.Placed) and event.job_uid == f"uid-{job}"


def test_a_job_that_is_not_there_leaves_its_room_to_others() -> None:
    world = crowded()
    one, other = plans(world, without_jobs=("uid-wide",))
    assert of(one, "other").waits and not of(other, "other").waits
    assert of(other, "big").placed == 3
    assert all(plan.job != "default/wide" for plan in other.jobs)


def test_a_node_that_is_not_there_takes_the_pods_on_it_along() -> None:
    world = crowded()
    one, other = plans(world, without_nodes=("n1",))
    assert "0 of 6 nodes fit" in of(one, "big").waits and "0 of 5 nodes fit" in of(other, "big").waits
    again = of(other, "small")
    assert (again.held, again.desired) == (0, 5) and "required pods fit" in again.waits
    _, other = plans(world, without_nodes=("n4",))
    assert of(other, "wide").held == 7, "its quorum stands without the workers there"


def test_a_node_and_a_job_more_take_part_like_any_other() -> None:
    world = crowded()
    there = next(e for entry in world.entries for e in entry.batch.events if isinstance(e, k.NodeSeen))
    node = k.NodeSeen(0, "n0", "new", "1", there.facts)
    job = k.JobSeen(0, "default", "urgent", "urgent", "1", 1, world.now_ms, False, _urgent(world), (), "")
    one, other = plans(world, added=(node, job))
    assert of(other, "urgent").nodes == {"n0": "learner"} and of(other, "urgent").queue == 1
    assert of(one, "big").queue == 1 and of(other, "big").queue == 2
    assert of(other, "other").nodes == {"n0": "learner"}


def _urgent(world: World) -> Any:
    other = World()
    other.node("n1")
    return other.job("urgent", leader=shape(cpu=1, gpus=1), priority=10).spec


def test_a_job_that_is_added_under_its_own_uid_is_an_edit() -> None:
    world = crowded()
    seen = world.state.jobs["uid-other"].seen
    assert seen.spec is not None
    edited = k.JobSeen(0, "default", "other", seen.uid, "9", 2, seen.created_ms, False, _urgent(world), (), "")
    _, other = plans(world, added=(edited,))
    assert (of(other, "other").priority, of(other, "other").queue) == (10, 1)


def test_the_offset_of_any_event_of_a_cycle_names_it() -> None:
    world = crowded()
    entry, taken = cycles(world)[1]
    for offset in range(entry.first, entry.last + 1):
        scout = Scout()
        for one in world.entries:
            if one.first <= offset:
                scout.feed(one)
        found = scout.cycle(offset)
        assert found is not None
        assert (found[0].cycle, found[0].base, found[1]) == (entry.first, taken.base, entry.batch.events)
    scout.feed(world.entries[world.entries.index(entry) + 1])
    assert scout.cycle(entry.last + 1) is None


def test_overrides_replace_what_they_name_and_nothing_else() -> None:
    recorded = CycleConfig(queue_policy="DRF", infeasible_grace_ms=7, versions=BUILT_IN.versions())
    config, by = Overrides(pod_policy="Gang", weights=(("cpu", 3),)).of(recorded, BUILT_IN)
    assert (config.queue_policy, config.infeasible_grace_ms) == ("DRF", 7)
    assert (config.pod_policy, config.weights) == ("Gang", (("cpu", 3),))
    assert by.versions() == config.versions == recorded.versions
    assert not Overrides() and Overrides(queue_policy="DRF").text == "queue_policy DRF"


def test_a_policy_may_go_for_jobs_too_that_name_their_own() -> None:
    world = World()
    world.node("n1", gpus=4)
    world.job("early", leader=shape(gpus=1), queue="Priority")
    world.settle()
    world.job("large", leader=shape(gpus=3), created=1, queue="Priority", policy="Gang")
    world.job("small", leader=shape(gpus=2), created=2, queue="Priority")
    _, other = plans(world, overrides=Overrides(queue_policy="DRF"))
    assert of(other, "large").placed == 1
    before = world.state.jobs["uid-large"].spec
    _, other = plans(world, overrides=Overrides(queue_policy="DRF", every_job=True))
    assert of(other, "small").placed == 1 and of(other, "small").queue_policy == "DRF"
    changed = Overrides(queue_policy="DRF", every_job=True)
    with changed.over(world.state):
        spec = world.state.jobs["uid-large"].spec
        assert spec is not None and (spec.queue_policy, spec.pod_policy) == ("", "Gang")
    assert world.state.jobs["uid-large"].spec is before
