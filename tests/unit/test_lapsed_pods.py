"""Assumed pods whose time is over, although no event came since: they count nowhere where people read."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from arranger.clock import SystemClock
from arranger.events.file_log import FileLog
from arranger.events.log import Entry, Position
from arranger.model.config import CycleConfig
from arranger.projections import snapshot
from arranger.projections.consistency import validate
from arranger.projections.fold import apply_entry
from arranger.projections.state import Changes, State
from arranger.replay.console.log_index import LogIndex
from arranger.replay.what_if.hypothesis import private_copy
from arranger.sandbox.direct import DirectCluster
from arranger.sandbox.store import Store
from arranger.workers.applying.effects.carrying_out import Effects
from arranger.workers.applying.statuses.queue_writer import QueueWriter
from tests.commands import Run, to_file
from tests.parts import parts
from tests.unit.queue_table import GPU
from tests.unit.test_applier import Following
from tests.unit.test_moments import ask
from tests.world import World, shape


class Late(SystemClock):
    """A clock at some time of the log."""

    def __init__(self, now_ms: int) -> None:
        self.at_ms = now_ms

    def now_ms(self) -> int:
        return self.at_ms


def deleted() -> World:
    """A job was deleted while its pod was created, and another one has a node elsewhere: 2 GPUs are used, and 2 more
    are kept for the pod that may come, which no queue counts."""
    world = World(config=CycleConfig(half_life_ms=60_000))
    world.queue("rl")
    world.node("n1", cpu=8, gpus=2)
    job = world.job("ppo", leader=shape(cpu=1, gpus=2), of_queue="rl")
    world.cycle()
    world.node("n2", cpu=8, gpus=2)
    world.node("n1", cpu=8, gpus=2, cordoned=True)
    world.job_gone(job)
    job = world.job("dqn", leader=shape(cpu=1, gpus=2), of_queue="rl")
    world.pass_time(1)
    world.cycle()
    assert list(job.placements.values()) == ["n2"] and len(world.state.assumed) == 1
    return world


def lapse_ms(world: World) -> int:
    (pod,) = world.state.assumed.values()
    return pod.until_ms


def test_the_state_as_of_a_later_time_is_that_which_an_entry_without_events_would_leave() -> None:
    world = deleted()
    for after_ms in (0, 1, 5_000):
        time_ms, before = lapse_ms(world) + after_ms, snapshot.digest(world.state)
        seen, folded = world.state.as_of(time_ms), private_copy(world.state)
        last = world.entries[-1]
        batch = msgspec.structs.replace(last.batch, time_ms=time_ms, events=())
        apply_entry(folded, Entry(last.last + 1, last.last, "", batch), Changes())
        assert snapshot.digest(seen) == snapshot.digest(folded) and not seen.assumed
        assert seen.queue_use == folded.queue_use and seen.queue_totals == folded.queue_totals
        validate(seen)
        assert snapshot.digest(world.state) == before and len(world.state.assumed) == 1
    kept = world.state.as_of(lapse_ms(world) - 1)
    assert kept.assumed and kept.queue_use == world.state.queue_use


def test_what_people_read_counts_up_to_the_time_of_the_point(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = deleted()
    log = to_file(world.entries, tmp_path / "run.log")
    digest = snapshot.digest(world.state)
    monkeypatch.setattr(FileLog, "live", True)

    def told(now_ms: int) -> tuple[int, int, int, str]:
        monkeypatch.setattr("arranger.cli.inputs.reading.SystemClock", lambda: Late(now_ms))
        queues = {of["name"]: of for of in Run(capsys, "queue", *log, "-o", "json").json["queues"]}
        seen = Run(capsys, "replay", *log, "-o", "json").json
        held = Run(capsys, "top", *log, "-o", "json").json["holders"]
        node = next(of for of in seen["nodes"] if of["name"] == "n1")["used"]
        of_jobs = sum(of["amounts"].get(GPU, 0) for of in held)
        return queues["rl"]["used"].get(GPU, 0), node.get(GPU, 0), of_jobs, seen["digest"]

    assert told(lapse_ms(world) - 1) == (2, 2, 2, digest)
    assert told(lapse_ms(world)) == (2, 0, 2, digest)
    monkeypatch.setattr(FileLog, "live", False)
    assert told(lapse_ms(world)) == (2, 2, 2, digest), "a log that has ended says nothing of later"
    offset = world.state.offset
    changed = Run(capsys, "diff", *log, str(offset), f"{offset}@{lapse_ms(world)}", "-o", "json").json
    assert [of["names"] for of in changed["nodes"]] == [["n1"]]
    assert not changed["queues"]


def test_the_console_counts_up_to_now_and_says_when_to_ask_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = deleted()
    _, path = to_file(world.entries, tmp_path / "run.log")
    monkeypatch.setattr(FileLog, "live", True)
    lapse = lapse_ms(world)

    def told(now_ms: int, **values: str) -> tuple[Any, ...]:
        with monkeypatch.context() as patch:
            patch.setattr("arranger.web.moments.Moments._now_ms", lambda _: now_ms)
            found, series = ask(FileLog(Path(path)), ("moment", values), ("series", {}))
        (queue,) = [of for of in found["queues"] if of["name"] == "rl"]
        return (
            queue["used"],
            found["totals"]["gpusUsed"],
            found["lapses"],
            series["queues"]["rl"][-1],
            series["gpusUsed"][-1],
        )

    assert told(lapse - 1) == (2, 4, lapse / 1000, 2, 4)
    assert told(lapse) == (2, 2, None, 2, 2)
    assert told(0, at=f"{world.state.offset}@{lapse}")[:3] == (2, 2, None)


def test_the_chart_shows_when_a_pod_lapsed_between_two_events() -> None:
    world = deleted()
    lapse = lapse_ms(world)
    world.now_ms = lapse + 20_000
    world.node("late")
    index = LogIndex(State(epoch=1), Position(1, 0, ""), None)
    for entry in world.entries:
        index.feed(entry)
    series = index.series.series(300, index.state, complete=True)
    used = list(zip(series.times, series.gpus_used, series.queues["rl"], strict=True))
    assert used[-2:] == [(lapse / 1000, 2, 2), (world.state.time_ms / 1000, 2, 2)] and used[-3][1:] == (4, 2)
    assert series.queues.keys() == series.queues_own.keys() == {"rl"}


async def test_the_status_of_a_queue_is_looked_at_again_when_a_pod_lapses() -> None:
    world = deleted()
    clock = Late(lapse_ms(world) - 1)
    following: Any = Following(world.state)
    cluster = DirectCluster(Store(now=lambda: 0.0))
    writer = QueueWriter(Effects(parts(cluster=cluster, follower=following, clock=clock)), lambda _: False)
    used, views = [], []
    for after_ms in (0, 1, 2, 50_000):
        clock.at_ms = lapse_ms(world) - 1 + after_ms
        writer._look()
        used.append(writer._view.queues["rl"].used[GPU])
        views.append(writer._view)
    assert used == [2, 2, 2, 2], "no queue counts what may still come"
    assert views[1] is views[2] is views[3], "it looks only when something has changed"
