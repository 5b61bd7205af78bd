"""A complete search: pods of several groups on nodes, without rules among pods. If there is a way, it is found.

`Packing` states the question. The search is dynamic programming over nodes. With the groups 1 … k, let M[y] be the most
pods of the last group that the nodes so far can hold beside y = (y_1, …, y_{k-1}) pods of the other groups, or less
than 0 if they can't hold those. One more node, which can be filled in the ways W, leads to

    M'[y] = max over w in W of M[max(y - w, 0)] + w_k

Only the maximal ways are needed, to which no pod can be added, because a part of a way is allowed too. They are
computed once for equal nodes. If the table is too large for the bound on steps, a beam search keeps only the most
promising counts of placed pods after each node. It may miss a way, so it is repeated with more of them up to the bound.

All amounts are whole numbers, and so is the count of steps: equal questions have equal outcomes on any machine. A step
is about a microsecond on the machine on which `CELLS` was measured.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from arranger.scheduling.search.beam import WIDER, Beam

Amounts = npt.NDArray[np.int64]
_Found = TypeVar("_Found")

#: Table cells that are computed in one step.
CELLS = 300
#: Steps for each operation on a table, however small.
OVERHEAD = 30
#: The limits of the memory of one search: ways of one node times cells, and cells of all tables.
_WIDEST = 1 << 21
_TABLES = 1 << 24
#: The number of questions whose outcomes are kept, some hundred bytes each.
_KEPT = 4096
#: The table's value for counts that the nodes can't hold.
_NEVER = -(1 << 30)


@dataclass(frozen=True)
class Packing:
    """Whether `asked` pods of k groups fit n nodes, at least `least` (k) and at most `caps` (k) pods of each group.

    `requests` (k × resources) are the amounts of one pod, `free` (n × resources) those of the nodes. `room` (n × k) is
    how many pods of one group alone each node takes, 0 where the group may not run. With quotas, the pods' `uses` (k ×
    quota resources) may add up to `left`.
    """

    requests: Amounts
    caps: Amounts
    free: Amounts
    room: Amounts
    asked: int
    least: Amounts
    uses: Amounts = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    left: Amounts = field(default_factory=lambda: np.zeros(0, np.int64))

    @cached_property
    def digest(self) -> bytes:
        """16 bytes, equal for equal questions."""
        parts = (self.requests, self.caps, self.least, self.free, self.room, self.uses, self.left)
        found = hashlib.blake2b(repr((self.asked, [part.shape for part in parts])).encode(), digest_size=16)
        for part in parts:
            found.update(np.ascontiguousarray(part, np.int64).tobytes())
        return found.digest()


@dataclass(frozen=True)
class PackingOutcome:
    """The pods of each group on each node (n × k), None if none were found. `complete`: then there is no way; else the
    search ended at its bound. `steps` is the cost, which the outcome of a repeated question has, too."""

    counts: Amounts | None
    steps: int
    complete: bool = True


class BoundReached(Exception):
    """The search has used up its steps."""


class StepCount:
    """Counts the steps of a search up to its limit."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0

    @property
    def left(self) -> int:
        return self.limit - self.used

    def spend(self, steps: int) -> None:
        """Raises `BoundReached` before work that would exceed the limit."""
        if self.used + steps > self.limit:
            self.used = self.limit
            raise BoundReached
        self.used += steps


def pack(packing: Packing, limit: int) -> PackingOutcome:
    """Find a way within `limit` steps."""
    return once(packing.digest, limit, lambda: _pack(packing, limit))


def once(digest: bytes, limit: int, search: Callable[[], _Found]) -> _Found:
    """What a search finds for a question within `limit` steps. Results of recent questions are remembered."""
    kept = _kept(digest, limit)
    if not kept:
        kept.append(search())
    found: _Found = kept[0]
    return found


@lru_cache(maxsize=_KEPT)
def _kept(digest: bytes, limit: int) -> list[Any]:
    """The result for a question, once it is known. The question itself isn't kept: it has arrays of all nodes."""
    return []


def _pack(packing: Packing, limit: int) -> PackingOutcome:
    steps = StepCount(limit)
    try:
        steps.spend(OVERHEAD)
        if _lacks(packing):
            return PackingOutcome(None, steps.used)
        search = _Search(packing, steps)
        counts = search.table() if search.fits_a_table() else search.beam()
        return PackingOutcome(counts, steps.used)
    except BoundReached:
        return PackingOutcome(None, steps.used, complete=False)


