"""What a cluster does now, as numbers for its metrics: jobs by stage, waiting jobs by cause, GPUs by node pool.

A measurement looks at every job and slot once, so the caller does it in portions (`ClusterMeasures.add`). Names that
users choose are bounded: beyond so many queues or node pools, the rest is one line, `OTHER`.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from arranger.model.job import JobSpec
from arranger.model.pod import gpus_of
from arranger.model.queue import DEFAULT_QUEUE
from arranger.projections.cluster.nodes import Amounts, NodeTable, Version
from arranger.projections.derived.queue_counts import queue_of
from arranger.projections.jobs.records import JobRecord
from arranger.projections.queues.tree import QueueTree
from arranger.projections.state import State
from arranger.replay.ledger.causes import causes_of
from arranger.replay.what_if.utilisation import fragmented_gpus, gpu_columns, request_of, typical_mix
from arranger.scheduling import Request

#: The line of all queues or node pools beyond the bound.
OTHER = "(other)"
#: The line of what has none: pods that fill no slot of a TYJob, and nodes without a label that names their pool.
NONE = "(none)"
#: The labels that the large providers, and Karpenter, set on the nodes of a pool.
PROVIDERS_LABELS = (
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "kubernetes.azure.com/agentpool",
    "karpenter.sh/nodepool",
)
#: The number of queues, and of node pools, that have lines of their own.
QUEUES_MEASURED, POOLS_MEASURED = 100, 50

_Key = TypeVar("_Key", bound=Hashable)

#: (node pool, queue) → GPUs.
PoolUse = dict[tuple[str, str], int]


class MeasuredQueues:
    """Which queues have lines of their own: of many, those nearest to the root, then by name. Users can't add to them,
    because only queues that exist count."""

    def __init__(self) -> None:
        self._tree: QueueTree | None = None
        self._names: Mapping[str, None] = {}

    def name(self, state: State, job: JobRecord) -> str:
        """The line of a job's queue."""
        tree = state.queue_tree
        if tree is not self._tree:
            ordered = sorted(tree.specs, key=lambda name: (name != DEFAULT_QUEUE, len(tree.paths.get(name, ())), name))
            self._tree, self._names = tree, dict.fromkeys(ordered[:QUEUES_MEASURED])
        queue = queue_of(state, job)
        return queue if queue in self._names else OTHER


class NodePools:
    """The pool of each node, and which nodes take pods. `label` names the pool; if it is empty, the first of the labels
    that providers set does."""

    def __init__(self, label: str = "") -> None:
        self._labels = (label,) if label else PROVIDERS_LABELS
        self._version: Version | None = None
        #: The pools, those with the most GPUs first.
        self.names: list[str] = []
        #: Node → its pool, by name; rows of the present nodes with the number of their pool, and whether they are open.
        self.of_node: dict[str, str] = {}
        self.rows = self.numbers = np.zeros(0, np.int64)
        self.open = np.zeros(0, bool)

    def look(self, nodes: NodeTable) -> None:
        """Bring everything up to date with the nodes' facts."""
        if nodes.facts_version is self._version:
            return
        self._version, self.rows = nodes.facts_version, nodes.by_name()
        facts = [nodes.facts[row] for row in self.rows.tolist()]
        pools = [self._pool(of.labels) for of in facts]
        gpus: dict[str, int] = {}
        for pool, of in zip(pools, facts, strict=True):
            gpus[pool] = gpus.get(pool, 0) + gpus_of(of.allocatable)
        ordered = sorted((pool for pool, count in gpus.items() if count), key=lambda pool: (-gpus[pool], pool))
        self.names = [*ordered[:POOLS_MEASURED], OTHER]
        numbers = {pool: number for number, pool in enumerate(self.names)}
        lines = [pool if pool in numbers else OTHER for pool in pools]
        names = [nodes.names[row] for row in self.rows.tolist()]
        self.of_node = dict(zip(names, lines, strict=True))
        self.numbers = np.array([numbers[line] for line in lines], np.int64)
        self.open = np.array([of.ready and not of.cordoned for of in facts], bool)

    def _pool(self, labels: Sequence[tuple[str, str]]) -> str:
        found = dict(labels)
        return next((value for key in self._labels if (value := found.get(key, ""))), NONE)

    def sums(self, amounts: Amounts) -> dict[str, int]:
        """Amounts of the present nodes added up by pool."""
        totals = np.bincount(self.numbers, weights=amounts, minlength=len(self.names)).tolist()
        return {pool: round(total) for pool, total in zip(self.names, totals, strict=True)}


