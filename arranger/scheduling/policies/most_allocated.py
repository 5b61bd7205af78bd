"""MostAllocated, the default: fill used nodes, and keep pods without GPUs away from idle GPUs.

Score: with u_r = (used_r + request_r) / allocatable_r after placing the pod, 100 · Σ w_r u_r / Σ w_r over every
weighted resource that some node has; highest wins. u_r is 1 where a node has none of r: nothing of r is left over
there. BinPack has the same formula, but only over the resources that the pod requests. There a pod without GPUs may
take the cpu beside idle GPUs, which then no pod can use. Here it goes first to a node without idle GPUs (decision 25).
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from arranger.model.config import CycleConfig
from arranger.scheduling.cluster.view import ClusterView, Levels
from arranger.scheduling.policies.base import ONE, PlacementRequest, PodPolicy, Term, weight_of
from arranger.scheduling.policies.closed_form import Scores


class MostAllocated(PodPolicy):
    """The node that has the least idle afterwards, GPUs included whether or not the pod requests any."""

    name, version, rising, local = "MostAllocated", 1, True, True

    def scores(self, view: ClusterView, request: PlacementRequest, config: CycleConfig, extra: int = 0) -> Scores:
        """Weighted utilisation of all weighted resources after placing the pod."""
        weighted = _weighted(view, config)
        if not weighted.columns:
            return np.zeros(len(view), np.int64)
        used = weighted.weights @ _used(view, request, weighted, extra)
        # Whole numbers below 2^53, so that neither the order of the sum nor the machine matters.
        return (used / weighted.total).astype(np.int64)

    def terms(self, view: ClusterView, request: PlacementRequest, config: CycleConfig) -> Iterator[Term]:
        """The utilisation of each weighted resource."""
        weighted = _weighted(view, config)
        if weighted.columns:
            used = _used(view, request, weighted, 0).astype(np.int64)
            for name, weight, values in zip(weighted.names, weighted.weights.tolist(), used, strict=True):
                yield Term(name, int(weight), values)


class _Weighted(NamedTuple):
    """The weighted resources that some node has: names, columns of the view, weights, and the sum of the weights."""

    names: tuple[str, ...]
    columns: tuple[int, ...]
    weights: Levels
    total: float


def _weighted(view: ClusterView, config: CycleConfig) -> _Weighted:
    provided = view.provided()

    def found() -> _Weighted:
        kept = [(name, column, weight) for name, column in provided if (weight := weight_of(name, config))]
        weights = np.array([weight for _, _, weight in kept], np.float64)
        columns = tuple(column for _, column, _ in kept)
        return _Weighted(tuple(name for name, _, _ in kept), columns, weights, float(weights.sum()))

    return view.derived(("weighted", config.weights), found)


def _used(view: ClusterView, request: PlacementRequest, weighted: _Weighted, extra: int) -> Levels:
    """The used part of each weighted resource (rows) on each node (columns) after placing the pod, in millionths."""
    amounts = view.request(request.shape)[list(weighted.columns)]
    part: Levels = view.free.T[list(weighted.columns)]
    part -= (amounts * (extra + 1))[:, None]
    part /= view.capacities(weighted.columns)
    np.maximum(part, 0.0, out=part)  # foreign pods may have overbooked a node, which then has no room anyway
    part *= -ONE
    np.rint(part, out=part)
    part += ONE
    return part
