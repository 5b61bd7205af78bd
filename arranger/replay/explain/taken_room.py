"""Room that others gave to a job, room that it gave to others, and room that was kept for it: the decisions on it that
the log has, and what became of each.
"""

import itertools
from collections.abc import Collection, Iterable

import msgspec

from arranger.events import kinds as k
from arranger.events.facts import PreemptionKind, TakenBy, Victim
from arranger.messages.shortages import limit_name_text
from arranger.model.config import CycleConfig
from arranger.model.job import Stage
from arranger.model.quota import QuotaLack
from arranger.projections.derived.queue_counts import queue_of
from arranger.projections.derived.queue_membership import counted_priority
from arranger.projections.jobs.records import JobRecord, expand
from arranger.projections.state import State
from arranger.replay.reading.describe import awaited_labels, label_of
from arranger.scheduling import NoRoomKind, Policies, why_no_room


class Gave(msgspec.Struct, frozen=True):
    """A job that lost so many `pods` to another one, and the GPU-milliseconds of work that it lost with them."""

    job: str
    uid: str
    queue: str
    kind: PreemptionKind
    pods: int
    lost_ms: int


class SparedJob(msgspec.Struct, frozen=True):
    """A job that might have given room as well. `needless`: it was chosen first, and then wasn't needed; if not, those
    before it in the order were enough."""

    job: str
    kind: PreemptionKind
    lost_ms: int
    needless: bool


class RoomTaking(msgspec.Struct):
    """A decision that gave a job the room of others. `leaving` counts pods that left anyway. `begun_ms` is when the job
    began on these nodes, `lost_ms` when it gave them back without having begun; 0 if it hasn't."""

    offset: int
    time_ms: int
    job: str
    uid: str
    queue: str
    priority: int
    victims: tuple[Gave, ...]
    spared: tuple[SparedJob, ...]
    leaving: int
    until_ms: int
    begun_ms: int = 0
    lost_ms: int = 0

    @property
    def harm_ms(self) -> int:
        """GPU-milliseconds of work that its victims lost."""
        return sum(victim.lost_ms for victim in self.victims)

    def ends(self, time_ms: int, *, begun: bool) -> None:
        """Record that the job began on these nodes, or gave them back; the first of both counts."""
        if self.begun_ms or self.lost_ms:
            return
        if begun:
            self.begun_ms = time_ms
        else:
            self.lost_ms = time_ms

    def follow(self, job: JobRecord | None, time_ms: int) -> None:
        """The same by the job as it is after an entry, None if it is gone: not every end is a decision on its stage."""
        if job is None or not job.awaits_room:
            self.ends(time_ms, begun=job is not None and job.stage in (Stage.STARTING, Stage.RUNNING))


class Giving(msgspec.Struct):
    """A decision that took pods of this job for another one. `whole`: it lost all of them, and waits again until
    `again_ms`, when its quorum had nodes again; 0 if it hasn't yet. `reclaimed` and `guest` as in `TakenBy`."""

    offset: int
    time_ms: int
    to: str
    to_queue: str
    to_priority: int
    reclaimed: bool
    pods: int
    lost_ms: int
    whole: bool
    again_ms: int = 0
    guest: bool = False

    @property
    def taken_by(self) -> TakenBy:
        """The facts about the job that got the room."""
        namespace, _, name = self.to.rpartition("/")
        return TakenBy(namespace, name, self.to_queue, self.to_priority, self.reclaimed, self.guest)


class Promise(msgspec.Struct, frozen=True):
    """A reservation as it was decided at `offset`: the nodes, the expected start (0 for an unknown one), the jobs that
    have to end first, and those that ran for longer than expected. Without nodes, the reservation was over."""

    offset: int
    time_ms: int
    start_ms: int
    nodes: tuple[str, ...]
    awaits: tuple[str, ...]
    outlived: tuple[str, ...]


def taking(offset: int, time_ms: int, event: k.Preempted, state: State) -> RoomTaking:
    """A decision that gave a job room; `state` is as after it."""
    job = state.jobs.get(event.placed.job_uid)
    return RoomTaking(
        offset=offset,
        time_ms=time_ms,
        job=label_of(state, event.placed.job_uid),
        uid=event.placed.job_uid,
        queue=_queue(state, event.placed.job_uid),
        priority=counted_priority(state, job) if job is not None and job.spec is not None else 0,
        victims=tuple(
            _gave(of, state)
            for of in event.victims
        ),
        spared=tuple(
            SparedJob(label_of(state, of.job_uid), of.kind, of.lost_ms, of.needless) for of in event.spared
        ),
        leaving=len(event.leaving),
        until_ms=event.until_ms,
    )  # fmt: skip


def _gave(of: Victim, state: State) -> Gave:
    name, queue = label_of(state, of.job_uid), _queue(state, of.job_uid)
    return Gave(name, of.job_uid, queue, of.kind, len(expand(of.pods)), of.lost_ms)


def _queue(state: State, uid: str) -> str:
    job = state.jobs.get(uid)
    return queue_of(state, job) if job is not None else ""


def giving(of: RoomTaking, uid: str) -> Giving:
    """The same decision, for one of its victims."""
    gave = next(victim for victim in of.victims if victim.uid == uid)
    guest = gave.kind in (PreemptionKind.GUEST, PreemptionKind.GUEST_SURPLUS)
    return Giving(
        of.offset,
        of.time_ms,
        of.job,
        of.queue,
        of.priority,
        gave.queue != of.queue and not guest,
        gave.pods,
        gave.lost_ms,
        gave.kind.whole,
        guest=guest,
    )


