"""Counts what a process decided and the log accepted: preemptions, reservations, restarts, and how long jobs waited.

Each process folds every decision, but counts only those of its own batches. So a sum over the processes counts each
decision once, however many of them run and whoever had which share at the time.
"""

import logging
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any

from arranger.events.facts import PodsOverLimit, PreemptionKind
from arranger.events.kinds import Event, Placed, Preempted, Reserved, StageDecided, StartForecast, WorkersReplaced
from arranger.events.log import Entry
from arranger.logs import log_event
from arranger.metrics import Metrics
from arranger.model.job import JobSpec, Stage
from arranger.model.pod import gpus_of
from arranger.model.stages import WAITS_ON, StageReason
from arranger.projections.derived.work_at_risk import working_gpus
from arranger.projections.jobs.parts import STEPS_KEPT
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import Changes, Forecasted, State
from arranger.replay.forecast.score import HORIZONS_MS
from arranger.workers.log.cluster_measures import MeasuredQueues

_log = logging.getLogger(__name__)

#: The classes of jobs by the GPUs of all their pods: the most that each has, and its name.
_SIZES = ((0, "0"), (1, "1"), (8, "2-8"), (64, "9-64"))
_LARGEST = "65+"
#: The names of the horizons of forecasts, as `HORIZONS_MS`.
_HORIZONS = ("<1m", "<10m", "<1h", "<6h", "6h+")


class DecisionCounts:
    """Counts the decisions of one process. A `member` without a name has decided nothing."""

    def __init__(self, metrics: Metrics, member: str) -> None:
        self._metrics = metrics
        self._suffix = f"@{member}" if member else ""
        for kind in PreemptionKind if member else ():  # from 0 on: Prometheus sees no increase from nothing to 1
            metrics.preemptions.labels(str(kind))
        for result in ("made", "moved", "ended") if member else ():
            metrics.reservations.labels(result)
        self._queues = MeasuredQueues()
        #: The epoch and offset up to which entries were counted: a fold that begins again counts none twice.
        self._counted = (0, 0)
        self._counts: Mapping[type, Callable[[State, Any], None]] = {
            Placed: self._placed,
            Preempted: self._preempted,
            Reserved: self._reserved,
            StageDecided: self._stage_decided,
            WorkersReplaced: self._workers_replaced,
            StartForecast: self._forecast,
        }
        #: Jobs, by UID, that got room from others by our decisions, with the attempts, and until when they are counted.
        self._gaining: dict[str, tuple[int, int]] = {}
        #: Our entries among those that are being folded, and the reservations' starts and the forecasts before them.
        self._ours: list[Entry] = []
        self._starts: dict[str, int] = {}
        self._forecasts: dict[str, Forecasted] = {}

    def begin(self, state: State, entries: Sequence[Entry]) -> None:
        """Note what these entries may end: call this before they are folded."""
        self._ours = [entry for entry in entries if self._is_ours(entry)]
        if self._ours:
            self._starts = {uid: of.decided.start_ms for uid, of in state.reservations.items()}
            self._forecasts = dict(state.forecasts)

    def _is_ours(self, entry: Entry) -> bool:
        return bool(self._suffix) and entry.batch.writer.endswith(self._suffix)

    def count(self, state: State, changes: Changes) -> None:
        """Count the decisions of the entries, which are folded now: the verdicts on all, and what ours did."""
        for verdict in changes.verdicts:
            self._metrics.decisions.labels(verdict.kind, "accepted" if verdict.accepted else "rejected").inc()
            if not verdict.accepted and (verdict.kind == "CycleTaken" or not verdict.superseded):
                log_event(_log, "decision rejected", kind=verdict.kind, offset=verdict.offset, reason=verdict.reason)
        self._count_gains(state)
        if not self._ours:
            return
        offsets = {verdict.offset for verdict in changes.verdicts if verdict.accepted}
        for entry in self._news(state):
            for event in _at(entry, offsets):
                count = self._counts.get(type(event))
                if count is not None:
                    count(state, event)

    def _news(self, state: State) -> Iterator[Entry]:
        for entry in self._ours:
            if (state.epoch, entry.last) > self._counted:
                self._counted = (state.epoch, entry.last)
                yield entry

    # --- decisions -----------------------------------------------------------------------------------------

    def _placed(self, state: State, event: Placed) -> None:
        self._count_start(state, event.job_uid, event.based_on)

    def _preempted(self, state: State, event: Preempted) -> None:
        self._gaining[event.placed.job_uid] = (event.placed.attempt, state.time_ms)
        for victim in event.victims:
            self._metrics.preemptions.labels(str(victim.kind)).inc()
            self._metrics.preempted_gpu_seconds.inc(victim.lost_ms / 1000)
            if victim.kind.whole:
                self._metrics.restarts.labels("job", str(StageReason.PREEMPTED)).inc()
            else:
                pods = sum(last - first + 1 for of in victim.pods for first, last in of.indices)
                self._metrics.restarts.labels("worker", "Preempted").inc(pods)

    def _count_gains(self, state: State) -> None:
        """Count how long jobs have run with room of others, up to now or to their end."""
        for uid, (attempt, since_ms) in list(self._gaining.items()):
            job = state.jobs.get(uid)
            over = job is None or job.ended or job.attempt != attempt or not job.placements
            if job is not None and not over and job.stage == Stage.RUNNING:
                ran_ms = max(state.time_ms - max(since_ms, job.times.stage_ms), 0)
                gpus = working_gpus(state, job, job.placements)
                self._metrics.preemption_gained_gpu_seconds.inc(gpus * ran_ms / 1000)
            if over:
                del self._gaining[uid]
            else:
                self._gaining[uid] = (attempt, state.time_ms)

    def _stage_decided(self, state: State, event: StageDecided) -> None:
        if event.reason == StageReason.ROOM_NOT_FREED:
            self._metrics.room_not_freed.inc()
        elif event.stage == Stage.RESCHEDULING and not _waits_on(event):
            self._metrics.restarts.labels("job", str(event.reason)).inc()
        elif event.stage == Stage.STARTING:
            self._count_start(state, event.job_uid, event.based_on)

    def _workers_replaced(self, _state: State, event: WorkersReplaced) -> None:
        for cause in event.causes:
            if not isinstance(cause, PodsOverLimit):  # these aren't started again
                self._metrics.restarts.labels("worker", cause.kind).inc(cause.count)

    def _reserved(self, _state: State, event: Reserved) -> None:
        known = self._starts.pop(event.job_uid, None)
        if not event.pods:
            self._metrics.reservations.labels("ended").inc()
            return
        self._starts[event.job_uid] = event.start_ms
        if known is None:
            self._metrics.reservations.labels("made").inc()
        elif known != event.start_ms:
            self._metrics.reservations.labels("moved").inc()

    # --- starts --------------------------------------------------------------------------------------------

    def _forecast(self, state: State, event: StartForecast) -> None:
        self._forecasts[event.job_uid] = Forecasted(event, state.time_ms)

    def _count_start(self, state: State, uid: str, based_on: int) -> None:
        job = state.jobs.get(uid)
        began = _wait_of(job, based_on) if job is not None else None
        if job is None or job.spec is None or began is None:
            return
        since_ms, start_ms = began
        labels = (self._queues.name(state, job), size_class(job.spec))
        if since_ms:
            self._metrics.job_wait_seconds.labels(*labels).observe(max(start_ms - since_ms, 0) / 1000)
        forecast = self._forecasts.pop(uid, None)
        if forecast is not None and forecast.decided.expected_ms:
            expected_ms = forecast.decided.expected_ms
            started = "early" if start_ms < expected_ms else "late"
            observer = self._metrics.forecast_error_seconds.labels(horizon_of(forecast), started)
            observer.observe(abs(start_ms - expected_ms) / 1000)


