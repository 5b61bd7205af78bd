"""The queues of questions on a real Redis: users take turns, the same is asked once, and what is taken back is gone."""

import asyncio
import contextlib
import zlib
from collections.abc import AsyncIterator

import pytest

from arranger.clock import SystemClock
from arranger.errors import ArrangerError, LogUnavailable
from arranger.events.log_keys import UNKEYED, LogKeys
from arranger.workers.analysis import work_queue
from arranger.workers.analysis.work_queue import TooManyWait, WorkQueue, packed, queue_of, signed_result
from tests.contract.test_signed_log import KEYED, OTHER
from tests.members import connected
from tests.servers import RealRedis

pytestmark = pytest.mark.timeout(60)


@contextlib.asynccontextmanager
async def asking(server: RealRedis, cluster: str, keys: LogKeys = UNKEYED) -> AsyncIterator[WorkQueue]:
    async with connected(server) as client:
        yield WorkQueue(client, cluster=cluster, clock=SystemClock(), keys=keys)


def words(number: object) -> list[str]:
    return ["replay", "--output=json", f"--at={number}", "--"]


async def test_users_take_turns_however_much_one_of_them_asks(redis_server: RealRedis, cluster: str) -> None:
    async with asking(redis_server, cluster) as queue:
        for number in range(4):
            await queue.ask(words(number), user="ann", kind="replay")
        for number in range(2):
            await queue.ask(words(10 + number), user="bob", kind="replay")
        await queue.ask(words(20), user="cid", kind="replay")
        assert [one.user for one in await queue.list()] == ["ann", "bob", "cid", "ann", "bob", "ann", "ann"]


async def test_who_comes_later_begins_in_the_present_round(redis_server: RealRedis, cluster: str) -> None:
    async with asking(redis_server, cluster) as queue, connected(redis_server) as client:
        for number in range(3):
            await queue.ask(words(number), user="ann", kind="replay")
        await client.lpop(f"rq:queue:{queue_of(cluster, 'interactive')}")
        await queue.ask(words(9), user="bob", kind="replay")
        waiting = [one for one in await queue.list() if one.user == "bob" or one.words != tuple(words(0))]
        assert [one.words[2] for one in waiting] == ["--at=1", "--at=9", "--at=2"]


async def test_the_same_is_asked_once_and_another_end_or_input_is_another_question(
    redis_server: RealRedis, cluster: str
) -> None:
    async with asking(redis_server, cluster) as queue:
        one = await queue.ask(words(1), user="ann", kind="replay")
        assert await queue.ask(words(1), user="bob", kind="replay", queue="report") == one
        others = {
            await queue.ask(words(1), user="ann", kind="replay", end="7"),
            await queue.ask(words(1), user="ann", kind="replay", given=b"x"),
            await queue.ask(words(2), user="ann", kind="replay"),
        }
        assert len(others | {one}) == 4
        found = await queue.work(one)
        assert found is not None
        assert (found.state, found.user, found.queue, found.words) == ("waiting", "ann", "interactive", tuple(words(1)))
        assert len(await queue.list()) == 4


async def test_the_queues_stand_in_their_order(redis_server: RealRedis, cluster: str) -> None:
    async with asking(redis_server, cluster) as queue:
        for name in ("archive", "report", "interactive"):
            await queue.ask(words(name), user="ann", kind="replay", queue=name)
        assert [one.queue for one in await queue.list()] == ["interactive", "report", "archive"]


async def test_a_waiting_question_is_taken_back_and_can_be_asked_again(redis_server: RealRedis, cluster: str) -> None:
    async with asking(redis_server, cluster) as queue, connected(redis_server) as client:
        one = await queue.ask(words(1), user="ann", kind="replay")
        assert await queue.cancel(one)
        assert not await queue.cancel(one)
        found = await queue.work(one)
        assert found is not None and found.state == "cancelled" and found.ended_ms
        assert not await client.llen(f"rq:queue:{queue_of(cluster, 'interactive')}")
        assert not await client.exists(f"rq:job:{one}")
        assert await queue.ask(words(1), user="ann", kind="replay") == one
        found = await queue.work(one)
        assert found is not None and found.state == "waiting"


