"""Room that is kept for the first jobs that only lack room: who gets a reservation, how long it holds, and when it is
revised.

A reservation names the nodes to which a job's quorum goes as others end, and when (`reservation_search`). What it needs
of these is held on the view of each cycle (`held_room`), and jobs behind use it by the rules of `backfill`.

The first jobs are those whose turns come first. But a policy that prefers small jobs would keep a large one waiting for
as long as they come. So within a queue a new reservation is for the job of the highest priority, and of these for the
oldest, and it holds against all others, also if their turns come before.

A job that waits for nothing but its own pods of an earlier attempt has a reservation too, without guests: it starts
within seconds (`waits_for_own_pods`).
"""

import math
from collections.abc import Iterable
from functools import cached_property

from msgspec.structs import replace

from arranger.events.kinds import Reserved
from arranger.model.config import CycleConfig
from arranger.projections.cluster.openness import closed_to_new
from arranger.projections.derived.awaited_room import takes_none
from arranger.projections.derived.expected_ends import expected_end
from arranger.projections.derived.queue_counts import queue_of
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import Reservation, State
from arranger.scheduling.placing.placement_try import Piece, PlacementTry, Shortage
from arranger.scheduling.queues.policies import Rank, seniority
from arranger.scheduling.room.guests import Guests, ShareRules
from arranger.scheduling.room.held_room import HeldRooms
from arranger.scheduling.room.job_ends import JobEnds
from arranger.scheduling.room.reservation_search import FutureFit, ReservationSearch
from arranger.scheduling.room.vacating import Vacating
from arranger.scheduling.search.placer import Placer


def may_have_reservation(job: JobRecord, config: CycleConfig) -> bool:
    """Whether a job that lacks room may have a reservation: it has no nodes, and others would leave for it."""
    return not job.placements and not takes_none(job, config)


