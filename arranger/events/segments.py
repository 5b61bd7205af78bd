"""The files of an archive: segments of the log and snapshots, each one compressed and checksummed file.

A file's name describes its content, so a listing of names is the index; no other index exists that could be outdated.
`1763621911000-000000000001-000000100000-1763621911000-1763622011000.events` has an epoch, the first and last offset,
and the first and last time; a snapshot's name has the epoch, the offset and the time of its state.

Both begin with a magic line and a head (MessagePack, with its length and CRC before it). A body compressed with
zstandard follows, whose SHA-256 is in the head. A segment's body has the lengths of all payloads, then the numbers of
their events, then the payloads. The chain of each entry follows from the chain before the segment and the payloads, so
it isn't stored; the chain after the segment is stored and must match. With a key (`log_keys`) the chains follow the
payloads, so that a reader without the key has them too.
"""

import hashlib
import re
import struct
import zlib
from collections.abc import Sequence
from typing import TypeVar

import msgspec
import numpy
import zstandard

from arranger.errors import DamagedEntry
from arranger.events.codec import StoredEntry, checked_snapshot
from arranger.events.log import Position, StoredSnapshot
from arranger.events.log_keys import UNKEYED, LogKeys, next_chain

_MAGIC = {"events": b"arranger events 1\n", "snapshot": b"arranger snapshot 1\n"}
#: Length and CRC-32 of the head.
_LENGTHS = struct.Struct(">II")
#: Enough bytes for magic and head of either kind of file.
HEAD_BYTES = 512

#: Bytes of a chain.
_CHAIN_BYTES = 20
#: How many entries lie between two chains that are kept for the next time.
_BETWEEN_CHAINS = 64
#: Measured on a log of 1,000,000 events: each level above saves less than 3 % and takes half as long again.
_LEVEL = 9
#: Large enough to find most pods' earlier observations in the same file.
_WINDOW_LOG = 25

_SEGMENT_NAME = re.compile(r"(\d{13,})-(\d{12,})-(\d{12,})-(\d{13,})-(\d{13,})\.events")
_SNAPSHOT_NAME = re.compile(r"(\d{13,})-(\d{12,})-(\d{13,})\.snapshot")

_Head = TypeVar("_Head", "SegmentHead", "_SnapshotHead")


class SegmentName(msgspec.Struct, frozen=True, order=True):
    """The parts of the name of a segment's file."""

    epoch: int
    first: int
    last: int
    first_time_ms: int
    last_time_ms: int

    @property
    def file(self) -> str:
        times_ms = f"{self.first_time_ms:013}-{self.last_time_ms:013}"
        return f"{self.epoch:013}-{self.first:012}-{self.last:012}-{times_ms}.events"


class SnapshotName(msgspec.Struct, frozen=True, order=True):
    """The parts of the name of a snapshot's file."""

    epoch: int
    offset: int
    time_ms: int

    @property
    def file(self) -> str:
        return f"{self.epoch:013}-{self.offset:012}-{self.time_ms:013}.snapshot"


def parsed_name(file: str) -> SegmentName | SnapshotName | None:
    """The parts of a file's name; None if it isn't part of an archive."""
    match = _SEGMENT_NAME.fullmatch(file)
    if match is not None:
        return SegmentName(*map(int, match.groups()))
    match = _SNAPSHOT_NAME.fullmatch(file)
    return SnapshotName(*map(int, match.groups())) if match is not None else None


class SegmentHead(msgspec.Struct, frozen=True, array_like=True):
    """The head before a segment's body; `times_ms` are the first and the last time in it, since 1970.

    `keyed`: entries are signed, and the body has their chains.
    """

    epoch: int
    first: int
    last: int
    times_ms: tuple[int, int]
    chain_before: str
    chain_after: str
    entries: int
    body_bytes: int
    sha256: bytes
    keyed: bool = False

    @property
    def before(self) -> Position:
        """The position that the segment follows."""
        return Position(self.epoch, self.first - 1, self.chain_before)

    @property
    def after(self) -> Position:
        """The position after the segment."""
        return Position(self.epoch, self.last, self.chain_after)


