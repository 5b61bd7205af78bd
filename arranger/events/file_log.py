"""The log in one file: kept by the demo, opened by replay, and the target for copies of a Redis stream.

The file is a magic line, a head (MessagePack, with its length and CRC before it), and records. A record is a fixed
part (`_FIXED`: lengths of payload and cursor, number of events, the cursor's CRC, raw chain, and a CRC over these)
followed by payload and cursor. Snapshots are separate files beside it.

`copy_log` writes a whole file, and nothing here appends to one. Another program may append while the file is read, and
its records may have cursors of watches. A record that is cut short at the end of the file is still being written, or
was torn by a crash: readers stop before it. Any other fault is damage and raises.
"""

import asyncio
import os
import struct
import zlib
from array import array
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from stat import S_ISREG
from typing import BinaryIO, Protocol

import msgspec

from arranger.errors import DamagedEntry, LogError, LogUnavailable, NoLog, UsageError
from arranger.events.codec import (
    StoredEntry,
    checked_snapshot,
    decode_snapshot,
    encode_snapshot,
    verified,
    verified_run,
)
from arranger.events.entry_index import EntryIndex, check_begun, check_epoch
from arranger.events.log import Entry, Log, OnlyRead, Position, SnapshotMark, StoredSnapshot
from arranger.events.log_keys import UNKEYED, Authenticity, LogKeys

_MAGIC = b"arranger log 1\n"
_CRC = struct.Struct(">I")
#: Length and CRC-32 of the head.
_HEAD = struct.Struct(">II")
_HEAD_AT = len(_MAGIC) + _HEAD.size
#: Lengths of payload and cursor, number of events, CRC-32 of the cursor, chain; then a CRC-32 of these.
_FIXED = struct.Struct(">IIII20s")
_FIXED_BYTES = _FIXED.size + _CRC.size
_POLL_S = 0.05
#: The size of one scan for the beginnings of records.
_A_SCAN = 1 << 20


class _Head(msgspec.Struct, frozen=True, array_like=True):
    """The data beside the records: the epoch, the position before the oldest record, the watches and writers of trimmed
    records, which are no longer used, and whether entries are signed."""

    epoch: int
    start: int
    start_chain: str
    watches: dict[str, str]
    writers: dict[str, tuple[int, int, int]]
    keyed: bool = False


class _Record(msgspec.Struct, frozen=True):
    """The location of a record's payload and cursor in the file."""

    at: int
    payload_bytes: int
    cursor_bytes: int
    count: int


class _Records:
    """The records of a file in their order, 20 bytes each."""

    def __init__(self) -> None:
        self._at = array("q")
        self._sizes = array("I")

    def __len__(self) -> int:
        return len(self._at)

    def __getitem__(self, number: int) -> _Record:
        return _Record(self._at[number], *self._sizes[3 * number : 3 * number + 3])

    def add(self, at: int, payload_bytes: int, cursor_bytes: int, count: int) -> None:
        self._at.append(at)
        self._sizes.extend((payload_bytes, cursor_bytes, count))


def _encode_head(head: _Head) -> bytes:
    encoded = msgspec.msgpack.encode(head)
    return _MAGIC + _HEAD.pack(len(encoded), zlib.crc32(encoded)) + encoded


def _encode_record(chain: str, payload: bytes, count: int, cursor: bytes = b"") -> bytes:
    fixed = _FIXED.pack(len(payload), len(cursor), count, zlib.crc32(cursor), bytes.fromhex(chain))
    return b"".join((fixed, _CRC.pack(zlib.crc32(fixed)), payload, cursor))


