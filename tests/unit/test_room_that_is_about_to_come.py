"""Nobody loses work for room that comes within seconds anyway: from a job whose workers finish one after the
other."""

from arranger.model.config import CycleConfig
from arranger.model.job import Stage
from arranger.model.pod import PodTimes
from arranger.model.queue import Preemption
from arranger.projections.jobs.records import JobRecord
from arranger.scheduling import NoRoomKind, why_no_room
from tests.world import World, shape

FOUR = shape(gpus=4)


def crowded() -> tuple[World, JobRecord, JobRecord]:
    """Six nodes of four GPUs and two queues of equal weight. One queue has two nodes by a gang that will finish, and
    the other one four nodes, one more than its share; a gang of two nodes waits in the first queue."""
    world = World(
        config=CycleConfig(preemption=Preemption(), reservations=1, reservation_refresh_ms=30_000, guests=True)
    )
    for number in range(6):
        world.node(f"n{number}", gpus=4)
    for queue in ("mine", "theirs"):
        world.queue(queue, weight=1)
    finishing = gang(world, "finishing", 2, of_queue="mine")
    world.settle()
    for number in range(2):
        gang(world, f"theirs-{number}", 2, of_queue="theirs")
        world.settle()
    world.pass_time(3)
    assert finishing.stage == Stage.RUNNING and all(of.placements for of in world.state.jobs.values())
    return world, finishing, gang(world, "waits", 2, of_queue="mine")


def gang(world: World, name: str, workers: int, **of: object) -> JobRecord:
    return world.job(name, workers=workers, worker=FOUR, min_workers=workers, equals=True, created=world.now_ms, **of)


def finish(world: World, job: JobRecord, worker: int) -> None:
    uid = job.bound[1, worker]
    world.change_pod(uid, phase="Succeeded", ready=False, times=PodTimes(ended_ms=world.now_ms))


def preempted(world: World) -> list[str]:
    return [of.seen.name for of in world.state.jobs.values() if of.seen.name.startswith("theirs") and not of.placements]


def test_a_gang_that_finishes_worker_by_worker_is_waited_for() -> None:
    world, finishing, waits = crowded()
    finish(world, finishing, 0)
    world.cycle()
    assert not waits.placements
    found = why_no_room(world.state, waits, world.config, world.now_ms, lacks=None, infeasible=False)
    assert [of.kind for of in found] == [NoRoomKind.COMES]
    world.pass_time(2)
    finish(world, finishing, 1)
    world.settle()
    assert waits.placements and not preempted(world)


def test_but_not_for_a_worker_that_goes_on() -> None:
    world, finishing, waits = crowded()
    finish(world, finishing, 0)
    world.settle()
    world.pass_time(29)
    world.settle()
    assert not waits.placements
    world.pass_time(2)
    world.settle()
    assert waits.placements and len(preempted(world)) == 1


def test_a_clock_that_is_ahead_keeps_nobody_waiting() -> None:
    world, finishing, waits = crowded()
    uid = finishing.bound[1, 0]
    world.change_pod(uid, phase="Succeeded", ready=False, times=PodTimes(ended_ms=world.now_ms + 3_600_000))
    world.settle()
    assert waits.placements and preempted(world)
