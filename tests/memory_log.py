"""The log in memory: for tests and for the deterministic simulation, with the semantics of the real ones.

Entries are kept encoded and are decoded and checked on every read, as from Redis. `MemoryHome` is the server,
`MemoryLog` one client's view of it; a log made without a home has one of its own. It sleeps only in `read` with
`wait_s`, on an asyncio event and the loop's clock.
"""

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec

from arranger.clock import wall_clock_ms
from arranger.errors import ClockOff, DamagedEntry, OutdatedAppend
from arranger.events.codec import StoredEntry, decode_batch, encode_batch, verified_run
from arranger.events.entry_index import _CHAIN, EntryIndex, check_begun, check_epoch
from arranger.events.fence import CLAIM, Fence, superseded
from arranger.events.kinds import Batch, EpochBegun
from arranger.events.log import (
    EPOCH_WRITER,
    SNAPSHOTS_KEPT,
    Appended,
    Entry,
    Position,
    Seen,
    SnapshotMark,
    StoredSnapshot,
    epoch_after,
)
from arranger.events.log_keys import UNKEYED, Authenticity, next_chain


class HeldWatch(msgspec.Struct, frozen=True):
    """What a log stores of one watch: the current term, and the cursor up to which its observations were appended."""

    term: int
    cursor: str

    def encoded(self) -> str:
        """As one text, which logs in files store."""
        return f"{self.term}:{self.cursor}"

    @classmethod
    def decoded(cls, text: str) -> "HeldWatch":
        """The watch that `encoded` wrote; one without a term for any other text."""
        term, colon, cursor = text.partition(":")
        return cls(int(term), cursor) if colon and term.isdecimal() else cls(CLAIM, "")


def check_fence(fence: Fence | None, held: HeldWatch | None) -> None:
    """Raises `WatchSuperseded` if the watch's current term is not that of the fence. A claim is never refused."""
    if fence is None or fence.term == CLAIM:
        return
    if held is None or held.term != fence.term:
        raise superseded(fence, held.term if held is not None else None)


def after_append(fence: Fence | None, held: HeldWatch | None, first: int) -> HeldWatch | None:
    """What the log stores of the fence's watch once a batch whose first event has offset `first` was appended."""
    if fence is None:
        return None
    if fence.term == CLAIM:
        return HeldWatch(first, held.cursor if held is not None else "")
    return HeldWatch(fence.term, fence.cursor) if fence.cursor else held


def cursor_of_claim(fence: Fence | None, held: HeldWatch | None, first: int) -> str:
    """The cursor that a claim at offset `first` returns: empty once another claim has come, and for what is none."""
    claims = fence is not None and fence.term == CLAIM and held is not None and held.term == first
    return held.cursor if claims and held is not None else ""


def check_held(index: EntryIndex, position: Position) -> None:
    """Raises `EpochLost` if the log doesn't have the position. Before its start, it can't tell."""
    if position.offset > index.start.offset:
        index.after(position)


def trim(index: EntryIndex, before: int) -> int:
    """Forget the entries whose last event comes before the offset; answers how many."""
    gone = bisect_left(index.lasts, before)
    index.start = index.position(gone - 1)
    del index.lasts[:gone], index._chains[: gone * _CHAIN]
    return gone


