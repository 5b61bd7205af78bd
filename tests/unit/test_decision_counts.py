"""What processes count of the decisions that they made: once each, whoever folds them."""

import asyncio
from collections.abc import Sequence

import msgspec
import pytest

from arranger.clock import SystemClock
from arranger.events import kinds as k
from arranger.events.log import Entry
from arranger.metrics import Metrics
from arranger.model.job import Stage
from arranger.model.pod import Phase
from arranger.projections.fold import apply_entry
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import Changes, State
from arranger.workers.log.decision_counts import DecisionCounts
from arranger.workers.log.follower import Follower
from arranger.workers.log.writer import Writer
from tests.memory_log import MemoryHome, MemoryLog
from tests.unit.replay_worlds import gpu_job, preempting, with_room_rules
from tests.world import World, shape

_FAMILIES = ("preempt", "reservations", "room_not", "restarts", "job_wait", "forecast_error")


def written(entries: Sequence[Entry], *members: str) -> list[Entry]:
    """The entries as if these members had written them by turns."""
    return [
        msgspec.structs.replace(
            entry, batch=msgspec.structs.replace(entry.batch, writer=f"scheduler@{members[number % len(members)]}")
        )
        for number, entry in enumerate(entries)
    ]


def counted(entries: Sequence[Entry], *, member: str = "us", at_once: int = 1) -> dict[str, float]:
    """What a member counts if it folds the entries, so many at a time."""
    metrics, state = Metrics(SystemClock()), State()
    counts = DecisionCounts(metrics, member)
    for first in range(0, len(entries), at_once):
        some, changes = entries[first : first + at_once], Changes()
        counts.begin(state, some)
        for entry in some:
            apply_entry(state, entry, changes)
        counts.count(state, changes)
    return samples(metrics)


def samples(metrics: Metrics) -> dict[str, float]:
    return {
        " ".join([sample.name.removeprefix("arranger_"), *sample.labels.values()]): sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name.removeprefix("arranger_").startswith(_FAMILIES)
        and sample.name.endswith(("_total", "_sum", "_count"))
        and sample.value
    }


def fail(world: World, job: JobRecord, slot: tuple[int, int]) -> None:
    world.run_pod(job, slot, job.placements[slot], phase=Phase.FAILED)


def test_preemptions_are_counted_by_kind_with_the_work_lost() -> None:
    entries = written(preempting().entries, "us")
    found = counted(entries)
    assert {name: count for name, count in found.items() if not name.startswith("job_wait")} == {
        "preemptions_total Surplus": 1,
        "preemptions_total Priority": 1,
        "preempted_gpu_seconds_total": 300,
        "reservations_total made": 1,
        "restarts_total job Preempted": 1,
        "restarts_total worker Preempted": 1,
    }
    assert counted(entries, at_once=len(entries)) == found


def test_reservations_that_move_and_room_that_is_not_freed_are_counted() -> None:
    world = with_room_rules(preemption=None)
    gpu_job(world, "first", 2, expected_s=100)
    world.settle()
    large = gpu_job(world, "large", 4, priority=9)
    world.settle()
    world.pass_time(110)
    world.settle()
    world.job_gone(large)
    found = counted(written(world.entries, "us"))
    assert {name: count for name, count in found.items() if name.startswith("reserv")} == {
        "reservations_total made": 1,
        "reservations_total moved": 1,
    }
    stuck = with_room_rules(reservations=0)
    gpu_job(stuck, "low", 4, priority=1)
    stuck.settle()
    gpu_job(stuck, "high", 4, priority=9)
    stuck.cycle()
    stuck.pass_time(91)
    stuck.control()
    assert counted(written(stuck.entries, "us"))["room_not_freed_total"] == 1


def test_room_whose_node_closes_before_the_job_has_begun_there_is_no_restart() -> None:
    world = with_room_rules(reservations=0)
    low = gpu_job(world, "low", 4, priority=1)
    world.settle()
    gpu_job(world, "high", 4, priority=9)
    world.cycle()
    for node in set(low.placements.values()) | {"n0", "n1"}:
        if node in world.state.nodes.rows:
            world.node_gone(node)
    world.settle()
    found = counted(written(world.entries, "us"))
    assert found["restarts_total job Preempted"] == 1 and "restarts_total job NodeLost" not in found
    assert "room_not_freed_total" not in found


