"""Ticks on a real Redis: one waits at most, none is lost for long, and nothing pickled gets there."""

import asyncio
import concurrent.futures
import contextlib
import subprocess
import sys
import threading
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator

import pytest
import redis
import redis.asyncio

from arranger.clock import SystemClock
from arranger.events.log_keys import LogKeys
from arranger.workers.members.tick_jobs import queue_name, tick_job
from arranger.workers.members.ticks import Ticker, TickLoop
from tests.clocks import HOUR_MS, SetClock, compared
from tests.members import connected
from tests.servers import RealRedis

pytestmark = pytest.mark.timeout(120)


@contextlib.asynccontextmanager
async def ticker_of(server: RealRedis, cluster: str) -> AsyncIterator[Ticker]:
    async with connected(server) as client:
        yield Ticker(client, cluster=cluster, clock=SystemClock())


@contextlib.asynccontextmanager
async def working(server: RealRedis, cluster: str, **handlers: Callable[[], object]) -> AsyncIterator[TickLoop]:
    loop = TickLoop(
        server.url,
        cluster=cluster,
        member_id="m1",
        handlers=handlers,  # type: ignore[arg-type]
        loop=asyncio.get_running_loop(),
    )
    loop.start()
    try:
        yield loop
    finally:
        await loop.stop(drain_s=0.5)


async def until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110 - what is awaited happens in another thread or process
        await asyncio.sleep(0.01)


def waiting(server: RealRedis, cluster: str, tick: str) -> int:
    with redis.Redis.from_url(server.url) as client:
        return int(client.llen(f"rq:queue:{queue_name(cluster, tick)}"))  # type: ignore[arg-type]


def everything(client: "redis.Redis") -> Iterator[bytes]:
    """All bytes in Redis: key names and values, rq's compressed ones unpacked."""
    for key in client.scan_iter():
        yield key
        kind = client.type(key)
        if kind == b"hash":
            values = [part for pair in client.hgetall(key).items() for part in pair]
        elif kind == b"list":
            values = client.lrange(key, 0, -1)
        elif kind == b"set":
            values = list(client.smembers(key))
        elif kind == b"zset":
            values = client.zrange(key, 0, -1)
        elif kind == b"string":
            values = [client.get(key)]
        else:
            values = [part for _, fields in client.xrange(key) for pair in fields.items() for part in pair]
        for value in values:
            yield value
            with contextlib.suppress(zlib.error):
                yield zlib.decompress(value)


async def test_a_handler_runs_on_the_event_loops_thread(redis_server: RealRedis, cluster: str) -> None:
    ran: list[int] = []

    async def cycle() -> None:
        ran.append(threading.get_ident())

    async with ticker_of(redis_server, cluster) as ticker, working(redis_server, cluster, cycle=cycle):
        assert await ticker.push("cycle")
        await until(lambda: ran)
    assert ran == [threading.get_ident()]


async def test_a_process_with_a_wrong_clock_makes_and_takes_no_ticks(redis_server: RealRedis, cluster: str) -> None:
    clock, ran, dropped = SetClock(), list[bool](), list[str]()
    keeper = compared(clock)
    clock.ahead_ms = HOUR_MS

    async def cycle() -> None:
        ran.append(keeper.right)

    keys = LogKeys(["a" * 32])
    ticks = TickLoop(
        redis_server.url, cluster=cluster, member_id="m1", handlers={"cycle": cycle},
        loop=asyncio.get_running_loop(), dropped=dropped.append, keys=keys, clock=keeper,
    )  # fmt: skip
    async with connected(redis_server) as client:
        wrong = Ticker(client, cluster=cluster, clock=keeper, keys=keys)
        assert not await wrong.push("cycle") and not waiting(redis_server, cluster, "cycle")
        right = Ticker(client, cluster=cluster, clock=SystemClock(), keys=keys)
        assert await right.push("cycle")
        ticks.start()
        await until(lambda: client_names(redis_server, "m1"))
        await asyncio.sleep(0.3)
        assert waiting(redis_server, cluster, "cycle") == 1, "others may take it"
        clock.ahead_ms = 0
        await until(lambda: ran)
    await ticks.stop(drain_s=0.5)
    assert ran == [True] and dropped == []


def client_names(server: RealRedis, member_id: str) -> list[bytes]:
    """The workers of a member that rq knows."""
    with redis.Redis.from_url(server.url) as client:
        return [name for name in client.smembers("rq:workers") if member_id.encode() in name]


