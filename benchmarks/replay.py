"""Replay of a long log from its archive: how fast it is read, reached, explained and verified, and what it takes.

`python -m benchmarks.replay --events 10000000 --keep DIR` makes a larger log, keeps it, and takes the same figures.
Each figure is taken in a process of its own, from its start, as a user would wait for it.
"""

import asyncio
import gc
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import islice
from pathlib import Path

import click
import msgspec

from arranger.cli.inputs.reading import feed
from arranger.events.archive import ArchiveLog
from arranger.events.blob_stores import FolderStore
from arranger.events.codec import StoredEntry, encode_batch
from arranger.events.kinds import Batch
from arranger.events.log import Entry, Position, entries
from arranger.events.redis_log import RedisLog
from arranger.projections import snapshot
from arranger.projections.fold import apply_entry
from arranger.projections.state import Changes, State
from arranger.replay.reading.history import END, Journey
from arranger.replay.reading.verify import cycle_in
from arranger.scheduling.cycle import take_cycle
from arranger.workers.log.archive_writer import ArchiveWriter
from benchmarks.longrun import BEGAN_MS, LongRun
from benchmarks.report import Figure
from tests.servers import real_redis

EVENTS = 1_000_000
_SEGMENT = 100_000
#: Points and jobs that are gone to, and cycles whose recording is timed.
_POINTS, _JOBS, _CYCLES = 10, 5, 200
CLUSTER = "default"


class Facts(msgspec.Struct):
    """What is in the log that was made."""

    events: int
    entries: int
    cycles: int
    seconds: float
    pods: int
    #: Some jobs with the offset of a point in their life.
    jobs: list[tuple[str, int]]


def run(*, quick: bool) -> list[Figure]:
    """The benchmark."""
    with tempfile.TemporaryDirectory(prefix="arranger-replay-") as folder:
        return figures(Path(folder), 6_000 if quick else EVENTS, small=quick)


def figures(folder: Path, events: int, *, small: bool = False) -> list[Figure]:
    """All figures of a log of so many events, made in the folder unless it is there."""
    kept = folder / "facts.json"
    if not kept.exists():
        kept.write_bytes(msgspec.json.encode(asyncio.run(make(folder, events, small=small))))
    facts = msgspec.json.decode(kept.read_bytes(), type=Facts)
    rounds, points, jobs = (1, 1, 1) if small else (2, _POINTS, _JOBS)
    return [
        *_sizes(folder, facts),
        *_reading(folder, rounds),
        *_commands(folder, facts, points, jobs),
        *_recording(folder, facts),
    ]


# --- making it -------------------------------------------------------------------------------------------------


