"""The interface of queue policies, and the two built-in ones: Priority and DRF.

A policy gives jobs *turns*, in which their quorum or further pods are placed. It receives the result of each turn and
chooses the next job. A job that doesn't fit never blocks the jobs behind it. If the jobs of one cycle have several
policies, `MergedQueues` merges their turns.
"""

import heapq
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable
from typing import ClassVar

import msgspec

from arranger.projections.jobs.records import JobRecord
from arranger.scheduling.queues.dominant_shares import Shares


class Turn(msgspec.Struct, frozen=True):
    """A job's turn: its quorum, or at most `pods` further pods (None: as many as fit)."""

    job: JobRecord
    quorum: bool
    pods: int | None = None


class JobQueue(ABC):
    """The jobs of one policy in one cycle."""

    @abstractmethod
    def head(self) -> Turn | None:
        """The current turn; None when no job is left."""

    @abstractmethod
    def taken(self, *, more: bool) -> None:
        """End the current turn. `more`: the job got what the turn was for and may need more."""


class QueuePolicy(ABC):
    """An order among jobs. Each cycle records `name` and `version`."""

    name: ClassVar[str]
    version: ClassVar[int]

    @abstractmethod
    def queue(self, jobs: list[JobRecord], shares: Shares) -> JobQueue:
        """The queue of these jobs for one cycle, with one quorum turn for each. If a cycle has jobs of several
        policies, it may divide the jobs of this one into several queues."""


#: The sort key of `seniority`.
Rank = tuple[int, bool, int, int, str]


def seniority(job: JobRecord) -> Rank:
    """Higher priority first; then jobs that the API server didn't refuse; the better QoS class, if that counts; earlier
    creation, in whole seconds as Kubernetes tells them; lower UID, which a log without names keeps."""
    spec = job.valid_spec
    return (-spec.priority, job.back_offs.held_back, spec.qos_rank, job.seen.created_ms, job.seen.uid)


class Priority(QueuePolicy):
    """By seniority: priority, then creation, then UID, and before creation the QoS class if the setting `qos_order` is
    on; refused jobs come last in their priority. Within one priority all quorums precede all further pods, and these
    precede the quorums of the next priority."""

    name, version = "Priority", 1

    def queue(self, jobs: list[JobRecord], shares: Shares) -> JobQueue:
        """Level by level: all quorums, then the further pods of the jobs whose quorum is placed."""
        return _Levels(jobs)


class _Levels(JobQueue):
    def __init__(self, jobs: Iterable[JobRecord]) -> None:
        self._jobs = sorted(jobs, key=seniority)
        #: The number of quorum turns given.
        self._given = 0
        #: The jobs of the same priority whose quorum is placed.
        self._further: deque[JobRecord] = deque()

    def head(self) -> Turn | None:
        if self._gives_quorum():
            return Turn(self._jobs[self._given], quorum=True)
        return Turn(self._further[0], quorum=False) if self._further else None

    def taken(self, *, more: bool) -> None:
        if self._gives_quorum():
            if more:
                self._further.append(self._jobs[self._given])
            self._given += 1
        else:
            self._further.popleft()

    def _gives_quorum(self) -> bool:
        """Whether the current turn is the next job's quorum, not the further pods of one of a higher priority."""
        if self._given == len(self._jobs):
            return False
        further = self._further
        return not further or further[0].valid_spec.priority == self._jobs[self._given].valid_spec.priority


class DRF(QueuePolicy):
    """Dominant resource fairness: the job with the lowest share of placed pods is next, compared again after every
    quorum and every further pod. Ties go to jobs that weren't refused, then to the lower share of the whole request,
    then as in Priority."""

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


class QueueSegment:
    """Adjacent jobs of one policy in the line of all jobs; the policy gives them their turns."""

    def __init__(self, queue: JobQueue, jobs: int) -> None:
        self.queue = queue
        #: Quorum turns still to give, at first one for each job.
        self.quorums = jobs


class MergedQueues(JobQueue):
    """The turns of all policies in one cycle, merged so that a job gains nothing by naming another policy.

    One level follows the other. Within a level, each segment gives all its quorum turns, and the further pods that its
    policy puts between them, before the next segment begins. The remaining further pods come last.
    """

    def __init__(self, levels: Iterable[Iterable[QueueSegment]]) -> None:
        self._quorums = deque(deque(level) for level in levels)
        self._further: deque[QueueSegment] = deque()
        self._turn: Turn | None = None

    def head(self) -> Turn | None:
        """The current turn; None when all queues are empty."""
        while (segment := self._segment()) is not None:
            self._turn = segment.queue.head()
            if self._turn is not None:
                return self._turn
            self._leave()
        return None

    def taken(self, *, more: bool) -> None:
        segment, turn = self._segment(), self._turn
        assert segment is not None and turn is not None
        segment.queue.taken(more=more)
        segment.quorums -= turn.quorum
        if turn.quorum and not segment.quorums:
            self._leave()
            self._further.append(segment)

    def _segment(self) -> QueueSegment | None:
        """The segment that gives the next turn."""
        while self._quorums and not self._quorums[0] and not self._further:
            self._quorums.popleft()
        if self._quorums and self._quorums[0]:
            return self._quorums[0][0]
        return self._further[0] if self._further else None

    def _leave(self) -> None:
        (self._quorums[0] if self._quorums and self._quorums[0] else self._further).popleft()
