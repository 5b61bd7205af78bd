"""The search for the nodes to reserve: when and where a quorum fits as others leave.

As in EASY backfilling (Lifka, "The ANL/IBM SP scheduling system", 1995; Mu'alem and Feitelson, IEEE TPDS 12(6), 2001),
but for whole quorums and nodes instead of processors, jobs that run end one after the other, at the times at which they
are expected to, until the quorum fits. Jobs of which nothing is expected end after all others, the one that began first
before the next; then the time of the start is unknown, and the nodes are reserved all the same.
"""

import math
from collections.abc import Collection, Container, Hashable, Iterable, Iterator, Sequence
from functools import cached_property
from heapq import merge
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from arranger.events.kinds import PodSeen, Reserved
from arranger.model.job import PlacedPods
from arranger.projections.cluster.nodes import Amounts
from arranger.projections.derived.queue_counts import is_other
from arranger.projections.jobs.parts import SlotKey
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import State
from arranger.scheduling.room.awaited_ends import AwaitedEnds, LeavingStep
from arranger.scheduling.room.guests import Guests
from arranger.scheduling.room.held_room import HeldRooms
from arranger.scheduling.room.job_ends import JobEnds
from arranger.scheduling.room.vacating import Vacated, Vacating, grace_ms, held_by
from arranger.scheduling.search.placer import Placer

#: How many quorums of a cycle are tried beside those who leave anyway.
_MOST_AFTER_DEPARTURES = 16
#: How many times a start is sought, each time with the guests that needn't leave by the last one.
MOST_STAYING = 4


class FutureFit(NamedTuple):
    """When and where a quorum fits, the jobs on these nodes that end before, and when the last of all has ended."""

    start_ms: int
    pods: tuple[PlacedPods, ...]
    awaits: tuple[str, ...]
    ends_ms: float

    @property
    def decided(self) -> tuple[int, tuple[PlacedPods, ...], tuple[str, ...]]:
        """What a decision says of it."""
        return self.start_ms, self.pods, self.awaits


