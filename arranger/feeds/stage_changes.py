"""The changes of jobs' stages, found while the log is folded.

A job's record keeps its last decisions on the stage (`JobRecord.steps`). Those that the record didn't have after the
entry before are the changes of an entry. So a change counts only if the decision was accepted, and every reader of the
log finds the same ones.
"""

from collections.abc import Iterator

import msgspec

from arranger.events.kinds import StageDecided
from arranger.messages.decisions import stage_text
from arranger.model.job import Stage
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import State

#: The reason of a job's first stage, as in its Kubernetes Events.
ACCEPTED = "Accepted"


class StageChange(msgspec.Struct, frozen=True):
    """A job entered a stage, or was deleted (then `stage` is the last one).

    `number` counts the changes of one job in one entry, from 0. `before` is the stage that it left; "" for a job that
    wasn't there. `time_ms` is in milliseconds since 1970.
    """

    uid: str
    namespace: str
    name: str
    number: int
    stage: str
    before: str
    reason: str
    message: str
    attempt: int
    time_ms: int
    deleted: bool = False


class _Known(msgspec.Struct, frozen=True):
    """What was last known of a job."""

    namespace: str
    name: str
    stage: Stage
    attempt: int
    #: The last decision on the stage; None if there was none in this epoch.
    step: tuple[StageDecided, int] | None


class StageChanges:
    """Compares each job with what it was after the entry before."""

    def __init__(self, state: State) -> None:
        """Everything that `state` has is known."""
        self._known = {uid: _known(job) for uid, job in state.jobs.items() if not job.of_pods}

    def after(self, state: State, jobs: dict[str, None]) -> Iterator[StageChange]:
        """The changes of an entry that touched these jobs, in order for each job; `state` is the state after it."""
        for uid in jobs:
            job, known = state.jobs.get(uid), self._known.get(uid)
            if job is None:
                if known is not None:
                    del self._known[uid]
                    yield _deleted(uid, known, state.time_ms)
            elif not job.of_pods:
                self._known[uid] = _known(job)
                yield from _entered(job, known)


def present(state: State) -> Iterator[StageChange]:
    """The present stage of every job, as if it had just appeared."""
    for job in state.jobs.values():
        if not job.of_pods:
            yield _first(job)


def _known(job: JobRecord) -> _Known:
    return _Known(job.seen.namespace, job.seen.name, job.stage, job.attempt, job.steps[-1] if job.steps else None)


def _entered(job: JobRecord, known: _Known | None) -> Iterator[StageChange]:
    if known is None:
        yield _first(job)
        return
    steps = job.steps
    if known.step is not None:
        last = max((number for number, step in enumerate(steps) if step == known.step), default=-1)
        steps = steps[last + 1 :]
    before: str = known.stage
    for number, step in enumerate(steps):
        change = _change(job, number, *step, before=before)
        before = change.stage
        yield change


def _first(job: JobRecord) -> StageChange:
    if job.decided is not None:
        return _change(job, 0, job.decided, job.times.stage_ms, before="")
    seen = job.seen
    return StageChange(
        job.uid, seen.namespace, seen.name, 0, job.stage, "", ACCEPTED, "", job.attempt, job.times.stage_ms
    )


def _change(job: JobRecord, number: int, decided: StageDecided, time_ms: int, *, before: str) -> StageChange:
    seen, text = job.seen, stage_text(decided)
    return StageChange(
        job.uid,
        seen.namespace,
        seen.name,
        number,
        decided.stage,
        before,
        decided.reason,
        text,
        decided.attempt,
        time_ms,
    )


def _deleted(uid: str, known: _Known, time_ms: int) -> StageChange:
    return StageChange(
        uid, known.namespace, known.name, 0, known.stage, known.stage, "", "", known.attempt, time_ms, deleted=True
    )
