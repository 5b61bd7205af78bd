"""The log itself over HTTP, for commands of other machines: parts of it as they are stored, as MessagePack.

A command that reads the log in this way folds it and answers itself, as it does with a file. So it gives the same
answers in the same words, and it checks every entry. Only viewers who may see everything get the log: a part of it
can't be folded, and an entry names whatever was in the cluster.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from arranger.errors import (
    DamagedEntry,
    EntriesTrimmed,
    EpochLost,
    ForgedEntry,
    LogError,
    LogUnavailable,
    UnknownEvent,
)
from arranger.events.codec import encode_snapshot
from arranger.events.file_log import Copyable
from arranger.events.log import Position
from arranger.web.news import News
from arranger.web.refusals import refuse

MEDIA_TYPE = "application/vnd.msgpack"
#: How many entries one answer may have, and how long it may wait for one, in seconds.
MOST_ENTRIES = 1000
MOST_WAIT_S = 10
_MOST_OFFSET = 10**18


class LogProblem(msgspec.Struct, frozen=True):
    """An error that reading met: the name of its class, and its parts. `offset` is that of a faulty entry."""

    kind: str
    message: str
    hint: str = ""
    offset: int = 0

    @classmethod
    def of(cls, error: LogError) -> "LogProblem":
        kind = next(name for name, known in _KINDS.items() if isinstance(error, known))
        if isinstance(error, DamagedEntry):
            return cls(kind, error.reason, error.hint, error.offset)
        return cls(kind, error.message, error.hint)

    @property
    def error(self) -> LogError:
        """The error again, with its class and its words."""
        kind = _KINDS.get(self.kind, LogError)
        if issubclass(kind, ForgedEntry):  # its words are those of this class
            return kind(self.offset, self.message.removeprefix(_FORGED))
        if issubclass(kind, DamagedEntry):
            return kind(self.offset, self.message, hint=self.hint)
        return kind(self.message, hint=self.hint)


_FORGED = "it isn't authentic: "
#: The errors of reading that a reader tells apart, by name; a class stands before those that it is derived from.
_KINDS: dict[str, type[LogError]] = {
    kind.__name__: kind
    for kind in (ForgedEntry, UnknownEvent, DamagedEntry, EpochLost, EntriesTrimmed, LogUnavailable, LogError)
}


class LogPart(msgspec.Struct, frozen=True):
    """What was asked for, as MessagePack, or the problem that reading met. `signed`: entries may have signatures.
    `live`: others write to the log."""

    value: msgspec.Raw = msgspec.Raw(b"\xc0")
    problem: LogProblem | None = None
    signed: bool = False
    live: bool = False


_Read = Callable[[Mapping[str, str]], Awaitable[object]]


class LogCopies:
    """Reads parts of a log, one after the other. `news` says when there is something new."""

    def __init__(self, log: Copyable, news: News) -> None:
        self._log = log
        self._news = news
        self._turn = asyncio.Lock()
        #: The last word of the path → what reads that part.
        self.parts: dict[str, _Read] = {
            "open": self._open,
            "start": self._start,
            "end": self._end,
            "entries": self._entries,
            "marks": self._marks,
            "snapshot": self._snapshot,
        }

    async def part(self, name: str, query: Mapping[str, str]) -> bytes:
        """The encoded `LogPart`. Raises `Refusal` for a wrong query."""
        try:
            value = await self.parts[name](query)
        except LogError as problem:
            return self._encoded(LogPart(problem=LogProblem.of(problem)))
        return self._encoded(LogPart(msgspec.Raw(msgspec.msgpack.encode(value))))

    def _encoded(self, part: LogPart) -> bytes:
        log = self._log
        return msgspec.msgpack.encode(msgspec.structs.replace(part, signed=log.keys.signed, live=log.live))

    async def _open(self, query: Mapping[str, str]) -> object:
        async with self._turn:
            return await self._log.open()

    async def _start(self, query: Mapping[str, str]) -> object:
        async with self._turn:
            return await self._log.start()

    async def _end(self, query: Mapping[str, str]) -> object:
        async with self._turn:
            return await self._log.end()

    async def _marks(self, query: Mapping[str, str]) -> object:
        async with self._turn:
            return await self._log.snapshot_marks()

    async def _entries(self, query: Mapping[str, str]) -> object:
        after = Position(
            _number(query, "epoch", _MOST_OFFSET), _number(query, "offset", _MOST_OFFSET), query.get("chain", "")
        )
        limit = _number(query, "limit", MOST_ENTRIES)
        wait_s = _number(query, "wait", MOST_WAIT_S)
        if wait_s and (self._news.epoch, self._news.offset) == (after.epoch, after.offset):
            await self._news.moved(wait_s)
        async with self._turn:
            return await self._log.read_stored(after, limit=max(1, limit))

    async def _snapshot(self, query: Mapping[str, str]) -> object:
        at_most = _number(query, "atMost", _MOST_OFFSET) if "atMost" in query else None
        async with self._turn:
            snapshot = await self._log.newest_snapshot(at_most=at_most)
        return (None if snapshot is None else await asyncio.to_thread(encode_snapshot, snapshot),)


def _number(query: Mapping[str, str], name: str, most: int) -> Any:
    text = query.get(name, "0")
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= most):
        refuse("BadRequest", f"{name}: {text[:80]!r} is not a whole number up to {most}")
    return int(text)
