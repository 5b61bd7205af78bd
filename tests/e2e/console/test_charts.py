"""The values of the console's charts, over HTTP, are those of the commands at any point of a busy log."""

import json
import random
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from arranger.model.accelerators import is_accelerator
from arranger.model.config import VERDICTS, CycleConfig
from arranger.model.job import Stage
from arranger.model.queue import Preemption
from tests.commands import Run, to_file
from tests.e2e.console.pages import served
from tests.world import World, shape

_POINTS, _SEED = 50, 17
_QUEUES = ("research", "serving", "batch")


def busy() -> World:
    """Sixteen nodes on which more than a hundred jobs of three queues come and end, fail, and take room from others."""
    chance, world = random.Random(_SEED), World(config=CycleConfig(verdicts=VERDICTS, preemption=Preemption()))
    for name, weight in zip(_QUEUES, (3, 2, 1), strict=True):
        world.queue(name, weight=weight)
    world.queue("evaluation", parent="research")
    for number in range(16):
        world.node(f"node-{number:02}", gpus=8)
    for number in range(110):
        world.pass_time(chance.randint(1, 40))
        world.job(
            f"job-{number}", leader=shape(gpus=chance.choice((0, 1))), workers=chance.randint(0, 3),
            worker=shape(gpus=chance.choice((1, 2, 4, 8))), priority=chance.choice((2, 5, 9)), created=world.now_ms,
            of_queue=chance.choice((*_QUEUES, "evaluation")), restart_limit=1,
        )  # fmt: skip
        if number % 20 == 10:
            world.node(f"node-{number % 16:02}", gpus=8, ready=number % 40 == 10, cordoned=number % 40 == 30)
        if number % 20 == 15:
            world.pod(f"stranger-{number}", f"node-{number % 16:02}", gpus=1)
        for job in [of for of in world.state.jobs.values() if of.stage == Stage.RUNNING and of.bound]:
            if chance.random() < 0.12:
                pod = sorted(world.pods_of(job).items())[0][1]
                world.change_pod(pod.uid, phase=chance.choice(("Succeeded", "Succeeded", "Failed")))
        world.settle()
    return world


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The address of the server, and the log."""
    file = tmp_path_factory.mktemp("busy") / "busy.log"
    to_file(busy().entries, file)
    for address in served(str(file)):
        yield address, file


def gpus(amounts: dict[str, int]) -> int:
    return sum(amount for name, amount in amounts.items() if is_accelerator(name))


@pytest.mark.slow
def test_a_charts_values_are_those_of_replay_at_random_points(
    log: tuple[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    address, file = log
    found: dict[str, Any] = {"complete": False}
    while not found["complete"]:
        with urlopen(f"{address}/api/v1/series?points=32768") as response:
            found = json.load(response)
    chance, last = random.Random(_SEED), found["offsets"][-1]
    seen_used = set[int]()
    for at in sorted(chance.randint(1, last) for _ in range(_POINTS)):
        replay = Run(capsys, "replay", "--log", str(file), "--at", str(at), "-o", "json").json
        queues = Run(capsys, "queue", "--log", str(file), "--at", str(at), "-o", "json").json["queues"]
        place = bisect_right(found["offsets"], replay["offset"]) - 1
        nodes = [node for node in replay["nodes"] if node["present"]]
        used = [min(gpus(node["used"]), gpus(node["allocatable"])) for node in nodes]
        there = [job for job in replay["jobs"] if job["stage"] not in ("Succeeded", "Failed")]
        waiting = [job for job in there if job["schedule_state"] == "Unscheduled"]
        assert {name: found[name][place] for name in ("gpus", "gpusUsed", "jobsWaiting", "jobsRunning")} == {
            "gpus": sum(gpus(node["allocatable"]) for node in nodes),
            "gpusUsed": sum(used),
            "jobsWaiting": len(waiting),
            "jobsRunning": len(there) - len(waiting),
        }, at
        of_queues = {queue["name"]: gpus(queue["used"]) for queue in queues}
        assert {name: values[place] for name, values in found["queues"].items() if values[place]} == {
            name: amount for name, amount in of_queues.items() if amount
        }, at
        seen_used.add(sum(used))
    assert len(seen_used) > 10
