"""What a key of the log costs: appends and reads of the same batches with and without it, in turn, in a real Redis."""

import asyncio
import statistics
import time
from collections.abc import Sequence

from arranger.events import kinds as k
from arranger.events.codec import encode_batch
from arranger.events.log import Position
from arranger.events.log_keys import UNKEYED, LogKeys
from arranger.events.redis_log import RedisLog
from benchmarks.report import Figure
from benchmarks.workload import History, pod_seen
from tests.servers import real_redis

_KEYS = LogKeys(["benchmark-" * 4])
#: Batches of one writer and of several, by the number of their events.
_SIZES = (1, 100)
_WRITERS = 4


def run(*, quick: bool) -> list[Figure]:
    """The benchmark."""
    batches, rounds = (20, 2) if quick else (400, 3)
    figures = []
    with real_redis() as server:
        for size in _SIZES:
            events = _events(size)
            note = f"{size} pod observations, {len(encode_batch(k.Batch('w', 1, 0, events))):,} bytes"
            for writers in (1, _WRITERS):
                figures += asyncio.run(_compared(server.url, events, batches, rounds, writers=writers, note=note))
            figures += _hashing(events, batches * rounds, note)
    return figures


def _events(size: int) -> tuple[k.Event, ...]:
    history = History()
    nodes = history.nodes(100)
    return tuple(pod_seen(history.terms[k.Watched.POD], number, nodes, size, 10) for number in range(size))


async def _compared(
    url: str, events: tuple[k.Event, ...], batches: int, rounds: int, *, writers: int, note: str
) -> list[Figure]:
    """Append and read without and with a key, by turns: the medians of the rounds, in microseconds a batch."""
    took: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    for turn in range(2 * rounds):
        keyed = turn % 2 == 1
        took[keyed].append(
            await _round(url, f"r{len(events)}-{writers}-{turn}", events, batches, writers=writers, keyed=keyed)
        )
    found = []
    for at, what in enumerate(("append", "read and check")):
        plain, signed = (1e6 * statistics.median(one[at] for one in took[keyed]) for keyed in (False, True))
        name = f"{what}, {writers} writer{'s' if writers > 1 else ''}, batches of {len(events)}"
        found.append(Figure(name=name, value=plain, unit="µs/batch", note=note))
        found.append(Figure(name="  with a key", value=signed, unit="µs/batch", note=f"{signed - plain:+.1f} µs"))
    return found


async def _round(
    url: str, cluster: str, events: Sequence[k.Event], batches: int, *, writers: int, keyed: bool
) -> tuple[float, float]:
    """Seconds a batch of appending by so many writers at once, and of reading it all."""
    logs = [RedisLog(url, cluster, keys=_KEYS if keyed else UNKEYED) for _ in range(writers)]
    begun = await logs[0].open()
    each = batches // writers

    async def write(log: RedisLog, writer: str) -> None:
        for seq in range(1, each + 1):
            await log.append(k.Batch(writer, seq, 1, tuple(events)), epoch=begun.epoch)

    began_s = time.perf_counter()
    await asyncio.gather(*(write(log, f"w{number}") for number, log in enumerate(logs)))
    appended_s = time.perf_counter() - began_s
    reader, after = RedisLog(url, cluster, keys=_KEYS if keyed else UNKEYED), begun
    began_s = time.perf_counter()
    while found := await reader.read(after):
        after = Position(after.epoch, found[-1].last, found[-1].chain)
    read_s = time.perf_counter() - began_s
    for log in (*logs, reader):
        await log.close()
    return appended_s / (each * writers), read_s / (each * writers)


def _hashing(events: tuple[k.Event, ...], times: int, note: str) -> list[Figure]:
    """The chain of one entry alone, in microseconds."""
    payload, at = encode_batch(k.Batch("w", 1, 0, events)), Position(1, 1, "0" * 40)
    found = []
    for name, keys in (("chain of an entry alone", UNKEYED), ("  with a key", _KEYS)):
        began_s = time.perf_counter()
        for _ in range(times):
            keys.chain(at, len(events), payload)
        found.append(Figure(name=name, value=1e6 * (time.perf_counter() - began_s) / times, unit="µs", note=note))
    return found
