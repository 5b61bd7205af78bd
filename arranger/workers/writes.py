"""Whether Redis takes what this process writes: known from its appends and its heartbeats, whichever came last.

A server that is full, or a replica, goes on answering whoever reads. So a process that only looked at what it reads
would call itself ready while nothing that it decides arrives anywhere.
"""

import logging

from arranger.errors import LogUnavailable, WritesRefused
from arranger.logs import log_event
from arranger.metrics import Metrics

_log = logging.getLogger(__name__)


class Writes:
    """What Redis last said to a write of this process."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        #: How the last write was refused; None if it wasn't.
        self.problem: WritesRefused | None = None

    def taken(self) -> None:
        if self.problem is not None:
            log_event(_log, "Redis takes writes again")
        self._note(None)

    def failed(self, problem: LogUnavailable) -> None:
        """A write didn't get through. A server that didn't answer says nothing of what it would have said."""
        if isinstance(problem, WritesRefused):
            if self.problem is None:
                log_event(_log, "Redis refuses writes", level=logging.WARNING, problem=problem)
            self._note(problem)

    def _note(self, problem: WritesRefused | None) -> None:
        self.problem = problem
        self._metrics.writes_refused.set(0 if problem is None else 1)
