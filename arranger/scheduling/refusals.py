"""Nodes whose kubelet refused a pod of a job (OutOfcpu, UnexpectedAdmissionError …): the job avoids them for a while.

The API server doesn't show everything about such a node, so the next pod would be refused as well. The projection has
the refusals, and each cycle records for how long they count (`CycleConfig.refusal_avoid_ms`).
"""

import math
from collections.abc import Hashable

import numpy as np

from arranger.model.config import CycleConfig
from arranger.model.job import PodGroup
from arranger.model.pod import PodShape
from arranger.model.reasons import Reason, ReasonKind
from arranger.projections.jobs import JobRecord
from arranger.scheduling.filters import Filter
from arranger.scheduling.view import ClusterView, Mask


class WaryShape(PodShape, frozen=True, array_like=True, gc=False):
    """A shape with the nodes that its job avoids, sorted by name. It exists for one cycle and is never logged."""

    avoid: tuple[str, ...] = ()


class RefusedRecently(Filter):
    """The node's kubelet didn't refuse a pod of this job recently."""

    name, version = "RefusedRecently", 1

    def question(self, shape: PodShape) -> Hashable:
        return shape.avoid if isinstance(shape, WaryShape) else None

    def passes(self, view: ClusterView, shape: PodShape) -> Mask:
        found = np.ones(len(view), bool)
        rows = view.node_index.rows()
        for name in shape.avoid if isinstance(shape, WaryShape) else ():
            if name in rows:
                found[rows[name]] = False
        return found

    def reason(self, view: ClusterView, shape: PodShape, row: int) -> Reason:
        return Reason(ReasonKind.REFUSED_RECENTLY)


REFUSED_RECENTLY = RefusedRecently()


def wary_groups(job: JobRecord, config: CycleConfig, time_ms: int) -> tuple[PodGroup, ...]:
    """The groups of a job with the nodes that they avoid now; its own groups if there are none."""
    if not job.refusals:
        return job.valid_spec.groups
    avoid = tuple(sorted(node for node, since_ms in job.refusals.items() if _avoids(since_ms, config, time_ms)))
    if not avoid:
        return job.valid_spec.groups
    return tuple(PodGroup(group.name, group.count, _wary(group.shape, avoid)) for group in job.valid_spec.groups)


def _wary(shape: PodShape, avoid: tuple[str, ...]) -> WaryShape:
    fields = {name: getattr(shape, name) for name in shape.__struct_fields__}
    return WaryShape(**fields, avoid=avoid)


def next_end_ms(job: JobRecord, config: CycleConfig, time_ms: int) -> float:
    """When the job stops avoiding one of its nodes, in milliseconds; infinite if it avoids none."""
    since = [since_ms for since_ms in job.refusals.values() if _avoids(since_ms, config, time_ms)]
    return min(since) + config.refusal_avoid_ms if since else math.inf


def _avoids(since_ms: int, config: CycleConfig, time_ms: int) -> bool:
    return time_ms < since_ms + config.refusal_avoid_ms
