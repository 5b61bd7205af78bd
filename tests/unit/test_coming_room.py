"""A quorum that fits as soon as those have left who leave anyway keeps what is free of that room until then."""

import pytest

from arranger.events import kinds as k
from arranger.events.facts import LackOfNodes
from arranger.model.config import CycleConfig
from arranger.model.queue import Preemption
from tests.world import World, shape


def leaving(*, reservations: int, expected_s: int | None = None) -> World:
    """Eight nodes of four GPUs. The job `leaves` has three of them, and its leader has finished, which no decision says
    yet; `small` and, before it, the gang `waits` have no nodes."""
    config = CycleConfig(preemption=Preemption(), reservations=reservations, reservation_refresh_ms=30_000)
    world = World(config=config)
    for number in range(8):
        world.node(f"n{number}", gpus=4)
    four = shape(gpus=4)
    for number in range(5):
        world.job(f"stays-{number}", leader=four, priority=9, preemptible=False, expected_s=expected_s)
    leaves = world.job("leaves", leader=four, workers=2, worker=four, priority=9)
    world.settle()
    world.job("waits", equals=True, workers=3, worker=four, min_workers=3, created=world.now_ms)
    world.cycle()
    world.job("small", leader=four, priority=2, created=world.now_ms)
    world.cycle()
    world.pass_time(8)
    world.change_pod(world.pods_of(leaves)[0, 0].uid, phase="Succeeded")
    return world


@pytest.mark.parametrize(("reservations", "expected_s"), [(0, None), (1, None), (1, 20)])
def test_nobody_starts_for_a_moment_in_the_room_that_a_gang_is_about_to_get(
    reservations: int, expected_s: int | None
) -> None:
    """With `expected_s`, the gang has a reservation elsewhere, for a start that is known."""
    world = leaving(reservations=reservations, expected_s=expected_s)
    for _ in range(3):
        world.settle()
        world.pass_time(1)
    events = [event for entry in world.entries for event in entry.batch.events]
    assert not [event for event in events if isinstance(event, k.Preempted)]
    assert len(world.state.jobs["uid-waits"].placements) == 3
    small = world.state.jobs["uid-small"]
    assert not small.placements and small.waits is not None


def test_who_waits_is_told_who_is_about_to_get_that_room() -> None:
    world = leaving(reservations=0)
    world.cycle()
    waits = world.state.jobs["uid-small"].waits
    assert waits is not None and isinstance(waits.shortage, LackOfNodes)
    assert waits.shortage.kept_by == ("uid-waits",)


def test_a_job_that_fits_beside_it_starts_at_once() -> None:
    world = leaving(reservations=1)
    world.node("n9", gpus=4)
    world.cycle()
    assert not world.state.jobs["uid-waits"].placements
    assert list(world.state.jobs["uid-small"].placements.values()) == ["n9"]
