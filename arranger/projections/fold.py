"""The fold: one entry of the log applied to the state, with the verdict on each decision in it.

Here the log is the arbiter: a decision takes effect only if it is still valid at its own offset,
judged from the events before it alone. Observations under a superseded term are void in the same way. The fold makes no
decisions.
"""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from arranger.events import kinds as k
from arranger.events.devices import DevicesMatched
from arranger.events.log import Entry
from arranger.model.config import CycleConfig
from arranger.model.job import ACTIVE, Stage
from arranger.model.names import GROUP_PREFIX, POD_PREFIX
from arranger.projections.derived import dependencies, job_indexes
from arranger.projections.derived.awaited_room import (
    await_room,
    node_changed,
    pod_left,
    pods_tried,
    spec_changed,
    take_room,
)
from arranger.projections.derived.queue_counts import hold_pod, is_other, release_pod, same_use
from arranger.projections.folding import object_changes, placeholders, provisioning
from arranger.projections.folding.forecasts import end_limit, end_reservation, no_forecast, touch_awaited
from arranger.projections.folding.job_beginnings import begin_job
from arranger.projections.folding.job_life import JobLife
from arranger.projections.folding.pod_groups import follow_member, forget_group, forget_groups, see_group
from arranger.projections.folding.pods_of_jobs import PodsOfJobs
from arranger.projections.folding.pods_to_place import follow_pod
from arranger.projections.folding.slots import Slots, assumed_of, forget_assumed, refuse_slot
from arranger.projections.jobs.parts import EVICT, SlotKey
from arranger.projections.jobs.records import JobRecord, expand, holds
from arranger.projections.observed import devices
from arranger.projections.observed.namespace_terms import note_listed, note_repelling, take_claims
from arranger.projections.state import Changes, Forecasted, KeptLimit, Reservation, State, Verdict
from arranger.projections.verdicts import placements
from arranger.projections.verdicts.judging import Need, irreplaceable, out_of_turn, outdated
from arranger.projections.verdicts.ownership import disowned, is_own
from arranger.projections.verdicts.preemption import freed_by, no_victims, taken_by


def apply_entry(state: State, entry: Entry, changes: Changes) -> None:
    """Fold one entry. Raises `ValueError` if its offsets don't follow the state's: that is a bug in the reader."""
    if entry.first != state.offset + 1:
        raise ValueError(f"entry {entry.first}-{entry.last} doesn't follow offset {state.offset}")
    fold = _Fold(state, changes, max(state.time_ms, entry.batch.time_ms))
    state.queue_use.time_ms = fold.time_ms
    apply, offset, changes_before = _APPLY, entry.first, state.nodes.changes
    if state.assumed:
        forget_assumed(state, list(state.assumed_until(fold.time_ms)), changes)
    for event in entry.batch.events:
        apply[type(event)](fold, offset, event)
        offset += 1
    if state.awaiting and changes_before != state.nodes.changes:
        changes.jobs.update(state.awaiting)  # room on some node changed: jobs that await room may go on
    state.offset = entry.last
    state.date_room_news(entry.last)
    state.time_ms = fold.time_ms


def apply_by_event(state: State, entry: Entry, changes: Changes) -> Iterator[int]:
    """As `apply_entry`, but event by event: yields the offset of each event after applying it.

    It shows which event of a batch made a difference. `changes` lacks the jobs that await room. A caller that stops
    early must discard the state: it is inside a batch, and decisions never use such a state.
    """
    if entry.first != state.offset + 1:
        raise ValueError(f"entry {entry.first}-{entry.last} doesn't follow offset {state.offset}")
    fold = _Fold(state, changes, max(state.time_ms, entry.batch.time_ms))
    state.queue_use.time_ms = fold.time_ms
    forget_assumed(state, list(state.assumed_until(fold.time_ms)), changes)
    for offset, event in enumerate(entry.batch.events, start=entry.first):
        _APPLY[type(event)](fold, offset, event)
        state.offset, state.time_ms = offset, fold.time_ms
        state.date_room_news(entry.last)
        yield offset


