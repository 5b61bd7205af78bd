"""What the cluster offers to the jobs of all queues: shares divide it, and guarantees are kept from it.

It is what is free on the ready nodes, and what the jobs use already. So what pods of other programs hold is nobody's
share and fulfils no guarantee, as in KAI's division of resources. A job on a node that isn't ready keeps what it has:
both its use and the offer have it, so it takes nothing from the ready nodes.
"""

from collections.abc import Mapping

import numpy as np

from arranger.projections.nodes import NOWHERE, PODS, Amounts, NodeTable
from arranger.projections.state import State
from arranger.scheduling.remembered import remembered


def offered(state: State) -> Mapping[str, int]:
    """Resource → the amount, in its unit, of every resource that some present node has. What a node had once counts no
    more: a projection that began at a snapshot doesn't know of it."""
    nodes = state.nodes
    ready = remembered(nodes.facts_version, "ready", lambda: _ready(nodes))
    free = nodes.allocatable[ready] - nodes.used[ready]
    amounts = np.maximum(free, 0, out=free).sum(axis=0).tolist()  # a node may hold more than it has
    provided = remembered(nodes.facts_version, "offered", lambda: _provided(nodes))
    found = {name: amounts[column] for name, column in provided}
    for used in state.queue_use.own.values():
        for resource, amount in used.items():
            if resource in found:
                found[resource] += amount
    return found


def _provided(nodes: NodeTable) -> list[tuple[str, int]]:
    """The names and columns of the resources that some present node has."""
    has = nodes.allocatable[nodes.by_name()]
    columns = [(name, column) for name, column in nodes.columns.items() if name not in (NOWHERE, PODS)]
    return [(name, column) for name, column in columns if has[:, column].any()]


def _ready(nodes: NodeTable) -> Amounts:
    """The rows of the ready nodes."""
    return np.array([row for row, facts in enumerate(nodes.facts) if facts.ready and nodes.present(row)], np.int64)
