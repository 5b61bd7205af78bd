"""The order of the queue that people read at a point is the one that cycles use there: by the settings of the last one,
wherever that is in the log."""

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from arranger.events import kinds as k
from arranger.events.file_log import FileLog
from arranger.model.config import CycleConfig
from arranger.replay.reading.describe import label
from arranger.replay.reading.difference import picture
from arranger.replay.reading.overview import overview
from arranger.replay.what_if.one_cycle import TriesByJob, take_plan
from arranger.scheduling import in_order, take_cycle
from arranger.web.moments import Moments
from arranger.web.news import News
from arranger.workers.log.last_config import last_config
from tests.commands import Run, to_file, write
from tests.memory_log import DamagedLog, MemoryLog
from tests.unit.replay_worlds import late_cycle
from tests.unit.test_moments import HISTORIES, NAMES, ask, at_history, folded, history
from tests.unit.test_replay_room import explained
from tests.world import World, shape

#: How two jobs that wait are ordered: the older one asks for more, so that DRF prefers the younger one.
BY_AGE, BY_SHARE = ["large", "small"], ["small", "large"]


def waiting_for_early(queue_policy: str) -> World:
    """A world in which two jobs wait for a third one."""
    world = World()
    world.config = msgspec.structs.replace(world.config, queue_policy=queue_policy)
    world.node("n1", gpus=8)
    world.job("early", leader=shape(gpus=4), expected_s=100)
    world.settle()
    world.job("large", leader=shape(gpus=8), created=1, expected_s=100)
    world.job("small", leader=shape(gpus=5), created=2, expected_s=100)
    return world


class Told:
    """A world whose cycles have other settings now and then, and the order that each cycle used, by its offset."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.used: dict[int, list[str]] = {}
        #: The offset of a cycle that was superseded, and had other settings.
        self.superseded = 0
        self._nodes = 0

    def cycle(self, queue_policy: str = "") -> int:
        """Take a cycle that has something to record; returns its offset."""
        world = self.world
        if queue_policy:
            world.config = msgspec.structs.replace(world.config, queue_policy=queue_policy)
        self._nodes += 1
        world.node(f"tiny-{self._nodes}", cpu=1)
        world.pass_time(60)
        world.hear()
        turns = TriesByJob()
        take_cycle(world.state, world.config, world.now_ms, turns)
        assert world.cycle()
        at = world.state.last_cycle
        self.used[at] = [world.state.jobs[uid].seen.name for uid in turns.tries]
        return at


@pytest.fixture(scope="module")
def told() -> Told:
    of = Told(waiting_for_early("Priority"))
    world = of.world
    assert of.used[of.cycle("Priority")] == BY_AGE
    assert of.used[of.cycle("DRF")] == BY_SHARE
    world.pass_time(10)
    world.node("between", cpu=1)
    assert of.used[of.cycle("Priority")] == BY_AGE
    assert of.used[of.cycle("DRF")] == BY_SHARE

    def meanwhile() -> None:
        world.config = msgspec.structs.replace(world.config, queue_policy="DRF")
        of.cycle()

    world.config = msgspec.structs.replace(world.config, queue_policy="Priority")
    world.node("reason", cpu=1)
    world.pass_time(60)
    of.superseded = late_cycle(world, meanwhile)
    assert world.state.last_cycle < of.superseded
    world.node("after", cpu=1)
    world.node("last", cpu=1)
    return of


def first(names: list[str]) -> list[str]:
    """The names of jobs, without their namespaces."""
    return [name.rpartition("/")[2] for name in names]


def by_position(jobs: list[Any], name: str, position: str) -> list[str]:
    waiting = sorted((job for job in jobs if job[position]), key=lambda job: job[position])
    assert [job[position] for job in waiting] == list(range(1, len(waiting) + 1))
    return first([job[name] for job in waiting])


def commands(capsys: pytest.CaptureFixture[str], log: list[str], at: str) -> dict[str, list[str]]:
    """The order that each command tells at a point."""

    def answer(*words: str) -> Any:
        run = Run(capsys, *words, *log, "-o", "json")
        assert run.status == 0, run.err
        return run.json

    explained = {job: answer("explain", job, "--at", at)["waiting"] for job in BY_AGE}
    return {
        "queue": by_position(answer("queue", "default", "--at", at)["waiting"], "job", "position"),
        "replay": by_position(answer("replay", "--at", at)["jobs"], "name", "queue"),
        "diff": first(answer("diff", at, at)["queue_after"]),
        "explain": sorted(explained, key=lambda job: explained[job]["position"]),
        "forecast": by_position(answer("forecast", "--at", at)["jobs"], "job", "queue_position"),
    }


def points(told: Told) -> dict[int, list[str]]:
    """Points of the log, each with the order that the last cycle before it used."""
    ends = [entry.last for entry in told.world.entries if entry.last >= min(told.used)]
    return {at: told.used[max(of for of in told.used if of <= at)] for at in ends}


def test_every_answer_has_the_order_that_the_last_cycle_used(
    told: Told, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = to_file(told.world.entries, tmp_path / "run.log")
    asked = points(told)
    assert BY_AGE in asked.values() and BY_SHARE in asked.values() and max(asked) > told.superseded
    standings = ask(FileLog(tmp_path / "run.log"), *(("standings", {"at": str(at)}) for at in asked))
    for (at, used), table in zip(asked.items(), standings, strict=True):
        shown = commands(capsys, log, str(at)) | {"console": by_position(table["jobs"], "job", "position")}
        assert shown == dict.fromkeys(shown, used), at


@pytest.mark.parametrize("name", NAMES)
def test_at_any_point_of_a_recorded_log_the_order_is_that_of_its_settings(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    of = history(name)
    cycles = [(entry, event) for entry in of for event in entry.batch.events if isinstance(event, k.CycleTaken)]
    asked = random.Random(5).sample([entry.last for entry in of if entry.last > cycles[0][0].last], 12)
    tables = at_history(name, *(("standings", {"at": str(at)}) for at in asked))
    most = 0
    for at, table in zip(asked, tables, strict=True):
        state = folded(of, at)
        [config] = [event.config for entry, event in cycles if entry.first <= state.last_cycle <= entry.last]
        order = [label(job) for job in in_order(state, config)]
        run = Run(capsys, "replay", "--log", str(HISTORIES / name), "--at", str(at), "-o", "json")
        shown = sorted((job for job in run.json["jobs"] if job["queue"]), key=lambda job: job["queue"])
        assert [f"{job['namespace']}/{job['name']}" for job in shown] == order, at
        assert by_position(table["jobs"], "job", "position") == first(order), at
        most = max(most, len(order))
    assert most > 1


def test_policies_that_are_not_installed_keep_nobody_from_an_order(told: Told) -> None:
    state = told.world.state
    other = msgspec.structs.replace(told.world.config, queue_policy="Elsewhere", versions=(("Elsewhere", 1),))
    assert [job.name for job in overview(state, other).jobs if job.queue] == BY_AGE


def test_the_settings_of_the_last_cycle_are_found_behind_a_snapshot_and_behind_what_was_trimmed(
    told: Told, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A snapshot has no settings: if no cycle comes behind it, they are read in the log, as long as it has them."""
    world = told.world
    after = next(number for number, entry in enumerate(world.entries, start=1) if entry.last > max(told.used))
    log = to_file(world.entries, tmp_path / "run.log", snapshot_after=after)
    end = world.entries[-1].last
    assert min(end, world.entries[after - 1].last) > max(told.used), "no cycle comes behind the snapshot"
    assert commands(capsys, log, "end") == dict.fromkeys(commands(capsys, log, str(end)), BY_SHARE)

    age = [number for number, entry in enumerate(world.entries, start=1) if told.used.get(entry.first) == BY_AGE][-1]
    before = world.entries[age].last  # the first entry after that cycle
    trimmed = to_file(world.entries, tmp_path / "late.log", snapshot_after=age + 1, trim=before + 1)
    shown = commands(capsys, trimmed, str(before))
    [table] = ask(FileLog(tmp_path / "late.log"), ("standings", {"at": str(before + 1)}))
    assert shown | {"console": by_position(table["jobs"], "job", "position")} == dict.fromkeys(
        [*shown, "console"], BY_SHARE
    )


