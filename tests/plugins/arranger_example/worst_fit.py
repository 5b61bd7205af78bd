"""A pod policy: the node that is emptiest afterwards."""

from arranger.model.config import CycleConfig
from arranger.scheduling.cluster.view import ClusterView
from arranger.scheduling.policies.base import PlacementRequest, PodPolicy, utilisation
from arranger.scheduling.policies.closed_form import Scores


class WorstFit(PodPolicy):
    """The node that is emptiest afterwards, by the same utilisation as BinPack."""

    name, version, local = "WorstFit", 1, True

    def scores(self, view: ClusterView, request: PlacementRequest, config: CycleConfig, extra: int = 0) -> Scores:
        """Highest wins, so less utilisation is more."""
        return -utilisation(view, request.shape, self.weights(request, config), extra)


#: An entry point may name an instance too.
WORST_FIT = WorstFit()
