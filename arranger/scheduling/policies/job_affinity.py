"""JobAffinity and JobAntiAffinity: a job's pods on as few nodes as possible, or spread evenly (specification 3)."""

from collections.abc import Iterator

import numpy as np

from arranger.model.config import CycleConfig
from arranger.scheduling.placement import Scores
from arranger.scheduling.policies.base import ONE, Ask, PodPolicy, Term, utilisation
from arranger.scheduling.view import Chosen, ClusterView

#: One pod more or less outweighs any utilisation: scores are pods · STEP + millionths.
STEP = 2 * ONE


class JobAffinity(PodPolicy):
    """The node that can hold the most of the job's still unplaced pods together with what it has of the job.

    Ties go to the node that is fullest afterwards. What a node can hold of pods of different shapes is counted shape
    by shape, those asked for first.
    """

    name, version = "JobAffinity", 1

    def scores(self, view: ClusterView, ask: Ask, config: CycleConfig, extra: int = 0) -> Scores:
        """Pods of the job on the node in the end, then utilisation."""
        return _together(view, ask, ask.count) * STEP + utilisation(view, ask.shape, self.weights(ask, config), extra)

    def fill(self, view: ClusterView, ask: Ask, room: Scores, config: CycleConfig) -> Chosen:
        """Node by node: the chosen one stays the best until it is full, because what it has and what it can still
        hold add up to the same; then fewer pods are left, and the others are compared again."""
        chosen: Chosen = []
        left = ask.count
        room = room.copy()
        used = utilisation(view, ask.shape, self.weights(ask, config))
        while left and room.any():
            scores = np.where(room > 0, _together(view, ask, left) * STEP + used, -1)
            row = int(np.argmax(scores))
            count = min(int(room[row]), left)
            chosen.append((row, count))
            left -= count
            room[row] = 0
        return chosen

    def terms(self, view: ClusterView, ask: Ask, config: CycleConfig) -> Iterator[Term]:
        """The pods of the job that the node would have, before what breaks ties."""
        yield Term("pods of the job together", STEP, _together(view, ask, ask.count) * ONE)
        yield from super().terms(view, ask, config)


class JobAntiAffinity(PodPolicy):
    """The node with the fewest pods of the job; ties go to the one that is emptiest afterwards."""

    name, version = "JobAntiAffinity", 1

    def scores(self, view: ClusterView, ask: Ask, config: CycleConfig, extra: int = 0) -> Scores:
        """Fewest pods of the job, then lowest utilisation."""
        there = (ask.of_job if ask.of_job is not None else 0) + extra
        return -there * STEP - utilisation(view, ask.shape, self.weights(ask, config), extra)

    def terms(self, view: ClusterView, ask: Ask, config: CycleConfig) -> Iterator[Term]:
        """The pods of the job that the node has, before what breaks ties."""
        there = ask.of_job if ask.of_job is not None else np.zeros(len(view), np.int64)
        yield Term("pods of the job there", -STEP, there * ONE)
        yield from super().terms(view, ask, config)


def _together(view: ClusterView, ask: Ask, count: int) -> Scores:
    """How many of the job's pods each node would have if it took all of the unplaced ones that fit."""
    free = view.free
    found = np.zeros(len(view), np.int64) if ask.of_job is None else ask.of_job.copy()
    for shape, wanted in ((ask.shape, count), *ask.others):
        request = view.request(shape)
        columns = np.flatnonzero(request)
        fits = np.clip((free[:, columns] / request[columns]).min(axis=1), 0, wanted).astype(np.int64)
        found += fits
        if ask.others:
            free = free[:, : len(request)] - fits[:, None] * request
    return found