@pytest.mark.parametrize("trimmed", [False, True])
async def test_whatever_the_snapshot_the_settings_are_those_of_the_last_cycle_that_was_accepted(
    told: Told, tmp_path: Path, *, trimmed: bool
) -> None:
    entries = told.world.entries
    configs = {
        offset: event.config
        for entry in entries
        for offset, event in enumerate(entry.batch.events, start=entry.first)
        if isinstance(event, k.CycleTaken)
    }
    for number, entry in enumerate(entries, start=1):
        log = MemoryLog(now_ms=lambda: 1)
        state = folded(entries, entry.last)
        first = entry.last + 1 if trimmed else 0
        await write(log, entries, snapshot_after=number, trim=first)
        left = [at for at in configs if at >= max(state.last_cycle, first)]
        expected = configs[left[0]] if left else CycleConfig()
        stored = await log.newest_snapshot()
        assert stored is not None
        assert await last_config(log, state, stored.position) == expected, entry.last


async def test_damage_before_a_sound_state_does_not_keep_anybody_from_an_answer(told: Told) -> None:
    entries, log = told.world.entries, DamagedLog()
    await write(log, entries)
    state, end = folded(entries, entries[-1].last), await log.end()
    log.damaged = 1
    assert await last_config(log, state, end) == CycleConfig()


async def test_the_server_tells_the_present_order_as_the_log_grows(told: Told, tmp_path: Path) -> None:
    entries, log = told.world.entries, MemoryLog(now_ms=lambda: 1)
    begun = next(number for number, entry in enumerate(entries) if entry.first == min(told.used))
    epoch = (await log.open()).epoch
    for entry in entries[1:begun]:
        await log.append(entry.batch, epoch=epoch)
    news = News(log)
    following = asyncio.create_task(news.follow())
    async with asyncio.timeout(60):
        await news.state()
        for entry in entries[begun:]:
            await log.append(entry.batch, epoch=epoch)
            while news.offset < entry.last:
                await news.moved(0.01)
            now = await news.present()
            jobs = overview(now.state, now.config).jobs
            assert [job.name for job in jobs if job.queue] == points(told)[entry.last], entry.last
    following.cancel()
    await asyncio.wait([following])


