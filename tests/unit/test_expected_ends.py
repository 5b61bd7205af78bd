"""When jobs are expected to end, and what is learned for that from those that have ended."""

import math
from itertools import count

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arranger.events.kinds import StageDecided
from arranger.model.config import CycleConfig
from arranger.model.job import JobSpec, JobStatusSeen, PlacedPods, Stage
from arranger.model.stages import StageReason
from arranger.projections import snapshot
from arranger.projections.consistency import validate
from arranger.projections.derived.expected_ends import (
    ENDING_MS,
    EndSource,
    ExpectedEnd,
    expected_end,
    expected_runtime_ms,
)
from arranger.projections.fold import apply_entry
from arranger.projections.jobs.records import JobRecord
from arranger.projections.jobs.run_times import KINDS_KEPT, TIMES_KEPT, JobKind, RunTimes, nine_of_ten, note_run_time
from arranger.projections.state import Changes, State
from tests.world import World, shape

LEARNS = CycleConfig(learned_runtimes=True)
PLAIN = CycleConfig()

_numbers = count()


def cluster() -> World:
    world = World()
    world.node("n0", cpu=64, gpus=8)
    return world


def begun(world: World, **spec: object) -> JobRecord:
    job = world.job(f"j{next(_numbers)}", leader=shape(cpu=1), **spec)  # type: ignore[arg-type]
    world.settle()
    assert job.stage == Stage.RUNNING
    return job


def ended(world: World, run_s: float, phase: str = "Succeeded", **spec: object) -> JobRecord:
    """A job that ran so long since it got its nodes."""
    job = begun(world, restart_limit=0, **spec)
    world.pass_time((job.began_ms - world.now_ms) / 1000 + run_s)
    world.change_pod(job.bound[0, 0], phase=phase, ready=False)
    world.settle()
    assert job.ended
    return job


def end_of(world: World, job: JobRecord, after_ms: int = 0, config: CycleConfig = LEARNS) -> ExpectedEnd | None:
    """The expected end as of a time after the start, in milliseconds since the start."""
    found = expected_end(world.state, job, config, job.began_ms + after_ms)
    return found._replace(end_ms=found.end_ms - job.began_ms) if found is not None else None


# --- the sources ------------------------------------------------------------------------------------------------


def test_a_job_that_says_nothing_has_no_expected_end() -> None:
    world = cluster()
    assert end_of(world, begun(world, image="i")) is None


def test_nothing_is_known_of_the_end_of_a_job_whose_pod_cant_start() -> None:
    world = cluster()
    job = world.job("wrong", leader=shape(cpu=1), image="i", expected_s=60)
    world.cycle()
    world.control()
    world.run_pod(job, (0, 0), job.placements[0, 0], phase="Pending", ready=False)
    world.control()
    assert job.stage == Stage.STARTING and end_of(world, job) is not None
    world.change_pod(job.bound[0, 0], phase="Pending", ready=False, waiting="ErrImagePull")
    assert end_of(world, job) is None
    world.change_pod(job.bound[0, 0], waiting="")
    assert end_of(world, job) == (60_000, EndSource.DECLARED, False)


def test_a_deadline_is_the_end() -> None:
    world = cluster()
    assert end_of(world, begun(world, deadline_s=90)) == (90_000, EndSource.DEADLINE, False)


def test_what_the_spec_expects_is_the_end() -> None:
    world = cluster()
    assert end_of(world, begun(world, expected_s=60)) == (60_000, EndSource.DECLARED, False)


@pytest.mark.parametrize(
    ("expected_s", "deadline_s", "end"),
    [
        (60, 90, (60_000, EndSource.DECLARED, False)),
        (90, 60, (60_000, EndSource.DEADLINE, False)),
        (60, 60, (60_000, EndSource.DEADLINE, False)),
    ],
)
def test_of_both_it_is_the_earlier(expected_s: int, deadline_s: int, end: tuple[int, EndSource, bool]) -> None:
    world = cluster()
    assert end_of(world, begun(world, expected_s=expected_s, deadline_s=deadline_s)) == end


