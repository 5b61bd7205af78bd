"""When a decision on a job falls due by time alone, where the next sweep over all jobs would be late."""

from arranger.lifecycle import refusals, replacements
from arranger.lifecycle.config import LifecycleConfig
from arranger.model.job import Stage
from arranger.projections.jobs import JobRecord


def due_ms(job: JobRecord, config: LifecycleConfig, time_ms: int) -> int | None:
    """The first moment after `time_ms` at which it may have to be decided on, told in milliseconds; None for none."""
    if job.stage not in (Stage.STARTING, Stage.RUNNING):
        return None
    found = [refusals.due_ms(job, config), replacements.due_ms(job, config, time_ms)]
    return min((moment for moment in found if moment is not None and moment > time_ms), default=None)
