"""Clients that ask Sentinels for the primary, each time they connect.

Each new connection checks that it has reached a primary. A Sentinel that was cut off may name a server that was demoted
since: its replies are of the past, and a client that stayed there would wait for a primary for ever.
"""

from typing import Any

import redis.asyncio.sentinel
import redis.sentinel
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.connection import parse_url
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.retry import Retry

from arranger.events.redis_urls import Sentinels, sentinels_of

#: Seconds after which the next Sentinel is asked: a host that is gone doesn't even refuse.
SENTINEL_TIMEOUT_S = 2.0


def asyncio_client(url: str, **options: Any) -> "redis.asyncio.Redis":
    """An asyncio client for the primary; the URL's options have precedence. Raises `ValueError` for a wrong URL."""
    named = sentinels_of(url)
    given = options | _options(named)
    asked = _Asked(  # type: ignore[no-untyped-call]
        named.addresses, sentinel_kwargs=_for_sentinels(named, given, AsyncRetry(NoBackoff(), 0)), **given
    )
    client: redis.asyncio.Redis = asked.master_for(
        named.service, connection_pool_class=_Pool, redis_connect_func=_check_role
    )
    return client


def blocking_client(url: str, **options: Any) -> redis.Redis:
    """As `asyncio_client`, for threads."""
    named = sentinels_of(url)
    given = options | _options(named)
    asked = _BlockingAsked(  # type: ignore[no-untyped-call]
        named.addresses, sentinel_kwargs=_for_sentinels(named, given, Retry(NoBackoff(), 0)), **given
    )
    client: redis.Redis = asked.master_for(  # type: ignore[no-untyped-call]
        named.service, connection_pool_class=_BlockingPool, redis_connect_func=_check_role_blocking
    )
    return client


def _options(named: Sentinels) -> dict[str, Any]:
    """What the URL says of Redis, as arguments of a connection."""
    options = dict(parse_url(named.redis))  # type: ignore[no-untyped-call]
    options.pop("host", None)
    tls = options.pop("connection_class", None) is not None
    return options | ({"ssl": True} if tls else {})


def _for_sentinels(named: Sentinels, given: dict[str, Any], retry: Any) -> dict[str, Any]:
    """Arguments of the connections to Sentinels: the TLS of Redis, and a user of their own."""
    timeouts = {"socket_connect_timeout": SENTINEL_TIMEOUT_S, "socket_timeout": SENTINEL_TIMEOUT_S}
    tls = {name: value for name, value in given.items() if name.startswith("ssl")}
    return timeouts | tls | named.options | {"retry": retry}


class _Asked(redis.asyncio.sentinel.Sentinel):
    """Says in one line that no Sentinel names a primary: redis-py's text has every option of every connection."""

    async def discover_master(self, service_name: str) -> Any:
        try:
            return await super().discover_master(service_name)
        except redis.asyncio.sentinel.MasterNotFoundError:
            raise _no_primary(service_name) from None


class _BlockingAsked(redis.sentinel.Sentinel):
    """The same for threads."""

    def discover_master(self, service_name: str) -> Any:
        try:
            return super().discover_master(service_name)  # type: ignore[no-untyped-call]
        except redis.sentinel.MasterNotFoundError:
            raise _no_primary(service_name) from None


def _no_primary(service: str) -> RedisConnectionError:
    return RedisConnectionError(f"no Sentinel names a primary of {service!r}; are its name, password and TLS right?")


class _Pool(redis.asyncio.sentinel.SentinelConnectionPool):
    """Closes the connections to the Sentinels with its own."""

    async def aclose(self) -> None:
        await super().aclose()
        await self.sentinel_manager.aclose()


class _BlockingPool(redis.sentinel.SentinelConnectionPool):
    """The same for threads."""

    def disconnect(self, inuse_connections: bool = True) -> None:
        super().disconnect(inuse_connections)
        if inuse_connections:  # else the pool only leaves a primary for another
            for one in self.sentinel_manager.sentinels:
                one.close()


async def _check_role(connection: Any) -> None:
    await connection.on_connect()
    await connection.send_command("INFO", "replication")
    _check(await connection.read_response())


def _check_role_blocking(connection: Any) -> None:
    connection.on_connect()
    connection.send_command("INFO", "replication")
    _check(connection.read_response())


def _check(replication: Any) -> None:
    text = replication if isinstance(replication, bytes) else str(replication).encode()
    if b"role:master" not in text:
        raise RedisConnectionError("the server that Sentinel names is a replica")