_NODE, _POD = k.Watched.NODE, k.Watched.POD
#: No TYJob has a UID that begins with these.
_OF_PODS = (POD_PREFIX, GROUP_PREFIX)

#: For a batch without a cycle, whose placements are refused anyway.
_NO_CONFIG = CycleConfig()


class _Fold:
    """One entry being folded, event by event, and the verdict on its cycle."""

    __slots__ = ("changes", "cycle_config", "cycle_refusal", "jobs", "pods", "slots", "state", "superseded", "time_ms")

    def __init__(self, state: State, changes: Changes, time_ms: int) -> None:
        self.state, self.changes, self.time_ms = state, changes, time_ms
        self.slots = Slots(state, changes, time_ms)
        self.pods = PodsOfJobs(self.slots)
        self.jobs = JobLife(self.pods)
        self.cycle_refusal = "no cycle was taken in this batch"
        self.superseded = False
        self.cycle_config = _NO_CONFIG

    # --- observations --------------------------------------------------------------------------------------

    def epoch_begun(self, _offset: int, event: k.EpochBegun) -> None:
        self.state.epoch = event.epoch
        self.state.cluster = event.cluster

    def claimed(self, offset: int, event: k.WatchClaimed) -> None:
        if self.state.foreign(event.cluster):
            self.count("Observation", accepted=False)
            return
        self.state.terms[event.kind] = offset
        self.state.cluster = self.state.cluster or event.cluster
        if event.kind == _POD:
            take_claims(self.state, with_volumes=event.volumes, with_devices=event.devices)

    def listing_ended(self, _offset: int, event: k.ListingEnded) -> None:
        if self.is_current(event.kind, event.term):
            self.state.listed[event.kind] = True
            self.state.unwatched.pop(event.kind, None)
            self.state.scheduling_changes += 1
            self.changes.schedulable = True
            self.changes.jobs.update(dict.fromkeys(self.state.jobs))
            note_listed(self.state, event.kind)
            if event.kind == _POD:
                for job in self.state.jobs.values():
                    job.slots.leaving = ()  # the listing had every old pod; a pod seen from now on is a new one
                    self.slots.note_ready(job)
                    self.pods.adopt_kept(job)

    def watch_heard(self, _offset: int, event: k.WatchHeard) -> None:
        state = self.state
        if not self.is_current(event.kind, event.term):
            return
        state.heard[event.kind] = max(event.until_ms, state.heard.get(event.kind, 0))
        self.changes.jobs.update({uid: None for uid, job in state.jobs.items() if job.stage in ACTIVE})
        if event.kind == _NODE:  # cycles give up an infeasible job only at a time up to which all nodes are known
            state.scheduling_changes += 1
            self.changes.schedulable = True

    def node_seen(self, _offset: int, event: k.NodeSeen) -> None:
        nodes, name, facts = self.state.nodes, event.name, event.facts
        if not self.is_current(_NODE, event.term):
            return
        before = nodes.facts_of(name)
        if nodes.see(name, event.uid, event.resource_version, facts, time_ms=self.time_ms):
            self.changes.schedulable = True
            self.state.note_room()
            if before is None or before.ready != facts.ready:
                self.changes.nodes.add(name)
            node_changed(self.state, name, self.changes)

    def gone(self, offset: int, event: k.ObjectGone) -> None:
        if self.is_current(event.kind, event.term):
            _FORGET[event.kind](self, offset, event)

    def node_gone(self, _offset: int, event: k.ObjectGone) -> None:
        if self.state.nodes.forget(event.name, event.uid, time_ms=self.time_ms):
            self.changes.schedulable = True
            self.state.note_room()
            self.changes.nodes.add(event.name)
            node_changed(self.state, event.name, self.changes)

    def pod_seen(self, offset: int, event: k.PodSeen) -> None:
        state = self.state
        if state.terms.get(_POD) != event.term:  # as `is_current`, for each of many pods
            self.count("Observation", accepted=False)
            return
        old = state.pods.get(event.uid)
        if old is None or state.placeholders or not _goes_on(old, event):
            self._pod_changed(offset, old, event)
            return
        state.pods[event.uid] = event
        owner = event.owner
        if owner is not None:
            state.pods_of[owner.job_uid][event.uid] = event
            self.changes.jobs[owner.job_uid] = None
            job = state.jobs.get(owner.job_uid)
            if job is not None:
                self.pods.note(job, owner, old, event)

    def _pod_changed(self, offset: int, old: k.PodSeen | None, event: k.PodSeen) -> None:
        """A pod is new, or something of it has changed that matters beyond its slot."""
        state, owner = self.state, event.owner
        if owner is not None and _is_stranger(state, old, event):
            event, owner = disowned(event), None
        reowned = old is not None and old.owner != owner  # its labels were edited, so it fills another slot or none
        if state.assumed and old is None and owner is not None:
            forget_assumed(state, assumed_of(state, owner, event.node), self.changes)
        event = self._keep_pod(offset, old, event)
        if reowned and old is not None and old.owner is not None:
            self.pods.forget(old)
        if owner is not None:
            (state.pods_of.get(owner.job_uid) or self.pods.first_of(owner.job_uid))[event.uid] = event
            self.changes.jobs[owner.job_uid] = None
            job = state.jobs.get(owner.job_uid)
            if job is not None and self.pods.note(job, owner, old, event):
                return  # the pod has taken over its placement's room, so there is nothing to count
        if _may_count_otherwise(old, event):
            self._recount(old, event)

    def _keep_pod(self, offset: int, old: k.PodSeen | None, event: k.PodSeen) -> k.PodSeen:
        """Put a pod into the state, and into what follows from its pods; returns it as it is kept."""
        state, uid = self.state, event.uid
        if event.traits.anti_affinity or state.repelling:
            event = note_repelling(state, event)
        state.pods[uid] = event
        if event.owner is None or state.placeholders:
            placeholders.follow_placeholder(self, old, event)
        if event.deleting or uid in state.deleting:
            state.note_deleting(event)
        if event.asks is not None or (old is not None and old.asks is not None):
            follow_pod(self.slots, offset, old, event)
            follow_member(self.slots, offset, old, event)
        return event

    def _recount(self, old: k.PodSeen | None, new: k.PodSeen) -> None:
        """Replace the old usage of a pod by the new one; most observations don't change it."""
        held, holding = old is not None and holds(old), holds(new)
        if old is not None and held and holding and same_use(old, new):
            self._stays(old, new)
            return
        if holding:
            hold_pod(self.state, new)
        if old is not None and held:
            release_pod(self.state, old)
            self.changes.schedulable = True
            pod_left(self.state, old.node, self.changes)
        elif not holding and new.namespace in self.state.quotas:
            self.state.scheduling_changes += 1  # a pod without a node holds nothing, but it may use the quotas

    def _stays(self, old: k.PodSeen, new: k.PodSeen) -> None:
        """A pod uses what it used before."""
        if old.deleting != new.deleting or (old.traits is not new.traits and old.traits != new.traits):
            self.state.scheduling_changes += 1  # placements of jobs with rules about other pods may change
        if old.deleting != new.deleting and is_other(new):
            self.state.note_room()

    def pod_gone(self, offset: int, event: k.ObjectGone) -> None:
        state = self.state
        if (pod := state.pods.pop(event.uid, None)) is None:
            return
        state.repelling.pop(event.uid, None)
        state.deleting.pop(event.uid, None)
        if pod.asks is not None:
            follow_pod(self.slots, offset, pod, None)
            follow_member(self.slots, offset, pod, None)
        if holds(pod):
            release_pod(state, pod)
            self.changes.schedulable = True
            pod_left(state, pod.node, self.changes)
        elif pod.namespace in state.quotas:
            state.scheduling_changes += 1
        if pod.owner is not None:
            self.pods.forget(pod)
        else:
            placeholders.forget_placeholder(self, pod)

    def job_seen(self, offset: int, event: k.JobSeen) -> None:
        if not self.is_current(k.Watched.JOB, event.term) or event.uid.startswith(_OF_PODS):
            return
        self.changes.jobs[event.uid] = None
        self.state.orphaned.pop(event.uid, None)
        job = self.state.jobs.get(event.uid)
        if job is None:
            begin_job(self.pods, offset, event)
            return
        before = job.seen
        job.seen = event
        if (before.user, before.permits) != (event.user, event.permits):
            self.state.scheduling_changes += 1
            self.changes.schedulable = True
        if before.generation != event.generation:
            spec_changed(self.state, job, self.changes)
        if (before.spec, before.faults, before.deleting) != (event.spec, event.faults, event.deleting):
            job.version = offset
            self.state.scheduling_changes += 1
            if job.placements:
                self.state.note_room()
            if event.spec is not None:
                self.jobs.change_spec(job, event.spec, edited=before.generation != event.generation)
            self.changes.schedulable = True

    def job_gone(self, _offset: int, event: k.ObjectGone) -> None:
        if event.uid.startswith(_OF_PODS):
            return
        job = self.state.jobs.pop(event.uid, None)
        if job is not None:
            self.changes.jobs[event.uid] = None
            self.changes.schedulable = True
            self.state.scheduling_changes += 1
            self.slots.release_all(job, job.stage)
            if event.uid in self.state.pods_of:
                self.state.orphaned[event.uid] = self.time_ms
            provisioning.forget_job(self.state, event.uid, self.changes)
            job_indexes.leave(self.state, job)
            dependencies.tell_dependents(self.state, job, self.changes)

    def watch_refused(self, offset: int, event: k.WatchRefused) -> None:
        if not self.is_current(event.kind, event.term):
            return
        self.state.unwatched[event.kind] = event.code
        self.state.listed[event.kind] = False
        object_changes.forget_refused(self.state, event.kind)
        forget_groups(self.slots, offset, event.kind)
        self.state.scheduling_changes += 1
        self.changes.schedulable = True
        self.changes.jobs.update(dict.fromkeys(self.state.jobs))

    # --- decisions and outcomes ----------------------------------------------------------------------------

    def cycle_taken(self, offset: int, event: k.CycleTaken) -> None:
        last = self.state.last_cycle
        self.superseded = event.base < last
        self.cycle_refusal = f"superseded by the cycle at offset {last}" if self.superseded else ""
        self.cycle_config = event.config
        if not self.cycle_refusal:
            self.state.last_cycle = offset
            self.state.queue_use.change_half_life(event.config.half_life_ms)
            self.state.queue_use.forget_deleted(self.state.queues.keys())
            _confirmed(self, event)
            if self.state.room_news <= event.base:
                self.state.room_news = 0
        self.record_verdict(offset, "CycleTaken", self.cycle_refusal)

    def placed(self, offset: int, event: k.Placed) -> None:
        job = self.state.jobs.get(event.job_uid)
        desired = expand(event.pods)
        refusal, need = self.cycle_refusal or outdated(job, event.based_on, event.attempt), None
        if not refusal and job is not None:
            refusal, need = self._judged(job, event, desired)
        if self.record_verdict(offset, "Placed", refusal) and job is not None:
            self.slots.give_nodes(job, event, desired, need)
            job.version = offset
            if job.stage in (Stage.PENDING, Stage.RESCHEDULING):
                leaderless = not job.valid_spec.has_leader
                self.jobs.enter(job, k.start(job.uid, event.based_on, event.attempt, leaderless=leaderless))

    def _judged(
        self, job: JobRecord, event: k.Placed, desired: dict[SlotKey, str], freed: placements.Freed = placements.NOTHING
    ) -> tuple[str, Need | None]:
        config, time_ms = self.cycle_config, self.time_ms
        return placements.judged(self.state, job, event, desired, config=config, time_ms=time_ms, freed=freed)

    def preempted(self, offset: int, event: k.Preempted) -> None:
        placed = event.placed
        job = self.state.jobs.get(placed.job_uid)
        desired = expand(placed.pods)
        refusal, need = self.cycle_refusal or outdated(job, placed.based_on, placed.attempt), None
        if not refusal and job is not None:
            refusal = no_victims(self.state, job, event)
        if not refusal and job is not None:
            freed = freed_by(self.state, event)
            refusal, need = self._judged(job, placed, desired, freed)
        if self.record_verdict(offset, "Preempted", refusal) and job is not None:
            for victim in event.victims:
                victim_job = self.state.jobs[victim.job_uid]
                self.jobs.give_way(victim_job, victim, taken_by(self.state, job, victim_job, victim.kind))
                victim_job.version = offset
            guests = [victim.job_uid for victim in event.victims if victim.kind.of_guest]
            job.slots.asked = tuple(sorted({*job.slots.asked, *guests}))
            self.slots.give_nodes(job, placed, desired, need)
            await_room(self.state, job, event)
            take_room(self.state, job, event, self.time_ms)
            job.waits = None
            job.version = offset

    def waits(self, offset: int, event: k.Waits) -> None:
        job = self.state.jobs.get(event.job_uid)
        refusal = self.cycle_refusal or outdated(job, event.based_on, None)
        if self.record_verdict(offset, "Waits", refusal) and job is not None:
            job.waits = event
            job.times.waits_ms = self.time_ms
            self.slots.enter_schedule(job, event.schedule_state)
            if not event.shortage.infeasible:
                job.times.infeasible_ms = 0
            elif not job.times.infeasible_ms:
                job.times.infeasible_ms = self.time_ms
            self.changes.jobs[job.uid] = None

    def stage_decided(self, offset: int, event: k.StageDecided) -> None:
        job = self.state.jobs.get(event.job_uid)
        refusal = outdated(job, event.based_on, event.attempt, spec_needed=False) or out_of_turn(self.state, job, event)
        if self.record_verdict(offset, "StageDecided", refusal) and job is not None:
            self.jobs.enter(job, event)
            job.version = offset

    def workers_replaced(self, offset: int, event: k.WorkersReplaced) -> None:
        job = self.state.jobs.get(event.job_uid)
        refusal = outdated(job, event.based_on, event.attempt)
        if not refusal and job is not None:
            refusal = irreplaceable(self.state.nodes, job, event)
        if job is not None:
            self.changes.jobs[job.uid] = None  # also if refused: its basis has changed
        if not self.record_verdict(offset, "WorkersReplaced", refusal) or job is None or job.spec is None:
            return
        self.jobs.replace_workers(job, job.spec, event)
        job.version = offset
        self.changes.schedulable = True

    def effect_failed(self, _offset: int, event: k.EffectFailed) -> None:
        job = self.state.jobs.get(event.job_uid)
        if job is None or job.ended or event.attempt != job.attempt or provisioning.took_refusal(self, job, event):
            return
        if event.effect == EVICT:
            job.slots.unevicted = event
            self.changes.jobs.update({job.uid: None, **self.state.awaiting})
            return
        if event.slot is not None and (event.slot.group, event.slot.index) in job.bound:
            return  # another applier created the pod
        job.failure = event
        slot = (event.slot.group, event.slot.index) if event.slot is not None else None
        if event.tries and slot in job.placements:
            refuse_slot(self.slots, job, slot, event)
        self.slots.note_short(job)
        self.changes.jobs[job.uid] = None

    def pods_tried(self, _offset: int, event: k.PodsTried) -> None:
        job = self.state.jobs.get(event.job_uid)
        if job is not None and not job.ended and event.generation == job.seen.generation:
            pods_tried(self.state, job, event, self.changes)

    # --- verdicts ------------------------------------------------------------------------------------------

    def is_current(self, kind: str | None, term: int) -> bool:
        """Whether an observation is of the present term of its watch; one that isn't is counted as refused."""
        if self.state.terms.get(kind or "") == term:
            return True
        self.count("Observation", accepted=False)
        return False

    def record_verdict(self, offset: int, kind: str, refusal: str, *, matters_to_cycles: bool = True) -> bool:
        """Record the verdict on a decision, and return whether it takes effect: if there is no reason against it, its
        `refusal`."""
        self.state.scheduling_changes += matters_to_cycles and not refusal
        self.changes.verdicts.append(Verdict(offset, kind, not refusal, refusal, self.superseded))
        self.count(kind, accepted=not refusal)
        return not refusal

    def count(self, kind: str, *, accepted: bool) -> None:
        counts = self.state.verdicts.get(kind)
        if counts is None:
            counts = self.state.verdicts[kind] = [0, 0]
        counts[0 if accepted else 1] += 1


