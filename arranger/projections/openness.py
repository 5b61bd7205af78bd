"""Whether nodes take new pods at a decision's own offset: ready, not cordoned, and with no taint that keeps a pod away.

A cycle asks its filters the same of the state that it rests on; this is for what changed between that and the record.
Nothing here is stricter than the filters are: what a cycle places on the state that it saw is never refused.
"""

from collections.abc import Callable, Iterable

from arranger.model.job import JobSpec, PlacedPods
from arranger.model.node import NodeFacts, Taint
from arranger.model.pod import PodShape
from arranger.model.taints import given, taint_text, untolerated
from arranger.projections.jobs import SlotKey
from arranger.projections.nodes import NodeTable


def closed_to_new(nodes: NodeTable, spec: JobSpec, placed: Iterable[PlacedPods]) -> str:
    """The first node of a placement that isn't open to its pods, and why; empty if all are. All nodes must be there."""
    return _closed(nodes, spec, ((pods.node, pods.group) for pods in placed), lambda taints: taints)


def closed_to_next(nodes: NodeTable, spec: JobSpec, again: dict[SlotKey, str]) -> str:
    """As `closed_to_new` for the next pods of slots that stay on their nodes: taints by which Kubernetes marks a node
    as unhealthy for now don't count."""
    return _closed(nodes, spec, ((node, group) for (group, _), node in again.items()), given)


def _closed(
    nodes: NodeTable,
    spec: JobSpec,
    asked: Iterable[tuple[str, int]],
    counted: Callable[[tuple[Taint, ...]], Iterable[Taint]],
) -> str:
    """`asked` are nodes with the groups whose pods are to begin there."""
    rows, facts = nodes.rows, nodes.facts
    for node, group in asked:
        found = facts[rows[node]]
        if found.ready and not found.cordoned and not found.taints:
            continue
        why = _why(found, spec.groups[group].shape, counted)
        if why:
            return f"node {node} {why}"
    return ""


def _why(facts: NodeFacts, shape: PodShape, counted: Callable[[tuple[Taint, ...]], Iterable[Taint]]) -> str:
    if not facts.ready:
        return "is not ready"
    if facts.cordoned:
        return "is cordoned"
    taint = untolerated(counted(facts.taints), shape)
    return f"has the taint {taint_text(taint)}" if taint is not None else ""