class ClusterMeasures:
    """One measurement: give it every job, then `finish` it."""

    def __init__(self, state: State, pools: NodePools, queues: MeasuredQueues) -> None:
        self._state = state
        self._pools = pools
        self._queues = queues
        pools.look(state.nodes)
        #: (queue, stage) and (queue, cause) → jobs.
        self.jobs: dict[tuple[str, str], int] = {}
        self.waiting: dict[tuple[str, str], int] = {}
        #: GPUs by node pool, and by queue. `used`: of slots with nodes, and of pods that fill no slot. `reserved`:
        #: kept for jobs that wait, by a reservation or because others are to leave them to it. `idle`: of nodes that
        #: take pods. `reserved_idle`: idle, and kept by reservations. `fragmented`: idle, and of no use to typical
        #: pods.
        self.used: PoolUse = {}
        self.reserved: PoolUse = {}
        self.there: dict[str, int] = {}
        self.idle: dict[str, int] = {}
        self.reserved_idle: dict[str, int] = {}
        self.fragmented: dict[str, float] = {}
        #: GPUs by node that reservations keep, in use or not.
        self._kept: dict[str, int] = {}
        #: GPUs in use by pool that the node table counts for jobs.
        self._of_jobs: dict[str, int] = {}
        #: Pods that ask for GPUs, with their number.
        self._requests: dict[Request, int] = {}

    def add(self, job: JobRecord) -> None:
        """Count one job."""
        state, queue = self._state, self._queues.name(self._state, job)
        _count(self.jobs, (queue, str(job.stage)), 1)
        if job.spec is None:
            return
        if causes := causes_of(state, job):
            cause, _ = max(causes, key=lambda one: (one[1], one[0]))
            _count(self.waiting, (queue, str(cause)), 1)
        gpus = [gpus_of(group.shape.requests) for group in job.spec.groups]
        if not any(gpus):
            return
        if job.active:
            self._note_requests(job.spec)
        room = self.used if job.slots.room is None else self.reserved
        self._hold(room, queue, ((node, gpus[group]) for (group, _), node in job.placements.items()))
        reservation = state.reservations.get(job.uid)
        for of in reservation.decided.pods if reservation is not None else ():
            pods = sum(last - first + 1 for first, last in of.indices)
            pool = self._pools.of_node.get(of.node, OTHER)
            _count(self.reserved, (pool, queue), gpus[of.group] * pods)
            _count(self._kept, of.node, gpus[of.group] * pods)

    def _note_requests(self, spec: JobSpec) -> None:
        for group in spec.groups:
            request = request_of(group.shape)
            if request is not None and group.count:
                self._requests[request] = self._requests.get(request, 0) + group.count

    def _hold(self, room: PoolUse, queue: str, pods: Iterable[tuple[str, int]]) -> None:
        """Count the GPUs of pods of one job, by their nodes."""
        by_pool: dict[str, int] = {}
        of_node = self._pools.of_node
        for node, count in pods:
            if count:
                _count(by_pool, of_node.get(node, OTHER), count)
        for pool, count in by_pool.items():
            _count(room, (pool, queue), count)
            _count(self._of_jobs, pool, count)

    def finish(self) -> None:
        """Add what the nodes say."""
        nodes, pools = self._state.nodes, self._pools
        pools.look(nodes)
        columns = gpu_columns(nodes)
        there = nodes.allocatable[pools.rows][:, columns].sum(axis=1)
        used = nodes.used[pools.rows][:, columns].sum(axis=1)
        idle = np.where(pools.open, np.maximum(nodes.free()[pools.rows][:, columns], 0).sum(axis=1), 0)
        kept = np.zeros(len(nodes.allocatable), np.int64)
        for node, count in self._kept.items():
            if nodes.has(node):
                kept[nodes.rows[node]] = count
        self.there = {pool: total for pool, total in pools.sums(there).items() if total}
        all_used, all_idle = pools.sums(used), pools.sums(idle)
        self.idle = {pool: all_idle[pool] for pool in self.there}
        reserved_idle = pools.sums(np.minimum(idle, kept[pools.rows]))
        self.reserved_idle = {pool: reserved_idle[pool] for pool in self.there}
        for pool in self.there:
            if (others := all_used[pool] - self._of_jobs.get(pool, 0)) > 0:
                _count(self.used, (pool, NONE), others)
        fragments = np.where(pools.open, fragmented_gpus(nodes, pools.rows, typical_mix(self._requests)), 0.0)
        totals = np.bincount(pools.numbers, weights=fragments, minlength=len(pools.names)).tolist()
        self.fragmented = {pool: total for pool, total in zip(pools.names, totals, strict=True) if pool in self.there}


def _count(found: dict[_Key, int], key: _Key, count: int) -> None:
    found[key] = found.get(key, 0) + count
