"""How long jobs of each kind ran that succeeded: what later jobs of that kind are expected to need.

Jobs are of one kind if they have the same submitter and the same image (`JobSpec.image`). The fold keeps the last run
times of the kinds that ended last, in whole milliseconds, from the nodes of a job's last attempt to its end. An end
that is only assumed, as in a forecast, says nothing of later jobs: else a guess would be the evidence for the next one.
"""

from functools import lru_cache

import msgspec

from arranger.model.job import Stage
from arranger.model.stages import StageReason
from arranger.projections.jobs.records import JobRecord

#: How many run times are kept of a kind of job, and of how many kinds.
TIMES_KEPT = 32
KINDS_KEPT = 1_000

#: With fewer run times, nothing is expected of a kind of job.
TIMES_NEEDED = 3


class JobKind(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Jobs of one submitter and image. `namespace` is empty if the label `arranger.dev/user` names the submitter."""

    user: str
    namespace: str
    image: str


#: Kind of job → its last run times in milliseconds, the oldest first; the kinds in the order in which they ended last.
RunTimes = dict[JobKind, tuple[int, ...]]


def kind_of(job: JobRecord) -> JobKind | None:
    """The kind of a job; None if its image isn't known."""
    if job.spec is None or not job.spec.image:
        return None
    user = job.seen.user
    return JobKind(user, "" if user else job.seen.namespace, job.spec.image)


def note_run_time(run_times: RunTimes, job: JobRecord, time_ms: int) -> None:
    """Keep the run time of a job that enters its last stage at `time_ms`, if it has succeeded and that isn't only
    assumed. It must have its nodes still."""
    kind, began_ms = kind_of(job), job.began_ms
    assumed = job.decided is not None and job.decided.reason == StageReason.ASSUMED
    if job.stage != Stage.SUCCEEDED or assumed or kind is None or not began_ms:
        return
    times = (*run_times.pop(kind, ()), max(time_ms - began_ms, 0))
    run_times[kind] = times[-TIMES_KEPT:]
    if len(run_times) > KINDS_KEPT:
        del run_times[next(iter(run_times))]


def times_of_kind(run_times: RunTimes, job: JobRecord) -> tuple[int, ...]:
    """The run times of earlier jobs of the job's kind in milliseconds, the oldest first; none if too few are known."""
    kind = kind_of(job)
    times = run_times.get(kind, ()) if kind is not None else ()
    return times if len(times) >= TIMES_NEEDED else ()


def usual_run_time_ms(run_times: RunTimes, job: JobRecord) -> int | None:
    """Within which time nine of ten earlier jobs of the job's kind ended; None if too few are known."""
    times = times_of_kind(run_times, job)
    return nine_of_ten(times) if times else None


@lru_cache(maxsize=KINDS_KEPT)
def nine_of_ten(times: tuple[int, ...]) -> int:
    """The 90 % quantile by the nearest rank: the smallest of these times that isn't exceeded by more than a tenth."""
    return sorted(times)[-(-9 * len(times) // 10) - 1]