async def test_however_many_push_one_tick_waits(redis_server: RealRedis, cluster: str) -> None:
    async with (
        ticker_of(redis_server, cluster) as one,
        ticker_of(redis_server, cluster) as two,
        ticker_of(redis_server, cluster) as three,
    ):
        pushed = await asyncio.gather(*(ticker.push("cycle") for ticker in (one, two, three) for _ in range(30)))
        assert sum(pushed) == 1
        assert waiting(redis_server, cluster, "cycle") == 1
        assert await one.push("snapshot"), "ticks of another name wait in a queue of their own"


async def test_a_change_during_a_handler_gives_another_tick(redis_server: RealRedis, cluster: str) -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()
    runs = 0

    async def cycle() -> None:
        nonlocal runs
        runs += 1
        begun.set()
        await may_end.wait()

    async with ticker_of(redis_server, cluster) as ticker, working(redis_server, cluster, cycle=cycle):
        await ticker.push("cycle")
        await begun.wait()
        assert await ticker.push("cycle")
        assert not await ticker.push("cycle")
        may_end.set()
        await until(lambda: runs == 2)


async def test_no_pickle_reaches_redis(own_redis: RealRedis, cluster: str) -> None:
    seen: list[bytes] = []

    async def cycle() -> None:
        with redis.Redis.from_url(own_redis.url) as client:
            seen.extend(everything(client))

    async with ticker_of(own_redis, cluster) as ticker:
        await ticker.push("cycle")
        with redis.Redis.from_url(own_redis.url) as client:
            seen.extend(everything(client))
        async with working(own_redis, cluster, cycle=cycle):
            length = len(seen)
            await until(lambda: len(seen) > length)
        with redis.Redis.from_url(own_redis.url) as client:
            seen.extend(everything(client))
    # A pickle of protocol 2 and above begins with 0x80 and its number, and ends with a full stop.
    assert [value for value in seen if value[:1] == b"\x80" and value[1:2] in b"\x02\x03\x04\x05"] == []
    assert any(value.startswith(b'["arranger.workers.members.ticks.handle_tick"') for value in seen)


async def test_a_tick_that_is_done_leaves_only_names_that_rq_forgets_later(own_redis: RealRedis, cluster: str) -> None:
    done = 0

    async def cycle() -> None:
        nonlocal done
        done += 1

    async def failing() -> None:
        nonlocal done
        done += 1
        raise ValueError("on purpose")

    async with (
        ticker_of(own_redis, cluster) as ticker,
        working(own_redis, cluster, cycle=cycle, failing=failing),
    ):
        for count in range(1, 21):
            await ticker.push("cycle" if count % 2 else "failing")
            await until(lambda count=count: done == count)
    with redis.Redis.from_url(own_redis.url) as client:
        staying = {key for key in client.scan_iter() if client.ttl(key) == -1}
        tidied = {key: client.zcard(key) for key in staying - {b"rq:queues"}}
    registries = [
        f"rq:{state}:{queue_name(cluster, tick)}" for state, tick in (("finished", "cycle"), ("failed", "failing"))
    ]
    assert tidied == dict.fromkeys((name.encode() for name in registries), 10), "each of them is scored by its end"


async def test_a_handler_that_fails_is_logged_and_the_next_tick_runs(
    redis_server: RealRedis, cluster: str, caplog: pytest.LogCaptureFixture
) -> None:
    runs = 0

    async def cycle() -> None:
        nonlocal runs
        runs += 1
        if runs == 1:
            raise ValueError("on purpose")

    async with ticker_of(redis_server, cluster) as ticker, working(redis_server, cluster, cycle=cycle):
        await ticker.push("cycle")
        await until(lambda: runs == 1)
        await ticker.push("cycle")
        await until(lambda: runs == 2)
    failures = [record for record in caplog.records if record.message == "a tick's handler failed"]
    assert len(failures) == 1
    assert failures[0].exc_info and "on purpose" in str(failures[0].exc_info[1])


async def test_stopping_does_not_wait_for_a_tick(redis_server: RealRedis, cluster: str) -> None:
    async def cycle() -> None: ...

    loop = TickLoop(
        redis_server.url,
        cluster=cluster,
        member_id="m1",
        handlers={"cycle": cycle},
        loop=asyncio.get_running_loop(),
    )
    loop.start()
    await asyncio.sleep(0.3)
    await asyncio.wait_for(loop.stop(), timeout=30)
    async with ticker_of(redis_server, cluster) as ticker:
        await ticker.push("cycle")
    assert waiting(redis_server, cluster, "cycle") == 1
    with redis.Redis.from_url(redis_server.url) as client:
        assert client.smembers(f"rq:workers:{queue_name(cluster, 'cycle')}") == set()


