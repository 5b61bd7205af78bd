"""What explain offers a job that waits while the only reservation waits for a job that may never end."""

import msgspec
import pytest

from arranger.projections.jobs.records import JobRecord
from arranger.replay.explain.remedies import Remedy
from tests.unit.replay_worlds import explained, with_room_rules
from tests.world import World, shape


def waiting_for_an_endless_job(**of_first: object) -> World:
    """`first` has the only reservation, for two nodes: it waits for `runs` on one of them. `large` wants the third."""
    world = with_room_rules(guests=True, preemption=None)
    world.node("n2", cpu=16, gpus=4)
    world.node("n3", cpu=4, gpus=8)
    running(world, "runs", 3, **of_first)
    running(world, "also-runs", 6, deadline_s=6_000)
    first = world.job("first", workers=2, worker=shape(cpu=8, gpus=4), min_workers=2, equals=True, created=3)
    world.job("large", leader=shape(cpu=1, gpus=8), created=4)
    world.cycle()
    assert list(world.state.reservations) == [first.uid]
    return world


def running(world: World, name: str, gpus: int, **spec: object) -> JobRecord:
    job = world.job(name, leader=shape(cpu=1, gpus=gpus), created=1, **spec)  # type: ignore[arg-type]
    world.settle()
    assert job.placements
    return job


def reserving(world: World, name: str) -> list[Remedy]:
    waiting = explained(world.entries, name).waiting
    assert waiting is not None
    return [one for one in waiting.remedies if one.then_reserved]


def test_more_reservations_are_offered_where_the_only_one_may_last_for_ever() -> None:
    world = waiting_for_an_endless_job()
    (found,) = reserving(world, "large")
    assert found.text == "the setting reservations 2 instead of 1; then room is reserved for it"
    assert found.gives and not found.pods
    world.config = msgspec.structs.replace(world.config, reservations=2)
    world.pass_time(60)
    world.cycle()
    assert len(world.state.reservations) == 2, "it does what it says"
    assert not reserving(world, "large"), "it has one now"


def test_none_are_offered_where_the_present_one_ends() -> None:
    assert not reserving(waiting_for_an_endless_job(deadline_s=600), "large")


@pytest.mark.parametrize("revised", [False, True])
def test_more_are_offered_where_the_present_one_waits_for_a_job_that_runs_for_longer_than_expected(
    revised: bool,
) -> None:
    """Its start is known, but moves further and further away."""
    world = waiting_for_an_endless_job(expected_s=600)
    assert not reserving(world, "large")
    world.pass_time(700)
    world.job("idle", suspend=True)
    if revised:
        world.cycle()
    (found,) = reserving(world, "large")
    assert found.text == "the setting reservations 2 instead of 1; then room is reserved for it"


def test_none_are_offered_for_room_that_the_first_one_needs() -> None:
    world = waiting_for_an_endless_job()
    world.job("also-wide", workers=2, worker=shape(cpu=1, gpus=6), min_workers=2, equals=True, created=5)
    world.cycle()
    assert not reserving(world, "also-wide")
    assert not reserving(world, "first")
