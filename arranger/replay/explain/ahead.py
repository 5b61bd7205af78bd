"""The jobs before a waiting job in the queue, and the queue key that puts each of them there."""

from collections.abc import Sequence

import msgspec

from arranger.model.config import CycleConfig
from arranger.model.text import counted
from arranger.projections.jobs import JobRecord
from arranger.projections.state import State
from arranger.replay.explain.turns import HELD_BACK, by_seniority, seniority_of
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


class QueueKeys:
    """Finds why one waiting job comes before another: the first key of the queue in which they differ."""

    def __init__(self, state: State, waiting: list[JobRecord], config: CycleConfig, policies: Policies) -> None:
        """`waiting` are the waiting jobs in their order."""
        self._shares = Shares(ClusterView(state.nodes))
        self._by_name = config.verdicts < 9
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
        ways = zip(self._standing.way(of_other), self._standing.way(of_job), strict=False)
        one, two = next(((a, b) for a, b in ways if a != b), (of_other, of_job))
        equal = self._order.ratio(one) == self._order.ratio(two)
        return f"{self._used(one)}, {self._used(two)}{f' ({self._of_equals(one, two)})' if equal else ''}"

    def _of_equals(self, one: str, two: str) -> str:
        """Why a queue comes before another one with the same ratio."""
        if self._by_name or self._standing is None:
            return "equal ones go by name"
        way, first = self._standing.way, self._first.items()
        of_one, of_two = (
            min([job for line, job in first if queue in way(line)], key=seniority) for queue in (one, two)
        )
        return f"equal ones go by their first jobs: {by_seniority(seniority_of(of_one), seniority_of(of_two))}"

    def _used(self, line: str) -> str:
        assert self._standing is not None and self._order is not None
        if not any(self._standing.shares.get(line, {}).values()):
            return f"{line} has no share now"
        order = self._standing.order(averages=False)
        now, before = order.ratio(line), self._order.ratio(line)
        with_before = f", {before / WHOLE:.0%} with what it used before" if before != now else ""
        resource, share = order.dominant(line)
        if resource and not share:
            return f"{line} uses {resource}, of which it has no share now{with_before}"
        return f"{line} uses {now / WHOLE:.0%} of its share{resource and f' of {resource}'}{with_before}"

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
