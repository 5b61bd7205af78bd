"""MinFragment: keep cpu and memory in step, so that neither is left over without the other.

Score (specification 3; the factor is that of Kubernetes' NodeResourcesBalancedAllocation for two resources):
(1 − |u_cpu − u_memory|) · BinPack, with u after placing the pod; highest wins.
"""

from collections.abc import Iterator

import numpy as np

from arranger.model.config import CycleConfig
from arranger.scheduling.placement import Scores
from arranger.scheduling.policies.base import ONE, Ask, PodPolicy, Term, share, utilisation, utilisation_terms
from arranger.scheduling.view import ClusterView


class MinFragment(PodPolicy):
    """The node that is fullest and most balanced afterwards."""

    name, version, local = "MinFragment", 1, True

    def scores(self, view: ClusterView, ask: Ask, config: CycleConfig, extra: int = 0) -> Scores:
        """Utilisation times balance. It may rise or fall as a node fills."""
        used = utilisation(view, ask.shape, self.weights(ask, config), extra)
        return used * _balance(view, ask, extra) // ONE

    def terms(self, view: ClusterView, ask: Ask, config: CycleConfig) -> Iterator[Term]:
        """The utilisation of each resource, and the balance that their mean is multiplied with."""
        yield from utilisation_terms(view, ask.shape, self.weights(ask, config))
        yield Term("balance of cpu and memory", 1, _balance(view, ask, 0))


def _balance(view: ClusterView, ask: Ask, extra: int) -> Scores:
    apart: Scores = np.abs(share(view, "cpu", ask.shape, extra) - share(view, "memory", ask.shape, extra))
    return ONE - apart
