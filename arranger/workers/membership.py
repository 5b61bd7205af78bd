"""Who is running, who works on what, and how far everyone has read: heartbeats, shares and leases in Redis.

All of it serves efficiency only. Two members that both believe a job is theirs, or two holders of one lease, cost
some work done twice; the log decides whose decision counts. Expiry is judged by the Redis server's clock alone, so
clocks of members may differ.

Redis keys: the hash `arranger:<cluster>:members` (member id -> JSON and its expiry), and the string
`arranger:<cluster>:lease:<name>` (the holder's id, with a time to live).
"""

import hashlib
import logging
from collections.abc import Awaitable, Iterable
from typing import Any

import msgspec
import redis.asyncio
from redis.exceptions import RedisError

from arranger.clock import Clock
from arranger.errors import LogUnavailable, WritesRefused
from arranger.events.redis_connection import refuses_writes
from arranger.logs import log_event
from arranger.projections.layouts import LAYOUT
from arranger.workers.backoff import Backoff
from arranger.workers.member_problems import MemberProblem
from arranger.workers.timekeeping import Timekeeper
from arranger.workers.writes import Writes

_log = logging.getLogger(__name__)

#: Every role, in the order of the way from Kubernetes through the log and back.
ROLES = ("watcher", "controller", "scheduler", "applier", "maintenance")
#: A member whose heartbeat is this many periods old is gone.
MISSED_BEATS = 3

# KEYS: members. ARGV: own id, own record, milliseconds it is valid (0: leave; negative: only read).
# Answers the server's time in milliseconds, then the records of all live members; what has expired, or is no record, is
# removed on the way.
_BEAT = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local valid = tonumber(ARGV[3])
if valid > 0 then
  redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f', now + valid) .. ' ' .. ARGV[2])
elseif valid == 0 then
  redis.call('HDEL', KEYS[1], ARGV[1])
