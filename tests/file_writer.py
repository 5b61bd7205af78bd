"""Appending to a log in a file, as the demo once did: for tests that want a log file without a server.

One process writes (it holds `<path>.lock`), any number read meanwhile. The next writer cuts off a torn record. Writes
survive the process, and the machine only after `close`. Snapshots are replaced atomically.
"""

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from arranger.clock import wall_clock_ms
from arranger.errors import LogUnavailable, OutdatedAppend, UsageError
from arranger.events.codec import decode_batch, encode_batch
from arranger.events.entry_index import EntryIndex, check_begun, check_epoch
from arranger.events.fence import Fence
from arranger.events.file_log import (
    _FIXED_BYTES,
    _HEAD,
    _HEAD_AT,
    _MAGIC,
    FileLog,
    _encode_head,
    _encode_record,
    _Head,
    _number,
    _replacing,
    _snapshot_files,
    _write_snapshot,
)
from arranger.events.kinds import Batch, EpochBegun
from arranger.events.log import EPOCH_WRITER, SNAPSHOTS_KEPT, Appended, Entry, Position, StoredSnapshot, epoch_after
from arranger.events.log_keys import next_chain
from tests.memory_log import HeldWatch, after_append, check_fence, check_held, cursor_of_claim, trim

_OLD_FILES_KEPT = 2


