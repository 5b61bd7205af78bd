"""The interface of pod policies: how a job's pods choose among the nodes that pass the filters.

A policy scores all nodes at once; the highest score wins, then the lowest node name. Scores are integers, so that
another machine or library version can't change a plan. Other packages add policies by entry points (see
`arranger.plugins`). Each cycle records the policies' names and versions.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from arranger.model.accelerators import is_accelerator
from arranger.model.config import ANY_ACCELERATOR, ANY_GPU, CycleConfig
from arranger.model.pod import PodShape
from arranger.scheduling.cluster.neighbours import Neighbour
from arranger.scheduling.cluster.view import Chosen, ClusterView, Mask
from arranger.scheduling.filters.nodes import PREFERENCES
from arranger.scheduling.policies.closed_form import Scores, fill, fill_by_margins

#: Utilisation and scores are in millionths: 100 in the specification's formulas is 1,000,000 here.
ONE = 1_000_000


@dataclass(frozen=True, slots=True)
class Unplaced:
    """Equal pods of a job without a node. `room` is how many of them each node would take now, by row; `pod` is as in
    `PlacementRequest`."""

    shape: PodShape
    pods: int
    room: Scores
    pod: Neighbour | None = None


@dataclass(frozen=True, slots=True)
class Typical:
    """Equal pods that wait or run in the cluster: their number, and the nodes that allow them (amounts aside)."""

    shape: PodShape
    pods: int
    allowed: Mask


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """A request for nodes for `count` equal pods of one job. For policies that aren't local, `of_job` is the job's pods
    by row, and `unplaced` are its pods without a node, the requested ones first (maybe more than `count`). For policies
    that weigh it, `mix` are the waiting and running pods of the cluster, constant during a cycle.

    `pod` is one of the pods as other pods see it. `preference` orders the nodes that a policy scores equally, by row
    (see `preferring`). Both are None where they don't matter."""

    shape: PodShape
    count: int
    leader: bool
    of_job: Scores | None = None
    unplaced: tuple[Unplaced, ...] = ()
    mix: tuple[Typical, ...] = ()
    pod: Neighbour | None = None
    preference: Scores | None = None

    def preferring(self, scores: Scores) -> Scores:
        """The policy's scores with the preference as a tie-breaker. The preference doesn't change as a node fills, so
        scores that never fall still don't."""
        return scores if self.preference is None else scores * PREFERENCES + self.preference


@dataclass(frozen=True, slots=True)
class Term:
    """One part of a score, for explanations: what it measures, its weight, and its value by row, in millionths."""

    name: str
    weight: int
    values: Scores


class PodPolicy(ABC):
    """How a job's pods choose nodes. A policy has no state."""

    name: ClassVar[str]
    version: ClassVar[int]
    #: The quorum is every pod of the job.
    whole: ClassVar[bool] = False
    #: A node's score never falls as it fills, so equal pods fill the best node, then the next.
    rising: ClassVar[bool] = False
    #: Scores depend on node and shape alone, not on the job or its other pods. With `rising`, they may be kept from one
    #: cycle to the next.
    local: ClassVar[bool] = False
    #: Scores use `PlacementRequest.mix`.
    weighs_mix: ClassVar[bool] = False

    @abstractmethod
    def scores(self, view: ClusterView, request: PlacementRequest, config: CycleConfig, extra: int = 0) -> Scores:
        """The score of each node for one more pod after `extra` of them; meaningless for nodes without room."""

    def fill(self, view: ClusterView, request: PlacementRequest, room: Scores, config: CycleConfig) -> Chosen:
        """Nodes for up to `request.count` pods, the same as if placed one by one."""
        if self.rising:
            return fill(request.preferring(self.scores(view, request, config)), room, request.count)
        return fill_by_margins(
            lambda extra: request.preferring(self.scores(view, request, config, extra)), room, request.count
        )

    def terms(self, view: ClusterView, request: PlacementRequest, config: CycleConfig) -> Iterator[Term]:
        """The components of the scores, for explanations: by default the utilisation of each weighted resource."""
        return utilisation_terms(view, request.shape, self.weights(request, config))

    def weights(self, request: PlacementRequest, config: CycleConfig) -> dict[str, int]:
        """Resource → weight for the resources that the pod requests; those of weight 0 are left out."""
        found = {resource: weight_of(resource, config) for resource, _ in request.shape.requests}
        return {resource: weight for resource, weight in found.items() if weight}


def weight_of(resource: str, config: CycleConfig) -> int:
    """The resource's own weight, else that of GPUs or of accelerators if it is one, else 0."""
    weights = dict(config.weights)
    if resource not in weights and resource.endswith("/gpu") and ANY_GPU in weights:
        return weights[ANY_GPU]
    return weights.get(resource, weights.get(ANY_ACCELERATOR, 0) if is_accelerator(resource) else 0)


def share(view: ClusterView, resource: str, shape: PodShape, extra: int | Scores = 0) -> Scores:
    """U = (used + request) / allocatable of one resource after placing the pod (and `extra` before it), in millionths.

    One IEEE division, one multiplication and one rounding each, so every machine computes the same integers. U is 0
    where a node has none of the resource, and 1 where foreign pods overbooked it: such a node has no room anyway.
    """
    request = view.request(shape)
    column = view.column(resource)
    if column is None:
        return np.zeros(len(view), np.int64)
    part = view.allocatable[:, column] - view.free[:, column]
    part += request[column] * (extra + 1)
    part /= view.capacity(column)
    np.minimum(part, 1.0, out=part)
    part *= ONE
    return np.rint(part, out=part).astype(np.int64)


def utilisation(view: ClusterView, shape: PodShape, weights: dict[str, int], extra: int | Scores = 0) -> Scores:
    """Σ w_r u_r / Σ w_r over the given resources, in millionths: 0 to 1,000,000."""
    total = np.zeros(len(view), np.int64)
    for resource, weight in weights.items():
        of_resource = share(view, resource, shape, extra)
        of_resource *= weight
        total += of_resource
    # Below 2^53 the truncated quotient of two whole doubles is the exact integer quotient.
    return (total / sum(weights.values())).astype(np.int64) if weights else total


def utilisation_terms(view: ClusterView, shape: PodShape, weights: dict[str, int]) -> Iterator[Term]:
    """The shares that `utilisation` adds up."""
    for resource, weight in weights.items():
        yield Term(resource, weight, share(view, resource, shape))
