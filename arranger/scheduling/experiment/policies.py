"""The policies for trace experiments: fragmentation gradient, the published best fit, and Arranger's pod policies.

A trace has pods without jobs, so every pod is a job of its own. Gang and JobAffinity then place like BinPack and
aren't listed; JobAntiAffinity is reduced to its tie rule, the lowest utilisation; LeaderFirst places every pod as a
worker. Utilisation of GPUs counts milli-GPU over all devices of a node. Except under FragmentGradient, a shared pod
takes the device with the least room that suffices, the first among equals, as the published baselines do.
"""

from collections.abc import Iterator

import numpy as np

from arranger.model.config import ANY_ACCELERATOR, CycleConfig
from arranger.scheduling.cluster.fragmentation import GPU_MILLI, NO_FIT, Amounts, Mask, Mix, score_placements
from arranger.scheduling.experiment.trace import Indices, Policy, Shape, TraceCluster
from arranger.scheduling.policies.base import ONE
from arranger.scheduling.policies.leader_first import RAISED

#: The largest node that the published experiment scales best fit with, and the score of a perfect fit.
_FULL_CPU_MILLI, _FULL_GPU_MILLI, _PERFECT = 128_000, 8_000, 100

_WEIGHTS = dict(CycleConfig().weights)
_CPU, _MEMORY, _GPU = _WEIGHTS["cpu"], _WEIGHTS["memory"], _WEIGHTS[ANY_ACCELERATOR]


def fragment_gradient(nodes: TraceCluster, shape: Shape, fits: Mask, mix: Mix) -> tuple[Amounts, Indices]:
    """The placement that reduces fragmentation most, or increases it least; the device is part of the choice."""
    return score_placements(nodes.states, shape.request, fits, mix)


def best_fit(nodes: TraceCluster, shape: Shape, fits: Mask, mix: Mix) -> tuple[Amounts, Indices]:
    """The least left over: the mean of free cpu and free GPU after placing, in percent of the largest node."""
    request = shape.request
    cpu_left = nodes.free_cpu_milli - request.cpu_milli
    gpu_left = nodes.devices.sum(axis=1) - request.total_milli
    scale = _FULL_CPU_MILLI // _FULL_GPU_MILLI
    left = _PERFECT * (cpu_left + gpu_left * scale)
    scores = (2 * _PERFECT * _FULL_CPU_MILLI - left) // (2 * _FULL_CPU_MILLI)
    return _on_tightest(nodes, shape, fits, scores)


def most_allocated(nodes: TraceCluster, shape: Shape, fits: Mask, mix: Mix) -> tuple[Amounts, Indices]:
    """MostAllocated: as BinPack, over all resources; what a node has none of is all in use."""
    there = (nodes.cpu_milli, nodes.memory_mib, nodes.gpus)
    total = np.zeros(len(nodes.gpus), np.int64)
    for (_, weight, share), capacity in zip(_utilisation(nodes, shape, cpu_weight=_CPU), there, strict=True):
        total += weight * np.where(capacity > 0, share, ONE)
    return _on_tightest(nodes, shape, fits, total // (_CPU + _MEMORY + _GPU))


def bin_pack(nodes: TraceCluster, shape: Shape, fits: Mask, mix: Mix) -> tuple[Amounts, Indices]:
    """BinPack of the specification."""
    return _on_tightest(nodes, shape, fits, _packed(nodes, shape, cpu_weight=_CPU))


def leader_first(nodes: TraceCluster, shape: Shape, fits: Mask, mix: Mix) -> tuple[Amounts, Indices]:
    """LeaderFirst of the specification, for workers: BinPack with the weight of cpu raised."""
    return _on_tightest(nodes, shape, fits, _packed(nodes, shape, cpu_weight=_CPU * RAISED))


def min_fragment(nodes: TraceCluster, shape: Shape, fits: Mask, mix: Mix) -> tuple[Amounts, Indices]:
    """MinFragment of the specification: BinPack times the balance of the utilisations of cpu and memory."""
    (_, _, cpu), (_, _, memory), _ = _utilisation(nodes, shape, cpu_weight=_CPU)
    scores = (ONE - np.abs(cpu - memory)) * _packed(nodes, shape, cpu_weight=_CPU) // ONE
    return _on_tightest(nodes, shape, fits, scores)


def job_anti_affinity(nodes: TraceCluster, shape: Shape, fits: Mask, mix: Mix) -> tuple[Amounts, Indices]:
    """JobAntiAffinity of the specification if all nodes have equally many pods of the job: the lowest utilisation."""
    return _on_tightest(nodes, shape, fits, -_packed(nodes, shape, cpu_weight=_CPU))


#: Named as Arranger's pod policies; best fit as in the published table.
POLICIES: dict[str, Policy] = {
    "FragmentGradient": fragment_gradient,
    "BestFit": best_fit,
    "MostAllocated": most_allocated,
    "BinPack": bin_pack,
    "MinFragment": min_fragment,
    "LeaderFirst": leader_first,
    "JobAntiAffinity": job_anti_affinity,
}


def _on_tightest(nodes: TraceCluster, shape: Shape, fits: Mask, scores: Amounts) -> tuple[Amounts, Indices]:
    """The scores, `NO_FIT` where the GPUs don't suffice, and the sufficient device with the least room."""
    request = shape.request
    room = np.where(nodes.devices >= request.gpu_milli, nodes.devices, GPU_MILLI + 1)
    enough = (room <= GPU_MILLI).sum(axis=1) >= request.gpus
    return np.where(fits & enough, scores, NO_FIT), room.argmin(axis=1)


def _packed(nodes: TraceCluster, shape: Shape, *, cpu_weight: int) -> Amounts:
    """Σ w u / Σ w in millionths, over the requested resources."""
    total = np.zeros(len(nodes.gpus), np.int64)
    weights = 0
    for asked, weight, share in _utilisation(nodes, shape, cpu_weight=cpu_weight):
        if asked:
            total += weight * share
            weights += weight
    return total // weights if weights else total


def _utilisation(nodes: TraceCluster, shape: Shape, *, cpu_weight: int) -> Iterator[tuple[int, int, Amounts]]:
    """For cpu, memory and GPUs: requested amount, weight, and each node's utilisation after placing, in millionths."""
    request = shape.request
    columns = (
        (request.cpu_milli, cpu_weight, nodes.cpu_milli, nodes.free_cpu_milli),
        (shape.memory_mib, _MEMORY, nodes.memory_mib, nodes.free_memory_mib),
        (request.total_milli, _GPU, nodes.gpus * GPU_MILLI, nodes.devices.sum(axis=1)),
    )
    for asked, weight, capacity, free in columns:
        part = np.divide(capacity - free + asked, capacity, out=np.zeros(len(capacity)), where=capacity > 0)
        yield asked, weight, np.rint(np.minimum(part, 1.0) * ONE).astype(np.int64)
