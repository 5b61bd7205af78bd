"""`arranger upgrade-check` on kept logs and snapshots of earlier versions, and on what a later version wrote."""

from pathlib import Path

import msgspec
import pytest

from arranger.events.blob_stores import FolderStore
from arranger.events.codec import StoredEntry
from arranger.events.log import Position, StoredSnapshot
from arranger.events.log_keys import UNKEYED
from arranger.events.segments import encode_segment, encode_snapshot_file
from arranger.projections import snapshot
from tests.commands import Run
from tests.histories.samples import Sample, read_samples

HISTORIES = Path(__file__).parent.parent / "histories"


def check(capsys: pytest.CaptureFixture[str], log: Path) -> Run:
    return Run(capsys, "upgrade-check", "--log", str(log), "-o", "json")


def archived(folder: Path, layout: int | None) -> tuple[Path, int]:
    """An archive that begins with a kept snapshot, with another number of its layout if one is given."""
    sample: Sample = read_samples(7)[0]
    offset, content = sample.snapshots[0]
    position = next(Position(sample.start.epoch, e.last, e.chain) for e in sample.entries() if e.last == offset)
    rest = [entry for entry in sample.entries() if entry.first > offset]
    told = (rest[0].batch.time_ms, max(entry.batch.time_ms for entry in rest))
    name, written = encode_snapshot_file(StoredSnapshot(position, content), snapshot.time_ms(content))
    if layout is not None:
        parts = msgspec.msgpack.decode(content)
        other = msgspec.msgpack.encode([layout, *parts[1:]])
        name, written = encode_snapshot_file(StoredSnapshot(position, other), snapshot.time_ms(content))
    store = FolderStore(folder)
    store.put(name, written)
    store.put(*encode_segment(position, [stored for stored in sample.log if stored.last > offset], told))
    return folder, offset


@pytest.mark.parametrize("path", sorted(HISTORIES.glob("*.log")), ids=lambda path: path.stem)
def test_logs_of_earlier_versions_are_readable(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = check(capsys, path)
    assert (done.status, done.json["verdict"], done.json["problem"]) == (0, "readable", "")
    assert done.json["reads_to"] > done.json["begins"]


def test_a_snapshot_of_the_layout_before_is_where_a_process_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, offset = archived(tmp_path, None)
    done = check(capsys, folder)
    assert (done.status, done.json["begins"]) == (0, offset)
    assert done.json["snapshots"] == [{"offset": offset, "layout": 7}]


@pytest.mark.parametrize(("layout", "verdict"), [(99, "later-version"), (1, "history-gone")])
def test_a_trimmed_log_whose_snapshot_is_not_read_is_refused(
    layout: int, verdict: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _ = archived(tmp_path, layout)
    done = check(capsys, folder)
    assert (done.status, done.json["verdict"], done.json["begins"]) == (1, verdict, None)


def test_an_event_of_a_later_version_is_named_with_its_offset(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = FolderStore(tmp_path)
    payload = msgspec.msgpack.encode(["w", 1, 5, [["FromTheFuture", 1]]])
    start = Position(1, 0, "")
    stored = StoredEntry(1, 1, UNKEYED.chain(start, 1, payload), payload)
    store.put(*encode_segment(start, [stored], (5, 5)))
    done = check(capsys, tmp_path)
    assert (done.status, done.json["verdict"]) == (1, "unknown-event")
    assert "offset 1" in done.json["problem"] and "FromTheFuture" in done.json["problem"]
