"""What the preemptions of a log cost, what they gained, and whether it turned out that waiting would have done as well.

After each one, its victims' pods are supposed to be still on their nodes, and its beneficiary to have none. As soon as
a cycle would then place the quorum, the room became free by itself (`without`). That is an estimate: all others do what
the log says, and it looks for at most `HORIZON_MS`. A victim that lost all would have ended when its deadline or its
`expectedRuntimeSeconds` says, counted from the run that it lost. Without either, or if that was over, it ends when the
log says, after the run that it made again. Guests leave by preemptions too, so what they gained before is counted
beside them (`guests`).
"""

import heapq
from collections.abc import Iterable

import msgspec

from arranger.events import kinds as k
from arranger.events.facts import Victim
from arranger.events.log import Entry
from arranger.model.config import CycleConfig
from arranger.model.job import JobSpec, Stage
from arranger.model.pod import TERMINAL
from arranger.projections.derived.expected_ends import EndSource, expected_end
from arranger.projections.derived.queue_counts import queue_of
from arranger.projections.jobs.parts import SlotKey
from arranger.projections.jobs.records import JobRecord, expand, requests_of
from arranger.projections.state import Changes, State
from arranger.replay.explain.taken_room import RoomTaking, taking
from arranger.replay.ledger.guests import GuestStays, Stay
from arranger.replay.ledger.waits import quorum_gpus
from arranger.replay.ledger.without import FreeAmounts, Lost, Taken, without, would_be_placed
from arranger.replay.reading.describe import victims_of
from arranger.replay.reading.history import Span, config_in
from arranger.replay.reading.verdicts import ACCEPTED, Judged, fold_noting
from arranger.scheduling import BUILT_IN

#: For how long after a preemption room is sought that became free by itself.
HORIZON_MS = 3_600_000
#: After a look in vain, the next one comes once the time since the preemption has grown by this part: a cycle for each
#: change of a busy hour would take long. It is as many times larger as more preemptions than `FEW` are followed, and
#: after a cycle up to so many times: of twenty preemptions, each has some ten cycles in an hour.
LOOK_AGAIN_AFTER, FEW, CYCLES_APART = 0.01, 8, 250
#: So many times, what may free room or a limit is looked at at once all the same: others may have it a moment later.
#: Of many preemptions, each has its part of that.
_AT_ONCE = 1000


class Aftermath(msgspec.Struct):
    """A preemption and what became of it. `again_ms` is by victim: how long it waited until it had nodes for its quorum
    again, None if it still waits, has ended or was deleted; surplus is left out. `free_ms`: so long after it, the room
    would have been free without it; None if that wasn't seen. `vain`: by this decision the beneficiary lost the room
    without having been Running, as `TakenRoom.ended` counts it; None if it hasn't. `gpus` are those of the
    beneficiary's quorum. `gone` has those of its jobs that ended or were deleted before they had nodes (again): by UID,
    the stage, or "Deleted"."""

    taking: RoomTaking
    again_ms: dict[str, int | None]
    free_ms: int | None = None
    vain: k.StageDecided | None = None
    gpus: int = 0
    gone: dict[str, str] = msgspec.field(default_factory=dict)
    #: For so long it was looked whether the room would be free without it, and still is; None if that is over.
    looked_ms: int | None = None

    def needless(self, within_ms: int) -> bool:
        """Whether its room became free by itself so soon that to wait for it would have cost no more than was lost."""
        if self.free_ms is None or self.free_ms > within_ms:
            return False
        return self.free_ms * self.gpus <= self.taking.harm_ms

    def open(self, within_ms: int) -> bool:
        """Whether it may still turn out to be needless: the part of the log that follows it is too short to say."""
        if self.looked_ms is None or self.looked_ms > within_ms:
            return False
        return self.looked_ms * self.gpus <= self.taking.harm_ms

    @property
    def gained_ms(self) -> int | None:
        """How long after it the beneficiary began; None if it hasn't."""
        return self.taking.begun_ms - self.taking.time_ms if self.taking.begun_ms else None


class _Watched(msgspec.Struct):
    """A preemption whose room is sought: its number among all that were noted, and its beneficiary as it was then. It
    isn't sought before `next_ms`."""

    found: Aftermath
    number: int
    spec: JobSpec
    seen: k.JobSeen
    next_ms: int = 0
    looking: bool = True
    at_once: float = _AT_ONCE


