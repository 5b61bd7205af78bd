"""The scheduler: one cycle over the warm projection, at each tick and at once when something schedulable changed.

A tick comes through rq once a period, and any scheduler process may get it. A change is answered by the one member that
owns it, without rq (docs/decisions/0015). The cycle decides, and appends its decisions and its own record in one step.
Two cycles at once do no harm: the log takes the first, and the other is superseded as a whole.
"""

import asyncio
import logging

from arranger.errors import ClockOff, EpochLost, LogUnavailable
from arranger.logs import log_event
from arranger.projections.state import Changes
from arranger.scheduling import Cycles
from arranger.workers.parts import Parts

_log = logging.getLogger(__name__)

ROLE = "scheduler"
TICK = "cycle"
#: Changes that come this close together share one cycle.
_GATHER_S = 0.02


class Scheduler:
    """Takes scheduling cycles: at ticks, and when the projection changed in a way that matters."""

    def __init__(self, parts: Parts) -> None:
        policies = parts.installed.policies
        self._follower = parts.follower
        self._writer = parts.writer(ROLE)
        self._membership = parts.membership
        self._config = parts.settings.cycle_config(policies.versions())
        self._clock = parts.time
        self._metrics = parts.metrics
        self._cycles = Cycles(policies)
        self._woken = asyncio.Event()
        self._turn = asyncio.Lock()

    def changed(self, changes: Changes) -> None:
        """Wake up if a job may now find a place."""
        if changes.schedulable:
            self._woken.set()

    def epoch_began(self) -> None:
        """The first cycle of an epoch comes when everything has been listed, which is a change like another."""

    async def run(self) -> None:
        """Take a cycle at every change that matters, if this member owns them, until cancelled.

        While members come and go, two or none may take a change for theirs: the next tick answers it then.
        """
        while True:
            await self._woken.wait()
            await self._clock.sleep(_GATHER_S)
            self._woken.clear()
            if self._membership.owns(TICK, ROLE):
                try:
                    await self.cycle()
                except Exception as problem:  # a policy of another package, say: the next change or tick tries again
                    log_event(_log, "a cycle failed", level=logging.ERROR, exc_info=problem)

    async def cycle(self) -> None:
        """One cycle; a second one in this process waits for it. A log that is away or has changed makes it void, and so
        does a wrong clock; the next tick tries again."""
        async with self._turn:
            try:
                # A projection that was read a moment ago is as good as one that asked again: either is half a round
                # trip old when the cycle is taken, and the log judges what has changed since.
                if not self._follower.fresh() and not await self._follower.catch_up():
                    return
                await self._take()
            except (LogUnavailable, EpochLost, ClockOff) as problem:
                log_event(_log, "the cycle was dropped", level=logging.WARNING, why=problem)

    async def _take(self) -> None:
        began_s = self._clock.monotonic_s()
        events = self._cycles.take(self._follower.state, self._config, self._clock.now_ms())
        self._metrics.cycle_seconds.observe(self._clock.monotonic_s() - began_s)
        self._metrics.cycles.labels("taken" if events else "idle").inc()
        if events:
            appended = await self._writer.append_and_fold(events)
            if self._follower.state.last_cycle < appended.first:
                self._metrics.cycles.labels("superseded").inc()