async def make(folder: Path, events: int, *, small: bool) -> Facts:
    """Make the log, and say what is in it."""
    if small:
        run = LongRun(nodes=200, strangers=300, jobs_a_second=1, runs_s=(20, 60))
    else:
        # Of a longer log the jobs come faster and run shorter: it is as large a cluster's, with fewer cycles to make.
        rate = max(1, events // EVENTS)
        run = LongRun(jobs_a_second=4 * rate, runs_s=(300 // rate, 900 // rate))
    made = _Made(run, events)
    archive_writer = ArchiveWriter(FolderStore(folder / CLUSTER), every_events=2_000 if small else _SEGMENT)
    last = 0
    async for put in archive_writer.archive(made.read, Position(1, 0, ""), events * 2):
        last = put.position.offset
        if made.ended:  # some entries may have been read behind the last stretch
            break
    return Facts(
        events=last, entries=made.entries, cycles=run.cycles, seconds=(run.now_ms - BEGAN_MS) / 1000,
        pods=len(run.state.pods), jobs=[(name, at) for name, at in made.jobs if at <= last],
    )  # fmt: skip


class _Made:
    """The log as the archiver reads it: made as it is asked for."""

    def __init__(self, run: LongRun, events: int) -> None:
        self._run = run
        self._made = run.entries()
        self._events = events
        self.entries = 0
        self.last = 0
        self.jobs: list[tuple[str, int]] = []

    @property
    def ended(self) -> bool:
        return self.last >= self._events

    async def read(self, _: Position, limit: int) -> Sequence[StoredEntry]:
        return [self._stored(entry) for entry in islice(self._made, limit)]

    def _stored(self, entry: Entry) -> StoredEntry:
        self.entries += 1
        self.last = entry.last
        if self.entries % 500 == 0 and self._run.state.jobs:
            running = [job for job in self._run.state.jobs.values() if job.placements]
            self.jobs += [(job.seen.name, entry.last) for job in running[-1:]]
        return StoredEntry(entry.last, len(entry.batch.events), entry.chain, encode_batch(entry.batch))


# --- what it takes ---------------------------------------------------------------------------------------------


def _sizes(folder: Path, facts: Facts) -> Iterator[Figure]:
    sizes = {path.suffix: 0 for path in (folder / CLUSTER).iterdir()}
    for path in (folder / CLUSTER).iterdir():
        sizes[path.suffix] += path.stat().st_size
    events, snapshots = sizes[".events"] / facts.events, sizes[".snapshot"] / facts.events
    what = f"{facts.events:,} events in {facts.entries:,} batches, {facts.pods:,} pods, {facts.cycles:,} cycles"
    yield Figure(name="archive", value=events, unit="bytes/event", at_most=40.0, note=what)
    yield Figure(name="  and its snapshots", value=snapshots, unit="bytes/event", note=f"one each {_SEGMENT:,} events")


# --- reading all of it -----------------------------------------------------------------------------------------


def _reading(folder: Path, rounds: int) -> list[Figure]:
    best = min((_python(folder, "from-start") for _ in range(rounds)), key=lambda found: float(found["seconds"]))
    rate = best["events"] / best["seconds"]
    growth = best["rss_end_mb"] / best["rss_half_mb"]
    return [
        Figure(name="full replay from the start", value=rate, unit="events/s", at_least=300_000.0,
               note=f"{best['seconds']:.1f} s, {best['cpu_s']:.1f} s of processor time"),
        Figure(name="  its memory at the end", value=best["rss_end_mb"], unit="MB",
               note="most ever resident, process included"),
        Figure(name="  ratio to that at half of the log", value=growth, at_most=1.2),
    ]  # fmt: skip


def _python(folder: Path, what: str) -> dict[str, float]:
    argv = [sys.executable, "-m", "benchmarks.replay", "--part", what, "--keep", str(folder)]
    done = subprocess.run(argv, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


async def _from_start(folder: Path) -> dict[str, float]:
    """Folds the whole log, as `arranger replay` does where there is no snapshot."""
    gc.freeze()
    log = ArchiveLog(FolderStore(folder / CLUSTER))
    end = await log.open()
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    journey, half_mb = Journey(State(), END), 0.0

    def take(entry: Entry) -> None:
        nonlocal half_mb
        journey.feed(entry)
        if not half_mb and entry.last >= end.offset // 2:
            half_mb = _resident_mb()

    await feed(log, await log.start(), take, until=END, doing="")
    spent_s = time.perf_counter() - began_s
    await log.close()
    cpu_s = time.process_time() - began_cpu_s
    return {
        "events": journey.state.offset, "seconds": spent_s, "cpu_s": cpu_s, "rss_half_mb": half_mb,
        "rss_end_mb": _resident_mb(),
    }  # fmt: skip


def _resident_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


# --- commands --------------------------------------------------------------------------------------------------


def _commands(folder: Path, facts: Facts, points: int, jobs: int) -> Iterator[Figure]:
    chance = random.Random(1)
    offsets = [chance.randrange(facts.events // 10, facts.events) for _ in range(points)]
    spent = [_arranger(folder, "replay", "--digest-only", "--at", str(offset)) for offset in offsets]
    yield _command("state at a random point", spent, at_most=1.5, note="with process start and digest")
    chosen = chance.sample(facts.jobs, min(jobs, len(facts.jobs)))
    spent = [_arranger(folder, "explain", name, "--at", str(offset), "-o", "json") for name, offset in chosen]
    yield _command("explain a job at a point", spent, at_most=2.0, note="with process start")
    took = _arranger(folder, "verify")
    yield Figure(name="verify", value=facts.seconds / took.wall_s, unit="times real time", at_least=50.0,
                 note=f"{facts.cycles:,} cycles, one a second, in {took.wall_s:.0f} s, "
                      f"{took.cpu_s:.0f} s of processor time")  # fmt: skip


def _command(name: str, spent: Sequence["Spent"], *, at_most: float, note: str) -> Figure:
    """The median of some runs of a command."""
    took = statistics.median(spent_each.wall_s for spent_each in spent)
    cpu_s = statistics.median(spent_each.cpu_s for spent_each in spent)
    more = f"longest of {len(spent)}: {max(spent).wall_s:.2f} s; processor time {cpu_s:.2f} s"
    return Figure(name=name, value=took, unit="s", at_most=at_most, note=f"{note}; {more}")


class Spent(msgspec.Struct, frozen=True, order=True):
    """How long one command took from its start to its end, and the processor time of it; seconds."""

    wall_s: float
    cpu_s: float


def _arranger(folder: Path, *words: str) -> Spent:
    """Run one command on the log."""
    argv = [sys.executable, "-c", "from arranger.cli.main import run; run()", *words, "--log", str(folder)]
    began_s, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise RuntimeError(f"arranger {' '.join(words)}: {done.stderr.strip()}")
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Spent(time.perf_counter() - began_s, cpu_s)


# --- what recording costs --------------------------------------------------------------------------------------


def _recording(folder: Path, facts: Facts) -> Iterator[Figure]:
    found = _python(folder, "recording")
    share = 100 * found["record_s"] / found["cycle_s"]
    yield Figure(name="recording, share of the cycle", value=share, unit="%", at_most=10.0,
                 note=f"{found['cycles']:.0f} cycles of {1000 * found['cycle_s'] / found['cycles']:.1f} ms, "
                      f"{found['bytes'] / found['cycles']:,.0f} bytes each; of the scheduler's processor time "
                      f"{100 * found['record_cpu_s'] / found['cycle_cpu_s']:.1f} %")  # fmt: skip


async def _record(folder: Path) -> dict[str, float]:
    """Takes the log's last cycles again, and appends each to a Redis of its own."""
    log = ArchiveLog(FolderStore(folder / CLUSTER))
    await log.open()
    totals = dict.fromkeys(("cycle_s", "cycle_cpu_s", "record_s", "record_cpu_s", "cycles", "bytes"), 0.0)
    with real_redis() as server:
        stream = RedisLog(server.url, "benchmark")
        epoch = (await stream.open()).epoch
        async for state, entry in _last_segment(log):
            cycle = cycle_in(entry)
            if cycle is not None and totals["cycles"] < _CYCLES:
                _, taken = cycle
                began_s, began_cpu_s = time.perf_counter(), time.process_time()
                events = take_cycle(state, taken.config, taken.time_ms)
                totals["cycle_s"] += time.perf_counter() - began_s
                totals["cycle_cpu_s"] += time.process_time() - began_cpu_s
                began_s, began_cpu_s = time.perf_counter(), time.process_time()
                await stream.append(Batch("scheduler", int(totals["cycles"]) + 1, taken.time_ms, events), epoch=epoch)
                totals["record_s"] += time.perf_counter() - began_s
                totals["record_cpu_s"] += time.process_time() - began_cpu_s
                totals["cycles"] += 1
                totals["bytes"] += len(encode_batch(entry.batch))
        await stream.close()
    await log.close()
    return totals


async def _last_segment(log: ArchiveLog) -> AsyncIterator[tuple[State, Entry]]:
    """The entries after the last snapshot but one, each with the state before it."""
    marks = await log.snapshot_marks()
    stored = await log.newest_snapshot(at_most=marks[-2].offset)
    assert stored is not None
    state = snapshot.restore(stored.content)
    async for entry in entries(log, stored.position):
        yield state, entry
        apply_entry(state, entry, Changes())


@click.command()
@click.option("--events", default=EVENTS, show_default=True, help="How many events the log gets.")
@click.option("--keep", type=click.Path(path_type=Path), help="Make the log here and keep it, or use the one there.")
@click.option("--part", hidden=True)
def main(events: int, keep: Path | None, part: str | None) -> None:
    """Take the figures of a log of this size."""
    if part is not None:
        assert keep is not None
        print(json.dumps(asyncio.run(_from_start(keep) if part == "from-start" else _record(keep))))
        return
    with tempfile.TemporaryDirectory(prefix="arranger-replay-") as folder:
        place = keep or Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        for figure in figures(place, events):
            print(
                f"{figure.name}: {figure.value:,.4g} {figure.unit}  target {figure.target}  {figure.note}", flush=True
            )
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
