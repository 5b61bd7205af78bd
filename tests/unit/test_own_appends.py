"""What a process appends it folds itself, from the log's answer: the read that brings it finds it folded."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from arranger.clock import SystemClock
from arranger.errors import EpochLost
from arranger.events import kinds as k
from arranger.events.log import Appended, Entry, Log, Position
from arranger.events.redis_log import RedisLog
from arranger.metrics import Metrics
from arranger.projections import snapshot
from arranger.workers.flow.cancelling import end
from arranger.workers.log.follower import Follower
from arranger.workers.log.own_batches import not_folded
from arranger.workers.log.writer import Writer
from tests.memory_log import MemoryHome, MemoryLog
from tests.servers import RealRedis
from tests.world import World


class Held(MemoryLog):
    """A log whose reads are answered when the test says so."""

    def __init__(self, home: MemoryHome) -> None:
        super().__init__(home)
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def read(self, after: Position, **limits: Any) -> Sequence[Entry]:
        found = await super().read(after, **limits)
        await self.may_answer.wait()
        return found


def process(log: Log) -> tuple[Follower, Writer]:
    clock = SystemClock()
    metrics = Metrics(clock)
    follower = Follower(log, clock=clock, metrics=metrics, reader="test")
    return follower, Writer(follower, name=f"w{id(log)}", clock=clock, metrics=metrics)


@contextlib.asynccontextmanager
async def following(*followers: Follower) -> AsyncIterator[None]:
    tasks = []
    try:
        for follower in followers:
            await follower.start()
            tasks.append(asyncio.create_task(follower.run()))
        yield
    finally:
        await end(tasks)


def batches() -> list[tuple[k.Event, ...]]:
    """A job's life, as batches."""
    world = World()
    world.node("n1", cpu=8)
    world.job("ppo", workers=2, min_workers=2)
    world.settle()
    return [entry.batch.events for entry in world.entries[1:]]


async def test_an_append_is_folded_before_any_read_brings_it() -> None:
    log = Held(MemoryHome())
    follower, writer = process(log)
    async with following(follower):
        log.may_answer.clear()
        async with asyncio.timeout(20):
            for events in batches():
                await writer.append_and_fold(events)
        folded = snapshot.encode(follower.state)
        log.may_answer.set()
        await asyncio.sleep(0.1)
        assert snapshot.encode(follower.state) == folded


async def test_a_batch_that_follows_what_is_not_folded_yet_waits_for_the_read() -> None:
    home = MemoryHome()
    log = Held(home)
    (follower, writer), (_, other) = process(log), process(MemoryLog(home))
    async with following(follower, other._follower):
        log.may_answer.clear()
        [first, second, *_] = batches()
        await other.append_and_fold(first)
        appended = await writer.append(second)
        assert follower.state.offset < appended.first
        log.may_answer.set()
        assert await follower.folded(follower.state.epoch, appended.last)
        assert snapshot.encode(follower.state) == snapshot.encode(other._follower.state)


async def test_a_log_with_others_in_the_place_of_what_was_appended_is_not_the_same_log() -> None:
    follower, writer = process(MemoryLog(MemoryHome()))
    await follower.start()
    [first, *_] = batches()
    await writer.append_and_fold(first)
    at = follower.position
    with pytest.raises(EpochLost):
        not_folded([Entry(at.offset, at.offset, "another chain", k.Batch("w", 1, 0, first))], at)
    with pytest.raises(EpochLost):  # a longer batch of another process
        not_folded([Entry(at.offset, at.offset + 1, "another chain", k.Batch("w", 1, 0, first))], at)


async def test_what_was_appended_after_another_entry_than_the_folded_one_is_not_the_same_log() -> None:
    """The log lost the entry that was folded last, and another process appended one in its place before ours."""
    follower, writer = process(MemoryLog(MemoryHome()))
    await follower.start()
    [first, second, *_] = batches()
    await writer.append_and_fold(first)
    at, state = follower.position, snapshot.encode(follower.state)
    ours = k.Batch("w", 2, 0, second)
    last = at.offset + len(second)
    entry = Entry(at.offset + 1, last, "its chain", ours)
    with pytest.raises(EpochLost):
        appended = Appended(entry.first, last, duplicate=False, entry=entry, chain_before="another chain")
        follower.fold_own(ours, appended, epoch=at.epoch)
    assert snapshot.encode(follower.state) == state


async def followed_by_two(logs: tuple[Log, Log]) -> None:
    """Two processes append in turn and at once; both hold the same bytes, and a third one that only reads as well."""
    (one, writing), (two, writing_too) = process(logs[0]), process(logs[1])
    async with following(one, two):
        for number, events in enumerate(batches()):
            await (writing if number % 2 else writing_too).append_and_fold(events)
        more = [[k.ListingBegun(k.Watched.NODE, 1)]] * 20
        await asyncio.gather(*(each.append_and_fold(events) for events in more for each in (writing, writing_too)))
        last = max(one.state.offset, two.state.offset)
        for follower in (one, two):
            assert await follower.folded(follower.state.epoch, last)
        assert snapshot.encode(one.state) == snapshot.encode(two.state)
        assert one.position == two.position
        reader, _ = process(logs[0])
        await reader.start()
        assert snapshot.encode(reader.state) == snapshot.encode(one.state)


async def test_two_processes_hold_the_same_bytes_in_memory() -> None:
    home = MemoryHome()
    await followed_by_two((MemoryLog(home), MemoryLog(home)))


async def test_two_processes_hold_the_same_bytes_on_a_real_redis(redis_server: RealRedis, cluster: str) -> None:
    logs = (RedisLog(redis_server.url, cluster), RedisLog(redis_server.url, cluster))
    try:
        await followed_by_two(logs)
    finally:
        for log in logs:
            await log.close()
