"""The process that answers the console's questions, seen from the server: it starts, it is asked, it ends.

A fold takes the processor for as long as it takes. In another process it delays nobody who watches.
"""

import asyncio
import os
from asyncio.subprocess import Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Protocol

import msgspec

from arranger.own_process import killed
from arranger.web.refusals import Refusal, refuse

_WAITING = 64
_TIME_S = 60.0
#: An answer is one line.
_MOST_BYTES = 64 << 20


class MomentRequest(msgspec.Struct, frozen=True):
    """A question for the process, as one line of JSON. `end` is the last offset that the server has read, `epoch` the
    log's epoch, 0 for any. Without a name, it takes the question with its number back, which is replied to at once."""

    number: int
    name: str
    values: dict[str, str]
    end: int = 0
    epoch: int = 0


class MomentReply(msgspec.Struct, frozen=True):
    """The reply of the process, as one line of JSON: an answer, or a refusal with its reason and message."""

    number: int
    answer: msgspec.Raw = msgspec.Raw(b"null")
    reason: str = ""
    message: str = ""
    complete: bool = False


class MomentSource(Protocol):
    """Answers the console's questions."""

    async def answer(self, name: str, values: Mapping[str, str], *, end: int, epoch: int = 0) -> tuple[bytes, bool]:
        """The answer as JSON, and whether it is about all of the log up to the offset `end`. With an epoch, it is about
        the log of that epoch and no other. Raises `Refusal`."""
        ...


class MomentProcess:
    """Runs `program` when it is first asked, and again after it ended, on the log of `environment`, or on `log`."""

    def __init__(self, program: Sequence[str], environment: Mapping[str, str], *, log: str = "") -> None:
        self._program = (*program, f"--log={log}") if log else tuple(program)
        self._environment = {**os.environ, **environment}
        self._process: Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._waiting = 0
        self._number = 0
        #: The reply to the last question that the process got. A client that goes leaves it to be read.
        self._reply: asyncio.Future[MomentReply] | None = None
        self._stopped = False
        self._turn = asyncio.Lock()
        self._starting = asyncio.Lock()

    @property
    def pid(self) -> int | None:
        """The number of the process; None before it was started."""
        return self._process.pid if self._process is not None else None

    @property
    def idle(self) -> bool:
        """Whether it would begin with an answer at once."""
        return not self._waiting

    async def start(self) -> None:
        """Start the process, so that it has read the log before it is asked. Raises `ConnectionError` after `stop`."""
        async with self._starting:
            if self._stopped:
                raise ConnectionError("the server ends")
            if self._process is not None and self._process.returncode is None:
                return
            self._process = await asyncio.create_subprocess_exec(
                *self._program,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env=self._environment,
                limit=_MOST_BYTES,
                start_new_session=True,  # a Ctrl-C is for the server alone, which then ends this
            )
            self._reading = asyncio.create_task(self._read(self._process))

    async def warmed(self) -> None:
        """Wait until the process can answer what is asked first."""
        with suppress(Refusal):
            await self.answer("timeline", {"buckets": "1"}, end=0)

    async def answer(self, name: str, values: Mapping[str, str], *, end: int, epoch: int = 0) -> tuple[bytes, bool]:
        """The answer as JSON, and whether it is about all of the log up to the offset `end`. With an epoch, it is about
        the log of that epoch and no other. Raises `Refusal`."""
        if self._waiting >= _WAITING:
            refuse("TooManyRequests", "too many questions are waiting for an answer", hint="try again soon")
        self._waiting += 1
        try:
            async with asyncio.timeout(_TIME_S):
                reply = await self._reply_to(await self._send(name, values, end, epoch))
        except TimeoutError:
            refuse("Timeout", f"the answer takes too long: it may take {_TIME_S:g} s", hint="try again soon")
        except ConnectionError:
            refuse("ServiceUnavailable", "the process that answers has ended", hint="try again soon")
        finally:
            self._waiting -= 1
        if reply.reason:
            refuse(reply.reason, reply.message)
        return bytes(reply.answer), reply.complete

    async def _reply_to(self, awaited: asyncio.Future[MomentReply]) -> MomentReply:
        """The reply to the question that was sent last. If nobody waits any more, the process gives the question up, so
        that the next one has its turn."""
        try:
            return await asyncio.shield(awaited)
        except asyncio.CancelledError:
            if not awaited.done() and self._process is not None and self._process.stdin is not None:
                self._process.stdin.write(msgspec.json.encode(MomentRequest(self._number, "", {})) + b"\n")
            raise

    async def _send(self, name: str, values: Mapping[str, str], end: int, epoch: int) -> asyncio.Future[MomentReply]:
        """Send a question when the process has replied to the last one: it never gets one whose client went before."""
        async with self._turn:
            if self._reply is not None:
                await asyncio.wait([self._reply])
            await self.start()
            assert self._process is not None
            assert self._process.stdin is not None
            self._number += 1
            self._reply = asyncio.get_running_loop().create_future()
            request = MomentRequest(self._number, name, dict(values), end, epoch)
            self._process.stdin.write(msgspec.json.encode(request) + b"\n")
            return self._reply

    async def stop(self) -> None:
        self._stopped = True
        if self._process is not None:
            await killed(self._process)
        if self._reading is not None:
            await self._reading

    async def _read(self, process: Process) -> None:
        assert process.stdout is not None
        try:
            while line := await process.stdout.readline():
                reply = msgspec.json.decode(line, type=MomentReply)
                if self._reply is not None and reply.number == self._number and not self._reply.done():
                    self._reply.set_result(reply)
        finally:
            await killed(process)
            of_this = process is self._process
            if of_this and self._reply is not None and not self._reply.done():
                self._reply.set_exception(ConnectionError("the process ended"))