async def test_no_more_wait_than_may(redis_server: RealRedis, cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_queue, "MOST_WAITING", 2)
    async with asking(redis_server, cluster) as queue:
        one = await queue.ask(words(1), user="ann", kind="replay")
        await queue.ask(words(2), user="ann", kind="replay", queue="report")
        with pytest.raises(TooManyWait):
            await queue.ask(words(3), user="bob", kind="replay")
        assert await queue.ask(words(1), user="bob", kind="replay") == one


async def test_what_no_job_may_hold_is_refused(redis_server: RealRedis, cluster: str) -> None:
    async with asking(redis_server, cluster) as queue:
        for wrong in (["x" * 513], ["x"] * 257):
            with pytest.raises(ArrangerError, match="can't be asked"):
                await queue.ask(wrong, user="ann", kind="replay")
        with pytest.raises(ArrangerError, match="can't be asked"):
            await queue.ask(words(1), user="ann", kind="replay", queue="urgent")
        with pytest.raises(ArrangerError, match="4 MiB"):
            await queue.ask(words(1), user="ann", kind="replay", given=b"x" * (4 << 20) + b"x")
        assert await queue.list() == []


async def test_an_answer_counts_with_a_signature_by_one_of_the_keys(redis_server: RealRedis, cluster: str) -> None:
    async with asking(redis_server, cluster, KEYED) as queue, connected(redis_server) as client:
        for signer, counts in ((KEYED, True), (OTHER, False), (UNKEYED, False)):
            signature = signer.tick_signature(*signed_result("one", b"out", b"", 0))
            fields = {"out": packed(b"out"), "err": packed(b""), "status": 0, "signature": signature}
            await client.hset(f"arranger:{cluster}:work:one:result", mapping=fields)
            assert (await queue.result("one") is not None) == counts


async def test_an_answer_that_is_none_or_too_large_is_none(redis_server: RealRedis, cluster: str) -> None:
    async with asking(redis_server, cluster) as queue, connected(redis_server) as client:
        for out in (b"junk", zlib.compress(b"x" * (33 << 20)), packed(b"cut off")[:-3]):
            fields = {"out": out, "err": packed(b""), "status": 0}
            await client.hset(f"arranger:{cluster}:work:one:result", mapping=fields)
            assert await queue.result("one") is None
        await client.hset(f"arranger:{cluster}:work:one", mapping={b"state": b"\xff", b"words": b"["})
        assert await queue.work("one") is None and await queue.work("two") is None


async def test_everything_in_redis_ends_by_itself(redis_server: RealRedis, cluster: str) -> None:
    async with asking(redis_server, cluster) as queue, connected(redis_server) as client:
        one = await queue.ask(words(1), user="ann", kind="replay", given=b"x")
        names = [f"rq:job:{one}", *[key async for key in client.scan_iter(f"arranger:{cluster}:work*")]]
        assert len(names) == 4
        for name in names:
            assert 0 < await client.ttl(name) <= 2 * 86_400


async def test_nobody_answers_where_no_analyst_lives(redis_server: RealRedis, cluster: str) -> None:
    async with asking(redis_server, cluster) as queue:
        assert await queue.analysts() == 0


async def test_a_redis_that_is_away_is_told(own_redis: RealRedis, cluster: str) -> None:
    async with asking(own_redis, cluster) as queue:
        own_redis.stop()
        for call in (queue.ask(words(1), user="a", kind="replay"), queue.list(), queue.cancel("x"), queue.work("x")):
            with pytest.raises(LogUnavailable):
                await asyncio.wait_for(call, 30)