class FileLog(OnlyRead):
    """A `Log` in a file, for reading only. To open it without a file raises `UsageError`.

    `keys` check the entries of a file that is signed.
    """

    def __init__(self, path: Path, keys: LogKeys = UNKEYED) -> None:
        self._path = path
        self.keys = self._own_keys = keys
        self._file: int | None = None
        self._forget()

    @property
    def authenticity(self) -> Authenticity:
        return self.keys.authenticity

    @property
    def torn(self) -> bool:
        """Whether the file ends within a record, as of the last look: the copy of it is incomplete, a crash cut it off,
        or another program still writes it."""
        return self._file is not None and self._fault is None and self._scanned < os.fstat(self._file).st_size

    def _forget(self) -> None:
        self._index: EntryIndex | None = None
        self._records = _Records()
        self._scanned = 0
        self._fault: DamagedEntry | None = None

    def _refresh(self) -> EntryIndex | None:
        """Scan what the file has gained; start again if it is another file or became shorter."""
        try:
            present = self._path.stat()
        except FileNotFoundError:
            self._close_file()
            return None
        except OSError as error:
            raise LogUnavailable(f"log file {self._path} can't be read: {error.strerror}") from error
        if not S_ISREG(present.st_mode):
            raise UsageError(f"{self._path} is no log file of Arranger's")
        if self._file is not None:
            mine = os.fstat(self._file)
            if (mine.st_dev, mine.st_ino) != (present.st_dev, present.st_ino) or mine.st_size < self._scanned:
                self._close_file()
        if self._file is None:
            self._open_file()
        if self._index is None:
            self._scan_head()
        if self._index is not None:
            self._scan_records(self._index)
        return self._index

    def _open_file(self) -> None:
        try:
            self._file = os.open(self._path, os.O_RDONLY)
        except OSError as error:
            raise UsageError(f"log file {self._path} can't be opened: {error.strerror}") from error

    def _close_file(self) -> None:
        if self._file is not None:
            os.close(self._file)
        self._file = None
        self._forget()

    def _bytes(self, count: int, at: int) -> bytes:
        assert self._file is not None
        return os.pread(self._file, count, at)

    def _scan_head(self) -> None:
        begin = self._bytes(_HEAD_AT, 0)
        if begin[: len(_MAGIC)] != _MAGIC[: len(begin)]:
            raise UsageError(f"{self._path} is no log file of Arranger's")
        if len(begin) < _HEAD_AT:  # still being written
            return
        length, crc = _HEAD.unpack_from(begin, len(_MAGIC))
        encoded = self._bytes(length, _HEAD_AT)
        if len(encoded) < length:
            return
        if zlib.crc32(encoded) != crc:
            raise LogError(f"the head of log file {self._path} is damaged")
        head = msgspec.msgpack.decode(encoded, type=_Head)
        self.keys = self._own_keys.of_file(signed=head.keyed)
        self._index = EntryIndex(Position(head.epoch, head.start, head.start_chain))
        self._scanned = _HEAD_AT + length

    def _scan_records(self, index: EntryIndex) -> None:
        """Scan up to the end of the file or to damage, which is raised when a reader reaches it."""
        assert self._file is not None
        size = os.fstat(self._file).st_size
        try:
            while self._fault is None and self._scanned < size and self._scan_run(index, size):
                pass
        except DamagedEntry as fault:
            self._fault = fault

    def _sound(self, index: EntryIndex | None) -> EntryIndex | None:
        """The index; raises if the file is damaged."""
        if self._fault is not None:
            raise self._fault
        return index

    def _scan_run(self, index: EntryIndex, size: int) -> bool:
        """Scan the records that begin in the next megabyte; returns False if none is complete."""
        began = self._scanned
        run = self._bytes(_A_SCAN, began)
        last = index.end.offset
        while (at := self._scanned - began) + _FIXED_BYTES <= len(run):
            fixed = run[at : at + _FIXED_BYTES]
            (crc,) = _CRC.unpack_from(fixed, _FIXED.size)
            if zlib.crc32(fixed[: _FIXED.size]) != crc:
                # A file system may extend a file before it writes: zeros at the end are a torn record too.
                if not any(fixed):
                    return False
                raise DamagedEntry(last + 1, f"the record's beginning in {self._path} is damaged")
            payload_bytes, cursor_bytes, count, cursor_crc, chain = _FIXED.unpack_from(fixed)
            at = self._scanned + _FIXED_BYTES
            after = at + payload_bytes + cursor_bytes
            if after > size:
                return False
            if cursor_bytes and zlib.crc32(self._bytes(cursor_bytes, at + payload_bytes)) != cursor_crc:
                raise DamagedEntry(last + 1, "the cursor stored with it is damaged")
            self._records.add(at, payload_bytes, cursor_bytes, count)
            last += count
            index.add(last, chain.hex())
            self._scanned = after
        return self._scanned > began

    def _stored(self, number: int, run: bytes | None = None, begin: int = 0) -> StoredEntry:
        """The entry of this number; `run` is the file's bytes from `begin` on, if they were read."""
        record, end = self._records[number], check_begun(self._index).position(number)
        at = record.at - begin
        payload = self._bytes(record.payload_bytes, record.at) if run is None else run[at : at + record.payload_bytes]
        return StoredEntry(end.offset, record.count, end.chain, payload)

    async def open(self) -> Position:
        index = self._refresh()
        if index is None and self._file is not None:
            what = "is cut off in its head" if os.fstat(self._file).st_size else "is empty"
            raise NoLog(f"{self._path} {what}: it has no log yet")
        if index is None:
            raise NoLog(f"there is no log at {self._path}", hint="check the path")
        return index.end

    async def read(self, after: Position, *, limit: int = 1000, wait_s: float = 0.0) -> Sequence[Entry]:
        deadline = asyncio.get_running_loop().time() + wait_s
        stored = await self.read_stored(after, limit=limit)
        while not stored and (left_s := deadline - asyncio.get_running_loop().time()) > 0:
            # Another process writes the file and sends no notification.
            await asyncio.sleep(min(_POLL_S, left_s))
            stored = await self.read_stored(after, limit=limit)
        return verified_run(stored, after, keys=self.keys)

    async def read_stored(self, after: Position, *, limit: int = 1000) -> Sequence[StoredEntry]:
        """Entries as stored, unchecked: for a copy of the log."""
        first, until = check_epoch(self._refresh(), after.epoch).bounds(after, limit=limit)
        if first == until and self._fault is not None:
            raise self._fault
        if until - first < 2:
            return [self._stored(number) for number in range(first, until)]
        # In one piece: a read per payload costs as much again as decoding it.
        begin, end = self._records[first].at, self._records[until - 1]
        run = self._bytes(end.at + end.payload_bytes - begin, begin)
        return [self._stored(number, run, begin) for number in range(first, until)]

    async def end(self) -> Position:
        return check_begun(self._sound(self._refresh())).end

    async def start(self) -> Position:
        return check_begun(self._refresh()).start

    async def newest_snapshot(self, *, at_most: int | None = None) -> StoredSnapshot | None:
        index = self._refresh()
        for path in reversed(_snapshot_files(self._path)):
            if index is not None and (at_most is None or _number(path) <= at_most):
                try:
                    content = path.read_bytes()
                except FileNotFoundError:  # removed since, with the log that it was of
                    continue
                snapshot = checked_snapshot(decode_snapshot(content, _number(path)), self.keys)
                if snapshot.position.epoch == index.start.epoch:
                    return snapshot
        return None

    async def snapshot_marks(self) -> Sequence[SnapshotMark]:
        return [SnapshotMark(_number(path)) for path in _snapshot_files(self._path)]

    async def close(self) -> None:
        self._close_file()

    def read_from(self) -> str:
        return f"log file {self._path}"


