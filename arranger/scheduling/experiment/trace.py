"""A placement experiment on a trace: pods arrive one by one on an empty cluster and stay there if they fit.

It follows the published experiment on the openb trace (Weng et al., USENIX ATC 2023, and the table in its repository,
hkust-adsl/kubernetes-scheduler-simulator). The pods of the trace arrive in random order. If they request less than the
load, random pods of the trace follow until the next would exceed it; load 1.3 is 130 % of all GPUs. A pod that fits no
node is lost. Typical pods are the most frequent requests that make up 95 % of the trace. Nodes are renamed in a random
order, so that "the lowest name" doesn't depend on the trace's numbering.

All randomness comes from the seed by SplitMix64 (Steele, Lea, Flood 2014), so an experiment is the same on every
machine and with every version of numpy. The orders differ from those of the published runs.

Amounts are int64: millicores, MiB, and milli-GPU on each device.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from arranger.errors import UsageError
from arranger.scheduling.cluster.fragmentation import (
    GPU_MILLI,
    NO_FIT,
    Amounts,
    Mask,
    Mix,
    NodeStates,
    Request,
    fragments,
    most_frequent,
    take_whole,
)

#: Typical pods make up this share of a trace.
TYPICAL_PERCENT = 95

Indices = npt.NDArray[np.intp]


class TraceNode(msgspec.Struct, frozen=True):
    """A node with `gpus` devices of one model."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    model: str


