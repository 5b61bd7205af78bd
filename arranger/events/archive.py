"""The archive: closed segments of the log as files, with the interface of a log.

The names of the files are its index (see `segments`). Segments may overlap if two processes archived at the same time:
they have equal entries at equal offsets, and every entry's chain is checked. A missing segment or a damaged file raises
`DamagedEntry` with the first unreadable offset and the file's name; no entry is skipped.
"""

import asyncio
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from arranger.errors import DamagedEntry, EntriesTrimmed, EpochLost, UsageError
from arranger.events.blob_stores import BlobStore
from arranger.events.codec import StoredEntry, decode_batch
from arranger.events.log import Entry, OnlyRead, Position, SnapshotMark, StoredSnapshot
from arranger.events.log_keys import UNKEYED, LogKeys
from arranger.events.segments import (
    HEAD_BYTES,
    Segment,
    SegmentHead,
    SegmentName,
    SnapshotName,
    damaged,
    decode_segment,
    decode_segment_head,
    decode_snapshot_file,
    parsed_name,
)

#: A segment is in memory already, so a read costs next to nothing. Small reads keep the decoded events in the
#: processor's cache: folding them then takes two thirds of the time that it takes after decoding 10,000 events.
_EVENTS_A_READ = 500

#: How much of the segments is kept that were read before, in bytes: whoever goes from point to point comes back.
_KEPT_BYTES = 256 << 20


class Contents:
    """The archive's files of one epoch, by their names."""

    def __init__(self, epoch: int, names: Sequence[SegmentName | SnapshotName]) -> None:
        self.epoch = epoch
        segments = sorted(name for name in names if isinstance(name, SegmentName) and name.epoch == epoch)
        #: The segments that are read: among overlapping ones, those that reach furthest.
        self.segments: list[SegmentName] = []
        for name in segments:
            kept = self.segments
            if kept and name.last <= kept[-1].last:
                continue
            while len(kept) > 1 and name.first <= kept[-2].last + 1 and name.first <= kept[-1].first:
                kept.pop()
            if kept and name.first <= kept[-1].first:
                kept.pop()
            kept.append(name)
        end = self.segments[-1].last if self.segments else 0
        #: A snapshot is stored before the segment that it closes: one beyond the last segment isn't used yet.
        self.snapshots = sorted(
            name for name in names if isinstance(name, SnapshotName) and name.epoch == epoch and name.offset <= end
        )
        self._firsts = [name.first for name in self.segments]

    def holding(self, offset: int) -> SegmentName | None:
        """The segment that holds an offset: of two, the one that reaches further."""
        number = bisect_right(self._firsts, offset) - 1
        if number < 0 or self.segments[number].last < offset:
            return None
        return self.segments[number]

    def following(self, offset: int) -> SegmentName | None:
        """The first segment that begins after an offset."""
        number = bisect_right(self._firsts, offset)
        return self.segments[number] if number < len(self.segments) else None


def contents_of(blob_store: BlobStore) -> dict[int, Contents]:
    """The contents of an archive by epoch, the oldest first."""
    names = [name for name in map(parsed_name, blob_store.names()) if name is not None]
    return {epoch: Contents(epoch, names) for epoch in sorted({name.epoch for name in names})}