def test_a_job_that_outlives_what_it_expected_is_expected_to_run_twice_as_long() -> None:
    world = cluster()
    job = begun(world, expected_s=60)
    assert end_of(world, job, 59_999) == (60_000, EndSource.DECLARED, False)
    assert end_of(world, job, 60_000) == end_of(world, job, 119_999) == (120_000, EndSource.DECLARED, True)
    assert end_of(world, job, 120_000) == (240_000, EndSource.DECLARED, True)


def test_the_deadline_ends_it_all_the_same() -> None:
    world = cluster()
    job = begun(world, expected_s=60, deadline_s=100)
    assert end_of(world, job, 60_000) == (100_000, EndSource.DEADLINE, True)
    assert end_of(world, job, 100_000) == (100_000 + ENDING_MS, EndSource.DEADLINE, True)
    assert end_of(world, job, 100_000 + ENDING_MS) == (100_000 + 2 * ENDING_MS, EndSource.DEADLINE, True)


def test_edits_count_at_once() -> None:
    world = cluster()
    job = begun(world, expected_s=60)
    world.job(job.seen.name, leader=shape(cpu=1), expected_s=600, generation=2)
    assert end_of(world, job) == (600_000, EndSource.DECLARED, False)
    assert not job.refused


def test_a_job_without_nodes_has_no_expected_end_but_a_run_time() -> None:
    world = cluster()
    job = world.job("waits", leader=shape(cpu=99), expected_s=60, deadline_s=90)
    world.cycle()
    assert expected_end(world.state, job, LEARNS, world.now_ms) is None
    assert expected_runtime_ms(world.state, job, LEARNS, world.now_ms) == 60_000
    other = world.job("says-nothing", leader=shape(cpu=99), image="i")
    assert expected_runtime_ms(world.state, other, LEARNS, world.now_ms) is None
    invalid = world.job("invalid", invalid="spec")
    assert expected_runtime_ms(world.state, invalid, LEARNS, world.now_ms) is None
    assert expected_end(world.state, invalid, LEARNS, world.now_ms) is None


def test_the_deadline_of_a_job_that_is_scheduled_again_goes_on_and_its_expectation_begins_again() -> None:
    world = cluster()
    job = begun(world, expected_s=60, deadline_s=200, restart_limit=5)
    start_ms = job.times.start_ms
    world.pass_time(50)
    world.change_pod(job.bound[0, 0], phase="Failed", ready=False)
    world.settle()
    assert job.stage == Stage.RESCHEDULING
    assert expected_end(world.state, job, LEARNS, world.now_ms) is None
    assert expected_runtime_ms(world.state, job, LEARNS, start_ms + 999_000) == 60_000, "no time passes while it waits"
    job.spec = msgspec.structs.replace(job.valid_spec, deadline_s=80)
    assert expected_runtime_ms(world.state, job, LEARNS, start_ms + 999_000) == 30_000
    job.spec = msgspec.structs.replace(job.valid_spec, deadline_s=200)
    world.wait_for_back_offs()
    world.settle()
    assert (job.attempt, job.stage) == (1, Stage.RUNNING)
    assert end_of(world, job) == (60_000, EndSource.DECLARED, False)
    over_ms = world.now_ms + 150_000  # it was active for 50 s before
    assert expected_end(world.state, job, LEARNS, over_ms) == ExpectedEnd(over_ms + ENDING_MS, EndSource.DEADLINE, True)


def test_an_ended_job_is_not_expected_to_end() -> None:
    world = cluster()
    job = ended(world, 5, expected_s=60)
    assert expected_end(world.state, job, LEARNS, world.now_ms) is None
    assert expected_runtime_ms(world.state, job, LEARNS, world.now_ms) is None


