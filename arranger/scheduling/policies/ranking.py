"""Node scores for one pod shape, updated as pods are placed and go: this is fast for many small jobs of few shapes.

The scores must depend on a node's own amounts and the shape alone (`PodPolicy.local`), and never fall as the node fills
(`rising`). Then a placement changes only the scores of its own nodes, and the best node stays the best until full.
"""

from dataclasses import replace

import numpy as np

from arranger.model.config import CycleConfig
from arranger.model.pod import PodShape
from arranger.scheduling.cluster.view import Chosen, ClusterView, Part, fitting
from arranger.scheduling.filters.nodes import Filters
from arranger.scheduling.policies.base import PlacementRequest, PodPolicy
from arranger.scheduling.policies.closed_form import NONE, Scores, fill

#: How many shapes' rankings are kept at once.
RANKINGS = 64
#: How many shapes are remembered as met; beyond it they are forgotten.
_MET = 4096

#: More pods than this are placed by sorting, because picking the best node repeatedly costs more.
_FEW_PODS = 8


class Ranking:
    """One shape's room and scores by row, as of some point in the view's journal."""

    def __init__(
        self, view: ClusterView, filters: Filters, policy: PodPolicy, request: PlacementRequest, config: CycleConfig
    ) -> None:
        self._view = view
        self._policy = policy
        self._config = config
        self._request = request
        self._static = filters.static(request.shape)
        self._take_all(filters)

    def _take_all(self, filters: Filters) -> None:
        self._seen = self._view.written
        self._room: Scores = filters.room(self._request.shape)
        if not self._room.any():  # the common case in a full cluster
            self._offers: Scores = np.full(len(self._room), NONE)
            return
        scores = self._request.preferring(self._policy.scores(self._view, self._request, self._config))
        self._offers = np.where(self._room > 0, scores, NONE)

    def choose(self, filters: Filters, count: int) -> Chosen:
        """Nodes for up to `count` pods, the same as if placed one by one."""
        self._catch_up(filters)
        if count > _FEW_PODS or not len(self._offers):
            return fill(self._offers, self._room, count)
        chosen: Chosen = []
        while count:
            row = int(self._offers.argmax())
            if self._offers[row] == NONE:
                break
            pods = min(int(self._room[row]), count)
            chosen.append((row, pods))
            count -= pods
            self._offers[row] = NONE  # for this choice only: the row is scored again once the view holds the pods
            self._view.journal.append(row)
        return chosen

    def _catch_up(self, filters: Filters) -> None:
        """Update the rows that changed."""
        if self._seen == self._view.written:
            return
        changed = self._view.journal[max(self._seen - self._view.dropped, 0) :]
        if self._seen < self._view.dropped or len(changed) > len(self._offers) // 8:
            self._take_all(filters)
            return
        self._seen += len(changed)
        rows = np.array(sorted(set(changed)), np.int64)
        part = Part(self._view, rows)
        room = fitting(part, self._request.shape)
        room *= self._static[rows]
        self._room[rows] = room
        self._offers[rows] = NONE
        if room.any():
            self._offer(rows, room, part)

    def _offer(self, rows: Scores, room: Scores, part: Part) -> None:
        scores = self._policy.scores(part, self._request, self._config)
        if self._request.preference is not None:
            scores = replace(self._request, preference=self._request.preference[rows]).preferring(scores)
        self._offers[rows] = np.where(room > 0, scores, NONE)


class Rankings:
    """The rankings on one view, for shapes that occur more than once."""

    def __init__(self, view: ClusterView, config: CycleConfig) -> None:
        self.view = view
        self.config = config
        self._met: set[tuple[str, PodShape]] = set()
        self._rankings: dict[tuple[str, PodShape], Ranking] = {}

    def of(self, filters: Filters, policy: PodPolicy, request: PlacementRequest) -> Ranking | None:
        """The ranking of the requested shape; None if it occurs for the first time under the policy."""
        key = (policy.name, request.shape)
        ranking = self._rankings.get(key)
        if ranking is None:
            if key not in self._met:
                if len(self._met) >= _MET:
                    self._met.clear()
                self._met.add(key)
                return None
            ranking = self._rankings[key] = Ranking(self.view, filters, policy, request, self.config)
            if len(self._rankings) > RANKINGS:
                del self._rankings[next(iter(self._rankings))]
        return ranking