class OfQueue(msgspec.Struct):
    """The sums of one queue: preemptions for its jobs, victims among its jobs, the GPU-milliseconds of work that these
    lost, how long they waited again, as far as that is over, and the GPU-milliseconds that its jobs had as guests."""

    queue: str
    taken: int = 0
    gave: int = 0
    lost_ms: int = 0
    again_ms: int = 0
    guest_ms: int = 0


class PreemptionLine(RoomTaking):
    """A preemption with what became of it, as `Aftermath` says. `gained_ms`: how long after it the beneficiary began,
    None if it hasn't. `harm_gpu_ms`: GPU-milliseconds of work that its victims lost. `in_vain`: why the beneficiary
    took the room in vain, as a reason and in words; both are empty if it hasn't. `gone` as in `Aftermath`. `open`: it
    isn't known yet whether it was needless."""

    harm_gpu_ms: int = 0
    gained_ms: int | None = None
    again_ms: dict[str, int | None] = msgspec.field(default_factory=dict)
    free_ms: int | None = None
    needless: bool = False
    in_vain: str = ""
    in_vain_because: str = ""
    gone: dict[str, str] = msgspec.field(default_factory=dict)
    open: bool = False


class GuestLine(Stay):
    """A stay, and how long after the decision that it leaves its host began; None if it hasn't, or if it didn't
    leave."""

    host_began_ms: int | None = None


class PreemptionList(msgspec.Struct):
    """Preemptions and their sums by queue, and the guests. A preemption is needless if its room became free by itself
    within `within_ms`, and the GPUs of its beneficiary would have waited for that no longer than what its victims
    lost."""

    preemptions: list[PreemptionLine]
    queues: list[OfQueue]
    within_ms: int
    guests: list[GuestLine] = msgspec.field(default_factory=list)


