"""The values of the console's charts, over HTTP, are those of the commands at any point of a busy log."""

import json
import random
import shutil
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from playwright.sync_api import expect

from arranger.model.accelerators import is_accelerator
from arranger.model.config import CycleConfig
from arranger.model.job import Stage
from arranger.model.queue import Preemption
from arranger.projections.jobs.records import JobRecord
from tests.commands import Run, to_file
from tests.e2e.console.pages import Opener, expect_at, ready, served, written
from tests.world import World, shape

_POINTS, _PARTS, _SEED = 50, 8, 17
_QUEUES = ("research", "serving", "batch")
#: How the tree of queues changes after so many jobs: a queue moves and comes back, one with a queue below it is deleted
#: and created again, one below another is deleted, and another one is created.
_CHANGES: dict[int, Callable[[World], None]] = {
    30: lambda world: world.queue("evaluation", parent="serving"),
    40: lambda world: world.queue("evaluation", parent="research"),
    50: lambda world: world.queue_gone("research"),
    60: lambda world: world.queue("research", weight=3, uid="another"),
    70: lambda world: world.queue_gone("evaluation"),
    80: lambda world: world.queue("evaluation", parent="batch", uid="another"),
    100: lambda world: world.queue_gone("batch"),
}


def busy() -> World:
    """Sixteen nodes on which more than a hundred jobs of some queues come and end, fail, and take room from others,
    while the tree of queues changes."""
    chance, world = random.Random(_SEED), World(config=CycleConfig(preemption=Preemption()))
    for name, weight in zip(_QUEUES, (3, 2, 1), strict=True):
        world.queue(name, weight=weight)
    world.queue("evaluation", parent="research")
    for number in range(16):
        world.node(f"node-{number:02}", gpus=8)
    for number in range(110):
        world.pass_time(chance.randint(1, 40))
        _CHANGES.get(number, lambda _: None)(world)
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