def _only_recorded(_fold: _Fold, _offset: int, _event: Any) -> None:
    """An event for readers of the log."""


def _on_state(apply: Callable[[State, Any, Changes], None]) -> Callable[[_Fold, int, Any], None]:
    """How an event is folded that only the state is needed for."""
    return lambda fold, _, event: apply(fold.state, event, fold.changes)


def _on_slots(apply: Callable[[Slots, int, Any], None]) -> Callable[[_Fold, int, Any], None]:
    """How an event is folded that changes slots."""
    return lambda fold, offset, event: apply(fold.slots, offset, event)


def _observed(apply: Callable[[State, Any, Changes], None]) -> Callable[[_Fold, int, Any], None]:
    """How an observation is folded that only the state is needed for, if it is of the current term."""
    return _if_current(_on_state(apply))


def _if_current(apply: Callable[[_Fold, int, Any], None]) -> Callable[[_Fold, int, Any], None]:
    """How an observation is folded if it is of the current term."""

    def folded(fold: _Fold, offset: int, event: Any) -> None:
        if fold.is_current(k.watch_of(event), event.term):
            apply(fold, offset, event)

    return folded


def _confirmed(fold: _Fold, event: k.CycleTaken) -> None:
    """A cycle has revised the reservations that were old enough. Those of which it says nothing else are as before."""
    reservations, refresh_ms = fold.state.reservations, event.config.reservation_refresh_ms
    for uid, known in reservations.items():
        if event.time_ms - known.time_ms >= refresh_ms:
            reservations[uid] = msgspec.structs.replace(known, time_ms=fold.time_ms)


