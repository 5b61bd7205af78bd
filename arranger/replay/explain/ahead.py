"""The jobs before a waiting job in the queue, and the queue key that puts each of them there."""

from collections.abc import Sequence
from itertools import zip_longest
from typing import NamedTuple

import msgspec

from arranger.model.config import CycleConfig
from arranger.model.text import counted
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import State
from arranger.replay.explain.turns import HELD_BACK, Seniority, by_seniority, seniority_of
from arranger.replay.reading.describe import label
from arranger.scheduling import (
    BUILT_IN,
    WHOLE,
    ClusterView,
    Policies,
    QueueStanding,
    Shares,
    considered,
    in_line,
    seniority,
)


class Ahead(msgspec.Struct, frozen=True):
    """A job before this one in the queue, the key that decides their order, and what a cycle would give it now."""

    position: int
    job: str
    priority: int
    created_ms: int
    decided_by: str
    gets: str


class _Side(NamedTuple):
    """A line, a queue with those below it, or a queue's own jobs beside those."""

    name: str
    own: bool

    @property
    def words(self) -> tuple[str, str, str, str]:
        """Who that is, and how it has and uses its share."""
        return (f"{self.name}'s own jobs", "have", "use", "their") if self.own else (self.name, "has", "uses", "its")


class QueueKeys:
    """Finds why one waiting job comes before another: the first key of the queue in which they differ."""

    def __init__(self, state: State, waiting: list[JobRecord], config: CycleConfig, policies: Policies) -> None:
        """`waiting` are the waiting jobs in their order."""
        self._shares = Shares(ClusterView(state.nodes))
        jobs, over = considered(state, waiting)
        self._over = {job.uid for job, _ in over}
        self._standing = standing = QueueStanding(state, jobs, state.time_ms) if state.queues else None
        self._order = standing.order() if standing is not None else None
        lines = standing.lines if standing is not None else {"": jobs}
        self._line_of = {job.uid: line for line, of in lines.items() for job in of}
        #: Line → its first job.
        self._first: dict[str, JobRecord] = {}
        for job in jobs:
            self._first.setdefault(self._line_of[job.uid], job)
        #: Job UID → the queue policy that orders it, and the segment of the queue in which it does.
        self._segments = {
            job.uid: (name, (number, position))
            for line, of in lines.items()
            for number, level in enumerate(in_line(of, config, policies, standing.policy(line) if standing else ""))
            for position, (name, jobs) in enumerate(level)
            for job in jobs
        }

    def between(self, other: JobRecord, job: JobRecord) -> str:
        """The key that puts `other` before `job`, in words, with both values."""
        if by_queue := self._by_queue(other, job):
            return by_queue
        (name, segment), (_, of_job) = self._segments[other.uid], self._segments[job.uid]
        if segment == of_job and name not in BUILT_IN.queue:
            return f"by the queue policy {name}"
        share = ""
        if segment == of_job and name == "DRF":
            share = self._by_share("has", self._shares.allocated(other), self._shares.allocated(job))
            if not share and other.back_offs.held_back != job.back_offs.held_back:
                return HELD_BACK
            share = share or self._by_share("asks for", self._shares.requested(other), self._shares.requested(job))
        return share or by_seniority(seniority_of(other), seniority_of(job))

    def _by_queue(self, other: JobRecord, job: JobRecord) -> str:
        """How their queues, or submitters, decide the order; empty if both jobs are in one line."""
        if job.uid in self._over:
            return "the queue has as many waiting jobs before this one as its maxWaiting"
        of_other, of_job = self._line_of[other.uid], self._line_of[job.uid]
        if self._standing is None or self._order is None or of_other == of_job:
            return ""
        ways = zip_longest(self._standing.way(of_other), self._standing.way(of_job))
        one, two = next((a, b) for a, b in ways if a != b)
        # Where one way ends, the jobs of its own line have the turn beside the queues below it.
        first, second = _Side(one or of_other, one is None), _Side(two or of_job, two is None)
        at_first, at_second = (self._order.ratio(side.name, own=side.own) for side in (first, second))
        of_equals = f" ({self._of_equals(first, second)})" if at_first == at_second else ""
        return f"{self._used(first)}, {self._used(second)}{of_equals}"

    def _of_equals(self, one: _Side, two: _Side) -> str:
        """Why a queue comes before another one with the same ratio."""
        return f"equal ones go by their first jobs: {by_seniority(self._first_of(one), self._first_of(two))}"

    def _first_of(self, side: _Side) -> Seniority:
        """How senior the first job of a queue and those below it is, or of its own jobs."""
        assert self._standing is not None
        ways = ((self._standing.way(line), job) for line, job in self._first.items())
        jobs = [job for way, job in ways if (way[-1] == side.name if side.own else side.name in way)]
        return seniority_of(min(jobs, key=seniority))

    def _used(self, side: _Side) -> str:
        assert self._standing is not None and self._order is not None
        who, have, uses, its = side.words
        if not self._order.has_share(side.name, own=side.own):
            return f"{who} {have} no share now"
        order = self._standing.order(averages=False)
        now, before = (each.ratio(side.name, own=side.own) for each in (order, self._order))
        with_before = f", {before / WHOLE:.0%} with what was used before" if before != now else ""
        requested = self._standing.unentitled(side.name, own=side.own)
        if requested and now == WHOLE:
            return f"{who} {have} no share of {requested} now, which jobs request{with_before}"
        resource, share = order.dominant(side.name, own=side.own)
        if resource and not share:
            return f"{who} {uses} {resource}, of which there is no share now{with_before}"
        return f"{who} {uses} {now / WHOLE:.0%} of {its} share{resource and f' of {resource}'}{with_before}"

    def _by_share(self, verb: str, of_other: int, of_job: int) -> str:
        if of_other == of_job:
            return ""
        return f"{verb} the lower dominant share, {of_other / WHOLE:.1%} against {of_job / WHOLE:.1%}"


def jobs_ahead(others: Sequence[JobRecord], job: JobRecord, gets: dict[str, int], keys: QueueKeys) -> tuple[Ahead, ...]:
    """The jobs before this one. `gets` is job UID → how many of its pods a cycle would place."""
    found = []
    for position, other in enumerate(others, start=1):
        now = f"{counted(gets[other.uid], 'pod')} now" if other.uid in gets else "waits too"
        decided = keys.between(other, job)
        found.append(Ahead(position, label(other), other.valid_spec.priority, other.seen.created_ms, decided, now))
    return tuple(found)
