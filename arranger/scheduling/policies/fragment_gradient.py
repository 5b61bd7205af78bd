"""FragmentGradient: leave the most usable GPUs to typical pods. It is meant for clusters of mixed GPU sizes.

The measure, the gradient and its steps are those of `scheduling/cluster/fragmentation.py` (Weng et al., USENIX ATC
2023), for GPUs that are free or taken as a whole, as extended resources are. With a mix of request shapes m of weight
w_m and g_{n,r} GPUs of resource r free on node n,

    F_n = Σ_m w_m Σ_r g_{n,r} where m doesn't ask for r or can't run on n now

and a node's score is F_n before less F_n after placing the pod, per unit of weight, in steps rounded down; highest
wins, then the lowest node name. Every accelerator is a GPU here. Shape m can run on n if n has enough of every
requested resource and, where the caller gives `allowed`, m's selectors and tolerations match.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

import numpy as np

from arranger.model.accelerators import is_accelerator
from arranger.model.config import CycleConfig
from arranger.model.pod import PodShape
from arranger.scheduling.cluster.fragmentation import GPU_MILLI, STEP_MILLI
from arranger.scheduling.cluster.mix import Mix
from arranger.scheduling.cluster.view import ClusterView, Levels, Mask
from arranger.scheduling.policies.base import ONE, PlacementRequest, PodPolicy, Term
from arranger.scheduling.policies.closed_form import Scores

#: Nodes of the view where a shape may run, regardless of resources.
Allowed = Callable[[PodShape], Mask]

#: Free amounts, by column of the view.
Columns = Sequence[Levels]

#: One step in millionths of a GPU.
STEP = STEP_MILLI * ONE // GPU_MILLI


class FragmentGradient(PodPolicy):
    """The node where the pod takes the fewest GPUs that the cluster's own mix of pods could use."""

    name, version, local = "FragmentGradient", 1, True
    weighs_mix: ClassVar[bool] = True

    def scores(self, view: ClusterView, request: PlacementRequest, config: CycleConfig, extra: int = 0) -> Scores:
        """The reduction of fragmented GPUs by the placement, in millionths, by steps."""
        mix = [(one.shape, one.pods) for one in request.mix]
        allowed = {one.shape: one.allowed for one in request.mix}
        return scores(view, request.shape, mix, extra=extra, allowed=allowed.__getitem__) * STEP

    def terms(self, view: ClusterView, request: PlacementRequest, config: CycleConfig) -> Iterator[Term]:
        """The gradient is the only term."""
        yield Term("GPUs less of a fragment", 1, self.scores(view, request, config))


def scores(
    view: ClusterView,
    shape: PodShape,
    mix: Mix,
    *,
    extra: int = 0,
    allowed: Allowed | None = None,
) -> Scores:
    """The score of every node for one more pod after `extra` of them, in steps; meaningless for nodes without room."""
    weight = sum(count for _, count in mix)
    if not weight:
        return np.zeros(len(view), np.int64)
    asking = [(asked, gpus, count) for asked, count in mix if (gpus := _gpus(asked))]
    typical = [_Typical(view, asked, gpus, count, allowed) for asked, gpus, count in asking]
    request = view.request(shape)
    before, after = [list(view.free.T) for _ in range(2)]
    for column in np.flatnonzero(request).tolist():
        before[column] = before[column] - request[column] * extra
        after[column] = before[column] - request[column]
    gradient = _usable(typical, after) - _usable(typical, before)
    gradient += weight * sum(amount for _, amount in _gpus(shape))
    # All values are whole numbers below 2^53, which doubles represent exactly.
    return gradient.astype(np.int64) * GPU_MILLI // (STEP_MILLI * weight)


class _Typical:
    """One shape of the mix that asks for GPUs, as columns of the view.

    Shapes without GPUs can't use any: they count only in the sum of weights.
    """

    def __init__(
        self, view: ClusterView, shape: PodShape, gpus: list[tuple[str, int]], count: int, allowed: Allowed | None
    ) -> None:
        vector = view.request(shape)
        self.count = float(count)
        self.gpus = tuple(column for name, _ in gpus if (column := view.column(name)) is not None)
        self._needs = [(column, float(vector[column])) for column in np.flatnonzero(vector).tolist()]
        self._allowed = allowed(shape) if allowed is not None else None

    def runs(self, free: Columns) -> Mask:
        """The nodes that take one more such pod, given these free amounts."""
        (column, amount), *others = self._needs  # never empty: every pod requests 1 of `pods`
        found: Mask = free[column] >= amount
        for column, amount in others:
            found &= free[column] >= amount
        if self._allowed is not None:
            found &= self._allowed
        return found


def _usable(typical: list[_Typical], free: Columns) -> Levels:
    """Free GPUs that each typical pod could use, times its count, summed over all of them, by node."""
    # Shapes with the same kinds of GPU are counted together, to multiply by the free amounts only once.
    counts: dict[tuple[int, ...], Levels] = {}
    for one in typical:
        found = counts.get(one.gpus)
        if found is None:
            found = counts[one.gpus] = np.zeros(len(free[0]))
        found += one.runs(free) * one.count
    usable: Levels = np.zeros(len(free[0]))
    for gpus, found in counts.items():
        for column in gpus:
            usable += found * free[column]
    return usable


def _gpus(shape: PodShape) -> list[tuple[str, int]]:
    return [(resource, amount) for resource, amount in shape.requests if is_accelerator(resource)]
