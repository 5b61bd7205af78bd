"""The running processes, their shares, and how far each has read: heartbeats and leases in Redis.

All of this serves efficiency only. If two members both claim a job, or two processes hold one lease, some work is done
twice; the log decides whose decision counts. Only the Redis server's clock judges expiry, so clocks of members may
differ.

Redis keys: the hash `arranger:<cluster>:members` (member id -> JSON and its expiry), and the string
`arranger:<cluster>:lease:<name>` (the holder's id, with a time to live).
"""

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Iterable
from typing import Any

import msgspec
import redis.asyncio
from redis.exceptions import RedisError

from arranger import __version__
from arranger.clock import Clock
from arranger.errors import LogUnavailable, WritesRefused
from arranger.events.redis_connection import refuses_writes
from arranger.logs import log_event
from arranger.projections.formats.layouts import LAYOUT
from arranger.workers.flow.backoff import Backoff
from arranger.workers.members.problems import MemberProblem
from arranger.workers.members.timekeeping import Timekeeper
from arranger.workers.members.writes import Writes

_log = logging.getLogger(__name__)

#: Every role, in the order of the path from Kubernetes through the log and back.
ROLES = ("watcher", "controller", "scheduler", "applier", "maintenance")
#: What a process may do besides: it answers questions. Without any, those who are asked do it themselves.
ANALYST = "analyst"
#: A member whose heartbeat is this many periods old no longer counts as live.
MISSED_BEATS = 3

# KEYS: members. ARGV: own id, own record, its validity in milliseconds (0: leave; negative: only read).
# Returns the server's time in milliseconds, then the records of all live members. Removes expired and malformed ones.
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

# KEYS: lease. ARGV: holder, milliseconds. Takes a free lease or renews the holder's own.
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

# KEYS: lease. ARGV: holder. Deletes the holder's own lease, never another's.
_GIVE_BACK = """
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
"""


class Member(msgspec.Struct, frozen=True):
    """One running process: its roles, and the epoch and offset up to which it has folded the log.

    Times in milliseconds: `lag_ms` since when it knows of events that it hasn't folded, `heartbeat_ms` its period.
    `layout` is the latest snapshot layout that it reads; 0 for one that doesn't report it.
    `aside`: it may not write now (because of its clock or its cluster), so other members take its share of the jobs.
    """

    id: str
    roles: tuple[str, ...]
    epoch: int
    offset: int
    started_ms: int
    lag_events: int = 0
    lag_ms: int = 0
    heartbeat_ms: int = 0
    layout: int = 0
    problems: tuple[MemberProblem, ...] = ()
    aside: bool = False
    #: Of Arranger; "" for a release that doesn't report it.
    version: str = ""


def owner(key: str, members: Iterable[str]) -> str | None:
    """The member that owns `key` (rendezvous hashing): the same for every process that sees the same members.

    A member that joins or leaves moves only its own share of the keys. None without members.
    """
    return max(members, key=lambda member: (_weight(key, member), member), default=None)


def _weight(key: str, member: str) -> bytes:
    # The separator can't occur in a member id, so no two pairs produce the same text.
    return hashlib.blake2b(f"{member}\x00{key}".encode(), digest_size=8).digest()


