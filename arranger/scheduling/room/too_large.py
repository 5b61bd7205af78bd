"""Jobs that certainly get no nodes in a cycle, found without a try: their quorums ask for more than all nodes together
have free, and nobody can give them room.

A cycle that is to give reasons tries every job. Where only placements count, as in a forecast, most tries can be left
out in a full cluster, and the decisions stay the same.
"""

from collections.abc import Iterable

import numpy as np

from arranger.model.job import JobSpec
from arranger.projections.cluster.nodes import Amounts
from arranger.projections.derived.queue_counts import least_requested, queue_of
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import State
from arranger.scheduling.cluster.view import ClusterView, Levels


class TooLarge:
    """Remembers what quorums ask for, from one cycle to the next. `jobs` are all that may have or get nodes: none comes
    later, and neither their specs nor their queues change."""

    def __init__(self, jobs: Iterable[JobRecord]) -> None:
        self._jobs = list(jobs)
        jobs = self._jobs
        #: Queue → the lowest priority of a job in it; None until it is needed.
        self._lowest: dict[str, int] | None = None
        self._shapes = list(dict.fromkeys(of.shape for job in jobs for of in job.valid_spec.groups if of.count))
        #: Job UID → its spec, and the least that its quorum asks for.
        self._asks: dict[str, tuple[JobSpec, Amounts]] = {}
        self._least: Amounts | None = None
        self._view: ClusterView | None = None
        self._content = -1
        self._free: Levels | None = None

    def holds(self, job: JobRecord, view: ClusterView) -> bool:
        """Whether a job's whole quorum asks for more than is free, with what is kept for reservations."""
        if job.provided:
            return False
        asks = self._asked(job, view)
        if view is not self._view or view.content != self._content or self._free is None:
            self._view, self._content, self._free = view, view.content, self._all_free(view)
        width = min(len(asks), len(self._free))
        return bool((asks[:width] > self._free[:width]).any())

    def may_take_room(self, state: State, job: JobRecord) -> bool:
        """Whether there is a job at all that may give room to this one: one of a lower priority in its queue, or one of
        another queue."""
        if self._lowest is None:
            self._lowest = {}
            for of in self._jobs:
                queue, priority = queue_of(state, of), of.valid_spec.priority
                self._lowest[queue] = min(priority, self._lowest.get(queue, priority))
        lowest = self._lowest.get(queue_of(state, job))
        return lowest is None or len(self._lowest) > 1 or lowest < job.valid_spec.priority

    def _asked(self, job: JobRecord, view: ClusterView) -> Amounts:
        spec = job.valid_spec
        asks = self._asks.get(job.uid)
        if asks is None or asks[0] is not spec:
            asks = self._asks[job.uid] = (spec, view.amounts(tuple(least_requested(spec).items())))
        return asks[1]

    def _all_free(self, view: ClusterView) -> Levels:
        """What is free on the nodes that have room for the smallest pod."""
        if self._least is None:
            self._least = np.min([view.amounts(of.requests) for of in self._shapes], axis=0)
        free = view.free if view.held is None else view.free + view.held
        rows = (free >= self._least).all(axis=1)
        total: Levels = np.maximum(free[rows], 0).sum(axis=0)
        return total