class TracePod(msgspec.Struct, frozen=True):
    """A pod: a part of one GPU (`gpu_milli` below 1000), whole GPUs, or none. Without `models` any model will do."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    gpu_milli: int
    models: tuple[str, ...] = ()


class Shape(NamedTuple):
    """The request that equal pods share."""

    request: Request
    memory_mib: int


class DemandSample(msgspec.Struct, frozen=True):
    """The cluster during the arrivals at which the demand was `arrived_percent` of its GPUs (rounded).

    `allocated_percent` is the mean over those arrivals, as in the published table. `fragmented_percent` of all GPUs
    was fragmented after the last of them.
    """

    arrived_percent: int
    allocated_percent: float
    fragmented_percent: float


class TraceOutcome(msgspec.Struct, frozen=True):
    """The result of an experiment. `fragmented_idle_percent` is the fragmented part of the GPUs that are idle."""

    policy: str
    seed: int
    arrived_pods: int
    placed_pods: int
    arrived_percent: float
    allocated_percent: float
    fragmented_percent: float
    fragmented_idle_percent: float
    curve: tuple[DemandSample, ...]


class TraceCluster:
    """Nodes as columns: capacities and free amounts. `devices` [N × D] is the free milli-GPU."""

    def __init__(self, nodes: Sequence[TraceNode], models: Sequence[str]) -> None:
        def column(values: Sequence[int]) -> Amounts:
            return np.array(values, np.int64)

        self.cpu_milli = column([node.cpu_milli for node in nodes])
        self.memory_mib = column([node.memory_mib for node in nodes])
        self.gpus = column([node.gpus for node in nodes])
        self.model = column([models.index(node.model) for node in nodes])
        self.free_cpu_milli = self.cpu_milli.copy()
        self.free_memory_mib = self.memory_mib.copy()
        self.devices: Amounts = (np.arange(max(int(self.gpus.max()), 1)) < self.gpus[:, None]) * GPU_MILLI

    def rows(self, rows: Indices) -> "TraceCluster":
        """A copy of some nodes."""
        found = TraceCluster.__new__(TraceCluster)
        for name, values in self.__dict__.items():
            setattr(found, name, values[rows])
        return found

    @property
    def states(self) -> NodeStates:
        """The free amounts, as the measure of fragmentation takes them."""
        return NodeStates(self.free_cpu_milli, self.devices, self.model)

    def take(self, row: int, shape: Shape, device: int) -> None:
        """Place a pod: on `device` if it takes a part of a GPU, else on the first whole devices."""
        request = shape.request
        self.free_cpu_milli[row] -= request.cpu_milli
        self.free_memory_mib[row] -= shape.memory_mib
        if request.shared:
            self.devices[row, device] -= request.gpu_milli
        elif request.gpus:
            self.devices[row, take_whole(self.devices[row : row + 1] == GPU_MILLI, request.gpus)[0]] = 0


#: (nodes, shape, nodes where cpu, memory and model suffice, typical pods) → a score for each node (`NO_FIT` where GPUs
#: are short), and the device for a shared pod there. Both may depend on the node's own state alone.
Policy = Callable[[TraceCluster, Shape, Mask, Mix], tuple[Amounts, Indices]]


class Experiment:
    """One policy, one load, one seed. Raises `UsageError` if the nodes or the pods of the trace have no GPUs."""

    def __init__(
        self,
        nodes: Sequence[TraceNode],
        pods: Sequence[TracePod],
        *,
        policy: str,
        score: Policy,
        load: float,
        seed: int,
    ) -> None:
        if not sum(node.gpus for node in nodes):
            raise UsageError("the nodes of the trace have no GPUs", hint="the load is measured in GPUs")
        if not any(pod.gpus * pod.gpu_milli for pod in pods):
            raise UsageError("no pod of the trace asks for a GPU", hint="the load is measured in GPUs")
        self._policy, self._seed = policy, seed
        named = sorted(nodes, key=lambda node: node.name)
        models = sorted({node.model for node in nodes})
        self.cluster = TraceCluster([named[slot] for slot in _shuffled(seed, 0, len(named))], models)
        asked = [Request(pod.cpu_milli, pod.gpus, pod.gpu_milli, pod.models) for pod in pods]
        self.mix = Mix(most_frequent(asked, share_percent=TYPICAL_PERCENT), models)
        self._total_milli = int(self.cluster.gpus.sum()) * GPU_MILLI
        numbers: dict[Shape, int] = {}
        shape_of = [
            numbers.setdefault(Shape(request, pod.memory_mib), len(numbers))
            for request, pod in zip(asked, pods, strict=True)
        ]
        self.shapes = list(numbers)
        demand = np.array([request.total_milli for request in asked], np.int64)
        #: The arriving pods, in order, as indices of `shapes`.
        self.arrivals: Indices = np.array(shape_of)[_arrivals(demand, round(load * self._total_milli), seed)]
        self._board = _Board(self.cluster, self.shapes, models, self.mix, score)

    def run(self, moved: Callable[[int], object] | None = None) -> TraceOutcome:
        """Place all pods, once; `moved` regularly receives the number of pods that arrived since its last call."""
        board, total = self._board, self._total_milli
        demand = [shape.request.total_milli for shape in self.shapes]
        meter = _Meter(self.cluster, self.mix)
        arrived = allocated = placed = percent = told = 0
        trail: list[tuple[int, int]] = []
        fragmented: dict[int, int] = {}
        for number in self.arrivals.tolist():
            arrived += demand[number]
            reached = (200 * arrived + total) // (2 * total)
            if reached != percent:
                fragmented[percent] = meter.read(board.changed)
                if moved is not None:
                    moved(len(trail) - told)
                percent, told = reached, len(trail)
            if board.place(number):
                allocated += demand[number]
                placed += 1
            trail.append((percent, allocated))
        fragmented[percent] = meter.read(board.changed)
        if moved is not None and trail:
            moved(len(trail) - told)
        weight, idle = self.mix.total_weight, int(self.cluster.devices.sum())
        return TraceOutcome(
            policy=self._policy,
            seed=self._seed,
            arrived_pods=len(trail),
            placed_pods=placed,
            arrived_percent=_percent(arrived, total),
            allocated_percent=_percent(allocated, total),
            fragmented_percent=_percent(fragmented[percent], total * weight),
            fragmented_idle_percent=_percent(fragmented[percent], idle * weight) if idle else 0.0,
            curve=_curve(trail, fragmented, total, weight),
        )


class _Board:
    """Every node's score for every shape. A score depends on its node alone, so a placement outdates only the scores of
    that node. They are computed again when a pod of the shape arrives."""

    def __init__(
        self, cluster: TraceCluster, shapes: list[Shape], models: Sequence[str], mix: Mix, score: Policy
    ) -> None:
        nodes = len(cluster.gpus)
        self.shapes = shapes
        self._cluster, self._mix, self._score = cluster, mix, score
        self._accepted: Mask = np.array(
            [[not s.request.total_milli or s.request.accepts(model) for model in models] for s in shapes], bool
        )
        self._scores = np.full((len(shapes), nodes), NO_FIT)
        self._devices: Indices = np.zeros((len(shapes), nodes), np.intp)
        #: The number of the last placement that changed each node, and of the last that each shape's scores include.
        self.changed: Amounts = np.zeros(nodes, np.int64)
        self._taken = [-1] * len(shapes)
        self._placements = 0

    def place(self, number: int) -> bool:
        """Place one pod of the shape on the best node, the lowest among equals; False if no node fits."""
        scores = self._scores[number]
        rows = np.flatnonzero(self.changed > self._taken[number])
        if len(rows):
            self._take_again(number, rows)
        best = int(scores.argmax())
        if scores[best] == NO_FIT:
            return False
        self._cluster.take(best, self.shapes[number], int(self._devices[number, best]))
        self._placements += 1
        self.changed[best] = self._placements
        return True

    def _take_again(self, number: int, rows: Indices) -> None:
        shape, nodes = self.shapes[number], self._cluster.rows(rows)
        fits = nodes.free_cpu_milli >= shape.request.cpu_milli
        fits &= nodes.free_memory_mib >= shape.memory_mib
        fits &= self._accepted[number][nodes.model]
        self._scores[number, rows], self._devices[number, rows] = self._score(nodes, shape, fits, self._mix)
        self._taken[number] = self._placements


class _Meter:
    """The cluster's fragmentation, computed again only for nodes that changed since the last reading."""

    def __init__(self, cluster: TraceCluster, mix: Mix) -> None:
        self._cluster, self._mix = cluster, mix
        self._fragments: Amounts = np.zeros(len(cluster.gpus), np.int64)
        self._read = -1

    def read(self, changed: Amounts) -> int:
        """F summed over all nodes, in milli-GPU times weight."""
        rows = np.flatnonzero(changed > self._read)
        self._fragments[rows] = fragments(self._cluster.rows(rows).states, self._mix)
        self._read = int(changed.max())
        return int(self._fragments.sum())


