"""When a job is expected to end: by its deadline, by what its spec says, or as earlier jobs of its kind did.

`activeDeadlineSeconds` counts the time in which a job is active, and ends it. What the spec expects
(`expectedRuntimeSeconds`) and what earlier jobs needed count from the nodes of the present attempt. A job that runs for
longer than that has *outlived* its expectation. It is then expected to run for twice as long, or four times, and so on:
the first of these times that isn't over. So an expected end is never in the past, never becomes earlier with time, and
moves only a few times.
"""

from enum import StrEnum
from typing import NamedTuple

from arranger.model.config import CycleConfig
from arranger.model.job import Stage
from arranger.projections.derived.deadlines import deadline_left_ms, deadline_of
from arranger.projections.derived.unable_pods import unable_slots
from arranger.projections.jobs.records import JobRecord
from arranger.projections.jobs.run_times import usual_run_time_ms
from arranger.projections.state import State

#: A job whose deadline is over is being ended: it is expected to be gone after this time, or twice it, and so on.
ENDING_MS = 60_000

#: The least expectation: a run time of nothing could not be doubled.
_LEAST_MS = 1_000


class EndSource(StrEnum):
    """From where the end of a job is known."""

    DEADLINE = "Deadline"
    DECLARED = "Declared"
    LEARNED = "Learned"


class ExpectedEnd(NamedTuple):
    """The expected end of a job that has nodes, in milliseconds since 1970, and from where it is known. `outlived`: an
    earlier expectation is over, and this one extends it."""

    end_ms: int
    source: EndSource
    outlived: bool


def expected_end(state: State, job: JobRecord, config: CycleConfig, time_ms: int) -> ExpectedEnd | None:
    """When a started job is expected to end, as of `time_ms`; always later than that. None if that isn't known, or the
    job hasn't started, nor can as long as kubelets can't make its containers: then only its deadline tells."""
    begun_ms = job.began_ms if job.stage in (Stage.STARTING, Stage.RUNNING) and job.spec is not None else 0
    if not begun_ms:
        return None
    deadline_ms = deadline_of(job)
    if deadline_ms is not None and deadline_ms <= time_ms:
        return ExpectedEnd(_extended(deadline_ms, ENDING_MS, time_ms), EndSource.DEADLINE, outlived=True)
    unable = job.stage == Stage.STARTING and bool(unable_slots(state, job))
    run = _run_ms(state, job, config) if not unable else None
    if run is None:
        return None if deadline_ms is None else ExpectedEnd(deadline_ms, EndSource.DEADLINE, outlived=False)
    run_ms, source = run
    end_ms, outlived = _extended(begun_ms, run_ms, time_ms), begun_ms + run_ms <= time_ms
    if deadline_ms is not None and deadline_ms <= end_ms:
        return ExpectedEnd(deadline_ms, EndSource.DEADLINE, outlived)
    return ExpectedEnd(end_ms, source, outlived)


def expected_runtime_ms(state: State, job: JobRecord, config: CycleConfig, time_ms: int) -> int | None:
    """How long a waiting job is expected to run if it gets its nodes at `time_ms`, in milliseconds; None if that isn't
    known. For a job that is scheduled again, what is left of its deadline counts."""
    if job.spec is None or job.ended:
        return None
    found = _run_ms(state, job, config)
    known = [found[0]] if found is not None else []
    left_ms = deadline_left_ms(job, time_ms)
    if left_ms is not None:
        known.append(max(left_ms, _LEAST_MS))
    return min(known, default=None)


def reaches_deadline(state: State, job: JobRecord, config: CycleConfig, time_ms: int) -> bool:
    """Whether the deadline is expected to fail a job that has nodes, or gets them at `time_ms`: it is over, or the job
    is expected to run for longer. Where only a deadline is known, the job is supposed to succeed by then."""
    left_ms = deadline_left_ms(job, time_ms) if job.spec is not None else None
    if not left_ms:
        return left_ms == 0
    run = _run_ms(state, job, config)
    return run is not None and _extended(job.began_ms or time_ms, run[0], time_ms) > time_ms + left_ms


def leaves_by_ms(state: State, job: JobRecord, config: CycleConfig, time_ms: int) -> int | None:
    """When a job that has nodes, or gets them at `time_ms`, will have left reserved room, in milliseconds since 1970;
    None if that isn't known. With guests only its deadline tells that, because it is enforced."""
    if config.guests:
        left_ms = deadline_left_ms(job, time_ms)
        return time_ms + left_ms if left_ms is not None else None
    if job.placements:
        end = expected_end(state, job, config, time_ms)
        return end.end_ms if end is not None else None
    run_ms = expected_runtime_ms(state, job, config, time_ms)
    return time_ms + run_ms if run_ms is not None else None


def _run_ms(state: State, job: JobRecord, config: CycleConfig) -> tuple[int, EndSource] | None:
    """How long an attempt of the job is expected to run, but for its deadline."""
    spec = job.valid_spec
    if spec.expected_s is not None:
        return max(spec.expected_s * 1000, _LEAST_MS), EndSource.DECLARED
    if spec.deadline_s is not None or not config.learned_runtimes:
        return None
    learned_ms = usual_run_time_ms(state.run_times, job)
    return (max(learned_ms, _LEAST_MS), EndSource.LEARNED) if learned_ms is not None else None


def _extended(begun_ms: int, run_ms: int, time_ms: int) -> int:
    """The first end after `time_ms`, of those after the run time, twice the run time, four times and so on."""
    while begun_ms + run_ms <= time_ms:
        run_ms *= 2
    return begun_ms + run_ms
