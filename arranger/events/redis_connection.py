"""Connections to Redis: clients for URLs, and the translation of redis-py's errors to Arranger's.

URLs are redis-py's: `redis://`, `rediss://` (TLS; `?ssl_ca_certs=FILE`, `?ssl_cert_reqs=required|none`,
`?ssl_certfile=FILE&ssl_keyfile=FILE`) and `unix://`, with user and password; `redis_urls` says how Sentinels are named.
No message shows a password.
"""

import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import redis
import redis.asyncio
import redis.asyncio.sentinel
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import ConstantBackoff
from redis.exceptions import (
    AuthenticationError,
    AuthenticationWrongNumberOfArgsError,
    ClusterDownError,
    MasterDownError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry

from arranger.errors import LogError, LogUnavailable, UsageError, WritesRefused
from arranger.events.redis_sentinel import asyncio_client, blocking_client
from arranger.events.redis_urls import SCHEMES, names_sentinels, redacted, scheme_of
from arranger.tls import TlsServer

CONNECT_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 10.0

#: Error codes of a server that can't accept writes now.
WRITE_ERRORS = frozenset(("MISCONF", "NOREPLICAS", "OOM", "READONLY"))
#: And error codes that are temporary: the server recovers by itself or after an intervention.
PASSING_ERRORS = frozenset(("BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "TRYAGAIN", "UNBLOCKED", *WRITE_ERRORS))
#: How a server begins its refusal of a command in a script that its user may not run.
_NOT_PERMITTED = ("ACL failure in script", "NOPERM")
PASSING_CLASSES = (ClusterDownError, MasterDownError, OutOfMemoryError, ReadOnlyError, TryAgainError)


def connect(url: str) -> "redis.asyncio.Redis":
    """An asyncio client for the URL; nothing is sent yet. Raises `UsageError` for an unusable URL."""
    make = asyncio_client if names_sentinels(url) else redis.asyncio.Redis.from_url
    client = _client(make, url, AsyncRetry(ConstantBackoff(0.05), 1))
    assert isinstance(client, redis.asyncio.Redis)
    return client


def sync_client(url: str) -> redis.Redis:
    """A blocking client for the URL, as rq needs it. Raises `UsageError` for an unusable URL."""
    make = blocking_client if names_sentinels(url) else redis.Redis.from_url
    client = _client(make, url, Retry(ConstantBackoff(0.05), 1))
    assert isinstance(client, redis.Redis)
    return client


def _client(make: Callable[..., Any], url: str, retry: Any) -> Any:
    shown = redacted(url)
    if scheme_of(url) not in SCHEMES:
        raise UsageError(f"{shown!r} is no Redis URL", hint=f"use {', '.join(f'{one}://' for one in SCHEMES)}")
    try:
        client = make(url, socket_connect_timeout=CONNECT_TIMEOUT_S, socket_timeout=ANSWER_TIMEOUT_S, retry=retry)
        # Unknown options and unreadable certificates only raise when a connection is built.
        client.connection_pool.make_connection()
    except (ValueError, TypeError, OSError, RedisError):
        # Their text may contain parts of the URL, such as a password.
        raise UsageError(
            f"the Redis URL for {shown} can't be used",
            hint="check its port, its options and the files that they name; special characters need %-encoding",
        ) from None
    options = client.connection_pool.connection_kwargs
    if options.get("decode_responses"):
        raise UsageError(f"the Redis URL for {shown} can't be used", hint="leave decode_responses out")
    for option in ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile"):
        if options.get(option) and not Path(options[option]).is_file():
            raise UsageError(f"the Redis URL for {shown} can't be used", hint=f"{option}: no file {options[option]}")
    # redis-py treats a path that isn't a number as database 0.
    database = urlsplit(url).path.strip("/")
    if names_sentinels(url):
        database = database.partition("/")[2]
    if scheme_of(url) != "unix" and database and not database.isdecimal():
        raise UsageError(f"the Redis URL for {shown} can't be used", hint="its path is the number of a database")
    return client


async def tls_server(client: "redis.asyncio.Redis") -> TlsServer | None:
    """Redis as a new connection finds it, if it speaks TLS. Raises `LogUnavailable` if Sentinels name no primary."""
    pool: Any = client.connection_pool
    connection = pool.make_connection()
    if not isinstance(connection, redis.asyncio.SSLConnection):
        return None
    address = connection.host, connection.port
    if isinstance(pool, redis.asyncio.sentinel.SentinelConnectionPool):
        with translated("the Sentinels' address"):
            address = await pool.sentinel_manager.discover_master(pool.service_name)
    return TlsServer(*address, connection.ssl_context.get())


def tls_sentinels(client: "redis.asyncio.Redis") -> list[TlsServer]:
    """The Sentinels that the client asks, if they speak TLS."""
    pool: Any = client.connection_pool
    if not isinstance(pool, redis.asyncio.sentinel.SentinelConnectionPool):
        return []
    made = [sentinel.connection_pool.make_connection() for sentinel in pool.sentinel_manager.sentinels]
    return [TlsServer(one.host, one.port, one.ssl_context.get()) for one in made if hasattr(one, "ssl_context")]


@contextmanager
def translated(where: str, *, opening: bool = False) -> Iterator[None]:
    """Translates redis-py's errors into ours; `where` names the server.

    Temporary errors become `LogUnavailable`. A wrong password, permission or certificate is a `UsageError` while
    `opening`, and `LogUnavailable` later, because an operator may just be changing it.
    """
    try:
        yield
    except (AuthenticationError, AuthenticationWrongNumberOfArgsError, NoPermissionError) as error:
        if not opening:
            raise LogUnavailable(f"Redis at {where} refuses us: {_line(error)}") from error
        raise UsageError(
            f"Redis at {where} refuses us: {_line(error)}", hint="check user, password and permissions"
        ) from error
    except (RedisConnectionError, RedisTimeoutError, OSError) as error:
        if opening and _comes_from(error, ssl.SSLError):
            raise UsageError(
                f"no TLS connection to Redis at {where}: {_line(error)}",
                hint="check the certificate authority (?ssl_ca_certs=FILE) and that the port speaks TLS",
            ) from error
        if _comes_from(error, ConnectionRefusedError, FileNotFoundError):
            raise LogUnavailable(
                f"Redis at {where} doesn't answer: nothing listens there", hint="is it running? is the URL right?"
            ) from error
        hint = "does that port speak TLS?" if where.startswith("rediss") else ""
        raise LogUnavailable(f"Redis at {where} doesn't answer: {_line(error)}", hint=hint) from error
    except ResponseError as error:
        # Inside a script Redis 6.2 wraps the code into its own text, so the search covers the whole message.
        if isinstance(error, PASSING_CLASSES) or _has_code(error, PASSING_ERRORS):
            kind = WritesRefused if refuses_writes(error) else LogUnavailable
            raise kind(f"Redis at {where} can't do that now: {_line(error)}") from error
        if str(error).startswith(_NOT_PERMITTED):
            raise LogUnavailable(f"Redis at {where} refuses us: {_line(error)}") from error
        raise LogError(f"Redis at {where} refused a command: {_line(error)}") from error
    except RedisError as error:
        raise LogUnavailable(f"Redis at {where} doesn't answer as it should: {_line(error)}") from error


def refuses_writes(error: Exception) -> bool:
    """Whether a server replied that it accepts no writes now."""
    if isinstance(error, OutOfMemoryError | ReadOnlyError):
        return True
    return isinstance(error, ResponseError) and _has_code(error, WRITE_ERRORS)


def _has_code(error: ResponseError, codes: frozenset[str]) -> bool:
    # redis-py strips the code of an error that has a class of its own, and keeps it otherwise.
    return not codes.isdisjoint(str(error).replace("-", " ").split())


def _comes_from(error: BaseException | None, *kinds: type[Exception]) -> bool:
    # redis-py keeps the system's error as the cause or the context of its own error.
    while error is not None and not isinstance(error, kinds):
        error = error.__cause__ or error.__context__
    return error is not None


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def of_one_stream(answer: Any) -> Sequence[tuple[bytes, Any]]:
    """The entries in a reply to XREAD of one stream, in either version of the protocol."""
    if not answer:
        return ()
    if isinstance(answer, Mapping):
        (found,) = answer.values()
        return found[0] if found and isinstance(found[0], list) else found
    ((_, found),) = answer
    return found  # type: ignore[no-any-return]