@pytest.fixture
def log(tmp_path: Path) -> Iterator[tuple[str, Path, Callable[[], int]]]:
    """The address of the server, a log that it follows, and what adds a part to it and returns the last offset, 0 if
    there is none."""
    entries, file = busy().entries, tmp_path / "busy.log"
    ends = [len(entries) * part // _PARTS for part in range(_PARTS + 1)][1:]
    parts = [tmp_path / f"{end}.log" for end in ends]
    for end, part in zip(ends, parts, strict=True):
        to_file(entries[:end], part)
    shutil.copy(parts[0], file)

    def grow() -> int:
        size = file.stat().st_size
        more = next(((end, part) for end, part in zip(ends, parts, strict=True) if part.stat().st_size > size), None)
        if more is None:
            return 0
        with file.open("ab") as growing:
            growing.write(more[1].read_bytes()[size:])
        return entries[more[0] - 1].last

    for address in served(str(file)):
        yield address, file, grow


def gpus(amounts: dict[str, int]) -> int:
    return sum(amount for name, amount in amounts.items() if is_accelerator(name))


def series(address: str, last: int = 0) -> Any:
    """What the charts are drawn of, once it goes up to an offset."""
    for _ in range(600):
        with urlopen(f"{address}/api/v1/series?points=32768") as response:
            found = json.load(response)
        if found["complete"] and found["offsets"][-1] >= last:
            return found
        time.sleep(0.1)
    raise AssertionError(f"a minute went by, and the series doesn't go up to offset {last}")


def own_use(queues: list[dict[str, Any]]) -> dict[str, int]:
    """The GPUs that each queue uses without the queues below it, in the tree that the queues have."""
    own = {queue["name"]: gpus(queue["used"]) for queue in queues}
    for queue in queues:
        if queue["depth"] > 1:  # without a way to the root, it counts in no other queue
            own[queue["parent"]] -= gpus(queue["used"])
    return {name: used for name, used in own.items() if used}


@pytest.mark.slow
def test_a_charts_values_are_those_of_replay_at_random_points_of_a_log_that_is_followed(
    log: tuple[str, Path, Callable[[], int]], capsys: pytest.CaptureFixture[str]
) -> None:
    address, file, grow = log
    found, chance, seen_used = series(address), random.Random(_SEED), set[int]()
    while last := grow():
        found = series(address, last)
    for at in sorted(chance.randint(1, found["offsets"][-1]) for _ in range(_POINTS)):
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
        own = {name: values[place] for name, values in found["queuesOwn"].items() if values[place]}
        assert own == own_use(queues), at
        seen_used.add(sum(used))
    assert len(seen_used) > 10


#: The job of each queue by the queue's name.
Jobs = dict[str, JobRecord]


def moved(world: World, _: Jobs) -> None:
    world.queue("tests")


def parent_deleted(world: World, jobs: Jobs) -> None:
    world.queue("tests")
    world.job_gone(jobs["team"])
    world.queue_gone("team")


def child_deleted(world: World, jobs: Jobs) -> None:
    world.job_gone(jobs["tests"])
    world.queue_gone("tests")


@pytest.mark.real
@pytest.mark.parametrize("change", [moved, parent_deleted, child_deleted])
def test_a_page_that_followed_the_log_while_queues_changed_draws_the_past_in_the_tree_of_then(
    change: Callable[[World, Jobs], None], tmp_path: Path, opened: Opener
) -> None:
    world = World()
    begun_ms = world.now_ms = round(time.time() * 1000) - 600_000
    world.node("node-1", gpus=32)
    world.queue("team")
    world.queue("tests", parent="team")
    jobs = {
        queue: world.job(f"of-{queue}", leader=shape(gpus=used), of_queue=queue, created=world.now_ms)
        for queue, used in (("team", 6), ("tests", 13))
    }
    world.cycle()
    world.pass_time(580)
    before = len(world.entries)
    change(world, jobs)
    file, whole = tmp_path / "queues.log", tmp_path / "whole.log"
    written(file, *world.entries[:before], begun_ms=begun_ms)
    written(whole, *world.entries, begun_ms=begun_ms)
    for address in served(str(file)):
        page = opened(f"{address}/#/queues?at=end")
        ready(page)
        chart = page.get_by_label("GPUs used by each queue over time")
        values = {name: chart.locator(".u-series").filter(has_text=name).locator(".u-value") for name in jobs}
        expect(values["tests"]).to_have_text("13")
        chart.locator(".u-over").evaluate("over => over.dataset.earlier = 'yes'")
        chart.locator(".u-over").hover()  # in the middle, 300 seconds ago
        with file.open("ab") as log:
            log.write(whole.read_bytes()[file.stat().st_size :])
        expect_at(page, world.entries[-1].last)
        expect(chart.locator(".u-over[data-earlier]")).to_have_count(0)  # drawn again, under the pointer
        expect(values["team"]).to_have_text("6")
        expect(values["tests"]).to_have_text("13")
        page.close()


@pytest.mark.real
def test_beside_a_chart_stand_the_values_of_the_event_at_the_point_not_of_later_ones_of_its_millisecond(
    tmp_path: Path, opened: Opener
) -> None:
    world = World()
    world.node("node-1", gpus=8)
    world.pass_time(60)
    world.job("first", leader=shape(gpus=1), created=world.now_ms)
    at = world.entries[-1].last
    world.job("second", leader=shape(gpus=1), created=world.now_ms)
    assert world.entries[-1].last > at
    file = tmp_path / "one-millisecond.log"
    written(file, *world.entries)
    for address in served(str(file)):
        for point, waiting in ((at, "1"), (world.entries[-1].last, "2")):
            page = opened(f"{address}/#/queues?at={point}")
            ready(page)
            chart = page.get_by_label("Jobs that wait and run over time")
            expect(chart.locator(".u-series").filter(has_text="waiting").locator(".u-value")).to_have_text(waiting)
            page.close()
