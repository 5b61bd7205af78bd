"""The scheduler: one cycle over the warm projection at each tick.

A tick comes through rq, periodically and at once when something schedulable changed; any scheduler process may get
it. The cycle catches up with the log, decides, and appends its decisions and its own record in one step. Two cycles
at once do no harm: the log takes the first, and the other is superseded as a whole.
"""

import asyncio
import logging

from arranger.clock import Clock
from arranger.errors import EpochLost, LogUnavailable
from arranger.logs import log_event
from arranger.metrics import Metrics
from arranger.model.config import CycleConfig
from arranger.projections.state import Changes
from arranger.scheduling.cycle import Cycles
from arranger.scheduling.registry import BUILT_IN, Policies
from arranger.workers.follower import Follower, Writer
from arranger.workers.ticks import Ticker

_log = logging.getLogger(__name__)

TICK = "cycle"
#: Changes that come this close together share one cycle.
_GATHER_S = 0.02


class Scheduler:
    """Takes scheduling cycles, and asks for one when the projection changed in a way that matters."""

    def __init__(
        self,
        *,
        follower: Follower,
        writer: Writer,
        ticker: Ticker,
        config: CycleConfig,
        clock: Clock,
        metrics: Metrics,
        period_s: float,
        policies: Policies = BUILT_IN,
    ) -> None:
        self._follower = follower
        self._writer = writer
        self._ticker = ticker
        self._config = config
        self._clock = clock
        self._metrics = metrics
        self._period_s = period_s
        self._cycles = Cycles(policies)
        self._woken = asyncio.Event()

    def changed(self, changes: Changes) -> None:
        """Ask for a cycle if a job may now find a place."""
        if changes.schedulable:
            self._woken.set()

    def epoch_began(self) -> None:
        """The first cycle of an epoch comes when everything has been listed, which is a change like another."""

    async def run(self) -> None:
        """Ask for cycles until cancelled: at every change that matters, and every period."""
        while True:
            try:
                async with asyncio.timeout(self._period_s):
                    await self._woken.wait()
                await self._clock.sleep(_GATHER_S)
            except TimeoutError:
                pass
            self._woken.clear()
            await self._ticker.push(TICK)

    async def cycle(self) -> None:
        """One cycle. A log that is away or has changed makes it void; the next tick tries again."""
        try:
            if not await self._follower.catch_up():
                return
            began_s = self._clock.monotonic_s()
            events = self._cycles.take(self._follower.state, self._config, self._clock.now_ms())
            self._metrics.cycle_seconds.observe(self._clock.monotonic_s() - began_s)
            self._metrics.cycles.labels("taken" if events else "idle").inc()
            if events:
                appended = await self._writer.append_and_fold(events)
                if self._follower.state.last_cycle < appended.first:
                    self._metrics.cycles.labels("superseded").inc()
        except (LogUnavailable, EpochLost) as problem:
            log_event(_log, "the cycle was dropped", level=logging.WARNING, why=problem)
