"""Node capacity as numpy columns: the allocatable and the used amounts of every node.

A row represents a node name, not a node object: pods may be observed before their node and after its deletion. So a row
exists while its node exists or anything is counted on it (scenario J06). Amounts are int64 in the units of `PodShape`;
column 0 is always `pods`.

Only resources that some node has had get a column. Users may request any names, thousands of them in one pod, and every
column is as long as the cluster has nodes. So other requested resources are counted separately, row by row.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from itertools import islice
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from arranger.model.node import NodeFacts

#: Nodes × resources, or of one node by resource.
Amounts = npt.NDArray[np.int64]
Requests = tuple[tuple[str, int], ...]
#: The limit of cached vectors of requests and of allocatable amounts; the caches are then cleared.
_VECTORS_KEPT = 4096
#: The limit of resource names in cached requests: one pod may request thousands.
_NAMES_KEPT = 1 << 15
#: How many of the latest changes the table can name.
_CHANGES_KEPT = 1 << 15

PODS = "pods"
#: In `NodeTable.down_ms`: the node is ready.
UP = -1
#: The column for requests of resources without a column. No node has any of it, and its usage is always 0.
NOWHERE = ""
_FIRST_COLUMNS = (PODS, "cpu", "memory", "ephemeral-storage", NOWHERE)
_NOWHERE = _FIRST_COLUMNS.index(NOWHERE)
_ABSENT = NodeFacts(allocatable=(), ready=False, cordoned=False)
_NOTHING: Mapping[str, int] = MappingProxyType({})


class Version:
    """Identifies one content: equal versions mean equal content. What is kept here is for `remembered` alone."""

    __slots__ = ("notes", "older", "size")

    def __init__(self) -> None:
        self.notes: dict[Any, Any] = {}
        self.older: dict[Any, Any] = {}
        self.size = 0


class NodeTable:
    """Rows by node name, columns by resource name. Row and column numbers differ between processes."""

    def __init__(self) -> None:
        self.columns: dict[str, int] = {name: i for i, name in enumerate(_FIRST_COLUMNS)}
        self.rows: dict[str, int] = {}
        self.names: list[str] = []
        self.facts: list[NodeFacts] = []
        self.uids: list[str] = []
        self.versions: list[str] = []
        self.allocatable: Amounts = np.zeros((64, len(self.columns)), np.int64)
        self.used: Amounts = np.zeros_like(self.allocatable)
        #: Since when a node is not ready or doesn't exist, in milliseconds: `UP` for a ready node, 0 for one that was
        #: never observed.
        self.down_ms: list[int] = []
        #: How many pods, unbound placements and assumed pods are counted on each row.
        self.holders: list[int] = []
        #: Row → usage there of resources that have no column.
        self._elsewhere: dict[int, dict[str, int]] = {}
        self._free: list[int] = []
        #: Requests → the result of `_asked`.
        self._vectors: dict[Requests, tuple[Amounts, Requests]] = {}
        self._names_kept = 0
        self._allocatables: dict[Requests, Amounts] = {}
        self._name_order: Amounts | None = None
        #: Counts every change, of facts or of use: equal numbers mean equal content, in this process.
        self.changes = 0
        #: The rows of the latest changes, one for each number that `changes` has risen by.
        self._changed: deque[int] = deque(maxlen=_CHANGES_KEPT)
        #: Versions of the facts of all nodes, and of the names of the present nodes; replaced after each change.
        self.facts_version = Version()
        self.names_version = Version()

    def copy(self) -> "NodeTable":
        """An independent table with the same content."""
        other = NodeTable()
        other.columns, other.rows = dict(self.columns), dict(self.rows)
        other.names, other.facts = list(self.names), list(self.facts)
        other.uids, other.versions = list(self.uids), list(self.versions)
        other.allocatable, other.used = self.allocatable.copy(), self.used.copy()
        other.down_ms, other.holders = list(self.down_ms), list(self.holders)
        other._elsewhere = {row: dict(held) for row, held in self._elsewhere.items()}
        other._free, other._vectors = list(self._free), dict(self._vectors)
        other._names_kept = self._names_kept
        other._allocatables = dict(self._allocatables)
        other._name_order, other.changes = self._name_order, self.changes
        other.facts_version, other.names_version = self.facts_version, self.names_version
        return other

    def share(self, other: "NodeTable") -> None:
        """Use the parts of another table that are equal, instead of own ones. Nobody may change either table then."""
        if self.facts_version is other.facts_version:
            self.facts, self.names, self.rows, self.columns = other.facts, other.names, other.rows, other.columns
            self.allocatable = other.allocatable
        for name in ("uids", "versions", "down_ms", "holders", "_free", "_vectors", "_allocatables"):
            part = getattr(other, name)
            if getattr(self, name) == part:
                setattr(self, name, part)

    def changed_since(self, changes: int) -> list[int] | None:
        """The rows that changed since `changes` had that value, some of them repeatedly; None if there were too many
        changes to tell."""
        count = self.changes - changes
        return list(islice(reversed(self._changed), count)) if count <= len(self._changed) else None

    # --- facts ---------------------------------------------------------------------------------------------

    def see(self, name: str, uid: str, version: str, facts: NodeFacts, *, time_ms: int) -> bool:
        """Store a node's facts; returns whether they changed."""
        row = self._row(name)
        if facts.ready:
            self.down_ms[row] = UP
        elif self.down_ms[row] <= 0:
            self.down_ms[row] = time_ms
        before = self.uids[row]
        changed = before != uid or self.facts[row] != facts
        self.uids[row], self.versions[row] = uid, version
        if changed:
            self.facts[row] = facts
            self._write_allocatable(row, facts)
            self._facts_changed(row, names_too=before == "" or uid == "")
        return changed

    def forget(self, name: str, uid: str, *, time_ms: int) -> bool:
        """Remove a deleted node object; usage on it stays counted. False if the table doesn't have the object."""
        row = self.rows.get(name)
        if row is None or self.uids[row] != uid:
            return False
        self.uids[row], self.versions[row], self.facts[row] = "", "", _ABSENT
        if self.down_ms[row] <= 0:
            self.down_ms[row] = time_ms
        self.allocatable[row] = 0
        self._facts_changed(row, names_too=True)
        self._drop_if_empty(row)
        return True

    def present(self, row: int) -> bool:
        """Whether the node object exists."""
        return self.uids[row] != ""

    def has(self, name: str) -> bool:
        """Whether a node of that name exists; a name that only pods mention doesn't count."""
        row = self.rows.get(name)
        return row is not None and self.present(row)

    def facts_of(self, name: str) -> NodeFacts | None:
        """The facts of the node of that name; None where it isn't there."""
        return self.facts[self.rows[name]] if self.has(name) else None

    def down_for_ms(self, name: str, time_ms: int) -> int:
        """For how many milliseconds a node has not been ready, or not existed, at that time; -1 for a ready node."""
        row = self.rows.get(name)
        since_ms = self.down_ms[row] if row is not None else 0
        return max(time_ms - since_ms, 0) if since_ms != UP else -1

    def by_name(self) -> Amounts:
        """Rows of the present nodes in the order of their names, which breaks every tie."""
        if self._name_order is None:
            ordered = sorted(name for name, row in self.rows.items() if self.uids[row])
            self._name_order = np.array([self.rows[name] for name in ordered], np.int64)
        return self._name_order

    # --- use -----------------------------------------------------------------------------------------------

    def hold(self, name: str, requests: Requests) -> None:
        """Count one pod's requests as used on a node, known or not."""
        row = self.rows.get(name)
        if row is None:
            row = self._row(name)
        vector, unknown = self._vectors.get(requests) or self._asked(requests)
        used = self.used[row]  # a view: half the cost of adding through two indexes
        used += vector
        if unknown:
            self._hold_elsewhere(row, unknown, pods=1)
        self.holders[row] += 1
        self.changes += 1
        self._changed.append(row)

    def hold_rows(self, rows: list[int], amounts: Amounts) -> None:
        """`hold` for many pods at once: rows × resources of amounts, each row once, of resources with columns only."""
        self.used[rows] += amounts
        for row, pods in zip(rows, amounts[:, 0].tolist(), strict=True):
            self.holders[row] += pods
        self.changes += len(rows)
        self._changed.extend(rows)

    def hold_all(self, held: Mapping[tuple[str, Requests], int]) -> None:
        """`hold` for so many pods of each (node name, requests) at once, in a tenth of the time for a whole cluster."""
        numbers: dict[Requests, int] = {}
        rows, which = [], []
        for (name, requests), pods in held.items():
            row = self._row(name)
            rows.append(row)
            which.append(numbers.setdefault(requests, len(numbers)))
            self.holders[row] += pods
        if rows:
            asked = [self._asked(requests) for requests in numbers]
            pods_of = np.fromiter(held.values(), np.int64, len(held))
            np.add.at(self.used, rows, np.array([vector for vector, _ in asked])[which] * pods_of[:, None])
            if any(unknown for _, unknown in asked):
                for row, number, pods in zip(rows, which, held.values(), strict=True):
                    self._hold_elsewhere(row, asked[number][1], pods=pods)
        self.changes += len(rows)
        self._changed.extend(rows)

    def release(self, name: str, requests: Requests) -> None:
        """Undo `hold`."""
        row = self.rows[name]
        vector, unknown = self._vectors.get(requests) or self._asked(requests)
        used = self.used[row]
        used -= vector
        if unknown:
            self._hold_elsewhere(row, unknown, pods=-1)
        self.holders[row] -= 1
        self.changes += 1
        self._changed.append(row)
        if not self.holders[row]:
            self._drop_if_empty(row)

    def _hold_elsewhere(self, row: int, unknown: Requests, *, pods: int) -> None:
        """Count resources without a column, for one pod more or less."""
        self.used[row, _NOWHERE] = 0
        held = self._elsewhere.setdefault(row, {})
        for name, amount in unknown:
            held[name] = held.get(name, 0) + pods * amount
            if not held[name]:
                del held[name]
        if not held:
            del self._elsewhere[row]

    def unknown(self, requests: Requests) -> Requests:
        """The requests for resources without a column."""
        return self._asked(requests)[1]

    def vector(self, requests: Requests) -> Amounts:
        """One pod's requests as a row of amounts, including 1 pod, and 1 in `NOWHERE` if a requested resource has no
        column. The array is shared: don't modify it."""
        return self._asked(requests)[0]

    def _asked(self, requests: Requests) -> tuple[Amounts, Requests]:
        """`vector` and `unknown`."""
        found = self._vectors.get(requests)
        if found is None:
            unknown = tuple((name, amount) for name, amount in requests if amount and name not in self.columns)
            vector = np.zeros(self.used.shape[1], np.int64)
            for name, amount in requests:
                if name in self.columns:
                    vector[self.columns[name]] = amount
            vector[0], vector[_NOWHERE] = 1, bool(unknown)
            self._names_kept += len(requests)
            if len(self._vectors) >= _VECTORS_KEPT or self._names_kept > _NAMES_KEPT:
                self._vectors.clear()
                self._names_kept = len(requests)
            found = self._vectors[requests] = (vector, unknown)
        return found

    def free(self) -> Amounts:
        """Allocatable less used amounts, nodes × resources; negative where a node is overbooked."""
        return self.allocatable - self.used

    def amounts(self, row: int) -> dict[str, tuple[int, int]]:
        """Resource → (used, allocatable) of a row where either isn't 0, by name."""
        used, there = self.used[row].tolist(), self.allocatable[row].tolist()
        found = {name: (used[at], there[at]) for name, at in self.columns.items() if used[at] or there[at]}
        found.update((name, (held, 0)) for name, held in self.elsewhere(row).items())
        return dict(sorted(found.items()))

    def elsewhere(self, row: int) -> Mapping[str, int]:
        """The usage on a row of resources without a column."""
        return self._elsewhere.get(row, _NOTHING)

    def overbooked(self, name: str, requests: Requests, freed: Amounts | int = 0) -> bool:
        """Whether the usage of a resource in these requests, which are already counted, exceeds the node's amount.
        `freed` is usage that doesn't count any more."""
        row = self.rows[name]
        if not self.elsewhere(row).keys().isdisjoint(resource for resource, _ in requests):
            return True
        return bool(((self.used[row] - freed > self.allocatable[row]) & (self.vector(requests) > 0)).any())

    # --- rows and columns -----------------------------------------------------------------------------------

    def _row(self, name: str) -> int:
        row = self.rows.get(name)
        if row is not None:
            return row
        if self._free:
            row = self._free.pop()
            self.names[row], self.down_ms[row] = name, 0
        else:
            row = len(self.names)
            self.names.append(name)
            self.facts.append(_ABSENT)
            self.uids.append("")
            self.versions.append("")
            self.down_ms.append(0)
            self.holders.append(0)
            if row >= len(self.used):
                self._grow(rows=2 * len(self.used), columns=self.used.shape[1])
        self.rows[name] = row
        return row

    def _drop_if_empty(self, row: int) -> None:
        if self.uids[row] or self.holders[row]:
            return
        del self.rows[self.names[row]]
        self.names[row] = ""
        self._free.append(row)

    def _write_allocatable(self, row: int, facts: NodeFacts) -> None:
        amounts = self._allocatables.get(facts.allocatable)
        if amounts is None:  # many nodes have equal amounts
            self._ensure_columns(name for name, _ in facts.allocatable)
            amounts = np.zeros(self.used.shape[1], np.int64)
            for name, amount in facts.allocatable:
                amounts[self.columns[name]] = amount
            if len(self._allocatables) >= _VECTORS_KEPT:
                self._allocatables.clear()
            self._allocatables[facts.allocatable] = amounts
        self.allocatable[row] = amounts

    def _ensure_columns(self, names: Iterable[str]) -> None:
        new = [name for name in dict.fromkeys(names) if name not in self.columns]
        if not new:
            return
        for name in new:
            self.columns[name] = len(self.columns)
        self._grow(rows=len(self.used), columns=len(self.columns))
        for row in list(self._elsewhere):
            held = self._elsewhere[row]
            for name in new:
                self.used[row, self.columns[name]] = held.pop(name, 0)
            if not held:
                del self._elsewhere[row]

    def _grow(self, *, rows: int, columns: int) -> None:
        if columns != self.used.shape[1]:
            self._vectors.clear()
            self._allocatables.clear()
        for field in ("allocatable", "used"):
            old: Amounts = getattr(self, field)
            new = np.zeros((rows, columns), np.int64)
            new[: old.shape[0], : old.shape[1]] = old
            setattr(self, field, new)

    def _facts_changed(self, row: int, *, names_too: bool) -> None:
        self.changes += 1
        self._changed.append(row)
        self.facts_version = Version()
        if names_too:
            self._name_order = None
            self.names_version = Version()