def size_class(spec: JobSpec) -> str:
    """The class of a job by the GPUs of all its pods, such as `2-8`."""
    gpus = sum(group.count * gpus_of(group.shape.requests) for group in spec.groups)
    return next((name for most, name in _SIZES if gpus <= most), _LARGEST)


def horizon_of(forecast: Forecasted) -> str:
    """How far away the start was when it was forecast, such as `<10m`."""
    away_ms = forecast.decided.expected_ms - forecast.time_ms
    return next(
        name for name, below_ms in zip(_HORIZONS, HORIZONS_MS, strict=True) if below_ms is None or away_ms < below_ms
    )


def _waits_on(decided: StageDecided) -> bool:
    """Whether a decision on the stage begins no other wait."""
    return decided.reason in WAITS_ON or decided.awaited


def _wait_of(job: JobRecord, based_on: int) -> tuple[int, int] | None:
    """When a job began to wait and when it started, by the decision on that version of it; None if that decision didn't
    start it, because it only gave nodes to further pods. The first time is 0 if it isn't known: the job was adopted
    from its status, or too many decisions on its stage have followed."""
    steps = job.steps
    number = next(
        (i for i, (of, _) in enumerate(steps) if of.based_on == based_on and of.stage == Stage.STARTING), None
    )
    if number is None:
        return None
    before = [time_ms for of, time_ms in steps[:number] if not _waits_on(of)]
    if before:
        return before[-1], steps[number][1]
    known = not job.adopted_at and len(steps) < STEPS_KEPT
    return job.seen.created_ms if known else 0, steps[number][1]


def _at(entry: Entry, offsets: Container[int]) -> Iterator[Event]:
    """The events of an entry at these offsets."""
    for offset, event in enumerate(entry.batch.events, start=entry.first):
        if offset in offsets:
            yield event
