"""The fold: one entry of the log applied to the state, with the verdict on each decision in it.

This is where the log is the arbiter (architecture rule 3): a decision takes effect only if it is still valid at
its own offset, judged from the events before it alone. Observations under a superseded term are void in the same
way. Nothing here decides anything; it only says what is so.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from arranger.events import kinds as k
from arranger.events.earlier import facts_of, reason_of
from arranger.events.log import Entry
from arranger.model.config import CycleConfig
from arranger.model.job import GANG, JobSpec, Place, PlacedPods, Replacement, ScheduleState, Stage
from arranger.model.pod import REFUSALS, TERMINAL, Phase
from arranger.model.stages import StageReason, may_enter
from arranger.model.tyjob import refused_change
from arranger.projections.backoff import NO_BACK_OFF, BackOff
from arranger.projections.jobs import LEADER, STEPS_KEPT, JobRecord, PlaceKey, expand, holds
from arranger.projections.nodes import NOWHERE, Amounts, NodeTable
from arranger.projections.openness import closed_to_new, closed_to_next
from arranger.projections.ownership import attributed, disowned, is_own
from arranger.projections.state import Assumed, Changes, State, Verdict

#: How a decision's verdict begins when its cycle was taken on a state that another cycle had left behind.
SUPERSEDED = "superseded by the cycle at offset"


def apply_entry(state: State, entry: Entry, changes: Changes) -> None:
    """Fold one entry. Its offsets must follow the state's; the same entry twice is a bug in the reader."""
    if entry.first != state.offset + 1:
        raise ValueError(f"entry {entry.first}-{entry.last} doesn't follow offset {state.offset}")
    fold = _Fold(state, changes, max(state.told_ms, entry.batch.told_ms))
    if state.assumed:
        forget_assumed(state, list(state.assumed_until(fold.told_ms)), changes)
    apply, offset = _APPLY, entry.first
    for event in entry.batch.events:
        apply[type(event)](fold, offset, event)
        offset += 1
    state.offset = entry.last
    state.told_ms = fold.told_ms


def apply_by_event(state: State, entry: Entry, changes: Changes) -> Iterator[int]:
    """As `apply_entry`, stopping after each event: yields its offset, with everything up to it applied.

    Nobody decides on a state in the middle of a batch; this tells which event of a batch made a difference. It must be
    run to its end.
    """
    if entry.first != state.offset + 1:
        raise ValueError(f"entry {entry.first}-{entry.last} doesn't follow offset {state.offset}")
    fold = _Fold(state, changes, max(state.told_ms, entry.batch.told_ms))
    forget_assumed(state, list(state.assumed_until(fold.told_ms)), changes)
    for offset, event in enumerate(entry.batch.events, start=entry.first):
        _APPLY[type(event)](fold, offset, event)
        state.offset, state.told_ms = offset, fold.told_ms
        yield offset


def forget_assumed(state: State, pods: Sequence[Assumed], changes: Changes) -> None:
    """Nobody waits any more for these pods of `state.assumed`: they were seen and count themselves, or won't come."""
    for pod in pods:
        del state.assumed[pod.owner]
        state.nodes.release(pod.node, pod.requests)
        changes.schedulable = True


_POD = k.Watched.POD
_FAILED = Phase.FAILED

#: Of a batch without a cycle: its placements are refused anyway.
_NO_CONFIG = CycleConfig()


