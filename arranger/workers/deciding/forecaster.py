"""Forecasts of when waiting jobs start, made now and then and put into the log.

A tick comes through rq, and any scheduler process may get it. The forecast runs in a side thread on a copy of the
projection, beside the cycles and never in their way, for a limited time. It is recorded only where it differs
from the last one by more than a little (`says_more`). The log judges it: a job that has nodes by then, or that was
edited, has none.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from arranger.errors import ClockOff, EpochLost, LogUnavailable
from arranger.events.kinds import StartForecast
from arranger.logs import log_event
from arranger.model.steps import Steps
from arranger.projections.folding.forecasts import promises_start, says_more
from arranger.projections.state import State
from arranger.replay.forecast.starts import Forecast, forecast
from arranger.replay.what_if.hypothesis import copy_bit_by_bit
from arranger.workers.parts import Parts

_log = logging.getLogger(__name__)

TICK = "forecast"
ROLE = "forecaster"
#: After so many seconds a forecast ends with what it has found.
_LIMIT_S = 10.0


class Forecaster:
    """Makes forecasts at ticks, one at a time."""

    def __init__(self, parts: Parts) -> None:
        self._policies = parts.installed.policies
        self._config = parts.settings.cycle_config(self._policies.versions())
        self._jobs_at_most = parts.settings.forecast_jobs
        self._follower = parts.follower
        self._writer = parts.writer(ROLE)
        self._clock = parts.time
        self._due = asyncio.Event()

    async def tick(self) -> None:
        """Let a forecast begin. It goes on after the tick's end, because a tick delays those behind it."""
        self._due.set()

    async def run(self) -> None:
        """Make forecasts when they are due, until cancelled."""
        while True:
            await self._due.wait()
            self._due.clear()
            try:
                await self.make()
            except (LogUnavailable, EpochLost, ClockOff) as problem:
                log_event(_log, "the forecast was dropped", level=logging.WARNING, why=problem)
            except Exception as problem:  # e.g. in a plugin's policy: the next tick tries again
                log_event(_log, "a forecast failed", level=logging.ERROR, exc_info=problem)

    async def make(self) -> None:
        """Make one forecast and record what it says that the last one doesn't."""
        if not self._follower.fresh() and not await self._follower.catch_up():
            return
        copied, now_ms = await self._copy(), self._clock.now_ms()
        until_s = self._clock.monotonic_s() + _LIMIT_S
        found = await asyncio.to_thread(
            partial(self._forecast, copied, now_ms, lambda: self._clock.monotonic_s() > until_s)
        )
        if copied.epoch != self._follower.state.epoch:
            return  # the log was lost meanwhile, and versions of jobs have other meanings now
        if events := news(copied, found):
            await self._writer.append_and_fold(events)

    async def _copy(self) -> State:
        """A copy of the projection. It takes tenths of a second for 100,000 pods, so the other tasks of the process run
        in between; only the fold waits."""
        async with self._follower.still:
            copying = Steps(copy_bit_by_bit(self._follower.state))
            for _ in copying:
                await asyncio.sleep(0)
            return copying.result

    def _forecast(self, state: State, time_ms: int, enough: Callable[[], bool]) -> Forecast:
        return forecast(state, self._config, time_ms, first=self._jobs_at_most, policies=self._policies, enough=enough)


def news(state: State, found: Forecast) -> list[StartForecast]:
    """The events of a forecast of this state: for each job without nodes whose start isn't promised, if the forecast
    says more than the last one."""
    events = []
    for one in found.jobs:
        job = state.jobs[one.uid]
        if job.placements or promises_start(state, job):
            continue
        event = StartForecast(one.uid, job.version, one.expected_ms, one.earliest_ms, one.latest_ms, one.guess)
        if says_more(state.forecasts.get(one.uid), event, found.time_ms):
            events.append(event)
    return events
