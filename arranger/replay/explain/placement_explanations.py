"""Explain why a pod is on its node: repeat the cycle that placed it, with an observer that keeps the scores.

A cycle places the pods of one group together, with the same order and result as one by one. The scores shown for a pod
are those at its own turn, when the pods before it in the cycle already use their nodes.
"""

import dataclasses
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import msgspec
import numpy as np

from arranger.messages.shortages import node_text
from arranger.model.config import CycleConfig
from arranger.model.reasons import ReasonCounts, ReasonKind
from arranger.projections.jobs.parts import SlotKey
from arranger.projections.jobs.records import expand, runs
from arranger.projections.state import State
from arranger.replay.explain.cluster_context import Placement
from arranger.scheduling import (
    BUILT_IN,
    ONE,
    Chosen,
    ClusterView,
    CycleObserver,
    Filters,
    PlacementRequest,
    PlacementTry,
    PodPolicy,
    Policies,
    Scores,
    Taken,
    take_cycle,
)

#: The number of nodes that a ranking shows.
TOP = 5
#: The maximum number of explained placements, unless one pod is requested.
MOST = 20
#: The end of the reason for a pod that the complete search placed.
_BY_SEARCH = "; among the nodes where the complete search found room for the whole quorum"


class ScorePart(msgspec.Struct, frozen=True):
    """One part of a score: a resource's weight and the used part of the node (0 to 1), or another term."""

    name: str
    weight: int
    value: float
    resource: bool = True

    @property
    def shown(self) -> str:
        """The value in words: a percentage of a resource, or a number."""
        return f"{self.value:.1%}" if self.resource else f"{self.value:g}"


class Ranked(msgspec.Struct, frozen=True):
    """A node that had room for the pod, with the policy's score (100 is the whole). Among equal scores the higher
    `preference` wins: preferred node affinity, and `PreferNoSchedule` taints."""

    node: str
    score: float
    terms: tuple[ScorePart, ...]
    preference: int = 0


class Compared(msgspec.Struct, frozen=True):
    """Another node beside the chosen one. `rank` is its position, from 1, among the nodes with room for the pod; it is
    0 if the node can't take the pod, and `refused` says why."""

    node: str
    rank: int
    refused: str
    ranked: Ranked | None


class PlacementExplanation(msgspec.Struct, frozen=True):
    """Why one pod was placed on its node; `together` names the pods of that group that were placed there with it.

    `passed` of `nodes` had room for it; `refused` counts the other nodes by reason. `ranking` has the best nodes, the
    winner first. `retaken_on` is the node in the repeated cycle; it differs only if the repetition fails. `lasts`: the
    pod still has that node at the point of the explanation.
    """

    pod: str
    node: str
    together: str
    offset: int
    cycle: int
    base: int
    time_ms: int
    nodes: int
    passed: int
    refused: ReasonCounts
    ranking: tuple[Ranked, ...]
    why: str
    retaken_on: str
    lasts: bool = True
    compared: Compared | None = None


def explanations_of(
    state: State, placement: Placement, *, slot: SlotKey | None, compare: str, policies: Policies = BUILT_IN
) -> list[PlacementExplanation]:
    """Explain a placement on the state at the base of its cycle: the pod of `slot`, or if it is None, the first pod on
    every node, at most `MOST`. `compare` is a node to compare with the best ones, or empty.

    All policy versions of the cycle must be installed.
    """
    observer, taken = ExplanationObserver(placement, slot, compare), placement.taken
    take_cycle(state, taken.config, taken.time_ms, observer, policies=policies.recorded(taken.config))
    return observer.placement_explanations


class ExplanationObserver(CycleObserver):
    """Keeps the scores of one job's placement while its cycle is repeated."""

    def __init__(self, placement: Placement, slot: SlotKey | None, compare: str = "") -> None:
        self._placement = placement
        self._desired = expand(placement.pods)
        self._slot = slot
        self._compare = compare
        self.placement_explanations: list[PlacementExplanation] = []

    def placing(
        self,
        tried: PlacementTry,
        group: int,
        *,
        request: PlacementRequest,
        indices: Sequence[int],
        chosen: Chosen,
        view: ClusterView,
        filters: Filters,
    ) -> None:
        """Keep the scores at the turn of each pod to be explained. The view is unchanged afterwards."""
        if tried.job.uid != self._placement.job_uid:
            return
        amounts, mark = view.request(request.shape), view.mark()
        ends = list(accumulate(count for _, count in chosen))
        run_of = {row: indices[end - count : end] for (row, count), end in zip(chosen, ends, strict=True)}
        asked_about = sum(self._explains(group, index, run) for run in run_of.values() for index in run)
        asked_about = min(asked_about, MOST - len(self.placement_explanations))
        left = dict(chosen)
        taken: list[Taken] = []
        while asked_about:
            at_turn, config = _at_turn(request, taken, filters), self._placement.taken.config
            turn = _Turn(tried.policy, at_turn, view, filters, config, tried.by_search and not tried.quorum_stands)
            row = turn.next_row(left)
            run, number = run_of[row], len(run_of[row]) - left[row]
            if self._explains(group, run[number], run):
                asked_about -= 1
                self.placement_explanations.append(self._explanation(turn, group, run, number, row))
            taken.append(([(row, 1)], amounts))
            view.take(*taken[-1], request.pod)
            left[row] -= 1
            if not left[row]:
                del left[row]
        view.give_back(mark, taken)

    def undone(self, tried: PlacementTry) -> None:
        if tried.job.uid == self._placement.job_uid:
            pods = {(piece.group, index) for piece in tried.pieces for index in piece.indices}
            left = {self._placement.pod_name(slot) for slot in pods}
            self.placement_explanations = [one for one in self.placement_explanations if one.pod in left]

    def _explains(self, group: int, index: int, run: Sequence[int]) -> bool:
        """Whether this pod is to be explained. `run` are the group's pods on the same node."""
        if self._slot is None:
            return index == run[0] and (group, index) in self._desired
        return self._slot == (group, index)

    def _explanation(
        self, turn: "_Turn", group: int, run: Sequence[int], number: int, row: int
    ) -> PlacementExplanation:
        """Why pod `number` of a run was placed on the node in this row."""
        placement = self._placement
        order = turn.order()
        ranking = turn.ranked(order[:TOP])
        reasons = turn.filters.reasons(turn.request.shape, turn.request.pod)
        return PlacementExplanation(
            pod=placement.pod_name((group, run[number])),
            node=self._desired.get((group, run[number]), ""),
            together=_together(placement, group, run),
            offset=placement.offset,
            cycle=placement.cycle,
            base=placement.taken.base,
            time_ms=placement.taken.time_ms,
            nodes=len(turn.view),
            passed=len(order),
            refused=tuple(one for one in reasons if one[0].kind != ReasonKind.FITS),
            ranking=ranking,
            why=_why(ranking) + (_BY_SEARCH if turn.by_search else ""),
            retaken_on=turn.view.names[row],
            compared=turn.compared(self._compare, order) if self._compare else None,
        )