class Reservations:
    """The reservations of one cycle, in the order of the jobs' turns."""

    def __init__(
        self,
        state: State,
        placer: Placer,
        waiting: list[JobRecord],
        *,
        share_rules: ShareRules | None = None,
        sought: dict[str, int] | None = None,
    ) -> None:
        """`share_rules` decide in a cycle between jobs behind and those with reservations. `sought` has the UIDs of the
        jobs whose starts this process sought in earlier cycles, each with the table's `changes` then."""
        self._sought = sought if sought is not None else {}
        self._state = state
        self._waiting = waiting
        self._config = config = placer.placing.config
        self._placer = placer
        self._time_ms = placer.placing.time_ms
        self.vacating = Vacating(state, placer.placing)
        self.guests = Guests(state, config, share_rules)
        self.ends = JobEnds(state, config, self._time_ms, self.vacating, self.guests)
        self.held = HeldRooms(state, placer.view, self.vacating, self.ends)
        self._search = ReservationSearch(
            state, placer, self.vacating, held=self.held, ends=self.ends, guests=self.guests
        )
        #: UID → jobs that have had their turns.
        self._turned: dict[str, None] = {}
        #: How many jobs may still get their first reservation, and how many of those that go before others with one.
        of_others = [uid for uid in state.reservations if not self.vacating.own_gone_ms(state.jobs[uid])]
        self._grants_left = max(config.reservations - len(of_others), 0)
        self._grants_left_before = config.reservations
        #: UID → jobs whose reservations were held elsewhere than they are, before their turns.
        self._moved: dict[str, None] = {}
        #: UID → jobs for which no end is to be recorded: the reservation goes on, or `Placed` ends it in the fold.
        self._needs_no_end: dict[str, None] = {}
        #: The queues in which jobs got their first reservations in this cycle.
        self._queues_granted: set[str] = set()
        #: UID → whether the quorum fits at all as others end.
        self._fits: dict[str, bool] = {}
        #: The rows of the pods that got nodes in this cycle. Only the next one knows when they leave.
        self._used: dict[int, None] = {}
        self._events: list[Reserved] = []
        #: Whether a reservation was revised and is as before. The cycle is recorded, so that the next one knows it.
        self.confirmed = False
        #: When a reservation is to be revised although nothing changes, in milliseconds.
        self.due_ms = math.inf

    def events(self) -> tuple[list[Reserved], list[Reserved]]:
        """The new and changed reservations, and the end of those whose jobs don't lack room alone any more."""
        over = [uid for uid in sorted(self._state.reservations) if uid not in self._needs_no_end]
        for uid in [uid for uid in self._sought if uid not in self._needs_no_end]:
            del self._sought[uid]
        return self._events, [Reserved(uid, self._state.jobs[uid].version, 0, ()) for uid in over]

    # --- turns ----------------------------------------------------------------------------------------------

    def begin(self, job: JobRecord) -> None:
        """A job's turn begins. More senior ones in its queue keep what is reserved for them, although their turns may
        come later, and the job itself may use what is held for it. So may it what is held only because less senior ones
        had their turns already."""
        if not self._state.reservations:
            return
        ahead = [uid for uid in self.held if uid not in self._turned or job.uid in self._moved]
        of_juniors = [
            uid
            for uid in ahead
            if self._queue(job) == self._queue(other := self._state.jobs[uid]) and seniority(job) < seniority(other)
        ]
        for uid in (job.uid, *of_juniors):
            self.held.release(uid)
        for other in self._later:
            waits = other.uid not in self._turned and other.uid not in self.held
            if waits and seniority(other) < seniority(job) and self._queue(other) == self._queue(job):
                self.held.hold(other, self._as_of_now(other))
        self._turned[job.uid] = None

    def _as_of_now(self, job: JobRecord) -> Reserved:
        """The reservation of a job whose turn is still to come: moved, if news of room let it start sooner. Then less
        senior ones give way to it in its turn, though they had theirs."""
        decided = self._state.reservations[job.uid].decided
        sooner = self._after_news(job, decided)
        if sooner is None:
            return decided
        self._moved[job.uid] = None
        return Reserved(job.uid, job.version, *sooner.decided)

    @cached_property
    def _later(self) -> list[JobRecord]:
        """The waiting jobs whose reservation is for the job and the nodes as they are."""
        reservations, nodes, found = self._state.reservations, self._state.nodes, []
        for job in self._waiting:
            if job.uid in reservations and not job.placements:
                decided = reservations[job.uid].decided
                if decided.based_on == job.version and all(nodes.has(placed.node) for placed in decided.pods):
                    found.append(job)
        return found

    def served(self, job: JobRecord) -> None:
        """A job got its nodes, which ends its reservation by itself."""
        self._needs_no_end[job.uid] = None

    def count_used(self, pieces: Iterable[Piece]) -> None:
        """A job got these pods in this cycle."""
        self._used.update(dict.fromkeys(piece.row for piece in pieces))

    def _queue(self, job: JobRecord) -> str:
        return queue_of(self._state, job)

    # --- who gets one ---------------------------------------------------------------------------------------

    def may_reserve(self, job: JobRecord) -> bool:
        """Whether a job has a reservation or may get one."""
        return job.uid in self._state.reservations or self._grants_left > 0 or self._goes_before(job)

    def may_keep(self, job: JobRecord) -> bool:
        """Whether room may be kept for a job that gets none: by a reservation, or where others leave."""
        return self.may_reserve(job) or self._search.may_find_after_departures

    def reserve(self, tried: PlacementTry) -> None:
        """Reserve room for a quorum that lacks nothing else, if its job may have a reservation. A job without one keeps
        what it is to get as soon as those have left who leave anyway: who started there would be asked to leave at
        once."""
        job, shortage = tried.job, tried.shortage
        if shortage is None or not self._lacks_room(tried, shortage) or not may_have_reservation(job, self._config):
            return
        coming = self._search.after_departures(job)
        decided = self._revised(job, self._state.reservations.get(job.uid))
        if decided is not None:
            self._needs_no_end[job.uid] = None
            self.held.hold(job, decided, coming)
        elif coming is not None:
            self.held.hold(job, coming)

    def _lacks_room(self, tried: PlacementTry, shortage: Shortage) -> bool:
        """Whether a quorum lacks nothing but room, or a limit of its queue as long as its guests use that too: they
        leave for it."""
        if shortage.of_nodes:
            return not shortage.infeasible
        guests = self.guests.of(tried.job.uid)
        if not guests or shortage.quota is None:
            return False
        uses = [self.vacating.use_of(guest) for guest in guests]
        return self._placer.placing.quotas.suffice_without(uses, tried.job, tried.policy, shortage.quota)

    def waits_for_own_pods(self, job: JobRecord) -> bool:
        """Whether a job waits for its own pods of an earlier attempt. Then what its quorum would get in its turn
        without them and others that leave is reserved: who started there would soon give it up again."""
        gone_ms = self.vacating.own_gone_ms(job)
        found = self._search.without_own_pods(job) if gone_ms and self._config.reservations else None
        if found is not None:
            decided = Reserved(job.uid, job.version, max(found.start_ms, gone_ms), found.pods)
            known = self._state.reservations.get(job.uid)
            if known is None or not self._is_as_before(decided, known.decided):
                self._events.append(decided)
            self._needs_no_end[job.uid] = None
            self.held.hold(job, decided)
        return bool(gone_ms)

    def _grant(self, job: JobRecord) -> bool:
        """Give a job a first reservation if it may have one: as one of so many, or before others that have one."""
        one_more = self._grants_left > 0
        if not (one_more or self._goes_before(job)) or self._leaves_it(job):
            return False
        if one_more:
            self._grants_left -= 1
        else:
            self._grants_left_before -= 1
        return True

    def _goes_before(self, job: JobRecord) -> bool:
        """Whether a job is before one with a reservation in its queue, and not behind so many others: the first jobs
        have one, also if they came later. Those that had one keep it, with their guests."""
        if not self._grants_left_before:
            return False
        holders, rank = self._holders.get(self._queue(job), []), seniority(job)
        before = sum(other < rank for other in holders)
        return before < min(len(holders), self._config.reservations)

    @cached_property
    def _holders(self) -> dict[str, list[Rank]]:
        """Queue → the `seniority` of its waiting jobs with reservations."""
        found: dict[str, list[Rank]] = {}
        for job in (self._state.jobs[uid] for uid in self._state.reservations):
            if not job.placements:
                found.setdefault(self._queue(job), []).append(seniority(job))
        return found

    @cached_property
    def _seniors(self) -> dict[str, JobRecord]:
        """Queue → the most senior of its jobs without a reservation that lack room alone, as the last cycles found."""
        found: dict[str, JobRecord] = {}
        for job in sorted(self._waiting, key=seniority):
            shortage = job.waits.shortage if job.waits is not None else None
            if shortage is None or not shortage.of_nodes or shortage.infeasible:
                continue
            if may_have_reservation(job, self._config) and job.uid not in self._state.reservations:
                found.setdefault(self._queue(job), job)
        return found

    def _leaves_it(self, job: JobRecord) -> bool:
        """Whether another job in its queue is more senior, and could have a reservation. That one gets it in its own
        turn."""
        first = self._seniors.get(self._queue(job))
        if first is None or seniority(first) >= seniority(job):
            return False
        if first.uid not in self._fits:
            self._fits[first.uid] = self._search.find(first) is not None
        return self._fits[first.uid]

    # --- when they are revised ------------------------------------------------------------------------------

    def _revised(self, job: JobRecord, known: Reservation | None) -> Reserved | None:
        """The reservation that a job has from now on, which may have the `known` one; None if it gets none."""
        if not self._config.reservations or (known is None and not self._grant(job)):
            return None
        if known is None or self._outdated(job, known):
            found = self._search.find(job)
            self._fits[job.uid] = found is not None
            if found is None:
                return None
            if known is None:
                self._queues_granted.add(self._queue(job))
                self._holders.setdefault(self._queue(job), []).append(seniority(job))
        else:
            found = self._elsewhere(job, known.decided)
            if found is None:
                self._note_due(known.decided, known.time_ms)
                self._note_changes(known.decided, known.time_ms)
                return known.decided
        self._sought[job.uid] = self._state.nodes.changes
        decided = self._decide(Reserved(job.uid, job.version, *found.decided, self._outlived(known)), known)
        self._note_due(decided, self._time_ms)
        return decided

    def _outdated(self, job: JobRecord, known: Reservation) -> bool:
        """Whether a reservation is to be revised: it is old enough, the job was edited, its nodes closed, or another
        job of the queue has one now."""
        nodes, decided = self._state.nodes, known.decided
        if decided.based_on != job.version or not all(nodes.has(placed.node) for placed in decided.pods):
            return True
        if closed_to_new(nodes, job.valid_spec, decided.pods):
            return True
        if self._queue(job) in self._queues_granted:
            return True
        return self._is_old(known)

    def _is_old(self, known: Reservation) -> bool:
        return self._time_ms - known.time_ms >= self._config.reservation_refresh_ms

    def _elsewhere(self, job: JobRecord, decided: Reserved) -> FutureFit | None:
        """When and where the quorum fits sooner after news of room, or if others got its reserved room, or it waits no
        more for one of its guests; None if nothing is so, or it fits nowhere. A reservation that moved without that
        would leave to others what has become free for it."""
        if self._state.room_news:
            self.confirmed = True  # it is recorded that the news are known
            sooner = self._after_news(job, decided)
            if sooner is not None:
                return sooner
        search = self._search
        changed = search.is_room_gone(job, decided, self._used) or search.awaits_leaving_guest(job, decided)
        return search.find(job) if changed else None

    def _after_news(self, job: JobRecord, decided: Reserved) -> FutureFit | None:
        """Where the quorum fits sooner than was known, after news of room; None if it doesn't."""
        found = self._search.find(job) if self._state.room_news else None
        sooner = found is not None and found.start_ms and not 0 < decided.start_ms <= found.start_ms
        return found if sooner else None

    def _decide(self, decided: Reserved, known: Reservation | None) -> Reserved:
        """Record a reservation, unless it says nothing new."""
        if known is not None and self._is_as_before(decided, known.decided):
            self.confirmed |= self._is_old(known)
            return known.decided
        self._events.append(decided)
        return decided

    def _is_as_before(self, decided: Reserved, before: Reserved) -> bool:
        """Whether a reservation says nothing new. A start that has come stays one."""
        come = 0 < before.start_ms <= self._time_ms and 0 < decided.start_ms <= self._time_ms
        return before == (replace(decided, start_ms=before.start_ms) if come else decided)

    def _outlived(self, known: Reservation | None) -> tuple[str, ...]:
        """The jobs that a reservation waits for and that have run for longer than expected."""
        found = []
        for uid in known.decided.awaits if known is not None else ():
            job = self._state.jobs.get(uid)
            end = expected_end(self._state, job, self._config, self._time_ms) if job is not None else None
            if end is not None and end.outlived:
                found.append(uid)
        return tuple(found)

    def _note_due(self, decided: Reserved, time_ms: int) -> None:
        refresh_ms = time_ms + self._config.reservation_refresh_ms
        if decided.start_ms:
            self.due_ms = min(self.due_ms, max(decided.start_ms, refresh_ms))

    def _note_changes(self, decided: Reserved, time_ms: int) -> None:
        """A reservation is revised as soon as it may be if the room of nodes has changed since."""
        if self._sought.get(decided.job_uid) != self._state.nodes.changes:
            self.due_ms = min(self.due_ms, time_ms + self._config.reservation_refresh_ms)
