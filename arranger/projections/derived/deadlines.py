"""How long a job was active, when its deadline is, and whether it had succeeded by then.

The deadline (`activeDeadlineSeconds`) counts the time in which a job is active: Starting or Running, with nodes and
pods. While it waits to be scheduled again, the clock stands. A suspension and a preemption let it begin anew, as with a
batch/v1 Job, which a queue preempts by suspending it.
"""

from arranger.events.kinds import Watched
from arranger.model.job import ACTIVE, ENDED
from arranger.projections.jobs.parts import LEADER
from arranger.projections.jobs.records import JobRecord, ended_well
from arranger.projections.state import State


def active_ms(job: JobRecord, time_ms: int) -> int:
    """How long the job was active until `time_ms`, as its deadline counts it, in milliseconds."""
    times = job.times
    if times.active_since_ms:
        return times.active_ms + max(time_ms - times.active_since_ms, 0)
    if job.stage not in ACTIVE:
        return times.active_ms
    return max(time_ms - times.start_ms, 0) if times.start_ms else 0  # adopted from a status that doesn't tell more


def deadline_of(job: JobRecord) -> int | None:
    """When the deadline of an active job is over, in milliseconds since 1970; None without one, or while it waits."""
    times, limit_s = job.times, job.valid_spec.deadline_s
    since_ms = times.active_since_ms - times.active_ms if times.active_since_ms else times.start_ms
    if limit_s is None or not since_ms or job.stage not in ACTIVE:
        return None
    return since_ms + limit_s * 1000


def overdue(job: JobRecord, time_ms: int) -> bool:
    """Whether the deadline of an active job is over."""
    deadline_ms = deadline_of(job) if job.spec is not None else None
    return deadline_ms is not None and deadline_ms <= time_ms


def deadline_left_ms(job: JobRecord, time_ms: int) -> int | None:
    """How long the deadline lets a job be active from `time_ms` on, if it is active then, in milliseconds; None without
    a deadline."""
    limit_s = job.valid_spec.deadline_s
    return max(limit_s * 1000 - active_ms(job, time_ms), 0) if limit_s is not None else None


def not_overdue(state: State, job: JobRecord) -> str:
    """Why a job doesn't fail because of its deadline, as far as the log tells; empty if it may."""
    deadline_ms = deadline_of(job) if job.spec is not None else None
    if deadline_ms is not None and state.heard_ms(Watched.POD) < deadline_ms:
        return "not everything is known that its pods did before its deadline"
    return "it had succeeded before its deadline" if succeeded_in_time(state, job) else ""


def succeeded_in_time(state: State, job: JobRecord) -> bool:
    """Whether the pods whose end is the job's have ended well, and before its deadline as far as their times are known.
    The log may tell of that only later, because nobody watched."""
    ended_ms = success_ms(state, job)
    deadline_ms = deadline_of(job) if job.spec is not None else None
    return ended_ms is not None and (deadline_ms is None or ended_ms <= deadline_ms)


def won(state: State, job: JobRecord) -> bool:
    """Whether the pods whose end is the job's have ended well. Whatever happens to the job after that is too late,
    except that its deadline had been before."""
    return success_ms(state, job) is not None


def success_ms(state: State, job: JobRecord) -> int | None:
    """When the pods of a job that is still active ended whose end is the job's, if all of them ended well, in
    milliseconds since 1970, 0 if that isn't known; None if they didn't."""
    if job.spec is None or job.stage in ENDED:
        return None
    if not job.spec.ends_with_leader:
        return job.times.finished_ms if job.succeeded else None
    leader = state.pods.get(job.bound.get(LEADER, ""), job.leader.ended)
    return leader.times.ended_ms if leader is not None and ended_well(leader) else None