class _Turn(NamedTuple):
    """The turn of a pod in its cycle: the policy, the request, and the nodes with all earlier pods on them."""

    policy: PodPolicy
    request: PlacementRequest
    view: ClusterView
    filters: Filters
    config: CycleConfig
    by_search: bool

    def scores(self) -> Scores:
        return self.policy.scores(self.view, self.request, self.config)

    def next_row(self, left: dict[int, int]) -> int:
        """The chosen node of the next pod. Equal pods take the nodes in turn if scores fall as nodes fill."""
        if self.policy.rising:
            return next(iter(left))
        scores = self.request.preferring(self.scores())
        return min(left, key=lambda row: (-scores[row], row))

    def order(self) -> list[int]:
        """The rows of the nodes with room, by score and then by name."""
        request = self.request
        rows = np.flatnonzero(self.filters.room(request.shape, request.pod) > 0)
        best: list[int] = rows[np.argsort(-request.preferring(self.scores())[rows], kind="stable")].tolist()
        return best

    def ranked(self, rows: Sequence[int]) -> tuple[Ranked, ...]:
        scores, preference = self.scores(), self.request.preference
        terms = list(self.policy.terms(self.view, self.request, self.config))
        resources = set(self.view.resources())
        return tuple(
            Ranked(
                self.view.names[row],
                int(scores[row]) * 100 / ONE,
                tuple(ScorePart(t.name, t.weight, int(t.values[row]) / ONE, t.name in resources) for t in terms),
                int(preference[row]) if preference is not None else 0,
            )
            for row in rows
        )

    def compared(self, node: str, order: list[int]) -> Compared:
        """A node's rank and score among the nodes in `order`."""
        row = self.view.node_index.rows().get(node)
        if row is None:
            return Compared(node, 0, "there was no such node then", None)
        if row not in order:
            return Compared(node, 0, node_text(self.filters.refusal(self.request.shape, row, self.request.pod)), None)
        (ranked,) = self.ranked([row])
        return Compared(node, order.index(row) + 1, "", ranked)


def _together(placement: Placement, group: int, run: Sequence[int]) -> str:
    """The pods of a run in words: those of others by their names."""
    if placement.names:
        return ", ".join(placement.pod_name((group, index)) for index in run)
    found = ",".join(f"{a}-{b}" if a != b else str(a) for a, b in runs(list(run)))
    return f"{placement.spec.groups[group].name} {found}"


def _at_turn(request: PlacementRequest, taken: list[Taken], filters: Filters) -> PlacementRequest:
    """The request after the `taken` pods, one each, have nodes in the view."""
    of_job = request.of_job
    if of_job is not None:
        of_job = of_job.copy()
        for chosen, _ in taken:
            of_job[chosen[0][0]] += 1
    unplaced = tuple(
        dataclasses.replace(
            one,
            pods=one.pods - (len(taken) if one is request.unplaced[0] else 0),
            room=filters.room(one.shape, one.pod),
        )
        for one in request.unplaced
    )
    return dataclasses.replace(request, count=request.count - len(taken), of_job=of_job, unplaced=unplaced)


def _why(ranking: tuple[Ranked, ...]) -> str:
    if len(ranking) < 2:
        return "the only node that could take it"
    winner, second = ranking[:2]
    if winner.score == second.score:
        same = f"it scores the same as {second.node}, {winner.score:.4f}"
        if winner.preference != second.preference:
            return f"{same}; its node is preferred, {winner.preference} against {second.preference}"
        return f"{same}; the lower name wins"
    pairs = zip(winner.terms, second.terms, strict=True)
    a, b = max(pairs, key=lambda pair: abs(pair[0].weight * (pair[0].value - pair[1].value)))
    return (
        f"it scores {winner.score:.4f} against {second.score:.4f} of {second.node}, most of it by {a.name}: "
        f"{a.shown} against {b.shown}, weight {a.weight}"
    )
