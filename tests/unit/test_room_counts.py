"""What a process counts of preemptions and reservations."""

from arranger.clock import SystemClock
from arranger.events.log import Entry
from arranger.metrics import Metrics
from arranger.projections.fold import apply_entry
from arranger.projections.state import Changes, State
from arranger.workers.room_counts import count_room
from tests.unit.replay_worlds import gpu_job, preempting, with_room_rules


def counted(entries: list[Entry], *, at_once: int = 1) -> dict[str, float]:
    """The counters after the entries, folded so many at a time."""
    metrics, state = Metrics(SystemClock()), State()
    for first in range(0, len(entries), at_once):
        some, changes, before = entries[first : first + at_once], Changes(), dict(state.reservations)
        for entry in some:
            apply_entry(state, entry, changes)
        count_room(metrics, some, changes.verdicts, before)
    names = ("arranger_preempt", "arranger_reservations", "arranger_room")
    return {
        " ".join([sample.name.removeprefix("arranger_"), *sample.labels.values()]): sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name.startswith(names) and sample.name.endswith("_total") and sample.value
    }


def test_preemptions_are_counted_by_kind_with_the_work_lost() -> None:
    expected = {
        "preemptions_total Surplus": 1,
        "preemptions_total Priority": 1,
        "preempted_gpu_seconds_total": 300,
        "reservations_total made": 1,
    }
    entries = preempting().entries
    assert counted(entries) == counted(entries, at_once=len(entries)) == expected


def test_reservations_that_move_and_room_that_is_not_freed_are_counted() -> None:
    world = with_room_rules(preemption=None)
    gpu_job(world, "first", 2, expected_s=100)
    world.settle()
    large = gpu_job(world, "large", 4, priority=9)
    world.settle()
    world.pass_time(110)
    world.settle()
    world.job_gone(large)
    assert counted(world.entries) == {"reservations_total made": 1, "reservations_total moved": 1}
    stuck = with_room_rules(reservations=0)
    gpu_job(stuck, "low", 4, priority=1)
    stuck.settle()
    gpu_job(stuck, "high", 4, priority=9)
    stuck.cycle()
    stuck.pass_time(91)
    stuck.control()
    assert counted(stuck.entries)["room_not_freed_total"] == 1
