"""Members see each other, share the work without talking, and hold back trimming; on a real Redis."""

import asyncio
from collections.abc import Callable

import pytest
import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from arranger.clock import SystemClock
from arranger.errors import LogUnavailable
from arranger.workers.flow.cancelling import end
from arranger.workers.members.membership import Lease, Member, Membership, owner, read_lease, read_members
from arranger.workers.members.timekeeping import Timekeeper
from tests.interpreter import told_elsewhere
from tests.members import connected, member
from tests.servers import RealRedis, free_port

pytestmark = pytest.mark.timeout(60)

KEYS = [f"uid-{number}" for number in range(2000)]


class FrozenClock(SystemClock):
    """A monotonic clock that moves when told to."""

    def __init__(self) -> None:
        self.at_s = 100.0

    def monotonic_s(self) -> float:
        return self.at_s


def lease(client: redis.asyncio.Redis, cluster: str, holder: str, **changed: object) -> Lease:
    arguments = {"lease_s": 30.0, "clock": SystemClock()} | changed
    return Lease(client, cluster=cluster, name="watch.pod", holder=holder, **arguments)  # type: ignore[arg-type]


def test_every_key_has_an_owner_and_the_order_of_members_does_not_matter() -> None:
    owners = [owner(key, ["a", "b", "c"]) for key in KEYS]
    assert owners == [owner(key, ["c", "a", "b"]) for key in KEYS]
    shares = {name: owners.count(name) for name in ("a", "b", "c")}
    assert sum(shares.values()) == len(KEYS)
    assert all(0.8 < share / (len(KEYS) / 3) < 1.2 for share in shares.values())


def test_a_member_that_goes_moves_only_its_own_keys() -> None:
    for key in KEYS:
        before, after = owner(key, ["a", "b", "c"]), owner(key, ["a", "b"])
        assert after == before or before == "c"


def test_without_members_nobody_owns_a_key() -> None:
    assert owner("uid-1", []) is None


def test_every_process_names_the_same_owner() -> None:
    program = (
        "from arranger.workers.members.membership import owner\n"
        "print([owner(f'uid-{n}', ['a', 'b', 'c']) for n in range(50)])\n"
    )
    answers = {told_elsewhere(program, PYTHONHASHSEED=seed) for seed in ("1", "2")}
    assert answers == {str([owner(key, ["a", "b", "c"]) for key in KEYS[:50]]) + "\n"}


async def test_members_see_each_other_by_role(redis_server: RealRedis, cluster: str) -> None:
    async with connected(redis_server) as client:
        one = member(client, cluster, "one", "controller", "applier")
        two = member(client, cluster, "two")
        await one.join()
        await two.join()
        assert [m.id for m in await one.live("controller")] == ["one", "two"]
        assert [m.id for m in await two.live("applier")] == ["one"]
        assert all(one.owns(key, "applier") for key in KEYS[:20])
        assert all(one.owns(key, "controller") != two.owns(key, "controller") for key in KEYS)
        await two.leave()
        assert [m.id for m in await one.live()] == ["one"]


async def test_members_of_another_cluster_are_not_seen(redis_server: RealRedis, cluster: str) -> None:
    async with connected(redis_server) as client:
        await member(client, cluster, "one").join()
        await member(client, cluster + "x", "two").join()
        assert [m.id for m in await member(client, cluster, "three").live()] == ["one"]


async def test_a_member_that_stopped_beating_is_gone_after_three_beats(redis_server: RealRedis, cluster: str) -> None:
    async with connected(redis_server) as client:
        other = member(client, cluster, "other")
        await other.join()
        silent = member(client, cluster, "silent", heartbeat_s=0.1)
        await silent.join()
        assert [m.id for m in silent.seen()] == ["other", "silent"]
        while len(await other.live()) > 1:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        assert [m.id for m in other.seen()] == ["other"]
        assert await client.hlen(f"arranger:{cluster}:members") == 1  # type: ignore[misc]


async def test_a_member_that_beats_stays(redis_server: RealRedis, cluster: str) -> None:
    async with connected(redis_server) as client:
        task = asyncio.create_task(member(client, cluster, "beating", heartbeat_s=0.1).run())
        expiries: set[bytes] = set()
        while len(expiries) < 5:
            record = await client.hget(f"arranger:{cluster}:members", "beating")  # type: ignore[misc]
            if record is not None:
                expiries.add(record.split()[0])
            await asyncio.sleep(0.02)
        task.cancel()
        assert max(map(int, expiries)) - min(map(int, expiries)) > 300, "it outlived what one beat is worth"


async def test_trimming_waits_for_the_slowest_reader_of_the_epoch(redis_server: RealRedis, cluster: str) -> None:
    async with connected(redis_server) as client:
        fast, slow, stale = (member(client, cluster, name) for name in ("fast", "slow", "stale"))
        assert await fast.slowest_offset(2) is None
        for each, epoch, offset in ((fast, 2, 900), (slow, 2, 400), (stale, 1, 7)):
            each.progress(epoch, offset)
            await each.join()
        assert await fast.slowest_offset(2) == 400
        starting = member(client, cluster, "starting")
        await starting.join()
        assert await fast.slowest_offset(2) == 0
        starting.progress(2, 800)
        await starting.join()
        assert await fast.slowest_offset(2) == 400


