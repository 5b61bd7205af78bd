"""The controller: runs the life cycle of its share of the jobs and appends the decisions.

A job is looked at when the fold touched it, when a decision falls due by time alone, and in each sweep. Two controllers
that both work on one job do no harm: the log accepts the first decision.
"""

import logging
from contextlib import suppress

from arranger.errors import ClockOff, EpochLost
from arranger.events.kinds import Event
from arranger.lifecycle.due import due_ms
from arranger.lifecycle.images import ImageWaits
from arranger.lifecycle.stages import next_decision
from arranger.logs import log_event
from arranger.projections.state import Changes
from arranger.projections.verdicts.ownership import namespace_of
from arranger.workers.flow.work_queue import KeyQueue
from arranger.workers.parts import Parts

_log = logging.getLogger(__name__)

ROLE = "controller"
#: The minimum time before a job is looked at again.
_LEAST_REST_S = 0.05
#: A look at a job takes up to a microsecond per pod. After one that led to no decision, the controller leaves the job
#: alone for this long per pod, so that a job of 10,000 pods that are created costs it a few percent of a processor.
_REST_A_POD_S = 20e-6
#: A shorter pause isn't worth a timer.
_SHORTEST_REST_S = 0.002
#: After this many looks, their decisions are appended, and other tasks run.
_AT_ONCE = 500


class Controller:
    """Decides the stages of this member's share of the jobs."""

    def __init__(self, parts: Parts) -> None:
        self._follower = parts.follower
        self._writer = parts.writer(ROLE)
        self._membership = parts.membership
        self._config = parts.settings.lifecycle_config()
        self._clock = parts.time
        self._images = ImageWaits()
        #: Large job → until when it is left alone, in `monotonic_s`.
        self._rests_until_s: dict[str, float] = {}
        self._queue = KeyQueue(
            parts.time,
            lambda: parts.follower.state.jobs,
            namespace_of=lambda uid: namespace_of(parts.follower.state, uid),
            passed=parts.metrics.look_seconds.labels(ROLE).inc,
        )

    def changed(self, changes: Changes) -> None:
        self._queue.touch(changes.jobs)

    def epoch_began(self) -> None:
        """Discard keys from the earlier projection; the next sweep covers all jobs."""
        self._queue.clear()
        self._images.clear()
        self._rests_until_s.clear()

    async def run(self) -> None:
        self._queue.sweep()
        while True:
            decisions = self._decisions()
            if decisions:
                try:
                    await self._writer.append_and_fold(decisions)
                except (EpochLost, ClockOff) as problem:
                    log_event(_log, "decisions dropped", level=logging.WARNING, decisions=len(decisions), why=problem)
            elif decisions is None and self._queue.pending:
                await self._clock.sleep(_LEAST_REST_S)
            else:
                await self._queue.wait()

    def _decisions(self) -> list[Event] | None:
        """The next decisions; None before every kind was listed, and while the clock is wrong."""
        with suppress(ClockOff):
            return self.decide() if self._follower.state.synced else None
        return None

    def decide(self) -> list[Event]:
        """Take some of the touched jobs, and return the next decisions on those of this member.

        Raises `ClockOff` before any job is taken.
        """
        now_ms = self._clock.now_ms()
        decisions: list[Event] = []
        for uid in self._queue.take(_AT_ONCE):
            decision = self._look(uid, now_ms)
            if decision is not None:
                decisions.append(decision)
        return decisions

    def _look(self, uid: str, now_ms: int) -> Event | None:
        """The next decision on a job that was taken, None if there is none now or the job rests."""
        state, now_s, rests_until_s = self._follower.state, self._clock.monotonic_s(), self._rests_until_s.pop(uid, 0.0)
        job = state.jobs.get(uid)
        if job is None or not self._membership.owns(uid, ROLE):
            self._images.forget(uid)
            return None
        if now_s < rests_until_s:
            self._rests_until_s[uid] = rests_until_s
            self._queue.look_again(uid, rests_until_s - now_s)
            return None
        no_image_ms = self._images.since_ms(state, job, now_ms)
        decision = next_decision(state, job, self._config, now_ms, no_image_ms=no_image_ms)
        if decision is not None:
            return decision
        rest_s = len(job.placements) * _REST_A_POD_S
        if rest_s > _SHORTEST_REST_S:
            self._rests_until_s[uid] = now_s + rest_s
        falls_due_ms = due_ms(state, job, self._config, now_ms)
        if falls_due_ms is not None:
            self._queue.look_again(uid, max((falls_due_ms - now_ms) / 1000, _LEAST_REST_S))
        return None
