"""The cluster as one cycle sees it: node columns in the order of node names, and the cycle's own placements.

Row `i` of every array is the `i`-th node by name, so that "the lowest name wins" means "the lowest row wins", and no
result depends on the order in which nodes were observed. Values that depend on the nodes' facts alone are cached until
a fact changes (`remembered.py`).
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from arranger.model.node import NodeFacts
from arranger.model.pod import PodShape
from arranger.model.selectors import integer
from arranger.projections.cluster.nodes import NOWHERE, PODS, Amounts, NodeTable, Requests
from arranger.projections.cluster.remembered import remembered
from arranger.projections.state import State
from arranger.scheduling.cluster.neighbours import Neighbour, Neighbours, around

Mask = npt.NDArray[np.bool_]
#: Numbers of rows.
Rows = npt.NDArray[np.int64]
#: Whole amounts as doubles, nodes × resources or one value per node.
Levels = npt.NDArray[np.float64]
_Derived = TypeVar("_Derived")

#: Chosen nodes, each once: (row, pods).
Chosen = list[tuple[int, int]]
#: Placed pods: their number by node, and the amounts of one pod.
Taken = tuple[Chosen, Amounts]
#: Fewer rows than this are changed one by one, because a vectorised change has a higher fixed cost.
_FEW = 8
#: A longer journal is dropped, and its view is not kept for the next cycle: what is held for a job with a reservation
#: may be put back for each job behind it, on as many rows as the cluster has.
_JOURNAL = 1 << 17


class _Names:
    """The present nodes' names, in order; rebuilt when a node is added or removed."""

    def __init__(self, nodes: NodeTable) -> None:
        self.table_rows = nodes.by_name()
        self.in_table: list[int] = self.table_rows.tolist()
        self.sorted = [nodes.names[row] for row in self.in_table]
        self.rows = {name: row for row, name in enumerate(self.sorted)}
        self._column: LabelColumn | None = None

    def column(self) -> "LabelColumn":
        """The names as a label's values."""
        if self._column is None:
            self._column = LabelColumn(len(self.sorted))
            for row, name in enumerate(self.sorted):
                self._column.put(row, name)
        return self._column


class LabelColumn:
    """One label of the present nodes: its values numbered from 1 in the order of rows (`numbers`), and the number of
    each node's value (`codes`), 0 where a node doesn't have the label."""

    def __init__(self, nodes: int) -> None:
        self.numbers: dict[str, int] = {}
        self.codes: Amounts = np.zeros(nodes, np.int64)
        self._masks: dict[str, Mask] | None = None
        self._integers: tuple[Mask, Amounts] | None = None

    def put(self, row: int, value: str) -> None:
        """Set a node's value."""
        self.codes[row] = self.numbers.setdefault(value, len(self.numbers) + 1)

    def masks(self) -> dict[str, Mask]:
        """Value → nodes that have it."""
        if self._masks is None:
            self._masks = {value: self.codes == number for value, number in self.numbers.items()}
        return self._masks

    def integers(self) -> tuple[Mask, Amounts]:
        """By number of a value: whether it is a decimal integer of 64 bits (0, no label, isn't), and the integer."""
        if self._integers is None:
            found = [None, *map(integer, self.numbers)]
            self._integers = (np.array([one is not None for one in found]), np.array([one or 0 for one in found]))
        return self._integers


class NodeIndex:
    """The facts of the present nodes, by row; rebuilt when a fact changes."""

    def __init__(self, nodes: NodeTable) -> None:
        self._names: _Names = remembered(nodes.names_version, "names", lambda: _Names(nodes))
        self.table_rows = self._names.table_rows
        self.names = self._names.sorted
        self.facts: list[NodeFacts] = [nodes.facts[row] for row in self._names.in_table]
        self.ready: Mask = np.array([facts.ready for facts in self.facts], bool)
        self.cordoned: Mask = np.array([facts.cordoned for facts in self.facts], bool)
        #: (row, taints) of the nodes that have taints.
        self.tainted = [(row, facts.taints) for row, facts in enumerate(self.facts) if facts.taints]
        #: Whether some node has a `PreferNoSchedule` taint.
        self.advised = any(taint.effect == "PreferNoSchedule" for _, taints in self.tainted for taint in taints)
        self._labels: dict[str, LabelColumn] | None = None
        self._unlabelled = LabelColumn(len(self.facts))

    def labelled(self, key: str) -> dict[str, Mask]:
        """Value → nodes that have the label with that value; empty when no node has the label."""
        return self.label(key).masks()

    def label(self, key: str) -> LabelColumn:
        if self._labels is None:
            self._labels = {}
            for row, of_node in enumerate(self.facts):
                for name, value in of_node.labels:
                    column = self._labels.get(name)
                    if column is None:
                        column = self._labels[name] = LabelColumn(len(self.facts))
                    column.put(row, value)
        return self._labels.get(key, self._unlabelled)

    def name_column(self) -> LabelColumn:
        return self._names.column()

    def rows(self) -> dict[str, int]:
        """Row by node name."""
        return self._names.rows