def test_a_new_epoch_goes_on_from_the_start_in_the_status() -> None:
    world = cluster()
    since_ms = world.now_ms - 50_000
    status = JobStatusSeen(
        "Running", "ScheduledSucceed", 0, 0, "", (PlacedPods("n0", 0, ((0, 0),)),), start_ms=since_ms,
        turned=(("Scheduled", True, since_ms),),
    )  # fmt: skip
    job = world.job("ppo", leader=shape(cpu=1), status=status, expected_s=60)
    found = expected_end(world.state, job, LEARNS, world.now_ms)
    assert found == (since_ms + 60_000, EndSource.DECLARED, False)


@given(st.integers(1, 10**5), st.none() | st.integers(1, 10**5), st.lists(st.integers(0, 10**9), max_size=20))
def test_an_end_is_never_in_the_past_and_never_becomes_earlier(
    expected_s: int, deadline_s: int | None, times: list[int]
) -> None:
    world, job = SHARED
    spec: JobSpec = msgspec.structs.replace(job.valid_spec, expected_s=expected_s, deadline_s=deadline_s)
    job.spec = spec
    last = 0
    for after_ms in sorted(times):
        found = end_of(world, job, after_ms)
        assert found is not None and found.end_ms > after_ms and found.end_ms >= last
        first_ms = 1000 * min(expected_s, deadline_s or expected_s)
        assert found.outlived == (after_ms >= first_ms)
        assert found.outlived or found.end_ms == first_ms
        last = found.end_ms


_WORLD = cluster()
SHARED = (_WORLD, begun(_WORLD))


# --- what is learned --------------------------------------------------------------------------------------------


def test_without_anything_said_a_job_ends_as_nine_of_ten_earlier_ones_did() -> None:
    world = cluster()
    for run_s in (100, 20, 30):
        ended(world, run_s, user="ann", image="i")
    assert world.state.run_times == {JobKind("ann", "", "i"): (100_000, 20_000, 30_000)}
    job = begun(world, user="ann", image="i")
    assert end_of(world, job) == (100_000, EndSource.LEARNED, False)
    assert end_of(world, job, 100_000) == (200_000, EndSource.LEARNED, True)
    assert end_of(world, job, config=PLAIN) is None
    waits = world.job("waits", leader=shape(cpu=99), user="ann", image="i")
    assert expected_runtime_ms(world.state, waits, LEARNS, world.now_ms) == 100_000
    assert expected_runtime_ms(world.state, waits, PLAIN, world.now_ms) is None


def test_two_earlier_jobs_are_too_few() -> None:
    world = cluster()
    for _ in range(2):
        ended(world, 10, user="ann", image="i")
    assert end_of(world, begun(world, user="ann", image="i")) is None


@pytest.mark.parametrize(
    "other", [{"user": "ben", "image": "i"}, {"user": "ann", "image": "k"}, {"image": "i"}, {"user": "ann"}], ids=str
)
def test_jobs_of_another_submitter_or_image_tell_nothing(other: dict[str, str]) -> None:
    world = cluster()
    for _ in range(3):
        ended(world, 10, user="ann", image="i")
    assert end_of(world, begun(world, **other)) is None


def test_without_a_user_the_namespace_is_the_submitter_but_no_user_of_that_name() -> None:
    world = cluster()
    for _ in range(3):
        ended(world, 10, image="i")
    assert world.state.run_times == {JobKind("", "default", "i"): (10_000,) * 3}
    assert end_of(world, begun(world, image="i")) == (10_000, EndSource.LEARNED, False)
    assert end_of(world, begun(world, user="default", image="i")) is None


def test_what_the_spec_says_counts_and_not_what_was_learned() -> None:
    world = cluster()
    for _ in range(3):
        ended(world, 10, image="i")
    assert end_of(world, begun(world, image="i", expected_s=60)) == (60_000, EndSource.DECLARED, False)
    assert end_of(world, begun(world, image="i", deadline_s=90)) == (90_000, EndSource.DEADLINE, False)


