"""The Redis users in deploy/redis-users, on a real server: each role works with its user, and none may do more."""

import asyncio
import re
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import aiohttp
import pytest
import redis
import redis.asyncio
from redis.exceptions import NoPermissionError, ResponseError

from arranger.clock import SystemClock
from arranger.errors import LogUnavailable
from arranger.events.fence import CLAIM, Fence
from arranger.events.kinds import Batch, ObjectGone, Watched
from arranger.events.log import Position, StoredSnapshot, entries
from arranger.events.redis_log import RedisLog
from arranger.feeds.following import Cursor, Following
from arranger.feeds.outbox import Outbox
from arranger.feeds.webhook import Filling
from arranger.metrics import Metrics
from arranger.projections import snapshot
from arranger.projections.state import State
from arranger.web.asking import Asker
from arranger.web.news import News
from arranger.web.server import ApiServer
from arranger.workers.flow.cancelling import end
from arranger.workers.health.status import read_store
from arranger.workers.members.membership import Lease, read_lease, read_members
from arranger.workers.members.tick_jobs import tick_job
from arranger.workers.members.ticks import Ticker, TickLoop
from tests.commands import Run
from tests.contract.test_signed_log import KEYED
from tests.members import member
from tests.servers import REPOSITORY, RealRedis
from tests.unit.test_web_api import events_of, until

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]

USERS = (REPOSITORY / "deploy" / "redis-users" / "users.acl").read_text()
CLUSTER = "default"
LOG = f"arranger:{{{CLUSTER}}}:"


@pytest.fixture
def server(own_redis: RealRedis) -> RealRedis:
    """A server with the users, whose passwords are the words in the file."""
    make_users(own_redis)
    return own_redis


def make_users(server: RealRedis) -> None:
    with redis.Redis.from_url(server.url) as client:
        for line in USERS.splitlines():
            _, name, *rules = split(line)
            client.execute_command("ACL", "SETUSER", name, *rules)


def split(line: str) -> list[str]:
    """The words of a line; a selector in parentheses is one word."""
    return re.findall(r"\([^)]*\)|\S+", line)


def url(server: RealRedis, role: str) -> str:
    return f"redis://arranger-{role}:{role.upper()}_PASSWORD@127.0.0.1:{server.port}/0"


@asynccontextmanager
async def client_of(server: RealRedis, role: str) -> AsyncIterator[redis.asyncio.Redis]:
    async with redis.asyncio.Redis.from_url(url(server, role)) as client:
        yield client


