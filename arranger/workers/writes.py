"""Whether Redis accepts this process's writes: known from its latest appends and heartbeats.

A server that is full, or a replica, still serves reads. So a process that only checked its reads would report itself
ready while none of its decisions is recorded.
"""

import logging
import math

from arranger.clock import Clock
from arranger.errors import LogUnavailable, WritesRefused
from arranger.logs import log_event
from arranger.metrics import Metrics

_log = logging.getLogger(__name__)


#: The refusal of an append counts for this long at least, unless an append is accepted: longer than until it is tried
#: again. At its limit, a server accepts a small heartbeat now and then, but none of the larger appends.
_STANDS_S = 15.0


class Writes:
    """The result of this process's last writes to Redis."""

    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        self._metrics = metrics
        self._clock = clock
        #: The refusal of the last write; None if it was accepted.
        self.problem: WritesRefused | None = None
        #: When an append was last refused.
        self._append_refused_s = -math.inf

    def taken(self, *, heartbeat: bool = False) -> None:
        """A write was accepted."""
        if not heartbeat:
            self._append_refused_s = -math.inf
        elif self._clock.monotonic_s() - self._append_refused_s < _STANDS_S:
            return
        if self.problem is not None:
            log_event(_log, "Redis takes writes again")
        self._note(None)

    def failed(self, problem: LogUnavailable, *, heartbeat: bool = False) -> None:
        """A write failed. An unreachable server doesn't show whether it would accept writes, so only refusals count."""
        if isinstance(problem, WritesRefused):
            if not heartbeat:
                self._append_refused_s = self._clock.monotonic_s()
            if self.problem is None:
                log_event(_log, "Redis refuses writes", level=logging.WARNING, problem=problem)
            self._note(problem)

    def _note(self, problem: WritesRefused | None) -> None:
        self.problem = problem
        self._metrics.writes_refused.set(0 if problem is None else 1)
