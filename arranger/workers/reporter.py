"""Kubernetes Events on TYJobs: the story that `kubectl describe tyj` tells.

One Event for each decision on the stage. While a stage lasts, one each for what the job waits for, for workers that are
replaced and for pods that the API server refuses, brought up to date when there is news (other numbers alone are none:
the status has them). Names are a function of what an Event is about, so two appliers, or one that starts anew, add to
the same Event instead of a second one. They begin with the time of the decision, because Events are listed by name and
their times have seconds only: so a listing tells the story in its order. Events are for people: a failure to record one
is logged and never holds up anything else.
"""

import logging
from typing import Any

import msgspec

from arranger.clock import Clock
from arranger.errors import ClusterError
from arranger.kube.cluster import EVENTS, TYJOBS, ApiError, Cluster, Object
from arranger.lifecycle.wanted import rfc3339
from arranger.logs import log_event
from arranger.model.job import ScheduleState, Stage
from arranger.projections.jobs import JobRecord
from arranger.scheduling.cycle import kinds_of

_log = logging.getLogger(__name__)

#: The reason of the first Event of a job.
_ACCEPTED = "Accepted"

#: Kubernetes refuses Events with longer messages.
_MESSAGE_LIMIT = 1000

#: What the Events that are brought up to date are about, as a part of their names.
_WAITING = "waiting"
_WORKERS = "workers"
_REFUSED = "refused"

#: Of Events with one time in their name, which comes first; those about a stage come after its own.
_ORDER = {Stage.PENDING: 0, Stage.RESCHEDULING: 0, Stage.STARTING: 2, Stage.RUNNING: 4}
_LAST = 6

#: A decision on a job's stage, as it is told once.
Step = tuple[int, str, str]


class Told(msgspec.Struct):
    """What this process has told of one job."""

    step: Step | None = None
    waiting: tuple[str, ...] = ()
    refused: str = ""
    replacements: int = 0
    #: How often each Event that is brought up to date was told, by its name.
    times: dict[str, int] = msgspec.field(default_factory=dict)


def step_of(job: JobRecord) -> Step:
    """The decision that a job's stage stands for."""
    return (job.attempt, job.stage, job.decided.reason if job.decided is not None else _ACCEPTED)


class Reporter:
    """Records Events. `told` is kept by the caller, one for each job."""

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock

    async def report(self, job: JobRecord, status: Object, told: Told) -> None:
        """Tell a new stage, replaced workers, refused pods and a new kind of reason to wait, once that is stored."""
        step = step_of(job)
        if step != told.step:
            first = told.step is None
            told.step = step
            told.times.clear()
            if not taken_over(job):
                await self._tell_stage(job, status, first=first)
        if job.replacements > told.replacements:
            told.replacements = job.replacements
            await self._update(job, told, _WORKERS, reason="WorkersReplaced", message=job.replacement)
        refused = job.failure.message if job.failure is not None and not job.failure.permanent else ""
        if refused != told.refused:
            told.refused = refused
            if refused:
                await self._update(job, told, _REFUSED, reason="FailedCreate", message=refused)
        await self._tell_waiting(job, told)

    async def _tell_stage(self, job: JobRecord, status: Object, *, first: bool) -> None:
        if job.decided is None:
            await self._accepted(job, status["message"])
            return
        if first and job.stage == Stage.STARTING and job.attempt == 0:
            await self._accepted(job, "accepted")  # it had its nodes before there was a status
        message = f"{job.stage}: {job.decided.message}"
        kind = "Warning" if job.stage == Stage.FAILED else "Normal"
        name, since_ms = _name(job, job.stage.lower()), job.stage_since_ms
        await self._create(job, name, reason=job.decided.reason, message=message, kind=kind, told_ms=since_ms)

    async def _accepted(self, job: JobRecord, message: str) -> None:
        created_ms = job.seen.created_ms
        name = f"{job.seen.name}.{created_ms:011x}.0-pending.{job.uid[:8]}"
        await self._create(
            job, name, reason=_ACCEPTED, message=f"{Stage.PENDING}: {message}", kind="Normal", told_ms=created_ms
        )

    async def _tell_waiting(self, job: JobRecord, told: Told) -> None:
        if job.ended or job.waits is None or job.schedule_state == ScheduleState.SUCCEED:
            told.waiting = ()
            return
        kinds = (str(job.schedule_state), *kinds_of(job.waits.reasons))
        if kinds != told.waiting:
            told.waiting = kinds
            if not await self._update(job, told, _WAITING, reason="FailedScheduling", message=job.waits.message):
                told.waiting = ()

    async def _update(self, job: JobRecord, told: Told, about: str, *, reason: str, message: str) -> bool:
        """An Event that is told a first time, or once more with the present message. False if it couldn't be told."""
        name, now_ms = _name(job, about), self._clock.now_ms()
        times = told.times.get(name, 0)
        if not times and await self._create(job, name, reason=reason, message=message, kind="Warning", told_ms=now_ms):
            told.times[name] = 1
            return True
        told.times[name] = max(times, 1) + 1
        change = {"message": message[:_MESSAGE_LIMIT], "count": told.times[name], "lastTimestamp": rfc3339(now_ms)}
        try:
            await self._cluster.patch(EVENTS, job.seen.namespace, name, change)
        except ApiError as refused:
            if refused.code == 404:  # forgotten by the API server
                return await self._create(job, name, reason=reason, message=message, kind="Warning", told_ms=now_ms)
            self._complain(job, refused)
        except ClusterError as problem:
            self._complain(job, problem)
        return True

    async def _create(self, job: JobRecord, name: str, *, reason: str, message: str, kind: str, told_ms: int) -> bool:
        """Record an Event; False if there is one of that name already, or it can't be recorded."""
        seen, told = job.seen, rfc3339(told_ms)
        event: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name},
            "involvedObject": {
                "apiVersion": TYJOBS.api_version,
                "kind": TYJOBS.kind,
                "namespace": seen.namespace,
                "name": seen.name,
                "uid": job.uid,
            },
            "reason": reason,
            "message": message[:_MESSAGE_LIMIT],
            "type": kind,
            "source": {"component": "arranger"},
            "firstTimestamp": told,
            "lastTimestamp": told,
            "count": 1,
        }
        try:
            await self._cluster.create(EVENTS, seen.namespace, event)
        except ApiError as refused:
            if refused.code != 409:
                self._complain(job, refused)
            return False
        except ClusterError as problem:
            self._complain(job, problem)
            return False
        return True

    def _complain(self, job: JobRecord, problem: ClusterError) -> None:
        log_event(_log, "an Event isn't recorded", level=logging.WARNING, job=job.seen.name, problem=problem)


def _name(job: JobRecord, about: str) -> str:
    """The name of an Event of this stage; it sorts by time, and before what a later stage tells."""
    own = about == job.stage.lower()
    order = _ORDER.get(job.stage, _LAST) + (not own)
    return f"{job.seen.name}.{job.stage_since_ms:011x}.{order}-{about}.{job.uid[:8]}"


def taken_over(job: JobRecord) -> bool:
    """Whether the decision on its stage is of an earlier epoch, which has told it."""
    return job.adopted_at > 0 and job.decided is not None and job.decided.based_on == 0