class ClusterView:
    """Nodes × resources. `free` decreases as the cycle places pods.

    `neighbours` are the pods on the nodes; None in a cycle in which no pod has rules about other pods.
    """

    def __init__(self, nodes: NodeTable, *, empty: bool = False) -> None:
        self._table = nodes
        self._facts_version = nodes.facts_version
        self.neighbours: Neighbours | None = None
        self._node_index: NodeIndex = self.derived("node index", lambda: NodeIndex(nodes))
        rows = self._node_index.table_rows
        #: Identifies the present content of `free`; undoing placements restores the earlier number.
        self.content = 0
        self._contents = 0
        #: Rows whose amounts were changed, in order. Readers remember their position and read on from there.
        self.journal: list[int] = []
        #: How many rows of the journal were dropped: of a reader who is no further, any row may have changed.
        self.dropped = 0
        #: The length of the journal when this cycle began, and the table's `changes` that the view showed then.
        self._begun = 0
        self._changes = nodes.changes
        # Column by column in memory: filters and scores read one resource of all nodes at a time. Doubles, because
        # amounts are divided; they are whole numbers below 2^53, which doubles represent exactly.
        self.allocatable: Levels = self.derived(
            "allocatable", lambda: np.asfortranarray(nodes.allocatable[rows], dtype=np.float64)
        )
        #: What of the free amounts was taken out for jobs that have a reservation; None for nothing.
        self.held: Levels | None = None
        self.free: Levels = self.allocatable.copy(order="F")
        if not empty:
            self.free -= nodes.used[rows]

    @property
    def known(self) -> frozenset[str]:
        """The resources of which some node has something."""
        return self.derived("known", self._known)

    def _known(self) -> frozenset[str]:
        some = np.any(self.allocatable > 0, axis=0).tolist()
        return frozenset(
            name
            for name, column in self._table.columns.items()
            if name != NOWHERE and column < len(some) and some[column]
        )

    @classmethod
    def of(cls, state: State) -> "ClusterView":
        """The state's nodes, with the pods on them if some pod has rules about other pods."""
        view = cls(state.nodes)
        view.neighbours = around(state, view.node_index.rows())
        return view

    def renew(self, state: State) -> bool:
        """Make this the view of the next cycle, the same as `of` makes: the rows that changed since this cycle began,
        by its placements or in the table, show the table's amounts again. False if too much has changed for that."""
        nodes = state.nodes
        changed = nodes.changed_since(self._changes) if nodes is self._table else None
        if changed is None or nodes.facts_version is not self._facts_version or self.written > _JOURNAL:
            return False
        by_name = self._node_index.rows()
        present = (by_name.get(nodes.names[row]) for row in changed)
        touched = sorted({*self.journal[self._begun :], *(row for row in present if row is not None)})
        if touched:
            self.free[touched] = self.allocatable[touched] - nodes.used[self._node_index.table_rows[touched]]
            self._note(touched)
        self.held = None
        self._begun, self._changes = len(self.journal), nodes.changes
        self._contents += 1
        self.content = self._contents
        self.neighbours = around(state, by_name)
        return True

    def __len__(self) -> int:
        return len(self._node_index.names)

    @property
    def node_index(self) -> NodeIndex:
        return self._node_index

    @property
    def names(self) -> list[str]:
        return self._node_index.names

    @property
    def facts(self) -> list[NodeFacts]:
        return self._node_index.facts

    def derived(self, key: Any, make: Callable[[], _Derived]) -> _Derived:
        """A value that depends on the nodes' facts alone, cached until a fact changes."""
        return remembered(self._table.facts_version, key, make)

    def emptied(self) -> "ClusterView":
        """The same nodes without pods."""
        view = ClusterView(self._table, empty=True)
        view.neighbours = self.neighbours.emptied() if self.neighbours is not None else None
        return view

    def count_free(self, node: str, requests: Requests) -> None:
        """Free the room of a pod that will not appear."""
        row = self._node_index.rows().get(node)
        if row is not None:
            self.free[row] += self.amounts(requests)
            self.journal.append(row)

    def amounts(self, requests: Requests) -> Amounts:
        """The room that a pod with these requests uses, by resource column."""
        amounts = self._table.vector(requests).copy()
        amounts[self._table.columns[NOWHERE]] = 0
        return amounts

    def shift(self, rows: Rows, amounts: Amounts, pods: Iterable[tuple[Neighbour, int]], sign: int) -> None:
        """Pods leave these rows, each once (or with the sign -1 are there again): the amounts that they use, and the
        pods as others see them."""
        if len(rows):
            self.free[rows] += amounts * sign
            self._note(rows.tolist())
        self.touch()
        if self.neighbours is not None:
            for pod, row in pods:
                self.neighbours.shift(pod, row, -sign)

    def shift_all(self, rows: Rows, amounts: Amounts, sign: int) -> None:
        """As `shift`, for many rooms at once, and without the pods as others see them."""
        add_to(self.free, rows, amounts, sign)
        self._note(rows.tolist())
        self.touch()

    @property
    def free_with_held(self) -> Levels:
        """What is free, with what is held for jobs with a reservation."""
        return self.free if self.held is None else self.free + self.held

    def hold(self, rows: Rows, amounts: Amounts, content: int | None = None, *, sign: int = 1) -> None:
        """Take room on these rows out for jobs that have a reservation, or with the sign -1 put it back. `content` is
        the number of the new content, if the view had it before."""
        if self.held is None:
            self.held = np.zeros_like(self.free)
        add_to(self.free, rows, amounts, -sign)
        add_to(self.held, rows, amounts, sign)
        self._note(rows.tolist())
        if content is None:
            self.touch()
        else:
            self.content = content

    @contextmanager
    def holding(self, rows: Rows, amounts: Amounts, *, sign: int = 1) -> Iterator[None]:
        """As `hold`, for a while: afterwards the content is as before."""
        before = self.content
        self.hold(rows, amounts, sign=sign)
        try:
            yield
        finally:
            self.hold(rows, amounts, before, sign=-sign)

    def request(self, shape: PodShape) -> Amounts:
        """One pod's amounts by resource column, including 1 pod. A request for a resource that no node has counts as 1
        in the column `NOWHERE`, of which nothing is free."""
        return self._table.vector(shape.requests)

    def needs(self, shape: PodShape) -> list[tuple[str, int, int]]:
        """One pod's requests as resource, column and amount; the first is 1 of `pods`."""
        columns = self._table.columns
        return [
            (PODS, columns[PODS], 1),
            *((name, columns.get(name, columns[NOWHERE]), amount) for name, amount in shape.requests if amount),
        ]

    def column(self, resource: str) -> int | None:
        """The column of a resource; None if no node ever had it."""
        return self._table.columns.get(resource)

    def capacity(self, column: int) -> Levels:
        """The allocatable amounts of one resource, as divisors: infinite for nodes without it."""
        of_resource = self.allocatable[:, column]
        return self.derived(("capacity", column), lambda: np.where(of_resource > 0, of_resource, np.inf))

    def capacities(self, columns: tuple[int, ...]) -> Levels:
        """As `capacity`, for several resources: one row each."""
        return self.derived(("capacities", columns), lambda: np.stack([self.capacity(column) for column in columns]))

    def provided(self) -> list[tuple[str, int]]:
        """Name and column of every resource that some present node has, by name."""

        def found() -> list[tuple[str, int]]:
            every = ((name, self._table.columns[name]) for name in self.resources())
            return [(name, column) for name, column in every if self.allocatable[:, column].any()]

        return self.derived("provided", found)

    def total(self) -> dict[str, int]:
        """Resource → the allocatable amount of all nodes. Don't modify it."""
        return self.derived(
            "total",
            lambda: {
                name: int(self.allocatable[:, self._table.columns[name]].astype(np.int64).sum())
                for name in self.resources()
            },
        )

    def free_in_all(self, resource: str) -> int:
        """How much of a resource all nodes together have free; a node with less than nothing free counts as that."""
        column = self._table.columns.get(resource)
        return int(self.free[:, column].sum()) if column is not None else 0

    def resources(self) -> list[str]:
        """Every resource that some node ever had, sorted."""
        return sorted(self._table.columns.keys() - {NOWHERE})

    # --- placements of the cycle ---------------------------------------------------------------------------

    def take(self, chosen: Chosen, amounts: Amounts, pod: Neighbour | None = None) -> None:
        """Place pods of these amounts on the chosen nodes; other pods see them there as `pod`."""
        self._add(chosen, -amounts)
        self._contents += 1
        self.content = self._contents
        if pod is not None and self.neighbours is not None:
            self.neighbours.place(pod, chosen, self.content)

    def touch(self) -> None:
        """Give the content a new number."""
        self._contents += 1
        self.content = self._contents

    def mark(self) -> int:
        """A point that `give_back` can return to."""
        return self.content

    def give_back(self, mark: int, taken: Iterable[Taken]) -> None:
        """Undo everything taken since `mark`."""
        for chosen, amounts in taken:
            self._add(chosen, amounts)
        self.content = mark
        if self.neighbours is not None:
            self.neighbours.give_back(mark)

    @property
    def written(self) -> int:
        """How many rows were written into the journal."""
        return self.dropped + len(self.journal)

    def _note(self, rows: list[int]) -> None:
        """Write into the journal that these rows have changed."""
        self.journal += rows
        if len(self.journal) > _JOURNAL:
            self.dropped += len(self.journal)
            self.journal.clear()

    def _add(self, chosen: Chosen, amounts: Amounts) -> None:
        if len(chosen) < _FEW:
            for row, count in chosen:
                self.free[row] += amounts * count
                self.journal.append(row)
        else:
            rows, counts = np.array(chosen, np.int64).T
            self.free[rows] += counts[:, None] * amounts
            self._note(rows.tolist())