class _SnapshotHead(msgspec.Struct, frozen=True, array_like=True):
    epoch: int
    offset: int
    chain: str
    time_ms: int
    body_bytes: int
    sha256: bytes
    signature: str = ""


class Segment:
    """Entries of a segment that was read: payloads and their ends; chains are computed and checked as far as needed.

    `checked` has chains of some entries that were computed and checked when the same body was read before. More are put
    there, so that reading may begin in the middle of a long segment."""

    def __init__(self, head: SegmentHead, body: bytes, file: str, keys: LogKeys, checked: dict[int, str]) -> None:
        self.head = head
        self.file = file
        self._keys = keys.of_file(signed=head.keyed)
        table = numpy.frombuffer(body, dtype="<u4", count=2 * head.entries).astype(numpy.int64)
        lengths, counts = table[: head.entries], table[head.entries :]
        ends = numpy.cumsum(lengths) + 8 * head.entries
        #: Offset of the last event of each entry.
        self.lasts: list[int] = (numpy.cumsum(counts) + head.first - 1).tolist()
        self._ends: list[int] = ends.tolist()
        self._counts: list[int] = counts.tolist()
        self._body = body
        self._checked = checked
        #: Those that were needed since it was read.
        self._chains: dict[int, str] = {-1: head.chain_before}
        #: Where the chains begin that are stored with a key.
        self._chains_at = len(body) - (_CHAIN_BYTES * head.entries if head.keyed else 0)
        if head.entries == 0 or self._ends[-1] != self._chains_at or self.lasts[-1] != head.last:
            raise damaged(head.first, f"{file}: its body isn't what its head says")

    def __len__(self) -> int:
        return len(self.lasts)

    def payload(self, number: int) -> bytes:
        begin = self._ends[number - 1] if number else 8 * len(self)
        return self._body[begin : self._ends[number]]

    def count(self, number: int) -> int:
        return self._counts[number]

    def chain(self, number: int) -> str:
        """The chain after the entry of this number; -1 is the chain before the segment."""
        chains, at = self._chains, number
        while at not in chains:
            if at in self._checked:
                chains[at] = self._checked[at]
            else:
                at -= 1
        for each in range(at + 1, number + 1):
            chains[each] = self._next(each, chains[each - 1])
            if not each % _BETWEEN_CHAINS:
                self._checked[each] = chains[each]
        if number == len(self) - 1 and chains[number] != self.head.chain_after:
            raise damaged(self.head.last, f"{self.file}: its chain of hashes doesn't come out")
        return chains[number]

    def _next(self, number: int, before: str) -> str:
        """The chain after an entry, checked if it is stored. Raises `ForgedEntry`."""
        if not self.head.keyed:
            return next_chain(before, self.payload(number))
        at, count = self._chains_at + _CHAIN_BYTES * number, self.count(number)
        chain = self._body[at : at + _CHAIN_BYTES].hex()
        position = Position(self.head.epoch, self.lasts[number] - count, before)
        if not self._keys.follows(position, count, chain, self.payload(number)):
            reason = f"{self.file}: its chain hash doesn't follow from the entry before it"
            raise self._keys.refusal(position.offset + 1, reason)
        return chain


def encode_segment(
    before: Position, entries: Sequence[StoredEntry], times_ms: tuple[int, int], *, keyed: bool = False
) -> tuple[str, bytes]:
    """Name and content of the file for checked entries after a position; `times_ms` and `keyed` as in `SegmentHead`."""
    lengths = numpy.array([len(entry.payload) for entry in entries], dtype="<u4")
    counts = numpy.array([entry.count for entry in entries], dtype="<u4")
    chains = [bytes.fromhex(entry.chain) for entry in entries] if keyed else []
    raw = b"".join((lengths.tobytes(), counts.tobytes(), *(entry.payload for entry in entries), *chains))
    last = entries[-1]
    body = _compressed(raw)
    name = SegmentName(before.epoch, before.offset + 1, last.last, *times_ms)
    head = SegmentHead(
        epoch=before.epoch,
        first=name.first,
        last=last.last,
        times_ms=times_ms,
        chain_before=before.chain,
        chain_after=last.chain,
        entries=len(entries),
        body_bytes=len(raw),
        sha256=hashlib.sha256(body).digest(),
        keyed=keyed,
    )
    return name.file, _framed("events", head) + body