# --- arrivals ----------------------------------------------------------------------------------------------


def _arrivals(demand: Amounts, limit: int, seed: int) -> Indices:
    """The arriving pods, in order: all of them shuffled, then random ones, until the next would exceed the limit."""
    order = _shuffled(seed, 1, len(demand))
    while int(demand[order].sum()) <= limit:
        order = np.concatenate((order, _drawn(seed, len(order), len(demand))))
    return order[: int(np.searchsorted(np.cumsum(demand[order]), limit, side="right"))]


def _shuffled(seed: int, stream: int, count: int) -> Indices:
    """A random order of the numbers below `count`."""
    return np.argsort(_random(seed, stream, 0, count), kind="stable")


def _drawn(seed: int, after: int, count: int) -> Indices:
    """`count` random numbers below `count`, which follow the first `after` numbers of the stream."""
    return (_random(seed, 2, after, count) % np.uint64(count)).astype(np.intp)


def _random(seed: int, stream: int, first: int, count: int) -> npt.NDArray[np.uint64]:
    """SplitMix64's outputs from `first` on, of a generator seeded by `seed` and `stream`."""
    begin = (seed * 4 + stream) % (1 << 32) << 32
    state = np.arange(first + 1, first + count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(begin)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


# --- figures -----------------------------------------------------------------------------------------------


def _percent(part: int, whole: int) -> float:
    return 100 * part / whole


def _curve(
    trail: list[tuple[int, int]], fragmented: dict[int, int], total: int, weight: int
) -> tuple[DemandSample, ...]:
    """One sample for each whole percent of demand that some arrival has reached."""
    sums: dict[int, tuple[int, int]] = {}
    for percent, allocated in trail:
        count, summed = sums.get(percent, (0, 0))
        sums[percent] = count + 1, summed + allocated
    return tuple(
        DemandSample(percent, _percent(summed, total * count), _percent(fragmented[percent], total * weight))
        for percent, (count, summed) in sums.items()
    )
