"""LeaderFirst: the leader gets the emptiest node by accelerators, the workers the fullest by cpu.

Every policy places the leader before the workers; this one also scores it differently. The leader's score is one minus
the weighted utilisation, with the weight of accelerators raised. The workers' score is the utilisation itself, as in
BinPack, with the weight of cpu raised.
"""

from arranger.model.accelerators import is_accelerator
from arranger.model.config import CycleConfig
from arranger.scheduling.cluster.view import ClusterView
from arranger.scheduling.policies.base import ONE, PlacementRequest, PodPolicy, utilisation
from arranger.scheduling.policies.closed_form import Scores

#: The factor by which a weight is raised.
RAISED = 4


class LeaderFirst(PodPolicy):
    """Spread leaders over the GPUs, pack workers on the cpus."""

    name, version = "LeaderFirst", 1

    def scores(self, view: ClusterView, request: PlacementRequest, config: CycleConfig, extra: int = 0) -> Scores:
        """Lowest utilisation for the leader, highest for workers."""
        used = utilisation(view, request.shape, self.weights(request, config), extra)
        return ONE - used if request.leader else used

    def weights(self, request: PlacementRequest, config: CycleConfig) -> dict[str, int]:
        """The configured weights, raised for accelerators (leader) or cpu (workers)."""

        def raised(resource: str) -> bool:
            return is_accelerator(resource) if request.leader else resource == "cpu"

        found = super().weights(request, config)
        return {resource: weight * (RAISED if raised(resource) else 1) for resource, weight in found.items()}
