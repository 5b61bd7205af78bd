"""The log's encoding: a batch as MessagePack, the check of the chain over batches, and the reading of old versions.

A payload is the array `[writer, seq, time_ms, [[tag, field, …], …]]`. Decoding is strict: an unknown event tag, a field
of the wrong type or a cut-off payload raises with the offset, and nothing is skipped. Events of old versions are
decoded in their own version and then upcast, so readers only see the present version.
"""

import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar, Union, get_args

import msgspec

from arranger.errors import DamagedEntry, UnknownEvent
from arranger.events.earlier import UPCASTS
from arranger.events.kinds import Batch, PodSeen, share_parts
from arranger.events.log import Entry, Position, StoredSnapshot
from arranger.events.log_keys import UNKEYED, LogKeys

_AnyVersion = TypeVar("_AnyVersion")


class _WrittenBatch(msgspec.Struct, Generic[_AnyVersion], frozen=True, array_like=True):
    """A batch as written: the fields of `Batch`, with events of any version that was ever current."""

    writer: str
    seq: int
    time_ms: int
    events: tuple[_AnyVersion, ...]


class StoredEntry(msgspec.Struct, frozen=True):
    """One entry as it is stored: `count` events, the last of them at offset `last`."""

    last: int
    count: int
    chain: str
    payload: bytes

    @property
    def first(self) -> int:
        return self.last - self.count + 1

    @property
    def before(self) -> int:
        return self.last - self.count


#: Beginning of msgspec's message about an enumeration member that this version doesn't have.
_UNKNOWN_VALUE = "Invalid enum value"


class Codec:
    """Encodes and decodes batches of one type, and decodes the old versions in `upcasts`.

    `batch` is `Batch`, or a struct like it: its `events` are a tuple of tagged, array-like structs. Every key of
    `upcasts` is such a struct too, and its function returns the present version. Decoders are built once; use one codec
    for many batches.
    """

    def __init__(self, batch: type[Any], upcasts: Mapping[type[Any], Callable[[Any], Any]]) -> None:
        self._batch = batch
        self._upcasts = dict(upcasts)
        events = next(field.type for field in msgspec.structs.fields(batch) if field.name == "events")
        readable = (*get_args(get_args(events)[0]), *self._upcasts)
        self._tags = frozenset(str(kind.__struct_config__.tag) for kind in readable)
        self._encoder = msgspec.msgpack.Encoder()
        #: Of present versions alone, as nearly every batch is: 5 % faster than a look at the version of each event.
        self._present: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(batch)
        self._decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(
            _WrittenBatch[Union[readable]]  # type: ignore[valid-type]  # noqa: UP007  # the members are only known now
        )

    def encode(self, batch: Batch) -> bytes:
        """The batch's payload; equal batches give equal bytes. Raises `ValueError` for an invalid batch."""
        if not batch.events or batch.seq < 1:
            raise ValueError("a batch needs at least one event, and a sequence number from 1")
        return self._encoder.encode(batch)

    def decode(self, payload: bytes, offset: int) -> Batch:
        """The batch whose first event has this offset.

        Raises `UnknownEvent` (unknown tag) or `DamagedEntry` (anything else unreadable) with the offset of the faulty
        event, or of the first event if the payload as a whole is unreadable.
        """
        try:
            batch: Batch = self._present.decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            batch = self._decode_any(payload, offset)
        if not batch.events:
            raise DamagedEntry(offset, "the batch holds no events")
        for event in batch.events:
            if type(event) is PodSeen:
                share_parts(event)
        return batch

    def _decode_any(self, payload: bytes, offset: int) -> Batch:
        """As `decode`, for a batch with events of old versions, or with a fault."""
        try:
            written = self._decoder.decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self._fault(payload, offset, error) from error
        to_present = self._upcasts
        events = (to_present[type(event)](event) if type(event) in to_present else event for event in written.events)
        batch: Batch = self._batch(written.writer, written.seq, written.time_ms, tuple(events))
        return batch

    def _fault(self, payload: bytes, offset: int, error: Exception) -> DamagedEntry:
        """Find the faulty event; slow, for the one payload that couldn't be decoded."""
        try:
            raw_events = msgspec.msgpack.decode(payload, type=_WrittenBatch[msgspec.Raw]).events
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return DamagedEntry(offset, str(error))
        for index, raw in enumerate(raw_events):
            try:
                self._decoder.decode(self._encoder.encode(["", 0, 0, [raw]]))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
                tag = _tag(raw)
                if tag is not None and tag not in self._tags:
                    return UnknownEvent(offset + index, f"unknown event kind {tag!r}")
                if tag is not None and str(fault).startswith(_UNKNOWN_VALUE):
                    return UnknownEvent(offset + index, f"{tag}: {fault}")
                return DamagedEntry(offset + index, f"{tag or 'event without a kind'}: {fault}")
        return DamagedEntry(offset, str(error))