class PreemptionLedger:
    """Folds entries and follows each preemption within the span. `config` has the settings of the last cycle up to the
    state."""

    def __init__(self, state: State, span: Span, config: CycleConfig) -> None:
        self.state = state
        self._span = span
        self._config = config
        #: All preemptions since the first one of the span.
        self._taken: list[Taken] = []
        self._guests = GuestStays(state, span)
        self._watched: list[_Watched] = []
        #: When victims would have ended, as a heap.
        self._ends: list[int] = []
        #: UID of a beneficiary that hasn't been Running yet → its preemption.
        self._begins: dict[str, _Watched] = {}
        #: UID of a victim without nodes → its preemption.
        self._waits: dict[str, _Watched] = {}
        #: The changes of nodes and jobs at the last look.
        self._changes = (-1, -1)
        #: What is free in the present state, once somebody asks.
        self._free: FreeAmounts | None = None

    @property
    def found(self) -> list[Aftermath]:
        for one in self._watched:
            after_ms = self.state.time_ms - one.found.taking.time_ms
            one.found.looked_ms = after_ms if one.looking else None
        return [one.found for one in self._watched]

    @property
    def guests(self) -> list[Stay]:
        return self._guests.found()

    def feed(self, entry: Entry) -> None:
        """Fold one entry. Raises `DamagedEntry`."""
        state, changes = self.state, Changes()
        events = entry.batch.events
        self._look_at_ends(entry.batch.time_ms)
        numbers = [n for n, event in enumerate(events) if isinstance(event, (k.Preempted, k.StageDecided))]
        before = {uid: state.jobs[uid].placements.copy() for n in numbers for uid in victims_of(events[n])
                  if uid in state.jobs}  # fmt: skip
        ends_ms = self._ends_ms(before, entry.batch.time_ms)
        left: dict[str, tuple[int, Victim]] = {}
        taken: dict[str, str] = {}
        for judged in fold_noting(state, entry, changes, numbers):
            if judged.verdict == ACCEPTED:
                self._note(judged, entry, before, ends_ms)
                if isinstance(judged.event, k.Preempted):
                    for of in judged.event.victims:
                        if of.kind.of_guest:
                            left[of.job_uid] = judged.offset, of
                        else:
                            taken[of.job_uid] = judged.event.placed.job_uid
        self._config = config_in(entry, state) or self._config
        self._guests.folded(entry, changes.jobs, left, taken)
        for uid in changes.jobs:
            self._beneficiary_gone(uid)
            self._victim_again(uid)
        self._look(at_once=any(map(_frees, events)))

    def _ends_ms(self, uids: Iterable[str], time_ms: int) -> dict[str, int]:
        """When jobs say that they end, as of a time, in milliseconds since 1970; those that don't say, or said so in
        vain, are left out."""
        found = {}
        for uid in uids:
            end = expected_end(self.state, self.state.jobs[uid], self._config, time_ms)
            if end is not None and not end.outlived and end.source != EndSource.LEARNED:
                found[uid] = end.end_ms
        return found

    def _note(
        self, judged: Judged, entry: Entry, before: dict[str, dict[SlotKey, str]], ends_ms: dict[str, int]
    ) -> None:
        event = judged.event
        if isinstance(event, k.StageDecided):
            self._begun(event)
        elif isinstance(event, k.Preempted):
            self._note_preempted(judged.offset, event, entry, before, ends_ms)

    def _note_preempted(
        self,
        offset: int,
        event: k.Preempted,
        entry: Entry,
        before: dict[str, dict[SlotKey, str]],
        ends_ms: dict[str, int],
    ) -> None:
        for uid in (event.placed.job_uid, *(of.job_uid for of in event.victims if of.kind.whole)):
            self._room_over(uid)
        within = self._span.holds(entry, offset)
        if not (self._taken or within):
            return
        taken = self._what_was_taken(event, before, ends_ms)
        self._taken.append(taken)
        for end_ms in taken.ends_ms.values():
            heapq.heappush(self._ends, end_ms)
        if not within:
            return
        found = taking(offset, self.state.time_ms, event, self.state)
        job = self.state.jobs[found.uid]
        gpus = quorum_gpus(job.valid_spec, whole=False)
        watched = _Watched(Aftermath(found, {}, gpus=gpus), len(self._taken) - 1, job.valid_spec, job.seen)
        self._watched.append(watched)
        self._begins[found.uid] = watched
        for victim in event.victims:
            of = self.state.jobs[victim.job_uid]
            if not of.placements:
                watched.found.again_ms[victim.job_uid] = None
                self._waits[victim.job_uid] = watched

    def _what_was_taken(
        self, event: k.Preempted, before: dict[str, dict[SlotKey, str]], ends_ms: dict[str, int]
    ) -> Taken:
        """The pods that the victims lost, and when these would have ended."""
        found = []
        for victim in event.victims:
            of, had = self.state.jobs[victim.job_uid], before.get(victim.job_uid, {})
            queue = queue_of(self.state, of)
            for slot, node in expand(victim.pods).items():
                if slot in had:
                    found.append(Lost(of.owner_of(slot), slot, node, requests_of(of, slot), queue))
        whole = frozenset(of.job_uid for of in event.victims if not self.state.jobs[of.job_uid].placements)
        return Taken(
            event.placed.job_uid, tuple(found), whole, {uid: end_ms for uid, end_ms in ends_ms.items() if uid in whole}
        )

    def _begun(self, event: k.StageDecided) -> None:
        """A beneficiary began, runs, or lost its nodes."""
        watched, job = self._begins.get(event.job_uid), self.state.jobs.get(event.job_uid)
        if watched is None:
            return
        if event.stage == Stage.STARTING:
            watched.found.taking.ends(self.state.time_ms, begun=True)
            return
        self._room_over(event.job_uid)
        if job is not None and job.taken is not None and job.taken.ended == event:
            watched.found.vain = event

    def _room_over(self, uid: str) -> None:
        """A beneficiary loses its nodes, or runs on them; nothing more is to be known of that preemption's gain."""
        watched = self._begins.pop(uid, None)
        if watched is not None:
            watched.found.taking.ends(self.state.time_ms, begun=False)
            watched.looking = watched.looking and bool(watched.found.taking.begun_ms)

    def _beneficiary_gone(self, uid: str) -> None:
        """A beneficiary that hasn't begun may be deleted, or end, or lose its nodes without a decision on its stage."""
        watched, job = self._begins.get(uid), self.state.jobs.get(uid)
        if watched is None:
            return
        if how := _end_of(job):
            if not watched.found.taking.begun_ms:
                watched.found.gone[uid] = how
            self._room_over(uid)
            return
        watched.found.taking.follow(job, self.state.time_ms)
        if watched.found.taking.lost_ms:
            self._room_over(uid)

    def _victim_again(self, uid: str) -> None:
        """A victim may have a quorum of nodes again, or be gone."""
        watched, job = self._waits.get(uid), self.state.jobs.get(uid)
        if watched is None:
            return
        if how := _end_of(job):
            del self._waits[uid]
            watched.found.gone[uid] = how
        elif job is not None and job.quorum_placed():
            del self._waits[uid]
            watched.found.again_ms[uid] = self.state.time_ms - watched.found.taking.time_ms

    # --- what afterwards showed ----------------------------------------------------------------------------

    def _look_at_ends(self, until_ms: int) -> None:
        """Look at the times up to the next entry at which a victim would have ended: nothing else happens then."""
        state = self.state
        while self._ends and self._ends[0] <= until_ms:
            self.state = state.as_of(heapq.heappop(self._ends))
            self._look_at_all(at_once=True)
        self.state, self._free = state, None

    def _look(self, *, at_once: bool) -> None:
        """Whether the room of a preemption would be free now without it, for its beneficiary. `at_once`: something may
        have become free."""
        changes = (self.state.nodes.changes, self.state.scheduling_changes)
        if changes != self._changes:
            self._changes = changes
            self._look_at_all(at_once=at_once)

    def _look_at_all(self, *, at_once: bool) -> None:
        now_ms, self._free = self.state.time_ms, None
        looking = [one for one in self._watched if one.looking and now_ms > one.found.taking.time_ms]
        part = max(len(looking) / FEW, 1)
        for one in looking:
            after_ms = now_ms - one.found.taking.time_ms
            if after_ms > HORIZON_MS:
                one.looking = False
            elif now_ms < one.next_ms and not (at_once and one.at_once >= part):
                continue
            elif (placed := self._placed_without(one)) is True:
                one.looking, one.found.free_ms = False, after_ms
            else:
                cost = part if placed is None else min(part**6, CYCLES_APART)
                one.at_once -= cost if now_ms < one.next_ms else 0
                one.next_ms = now_ms + int(after_ms * LOOK_AGAIN_AFTER * cost)

    def _placed_without(self, one: _Watched) -> bool | None:
        """Whether the beneficiary would get its quorum now, without this preemption and those after it; None if that
        was found without a cycle."""
        of = without(self.state, self._taken[one.number :])
        if self._free is None:
            self._free = FreeAmounts(self.state)
        if not self._free.fit(of, one.spec):
            return None
        return would_be_placed(self.state, of, one.seen, self._config, BUILT_IN)