def _reserved(fold: _Fold, offset: int, event: k.Reserved) -> None:
    """A waiting job gets a reservation, another one, or none any more."""
    state, uid = fold.state, event.job_uid
    job = state.jobs.get(uid)
    refusal = fold.cycle_refusal or outdated(job, event.based_on, None, spec_needed=bool(event.pods))
    if not refusal and job is not None and job.placements:
        refusal = "it has nodes already"
    if fold.record_verdict(offset, "Reserved", refusal):
        awaited = state.awaited_by(uid)
        if event.pods:
            before = state.reservations.get(uid)
            first = (before.first_ms, before.since_ms) if before is not None else (event.start_ms, fold.time_ms)
            state.reservations[uid] = Reservation(event, fold.time_ms, *first)
        else:
            end_reservation(state, uid, fold.changes)
        touch_awaited(state, uid, awaited, fold.changes)
        fold.changes.jobs[uid] = None


def _limit_kept(fold: _Fold, offset: int, event: k.LimitKept) -> None:
    """A limit is kept for a waiting job, or none any more."""
    state, uid = fold.state, event.job_uid
    job = state.jobs.get(uid)
    refusal = fold.cycle_refusal or outdated(job, event.based_on, None, spec_needed=event.limit is not None)
    if not refusal and job is not None and job.placements:
        refusal = "it has nodes already"
    if fold.record_verdict(offset, "LimitKept", refusal):
        awaited = state.awaited_by(uid)
        if event.limit is not None:
            state.kept_limits[uid] = KeptLimit(event, fold.time_ms)
        else:
            end_limit(state, uid, fold.changes)
        touch_awaited(state, uid, awaited, fold.changes)
        fold.changes.jobs[uid] = None


