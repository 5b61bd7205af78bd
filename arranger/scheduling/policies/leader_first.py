"""LeaderFirst: the leader gets the emptiest node by GPUs, the workers the fullest by cpu (specification 3).

The leader is placed before the workers under every policy; here it also chooses differently. Its score is what is
left of the weighted utilisation, with the weight of GPUs raised; the workers' is the utilisation itself, as in
BinPack, with the weight of cpu raised.
"""

from arranger.model.config import CycleConfig
from arranger.scheduling.placement import Scores
from arranger.scheduling.policies.base import ONE, PlacementRequest, PodPolicy, utilisation
from arranger.scheduling.view import ClusterView

#: How many times its own weight the raised resource has.
RAISED = 4


class LeaderFirst(PodPolicy):
    """Spread leaders over the GPUs, pack workers on the cpus."""

    name, version = "LeaderFirst", 1

    def scores(self, view: ClusterView, request: PlacementRequest, config: CycleConfig, extra: int = 0) -> Scores:
        """Lowest utilisation for the leader, highest for workers."""
        used = utilisation(view, request.shape, self.weights(request, config), extra)
        return ONE - used if request.leader else used

    def weights(self, request: PlacementRequest, config: CycleConfig) -> dict[str, int]:
        """Those of the settings, with GPUs raised for the leader and cpu for workers."""
        return {
            resource: weight * (RAISED if (resource.endswith("/gpu") if request.leader else resource == "cpu") else 1)
            for resource, weight in super().weights(request, config).items()
        }