class ReservationSearch:
    """The searches of one cycle. Room that is `held` for others isn't there, and neither is what is still to be left
    for them."""

    def __init__(
        self, state: State, placer: Placer, vacating: Vacating, *, held: HeldRooms, ends: JobEnds, guests: Guests
    ) -> None:
        self._state = state
        self._placer = placer
        self._time_ms = placer.placing.time_ms
        self._vacating = vacating
        self._held = held
        self._ends = ends
        self._guests = guests
        self._awaited_ends = AwaitedEnds(state, placer, vacating)
        #: How many quorums were tried beside those who leave anyway, and what determines which of them didn't fit.
        self._tried_after_departures = 0
        self._no_fit_after_departures: set[Hashable] = set()

    def find(self, job: JobRecord, ends: list[tuple[float, JobRecord]] | None = None) -> FutureFit | None:
        """When and where the quorum fits as others end, in the order of these `ends` or of all; None if it doesn't fit
        even then. With these ends alone, what all others are still to leave for the jobs before it isn't there, and
        isn't held for those either.

        Pods that leave anyway are the first to have left. If the quorum then waits for their grace periods, it is
        sought once more with them in the order of time: others may end before.

        Guests leave when they are asked to. But if some needn't by the start that is found, because they keep their
        queue within its share once others have ended, it is sought again with their own ends."""
        if ends is not None:
            with self._placer.placing.unobserved():
                return self._as_others_leave(job, ends, frozenset())
        with self._placer.placing.unobserved(), self._held.without_room_to_come():
            staying: frozenset[str] = frozenset()
            for _ in range(MOST_STAYING):
                found = self._in_time(job, staying)
                more = self._staying(job, found) if found is not None else staying
                if more <= staying:
                    break
                staying |= more
        return found

    def _in_time(self, job: JobRecord, staying: frozenset[str]) -> FutureFit | None:
        """As `find`, as all others leave, where these guests (UIDs) of the job stay until they end."""
        ends = self._ends.before(job, staying)
        found = self._as_others_leave(job, ends, staying)
        if found is not None and self._leaving and found.ends_ms < found.start_ms:
            later = self._as_others_leave(job, ends, staying, late=True)
            found = later if later is not None and 0 < later.start_ms < found.start_ms else found
        return found

    def _staying(self, job: JobRecord, found: FutureFit) -> frozenset[str]:
        """The guests of a job (UIDs) that needn't leave for it at this start."""
        return self._ends.staying(job, self._ends.ended_by(job, found.start_ms, found.awaits))

    def after_departures(self, job: JobRecord) -> Reserved | None:
        """What to keep for a quorum that fits once those have left who leave anyway, but what they leave for jobs
        before it; None if it doesn't."""
        if not self.may_find_after_departures:
            return None
        if (key := (self._placer.alike(job), self._placer.view.content)) in self._no_fit_after_departures:
            return None
        self._tried_after_departures += 1
        with self._held.without_room_to_come():
            found = self.find(job, self._ends.now)
        if found is None:
            self._no_fit_after_departures.add(key)
            return None
        return Reserved(job.uid, job.version, self._time_ms, found.pods, found.awaits)

    @property
    def may_find_after_departures(self) -> bool:
        """Whether room is to come that nobody was asked for, and a further quorum is tried with it."""
        comes = bool(self._state.assumed or self._leaving or self._ends.now)
        return self._tried_after_departures < _MOST_AFTER_DEPARTURES and comes

    def without_own_pods(self, job: JobRecord) -> FutureFit | None:
        """When and where a quorum fits once its own pods of an earlier attempt have left, and others that leave anyway:
        if possible on the nodes that its own leave, and on room that others leave, so nobody waits for what is free
        now; None if it doesn't."""
        view = self._placer.view
        rows = view.node_index.rows()
        own = [rows[pod.node] for pod in self._vacating.own_pods(job) if pod.node in rows]
        if own:
            others = np.delete(np.arange(len(view)), own)
            with view.holding(others, np.maximum(view.free[others].astype(np.int64), 0)):
                found = self.find(job, [])
            if found is not None:
                return found
        return self.find(job, [])

    # --- one search -----------------------------------------------------------------------------------------

    def _as_others_leave(
        self, job: JobRecord, ends: list[tuple[float, JobRecord]], staying: Container[str], *, late: bool = False
    ) -> FutureFit | None:
        """As `find`; if `late`, pods that leave anyway do so when their grace periods are over. Room that is kept
        for pods that may come is kept for seconds."""
        lent = {ending.uid: slots for _, ending in ends if (slots := ending.slots.lent_by(job.uid))}
        leaving = self._leaving_by_time() if late else [(self._time_ms, self._leaving)]
        first = [self._vacating.of_pods(pods) for end_ms, pods in leaving if end_ms <= self._time_ms]
        first += self._vacating.of_assumed()
        first += [self._part(ending, lent[ending.uid], whole=False) for _, ending in ends if ending.uid in lent]
        more = [pods for pods in leaving if pods[0] > self._time_ms]

        def step(end_ms: float, leaves: JobRecord | list[PodSeen]) -> LeavingStep:
            if isinstance(leaves, list):
                return LeavingStep(end_ms, None, self._vacating.of_pods(leaves))
            part = self._rest(leaves, lent[leaves.uid]) if leaves.uid in lent else self._vacating.of_whole(leaves)
            # Guests leave when they are asked to, and they come and go.
            is_asked = leaves.uid not in staying and self._guests.may_leave_for(leaves, job.uid)
            return LeavingStep(end_ms, None if is_asked else leaves, part)

        by_time: Iterable[tuple[float, JobRecord | list[PodSeen]]] = merge(ends, more, key=itemgetter(0))
        found = self._awaited_ends.fit(job, first, (step(*each) for each in by_time))
        if found is None:
            return None
        nodes = {placed.node for placed in found.pods}
        left_ms = self._left_ms(job, nodes, found.awaits, [] if late else self._leaving, lent=not found.after_steps)
        last_ms = max(found.ends_ms, left_ms)
        return FutureFit(int(last_ms) if last_ms < math.inf else 0, found.pods, found.awaits, found.ends_ms)

    @cached_property
    def _leaving(self) -> list[PodSeen]:
        """The pods that leave anyway and aren't of jobs with nodes: of others only those that are to be gone soon."""
        leaving = self._vacating.leaving
        return [*leaving, *(pod for pod in self._vacating.deleted(leaving) if is_other(pod))]

    def _leaving_by_time(self) -> list[tuple[float, list[PodSeen]]]:
        """The same, by the time at which their grace periods are over."""
        found: dict[float, list[PodSeen]] = {}
        for pod in self._leaving:
            found.setdefault(float(self._vacating.left_by_ms([pod])), []).append(pod)
        return sorted(found.items())

    def _part(self, job: JobRecord, slots: Iterable[SlotKey], *, whole: bool) -> Vacated:
        """What these slots of a job leave; with `whole` it has no nodes any more."""
        return self._vacating.of_job(job, tuple(sorted(slots)), whole=whole)

    def _rest(self, job: JobRecord, gone: set[SlotKey]) -> Vacated:
        """What a job leaves that has no nodes any more, once these slots have left."""
        return self._part(job, job.placements.keys() - gone, whole=True)

    def _left_ms(
        self,
        host: JobRecord,
        nodes: Collection[str],
        awaited: Collection[str],
        pods: Sequence[PodSeen],
        *,
        lent: bool,
    ) -> int:
        """When those have left these nodes who leave now: pods that leave anyway, jobs of those awaited that end by
        themselves, with `lent` the pods that were lent room of the host, and what is kept for pods that may come."""
        leaving = [*pods]
        for job in self._vacating.ending:
            leaving += held_by(self._state, job, job.placements) if job.uid in awaited else ()
        slots = [(job, slot) for job in self._state.jobs.values() for slot in job.slots.lent_by(host.uid) if lent]
        return max(
            self._time_ms + (grace_ms(self._state, slots, ()) if slots else 0),
            self._vacating.left_by_ms(pod for pod in leaving if pod.node in nodes),
            *(assumed.until_ms for assumed in self._state.assumed.values() if assumed.node in nodes),
        )

    # --- nodes that are reserved already --------------------------------------------------------------------

    def is_room_gone(self, job: JobRecord, decided: Reserved, used: Collection[int]) -> bool:
        """Whether pods that stay have got room that was reserved for a quorum: it lacks some there, whoever else has a
        reservation, even once those have left for which it waits, those who leave now, and those who end by its start.
        A search counts no more, so it finds something else. Nothing is known yet of who leaves the rows that were
        `used` in this cycle."""
        view = self._placer.view
        needed, leave = (
            self._held.needed_for(job, decided.pods),
            self._held.leave_for(job, decided.start_ms, decided.awaits),
        )
        rows = np.flatnonzero(needed.any(axis=1))
        needed = needed[rows]
        lacks = needed - view.free_with_held[rows] - self._left_now[rows]
        lacks -= self._vacating.in_all(self._vacating.of_whole(of) for of in leave.values() if of.placements)[rows]

        def short() -> set[int]:
            return set(rows[((needed > 0) & (lacks > 0)).any(axis=1)].tolist()).difference(used)

        nodes = {view.names[row] for row in short()}
        if nodes:
            lacks -= self._vacating.in_all(self._left_by(job, nodes, decided.start_ms, leave))[rows]
        return bool(nodes and short())

    def awaits_leaving_guest(self, job: JobRecord, decided: Reserved) -> bool:
        """Whether a reservation waits for the end of a guest that would leave for its job now, and once the others have
        ended for which it waits."""
        awaited = [self._state.jobs[uid] for uid in decided.awaits if uid in self._state.jobs]
        others = [of for of in awaited if not self._guests.may_leave_for(of, job.uid)]
        guests = {of.uid for of in awaited if self._guests.leaves_for(of, job.uid)}
        if not guests:
            return False
        last_ms = max([self._ends.end_ms(of) for of in others if of.placements], default=float(self._time_ms))
        over = self._ends.ended_by(job, int(last_ms) if last_ms < math.inf else 0, [of.uid for of in others])
        return any(guest.uid in guests for guest in self._ends.leaving(job, over - guests))

    def _left_by(self, host: JobRecord, nodes: set[str], start_ms: int, counted: Collection[str]) -> Iterator[Vacated]:
        """What those jobs on these nodes, but those that are counted (UIDs), leave by the start of a reservation, 0 for
        any time."""
        ending = {job.uid for job in self._vacating.ending}
        for job in self._state.jobs.values():
            if job.uid in counted or nodes.isdisjoint(job.placements.values()):
                continue
            end_ms = self._ends.end_ms(job)
            if job.uid in ending or (end_ms < math.inf and end_ms <= max(start_ms or end_ms, self._time_ms)):
                yield self._vacating.of_whole(job)
            elif slots := job.slots.lent_by(host.uid):
                yield self._part(job, slots, whole=False)

    @cached_property
    def _left_now(self) -> Amounts:
        """What those leave, by row of the view, who leave now, and what is kept for pods that may come."""
        return self._vacating.in_all([self._vacating.of_pods(self._leaving), *self._vacating.of_assumed()])