def promise(offset: int, time_ms: int, event: k.Reserved, state: State) -> Promise:
    """A decision on a reservation."""
    return Promise(
        offset,
        time_ms,
        event.start_ms,
        tuple(dict.fromkeys(pods.node for pods in event.pods)),
        tuple(label_of(state, uid) for uid in event.awaits),
        tuple(label_of(state, uid) for uid in event.outlived),
    )


class KeptReservation(msgspec.Struct, frozen=True):
    """The job's present reservation: the nodes, when it is expected to start (0 for an unknown time), what was expected
    first, and who still has to end before. Since it was made at `since_ms`, the expected start changed `moved` times,
    because the jobs of `outlived` ran for longer than expected, or for other reasons."""

    offset: int
    since_ms: int
    start_ms: int
    first_ms: int
    nodes: tuple[str, ...]
    awaits: tuple[str, ...]
    outlived: tuple[str, ...]
    moved: int


def kept(state: State, uid: str, promises: list[Promise]) -> KeptReservation | None:
    """The present reservation of a job; None if it has none. `promises` are the decisions on its reservations."""
    found = state.reservations.get(uid)
    if found is None:
        return None
    over = max((number for number, one in enumerate(promises) if not one.nodes), default=-1)
    series = promises[over + 1 :]
    starts = [one.start_ms for one in series]
    decided = found.decided
    return KeptReservation(
        offset=series[-1].offset if series else 0,
        since_ms=series[0].time_ms if series else found.time_ms,
        start_ms=decided.start_ms,
        first_ms=found.first_ms,
        nodes=tuple(dict.fromkeys(pods.node for pods in decided.pods)),
        awaits=awaited_labels(state, decided.awaits),
        outlived=tuple(dict.fromkeys(of for one in series for of in one.outlived)),
        moved=sum(one != other for one, other in itertools.pairwise(starts)),
    )


class LimitForIt(msgspec.Struct, frozen=True):
    """The limit that is kept for a job, in words, when enough of it is left for it (0 for an unknown time), and who has
    to end before."""

    text: str
    start_ms: int
    awaits: tuple[str, ...]


def limit_for(state: State, uid: str) -> LimitForIt | None:
    """The limit that is kept for a job; None if there is none."""
    found = state.kept_limits.get(uid)
    if found is None or found.decided.limit is None:
        return None
    decided = found.decided
    return LimitForIt(limit_name_text(found.decided.limit), decided.start_ms, awaited_labels(state, decided.awaits))


class KeptFor(msgspec.Struct, frozen=True):
    """Another job's reservation on nodes that this job would use: it begins at `start_ms`, 0 for an unknown time, once
    the jobs have ended that it `awaits`. Without nodes, it is a limit that is kept for that job."""

    job: str
    start_ms: int
    nodes: tuple[str, ...]
    awaits: tuple[str, ...] = ()


def kept_for_others(state: State, uid: str, kept_by: Collection[str]) -> tuple[KeptFor, ...]:
    """The reservations of other jobs, those that begin first first; unknown times last. `kept_by` are the jobs whose
    reservations are in the way if that isn't known of all; empty for any."""
    found = [
        KeptFor(
            label_of(state, of),
            one.decided.start_ms,
            tuple(dict.fromkeys(pods.node for pods in one.decided.pods)),
            awaited_labels(state, one.decided.awaits),
        )
        for of, one in state.reservations.items()
        if of != uid and (not kept_by or of in kept_by)
    ]
    return tuple(sorted(found, key=lambda one: (not one.start_ms, one.start_ms, one.job)))


def limit_kept_for(state: State, kept_by: Collection[str]) -> tuple[KeptFor, ...]:
    """The jobs for which a limit is kept, of those that keep a job from using it."""
    found = []
    for uid in kept_by:
        if (known := state.kept_limits.get(uid) or state.reservations.get(uid)) is not None:
            decided = known.decided
            found.append(KeptFor(label_of(state, uid), decided.start_ms, (), awaited_labels(state, decided.awaits)))
    return tuple(found)


class TakesNone(msgspec.Struct, frozen=True):
    """Why the job takes no room from jobs that run: a reason and the jobs that it is about, as in `NoRoom`."""

    kind: NoRoomKind
    jobs: tuple[str, ...]
    until_ms: int
    above: str = ""
    resources: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()


def takes_none(
    state: State,
    job: JobRecord,
    config: CycleConfig,
    policies: Policies,
    shortage: tuple[QuotaLack | None, Collection[str], bool, bool],
) -> tuple[TakesNone, ...]:
    """Why a cycle takes no room for the job's quorum. `shortage`: the limit that it lacks, the resources that nodes
    lack for it, whether it would fit no empty cluster, and whether it would fit but for reserved room."""
    lack, short, infeasible, reserved = shortage
    found = why_no_room(
        state, job, config, state.time_ms, lacks=lack, short=short, infeasible=infeasible, reserved=reserved,
        policies=policies
    )  # fmt: skip

    def labels(uids: Iterable[str]) -> tuple[str, ...]:
        return tuple(label_of(state, uid) for uid in uids)

    return tuple(
        TakesNone(of.kind, labels(of.jobs), of.until_ms, of.above, of.resources, labels(of.hosts)) for of in found
    )
