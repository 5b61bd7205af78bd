"""A log that `arranger serve` passes on, for reading: `log_copies` is its other side."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from arranger.errors import LogError
from arranger.events.codec import StoredEntry, checked_snapshot, decode_snapshot, verified_run
from arranger.events.log import Entry, OnlyRead, Position, SnapshotMark, StoredSnapshot
from arranger.events.log_keys import UNKEYED, Authenticity, LogKeys
from arranger.kube.config import Access
from arranger.web.log_copies import MEDIA_TYPE, MOST_ENTRIES, MOST_WAIT_S, LogPart
from arranger.web.remote import Remote

_T = TypeVar("_T")


class RemoteLog(OnlyRead):
    """A `Log` behind a server, for reading only. `keys` check a log that is signed."""

    def __init__(self, remote: Remote, keys: LogKeys = UNKEYED) -> None:
        self._remote = remote
        self.keys = self._own_keys = keys

    @property
    def authenticity(self) -> Authenticity:
        return self.keys.authenticity

    async def _part(self, name: str, kind: type[_T], **query: object) -> _T:
        body = await self._remote.get(f"log/{name}", {key: str(value) for key, value in query.items()})
        try:
            part = msgspec.msgpack.decode(body, type=LogPart)
            if part.problem is None:
                value = msgspec.msgpack.decode(part.value, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            hint = "is the server of another release?"
            raise LogError(f"the answer of {self._remote.name} isn't {MEDIA_TYPE}: {error}", hint=hint) from error
        # Who has a key accepts nothing else, whatever the server says.
        self.live = part.live
        self.keys = self._own_keys if self._own_keys.present else UNKEYED.of_file(signed=part.signed)
        if part.problem is not None:
            raise part.problem.error
        return value

    async def open(self) -> Position:
        return await self._part("open", Position)

    async def start(self) -> Position:
        return await self._part("start", Position)

    async def end(self) -> Position:
        return await self._part("end", Position)

    async def read(self, after: Position, *, limit: int = 1000, wait_s: float = 0.0) -> Sequence[Entry]:
        deadline = asyncio.get_running_loop().time() + wait_s
        stored = await self._stored(after, limit, wait_s)
        while not stored and (left_s := deadline - asyncio.get_running_loop().time()) > 0:
            stored = await self._stored(after, limit, left_s)
        return verified_run(stored, after, keys=self.keys)

    async def read_stored(self, after: Position, *, limit: int = 1000) -> Sequence[StoredEntry]:
        """Entries as stored, unchecked: for a copy of the log."""
        return await self._stored(after, limit, 0.0)

    async def _stored(self, after: Position, limit: int, wait_s: float) -> Sequence[StoredEntry]:
        return await self._part(
            "entries",
            list[StoredEntry],
            epoch=after.epoch,
            offset=after.offset,
            chain=after.chain,
            limit=min(limit, MOST_ENTRIES),
            wait=min(round(wait_s + 0.5) if wait_s else 0, MOST_WAIT_S),
        )

    async def newest_snapshot(self, *, at_most: int | None = None) -> StoredSnapshot | None:
        if at_most is not None and at_most < 0:
            return None
        limit = {} if at_most is None else {"atMost": at_most}
        (encoded,) = await self._part("snapshot", tuple[bytes | None], **limit)
        if encoded is None:
            return None
        stored = await asyncio.to_thread(decode_snapshot, encoded, at_most or 0)
        return checked_snapshot(stored, self.keys)

    async def snapshot_marks(self) -> Sequence[SnapshotMark]:
        return await self._part("marks", list[SnapshotMark])

    async def close(self) -> None:
        await self._remote.close()

    def read_from(self) -> str:
        return f"the log of {self._remote.name}"


async def opened_remote(server: str, find: Callable[[], Access], keys: LogKeys) -> RemoteLog:
    """The log of a server, open. Raises `ArrangerError` if it can't be read."""
    log = RemoteLog(Remote(server, find), keys)
    try:
        await log.open()
    except BaseException:
        await log.close()
        raise
    return log