def _tag(raw: msgspec.Raw) -> str | None:
    """The tag of an undecodable event, if it has one."""
    try:
        fields = msgspec.msgpack.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return fields[0] if isinstance(fields, list) and fields and isinstance(fields[0], str) else None


_codec = Codec(Batch, UPCASTS)
encode_batch = _codec.encode
decode_batch = _codec.decode


class RecentBatches:
    """The batches that one client both appends and reads: each is decoded once for both."""

    _KEPT = 8

    def __init__(self) -> None:
        self._by_chain: dict[str, Batch] = {}

    def decode(self, stored: StoredEntry) -> Batch:
        """The batch of an entry whose chain is right. Raises as `decode_batch` does."""
        batch = self._by_chain.pop(stored.chain, None)
        if batch is None:
            batch = self._by_chain[stored.chain] = decode_batch(stored.payload, stored.first)
            if len(self._by_chain) > self._KEPT:
                del self._by_chain[next(iter(self._by_chain))]
        return batch


def _decode(stored: StoredEntry) -> Batch:
    return decode_batch(stored.payload, stored.first)


def verified(
    stored: StoredEntry,
    after: Position,
    decode: Callable[[StoredEntry], Batch] = _decode,
    *,
    keys: LogKeys = UNKEYED,
) -> Entry:
    """The entry that follows a position, decoded, after checks of its offsets, its chain and its number of events.

    The caller has made sure that the log holds `after` (its chain there is the reader's), so any mismatch is damage,
    or with a key perhaps forgery. Nothing of an entry is decoded before its chain is right. Raises `DamagedEntry`,
    `ForgedEntry` or `UnknownEvent`.
    """
    first = after.offset + 1
    if stored.first != first:
        raise keys.refusal(first, f"the next entry begins at offset {stored.first}; what lay between is missing")
    if not keys.follows(after, stored.count, stored.chain, stored.payload):
        raise keys.refusal(first, "its chain hash doesn't follow from the entry before it")
    batch = decode(stored)
    if len(batch.events) != stored.count:
        raise DamagedEntry(first, f"it holds {len(batch.events)} events, and {stored.count} were appended")
    return Entry(stored.first, stored.last, stored.chain, batch)


def verified_run(
    stored: Iterable[StoredEntry],
    after: Position,
    decode: Callable[[StoredEntry], Batch] = _decode,
    *,
    keys: LogKeys = UNKEYED,
) -> list[Entry]:
    """The entries that follow a position, up to the first faulty one. If that is the very first, raises as `verified`
    does; so a reader gets the good entries before it meets the damage."""
    found: list[Entry] = []
    try:
        for one in stored:
            entry = verified(one, after, decode, keys=keys)
            found.append(entry)
            after = Position(after.epoch, entry.last, entry.chain)
    except DamagedEntry:
        if not found:
            raise
    return found


class _WrittenSnapshot(msgspec.Struct, frozen=True, array_like=True):
    epoch: int
    offset: int
    chain: str
    content: bytes
    signature: str = ""


def encode_snapshot(snapshot: StoredSnapshot) -> bytes:
    """A snapshot with its position, compressed. Slow for a large one (about 10 ms a megabyte)."""
    position = snapshot.position
    content = zlib.compress(snapshot.content, level=1)
    written = _WrittenSnapshot(position.epoch, position.offset, position.chain, content, snapshot.signature)
    return msgspec.msgpack.encode(written)


def decode_snapshot(written: bytes, offset: int) -> StoredSnapshot:
    """The input of `encode_snapshot`; raises `DamagedEntry` with this offset if it is unreadable."""
    try:
        snapshot = msgspec.msgpack.decode(written, type=_WrittenSnapshot)
        content = zlib.decompress(snapshot.content)
    except (msgspec.DecodeError, UnicodeDecodeError, zlib.error) as error:
        raise DamagedEntry(offset, f"the snapshot there: {error}") from error
    return StoredSnapshot(Position(snapshot.epoch, snapshot.offset, snapshot.chain), content, snapshot.signature)


def signed_snapshot(snapshot: StoredSnapshot, keys: LogKeys) -> StoredSnapshot:
    """The snapshot with a signature by the first of the keys; as it is if that key doesn't sign."""
    signature = keys.snapshot_signature(snapshot.position, snapshot.content)
    return StoredSnapshot(snapshot.position, snapshot.content, signature) if signature else snapshot


def checked_snapshot(snapshot: StoredSnapshot, keys: LogKeys) -> StoredSnapshot:
    """The snapshot itself. Raises `ForgedEntry` unless it has a signature by one of the keys."""
    if not keys.accepts_snapshot(snapshot.position, snapshot.content, snapshot.signature):
        raise keys.refusal(snapshot.position.offset, "the snapshot there has no signature by a key of this process")
    return snapshot
