"""Room that is held for jobs in front: taken out of the view of one cycle, so that nobody else gets it by itself.

A job behind that may use some of it finds it on the view while it is tried (`HeldRooms.opened`).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from arranger.events.kinds import Reserved
from arranger.model.job import PlacedPods
from arranger.projections.cluster.nodes import Amounts
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import State
from arranger.scheduling.cluster.view import ClusterView, Levels, add_to
from arranger.scheduling.queues.known_jobs import RowRooms
from arranger.scheduling.room.job_ends import JobEnds
from arranger.scheduling.room.vacating import Vacating


class HeldRoom(NamedTuple):
    """What is held for one job."""

    #: What is taken out of the view, by row.
    rooms: RowRooms
    #: What others are still to leave for it on the same rows.
    to_come: Amounts
    #: The start and the awaited jobs (UIDs), as in `Reserved`.
    start_ms: int
    awaits: tuple[str, ...]
    #: UID → all jobs that are to leave.
    leave: dict[str, JobRecord]
    #: The part of `rooms` that pods use which were lent it. It is held beside them, because it is free for nobody else
    #: once they have left.
    lent: Amounts

    @property
    def beside_lent(self) -> "HeldRoom":
        """Only what is held beside pods that were lent it."""
        return self._replace(rooms=RowRooms(self.rooms.rows, self.lent))


class Opening:
    """Held room while it is open to a job."""

    #: Whether what was placed in it stays on the view.
    stays = False


class HeldRooms(Mapping[str, HeldRoom]):
    """UID → what is held for that job at the moment."""

    def __init__(self, state: State, view: ClusterView, vacating: Vacating, ends: JobEnds) -> None:
        self._state = state
        self._view = view
        self._vacating = vacating
        self._ends = ends
        self._held: dict[str, HeldRoom] = {}
        #: The content of the view, and of which jobs what is held is open → the content with that.
        self._contents: dict[tuple[object, ...], int] = {}

    def __getitem__(self, uid: str) -> HeldRoom:
        return self._held[uid]

    def __contains__(self, uid: object) -> bool:
        return uid in self._held

    def __iter__(self) -> Iterator[str]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, job: JobRecord, decided: Reserved, coming: Reserved | None = None, *, ended: bool = False) -> None:
        """Take out of the view what the reservation needs of what is free now: all but what those leave who end
        before, or are guests. What pods leave that are on their way out isn't free yet, but it is held too, because a
        job behind counts on it when it takes room: a node then has less than nothing free. `coming` is held beside it:
        where the quorum is to fit before, once those have left who leave anyway. With `ended`, jobs that end by
        themselves have left."""
        start_ms, awaits = decided.start_ms, decided.awaits
        needed, leave = self.needed_for(job, decided.pods), self.leave_for(job, start_ms, awaits, ended=ended)
        kept = np.maximum(needed - self._come_from(leave), 0)
        if coming is not None:
            start_ms, awaits = coming.start_ms, (*awaits, *(uid for uid in coming.awaits if uid not in awaits))
            before = self.needed_for(job, coming.pods)
            kept = np.maximum(kept, before - self._come_from({uid: self._state.jobs[uid] for uid in coming.awaits}))
            needed, leave = np.maximum(needed, before), self.leave_for(job, start_ms, awaits, ended=ended)
        rows = np.flatnonzero(needed.any(axis=1))
        in_all, amounts = needed[rows], kept[rows]
        lent = np.minimum(amounts, self._lent_by(job.uid, leave)[rows])
        self._view.hold(rows, amounts)
        self._held[job.uid] = HeldRoom(RowRooms(rows, amounts), in_all - amounts, start_ms, awaits, leave, lent)

    def release(self, uid: str) -> None:
        """Hold nothing any more for the job with this UID."""
        held = self._held.pop(uid, None)
        if held is not None:
            self._view.hold(*held.rooms, sign=-1)

    def hold_less(self, uids: Iterable[str], used: Levels) -> None:
        """Hold for the first of these jobs (UIDs) so much less, by row of the view, as others have got that leave when
        it is needed; the rest for the next one."""
        for uid in uids:
            held = self._held[uid]
            rows, amounts = held.rooms
            less = np.minimum(amounts, used[rows].astype(np.int64))
            used[rows] -= less
            self._view.hold(rows, less, sign=-1)
            self._held[uid] = held._replace(
                rooms=RowRooms(rows, amounts - less),
                to_come=held.to_come + less,
                lent=np.minimum(held.lent, amounts - less),
            )

    @contextmanager
    def opened(self, open_rooms: Mapping[str, HeldRoom]) -> Iterator[Opening]:
        """The view with this held room, or parts of it: UID → what is open of that job's. If nothing that was placed
        `stays`, the content is as before afterwards."""
        opening = Opening()
        if not open_rooms:
            yield opening
            return
        view, rooms = self._view, _joined([held.rooms for held in open_rooms.values()])
        whole = tuple(held is self._held[uid] for uid, held in open_rooms.items())
        before, key = view.content, (view.content, *open_rooms, whole)
        view.hold(*rooms, self._contents.get(key), sign=-1)
        self._contents[key] = view.content
        try:
            yield opening
        finally:
            view.hold(*rooms, None if opening.stays else before)

    @contextmanager
    def without_room_to_come(self) -> Iterator[None]:
        """The view without what others are still to leave for those for whom room is held, while room for a further
        reservation is sought."""
        if not self._held:
            yield
            return
        with self._view.holding(*_joined([RowRooms(held.rooms.rows, held.to_come) for held in self._held.values()])):
            yield

    def leave_for(
        self, job: JobRecord, start_ms: int, awaits: Collection[str], *, ended: bool = False
    ) -> dict[str, JobRecord]:
        """UID → the jobs that leave for a job by its start: those whose ends it awaits, and its guests, but those that
        needn't leave then."""
        gone = {other.uid for other in self._vacating.ending} if ended else ()
        leave = {uid: self._state.jobs[uid] for uid in awaits if uid in self._state.jobs and uid not in gone}
        over = self._ends.ended_by(job, start_ms, awaits)
        return leave | {guest.uid: guest for guest in self._ends.leaving(job, over)}

    def needed_for(self, job: JobRecord, pods: Iterable[PlacedPods]) -> Amounts:
        """What these pods of a job need, by row of the view."""
        rows, needed = self._view.node_index.rows(), np.zeros_like(self._view.free)
        each = [self._view.amounts(group.shape.requests) for group in job.valid_spec.groups]
        placed = [(rows[some.node], each[some.group] * sum(b - a + 1 for a, b in some.indices)) for some in pods]
        if placed:
            add_to(needed, np.array([row for row, _ in placed], np.int64), np.array([amounts for _, amounts in placed]))
        return needed.astype(np.int64)

    def _come_from(self, leave: dict[str, JobRecord]) -> Amounts:
        """What these jobs leave, by row of the view: without what others count on already for whom room is held, since
        the same job may leave for several."""
        found = self._left_by(leave)
        if not self._held or not leave:
            return found
        every = {**leave}
        for other in self._held.values():
            every.update(other.leave)
        in_all = self._left_by(every)
        for other in self._held.values():
            in_all[other.rooms.rows] -= other.to_come
        return np.minimum(found, np.maximum(in_all, 0))

    def _left_by(self, leave: dict[str, JobRecord]) -> Amounts:
        return self._vacating.in_all(self._vacating.of_whole(job) for job in leave.values() if job.placements)

    def _lent_by(self, host: str, leave: Collection[str]) -> Amounts:
        """What pods use that were lent room of this job, by row of the view, and that isn't counted for another one.
        Those of the jobs that leave as a whole don't count."""
        lent = self._vacating.in_all(
            self._vacating.of_job(job, tuple(sorted(slots)), whole=False)
            for job in (self._state.jobs.values() if host in self._ends.hosts else ())
            if job.uid not in leave and (slots := job.slots.lent_by(host))
        )
        for other in self._held.values():
            lent[other.rooms.rows] -= other.lent
        return np.maximum(lent, 0)


def _joined(rooms: list[RowRooms]) -> RowRooms:
    return RowRooms(np.concatenate([each.rows for each in rooms]), np.concatenate([each.amounts for each in rooms]))
