"""A filter: nodes that are labelled as under maintenance."""

from collections.abc import Hashable

import numpy as np

from arranger.model.pod import PodShape
from arranger.model.reasons import Reason, other
from arranger.scheduling.cluster.view import ClusterView, Mask
from arranger.scheduling.filters.nodes import Filter

LABEL = "example.com/maintenance"


class Maintenance(Filter):
    """The node isn't labelled as under maintenance."""

    name, version = "Maintenance", 2

    def question(self, shape: PodShape) -> Hashable:
        """The same for every pod."""
        return ()

    def passes(self, view: ClusterView, shape: PodShape) -> Mask:
        """Nodes without the label, or with another value than "true"."""
        return ~view.node_index.labelled(LABEL).get("true", np.zeros(len(view), bool))

    def reason(self, view: ClusterView, shape: PodShape, row: int) -> Reason:
        """One for all."""
        return other("under maintenance")
