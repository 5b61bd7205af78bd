"""How many nodes are too full for a waiting job's next pod because of what others hold, and how many have room for it
but are closed.

A recorded reason counts a node as lacking resources whatever uses these: others, or the pods of the job itself, which
the cycle had placed there in its plan before it found no node for the next one. And some nodes are too small for the
pod if they are empty. Neither is room that others held.
"""

import numpy as np
import numpy.typing as npt

from arranger.model.pod import PodShape
from arranger.projections.jobs import JobRecord, requests_of
from arranger.projections.nodes import NodeTable
from arranger.projections.openness import open_to
from arranger.projections.state import State
from arranger.replay.explain.candidate_changes.node_labels import may_run_on


def full_of_others(state: State, job: JobRecord, group: str) -> int | None:
    """The number of nodes that would take the next pod of a group but for what others hold there now; None if the job
    has no such group any more."""
    shape = _shape(job, group)
    if shape is None:
        return None
    nodes = state.nodes
    return int(_lacks(state, job, shape, nodes.by_name()[_would_take(nodes, shape)]).sum())


def closed_with_room(state: State, job: JobRecord, group: str) -> int | None:
    """The number of nodes that are not ready or cordoned, and have room for the next pod of a group beside what others
    hold there now; None if the job has no such group any more."""
    shape, nodes = _shape(job, group), state.nodes
    if shape is None:
        return None
    closed = (not (of := nodes.facts[row]).ready or of.cordoned for row in nodes.by_name().tolist())
    rows = nodes.by_name()[np.fromiter(closed, np.bool_, len(nodes.by_name()))]
    return int((~_lacks(state, job, shape, rows)).sum())


def _shape(job: JobRecord, group: str) -> PodShape | None:
    return next((of.shape for of in job.valid_spec.groups if of.name == group), None)


def _lacks(state: State, job: JobRecord, shape: PodShape, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """On which of these rows others leave too little for such a pod."""
    nodes = state.nodes
    held = nodes.used.copy() if job.placements else nodes.used
    for slot, node in job.placements.items():
        held[nodes.rows[node]] -= nodes.vector(requests_of(job, slot))
    asked = nodes.vector(shape.requests)
    return np.asarray(((held[rows] + asked > nodes.allocatable[rows]) & (asked > 0)).any(axis=1))


def _would_take(nodes: NodeTable, shape: PodShape) -> npt.NDArray[np.bool_]:
    """Which of the present nodes, by name, are open to such a pod and large enough for it. It is kept with the version
    of the nodes' facts: many jobs wait with pods alike."""
    key = (_would_take, shape.requests, shape.node_selector, shape.tolerations, shape.required_terms)
    known: npt.NDArray[np.bool_] | None = nodes.facts_version.notes.get(key)
    if known is not None:
        return known
    rows, asked = nodes.by_name(), nodes.vector(shape.requests)
    found: npt.NDArray[np.bool_] = np.asarray((nodes.allocatable[rows] >= asked).all(axis=1))
    for number in np.flatnonzero(found).tolist():
        found[number] = _is_open(nodes, int(rows[number]), shape)
    nodes.facts_version.notes[key] = found
    return found


def _is_open(nodes: NodeTable, row: int, shape: PodShape) -> bool:
    facts = nodes.facts[row]
    return open_to(facts, shape) and may_run_on(shape, nodes.names[row], dict(facts.labels))
