"""Fragmentation of GPUs: the idle part of a node that typical pods can't use.

The measure and the idea to descend its gradient are from Weng et al., "Beware of Fragmentation: Scheduling
GPU-Sharing Workloads with Fragmentation Gradient Descent" (USENIX ATC 2023). With a mix M of typical pods m, each of
weight w_m, and R_g the idle part of GPU g of node n in milli-GPU:

    F_n(m) = Σ_g R_g                      if m can't run on n now, or asks for no GPU at all
           = Σ_g R_g where R_g < need_m   otherwise: what is left on GPUs too full for m (need_m: milli-GPU on each GPU)
    F_n(M) = Σ_m w_m F_n(m)

`m` can run on n if enough cpu is free, n has one of the models that m accepts, and at least as many GPUs as m requests
have need_m free each. Memory is left out, as in the paper: GPU nodes don't run out of it. F is kept as the whole number
Σ_m w_m F_n(m), in milli-GPU times weight; dividing by the sum of weights gives milli-GPU.

So each pod without GPUs makes every idle GPU a fragment. That is the published measure, which the trace experiments
compare with. `what-if` asks how many idle GPUs nobody can use, and leaves such pods out of its mix
(`replay/what_if/utilisation.py`).

The gradient of a placement is F_n before less F_n after it. The higher it is, the more the placement uses what no other
typical pod could use. Gradients are compared in steps of `STEP_MILLI`, counted from 0 and rounded down. Among equal
steps a shared pod takes the device with the least room; then the lowest node wins. The rounding of scores matters. On
the openb trace at load 1.3, exact values scatter pods, because some distant decimal always decides: 94.5 % of the GPUs
are allocated. The published experiment rounds a sigmoid of the gradient to whole percents, which are 40 milli-GPU
around 0 and wider further out, and takes the lowest name: 95.4 %. Steps of 80 with the lowest name give 95.4 %, with
the tightest device first 95.5 %. All values are integers, so every machine decides equally.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Amounts = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

#: A whole GPU.
GPU_MILLI = 1000

#: The size of the steps in which gradients are compared.
STEP_MILLI = 80

#: One step outweighs any room on a device.
_STEP_SCORE = 2 * GPU_MILLI

#: The score of a node that the pod doesn't fit.
NO_FIT = int(np.iinfo(np.int64).min)


class Request(NamedTuple):
    """The part of a pod's request that matters for GPUs: millicores, and `gpu_milli` on each of `gpus` devices.

    `models` are the GPU models that the pod accepts; an empty tuple means any.
    """

    cpu_milli: int
    gpus: int
    gpu_milli: int
    models: tuple[str, ...] = ()

    @property
    def shared(self) -> bool:
        """Whether the pod takes a part of one GPU, so that the choice of the device matters."""
        return self.gpus == 1 and self.gpu_milli < GPU_MILLI

    @property
    def total_milli(self) -> int:
        """The whole request for GPUs, in milli-GPU."""
        return self.gpus * self.gpu_milli

    def accepts(self, model: str) -> bool:
        return not self.models or model in self.models


class NodeStates(NamedTuple):
    """What is free on N nodes: millicores [N], milli-GPU [N × D] (0 where a node has fewer than D GPUs), and the
    index of each node's GPU model [N] in the mix's list of models."""

    cpu_milli: Amounts
    device_milli: Amounts
    model: Amounts


class Mix:
    """Typical pods with their weights, as columns; pods without GPUs only add to `total_weight`."""

    def __init__(self, requests: Iterable[tuple[Request, int]], models: Sequence[str]) -> None:
        counted = list(requests)
        asking = [(request, weight) for request, weight in counted if request.total_milli]
        self.total_weight = sum(weight for _, weight in counted)
        self.weights = np.array([weight for _, weight in asking], np.int64)
        self.cpu_milli = np.array([request.cpu_milli for request, _ in asking], np.int64)
        self.gpus = np.array([request.gpus for request, _ in asking], np.int64)
        needs = sorted({request.gpu_milli for request, _ in asking})
        #: The different needs on one GPU, ascending, and the index of each pod's need.
        self.needs = np.array(needs, np.int64)
        self.need_of = np.array([needs.index(request.gpu_milli) for request, _ in asking], np.intp)
        #: Models × pods.
        self.accepted: Mask = np.array(
            [[request.accepts(model) for request, _ in asking] for model in models], bool
        ).reshape(len(models), len(asking))


def most_frequent(requests: Iterable[Request], *, share_percent: int) -> list[tuple[Request, int]]:
    """The fewest requests, with counts, that cover this share of all: the most frequent first, then the largest."""
    counts: dict[Request, int] = {}
    for request in requests:
        counts[request] = counts.get(request, 0) + 1
    return covering(counts, share_percent=share_percent)


def covering(counts: Mapping[Request, int], *, share_percent: int) -> list[tuple[Request, int]]:
    """As `most_frequent`, for requests that are already counted."""
    ranked = sorted(counts.items(), key=lambda item: (item[1], item[0]), reverse=True)
    total, covered, found = sum(counts.values()), 0, []
    for request, count in ranked:
        if covered * 100 >= share_percent * total:
            break
        found.append((request, count))
        covered += count
    return found


def usable(states: NodeStates, mix: Mix) -> Amounts:
    """Σ_m w_m · (idle milli-GPU that m could use) of each node [N]: the part that isn't fragmented."""
    # Most calls are for a handful of nodes, so the number of numpy calls decides the cost.
    enough = (states.device_milli[:, None, :] >= mix.needs[:, None]).astype(np.int64)
    gpus = enough.sum(axis=2)
    milli = (enough @ states.device_milli[:, :, None])[:, :, 0]
    runs = states.cpu_milli[:, None] >= mix.cpu_milli
    runs &= gpus[:, mix.need_of] >= mix.gpus
    runs &= mix.accepted[states.model]
    found: Amounts = (milli[:, mix.need_of] * runs) @ mix.weights
    return found


