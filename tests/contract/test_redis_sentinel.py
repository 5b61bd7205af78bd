"""The log and the ticks on a Redis that real Sentinels watch: with ACL users, TLS, and failovers."""

import asyncio
import contextlib
import re
from collections.abc import Iterator

import pytest
import redis.asyncio.sentinel
from redis.exceptions import RedisError

from arranger.errors import EpochLost, LogUnavailable, UsageError
from arranger.events.kinds import Batch, ObjectGone, Watched
from arranger.events.log import Appended
from arranger.events.redis_connection import connect, sync_client
from arranger.events.redis_log import RedisLog
from arranger.events.redis_urls import redacted, without_passwords
from tests.conftest import _required
from tests.sentinels import SENTINEL_PASSWORD, WatchedRedis, watched_redis
from tests.servers import free_port


@pytest.fixture
def group() -> Iterator[WatchedRedis]:
    with _required(), watched_redis() as running:
        yield running


def batch(seq: int) -> Batch:
    return Batch("w", seq, 1_000 + seq, (ObjectGone(Watched.NODE, 1, "", f"n{seq}", "uid"),))


async def again(log: RedisLog, batch: Batch, *, epoch: int) -> Appended:
    """The answer of an append that is tried until a server answers, as Arranger's processes do."""
    async with asyncio.timeout(30):
        while True:
            with contextlib.suppress(LogUnavailable):
                return await log.append(batch, epoch=epoch)
            await asyncio.sleep(0.05)


async def test_a_failover_that_loses_nothing_goes_on_in_the_same_epoch(group: WatchedRedis) -> None:
    log = RedisLog(group.url(tls=True), "c")
    begun = await log.open()
    await log.append(batch(1), epoch=begun.epoch)
    blocking = sync_client(group.url(tls=True))
    assert blocking.set("arranger:x", "1")
    group.primary.command("WAIT", "1", "5000")
    group.fail_over()
    assert (await again(log, batch(2), epoch=begun.epoch)).first == 3
    assert [entry.last for entry in await log.read(begun)] == [2, 3]
    with contextlib.suppress(RedisError):
        blocking.ping()  # the connection to the server that was killed
    assert blocking.get("arranger:x") == b"1"
    blocking.close()
    await log.close()


async def test_a_failover_to_a_replica_that_was_behind_is_a_lost_tail(group: WatchedRedis) -> None:
    log = RedisLog(group.url(), "c")
    begun = await log.open()
    group.primary.command("WAIT", "1", "5000")
    group.hold_back()
    await log.append(batch(1), epoch=begun.epoch)
    group.fail_over()
    with pytest.raises(EpochLost):
        await again(log, batch(2), epoch=begun.epoch)
    assert (await log.begin_epoch(lost=begun.epoch, reason="test", time_ms=0)).epoch == begun.epoch + 1
    await log.close()


async def test_wrong_passwords_are_told_apart_in_one_line_without_them(group: WatchedRedis) -> None:
    of_redis = re.sub(r"//.*@", "//scheduler:wr0ng@", group.url())
    of_sentinels = group.url().replace("sentinel_password=", "sentinel_password=wr0ng")
    for url, kind, said in (
        (of_redis, UsageError, "refuses us"),
        (of_sentinels, LogUnavailable, "no Sentinel names a primary of 'arranger'"),
        (group.url().replace("/arranger/", "/other/"), LogUnavailable, "no Sentinel names a primary of 'other'"),
    ):
        log = RedisLog(url, "c")
        with pytest.raises(kind, match=said) as raised:
            await log.open()
        assert "\n" not in str(raised.value) and len(str(raised.value)) < 400
        assert "wr0ng" not in str(raised.value) and SENTINEL_PASSWORD not in str(raised.value)
        await log.close()


async def test_a_replica_that_a_sentinel_names_is_not_used(
    group: WatchedRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def outdated(*_: object) -> tuple[str, int]:
        return "127.0.0.1", group.replica.port

    monkeypatch.setattr(redis.asyncio.sentinel.Sentinel, "discover_master", outdated)
    log = RedisLog(group.url(), "c")
    with pytest.raises(LogUnavailable, match="the server that Sentinel names is a replica"):
        await log.open()
    await log.close()


async def test_sentinels_that_are_gone_are_passed_over(group: WatchedRedis) -> None:
    gone = f"redis+sentinel://scheduler:p%40ss%3Aword%2F@127.0.0.1:{free_port()},"
    log = RedisLog(group.url().replace("redis+sentinel://scheduler:p%40ss%3Aword%2F@", gone), "c")
    assert (await log.open()).offset == 1
    await log.close()


@pytest.mark.parametrize(
    "url",
    [
        "redis+sentinel://a:26379",
        "redis+sentinel://a:26379/",
        "redis+sentinel://:s3cret@a:x/arranger",
        "redis+sentinel://a,,b/arranger",
        "redis+sentinel://a/arranger/nine",
        "redis+sentinel://a/arranger?sentinel_passwrd=s3cret",
        "redis+sentinel://a/arranger?no_such_option=s3cret",
        "rediss+sentinel://a/arranger?ssl_ca_certs=/no/such/file.pem&sentinel_password=s3cret",
    ],
)
def test_a_url_of_sentinels_that_cannot_be_used_is_refused_without_the_password(url: str) -> None:
    with pytest.raises(UsageError) as raised:
        connect(url)
    assert "\n" not in str(raised.value) and "s3cret" not in str(raised.value)


def test_a_url_of_sentinels_is_shown_without_passwords() -> None:
    url = "rediss+sentinel://me:s3cret@a:1,b/arranger/2?sentinel_password=s3cret&ssl_cert_reqs=none"
    assert redacted(url) == "rediss+sentinel://a:1,b:26379/arranger/2"
    masked = "rediss+sentinel://me:***@a:1,b/arranger/2?sentinel_password=***&ssl_cert_reqs=none"
    assert without_passwords(url) == masked
