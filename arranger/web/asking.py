"""Answers questions about the log in processes of their own, with limits on number, time, memory and size.

Folding a log takes the processor for as long as it takes. In a process of its own it delays nobody else, it can be
ended when its client goes, and its memory is returned.
"""

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from arranger.own_process import AnswerTooLarge, run_command
from arranger.web.refusals import CODES, RefusalBody, refuse


class Limits(msgspec.Struct, frozen=True):
    """How many questions are worked on at once, how many more may wait, and what one may take."""

    at_once: int = 2
    waiting: int = 30
    time_s: float = 60.0
    answer_bytes: int = 32 << 20


class Asker:
    """Runs `program` with the arguments of a question. The log is `log`, or that of the settings in `environment`."""

    def __init__(
        self, program: Sequence[str], environment: Mapping[str, str], *, log: str = "", limits: Limits | None = None
    ) -> None:
        self._program = program
        self._environment = {**os.environ, **environment}
        self._log = (f"--log={log}",) if log else ()
        self._limits = limits or Limits()
        self._free = asyncio.Semaphore(self._limits.at_once)
        self._waiting = 0

    async def ask(self, arguments: Sequence[str], *, lines: bool, given: bytes = b"") -> Any:
        """The answer as decoded JSON, of `lines` as a list. `given` is what the process reads from standard input.
        Raises `Refusal`. If it is cancelled, the process ends."""
        content = await self.text(arguments, lines=lines, given=given)
        return msgspec.json.decode(b"[" + b",".join(content.splitlines()) + b"]" if lines else content)

    async def text(self, arguments: Sequence[str], *, lines: bool, given: bytes = b"") -> bytes:
        """The answer as the command prints it. Raises `Refusal`."""
        if self._waiting >= self._limits.waiting:
            refuse("TooManyRequests", "too many questions are waiting for an answer", hint="try again soon")
        self._waiting += 1
        try:
            await self._free.acquire()
        finally:
            self._waiting -= 1
        try:
            async with asyncio.timeout(self._limits.time_s):
                return await self._answer(arguments, lines=lines, given=given)
        except TimeoutError:
            limit = f"an answer may take {self._limits.time_s:g} s"
            refuse("Timeout", f"the answer takes too long: {limit}", hint="ask about a smaller part of the log")
        finally:
            self._free.release()

    async def _answer(self, arguments: Sequence[str], *, lines: bool, given: bytes) -> bytes:
        words = (*self._program, *self._with_log(arguments))
        limit = self._limits.answer_bytes
        try:
            ended = await run_command(words, self._environment, given=given, most_bytes=limit)
        except AnswerTooLarge:
            refuse(
                "RequestEntityTooLarge",
                f"the answer has more than {limit >> 20} MiB",
                hint="ask about a smaller part of the log",
            )
        return _accepted(ended.out, ended.err, ended.status, lines=lines)

    def _with_log(self, arguments: Sequence[str]) -> Sequence[str]:
        end = arguments.index("--")
        return (*arguments[:end], *self._log, *arguments[end:])


def _accepted(out: bytes, err: bytes, status: int, *, lines: bool) -> bytes:
    """The answer. A command that finds something wrong prints it and then reports an error: that is an answer too."""
    if (status == 0 or (out and not lines)) and (out or lines):
        return out
    last = err.rstrip().rpartition(b"\n")[2]
    with suppress(msgspec.MsgspecError):
        found = msgspec.json.decode(last, type=RefusalBody)
        if found.reason in CODES:
            refuse(found.reason, found.message)
    return refuse("InternalError", f"the question ended with status {status} and without an answer")
