"""The events for a webhook that are still to be delivered, and the cursor up to which the log is in them.

Both are in Redis and change in one step. So a receiver that is away for long delays neither the cursor nor the fold,
and neither a restart nor a trimmed log loses an event that is waiting. Keys: `arranger:{<cluster>}:webhook:cursor`,
`<epoch>:<offset>`, and the stream `arranger:{<cluster>}:webhook:outbox`.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec
import redis.asyncio

from arranger.errors import LogError
from arranger.events.redis_connection import translated
from arranger.feeds.following import Cursor

#: How many events may wait. Then nothing more is read until some are delivered: a receiver that has been away for days
#: must not fill Redis. An event has about 500 bytes.
WAITING_MOST = 50_000

_EVENT = b"e"

# KEYS: cursor, outbox. ARGV: the cursor as it has to be, the new one, the events. Returns the cursor as it was.
_PUT = """
local held = redis.call('GET', KEYS[1]) or ''
if held == ARGV[1] then
  for i = 3, #ARGV do
    redis.call('XADD', KEYS[2], '*', 'e', ARGV[i])
  end
  redis.call('SET', KEYS[1], ARGV[2])
end
return held
"""


class OutboxEvent(msgspec.Struct, frozen=True):
    """One event of the outbox. `since_ms` is the time of Redis at which it came, in milliseconds since 1970."""

    id: str
    content: bytes

    @property
    def since_ms(self) -> int:
        return int(self.id.partition("-")[0])


class Outbox:
    """One cluster's outbox. Every method may raise `LogUnavailable`; calling it again is then safe."""

    def __init__(self, client: redis.asyncio.Redis, cluster: str) -> None:
        self._client: Any = client
        self._cursor, self._stream = (f"arranger:{{{cluster}}}:webhook:{name}" for name in ("cursor", "outbox"))
        self._added = asyncio.Event()
        self._put = self._client.register_script(_PUT)

    async def cursor(self) -> Cursor | None:
        with translated("the outbox"):
            return _cursor(await self._client.get(self._cursor) or b"")

    async def put(self, before: Cursor | None, after: Cursor, events: Sequence[bytes]) -> Cursor | None:
        """Add events and move the cursor, if it is `before`; returns the cursor as it was."""
        with translated("the outbox"):
            held = await self._put(keys=[self._cursor, self._stream], args=[_text(before), _text(after), *events])
        if events:
            self._added.set()
        return _cursor(held)

    async def added(self, wait_s: float) -> None:
        """Wait until this object adds events, at most so many seconds: another process may add some too."""
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._added.wait()
        self._added.clear()

    async def first(self, most: int) -> list[OutboxEvent]:
        """The oldest events."""
        with translated("the outbox"):
            found = await self._client.xrange(self._stream, count=most)
        return [OutboxEvent(entry.decode(), fields[_EVENT]) for entry, fields in found]

    async def remove(self, event: OutboxEvent) -> None:
        with translated("the outbox"):
            await self._client.xdel(self._stream, event.id)

    async def waiting(self) -> int:
        """How many events wait."""
        with translated("the outbox"):
            return int(await self._client.xlen(self._stream))


def _text(cursor: Cursor | None) -> str:
    return "" if cursor is None else f"{cursor.epoch}:{cursor.offset}"


def _cursor(text: bytes) -> Cursor | None:
    if not text:
        return None
    epoch, _, offset = text.partition(b":")
    try:
        return Cursor(int(epoch), int(offset))
    except ValueError as problem:
        raise LogError(f"the webhook's cursor {text!r} can't be read", hint="delete its key in Redis") from problem
