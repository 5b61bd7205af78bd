"""How quorums that don't fit get room in one cycle, and what is kept for them."""

from collections.abc import Callable, Collection
from typing import NamedTuple

import numpy as np

from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import State
from arranger.scheduling.placing.placement_try import PlacementTry
from arranger.scheduling.room.backfill import Backfill
from arranger.scheduling.room.kept_limits import KeptLimits
from arranger.scheduling.room.preemption import PreemptionSearch
from arranger.scheduling.room.reservations import Reservations
from arranger.scheduling.room.returning import Returning
from arranger.scheduling.room.too_large import TooLarge
from arranger.scheduling.search.placer import Placer


class Room(NamedTuple):
    """What decides about room in one cycle."""

    state: State
    preemption: PreemptionSearch
    reservations: Reservations
    backfill: Backfill
    limits: KeptLimits
    returning: Returning
    too_large: TooLarge | None = None
    #: Only what this job (UID) gets is asked: those that surely get nothing have no turn; empty for what all get.
    asked: str = ""

    @staticmethod
    def of(state: State, placer: Placer, jobs: list[JobRecord], sought: dict[str, int] | None = None) -> "Room":
        """For the waiting jobs of a cycle; `sought` as in `Reservations`."""
        preemption = PreemptionSearch(state, placer, jobs)
        reservations = Reservations(state, placer, jobs, share_rules=preemption, sought=sought)
        backfill = Backfill(state, placer, reservations)
        limits = KeptLimits(state, placer, jobs, reservations=reservations, backfill=backfill)
        returning = Returning(state, placer, preemption, jobs, backfill=backfill)
        return Room(state, preemption, reservations, backfill, limits, returning)

    def waits_for_own_pods(self, job: JobRecord) -> bool:
        """As `Reservations.waits_for_own_pods`. If nothing is reserved for it, it comes back for room of others."""
        waits = self.reservations.waits_for_own_pods(job)
        if waits:
            self.returning.had_turn(job, has_room=job.uid in self.reservations.held)
        return waits

    def make_room(self, tried: PlacementTry) -> PlacementTry | None:
        """From the guests of the job, or else as `PreemptionSearch.make_room`, without the jobs for whose ends a
        reservation waits. Nobody but guests gives any to a job behind one that comes back for it."""
        found = self.preemption.ask_guests(tried)
        if found is not None:
            return found
        if not self._may_take(tried.job) or self._is_left(tried.job):
            return None
        found = self.backfill.beside_borrowers(tried, self.preemption.make_room)
        return found or self.backfill.among_guests(tried, self.preemption.make_room)

    def beside_limits(self, barred: PlacementTry) -> PlacementTry | None:
        """The quorum of a job that may not use a limit which is kept for another, where others leave it as much of that
        and its room, and it comes first by that; None if they don't."""
        if not self._may_take(barred.job) or self._is_left(barred.job):
            return None
        with self.limits.closed(barred.job) as queues:

            def make_room(
                tried: PlacementTry,
                may_not_give: Callable[[], Collection[str]],
                beside_queues: tuple[str, ...] = (),
            ) -> PlacementTry | None:
                return self.preemption.make_room(tried, may_not_give, (*beside_queues, *queues))

            return self.backfill.beside_borrowers(barred, make_room) if queues else None

    def _is_left(self, job: JobRecord) -> bool:
        """Whether a job leaves what others have to one that comes back for it."""
        return next(self.returning.before(job), None) is not None

    def _may_take(self, job: JobRecord) -> bool:
        """Whether a job may take room from anybody, found quickly."""
        if self.too_large is not None and not self.too_large.may_take_room(self.state, job):
            return False
        return self.preemption.may_make_room(job)

    def surely_none(self, job: JobRecord, placer: Placer) -> bool:
        """Whether a job that gets no reservation and takes no room surely gets no nodes either."""
        if self.too_large is None or self.reservations.may_reserve(job):
            return False
        if self._may_take(job):
            return False
        return self.too_large.holds(job, placer.view)

    def in_vain(self, job: JobRecord, placer: Placer) -> bool:
        """Whether a job that isn't asked about surely gets nothing in its turn, which has begun, and changes nothing
        for others: so it only counts as taken."""
        if job.uid == self.asked or job.placements or self.state.is_host(job.uid):
            return False
        nothing = np.zeros_like(placer.view.free, np.int64)
        if self.reservations.may_keep(job) or not placer.lacks_nodes_alone(job):
            return False
        if not self.preemption.lacks_with(job, nothing) or not (placer.never_fits(job) or self._gets_none(job)):
            return False
        self.limits.count_turn(job)
        return True

    def _gets_none(self, job: JobRecord) -> bool:
        """Whether a quorum that lacks room surely gets none that is reserved or that others have."""
        preemption, reserved = self.preemption, self.backfill.open_to(job)
        if reserved is None or not preemption.surely_lacks(job, (reserved.hosts, reserved.first)):
            return False
        return preemption.lacks_among(job, reserved.guests, reserved.every)
