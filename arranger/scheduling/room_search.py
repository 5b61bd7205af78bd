"""The search for the victims of one quorum: greedy, with reprieve.

Candidates give room unit by unit, in their order, until the quorum fits. Then every unit is tried to be spared, the
last first. It is, if the quorum stays where it is, or fits elsewhere, with the unit's pods in their places.

If several whole jobs are needed, the search is repeated without the most harmful of them, as long as that is better:
the victims of another node may be fewer, or of lower priority.
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
#: How many times a search is repeated without its most harmful victim.
_REPEATS = 3
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


class _Units:
    """What candidates can give, in their order. They are read only as far as needed, and each once."""

    def __init__(self, candidates: Iterable[Candidate], vacating: Vacating) -> None:
        self._vacating = vacating
        self._more = self._read(candidates)
        self._known: list[Unit] = []

    def _read(self, candidates: Iterable[Candidate]) -> Iterator[Unit]:
        before: dict[str, dict[SlotKey, None]] = {}
        for candidate in candidates:
            given = before.setdefault(candidate.job.uid, {})
            whole = candidate.kind != PreemptionKind.SURPLUS
            for unit in candidate.units:
                slots = tuple([slot for slot in unit if slot not in given])
                given.update(dict.fromkeys(slots))
                yield Unit(candidate, slots, self._vacating.of_job(candidate.job, slots, whole=whole))

    def without(self, left_out: list[Unit]) -> Iterator[Unit]:
        """All units but these."""
        at = 0
        while True:
            if at == len(self._known):
                unit = next(self._more, None)
                if unit is None:
                    return
                self._known.append(unit)
            if all(self._known[at] is not of for of in left_out):
                yield self._known[at]
            at += 1


def least_harm(placer: Placer, vacating: Vacating, job: JobRecord, candidates: Iterable[Candidate]) -> Outcome | None:
    """As `RoomSearch.run`, with the best of a few searches."""
    units, left_out = _Units(candidates, vacating), list[Unit]()
    search = RoomSearch(placer, vacating, job)
    best = search.run(units.without([]))
    while best is not None and len(left_out) < _REPEATS:
        whole = [unit for unit in best.victims if unit.candidate.kind != PreemptionKind.SURPLUS]
        if len(whole) < 2:
            break
        search.undo(best)
        again = RoomSearch(placer, vacating, job)
        found = again.run(units.without([*left_out, whole[-1]]))
        if found is None or _harm(found) >= _harm(best):
            if found is not None:
                again.undo(found)
            best = RoomSearch(placer, vacating, job).run(units.without(left_out))
            break
        left_out.append(whole[-1])
        search, best = again, found
    if best is not None:
        best.others[:0] = left_out
    return best


def _harm(outcome: Outcome) -> tuple[list[tuple[bool, int]], int, int]:
    """What comes first is worse: whole jobs of the own queue, those of others, each by priority; then the work that is
    lost, and the surplus."""
    whole = [unit.candidate for unit in outcome.victims if unit.candidate.kind != PreemptionKind.SURPLUS]
    jobs = sorted(((of.kind == PreemptionKind.PRIORITY, of.priority) for of in whole), reverse=True)
    return jobs, sum(of.lost_ms for of in whole), len(outcome.victims) - len(whole)


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
        #: The rows on which the quorum is placed, and the columns that it requests.
        self._rows: set[int] = set()
        groups = job.valid_spec.groups
        self._asked = np.logical_or.reduce([placer.view.request(group.shape) > 0 for group in groups])
        self._mark = (0, 0)

    def run(self, units: Iterator[Unit]) -> Outcome | None:
        """The quorum on the view with the room of its victims, and only that, released; None if it can't be placed."""
        more = self._read(units)
        departures = Departures(self._placer, self._vacating, self._job, (unit.vacated for unit in more))
        enough = departures.enough()
        departures.go_to(enough or 0)
        if enough is None or not self._place():
            departures.go_to(0)
            return None
        for _ in islice(more, OTHERS):
            pass  # it is named as one of those that give no room
        return self._reprieved(enough)

    def undo(self, outcome: Outcome) -> None:
        """The view as it was before the run with this outcome."""
        self._remove()
        for unit in outcome.victims:
            self._vacating.take_again(unit.vacated)

    def _read(self, units: Iterator[Unit]) -> Iterator[Unit]:
        """The units in order; those that were read are kept."""
        for unit in units:
            self._units.append(unit)
            yield unit

    def _place(self) -> bool:
        """Place the quorum on the view as it is now, and remember how to undo that."""
        self._mark = self._placing.mark()
        tried = self._placer.without_memory(self._job)
        if tried is not None:
            self._tried, self._rows = tried, {piece.row for piece in tried.pieces}
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
        return not any((view.free[row][self._asked] < 0).any() for row, _ in unit.vacated.rooms if row in self._rows)
