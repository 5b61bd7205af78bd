"""Whether nodes accept new pods at a decision's own offset: ready, without a cordon or a taint that isn't tolerated.

A cycle's filters check the same on the cycle's state; this covers changes between that state and the recorded decision.
It is never stricter than the filters, so while nothing changes it refuses no placement of a cycle.
"""

from collections.abc import Callable, Iterable

from arranger.model.job import JobSpec, PlacedPods
from arranger.model.node import NodeFacts, Taint
from arranger.model.pod import PodShape
from arranger.model.taints import given, kept_off_by_cordon, taint_text, untolerated
from arranger.projections.cluster.nodes import NodeTable
from arranger.projections.jobs.parts import SlotKey


def closed_to_new(nodes: NodeTable, spec: JobSpec, placed: Iterable[PlacedPods]) -> str:
    """The first node of a placement that isn't open to its pods, and why; empty if all are. All nodes must exist."""
    return _closed(nodes, spec, ((pods.node, pods.group) for pods in placed), lambda taints: taints)


def closed_to_next(nodes: NodeTable, spec: JobSpec, again: dict[SlotKey, str]) -> str:
    """As `closed_to_new`, for the next pods of slots that keep their nodes: ignores taints that Kubernetes sets on
    unhealthy nodes."""
    return _closed(nodes, spec, ((node, group) for (group, _), node in again.items()), given)


def open_to(facts: NodeFacts, shape: PodShape) -> bool:
    """Whether a node accepts new pods of this shape."""
    return open_to_all(facts) or not _why(facts, shape, lambda taints: taints)


def open_to_all(facts: NodeFacts) -> bool:
    """Whether a node is ready, not cordoned and without a taint, as most of thousands are."""
    return facts.takes_pods and not facts.taints


def _closed(
    nodes: NodeTable,
    spec: JobSpec,
    asked: Iterable[tuple[str, int]],
    counted: Callable[[tuple[Taint, ...]], Iterable[Taint]],
) -> str:
    """`asked` has nodes with the groups whose pods are to start there."""
    rows, facts = nodes.rows, nodes.facts
    for node, group in asked:
        found = facts[rows[node]]
        if open_to_all(found):
            continue
        why = _why(found, spec.groups[group].shape, counted)
        if why:
            return f"node {node} {why}"
    return ""


def _why(facts: NodeFacts, shape: PodShape, counted: Callable[[tuple[Taint, ...]], Iterable[Taint]]) -> str:
    if not facts.ready:
        return "is not ready"
    if facts.cordoned and kept_off_by_cordon(shape):
        return "is cordoned"
    taint = untolerated(counted(facts.taints), shape)
    return f"has the taint {taint_text(taint)}" if taint is not None else ""
