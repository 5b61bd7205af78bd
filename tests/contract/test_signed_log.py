"""A log with a key: what somebody without the key puts into Redis, a file or an archive is refused with its place."""

import asyncio
import time
from pathlib import Path

import pytest
import redis.asyncio

from arranger.errors import DamagedEntry, ForgedEntry, UsageError
from arranger.events.archive import ArchiveLog
from arranger.events.blob_stores import FolderStore
from arranger.events.codec import encode_batch, encode_snapshot
from arranger.events.file_log import FileLog, copy_log
from arranger.events.kinds import Batch, ObjectGone, Watched
from arranger.events.log import Position, StoredSnapshot, entries
from arranger.events.log_keys import NO_KEY, UNKEYED, Authenticity, LogKeys, next_chain
from arranger.events.redis_log import RedisLog
from arranger.projections import snapshot
from arranger.projections.state import State
from arranger.workers.log.archive_writer import ArchiveWriter
from tests.servers import RealRedis

pytestmark = pytest.mark.real

FIRST, SECOND = "a" * 32, "b" * 32
KEYED, OTHER = LogKeys([FIRST]), LogKeys([SECOND])


def batch(seq: int, writer: str = "w") -> Batch:
    return Batch(writer, seq, time.time_ns() // 1_000_000, (ObjectGone(Watched.NODE, 1, "", f"n{seq}", "uid"),))


async def written(server: RealRedis, cluster: str, keys: LogKeys = KEYED, *, count: int = 3) -> RedisLog:
    """An open log with some entries of one event each after the first."""
    log = RedisLog(server.url, cluster, keys=keys)
    epoch = (await log.open()).epoch
    for seq in range(1, count + 1):
        await log.append(batch(seq), epoch=epoch)
    return log


async def forge(server: RealRedis, cluster: str, keys: LogKeys = UNKEYED, *, seq: int = 9) -> int:
    """Append with the chain of these keys, past Arranger's scripts; returns the offset."""
    return (await appended(server.url, cluster, batch(seq, "forger"), keys)).offset + 1


async def appended(url: str, cluster: str, made: Batch, keys: LogKeys = UNKEYED) -> Position:
    """Append a batch of one event past Arranger's scripts, as the user in the URL; returns the position before it."""
    prefix, payload = f"arranger:{{{cluster}}}:", encode_batch(made)
    async with redis.asyncio.Redis.from_url(url) as client:
        while True:
            epoch, end, chain = await client.hmget(prefix + "meta", "epoch", "end", "chain")
            before = Position(int(epoch), int(end), chain.decode())
            forged = keys.chain(before, 1, payload)
            try:
                await client.xadd(prefix + "log", {"p": payload, "c": forged, "n": 1}, id=f"{before.offset + 1}-0")
            except redis.ResponseError:  # Arranger wrote meanwhile
                continue
            await client.hset(prefix + "meta", mapping={"end": before.offset + 1, "chain": forged})
            return before


async def read_all(log: RedisLog | FileLog | ArchiveLog) -> list[int]:
    return [entry.last async for entry in entries(log, await log.start())]


@pytest.mark.parametrize("forger", [UNKEYED, OTHER])
async def test_an_entry_that_somebody_without_the_key_wrote_is_refused_with_its_offset(
    redis_server: RealRedis, cluster: str, forger: LogKeys
) -> None:
    log = await written(redis_server, cluster)
    offset = await forge(redis_server, cluster, forger)
    epoch = (await log.end()).epoch
    await log.append(batch(4), epoch=epoch)  # what follows a forged entry makes it no better
    reader = RedisLog(redis_server.url, cluster, keys=KEYED)
    await reader.open()
    good = await reader.read(await reader.start())
    assert [entry.last for entry in good] == [1, 2, 3, 4]
    after = Position(epoch, 4, good[-1].chain)
    for wait_s in (0.0, 0.2):
        with pytest.raises(ForgedEntry) as refused:
            await reader.read(after, wait_s=wait_s)
        assert refused.value.offset == offset == 5
    await log.close()
    await reader.close()


async def test_an_entry_is_authentic_at_its_own_place_and_in_its_own_epoch_only(
    redis_server: RealRedis, cluster: str
) -> None:
    log = await written(redis_server, cluster)
    start, stream = await log.start(), f"arranger:{{{cluster}}}:log"
    async with redis.asyncio.Redis.from_url(redis_server.url) as client:
        stored = await client.xrange(stream)
        # A signed entry once more, behind the last one.
        await client.xadd(stream, stored[1][1], id="5-0")
        await client.hset(f"arranger:{{{cluster}}}:meta", mapping={"end": 5, "chain": stored[1][1][b"c"]})
        reader = RedisLog(redis_server.url, cluster, keys=KEYED)
        await reader.open()
        good = await reader.read(start)
        with pytest.raises(ForgedEntry):
            await reader.read(Position(start.epoch, 4, good[-1].chain))
        # The same entries as another epoch.
        await client.hset(f"arranger:{{{cluster}}}:meta", "epoch", start.epoch + 1)
        another = RedisLog(redis_server.url, cluster, keys=KEYED)
        await another.open()
        with pytest.raises(ForgedEntry):
            await another.read(await another.start())
        # The log cut off at its beginning, with the record of its start changed to hide that.
        await client.hset(f"arranger:{{{cluster}}}:meta", mapping={"epoch": start.epoch, "start_chain": "ab"})
        with pytest.raises(ForgedEntry):
            await another.read(Position(start.epoch, 0, "ab"))
        for each in (log, reader, another):
            await each.close()


@pytest.mark.parametrize(
    "fields", [{"x": "y"}, {"p": b"\xc1", "c": "0" * 40, "n": 1}, {"p": b"", "c": b"\xff", "n": 1}]
)
async def test_nonsense_in_the_stream_is_refused_as_a_forged_entry_is(
    redis_server: RealRedis, cluster: str, fields: dict[str, object]
) -> None:
    log = await written(redis_server, cluster)
    end = await log.end()
    async with redis.asyncio.Redis.from_url(redis_server.url) as client:
        await client.xadd(f"arranger:{{{cluster}}}:log", fields, id="5-0")  # type: ignore[arg-type]
        await client.hset(f"arranger:{{{cluster}}}:meta", "end", 5)
        with pytest.raises(ForgedEntry) as refused:
            await log.read(end)
    assert refused.value.offset == 5
    await log.close()


async def test_a_snapshot_that_somebody_without_the_key_wrote_is_refused_and_the_true_one_before_it_is_used(
    redis_server: RealRedis, cluster: str
) -> None:
    log = await written(redis_server, cluster)
    end = await log.end()
    good = StoredSnapshot(Position(end.epoch, 2, (await log.read(await log.start()))[1].chain), b"true")
    await log.put_snapshot(good)
    snapshots = f"arranger:{{{cluster}}}:snapshots"
    async with redis.asyncio.Redis.from_url(redis_server.url) as client:
        forged = {
            "4": encode_snapshot(StoredSnapshot(end, b"forged")),
            "3": encode_snapshot(StoredSnapshot(end, b"forged", OTHER.snapshot_signature(end, b"forged"))),
            "99999999": b"nonsense",
            "x": b"nonsense",
        }
        await client.hset(snapshots, mapping=forged)  # type: ignore[arg-type]
        for offset in (99999999, 4, 3):
            with pytest.raises(ForgedEntry) as refused:
                await log.newest_snapshot(at_most=offset)
            assert refused.value.offset == offset
        found = await log.newest_snapshot(at_most=2)
        assert found is not None and (found.position, found.content) == (good.position, b"true")
        # What lies beyond the log's end doesn't displace a true one.
        await log.put_snapshot(StoredSnapshot(end, b"newer"))
        assert {b"x", b"99999999"}.isdisjoint(await client.hkeys(snapshots))
    newest = await log.newest_snapshot()
    assert newest is not None and newest.content == b"newer"
    await log.close()


async def test_many_writers_with_a_key_append_every_batch_once(redis_server: RealRedis, cluster: str) -> None:
    logs = [RedisLog(redis_server.url, cluster, keys=KEYED) for _ in range(6)]
    epoch = (await logs[0].open()).epoch

    async def write(log: RedisLog, name: str) -> None:
        for seq in range(1, 31):
            await log.append(batch(seq, name), epoch=epoch)

    await asyncio.gather(*(write(log, f"w{number}") for number, log in enumerate(logs)))
    found = [entry.batch async for entry in entries(logs[0], await logs[0].start())]
    assert sorted((one.writer, one.seq) for one in found[1:]) == sorted(
        (f"w{number}", seq) for number in range(6) for seq in range(1, 31)
    )
    for log in logs:
        await log.close()


async def test_a_writer_that_is_always_too_late_gets_a_turn(redis_server: RealRedis, cluster: str) -> None:
    """In one event loop the order is always the same: without turns, one of these writers never appends."""
    busy = [RedisLog(redis_server.url, cluster, keys=KEYED) for _ in range(4)]
    epoch = (await busy[0].open()).epoch
    counts = [0] * len(busy)

    async def write(number: int) -> None:
        while max(counts) < 300:
            counts[number] += 1
            await busy[number].append(batch(counts[number], f"w{number}"), epoch=epoch)

    await asyncio.gather(*map(write, range(len(busy))))
    assert min(counts) > 10
    for log in busy:
        await log.close()


async def test_a_turn_ends_with_its_time(
    redis_server: RealRedis, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arranger.events.redis_log.TURN_MS", 500)
    log = await written(redis_server, cluster)
    epoch = (await log.end()).epoch
    async with redis.asyncio.Redis.from_url(redis_server.url) as client:
        for till_ms in (time.time_ns() // 1_000_000 + 400, 9_999_999_999_999):  # one that died, and a forged one
            await client.hset(f"arranger:{{{cluster}}}:meta", "turn", f"{till_ms}:somebody")
            await log.append(batch(till_ms), epoch=epoch)
            assert not await client.hexists(f"arranger:{{{cluster}}}:meta", "turn")
    await log.close()


async def test_a_process_without_the_key_does_not_write_a_signed_log(redis_server: RealRedis, cluster: str) -> None:
    before = RedisLog(redis_server.url, cluster)
    epoch = (await before.open()).epoch
    log = await written(redis_server, cluster, LogKeys([FIRST, NO_KEY]))
    with pytest.raises(UsageError, match="signed with a key"):
        await RedisLog(redis_server.url, cluster).open()
    with pytest.raises(UsageError, match="signed with a key"):
        await before.append(batch(1, "late"), epoch=epoch)
    with pytest.raises(UsageError, match="signed with a key"):
        await before.begin_epoch(lost=epoch, reason="", time_ms=time.time_ns() // 1_000_000)
    assert (await log.end()).offset == 4
    await log.close()
    await before.close()


async def test_a_reader_without_the_key_reads_everything_and_says_that_it_checks_nothing(
    redis_server: RealRedis, cluster: str
) -> None:
    log = await written(redis_server, cluster)
    reader = RedisLog(redis_server.url, cluster, read_only=True)
    await reader.open()
    assert (await read_all(reader), reader.authenticity) == ([1, 2, 3, 4], Authenticity.UNCHECKED)
    assert log.authenticity == Authenticity.CHECKED
    await log.close()
    await reader.close()


async def test_a_key_is_switched_on_and_exchanged_while_the_log_goes_on(redis_server: RealRedis, cluster: str) -> None:
    """Each step is a rolling restart: processes of the step before still run, and both read and write."""
    steps = [[], [NO_KEY, FIRST], [FIRST, NO_KEY], [FIRST], [FIRST, SECOND], [SECOND, FIRST], [SECOND]]
    log = await written(redis_server, cluster, UNKEYED)
    begin = await log.start()
    for number, keys in enumerate(steps[1:], 1):
        after = RedisLog(redis_server.url, cluster, keys=LogKeys(keys))
        await after.open()
        if number in (3, 6):  # a signed snapshot replaces what the new list of keys doesn't accept
            stored = await log.newest_snapshot()
            assert stored is not None
            begin = stored.position
        for each in (log, after):
            await each.append(batch(number, f"{number}-{id_of(each, log)}"), epoch=begin.epoch)
        for each in (log, after):
            assert [entry async for entry in entries(each, begin)][-1].last == 4 + 2 * number
        await after.put_snapshot(StoredSnapshot(await after.end(), b"content"))
        await log.close()
        log = after
    refused = RedisLog(redis_server.url, cluster, keys=LogKeys([SECOND]))
    await refused.open()
    with pytest.raises(ForgedEntry) as problem:
        await read_all(refused)  # from the beginning, which was never signed
    assert problem.value.offset == 1
    await log.close()
    await refused.close()


def id_of(log: RedisLog, older: RedisLog) -> str:
    return "older" if log is older else "newer"


async def test_a_copy_in_a_file_and_in_redis_stays_signed(
    redis_server: RealRedis, cluster: str, tmp_path: Path
) -> None:
    log = await written(redis_server, cluster)
    await log.put_snapshot(StoredSnapshot(await log.end(), b"content"))
    await copy_log(log, tmp_path / "log")
    for keys, known in ((KEYED, Authenticity.CHECKED), (UNKEYED, Authenticity.UNCHECKED)):
        copy = FileLog(tmp_path / "log", keys)
        await copy.open()
        assert (await read_all(copy), copy.authenticity) == ([1, 2, 3, 4], known)
        found = await copy.newest_snapshot()
        assert found is not None and found.content == b"content"
        await copy.close()
    wrong = FileLog(tmp_path / "log", OTHER)
    await wrong.open()
    with pytest.raises(ForgedEntry):
        await read_all(wrong)
    with pytest.raises(ForgedEntry):
        await wrong.newest_snapshot()
    into = RedisLog(redis_server.url, f"{cluster}-copy", keys=KEYED)
    copy = FileLog(tmp_path / "log", KEYED)
    await copy.open()
    await into.load(copy)
    assert await read_all(into) == [1, 2, 3, 4]
    for each in (log, wrong, into, copy):
        await each.close()


async def test_an_archive_stays_signed_and_a_file_that_somebody_exchanged_in_it_is_refused(
    redis_server: RealRedis, cluster: str, tmp_path: Path
) -> None:
    log = await written(redis_server, cluster, count=59)
    start, end = await log.start(), await log.end()

    async def archive(folder: Path, keys: LogKeys) -> None:
        writer = ArchiveWriter(FolderStore(folder), every_events=20, keys=keys)
        source = lambda after, limit: log.read_stored(after, limit=limit)  # noqa: E731
        newest = StoredSnapshot(end, snapshot.encode(State()))
        async for _ in writer.archive(source, start, end.offset, newest, state=State()):
            pass

    await archive(tmp_path / "true", KEYED)
    for keys, known in ((KEYED, Authenticity.CHECKED), (UNKEYED, Authenticity.UNCHECKED)):
        found = ArchiveLog(FolderStore(tmp_path / "true"), keys=keys)
        await found.open()
        assert await read_all(found) == list(range(1, 61))
        assert found.authenticity == known
        assert await found.newest_snapshot() is not None
        await found.close()
    wrong = ArchiveLog(FolderStore(tmp_path / "true"), keys=OTHER)
    await wrong.open()
    for reading in (read_all(wrong), wrong.newest_snapshot()):
        with pytest.raises(ForgedEntry):
            await reading
    await wrong.close()
    await log.close()


def test_each_use_of_a_key_has_a_chain_or_signature_of_its_own() -> None:
    at = Position(7, 3, "ab")
    made = {KEYED.chain(at, 1, b"x"), KEYED.snapshot_signature(at, b"x"), KEYED.tick_signature("7:3:ab:x")}
    made |= {OTHER.chain(at, 1, b"x"), KEYED.chain(at, 2, b"x"), KEYED.chain(Position(8, 3, "ab"), 1, b"x")}
    assert len(made) == 6 and all(len(one) == 40 for one in made)
    assert UNKEYED.chain(at, 1, b"x") == next_chain("ab", b"x") and UNKEYED.snapshot_signature(at, b"x") == ""


def test_without_a_key_a_wrong_chain_is_damage() -> None:
    assert type(UNKEYED.refusal(3, "why")) is DamagedEntry and type(KEYED.refusal(3, "why")) is ForgedEntry