class _Fold:
    """One entry being folded: the state, what it touches, and whether the cycle in it holds."""

    __slots__ = ("changes", "cycle_config", "cycle_refused", "state", "told_ms")

    def __init__(self, state: State, changes: Changes, told_ms: int) -> None:
        self.state = state
        self.changes = changes
        self.told_ms = told_ms
        self.cycle_refused = "no cycle was taken in this batch"
        self.cycle_config = _NO_CONFIG

    # --- observations --------------------------------------------------------------------------------------

    def epoch_begun(self, _offset: int, event: k.EpochBegun) -> None:
        self.state.epoch = event.epoch
        self.state.cluster = event.cluster

    def claimed(self, offset: int, event: k.WatchClaimed) -> None:
        if self.state.foreign(event.cluster):
            self._count("Observation", accepted=False)
            return
        self.state.terms[event.kind] = offset
        self.state.cluster = self.state.cluster or event.cluster
        if event.kind == _POD and event.exact_slots != self.state.exact_slots:
            self.state.exact_slots = event.exact_slots
            for job in self.state.jobs.values():
                self._disown_strangers(job)
        if event.kind == _POD and event.pod_addresses != self.state.pod_addresses:
            self.state.pod_addresses = event.pod_addresses
            for job in [job for job in self.state.jobs.values() if LEADER in job.bound]:
                self._note_address(job, self.state.pods[job.bound[LEADER]])
                self.changes.jobs[job.uid] = None

    def listing_begun(self, _offset: int, event: k.ListingBegun) -> None:
        pass  # stands in the log for its readers; the fold needs only the end

    def listing_ended(self, _offset: int, event: k.ListingEnded) -> None:
        if self._current(event.kind, event.term):
            self.state.listed[event.kind] = True
            self.state.unwatched.pop(event.kind, None)
            self.state.job_changes += 1
            self.changes.schedulable = True
            self.changes.jobs.update(dict.fromkeys(self.state.jobs))
            if event.kind == k.Watched.POD:
                for job in self.state.jobs.values():
                    job.leaving = ()  # every pod that was there is known; what comes now is a next one

    def node_seen(self, _offset: int, event: k.NodeSeen) -> None:
        if self._current(k.Watched.NODE, event.term) and self.state.nodes.see(
            event.name, event.uid, event.resource_version, event.facts, told_ms=self.told_ms
        ):
            self.changes.schedulable = True

    def node_gone(self, _offset: int, event: k.NodeGone) -> None:
        if self._current(k.Watched.NODE, event.term) and self.state.nodes.forget(
            event.name, event.uid, told_ms=self.told_ms
        ):
            self.changes.schedulable = True

    def pod_seen(self, _offset: int, event: k.PodSeen) -> None:
        state, uid = self.state, event.uid
        if state.terms.get(_POD) != event.term:
            self._count("Observation", accepted=False)
            return
        event = attributed(state, event)
        owner = event.owner
        old = state.pods.get(uid)
        state.pods[uid] = event
        if state.assumed and old is None and owner in state.assumed:
            forget_assumed(state, [state.assumed[owner]], self.changes)
        if event.traits.anti_affinity:
            state.repelling[uid] = event
        elif state.repelling:
            state.repelling.pop(uid, None)
        if old is not None and old.owner is not None and old.owner != owner:
            self._forget_pod_of_job(old)  # someone changed its labels: it fills no place any more, or another one
        if (
            old is None
            or old.phase != event.phase
            or old.node != event.node
            or old.deleting != event.deleting
            or old.requests
            is not event.requests  # equal ones mostly are one object; `_move` knows equal from different
            or old.traits is not event.traits
        ):
            self._move(old, event)
        if owner is not None:
            of_job = state.pods_of.get(owner.job_uid)
            if of_job is None:
                of_job = state.pods_of[owner.job_uid] = {}
            of_job[uid] = event
            self.changes.jobs[owner.job_uid] = None
            job = state.jobs.get(owner.job_uid)
            place = job.place_of(owner) if job is not None else None
            if job is not None and place is not None:
                self._note_pod(job, place, old, event)

    def _note_pod(self, job: JobRecord, place: PlaceKey, old: k.PodSeen | None, pod: k.PodSeen) -> None:
        """A pod that claims a place of the job's present attempt was seen."""
        if place not in job.bound:
            self._bind(job, place, pod)
        elif place == LEADER and job.bound[LEADER] == pod.uid:
            self._note_address(job, pod)
        if pod.restarts or pod.phase == _FAILED:
            self._note_failure(job, place, old, pod)

    def _note_failure(self, job: JobRecord, place: PlaceKey, old: k.PodSeen | None, pod: k.PodSeen) -> None:
        """Remember which nodes refuse pods of a job, and since when workers of a set fail: what is decided on those
        waits to see whether the leader fails."""
        assert pod.owner is not None
        failed = pod.phase == _FAILED and (old is None or old.phase != _FAILED)
        restarted = pod.restarts > (old.restarts if old is not None else 0)
        if not (failed or restarted) or job.bound.get(place) != pod.uid:
            return
        if failed and pod.reason.startswith(REFUSALS):
            job.refusals[pod.node] = self.told_ms
            self.state.job_changes += 1
        if place == LEADER:
            return
        since_ms = job.failing_since.get(pod.owner.group_name, 0)
        if self.told_ms - since_ms > k.FAILURES_APART_MS:
            job.failing_since[pod.owner.group_name] = self.told_ms

    def _move(self, old: k.PodSeen | None, new: k.PodSeen) -> None:
        """What a pod holds now, instead of what it held; most sightings change nothing of it."""
        held, holding = old is not None and holds(old), holds(new)
        if old is not None and held and holding and old.node == new.node and old.requests == new.requests:
            if old.deleting != new.deleting or (old.traits is not new.traits and old.traits != new.traits):
                self.state.job_changes += 1  # jobs that look at other pods may be placed otherwise now
            return
        if holding:
            self.state.nodes.hold(new.node, new.requests)
        if old is not None and held:
            self.state.nodes.release(old.node, old.requests)
            self.changes.schedulable = True

    def pod_gone(self, _offset: int, event: k.PodGone) -> None:
        if not self._current(_POD, event.term):
            return
        state = self.state
        pod = state.pods.pop(event.uid, None)
        if pod is None:
            return
        state.repelling.pop(event.uid, None)
        if holds(pod):
            state.nodes.release(pod.node, pod.requests)
            self.changes.schedulable = True
        if pod.owner is not None:
            self._forget_pod_of_job(pod)

    def _forget_pod_of_job(self, pod: k.PodSeen) -> None:
        assert pod.owner is not None
        uid = pod.owner.job_uid
        self.changes.jobs[uid] = None
        of_job = self.state.pods_of[uid]
        del of_job[pod.uid]
        self._unretire(uid, pod)
        self.state.job_changes += 1  # a job that waits for its old pods to go may now be placed
        if not of_job:
            del self.state.pods_of[uid]
        job = self.state.jobs.get(uid)
        place = job.place_of(pod.owner) if job is not None else None
        if job is None or place is None or job.bound.get(place) != pod.uid:
            return
        del job.bound[place]
        if place == LEADER and pod.phase in TERMINAL:
            job.leader_ended = pod
        self._count_restarts(job, place, pod)
        self._keep_or_release(job, place, pod)
        self._bind_waiting(job)  # the next pod of that name may have been seen before this one was missed
        self._note_short(job)

    def _disown_strangers(self, job: JobRecord) -> None:
        """Take pods from a job that name it as their owner and are not its own."""
        if not self.state.exact_slots:
            return
        for pod in [pod for pod in self.state.pods_of.get(job.uid, {}).values() if not is_own(job, pod)]:
            self._forget_pod_of_job(pod)
            self.state.pods[pod.uid] = disowned(pod)
            if pod.uid in self.state.repelling:
                self.state.repelling[pod.uid] = self.state.pods[pod.uid]

    def _unretire(self, job_uid: str, pod: k.PodSeen) -> None:
        job = self.state.jobs.get(job_uid)
        if job is not None:
            job.retired.pop(pod.uid, None)

    def _keep_or_release(self, job: JobRecord, place: PlaceKey, pod: k.PodSeen) -> None:
        """A place whose pod is gone is still wanted there and holds its room again, unless others have that by now, or
        nobody fills it any more because its job is being deleted."""
        node = job.placements[place]
        if not job.seen.deleting and (holds(pod) or not lacking(self.state.nodes, job, {place: node})):
            self.state.nodes.hold(node, _requests(job, place))
            return
        del job.placements[place]
        job.refused_places.pop(place, None)
        self._settle_schedule(job)
        self.changes.schedulable = True

    def job_seen(self, offset: int, event: k.JobSeen) -> None:
        if not self._current(k.Watched.JOB, event.term):
            return
        self.changes.jobs[event.uid] = None
        job = self.state.jobs.get(event.uid)
        if job is None:
            self._begin_job(offset, event)
            return
        before = job.seen
        job.seen = event
        if (before.spec, before.invalid, before.deleting) != (event.spec, event.invalid, event.deleting):
            job.version = offset
            self.state.job_changes += 1
            if event.spec is not None:
                self._change_spec(job, event.spec, edited=before.generation != event.generation)
            self.changes.schedulable = True

    def _change_spec(self, job: JobRecord, spec: JobSpec, *, edited: bool) -> None:
        """Take a changed spec over, unless the user changed what a started job may not change any more.

        Where nobody edited it, another version of Arranger reads the same TYJob in another way: that refuses nothing.
        """
        started = job.stage != Stage.PENDING and not job.ended
        if edited and started and job.spec is not None:
            job.refused = refused_change(job.spec, spec)
        if not job.refused:
            self._take_spec(job, spec)
        if edited:
            self._end_back_off(job)

    def _begin_job(self, offset: int, event: k.JobSeen) -> None:
        job = JobRecord(event, event.spec, offset, stage_since_ms=self.told_ms, scheduled_since_ms=self.told_ms)
        self.state.jobs[event.uid] = job
        self.state.job_changes += 1
        self.changes.schedulable = True
        if event.status is not None and event.status.stage in _STAGES:
            self._adopt(job, offset, event)
        self._disown_strangers(job)
        self._bind_waiting(job)
        self._note_short(job)
        if self.state.listed.get(k.Watched.POD):
            job.leaving = ()

    def _adopt(self, job: JobRecord, offset: int, event: k.JobSeen) -> None:
        """Architecture rule 5: what an earlier epoch had decided stands in the status."""
        status = event.status
        assert status is not None
        job.adopted_at = offset
        job.stage = Stage(status.stage)
        if status.schedule_state in _SCHEDULE_STATES:
            job.schedule_state = ScheduleState(status.schedule_state)
        job.attempt, job.restarts = status.attempt, status.restarts
        job.spent = dict(status.worker_restarts)
        job.leader_address = status.leader_address
        job.start_ms, job.completion_ms = status.start_ms, status.completion_ms
        reason = reason_of(status.reason or StageReason.ADOPTED)
        job.decided = k.StageDecided(event.uid, 0, status.attempt, job.stage, reason, facts_of(status.message))
        ours = dict(job.conditions())
        job.turned = {name: (is_so, since_ms) for name, is_so, since_ms in status.turned if name in ours}
        self._note_turns(job)
        if job.spec is None:
            return
        job.given_up.update(dict.fromkeys(_workers_of(job.spec, status.given_up)))
        if job.ended:
            return
        for place, node in expand(status.allocations).items():
            if _exists(job.spec, place) and place not in job.given_up:
                self._reserve(job, place, node)
        job.leaving = tuple(_workers_of(job.spec, status.replacing))

    def job_gone(self, _offset: int, event: k.JobGone) -> None:
        if not self._current(k.Watched.JOB, event.term):
            return
        job = self.state.jobs.pop(event.uid, None)
        if job is not None:
            self.changes.jobs[event.uid] = None
            self.changes.schedulable = True
            self.state.job_changes += 1
            self._release_all(job, job.stage)

    def quota_seen(self, _offset: int, event: k.QuotaSeen) -> None:
        if not self._current(k.Watched.QUOTA, event.term):
            return
        of_namespace = self.state.quotas.setdefault(event.namespace, {})
        old = of_namespace.get(event.name)
        of_namespace[event.name] = event
        if old is None or (old.hard, old.used, old.scopes) != (event.hard, event.used, event.scopes):
            self.state.job_changes += 1
            if old is not None and leaves_more(old, event):
                self.changes.schedulable = True

    def quota_gone(self, _offset: int, event: k.QuotaGone) -> None:
        if not self._current(k.Watched.QUOTA, event.term):
            return
        of_namespace = self.state.quotas.get(event.namespace, {})
        if event.name in of_namespace and of_namespace[event.name].uid == event.uid:
            del of_namespace[event.name]
            if not of_namespace:
                del self.state.quotas[event.namespace]
            self.state.job_changes += 1
            self.changes.schedulable = True

    def watch_refused(self, _offset: int, event: k.WatchRefused) -> None:
        if not self._current(event.kind, event.term):
            return
        self.state.unwatched[event.kind] = event.code
        self.state.listed[event.kind] = False
        if event.kind == k.Watched.QUOTA:
            self.state.quotas.clear()  # they may say anything by now
        self.state.job_changes += 1
        self.changes.schedulable = True
        self.changes.jobs.update(dict.fromkeys(self.state.jobs))

    # --- decisions -----------------------------------------------------------------------------------------

    def cycle_taken(self, offset: int, event: k.CycleTaken) -> None:
        last = self.state.last_cycle
        self.cycle_refused = f"{SUPERSEDED} {last}" if event.base < last else ""
        self.cycle_config = event.config
        if not self.cycle_refused:
            self.state.last_cycle = offset
        self._judge(offset, "CycleTaken", self.cycle_refused)

    def placed(self, offset: int, event: k.Placed) -> None:
        job = self.state.jobs.get(event.job_uid)
        wanted = expand(event.pods)
        refused = self.cycle_refused or _outdated(job, event.based_on, event.attempt)
        if not refused and job is not None:
            refused = _misplaced(job, wanted, self.cycle_config) or lacking(self.state.nodes, job, wanted)
            if not refused and self.cycle_config.verdicts >= 1:
                refused = closed_to_new(self.state.nodes, job.valid_spec, event.pods)
        if self._judge(offset, "Placed", refused) and job is not None:
            for place, node in wanted.items():
                self._reserve(job, place, node)
            self._schedule_state(job, ScheduleState(event.schedule_state))
            if job.schedule_state == ScheduleState.SUCCEED:
                job.waits = None
            job.infeasible_since_ms = 0
            job.version = offset
            self._note_short(job)
            self.changes.jobs[job.uid] = None
            if self.cycle_config.verdicts >= 2 and job.stage in (Stage.PENDING, Stage.RESCHEDULING):
                self._enter(job, k.start(job.uid, event.based_on, event.attempt))

    def waits(self, offset: int, event: k.Waits) -> None:
        job = self.state.jobs.get(event.job_uid)
        refused = self.cycle_refused or _outdated(job, event.based_on, None)
        if self._judge(offset, "Waits", refused) and job is not None:
            job.waits = event
            job.waits_since_ms = self.told_ms
            self._schedule_state(job, ScheduleState(event.schedule_state))
            if not event.infeasible:
                job.infeasible_since_ms = 0
            elif not job.infeasible_since_ms:
                job.infeasible_since_ms = self.told_ms
            self.changes.jobs[job.uid] = None

    def stage_decided(self, offset: int, event: k.StageDecided) -> None:
        job = self.state.jobs.get(event.job_uid)
        refused = _outdated(job, event.based_on, event.attempt, spec_needed=False) or _out_of_turn(job, event)
        if self._judge(offset, "StageDecided", refused) and job is not None:
            self._enter(job, event)
            job.version = offset

    def _enter(self, job: JobRecord, event: k.StageDecided) -> None:
        """A job enters the stage that was decided."""
        self._note_back_off(job, event)
        before, job.stage = job.stage, event.stage
        job.decided = event
        job.steps = (*job.steps[1 - STEPS_KEPT :], (event, self.told_ms))
        job.stage_since_ms = self.told_ms
        self.changes.jobs[job.uid] = None
        if job.stage == Stage.STARTING and not job.start_ms:
            job.start_ms = self.told_ms
        if job.stage == Stage.RESCHEDULING:
            self._begin_attempt(job, before, failed=event.reason == StageReason.LEADER_FAILED)
        if job.stage == Stage.PENDING:
            self._begin_anew(job, before)
        if job.ended:
            self._release_all(job, before)
            job.completion_ms = self.told_ms
        self._note_turns(job)
        self._note_short(job)

    def leader_addressed(self, offset: int, event: k.LeaderAddressed) -> None:
        job = self.state.jobs.get(event.job_uid)
        if self._judge(offset, "LeaderAddressed", _outdated(job, event.based_on, event.attempt)) and job is not None:
            job.leader_address = event.address
            job.version = offset
            self.changes.jobs[job.uid] = None

    def workers_replaced(self, offset: int, event: k.WorkersReplaced) -> None:
        job = self.state.jobs.get(event.job_uid)
        refused = _outdated(job, event.based_on, event.attempt)
        if not refused and job is not None:
            refused = _irreplaceable(self.state.nodes, job, event)
        if job is not None:
            self.changes.jobs[job.uid] = None  # refused too: what it was decided on has changed
        if not self._judge(offset, "WorkersReplaced", refused) or job is None or job.spec is None:
            return
        counted: dict[str, None] = {}
        for worker in event.workers:
            place, name = (worker.place.group, worker.place.index), job.spec.groups[worker.place.group].name
            self._replace(job, place, worker)
            job.failing_since.pop(name, None)
            if worker.counted:
                job.spent[name] = job.spent.get(name, 0) + 1
                counted[name] = None
        for name in counted:
            streak, last_ms = job.replaced.get(name, (0, 0))
            job.replaced[name] = (streak + 1 if self.told_ms - last_ms < k.STREAK_MS else 1, self.told_ms)
        if event.back_off_ms:
            times = job.further_back_off.in_a_row(self.told_ms)
            job.further_back_off = BackOff(times + 1, self.told_ms + event.back_off_ms)
            job.waits = job.failure = None  # what was said of those pods is said anew when they come again
        self._settle_schedule(job)
        job.replacements += 1
        job.replacement, job.replacement_ms = event.causes, self.told_ms
        job.version = offset
        self.changes.schedulable = True

    def _replace(self, job: JobRecord, place: PlaceKey, worker: k.EndedWorker) -> None:
        """Take one ended worker's pod from its place, and the place from its node unless it is filled there again."""
        if worker.how == Replacement.SAME_NODE:
            self._count_restarts(job, place, self.state.pods[job.bound.pop(place)])
            self.state.nodes.hold(job.placements[place], _requests(job, place))
        else:
            self._unplace(job, place, job.stage)
        if worker.how == Replacement.GIVEN_UP:
            job.given_up[place] = None
        elif worker.pod_uid:
            job.retired[worker.pod_uid] = None

    # --- outcomes ------------------------------------------------------------------------------------------

    def effect_failed(self, _offset: int, event: k.EffectFailed) -> None:
        job = self.state.jobs.get(event.job_uid)
        if job is None or job.ended or event.attempt != job.attempt:
            return
        if event.place is not None and (event.place.group, event.place.index) in job.bound:
            return  # another applier got it there
        job.failure = event
        place = (event.place.group, event.place.index) if event.place is not None else None
        if event.tries and place in job.placements:
            job.refused_places.setdefault(place, self.told_ms)
        self._note_short(job)
        self.changes.jobs[job.uid] = None

    # --- parts ---------------------------------------------------------------------------------------------

    def _current(self, kind: str, term: int) -> bool:
        if self.state.terms.get(kind) == term:
            return True
        self._count("Observation", accepted=False)
        return False

    def _judge(self, offset: int, kind: str, refused: str) -> bool:
        self.state.job_changes += not refused
        self.changes.verdicts.append(Verdict(offset, kind, not refused, refused))
        self._count(kind, accepted=not refused)
        return not refused

    def _count(self, kind: str, *, accepted: bool) -> None:
        self.state.verdicts.setdefault(kind, [0, 0])[0 if accepted else 1] += 1

    def _note_short(self, job: JobRecord) -> None:
        """Since when a part of the quorum lacks: who starts may hold the other part only for a while."""
        if not job.short():
            job.short_since_ms = 0
        elif not job.short_since_ms:
            job.short_since_ms = self.told_ms

    def _schedule_state(self, job: JobRecord, new: ScheduleState) -> None:
        if job.schedule_state != new:
            job.schedule_state = new
            job.scheduled_since_ms = self.told_ms
            self._note_turns(job)

    def _note_turns(self, job: JobRecord) -> None:
        """Since when each condition holds, or doesn't any more."""
        for name, is_so in job.conditions():
            if is_so != job.turned.get(name, (False, 0))[0]:
                job.turned[name] = (is_so, self.told_ms)

    def _note_back_off(self, job: JobRecord, event: k.StageDecided) -> None:
        """What a decision on the stage, in which the job isn't yet, means for its back-off and its place in line."""
        held_ms = self.told_ms - job.stage_since_ms if job.stage in (Stage.STARTING, Stage.RUNNING) else 0
        if event.back_off_ms:
            times = job.back_off.in_a_row(self.told_ms, held_ms=held_ms)
            job.back_off = BackOff(times + 1, self.told_ms + event.back_off_ms)
        if event.reason == StageReason.QUORUM_REFUSED:
            job.held_back = True
        elif event.stage == Stage.RUNNING:
            job.held_back = False
        elif event.stage == Stage.PENDING:
            self._end_back_off(job)

    def _end_back_off(self, job: JobRecord) -> None:
        """Its user did something about it: it is scheduled as one of which nothing is known."""
        job.back_off = job.further_back_off = NO_BACK_OFF
        job.held_back = False

    def _begin_attempt(self, job: JobRecord, before: Stage, *, failed: bool) -> None:
        """Everything is placed afresh; what went wrong in the last attempt says nothing about the next."""
        job.restarts += failed
        self._unschedule(job, before)
        job.failing_since.clear()
        job.refused_places.clear()
        job.further_back_off = NO_BACK_OFF
        job.attempt += 1
        job.leader_address, job.leader_ended = "", None
        job.waits = job.failure = None
        if job.refused and job.seen.spec is not None:
            job.refused = ""
            self._take_spec(job, job.seen.spec)

    def _begin_anew(self, job: JobRecord, before: Stage) -> None:
        """Suspended or resumed: it has no nodes and no start, and what had started is another attempt's to do again."""
        if before != Stage.PENDING:
            self._begin_attempt(job, before, failed=False)
        else:
            self._unschedule(job, before)
        job.start_ms = job.infeasible_since_ms = 0
        job.waits = None

    def _unschedule(self, job: JobRecord, before: Stage) -> None:
        self._release_all(job, before)
        self._schedule_state(job, ScheduleState.UNSCHEDULED)

    def _bind_waiting(self, job: JobRecord) -> None:
        """Bind the pods of a job that fill no place yet, in an order that every process shares."""
        pods = self.state.pods_of.get(job.uid, {})
        if len(pods) > len(job.bound):
            for uid in sorted(pods):
                self._bind_if_placed(job, pods[uid])

    def _bind_if_placed(self, job: JobRecord, pod: k.PodSeen) -> None:
        assert pod.owner is not None
        place = job.place_of(pod.owner)
        if place is not None and place not in job.bound:
            self._bind(job, place, pod)

    def _bind(self, job: JobRecord, place: PlaceKey, pod: k.PodSeen) -> None:
        """Let a pod fill the place that it claims and that no pod fills yet, if it may."""
        if job.ended or not pod.node or pod.uid in job.retired:
            return
        if place in job.leaving and _was_replaced(job, place, pod):
            job.leaving = tuple(each for each in job.leaving if each != place)
            job.retired[pod.uid] = None
            return
        if place in job.placements:
            if self.state.exact_slots and pod.node != job.placements[place]:
                return  # created for an earlier decision: it has to go before the decided one can come
            self.state.nodes.release(job.placements[place], _requests(job, place))
            job.placements[place] = pod.node
        elif job.adopted_at == job.version and place not in job.given_up and pod.phase not in TERMINAL:
            self.state.job_changes += 1
            job.placements[place] = pod.node  # adopted with the job: the pod itself is the evidence
        else:
            return
        job.bound[place] = pod.uid
        if place == LEADER:
            self._note_address(job, pod)
        if self.state.quotas and job.seen.namespace in self.state.quotas:
            self.state.job_changes += 1  # what a quota was asked for it counts as used from now on
            self.changes.schedulable = True
        job.refused_places.pop(place, None)
        if job.failure is not None and job.failure.place == Place(*place):
            job.failure = None  # it got there after all
        if job.short_since_ms:
            self._note_short(job)

    def _note_address(self, job: JobRecord, leader: k.PodSeen) -> None:
        """Workers are told the first address that the leader's pod shows. Where a name stands for it (its Service) they
        find the next one there; else they have to be started again with that, which a controller decides."""
        if not self.state.pod_addresses or leader.ip in ("", job.leader_address):
            return
        lasts = leader.phase not in TERMINAL and not leader.deleting
        if lasts and (not job.leader_address or job.valid_spec.leader_service):
            job.leader_address = leader.ip

    def _reserve(self, job: JobRecord, place: PlaceKey, node: str) -> None:
        job.placements[place] = node
        self.state.nodes.hold(node, _requests(job, place))

    def _unplace(self, job: JobRecord, place: PlaceKey, stage: Stage) -> None:
        """Give up a place of a job that was in that stage so far."""
        node = job.placements.pop(place)
        uid = job.bound.pop(place, None)
        job.refused_places.pop(place, None)
        if uid is not None:
            self._count_restarts(job, place, self.state.pods[uid])
        elif _may_come(job, place, stage) and not self.state.nodes.overbooked(node, _requests(job, place)):
            self._assume(job, place, node)
        else:  # it can't have been created, or its kubelet refuses it
            self.state.nodes.release(node, _requests(job, place))

    def _assume(self, job: JobRecord, place: PlaceKey, node: str) -> None:
        """Keep the room of a place for the pod that may come there."""
        owner = job.owner_of(place)
        if owner in self.state.assumed:  # since an earlier decision on the same place
            forget_assumed(self.state, [self.state.assumed[owner]], self.changes)
        until_ms = self.told_ms + k.ASSUMED_MS
        self.state.assumed[owner] = Assumed(owner, node, _requests(job, place), until_ms)

    def _count_restarts(self, job: JobRecord, place: PlaceKey, pod: k.PodSeen) -> None:
        """A pod leaves its place: what its containers restarted is kept."""
        if place == LEADER:
            job.restarts += pod.restarts
        elif pod.restarts and job.spec is not None:
            name = job.spec.groups[place[0]].name
            job.spent[name] = job.spent.get(name, 0) + pod.restarts

    def _release_all(self, job: JobRecord, stage: Stage) -> None:
        for place in sorted(job.placements):  # the order in which they are assumed is part of the state
            self._unplace(job, place, stage)
        self.changes.schedulable = True

    def _take_spec(self, job: JobRecord, spec: JobSpec) -> None:
        """A changed spec: places that it has no more are given up, and what changed its requests holds them."""
        for place in sorted(place for place in job.placements if not _exists(spec, place) and place not in job.bound):
            self._unplace(job, place, job.stage)
        kept, filled = dict(job.placements), dict(job.bound)
        restarts, spent, refused = job.restarts, dict(job.spent), dict(job.refused_places)
        if job.spec is not None:
            self._release_all(job, Stage.PENDING)  # held again below: no pod is given up by that
        job.spec, job.restarts, job.spent = spec, restarts, spent
        if job.ended:
            return
        job.given_up = {place: None for place in job.given_up if _exists(spec, place)}
        for place, node in kept.items():
            if _exists(spec, place):
                self._reserve(job, place, node)
        job.refused_places = {place: since_ms for place, since_ms in refused.items() if place in job.placements}
        for place, uid in filled.items():
            self._bind_if_placed(job, self.state.pods[uid])
            if place not in job.bound and place[0] < len(spec.groups):
                self._count_restarts(job, place, self.state.pods[uid])
        self._bind_waiting(job)
        self._settle_schedule(job)

    def _settle_schedule(self, job: JobRecord) -> None:
        """What the schedule is after a change of the spec. A job that hasn't started never holds part of a quorum."""
        if job.stage in (Stage.PENDING, Stage.RESCHEDULING) and not job.quorum_placed():
            self._unschedule(job, job.stage)
            job.infeasible_since_ms = 0
        elif len(job.placements) == job.pods_wanted():
            self._schedule_state(job, ScheduleState.SUCCEED)
            job.waits = None
        elif job.schedule_state == ScheduleState.SUCCEED:
            self._schedule_state(job, ScheduleState.PARTLY)
        self._note_short(job)


