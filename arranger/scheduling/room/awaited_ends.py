"""Whose ends a quorum awaits: without the end of such a job, it would lack room on its nodes, or something else that
the job holds, such as a part of a limit.

The search has two passes. First jobs leave in the order of their ends until the quorum fits. Most of them are no reason
for that: their room isn't used, or it stays with a guarantee of their queue. So in the second pass those leave first
whom a limit needs, wherever they run, and of the others only as many as are still needed then. Of all these, who leaves
nothing that the quorum needs where it was placed isn't awaited.
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from arranger.model.job import PlacedPods
from arranger.projections.cluster.nodes import Amounts
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import State
from arranger.scheduling.cluster.view import Mask
from arranger.scheduling.queues.dominant_shares import pods_by_group
from arranger.scheduling.room.departures import Departures
from arranger.scheduling.room.vacating import Vacated, Vacating
from arranger.scheduling.search.placer import Placer

#: How often jobs are added that are in the way of a quorum otherwise than by room and limits. Whoever is found in none
#: of these rounds isn't awaited, although the last placement supposes that it has left.
_MOST_ADDED = 8


class LeavingStep(NamedTuple):
    """What leaves next, and when: a job whose end is awaited if it is needed, or (None) who leaves anyway."""

    end_ms: float
    job: JobRecord | None
    vacated: Vacated


class _Left(NamedTuple):
    """Enough for a quorum has left the view: some of the `first`, or all and then these steps."""

    departures: Departures
    first: Sequence[Vacated]
    steps: Sequence[LeavingStep]

    @property
    def jobs(self) -> list[tuple[JobRecord, Vacated]]:
        """Those of them that may be awaited."""
        return [(step.job, step.vacated) for step in self.steps if step.job is not None]


class AwaitedFit(NamedTuple):
    """Where a quorum fits. `awaits`: the jobs (UIDs) for whose ends it waits. `ends_ms`: when the last of them ends, or
    the last step without a job has left, in milliseconds since 1970; 0 for none, infinite if unknown. `after_steps`:
    whether the `first` weren't enough."""

    pods: tuple[PlacedPods, ...]
    awaits: tuple[str, ...]
    ends_ms: float
    after_steps: bool


class _Placed(NamedTuple):
    """Where a quorum was placed, its pods by group, the resources that it requests, and what is free beside it by row
    of the view."""

    pods: tuple[PlacedPods, ...]
    needs: Mapping[int, int]
    asked: Mask
    spare: dict[int, Amounts]

    def take(self, rooms: Iterable[tuple[int, Amounts]]) -> None:
        """So much of it is left no more."""
        for row, amounts in rooms:
            self.spare[row] -= amounts


