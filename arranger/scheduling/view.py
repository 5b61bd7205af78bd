"""The cluster as one cycle sees it: node columns in the order of node names, and what the cycle itself holds.

Row `i` of every array here is the `i`-th node by name, so that "the lowest name wins" is "the lowest row wins",
and no answer depends on the order in which nodes were seen.
"""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from arranger.model.node import NodeFacts
from arranger.model.pod import PodShape
from arranger.projections.nodes import Amounts, NodeTable

Mask = npt.NDArray[np.bool_]


class ClusterView:
    """Nodes × resources, free to be used up by a cycle. `free` falls as the cycle places pods."""

    def __init__(self, nodes: NodeTable) -> None:
        rows = nodes.by_name()
        self._table = nodes
        #: Names the present content of `free`; going back to an earlier content goes back to its number.
        self.content = 0
        self._contents = 0
        self.names: list[str] = [nodes.names[row] for row in rows]
        self.facts: list[NodeFacts] = [nodes.facts[row] for row in rows]
        self.ready: Mask = np.array([facts.ready for facts in self.facts], bool)
        self.cordoned: Mask = np.array([facts.cordoned for facts in self.facts], bool)
        self.allocatable: Amounts = nodes.allocatable[rows]
        self.free: Amounts = self.allocatable - nodes.used[rows]

    def __len__(self) -> int:
        return len(self.names)

    def emptied(self) -> "ClusterView":
        """The same nodes with nothing on them."""
        view = ClusterView(self._table)
        view.free = view.allocatable.copy()
        return view

    def request(self, shape: PodShape) -> Amounts:
        """One pod's amounts by resource column, 1 pod included; columns of new resources are added as needed."""
        vector = self._table.vector(shape.requests)
        missing = len(vector) - self.free.shape[1]
        if missing > 0:  # no node has that resource: nothing allocatable, nothing free
            self.free = np.pad(self.free, ((0, 0), (0, missing)))
            self.allocatable = np.pad(self.allocatable, ((0, 0), (0, missing)))
        return vector

    def column(self, resource: str) -> int:
        """The column of a resource that some request or node has named."""
        return self._table.columns[resource]

    def resource(self, column: int) -> str:
        """The resource in a column."""
        return next(name for name, index in self._table.columns.items() if index == column)

    def take(self, row: int, amounts: Amounts, count: int) -> None:
        """Hold `count` pods of these amounts on a node."""
        self.free[row, : len(amounts)] -= amounts * count
        self._contents += 1
        self.content = self._contents

    def mark(self) -> int:
        """A point that `give_back` can return to."""
        return self.content

    def give_back(self, mark: int, taken: Iterable[tuple[int, Amounts, int]]) -> None:
        """Undo all that was taken since `mark`."""
        for row, amounts, count in taken:
            self.free[row, : len(amounts)] += amounts * count
        self.content = mark
