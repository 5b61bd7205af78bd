"""What would let a job take room that the shares of queues, the limit of its own, or the jobs that run keep from it."""

import pytest

from arranger.projections.jobs import JobRecord
from tests.unit.replay_worlds import explained, gpu_job, with_room_rules
from tests.world import World, shape

GPU = "nvidia.com/gpu"
#: The only node has so many GPUs.
ALL = 12


def cluster(nodes: int = 1) -> World:
    world = with_room_rules()
    for number in range(1, nodes + 1):
        world.node(f"n{number}", cpu=64, gpus=ALL)
    world.watch_queues()
    return world


def runs(world: World, name: str, workers: int, queue: str, **spec: object) -> JobRecord:
    job = gpu_job(world, name, workers, of_queue=queue, **spec)
    world.settle()
    world.pass_time(10)
    return job


def waits(world: World, name: str, workers: int, queue: str, **spec: object) -> JobRecord:
    job = gpu_job(world, name, workers, of_queue=queue, **spec)
    world.cycle()
    assert not job.placements
    return job


def takes_none(world: World, name: str) -> dict[str, tuple[str, ...]]:
    waiting = explained(world.entries, name).waiting
    assert waiting is not None
    return {str(of.kind): of.jobs for of in waiting.takes_none}


def helps(world: World, name: str) -> list[str]:
    waiting = explained(world.entries, name).waiting
    assert waiting is not None
    return [of.text for of in waiting.remedies]


# --- a limit of its own queue ----------------------------------------------------------------------------------------


def full_of_others(**limit: object) -> World:
    """Another queue has the whole node, far above its share, but for a pod of the job's queue, which is at a limit."""
    world = cluster()
    world.queue("p", **limit)
    world.queue("c")
    runs(world, "p0", 1, "p")
    runs(world, "c1", ALL - 1, "c", least=2)
    return world


@pytest.mark.parametrize("limit", [{"max_running": 1}, {"capability": ((GPU, 3),)}], ids=["maxRunning", "capability"])
def test_others_that_would_give_room_arent_told_to_have_too_little_while_a_limit_keeps_it(
    limit: dict[str, object],
) -> None:
    world = full_of_others(**limit)
    waits(world, "p1", 3, "p")
    assert any("raise" in of and "take room from default/c1" in of for of in helps(world, "p1"))
    assert takes_none(world, "p1") == {"NotLower": ("default/p0",)}


def test_nobody_is_named_if_no_job_counts_within_the_limit() -> None:
    world = cluster()
    world.queue("p", max_running=0)
    world.queue("c")
    runs(world, "c1", ALL, "c", least=2)
    waits(world, "p1", 3, "p")
    assert takes_none(world, "p1") == {}


def test_only_jobs_that_use_what_the_limit_is_about_are_named() -> None:
    world = full_of_others(capability=((GPU, 3),))
    world.job("cpus", workers=1, worker=shape(cpu=1), min_workers=1, equals=True, of_queue="p")
    world.settle()
    waits(world, "p1", 3, "p")
    assert takes_none(world, "p1") == {"NotLower": ("default/p0",)}


def test_if_jobs_may_give_what_the_limit_lacks_the_others_are_told_too() -> None:
    world = cluster()
    world.queue("p", max_running=1)
    world.queue("c", reclaimable=False)
    runs(world, "p0", 1, "p", priority=1)
    runs(world, "c1", ALL - 1, "c")
    waits(world, "p1", 3, "p", priority=9)
    assert takes_none(world, "p1") == {"TooLittle": ("default/p0",), "NotReclaimable": ("default/c1",)}
