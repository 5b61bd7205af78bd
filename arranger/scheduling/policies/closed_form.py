"""Place equal pods together, in closed form, with the same result as placing them one by one.

One by one means: each pod gets the node with the highest score at its turn, the lowest row among equals. Let s_i(j) be
the score of node i for its j-th pod of this kind (j from 1), and t_i(j) = min(s_i(1), …, s_i(j)). A pod can take a
node's j-th slot only after the slots before it, so slot (i, j) is taken when the best score on offer has fallen to
t_i(j). Hence the k chosen slots are the first k by (t descending, row, j). Where scores only rise as a node fills,
t_i(j) = s_i(1): rank once and fill. A test compares both with placing one by one on random clusters.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from arranger.scheduling.cluster.view import Chosen

Scores = npt.NDArray[np.int64]

#: The score of a node that takes no pod: below every other.
NONE = int(np.iinfo(np.int64).min)


def fill(scores: Scores, room: Scores, count: int) -> Chosen:
    """Nodes for up to `count` pods if no node's score falls as it fills: fill the best node, then the next."""
    if count == 1:
        return _best(scores, room)
    rows = np.flatnonzero(room > 0)
    ranked = _ranked(rows, scores, room, count)
    before = np.cumsum(room[ranked]) - room[ranked]
    ranked = ranked[before < count]
    takes = np.minimum(room[ranked], count - before[: len(ranked)])
    return list(zip(ranked.tolist(), takes.tolist(), strict=True))


def _best(scores: Scores, room: Scores) -> Chosen:
    if not len(scores):
        return []
    row = int(np.argmax(np.where(room > 0, scores, NONE)))
    return [(row, 1)] if room[row] > 0 else []


def _ranked(rows: Scores, scores: Scores, room: Scores, count: int) -> Scores:
    """Rows by score, best first, the lowest row among equals; rows that `count` pods don't need may be left out."""
    if len(rows) > 64 and count <= len(rows) // 8:
        # Every row has room for a pod, so the best `count` rows are enough; ties at the cut-off are kept.
        of_rows = scores[rows]
        edge = np.partition(of_rows, len(rows) - count)[len(rows) - count]
        rows = rows[of_rows >= edge]
    return rows[np.argsort(-scores[rows], kind="stable")]


def fill_by_margins(score_at: Callable[[int], Scores], room: Scores, count: int) -> Chosen:
    """Nodes for up to `count` pods with any score: `score_at(j)` scores one more pod on nodes that got `j` already."""
    if count == 1:
        return _best(score_at(0), room)
    rows = np.flatnonzero(room > 0)
    limit = room[rows]
    if not len(rows) or count < 1:
        return []
    offered: list[Scores] = []
    worst = np.full(len(rows), np.iinfo(np.int64).max)
    look_at, slots, deepest = 1, 0, min(int(limit.max()), count)
    for depth in range(deepest):
        there = limit > depth
        worst = np.where(there, np.minimum(worst, score_at(depth)[rows]), NONE)
        offered.append(worst)
        slots += int(there.sum())
        if depth + 1 >= look_at and slots >= count:
            look_at *= 2
            # Deeper slots offer no more than this one, so below the k-th best they can't be chosen.
            if worst.max() < _kth_best(offered, count):
                break
    return _choose(rows, np.stack(offered, axis=1), count)


def _kth_best(offered: list[Scores], count: int) -> int:
    every = np.concatenate(offered)
    return int(np.partition(every, len(every) - count)[len(every) - count])


def _choose(rows: Scores, offers: Scores, count: int) -> Chosen:
    """The first `count` slots by (offer descending, row, depth), summed up by row in the order of first choice."""
    flat = offers.ravel()  # row by row, each in the order of depth
    slots = np.flatnonzero(flat != NONE)
    if len(slots) > count:
        edge = np.partition(flat[slots], len(slots) - count)[len(slots) - count]
        slots = slots[flat[slots] >= edge]
    order = slots[np.argsort(-flat[slots], kind="stable")][:count]
    chosen, first, takes = np.unique(order // offers.shape[1], return_index=True, return_counts=True)
    turns = np.argsort(first, kind="stable")
    return list(zip(rows[chosen[turns]].tolist(), takes[turns].tolist(), strict=True))
