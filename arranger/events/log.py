"""The interface of the log: append a batch once, read from any offset, and detect when it is not the same log any more.

Positions. Events are numbered 1, 2, 3 … within an epoch; an entry holds the events of one batch, and
`Entry.last` is the offset of its last event. Every entry has a `chain`: a hash over the chain of the entry before it
(empty for the first) and its own payload, with or without a key (`log_keys`). A reader checks it, so it detects every
altered, missing or reordered entry, and a tail that was lost and written again.

Epochs. A log that was emptied or lost its tail is not repaired: a new epoch begins, with offsets from 1.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

import msgspec

from arranger.errors import LogError
from arranger.events.fence import Fence
from arranger.events.kinds import Batch

#: How far a new epoch's number may exceed the lost one's while clocks are behind it, in milliseconds.
_BEYOND_MS = 1000


def epoch_after(lost: int, time_ms: int) -> int:
    """The number of an epoch that replaces `lost`: the time `time_ms`, or a number beyond `lost` if that is greater.

    How far beyond depends on the time as well: a log can be emptied again before every process knows the epoch that
    replaced the lost one, and such a process should not begin another epoch of the same number.
    """
    return time_ms if time_ms > lost else lost + 1 + time_ms % _BEYOND_MS


class Position(msgspec.Struct, frozen=True):
    """How far a reader has read: the epoch, the offset of the last event, and the chain up to it."""

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
    """The offsets of an appended batch. `duplicate`: an earlier try, whose reply was lost, had appended it.

    `cursor` is the reply to a claim: the watch's cursor from its earlier terms; empty if none is known. `entry` is what
    a reader gets, and `chain_before` the chain that it follows; a duplicate has neither.
    """

    first: int
    last: int
    duplicate: bool
    cursor: str = ""
    entry: Entry | None = None
    chain_before: str = ""


class StoredSnapshot(msgspec.Struct, frozen=True):
    """A projection's bytes and its position. `signature` is that of a process with a key of the log, if any."""

    position: Position
    content: bytes
    signature: str = ""


class SnapshotMark(msgspec.Struct, frozen=True):
    """A snapshot's offset. `time_ms` is the time of its state, None if only its content has it."""

    offset: int
    time_ms: int | None = None


#: How many snapshots a log keeps.
SNAPSHOTS_KEPT = 3

#: The maximum number of events that one read brings into memory, unless a single entry has more.
EVENTS_A_READ = 10_000

#: The writer of the batch that begins an epoch.
EPOCH_WRITER = "epoch"


class Log(Protocol):
    """One cluster's event log. Every method may raise `LogUnavailable`; calling it again is then safe."""

    #: Whether others write to it, so that what is at its end is so now.
    live: bool

    async def open(self) -> Position:
        """The end of the log; if no log exists, its first epoch begins here."""
        ...

    async def append(self, batch: Batch, *, epoch: int, fence: Fence | None = None) -> Appended:
        """Append the whole batch and store the watch's cursor or claim, or do neither, in one atomic step.

        The same (writer, seq) is appended once; a repetition returns the first offsets, whatever its fence. Writers
        append one batch after the other: a `seq` below the writer's last raises `OutdatedAppend`. A claim returns the
        watch's cursor as of that step; a repeated claim returns the same while it is still current. Raises `EpochLost`
        if `epoch` is no longer the log's, or the part of the log that this object has seen is lost; `WatchSuperseded`
        if the fence's term isn't the watch's current one; `ClockOff` if this object has a bound and the batch's time
        differs from the store's by more than that.
        """
        ...

    async def read(self, after: Position, *, limit: int = 1000, wait_s: float = 0.0) -> Sequence[Entry]:
        """Entries after the position, oldest first, at most `limit` of them and about `EVENTS_A_READ` events; waits up
        to `wait_s` seconds for one.

        Positions are ends of entries, never inside a batch. Raises `EpochLost` if the position is not in this log any
        more (another epoch, a shorter log, a different chain), `EntriesTrimmed` if entries after it were trimmed, and
        `DamagedEntry` or `UnknownEvent` with the offset if the very next entry is faulty; good entries before such a
        one are returned first.
        """
        ...

    async def end(self) -> Position:
        """The position after the last entry. Raises `EpochLost` if the log has no epoch."""
        ...

    async def start(self) -> Position:
        """The position before the oldest entry that still exists (trimmed entries are before it)."""
        ...

    async def begin_epoch(
        self, *, lost: int, reason: str, time_ms: int, fence: Fence | None = None, cluster: str = ""
    ) -> Position:
        """Begin a new epoch in place of epoch `lost`, once for all callers; returns the end of the present one.

        Its number is `epoch_after(lost, time_ms)`; `cluster` is that of the lost log, if known. If the log's epoch is
        newer than `lost`, nothing happens. The old epoch's watches, snapshots and writers are dropped. Raises
        `WatchSuperseded`, and begins none, if the epoch would begin for a watch whose current term is not the fence's;
        `ClockOff` as `append` does.
        """
        ...

    async def put_snapshot(self, snapshot: StoredSnapshot) -> None:
        """Store a snapshot; the newest three are kept. Raises `EpochLost` if its epoch or its part of the log is lost:
        who began at it would go on from events that the log doesn't have."""
        ...

    async def newest_snapshot(self, *, at_most: int | None = None) -> StoredSnapshot | None:
        """The newest snapshot of this epoch, or the newest at or before the offset `at_most`. What this object appends
        from now on rests on it, as on what it has read."""
        ...

    async def snapshot_marks(self) -> Sequence[SnapshotMark]:
        """The snapshots of this epoch, oldest first, without reading them."""
        ...

    async def trim(self, before: int, *, epoch: int) -> int:
        """Delete whole entries whose events are all before the offset; returns the number of deleted entries.

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
    """A client's knowledge of its log, which it adds to its appends so that a log that went back is detected."""

    def __init__(self) -> None:
        self._last: Position | None = None

    def in_epoch(self, epoch: int) -> Position:
        """The farthest known position in an epoch; its beginning if none is known."""
        last = self._last
        return last if last is not None and last.epoch == epoch else Position(epoch, 0, "")

    def passed(self, position: Position) -> None:
        """The log was read or appended up to there, or is read from there: a snapshot covers everything before it."""
        last = self._last
        if last is None or (last.epoch, last.offset) < (position.epoch, position.offset):
            self._last = position

    def ended(self, position: Position) -> None:
        """The log reported this end. In an epoch that was read or appended to, that doesn't count: the log may have
        grown since, and the entry at that end may be lost."""
        if self._last is None or self._last.epoch < position.epoch:
            self._last = position


class OnlyRead:
    """Mixin for a `Log` that is never written: its writing methods raise `LogError`."""

    live = False

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
