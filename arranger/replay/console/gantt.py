"""When each job waited and ran, as bars over time."""

from collections.abc import Sequence
from itertools import islice

import msgspec

from arranger.model.job import Stage
from arranger.model.names import GROUP_PREFIX, POD_PREFIX
from arranger.model.pod import TERMINAL
from arranger.model.stages import StageReason
from arranger.projections.derived.queue_counts import queue_of
from arranger.projections.jobs.records import JobRecord, asked_record
from arranger.projections.state import State
from arranger.replay.console.moment import gpus_held, main_cause, nodes_held, user_of, waits
from arranger.replay.console.node_gantt import NodeSpans
from arranger.replay.reading.describe import label

#: How many bars and jobs are kept in memory, how many jobs one answer has, and how many nodes a bar names.
_BARS, _JOBS, _NODES = 200_000, 2_000, 50
_WAITING, _RUNNING = "waiting", "running"


class Bar(msgspec.Struct, frozen=True, rename="camel"):
    """A time (seconds since 1970) in which a job was waiting for one main `cause`, or running. `nodes` names at most 50
    of its nodes. `outcome` is the stage in which the waiting or the run ended: Succeeded, Failed, or Rescheduling if
    the job ran and had to start again; Suspended if its user suspended it; empty while it lasts, if the job then got
    its nodes, and if it was deleted. All bars of a run, which differ by the pods with nodes, have the same. `queue` is
    the one of then, empty if it is the job's last."""

    begin: float = msgspec.field(name="from")
    end: float = msgspec.field(name="to")
    kind: str
    cause: str | None
    gpus: int
    attempt: int
    nodes: tuple[str, ...]
    outcome: str = ""
    queue: str = ""


class GanttJob(msgspec.Struct, frozen=True, rename="camel"):
    """A job with its bars, in the order of time. `user` is who submitted it, empty if the log doesn't tell."""

    job: str
    queue: str
    bars: tuple[Bar, ...]
    user: str = ""


class DeletedJob(msgspec.Struct, frozen=True, rename="camel"):
    """A job that was deleted: from the offset `at` on, it is gone. Another one may have its name."""

    job: str
    queue: str
    at: int


class Gantt(msgspec.Struct, frozen=True, rename="camel"):
    """First the jobs that wait or run at the end of the span, by queue and by their first bars in it; then the others,
    those first that waited or ran last. `left` is the number of further jobs, which aren't shown. `deleted` are the
    jobs that were deleted in the span, also those without bars, in the order of the log; `deletedLeft` earlier ones, or
    jobs that may have been deleted, aren't listed."""

    jobs: tuple[GanttJob, ...]
    left: int
    complete: bool = True
    deleted: tuple[DeletedJob, ...] = ()
    deleted_left: int = 0


#: Kind, cause, GPUs, attempt and nodes of a bar.
_What = tuple[str, str | None, int, int, tuple[str, ...]]


class _Phase(msgspec.Struct):
    """A bar in the making; `end_ms` is -1 while it lasts."""

    what: _What
    queue: str
    begin_ms: int
    end_ms: int = -1
    outcome: str = ""


class _Row(msgspec.Struct):
    """`gone` is the offset and the time at which the job was deleted; None if it wasn't."""

    job: str
    queue: str
    user: str
    phases: list[_Phase]
    gone: tuple[int, int] | None = None


