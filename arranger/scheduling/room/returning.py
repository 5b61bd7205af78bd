"""Jobs that come back for room: those that gave all of theirs in this cycle, and those that only wait for their own
pods of an earlier attempt to leave.

Such a job can't be placed yet, and nobody is asked to leave for it before it can. But what a job behind it took from
others meanwhile, it would take from that one as soon as its own pods are gone: whoever gave that room would have lost
work for nothing. So until then, a job of lower priority in its queue takes nothing from others if the two may be in
each other's way. A job whose own pods hang isn't among the waiting jobs, because nobody knows when it comes back:
nobody leaves room to it.
"""

from collections.abc import Iterator
from functools import cached_property
from itertools import chain

import numpy as np

from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import State
from arranger.projections.verdicts.ownership import awaits_own_pods
from arranger.scheduling.cluster.view import Mask
from arranger.scheduling.room.backfill import Backfill
from arranger.scheduling.room.preemption import PreemptionSearch
from arranger.scheduling.search.placer import Placer


class Returning:
    """Those of one cycle. `waiting` are its waiting jobs."""

    def __init__(
        self,
        state: State,
        placer: Placer,
        preemption: PreemptionSearch,
        waiting: list[JobRecord],
        *,
        backfill: Backfill,
    ) -> None:
        self._state = state
        self._placer = placer
        self._preemption = preemption
        self._backfill = backfill
        self._waiting = waiting
        #: The jobs (UIDs) for which room is reserved, so that they needn't take any from others. At first those with a
        #: reservation in the state; from a job's turn on as this cycle found (`had_turn`).
        self._with_room: dict[str, None] = dict.fromkeys(state.reservations)

    @cached_property
    def _awaiting(self) -> dict[str, list[tuple[int, JobRecord]]]:
        """Queue → its jobs that wait for their own pods, each with the priority that counts there."""
        found: dict[str, list[tuple[int, JobRecord]]] = {}
        for job in self._waiting:
            if awaits_own_pods(self._state, job):
                priority, queue = self._preemption.standing_of(job)
                found.setdefault(queue, []).append((priority, job))
        return found

    def _displaced(self, queue: str) -> Iterator[tuple[int, JobRecord]]:
        """The same of a queue's jobs that gave all of their room in this cycle."""
        for job in self._preemption.displaced.values():
            priority, of_queue = self._preemption.standing_of(job)
            if of_queue == queue:
                yield priority, job

    def had_turn(self, job: JobRecord, *, has_room: bool) -> None:
        """A job that waits for its own pods had its turn, and whether room is reserved for it since."""
        if has_room:
            self._with_room[job.uid] = None
        else:
            self._with_room.pop(job.uid, None)

    def before(self, job: JobRecord) -> Iterator[JobRecord]:
        """The returning jobs of its queue with a higher priority for which a job takes nothing from others: those
        without reserved room that may take some themselves, and may be in its way. Only what is found quickly is asked,
        so that a few too many may be named."""
        own, queue = self._preemption.standing_of(job)
        for priority, other in chain(self._displaced(queue), self._awaiting.get(queue, ())):
            ahead = priority > own and other.uid not in self._with_room
            if ahead and self._may_take_room(other, job) and self._meet(job, other):
                yield other

    def _may_take_room(self, job: JobRecord, behind: JobRecord) -> bool:
        """Whether a job may take room from others, and doesn't surely lack some even with all of theirs, and with what
        is reserved for those whose reservations end if another job starts `behind` it."""
        if not self._preemption.may_make_room(job) or self._placer.placing.quotas.over(job):
            return False
        if job.uid in self._preemption.displaced or not self._preemption.surely_lacks(job):
            return True
        ended = self._backfill.ended_by(behind)
        return ended is not None and not self._preemption.surely_lacks(job, ended)

    def _meet(self, job: JobRecord, other: JobRecord) -> bool:
        """Whether two jobs of a queue may be in each other's way: by its limits, or on some node."""
        return self._placer.placing.quotas.of_queues or bool((self._open_to(job) & self._open_to(other)).any())

    def _open_to(self, job: JobRecord) -> Mask:
        """The nodes on which some pod of a job may run if there is room, by row of the view."""
        placing = self._placer.placing
        open_to = np.zeros(len(placing.view), np.bool_)
        for shape in dict.fromkeys(group.shape for group in job.valid_spec.groups if group.count):
            open_to |= placing.filters.static(shape)
        return open_to
