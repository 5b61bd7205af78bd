"""What the preemptions of a log cost, what they gained, and whether it turned out that waiting would have done as well.

After each one, its victims' pods are supposed to be still on their nodes, and its beneficiary to have none. As soon as
the free amounts of the nodes that take pods would then be enough for the quorum, the room became free by itself. That
is an estimate: it knows amounts, and no rules of pods, and it looks for at most `HORIZON_MS`. Guests leave by
preemptions too, so what they gained before is counted beside them (`guests`).
"""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import numpy as np

from arranger.events import kinds as k
from arranger.events.facts import Victim
from arranger.events.log import Entry
from arranger.model.job import LEADER_GROUP, JobSpec, Stage
from arranger.model.pod import PodOwner
from arranger.projections.job_parts import SlotKey
from arranger.projections.jobs import JobRecord, exists, expand, holds, requests_of
from arranger.projections.nodes import Amounts, Requests
from arranger.projections.state import Changes, State
from arranger.replay.explain.taken_room import Taking, taking
from arranger.replay.ledger.guests import GuestStays, Stay
from arranger.replay.ledger.waits import quorum_gpus
from arranger.replay.reading.describe import victims_of
from arranger.replay.reading.history import Span
from arranger.replay.reading.verdicts import ACCEPTED, Judged, fold_noting

#: For how long after a preemption room is sought that became free by itself.
HORIZON_MS = 3_600_000


class Aftermath(msgspec.Struct):
    """A preemption and what became of it. `again_ms` is by victim: how long it waited until it had nodes for its quorum
    again, None if it still waits, has ended or was deleted; surplus is left out. `free_ms`: so long after it, the room
    would have been free without it; None if that wasn't seen. `vain`: by this decision the beneficiary lost the room
    without having been Running; None if it hasn't. `gpus` are those of the beneficiary's quorum."""

    taking: Taking
    again_ms: dict[str, int | None]
    free_ms: int | None = None
    vain: k.StageDecided | None = None
    gpus: int = 0

    def needless(self, within_ms: int) -> bool:
        """Whether its room became free by itself so soon that to wait for it would have cost no more than was lost."""
        if self.free_ms is None or self.free_ms > within_ms:
            return False
        return self.free_ms * self.gpus <= self.taking.harm_ms

    @property
    def gained_ms(self) -> int | None:
        """How long after it the beneficiary began; None if it hasn't."""
        return self.taking.begun_ms - self.taking.time_ms if self.taking.begun_ms else None


class _Lost(NamedTuple):
    """A pod that a victim lost: the UID of its job, its slot, its node and what it requests."""

    of: str
    slot: SlotKey
    node: str
    amounts: Amounts


class _Watched(msgspec.Struct):
    """A preemption whose room is sought, and what its victims lost by it."""

    found: Aftermath
    spec: JobSpec
    lost: list[_Lost]
    looking: bool = True


class OfQueue(msgspec.Struct):
    """The sums of one queue: preemptions for its jobs, victims among its jobs, the GPU-milliseconds of work that these
    lost, how long they waited again, as far as that is over, and the GPU-milliseconds that its jobs had as guests."""

    queue: str
    taken: int = 0
    gave: int = 0
    lost_ms: int = 0
    again_ms: int = 0
    guest_ms: int = 0


