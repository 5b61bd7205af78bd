"""How many nodes are too full for a waiting job's next pod because of what others hold, how many have room for it but
are closed, and whether these would be enough.

A recorded reason counts a node as lacking resources whatever uses these: others, or the pods of the job itself, which
the cycle had placed there in its plan before it found no node for the next one, or for whose pods of slots that it gave
up room is still kept. And some nodes are too small for the
pod if they are empty. Neither is room that others held.
"""

import dataclasses
from collections.abc import Iterator

import msgspec
import numpy as np
import numpy.typing as npt

from arranger.model.config import CycleConfig
from arranger.model.pod import PodShape
from arranger.model.taints import kept_off_by_cordon, untolerated
from arranger.model.template import Requests
from arranger.projections.cluster.nodes import NodeTable
from arranger.projections.cluster.openness import open_to, open_to_all
from arranger.projections.cluster.remembered import remembered
from arranger.projections.jobs.records import JobRecord, requests_of
from arranger.projections.state import State
from arranger.replay.explain.candidate_changes.node_labels import may_run_on
from arranger.scheduling import Policies, try_empty_cluster


def full_of_others(state: State, job: JobRecord, group: str) -> int | None:
    """The number of nodes that would take the next pod of a group but for what others hold there now; None if the job
    has no such group any more."""
    shape = shape_of(job, group)
    if shape is None:
        return None
    nodes = state.nodes
    return int(lacking(state, job, shape, nodes.by_name()[_would_take(nodes, shape)]).sum())


def closed_with_room(state: State, job: JobRecord, group: str) -> tuple[int, int] | None:
    """The number of nodes that the next pod of a group selects, that are closed to it and have room for it beside what
    others hold there now: those that are not ready or cordoned, and those with a taint that it doesn't tolerate. None
    if the job has no such group any more."""
    shape, nodes = shape_of(job, group), state.nodes
    if shape is None:
        return None
    shut, tainted = (int((~lacking(state, job, shape, rows)).sum()) for rows in _kept_closed(nodes, shape))
    return shut, tainted


def closed_rows(nodes: NodeTable, shape: PodShape) -> npt.NDArray[np.int64]:
    """The rows of the present nodes that such a pod selects and that are closed to it."""
    return np.concatenate(_kept_closed(nodes, shape))


def selects_closed(state: State, job: JobRecord, group: str) -> bool:
    """Whether the next pod of a group selects nodes that are closed to it and would be large enough for it."""
    shape, nodes = shape_of(job, group), state.nodes
    if shape is None:
        return False
    rows = closed_rows(nodes, shape)
    return bool((nodes.allocatable[rows] >= nodes.vector(shape.requests)).all(axis=1).any())


def too_few_if_open(state: State, job: JobRecord, config: CycleConfig, policies: Policies) -> bool:
    """Whether not even an empty cluster would hold the quorum in which the closed nodes are open too."""
    nodes = state.nodes.copy()
    for row in nodes.by_name().tolist():
        facts = nodes.facts[row]
        if not open_to_all(facts):
            facts = msgspec.structs.replace(facts, ready=True, cordoned=False, taints=())
            nodes.see(nodes.names[row], nodes.uids[row], nodes.versions[row], facts, time_ms=state.time_ms)
    opened = dataclasses.replace(state, nodes=nodes)  # nothing else matters to an empty cluster
    return try_empty_cluster(opened, job, config, policies).shortage is not None


def too_small(nodes: NodeTable, shape: PodShape, resource: str) -> int:
    """How many of the present nodes that are open to such a pod have too little of a resource for it, if they are
    empty. Kept as `_would_take` keeps its answers."""
    asked, column = dict(shape.requests).get(resource, 0), nodes.columns.get(resource)

    def found() -> int:
        rows = _open_among(nodes, nodes.by_name(), shape)
        return int((nodes.allocatable[rows, column] < asked).sum()) if column is not None else len(rows)

    key = (too_small, resource, asked, shape.node_selector, shape.tolerations, shape.required_terms)
    return remembered(nodes.facts_version, key, found)


