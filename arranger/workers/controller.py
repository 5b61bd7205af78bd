"""The controller: runs the life cycle of its share of the jobs and appends the decisions.

A job is looked at when the fold touched it, and all of them once in a while, because shares change hands and some
decisions fall due by time alone. Two controllers that both think a job theirs do no harm: the log takes the first.
"""

import asyncio
import logging
import math
from contextlib import suppress

from arranger.clock import Clock
from arranger.errors import ClockOff, EpochLost
from arranger.events.kinds import Event
from arranger.lifecycle.config import LifecycleConfig
from arranger.lifecycle.due import due_ms
from arranger.lifecycle.images import ImageWaits
from arranger.lifecycle.stages import next_decision
from arranger.logs import log_event
from arranger.projections.state import Changes
from arranger.workers.follower import Follower, Writer
from arranger.workers.membership import Membership

_log = logging.getLogger(__name__)

ROLE = "controller"
#: All jobs are looked at this often.
_SWEEP_S = 5.0
#: What falls due is looked at this much later, at least.
_LEAST_REST_S = 0.05
#: Decisions appended at once.
_AT_ONCE = 500


class Controller:
    """Decides the stages of the jobs that are this member's share."""

    def __init__(
        self, *, follower: Follower, writer: Writer, membership: Membership, config: LifecycleConfig, clock: Clock
    ) -> None:
        self._follower = follower
        self._writer = writer
        self._membership = membership
        self._config = config
        self._clock = clock
        self._images = ImageWaits()
        self._touched: dict[str, None] = {}
        #: Job → when a decision on it falls due by time alone, as far as that is known, in `monotonic_s`.
        self._due: dict[str, float] = {}
        self._woken = asyncio.Event()

    def changed(self, changes: Changes) -> None:
        """Look at what was touched."""
        self._touched.update(changes.jobs)
        if changes.jobs:
            self._woken.set()

    def epoch_began(self) -> None:
        """What was touched in another projection says nothing about this one; the next sweep sees all."""
        self._touched.clear()
        self._due.clear()
        self._images.clear()

    async def run(self) -> None:
        """Decide until cancelled."""
        swept_s = 0.0
        while True:
            now_s = self._clock.monotonic_s()
            if now_s - swept_s >= _SWEEP_S:
                self._touched.update(dict.fromkeys(self._follower.state.jobs))
                swept_s = now_s
            self._touch_due()
            decisions = self._decisions()
            if decisions:
                try:
                    await self._writer.append_and_fold(decisions)
                except (EpochLost, ClockOff) as problem:
                    log_event(_log, "decisions dropped", level=logging.WARNING, decisions=len(decisions), why=problem)
            elif not self._touched:
                self._woken.clear()
                try:
                    async with asyncio.timeout(self._rest_s()):
                        await self._woken.wait()
                except TimeoutError:
                    pass
            else:
                await self._clock.sleep(0.05)  # not synced yet, or by a wrong clock

    def _decisions(self) -> list[Event]:
        """None before everything has been listed, and none by a wrong clock."""
        with suppress(ClockOff):
            return self.decide() if self._follower.state.synced else []
        return []

    def _touch_due(self) -> None:
        now_s = self._clock.monotonic_s()
        for uid in [uid for uid, due_s in self._due.items() if due_s <= now_s]:
            del self._due[uid]
            self._touched[uid] = None

    def _rest_s(self) -> float:
        """Until the next sweep, or until something falls due."""
        rest_s = min(self._due.values(), default=math.inf) - self._clock.monotonic_s()
        return min(max(rest_s, _LEAST_REST_S), _SWEEP_S)

    def decide(self) -> list[Event]:
        """The next decisions on the touched jobs of this member, and none of them is touched any more.

        Raises `ClockOff`, with nothing decided.
        """
        state = self._follower.state
        now_ms = self._clock.now_ms()
        decisions: list[Event] = []
        while self._touched and len(decisions) < _AT_ONCE:
            uid = next(iter(self._touched))
            del self._touched[uid]
            job = state.jobs.get(uid)
            self._due.pop(uid, None)
            if job is None or not self._membership.owns(uid, ROLE):
                self._images.forget(uid)
                continue
            no_image_ms = self._images.since_ms(state, job, now_ms)
            decision = next_decision(state, job, self._config, now_ms, no_image_ms=no_image_ms)
            falls_due_ms = due_ms(job, self._config, now_ms)
            if decision is not None:
                decisions.append(decision)
            elif falls_due_ms is not None:
                self._due[uid] = self._clock.monotonic_s() + (falls_due_ms - now_ms) / 1000
        return decisions
