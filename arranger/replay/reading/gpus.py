"""The GPUs of the cluster at a point of the log: there, used, idle and reserved, those of all vendors."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from arranger.model.accelerators import is_accelerator
from arranger.model.pod import gpus_of
from arranger.projections.cluster.nodes import Amounts, NodeTable
from arranger.projections.jobs.records import expand
from arranger.projections.state import State


def gpu_use(nodes: NodeTable) -> tuple[Amounts, Amounts]:
    """The GPUs of the present nodes in the order of their names, and how many of them are used: never more than are
    there, though pods that leave and those that wait for their room both count on a node."""
    columns = [column for name, column in nodes.columns.items() if is_accelerator(name)]
    rows = nodes.by_name()
    there: Amounts = nodes.allocatable[rows][:, columns]
    used = np.minimum(nodes.used[rows][:, columns], there)
    return there.sum(axis=1), used.sum(axis=1)


def gpus_there(nodes: NodeTable) -> int:
    """The GPUs of all present nodes, kept with the version of the nodes' facts."""
    notes = nodes.facts_version.notes
    known: int | None = notes.get(gpus_there)
    if known is None:
        known = notes[gpus_there] = int(gpu_use(nodes)[0].sum())
    return known


class GpuTotals(NamedTuple):
    """The GPUs of the cluster. Idle ones are used by nothing, on nodes that take pods; reserved ones are kept for
    waiting jobs, in use or not; those beside used ones are free on a node where others are used."""

    gpus: int
    used: int
    idle: int
    reserved: int
    beside_used: int


def gpu_totals(state: State) -> GpuTotals:
    """The cluster's GPUs in a state."""
    there, used = gpu_use(state.nodes)
    free = there - used
    return GpuTotals(
        int(there.sum()),
        int(used.sum()),
        int(free[_open(state.nodes)].sum()),
        sum(gpus_reserved(state, uid) for uid in state.reservations),
        int(free[used > 0].sum()),
    )


def _open(nodes: NodeTable) -> NDArray[np.bool_]:
    """Whether each of the present nodes, in the order of their names, is ready and schedulable. The answer is kept with
    the version of the nodes' facts."""
    notes = nodes.facts_version.notes
    known: NDArray[np.bool_] | None = notes.get(_open)
    if known is None:
        facts = [nodes.facts[row] for row in nodes.by_name().tolist()]
        known = notes[_open] = np.array([of.takes_pods for of in facts], dtype=np.bool_)
    return known


def gpus_reserved(state: State, uid: str) -> int:
    """The GPUs of the slots for which a job has a reservation."""
    job = state.jobs.get(uid)
    if job is None or job.spec is None:
        return 0
    groups = job.spec.groups
    slots = expand(state.reservations[uid].decided.pods)
    return sum(gpus_of(groups[group].shape.requests) for group, _ in slots if group < len(groups))
