"""BinPack and Gang: fill used nodes, leave empty ones empty.

Score (as in Volcano's binpack and Kubernetes' MostAllocated): with u_r = (used_r + request_r) /
allocatable_r after placing the pod, 100 · Σ w_r u_r / Σ w_r over the requested resources; highest wins.
"""

from arranger.model.config import CycleConfig
from arranger.model.job import GANG
from arranger.scheduling.cluster.view import ClusterView
from arranger.scheduling.policies.base import PlacementRequest, PodPolicy, utilisation
from arranger.scheduling.policies.closed_form import Scores


class BinPack(PodPolicy):
    """The node that is fullest afterwards in what the pod requests."""

    name, version, rising, local = "BinPack", 1, True, True

    def scores(self, view: ClusterView, request: PlacementRequest, config: CycleConfig, extra: int = 0) -> Scores:
        """Weighted utilisation after placing the pod."""
        return utilisation(view, request.shape, self.weights(request, config), extra)


class Gang(BinPack):
    """As BinPack, with every pod of the job in its quorum."""

    name, version, whole = GANG, 1, True
