"""Nodes that a job avoids for a while: a kubelet refused one of its pods (OutOfcpu, UnexpectedAdmissionError …), or a
worker of a set failed there repeatedly while others ran well elsewhere; then the set avoids it.

The API server doesn't show everything about such a node, so the next pod would be refused, or fail, as well. The
projection has the nodes, and each cycle records for how long they are avoided (`CycleConfig.refusal_avoid_ms`). So the
pods come back if no other node has room.
"""

import math
from collections.abc import Hashable, Mapping

import msgspec
import numpy as np

from arranger.model.config import CycleConfig
from arranger.model.job import PodGroup
from arranger.model.pod import PodShape
from arranger.model.reasons import Reason, ReasonKind
from arranger.projections.jobs.records import JobRecord
from arranger.scheduling.cluster.view import ClusterView, Mask
from arranger.scheduling.filters.nodes import Filter


class WaryShape(PodShape, frozen=True, array_like=True, gc=False):
    """A shape with the nodes that its job (`avoid`) or its set (`failed`) avoids, sorted by name. It exists for one
    cycle and is never logged."""

    avoid: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()


class RefusedRecently(Filter):
    """The node's kubelet didn't refuse a pod of this job recently, and no worker of the set failed there repeatedly."""

    name, version = "RefusedRecently", 1

    def question(self, shape: PodShape) -> Hashable:
        return (shape.avoid, shape.failed) if isinstance(shape, WaryShape) else None

    def passes(self, view: ClusterView, shape: PodShape) -> Mask:
        found = np.ones(len(view), bool)
        rows = view.node_index.rows()
        for name in (*shape.avoid, *shape.failed) if isinstance(shape, WaryShape) else ():
            if name in rows:
                found[rows[name]] = False
        return found

    def reason(self, view: ClusterView, shape: PodShape, row: int) -> Reason:
        if isinstance(shape, WaryShape) and view.names[row] not in shape.avoid:
            return Reason(ReasonKind.FAILED_THERE)
        return Reason(ReasonKind.REFUSED_RECENTLY)


REFUSED_RECENTLY = RefusedRecently()


def wary_groups(job: JobRecord, config: CycleConfig, time_ms: int) -> tuple[PodGroup, ...]:
    """The groups of a job with the nodes that they avoid now; its own groups if there are none."""
    groups = job.valid_spec.groups
    if not job.avoids:
        return groups
    avoid = _now(job.refusals, config, time_ms)
    failed = [_now(job.sets[of.name].avoids, config, time_ms) if of.name in job.sets else () for of in groups]
    if not avoid and not any(failed):
        return groups
    shapes = [_wary(of.shape, avoid, nodes) for of, nodes in zip(groups, failed, strict=True)]
    return tuple(msgspec.structs.replace(of, shape=shape) for of, shape in zip(groups, shapes, strict=True))


def _now(since: Mapping[str, int], config: CycleConfig, time_ms: int) -> tuple[str, ...]:
    return tuple(sorted(node for node, since_ms in since.items() if _avoids(since_ms, config, time_ms)))


def _wary(shape: PodShape, avoid: tuple[str, ...], failed: tuple[str, ...]) -> WaryShape:
    fields = {name: getattr(shape, name) for name in shape.__struct_fields__}
    return WaryShape(**fields, avoid=avoid, failed=failed)


def next_end_ms(job: JobRecord, config: CycleConfig, time_ms: int) -> float:
    """When the job stops avoiding one of its nodes, in milliseconds; infinite if it avoids none."""
    since = [*job.refusals.values(), *(since_ms for of in job.sets.values() for since_ms in of.avoids.values())]
    return min((one for one in since if _avoids(one, config, time_ms)), default=math.inf) + config.refusal_avoid_ms


def _avoids(since_ms: int, config: CycleConfig, time_ms: int) -> bool:
    return time_ms < since_ms + config.refusal_avoid_ms