def _start_forecast(fold: _Fold, offset: int, event: k.StartForecast) -> None:
    """It is kept for people: no cycle looks at it."""
    state = fold.state
    if fold.record_verdict(offset, "StartForecast", no_forecast(state, event), matters_to_cycles=False):
        state.forecasts[event.job_uid] = Forecasted(event, fold.time_ms)
        fold.changes.jobs[event.job_uid] = None


#: Watch → how the deletion of one of its objects is folded, if it is of the current term.
_FORGET: dict[k.Watched, Callable[[_Fold, int, Any], None]] = {
    **{kind: _on_state(forget) for kind, forget in object_changes.GONE.items()},
    _NODE: _Fold.node_gone,
    _POD: _Fold.pod_gone,
    k.Watched.JOB: _Fold.job_gone,
    k.Watched.PROVISIONING: provisioning.forget_request,
    **dict.fromkeys(k.GROUP_KINDS, _on_slots(forget_group)),
}

_APPLY: dict[type, Callable[[_Fold, int, Any], None]] = {
    **{kind: _observed(see) for kind, see in object_changes.SEEN.items()},
    k.EpochBegun: _Fold.epoch_begun,
    k.WatchClaimed: _Fold.claimed,
    k.ListingBegun: _only_recorded,
    k.ListingEnded: _Fold.listing_ended,
    k.WatchHeard: _Fold.watch_heard,
    k.NodeSeen: _Fold.node_seen,
    k.PodSeen: _Fold.pod_seen,
    k.JobSeen: _Fold.job_seen,
    k.PodGroupSeen: _if_current(_on_slots(see_group)),
    k.ObjectGone: _Fold.gone,
    DevicesMatched: lambda fold, _, event: devices.take_matches(fold.state, event, fold.changes),
    **provisioning.applied(_if_current),
    k.WatchRefused: _Fold.watch_refused,
    k.CycleTaken: _Fold.cycle_taken,
    k.Placed: _Fold.placed,
    k.Preempted: _Fold.preempted,
    k.Reserved: _reserved,
    k.LimitKept: _limit_kept,
    k.StartForecast: _start_forecast,
    k.Waits: _Fold.waits,
    k.StageDecided: _Fold.stage_decided,
    k.WorkersReplaced: _Fold.workers_replaced,
    k.EffectFailed: _Fold.effect_failed,
    k.PodsTried: _Fold.pods_tried,
}