async def test_an_unreadable_record_is_told_and_passed_over(
    redis_server: RealRedis, cluster: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with connected(redis_server) as client:
        one = member(client, cluster, "one")
        await client.hset(f"arranger:{cluster}:members", "odd", "99999999999999 not json")  # type: ignore[misc]
        await one.join()
        assert [m.id for m in one.seen()] == ["one"]
    assert "a member's record can't be read" in caplog.text


async def test_redis_away_is_log_unavailable() -> None:
    client = redis.asyncio.Redis(host="127.0.0.1", port=free_port(), retry=Retry(NoBackoff(), 0))
    with pytest.raises(LogUnavailable):
        await member(client, "c", "one").join()
    with pytest.raises(LogUnavailable):
        await lease(client, "c", "one").acquire()
    await client.aclose()


async def test_a_lease_has_one_holder(redis_server: RealRedis, cluster: str) -> None:
    async with connected(redis_server) as client:
        one, two = lease(client, cluster, "one"), lease(client, cluster, "two")
        taken = await asyncio.gather(one.acquire(), two.acquire())
        assert sorted(taken) == [False, True]
        holder, other = (one, two) if taken[0] else (two, one)
        assert await holder.acquire(), "a holder renews its own lease"
        assert not await other.acquire()
        await other.release()
        found = await read_lease(client, cluster, other.name)
        assert found is not None and found[0] == holder.holder, "nobody gives back another's lease"
        await holder.release()
        assert await other.acquire()


@pytest.mark.parametrize("record", ["", "nonsense", "soon {}", "99999999999999999 {}"])
async def test_what_is_no_member_s_record_stops_nobody_s_heartbeat(
    redis_server: RealRedis, cluster: str, record: str
) -> None:
    async with connected(redis_server) as client:
        await client.execute_command("HSET", f"arranger:{cluster}:members", "x", record)
        assert await read_members(client, cluster) == {}
        await member(client, cluster, "a").join()
        assert [one.id for one in await member(client, cluster, "b").live()] == ["a"]
        assert list(await read_members(client, cluster)) == ["a"]


async def test_a_lease_that_was_not_renewed_goes_to_another(redis_server: RealRedis, cluster: str) -> None:
    async with connected(redis_server) as client:
        one, two = lease(client, cluster, "one", lease_s=0.2), lease(client, cluster, "two")
        assert await one.acquire()
        while not await two.acquire():  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        assert not await one.acquire()


class Ahead(SystemClock):
    """A wall clock that is ahead."""

    ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


async def test_each_heartbeat_tells_how_far_the_clock_is_off(redis_server: RealRedis, cluster: str) -> None:
    async with connected(redis_server) as client:
        clock = Ahead()
        timekeeper = Timekeeper(clock, bound_ms=10_000)
        assert not timekeeper.right
        one = member(client, cluster, "one", timekeeper=timekeeper)
        await one.join()
        assert timekeeper.right
        clock.ahead_ms = 3_600_000
        assert not timekeeper.right


async def test_a_member_that_may_not_write_leaves_its_share_to_the_others(
    redis_server: RealRedis, cluster: str
) -> None:
    async with connected(redis_server) as client:
        clock = Ahead()
        one = member(client, cluster, "one", timekeeper=Timekeeper(clock, bound_ms=10_000))
        two = member(client, cluster, "two")
        for each in (one, two, one, two):  # the first heartbeat brings the time, the second tells what came of it
            await each.join()
        assert any(one.owns(key, "controller") for key in KEYS)
        clock.ahead_ms = 3_600_000
        await one.join()
        await two.join()
        assert all(two.owns(key, "controller") and not one.owns(key, "controller") for key in KEYS)
        two.stand_aside(True)
        await two.join()
        assert not any(two.owns(key, "controller") for key in KEYS), "nobody is left"


async def eventually_seen(of: Membership, holds: Callable[[tuple[Member, ...]], bool]) -> None:
    async with asyncio.timeout(20):
        while not holds(await of.live()):  # noqa: ASYNC110 (another process would be looked at like this)
            await asyncio.sleep(0.01)


async def test_processes_that_stood_aside_when_they_started_have_shares_at_once(
    redis_server: RealRedis, cluster: str
) -> None:
    """All that start with a new log stand aside until it holds the cluster. Jobs that came meanwhile would wait for a
    heartbeat, and then for a sweep."""
    async with connected(redis_server) as client:
        one, two = (member(client, cluster, name, heartbeat_s=60.0) for name in ("one", "two"))
        for each in (one, two):
            each.stand_aside(True)
        running = [asyncio.create_task(each.run()) for each in (one, two)]
        try:
            await eventually_seen(one, lambda seen: len(seen) == 2)
            for each in (one, two):
                each.stand_aside(False)
            await eventually_seen(one, lambda seen: not any(each.aside for each in seen))
        finally:
            await end(running)
        assert any(one.owns(key, "controller") for key in KEYS)