def decode_segment(
    name: SegmentName, content: bytes, keys: LogKeys = UNKEYED, checked: dict[bytes, dict[int, str]] | None = None
) -> Segment:
    """The inverse of `encode_segment`; `keys` check it if it is signed. `checked` keeps what `Segment` keeps, by the
    digest of the body. Raises `DamagedEntry`, which names the file."""
    head, body = _opened("events", SegmentHead, content, name.first, name.file)
    if (head.epoch, head.first, head.last) != (name.epoch, name.first, name.last):
        raise damaged(name.first, f"{name.file} holds offsets {head.first} to {head.last}")
    return Segment(head, body, name.file, keys, checked.setdefault(head.sha256, {}) if checked is not None else {})


def decode_segment_head(name: SegmentName, begin: bytes) -> SegmentHead:
    """The head alone, from the first `HEAD_BYTES` of the file."""
    return _head("events", SegmentHead, begin, name.first, name.file)[0]


def encode_snapshot_file(snapshot: StoredSnapshot, time_ms: int) -> tuple[str, bytes]:
    """Name and content of the file for a snapshot; `time_ms` is the time of its state."""
    position = snapshot.position
    body = _compressed(snapshot.content)
    sizes = (len(snapshot.content), hashlib.sha256(body).digest())
    head = _SnapshotHead(position.epoch, position.offset, position.chain, time_ms, *sizes, snapshot.signature)
    name = SnapshotName(position.epoch, position.offset, time_ms)
    return name.file, _framed("snapshot", head) + body


def decode_snapshot_file(name: SnapshotName, content: bytes, keys: LogKeys = UNKEYED) -> StoredSnapshot:
    """The inverse of `encode_snapshot_file`, whose signature `keys` check. Raises `DamagedEntry`."""
    head, body = _opened("snapshot", _SnapshotHead, content, name.offset, name.file)
    snapshot = StoredSnapshot(Position(head.epoch, head.offset, head.chain), body, head.signature)
    return checked_snapshot(snapshot, keys)


def damaged(offset: int, reason: str) -> DamagedEntry:
    """The error for a faulty file of an archive, found at an offset."""
    return DamagedEntry(offset, reason, hint="restore this file of the archive from a copy")


def _compressed(raw: bytes) -> bytes:
    parameters = zstandard.ZstdCompressionParameters.from_level(
        _LEVEL, source_size=len(raw), window_log=_WINDOW_LOG, enable_ldm=True
    )
    return zstandard.ZstdCompressor(compression_params=parameters).compress(raw)


def _framed(kind: str, head: msgspec.Struct) -> bytes:
    encoded = msgspec.msgpack.encode(head)
    return _MAGIC[kind] + _LENGTHS.pack(len(encoded), zlib.crc32(encoded)) + encoded


def _head(kind: str, of: type[_Head], content: bytes, offset: int, file: str) -> tuple[_Head, int]:
    """The head, and the index at which the body begins."""
    magic = _MAGIC[kind]
    at = len(magic) + _LENGTHS.size
    if not content.startswith(magic) or len(content) < at:
        raise damaged(offset, f"{file} doesn't begin as a file of an archive does")
    length, crc = _LENGTHS.unpack_from(content, len(magic))
    encoded = content[at : at + length]
    if len(encoded) < length or zlib.crc32(encoded) != crc:
        raise damaged(offset, f"{file}: its head is damaged")
    return msgspec.msgpack.decode(encoded, type=of), at + length


def _opened(kind: str, of: type[_Head], content: bytes, offset: int, file: str) -> tuple[_Head, bytes]:
    head, at = _head(kind, of, content, offset, file)
    body = memoryview(content)[at:]
    if hashlib.sha256(body).digest() != head.sha256:
        raise damaged(offset, f"{file}: its checksum doesn't come out, or it is cut off")
    return head, zstandard.ZstdDecompressor(max_window_size=1 << 27).decompress(
        bytes(body), max_output_size=head.body_bytes
    )