def _snapshot_files(log: Path) -> list[Path]:
    """The snapshots beside a log, oldest first, without those that are being written."""
    found = log.parent.glob(f"{log.name}.snapshot-*")
    return sorted((path for path in found if path.name.rpartition("-")[2].isdecimal()), key=_number)


def _write_snapshot(log: Path, snapshot: StoredSnapshot) -> None:
    with _replacing(log.with_name(f"{log.name}.snapshot-{snapshot.position.offset}")) as file:
        file.write(encode_snapshot(snapshot))


@contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write, which replaces the one at the path in one step at the end."""
    fresh = path.with_name(path.name + ".new")
    try:
        with fresh.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


class Copyable(Log, Protocol):
    """A log whose entries can be copied as stored. `keys` check the entries that were read last."""

    keys: LogKeys

    @property
    def authenticity(self) -> Authenticity:
        """What is known of who wrote the entries that were read."""
        ...

    async def read_stored(self, after: Position, *, limit: int = 1000) -> Sequence[StoredEntry]:
        """Entries as stored, unchecked."""
        ...


async def stored_entries(source: Copyable, after: Position, *, at_once: int) -> AsyncIterator[Sequence[StoredEntry]]:
    """All entries from a position to at least the present end, each checked. Raises the errors of `read`."""
    end = await source.end()
    while after.offset < end.offset:
        stored = await source.read_stored(after, limit=at_once)
        if not stored:
            raise DamagedEntry(after.offset + 1, f"the log ends at offset {end.offset}, and nothing follows here")
        for one in stored:
            entry = verified(one, after, keys=source.keys)
            after = Position(after.epoch, entry.last, entry.chain)
        yield stored


async def copy_log(source: Copyable, target: Path) -> Position:
    """Write a log into a file, with its epoch, offsets, chain and snapshots; returns the end of the copy.

    It replaces the file at `target` in one step. Every entry is checked. Watches aren't copied: a copy is for reading.
    Raises the errors of `read`.
    """
    position = await source.start()
    with _replacing(target) as file:
        head = _Head(position.epoch, position.offset, position.chain, {}, {}, source.keys.signed)
        file.write(_encode_head(head))
        async for stored in stored_entries(source, position, at_once=100):
            for one in stored:
                file.write(_encode_record(one.chain, one.payload, one.count))
            position = Position(position.epoch, stored[-1].last, stored[-1].chain)
    for outdated in _snapshot_files(target):
        outdated.unlink()
    snapshot = await source.newest_snapshot(at_most=position.offset)
    while snapshot is not None:
        _write_snapshot(target, snapshot)
        snapshot = await source.newest_snapshot(at_most=snapshot.position.offset - 1)
    return position


def _number(path: Path) -> int:
    return int(path.name.rpartition("-")[2])