def leaves_more(old: k.QuotaSeen, new: k.QuotaSeen) -> bool:
    """Whether a pod that the old quota had no room for may find some now: it limits less, or less is used."""
    if old.scopes != new.scopes:
        return True
    hard, used, was_used = dict(new.hard), dict(new.used), dict(old.used)
    return any(
        name not in hard
        or hard[name] > limit
        or (name in used and (name not in was_used or used[name] < was_used[name]))
        for name, limit in old.hard
    )


#: What a status may say; another program's words there are not adopted.
_STAGES = frozenset(Stage)
_SCHEDULE_STATES = frozenset(ScheduleState)


def _exists(spec: JobSpec, place: PlaceKey) -> bool:
    group, index = place
    return 0 <= group < len(spec.groups) and 0 <= index < spec.groups[group].count


def _workers_of(spec: JobSpec, told: tuple[tuple[int, tuple[tuple[int, int], ...]], ...]) -> list[PlaceKey]:
    """Places of workers that a status names by group and runs of indices, as far as the job has them."""
    places = expand(tuple(PlacedPods("", group, indices) for group, indices in told))
    return [place for place in places if place != LEADER and _exists(spec, place)]


def _was_replaced(job: JobRecord, place: PlaceKey, pod: k.PodSeen) -> bool:
    """Whether the pod of a place that was being filled anew is the old one: it ended, goes, or is somewhere else."""
    return pod.phase in TERMINAL or pod.deleting or pod.node != job.placements.get(place)


