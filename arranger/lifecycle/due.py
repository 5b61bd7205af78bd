"""The time at which a decision on a job becomes due by time alone, if the next sweep over all jobs would be late."""

from arranger.lifecycle import provisioning, refusals, replacements
from arranger.lifecycle.awaited_room import awaited_until_ms, next_free_ms
from arranger.lifecycle.config import LifecycleConfig
from arranger.lifecycle.pods_to_place import reserved_until_ms
from arranger.model.job import Stage
from arranger.projections.derived.deadlines import deadline_of
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import State


def due_ms(state: State, job: JobRecord, config: LifecycleConfig, time_ms: int) -> int | None:
    """The first time after `time_ms` at which the job may need a decision, in milliseconds; None if there is none."""
    if job.stage not in (Stage.STARTING, Stage.RUNNING):
        found = [awaited_until_ms(job), next_free_ms(state, job, time_ms), provisioning.due_ms(state, job, config)]
        found += [reserved_until_ms(state, job)] if job.of_group else []
    else:
        found = [refusals.due_ms(job, config), replacements.due_ms(job, config, time_ms)]
        found += [deadline_of(job)] if job.spec is not None else []
    return min((moment for moment in found if moment is not None and moment > time_ms), default=None)
