"""A beam search for packings whose table would be too large: an incomplete search that keeps the best counts.

After each node it keeps at most `width` vectors of placed pods. It drops a vector if the remaining nodes surely can't
hold the missing pods. It prefers vectors that leave the most of what is scarcest on the remaining nodes.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

Amounts = npt.NDArray[np.int64]

#: The most vectors that are kept after a node at first, and the factor for the next search if that finds nothing.
WIDTH = 128
WIDER = 4
#: Counts of a vector that are computed in one step, and steps for each node, however few its vectors are.
COUNTS = 25
NODE = 100
_SCALE = 1000


class Beam:
    """A search for `asked` pods of k groups, at least `least` (k) and at most `caps` (k) of each. `requests` are k ×
    resources, `ways` for each node the maximal ways to fill it, each a row of k counts."""

    def __init__(self, caps: Amounts, requests: Amounts, asked: int, least: Amounts, ways: Sequence[Amounts]) -> None:
        self.width = WIDTH
        self._caps, self._asked, self._least, self._ways = caps, asked, least, ways
        #: Whether the last search left out no vector for lack of width.
        self.complete = True
        # What the missing pods need of the remaining nodes: of each resource, and of places for pods.
        weights = np.concatenate([requests.T, np.ones((1, len(caps)), np.int64)])
        self._weights = np.unique(weights[weights.any(axis=1)], axis=0)
        self._most = _suffix_sums([(of @ self._weights.T).max(axis=0) for of in ways], len(self._weights))
        self._room = _suffix_sums([of.max(axis=0) for of in ways], len(caps))

    def search(self, spend: Callable[[int], None], choose: Callable[[Amounts], Amounts | None]) -> list[Amounts] | None:
        """The pods on each of the first nodes, None if none were found. `spend` counts steps, and `choose` gives the
        pods to take of those that the nodes hold, None if they aren't enough after all."""
        self.complete = True
        vectors = np.zeros((1, len(self._caps)), np.int64)
        trail: list[tuple[Amounts, Amounts]] = []
        for node, ways in enumerate(self._ways):
            spend(NODE + vectors.size * len(ways) // COUNTS)
            more = np.minimum(vectors[:, None, :] + ways[None], self._caps).reshape(-1, len(self._caps))
            kept = self._best(more, node + 1)
            trail.append((vectors, kept // len(ways)))
            vectors = more[kept]
            enough = (vectors.sum(axis=1) >= self._asked) & (vectors >= self._least).all(axis=1)
            for at in np.flatnonzero(enough).tolist():
                chosen = choose(vectors[at])
                if chosen is not None:
                    return _traced(chosen, vectors[at], at, trail)
            if not len(vectors):
                return None
        return None

    def _best(self, vectors: Amounts, node: int) -> Amounts:
        """The numbers of the vectors to keep, if the nodes from `node` on remain."""
        rows: Amounts = _different(vectors, self._caps)
        most = np.minimum(self._caps, vectors[rows] + self._room[node])
        hopeful = (most.sum(axis=1) >= self._asked) & (most >= self._least).all(axis=1)
        rows = rows[hopeful]
        spare = self._spare(vectors[rows], node)
        hopeful = (spare >= 0).all(axis=1)
        rows, spare = rows[hopeful], spare[hopeful]
        if len(rows) <= self.width:
            return rows
        self.complete = False
        least = (spare * _SCALE // np.maximum(self._most[node], 1)).min(axis=1)
        best: Amounts = rows[np.lexsort((-vectors[rows].sum(axis=1), -least))[: self.width]]
        return best

    def _spare(self, vectors: Amounts, node: int) -> Amounts:
        """What the remaining nodes have beyond the least that the missing pods need, vectors × weights."""
        left = self._caps - vectors
        missing = np.maximum(self._asked - vectors.sum(axis=1), 0)
        spare = np.empty((len(vectors), len(self._weights)), np.int64)
        for at, weights in enumerate(self._weights):
            order = np.argsort(weights, kind="stable")
            before = np.cumsum(left[:, order], axis=1) - left[:, order]
            taken = np.clip(missing[:, None] - before, 0, left[:, order])
            spare[:, at] = self._most[node, at] - taken @ weights[order]
        return spare


def _different(vectors: Amounts, caps: Amounts) -> Amounts:
    """The numbers of the first of equal vectors."""
    if math.prod((caps + 1).tolist()) >= 1 << 62:
        return np.unique(vectors, axis=0, return_index=True)[1]
    strides = np.cumprod(np.concatenate([[1], caps[:-1] + 1]))
    return np.unique(vectors @ strides, return_index=True)[1]


def _suffix_sums(of_nodes: Sequence[Amounts], width: int) -> Amounts:
    """Row i: the sum over the nodes from i on."""
    rows = np.array([*of_nodes, np.zeros(width, np.int64)], np.int64)
    return np.cumsum(rows[::-1], axis=0)[::-1]


def _traced(chosen: Amounts, placed: Amounts, at: int, trail: Sequence[tuple[Amounts, Amounts]]) -> list[Amounts]:
    """The pods on each node, without those that aren't chosen."""
    found: list[Amounts] = []
    surplus, after = placed - chosen, placed
    for vectors, parents in reversed(trail):
        at = int(parents[at])
        here = after - vectors[at]
        dropped = np.minimum(surplus, here)
        found.append(here - dropped)
        surplus, after = surplus - dropped, vectors[at]
    return found[::-1]