class PreemptionLine(Taking):
    """A preemption with what became of it, as `Aftermath` says. `gained_ms`: how long after it the beneficiary began,
    None if it hasn't. `harm_gpu_ms`: GPU-milliseconds of work that its victims lost. `in_vain`: why the beneficiary
    lost the room without having been Running, as a reason and in words; both are empty if it hasn't."""

    harm_gpu_ms: int = 0
    gained_ms: int | None = None
    again_ms: dict[str, int | None] = msgspec.field(default_factory=dict)
    free_ms: int | None = None
    needless: bool = False
    in_vain: str = ""
    in_vain_because: str = ""


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
    """Folds entries and follows each preemption within the span."""

    def __init__(self, state: State, span: Span) -> None:
        self.state = state
        self._span = span
        self._guests = GuestStays(state, span)
        self._watched: list[_Watched] = []
        #: UID of a beneficiary that hasn't been Running yet → its preemption.
        self._begins: dict[str, _Watched] = {}
        #: UID of a victim without nodes → its preemption.
        self._waits: dict[str, _Watched] = {}
        #: UIDs of jobs that lost pods: one that is deleted while it waits changes no node.
        self._lost_from: set[str] = set()
        self._changes = -1

    @property
    def found(self) -> list[Aftermath]:
        return [one.found for one in self._watched]

    @property
    def guests(self) -> list[Stay]:
        return self._guests.found()

    def feed(self, entry: Entry) -> None:
        """Fold one entry. Raises `DamagedEntry`."""
        state, changes = self.state, Changes()
        events = entry.batch.events
        numbers = [n for n, event in enumerate(events) if isinstance(event, (k.Preempted, k.StageDecided))]
        before = {uid: state.jobs[uid].placements.copy() for n in numbers for uid in victims_of(events[n])
                  if uid in state.jobs}  # fmt: skip
        left: dict[str, tuple[int, Victim]] = {}
        for judged in fold_noting(state, entry, changes, numbers):
            if judged.verdict == ACCEPTED:
                self._note(judged, entry, before)
                if isinstance(judged.event, k.Preempted):
                    guests = [of for of in judged.event.victims if of.kind.of_guest]
                    left.update({of.job_uid: (judged.offset, of) for of in guests})
        self._guests.folded(entry, changes.jobs, left)
        for uid in changes.jobs:
            self._victim_again(uid)
        if state.nodes.changes != self._changes or not self._lost_from.isdisjoint(changes.jobs):
            self._changes = state.nodes.changes
            self._look()

    def _note(self, judged: Judged, entry: Entry, before: dict[str, dict[SlotKey, str]]) -> None:
        event = judged.event
        if isinstance(event, k.StageDecided):
            self._begun(event)
        elif isinstance(event, k.Preempted) and self._span.holds(entry, judged.offset):
            found = taking(judged.offset, self.state.time_ms, event, self.state)
            job = self.state.jobs[found.uid]
            watched = _Watched(
                Aftermath(found, {}, gpus=quorum_gpus(job.valid_spec, whole=False)),
                job.valid_spec,
                self._lost(event, before),
            )
            self._watched.append(watched)
            self._lost_from.update(pod.of for pod in watched.lost)
            self._begins[found.uid] = watched
            for victim in event.victims:
                of = self.state.jobs[victim.job_uid]
                if not of.placements:
                    watched.found.again_ms[victim.job_uid] = None
                    self._waits[victim.job_uid] = watched

    def _lost(self, event: k.Preempted, before: dict[str, dict[SlotKey, str]]) -> list[_Lost]:
        """The pods that the victims lost."""
        found = []
        for victim in event.victims:
            of, had = self.state.jobs[victim.job_uid], before.get(victim.job_uid, {})
            for slot, node in expand(victim.pods).items():
                if slot in had:
                    found.append(_Lost(of.uid, slot, node, self.state.nodes.vector(requests_of(of, slot))))
        return found

    def _begun(self, event: k.StageDecided) -> None:
        """A beneficiary began, runs, or lost its nodes."""
        watched, job = self._begins.get(event.job_uid), self.state.jobs.get(event.job_uid)
        if watched is None:
            return
        taking = watched.found.taking
        if event.stage == Stage.STARTING:
            taking.begun_ms = self.state.time_ms
            return
        del self._begins[event.job_uid]
        if not taking.begun_ms:
            taking.lost_ms = self.state.time_ms
            watched.looking = False
        if event.facts.awaited or (job is not None and job.taken is not None and job.taken.ended == event):
            watched.found.vain = event

    def _victim_again(self, uid: str) -> None:
        """A victim may have a quorum of nodes again, or be gone."""
        watched, job = self._waits.get(uid), self.state.jobs.get(uid)
        if watched is None:
            return
        if job is None or job.ended:
            del self._waits[uid]
        elif job.quorum_placed():
            del self._waits[uid]
            watched.found.again_ms[uid] = self.state.time_ms - watched.found.taking.time_ms

    # --- what afterwards showed ----------------------------------------------------------------------------

    def _look(self) -> None:
        """Whether the room of a preemption would be free now without it."""
        now_ms = self.state.time_ms
        for one in self._watched:
            taken = one.found.taking
            if not one.looking or now_ms <= taken.time_ms:
                continue
            if now_ms - taken.time_ms > HORIZON_MS:
                one.looking = False
            elif self._free_without(one):
                one.looking, one.found.free_ms = False, now_ms - taken.time_ms

    def _free_without(self, one: _Watched) -> bool:
        """Whether the quorum fits by amounts, with the victims' pods in their places and without the beneficiary's."""
        state, nodes = self.state, self.state.nodes
        rows = nodes.by_name()
        free = nodes.free()[rows]
        at = {nodes.names[row]: number for number, row in enumerate(rows.tolist())}

        def put(node: str, amounts: Amounts, sign: int) -> None:
            if node in at:
                free[at[node]][: len(amounts)] += sign * amounts

        for uid in dict.fromkeys((one.found.taking.uid, *(pod.of for pod in one.lost))):
            lost = {pod.slot for pod in one.lost if pod.of == uid}
            of_surplus = bool(lost) and uid not in one.found.again_ms  # its other pods stay
            for slot, node, requests in _used_by(state, uid):
                if not of_surplus or slot in lost:
                    put(node, nodes.vector(requests), 1)
        for pod in one.lost:
            if _would_stay(state.jobs.get(pod.of), pod.slot):
                put(pod.node, pod.amounts, -1)
        takes = [nodes.facts[row].ready and not nodes.facts[row].cordoned for row in rows.tolist()]
        vectors = [nodes.vector(group.shape.requests) for group in one.spec.groups]
        return fits_amounts(one.spec, free[np.array(takes, bool)], vectors)