class GanttIndex:
    """Call `note` after each fold with the touched jobs. When there are too many bars, jobs that are gone for longest
    are forgotten."""

    def __init__(self) -> None:
        self.nodes = NodeSpans()
        self._rows: dict[str, _Row] = {}
        self._gone: dict[str, None] = {}
        #: The bars and the jobs that are kept.
        self._bars = 0
        #: How many jobs were forgotten.
        self._lost = 0

    @property
    def forgotten(self) -> bool:
        """Whether any jobs were forgotten."""
        return self._lost > 0

    def note(self, state: State, touched: dict[str, None]) -> None:
        for uid in touched:
            job = state.jobs.get(uid)
            nodes = nodes_held(job) if job is not None and not job.ended else {}
            what = _what(state, job, nodes) if job is not None else None
            row = self._rows.get(uid)
            if row is None:
                if job is None:
                    continue
                row = self._rows[uid] = _Row(label(job), queue_of(state, job), user_of(job), [])
                self._bars += 1
            row.gone = _gone(state, uid)
            if job is None or job.ended:
                self._gone[uid] = None
            else:
                row.queue = queue_of(state, job)
            self._move(row, what, state.time_ms)
            if job is not None and row.phases:
                _tell_outcome(row.phases, job, waiting=what is not None and what[0] == _WAITING)
            self.nodes.note(uid, row.job, nodes, state)
        while self._bars > _BARS and self._gone:
            uid = next(iter(self._gone))
            del self._gone[uid]
            self._bars -= len(self._rows.pop(uid).phases) + 1
            self._lost += 1

    def _move(self, row: _Row, what: _What | None, now_ms: int) -> None:
        last = row.phases[-1] if row.phases and row.phases[-1].end_ms < 0 else None
        if last is not None and (last.what, last.queue) == (what, row.queue):
            return
        if last is not None:
            last.end_ms = now_ms
            if last.begin_ms == now_ms:  # nothing to be seen
                row.phases.pop()
                self._bars -= 1
        if what is not None:
            row.phases.append(_Phase(what, row.queue, now_ms))
            self._bars += 1

    def gpu_ms(self, uid: str, end_ms: int) -> int | None:
        """The GPUs that a job held up to a time, times milliseconds; None if its bars were forgotten."""
        row = self._rows.get(uid)
        if row is None:
            return None if self.forgotten else 0
        return sum(
            one.what[2] * (min(end_ms, one.end_ms if one.end_ms >= 0 else end_ms) - one.begin_ms)
            for one in row.phases
            if one.begin_ms < end_ms
        )

    def gantt(self, begin_ms: int, end_ms: int, *, complete: bool) -> Gantt:
        """The bars that meet a span of time. Bars that last end with it."""
        present, past = list[tuple[_Row, list[_Phase]]](), list[tuple[_Row, list[_Phase]]]()
        for row in self._rows.values():
            met = [one for one in row.phases if one.begin_ms <= end_ms and not 0 <= one.end_ms < begin_ms]
            if met:
                (past if 0 <= met[-1].end_ms <= end_ms else present).append((row, met))
        present.sort(key=lambda of: (of[0].queue, of[1][0].begin_ms, of[0].job))
        past.sort(key=lambda of: (-of[1][-1].end_ms, of[1][0].begin_ms, of[0].job))
        found = present + past
        jobs = tuple(
            GanttJob(row.job, row.queue, tuple(_bar(one, end_ms, row.queue) for one in met), row.user)
            for row, met in found[:_JOBS]
        )
        gone = self._deleted(begin_ms, end_ms)
        unlisted = max(len(gone) - _JOBS, 0)
        return Gantt(jobs, max(len(found) - _JOBS, 0), complete, gone[unlisted:], unlisted + self._lost)

    def _deleted(self, begin_ms: int, end_ms: int) -> tuple[DeletedJob, ...]:
        """The jobs that were deleted in a span of time, in the order of the log."""
        found = [(row.gone[0], row) for row in self._rows.values() if row.gone and begin_ms <= row.gone[1] <= end_ms]
        return tuple(DeletedJob(row.job, row.queue, at) for at, row in sorted(found, key=lambda of: of[0]))


def _gone(state: State, uid: str) -> tuple[int, int] | None:
    """At which offset and time a job was deleted; None if it wasn't. Pods of others have a record no more also because
    they have ended."""
    if uid in state.jobs:
        return None
    of_others = state.pods.values() if uid.startswith((POD_PREFIX, GROUP_PREFIX)) else ()
    ended = (pod for pod in of_others if pod.phase in TERMINAL and not pod.deleting)
    return None if any(asked_record(pod) == uid for pod in ended) else (state.offset, state.time_ms)


def _what(state: State, job: JobRecord, nodes: dict[str, int]) -> _What | None:
    """What a bar of the job, which has these nodes, would be now; None if it neither waits nor runs."""
    if waits(job):
        return _WAITING, main_cause(state, job, waiting=True), gpus_held(job), job.attempt, ()
    if job.ended or not job.placements:
        return None
    return _RUNNING, None, gpus_held(job), job.attempt, tuple(islice(nodes, _NODES))


def _bar(phase: _Phase, end_ms: int, last_queue: str) -> Bar:
    end, queue = phase.end_ms if phase.end_ms >= 0 else end_ms, phase.queue if phase.queue != last_queue else ""
    return Bar(phase.begin_ms / 1000, end / 1000, *phase.what, phase.outcome, queue)


def _tell_outcome(phases: list[_Phase], job: JobRecord, *, waiting: bool) -> None:
    """Note how the last phase ended once the job has ended, and the last run of one that waits again."""
    if job.ended and phases[-1].end_ms >= 0:
        _note_outcome(phases, job.stage)
    elif waiting and len(phases) > 1 and phases[-2].what[0] == _RUNNING and not phases[-2].outcome:
        _note_outcome(phases[:-1], StageReason.SUSPENDED if job.suspended else Stage.RESCHEDULING)


def _note_outcome(phases: Sequence[_Phase], outcome: str) -> None:
    """Note how the last phase ended, and with it those before it that belong to the same run."""
    phases[-1].outcome = outcome
    run = phases[-1].what[0], phases[-1].what[3]
    for earlier in reversed(phases[:-1]):
        if run[0] != _RUNNING or (earlier.what[0], earlier.what[3]) != run:
            return
        earlier.outcome = outcome
