"""JobAffinity and JobAntiAffinity: a job's pods on as few nodes as possible, or spread evenly."""

from collections.abc import Iterator

import numpy as np

from arranger.model.config import CycleConfig
from arranger.scheduling.cluster.view import Chosen, ClusterView
from arranger.scheduling.policies.base import ONE, PlacementRequest, PodPolicy, Term, utilisation
from arranger.scheduling.policies.closed_form import Scores

#: One pod more or less outweighs any utilisation: scores are pods · STEP + millionths.
STEP = 2 * ONE


class JobAffinity(PodPolicy):
    """The node with the most pods of the job, including the unplaced ones that it could take.

    Ties go to the node that is fullest afterwards. Unplaced pods are counted shape by shape, the requested shape first.
    """

    name, version = "JobAffinity", 1

    def scores(self, view: ClusterView, request: PlacementRequest, config: CycleConfig, extra: int = 0) -> Scores:
        """Pods that the node has or could take, then utilisation."""
        return _together(view, request) * STEP + utilisation(view, request.shape, self.weights(request, config), extra)

    def fill(self, view: ClusterView, request: PlacementRequest, room: Scores, config: CycleConfig) -> Chosen:
        """Choose node by node. The number of pods that the chosen node has or could take stays the same as it fills, so
        it stays the best unless another node's number rises. That number rises only if the node could take all the
        remaining pods of the shape, and has room for other shapes when fewer remain. From then on choose pod by pod."""
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
        """The pods of the job that the node has or could take, then the tie-breakers."""
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
        """The pods of the job that the node has, then the tie-breakers."""
        there = request.of_job if request.of_job is not None else np.zeros(len(view), np.int64)
        yield Term("pods of the job there", -STEP, there * ONE)
        yield from super().terms(view, request, config)


def _together(view: ClusterView, request: PlacementRequest, taken: Scores | None = None) -> Scores:
    """How many of the job's pods each node would have if it took all the unplaced ones that fit, after `taken` of the
    requested pods were placed on it."""
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
            # Below 2^53 the truncated quotient of two whole doubles is the exact integer quotient.
            np.minimum(part, free / amounts[column], out=part)
        pods = np.clip(part, 0, one.pods).astype(np.int64)
        _take(taken_of, pods, amounts)
        found = found + pods
    return found if request.of_job is None else found + request.of_job


def _take(taken_of: dict[int, Scores], pods: Scores, request: Scores) -> None:
    """Add the amounts of `pods` more pods of one request on each node, by resource column."""
    for column in np.flatnonzero(request).tolist():
        more = pods * request[column]
        taken_of[column] = taken_of[column] + more if column in taken_of else more