def test_every_decision_is_counted_by_exactly_one_of_many_processes() -> None:
    entries = preempting().entries
    alone = counted(written(entries, "a"), member="a")
    shared = written(entries, "a", "b", "c")
    found: dict[str, float] = {}
    for member in "abc":
        for name, value in counted(shared, member=member).items():
            found[name] = found.get(name, 0) + value
    assert found == pytest.approx(alone)
    assert counted(shared, member="d") == counted(shared, member="") == {}


def test_a_wait_lasts_from_creation_or_from_when_the_job_is_scheduled_again_until_it_starts() -> None:
    world = World()
    world.node("n1", gpus=8)
    world.queue("a")
    job = world.job("j", leader=shape(gpus=1), workers=3, worker=shape(gpus=1), of_queue="a", created=world.now_ms)
    world.pass_time(40)
    world.settle()
    world.pass_time(500)
    fail(world, job, (0, 0))
    world.control()
    world.wait_for_back_offs()
    waited_s = 40 + (world.now_ms - job.times.stage_ms) / 1000
    world.settle()
    found = counted(written(world.entries, "us"))
    assert found["job_wait_seconds_count a 2-8"] == 2
    assert found["job_wait_seconds_sum a 2-8"] == pytest.approx(waited_s)
    assert found["restarts_total job LeaderFailed"] == 1


def test_the_wait_of_a_job_that_was_suspended_begins_when_it_is_resumed() -> None:
    world = World()
    world.node("n1", gpus=100)
    world.job("j", leader=shape(gpus=65), created=world.now_ms, suspend=True)
    world.settle()
    world.pass_time(1000)
    world.job("j", leader=shape(gpus=65), created=world.now_ms, generation=2)
    world.control()
    world.pass_time(20)
    world.settle()
    found = counted(written(world.entries, "us"))
    assert found["job_wait_seconds_sum default 65+"] == pytest.approx(20)


def test_single_workers_that_start_again_are_counted_by_reason() -> None:
    world = World()
    world.node("n1")
    job = world.job("j", workers=4, created=world.now_ms)
    world.settle()
    fail(world, job, (1, 0))
    fail(world, job, (1, 3))
    world.pass_time(10)  # failures that belong together are decided on together
    world.settle()
    assert counted(written(world.entries, "us"))["restarts_total worker Failed"] == 2


@pytest.mark.parametrize(("started_s", "side"), [(70, "late"), (40, "early")])
def test_the_error_of_a_forecast_is_counted_when_its_job_starts(started_s: int, side: str) -> None:
    world = with_room_rules(reservations=0, preemption=None)
    first = gpu_job(world, "first", 4)
    world.settle()
    second = gpu_job(world, "second", 4)
    world.cycle()
    world.say(k.StartForecast(second.uid, second.version, world.now_ms + 55_000, world.now_ms + 1, 0))
    world.pass_time(started_s)
    world.job_gone(first)
    for pod in list(world.state.pods):
        world.pod_gone(pod)
    world.settle()
    found = counted(written(world.entries, "us"))
    assert found[f"forecast_error_seconds_sum <1m {side}"] == 15
    assert found[f"forecast_error_seconds_count <1m {side}"] == 1


async def test_entries_that_are_folded_again_are_not_counted_again() -> None:
    home, clock = MemoryHome(), SystemClock()
    metrics = Metrics(clock)
    follower = Follower(MemoryLog(home), clock=clock, metrics=metrics, reader="test", member="us")
    await follower.start()
    running = asyncio.create_task(follower.run())
    world = World()
    world.node("n1")
    world.job("j", created=1)
    world.settle()
    writer = Writer(follower, name="scheduler@us", clock=clock, metrics=metrics)
    for entry in world.entries[1:]:
        await writer.append_and_fold(entry.batch.events)
    before = samples(metrics)
    assert before["job_wait_seconds_count default 0"] == 1
    await follower._begin()
    await follower.catch_up()
    assert samples(metrics) == before
    running.cancel()


def test_what_jobs_run_with_room_of_others_is_counted_until_they_lose_it() -> None:
    world = with_room_rules()
    gpu_job(world, "low", 4, priority=1)
    world.settle()
    high = gpu_job(world, "high", 4, priority=9)
    world.settle()
    assert high.stage == Stage.RUNNING
    world.pass_time(100)
    world.node("another")
    world.pass_time(50)
    world.job_gone(high)
    world.pass_time(500)
    world.node("a-third")
    found = counted(written(world.entries, "us"))
    assert found["preemption_gained_gpu_seconds_total"] == 4 * 100
    assert counted(written(world.entries, "them")).get("preemption_gained_gpu_seconds_total") is None