class Membership:
    """One process among the members of its cluster. Calls raise `LogUnavailable` while Redis is unreachable."""

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
        """`timekeeper` receives the server's time from each reply; while it finds our clock wrong, others do our share.

        `writes` learns whether heartbeats are accepted.
        """
        self.member_id = member_id
        #: The latest snapshot layout that this process reads; it also writes this one.
        self.layout = layout
        self._clock = clock
        self._heartbeat_s = heartbeat_s
        self._timekeeper = timekeeper
        self._writes = writes
        self._aside = False
        #: Set while the last heartbeat says otherwise of `_aside`.
        self._turned = asyncio.Event()
        self._told = Member(
            *(member_id, roles, 0, 0, clock.now_ms()),
            heartbeat_ms=round(heartbeat_s * 1000),
            layout=layout,
            version=__version__,
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
        """Set what the next heartbeat reports: how far this process has folded, its lag in events and seconds, and its
        problems."""
        lag_events, lag_s = lag
        self._told = msgspec.structs.replace(
            self._told, epoch=epoch, offset=offset, lag_events=lag_events, lag_ms=round(lag_s * 1000), problems=problems
        )

    def stand_aside(self, aside: bool) -> None:
        """Set whether this process may not write for a reason other than its clock. A change is reported at once: if
        all stood aside until their next heartbeats, as when the first ones start, nobody would have a share."""
        if aside != self._aside:
            self._aside = aside
            self._turned.set()

    async def compare_clocks(self) -> None:
        """Request the server's time until it arrives: nothing is written before the clocks were compared."""
        backoff = Backoff(self._clock)
        while self._timekeeper is not None and self._timekeeper.offset_ms() is None:
            try:
                await self._exchange(-1)
            except LogUnavailable as problem:
                log_event(_log, "Redis doesn't tell its time", level=logging.WARNING, problem=problem.message)
                await backoff.wait()

    async def join(self) -> None:
        """Send one heartbeat: from now on this member is seen, and entries that it hasn't folded are not trimmed."""
        await self._exchange(int(self._heartbeat_s * MISSED_BEATS * 1000))

    async def leave(self) -> None:
        """Leave at once, without waiting for the expiry."""
        await self._exchange(0)

    async def run(self) -> None:
        """Send heartbeats until cancelled; an outage of Redis is logged once and retried."""
        reachable = True
        while True:
            self._turned.clear()
            try:
                await self.join()
                if not reachable:
                    log_event(_log, "heartbeats reach Redis again")
                reachable = True
            except LogUnavailable as problem:
                if reachable:
                    log_event(_log, "heartbeat failed", level=logging.WARNING, problem=problem.message)
                reachable = False
            if reachable:
                await self._rest()
            else:
                await self._clock.sleep(self._heartbeat_s)

    async def _rest(self) -> None:
        """Wait until the next heartbeat is due, or this process begins or ends to stand aside."""
        tasks = [asyncio.ensure_future(one) for one in (self._clock.sleep(self._heartbeat_s), self._turned.wait())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()

    async def live(self, role: str | None = None) -> tuple[Member, ...]:
        """The members alive now, by id; only those with a role if one is given."""
        await self._exchange(-1)
        return self.seen(role)

    def seen(self, role: str | None = None) -> tuple[Member, ...]:
        """The members that were alive at the last exchange with Redis; sends no request."""
        return tuple(member for member in self._seen if role is None or role in member.roles)

    def owns(self, key: str, role: str) -> bool:
        """Whether `key` is in this member's share, among the last seen members of a role that may write."""
        return owner(key, (member.id for member in self.seen(role) if not member.aside)) == self.member_id

    async def slowest_offset(self, epoch: int) -> int | None:
        """The lowest offset that a live member has folded in this epoch: later entries must not be trimmed.

        A member that has joined but hasn't loaded a state yet (epoch 0) counts as offset 0. None without members.
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
    """A member's record, None if unreadable: a record of another version must not stop the heartbeat."""
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
    """The holder of a lease and the milliseconds until it expires; None if it is free. Raises `LogUnavailable`."""
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
    """The right to do something alone for a while. It is a hint: a paused holder may not notice its expiry."""

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
        """Release the lease if it is ours. Raises `LogUnavailable`; the lease then expires by itself."""
        await self._ask(self._give_back(keys=[self._key], args=[self.holder]))

    async def _ask(self, request: Awaitable[Any]) -> Any:
        try:
            return await request
        except (RedisError, OSError) as problem:
            raise LogUnavailable(f"Redis doesn't answer for the lease {self.name}: {problem}") from problem
