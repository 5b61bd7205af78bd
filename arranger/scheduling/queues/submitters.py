"""What the submitters of queues with `userFairness` use, and who of two of a queue comes first.

In such a queue, each submitter's jobs are like a queue of their own, a line, all with equal weights. What is kept for
the first of the waiting jobs, room or a limit, would undo that: jobs of one submitter would follow each other there. So
it isn't kept from a job whose submitter uses no more with it than the other one uses already, by their dominant shares.
"""

from collections.abc import Collection, Mapping

from arranger.projections.derived.queue_counts import queue_of, sum_of
from arranger.projections.derived.queue_membership import submitter_of
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import State
from arranger.scheduling.queues.dominant_shares import share_of
from arranger.scheduling.queues.fair_shares import ByResource
from arranger.scheduling.queues.offer import offered


class SubmitterLines:
    """The lines of the queues with `userFairness`."""

    def __init__(self, state: State) -> None:
        self._state = state
        tree = state.queue_tree
        #: The queues that have a line for each submitter.
        self.queues = {name for name in tree.paths if tree.specs[name].user_fairness}

    def line_of(self, queue: str, job: JobRecord) -> str:
        """The line of a job of this queue: the queue itself without `userFairness`."""
        return f"{queue}/{submitter_of(job)}" if queue in self.queues else queue  # no queue has a "/" in its name

    def used(self) -> dict[str, tuple[str, dict[str, int]]]:
        """Line → its queue, and what the jobs of its submitter use, by resource in its unit."""
        lines: dict[str, tuple[str, dict[str, int]]] = {}
        for job in self._state.jobs.values() if self.queues else ():
            queue = queue_of(self._state, job)
            if job.placements and not job.slots.done and queue in self.queues:  # as queues count them
                _, of_line = lines.setdefault(self.line_of(queue, job), (queue, {}))
                _count(of_line, sum_of(job, job.placements), 1)
        return lines


class SubmittersInCycle:
    """What submitters use in one cycle, as jobs get nodes and give some."""

    def __init__(self, state: State, time_ms: int) -> None:
        self._state = state
        self._time_ms = time_ms
        self._lines = SubmitterLines(state)
        #: Line → what it uses; None until somebody asks.
        self._used: dict[str, dict[str, int]] | None = None
        #: Line → what its jobs got in this cycle, less what they gave.
        self._more: dict[str, dict[str, int]] = {}
        self._total: Mapping[str, int] = {}

    @property
    def queues(self) -> Collection[str]:
        """The queues with `userFairness`."""
        return self._lines.queues

    def count(self, job: JobRecord, amounts: ByResource, sign: int = 1) -> None:
        """A job got so much in this cycle, or gave it (-1)."""
        if (queue := queue_of(self._state, job)) in self._lines.queues:
            _count(self._more.setdefault(self._lines.line_of(queue, job), {}), amounts, sign)

    def comes_first(self, job: JobRecord, asked: ByResource, other: JobRecord) -> bool:
        """Whether a job that requests so much comes before another one of the same queue, for which something is kept:
        its submitter uses no more with it than the other submitter uses now."""
        queue = queue_of(self._state, job)
        mine, theirs = self._lines.line_of(queue, job), self._lines.line_of(queue, other)
        if mine == theirs:
            return False
        with_it = dict(self._use_of(mine))
        _count(with_it, asked, 1)
        return share_of(with_it, self._total) <= share_of(self._use_of(theirs), self._total)

    def _use_of(self, line: str) -> dict[str, int]:
        if self._used is None:
            self._used = {name: used for name, (_, used) in self._lines.used().items()}
            self._total = offered(self._state, self._time_ms)
        found = dict(self._used.get(line, {}))
        _count(found, self._more.get(line, {}), 1)
        return found


def _count(amounts: dict[str, int], more: ByResource, sign: int) -> None:
    for resource, amount in more.items():
        amounts[resource] = amounts.get(resource, 0) + amount * sign
