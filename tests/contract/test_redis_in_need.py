"""What else than the log needs a Redis that is full, or a read-only replica: members, leases and ticks wait for it."""

import asyncio

import pytest
import redis.asyncio

from arranger.clock import SystemClock
from arranger.errors import LogUnavailable, WritesRefused
from arranger.events.kinds import Batch, ObjectGone, Watched
from arranger.events.redis_log import RedisLog
from arranger.metrics import Metrics
from arranger.workers.health.status import read_store
from arranger.workers.members.membership import Lease
from arranger.workers.members.ticks import Ticker, TickLoop
from arranger.workers.members.writes import Writes
from tests.members import connected, member
from tests.servers import RealRedis, free_port

pytestmark = pytest.mark.timeout(120)


def _lease(client: redis.asyncio.Redis, name: str, holder: str) -> Lease:
    return Lease(client, cluster="c", name=name, holder=holder, clock=SystemClock())


async def test_a_full_server_takes_what_needs_no_memory_and_the_rest_when_it_has_room_again(
    own_redis: RealRedis,
) -> None:
    async with connected(own_redis) as client:
        one, other = member(client, "c", "one"), member(client, "c", "other")
        held, desired = _lease(client, "nodes", "one"), _lease(client, "pods", "one")
        await one.join()
        assert await held.acquire()
        own_redis.command("CONFIG", "SET", "maxmemory", "1")
        with pytest.raises(LogUnavailable):
            await other.join()
        with pytest.raises(LogUnavailable):
            await desired.acquire()
        assert await held.acquire()  # who watches goes on watching
        assert [each.id for each in await one.live()] == ["one"]
        await held.release()
        own_redis.command("CONFIG", "SET", "maxmemory", "0")
        await other.join()
        assert await desired.acquire()


async def test_a_server_at_its_limit_is_full_although_it_accepts_small_writes(own_redis: RealRedis) -> None:
    writes = Writes(Metrics(SystemClock()), SystemClock())
    async with connected(own_redis) as client:
        one = member(client, "c", "one", writes=writes)
        await one.join()
        own_redis.command("CONFIG", "SET", "maxmemory", str(int(own_redis.info("memory")["used_memory"]) + 150_000))
        await one.join()
        assert not own_redis.command("SET", "large", "x" * 500_000).startswith(b"+OK")
        await one.join()  # a heartbeat is small
        await writes.look(client)
        assert writes.problem is not None
        await one.join()
        assert writes.problem is not None


async def test_a_read_only_replica_can_be_asked_who_lives_and_gives_no_lease(own_redis: RealRedis) -> None:
    async with connected(own_redis) as client:
        one, held = member(client, "c", "one"), _lease(client, "nodes", "one")
        await one.join()
        assert await held.acquire()
        own_redis.command("REPLICAOF", "127.0.0.1", str(free_port()))
        for refused in (one.join(), held.acquire()):
            with pytest.raises(LogUnavailable):
                await refused
        assert [each.id for each in await one.live()] == ["one"]
        own_redis.command("REPLICAOF", "NO", "ONE")
        await one.join()
        assert await held.acquire()


IN_NEED = [
    (("CONFIG", "SET", "maxmemory", "1"), ("CONFIG", "SET", "maxmemory", "0")),
    (("REPLICAOF", "127.0.0.1", "1"), ("REPLICAOF", "NO", "ONE")),
]


@pytest.mark.parametrize(("begin", "end"), IN_NEED)
async def test_heartbeats_and_appends_tell_that_writes_are_refused_and_when_they_are_not_any_more(
    own_redis: RealRedis, begin: tuple[str, ...], end: tuple[str, ...]
) -> None:
    log, writes = RedisLog(own_redis.url, "c"), Writes(Metrics(SystemClock()), SystemClock())
    epoch = (await log.open()).epoch
    async with connected(own_redis) as client:
        one = member(client, "c", "one", writes=writes)
        own_redis.command(*begin)
        with pytest.raises(WritesRefused):
            await one.join()
        assert writes.problem is not None and [each.id for each in await one.live()] == []
        assert writes.problem is not None, "reading says nothing of writing"
        with pytest.raises(WritesRefused):
            await log.append(
                Batch("w", 1, SystemClock().now_ms(), (ObjectGone(Watched.NODE, 1, "", "n1", "uid"),)), epoch=epoch
            )
        own_redis.command(*end)
        await writes.look(client)
        await one.join()
        assert writes.problem is None
    await log.close()


async def test_a_server_that_takes_no_writes_says_why(own_redis: RealRedis) -> None:
    async with connected(own_redis) as client:
        well = await read_store(client)
        assert well.used_bytes > 0 and not (well.full or well.replica or well.disk_failing)
        own_redis.command(*IN_NEED[0][0])
        assert (await read_store(client)).full
        own_redis.command(*IN_NEED[0][1])
        own_redis.command(*IN_NEED[1][0])
        store = await read_store(client)
        assert store.replica and not store.full
        own_redis.command(*IN_NEED[1][1])
        assert not (await read_store(client)).replica


@pytest.mark.parametrize(("begin", "end"), IN_NEED)
async def test_ticks_come_again_when_the_server_takes_writes_again(
    own_redis: RealRedis, begin: tuple[str, ...], end: tuple[str, ...]
) -> None:
    handled = asyncio.Event()

    async def handle() -> None:
        handled.set()

    ticks = TickLoop(
        own_redis.url, cluster="c", member_id="m", handlers={"cycle": handle}, loop=asyncio.get_running_loop()
    )
    async with connected(own_redis) as client:
        ticker = Ticker(client, cluster="c", clock=SystemClock())
        own_redis.command(*begin)
        ticks.start()
        try:
            assert not await ticker.push("cycle")
            await asyncio.sleep(1.0)  # meanwhile rq's worker fails to begin, more than once
            own_redis.command(*end)
            assert await ticker.push("cycle")
            await handled.wait()
        finally:
            await ticks.stop(drain_s=0.5)
