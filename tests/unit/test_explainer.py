"""Explanations of one job at one point after another go on from the last, and say the same as new ones."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from arranger.cli.explaining import Explanations
from arranger.cli.inputs import explainer as explainer_module
from arranger.cli.inputs.explainer import Explainer, as_json
from arranger.cli.inputs.reading import NotFound
from arranger.events import kinds as k
from arranger.events.file_log import FileLog
from arranger.events.log import Entry, Position, entries
from arranger.model.pod import GroupKind, PodGroupFacts
from arranger.replay.explain.job_history import AskedJob
from arranger.replay.reading.history import Point
from tests.commands import Run, to_file
from tests.servers import REPOSITORY
from tests.world import World, shape

HISTORIES = REPOSITORY / "tests" / "histories"


class Counting(FileLog):
    """A log that counts the entries that are read."""

    entries_read = 0

    async def read(self, after: Position, *, limit: int = 1000, wait_s: float = 0.0) -> Sequence[Entry]:
        found = await super().read(after, limit=min(limit, 20), wait_s=wait_s)
        self.entries_read += len(found)
        return found


async def _jobs(log: FileLog) -> tuple[list[AskedJob], int]:
    """All jobs of a log, and its last offset."""
    found, last = dict[AskedJob, None](), 0
    async for entry in entries(log, await log.start()):
        last = entry.last
        for event in entry.batch.events:
            if isinstance(event, k.JobSeen):
                found[AskedJob(event.name, event.namespace)] = None
    return [*found], last


async def _told(explainer: Explainer, asked: AskedJob, at: int) -> Any:
    try:
        return as_json(await explainer.explain(asked, Point(offset=at)))
    except NotFound as problem:
        return str(problem)


@pytest.mark.parametrize("name", ["a-job-that-waits.log", "room-for-what-matters.log", "demo.log"])
async def test_an_explanation_that_goes_on_says_what_a_new_one_says(name: str) -> None:
    log = FileLog(HISTORIES / name)
    await log.open()
    jobs, last = await _jobs(log)
    for number, asked in enumerate(jobs):
        going_on = Explainer(log)
        for at in range(20 + number, last + 1, 97):
            assert await _told(going_on, asked, at) == await _told(Explainer(log), asked, at)
    await log.close()


async def test_only_what_came_since_the_last_explanation_is_read() -> None:
    log = Counting(HISTORIES / "demo.log")
    await log.open()
    (asked, *_), last = await _jobs(log)
    explainer = Explainer(log)
    log.entries_read = 0
    await explainer.explain(asked, Point(offset=last - 100))
    first, log.entries_read = log.entries_read, 0
    for at in range(last - 99, last + 1):
        await explainer.explain(asked, Point(offset=at))
    assert 0 < log.entries_read < first
    log.entries_read = 0
    await explainer.explain(asked, Point(offset=last - 100))
    assert log.entries_read == first, "of an earlier point, nothing is known any more"
    await log.close()


async def test_a_question_that_is_taken_back_leaves_what_it_has_read() -> None:
    log = Counting(HISTORIES / "demo.log")
    await log.open()
    (asked, *_), last = await _jobs(log)
    explanations = Explanations(log)
    values = {"job": f"{asked.namespace}/{asked.name}", "at": str(last)}
    log.entries_read = 0
    whole, _ = await Explanations(log).answer("explain", values)
    everything, log.entries_read = log.entries_read, 0
    asking = asyncio.create_task(explanations.answer("explain", values))
    for _ in range(3):
        await asyncio.sleep(0)
    read, log.entries_read = log.entries_read, 0
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert 0 < read < everything
    assert (await explanations.answer("explain", values))[0] == whole
    assert log.entries_read == everything - read
    await log.close()


def _held_since_before() -> World:
    """All GPUs went to `first` before `big`, which waits for them, was created. Meanwhile many snapshots were taken."""
    world = World()
    world.node("n1", cpu=16, gpus=8)
    for name in ("first", "big"):
        world.job(name, workers=1, worker=shape(cpu=1, gpus=8), min_workers=1, created=world.now_ms)
        world.settle()
        world.pass_time(60)
    return world


def _placed(world: World) -> tuple[int, int]:
    """The number of the entry in which `first` was placed, and that event's offset."""
    return next(
        (number, offset)
        for number, entry in enumerate(world.entries, start=1)
        for offset, event in enumerate(entry.batch.events, start=entry.first)
        if isinstance(event, k.Placed)
    )


def test_an_event_before_the_newest_snapshot_without_the_job_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = _held_since_before()
    number, placed = _placed(world)
    whole = to_file(world.entries, tmp_path / "whole.log")
    log = to_file(world.entries, tmp_path / "run.log", snapshot_after=number)
    found = Run(capsys, "explain", "big", *log).out
    assert "What keeps it waiting (events before its creation)" in found
    assert f"  {placed}  default/first was placed" in found and found == Run(capsys, "explain", "big", *whole).out
    began = world.entries[number - 1].last
    sentence = f"No single event from offset {began + 1} on, where the part of the log that was read begins"
    trimmed = to_file(world.entries, tmp_path / "trimmed.log", snapshot_after=number, trim=began + 1)
    assert sentence in Run(capsys, "explain", "big", *trimmed).out
    monkeypatch.setattr(explainer_module, "LOOK_BACK", 0)
    assert sentence in Run(capsys, "explain", "big", *log).out


def test_a_node_that_was_closed_before_the_newest_snapshot_without_the_job_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = World()
    world.node("n1", cpu=16)
    world.node("n1", cpu=16, cordoned=True)
    number = len(world.entries)
    world.pass_time(60)
    world.job("big", leader=shape(cpu=1), created=world.now_ms)
    world.settle()
    log = to_file(world.entries, tmp_path / "run.log", snapshot_after=number)
    assert f"  {world.entries[number - 1].last}  n1 was cordoned" in Run(capsys, "explain", "big", *log).out


def test_a_pod_group_without_pods_says_who_makes_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An operator may wait for its phase before it makes a pod: it isn't a name that nobody knows."""
    world, kind = World(), GroupKind.VOLCANO
    term = world.watch_groups(kind)
    of_owner = {"owner": "mnist", "owner_kind": "TFJob.v1.kubeflow.org"}
    world.say(k.PodGroupSeen(term, "default", "train", "u", "1", kind, PodGroupFacts(2), **of_owner))
    world.say(k.PodGroupSeen(term, "default", "alone", "v", "2", kind, PodGroupFacts(2), phase="Inqueue"))
    log = to_file(world.entries, tmp_path / "run.log")
    told = {name: Run(capsys, "explain", name, *log).err for name in ("podgroup/train", "podgroup/alone", "train")}
    words = "PodGroup default/train of scheduling.volcano.sh has no pods yet; its owner TFJob mnist makes them"
    assert words in told["podgroup/train"]
    assert "phase is empty, and operators wait for Inqueue" in told["podgroup/train"]
    assert "has no pods yet; no pod names it" in told["podgroup/alone"] and "Inqueue" not in told["podgroup/alone"]
    assert "has no job" in told["train"], "a TYJob of that name is another question"
