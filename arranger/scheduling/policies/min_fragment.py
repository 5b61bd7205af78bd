"""MinFragment: keep cpu and memory in step, so that neither is left over without the other.

Score (the factor is that of Kubernetes' NodeResourcesBalancedAllocation for two resources):
(1 − |u_cpu − u_memory|) · BinPack, with u after placing the pod; highest wins.
"""

from collections.abc import Iterator

import numpy as np

from arranger.model.config import CycleConfig
from arranger.scheduling.cluster.view import ClusterView
from arranger.scheduling.policies.base import (
    ONE,
    PlacementRequest,
    PodPolicy,
    Term,
    share,
    utilisation,
    utilisation_terms,
)
from arranger.scheduling.policies.closed_form import Scores


class MinFragment(PodPolicy):
    """The node that is fullest and most balanced afterwards."""

    name, version, local = "MinFragment", 1, True

    def scores(self, view: ClusterView, request: PlacementRequest, config: CycleConfig, extra: int = 0) -> Scores:
        """Utilisation times balance. It may rise or fall as a node fills."""
        used = utilisation(view, request.shape, self.weights(request, config), extra)
        return used * _balance(view, request, extra) // ONE

    def terms(self, view: ClusterView, request: PlacementRequest, config: CycleConfig) -> Iterator[Term]:
        """The utilisation of each resource, and the balance by which their mean is multiplied."""
        yield from utilisation_terms(view, request.shape, self.weights(request, config))
        yield Term("balance of cpu and memory", 1, _balance(view, request, 0))


def _balance(view: ClusterView, request: PlacementRequest, extra: int) -> Scores:
    apart: Scores = np.abs(share(view, "cpu", request.shape, extra) - share(view, "memory", request.shape, extra))
    return ONE - apart
