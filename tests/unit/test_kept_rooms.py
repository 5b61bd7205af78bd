"""A process that keeps what it found in earlier cycles decides on room as one that begins anew, in random clusters."""

import random

import pytest

from arranger.events import kinds as k
from arranger.scheduling.cycle import VERSIONS, Cycles, take_cycle
from arranger.settings import Settings
from tests.world import World, shape

CONFIG = Settings().cycle_config(VERSIONS)
GPU = "nvidia.com/gpu"


def submit(world: World, rng: random.Random, number: int) -> None:
    pods = rng.randint(1, rng.choice([3, 6, 12]))
    world.job(
        f"job-{number}", workers=pods, worker=shape(cpu=1, gpus=rng.randint(0, 3)), min_workers=rng.randint(1, pods),
        leader=shape(cpu=2, gpus=rng.randint(0, 4)), priority=rng.randint(1, 6), of_queue=rng.choice("ab"),
        expected_s=rng.choice([None, rng.randint(5, 300)]), created=number,
    )  # fmt: skip


def decisions(events: tuple[k.Event, ...]) -> list[k.Event]:
    return [event for event in events if not isinstance(event, k.CycleTaken)]


def live_on(world: World, rng: random.Random) -> None:
    """Pods start, end and disappear, and time passes."""
    for uid, pod in sorted(world.state.pods.items()):
        if pod.phase == "Pending" and rng.random() < 0.8:
            world.change_pod(uid, phase="Running", ready=True, ip="10.0.0.1")
        elif pod.deleting or rng.random() < 0.03:
            world.pod_gone(uid)
        elif rng.random() < 0.02:
            world.change_pod(uid, phase=rng.choice(["Succeeded", "Failed"]))
    world.now_ms += rng.choice([500, 2_000, 11_000, 30_000])


@pytest.mark.parametrize("seed", range(4))
def test_kept_rooms_change_no_decision(seed: int) -> None:
    rng, world, cycles, taken = random.Random(seed), World(config=CONFIG), Cycles(), 0
    for number in range(rng.randint(3, 9)):
        world.node(f"n{number}", cpu=32, gpus=rng.choice([2, 4, 8]))
    for name in "ab":
        world.queue(name, deserved=((GPU, rng.randint(0, 10)),))
    for step in range(16):
        submit(world, rng, step)
        for _ in range(3):
            events = cycles.take(world.state, world.config, world.now_ms)
            if events:
                assert decisions(events) == decisions(take_cycle(world.state, world.config, world.now_ms))
                taken += sum(isinstance(event, k.Preempted | k.Reserved) for event in events)
                world.say(*events)
            if not (world.control() or world.apply() or events):
                break
        live_on(world, rng)
    assert taken