def _goes_on(old: k.PodSeen, pod: k.PodSeen) -> bool:
    """Whether an observation shows nothing new of a pod but what its slot counts, such as its readiness: most don't.
    Equal requests and traits are mostly one object, and `_recount` compares the values of the others."""
    return (
        old.requests is pod.requests
        and old.traits is pod.traits
        and old.deleting == pod.deleting
        and old.phase == pod.phase
        and old.node == pod.node
        and old.asks is pod.asks is None
        and old.owner == pod.owner
        and (pod.owner is None or (old.name == pod.name and old.namespace == pod.namespace))
        and not pod.traits.anti_affinity
    )


def _is_stranger(state: State, old: k.PodSeen | None, pod: k.PodSeen) -> bool:
    """Whether a pod that claims a slot of a job isn't its pod (see `ownership.attributed`). That is asked only when the
    pod is new, or its owner, name or namespace has changed."""
    job = state.jobs.get(pod.owner.job_uid) if pod.owner is not None else None
    if job is None:
        return False
    same = old is not None and old.owner == pod.owner and old.name == pod.name and old.namespace == pod.namespace
    return not same and not is_own(job, pod)


def _may_count_otherwise(old: k.PodSeen | None, pod: k.PodSeen) -> bool:
    """Whether an observation of a pod may change what counts on its node, and where. Equal requests and traits are
    mostly one object; `_recount` compares the values."""
    return (
        old is None
        or old.owner != pod.owner
        or old.phase != pod.phase
        or old.node != pod.node
        or old.deleting != pod.deleting
        or old.requests is not pod.requests
        or old.traits is not pod.traits
        or (old.asks is None) != (pod.asks is None)
    )
