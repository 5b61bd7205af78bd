"""Snapshots of earlier layouts: still read, and what follows them in the log is folded as if nothing had happened."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from arranger.cli.main import main
from arranger.events.blob_stores import FolderStore
from arranger.events.log import Position, StoredSnapshot
from arranger.events.segments import encode_segment, encode_snapshot_file
from arranger.projections import layouts, snapshot
from arranger.projections.consistency import validate
from arranger.projections.fold import apply_entry
from arranger.projections.layouts import NewerSnapshot, UnusableSnapshot
from arranger.projections.state import Changes, State
from tests.histories.samples import Sample, facts, read_facts, read_samples

#: Layouts whose snapshots are kept in the repository, and read.
LAYOUTS = (7,)

EVERY = [
    pytest.param(sample, read_facts(layout)[sample.name], id=f"layout {layout}: {sample.name}")
    for layout in LAYOUTS
    for sample in read_samples(layout)
]


def began(sample: Sample) -> State:
    """The state before a sample's log."""
    return snapshot.restore(sample.before) if sample.before else State()


@pytest.mark.parametrize(("sample", "told"), EVERY)
def test_a_snapshot_holds_what_it_held(sample: Sample, told: dict[str, Any]) -> None:
    for offset, content in sample.snapshots:
        state = snapshot.restore(content)
        assert state.offset == offset and facts(state) == told[str(offset)]
        validate(state)


@pytest.mark.parametrize(("sample", "told"), EVERY)
def test_from_a_snapshot_or_from_the_whole_log_the_fold_comes_to_the_same_bytes(
    sample: Sample, told: dict[str, Any]
) -> None:
    log, state = sample.entries(), began(sample)
    folded = {}
    for entry in log:
        apply_entry(state, entry, Changes())
        folded[entry.last] = snapshot.encode(state)
    for offset, content in sample.snapshots:
        bridged = snapshot.restore(content)
        assert snapshot.encode(bridged) == folded[offset]
        for entry in log:
            if entry.first > offset:
                apply_entry(bridged, entry, Changes())
        assert snapshot.encode(bridged) == folded[log[-1].last]


NAMED: dict[str, Sample] = {param.values[0].name: param.values[0] for param in EVERY}
RICH = NAMED["simulated-106"]
#: Logs with decisions of the simulation's rogue writers, and with cycles of a version that has another filter.
SIMULATED = {name for name in NAMED if name.startswith("simulated-")}
#: Its first job by UID has placements.
PLACED = NAMED["a-job-that-waits"].snapshots[-1][1]


def test_a_snapshot_is_raised_to_the_present_layout_and_only_then_written() -> None:
    for offset, content in RICH.snapshots:
        assert layouts.layout_of(content) == 7
        state = snapshot.restore(content)
        assert layouts.layout_of(snapshot.encode(state)) == snapshot.LAYOUT
        assert snapshot.time_ms(content) == state.time_ms
        image = snapshot.image_of(content)
        assert (image.layout, image.offset) == (snapshot.LAYOUT, offset)
        assert snapshot.encode_image(image) == snapshot.encode(state)


def test_every_layout_that_is_read_is_kept_here_but_the_present_one() -> None:
    assert (*LAYOUTS, snapshot.LAYOUT) == layouts.READ


def altered(content: bytes, change: Callable[[list[Any]], object]) -> bytes:
    """The snapshot with something changed in its parts: layout (0), ..., nodes (8), pods (9), jobs (10), assumed."""
    parts = msgspec.msgpack.decode(content)
    change(parts)
    return msgspec.msgpack.encode(parts)


@pytest.mark.parametrize(
    "change",
    [
        lambda parts: parts[8][0].__setitem__(4, [["cpu", 1]]),
        lambda parts: parts[8][0].__setitem__(5, 77),
        lambda parts: parts[8].reverse(),
        lambda parts: parts[9].pop(),
        lambda parts: parts[9].append(parts[9][0]),
        lambda parts: parts[10][0].__setitem__(1, []),
        lambda parts: parts[10][0][0].__setitem__("stage", "Dancing"),
        lambda parts: parts.__delitem__(slice(4, None)),
    ],
)
def test_a_snapshot_of_an_earlier_layout_that_is_at_odds_with_itself_is_refused(
    change: Callable[[list[Any]], object],
) -> None:

    assert snapshot.restore(altered(PLACED, lambda parts: None))
    with pytest.raises(UnusableSnapshot):
        snapshot.restore(altered(PLACED, change))


def test_a_layout_that_no_bridge_comes_from_is_refused_and_a_later_one_said_to_be_newer() -> None:
    content = RICH.snapshots[0][1]
    for layout in (6, 0, -1):
        with pytest.raises(UnusableSnapshot, match=f"layout {layout}, this program reads layouts from 7"):
            snapshot.restore(altered(content, lambda parts, layout=layout: parts.__setitem__(0, layout)))
    for change in (lambda parts: parts.__setitem__(0, 99), lambda parts: parts.__setitem__(slice(None), [99, "x"])):
        for read in (snapshot.restore, snapshot.time_ms, snapshot.image_of):
            with pytest.raises(NewerSnapshot, match=f"layout 99, this program reads up to layout {snapshot.LAYOUT}"):
                read(altered(content, change))


@pytest.mark.parametrize("sample", [param.values[0] for param in EVERY], ids=lambda sample: sample.name)
def test_an_archive_that_begins_with_a_snapshot_of_an_earlier_layout_is_verified_and_replayed(
    sample: Sample, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    offset, content = sample.snapshots[0]
    rest = [entry for entry in sample.entries() if entry.first > offset]
    position = next(Position(sample.start.epoch, e.last, e.chain) for e in sample.entries() if e.last == offset)
    told = (rest[0].batch.time_ms, max(entry.batch.time_ms for entry in rest))
    kept = [stored for stored in sample.log if stored.last > offset]
    blob_store = FolderStore(tmp_path)
    blob_store.put(*encode_snapshot_file(StoredSnapshot(position, content), snapshot.time_ms(content)))
    blob_store.put(*encode_segment(position, kept, told))
    main(["replay", "--log", f"{tmp_path}", "--output", "json"], prog_name="arranger")
    shown = capsys.readouterr()
    state = snapshot.restore(sample.snapshots[-1][1])
    assert (json.loads(shown.out)["digest"], shown.err) == (snapshot.digest(state), "")
    if sample.name not in SIMULATED:
        assert main(["verify", "--log", f"{tmp_path}"], prog_name="arranger") == 0
