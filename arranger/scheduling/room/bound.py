"""Whether a quorum surely lacks room even if more were free: found by counting, which costs less than placing it.

Each group of the quorum is counted alone, on the nodes that its filters allow. So a quorum that lacks room here fits in
no way: all else (rules among pods, quotas, topologies, the other groups) only forbids more. One that doesn't may still
not fit.
"""

import numpy as np

from arranger.projections.cluster.nodes import Amounts
from arranger.projections.jobs.records import JobRecord
from arranger.scheduling.cluster.view import Mask, Part, Rows, add_to, fitting
from arranger.scheduling.placing.needs import Quorum, quorum_needs
from arranger.scheduling.search.placer import Placer


class RoomBound:
    """The bound for the quorum of one job, on one cycle's view."""

    def __init__(self, placer: Placer, job: JobRecord) -> None:
        tried = placer.begin(job)
        self._view = placer.view
        self._quorum = Quorum.of(tried, quorum_needs(job, tried.policy))
        filters = placer.placing.filters
        self._shapes = {group: tried.groups[group].shape for group in self._quorum.indices}
        self._allowed = {group: filters.static(shape) for group, shape in self._shapes.items()}
        self._anywhere = np.logical_or.reduce([*self._allowed.values()])
        #: Amounts that every pod of the quorum requests, and their columns. A quorum may be complete, or need nobody.
        requests = [placer.view.request(shape) for shape in self._shapes.values()]
        least = np.min(requests, axis=0) if requests else placer.view.amounts(())
        self._columns = np.flatnonzero(least)
        self._least = least[self._columns]
        self._all = np.arange(len(placer.view))

    def helpful(self, rows: Rows, amounts: Amounts) -> Mask:
        """The rows on which some pod of the quorum may fit with these amounts more on these rows."""
        part = Part(self._view, self._all)
        add_to(part.free, rows, amounts)
        found = np.zeros(len(part), np.bool_)
        for group, shape in self._shapes.items():
            found |= (fitting(part, shape) > 0) & self._allowed[group]
        return found

    def lacks(self, rows: Rows, amounts: Amounts, *, alone: bool = False) -> bool:
        """Whether the quorum surely doesn't fit the view with these amounts more on these rows. `alone`: whether even
        one of its groups doesn't, without the others."""
        if not self._shapes:
            return False
        part = Part(self._view, self._all)
        add_to(part.free, rows, amounts)
        # Below 2^53 the truncated quotient of two whole doubles is the exact integer quotient.
        pods = np.floor((part.free[:, self._columns] / self._least).min(axis=1))
        if not alone and np.maximum(pods, 0)[self._anywhere].sum() < self._quorum.asked:
            return True
        rooms: dict[int, Amounts] = {}
        for group, shape in self._shapes.items():
            rooms[group] = fitting(part, shape) * self._allowed[group]
            if not self._quorum.may_fit(rooms):
                return True
        return False
