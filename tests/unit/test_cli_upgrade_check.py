"""`arranger upgrade-check` on kept logs, on snapshots of an earlier layout, and on what a later version wrote."""

from pathlib import Path

import msgspec
import pytest

from arranger.events.blob_stores import FolderStore
from arranger.events.codec import StoredEntry
from arranger.events.log import Position
from arranger.events.log_keys import UNKEYED
from arranger.events.segments import encode_segment
from arranger.projections import snapshot
from arranger.projections.fold import apply_entry
from arranger.projections.formats import layouts
from arranger.projections.state import Changes, State
from tests.commands import Run
from tests.earlier_layout import BRIDGES, EARLIER, archive_from, in_earlier_layout
from tests.world import World

HISTORIES = Path(__file__).parent.parent / "histories"


def check(capsys: pytest.CaptureFixture[str], log: Path) -> Run:
    return Run(capsys, "upgrade-check", "--log", str(log), "-o", "json")


def archived(folder: Path, layout: int) -> tuple[Path, int]:
    """An archive that begins with a snapshot of the example's earlier layout, with another number if it is to be."""
    world, early = World(), State()
    world.node("n1", cpu=8)
    world.job("ppo", workers=2)
    world.settle()
    for entry in world.entries[: len(world.entries) // 2]:
        apply_entry(early, entry, Changes())
    parts = msgspec.msgpack.decode(in_earlier_layout(snapshot.encode(early)), type=layouts.Parts)
    archive_from(folder, world.entries, early.offset, msgspec.msgpack.encode([layout, *parts[1:]]))
    return folder, early.offset


@pytest.mark.parametrize("path", sorted(HISTORIES.glob("*.log")), ids=lambda path: path.stem)
def test_kept_logs_are_readable(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = check(capsys, path)
    assert (done.status, done.json["verdict"], done.json["problem"]) == (0, "readable", "")
    assert done.json["reads_to"] > done.json["begins"]


def test_a_snapshot_of_the_layout_before_is_where_a_process_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layouts, "_BRIDGES", BRIDGES)
    folder, offset = archived(tmp_path, EARLIER)
    done = check(capsys, folder)
    assert (done.status, done.json["begins"]) == (0, offset)
    assert done.json["snapshots"] == [{"offset": offset, "layout": EARLIER}]


@pytest.mark.parametrize(("layout", "verdict"), [(99, "later-version"), (EARLIER, "history-gone"), (1, "history-gone")])
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
