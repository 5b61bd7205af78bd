"""The search for the victims of one quorum: greedy, with reprieve.

Candidates give room unit by unit, in their order, until the quorum fits. Then every unit is tried to be spared, the
last first. It is, if the quorum stays where it is, or fits elsewhere, with the unit's pods in their places.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from arranger.events.facts import PreemptionKind
from arranger.projections.job_parts import SlotKey
from arranger.projections.jobs import JobRecord
from arranger.scheduling.candidates import Candidate
from arranger.scheduling.departures import Departures
from arranger.scheduling.placement_try import PlacementTry
from arranger.scheduling.placer import Placer
from arranger.scheduling.vacating import Vacated, Vacating

#: How many units are named that come after those that are enough.
OTHERS = 8
#: How many units of one search may cost placing the quorum again. Others that are in its way are victims.
_RETRIES = 64


@dataclass(frozen=True, slots=True)
class Unit:
    """Pods that give room together. Those of a whole job are without its surplus, which precedes them."""

    candidate: Candidate
    slots: tuple[SlotKey, ...]
    vacated: Vacated


@dataclass(slots=True)
class Outcome:
    """The placed quorum, the units that give it room, those that were spared after all, and those that came after them
    in order."""

    tried: PlacementTry
    victims: list[Unit]
    spared: list[Unit]
    others: list[Unit]


class RoomSearch:
    """The search for one quorum on one cycle's view."""

    def __init__(self, placer: Placer, vacating: Vacating, job: JobRecord) -> None:
        self._placer = placer
        self._placing = placer.placing
        self._vacating = vacating
        self._job = job
        self._units: list[Unit] = []
        self._retries = _RETRIES
        self._tried: PlacementTry
        self._mark = (0, 0)

    def run(self, candidates: Iterable[Candidate]) -> Outcome | None:
        """The quorum on the view with the room of its victims, and only that, released; None if it can't be placed."""
        more = self._units_of(candidates)
        departures = Departures(self._placer, self._vacating, self._job, (unit.vacated for unit in more))
        enough = departures.enough()
        departures.go_to(enough or 0)
        if enough is None or not self._place():
            departures.go_to(0)
            return None
        for _ in islice(more, OTHERS):
            pass  # it is named as one of those that give no room
        return self._reprieved(enough)

    def _units_of(self, candidates: Iterable[Candidate]) -> Iterator[Unit]:
        """The units in order; those that were read are kept."""
        before: dict[str, dict[SlotKey, None]] = {}
        for candidate in candidates:
            given = before.setdefault(candidate.job.uid, {})
            whole = candidate.kind != PreemptionKind.SURPLUS
            for unit in candidate.units:
                slots = tuple([slot for slot in unit if slot not in given])
                given.update(dict.fromkeys(slots))
                found = Unit(candidate, slots, self._vacating.of_job(candidate.job, slots, whole=whole))
                self._units.append(found)
                yield found

    def _place(self) -> bool:
        """Place the quorum on the view as it is now, and remember how to undo that."""
        self._mark = self._placing.mark()
        tried = self._placer.without_memory(self._job)
        if tried is not None:
            self._tried = tried
        return tried is not None

    def _remove(self) -> None:
        """Undo the placement."""
        self._placing.undo(self._tried, self._mark)
        self._placing.view.touch()  # others have given or taken room since the mark

    def _reprieved(self, enough: int) -> Outcome:
        """Spare each of the first so many units without which the quorum fits as well."""
        victims: list[Unit] = []
        spared: list[Unit] = []
        whole: dict[str, None] = {}
        for unit in reversed(self._units[:enough]):
            if unit.candidate.job.uid not in whole and self._may_spare(unit):
                spared.append(unit)
                continue
            victims.append(unit)
            if unit.candidate.kind != PreemptionKind.SURPLUS:
                whole[unit.candidate.job.uid] = None  # its surplus goes with it
        return Outcome(self._tried, victims[::-1], spared[::-1], self._units[enough:])

    def _may_spare(self, unit: Unit) -> bool:
        """Whether the quorum fits with the unit in its places; then they are. If not, nothing has changed."""
        self._vacating.take_again(unit.vacated)
        if self._stands(unit):
            return True
        if self._retries:
            self._retries -= 1
            self._remove()
            if self._place():
                return True
            self._vacating.release(unit.vacated)
            placed = self._place()
            assert placed, "the quorum has just fitted"
        else:
            self._vacating.release(unit.vacated)
        return False

    def _stands(self, unit: Unit) -> bool:
        """Whether the quorum surely fits where it is placed, with the unit in its places."""
        view, quotas = self._placing.view, self._placing.quotas
        if view.neighbours is not None or quotas.guarantees or quotas.exceeded(self._job):
            return False
        rows = {piece.row for piece in self._tried.pieces}
        asked = np.logical_or.reduce([view.request(group.shape) > 0 for group in self._tried.groups])
        return not any((view.free[row][asked] < 0).any() for row, _ in unit.vacated.rooms if row in rows)