def fragments(states: NodeStates, mix: Mix) -> Amounts:
    """F_n(M) of each node [N], in milli-GPU times weight."""
    idle: Amounts = states.device_milli.sum(axis=1)
    return mix.total_weight * idle - usable(states, mix)


def score_placements(
    states: NodeStates, request: Request, fits: Mask, mix: Mix
) -> tuple[Amounts, npt.NDArray[np.intp]]:
    """For one pod on each of N nodes: the gradient in steps, as a score, and the device for a shared pod.

    `fits` [N] marks nodes where everything but the GPUs suffices; the score is `NO_FIT` where that or they don't. A
    shared pod takes the device with the best score, the first among equals. Whole GPUs are equivalent, and their device
    is 0. Scores are comparable only within one request.
    """
    if request.shared:
        return _score_shared(states, request, fits, mix)
    scores = np.full(len(fits), NO_FIT)
    whole = states.device_milli == GPU_MILLI
    rows = np.flatnonzero(fits & (whole.sum(axis=1) >= request.gpus))
    if len(rows):
        scores[rows] = _steps(states, rows, request, take_whole(whole[rows], request.gpus), mix)
    return scores, np.zeros(len(fits), np.intp)


def take_whole(whole: Mask, gpus: int) -> Mask:
    """The first `gpus` of each node's whole GPUs [N × D]."""
    return whole & (np.cumsum(whole, axis=1) <= gpus)


def _score_shared(states: NodeStates, request: Request, fits: Mask, mix: Mix) -> tuple[Amounts, npt.NDArray[np.intp]]:
    device = states.device_milli
    scores = np.full(device.shape, NO_FIT)
    candidates = (device >= request.gpu_milli) & fits[:, None] & _first_of_equals(device)
    rows, devices = np.nonzero(candidates)
    if len(rows):
        taken = np.arange(device.shape[1]) == devices[:, None]
        scores[rows, devices] = _steps(states, rows, request, taken, mix) - device[rows, devices]
    best = scores.argmax(axis=1)
    return scores[np.arange(len(best)), best], best


def _first_of_equals(device: Amounts) -> Mask:
    """Devices [N × D] without those that have as much free as an earlier device of their node."""
    before = np.tri(device.shape[1], k=-1, dtype=bool)
    repeats: Mask = np.any((device[:, :, None] == device[:, None, :]) & before, axis=2)
    return ~repeats


def _steps(states: NodeStates, rows: npt.NDArray[np.intp], request: Request, taken: Mask, mix: Mix) -> Amounts:
    """The scores of K placements, on the nodes `rows` [K] and their devices `taken` [K × D]."""
    both = NodeStates(
        np.concatenate((states.cpu_milli, states.cpu_milli[rows] - request.cpu_milli)),
        np.concatenate((states.device_milli, states.device_milli[rows] - taken * request.gpu_milli)),
        np.concatenate((states.model, states.model[rows])),
    )
    of_both = usable(both, mix)
    nodes = len(states.model)
    gradient = mix.total_weight * request.total_milli - of_both[:nodes][rows] + of_both[nodes:]
    return gradient // (STEP_MILLI * mix.total_weight) * _STEP_SCORE
