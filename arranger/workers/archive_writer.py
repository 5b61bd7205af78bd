"""Putting segments of the log into an archive, with a snapshot at the end of each.

A segment is read from the log behind what the archive has, checked entry by entry, and put there whole, after the
snapshot at its end. Nothing is remembered that the archive's own names don't say, so it goes on after any crash, and
two processes that do it at once put the same there twice. Where many segments are behind (the archive is new, or was
away), and for an epoch that has ended, the state is folded along, so that these get their snapshots too.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

import msgspec

from arranger.errors import DamagedEntry
from arranger.events.archive import ArchiveLog, Contents, contents_of
from arranger.events.blob_stores import BlobStore
from arranger.events.codec import StoredEntry, verified
from arranger.events.log import Entry, Position, StoredSnapshot
from arranger.events.segments import encode_segment, encode_snapshot_file
from arranger.logs import log_event
from arranger.projections import snapshot
from arranger.projections.fold import apply_entry
from arranger.projections.state import Changes, State

_log = logging.getLogger(__name__)

#: Entries that one read brings: others get their turn between two.
_AT_ONCE = 50

#: Entries as they are kept that follow a position, at most so many: `RedisLog.read_stored` and its like.
Source = Callable[[Position, int], Awaitable[Sequence[StoredEntry]]]


class Put(msgspec.Struct, frozen=True):
    """One more segment is in the archive, up to a position. `size` are the bytes of it and its snapshot, `times_ms` are
    the first and the last time in it."""

    position: Position
    size: int
    times_ms: tuple[int, int]


class ArchiveWriter:
    """Puts segments into a blob store: of `every_events` events at least, or of what there is where that is less."""

    def __init__(self, blob_store: BlobStore, *, every_events: int) -> None:
        self.blob_store = blob_store
        self._every_events = every_events

    async def contents(self, epoch: int) -> Contents:
        """What the archive has of an epoch."""
        found = await asyncio.to_thread(contents_of, self.blob_store)
        return found.get(epoch, Contents(epoch, ()))

    async def end(self, epoch: int) -> Position | None:
        """Up to where the archive has an epoch; None if it has nothing of it."""
        if not (await self.contents(epoch)).segments:
            return None
        archive = ArchiveLog(self.blob_store, epoch=epoch)
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
        """Archive the entries after `begin` up to offset `until`, the end of one; tells of each segment that is there.

        `newest` is a snapshot at `until`, `state` that at `begin` where the caller has it to give away. Raises what
        reading and the blob store raise.
        """
        segments = _Segments(begin, self._every_events)
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
        name, content = await asyncio.to_thread(encode_segment, before, entries, times_ms)
        await asyncio.to_thread(self.blob_store.put, name, content)
        events = segments.position.offset - before.offset
        log_event(_log, "segment archived", file=name, events=events, bytes=len(content))
        return len(content), times_ms

    async def _put_snapshot(self, stored: StoredSnapshot) -> int:
        time_ms = snapshot.time_ms(stored.content)
        name, content = await asyncio.to_thread(encode_snapshot_file, stored, time_ms)
        await asyncio.to_thread(self.blob_store.put, name, content)
        return len(content)

    async def _state_at(self, position: Position) -> State | None:
        """The state at a position where the archive ends or an epoch begins; None where it can't be had."""
        if position.offset == 0:
            return State()
        for name in (await self.contents(position.epoch)).snapshots:
            if name.offset == position.offset:
                archive = ArchiveLog(self.blob_store, epoch=position.epoch)
                try:
                    await archive.refresh()
                    stored = await archive.newest_snapshot(at_most=position.offset)
                    return snapshot.restore(stored.content) if stored is not None else None
                except (DamagedEntry, snapshot.UnusableSnapshot) as problem:
                    log_event(_log, "a snapshot isn't used", level=logging.WARNING, problem=problem)
                finally:
                    await archive.close()
        return None


class _Segments:
    """Collects entries, checked, until a segment is full."""

    def __init__(self, begin: Position, every_events: int) -> None:
        self.position = begin
        self._every_events = every_events
        self._begin = begin
        self._entries: list[StoredEntry] = []
        self._told: list[int] = []

    @property
    def full(self) -> bool:
        """Whether it has as many events as a segment is to have."""
        return self.position.offset - self._begin.offset >= self._every_events

    def add(self, stored: StoredEntry) -> Entry:
        """The next entry, checked. Raises `DamagedEntry`."""
        entry = verified(stored, self.position)
        self._entries.append(stored)
        self._told.append(entry.batch.time_ms)
        self.position = Position(self.position.epoch, entry.last, entry.chain)
        return entry

    def take(self) -> tuple[Position, list[StoredEntry], tuple[int, int]]:
        """What was collected, with the first and last time told; collecting begins again."""
        taken = self._begin, self._entries, (self._told[0], max(self._told))
        self._begin, self._entries, self._told = self.position, [], []
        return taken