def _may_come(job: JobRecord, place: PlaceKey, stage: Stage) -> bool:
    """Whether a pod that nobody has seen may be at a place, or on its way there, in a stage: the leader's until it has
    an address, those of workers from then on, and none that the API server finds invalid."""
    if stage not in (Stage.STARTING, Stage.RUNNING) or (job.failure is not None and job.failure.permanent):
        return False
    return (place == LEADER) == (job.leader_address == "")


def _requests(job: JobRecord, place: PlaceKey) -> tuple[tuple[str, int], ...]:
    return job.valid_spec.groups[place[0]].shape.requests


def _outdated(job: JobRecord | None, based_on: int, attempt: int | None, *, spec_needed: bool = True) -> str:
    """Why a decision on a job is no longer current; empty if it is."""
    if job is None:
        return "the job is gone"
    if job.ended:
        return f"the job has ended as {job.stage}"
    if job.version != based_on:
        return f"the job changed at offset {job.version}, the decision is based on {based_on}"
    if attempt is not None and job.attempt != attempt:
        return f"the job is in attempt {job.attempt}, the decision is for {attempt}"
    if spec_needed and not job.active:
        return "the job is being deleted or invalid"
    return ""


def _out_of_turn(job: JobRecord | None, event: k.StageDecided) -> str:
    """Why a job doesn't enter a stage from the one that it is in; empty if it may."""
    if job is None:
        return ""
    if not may_enter(job.stage, event.reason, event.stage):
        return f"a job doesn't go from {job.stage} to {event.stage} for the reason {event.reason}"
    if event.stage in (Stage.STARTING, Stage.RUNNING) and not job.quorum_placed():
        return f"it can't be {event.stage}: its quorum has no nodes"
    return ""


