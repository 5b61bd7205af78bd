"""BinPack: fill used nodes, leave empty ones empty.

Score (specification 3, as in Volcano's binpack and Kubernetes' MostAllocated): with u_r = (used_r + request_r) /
allocatable_r after placing the pod, 100 · Σ w_r u_r / Σ w_r over the requested resources; highest wins, then the
lowest node name. u_r is rounded to a millionth, so that scores are integers and equal on every machine: one IEEE
division, one multiplication and one rounding each, summed as integers.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from arranger.model.config import ANY_GPU, CycleConfig
from arranger.model.pod import PodShape
from arranger.scheduling.view import ClusterView

Scores = npt.NDArray[np.int64]

NAME = "BinPack"
VERSION = 1

#: Scores are utilisation in millionths, weighted: 100 in the formula is 1,000,000 here.
ONE = 1_000_000


def scores(view: ClusterView, shape: PodShape, config: CycleConfig) -> Scores:
    """The score of every node after placing one pod there, in millionths; only nodes with room mean anything."""
    total = np.zeros(len(view), np.int64)
    weights = 0
    for _, weight, share in terms(view, shape, config):
        total += weight * share
        weights += weight
    return total // weights if weights else total


def terms(view: ClusterView, shape: PodShape, config: CycleConfig) -> Iterator[tuple[str, int, Scores]]:
    """What the scores are made of: resource, weight, and every node's utilisation in millionths after placing a pod."""
    request = view.request(shape)
    for resource, _ in shape.requests:
        weight = weight_of(resource, config)
        if not weight:
            continue
        column = view.column(resource)
        allocatable = view.allocatable[:, column]
        used = allocatable - view.free[:, column] + request[column]
        share = np.divide(used, allocatable, out=np.zeros(len(view)), where=allocatable > 0)
        # More than all of it is held only where strangers overbooked a node, and there is no room there anyway.
        yield resource, weight, np.rint(np.minimum(share, 1.0) * ONE).astype(np.int64)


def weight_of(resource: str, config: CycleConfig) -> int:
    """The resource's own weight, else that of GPUs if it is one, else 0."""
    weights = dict(config.weights)
    if resource in weights:
        return weights[resource]
    return weights.get(ANY_GPU, 0) if resource.endswith("/gpu") else 0


def fill(view: ClusterView, room: Scores, shape: PodShape, count: int, config: CycleConfig) -> list[tuple[int, int]]:
    """Up to `count` equal pods as (row, pods) in the order of choice.

    In closed form: a node's score only rises as it fills and all others stay, so the best node stays the best
    until it is full; sorting once by score and filling in turn is what one pod at a time would do.
    """
    rows = np.flatnonzero(room > 0)
    ranked = rows[np.argsort(-scores(view, shape, config)[rows], kind="stable")]
    before = np.cumsum(room[ranked]) - room[ranked]
    ranked = ranked[before < count]
    takes = np.minimum(room[ranked], count - before[: len(ranked)])
    return list(zip(ranked.tolist(), takes.tolist(), strict=True))
