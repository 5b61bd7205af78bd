"""JobAffinity and JobAntiAffinity: a job's pods on as few nodes as possible, or spread evenly (specification 3)."""

from collections.abc import Iterator

import numpy as np

from arranger.model.config import CycleConfig
from arranger.scheduling.placement import Scores
from arranger.scheduling.policies.base import ONE, PlacementRequest, PodPolicy, Term, utilisation
from arranger.scheduling.view import Chosen, ClusterView

#: One pod more or less outweighs any utilisation: scores are pods · STEP + millionths.
STEP = 2 * ONE


class JobAffinity(PodPolicy):
    """The node that can hold the most of the job's still unplaced pods together with what it has of the job.

    Ties go to the node that is fullest afterwards. What a node can hold of pods of different shapes is counted shape
    by shape, those asked for first.
    """

    name, version = "JobAffinity", 1

    def scores(self, view: ClusterView, request: PlacementRequest, config: CycleConfig, extra: int = 0) -> Scores:
        """Pods of the job on the node in the end, then utilisation."""
        return _together(view, request) * STEP + utilisation(view, request.shape, self.weights(request, config), extra)

    def fill(self, view: ClusterView, request: PlacementRequest, room: Scores, config: CycleConfig) -> Chosen:
        """Node by node. What the chosen one has and what it can still hold add up to the same as it fills, so it stays
        the best while the others don't rise: they can only where they would hold all that is left of these pods, and
        get room for pods of other shapes when fewer are left. From there on pod by pod."""
        chosen: dict[int, int] = {}
        gone = 0
        taken: Scores = np.zeros(len(view), np.int64)
        weights = self.weights(request, config)
        while gone < request.count and (room > taken).any():
            scores = _together(view, request, taken) * STEP + utilisation(view, request.shape, weights, taken)
            scores = request.preferring(scores)
            row = int(np.argmax(np.where(room > taken, scores, -1)))
            count = min(int(room[row] - taken[row]), request.count - gone)
            if len(request.unplaced) > 1:
                competing = np.delete(room - taken, row)
                count = min(count, max(1, request.unplaced[0].pods - gone - int(competing.max(initial=0)) + 1))
            chosen[row] = chosen.get(row, 0) + count
            taken[row] += count
            gone += count
        return list(chosen.items())

    def terms(self, view: ClusterView, request: PlacementRequest, config: CycleConfig) -> Iterator[Term]:
        """The pods of the job that the node would have, before what breaks ties."""
        yield Term("pods of the job together", STEP, _together(view, request) * ONE)
        yield from super().terms(view, request, config)


class JobAntiAffinity(PodPolicy):
    """The node with the fewest pods of the job; ties go to the one that is emptiest afterwards."""

    name, version = "JobAntiAffinity", 1

    def scores(self, view: ClusterView, request: PlacementRequest, config: CycleConfig, extra: int = 0) -> Scores:
        """Fewest pods of the job, then lowest utilisation."""
        there = (request.of_job if request.of_job is not None else 0) + extra
        return -there * STEP - utilisation(view, request.shape, self.weights(request, config), extra)

    def terms(self, view: ClusterView, request: PlacementRequest, config: CycleConfig) -> Iterator[Term]:
        """The pods of the job that the node has, before what breaks ties."""
        there = request.of_job if request.of_job is not None else np.zeros(len(view), np.int64)
        yield Term("pods of the job there", -STEP, there * ONE)
        yield from super().terms(view, request, config)


def _together(view: ClusterView, request: PlacementRequest, taken: Scores | None = None) -> Scores:
    """How many of the job's pods each node would have if it took all of the unplaced ones that fit, after those asked
    for got `taken` of the nodes."""
    here = np.zeros(len(view), np.int64) if taken is None else taken
    first, *others = request.unplaced
    fits = np.clip(first.room - here, 0, first.pods - int(here.sum()))
    found: Scores = here + fits
    taken_of: dict[int, Scores] = {}
    _take(taken_of, found, view.request(first.shape))
    for one in others:
        amounts = view.request(one.shape)
        part = one.room.astype(np.float64)
        for column in np.flatnonzero(amounts).tolist():
            free = view.free[:, column] - taken_of[column] if column in taken_of else view.free[:, column]
            # Whole doubles below 2^53: their quotient, cut off, is the exact integer quotient.
            np.minimum(part, free / amounts[column], out=part)
        pods = np.clip(part, 0, one.pods).astype(np.int64)
        _take(taken_of, pods, amounts)
        found = found + pods
    return found if request.of_job is None else found + request.of_job


def _take(taken_of: dict[int, Scores], pods: Scores, request: Scores) -> None:
    """So many pods more of one request on each node, added up by resource column."""
    for column in np.flatnonzero(request).tolist():
        more = pods * request[column]
        taken_of[column] = taken_of[column] + more if column in taken_of else more
