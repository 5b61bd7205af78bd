"""The search for the victims of one quorum: greedy, with reprieve.

Candidates give room unit by unit, in their order, until the quorum fits. Then every unit is tried to be spared, the
last first. It is, if the quorum stays where it is, or fits elsewhere, with the unit's pods in their places.

If several whole jobs are needed, the search is repeated without the most harmful of them, as long as that is better:
the victims of another node may be fewer, or of lower priority.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from arranger.events.facts import PreemptionKind
from arranger.projections.jobs.parts import SlotKey
from arranger.projections.jobs.records import JobRecord
from arranger.scheduling.cluster.view import ClusterView, Levels, Mask, add_to
from arranger.scheduling.placing.placement_try import PlacementTry
from arranger.scheduling.placing.pods import Placing
from arranger.scheduling.room.candidates import Candidate
from arranger.scheduling.room.departures import Departures
from arranger.scheduling.room.surplus import spared_beside
from arranger.scheduling.room.vacating import Departing, Vacated, Vacating
from arranger.scheduling.search.placer import Placer

#: How many units are named that come after those that are enough.
OTHERS = 8
#: How many times a search is repeated without its most harmful victim.
_REPEATS = 3
#: How many units of one search may cost placing the quorum again. Others that are in its way are victims.
_RETRIES = 64


class Unit(NamedTuple):
    """Pods that give room together. Those of a whole job are without its surplus, which precedes them."""

    candidate: Candidate
    slots: tuple[SlotKey, ...]
    vacated: Vacated
    #: Its place in the order of all units.
    at: int
    #: Of a whole job, the places of the units of its surplus, which precede it.
    surplus: tuple[int, ...] = ()


@dataclass(slots=True)
class RoomOutcome:
    """The placed quorum, the units that give it room, those that were spared after all, and those that came after them
    in order."""

    tried: PlacementTry
    victims: list[Unit]
    spared: list[Unit]
    others: list[Unit]
    #: The view and the quotas before the quorum was placed.
    mark: tuple[int, int]

    @property
    def whole(self) -> list[Candidate]:
        """The victims that leave as a whole."""
        return [unit.candidate for unit in self.victims if unit.candidate.kind.whole]

    @property
    def harm(self) -> tuple[list[tuple[bool, int]], int, int]:
        """What comes first is worse: whole jobs of the own queue, those of others, each by priority; then the work that
        is lost, and the surplus."""
        whole = self.whole
        jobs = sorted(((of.kind == PreemptionKind.PRIORITY, of.priority) for of in whole), reverse=True)
        return jobs, sum(of.lost_ms for of in whole), len(self.victims) - len(whole)

    def free_before(self, view: ClusterView) -> Levels:
        """What was free on the view before the quorum was placed, and its victims had left."""
        free = view.free.copy()
        for piece in self.tried.pieces:
            free[piece.row] += view.request(self.tried.groups[piece.group].shape) * len(piece.indices)
        for unit in self.victims:
            add_to(free, *unit.vacated.rooms, -1)
        return free

    def undo(self, placing: Placing, vacating: Vacating) -> None:
        """Take the quorum off the view, where its victims are again."""
        _remove(placing, self.tried, self.mark)
        for unit in self.victims:
            vacating.take_again(unit.vacated)


def _remove(placing: Placing, tried: PlacementTry, mark: tuple[int, int]) -> None:
    """Undo a placement."""
    placing.undo(tried, mark)
    placing.view.touch()  # others have given or taken room since the mark


class _Units:
    """What candidates can give, in their order. They are read only as far as needed, and each once."""

    def __init__(self, candidates: Iterable[Candidate], vacating: Vacating) -> None:
        self._vacating = vacating
        self._more = self._read(candidates)
        self._units: list[Unit] = []

    def _read(self, candidates: Iterable[Candidate]) -> Iterator[Unit]:
        #: Job UID → the slots of its surplus, each with the place of its unit; and why it gives that.
        before: dict[str, dict[SlotKey, int]] = {}
        kinds: dict[str, PreemptionKind] = {}
        for candidate in candidates:
            job, whole, units = candidate.job, candidate.kind.whole, candidate.units
            given = before.get(job.seen.uid)
            if given and not whole and candidate.kind != kinds[job.seen.uid]:
                units = spared_beside(job, units, given)  # it gives what was lent to it already
            kinds[job.seen.uid] = candidate.kind
            for unit in units:
                at, slots, surplus = len(self._units), unit, tuple[int, ...]()
                if not whole:
                    given = before.setdefault(job.seen.uid, {})
                    given.update(dict.fromkeys(unit, at))
                elif given:
                    slots = tuple([slot for slot in unit if slot not in given])
                    surplus = tuple(dict.fromkeys(given.values()))
                yield Unit(candidate, slots, self._vacating.of_job(job, slots, whole=whole), at, surplus)

    def without(self, left_out: list[Unit]) -> Iterator[Unit]:
        """All units but these."""
        at, skipped = 0, [unit.at for unit in left_out]
        while True:
            if at == len(self._units):
                unit = next(self._more, None)
                if unit is None:
                    return
                self._units.append(unit)
            if at not in skipped:
                yield self._units[at]
            at += 1


_place = attrgetter("at")


def least_harm(
    placer: Placer, vacating: Vacating, job: JobRecord, candidates: Iterable[Candidate]
) -> RoomOutcome | None:
    """As `RoomSearch.run`, with the best of a few searches."""
    units, left_out = _Units(candidates, vacating), list[Unit]()
    search = RoomSearch(placer, vacating, job)
    best = search.run(units.without([]))
    while best is not None and len(left_out) < _REPEATS:
        whole = [unit for unit in best.victims if unit.candidate.kind.whole]
        if len(whole) < 2:
            break
        best.undo(placer.placing, vacating)
        again = RoomSearch(placer, vacating, job, short=max(search.short - 1, -1))
        found = again.run(units.without([*left_out, whole[-1]]))
        if found is None or found.harm >= best.harm:
            if found is not None:
                found.undo(placer.placing, vacating)
            best = RoomSearch(placer, vacating, job, short=search.short).run(units.without(left_out))
            break
        left_out.append(whole[-1])
        search, best = again, found
    if best is not None:
        best.others[:0] = left_out
    return best


class RoomSearch:
    """The search for one quorum on one cycle's view. The first `short` units are known not to be enough."""

    def __init__(self, placer: Placer, vacating: Vacating, job: JobRecord, *, short: int = -1) -> None:
        #: So many of the first units are surely not enough.
        self.short = short
        self._placer = placer
        self._placing = placer.placing
        self._vacating = vacating
        self._job = job
        self._units: list[Unit] = []
        self._retries = _RETRIES
        self._tried: PlacementTry
        #: The rows on which the quorum is placed, and the columns that it requests.
        self._rows: dict[int, None] = {}
        #: Of each unit, whether it has room on these rows, once that is known.
        self._near: Mask | None = None
        #: The units' room, and the places of units that are spared, but aren't in their places yet.
        self._departing = Departing()
        self._spared: list[int] = []
        groups = job.valid_spec.groups
        self._asked = np.logical_or.reduce([placer.view.request(group.shape) > 0 for group in groups])
        self._mark = (0, 0)

    def among(self, candidates: Iterable[Candidate]) -> RoomOutcome | None:
        """As `run`, of all that candidates can give."""
        return self.run(_Units(candidates, self._vacating).without([]))

    def run(self, units: Iterator[Unit]) -> RoomOutcome | None:
        """The quorum on the view with the room of its victims, and only that, released; None if it can't be placed."""
        more = self._read(units)
        departures = Departures(self._placer, self._vacating, self._job, more, short=self.short)
        enough, self.short, self._departing = departures.enough(), departures.short, departures.leaving
        departures.go_to(enough or 0)
        if enough is None or not self._place():
            departures.go_to(0)
            return None
        for _ in islice(more, OTHERS):
            pass  # it is named as one of those that give no room
        return self._reprieved(enough)

    def _read(self, units: Iterator[Unit]) -> Iterator[Vacated]:
        """What the units leave, in order; those that were read are kept."""
        for unit in units:
            self._units.append(unit)
            yield unit.vacated

    def _place(self) -> bool:
        """Place the quorum on the view as it is now, and remember how to undo that."""
        self._mark = self._placing.mark()
        tried = self._placer.without_memory(self._job)
        if tried is not None:
            self._tried, self._rows, self._near = tried, dict.fromkeys(piece.row for piece in tried.pieces), None
        return tried is not None

    def _reprieved(self, enough: int) -> RoomOutcome:
        """Spare each of the first so many units without which the quorum fits as well."""
        victims, spared = list[Unit](), list[Unit]()
        #: The surplus of whole jobs that give room goes with them.
        goes, end = np.zeros(enough, np.bool_), enough
        while end:
            at = self._last_near(goes[:end])
            far = range(end - 1, at, -1)
            self._spared += far
            spared += [self._units[one] for one in far]
            end = max(at, 0)
            if at < 0:
                break
            unit = self._units[at]
            if not goes[at] and self._may_spare(at):
                spared.append(unit)
                continue
            victims.append(unit)
            goes[[bisect_left(self._units, one, key=_place) for one in unit.surplus]] = True
        self._take_spared()
        return RoomOutcome(self._tried, victims[::-1], spared[::-1], self._units[enough:], self._mark)

    def _last_near(self, goes: Mask) -> int:
        """The last of the first units that is in `goes`, or has something to do with where the quorum is placed; -1 if
        none. Most units have not, and to take them again one by one would cost more than all the rest."""
        if not self._vacating.by_room_alone:
            return len(goes) - 1
        if self._near is None:
            self._near = self._departing.on([*self._rows], len(self._placing.view))
        found = np.flatnonzero(self._near[: len(goes)] | goes)
        return int(found[-1]) if len(found) else -1

    def _may_spare(self, at: int) -> bool:
        """Whether the quorum fits with the unit in its places; then they are, or will be once that matters. If not,
        nothing has changed."""
        unit = self._units[at]
        self._vacating.take_again(unit.vacated)
        if self._stands(unit):
            return True
        if self._retries:
            self._retries -= 1
            self._take_spared()
            _remove(self._placing, self._tried, self._mark)
            if self._place():
                return True
            self._vacating.release(unit.vacated)
            placed = self._place()
            assert placed, "the quorum has just fitted"
        else:
            self._vacating.release(unit.vacated)
        return False

    def _take_spared(self) -> None:
        """Let all units that were spared be in their places."""
        if self._spared:
            self._vacating.take_all_again(self._departing, self._spared)
            self._spared = []

    def _stands(self, unit: Unit) -> bool:
        """Whether the quorum surely fits where it is placed, with the unit in its places."""
        view, quotas = self._placing.view, self._placing.quotas
        if view.neighbours is not None or quotas.guarantees or quotas.exceeded(self._job):
            return False
        rows = [row for row in unit.vacated.rooms.rows.tolist() if row in self._rows]
        return not any((view.free[row][self._asked] < 0).any() for row in rows)