def _end_of(job: JobRecord | None) -> str:
    """The stage in which a job ended, or "Deleted"; empty while it may get nodes."""
    if job is None or (job.seen.deleting and not job.ended):
        return "Deleted"
    return str(job.stage) if job.ended else ""


def _frees(event: k.Event) -> bool:
    """Whether an event may free room, or a place among the jobs that a queue lets run."""
    if isinstance(event, k.PodSeen):
        return event.phase in TERMINAL
    if isinstance(event, k.StageDecided):
        return event.stage not in (Stage.STARTING, Stage.RUNNING)
    return isinstance(event, k.JobSeen | k.NodeSeen | k.QueueSeen) or k.is_gone(event, k.Watched.POD, k.Watched.JOB)


def by_queue(found: list[Aftermath], guests: list[Stay]) -> list[OfQueue]:
    """The sums by queue, in the order of their names."""
    sums: dict[str, OfQueue] = {}
    for stay in guests:
        sums.setdefault(stay.queue, OfQueue(stay.queue)).guest_ms += stay.gpu_ms
    for one in found:
        sums.setdefault(one.taking.queue, OfQueue(one.taking.queue)).taken += 1
        for victim in one.taking.victims:
            of = sums.setdefault(victim.queue, OfQueue(victim.queue))
            of.gave += 1
            of.lost_ms += victim.lost_ms
            of.again_ms += one.again_ms.get(victim.uid) or 0
    return [sums[name] for name in sorted(sums)]