def _used_by(state: State, uid: str) -> Iterator[tuple[SlotKey | None, str, Requests]]:
    """What the nodes count as used for a job, by slot and node: its pods, of any attempt, that haven't ended, pods that
    may exist unseen, and slots that wait for their pods. A slot whose pod has ended uses nothing, and a job that was
    deleted may still have pods, of no slot."""
    job = state.jobs.get(uid)
    groups = job.spec.groups if job is not None and job.spec is not None else ()
    numbers = {(group.name, number == LEADER_GROUP): number for number, group in enumerate(groups)}

    def slot_of(owner: PodOwner | None) -> SlotKey | None:
        group = numbers.get((owner.group_name, owner.leader)) if owner is not None else None
        return (group, owner.index) if owner is not None and group is not None else None

    for pod in state.pods_of.get(uid, {}).values():
        if holds(pod):
            yield slot_of(pod.owner), pod.node, pod.requests
    for assumed in state.assumed.values():
        if assumed.owner.job_uid == uid:
            yield slot_of(assumed.owner), assumed.node, assumed.requests
    if job is not None:
        for slot, node in job.placements.items():
            if slot not in job.bound:
                yield slot, node, requests_of(job, slot)


def _would_stay(job: JobRecord | None, slot: SlotKey) -> bool:
    """Whether a victim's pod would still be there: until its job ends, stands still or is deleted, or its slot has done
    its part or isn't asked for any more."""
    if job is None or not job.active or job.stands_still:
        return False
    return exists(job.valid_spec, slot) and not job.slots.over(slot)


def fits_amounts(spec: JobSpec, free: Amounts, vectors: list[Amounts]) -> bool:
    """Whether a quorum fits these free amounts: the largest pods first, on the first nodes that take them."""
    least = [group.count if number == 0 else group.least for number, group in enumerate(spec.groups)]
    left = spec.min_workers - sum(least[1:])
    for number, group in enumerate(spec.groups[1:], start=1):
        more = max(min(group.count - least[number], left), 0)
        least[number] += more
        left -= more
    for number in sorted(range(len(least)), key=lambda one: -int(vectors[one].sum())):
        columns = np.flatnonzero(vectors[number])
        pods = least[number]
        for row in free if len(columns) else ():
            count = min(int((np.maximum(row[columns], 0) // vectors[number][columns]).min()), pods)
            row[columns] -= count * vectors[number][columns]
            pods -= count
            if not pods:
                break
        if pods and len(columns):
            return False
    return True


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
