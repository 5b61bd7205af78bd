"""Which jobs want nodes, in which order: the job queue policy Priority."""

from collections.abc import Iterable, Iterator
from itertools import groupby

from arranger.model.job import ScheduleState, Stage
from arranger.projections.jobs import JobRecord
from arranger.projections.state import State

NAME = "Priority"
VERSION = 1


def waiting(state: State) -> list[JobRecord]:
    """Jobs with places that have no node yet, in queue order."""
    return ordered(job for job in state.jobs.values() if _wants_nodes(state, job))


def ordered(jobs: Iterable[JobRecord]) -> list[JobRecord]:
    """Higher priority first; then the earlier created; then the lower UID."""
    return sorted(jobs, key=queue_key)


def queue_key(job: JobRecord) -> tuple[int, int, str]:
    """The keys that decide a job's place in the queue, smallest first."""
    assert job.spec is not None
    return (-job.spec.priority, job.seen.created_ms, job.uid)


def levels(jobs: list[JobRecord]) -> Iterator[list[JobRecord]]:
    """Jobs of equal priority together, highest first: all quorums of a level go before its further pods."""
    for _, level in groupby(jobs, key=lambda job: queue_key(job)[0]):
        yield list(level)


def _wants_nodes(state: State, job: JobRecord) -> bool:
    if not job.active or job.spec is None or job.spec.terminating or job.schedule_state == ScheduleState.FAILED:
        return False
    if len(job.placements) >= job.pods_wanted():
        return False
    return job.stage != Stage.RESCHEDULING or not old_pods(state, job)


def old_pods(state: State, job: JobRecord) -> bool:
    """Whether pods of an earlier attempt are still there: a new attempt waits until they are gone."""
    pods = state.pods_of.get(job.uid, {}).values()
    return any(pod.owner is not None and pod.owner.attempt < job.attempt for pod in pods)
