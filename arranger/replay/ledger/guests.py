"""What jobs gained as guests, in room that was reserved for others, and what that cost them and their hosts."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from itertools import chain

import msgspec

from arranger.events.facts import Victim
from arranger.events.log import Entry
from arranger.model.pod import gpus_of
from arranger.projections.derived.queue_counts import queue_of
from arranger.projections.jobs.parts import SlotKey
from arranger.projections.jobs.records import JobRecord, requests_of
from arranger.projections.state import State
from arranger.replay.reading.describe import label_of
from arranger.replay.reading.history import Span


class StayEnd(StrEnum):
    """How a job stopped being a guest: it left for its host; another job took its room, then or later; it ended or was
    deleted; nobody had its room reserved any more, so it stayed; or it lost its nodes otherwise."""

    LEFT = "Left"
    TAKEN = "Taken"
    ENDED = "Ended"
    STAYS = "Stays"
    OTHERWISE = "Otherwise"


class Stay(msgspec.Struct):
    """A job that used room reserved for `hosts`, as names. `gpu_ms`: the GPU-milliseconds that its pods had there.
    `until_ms` is 0, and `end` None, while it lasts. For one that left, or some of whose pods did: at which `preemption`
    (an offset), and the GPU-milliseconds of work that it lost (`lost_ms`). `taken_by` names the other job that took its
    room."""

    offset: int
    time_ms: int
    job: str
    uid: str
    queue: str
    hosts: tuple[str, ...]
    gpu_ms: int = 0
    until_ms: int = 0
    end: StayEnd | None = None
    preemption: int = 0
    lost_ms: int = 0
    taken_by: str = ""


class _Open(msgspec.Struct):
    """A stay that lasts: the slots of its pods, the GPUs that these have, and since when they have been counted."""

    stay: Stay
    slots: tuple[SlotKey, ...]
    gpus: int
    since_ms: int

    def count(self, now_ms: int) -> None:
        """Add what was used up to now."""
        self.stay.gpu_ms += self.gpus * (now_ms - self.since_ms)
        self.since_ms = now_ms


class GuestStays:
    """Follows the guests of a state that somebody else folds, from those on that begin within the span."""

    def __init__(self, state: State, span: Span) -> None:
        self._state = state
        self._span = span
        self._found: list[Stay] = []
        self._open: dict[str, _Open] = {}
        #: Those that stayed when nobody had their room reserved any more, as long as they have it.
        self._stayed: dict[str, _Open] = {}
        #: Guests from before the span, whose beginning isn't known.
        self._earlier = {uid for uid, job in state.jobs.items() if _is_guest(job)}

    def found(self) -> list[Stay]:
        """All stays so far, in the order in which they began; those that last are counted up to the state's time."""
        for one in self._open.values():
            one.count(self._state.time_ms)
        return self._found

    def folded(
        self, entry: Entry, jobs: Iterable[str], left: Mapping[str, tuple[int, Victim]], taken: Mapping[str, str]
    ) -> None:
        """An entry was folded that changed these jobs (UIDs). `left`: UID → the offset of the decision by which a guest
        left, with what it lost. `taken`: UID of any other victim → the UID of the job that took its room."""
        now_ms = self._state.time_ms
        for uid in jobs:
            self._follow(uid, taken)
            job, one = self._state.jobs.get(uid), self._open.get(uid)
            stays = job is not None and _is_guest(job) and not (uid in left and left[uid][1].kind.whole)
            if one is not None:
                one.count(now_ms)
                if uid in left:
                    one.stay.preemption, one.stay.lost_ms = left[uid][0], one.stay.lost_ms + left[uid][1].lost_ms
                if not stays:
                    self._end(one, job, now_ms, left=uid in left, taken_by=taken.get(uid, ""))
                elif job is not None:
                    one.slots, one.gpus = _slots(job), _gpus(job)
            elif job is not None and stays and uid not in self._earlier and self._span.holds(entry, entry.last):
                self._begin(entry, job, now_ms)
            if not stays:
                self._earlier.discard(uid)

    def _begin(self, entry: Entry, job: JobRecord, now_ms: int) -> None:
        uids = job.slots.hosts or dict.fromkeys(chain(*job.slots.lent.values()))
        hosts = tuple(label_of(self._state, uid) for uid in uids)
        stay = Stay(entry.last, now_ms, label_of(self._state, job.uid), job.uid, queue_of(self._state, job), hosts)
        self._found.append(stay)
        self._open[job.uid] = _Open(stay, _slots(job), _gpus(job), now_ms)

    def _end(self, one: _Open, job: JobRecord | None, now_ms: int, *, left: bool, taken_by: str) -> None:
        stay = one.stay
        del self._open[stay.uid]
        stay.until_ms = now_ms
        if left:
            stay.end = StayEnd.LEFT
        elif job is None or job.ended or job.slots.finished.keys() >= {*one.slots}:
            stay.end = StayEnd.ENDED
        elif _has(job, one.slots):
            stay.end = StayEnd.STAYS
            self._stayed[stay.uid] = one
        elif taken_by:
            self._taken(stay, taken_by)
        else:
            stay.end = StayEnd.OTHERWISE

    def _follow(self, uid: str, taken: Mapping[str, str]) -> None:
        """Whether a job that stayed has lost its room since, and to whom."""
        one, job = self._stayed.get(uid), self._state.jobs.get(uid)
        if one is None or _has(job, one.slots):
            return
        del self._stayed[uid]
        if uid in taken:
            self._taken(one.stay, taken[uid])

    def _taken(self, stay: Stay, by: str) -> None:
        stay.end, stay.taken_by = StayEnd.TAKEN, label_of(self._state, by)


def _is_guest(job: JobRecord) -> bool:
    return bool(_slots(job))


def _has(job: JobRecord | None, slots: tuple[SlotKey, ...]) -> bool:
    """Whether a job has a node for any of these slots."""
    return job is not None and any(slot in job.placements for slot in slots)


def _slots(job: JobRecord) -> tuple[SlotKey, ...]:
    """The slots of a job that use reserved room: all of a guest, else those that were lent it."""
    return tuple(job.placements if job.slots.hosts else job.slots.lent)


def _gpus(job: JobRecord) -> int:
    return sum(gpus_of(requests_of(job, slot)) for slot in _slots(job))
