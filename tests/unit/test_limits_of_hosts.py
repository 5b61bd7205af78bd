"""A guest may use a limit of its queue that the job needs in front of it: it leaves for that too."""

import pytest

from arranger.model.config import CycleConfig
from arranger.model.queue import Preemption
from arranger.projections.jobs.records import JobRecord
from tests.world import World, shape

FOUR = shape(gpus=4)


def behind(
    queue: str = "",
    further: int = 0,
    quota: dict[str, int] | None = None,
    settled: bool = True,
    at_once: bool = False,
    **limits: object,
) -> tuple[World, JobRecord, JobRecord]:
    """Eight nodes of four GPUs. Two fillers end in 15 s. A gang of seven nodes has a reservation, and a job of one node
    is behind it in its queue, or comes `at_once` with it."""
    world = World(
        config=CycleConfig(preemption=Preemption(), reservations=1, reservation_refresh_ms=30_000, guests=True)
    )
    for number in range(8):
        world.node(f"n{number}", gpus=4)
    if quota:
        world.quota("few", quota)
    if queue:
        world.queue(queue, **limits)
    for number in range(2):
        world.job(f"filler-{number}", leader=FOUR, deadline_s=15, preemptible=False)
    world.settle()
    gang = world.job("gang", equals=True, workers=7, worker=FOUR, min_workers=7, of_queue=queue, created=world.now_ms)
    if not at_once:
        world.cycle()
        assert gang.uid in world.state.reservations
    if further:
        world.node("n8", gpus=further)  # too small for the gang's pods
    small = world.job("small", leader=shape(gpus=further) if further else FOUR, of_queue=queue, created=world.now_ms)
    if settled:
        world.settle()
    return world, gang, small


def starts(world: World, gang: JobRecord) -> bool:
    """Whether the gang starts within the grace period of a guest, once the fillers have ended."""
    for number in range(2):
        for pod in world.pods_of(world.state.jobs[f"uid-filler-{number}"]).values():
            world.change_pod(pod.uid, phase="Succeeded")
    for _ in range(40):
        world.settle()
        world.pass_time(1)
    return len(gang.placements) == 7


@pytest.mark.parametrize("limits", [{"capability": (("nvidia.com/gpu", 28),)}, {"max_running": 1}])
def test_a_guest_gives_back_what_it_uses_of_a_limit(limits: dict[str, object]) -> None:
    world, gang, small = behind("limited", **limits)
    assert small.slots.hosts == (gang.uid,)
    assert starts(world, gang) and not small.placements


@pytest.mark.parametrize("limits", [{"capability": (("nvidia.com/gpu", 28),)}, {"max_running": 1}])
def test_who_uses_that_limit_beside_the_reserved_room_is_a_guest_too(limits: dict[str, object]) -> None:
    world, gang, small = behind("limited", further=2, **limits)
    assert small.slots.hosts == (gang.uid,) and [*small.placements.values()] == ["n8"]
    assert starts(world, gang) and not small.placements


def test_who_uses_another_limit_is_no_guest() -> None:
    world, gang, small = behind("limited", further=2, capability=(("nvidia.com/gpu", 32),))
    assert not small.slots.hosts
    assert starts(world, gang) and small.placements


@pytest.mark.parametrize("at_once", [False, True])
def test_a_guest_uses_none_of_a_quota_that_the_job_in_front_needs(at_once: bool) -> None:
    """Nor in the cycle that first reserves room for that job."""
    _, gang, small = behind(at_once=at_once)
    assert small.slots.hosts == (gang.uid,)  # without a quota
    world, gang, small = behind(quota={"count/pods": 9}, at_once=at_once)
    assert not small.placements
    assert starts(world, gang)


@pytest.mark.parametrize("least", [1, 2])
def test_nor_do_its_workers_beyond_the_least(least: int) -> None:
    world, gang, _ = behind(quota={"count/pods": 12})
    smaller = world.job(
        "smaller", workers=4, worker=shape(gpus=1), min_workers=least, equals=True, created=world.now_ms
    )
    for _ in range(3):
        world.settle()
        world.pass_time(1)
    assert len(smaller.placements) == 2 and smaller.slots.hosts == (gang.uid,)
    assert smaller.waits.shortage.of_nodes
    assert starts(world, gang)
