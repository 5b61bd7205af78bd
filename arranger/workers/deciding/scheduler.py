"""The scheduler: one cycle over the warm projection, at each tick and right after a schedulable change.

A tick comes through rq once a period, and any scheduler process may get it. The one member that owns changes reacts to
them without rq (docs/decisions/0015), and the others leave out a tick that follows an accepted cycle within a period.
The cycle decides, and appends its decisions and its own record in one step. Two concurrent cycles do no harm: the log
accepts the first, and the other is superseded as a whole.
"""

import asyncio
import logging
import math

from arranger.errors import ClockOff, EpochLost, LogUnavailable
from arranger.logs import log_event
from arranger.projections.state import Changes
from arranger.scheduling import Cycles
from arranger.workers.parts import Parts

_log = logging.getLogger(__name__)

ROLE = "scheduler"
TICK = "cycle"
#: Changes this close together share one cycle, or as close as the last cycle took, up to a bound: with many waiting
#: jobs, all else that the process does would wait for cycles most of the time. The first after a silence has a cycle at
#: once.
_GATHER_S, _LONGEST_GATHER_S = 0.02, 0.1


class Scheduler:
    """Runs scheduling cycles: at ticks, and when the projection changed in a way that matters."""

    def __init__(self, parts: Parts) -> None:
        policies = parts.installed.policies
        self._follower = parts.follower
        self._writer = parts.writer(ROLE)
        self._membership = parts.membership
        self._config = parts.settings.cycle_config(policies.versions())
        self._period_s = parts.settings.cycle_period_s
        self._clock = parts.time
        self._metrics = parts.metrics
        self._cycles = Cycles(policies)
        self._woken = asyncio.Event()
        self._turn = asyncio.Lock()
        #: The version of the devices of which it was last known what selectors select.
        self._matched: object = None
        #: When the last accepted cycle of any member was folded, by this process's clock.
        self._accepted_s = -math.inf
        #: Whether a cycle is taken just now. Other threads look at it.
        self.in_cycle = False

    def changed(self, changes: Changes) -> None:
        """Wake up if a job may now find room."""
        self._cycles.note(changes.jobs)
        if any(verdict.kind == "CycleTaken" and verdict.accepted for verdict in changes.verdicts):
            self._accepted_s = self._clock.monotonic_s()
        if changes.schedulable:
            self._woken.set()

    def epoch_began(self) -> None:
        """The first cycle of an epoch follows its complete listing, which is a normal change."""

    async def run(self) -> None:
        """Run a cycle after every change that matters, if this member owns them, until cancelled.

        While members join and leave, two or none may react to a change; then the next tick covers it.
        """
        while True:
            await self._woken.wait()
            self._woken.clear()
            began_s = self._clock.monotonic_s()
            if self._membership.owns(TICK, ROLE):
                try:
                    await self.cycle()
                except Exception as problem:  # e.g. in a plugin's policy: the next change or tick tries again
                    log_event(_log, "a cycle failed", level=logging.ERROR, exc_info=problem)
            took_s = self._clock.monotonic_s() - began_s
            await self._clock.sleep(min(max(took_s, _GATHER_S), _LONGEST_GATHER_S))

    async def tick(self) -> None:
        """Run the periodic cycle. A member that doesn't own changes stands back if a cycle was accepted within the last
        period: that one covered every job, and two cycles at once place the same jobs twice."""
        stands_back = self._clock.monotonic_s() - self._accepted_s < self._period_s
        if not stands_back or self._membership.owns(TICK, ROLE):
            await self.cycle()

    async def cycle(self) -> None:
        """Run one cycle; a second one in this process waits for it. A wrong clock, or a log that is unavailable or has
        changed, voids the cycle; the next tick tries again."""
        async with self._turn:
            try:
                # A projection that was read a moment ago is as good as one that is read again: either is half a round
                # trip old when the cycle runs, and the log judges whether anything has changed since.
                if not self._follower.fresh() and not await self._follower.catch_up():
                    return
                await self._take()
            except (LogUnavailable, EpochLost, ClockOff) as problem:
                log_event(_log, "the cycle was dropped", level=logging.WARNING, why=problem)

    async def _match_devices(self) -> None:
        """Record what the selectors of devices select, as far as a cycle would miss it. Slices and claims that are
        observed meanwhile are looked at once more, and then before the next cycle."""
        if not self._follower.state.with_devices:
            return
        from arranger.workers.deciding.device_matcher import matches  # CEL is loaded by those who need it

        for _ in range(2):
            state = self._follower.state
            version = state.devices.version
            found = matches(state) if version is not self._matched else []
            if not found:
                self._matched = version
                return
            await self._writer.append_and_fold(found)

    async def _take(self) -> None:
        await self._match_devices()
        began_s = self._clock.monotonic_s()
        self.in_cycle = True
        try:
            events = self._cycles.take(self._follower.state, self._config, self._clock.now_ms())
        finally:
            self.in_cycle = False
        self._metrics.cycle_seconds.observe(self._clock.monotonic_s() - began_s)
        self._metrics.cycles.labels("taken" if events else "idle").inc()
        if events:
            appended = await self._writer.append_and_fold(events)
            if self._follower.state.last_cycle < appended.first:
                self._metrics.cycles.labels("superseded").inc()