class _Search:
    """One search. Classes of equal nodes are tried one after the other, the ways of each class computed once."""

    def __init__(self, packing: Packing, steps: StepCount) -> None:
        self._packing = packing
        self._steps = steps
        # The last group has the most pods, because the table has one dimension for each of the others.
        self._order = np.argsort(packing.caps, kind="stable")
        self._caps = packing.caps[self._order]
        self._least = packing.least[self._order]
        self._classes = _equal_rows(np.concatenate([packing.free, packing.room], axis=1))
        self._ways = [self._ways_of(int(rows[0])) for rows in self._classes]

    def _ways_of(self, row: int) -> Amounts:
        """The maximal ways to fill a node, as counts of pods by group; the first groups vary the slowest."""
        packing, order = self._packing, self._order
        requests, free = packing.requests[order], packing.free[row]
        most = np.minimum(packing.room[row][order], self._caps)
        ways = np.zeros((1, len(most)), np.int64)
        for group in range(len(most)):
            fits = np.minimum(_room(free - ways @ requests, requests[group]), most[group])
            last = group == len(most) - 1
            rows = len(ways) if last else int(fits.sum()) + len(ways)
            self._steps.spend(OVERHEAD + rows * len(most) // CELLS)
            if last:
                ways[:, group] = fits
                break
            parents = np.repeat(np.arange(len(ways)), fits + 1)
            begins = np.repeat(np.cumsum(fits + 1) - fits - 1, fits + 1)
            ways = ways[parents]
            ways[:, group] = np.arange(rows) - begins
        spare = free - ways @ requests
        more = np.zeros(len(ways), bool)
        for group in range(len(most) - 1):
            more |= (ways[:, group] < most[group]) & (_room(spare, requests[group]) > 0)
        return ways[~more]

    # --- the table -----------------------------------------------------------------------------------------

    def fits_a_table(self) -> bool:
        """Whether the tables of all nodes can be computed in the steps that are left, and held in memory."""
        cells = 1
        for cap in self._caps[:-1].tolist():
            cells *= cap + 1
        nodes = sum(self._useful(rows) for rows in self._classes)
        widest = max((len(ways) for ways in self._ways), default=1)
        if cells * widest > _WIDEST or cells * nodes > _TABLES:
            return False
        needed = sum(
            (self._useful(rows) + 1) * (OVERHEAD + cells * (len(ways) + 1) // CELLS)
            for rows, ways in zip(self._classes, self._ways, strict=True)
        )
        return needed <= self._steps.left

    def _useful(self, rows: Amounts) -> int:
        """How many of equal nodes can get a pod."""
        return min(len(rows), self._packing.asked)

    def table(self) -> Amounts | None:
        """Dynamic programming over the nodes, up to the first table that has an answer."""
        shape = tuple(int(cap) + 1 for cap in self._caps[:-1])
        cells = np.indices(shape).reshape(len(shape), int(np.prod(shape)))
        table = np.full(cells.shape[1], _NEVER, np.int32)
        table[0] = 0
        history: list[tuple[int, Amounts, npt.NDArray[np.int32]]] = []
        for rows, ways in zip(self._classes, self._ways, strict=True):
            cost = OVERHEAD + cells.shape[1] * (len(ways) + 1) // CELLS
            self._steps.spend(cost)
            sources, gains = _sources(cells, shape, ways), ways[:, -1:].astype(np.int32)
            for row in rows[: self._useful(rows)].tolist():
                self._steps.spend(cost)
                after = np.minimum((table[sources] + gains).max(axis=0), self._caps[-1]).astype(np.int32)
                if np.array_equal(after, table):
                    break  # nor does any further node like this one add anything
                history.append((row, ways, table))
                table = after
                found = self._goal(cells, table)
                if found is not None:
                    return self._traced(found, shape, history)
        return None

    def _goal(self, cells: Amounts, table: npt.NDArray[np.int32]) -> Amounts | None:
        """Counts of pods that the nodes hold together and that are enough, in the search's order of groups."""
        enough = cells.sum(axis=0) + table >= self._packing.asked
        enough &= table >= 0
        enough &= (cells >= self._least[:-1, None]).all(axis=0) & (table >= self._least[-1])
        for cell in np.flatnonzero(enough).tolist():
            chosen = self._choice(np.array([*cells[:, cell], table[cell]], np.int64))
            if chosen is not None:
                return chosen
        return None

    def _traced(
        self, desired: Amounts, shape: tuple[int, ...], history: list[tuple[int, Amounts, npt.NDArray[np.int32]]]
    ) -> Amounts:
        """The pods on each node, from the last node to the first."""
        counts = np.zeros_like(self._packing.room)
        left = desired.copy()
        for row, ways, before in reversed(history):
            rest = np.maximum(left - ways, 0)
            cells = np.ravel_multi_index(tuple(rest[:, :-1].T), shape) if shape else np.zeros(len(ways), np.int64)
            way = int(np.flatnonzero(before[cells] >= rest[:, -1])[0])
            counts[row, self._order] = left - rest[way]
            left = rest[way]
        return counts

    # --- the beam ------------------------------------------------------------------------------------------

    def beam(self) -> Amounts | None:
        """Keep the most promising counts of placed pods after each node, and more of them if that finds nothing."""
        packing, order = self._packing, self._order
        nodes = [(row, ways) for rows, ways in zip(self._classes, self._ways, strict=True)
                 for row in rows[: self._useful(rows)].tolist()]  # fmt: skip
        beam = Beam(self._caps, packing.requests[order], packing.asked, self._least, [ways for _, ways in nodes])
        found = beam.search(self._steps.spend, self._choice)
        while found is None and not beam.complete:
            beam.width *= WIDER
            found = beam.search(self._steps.spend, self._choice)
        if found is None:
            return None
        counts = np.zeros_like(packing.room)
        for (row, _), placed in zip(nodes, found, strict=False):
            counts[row, order] = placed
        return counts

    # --- quotas --------------------------------------------------------------------------------------------

    def _choice(self, placed: Amounts) -> Amounts | None:
        """The pods to take of those that the nodes can hold, in the search's order of groups: with the leader, within
        the quotas, and of earlier groups first. None if quotas allow no choice."""
        packing = self._packing
        most = np.zeros_like(placed)
        most[self._order] = placed
        if not packing.left.size:
            return self._first(most)[self._order]
        chosen = _Choice(packing, self._steps).of(most)
        return chosen[self._order] if chosen is not None else None

    def _first(self, most: Amounts) -> Amounts:
        """As many pods as asked: the least of each group, and then more of the first groups."""
        least = self._packing.least
        missing = self._packing.asked - int(least.sum())
        more = most - least
        before = np.cumsum(more) - more
        taken: Amounts = np.clip(missing - before, 0, more)
        return least + taken


class _Choice:
    """The choice of pods within quotas, by depth-first search: the most pods of the first groups."""

    def __init__(self, packing: Packing, steps: StepCount) -> None:
        self._uses, self._left = packing.uses, np.maximum(packing.left, 0)
        self._asked, self._least = packing.asked, packing.least
        self._steps = steps

    def of(self, most: Amounts) -> Amounts | None:
        """The counts, at most `most`; None if the quotas allow none."""
        found = self._from(0, most, self._asked, self._left)
        return None if found is None else np.array(found, np.int64)

    def _from(self, group: int, most: Amounts, missing: int, left: Amounts) -> list[int] | None:
        if group == len(most):
            return [] if missing == 0 else None
        self._steps.spend(OVERHEAD)
        rest = most[group:]
        if rest.sum() < missing or (self._uses[group:].min(axis=0) * missing > left).any():
            return None
        uses = self._uses[group]
        limits = left[uses > 0] // uses[uses > 0]
        high = min(int(most[group]), missing, int(limits.min(initial=missing)))
        for count in range(high, int(self._least[group]) - 1, -1):
            found = self._from(group + 1, most, missing - count, left - uses * count)
            if found is not None:
                return [count, *found]
        return None


def _lacks(packing: Packing) -> bool:
    """Whether the nodes together have less of some resource than the pods need that need the least of it."""
    for of_groups, there in zip(packing.requests.T, packing.free.sum(axis=0), strict=True):
        order = np.argsort(of_groups, kind="stable")
        before = np.cumsum(packing.caps[order]) - packing.caps[order]
        if np.clip(packing.asked - before, 0, packing.caps[order]) @ of_groups[order] > there:
            return True
    return False


def _sources(cells: Amounts, shape: tuple[int, ...], ways: Amounts) -> Amounts:
    """For each way (rows) and each cell y: the index of the cell max(y - way, 0)."""
    found = np.zeros((len(ways), cells.shape[1]), np.int64)
    stride = 1
    for axis in reversed(range(len(shape))):
        found += np.maximum(cells[axis] - ways[:, axis : axis + 1], 0) * stride
        stride *= shape[axis]
    return found


def _room(free: Amounts, request: Amounts) -> Amounts:
    """How many pods of this request fit each row of free amounts."""
    asked = np.flatnonzero(request)
    found: Amounts = (free[:, asked] // request[asked]).min(axis=1)
    return found


def _equal_rows(matrix: Amounts) -> list[Amounts]:
    """The numbers of equal rows together, in a fixed order of their contents."""
    if not len(matrix):
        return []
    order = np.lexsort(matrix.T)
    ranked = matrix[order]
    begins = np.flatnonzero(np.concatenate([[True], (ranked[1:] != ranked[:-1]).any(axis=1)]))
    return np.split(order, begins[1:].tolist())