def add_to(levels: Levels, rows: Rows, amounts: Amounts, sign: int = 1) -> None:
    """Add amounts to these rows, to each as often as it is named. All are whole numbers below 2^53, so the order of
    adding makes no difference."""
    if len(rows) < _FEW:
        for row, of_row in zip(rows.tolist(), amounts, strict=True):
            levels[row, : len(of_row)] += sign * of_row
        return
    for column in np.flatnonzero(amounts.any(axis=0)).tolist():
        levels[:, column] += sign * np.bincount(rows, weights=amounts[:, column], minlength=len(levels))


class Part(ClusterView):
    """Some rows of a view, for values that depend on a node's own amounts alone; names and labels are the view's."""

    def __init__(self, whole: ClusterView, rows: npt.NDArray[np.int64]) -> None:
        self._table = whole._table
        self._node_index = whole._node_index
        self._whole = whole
        self._at = rows
        self.allocatable = whole.allocatable[rows]
        self.free = whole.free[rows]

    def __len__(self) -> int:
        return len(self._at)

    def capacity(self, column: int) -> Levels:
        return self._whole.capacity(column)[self._at]

    def capacities(self, columns: tuple[int, ...]) -> Levels:
        return self._whole.capacities(columns)[:, self._at]

    def provided(self) -> list[tuple[str, int]]:
        return self._whole.provided()


def fitting(view: ClusterView, shape: PodShape, kept: Levels | None = None) -> Amounts:
    """How many pods of this shape fit each node's free amounts without the `kept` ones, regardless of filters."""
    request = view.request(shape)
    free = view.free if kept is None else view.free - kept
    # Below 2^53 the truncated quotient of two whole doubles is the exact integer quotient.
    part = free[:, 0] / request[0]  # every pod requests 1 of `pods`
    for column in np.flatnonzero(request)[1:].tolist():
        np.minimum(part, free[:, column] / request[column], out=part)
    room: Amounts = np.maximum(part, 0, out=part).astype(np.int64)
    return room
