"""Verify: every cycle comes out as recorded, and whatever was altered is found and named."""

import msgspec
import pytest
from hypothesis import given, settings

from arranger.events import kinds as k
from arranger.events.log import Entry
from arranger.model.config import CycleConfig
from arranger.model.job import PlacedPods, ScheduleState
from arranger.projections import snapshot
from arranger.projections.cluster.nodes import NodeTable
from arranger.projections.fold import apply_entry
from arranger.projections.state import Changes, State
from arranger.replay.reading.history import Point, Span
from tests.unit.replay_worlds import crowded, entry_with, forged, histories, late_cycle, verified
from tests.world import World, shape


def _altered(event: k.Event, **changes: object) -> k.Event:
    return msgspec.structs.replace(event, **changes)


def test_a_history_with_waiting_and_partly_placed_jobs_is_identical() -> None:
    world = crowded()
    report = verified(world.entries)
    recorded = [entry for entry in world.entries if isinstance(entry.batch.events[0], k.CycleTaken)]
    assert report.sound and report.first_difference is None
    assert report.cycles == report.identical == len(recorded) > 3
    assert report.decisions == sum(len(entry.batch.events) - 1 for entry in recorded)
    assert report.events_folded == world.state.offset


def test_a_cycle_is_taken_on_its_own_base_though_much_was_said_before_its_record() -> None:
    world = World()
    world.node("n1", gpus=4)
    world.job("a", leader=shape(gpus=2))

    def meanwhile() -> None:
        world.node("n1", gpus=4, cordoned=True)
        world.node("n0", gpus=4)
        world.job("b", leader=shape(gpus=1), priority=9)

    late_cycle(world, meanwhile)
    report = verified(world.entries)
    assert (report.cycles, report.identical) == (1, 1)


def test_superseded_and_rejected_cycles_are_verified_too() -> None:
    world = World()
    world.node("n1", gpus=4)
    world.job("a", leader=shape(gpus=2))
    world.job("b", leader=shape(gpus=4))
    at = late_cycle(world, world.cycle)
    refused = [verdict for verdict in world.verdicts if not verdict.accepted]
    assert refused and refused[0].offset == at, "the late cycle was superseded"
    report = verified(world.entries)
    assert (report.cycles, report.identical) == (2, 2)


def test_cycles_on_one_base_are_each_compared_with_their_own_record() -> None:
    world = World()
    world.node("n1", gpus=4)
    world.job("a", leader=shape(gpus=2))
    base = world.state.offset
    late_cycle(world, lambda: late_cycle(world, world.cycle))
    assert [e.batch.events[0].base for e in world.entries if type(e.batch.events[0]) is k.CycleTaken] == [base] * 3
    assert verified(world.entries).identical == 3


def test_an_altered_node_of_one_placement_is_named() -> None:
    world = crowded()
    number = entry_with(world.entries, k.Placed, last=True)
    entry = world.entries[number]
    events = list(entry.batch.events)
    at = next(i for i, event in enumerate(events) if isinstance(event, k.Placed))
    placed = events[at]
    assert isinstance(placed, k.Placed)
    pods = (PlacedPods("n9", placed.pods[0].group, placed.pods[0].indices), *placed.pods[1:])
    events[at] = _altered(placed, pods=pods)
    report = verified(forged(world.entries, number, tuple(events)))
    found = report.first_difference
    assert not report.sound and report.different >= 1 and found is not None
    assert (found.cycle, found.offset, found.job, found.kind) == (
        entry.first,
        entry.first + at,
        "default/wide",
        "Placed",
    )
    assert found.recorded is not None and "n9" in found.recorded
    assert found.retaken is not None and "n9" not in found.retaken
    assert list(found.fields) == ["pods"]


@pytest.mark.parametrize("less", [True, False])
def test_a_cycle_that_said_less_or_more_than_it_should_is_a_difference(less: bool) -> None:
    world = crowded()
    number = entry_with(world.entries, k.Waits, last=True)
    entry = world.entries[number]
    events = entry.batch.events
    report = verified(forged(world.entries, number, events[:-1] if less else (*events, events[-1])))
    found = report.first_difference
    assert report.different == 1 and found is not None
    assert found.cycle == entry.first
    assert found.offset == entry.last + (0 if less else 1)
    assert (found.recorded is None, found.retaken is None) == (less, not less)


def test_a_cycle_that_should_have_said_nothing_is_a_difference() -> None:
    world = crowded()
    taken = next(e.batch.events[0] for e in world.entries if type(e.batch.events[0]) is k.CycleTaken)
    assert isinstance(taken, k.CycleTaken)
    world.say(_altered(taken, base=world.state.offset, time_ms=world.now_ms))
    found = verified(world.entries).first_difference
    assert found is not None and found.cycle == world.state.offset and found.retaken is None


def test_a_base_that_no_reader_ever_stood_at_is_a_difference() -> None:
    world = crowded()
    number = entry_with(world.entries, k.Placed, last=True)
    cycle, *rest = world.entries[number].batch.events
    inside = next(entry for entry in world.entries if len(entry.batch.events) > 1).first
    found = verified(forged(world.entries, number, (_altered(cycle, base=inside), *rest))).first_difference
    assert found is not None and found.cycle == world.entries[number].first
    assert "not the end of an entry" in found.what