end
local live = {string.format('%.0f', now)}
local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  local expiry, record = string.match(all[i + 1], '^(%d+) (.*)$')
  if expiry and tonumber(expiry) > now then
    live[#live + 1] = record
  else
    redis.call('HDEL', KEYS[1], all[i])
  end
end
return live
"""

# KEYS: lease. ARGV: holder, milliseconds. Takes a free lease or renews one's own.
_TAKE = """
local holder = redis.call('GET', KEYS[1])
if holder == ARGV[1] then
  return redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
if holder then
  return 0
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
"""

# KEYS: lease. ARGV: holder. Gives back one's own lease, never another's.
_GIVE_BACK = """
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
"""


class Member(msgspec.Struct, frozen=True):
    """One running process: its roles, and the epoch and offset up to which it has folded the log.

    Times in milliseconds: `lag_ms` since when it knows of events that it hasn't folded, `heartbeat_ms` its period.
    `layout` is the latest layout of snapshots that it reads; the release that didn't tell it read up to layout 7.
    `aside`: it may not write now (its clock, or its cluster), so its share of the jobs is the others'.
    """

    id: str
    roles: tuple[str, ...]
    epoch: int
    offset: int
    started_ms: int
    lag_events: int = 0
    lag_ms: int = 0
    heartbeat_ms: int = 0
    layout: int = 7
    problems: tuple[MemberProblem, ...] = ()
    aside: bool = False


def owner(key: str, members: Iterable[str]) -> str | None:
    """The member that `key` belongs to (rendezvous hashing): the same for everyone who sees the same members.

    A member that comes or goes moves only its own share of the keys. None when there are no members.
    """
    return max(members, key=lambda member: (_weight(key, member), member), default=None)


def _weight(key: str, member: str) -> bytes:
    # The separator can't occur in a member id, so no two pairs run together.
    return hashlib.blake2b(f"{member}\x00{key}".encode(), digest_size=8).digest()


class Membership:
    """One process among the others of its cluster. Calls raise `LogUnavailable` while Redis can't be reached."""

    def __init__(
        self,
        client: redis.asyncio.Redis,
        *,
        cluster: str,
        member_id: str,
        roles: tuple[str, ...],
        clock: Clock,
        heartbeat_s: float = 3.0,
        layout: int = LAYOUT,
        timekeeper: Timekeeper | None = None,
        writes: Writes | None = None,
    ) -> None:
        """`timekeeper` is told the server's time with each answer; while it finds our clock wrong we stand aside.

        `writes` is told whether heartbeats are taken.
        """
        self.member_id = member_id
        #: The latest layout of snapshots that this process reads, which is the one that it writes.
        self.layout = layout
        self._clock = clock
        self._heartbeat_s = heartbeat_s
        self._timekeeper = timekeeper
        self._writes = writes
        self._aside = False
        self._told = Member(
            member_id, roles, 0, 0, clock.now_ms(), heartbeat_ms=round(heartbeat_s * 1000), layout=layout
        )
        self._key = _members_key(cluster)
        self._beat = client.register_script(_BEAT)
        self._seen: tuple[Member, ...] = (self._record(),)

    def progress(
        self,
        epoch: int,
        offset: int,
        *,
        lag: tuple[int, float] = (0, 0.0),
        problems: tuple[MemberProblem, ...] = (),
    ) -> None:
        """How far this process has folded, lags behind in events and seconds, and what is wrong with it; told with the
        next heartbeat."""
        lag_events, lag_s = lag
        self._told = msgspec.structs.replace(
            self._told, epoch=epoch, offset=offset, lag_events=lag_events, lag_ms=round(lag_s * 1000), problems=problems
        )

    def stand_aside(self, aside: bool) -> None:
        """Whether this process may not write for another reason than its clock; told with the next heartbeat."""
        self._aside = aside

    async def compare_clocks(self) -> None:
        """Ask for the server's time until it comes: nothing is written by a clock that nobody has compared."""
        backoff = Backoff(self._clock)
        while self._timekeeper is not None and self._timekeeper.offset_ms() is None:
            try:
                await self._exchange(-1)
            except LogUnavailable as problem:
                log_event(_log, "Redis doesn't tell its time", level=logging.WARNING, problem=problem.message)
                await backoff.wait()

    async def join(self) -> None:
        """Beat once: from now on this member is seen, and what it hasn't folded is not trimmed."""
        await self._exchange(int(self._heartbeat_s * MISSED_BEATS * 1000))

    async def leave(self) -> None:
        """Be gone at once, without waiting for the expiry."""
        await self._exchange(0)

    async def run(self) -> None:
        """Beat until cancelled; an outage of Redis is logged once and ends by itself."""
        reachable = True
        while True:
            try:
                await self.join()
                if not reachable:
                    log_event(_log, "heartbeats reach Redis again")
                reachable = True
            except LogUnavailable as problem:
                if reachable:
                    log_event(_log, "heartbeat failed", level=logging.WARNING, problem=problem.message)
                reachable = False
            await self._clock.sleep(self._heartbeat_s)

    async def live(self, role: str | None = None) -> tuple[Member, ...]:
        """The members alive now, by id; only those with a role if one is given."""
        await self._exchange(-1)
        return self.seen(role)

    def seen(self, role: str | None = None) -> tuple[Member, ...]:
        """The members that were alive at the last exchange with Redis; costs nothing."""
        return tuple(member for member in self._seen if role is None or role in member.roles)

    def owns(self, key: str, role: str) -> bool:
        """Whether `key` is this member's share among the members of a role that may write, as far as it has seen."""
        return owner(key, (member.id for member in self.seen(role) if not member.aside)) == self.member_id

    async def slowest_offset(self, epoch: int) -> int | None:
        """The lowest offset that a live member has folded in this epoch: what comes after must not be trimmed.

        A member that has joined and hasn't loaded anything yet (epoch 0) counts as offset 0. None without members.
        """
        members = await self.live()
        return min((m.offset for m in members if m.epoch in (0, epoch)), default=None)

    def _record(self) -> Member:
        wrong = self._timekeeper is not None and not self._timekeeper.right
        return msgspec.structs.replace(self._told, aside=self._aside or wrong)

    async def _exchange(self, valid_ms: int) -> None:
        arguments: list[str | bytes | int] = [self.member_id, msgspec.json.encode(self._record()), valid_ms]
        asked_s = self._clock.monotonic_s()
        try:
            told, *answer = await self._beat(keys=[self._key], args=arguments)
        except (RedisError, OSError) as problem:
            kind = WritesRefused if refuses_writes(problem) else LogUnavailable
            failure = kind(f"Redis doesn't take the heartbeat: {problem}")
            if self._writes is not None:
                self._writes.failed(failure)
            raise failure from problem
        if self._writes is not None and valid_ms > 0:
            self._writes.taken()
        if self._timekeeper is not None:
            self._timekeeper.server_said(int(told), asked_s=asked_s)
        members = [member for member in map(_decoded, answer) if member is not None]
        self._seen = tuple(sorted(members, key=lambda member: member.id))


def _members_key(cluster: str) -> str:
    return f"arranger:{cluster}:members"


def _decoded(content: bytes) -> Member | None:
    """A member's record. One of another version may tell more, or other things: no reason to stop beating."""
    try:
        return msgspec.json.decode(content, type=Member)
    except msgspec.DecodeError as problem:
        log_event(_log, "a member's record can't be read", level=logging.WARNING, problem=problem)
        return None


async def read_members(client: redis.asyncio.Redis, cluster: str) -> dict[str, tuple[Member, int]]:
    """The live members by id, each with the age of its heartbeat in milliseconds; changes nothing in Redis.

    Raises `LogUnavailable`.
    """
    try:
        async with client.pipeline(transaction=False) as pipe:
            pipe.time()
            pipe.hgetall(_members_key(cluster))
            (seconds, micros), records = await pipe.execute()
    except (RedisError, OSError) as problem:
        raise LogUnavailable(f"Redis doesn't tell its members: {problem}") from problem
    now_ms = seconds * 1000 + micros // 1000
    found: dict[str, tuple[Member, int]] = {}
    for record in records.values():
        expiry, _, content = record.partition(b" ")
        member = _decoded(content)
        if member is not None and expiry.isdigit() and int(expiry) > now_ms:
            beaten_ms = int(expiry) - MISSED_BEATS * member.heartbeat_ms
            found[member.id] = member, max(0, now_ms - beaten_ms) if member.heartbeat_ms else 0
    return dict(sorted(found.items()))


def _lease_key(cluster: str, name: str) -> str:
    return f"arranger:{cluster}:lease:{name}"


async def read_lease(client: redis.asyncio.Redis, cluster: str, name: str) -> tuple[str, int] | None:
    """Who holds a lease and the milliseconds until it runs out; None when it is free. Raises `LogUnavailable`."""
    key = _lease_key(cluster, name)
    try:
        async with client.pipeline(transaction=False) as pipe:
            pipe.get(key)
            pipe.pttl(key)
            holder, left_ms = await pipe.execute()
    except (RedisError, OSError) as problem:
        raise LogUnavailable(f"Redis doesn't tell who holds the lease {name}: {problem}") from problem
    return (holder.decode(), max(0, int(left_ms))) if holder is not None else None


class Lease:
    """The right to do something alone for a while. A hint: whoever holds it may be paused and not notice its end."""

    def __init__(
        self, client: redis.asyncio.Redis, *, cluster: str, name: str, holder: str, clock: Clock, lease_s: float = 15.0
    ) -> None:
        self.name = name
        self.holder = holder
        self._client = client
        self._clock = clock
        self._lease_s = lease_s
        self._key = _lease_key(cluster, name)
        self._take = client.register_script(_TAKE)
        self._give_back = client.register_script(_GIVE_BACK)

    async def acquire(self) -> bool:
        """Take the lease if it is free, or renew it if it is ours. Raises `LogUnavailable`."""
        return bool(await self._ask(self._take(keys=[self._key], args=[self.holder, int(self._lease_s * 1000)])))

    async def release(self) -> None:
        """Give the lease back if it is ours. Raises `LogUnavailable`; it runs out by itself then."""
        await self._ask(self._give_back(keys=[self._key], args=[self.holder]))

    async def _ask(self, request: Awaitable[Any]) -> Any:
        try:
            return await request
        except (RedisError, OSError) as problem:
            raise LogUnavailable(f"Redis doesn't answer for the lease {self.name}: {problem}") from problem
