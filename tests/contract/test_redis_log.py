"""The log on a real Redis in trouble: lost answers, lost data, no memory, no right, no server."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import redis
import redis.asyncio

from arranger.clock import SystemClock
from arranger.errors import EpochLost, LogError, LogUnavailable, UsageError, WatchSuperseded
from arranger.events.blob_stores import FolderStore
from arranger.events.fence import CLAIM, Fence
from arranger.events.file_log import FileLog, copy_log
from arranger.events.kinds import Batch, ObjectGone, Watched
from arranger.events.log import Appended, Position, StoredSnapshot, entries
from arranger.events.open_log import open_log
from arranger.events.redis_connection import connect, sync_client, translated
from arranger.events.redis_log import RedisLog
from arranger.events.redis_urls import redacted
from arranger.metrics import Metrics
from arranger.workers.log.archive_writer import ArchiveWriter
from arranger.workers.log.follower import Follower
from arranger.workers.maintaining.archive_role import ArchiveRole
from tests.contract.log_homes import FakeRedis, LossyProxy
from tests.parts import parts
from tests.servers import RealRedis, free_port, real_redis

SECRET = "s3cret/with#odd:chars@"


def batch(seq: int, *, size: int = 1, writer: str = "w") -> Batch:
    return Batch(
        writer, seq, 1_000 + seq, tuple(ObjectGone(Watched.NODE, 1, "", f"n{seq}-{i}", "uid") for i in range(size))
    )


@asynccontextmanager
async def emptied(server: RealRedis, database: int = 8) -> AsyncIterator[str]:
    """The URL of an empty database."""
    url = f"redis://127.0.0.1:{server.port}/{database}"
    async with redis.asyncio.Redis.from_url(url) as client:
        await client.flushdb()
    yield url


async def appended_at_last(log: RedisLog, batch: Batch, *, epoch: int, fence: Fence) -> Appended:
    """The answer of an append that is repeated until one comes."""
    while True:
        with suppress(LogUnavailable):
            return await log.append(batch, epoch=epoch, fence=fence)


# --- answers and data that get lost --------------------------------------------------------------------------


@pytest.mark.parametrize("lost_answers", [1, 2, 3, 4])
async def test_an_append_repeated_after_lost_answers_stands_in_the_log_once(
    redis_server: RealRedis, lost_answers: int
) -> None:
    async with emptied(redis_server), LossyProxy(redis_server.port).running() as proxy:
        log = RedisLog(f"redis://127.0.0.1:{proxy.port}/8", "lossy")
        begun = await log.open()
        await log.append(batch(1), epoch=begun.epoch, fence=Fence("nodes", CLAIM))
        proxy.drop_answers = lost_answers
        appended = await appended_at_last(log, batch(2, size=3), epoch=begun.epoch, fence=Fence("nodes", 2, "9"))
        assert (appended.first, appended.last, appended.duplicate) == (3, 5, True)
        assert proxy.drop_answers == 0
        assert [entry.last for entry in await log.read(begun)] == [2, 5]
        assert (await log.append(batch(3), epoch=begun.epoch, fence=Fence("nodes", CLAIM))).cursor == "9"
        await log.close()


@pytest.mark.parametrize("lost_answers", [1, 2])
async def test_a_claim_repeated_after_lost_answers_returns_the_cursor_of_the_first(
    redis_server: RealRedis, lost_answers: int
) -> None:
    async with emptied(redis_server), LossyProxy(redis_server.port).running() as proxy:
        log = RedisLog(f"redis://127.0.0.1:{proxy.port}/8", "lossy")
        begun = await log.open()
        await log.append(batch(1), epoch=begun.epoch, fence=Fence("nodes", CLAIM))
        await log.append(batch(2), epoch=begun.epoch, fence=Fence("nodes", 2, "9"))
        proxy.drop_answers = lost_answers
        claimed = await appended_at_last(log, batch(3), epoch=begun.epoch, fence=Fence("nodes", CLAIM))
        assert (claimed.first, claimed.duplicate, claimed.cursor) == (4, True, "9")
        await log.close()


@pytest.mark.parametrize("stored", ["2:77", "1:77", "nonsense", ""])
async def test_a_cursor_that_a_release_without_the_fence_stored_is_not_gone_on_from(
    redis_server: RealRedis, stored: str
) -> None:
    """Processes of both releases may watch in turn during a rolling upgrade; what the older ones stored may be void."""
    async with emptied(redis_server) as url:
        log = RedisLog(url, "c")
        begun = await log.open()
        async with redis.asyncio.Redis.from_url(url) as older:
            await older.hset("arranger:{c}:cursors", "nodes", stored)
            assert (await log.append(batch(1), epoch=begun.epoch, fence=Fence("nodes", CLAIM))).cursor == ""
            await log.append(batch(2), epoch=begun.epoch, fence=Fence("nodes", 2, "9"))
            assert await older.hget("arranger:{c}:cursors", "nodes") == b"2:9"  # as the older release reads it
            await older.hset("arranger:{c}:cursors", "nodes", "1:99")
            await log.append(batch(3), epoch=begun.epoch, fence=Fence("nodes", 2))
            assert (await log.append(batch(4), epoch=begun.epoch, fence=Fence("nodes", CLAIM))).cursor == ""
        await log.close()


async def test_a_new_epoch_begun_again_after_a_lost_answer_is_one_epoch(redis_server: RealRedis) -> None:
    async with emptied(redis_server), LossyProxy(redis_server.port).running() as proxy:
        log = RedisLog(f"redis://127.0.0.1:{proxy.port}/8", "lossy")
        begun = await log.open()
        proxy.drop_answers = 1
        present = await log.begin_epoch(lost=begun.epoch, reason="test", time_ms=0)
        assert (present.epoch, present.offset) == (begun.epoch + 1, 1)
        await log.close()


async def test_a_server_that_comes_back_without_its_last_entries_is_noticed() -> None:
    with real_redis() as server:
        log = RedisLog(server.url, "c")
        begun = await log.open()
        await log.append(batch(1), epoch=begun.epoch)
        saved = await log.end()
        server.command("SAVE")
        await log.append(batch(2), epoch=begun.epoch)
        read = await log.end()
        server.stop(kill=True)
        with pytest.raises(LogUnavailable, match="doesn't answer"):
            await log.append(batch(3), epoch=begun.epoch)
        server.start()

        with pytest.raises(EpochLost):
            await log.append(batch(3), epoch=begun.epoch)
        fresh = RedisLog(server.url, "c")
        assert await fresh.open() == saved
        with pytest.raises(EpochLost, match="tail was lost"):
            await fresh.read(read)
        another = RedisLog(server.url, "c")  # one that knows nothing of the lost tail
        await another.append(batch(1, writer="another"), epoch=begun.epoch)
        with pytest.raises(EpochLost, match="written again"):
            await fresh.read(read)
        assert (await log.begin_epoch(lost=begun.epoch, reason="tail lost", time_ms=0)).epoch == begun.epoch + 1
        for one in (log, fresh, another):
            await one.close()


async def test_a_reader_at_the_end_takes_what_comes_in_one_answer(redis_server: RealRedis) -> None:
    async with emptied(redis_server) as url:
        log, reader = RedisLog(url, "default"), RedisLog(url, "default")
        end = await log.open()
        assert list(await reader.read(end)) == []
        asked = 0
        execute = reader._client.execute_command

        def counted(*words: object) -> object:
            nonlocal asked
            asked += 1
            return execute(*words)

        reader._client.execute_command = counted
        for seq in range(1, 4):
            waiting = asyncio.create_task(reader.read(end, wait_s=30))
            await asyncio.sleep(0.05)
            await log.append(batch(seq, size=2), epoch=end.epoch)
            (entry,) = await waiting
            assert entry.batch == batch(seq, size=2)
            end = Position(end.epoch, entry.last, entry.chain)
        assert asked == 3 and end == await log.end()
        for seq in range(4, 60):
            await log.append(batch(seq), epoch=end.epoch)
        found = list(await reader.read(end, wait_s=30))
        while len(found) < 56:
            found += await reader.read(Position(end.epoch, found[-1].last, found[-1].chain), wait_s=30)
        assert [entry.batch.seq for entry in found] == list(range(4, 60))
        await log.close()
        await reader.close()


async def test_a_log_begun_again_while_a_reader_waits_at_the_end_is_noticed(redis_server: RealRedis) -> None:
    async with emptied(redis_server) as url:
        log, reader = RedisLog(url, "default"), RedisLog(url, "default")
        end = await log.open()
        assert list(await reader.read(end)) == []
        waiting = asyncio.create_task(reader.read(end, wait_s=30))
        await asyncio.sleep(0.05)
        again = await log.begin_epoch(lost=end.epoch, reason="test", time_ms=0)
        # The new epoch's offsets go on beyond the reader's: it is woken by an entry that doesn't follow.
        await log.append(batch(1, size=5), epoch=again.epoch)
        with pytest.raises(EpochLost):
            await waiting
        await log.close()
        await reader.close()


async def test_a_server_that_forgot_the_scripts_is_told_them_again(redis_server: RealRedis) -> None:
    async with emptied(redis_server) as url:
        log = RedisLog(url, "c")
        begun = await log.open()
        redis_server.command("SCRIPT", "FLUSH")
        assert (await log.append(batch(1), epoch=begun.epoch)).first == 2
        await log.close()


async def test_an_older_epoch_restored_over_a_newer_one_is_replaced(redis_server: RealRedis) -> None:
    async with emptied(redis_server) as url:
        log = RedisLog(url, "c")
        begun = await log.open()
        assert (await log.begin_epoch(lost=begun.epoch + 5, reason="restored", time_ms=0)).epoch == begun.epoch + 6
        await log.close()


async def test_the_two_newest_old_streams_are_kept_under_one_hash_tag(redis_server: RealRedis) -> None:
    async with emptied(redis_server) as url:
        log = RedisLog(url, "c", now_ms=lambda: 10)
        await log.open()
        for lost in (10, 11, 12):
            await log.begin_epoch(lost=lost, reason="test", time_ms=0)
        async with redis.asyncio.Redis.from_url(url) as client:
            keys = sorted(key.decode() for key in await client.keys())
        assert keys == [f"arranger:{{c}}:{name}" for name in ("log", "log:old:11", "log:old:12", "meta")]
        await log.close()


async def test_clusters_in_one_server_know_nothing_of_each_other(redis_server: RealRedis) -> None:
    async with emptied(redis_server) as url:
        one, two = RedisLog(url, "one"), RedisLog(url, "two")
        begun = await one.open()
        await two.open()
        await one.append(batch(1), epoch=begun.epoch)
        assert ((await one.end()).offset, (await two.end()).offset) == (2, 1)
        for log in (one, two):
            await log.close()


# --- a server that refuses -----------------------------------------------------------------------------------


async def test_without_memory_nothing_is_half_appended_and_trimming_still_works() -> None:
    with real_redis() as server:
        log = RedisLog(server.url, "c")
        begun = await log.open()
        await log.append(batch(1), epoch=begun.epoch)
        server.command("CONFIG", "SET", "maxmemory", "1")
        with pytest.raises(LogUnavailable, match="can't do that now"):
            await log.append(batch(2), epoch=begun.epoch, fence=Fence("nodes", CLAIM))
        with pytest.raises(LogUnavailable, match="can't do that now"):
            await log.put_snapshot(StoredSnapshot(begun, b""))
        assert await log.trim(2, epoch=begun.epoch) == 1
        assert [entry.last for entry in await log.read(begun)] == [2]
        server.command("CONFIG", "SET", "maxmemory", "0")
        with pytest.raises(WatchSuperseded, match="nobody has claimed"):
            await log.append(batch(2), epoch=begun.epoch, fence=Fence("nodes", 3))
        assert not (await log.append(batch(2), epoch=begun.epoch)).duplicate
        await log.close()


async def test_a_read_only_replica_can_be_read_and_says_that_it_takes_no_appends() -> None:
    with real_redis() as server:
        log = RedisLog(server.url, "c")
        begun = await log.open()
        server.command("REPLICAOF", "127.0.0.1", str(free_port()))
        with pytest.raises(LogUnavailable, match="can't do that now"):
            await log.append(batch(1), epoch=begun.epoch)
        assert list(await log.read(begun)) == []
        server.command("REPLICAOF", "NO", "ONE")
        assert (await log.append(batch(1), epoch=begun.epoch)).first == 2
        await log.close()


async def test_a_busy_server_is_worth_another_try() -> None:
    with real_redis() as server:
        log = RedisLog(server.url, "c")
        begun = await log.open()
        server.command("CONFIG", "SET", "lua-time-limit", "10")
        async with redis.asyncio.Redis.from_url(server.url) as other:
            spinning = asyncio.create_task(other.eval("while true do end", 0))
            await asyncio.sleep(0.2)
            with pytest.raises(LogUnavailable, match="can't do that now"):
                await log.append(batch(1), epoch=begun.epoch)
            server.command("SCRIPT", "KILL")
            with pytest.raises(redis.ResponseError):
                await spinning
        assert (await log.append(batch(1), epoch=begun.epoch)).first == 2
        await log.close()


@pytest.mark.parametrize(
    "said",
    [
        "LOADING Redis is loading the dataset in memory",
        "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
        "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
        "Error running script (call to f_ab): @user_script:8: -OOM command not allowed when used memory",
        "Error running script (call to f_ab): @user_script:8: -READONLY You can't write against a read",
    ],
)
def test_what_passes_is_worth_another_try(said: str) -> None:
    with pytest.raises(LogUnavailable, match="can't do that now"), translated("here"):
        raise redis.ResponseError(said)


def test_what_does_not_pass_is_no_reason_to_try_again() -> None:
    with pytest.raises(LogError) as raised, translated("here"):
        raise redis.ResponseError("WRONGTYPE Operation against a key holding the wrong kind of value")
    assert not isinstance(raised.value, LogUnavailable)


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"redis_version": "6.0.16"}, r"version 6\.0\.16 \(6\.2 or newer is needed\)"),
        ({"redis_version": "5.0.3"}, "6.2 or newer"),
        ({}, "version unknown"),
        ({"redis_version": "7.2.4", "maxmemory": 100, "maxmemory_policy": "allkeys-lru"}, "evict.*noeviction"),
    ],
)
async def test_an_unsuitable_server_is_refused_at_open(facts: dict[str, object], said: str) -> None:
    client = FakeRedis()
    client.facts = facts
    with pytest.raises(UsageError, match=said):
        await RedisLog(client, "c").open()


# --- connections ----------------------------------------------------------------------------------------------


async def test_tls_and_password_work_and_their_lack_is_said_in_one_line_without_the_password() -> None:
    with real_redis(password=SECRET, tls=True) as server:
        trusted = f"{server.url}?ssl_ca_certs={server.ca_file}"
        log = RedisLog(trusted, "c")
        begun = await log.open()
        assert (await log.append(batch(1), epoch=begun.epoch)).first == 2
        await log.close()
        lax = RedisLog(f"{server.url}?ssl_cert_reqs=none&ssl_check_hostname=false", "c")
        assert (await lax.open()).offset == 2
        await lax.close()
        with sync_client(trusted) as blocking:
            assert blocking.ping()

        wrong_password = re.sub(r"//.*@", "//:wrong-one@", trusted)
        for url, said in (
            (server.url, "no TLS connection"),
            (wrong_password, "refuses us"),
            (re.sub(r"//.*@", "//", trusted), "refuses us"),
        ):
            refused = RedisLog(url, "c")
            with pytest.raises(UsageError, match=said) as raised:
                await refused.open()
            assert "\n" not in str(raised.value)
            assert "s3cret" not in str(raised.value)
            assert "wrong-one" not in str(raised.value)
            await refused.close()


async def test_tls_to_a_port_that_speaks_none_is_said(redis_server: RealRedis) -> None:
    # Such a server waits for the rest of a command, for ever.
    log = RedisLog(f"rediss://127.0.0.1:{redis_server.port}/8?socket_connect_timeout=0.2", "c")
    with pytest.raises(LogUnavailable, match="does that port speak TLS"):
        await log.open()
    await log.close()


@pytest.mark.parametrize(
    "url", ["redis://127.0.0.1:{port}/0", "redis://no-such-host.invalid/0", "unix:///no/such/socket"]
)
async def test_no_server_is_said_in_one_line_and_worth_another_try(url: str) -> None:
    log = RedisLog(url.format(port=free_port()), "c")
    with pytest.raises(LogUnavailable, match="doesn't answer") as raised:
        await log.open()
    assert "\n" not in str(raised.value)
    await log.close()


@pytest.mark.parametrize(
    "url",
    [
        "localhost:6379",
        "http://localhost",
        f"redis://:{SECRET}localhost:6379/0",
        "redis://:s3cret@localhost:99999999/0",
        "redis://:s3cret@localhost/0?no_such_option=1",
        "redis://:s3cret@localhost/0?decode_responses=True",
        "rediss://:s3cret@localhost/0?ssl_cert_reqs=perhaps",
        "redis://:s3cret@localhost/nine",
        "",
    ],
)
def test_a_url_that_cannot_be_used_is_refused_in_one_line_without_the_password(url: str) -> None:
    with pytest.raises(UsageError) as raised:
        connect(url)
    assert "\n" not in str(raised.value)
    assert "s3cret" not in str(raised.value)


def test_a_missing_certificate_file_is_refused() -> None:
    with pytest.raises(UsageError, match=r"ssl_ca_certs: no file /no/such/file\.pem"):
        connect("rediss://:s3cret@localhost/0?ssl_ca_certs=/no/such/file.pem")


def test_a_url_is_shown_without_user_password_and_options() -> None:
    assert redacted("rediss://me:s3cret@redis.example:7000/2?ssl_cert_reqs=none") == "rediss://redis.example:7000/2"
    assert redacted("redis://localhost") == "redis://localhost:6379"
    assert redacted("unix://me:s3cret@/run/redis.sock?db=1") == "unix:///run/redis.sock"


@pytest.mark.parametrize("cluster", ["", "a b", "{x}", "a:b", "x" * 64])
def test_a_cluster_name_that_would_break_the_keys_is_refused(cluster: str) -> None:
    with pytest.raises(UsageError, match="cluster name"):
        RedisLog("redis://localhost", cluster)


# --- opening by what the user types, and copying into a file ---------------------------------------------------


async def test_reading_only_writes_nothing_to_a_redis_without_a_log(redis_server: RealRedis) -> None:
    async with emptied(redis_server) as url:
        with pytest.raises(UsageError, match="no log"):
            await open_log(url, "c")
        async with redis.asyncio.Redis.from_url(url) as client:
            assert await client.dbsize() == 0


async def test_reading_only_refuses_to_write_to_a_log_in_redis(redis_server: RealRedis) -> None:
    async with emptied(redis_server) as url:
        writer = RedisLog(url, "c")
        end = await writer.open()
        reader = await open_log(url, "c")
        for write in (
            reader.append(batch(1), epoch=end.epoch),
            reader.begin_epoch(lost=end.epoch, reason="", time_ms=0),
            reader.put_snapshot(StoredSnapshot(end, b"")),
            reader.trim(9, epoch=end.epoch),
        ):
            with pytest.raises(LogError, match="reading only"):
                await write
        assert await writer.end() == end == await reader.end()
        for log in (writer, reader):
            await log.close()


async def test_a_copy_in_a_file_has_the_same_epoch_offsets_chain_and_snapshots(
    redis_server: RealRedis, tmp_path: Path
) -> None:
    async with emptied(redis_server) as url:
        source = RedisLog(url, "c")
        begun = await source.open()
        for seq in range(1, 250):
            await source.append(batch(seq, size=1 + seq % 3), epoch=begun.epoch)
        await source.put_snapshot(StoredSnapshot(begun, b"first"))
        await source.put_snapshot(StoredSnapshot(await source.end(), b"last"))
        await source.trim(100, epoch=begun.epoch)

        assert await copy_log(source, tmp_path / "log") == await source.end()

        copy = await open_log(str(tmp_path / "log"), "c")
        assert isinstance(copy, FileLog)
        assert (await copy.start(), await copy.end()) == (await source.start(), await source.end())
        assert await copy.read(await copy.start()) == await source.read(await source.start())
        assert (await copy.newest_snapshot()) == (await source.newest_snapshot())
        assert await copy.newest_snapshot(at_most=50) == StoredSnapshot(begun, b"first")
        for log in (source, copy):
            await log.close()


@pytest.mark.parametrize("target", ["rdis://me:s3cret@localhost", "s4://bucket/path"])
async def test_a_target_of_an_unknown_scheme_is_refused(target: str) -> None:
    with pytest.raises(UsageError, match=r"^(?!.*s3cret).*can't be used as an archive"):
        await open_log(target, "c")


async def test_epochs_that_ended_are_read_from_the_streams_that_are_kept(redis_server: RealRedis) -> None:
    async with emptied(redis_server) as url:
        log = RedisLog(url, "c")
        begun = await log.open()
        for seq in range(1, 30):
            await log.append(batch(seq, size=2), epoch=begun.epoch)
        stored = await log.read_stored(Position(begun.epoch, 0, ""))
        assert await log.old_epochs() == []
        await log.begin_epoch(lost=begun.epoch, reason="test", time_ms=begun.epoch + 5)
        assert await log.old_epochs() == [begun.epoch]
        assert await log.old_end(begun.epoch) == (0, stored[-1].last)
        assert await log.old_end(begun.epoch + 1) == (0, 0)
        after = Position(begun.epoch, stored[4].last, stored[4].chain)
        assert list(await log.read_old(after, 10)) == stored[5:15]
        await log.close()


async def test_an_epoch_that_ended_is_archived_and_read_again(redis_server: RealRedis, tmp_path: Path) -> None:
    async with emptied(redis_server) as url:
        log = RedisLog(url, "c")
        begun = await log.open()
        for seq in range(1, 30):
            await log.append(batch(seq, size=2), epoch=begun.epoch)
        whole = await log.read(Position(begun.epoch, 0, ""))
        await log.begin_epoch(lost=begun.epoch, reason="test", time_ms=begun.epoch + 5)
        clock = SystemClock()
        follower = Follower(log, clock=clock, metrics=Metrics(clock), reader="test")
        await follower.start()
        archive_writer = ArchiveWriter(FolderStore(tmp_path / "c"), every_events=20)
        archiving = ArchiveRole(
            parts(
                follower=follower,
                stream=log,
                lease=Alone(),
                clock=clock,
                settings={"archive_every_events": 20, "archive_every_s": 3600},
            ),
            archive_writer,
        )
        assert await archiving.once()
        old = await open_log(str(tmp_path), "c", epoch=begun.epoch)
        assert [entry async for entry in entries(old, await old.start())] == list(whole)
        assert len(await old.snapshot_marks()) > 1
        for one in (old, log):
            await one.close()


class Alone:
    async def acquire(self) -> bool:
        return True
