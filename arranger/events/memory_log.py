"""The log in memory: for tests and for the deterministic simulation, with the semantics of the real ones.

Entries are kept encoded and are decoded and checked on every read, as from Redis. Several workers may share one
object; `close` ends nothing. It sleeps only in `read` with `wait_s`, on an asyncio event and the loop's clock.
"""

# ruff: noqa: D102 - the methods are documented in `Log`.

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from contextlib import suppress

from arranger.errors import EntriesTrimmed, EpochLost, OutdatedAppend
from arranger.events.codec import StoredEntry, encode_batch, next_chain, verified
from arranger.events.kinds import Batch, EpochBegun
from arranger.events.log import EPOCH_WRITER, SNAPSHOTS_KEPT, Appended, Cursor, Entry, Position, StoredSnapshot


def _first_epoch() -> int:
    return 1


class MemoryLog:
    """A `Log` in this process. `now_ms` gives the number of the first epoch, when `open` has to begin it."""

    def __init__(self, *, now_ms: Callable[[], int] = _first_epoch) -> None:
        self._now_ms = now_ms
        self._changed = asyncio.Event()
        self._epoch: int | None = None
        self._forget()

    def _forget(self) -> None:
        """Empties everything that belongs to one epoch."""
        self._stored: list[StoredEntry] = []
        self._lasts: list[int] = []
        self._start = (0, "")
        self._cursors: dict[str, str] = {}
        self._writers: dict[str, tuple[int, int, int]] = {}
        self._snapshots: list[StoredSnapshot] = []

    def lose_everything(self) -> None:
        """What FLUSHALL does to the log: neither entries nor an epoch are left."""
        self._epoch = None
        self._forget()
        self._wake()

    def lose_tail(self, after: int) -> None:
        """What a crash of the server does: entries whose events come after the offset were never appended."""
        keep = bisect_right(self._lasts, after)
        del self._stored[keep:], self._lasts[keep:]
        self._writers = {name: mark for name, mark in self._writers.items() if mark[2] <= after}
        self._snapshots = [snapshot for snapshot in self._snapshots if snapshot.position.offset <= after]
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def open(self) -> Position:
        if self._epoch is None:
            return await self.begin_epoch(lost=0, reason="the log was empty", told_ms=self._now_ms())
        return await self.end()

    async def append(self, batch: Batch, *, epoch: int, cursor: Cursor | None = None) -> Appended:
        payload = encode_batch(batch)
        if epoch != self._epoch:
            raise EpochLost(f"the log is in epoch {self._epoch}, not {epoch}")
        seq, first, last = self._writers.get(batch.writer, (0, 0, 0))
        if batch.seq == seq:
            return Appended(first, last, duplicate=True)
        if batch.seq < seq:
            raise OutdatedAppend(f"writer {batch.writer} appends batch {batch.seq} after batch {seq}")
        entry = self._append(payload, len(batch.events))
        self._writers[batch.writer] = (batch.seq, entry.first, entry.last)
        if cursor is not None:
            self._cursors[cursor.name] = cursor.value
        self._wake()
        return Appended(entry.first, entry.last, duplicate=False)

    def _append(self, payload: bytes, count: int) -> StoredEntry:
        offset, chain = self._at_end()
        entry = StoredEntry(offset + count, count, next_chain(chain, payload), payload)
        self._stored.append(entry)
        self._lasts.append(entry.last)
        return entry

    async def read(self, after: Position, *, limit: int = 1000, wait_s: float = 0.0) -> Sequence[Entry]:
        index = self._index_after(after)
        if index == len(self._stored) and wait_s > 0:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), wait_s)
            index = self._index_after(after)
        found: list[Entry] = []
        for stored in self._stored[index : index + limit]:
            entry = verified(stored, after)
            after = Position(after.epoch, entry.last, entry.chain)
            found.append(entry)
        return found

    def _index_after(self, after: Position) -> int:
        """Index of the first entry after the position, once the position is known to be in this log."""
        if after.epoch != self._epoch:
            raise EpochLost(f"the log is in epoch {self._epoch}, not {after.epoch}")
        if after.offset < self._start[0]:
            raise EntriesTrimmed(f"events up to offset {self._start[0]} were trimmed; read up to {after.offset}")
        index = bisect_left(self._lasts, after.offset)
        if after.offset == self._start[0]:
            present = self._start[1]
        elif index < len(self._stored) and self._lasts[index] == after.offset:
            present = self._stored[index].chain
            index += 1
        else:
            raise EpochLost(f"the log has no entry that ends at offset {after.offset}: its tail was lost")
        if present != after.chain:
            raise EpochLost(f"the log up to offset {after.offset} is not the one that was read: it was written anew")
        return index

    async def end(self) -> Position:
        if self._epoch is None:
            raise EpochLost("the log is empty: it has no epoch")
        return Position(self._epoch, *self._at_end())

    def _at_end(self) -> tuple[int, str]:
        return (self._stored[-1].last, self._stored[-1].chain) if self._stored else self._start

    async def start(self) -> Position:
        if self._epoch is None:
            raise EpochLost("the log is empty: it has no epoch")
        return Position(self._epoch, *self._start)

    async def cursor(self, name: str) -> str | None:
        return self._cursors.get(name)

    async def begin_epoch(self, *, lost: int, reason: str, told_ms: int) -> Position:
        if self._epoch is None or self._epoch <= lost:
            self._epoch = max(told_ms, lost + 1)
            self._forget()
            begun = EpochBegun(self._epoch, lost, reason)
            self._append(encode_batch(Batch(EPOCH_WRITER, 1, told_ms, (begun,))), 1)
            self._wake()
        return await self.end()

    async def put_snapshot(self, snapshot: StoredSnapshot) -> None:
        if snapshot.position.epoch != self._epoch:
            raise EpochLost(f"the log is in epoch {self._epoch}, the snapshot in {snapshot.position.epoch}")
        others = [kept for kept in self._snapshots if kept.position.offset != snapshot.position.offset]
        others.append(snapshot)
        self._snapshots = sorted(others, key=lambda kept: kept.position.offset)[-SNAPSHOTS_KEPT:]

    async def newest_snapshot(self, *, at_most: int | None = None) -> StoredSnapshot | None:
        for snapshot in reversed(self._snapshots):
            if at_most is None or snapshot.position.offset <= at_most:
                return snapshot
        return None

    async def trim(self, before: int, *, epoch: int) -> int:
        if epoch != self._epoch:
            raise EpochLost(f"the log is in epoch {self._epoch}, not {epoch}")
        # An entry goes when its last event comes before the offset.
        gone = bisect_left(self._lasts, before)
        if gone:
            self._start = (self._stored[gone - 1].last, self._stored[gone - 1].chain)
            del self._stored[:gone], self._lasts[:gone]
        return gone

    async def close(self) -> None:
        return None
