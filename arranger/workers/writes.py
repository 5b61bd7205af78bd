"""Whether Redis accepts this process's writes: known from its latest append or heartbeat.

A server that is full, or a replica, still serves reads. So a process that only checked its reads would report itself
ready while none of its decisions is recorded.
"""

import logging

from arranger.errors import LogUnavailable, WritesRefused
from arranger.logs import log_event
from arranger.metrics import Metrics

_log = logging.getLogger(__name__)


class Writes:
    """The result of this process's last write to Redis."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        #: The refusal of the last write; None if it was accepted.
        self.problem: WritesRefused | None = None

    def taken(self) -> None:
        if self.problem is not None:
            log_event(_log, "Redis takes writes again")
        self._note(None)

    def failed(self, problem: LogUnavailable) -> None:
        """A write failed. An unreachable server doesn't show whether it would accept writes, so only refusals count."""
        if isinstance(problem, WritesRefused):
            if self.problem is None:
                log_event(_log, "Redis refuses writes", level=logging.WARNING, problem=problem)
            self._note(problem)

    def _note(self, problem: WritesRefused | None) -> None:
        self.problem = problem
        self._metrics.writes_refused.set(0 if problem is None else 1)