def open_names(nodes: NodeTable, shape: PodShape) -> frozenset[str]:
    """The names of the present nodes that are open to such a pod. Kept as `_would_take` keeps its answers."""
    return remembered(
        nodes.facts_version,
        (open_names, shape.node_selector, shape.tolerations, shape.required_terms),
        lambda: frozenset(nodes.names[row] for row in _open_among(nodes, nodes.by_name(), shape).tolist()),
    )


def shape_of(job: JobRecord, group: str) -> PodShape | None:
    """The shape of the pods of a job's group; None if it has no such group any more."""
    return next((of.shape for of in job.valid_spec.groups if of.name == group), None)


def holds_some(state: State, job: JobRecord) -> bool:
    """Whether a job has room on some node, or pods of it may still come there."""
    return bool(job.placements) or any(pod.owner.job_uid == job.uid for pod in state.assumed.values())


def lacking(state: State, job: JobRecord | None, shape: PodShape, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """On which of these rows others leave too little for such a pod of a job; None for a job that holds nothing."""
    nodes = state.nodes
    held, asked, short = nodes.used[rows], nodes.vector(shape.requests), np.zeros(len(rows), np.bool_)
    for row, requests in _own(state, job) if job is not None else ():
        held[rows == row] -= nodes.vector(requests)
    for column in np.flatnonzero(asked).tolist():
        short |= held[:, column] + asked[column] > nodes.allocatable[rows, column]
    return short


def _own(state: State, job: JobRecord) -> Iterator[tuple[int, Requests]]:
    """The rows where a job holds room, and what its pod there requests."""
    rows = state.nodes.rows
    for slot, node in job.placements.items():
        yield rows[node], requests_of(job, slot)
    for pod in state.assumed.values():
        if pod.owner.job_uid == job.uid:
            yield rows[pod.node], pod.requests


def _would_take(nodes: NodeTable, shape: PodShape) -> npt.NDArray[np.bool_]:
    """Which of the present nodes, by name, are open to such a pod and large enough for it. It is kept with the version
    of the nodes' facts: many jobs wait with pods alike."""

    def found() -> npt.NDArray[np.bool_]:
        rows = nodes.by_name()
        large = rows[(nodes.allocatable[rows] >= nodes.vector(shape.requests)).all(axis=1)]
        return np.isin(rows, _open_among(nodes, large, shape))

    key = (_would_take, shape.requests, shape.node_selector, shape.tolerations, shape.required_terms)
    return remembered(nodes.facts_version, key, found)


def _kept_closed(nodes: NodeTable, shape: PodShape) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """As `_closed`, kept as `_would_take` keeps its answers."""
    key = (_closed, shape.node_selector, shape.tolerations, shape.required_terms)
    return remembered(nodes.facts_version, key, lambda: _closed(nodes, shape))


def _closed(nodes: NodeTable, shape: PodShape) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The rows of the present nodes that the pod selects, by name, that are not ready or cordoned, and of the others
    those with a taint that it doesn't tolerate."""
    rows, keeps_off = _selected(nodes, nodes.by_name(), shape), kept_off_by_cordon(shape)
    facts = [nodes.facts[row] for row in rows.tolist()]
    shut = np.fromiter((not of.ready or (of.cordoned and keeps_off) for of in facts), np.bool_, len(facts))
    tainted = np.fromiter((untolerated(of.taints, shape) is not None for of in facts), np.bool_, len(facts)) & ~shut
    return rows[shut], rows[tainted]


def _open_among(nodes: NodeTable, rows: npt.NDArray[np.int64], shape: PodShape) -> npt.NDArray[np.int64]:
    """Those of these rows whose nodes are open to such a pod."""
    facts = nodes.facts
    found = np.array([row for row in rows.tolist() if open_to(facts[row], shape)], np.int64)
    return _selected(nodes, found, shape)


def _selected(nodes: NodeTable, rows: npt.NDArray[np.int64], shape: PodShape) -> npt.NDArray[np.int64]:
    """Those of these rows whose nodes the pod selects."""
    if not shape.node_selector and shape.required_terms is None:
        return rows
    names, facts = nodes.names, nodes.facts
    found = [row for row in rows.tolist() if may_run_on(shape, names[row], dict(facts[row].labels))]
    return np.array(found, np.int64)