def test_of_jobs_that_fail_or_whose_image_is_not_known_nothing_is_kept() -> None:
    world = cluster()
    ended(world, 10, "Failed", image="i")
    ended(world, 10)
    assert world.state.run_times == {}


def test_an_end_that_is_only_assumed_tells_nothing() -> None:
    world = cluster()
    jobs = {reason: begun(world, image="i") for reason in (StageReason.ASSUMED, StageReason.AS_RECORDED)}
    world.pass_time(10)
    for reason, job in jobs.items():
        world.say(StageDecided(job.uid, job.version, 0, Stage.SUCCEEDED, reason))
        assert job.stage == Stage.SUCCEEDED
    assert world.state.run_times == {JobKind("", "default", "i"): (10_000,)}


def test_a_job_that_ends_without_nodes_is_not_counted() -> None:
    world = cluster()
    job = world.job("stopped", leader=shape(cpu=99), image="i", terminating=True)
    world.settle()
    assert job.stage == Stage.SUCCEEDED and world.state.run_times == {}


def test_the_last_run_times_of_the_kinds_that_ended_last_are_kept() -> None:
    world, run_times = cluster(), RunTimes()
    job = ended(world, 10, image="i")
    for number in range(TIMES_KEPT + 5):
        note_run_time(run_times, job, job.began_ms + number)
    assert run_times == {JobKind("", "default", "i"): tuple(range(5, TIMES_KEPT + 5))}
    for number in range(KINDS_KEPT + 2):
        if number == 7:
            note_run_time(run_times, job, job.began_ms)
        other = job.copy()
        other.spec = msgspec.structs.replace(job.valid_spec, image=f"k{number}")
        note_run_time(run_times, other, other.began_ms + 1)
    assert len(run_times) == KINDS_KEPT
    assert list(run_times)[:5] == [JobKind("", "default", f"k{number}") for number in (3, 4, 5, 6)] + [
        JobKind("", "default", "i")
    ]


def test_a_clock_that_went_back_makes_no_negative_run_time() -> None:
    world, run_times = cluster(), RunTimes()
    job = ended(world, 10, image="i")
    note_run_time(run_times, job, job.began_ms - 1)
    assert run_times[JobKind("", "default", "i")] == (0,)


def test_a_snapshot_has_them_in_their_order_and_the_fold_goes_on() -> None:
    world = cluster()
    for image in ("i", "k", "i"):
        ended(world, 10, image=image)
    validate(world.state)
    restored = snapshot.restore(snapshot.encode(world.state))
    assert list(restored.run_times.items()) == [
        (JobKind("", "default", "k"), (10_000,)), (JobKind("", "default", "i"), (10_000, 10_000))
    ]  # fmt: skip
    before = len(world.entries)
    ended(world, 20, image="k")
    for entry in world.entries[before:]:
        apply_entry(restored, entry, Changes())
    assert snapshot.encode(restored) == snapshot.encode(world.state)
    again = State()
    for entry in world.entries:
        apply_entry(again, entry, Changes())
    assert snapshot.encode(again) == snapshot.encode(world.state)


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=40))
def test_the_quantile_is_the_smallest_time_within_which_nine_of_ten_ended(times: list[int]) -> None:
    found = nine_of_ten(tuple(times))
    assert found == sorted(times)[math.ceil(len(times) * 9 / 10) - 1]
    assert 10 * sum(time <= found for time in times) >= 9 * len(times)
    assert 10 * sum(time < found for time in times) < 9 * len(times)


def test_what_is_known_of_an_older_log_has_no_image() -> None:
    spec = begun(cluster(), image="i").valid_spec
    fields = msgspec.msgpack.decode(msgspec.msgpack.encode(spec))
    old = msgspec.convert(fields[: JobSpec.__struct_fields__.index("preemptible")], JobSpec)
    assert (old.preemptible, old.expected_s, old.image) == (True, None, "")