async def test_stopping_cancels_a_handler_that_outlasts_the_drain(redis_server: RealRedis, cluster: str) -> None:
    begun, cancelled = asyncio.Event(), asyncio.Event()

    async def cycle() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async with ticker_of(redis_server, cluster) as ticker:
        async with working(redis_server, cluster, cycle=cycle):
            await ticker.push("cycle")
            await begun.wait()
        await cancelled.wait()


async def test_a_handler_that_misses_the_first_word_is_told_again_until_it_ends(
    redis_server: RealRedis, cluster: str
) -> None:
    begun, ended, told = asyncio.Event(), asyncio.Event(), 0

    async def cycle() -> None:
        nonlocal told
        begun.set()
        while told < 3:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                told += 1
        ended.set()

    async with ticker_of(redis_server, cluster) as ticker:
        async with working(redis_server, cluster, cycle=cycle):
            await ticker.push("cycle")
            await begun.wait()
        async with asyncio.timeout(20):
            await ended.wait()


async def test_rqs_own_tool_shows_workers_and_what_they_did(own_redis: RealRedis, cluster: str) -> None:
    results = Counter[str]()

    async def cycle() -> None: ...

    async def failing() -> None:
        raise ValueError("on purpose")

    async with ticker_of(own_redis, cluster) as ticker:
        ticks = TickLoop(
            own_redis.url, cluster=cluster, member_id="m1", handlers={"cycle": cycle, "failing": failing},
            loop=asyncio.get_running_loop(), told=lambda tick, result: results.update([result]),
        )  # fmt: skip
        ticks.start()
        for count in range(1, 6):
            await ticker.push("cycle" if count % 2 else "failing")
            await until(lambda count=count: results.total() == count)
        await until(lambda: "idle" in rq_info(own_redis, "--only-workers"))
        worker, queues = rq_info(own_redis, "--only-workers"), rq_info(own_redis, "--only-queues").splitlines()
        await ticks.stop()
    assert results == {"ok": 3, "failed": 2}
    assert worker.startswith("worker m1.") and worker.strip().endswith("jobs: 3 finished, 2 failed")
    assert sorted(queues) == [
        f"queue {queue_name(cluster, 'cycle')} 0, 0 executing, 3 finished, 0 failed",
        f"queue {queue_name(cluster, 'failing')} 0, 0 executing, 0 finished, 2 failed",
    ]
    assert rq_info(own_redis, "--only-workers") == ""


def rq_info(server: RealRedis, *options: str) -> str:
    """What `rq info` prints."""
    program = [sys.executable, "-m", "rq.cli", "info", "--url", server.url, "--raw", *options]
    return subprocess.run(program, check=True, capture_output=True, text=True).stdout


async def test_a_tick_of_a_killed_worker_is_counted_as_failed(own_redis: RealRedis, cluster: str) -> None:
    job = tick_job(cluster, "cycle", redis.Redis())
    with redis.Redis.from_url(own_redis.url) as client:
        client.hset(job.key, mapping=job.to_dict() | {"status": "started", "worker_name": "gone"})
        client.zadd(f"rq:wip:{job.origin}", {f"{job.id}:execution": 1})

        async def cycle() -> None: ...

        async with working(own_redis, cluster, cycle=cycle):
            await until(lambda: client.zscore(f"rq:failed:{job.origin}", job.id))
        assert client.hget(job.key, "status") == b"failed" and client.ttl(job.key) > 0
        assert client.zcard(f"rq:wip:{job.origin}") == 0


async def test_ticks_go_on_after_flushall(own_redis: RealRedis, cluster: str) -> None:
    runs = 0

    async def cycle() -> None:
        nonlocal runs
        runs += 1

    async with ticker_of(own_redis, cluster) as ticker, working(own_redis, cluster, cycle=cycle):
        await ticker.push("cycle")
        await until(lambda: runs == 1)
        own_redis.command("FLUSHALL")
        await ticker.push("cycle")
        await until(lambda: runs == 2)


