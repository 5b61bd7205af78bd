"""Kubernetes Events on TYJobs: the story that `kubectl describe tyj` tells.

One Event a stage, and one for waiting that is brought up to date while the kinds of reasons change; other numbers
alone are no news here (the status has them). Names are a function of what an Event is about, so two appliers, or one
that starts anew, add to the same Event instead of a second one. Events are for people: a failure to record one is
logged and never holds up anything else.
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


class Told(msgspec.Struct):
    """What this process has told of one job."""

    stage: str = ""
    waiting: tuple[str, ...] = ()
    times: int = 0


class Reporter:
    """Records Events. `told` is kept by the caller, one for each job."""

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock

    async def report(self, job: JobRecord, status: Object, told: Told) -> None:
        """Tell a new stage, and a new kind of reason for waiting, once they are in the stored status."""
        if status["stage"] != told.stage:
            told.stage = status["stage"]
            reason = job.decided.reason if job.decided is not None else "Accepted"
            message = f"{told.stage}: {status['message']}"
            kind = "Warning" if told.stage == "Failed" else "Normal"
            await self._create(job, told.stage.lower(), reason=reason, message=message, kind=kind)
        if job.ended or job.waits is None or job.schedule_state == ScheduleState.SUCCEED:
            told.waiting = ()
            return
        kinds = (str(job.schedule_state), *kinds_of(job.waits.reasons))
        if kinds != told.waiting:
            told.waiting = kinds
            await self._tell_waiting(job, told)

    async def _tell_waiting(self, job: JobRecord, told: Told) -> None:
        """The one Event about waiting: a first time, or once more with the present reason."""
        assert job.waits is not None
        message = job.waits.message
        if not told.times and await self._create(
            job, "waiting", reason="FailedScheduling", message=message, kind="Warning"
        ):
            told.times = 1
            return
        told.times = max(told.times, 1) + 1
        change = {"message": message[:_MESSAGE_LIMIT], "count": told.times, "lastTimestamp": self._now()}
        try:
            await self._cluster.patch(EVENTS, job.seen.namespace, _name(job, "waiting"), change)
        except ApiError as refused:
            if refused.code != 404:
                self._complain(job, refused)
            elif not await self._create(job, "waiting", reason="FailedScheduling", message=message, kind="Warning"):
                told.waiting = ()
        except ClusterError as problem:
            self._complain(job, problem)

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
