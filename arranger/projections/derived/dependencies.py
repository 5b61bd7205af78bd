"""Jobs that wait for others (`spec.after`), and how the last one of each name ended.

A job keeps the end of a job that it waits for, as it keeps the value of its PriorityClass: if that job is deleted, or
made again, after it has succeeded, nothing waits for it any more. A job that is deleted before its end has not failed.
"""

from collections.abc import Mapping

import msgspec

from arranger.model.job import Dependency, JobSpec, JobStatusSeen, Stage
from arranger.model.stages import StageReason
from arranger.projections.derived.deadlines import succeeded_in_time
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import Changes, State


def awaited_jobs(job: JobRecord) -> tuple[Dependency, ...]:
    """The jobs that have to end before this one gets nodes."""
    return job.valid_spec.unmet if job.active and not job.stands_still else ()


def failed_dependency(job: JobRecord) -> Dependency | None:
    """A job that has failed and had to succeed first."""
    return next((of for of in job.spec.unmet if of.ended is not None), None) if job.spec is not None else None


def with_ends(state: State, namespace: str, spec: JobSpec, before: JobSpec | None = None) -> JobSpec:
    """The spec with the ends of the jobs that it names, as far as they are known: from the spec `before`, else from the
    present jobs."""
    if not spec.after:
        return spec
    known = {of.name: of.ended for of in before.after} if before is not None else {}
    ends = {of.name: known.get(of.name) or _end_of(state, state.find_job(namespace, of.name)) for of in spec.after}
    return _with(spec, ends)


def adopted(spec: JobSpec, status: JobStatusSeen) -> JobSpec:
    """The spec with the ends that its status names: the jobs may be gone in this epoch."""
    return _with(spec, {name: Stage(stage) for name, stage in status.after if stage in ("Succeeded", "Failed")})


def tell_dependents(state: State, job: JobRecord, changes: Changes) -> None:
    """Let the jobs that wait for a job of this name know how the present one ended."""
    seen = job.seen
    end = _end_of(state, state.find_job(seen.namespace, seen.name))
    for uid in state.dependents.get((seen.namespace, seen.name), ()):
        of = state.jobs[uid]
        changes.jobs[uid] = None
        if of.spec is None or of.ended or all(each.met for each in of.spec.after if each.name == seen.name):
            continue
        spec = _with(of.spec, {seen.name: end})
        if spec != of.spec:
            of.spec = spec
            changes.schedulable = True
            state.scheduling_changes += 1


def _with(spec: JobSpec, ends: Mapping[str, Stage | None]) -> JobSpec:
    """The spec with these ends of jobs that it names; those of the others stay."""
    after = tuple(msgspec.structs.replace(of, ended=ends.get(of.name, of.ended)) for of in spec.after)
    return msgspec.structs.replace(spec, after=after)


def _end_of(state: State, job: JobRecord | None) -> Stage | None:
    """How a job ended by itself, also if only its pods show yet that it has succeeded: else others would take its room
    before those that wait for it. None if it hasn't."""
    if job is None or (job.ended and job.decided is not None and job.decided.reason == StageReason.DELETED):
        return None
    if job.ended:
        return job.stage
    return Stage.SUCCEEDED if job.active and succeeded_in_time(state, job) else None
