"""Whether a single job's quorum fits, and where placing it stops, as if the job were the first in the queue."""

from typing import Any

import numpy as np

from arranger.model.config import CycleConfig
from arranger.model.job import LEADER_GROUP
from arranger.projections.cluster.nodes import Amounts
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import State
from arranger.scheduling.cluster.view import ClusterView, Mask
from arranger.scheduling.filters.nodes import Filters
from arranger.scheduling.placing.placement_try import PlacementTry
from arranger.scheduling.queues.registry import BUILT_IN, Policies
from arranger.scheduling.search.placer import Placer


def place_alone(state: State, job: JobRecord, config: CycleConfig, policies: Policies) -> PlacementTry:
    """What a cycle would do for the job's quorum if the job were the first in the queue."""
    return Placer(state, config, policies).quorum(job)


def try_empty_cluster(state: State, job: JobRecord, config: CycleConfig, policies: Policies) -> PlacementTry:
    """Why not even an empty cluster of the present nodes would hold the job's quorum, as the shortage of a try; it has
    none if the quorum might fit. It doesn't matter whether the job is in the queue."""
    return Placer(state, config, policies).on_empty_nodes(job)


def heeds_others(state: State, job: JobRecord) -> bool:
    """Whether rules among pods, quotas or queues may affect the placement of the job, or of jobs before it."""
    groups = job.spec.groups if job.spec is not None else ()
    return bool(state.repelling or state.quotas or state.queues) or any(
        group.shape.rules is not None for group in groups
    )


class QuorumAlone:
    """Repeated checks whether a quorum fits. Where only resources matter, counts of pods per node mostly decide; their
    masks are cached while no node's facts change. In the remaining cases a cycle's placement decides."""

    def __init__(self) -> None:
        self._asked: tuple[Any, ...] = ()
        self._masks: list[Mask] = []

    def fits(self, state: State, job: JobRecord, config: CycleConfig, policies: Policies) -> bool:
        sure = self._counted(state, job, config, policies)
        return Placer(state, config, policies).fits(job) if sure is None else sure

    def _counted(self, state: State, job: JobRecord, config: CycleConfig, policies: Policies) -> bool | None:
        """Whether the quorum surely fits, or surely doesn't; None if counts don't show it."""
        policy, nodes = policies.pod_policy(job, config), state.nodes
        if job.avoids or job.provided or job.slots.given_up or heeds_others(state, job):
            return None
        if policy.name not in BUILT_IN.pod or job.spec is None or job.spec.has_worker_groups:
            return None  # another package's policy may leave room unused
        groups, leaders = job.spec.groups, job.spec.groups[LEADER_GROUP].count
        asked = (nodes.facts_version, job.spec, policies)
        if asked != self._asked:
            filters = Filters(ClusterView(nodes), policies.filters)
            self._asked, self._masks = asked, [filters.static(group.shape) for group in groups]
        vectors = [nodes.vector(group.shape.requests) for group in groups]
        free = nodes.free()[nodes.by_name()]
        rooms = [int((_pods(free, vector) * mask).sum()) for vector, mask in zip(vectors, self._masks, strict=True)]
        workers = job.spec.total_workers if policy.whole else job.spec.min_workers
        possible = sum(min(group.count, room) for group, room in zip(groups[1:], rooms[1:], strict=True))
        if (leaders and not rooms[LEADER_GROUP]) or possible < workers:
            return False
        if any(room < group.least for group, room in zip(groups, rooms, strict=True)):
            return False
        # No pod takes more than one that is as large as the largest in every resource.
        everywhere = np.logical_and.reduce(self._masks)
        surely = int((_pods(free, np.maximum.reduce(vectors)) * everywhere).sum())
        return True if surely >= leaders + workers and not job.spec.has_topology else None


def _pods(free: Amounts, vector: Amounts) -> Amounts:
    """How many pods of these amounts fit each row."""
    columns = np.flatnonzero(vector)
    found: Amounts = (np.maximum(free[:, columns], 0) // vector[columns]).min(axis=1)
    return found
