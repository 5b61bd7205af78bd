"""The log as everything else sees it: append a batch once, read from any offset, notice when it is not the
same log any more.

Positions. Events are numbered 1, 2, 3 … within an epoch; an entry holds the events of one batch, and
`Entry.last` is the offset of its last event. Every entry carries a `chain`: the SHA-1 over the chain of the
entry before it (empty for the first) followed by its own payload. A reader checks it, so an altered, missing
or reordered entry, or a tail that was lost and written again, can't go unnoticed.

Epochs. A log that was emptied or lost its tail is not repaired: a new epoch begins, with offsets from 1.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

import msgspec

from arranger.errors import LogError
from arranger.events.fence import Fence
from arranger.events.kinds import Batch

#: How far the number of an epoch may lie beyond that of the lost one while clocks are behind it, in milliseconds.
_BEYOND_MS = 1000


def epoch_after(lost: int, time_ms: int) -> int:
    """The number of an epoch that begins in place of `lost`: the time `time_ms`, or beyond `lost` if that isn't.

    How far beyond depends on the time as well: a log can be emptied again before all have heard of the epoch that
    replaced the lost one, and whoever hasn't should not begin another one of the same number.
    """
    return time_ms if time_ms > lost else lost + 1 + time_ms % _BEYOND_MS


class Position(msgspec.Struct, frozen=True):
    """How far a reader has come: the epoch, the offset of the last event read, and the chain up to it."""

    epoch: int
    offset: int
    chain: str


class Entry(msgspec.Struct, frozen=True):
    """One batch in the log; its events have the offsets `first` to `last`."""

    first: int
    last: int
    chain: str
    batch: Batch


class Appended(msgspec.Struct, frozen=True):
    """Where a batch stands. `duplicate`: it had been appended before, by an attempt whose answer was lost.

    `cursor` is the answer to a claim: the watch's cursor as its earlier terms left it; empty if none is known.
    """

    first: int
    last: int
    duplicate: bool
    cursor: str = ""


class StoredSnapshot(msgspec.Struct, frozen=True):
    """A projection's bytes and the position that it was taken at."""

    position: Position
    content: bytes


class SnapshotMark(msgspec.Struct, frozen=True):
    """That there is a snapshot at an offset. `time_ms` is its state's time told, None where only reading it says."""

    offset: int
    time_ms: int | None = None


#: How many snapshots a log keeps.
SNAPSHOTS_KEPT = 3

#: How many events one read brings into memory at most, unless a single entry holds more.
EVENTS_A_READ = 10_000

#: The writer of the batch that begins an epoch.
EPOCH_WRITER = "epoch"