class ArchiveLog(OnlyRead):
    """An epoch of the archive as a read-only `Log`; without `epoch`, the newest one."""

    def __init__(self, blob_store: BlobStore, *, epoch: int | None = None, keys: LogKeys = UNKEYED) -> None:
        self.blob_store = blob_store
        self._own_keys = keys
        self._checked: dict[bytes, dict[int, str]] = {}
        #: What checks the segment that was read last, and the snapshots.
        self.keys = self._snapshot_keys = UNKEYED
        #: The least that is known of a segment that was read.
        self.authenticity = keys.authenticity
        self.contents = Contents(0, ())
        self._asked_for = epoch
        self._segment: Segment | None = None
        #: Whether the reader comes back to what it has read, from wherever it is.
        self.revisited = False
        #: Segments that were read before it, by their files, the latest last.
        self._kept: OrderedDict[str, Segment] = OrderedDict()
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="archive")
        self._ahead: tuple[SegmentName, Future[Segment]] | None = None

    async def open(self) -> Position:
        await self.refresh()
        if not self.contents.segments:
            raise UsageError(
                f"the archive at {self.blob_store.where} has no events of epoch {self.contents.epoch}",
                hint="it keeps those that have events; give another --epoch",
            )
        return await self.end()

    async def refresh(self) -> None:
        """List the files again. Raises `UsageError` if none are of the epoch."""
        found = await asyncio.to_thread(contents_of, self.blob_store)
        epoch = self._asked_for if self._asked_for is not None else max(found, default=None)
        if epoch is None:
            raise UsageError(f"there is no archive at {self.blob_store.where}", hint="check the path or URL")
        if epoch not in found:
            known = ", ".join(map(str, found)) or "none"
            raise UsageError(f"the archive at {self.blob_store.where} has no epoch {epoch}", hint=f"it has {known}")
        self.contents = found[epoch]

    @property
    def reach(self) -> tuple[int, int]:
        """The offset before the first event, and that of the last one; (0, 0) without events."""
        segments = self.contents.segments
        return (segments[0].first - 1, segments[-1].last) if segments else (0, 0)

    async def end(self) -> Position:
        head = await self._head(self.contents.segments[-1])
        # An archive that is signed at its end has signed snapshots since then; earlier ones aren't used.
        self._snapshot_keys = self._own_keys.of_file(signed=head.keyed)
        self._note(head)
        return head.after

    def _note(self, head: SegmentHead) -> None:
        self.keys = self._own_keys.of_file(signed=head.keyed)
        known = self.keys.authenticity
        self.authenticity = min(self.authenticity, known) if self._own_keys.present else known

    async def start(self) -> Position:
        return (await self._head(self.contents.segments[0])).before

    async def _head(self, name: SegmentName) -> SegmentHead:
        begin = await asyncio.to_thread(self._content, name, name.first, HEAD_BYTES)
        return decode_segment_head(name, begin)

    def _content(self, name: SegmentName | SnapshotName, offset: int, count: int = -1) -> bytes:
        try:
            return self.blob_store.read(name.file, count)
        except FileNotFoundError as error:
            raise damaged(offset, f"{name.file} is no longer in the archive at {self.blob_store.where}") from error

    async def read(self, after: Position, *, limit: int = 1000, wait_s: float = 0.0) -> Sequence[Entry]:
        segment, number = await self._locate(after)
        if segment is None:
            return []
        found: list[Entry] = []
        first = after.offset + 1
        try:
            for each in range(number, self._until(segment, number, after, limit)):
                chain = segment.chain(each)
                batch = decode_batch(segment.payload(each), first)
                if len(batch.events) != segment.count(each):
                    counts = f"{len(batch.events)} events, not {segment.count(each)}"
                    raise damaged(first, f"{segment.file} holds {counts}")
                found.append(Entry(first, segment.lasts[each], chain, batch))
                first = segment.lasts[each] + 1
        except DamagedEntry:
            if not found:
                raise
        return found

    async def read_stored(self, after: Position, *, limit: int = 1000) -> Sequence[StoredEntry]:
        segment, number = await self._locate(after)
        if segment is None:
            return []
        return [
            StoredEntry(segment.lasts[each], segment.count(each), segment.chain(each), segment.payload(each))
            for each in range(number, self._until(segment, number, after, limit))
        ]

    @staticmethod
    def _until(segment: Segment, number: int, after: Position, limit: int) -> int:
        within = bisect_right(segment.lasts, after.offset + _EVENTS_A_READ)
        return min(max(within, number + 1), number + limit, len(segment))

    async def _locate(self, after: Position) -> tuple[Segment | None, int]:
        """The segment with the entry after a position, and the entry's number in it; None at the end."""
        first, last = self.reach
        if after.epoch != self.contents.epoch:
            raise EpochLost(f"the archive is read in epoch {self.contents.epoch}, not {after.epoch}")
        if after.offset < first:
            raise EntriesTrimmed(f"the archive at {self.blob_store.where} begins after offset {first}")
        if after.offset > last:
            raise EpochLost(f"the archive ends at offset {last}; read up to {after.offset}")
        if after.offset == last:
            return None, 0
        segment = await self._load(after.offset + 1)
        number = bisect_right(segment.lasts, after.offset)
        before = segment.lasts[number - 1] if number else segment.head.first - 1
        if number == 0 and segment.head.chain_before != after.chain:
            await self._check_follows(segment, after)
        if before != after.offset or segment.chain(number - 1) != after.chain:
            raise EpochLost(f"the archive up to offset {after.offset} is not the log that was read")
        return segment, number

    async def _check_follows(self, segment: Segment, after: Position) -> None:
        """Raise `DamagedEntry` if the position is the end of the segment before this one."""
        before = self.contents.holding(after.offset)
        if before is not None and before.last == after.offset and (await self._head(before)).after == after:
            raise damaged(after.offset + 1, f"{segment.file} doesn't follow from {before.file}, by its chain")

    async def _load(self, offset: int) -> Segment:
        """The segment that holds an offset. While reading continues from one segment to the next, the following one is
        fetched in advance, and the last one is forgotten unless it is `revisited`: a seek costs no more than it needs,
        and whoever reads the whole log once keeps none."""
        present = self._segment
        name = self.contents.holding(offset)
        if name is None:
            raise self._gap(offset)
        if present is not None and present.file == name.file:
            return present
        self._segment = None
        goes_on = present is not None and present.head.last + 1 == offset
        if present is not None and (self.revisited or not goes_on):
            self._keep(present)
        segment = self._kept.pop(name.file, None)
        if segment is None:
            if self._ahead is not None and self._ahead[0] == name:
                loading = self._ahead[1]
            else:
                loading = self._reader.submit(self._fetch, name)
            following = self.contents.holding(name.last + 1) if goes_on else None
            self._ahead = (following, self._reader.submit(self._fetch, following)) if following is not None else None
            segment = await asyncio.wrap_future(loading)
        self._segment = segment
        self._note(segment.head)
        return segment

    def _keep(self, segment: Segment) -> None:
        self._kept[segment.file] = segment
        while sum(of.head.body_bytes for of in self._kept.values()) > _KEPT_BYTES:
            self._kept.popitem(last=False)

    def _fetch(self, name: SegmentName) -> Segment:
        return decode_segment(name, self._content(name, name.first), self._own_keys, self._checked)

    def _gap(self, offset: int) -> DamagedEntry:
        following = self.contents.following(offset)
        assert following is not None
        lacking = f"the archive at {self.blob_store.where} lacks offsets {offset} to {following.first - 1}"
        return damaged(offset, f"{lacking}, before {following.file}")

    async def snapshot_marks(self) -> Sequence[SnapshotMark]:
        return [SnapshotMark(name.offset, name.time_ms) for name in self.contents.snapshots]

    async def newest_snapshot(self, *, at_most: int | None = None) -> StoredSnapshot | None:
        for name in reversed(self.contents.snapshots):
            if at_most is None or name.offset <= at_most:
                content = await asyncio.to_thread(self._content, name, name.offset)
                return await asyncio.to_thread(decode_snapshot_file, name, content, self._snapshot_keys)
        return None

    async def close(self) -> None:
        self._ahead = None
        self._kept.clear()
        self._reader.shutdown(wait=False, cancel_futures=True)

    def read_from(self) -> str:
        return f"the archive at {self.blob_store.where}"
