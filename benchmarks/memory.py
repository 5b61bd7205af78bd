"""A worker with a large cluster in its memory: how much it holds, and how soon it is caught up after a start.

The log is written as a watcher would have written it, with a snapshot near its end; then a process of the product
(`arranger run controller scheduler maintenance`: every role that needs no API server) starts from it. That process
stores a snapshot of its own, whose bytes must be those of this one's fold from the log's beginning.
"""

import asyncio
import time

from arranger.events import kinds as k
from arranger.events.log import Position, StoredSnapshot, entries
from arranger.events.redis_log import RedisLog
from arranger.model.pod import PodShape
from arranger.projections import snapshot
from arranger.projections.fold import apply_entry
from arranger.projections.state import Changes, State
from benchmarks.parts import workers
from benchmarks.report import Figure
from benchmarks.workload import History, pod_seen
from tests.servers import real_redis

_ROLES = ("controller", "scheduler", "maintenance")
_STARTS = 3
_SNAPSHOT_LIMIT_S = 60.0


def run(*, quick: bool) -> list[Figure]:
    """The benchmark."""
    nodes, pods, tail, starts = (50, 500, 100, 1) if quick else (5_000, 50_000, 2_000, _STARTS)
    cycles_s = 1.0 if quick else 10.0  # cycles, and the life cycle's sweeps
    return [
        *asyncio.run(_run(nodes, pods, tail, starts=starts)),
        *asyncio.run(_largest(nodes, 2 * pods, pods // 5, tail, cycles_s=cycles_s)),
    ]


async def _run(nodes: int, pods: int, tail: int, *, starts: int) -> list[Figure]:
    with real_redis() as redis:
        log = RedisLog(redis.url, "default")
        state = await _write(log, nodes, pods, tail)
        took: list[float] = []
        for _ in range(starts):
            began_s = time.monotonic()
            async with workers([_ROLES], redis_url=redis.url) as (worker,):
                await worker.ready()
                took.append(time.monotonic() - began_s)
                resident_mb = worker.memory_mb()
        same, most_mb = await _digest_and_peak(log, redis.url, state)
        await log.close()
    what = f"{nodes:,} nodes, {pods:,} pods, {'+'.join(_ROLES)}"
    start_s = sorted(took)[len(took) // 2]
    return [
        Figure(name="resident", value=resident_mb, unit="MB", at_most=300, note=what),
        Figure(name="resident at most, after a snapshot", value=most_mb, unit="MB"),
        Figure(
            name="from command to caught up", value=start_s, unit="s", at_most=2,
            note=f"snapshot and {tail:,} events after it; median of {starts}",
        ),
        Figure(name="its snapshot equals a fold from the start", value=float(same), at_least=1.0),
    ]  # fmt: skip


async def _largest(nodes: int, pods: int, jobs: int, tail: int, *, cycles_s: float) -> list[Figure]:
    """The same process with twice the pods and with many jobs that wait, each of which it has looked at."""
    with real_redis() as redis:
        log = RedisLog(redis.url, "default")
        await _write(log, nodes, pods, tail, waiting=jobs)
        async with workers([_ROLES], redis_url=redis.url) as (worker,):
            await worker.ready()
            await asyncio.sleep(cycles_s)
            resident_mb = worker.memory_mb()
        await log.close()
    what = f"{nodes:,} nodes, {pods:,} pods, {jobs:,} waiting jobs"
    return [Figure(name="resident with more", value=resident_mb, unit="MB", at_most=400, note=what)]


async def _write(log: RedisLog, nodes: int, pods: int, tail: int, *, waiting: int = 0) -> State:
    """Write the log and a snapshot; answers what all of it folds to."""
    history = History()
    names = history.nodes(nodes)
    history.pods(pods, names, jobs=pods // 100)
    if waiting:
        history.jobs(waiting, 3, leader=PodShape((("cpu", 65_000),)), worker=PodShape((("cpu", 1_000),)))
    history.listed()
    until = len(history.batches)
    for begin in range(0, tail, 100):
        term = history.terms[k.Watched.POD]
        history.say(*(pod_seen(term, n, names, pods, pods // 100, round_=1) for n in range(begin, begin + 100)))
    epoch = (await log.open()).epoch
    state, position = State(), Position(epoch, 0, "")
    for number, batch in enumerate(history.batches[1:], start=2):  # the log has begun its epoch itself
        await log.append(batch, epoch=epoch)
        if number == until:
            state, position = await _folded(log, state, position)
            await log.put_snapshot(StoredSnapshot(position, snapshot.encode(state)))
    state, _ = await _folded(log, state, position)
    return state


async def _folded(log: RedisLog, state: State, after: Position) -> tuple[State, Position]:
    changes = Changes()
    async for entry in entries(log, after):
        apply_entry(state, entry, changes)
        after = Position(after.epoch, entry.last, entry.chain)
    return state, after


async def _digest_and_peak(log: RedisLog, url: str, state: State) -> tuple[bool, float]:
    """Whether a worker's own snapshot is ours byte for byte, and the most memory that it had in all."""
    eager = {"ARRANGER_SNAPSHOT_EVERY_S": "1", "ARRANGER_UPGRADE_GRACE_S": "0"}
    async with workers([_ROLES], redis_url=url, settings=eager) as (worker,), asyncio.timeout(_SNAPSHOT_LIMIT_S):
        await worker.ready()
        while True:
            stored = await log.newest_snapshot()
            if stored is not None and stored.position.offset == state.offset:
                return stored.content == snapshot.encode(state), worker.memory_mb("VmHWM")
            await asyncio.sleep(0.2)
