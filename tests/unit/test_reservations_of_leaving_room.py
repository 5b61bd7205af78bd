"""Room that pods leave is there when their grace periods are over at the latest: a reservation doesn't wait for that
where others end before."""

from arranger.model.config import CycleConfig
from arranger.model.queue import Preemption
from tests.world import World, shape

EIGHT = shape(gpus=8)


def test_a_reservation_is_where_room_comes_first() -> None:
    world = World(
        config=CycleConfig(preemption=Preemption(), reservations=1, reservation_refresh_ms=30_000, guests=True)
    )
    for number in range(3):
        world.node(f"n{number}", gpus=8)
    world.job("stays", leader=EIGHT, priority=9, expected_s=200)
    ends = world.job("ends", leader=shape(gpus=6), priority=9, expected_s=25)
    leaves = world.job("leaves", leader=EIGHT, priority=3, grace_s=90)
    world.settle()
    world.pass_time(1)
    [node] = ends.placements.values()
    [left] = leaves.placements.values()
    took = world.job("took", leader=shape(gpus=7), priority=9)
    world.cycle()
    waits = world.job("waits", leader=shape(gpus=6), workers=1, worker=shape(gpus=1), min_workers=1, priority=8)
    world.cycle()
    assert took.placements == {(0, 0): left}
    reserved = world.state.reservations[waits.uid].decided
    assert {pods.node for pods in reserved.pods} == {node}
    assert reserved.start_ms == ends.began_ms + 25_000
