"""The indexes of jobs: by name, by the name of a job that they wait for, and those whose pods have rules about others.

They follow from the records, so whoever changes a record keeps them up to date here.
"""

from arranger.model.job import JobSpec
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import State

_Index = dict[tuple[str, str], tuple[str, ...]]


def enter(state: State, job: JobRecord) -> None:
    """Record a new job."""
    _add(state.named, (job.seen.namespace, job.seen.name), job.uid)
    follow(state, job, None)


def leave(state: State, job: JobRecord) -> None:
    """The inverse of `enter`."""
    _remove(state.named, (job.seen.namespace, job.seen.name), job.uid)
    state.takers.pop(job.uid, None)
    _forget(state, job, job.spec)


def follow(state: State, job: JobRecord, before: JobSpec | None) -> None:
    """Record what a job has in place of its spec `before`."""
    _forget(state, job, before)
    if job.spec is None:
        return
    for of in job.spec.after:
        _add(state.dependents, (job.seen.namespace, of.name), job.uid)
    if job.spec.may_have_rules:
        state.with_rules[job.uid] = None


def _forget(state: State, job: JobRecord, spec: JobSpec | None) -> None:
    for of in spec.after if spec is not None else ():
        _remove(state.dependents, (job.seen.namespace, of.name), job.uid)
    state.with_rules.pop(job.uid, None)


def _add(index: _Index, name: tuple[str, str], uid: str) -> None:
    index[name] = tuple(sorted((*index.get(name, ()), uid)))


def _remove(index: _Index, name: tuple[str, str], uid: str) -> None:
    left = tuple(other for other in index[name] if other != uid)
    if left:
        index[name] = left
    else:
        del index[name]
