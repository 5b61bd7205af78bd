"""A queue policy: first come, first served, whatever the priority."""

from collections import deque

from arranger.projections.jobs.records import JobRecord
from arranger.scheduling.queues.dominant_shares import Shares
from arranger.scheduling.queues.policies import JobQueue, QueuePolicy, Turn


class Oldest(QueuePolicy):
    """The job that was created first, with its further pods right after its quorum. Then the next."""

    name, version = "Oldest", 3

    def queue(self, jobs: list[JobRecord], shares: Shares) -> JobQueue:
        """By creation, then UID: no two jobs are equal, so every process has the same order."""
        return _InOrder(sorted(jobs, key=lambda job: (job.seen.created_ms, job.uid)))


class _InOrder(JobQueue):
    def __init__(self, jobs: list[JobRecord]) -> None:
        self._turns = deque(Turn(job, quorum=True) for job in jobs)

    def head(self) -> Turn | None:
        return self._turns[0] if self._turns else None

    def taken(self, *, more: bool) -> None:
        turn = self._turns.popleft()
        if turn.quorum and more:
            self._turns.appendleft(Turn(turn.job, quorum=False))
