"""Faults: paused processes and servers, wrong clocks, and connections that are slow, silent or cut."""

import asyncio
import contextlib
import os
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from tests.e2e.harness import LoopThread
from tests.servers import ServersUnavailable, free_port


@contextlib.contextmanager
def paused(*pids: int) -> Iterator[None]:
    """Pause these processes together (SIGSTOP). They keep their resources and continue afterwards."""
    try:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def shifted_clock(seconds: int) -> dict[str, str]:
    """The environment of a process whose wall clock is off by `seconds`; its monotonic clock isn't affected.

    The dynamic linker preloads libfaketime. Raises `ServersUnavailable` if that doesn't work.
    """
    try:
        import libfaketime
    except ImportError as problem:
        raise ServersUnavailable(f"no clock can be shifted: {problem}") from problem
    library = Path(str(libfaketime.__file__)).parent / "vendor" / "libfaketime" / "src" / "libfaketime.so.1"
    environment = {
        "LD_PRELOAD": str(library),
        "FAKETIME": f"{seconds:+d}s",
        "FAKETIME_NO_CACHE": "1",
        "DONT_FAKE_MONOTONIC": "1",
        "NO_FAKE_STAT": "1",
    }
    asked = "import time; print(time.time_ns() // 10**9)"
    both = [
        int(subprocess.run([sys.executable, "-c", asked], env=env, capture_output=True, check=True).stdout)
        for env in ({}, environment)
    ]
    if abs(both[1] - both[0] - seconds) > 30:
        raise ServersUnavailable(f"libfaketime doesn't shift clocks here: {both}")
    return environment


class Wire:
    """A proxy to a TCP port of this machine that can be slow, deaf (it drops all responses) or cut.

    With `tls`, the proxy speaks TLS to the server and plain text to its clients, so that clients need no certificates.
    """

    def __init__(self, target_port: int, *, delay_s: float = 0.0, tls: ssl.SSLContext | None = None) -> None:
        self.port = free_port()
        self.delay_s = delay_s
        self.deaf = False
        #: The number of connections, and of those that were opened while the wire was cut.
        self.connections = 0
        self.turned_away = 0
        self._target_port = target_port
        self._tls = tls
        self._cut = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self._thread = LoopThread()

    @property
    def redis_url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def url(self, scheme: str) -> str:
        return f"{scheme}://127.0.0.1:{self.port}"

    def __enter__(self) -> "Wire":
        self._server = self._thread.call(asyncio.start_server(self._accept, "127.0.0.1", self.port))
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._thread.call(self._close())
        self._thread.close()

    def cut(self) -> None:
        """Close all connections, and every new one at once."""
        self._cut = True
        self._thread.call(self._break())

    def mend(self) -> None:
        """Accept new connections again."""
        self._cut = False

    async def _break(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    async def _close(self) -> None:
        self._server.close()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        if self._cut:
            self.turned_away += 1
            writer.transport.abort()
            return
        try:
            there, back = await asyncio.open_connection(
                "127.0.0.1", self._target_port, ssl=self._tls, server_hostname="localhost" if self._tls else None
            )
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, back}
        try:
            await asyncio.gather(self._pass(reader, back, answers=False), self._pass(there, writer, answers=True))
        finally:
            self._writers -= {writer, back}
            writer.transport.abort()
            back.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool) -> None:
        """Copy the bytes of one direction, each chunk after the wire's delay."""
        loop = asyncio.get_running_loop()
        underway: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def deliver() -> None:
            while True:
                due_s, chunk = await underway.get()
                await asyncio.sleep(due_s - loop.time())
                if not chunk:
                    writer.transport.abort()
                    return
                writer.write(chunk)

        delivering = asyncio.create_task(deliver())
        try:
            while True:
                chunk = await _read(reader)
                if not (answers and self.deaf and chunk):
                    underway.put_nowait((loop.time() + self.delay_s, chunk))
                if not chunk:
                    await delivering
                    return
        finally:
            delivering.cancel()
            await asyncio.gather(delivering, return_exceptions=True)


async def _read(reader: asyncio.StreamReader) -> bytes:
    with contextlib.suppress(OSError):
        return await reader.read(65536)
    return b""