def batch(seq: int, writer: str) -> Batch:
    return Batch(writer, seq, time.time_ns() // 1_000_000, (ObjectGone(Watched.NODE, 1, "", f"n{seq}", "uid"),))


async def begun(server: RealRedis) -> tuple[RedisLog, int]:
    log = RedisLog(url(server, "decider"), CLUSTER, keys=KEYED)
    return log, (await log.open()).epoch


async def test_every_role_does_its_work_with_its_user(server: RealRedis) -> None:
    decider, epoch = await begun(server)
    watcher = RedisLog(url(server, "watcher"), CLUSTER, keys=KEYED, clock_bound_ms=10_000)
    applier = RedisLog(url(server, "applier"), CLUSTER, keys=KEYED, clock_bound_ms=10_000)
    for log in (watcher, applier):
        await log.open()
    claimed = await watcher.append(batch(1, "watcher"), epoch=epoch, fence=Fence("nodes", CLAIM))
    await watcher.append(batch(2, "watcher"), epoch=epoch, fence=Fence("nodes", claimed.first, "77"))
    await decider.append(batch(1, "decider"), epoch=epoch)
    await applier.append(batch(1, "applier"), epoch=epoch)
    await decider.put_snapshot(StoredSnapshot(await decider.end(), b"content"))
    assert await decider.trim(3, epoch=epoch) == 2
    for log in (watcher, applier):
        found = await log.newest_snapshot()
        assert found is not None and found.content == b"content"
        assert [entry.last async for entry in entries(log, await log.start())] == [3, 4, 5]
    for role, name in (("watcher", "watch-nodes"), ("decider", "archive"), ("applier", "")):
        async with client_of(server, role) as client:
            one = member(client, CLUSTER, role)
            await one.join()
            assert role in [each.id for each in await one.live()]
            if name:
                lease = Lease(client, cluster=CLUSTER, name=name, holder=role, clock=SystemClock())
                assert await lease.acquire() and await lease.acquire()
                await lease.release()
            await one.leave()
    await watcher.begin_epoch(lost=epoch, reason="test", time_ms=time.time_ns() // 1_000_000)
    assert await decider.old_epochs() == [epoch]
    for log in (watcher, decider, applier):
        await log.close()


@pytest.mark.parametrize("queues", [1, 3])
async def test_ticks_are_pushed_and_taken_by_deciders(server: RealRedis, queues: int) -> None:
    results = Counter[str]()

    async def cycle() -> None:
        if results["ok"]:
            raise ValueError("on purpose")

    others = {name: cycle for name in ("maintenance", "forecast")[: queues - 1]}
    ticks = TickLoop(
        url(server, "decider"), cluster=CLUSTER, member_id="m", handlers={"cycle": cycle, **others},
        loop=asyncio.get_running_loop(), keys=KEYED, told=lambda tick, result: results.update([result]),
    )  # fmt: skip
    killed = tick_job(CLUSTER, "cycle", redis.Redis(), keys=KEYED)
    with redis.Redis.from_url(server.url) as admin:
        admin.hset(killed.key, mapping=killed.to_dict() | {"status": "started"})
        admin.zadd(f"rq:wip:{killed.origin}", {f"{killed.id}:execution": 1})
        admin.sadd(f"rq:workers:{killed.origin}", "rq:worker:killed")
        ticks.start()
        async with client_of(server, "decider") as client:
            ticker = Ticker(client, cluster=CLUSTER, clock=SystemClock(), keys=KEYED)
            for count in (1, 2):
                await until(lambda: not admin.llen(f"rq:queue:{killed.origin}"))
                assert await ticker.push("cycle")
                await asyncio.wait_for(until(lambda count=count: results.total() == count), 20)
        await until(lambda: admin.zcard(f"rq:failed:{killed.origin}") == 2)
        assert admin.zcard(f"rq:finished:{killed.origin}") == 1
        (worker,) = admin.smembers(f"rq:workers:{killed.origin}")
        await until(lambda: admin.hget(worker, "state") == b"idle")
        assert admin.hmget(worker, "successful_job_count", "failed_job_count") == [b"1", b"1"]
        await ticks.stop()
        assert not admin.smembers("rq:workers")
        refused = [line for line in admin.acl_log() if line["reason"] == "command" and "client" not in line["object"]]
        assert [line for line in refused if line["username"] == "arranger-decider"] == []
    for role in ("watcher", "applier", "reader"):
        async with client_of(server, role) as client:
            assert not await Ticker(client, cluster=CLUSTER, clock=SystemClock(), keys=KEYED).push("cycle")


async def test_a_reader_reads_everything_that_commands_show(server: RealRedis) -> None:
    decider, epoch = await begun(server)
    await decider.append(batch(1, "decider"), epoch=epoch)
    await decider.put_snapshot(StoredSnapshot(await decider.end(), b"content"))
    reader = RedisLog(url(server, "reader"), CLUSTER, read_only=True, keys=KEYED)
    await reader.open()
    assert [entry.last async for entry in entries(reader, await reader.start())] == [1, 2]
    assert await reader.read(await reader.end(), wait_s=0.1) == []
    assert await reader.newest_snapshot() is not None
    async with client_of(server, "reader") as client:
        assert await read_members(client, CLUSTER) == {}
        assert await read_lease(client, CLUSTER, "watch-node") is None
        assert not (await read_store(client)).full
    await reader.close()
    await decider.close()


@pytest.mark.parametrize("role", ["watcher", "decider", "applier", "reader"])
def test_status_runs_in_the_pod_of_each_role(server: RealRedis, role: str, capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(_held_by_a_watcher(server))
    run = Run(capsys, "status", "--log", url(server, role), "-o", "json")
    assert not run.err
    assert {"node"} == {watch["kind"] for watch in run.json["watches"] if watch["holder"]}


async def _held_by_a_watcher(server: RealRedis) -> None:
    log, _ = await begun(server)
    await log.close()
    async with client_of(server, "watcher") as client:
        lease = Lease(client, cluster=CLUSTER, name="watch-node", holder="w", clock=SystemClock())
        assert await lease.acquire()


async def test_a_webhook_follows_the_log_and_writes_only_its_cursor_and_its_outbox(server: RealRedis) -> None:
    decider, epoch = await begun(server)
    await decider.append(batch(1, "decider"), epoch=epoch)
    await decider.put_snapshot(StoredSnapshot(await decider.end(), snapshot.encode(State(epoch=epoch, offset=2))))
    clock = SystemClock()
    log = RedisLog(url(server, "webhook"), CLUSTER, read_only=True)
    async with client_of(server, "webhook") as client:
        outbox = Outbox(client, CLUSTER)
        filling = Filling(outbox, cluster=CLUSTER, clock=clock, metrics=Metrics(clock))
        following = asyncio.create_task(Following(log, filling, clock).run())
        await decider.append(batch(2, "decider"), epoch=epoch)
        while await outbox.cursor() != Cursor(epoch, 3):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert [b"gap" in event.content for event in await outbox.first(9)] == [True]
        await outbox.remove((await outbox.first(1))[0])
        assert await outbox.waiting() == 0
        await end([following])
    await log.close()
    await decider.close()


async def test_the_api_answers_as_a_reader_and_writes_nothing(server: RealRedis) -> None:
    decider = RedisLog(url(server, "decider"), CLUSTER)
    epoch = (await decider.open()).epoch
    await decider.append(batch(1, "decider"), epoch=epoch)

    def content(of: redis.Redis) -> dict[bytes, bytes]:
        return {key: of.dump(key) for key in of.keys("*")}

    with redis.Redis.from_url(server.url) as admin:
        before = content(admin)
        program = (sys.executable, "-m", "arranger.cli.answering")
        asker = Asker(program, {"ARRANGER_REDIS_URL": url(server, "reader"), "ARRANGER_CLUSTER": CLUSTER})
        news = News(reader := RedisLog(url(server, "reader"), CLUSTER, read_only=True))
        api = ApiServer(news, asker, host="127.0.0.1", port=0)
        await api.start()
        try:
            async with aiohttp.ClientSession(f"http://127.0.0.1:{api.port}") as session, asyncio.timeout(120):
                await until(lambda: news.offset == 2)
                async with session.get("/api/v1/live") as live:
                    for path in ("replay", "queue", "events", "replay?at=1", "verify", "status"):
                        async with session.get(f"/api/v1/{path}") as response:
                            assert response.status == 200, await response.text()
                    assert content(admin) == before
                    await decider.append(batch(2, "decider"), epoch=epoch)
                    assert [name for name, _ in await events_of(live, 1)] == [f"{epoch}-3"]
        finally:
            await api.stop()
            await reader.close()
            await decider.close()


#: Command → the roles that may run it.
MAY = {
    ("XADD", LOG + "log", "*", "p", "x"): {"watcher", "decider", "applier"},
    ("XTRIM", LOG + "log", "MAXLEN", "1000"): {"decider"},
    ("XDEL", LOG + "log", "1-0"): set(),
    ("UNLINK", LOG + "log"): set(),
    ("DEL", LOG + "meta"): set(),
    ("UNLINK", LOG + "writers"): {"watcher", "decider"},
    ("RENAME", LOG + "log", LOG + "log:old:1"): {"watcher", "decider"},
    ("RENAME", LOG + "log", "elsewhere"): set(),
    ("HSET", LOG + "snapshots", "1", "x"): {"decider"},
    ("HSET", LOG + "cursors", "node", "x"): {"watcher"},
    ("SET", "arranger:default:lease:watch-node", "x"): {"watcher"},
    ("SET", "arranger:default:lease:archive", "x"): {"decider"},
    ("RPUSH", "rq:queue:arranger:default:cycle", "x"): {"decider"},
    ("HSET", "rq:job:x", "data", "x"): {"decider"},
    ("ZADD", "rq:finished:arranger:default:cycle", "1", "x"): {"decider"},
    ("ZADD", "rq:finished:arranger:other:cycle", "1", "x"): set(),
    ("XADD", "rq:results:x", "*", "p", "x"): {"decider"},
    ("XRANGE", LOG + "log", "-", "+"): {"watcher", "decider", "applier", "reader", "webhook"},
    ("XRANGE", "arranger:{other}:log", "-", "+"): set(),
    ("XADD", "arranger:{other}:log", "*", "p", "x"): set(),
    ("SET", LOG + "webhook:cursor", "1:1"): {"webhook"},
    ("XADD", LOG + "webhook:outbox", "*", "e", "x"): {"webhook"},
    ("XDEL", LOG + "webhook:outbox", "1-0"): {"webhook"},
    ("GET", "another"): set(),
    ("FLUSHALL",): set(),
    ("FLUSHDB",): set(),
    ("CONFIG", "SET", "maxmemory", "1"): set(),
    ("ACL", "LIST"): set(),
    ("KEYS", "*"): set(),
    ("SHUTDOWN",): set(),
    ("REPLICAOF", "127.0.0.1", "1"): set(),
    ("EVAL", "return 1", "0"): set(),
    ("PUBLISH", "channel", "x"): set(),
}


@pytest.mark.parametrize("role", ["watcher", "decider", "applier", "reader", "webhook"])
@pytest.mark.parametrize("words", MAY, ids=" ".join)
async def test_a_user_may_do_only_what_its_role_may(server: RealRedis, role: str, words: tuple[str, ...]) -> None:
    async with client_of(server, role) as client:
        refused = False
        try:
            await client.execute_command(*words)
        except NoPermissionError:
            refused = True
        except ResponseError as problem:  # it was allowed, and failed for another reason
            assert "no such key" in str(problem)
    assert refused == (role not in MAY[words])


@pytest.mark.parametrize("role", ["watcher", "applier", "reader"])
async def test_a_script_may_do_no_more_than_its_user(server: RealRedis, role: str) -> None:
    log, epoch = await begun(server)
    end = await log.end()
    other = RedisLog(url(server, role), CLUSTER, keys=KEYED)
    await other.open()
    for forbidden in (
        other.put_snapshot(StoredSnapshot(Position(epoch, end.offset, end.chain), b"x")),
        other.trim(5, epoch=epoch),
    ):
        with pytest.raises(LogUnavailable, match="refuses us"):
            await forbidden
    await other.close()
    await log.close()


@pytest.mark.parametrize("emptied", [True, False])
async def test_an_applier_begins_no_epoch_and_leaves_that_to_others(server: RealRedis, emptied: bool) -> None:
    log, epoch = await begun(server)
    applier = RedisLog(url(server, "applier"), CLUSTER, keys=KEYED)
    await applier.open()
    async with redis.asyncio.Redis.from_url(server.url) as admin:
        if emptied:
            await admin.flushall()
        before = await admin.hgetall(LOG + "meta")
        with pytest.raises(LogUnavailable, match="refuses us"):
            await applier.begin_epoch(lost=epoch, reason="", time_ms=time.time_ns() // 1_000_000)
        assert await admin.hgetall(LOG + "meta") == before
    another = await log.begin_epoch(lost=epoch, reason="", time_ms=time.time_ns() // 1_000_000)
    told = await applier.begin_epoch(lost=epoch, reason="", time_ms=time.time_ns() // 1_000_000)
    assert told == another
    with suppress(LogUnavailable):
        await applier.close()
    await log.close()