def _misplaced(job: JobRecord, wanted: dict[PlaceKey, str], config: CycleConfig) -> str:
    spec, nodes_decided = job.valid_spec, len(wanted) + len(job.placements)
    for place in wanted:
        if place in job.placements:
            return f"place {place} has a node already"
        if not _exists(spec, place):
            return f"the job has no place {place}"
    if not wanted.keys() | job.placements.keys() >= {LEADER}:
        return "the quorum is not whole: the leader has no node"
    if nodes_decided <= spec.min_workers:
        return f"the quorum is not whole: {spec.min_workers} workers needed"
    if (spec.pod_policy or config.pod_policy) == GANG and nodes_decided < job.pods_wanted():
        return f"the gang is not whole: {job.pods_wanted()} pods needed"
    return ""


def _irreplaceable(nodes: NodeTable, job: JobRecord, event: k.WorkersReplaced) -> str:
    """Why the workers of a decision aren't those that fill their places, or what the rooms of those kept lack."""
    again: dict[PlaceKey, str] = {}
    met: set[PlaceKey] = set()
    for worker in event.workers:
        place = (worker.place.group, worker.place.index)
        if place == LEADER or place not in job.placements or place in met:
            return f"no worker has place {place}, or it is named twice"
        met.add(place)
        if job.bound.get(place, "") != worker.pod_uid:
            return f"place {place} is filled by another pod"
        if worker.how == Replacement.SAME_NODE:
            if not worker.pod_uid:
                return f"place {place} has no pod"
            again[place] = job.placements[place]
    refused = lacking(nodes, job, again)
    if not refused and event.verdicts >= 1:
        refused = closed_to_next(nodes, job.valid_spec, again)
    return refused


