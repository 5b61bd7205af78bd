"""Puts segments of the log into an archive, each with a snapshot at its end.

A segment is read from the log after the archive's end, checked entry by entry, and stored whole, after the snapshot at
its end. The file names in the archive are the only record of progress, so archiving continues after any crash, and two
concurrent writers only store the same files twice. If the archive is many segments behind (it is new, or was
unavailable), and for an ended epoch, the state is folded along, so that these segments get their snapshots too.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

import msgspec

from arranger.errors import DamagedEntry
from arranger.events.archive import ArchiveLog, Contents, contents_of
from arranger.events.blob_stores import BlobStore
from arranger.events.codec import StoredEntry, signed_snapshot, verified
from arranger.events.log import Entry, Position, StoredSnapshot
from arranger.events.log_keys import UNKEYED, LogKeys
from arranger.events.segments import encode_segment, encode_snapshot_file
from arranger.logs import log_event
from arranger.projections import snapshot
from arranger.projections.fold import apply_entry
from arranger.projections.state import Changes, State

_log = logging.getLogger(__name__)

#: Entries per read; other tasks run between two reads.
_AT_ONCE = 50

#: Returns the stored entries after a position, up to a number of them, like `RedisLog.read_stored`.
Source = Callable[[Position, int], Awaitable[Sequence[StoredEntry]]]


class Put(msgspec.Struct, frozen=True):
    """One more segment was archived, up to `position`. `size` is the bytes of the segment and its snapshot, `times_ms`
    its first and last time."""

    position: Position
    size: int
    times_ms: tuple[int, int]


class ArchiveWriter:
    """Puts segments into a blob store, each of at least `every_events` events, or of all if there are fewer.

    `keys` are those of the source: they check its entries and sign the snapshots.
    """

    def __init__(self, blob_store: BlobStore, *, every_events: int, keys: LogKeys = UNKEYED) -> None:
        self.blob_store = blob_store
        self._keys = keys
        self._every_events = every_events

    async def contents(self, epoch: int) -> Contents:
        """The archive's files of an epoch."""
        found = await asyncio.to_thread(contents_of, self.blob_store)
        return found.get(epoch, Contents(epoch, ()))

    async def end(self, epoch: int) -> Position | None:
        """The archive's last position in an epoch; None if it has nothing of the epoch."""
        if not (await self.contents(epoch)).segments:
            return None
        archive = ArchiveLog(self.blob_store, epoch=epoch, keys=self._keys)
        try:
            return await archive.open()
        finally:
            await archive.close()

    async def archive(
        self,
        source: Source,
        begin: Position,
        until: int,
        newest: StoredSnapshot | None = None,
        *,
        state: State | None = None,
    ) -> AsyncGenerator[Put, None]:
        """Archive the entries after `begin` up to offset `until`, the end of an entry; yields each stored segment.

        `newest` is a snapshot at `until`. `state` is the caller's state at `begin`, if any, which is modified. Raises
        the errors of reading and of the blob store.
        """
        segments = _Segments(begin, self._every_events, self._keys)
        far = until - begin.offset >= 2 * self._every_events
        if state is None and (far or newest is None):
            state = await self._state_at(begin)
        while segments.position.offset < until:
            stored = await source(segments.position, _AT_ONCE)
            if not stored:
                raise DamagedEntry(segments.position.offset + 1, f"nothing follows here up to offset {until}")
            for one in stored:
                if one.last > until:
                    break
                entry = segments.add(one)
                if state is not None:
                    apply_entry(state, entry, Changes())
                if one.last == until or (segments.full and until - one.last >= self._every_events):
                    size = 0
                    if newest is not None and one.last == until:
                        size = await self._put_snapshot(newest)
                    elif state is not None:
                        size = await self._put_snapshot(StoredSnapshot(segments.position, snapshot.encode(state)))
                    written, times_ms = await self._put(segments)
                    yield Put(segments.position, size + written, times_ms)
            await asyncio.sleep(0)

    async def _put(self, segments: "_Segments") -> tuple[int, tuple[int, int]]:
        before, entries, times_ms = segments.take()
        keyed = self._keys.signed
        name, content = await asyncio.to_thread(lambda: encode_segment(before, entries, times_ms, keyed=keyed))
        await asyncio.to_thread(self.blob_store.put, name, content)
        events = segments.position.offset - before.offset
        log_event(_log, "segment archived", file=name, events=events, bytes=len(content))
        return len(content), times_ms

    async def _put_snapshot(self, stored: StoredSnapshot) -> int:
        time_ms = snapshot.time_ms(stored.content)
        signed = signed_snapshot(stored, self._keys)
        name, content = await asyncio.to_thread(encode_snapshot_file, signed, time_ms)
        await asyncio.to_thread(self.blob_store.put, name, content)
        return len(content)

    async def _state_at(self, position: Position) -> State | None:
        """The state at a position where the archive ends or an epoch begins; None if unavailable."""
        if position.offset == 0:
            return State()
        for name in (await self.contents(position.epoch)).snapshots:
            if name.offset == position.offset:
                archive = ArchiveLog(self.blob_store, epoch=position.epoch, keys=self._keys)
                try:
                    await archive.open()
                    stored = await archive.newest_snapshot(at_most=position.offset)
                    return snapshot.restore(stored.content) if stored is not None else None
                except (DamagedEntry, snapshot.UnusableSnapshot) as problem:
                    log_event(_log, "a snapshot isn't used", level=logging.WARNING, problem=problem)
                finally:
                    await archive.close()
        return None


class _Segments:
    """Collects checked entries until a segment is full."""

    def __init__(self, begin: Position, every_events: int, keys: LogKeys) -> None:
        self.position = begin
        self._keys = keys
        self._every_events = every_events
        self._begin = begin
        self._entries: list[StoredEntry] = []
        self._told: list[int] = []

    @property
    def full(self) -> bool:
        return self.position.offset - self._begin.offset >= self._every_events

    def add(self, stored: StoredEntry) -> Entry:
        """Check and add the next entry. Raises `DamagedEntry`."""
        entry = verified(stored, self.position, keys=self._keys)
        self._entries.append(stored)
        self._told.append(entry.batch.time_ms)
        self.position = Position(self.position.epoch, entry.last, entry.chain)
        return entry

    def take(self) -> tuple[Position, list[StoredEntry], tuple[int, int]]:
        """The position before the collected entries, the entries, and their first and last time; then start again."""
        taken = self._begin, self._entries, (self._told[0], max(self._told))
        self._begin, self._entries, self._told = self.position, [], []
        return taken
