"""A job that got reserved room because its deadline came before can't keep that by a later one."""

import pytest

from arranger.model.config import CycleConfig
from arranger.model.queue import Preemption
from arranger.projections.jobs.records import JobRecord
from tests.world import World, shape

FOUR = shape(gpus=4)


def backfilled() -> tuple[World, JobRecord, JobRecord]:
    """Two nodes, on one of which a job runs for 20 s. A gang has both reserved, and a job with a deadline of ten
    seconds runs on the other until then."""
    config = CycleConfig(preemption=Preemption(), reservations=1, reservation_refresh_ms=30_000, guests=True)
    world = World(config=config)
    for number in range(2):
        world.node(f"n{number}", gpus=4)
    world.job("first", leader=FOUR, deadline_s=20, preemptible=False)
    world.settle()
    world.pass_time(1)
    gang = world.job("gang", equals=True, workers=2, worker=FOUR, min_workers=2, created=world.now_ms)
    world.cycle()
    small = world.job("small", leader=FOUR, deadline_s=10, created=world.now_ms)
    world.settle()
    assert small.placements and not small.slots.hosts
    return world, gang, small


@pytest.mark.parametrize("deadline_s", [36_000, None])
def test_who_may_run_longer_than_reserved_room_is_free_is_a_guest_there(deadline_s: int | None) -> None:
    world, gang, small = backfilled()
    world.job("small", leader=FOUR, deadline_s=deadline_s, generation=2)
    assert small.slots.hosts == (gang.uid,)
    world.pass_time(20)
    for pod in world.pods_of(world.state.jobs["uid-first"]).values():
        world.change_pod(pod.uid, phase="Succeeded")
    for _ in range(40):
        world.settle()
        world.pass_time(1)
    assert len(gang.placements) == 2 and not small.placements


def test_who_still_leaves_in_time_is_none() -> None:
    world, _, small = backfilled()
    world.job("small", leader=FOUR, deadline_s=15, generation=2)
    assert not small.slots.hosts


def test_nor_is_one_that_had_its_nodes_before() -> None:
    world, _, _ = backfilled()
    first = world.job("first", leader=FOUR, deadline_s=60, generation=2)
    assert not first.slots.hosts