async def test_ticks_go_on_after_redis_was_away(own_redis: RealRedis, cluster: str) -> None:
    runs = 0

    async def cycle() -> None:
        nonlocal runs
        runs += 1

    async with ticker_of(own_redis, cluster) as ticker, working(own_redis, cluster, cycle=cycle):
        await ticker.push("cycle")
        await until(lambda: runs == 1)
        own_redis.stop(kill=True)
        assert not await ticker.push("cycle")
        own_redis.start()
        period = asyncio.create_task(ticker.run("cycle", 0.1))
        await until(lambda: runs >= 2)
        period.cancel()


async def test_a_worker_registers_anew_after_redis_was_away(own_redis: RealRedis, cluster: str) -> None:
    """Redis may have lost everything meanwhile, and rq's own tool shows only workers that are registered."""

    async def cycle() -> None: ...

    def names() -> set[object]:
        with redis.Redis.from_url(own_redis.url) as client:
            return set(client.smembers("rq:workers"))  # type: ignore[arg-type]

    async with working(own_redis, cluster, cycle=cycle):
        await until(names)
        before = names()
        own_redis.stop(kill=True)
        await asyncio.sleep(0.2)
        own_redis.start()
        await until(lambda: names() - before)


async def test_a_tick_that_was_taken_before_a_stop_is_not_begun_after_it(redis_server: RealRedis, cluster: str) -> None:
    runs = 0

    async def cycle() -> None:
        nonlocal runs
        runs += 1

    async with working(redis_server, cluster, cycle=cycle) as loop:
        pass
    coroutine = cycle()
    with pytest.raises(concurrent.futures.CancelledError):
        loop.begin(coroutine)
    await asyncio.sleep(0.05)
    assert runs == 0


async def test_a_redis_that_hangs_does_not_hold_up_the_end(own_redis: RealRedis, cluster: str) -> None:
    ran = asyncio.Event()

    async def cycle() -> None:
        ran.set()

    async with ticker_of(own_redis, cluster) as ticker, working(own_redis, cluster, cycle=cycle) as loop:
        await ticker.push("cycle")
        await ran.wait()
        own_redis.daemon.freeze()
        try:
            # Far below what the connection's own time-outs would add up to.
            await asyncio.wait_for(loop.stop(drain_s=60), timeout=20)
        finally:
            own_redis.daemon.thaw()


async def test_a_redis_that_hangs_holds_up_nothing_on_the_event_loop(own_redis: RealRedis, cluster: str) -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def cycle() -> None:
        begun.set()
        await may_end.wait()

    async with ticker_of(own_redis, cluster) as ticker, working(own_redis, cluster, cycle=cycle):
        await ticker.push("cycle")
        await begun.wait()
        own_redis.daemon.freeze()
        try:
            may_end.set()  # now rq wants to write down how the job ended
            loop = asyncio.get_running_loop()
            for _ in range(20):
                asked_s = loop.time()
                await asyncio.sleep(0.05)
                assert loop.time() - asked_s < 2
        finally:
            own_redis.daemon.thaw()


async def test_ticks_wait_for_a_redis_that_comes_late(own_redis: RealRedis, cluster: str) -> None:
    ran = asyncio.Event()

    async def cycle() -> None:
        ran.set()

    own_redis.stop()
    async with ticker_of(own_redis, cluster) as ticker, working(own_redis, cluster, cycle=cycle):
        await asyncio.sleep(0.3)
        own_redis.start()
        assert await ticker.push("cycle")
        await ran.wait()


async def test_the_tick_of_a_killed_worker_does_not_stop_the_next(own_redis: RealRedis, cluster: str) -> None:
    program = (
        "import asyncio, sys\n"
        "from arranger.workers.members.ticks import TickLoop\n"
        "async def cycle():\n"
        "    print('begun', flush=True)\n"
        "    await asyncio.Event().wait()\n"
        "async def main():\n"
        "    loop = asyncio.get_running_loop()\n"
        "    TickLoop(sys.argv[1], cluster=sys.argv[2], member_id='m1', handlers={'cycle': cycle}, loop=loop).start()\n"
        "    await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    async with ticker_of(own_redis, cluster) as ticker:
        await ticker.push("cycle")
        victim = await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, own_redis.url, cluster, stdout=asyncio.subprocess.PIPE
        )
        try:
            assert victim.stdout is not None
            assert await victim.stdout.readline() == b"begun\n"
        finally:
            victim.kill()
            await victim.wait()
        ran = asyncio.Event()

        async def cycle() -> None:
            ran.set()

        assert await ticker.push("cycle")
        async with working(own_redis, cluster, cycle=cycle):
            await ran.wait()
