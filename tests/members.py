"""Members of a cluster with a real Redis and real clocks, for tests of the interaction of processes."""

import contextlib
from collections.abc import AsyncIterator

import redis.asyncio

from arranger.clock import Clock, SystemClock
from arranger.workers.members.membership import Membership
from arranger.workers.members.timekeeping import Timekeeper
from arranger.workers.members.writes import Writes
from tests.servers import RealRedis


class HandClock(Clock):
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def now_ms(self) -> int:
        return round(self.now_s * 1000)

    def monotonic_s(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        raise NotImplementedError


@contextlib.asynccontextmanager
async def connected(server: RealRedis) -> AsyncIterator[redis.asyncio.Redis]:
    """A client of the server, closed afterwards."""
    client = redis.asyncio.Redis.from_url(server.url)
    try:
        yield client
    finally:
        await client.aclose()


def member(
    client: redis.asyncio.Redis,
    cluster: str,
    name: str,
    *roles: str,
    heartbeat_s: float = 30.0,
    timekeeper: Timekeeper | None = None,
    writes: Writes | None = None,
) -> Membership:
    """A member that hasn't joined yet; by default one of the controllers."""
    roles = roles or ("controller",)
    return Membership(
        client, cluster=cluster, member_id=name, roles=roles, clock=SystemClock(), heartbeat_s=heartbeat_s,
        timekeeper=timekeeper, writes=writes,
    )  # fmt: skip