def test_other_weights_in_the_record_change_what_comes_out() -> None:
    world = World()
    world.node("n1", cpu=8, gpus=8)
    world.node("n2", cpu=64, gpus=2)
    world.job("a", leader=shape(cpu=4, gpus=1))
    world.cycle()
    number = entry_with(world.entries, k.CycleTaken)
    cycle, *rest = world.entries[number].batch.events
    assert isinstance(cycle, k.CycleTaken)
    config = _altered_config(cycle.config, weights=(("cpu", 100), ("nvidia.com/gpu", 1)))
    found = verified(forged(world.entries, number, (_altered(cycle, config=config), *rest))).first_difference
    assert found is not None and found.job == "default/a" and "pods" in found.fields


def test_another_tie_break_is_caught_and_the_pod_that_it_moved_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.node("n1", gpus=2)
    world.node("n2", gpus=2)
    world.job("a", leader=shape(gpus=1))
    by_name = NodeTable.by_name
    with monkeypatch.context() as otherwise:  # of nodes that score alike the last by name is taken, not the first
        otherwise.setattr(NodeTable, "by_name", lambda nodes: by_name(nodes)[::-1].copy())
        world.cycle()
    cycle = world.entries[entry_with(world.entries, k.CycleTaken)]
    found = verified(world.entries).first_difference
    assert found is not None and (found.cycle, found.job) == (cycle.first, "default/a")
    assert list(found.fields) == ["pods"] and found.recorded is not None and found.retaken is not None
    assert "n2" in found.recorded and "n1" in found.retaken


def test_two_decisions_of_a_cycle_in_the_other_order_are_a_difference_at_the_first_of_them() -> None:
    world = World()
    world.node("n1", gpus=8)
    for name in "ab":
        world.job(name, leader=shape(gpus=1))
    world.cycle()
    number = entry_with(world.entries, k.Placed)
    cycle, first, second, *rest = world.entries[number].batch.events
    assert type(first) is type(second) is k.Placed
    found = verified(forged(world.entries, number, (cycle, second, first, *rest))).first_difference
    assert found is not None
    assert (found.cycle, found.offset) == (world.entries[number].first, world.entries[number].first + 1)


def test_two_entries_in_the_other_order_are_a_difference_at_the_cycle_that_rests_on_them() -> None:
    entries = crowded().entries
    number = entry_with(entries, k.Placed, last=True)
    # With a chain that is right again: somebody who rewrites the log can do that, and it doesn't help him.
    swapped = forged(entries, number - 1, entries[number].batch.events)
    swapped = forged(swapped, number, entries[number - 1].batch.events)
    found = verified(swapped).first_difference
    assert found is not None and found.cycle == swapped[number - 1].first


def _altered_config(config: CycleConfig, **changes: object) -> CycleConfig:
    return msgspec.structs.replace(config, **changes)


def test_policy_versions_that_are_not_installed_are_their_own_result() -> None:
    world = World(config=CycleConfig(versions=(("BinPack", 999), ("Priority", 1))))
    world.node("n1")
    world.job("a")
    world.cycle()
    report = verified(world.entries)
    assert (report.cycles, report.identical, report.different, report.other_versions) == (1, 0, 0, 1)
    assert not report.sound
    assert report.first_other_version is not None
    assert report.first_other_version.missing == (("BinPack", 999),)


def test_a_placement_outside_of_any_cycle_is_found() -> None:
    world = World()
    world.node("n1")
    job = world.job("a")
    at = world.say(k.Placed(job.uid, job.version, 0, ScheduleState.SUCCEED, (PlacedPods("n1", 0, ((0, 0),)),)))
    report = verified(world.entries)
    assert not report.sound and report.stray_decisions == 1
    assert report.first_difference is not None and report.first_difference.offset == at


def test_from_a_snapshot_the_later_cycles_are_verified_and_the_earlier_ones_counted_as_out_of_reach() -> None:
    world = crowded()
    middle = world.entries[entry_with(world.entries, k.Placed, last=True) + 1]
    state = State()
    for entry in world.entries:
        if entry.last <= middle.last:
            apply_entry(state, entry, Changes())
    restored = snapshot.restore(snapshot.encode(state))
    report = verified(world.entries, state=restored)
    assert report.sound and report.out_of_reach > 0 and report.identical > 0
    assert report.cycles == report.identical + report.out_of_reach == verified(world.entries).cycles


def test_only_the_cycles_of_the_stretch_are_verified() -> None:
    world = crowded()
    at = [entry.first for entry in world.entries if type(entry.batch.events[0]) is k.CycleTaken]
    report = verified(world.entries, span=Span(Point(offset=at[1]), Point(offset=at[2])))
    assert report.cycles == report.identical == 2


@settings(max_examples=60)
@given(histories())
def test_every_random_history_is_identical(entries: list[Entry]) -> None:
    report = verified(entries)
    assert report.sound, report.first_difference
    assert report.cycles == report.identical == sum(type(e.batch.events[0]) is k.CycleTaken for e in entries)
