"""Members of a cluster on a real Redis, for the tests of what several processes are to each other."""

import contextlib
from collections.abc import AsyncIterator

import redis.asyncio

from arranger.clock import SystemClock
from arranger.workers.membership import Membership
from tests.servers import RealRedis


@contextlib.asynccontextmanager
async def connected(server: RealRedis) -> AsyncIterator[redis.asyncio.Redis]:
    """A client of the server, for as long as it is needed."""
    client = redis.asyncio.Redis.from_url(server.url)
    try:
        yield client
    finally:
        await client.aclose()


def member(client: redis.asyncio.Redis, cluster: str, name: str, *roles: str, heartbeat_s: float = 30.0) -> Membership:
    """A member that hasn't joined yet; of the controllers, unless roles are named."""
    roles = roles or ("controller",)
    return Membership(
        client, cluster=cluster, member_id=name, roles=roles, clock=SystemClock(), heartbeat_s=heartbeat_s
    )
