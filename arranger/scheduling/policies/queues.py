"""What a job queue policy is, and the two that come with Arranger: Priority and DRF.

A policy hands out *turns*: it is this job's turn to have its quorum placed, or further pods. It is told what came of
each turn and decides who is next. A job that doesn't fit never blocks the ones behind it. Where jobs of one cycle go by
several policies, `MergedQueues` puts their turns together.
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
        """The queue of these jobs for one cycle: one quorum turn for each. Beside jobs of other policies, those of this
        one come in several parts, each with a queue of its own."""


#: What `seniority` compares.
Rank = tuple[int, bool, int, str]


def seniority(job: JobRecord) -> Rank:
    """Higher priority first; then who wasn't refused by the API server; the earlier created; the lower UID."""
    return (-job.valid_spec.priority, job.back_offs.held_back, job.seen.created_ms, job.seen.uid)


class Priority(QueuePolicy):
    """By seniority: priority, then creation, then UID, and who was refused behind the others of its priority. Within
    one priority all quorums come before anyone's further pods, and the further pods of one priority before the quorums
    of the next."""

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
    then after every pod. Ties go to who wasn't refused, then to the lower share of what the job requests in total, then
    as in Priority."""

    name, version = "DRF", 1

    def queue(self, jobs: list[JobRecord], shares: Shares) -> JobQueue:
        """A heap by share."""
        return _Fair(jobs, shares)


class _Fair(JobQueue):
    def __init__(self, jobs: Iterable[JobRecord], shares: Shares) -> None:
        self._shares = shares
        self._heap = [self._entry(job, shares.requested(job), Turn(job, quorum=True)) for job in jobs]
        heapq.heapify(self._heap)

    def _entry(self, job: JobRecord, requested: int, turn: Turn) -> tuple[int, bool, int, Rank, Turn]:
        return (self._shares.allocated(job), job.back_offs.held_back, requested, seniority(job), turn)

    def head(self) -> Turn | None:
        return self._heap[0][4] if self._heap else None

    def taken(self, *, more: bool) -> None:
        _, _, requested, _, turn = heapq.heappop(self._heap)
        if more:
            heapq.heappush(self._heap, self._entry(turn.job, requested, Turn(turn.job, quorum=False, pods=1)))


class Segment:
    """Jobs of one policy that stand together in the line of all jobs: the policy gives them their turns."""

    def __init__(self, queue: JobQueue, jobs: int) -> None:
        self.queue = queue
        #: Quorum turns that it has still to give: one for each of its jobs.
        self.quorums = jobs


class MergedQueues:
    """The turns of all policies in one cycle, so that naming another policy brings no job forward.

    `levels` come one after the other. Within one, each segment gives all its quorum turns before the next segment
    begins, with what further pods the policy puts between them; the further pods that are left come last.
    """

    def __init__(self, levels: Iterable[Iterable[Segment]]) -> None:
        self._quorums = deque(deque(level) for level in levels)
        self._further: deque[Segment] = deque()
        self._turn: Turn | None = None

    def head(self) -> Turn | None:
        """Whose turn it is; None when all queues are empty."""
        while (segment := self._segment()) is not None:
            self._turn = segment.queue.head()
            if self._turn is not None:
                return self._turn
            self._leave()
        return None

    def taken(self, *, more: bool) -> None:
        """The head has had its turn."""
        segment, turn = self._segment(), self._turn
        assert segment is not None and turn is not None
        segment.queue.taken(more=more)
        segment.quorums -= turn.quorum
        if turn.quorum and not segment.quorums:
            self._leave()
            self._further.append(segment)

    def _segment(self) -> Segment | None:
        """Which segment gives the next turn."""
        while self._quorums and not self._quorums[0] and not self._further:
            self._quorums.popleft()
        if self._quorums and self._quorums[0]:
            return self._quorums[0][0]
        return self._further[0] if self._further else None

    def _leave(self) -> None:
        (self._quorums[0] if self._quorums and self._quorums[0] else self._further).popleft()
