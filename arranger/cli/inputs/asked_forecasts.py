"""The forecasts of the jobs that a user names, and how those stand that have none because they don't wait to start."""

from collections.abc import Sequence

from arranger.cli.inputs.reading import NotFound, namespace_and_name
from arranger.model.job import Stage
from arranger.model.near_names import did_you_mean, near_names
from arranger.model.text import counted
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import State
from arranger.replay.explain.answer import jobs_named
from arranger.replay.forecast.starts import Forecast, JobForecast, waits_to_start
from arranger.replay.reading.describe import label


def asked_of(found: Forecast, names: Sequence[str], state: State) -> Sequence[JobForecast]:
    """The jobs of these names, or all. Raises `NotFound` for a name that no waiting job has."""
    if not names:
        return found.jobs
    asked: dict[str, JobForecast] = {}
    for text in names:
        namespace, name = namespace_and_name(text)
        of_name = [
            one for one in found.jobs
            if one.job.rpartition("/")[2] == name and namespace in (None, one.job.partition("/")[0])
        ]  # fmt: skip
        if not of_name:
            raise _not_waiting(text, jobs_named(state, name, namespace), found, state)
        asked |= {one.uid: one for one in of_name}
    return list(asked.values())


def _not_waiting(text: str, jobs: Sequence[JobRecord], found: Forecast, state: State) -> NotFound:
    """The error for a name that none of the waiting jobs has that were looked at; `jobs` are those that have it."""
    if not jobs:
        names = dict.fromkeys(job.seen.name for job in state.jobs.values())
        hint = did_you_mean(near_names(text.rpartition("/")[2], names, most=3), "arranger replay lists the jobs")
        return NotFound(f"there is no job {text!r} at offset {state.offset}", hint=hint)
    if any(waits_to_start(job) for job in jobs):
        few = f"job {text!r} is behind the first {counted(len(found.jobs), 'waiting job')}, and others aren't looked at"
        return NotFound(few, hint="--first looks at more")
    told = "; ".join(f"job {label(job)} doesn't wait to start: it {_standing(job)}" for job in jobs)
    return NotFound(told, hint="arranger explain says what became of it")


def _standing(job: JobRecord) -> str:
    """How a job stands that doesn't wait to start, in words."""
    if job.ended:
        return "has succeeded" if job.stage == Stage.SUCCEEDED else "has failed"
    if job.seen.deleting:
        return "is being deleted"
    if job.seen.faults or job.spec is None:
        return "is invalid"
    if job.stands_still:
        return "is suspended" if job.spec.suspend else "is being ended"
    return "runs already" if job.stage == Stage.RUNNING else "has its nodes already, and starts"