def test_the_console_tells_the_order_before_its_index_is_complete(
    told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    to_file(told.world.entries, tmp_path / "run.log")

    async def answers() -> dict[int, list[str]]:
        moments = Moments(FileLog(tmp_path / "run.log"))
        monkeypatch.setattr(moments, "_step", lambda: asyncio.sleep(60))
        following = asyncio.create_task(moments.follow())
        found = {}
        for at in points(told):
            answer, final = await moments.answer("standings", {"at": str(at)})
            assert not final
            found[at] = by_position(json.loads(answer)["jobs"], "job", "position")
        following.cancel()
        await asyncio.wait([following])
        return found

    assert asyncio.run(answers()) == points(told)


# --- what begins in the middle of a log --------------------------------------------------------------------------


def gang() -> tuple[World, int, int]:
    """A job of four pods waits for the GPUs of all of them, because with Gang all pods are the quorum. Also a point
    behind the last cycle, as an offset and as a number of entries."""
    world = World()
    world.config = msgspec.structs.replace(world.config, pod_policy="Gang")
    world.node("n1", gpus=2)
    world.node("n2", gpus=2, cordoned=True)
    world.job("wide", leader=shape(gpus=1), workers=3, worker=shape(gpus=1), min_workers=1)
    world.settle()
    world.pass_time(30)
    world.node("tiny-1", cpu=1)
    return world, world.state.offset, len(world.entries)


def test_what_jobs_waited_is_counted_by_the_settings_before_the_span(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world, _, number = gang()
    world.node("tiny-2", cpu=1)
    since = world.state.offset
    world.pass_time(60)
    world.node("tiny-3", cpu=1)
    log = to_file(world.entries, tmp_path / "run.log", snapshot_after=number)
    found = Run(capsys, "waits", *log, "--from", str(since), "-o", "json").json
    assert (found["wait_ms"], found["gpu_ms"]) == (60_000, 4 * 60_000)


def test_a_search_for_when_a_job_fits_begins_with_the_settings_before_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world, since, number = gang()
    world.node("tiny-2", cpu=1)
    world.node("n2", gpus=2)
    fits = world.state.offset
    log = to_file(world.entries, tmp_path / "run.log", snapshot_after=number)
    found = Run(capsys, "bisect", *log, "--job", "wide", "--fits", "--from", str(since), "-o", "json").json
    assert found["found"]["event"]["offset"] == fits


def test_forecasts_are_made_again_by_the_settings_before_the_span(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the first job alone a forecast is made: which one that is depends on the settings."""
    world = waiting_for_early("DRF")
    world.settle()
    world.pass_time(1)
    world.node("tiny-1", cpu=1)
    since, number = world.state.offset, len(world.entries)
    world.pass_time(1)
    world.node("tiny-2", cpu=1)
    world.pass_time(98)
    for uid in [*world.state.jobs["uid-early"].bound.values()]:
        world.change_pod(uid, phase="Succeeded", ready=False)
    world.settle()
    assert world.state.jobs["uid-small"].placements and not world.state.jobs["uid-large"].placements
    log = to_file(world.entries, tmp_path / "run.log", snapshot_after=number)
    words = ("forecast", "--score", "--from", str(since), "--points", "1", "--first", "1")
    found = Run(capsys, *words, *log, "-o", "json").json
    assert (found["total"]["number"], found["waiting"], found["total"]["p90_ms"]) == (1, 0, 0)


def test_a_queue_with_a_policy_of_its_own_gives_the_turns_by_that_policy() -> None:
    """The answer said "by Priority", and named priorities as the reasons why others went first."""
    of = World()
    of.node("n0", gpus=8)
    of.watch_queues()
    of.queue("q", queue_policy="DRF")
    of.job("first", leader=shape(gpus=4), of_queue="q")
    of.settle()
    of.job("low", leader=shape(gpus=8), priority=1, of_queue="q")
    of.cycle()
    of.job("high", leader=shape(gpus=4), priority=9, of_queue="q")
    of.settle()
    waits = explained(of.entries, "low").waiting
    assert waits is not None and waits.queue_policy == "DRF"
    whys = [one.why for one in waits.passed_by if one.job == "default/high"]
    assert whys == ["its turn by DRF, or what was reserved for it"]
    plan, _ = take_plan(of.state, of.config, of.now_ms)
    assert {one.job: one.queue_policy for one in plan.jobs}["default/low"] == "DRF"


def test_a_job_without_a_leader_has_none_in_a_difference() -> None:
    of = World()
    job = of.job("gang", workers=2, worker=shape(gpus=1), min_workers=2, equals=True)
    assert picture(of.state, of.config).jobs[job.uid].facts["quorum"] == "2 workers"
