"""What a job queue policy is, and the two that come with Arranger: Priority and DRF.

A policy hands out *turns*: it is this job's turn to have its quorum placed, or further pods. It is told what came of
each turn and decides who is next. A job that doesn't fit never blocks the ones behind it.
"""

import heapq
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar

from arranger.projections.jobs import JobRecord
from arranger.scheduling.shares import Shares


@dataclass(frozen=True, slots=True)
class Turn:
    """A job's turn: its quorum, or at most `pods` further pods (None: as many as fit)."""

    job: JobRecord
    quorum: bool
    pods: int | None = None


class JobQueue(ABC):
    """The jobs of one policy in one cycle."""

    @abstractmethod
    def head(self) -> Turn | None:
        """Whose turn it is; None when nobody is left."""

    @abstractmethod
    def taken(self, *, more: bool) -> None:
        """The head has had its turn. `more`: it got what the turn was for and may want more."""


class QueuePolicy(ABC):
    """An order among jobs. `name` and `version` go into the record of each cycle."""

    name: ClassVar[str]
    version: ClassVar[int]

    @abstractmethod
    def queue(self, jobs: list[JobRecord], shares: Shares) -> JobQueue:
        """The queue of these jobs for one cycle."""


def seniority(job: JobRecord) -> tuple[int, int, str]:
    """Higher priority first; then the earlier created; then the lower UID."""
    assert job.spec is not None
    return (-job.spec.priority, job.seen.created_ms, job.seen.uid)


class Priority(QueuePolicy):
    """By priority, then creation, then UID. Within one priority all quorums come before anyone's further pods, and
    the further pods of one priority before the quorums of the next."""

    name, version = "Priority", 1

    def queue(self, jobs: list[JobRecord], shares: Shares) -> JobQueue:
        """All quorums of a level, then the further pods of those whose quorum stands, level by level."""
        return _Levels(jobs)


class _Levels(JobQueue):
    def __init__(self, jobs: Iterable[JobRecord]) -> None:
        ordered = sorted(jobs, key=seniority)
        self._levels = deque(deque(level) for _, level in groupby(ordered, key=lambda job: seniority(job)[0]))
        self._further: deque[JobRecord] = deque()

    def head(self) -> Turn | None:
        while self._levels:
            if self._levels[0]:
                return Turn(self._levels[0][0], quorum=True)
            if self._further:
                return Turn(self._further[0], quorum=False)
            self._levels.popleft()
        return None

    def taken(self, *, more: bool) -> None:
        if self._levels[0]:
            job = self._levels[0].popleft()
            if more:
                self._further.append(job)
        else:
            self._further.popleft()


class DRF(QueuePolicy):
    """Dominant resource fairness: the lowest share of what a job has goes first, asked again after every quorum and
    then after every pod. Ties go to the lower share of what the job requests in total, then as in Priority."""

    name, version = "DRF", 1

    def queue(self, jobs: list[JobRecord], shares: Shares) -> JobQueue:
        """A heap by share."""
        return _Fair(jobs, shares)


class _Fair(JobQueue):
    def __init__(self, jobs: Iterable[JobRecord], shares: Shares) -> None:
        self._shares = shares
        self._heap = [self._entry(job, shares.requested(job), Turn(job, quorum=True)) for job in jobs]
        heapq.heapify(self._heap)

    def _entry(self, job: JobRecord, requested: int, turn: Turn) -> tuple[int, int, tuple[int, int, str], Turn]:
        return (self._shares.allocated(job), requested, seniority(job), turn)

    def head(self) -> Turn | None:
        return self._heap[0][3] if self._heap else None

    def taken(self, *, more: bool) -> None:
        _, requested, _, turn = heapq.heappop(self._heap)
        if more:
            heapq.heappush(self._heap, self._entry(turn.job, requested, Turn(turn.job, quorum=False, pods=1)))


class MergedQueues:
    """Several policies' queues, merged at their heads: higher priority, lower requested share, creation, UID."""

    def __init__(self, queues: list[JobQueue], shares: Shares) -> None:
        self._queues = queues
        self._shares = shares
        self._at = 0

    def head(self) -> Turn | None:
        """Whose turn it is; None when all queues are empty."""
        if len(self._queues) == 1:
            return self._queues[0].head()
        best = None
        for at, queue in enumerate(self._queues):
            turn = queue.head()
            if turn is None:
                continue
            key = self._key(turn.job)
            if best is None or key < best[0]:
                best = (key, turn)
                self._at = at
        return best[1] if best is not None else None

    def taken(self, *, more: bool) -> None:
        """The head has had its turn."""
        self._queues[self._at].taken(more=more)

    def _key(self, job: JobRecord) -> tuple[int, int, int, str]:
        priority, created_ms, uid = seniority(job)
        return (priority, self._shares.requested(job), created_ms, uid)