class FileWriter(FileLog):
    """A `Log` in a file that is written as well; it is made where there is none."""

    def __init__(self, path: Path, *, now_ms: Callable[[], int] = wall_clock_ms) -> None:
        self._now_ms = now_ms
        self._lock: int | None = None
        super().__init__(path)

    def _forget(self) -> None:
        super()._forget()
        self._learned = False
        self._watches: dict[str, str] = {}
        self._writers: dict[str, tuple[int, int, int]] = {}

    def _open_file(self) -> None:
        try:
            self._file = os.open(self._path, os.O_RDWR)
        except OSError as error:
            raise UsageError(f"log file {self._path} can't be opened: {error.strerror}") from error

    def _refresh(self) -> EntryIndex | None:
        index = super()._refresh()
        if index is not None and not self._learned:
            self._learn(len(index))
        return index

    def _learn(self, records: int) -> None:
        """What the head and the records say of watches, and the head of writers."""
        self._learned = True
        length, _ = _HEAD.unpack_from(self._bytes(_HEAD_AT, 0), len(_MAGIC))
        head = msgspec.msgpack.decode(self._bytes(length, _HEAD_AT), type=_Head)
        self._watches, self._writers = head.watches, head.writers
        for record in map(self._records.__getitem__, range(records)):
            if cursor := self._bytes(record.cursor_bytes, record.at + record.payload_bytes):
                name, value = msgspec.msgpack.decode(cursor, type=tuple[str, str])
                self._watches[name] = value

    def _become_writer(self) -> EntryIndex | None:
        """Takes the lock and cuts off a torn record; remembers who has appended what."""
        if self._lock is not None:
            return self._sound(self._refresh())
        lock = os.open(self._path.with_name(self._path.name + ".lock"), os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            raise UsageError(f"log file {self._path} is being written by another process") from None
        self._lock = lock
        self._close_file()
        index = self._sound(self._refresh())
        if index is not None and self._file is not None:
            os.ftruncate(self._file, self._scanned)
            for number in range(len(index)):
                stored = self._stored(number)
                batch = decode_batch(stored.payload, stored.first)
                self._writers[batch.writer] = (batch.seq, stored.first, stored.last)
        return index

    async def open(self) -> Position:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            index = self._become_writer()
        except OSError as error:
            raise UsageError(f"log file {self._path} can't be written: {error.strerror}") from error
        if index is None:
            return await self.begin_epoch(lost=0, reason="the log was empty", time_ms=self._now_ms())
        return index.end

    def _held(self, fence: Fence | None) -> HeldWatch | None:
        stored = self._watches.get(fence.watch) if fence is not None else None
        return HeldWatch.decoded(stored) if stored is not None else None

    async def append(self, batch: Batch, *, epoch: int, fence: Fence | None = None) -> Appended:
        payload = encode_batch(batch)
        seen = self._index.end if self._index is not None else None
        index = check_epoch(self._become_writer(), epoch)
        if seen is not None and seen.epoch == epoch:
            index.after(seen)
        seq, first, last = self._writers.get(batch.writer, (0, 0, 0))
        held = self._held(fence)
        if batch.seq == seq:
            return Appended(first, last, duplicate=True, cursor=cursor_of_claim(fence, held, first))
        if batch.seq < seq:
            raise OutdatedAppend(f"writer {batch.writer} appends batch {batch.seq} after {seq}")
        check_fence(fence, held)
        before = index.end
        first = before.offset + 1
        now = after_append(fence, held, first)
        cursor = b""
        if fence is not None and now is not None and now != held:
            self._watches[fence.watch] = now.encoded()
            cursor = msgspec.msgpack.encode((fence.watch, now.encoded()))
        self._write(_encode_record(next_chain(before.chain, payload), payload, len(batch.events), cursor))
        self._scan_records(index)
        last = index.end.offset
        self._writers[batch.writer] = (batch.seq, first, last)
        entry = Entry(first, last, index.end.chain, decode_batch(payload, first))
        return Appended(first, last, False, cursor_of_claim(fence, now, first), entry=entry, chain_before=before.chain)

    def _write(self, record: bytes) -> None:
        assert self._file is not None
        try:
            written = os.pwrite(self._file, record, self._scanned)
            if written < len(record):
                os.pwrite(self._file, record[written:], self._scanned + written)
        except OSError as error:
            os.ftruncate(self._file, self._scanned)
            raise LogUnavailable(f"log file {self._path} can't be written: {error.strerror}") from error

    def _replace(self, head: _Head, records: bytes) -> None:
        """Puts a file with this content in the log's place, in one step."""
        with _replacing(self._path) as file:
            file.write(_encode_head(head))
            file.write(records)

    async def begin_epoch(
        self, *, lost: int, reason: str, time_ms: int, fence: Fence | None = None, cluster: str = ""
    ) -> Position:
        index = self._become_writer()
        if index is None or index.start.epoch <= lost:
            check_fence(fence, self._held(fence))
            epoch = epoch_after(lost, time_ms)
            payload = encode_batch(Batch(EPOCH_WRITER, 1, time_ms, (EpochBegun(epoch, lost, reason, cluster),)))
            if index is not None:
                self._keep_old(index.start.epoch)
            for snapshot in _snapshot_files(self._path):
                snapshot.unlink()
            self._replace(_Head(epoch, 0, "", {}, {}), _encode_record(next_chain("", payload), payload, 1))
        return check_begun(self._refresh()).end

    def _keep_old(self, epoch: int) -> None:
        old = self._path.with_name(f"{self._path.name}.old-{epoch}")
        old.unlink(missing_ok=True)
        os.link(self._path, old)
        all_old = sorted(self._path.parent.glob(f"{self._path.name}.old-*"), key=_number)
        for outdated in all_old[:-_OLD_FILES_KEPT]:
            outdated.unlink()

    async def put_snapshot(self, snapshot: StoredSnapshot) -> None:
        check_held(check_epoch(self._become_writer(), snapshot.position.epoch), snapshot.position)
        _write_snapshot(self._path, snapshot)
        for outdated in _snapshot_files(self._path)[:-SNAPSHOTS_KEPT]:
            outdated.unlink()

    async def trim(self, before: int, *, epoch: int) -> int:
        index = check_epoch(self._become_writer(), epoch)
        gone = trim(index, before)
        if gone:
            kept = self._records[gone].at - _FIXED_BYTES if gone < len(self._records) else self._scanned
            head = _Head(epoch, index.start.offset, index.start.chain, self._watches, self._writers)
            self._replace(head, self._bytes(self._scanned - kept, kept))
            self._refresh()
        return gone

    async def close(self) -> None:
        if self._file is not None and self._lock is not None:
            os.fsync(self._file)
        await super().close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
