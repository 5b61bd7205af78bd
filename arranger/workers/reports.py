"""The Events of an applier, recorded one after the other beside its other effects.

Events are for people. They delay no pod and no status. A busy API server gets about one at a time from all appliers
together: after each, an applier rests for as long as the Event took, times the number of the other appliers.
"""

import asyncio
import logging
from collections.abc import Callable

from arranger.errors import ClockOff, ClusterError, EpochLost
from arranger.logs import log_event
from arranger.projections.jobs import JobRecord
from arranger.workers.effects import STALE_S, Effects
from arranger.workers.reporter import Reporter, Told, scaled_in, step_of

_log = logging.getLogger(__name__)

#: With more jobs than this to report, the oldest are dropped. Their next report, if there is one, makes up for it.
_MOST = 5000


class Reports:
    """Jobs whose Events are to be recorded, in the order in which they were reported first. `appliers` counts the
    processes that record Events, this one included."""

    def __init__(self, effects: Effects, appliers: Callable[[], int]) -> None:
        self._effects = effects
        self._appliers = appliers
        self._follower = effects.parts.follower
        self._clock = effects.parts.time
        self._dropped = effects.parts.metrics.reports_dropped
        self._reporter = Reporter(effects.cluster, self._clock)
        self._waiting: dict[str, tuple[JobRecord, Told]] = {}
        self._recording = ""
        self._woken = asyncio.Event()

    def report(self, job: JobRecord, told: Told) -> None:
        """Record the job's Events soon. `told` is what was recorded of it before; it is updated."""
        self._waiting[job.uid] = (job, told)
        if len(self._waiting) > _MOST:
            del self._waiting[next(iter(self._waiting))]
            self._dropped.inc()
        self._woken.set()

    def reported(self, job: JobRecord, told: Told) -> None:
        """The job's status is stored already. If nobody here reports it, another process did."""
        if told.step is None and job.uid != self._recording and job.uid not in self._waiting:
            told.step, told.scaled = step_of(job), scaled_in(job)

    def clear(self) -> None:
        """Forget every job."""
        self._waiting.clear()

    async def run(self) -> None:
        """Record Events until cancelled."""
        while True:
            while self._waiting and self._effects.allowed():
                self._recording = next(iter(self._waiting))
                began_s = self._clock.monotonic_s()
                await self._record(*self._waiting.pop(self._recording))
                self._recording = ""
                rest_s = (self._clock.monotonic_s() - began_s) * (self._appliers() - 1)
                if rest_s > 0:
                    await self._clock.sleep(rest_s)
            if self._waiting:
                await self._clock.sleep(STALE_S)
            else:
                self._woken.clear()
                await self._woken.wait()

    async def _record(self, job: JobRecord, told: Told) -> None:
        if self._follower.state.jobs.get(job.uid) is not job:
            return  # deleted, or of an epoch that has ended

        async def record() -> bool:
            await self._reporter.report(job, told)
            return True

        try:
            await self._effects.carry_out("event", record)
        except ClockOff:  # an Event has the time
            self._waiting.setdefault(job.uid, (job, told))
        except (ClusterError, EpochLost) as problem:
            log_event(_log, "an Event isn't recorded", level=logging.WARNING, job=job.seen.name, problem=problem)
        except Exception as problem:
            log_event(_log, "recording an Event failed", level=logging.ERROR, exc_info=problem, job=job.seen.name)
