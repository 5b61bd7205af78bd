"""The dry runs of hypotheses. A cycle takes room for a job only once the API server was asked, by a dry run, whether it
takes the job's pods. Nobody asks it about a job that is only supposed, so a hypothesis supposes the answer: it takes
them, unless the log says that it refuses these pods.
"""

from collections.abc import Iterable, Sequence

import msgspec

from arranger.events import kinds as k
from arranger.model.job import JobSpec
from arranger.projections.jobs import JobRecord
from arranger.projections.state import State


def answers(state: State) -> tuple[k.PodsTried, ...]:
    """The answers about all waiting jobs that have none."""
    jobs = [job for job in state.jobs.values() if job.active and not job.placements and job.dry_run is None]
    return tuple(_answer(job, job.spec, job.seen.generation) for job in jobs if not job.of_pods)


def with_answers(state: State, events: Sequence[k.Event]) -> tuple[k.Event, ...]:
    """Hypothetical events, and the answers about the jobs that they create or edit."""
    seen = [event for event in events if isinstance(event, k.JobSeen)]
    return (*events, *_answers(state, seen))


def _answers(state: State, seen: Iterable[k.JobSeen]) -> Iterable[k.PodsTried]:
    for event in seen:
        job = state.jobs.get(event.uid)
        if job is None:
            yield k.PodsTried(event.uid, event.generation)
        elif not job.of_pods:
            yield _answer(job, event.spec, event.generation)


def _answer(job: JobRecord, spec: JobSpec | None, generation: int) -> k.PodsTried:
    """The last answer holds for an edit that leaves the pods as they are, such as one of the priority."""
    last = job.tried
    if last is not None and last.slot is not None and _pods(job.spec) == _pods(spec):
        return msgspec.structs.replace(last, generation=generation)
    return k.PodsTried(job.uid, generation)


def _pods(spec: JobSpec | None) -> list[object] | None:
    return [of.shape for of in spec.groups] if spec is not None else None
