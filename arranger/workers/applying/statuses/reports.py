"""The Events of an applier, recorded one after the other beside its other effects. Namespaces get turns, and in each
the jobs that only wait get turns of their own.

Events are for people. They delay no pod and no status. A busy API server gets about one at a time from all appliers
together: after each, an applier rests for as long as the Event took, times the number of the other appliers. Those of a
namespace with many are further apart: the Events of a storm would cost as much as its TYJobs.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Hashable

from arranger.errors import ClockOff, ClusterError, EpochLost
from arranger.logs import log_event
from arranger.projections.jobs.records import JobRecord
from arranger.workers.applying.effects.carrying_out import STALE_S, Effects
from arranger.workers.applying.effects.progress import ToldEvents
from arranger.workers.applying.statuses.reporter import Reporter, scaled_in, step_of
from arranger.workers.flow.pacing import Pace, only_waits
from arranger.workers.flow.turns import Turns

_log = logging.getLogger(__name__)

#: A namespace, and whether its jobs only wait.
_Lane = tuple[str, bool]

#: With more jobs than this to report, the oldest of the lane with most of them is dropped. Its next report, if
#: there is one, makes up for it.
_MOST = 5000
#: After so many at once, a namespace's jobs are reported this many times as far apart as the last report took; those
#: that only wait, which may be thousands, at least so many seconds apart.
_AT_ONCE, _TIMES_AS_LONG, _WAITING_S = 20, 16.0, 0.2
#: A shorter pause isn't worth a timer.
_LEAST_S = 0.002


class Reports:
    """Jobs whose Events are to be recorded, those of a namespace in the order in which they were reported first.
    `appliers` counts the processes that record Events, this one included."""

    def __init__(self, effects: Effects, appliers: Callable[[], int]) -> None:
        self._effects = effects
        self._appliers = appliers
        self._follower = effects.parts.follower
        self._clock = effects.parts.time
        self._dropped = effects.parts.metrics.reports_dropped
        self._reporter = Reporter(effects.cluster, self._clock)
        self._waiting: Turns[str, tuple[JobRecord, ToldEvents, _Lane]] = Turns()
        self._pace, self._waiting_pace = Pace(at_once=_AT_ONCE), Pace(at_once=_AT_ONCE)
        #: When the next of these jobs may be reported.
        self._turn_s: dict[Hashable, float] = {}
        self._recording = ""
        self._woken = asyncio.Event()

    def report(self, job: JobRecord, told: ToldEvents) -> None:
        """Record the job's Events soon. `told` is what was recorded of it before; it is updated."""
        lane = (job.seen.namespace, only_waits(job))
        self._waiting.put(lane, job.uid, (job, told, lane))
        if len(self._waiting) > _MOST:
            self._waiting.drop(self._waiting.oldest_of_longest())
            self._dropped.inc()
        self._woken.set()

    def reported(self, job: JobRecord, told: ToldEvents) -> None:
        """The job's status is stored already. If nobody here reports it, another process did."""
        if told.step is None and job.uid != self._recording and job.uid not in self._waiting:
            told.step, told.scaled = step_of(job), scaled_in(job)
        if told.hanging != told.hung:  # that comes with time alone
            self.report(job, told)

    def clear(self) -> None:
        """Forget every job."""
        self._waiting.clear()

    async def run(self) -> None:
        """Record Events until cancelled."""
        while True:
            while self._effects.allowed() and (taken := self._waiting.take(self._has_turn)) is not None:
                self._recording, (job, told, lane) = taken
                began_s, writes = self._clock.monotonic_s(), self._reporter.writes
                await self._record(job, told)
                self._recording = ""
                if self._reporter.writes != writes:
                    await self._rest(lane, self._clock.monotonic_s() - began_s)
            self._turn_s = {of: turn_s for of, turn_s in self._turn_s.items() if not self._has_turn(of)}
            if self._waiting:
                next_s = min(self._turn_s.values(), default=math.inf) - self._clock.monotonic_s()
                await self._clock.sleep(min(max(next_s, _LEAST_S), STALE_S))
            else:
                self._woken.clear()
                await self._woken.wait()

    async def _rest(self, lane: _Lane, took_s: float) -> None:
        """Say when the lane has its next turn, and leave that much time to other appliers."""
        now_s, apart_s = self._clock.monotonic_s(), took_s * _TIMES_AS_LONG
        if lane[1]:
            self._turn_s[lane] = self._waiting_pace.next_s(lane, now_s, max(apart_s, _WAITING_S))
        else:
            self._turn_s[lane] = self._pace.next_s(lane, now_s, apart_s)
        rest_s = took_s * (self._appliers() - 1)
        if rest_s > 0:
            await self._clock.sleep(rest_s)

    def _has_turn(self, lane: Hashable) -> bool:
        return self._turn_s.get(lane, -math.inf) <= self._clock.monotonic_s()

    async def _record(self, job: JobRecord, told: ToldEvents) -> None:
        if self._follower.state.jobs.get(job.uid) is not job:
            return  # deleted, or of an epoch that has ended

        async def record() -> bool:
            await self._reporter.report(job, told)
            return True

        try:
            await self._effects.carry_out("event", job.seen.namespace, record)
        except ClockOff:  # an Event has the time
            if job.uid not in self._waiting:
                self.report(job, told)
        except (ClusterError, EpochLost) as problem:
            log_event(_log, "an Event isn't recorded", level=logging.WARNING, job=job.seen.name, problem=problem)
        except Exception as problem:
            log_event(_log, "recording an Event failed", level=logging.ERROR, exc_info=problem, job=job.seen.name)
