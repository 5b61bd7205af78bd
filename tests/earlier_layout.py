"""An example of a bridge: an invented layout of snapshots before the present one, with pods one by one.

No layout before the present one was released. The simulation's upgrades need one too: it is that of the old version.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from arranger.events.blob_stores import FolderStore
from arranger.events.codec import StoredEntry, encode_batch
from arranger.events.kinds import PodSeen
from arranger.events.log import Entry, Position, StoredSnapshot
from arranger.events.segments import encode_segment, encode_snapshot_file
from arranger.projections.formats.layouts import LAYOUT, Parts
from arranger.projections.formats.pod_columns import PodColumns, columns_of, pods_in
from arranger.projections.snapshot import StateImage

EARLIER = LAYOUT - 1

PODS = StateImage.__struct_fields__.index("pods")

_decode = msgspec.msgpack.decode


def in_earlier_layout(content: bytes) -> bytes:
    """A snapshot as the invented version would have written it."""
    parts = _decode(content, type=Parts)
    pods = pods_in(_decode(parts[PODS], type=PodColumns))
    return msgspec.msgpack.encode([EARLIER, *parts[1:PODS], pods, *parts[PODS + 1 :]])


def _bridge(parts: Parts) -> Parts:
    """The present layout has a column for each field of the pods."""
    columns = columns_of(_decode(parts[PODS], type=list[PodSeen]))
    return [_raw(LAYOUT), *parts[1:PODS], _raw(columns), *parts[PODS + 1 :]]


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.msgpack.encode(value))


#: For `layouts._BRIDGES`.
BRIDGES: dict[int, Callable[[Parts], Parts]] = {EARLIER: _bridge}


def archive_from(folder: Path, entries: Sequence[Entry], offset: int, content: bytes) -> None:
    """An archive that begins with this snapshot at the end of an entry, and has the entries after it."""
    chain = next(entry.chain for entry in entries if entry.last == offset)
    position, rest = Position(1, offset, chain), [entry for entry in entries if entry.first > offset]
    times_ms = [entry.batch.time_ms for entry in rest]
    kept = [StoredEntry(one.last, one.last - one.first + 1, one.chain, encode_batch(one.batch)) for one in rest]
    blob_store = FolderStore(folder)
    blob_store.put(*encode_snapshot_file(StoredSnapshot(position, content), times_ms[0]))
    blob_store.put(*encode_segment(position, kept, (times_ms[0], max(times_ms))))