class MemoryHome:
    """What a server would hold, with the server's clock. Its `lose_…` methods are faults that a server can have."""

    def __init__(self, *, now_ms: Callable[[], int] = wall_clock_ms) -> None:
        self.now_ms = now_ms
        self.changed = asyncio.Event()
        self._forget(None)

    def _forget(self, index: EntryIndex | None) -> None:
        self.index = index
        self.stored: list[StoredEntry] = []
        self.watches: dict[str, HeldWatch] = {}
        self.writers: dict[str, tuple[int, int, int]] = {}
        self.snapshots: list[StoredSnapshot] = []

    def begin(self, epoch: int, first: bytes) -> None:
        """Empties everything and stores the first batch of a new epoch."""
        self._forget(EntryIndex(Position(epoch, 0, "")))
        self.add(first, 1)

    def add(self, payload: bytes, count: int) -> StoredEntry:
        """Stores an entry and wakes who waits for one."""
        index = check_begun(self.index)
        end = index.end
        entry = StoredEntry(end.offset + count, count, next_chain(end.chain, payload), payload)
        self.stored.append(entry)
        index.add(entry.last, entry.chain)
        self._wake()
        return entry

    def lose_everything(self) -> None:
        """What FLUSHALL does: neither entries nor an epoch are left."""
        self._forget(None)
        self._wake()

    def lose_tail(self, after: int) -> None:
        """What a server's crash does: batches whose last event comes after the offset were never appended."""
        index = check_begun(self.index)
        keep = bisect_right(index.lasts, after)
        del self.stored[keep:]
        self.index = EntryIndex(index.start)
        for entry in self.stored:
            self.index.add(entry.last, entry.chain)
        self.writers = {name: mark for name, mark in self.writers.items() if mark[2] <= after}
        self.snapshots = [snapshot for snapshot in self.snapshots if snapshot.position.offset <= after]
        self._wake()

    def _wake(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


class MemoryLog:
    """A `Log` in this process. `now_ms` gives the number of the first epoch, when `open` has to begin it.

    What tells a time that is off by more than `clock_bound_ms` from the home's is refused; None takes any.
    """

    live = False

    def __init__(
        self,
        home: MemoryHome | None = None,
        *,
        now_ms: Callable[[], int] = lambda: 1,
        clock_bound_ms: int | None = None,
    ) -> None:
        self.home = home if home is not None else MemoryHome()
        self.keys = UNKEYED
        self.authenticity = Authenticity.NONE
        self._now_ms = now_ms
        self._clock_bound_ms = clock_bound_ms
        self._seen = Seen()

    async def open(self) -> Position:
        if self.home.index is None:
            return await self.begin_epoch(lost=0, reason="the log was empty", time_ms=self._now_ms())
        return await self.end()

    async def append(self, batch: Batch, *, epoch: int, fence: Fence | None = None) -> Appended:
        payload = encode_batch(batch)
        index = check_epoch(self.home.index, epoch)
        seen = self._seen.in_epoch(epoch)
        check_held(index, seen)
        seq, first, last = self.home.writers.get(batch.writer, (0, 0, 0))
        held = self.home.watches.get(fence.watch) if fence is not None else None
        if batch.seq == seq:
            return Appended(first, last, duplicate=True, cursor=cursor_of_claim(fence, held, first))
        if batch.seq < seq:
            raise OutdatedAppend(f"writer {batch.writer} appends batch {batch.seq} after {seq}")
        check_fence(fence, held)
        self._check_time(batch.time_ms)
        before = index.end.chain
        entry = self.home.add(payload, len(batch.events))
        self.home.writers[batch.writer] = (batch.seq, entry.first, entry.last)
        now = after_append(fence, held, entry.first)
        if fence is not None and now is not None:
            self.home.watches[fence.watch] = now
        self._seen.passed(Position(epoch, entry.last, entry.chain))
        return Appended(
            *(entry.first, entry.last, False, cursor_of_claim(fence, now, entry.first)),
            entry=Entry(entry.first, entry.last, entry.chain, decode_batch(payload, entry.first)),
            chain_before=before,
        )

    def _check_time(self, time_ms: int) -> None:
        ahead_ms = time_ms - self.home.now_ms()
        if self._clock_bound_ms is not None and abs(ahead_ms) > self._clock_bound_ms:
            raise ClockOff(ahead_ms)

    async def read(self, after: Position, *, limit: int = 1000, wait_s: float = 0.0) -> Sequence[Entry]:
        self._seen.passed(after)
        stored = await self.read_stored(after, limit=limit)
        if not stored and wait_s > 0:
            # Not wait_for: in Python 3.11 it swallows a cancellation that comes together with the result.
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self.home.changed.wait()
            stored = await self.read_stored(after, limit=limit)
        found = verified_run(stored, after)
        if found:
            self._seen.passed(Position(after.epoch, found[-1].last, found[-1].chain))
        return found

    async def read_stored(self, after: Position, *, limit: int = 1000) -> Sequence[StoredEntry]:
        first, until = check_epoch(self.home.index, after.epoch).bounds(after, limit=limit)
        return self.home.stored[first:until]

    async def end(self) -> Position:
        end = check_begun(self.home.index).end
        self._seen.ended(end)
        return end

    async def start(self) -> Position:
        return check_begun(self.home.index).start

    async def begin_epoch(
        self, *, lost: int, reason: str, time_ms: int, fence: Fence | None = None, cluster: str = ""
    ) -> Position:
        if self.home.index is None or self.home.index.start.epoch <= lost:
            check_fence(fence, self.home.watches.get(fence.watch) if fence is not None else None)
            self._check_time(time_ms)
            epoch = epoch_after(lost, time_ms)
            begun = EpochBegun(epoch, lost, reason, cluster)
            self.home.begin(epoch, encode_batch(Batch(EPOCH_WRITER, 1, time_ms, (begun,))))
        return await self.end()

    async def put_snapshot(self, snapshot: StoredSnapshot) -> None:
        check_held(check_epoch(self.home.index, snapshot.position.epoch), snapshot.position)
        others = [kept for kept in self.home.snapshots if kept.position.offset != snapshot.position.offset]
        others.append(snapshot)
        self.home.snapshots = sorted(others, key=lambda kept: kept.position.offset)[-SNAPSHOTS_KEPT:]

    async def newest_snapshot(self, *, at_most: int | None = None) -> StoredSnapshot | None:
        for snapshot in reversed(self.home.snapshots):
            if at_most is None or snapshot.position.offset <= at_most:
                self._seen.passed(snapshot.position)
                return snapshot
        return None

    async def snapshot_marks(self) -> Sequence[SnapshotMark]:
        return [SnapshotMark(snapshot.position.offset) for snapshot in self.home.snapshots]

    async def trim(self, before: int, *, epoch: int) -> int:
        gone = trim(check_epoch(self.home.index, epoch), before)
        del self.home.stored[:gone]
        return gone

    async def close(self) -> None:
        return None


class DamagedLog(MemoryLog):
    """A `MemoryLog` that can't be read from the entry at the offset `damaged` on, unless that is 0."""

    damaged = 0

    async def read(self, after: Position, *, limit: int = 1000, wait_s: float = 0.0) -> Sequence[Entry]:
        if self.damaged and after.offset >= self.damaged - 1:
            raise DamagedEntry(self.damaged, "it is damaged")
        return await super().read(after, limit=limit, wait_s=wait_s)
