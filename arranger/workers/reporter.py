"""Kubernetes Events on TYJobs: the story that `kubectl describe tyj` tells.

One Event a stage, one for waiting that is brought up to date while the kinds of reasons change (other numbers alone are
no news here: the status has them), and one for all workers that are replaced in an attempt. Names are a function of
what an Event is about, so two appliers, or one that starts anew, add to the same Event instead of a second one. Events
are for people: a failure to record one is logged and never holds up anything else.
"""

import logging
from typing import Any

import msgspec

from arranger.clock import Clock
from arranger.errors import ClusterError
from arranger.kube.cluster import EVENTS, TYJOBS, ApiError, Cluster, Object
from arranger.lifecycle.wanted import rfc3339
from arranger.logs import log_event
from arranger.model.job import ScheduleState
from arranger.projections.jobs import JobRecord
from arranger.scheduling.cycle import kinds_of

_log = logging.getLogger(__name__)

#: Kubernetes refuses Events with longer messages.
_MESSAGE_LIMIT = 1000

#: What the Events that are brought up to date are about, as a part of their names.
_WAITING = "waiting"
_WORKERS = "workers"


class Told(msgspec.Struct):
    """What this process has told of one job."""

    stage: str = ""
    waiting: tuple[str, ...] = ()
    replacements: int = 0
    #: How often each Event that is brought up to date was told.
    times: dict[str, int] = msgspec.field(default_factory=dict)


class Reporter:
    """Records Events. `told` is kept by the caller, one for each job."""

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock

    async def report(self, job: JobRecord, status: Object, told: Told) -> None:
        """Tell a new stage, replaced workers and a new kind of reason for waiting, once the status is stored."""
        if status["stage"] != told.stage:
            told.stage = status["stage"]
            reason = job.decided.reason if job.decided is not None else "Accepted"
            message = f"{told.stage}: {status['message']}"
            kind = "Warning" if told.stage == "Failed" else "Normal"
            await self._create(job, told.stage.lower(), reason=reason, message=message, kind=kind)
        if job.replacements > told.replacements:
            told.replacements = job.replacements
            await self._update(job, told, _WORKERS, reason="WorkersReplaced", message=job.replacement)
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
        times = told.times.get(about, 0)
        if not times and await self._create(job, about, reason=reason, message=message, kind="Warning"):
            told.times[about] = 1
            return True
        told.times[about] = max(times, 1) + 1
        change = {"message": message[:_MESSAGE_LIMIT], "count": told.times[about], "lastTimestamp": self._now()}
        try:
            await self._cluster.patch(EVENTS, job.seen.namespace, _name(job, about), change)
        except ApiError as refused:
            if refused.code == 404:  # forgotten by the API server, or an Event of another attempt
                return await self._create(job, about, reason=reason, message=message, kind="Warning")
            self._complain(job, refused)
        except ClusterError as problem:
            self._complain(job, problem)
        return True

    async def _create(self, job: JobRecord, about: str, *, reason: str, message: str, kind: str) -> bool:
        """Record an Event; False if there is one of that name already, or it can't be recorded."""
        seen, now = job.seen, self._now()
        event: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": _name(job, about)},
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
            "firstTimestamp": now,
            "lastTimestamp": now,
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

    def _now(self) -> str:
        return rfc3339(self._clock.now_ms())

    def _complain(self, job: JobRecord, problem: ClusterError) -> None:
        log_event(_log, "an Event isn't recorded", level=logging.WARNING, job=job.seen.name, problem=problem)


def _name(job: JobRecord, about: str) -> str:
    return f"{job.seen.name}.{job.uid[:8]}.{job.attempt}.{about}"