def lacking(nodes: NodeTable, job: JobRecord, wanted: dict[PlaceKey, str]) -> str:
    """The whole decision fits its nodes, or the first node (in the decision's order) that it doesn't fit."""
    counts: dict[tuple[str, int], int] = {}
    for (group, _), node in wanted.items():
        counts[node, group] = counts.get((node, group), 0) + 1
    need: dict[str, Amounts] = {}
    for (node, group), count in counts.items():
        amounts = nodes.vector(job.valid_spec.groups[group].shape.requests) * count
        need[node] = need[node] + amounts if node in need else amounts
    rows = [nodes.rows[node] for node in need if nodes.has(node)]
    if not rows:
        return f"node {next(iter(need))} is gone" if need else ""
    asked = np.array(list(need.values()))
    if len(rows) == len(need) and not ((nodes.used[rows] + asked > nodes.allocatable[rows]) & (asked > 0)).any():
        return ""
    return _lacking_one_by_one(nodes, job, wanted, need)


def _lacking_one_by_one(nodes: NodeTable, job: JobRecord, wanted: dict[PlaceKey, str], need: dict[str, Amounts]) -> str:
    """Which node it is that doesn't take what is needed there."""
    for node, amounts in need.items():
        if not nodes.has(node):
            return f"node {node} is gone"
        row = nodes.rows[node]
        short = (nodes.used[row] + amounts > nodes.allocatable[row]) & (amounts > 0)
        if short.any():
            names = {name for name, column in nodes.columns.items() if short[column] and name != NOWHERE}
            asked = [_requests(job, place) for place, at in wanted.items() if at == node]
            return f"node {node} lacks {min(names.union(name for each in asked for name, _ in nodes.unknown(each)))}"
    return ""


_APPLY: dict[type, Callable[[_Fold, int, Any], None]] = {
    k.EpochBegun: _Fold.epoch_begun,
    k.WatchClaimed: _Fold.claimed,
    k.ListingBegun: _Fold.listing_begun,
    k.ListingEnded: _Fold.listing_ended,
    k.NodeSeen: _Fold.node_seen,
    k.NodeGone: _Fold.node_gone,
    k.PodSeen: _Fold.pod_seen,
    k.PodGone: _Fold.pod_gone,
    k.JobSeen: _Fold.job_seen,
    k.JobGone: _Fold.job_gone,
    k.QuotaSeen: _Fold.quota_seen,
    k.QuotaGone: _Fold.quota_gone,
    k.WatchRefused: _Fold.watch_refused,
    k.CycleTaken: _Fold.cycle_taken,
    k.Placed: _Fold.placed,
    k.Waits: _Fold.waits,
    k.StageDecided: _Fold.stage_decided,
    k.LeaderAddressed: _Fold.leader_addressed,
    k.WorkersReplaced: _Fold.workers_replaced,
    k.EffectFailed: _Fold.effect_failed,
}