class Log(Protocol):
    """One cluster's event log. Every method may raise `LogUnavailable`; it is safe to call again then."""

    async def open(self) -> Position:
        """The end of the log; an empty home gets its first epoch here."""
        ...

    async def append(self, batch: Batch, *, epoch: int, fence: Fence | None = None) -> Appended:
        """Append the whole batch and store the watch's cursor or claim, or do neither, in one atomic step.

        The same (writer, seq) appends once, and a repetition returns the first offsets, whatever its fence. Writers
        append one batch after the other: a `seq` below the writer's last raises `OutdatedAppend`. A claim returns the
        watch's cursor as it is in that step; a claim that is repeated returns the same while it is still current.
        Raises `EpochLost` if `epoch` is no longer the log's, or its tail, as far as this object has seen it, is lost;
        `WatchSuperseded` if the fence's term isn't the watch's current one; `ClockOff` if this object was given a bound
        and the batch's time is off by more than that from the store's own.
        """
        ...

    async def read(self, after: Position, *, limit: int = 1000, wait_s: float = 0.0) -> Sequence[Entry]:
        """Entries whose events come after the position, oldest first, at most `limit` of them and about
        `EVENTS_A_READ` events; waits up to `wait_s` seconds for one.

        Positions are ends of entries; nobody stands in the middle of a batch. Raises `EpochLost` when the position
        is not in this log any more (another epoch, a shorter log, a different chain), `EntriesTrimmed` when entries
        after it were trimmed away, `DamagedEntry` or `UnknownEvent` with the offset when the very next entry is
        wrong; the entries before such a one come first.
        """
        ...

    async def end(self) -> Position:
        """The position after the last entry. Raises `EpochLost` when the log has no epoch."""
        ...

    async def start(self) -> Position:
        """The position before the oldest entry that is still there (what was trimmed lies before it)."""
        ...

    async def begin_epoch(
        self, *, lost: int, reason: str, time_ms: int, fence: Fence | None = None, cluster: str = ""
    ) -> Position:
        """Begin a new epoch in place of epoch `lost`, once, whoever calls; answers the end of the present one.

        Its number is `epoch_after(lost, time_ms)`; `cluster` is whose log the lost one was, if that is known. Nothing
        happens when the log's epoch is newer than `lost`. The old epoch's watches, snapshots and writers are dropped.
        Raises `WatchSuperseded`, and begins none, if the epoch would begin on behalf of a watch whose current term is
        not the fence's; `ClockOff` as `append` does.
        """
        ...

    async def put_snapshot(self, snapshot: StoredSnapshot) -> None:
        """Keep a snapshot; the newest three are kept. Raises `EpochLost` if it is of another epoch."""
        ...

    async def newest_snapshot(self, *, at_most: int | None = None) -> StoredSnapshot | None:
        """The newest snapshot of this epoch, or the newest at or before the offset `at_most`."""
        ...

    async def snapshot_marks(self) -> Sequence[SnapshotMark]:
        """Which snapshots of this epoch there are, oldest first, without reading them."""
        ...

    async def trim(self, before: int, *, epoch: int) -> int:
        """Drop whole entries whose events all come before the offset; answers how many entries went.

        Raises `EpochLost` if `epoch` is no longer the log's: the offset would mean other events.
        """
        ...

    async def close(self) -> None: ...


async def entries(log: Log, after: Position, *, until: int | None = None) -> AsyncIterator[Entry]:
    """All entries after a position up to the present end, or up to the entry that holds offset `until`."""
    target = (await log.end()).offset if until is None else until
    while after.offset < target:
        batch = await log.read(after)
        if not batch:
            return
        for entry in batch:
            yield entry
            after = Position(after.epoch, entry.last, entry.chain)
            if after.offset >= target:
                return


class Seen:
    """How far a client knows its log. What it appends says so, that a log which went back in between is noticed."""

    def __init__(self) -> None:
        self._last: Position | None = None

    def in_epoch(self, epoch: int) -> Position:
        """The farthest position that is known in an epoch; its beginning where none is."""
        last = self._last
        return last if last is not None and last.epoch == epoch else Position(epoch, 0, "")

    def passed(self, position: Position) -> None:
        """The log was read or appended to up to there, or is read from there: a snapshot knows what lies before it."""
        last = self._last
        if last is None or (last.epoch, last.offset) < (position.epoch, position.offset):
            self._last = position

    def ended(self, position: Position) -> None:
        """The log said that it ends there. Only what was read or appended in an epoch counts there: an end may be gone
        from a log that has grown since."""
        if self._last is None or self._last.epoch < position.epoch:
            self._last = position


class OnlyRead:
    """What a `Log` that is never written answers to whoever would write to it: a `LogError`."""

    def read_from(self) -> str:
        raise NotImplementedError

    async def append(self, batch: Batch, *, epoch: int, fence: Fence | None = None) -> Appended:
        raise self._refusal()

    async def begin_epoch(
        self, *, lost: int, reason: str, time_ms: int, fence: Fence | None = None, cluster: str = ""
    ) -> Position:
        raise self._refusal()

    async def put_snapshot(self, snapshot: StoredSnapshot) -> None:
        raise self._refusal()

    async def trim(self, before: int, *, epoch: int) -> int:
        raise self._refusal()

    def _refusal(self) -> LogError:
        return LogError(f"{self.read_from()} is open for reading only")