class AwaitedEnds:
    """The awaited ends of quorums in one cycle."""

    def __init__(self, state: State, placer: Placer, vacating: Vacating) -> None:
        self._state = state
        self._placer = placer
        self._vacating = vacating

    def fit(self, host: JobRecord, first: Sequence[Vacated], steps: Iterable[LeavingStep]) -> AwaitedFit | None:
        """Where the quorum fits once the `first` have left, and then as many of these steps as it needs; None if it
        doesn't even after all."""
        limited = not self._placer.within_limits(host)
        left = self._enough(host, first, steps)
        if left is None:
            return None
        in_order = [job.uid for job, _ in left.jobs]
        awaited = self._needed_by_limits(host, left) if limited else {}
        for _ in range(_MOST_ADDED if self._beside_room else 1):
            left = self._after_those(host, left, awaited)
            placed = self._placed(host)
            awaited = self._awaited(host, left, placed, awaited, limited=limited)
            if len(awaited) == len(left.jobs):
                break
        left.departures.go_to(0)
        ends_ms = max((of.end_ms for of in left.steps if of.job is None or of.job.uid in awaited), default=0)
        return AwaitedFit(placed.pods, tuple([uid for uid in in_order if uid in awaited]), ends_ms, bool(left.steps))

    @property
    def _beside_room(self) -> bool:
        """Whether jobs may be in the way of others otherwise than by room and limits, also from other nodes."""
        state = self._state
        return self._placer.view.neighbours is not None or bool(state.with_volumes or state.with_devices)

    def _enough(
        self, host: JobRecord, first: Sequence[Vacated], steps: Iterable[LeavingStep], *, short: int = -1
    ) -> _Left | None:
        """Let so many leave that the quorum fits; None if all aren't enough. The first `short` surely aren't."""
        taken = list[LeavingStep]()

        def vacated() -> Iterator[Vacated]:
            for step in steps:
                taken.append(step)
                yield step.vacated

        departures = Departures(self._placer, self._vacating, host, chain(first, vacated()), short=short)
        enough = departures.enough()
        departures.go_to(enough or 0)
        return _Left(departures, first, taken[: max(enough - len(first), 0)]) if enough is not None else None

    def _after_those(self, host: JobRecord, left: _Left, awaited: Mapping[str, None]) -> _Left:
        """Let the awaited leave, and of the other jobs only as many as the quorum still needs."""
        others = [of for of in left.steps if of.job is not None and of.job.uid not in awaited]
        if not awaited or not others:
            return left
        before = [of for of in left.steps if of.job is None or of.job.uid in awaited]
        left.departures.go_to(0)
        again = self._enough(host, left.first, [*before, *others], short=len(left.first) + len(before) - 1)
        if again is None:  # a search may find the room only where they leave in their order
            left.departures.go_to(len(left.first) + len(left.steps))
        return again or left

    def _placed(self, host: JobRecord) -> _Placed:
        """Where the quorum goes; the view stays unchanged."""
        placing, view = self._placer.placing, self._placer.view
        mark, rows = placing.mark(), view.node_index.rows()
        tried = self._placer.without_memory(host)
        assert tried is not None, "the quorum has just fitted"
        pods, needs = self._placer.placed_pods(tried), pods_by_group(tried.pieces)
        spare = {rows[of.node]: view.free[rows[of.node]].copy() for of in pods}
        placing.undo(tried, mark)
        asked = np.logical_or.reduce([view.request(group.shape) > 0 for group in host.valid_spec.groups])
        return _Placed(pods, needs, asked, spare)

    # --- who is needed --------------------------------------------------------------------------------------

    def _needed_by_limits(self, host: JobRecord, left: _Left) -> dict[str, None]:
        """The jobs (UIDs) without whose end a limit leaves too little, whatever nodes have: of two of which one is
        enough, the one that ends first."""
        needed, stay = dict[str, None](), list[Vacated]()
        for job, vacated in reversed(left.jobs):
            if self._may_stay(host, vacated):
                stay.append(vacated)
            else:
                needed[job.uid] = None
        for vacated in stay:
            self._vacating.release(vacated)
        return needed

    def _may_stay(self, host: JobRecord, vacated: Vacated, needs: Mapping[int, int] | None = None) -> bool:
        """Let these be there again who have left, if limits leave the quorum enough all the same."""
        self._vacating.take_again(vacated)
        stay = self._placer.within_limits(host, needs)
        if not stay:
            self._vacating.release(vacated)
        return stay

    def _awaited(
        self, host: JobRecord, left: _Left, placed: _Placed, before: Mapping[str, None], *, limited: bool
    ) -> dict[str, None]:
        """The jobs (UIDs) of those that have left without which the quorum doesn't fit where it was placed. Where
        others may be in its way beside room that isn't counted: then all that have pods on these nodes, the last that
        left, and those found before."""
        nodes = {of.node for of in placed.pods}
        there = {job.uid: None for job, _ in left.jobs if not nodes.isdisjoint(job.placements.values())}
        if self._beside_room:  # without the last one it fits nowhere
            return {**before, **there, **{job.uid: None for job, _ in left.jobs[-1:]}}
        found, stay = dict[str, None](), list[Vacated]()
        for job, vacated in left.jobs:
            here = self._room_on(job, placed.spare) if job.uid in there else []
            if any((amounts > placed.spare[row])[placed.asked].any() for row, amounts in here):
                found[job.uid] = None
            elif not limited:
                placed.take(here)
            elif self._may_stay(host, vacated, placed.needs):
                stay.append(vacated)
                placed.take(here)
            else:
                found[job.uid] = None
        for vacated in stay:
            self._vacating.release(vacated)
        return found

    def _room_on(self, job: JobRecord, rows: Container[int]) -> list[tuple[int, Amounts]]:
        """What a job leaves on these rows of the view."""
        rooms = self._vacating.of_whole(job).rooms
        return [(row, rooms.amounts[at]) for at, row in enumerate(rooms.rows.tolist()) if row in rows]
