"""What a pod policy is: how a job's pods choose among the nodes that pass the filters.

A policy scores all nodes at once; the highest score wins, then the lowest node name. Scores are integers, so that
another machine or library version can't change a plan. Another package adds a policy by an entry point (see
`arranger.plugins`); its name and version go into the record of each cycle.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from arranger.model.config import ANY_GPU, CycleConfig
from arranger.model.pod import PodShape
from arranger.scheduling.filters import PREFERENCES
from arranger.scheduling.neighbours import Neighbour
from arranger.scheduling.placement import Scores, fill, fill_by_margins
from arranger.scheduling.view import Chosen, ClusterView, Mask

#: Utilisation and scores are in millionths: 100 in the specification's formulas is 1,000,000 here.
ONE = 1_000_000


@dataclass(frozen=True, slots=True)
class Unplaced:
    """Equal pods of a job that have no node, with how many of them each node would take now, by row; `pod` as in
    `PlacementRequest`."""

    shape: PodShape
    pods: int
    room: Scores
    pod: Neighbour | None = None


@dataclass(frozen=True, slots=True)
class Typical:
    """Equal pods that wait or run in the cluster: how many, and the nodes where they may run, amounts apart."""

    shape: PodShape
    pods: int
    allowed: Mask


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """What is asked for: `count` equal pods of one job. For policies that aren't local, `of_job` are the job's pods by
    row, and `unplaced` all that still has no node, those asked for first (there may be more of them than `count`).
    For policies that weigh it, `mix` is what waits and runs in the whole cluster, the same all through a cycle.

    `pod` is one of them as other pods see it, and `preference` says by row which nodes come first among those that a
    policy scores alike (see `preferring`); None where neither matters."""

    shape: PodShape
    count: int
    leader: bool
    of_job: Scores | None = None
    unplaced: tuple[Unplaced, ...] = ()
    mix: tuple[Typical, ...] = ()
    pod: Neighbour | None = None
    preference: Scores | None = None

    def preferring(self, scores: Scores) -> Scores:
        """The policy's scores with the preference below them: what is compared. It doesn't change as a node fills, so
        scores that never fall still don't."""
        return scores if self.preference is None else scores * PREFERENCES + self.preference


@dataclass(frozen=True, slots=True)
class Term:
    """One part of a score, for explanations: what it measures, its weight, and its value by row, in millionths."""

    name: str
    weight: int
    values: Scores


class PodPolicy(ABC):
    """How a job's pods choose nodes. A policy holds no state of its own."""

    name: ClassVar[str]
    version: ClassVar[int]
    #: The quorum is every pod of the job.
    whole: ClassVar[bool] = False
    #: A node's score never falls as it fills, so equal pods fill the best node, then the next.
    rising: ClassVar[bool] = False
    #: Scores follow from node and shape alone: not from the job, and not from what else it asks for.
    local: ClassVar[bool] = False
    #: Scores look at `PlacementRequest.mix`.
    weighs_mix: ClassVar[bool] = False

    @abstractmethod
    def scores(self, view: ClusterView, request: PlacementRequest, config: CycleConfig, extra: int = 0) -> Scores:
        """The score of each node for one more pod after `extra` of them; only nodes with room mean anything."""

    def fill(self, view: ClusterView, request: PlacementRequest, room: Scores, config: CycleConfig) -> Chosen:
        """Nodes for up to `request.count` pods, as one by one would choose them."""
        if self.rising:
            return fill(request.preferring(self.scores(view, request, config)), room, request.count)
        return fill_by_margins(
            lambda extra: request.preferring(self.scores(view, request, config, extra)), room, request.count
        )

    def terms(self, view: ClusterView, request: PlacementRequest, config: CycleConfig) -> Iterator[Term]:
        """What the scores are made of, for explanations: by default the utilisation of each weighted resource."""
        return utilisation_terms(view, request.shape, self.weights(request, config))

    def weights(self, request: PlacementRequest, config: CycleConfig) -> dict[str, int]:
        """Resource → weight for the resources that the pod requests; those of weight 0 are left out."""
        found = {resource: weight_of(resource, config) for resource, _ in request.shape.requests}
        return {resource: weight for resource, weight in found.items() if weight}


def weight_of(resource: str, config: CycleConfig) -> int:
    """The resource's own weight, else that of GPUs if it is one, else 0."""
    for name, weight in config.weights:
        if name == resource:
            return weight
    gpus = next((weight for name, weight in config.weights if name == ANY_GPU), 0)
    return gpus if resource.endswith("/gpu") else 0


def share(view: ClusterView, resource: str, shape: PodShape, extra: int | Scores = 0) -> Scores:
    """U = (used + request) / allocatable of one resource after placing the pod (and `extra` before it), in millionths.

    One IEEE division, one multiplication and one rounding each, so every machine gives the same integers. It is 0
    where a node has none of it, and 1 where strangers overbooked it: there is no room there anyway.
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
    # Both are below 2^53, where the quotient of two doubles, cut off, is the exact integer quotient.
    return (total / sum(weights.values())).astype(np.int64) if weights else total


def utilisation_terms(view: ClusterView, shape: PodShape, weights: dict[str, int]) -> Iterator[Term]:
    """The shares that `utilisation` adds up."""
    for resource, weight in weights.items():
        yield Term(resource, weight, share(view, resource, shape))
