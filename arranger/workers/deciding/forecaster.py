"""Forecasts of when waiting jobs start, made now and then and put into the log.

A tick comes through rq, and any scheduler process may get it. The forecast runs in a side thread on a copy of the
projection, beside the cycles and not in their way: where there are several schedulers, not in the one that reacts to
changes, which passes the tick on, and it stands still while a cycle is taken. It ends after a limited time, and the
next one waits so long that forecasts take a small part of a processor. None is made while nobody waits, or if it would
say what the last one said. It is recorded only where it differs from the last one by more than a little (`to_record`).
The log judges it: a job that has nodes by then, or that was edited, has none.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from arranger.errors import ClockOff, EpochLost, LogUnavailable
from arranger.events.kinds import StartForecast
from arranger.logs import log_event
from arranger.model.steps import Steps
from arranger.projections.folding.forecasts import to_record
from arranger.projections.state import State
from arranger.replay.forecast.starts import Forecast, forecast, waits_to_start
from arranger.replay.what_if.hypothesis import copy_bit_by_bit
from arranger.workers.deciding import scheduler
from arranger.workers.parts import Parts

_log = logging.getLogger(__name__)

TICK = "forecast"
ROLE = "forecaster"
#: After so many seconds a forecast ends with what it has found.
_LIMIT_S = 10.0
#: For so many times the processor time that a forecast took, its process makes none: less than a twentieth of one
#: processor goes into forecasts.
_RESTS = 20
_END = object()
#: How long a forecast stands still at once while a cycle is taken, in seconds.
_ASIDE_S = 0.005
#: The part of the period within which a process passes only one tick on: all schedulers push ticks, and while no other
#: process takes any, the same one comes back at once. Less than the whole, because ticks don't come evenly.
_PASSES_ON = 0.9


def processor_s() -> float:
    """The processor time of this thread, in seconds."""
    return time.thread_time()


class Forecaster:
    """Makes forecasts at ticks, one at a time."""

    def __init__(self, parts: Parts, *, in_cycle: Callable[[], bool] = lambda: False) -> None:
        """`in_cycle`: whether this process takes a cycle just now, which no forecast is to slow down."""
        self._policies = parts.installed.policies
        self._config = parts.settings.cycle_config(self._policies.versions())
        self._jobs_at_most = parts.settings.forecast_jobs
        self._follower = parts.follower
        self._membership = parts.membership
        self._writer = parts.writer(ROLE)
        self._clock = parts.time
        self._in_cycle = in_cycle
        self._ticker, self._period_s = parts.ticker, parts.settings.forecast_every_s
        #: Until when no further tick is passed on.
        self._passed_until_s = -math.inf
        self._due = asyncio.Event()
        #: The processor time that the present forecast has taken, and until when there is no next one.
        self._spent_s, self._rests_until_s = 0.0, -math.inf
        #: What the last forecast was made of, and the first start in it: from then on it needs another one.
        self._made_of: tuple[int, ...] = ()
        self._first_ms = math.inf

    async def tick(self) -> None:
        """Let a forecast begin, or pass the tick on if others are to make it: each waits for one longer than this
        process does by now. The forecast goes on after the tick's end, because a tick delays those behind it."""
        schedulers = [member for member in self._membership.seen(scheduler.ROLE) if not member.aside]
        if len(schedulers) < 2 or not self._membership.owns(scheduler.TICK, scheduler.ROLE):
            self._due.set()
            return
        now_s = self._clock.monotonic_s()
        if now_s >= self._passed_until_s:
            self._passed_until_s = now_s + _PASSES_ON * self._period_s
            await self._ticker.push(TICK)

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
        """Make one forecast and record what it says that the last one doesn't; none so soon after the last one, or if
        it would say the same."""
        if self._clock.monotonic_s() < self._rests_until_s:
            return
        if not self._follower.fresh() and not await self._follower.catch_up():
            return
        made_of = _inputs(self._follower.state)
        if not self._says_anything_new(made_of):
            return
        self._spent_s = 0.0
        try:
            await self._make(made_of)
        finally:
            self._rests_until_s = self._clock.monotonic_s() + _RESTS * self._spent_s

    def _says_anything_new(self, made_of: tuple[int, ...]) -> bool:
        """Whether anybody waits, and anything has changed since the last forecast, or what it said didn't come."""
        if not any(waits_to_start(job) for job in self._follower.state.jobs.values()):
            return False
        return made_of != self._made_of or self._clock.now_ms() >= self._first_ms

    async def _make(self, made_of: tuple[int, ...]) -> None:
        copied, now_ms = await self._copy(), self._clock.now_ms()
        found = await asyncio.to_thread(partial(self._forecast, copied, now_ms))
        if copied.epoch != self._follower.state.epoch:
            return  # the log was lost meanwhile, and versions of jobs have other meanings now
        if events := news(copied, found):
            await self._writer.append_and_fold(events)
        self._made_of = made_of  # not before it is in the log: otherwise nobody would make a dropped one again
        self._first_ms = min((one.expected_ms for one in found.jobs if one.expected_ms), default=math.inf)

    async def _copy(self) -> State:
        """A copy of the projection. It takes tenths of a second for 100,000 pods, so the other tasks of the process run
        in between; only the fold waits."""
        async with self._follower.still:
            copying = Steps(copy_bit_by_bit(self._follower.state))
            steps, goes_on = iter(copying), True
            while goes_on:
                with self._spending():
                    goes_on = next(steps, _END) is not _END
                await asyncio.sleep(0)
            return copying.result

    @contextmanager
    def _spending(self) -> Iterator[None]:
        """Count the processor time of this thread, also of work that fails: it would be tried again at each tick."""
        began_s = processor_s()
        try:
            yield
        finally:
            self._spent_s += processor_s() - began_s

    def _forecast(self, state: State, time_ms: int) -> Forecast:
        """In the side thread."""
        until_s = self._clock.monotonic_s() + _LIMIT_S

        def enough() -> bool:
            while self._in_cycle() and self._clock.monotonic_s() < until_s:
                time.sleep(_ASIDE_S)
            return self._clock.monotonic_s() > until_s

        first, policies = self._jobs_at_most, self._policies
        with self._spending():
            return forecast(state, self._config, time_ms, first=first, policies=policies, enough=enough)


def _inputs(state: State) -> tuple[int, ...]:
    """What changes with whatever a forecast depends on, time apart. Each decision that counts is a change for cycles,
    also one on a stage, with which the end that is expected of a job begins or ceases to be known."""
    return state.epoch, state.nodes.changes, state.scheduling_changes


def news(state: State, found: Forecast) -> list[StartForecast]:
    """The events of a forecast of this state: for each job without nodes, if the log is to hold more than it has."""
    events = (
        StartForecast(
            one.uid, state.jobs[one.uid].version, one.expected_ms, one.earliest_ms, one.latest_ms, one.guess
        )
        for one in found.jobs
    )  # fmt: skip
    recorded = (to_record(state, event, found.time_ms) for event in events)
    return [event for event in recorded if event is not None]
