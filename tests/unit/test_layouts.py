"""Snapshots of other layouts: those of an earlier one are read over its bridge, and what follows them in the log is
folded as if nothing had happened; all others are refused with a reason."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from arranger.cli.main import main
from arranger.projections import snapshot
from arranger.projections.consistency import validate
from arranger.projections.fold import apply_entry
from arranger.projections.formats import layouts
from arranger.projections.formats.layouts import NewerSnapshot, UnusableSnapshot
from arranger.projections.state import Changes, State
from tests.earlier_layout import BRIDGES, EARLIER, PODS, archive_from, in_earlier_layout
from tests.random_worlds import LONG, live_through
from tests.unit import test_job_devices as job_devices
from tests.world import World


@pytest.fixture
def bridge(monkeypatch: pytest.MonkeyPatch) -> None:
    """The product with a bridge from the invented layout."""
    for number, function in BRIDGES.items():
        monkeypatch.setitem(layouts._BRIDGES, number, function)


def running() -> World:
    """A job on a node."""
    world = World()
    world.node("n1", cpu=8)
    world.job("ppo", workers=2, min_workers=2)
    world.settle()
    return world


@pytest.mark.usefixtures("bridge")
@pytest.mark.parametrize(
    "made", [running, lambda: live_through(LONG), job_devices.busy], ids=["job", "long", "devices"]
)
def test_from_an_earlier_snapshot_or_from_the_whole_log_the_fold_comes_to_the_same_bytes(
    made: Callable[[], World],
) -> None:
    log, state, earlier = made().entries, State(), {}
    for entry in log:
        apply_entry(state, entry, Changes())
        earlier[entry.last] = snapshot.encode(state)
    for offset in [*earlier][:: max(1, len(earlier) // 10)]:
        bridged = snapshot.restore(in_earlier_layout(earlier[offset]))
        validate(bridged)
        assert snapshot.encode(bridged) == earlier[offset]
        for entry in log:
            if entry.first > offset:
                apply_entry(bridged, entry, Changes())
        assert snapshot.encode(bridged) == snapshot.encode(state)


@pytest.mark.usefixtures("bridge")
def test_a_snapshot_is_raised_to_the_present_layout_and_only_then_written() -> None:
    state = running().state
    content = in_earlier_layout(snapshot.encode(state))
    assert layouts.layout_of(content) == EARLIER and layouts.layout_of(snapshot.encode(state)) == snapshot.LAYOUT
    assert snapshot.time_ms(content) == state.time_ms
    image = snapshot.image_of(content)
    assert (image.layout, image.offset) == (snapshot.LAYOUT, state.offset)
    assert snapshot.encode_image(image) == snapshot.encode(snapshot.restore(content)) == snapshot.encode(state)


def altered(content: bytes, change: Callable[[list[Any]], object]) -> bytes:
    """The snapshot with something changed in its parts: layout (0), ..., nodes (8), pods (9), jobs (10), assumed."""
    parts = msgspec.msgpack.decode(content)
    change(parts)
    return msgspec.msgpack.encode(parts)


@pytest.mark.usefixtures("bridge")
@pytest.mark.parametrize(
    "change",
    [
        lambda parts: parts[8][0].__setitem__(4, [["cpu", 1]]),
        lambda parts: parts[8][0].__setitem__(5, 77),
        lambda parts: parts[PODS].pop(),
        lambda parts: parts[PODS].append(parts[PODS][0]),
        lambda parts: parts[PODS].reverse(),
        lambda parts: parts[PODS].append(["PodSeen.1", "not a pod"]),
        lambda parts: parts[10][0].__setitem__(1, []),
        lambda parts: parts[10][0][0].__setitem__("stage", "Dancing"),
        lambda parts: parts.__delitem__(slice(4, None)),
    ],
)
def test_a_snapshot_of_an_earlier_layout_that_is_at_odds_with_itself_is_refused(
    change: Callable[[list[Any]], object],
) -> None:
    content = in_earlier_layout(snapshot.encode(running().state))
    assert snapshot.restore(altered(content, lambda parts: None))
    with pytest.raises(UnusableSnapshot):
        snapshot.restore(altered(content, change))


def test_a_layout_that_no_bridge_comes_from_is_refused_and_a_later_one_said_to_be_newer() -> None:
    assert layouts.READ == (snapshot.LAYOUT,)
    content = in_earlier_layout(snapshot.encode(running().state))
    for layout in (EARLIER, 7, 1, 0, -1):
        other = altered(content, lambda parts, layout=layout: parts.__setitem__(0, layout))
        for read in (snapshot.restore, snapshot.time_ms, snapshot.image_of):
            with pytest.raises(
                UnusableSnapshot, match=f"layout {layout}, this program reads layouts from {snapshot.LAYOUT}"
            ):
                read(other)
    for change in (lambda parts: parts.__setitem__(0, 99), lambda parts: parts.__setitem__(slice(None), [99, "x"])):
        for read in (snapshot.restore, snapshot.time_ms, snapshot.image_of):
            with pytest.raises(NewerSnapshot, match=f"layout 99, this program reads up to layout {snapshot.LAYOUT}"):
                read(altered(content, change))


@pytest.mark.usefixtures("bridge")
def test_an_archive_that_begins_with_a_snapshot_of_an_earlier_layout_is_verified_and_replayed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world, early = running(), State()
    entries = world.entries
    for entry in entries[: len(entries) // 2]:
        apply_entry(early, entry, Changes())
    archive_from(tmp_path, entries, early.offset, in_earlier_layout(snapshot.encode(early)))
    main(["replay", "--log", f"{tmp_path}", "--output", "json"], prog_name="arranger")
    shown = capsys.readouterr()
    assert (json.loads(shown.out)["digest"], shown.err) == (world.digest(), "")
    assert main(["verify", "--log", f"{tmp_path}"], prog_name="arranger") == 0
