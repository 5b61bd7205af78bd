"""A job's record while one entry is folded: its creation, its stages, edits of its spec, and changes of its pods."""

from collections.abc import Iterable, Iterator

import msgspec

from arranger.events import kinds as k
from arranger.events.facts import AdoptedMessage, DeletedPods, EndCause, OthersOfSet, PreemptedPods, TakenBy, Victim
from arranger.model.job import (
    ACTIVE,
    PREEMPTED,
    READY,
    CleanPodPolicy,
    JobSpec,
    JobStatusSeen,
    PlacedPods,
    Replacement,
    RestartEvent,
    RestartScope,
    ScheduleState,
    Slot,
    Stage,
)
from arranger.model.pod import DISRUPTED, FAILURES_KEPT, REFUSALS, TERMINAL, ContainerEnd, Failure, Phase, PodOwner
from arranger.model.stages import StageReason, reason_of
from arranger.model.tyjob import refused_change
from arranger.projections.derived import dependencies, job_indexes
from arranger.projections.derived.awaited_room import await_room, follow_stage
from arranger.projections.derived.dependencies import tell_dependents, with_ends
from arranger.projections.folding import provisioning
from arranger.projections.folding.forecasts import forget_start
from arranger.projections.folding.slots import Slots
from arranger.projections.jobs.backoff import NO_BACK_OFF, BackOff
from arranger.projections.jobs.charges import charges, counts_on, restart_scope
from arranger.projections.jobs.parts import LEADER, STEPS_KEPT, JobTimes, Replaced, SetRecord, SlotKey
from arranger.projections.jobs.records import JobRecord, blameless, by_group, ended_well, exists, expand, requests_of
from arranger.projections.jobs.run_times import note_run_time
from arranger.projections.jobs.worker_groups import parted, with_whole
from arranger.projections.observed.namespace_terms import resolved_spec
from arranger.projections.observed.priorities import resolved, with_priority
from arranger.projections.state import State
from arranger.projections.verdicts.ownership import disown, earlier_pods, is_own

_FAILED = Phase.FAILED
_PREEMPTED = (Stage.RESCHEDULING, StageReason.PREEMPTED)

#: Failures of workers of one set that are further apart than this are treated as separate.
_FAILURES_APART_MS = 60_000

#: How many nodes a worker set avoids at most.
_AVOIDED = 8

#: The values that a status may have; unknown ones, written by another program, are not adopted.
_STAGES = frozenset(Stage)
_SCHEDULE_STATES = frozenset(ScheduleState)


class JobLife(Slots):
    """Applies observations and accepted decisions to the records of jobs."""

    __slots__ = ()

    def _begin_job(self, offset: int, event: k.JobSeen) -> None:
        spec = None
        if event.spec is not None:
            selective = resolved_spec(self.state, event.spec, event.namespace)
            spec = with_ends(self.state, event.namespace, resolved(self.state, selective))
        job = JobRecord(event, spec, offset, times=JobTimes(stage_ms=self.time_ms, scheduled_ms=self.time_ms))
        self.state.jobs[event.uid] = job
        job_indexes.enter(self.state, job)
        self.state.job_changes += 1
        self.changes.schedulable = True
        if event.status is not None and event.status.stage in _STAGES:
            self._adopt(job, offset, event)
        provisioning.adopt_requests(self.state, job, self.time_ms)
        tell_dependents(self.state, job, self.changes)
        self._disown_strangers(job)
        self._bind_waiting(job)
        self._note_short(job)
        self._note_ready(job)
        if self.state.listed.get(k.Watched.POD):
            job.slots.leaving = ()
            self._adopt_kept(job)

    def _adopt(self, job: JobRecord, offset: int, event: k.JobSeen) -> None:
        """Architecture rule 5: the status has the decisions of earlier epochs."""
        status = event.status
        assert status is not None
        job.adopted_at = offset
        job.stage = Stage(status.stage)
        if status.schedule_state in _SCHEDULE_STATES:
            job.schedule_state = ScheduleState(status.schedule_state)
        job.attempt, job.leader.restarts = status.attempt, status.restarts
        job.sets = {name: SetRecord(spent) for name, spent in status.worker_restarts if spent}
        job.leader.address = status.leader_address
        job.times.start_ms, job.times.completion_ms = status.start_ms, status.completion_ms
        reason, said = reason_of(status.reason or StageReason.ADOPTED), AdoptedMessage(status.message)
        job.decided = k.StageDecided(event.uid, 0, status.attempt, job.stage, reason, said)
        ours = dict(job.conditions())
        job.times.turned = {of[0]: of[1:] for of in status.turned if of[0] in ours or of[0] == PREEMPTED}
        _adopt_activity(job, status)
        for name, is_so in ours.items():
            if name != READY:  # its pods aren't known yet
                self._note_turn(job, name, is_so)
        for failure in reversed(status.failures):
            self._keep_failure(job, failure, first=False)
        for name, ready, failed in status.at_end if job.ended else ():
            job.of_set(name).at_end = (ready, failed)
        if job.spec is None:
            return
        if job.spec.priority_class and job.stage != Stage.PENDING and status.priority is not None:
            job.spec = with_priority(job.spec, status.priority)
        job.spec = dependencies.adopted(job.spec, status)
        _adopt_ends(job, job.spec, status, self.time_ms)
        if job.ended:
            return
        for slot, node in expand(status.allocations).items():
            if exists(job.spec, slot) and not job.slots.over(slot):
                self._reserve(job, slot, node)
        if (
            job.stage in (Stage.PENDING, Stage.RESCHEDULING) and job.placements and not job.quorum_placed()
        ):  # its spec has changed since
            self._unschedule(job, job.stage)
        self._unfinish(job, job.slots.finished.keys() & set(parted(job.spec, job.provided)))
        job.slots.leaving = tuple(_workers_of(job.spec, status.replacing))

    def _change_spec(self, job: JobRecord, spec: JobSpec, *, edited: bool) -> None:
        """Adopt a changed spec, unless the user changed a field that is immutable once the job has started.

        Without an edit, another version of Arranger parsed the same TYJob differently; that is never refused.
        """
        spec = resolved_spec(self.state, spec, job.seen.namespace)
        started = job.stage != Stage.PENDING and not job.ended
        if edited and started and job.spec is not None:
            job.refused = refused_change(job.spec, spec, waits=job.stage == Stage.RESCHEDULING)
        if not job.refused:
            self._take_spec(job, spec)
        if edited:
            self._end_back_off(job)

    def _enter(self, job: JobRecord, event: k.StageDecided) -> None:
        """Enter the decided stage."""
        if event.reason == StageReason.PODS_LEFT_BEHIND:
            self._leave_behind(job, event)
            return
        self._note_back_off(job, event)
        forget_start(self.state, job.uid, self.changes)
        if job.slots.room is not None:
            await_room(self.state, job, None)
        follow_stage(self.state, job, event)
        before, job.stage = job.stage, event.stage
        job.decided = event
        job.steps = (*job.steps[1 - STEPS_KEPT :], (event, self.time_ms))
        job.times.stage_ms = self.time_ms
        provisioning.entered(self.state, job)
        self.changes.jobs[job.uid] = None
        if job.stage == Stage.STARTING and not job.times.start_ms:
            job.times.start_ms = self.time_ms
        self._note_active(job, before)
        if event.reason == StageReason.WORKER_ENDED:  # the whole job is restarted
            job.slots.finished = {}
        if job.slots.charged and not charges(event):
            self._forgive(job)
        if charges(event):
            for group, _ in _failed_workers(self.state, job):
                job.of_set(job.valid_spec.groups[group].name).spent += 1
        if job.stage == Stage.RESCHEDULING:
            self._begin_attempt(job, before, failed=event.reason == StageReason.LEADER_FAILED)
        if job.stage == Stage.PENDING:
            self._begin_again(job, before)
        if job.ended:
            note_run_time(self.state.run_times, job, self.time_ms)
            self._note_end(job)
            self._keep_at_end(job)
            job.pods_at_end = len(job.provided) if before in ACTIVE else 0
            self._release_all(job, before)
            job.times.completion_ms = self.time_ms
        self._note_turns(job)
        self._note_short(job)
        self._note_success(job, decided=True)

    def _note_active(self, job: JobRecord, before: Stage) -> None:
        """Let the clock of the job's deadline run or stand. It begins anew after a preemption and a suspension."""
        times = job.times
        if job.stage in ACTIVE:
            if before not in ACTIVE:
                times.active_since_ms = self.time_ms
            return
        if times.active_since_ms:
            times.active_ms += self.time_ms - times.active_since_ms
            times.active_since_ms = 0
        if job.stage == Stage.PENDING or job.preempted:
            times.active_ms = 0

    def _leave_behind(self, job: JobRecord, event: k.StageDecided) -> None:
        """The job stays in its stage, and waits no longer for the pods of its earlier attempts."""
        job.left_behind = (*job.left_behind, *sorted(pod.uid for pod in earlier_pods(self.state, job)))
        job.steps = (*job.steps[1 - STEPS_KEPT :], (event, self.time_ms))
        self.state.job_changes += 1
        self.changes.jobs[job.uid] = None
        self.changes.schedulable = True

    def _note_end(self, job: JobRecord) -> None:
        """Record how many workers of each set the ending job has, while they still fill its slots."""
        if job.spec is None:
            return
        ready, failed = job.ready_or_finished, by_group(job.spec, job.slots.given_up)
        for slot, phase in job.slots.not_running.items():
            ready[slot[0]] += phase == Phase.SUCCEEDED and slot not in job.slots.ready
            failed[slot[0]] += phase == _FAILED
        for group, of in enumerate(job.spec.groups[1:], start=1):
            job.of_set(of.name).at_end = (ready[group], failed[group])

    def _begin_attempt(self, job: JobRecord, before: Stage, *, failed: bool) -> None:
        """Begin an attempt without nodes; failures of the last attempt don't count for the next one."""
        job.leader.restarts += failed
        self._keep_failed(job, job.bound)
        self._unschedule(job, before)
        job.slots.failed_before = {}
        for of_set in job.sets.values():
            of_set.failing_since_ms, of_set.started = 0, False
        job.slots.finished = {slot: None for slot in job.slots.finished if _stays_finished(job, slot)}
        if before in ACTIVE:  # an attempt that never had its room changes nothing
            job.slots.charged = {slot: of for slot, of in job.slots.charged.items() if counts_on(job, slot)}
        job.slots.refused_ms.clear()
        job.back_offs.further = NO_BACK_OFF
        job.attempt += 1
        job.leader.address, job.leader.ended = "", None
        job.waits = job.failure = None
        job.deleted = job.disruptions = ()
        if job.refused and job.seen.spec is not None:
            job.refused = ()
            self._take_spec(job, job.seen.spec)

    def _begin_again(self, job: JobRecord, before: Stage) -> None:
        """Clear nodes and start time after suspension or resumption; a job that had started begins a new attempt."""
        if before != Stage.PENDING:
            self._begin_attempt(job, before, failed=False)
        else:
            self._unschedule(job, before)
        job.times.start_ms = job.times.infeasible_ms = 0
        job.waits = None

    def _note_back_off(self, job: JobRecord, event: k.StageDecided) -> None:
        """Update the back-off and the position in the queue for a decided stage, before the job enters it."""
        held_ms = self.time_ms - job.times.stage_ms if job.stage in (Stage.STARTING, Stage.RUNNING) else 0
        if event.back_off_ms:
            times = job.back_offs.attempt.in_a_row(self.time_ms, held_ms=held_ms)
            if event.reason == StageReason.START_TIMEOUT:  # it held its nodes for nothing, however long
                times = job.back_offs.attempt.in_a_row(job.times.stage_ms)
            job.back_offs.attempt = BackOff(times + 1, self.time_ms + event.back_off_ms)
        if event.reason in (StageReason.QUORUM_REFUSED, StageReason.START_TIMEOUT):
            job.back_offs.held_back = True
        elif event.stage == Stage.RUNNING:
            job.back_offs.held_back = False
        elif event.stage == Stage.PENDING and not event.back_off_ms:
            self._end_back_off(job)

    def _end_back_off(self, job: JobRecord) -> None:
        """End all back-offs after the user edited, suspended or resumed the job."""
        job.back_offs.end()

    def _replace(self, job: JobRecord, slot: SlotKey, worker: k.EndedWorker, *, kept: bool) -> None:
        """Remove one ended worker's pod from its slot, and the slot's node unless the next pod runs there again.
        `kept`: the pod stays for its log."""
        if worker.how == Replacement.RESTARTED:  # the slot is its pod's until that is gone, and so is the room
            job.retired[worker.pod_uid] = None
            return
        node = job.placements[slot]
        if worker.how == Replacement.SAME_NODE:
            if worker.failures:
                job.slots.failures[slot] = worker.failures
            self._count_restarts(job, slot, self.state.pods[job.slots.vacate(slot)])
            self.state.nodes.hold(job.placements[slot], requests_of(job, slot))
        else:
            self._unplace(job, slot, job.stage)
            if worker.failures:
                _avoid(job.of_set(job.valid_spec.groups[slot[0]].name), node, self.time_ms)
        if worker.how == Replacement.GIVEN_UP:  # with those of its worker group that have lost their nodes before
            job.slots.give_up(sorted(with_whole(job.valid_spec, [slot])))
        elif kept:  # so the next pod needs another name
            job.slots.failed_before[slot] = job.slots.failed_before.get(slot, 0) + 1
        elif worker.pod_uid:
            job.retired[worker.pod_uid] = None

    def _give_way(self, job: JobRecord, victim: Victim, taken_by: TakenBy) -> None:
        """Take the pods of a victim out of their slots. The job is scheduled again as a whole, or, if it only loses
        surplus, for these workers."""
        if victim.kind.whole:
            self._enter(job, k.StageDecided(job.uid, job.version, job.attempt, *_PREEMPTED, taken_by))
            return
        slots = expand(victim.pods)
        for slot in slots:
            uid = job.bound.get(slot)
            self._unplace(job, slot, job.stage)
            if uid is not None:
                job.retired[uid] = None
        first = Slot(*next(iter(slots)))
        cause = PreemptedPods(first, len(slots), taken_by)
        job.replaced = Replaced(job.replaced.times + 1, (cause,), self.time_ms)
        self._settle_schedule(job)
        self.changes.jobs[job.uid] = None
        self.changes.schedulable = True

    def _run_again(self, job: JobRecord, event: k.WorkersReplaced) -> None:
        """Run finished workers again whose set is restarted as a whole."""
        sets = {
            worker.slot.group for worker in event.workers if restart_scope(job, worker.slot.group) == RestartScope.SET
        }
        self._unfinish(job, {slot for slot in job.slots.finished if slot[0] in sets})

    def _keep_failed(self, job: JobRecord, slots: Iterable[SlotKey]) -> set[SlotKey]:
        """Keep the failed pods that leave these slots together. The first of each group count as the newest, because
        messages name the first. Returns their slots."""
        bound = [slot for slot in sorted(slots, reverse=True) if slot in job.bound]
        return {slot for slot in bound if self._keep_pod(job, self.state.pods[job.bound[slot]])}

    def _keep_pod(self, job: JobRecord, pod: k.PodSeen) -> bool:
        """Keep a failed pod that leaves its slot, for its log, and of its group only the newest few."""
        limit = job.spec.keep_failed if job.spec is not None else 0
        if not limit or pod.phase != _FAILED or blameless(pod):
            return False
        assert pod.owner is not None
        of = job.leader if pod.owner.leader else job.of_set(pod.owner.group_name)
        of.kept = (*of.kept, pod.uid)[-limit:]
        return True

    def _keep_at_end(self, job: JobRecord) -> None:
        """Keep the failed pods of the last attempt of a job that deletes all others."""
        if not _keeps_only_failed(job):
            return
        kept = job.kept
        pods = [(pod.owner, uid) for uid, pod in self.state.pods_of.get(job.uid, {}).items() if uid not in kept]
        for _, uid in sorted((-of.index, uid) for of, uid in pods if of is not None and of.attempt == job.attempt):
            self._keep_pod(job, self.state.pods[uid])

    def _adopt_kept(self, job: JobRecord) -> None:
        """Keep the failed pods of earlier attempts and of replaced workers that a new epoch finds."""
        if not job.adopted_at or job.kept:
            return
        found = [
            (pod.owner.attempt, pod.owner.failed_before, -pod.owner.index, pod.uid)
            for pod in self.state.pods_of.get(job.uid, {}).values()
            if pod.owner is not None
            and pod.owner.attempt <= job.attempt
            and (job.slot_of(pod.owner) is None or _keeps_only_failed(job))
        ]
        for *_, uid in sorted(found):
            self._keep_pod(job, self.state.pods[uid])

    def _note_seen(self, job: JobRecord, owner: PodOwner, old: k.PodSeen | None, pod: k.PodSeen) -> bool:
        """`_note_pod` where the observation says anything new of a slot. Most observations are of a worker's pod that
        fills its slot and goes on: of these only the phase and the readiness count."""
        slots = job.slots
        slots.pod_changes += 1
        slot = job.slot_of(owner)
        if slot is None:
            return False
        if owner.leader or slots.pods.get(slot) != pod.uid or pod.restarts or pod.phase in TERMINAL:
            return self._note_pod(job, slot, old, pod)
        if old is None or old.ready != pod.ready or old.deleting != pod.deleting:
            slots.note(slot, pod)
            self._note_ready(job)
        elif old.phase != pod.phase:
            slots.note(slot, pod)
        return False

    def _note_pod(self, job: JobRecord, slot: SlotKey, old: k.PodSeen | None, pod: k.PodSeen) -> bool:
        """Handle an observed pod that claims a slot of the job's present attempt; returns whether a new pod's room is
        counted now, as in `_end_placement`."""
        filled_by, took_over = job.slots.pods.get(slot), False
        if filled_by is None:
            took_over = self._bind(job, slot, pod, counted=old is not None)
        elif slot == LEADER and filled_by == pod.uid:
            self._note_address(job, pod)
        if pod.restarts or pod.phase == _FAILED:
            self._note_failure(job, slot, old, pod)
        if job.bound.get(slot) == pod.uid:
            job.slots.note(slot, pod)
            self._note_finished(job, slot, pod)
            self._note_ready(job)
            if pod.phase == Phase.SUCCEEDED:
                self._note_success(job)
        return took_over

    def _note_failure(self, job: JobRecord, slot: SlotKey, old: k.PodSeen | None, pod: k.PodSeen) -> None:
        """Record the nodes that refuse pods of a job, and the time of a worker set's first failure: decisions on failed
        workers wait to see whether the leader fails too."""
        assert pod.owner is not None
        failed = pod.phase == _FAILED and (old is None or old.phase != _FAILED)
        restarted = pod.restarts > (old.restarts if old is not None else 0)
        if not (failed or restarted) or job.bound.get(slot) != pod.uid:
            return
        if pod.ended is not None:
            self._keep_failure(job, _failure(pod.owner, pod.node, self.time_ms, pod.ended), first=old is None)
        new = pod.restarts - (old.restarts if old is not None else 0) + (failed and not blameless(pod))
        if old is not None or not job.adopted_at or self.state.listed.get(k.Watched.POD):  # else its status told of it
            self._charge(job, slot, new)
        if failed and pod.reason.startswith(REFUSALS):
            job.refusals[pod.node] = self.time_ms
            self.state.job_changes += 1
        if slot == LEADER:
            return
        of_set = job.of_set(pod.owner.group_name)
        if self.time_ms - of_set.failing_since_ms > _FAILURES_APART_MS:
            of_set.failing_since_ms = self.time_ms

    def _charge(self, job: JobRecord, slot: SlotKey, restarts: int) -> None:
        """Count restarts against the limit of a slot, from 1 on again if they come after its window."""
        policy = job.valid_spec.groups[slot[0]].restart
        if policy is None or restarts <= 0 or (slot == LEADER and policy.window_s is None):
            return
        count, since_ms = job.slots.charged.get(slot, (0, self.time_ms))
        if policy.window_s is not None and self.time_ms - since_ms > policy.window_s * 1000:
            count, since_ms = 0, self.time_ms
        job.slots.charged[slot] = (count + restarts, since_ms)

    def _forgive(self, job: JobRecord) -> None:
        """Take back what was counted for workers that failed and were not decided on before an attempt ended: they may
        have failed because of that end, and belong to the next attempt."""
        if job.stage not in (Stage.RESCHEDULING, Stage.PENDING):
            return
        for slot in _failed_workers(self.state, job):
            count, since_ms = job.slots.charged.get(slot, (0, 0))
            if count:
                job.slots.charged[slot] = (count - 1, since_ms)
        job.slots.charged = {slot: of for slot, of in job.slots.charged.items() if of[0]}

    def _keep_failure(self, job: JobRecord, failure: Failure, *, first: bool) -> None:
        """Add a failure to the last ones; of those at one time, the first workers' count as the newest. `first`: the
        pod is observed for the first time in this epoch, so the status from which the job was adopted may have told of
        it."""
        of = job.of_set(failure.worker_set) if failure.worker_set else job.leader
        if first and any(msgspec.structs.replace(failure, time_ms=known.time_ms) == known for known in of.failures):
            return
        by_age = sorted((*of.failures, failure), key=lambda of: (of.time_ms, -of.index))
        of.failures = tuple(by_age[-FAILURES_KEPT:])

    def _first_pods_of(self, uid: str) -> dict[str, k.PodSeen]:
        """The pods of a job of which none was known."""
        if uid not in self.state.jobs:
            self.state.orphaned[uid] = self.time_ms
        return self.state.pods_of.setdefault(uid, {})

    def _forget_pod_of_job(self, pod: k.PodSeen) -> None:
        assert pod.owner is not None
        uid = pod.owner.job_uid
        self.changes.jobs[uid] = None
        of_job = self.state.pods_of[uid]
        del of_job[pod.uid]
        replaced = self._unretire(uid, pod)
        self.state.job_changes += 1  # a job may now be placed that waited for the deletion of its old pods
        if not of_job:
            del self.state.pods_of[uid]
            self.state.orphaned.pop(uid, None)
        job = self.state.jobs.get(uid)
        slot = job.slot_of(pod.owner) if job is not None else None
        if job is not None:
            job.slots.pod_changes += 1
            job.slots.unevicted = None
        if job is None or slot is None or job.bound.get(slot) != pod.uid:
            return
        job.slots.vacate(slot)
        if slot == LEADER:
            self._keep_last(job, pod)
        self._count_restarts(job, slot, pod)
        self._keep_or_release(job, slot, pod)
        if not replaced:
            self._restart_group(job, slot)
            self._restart_others(job, slot, pod)
        self._bind_waiting(job)  # the next pod of that name may have been observed before this deletion
        self._note_short(job)
        self._note_ready(job)

    def _keep_last(self, job: JobRecord, pod: k.PodSeen) -> None:
        """Keep the last observation of a leader's pod that is gone: how it ended, or what it said of its deletion. How
        one ended counts more than what a later one said."""
        ended = job.leader.ended
        if pod.phase in TERMINAL or ended is None or ended.phase not in TERMINAL:
            job.leader.ended = pod

    def _restart_group(self, job: JobRecord, slot: SlotKey) -> None:
        """Retire the others of a worker group of which somebody else deleted a pod: they begin again together."""
        members = with_whole(job.valid_spec, [slot])
        for other in sorted(members):
            if (uid := job.bound.get(other)) is not None:
                job.retired[uid] = None
        self._unfinish(job, members & job.slots.finished.keys())

    def _restart_others(self, job: JobRecord, slot: SlotKey, pod: k.PodSeen) -> None:
        """A worker's pod that somebody else deleted has ended: the others of its set begin again with it, or the whole
        job does. One that had finished before ends nothing."""
        policy = job.valid_spec.restart_of(slot[0])
        finished = ended_well(pod)
        if slot == LEADER or policy.event != RestartEvent.POD_ENDED or finished or job.stage not in ACTIVE:
            return
        disrupted = pod.reason if pod.reason.startswith(DISRUPTED) else ""  # why Kubernetes deleted it, as an eviction
        if policy.scope == RestartScope.JOB:
            job.deleted = (*job.deleted, slot)
            if disrupted:
                job.disruptions = (*job.disruptions, (slot, disrupted))
        elif policy.scope == RestartScope.SET:
            others = [(of, uid) for of, uid in sorted(job.bound.items()) if of[0] == slot[0]]
            job.retired.update({uid: None for _, uid in others})
            self._unfinish(job, {of for of in job.slots.finished if of[0] == slot[0]})
            causes: list[EndCause] = [DeletedPods(Slot(*slot), 1, disrupted)]
            causes += [OthersOfSet(Slot(*of), len(others)) for of, _ in others[:1]]
            job.replaced = Replaced(job.replaced.times + 1, tuple(causes), self.time_ms)

    def _disown_strangers(self, job: JobRecord) -> None:
        """Detach pods that name the job as their owner without being its own."""
        for pod in [pod for pod in self.state.pods_of.get(job.uid, {}).values() if not is_own(job, pod)]:
            self._forget_pod_of_job(pod)
            disown(self.state, pod)

    def _unretire(self, job_uid: str, pod: k.PodSeen) -> bool:
        """Forget that a pod is to be deleted, or kept; returns whether it was to be deleted."""
        job = self.state.jobs.get(job_uid)
        if job is None:
            return False
        retired = pod.uid in job.retired
        job.retired.pop(pod.uid, None)
        if pod.uid in job.left_behind:
            job.left_behind = tuple(uid for uid in job.left_behind if uid != pod.uid)
        for of in job.keepers:
            if pod.uid in of.kept:
                of.kept = tuple(uid for uid in of.kept if uid != pod.uid)
        return retired


def _keeps_only_failed(job: JobRecord) -> bool:
    """Whether a job has ended that keeps its failed pods, and no others."""
    return job.ended and job.spec is not None and job.spec.clean_pod_policy == CleanPodPolicy.ALL


def _adopt_ends(job: JobRecord, spec: JobSpec, status: JobStatusSeen, time_ms: int) -> None:
    """Take from a status which workers are given up or have finished, and what is counted for the others."""
    job.slots.give_up(_workers_of(spec, status.given_up))
    finished = expand(tuple(PlacedPods("", group, indices) for group, indices in status.finished))
    kept = [slot for slot in finished if exists(spec, slot) and spec.keeps_finished(slot[0])]
    job.slots.finished = dict.fromkeys(kept)
    for slot, count in _numbers_of(spec, status.charged):
        job.slots.charged[slot] = (count, time_ms)
    job.slots.failed_before = dict(_numbers_of(spec, status.failed_before))


def _adopt_activity(job: JobRecord, status: JobStatusSeen) -> None:
    """Take from a status how long the job was active, and that it is."""
    if status.active_s is not None:
        job.times.active_ms = status.active_s * 1000
        job.times.active_since_ms = job.began_ms if job.stage in ACTIVE else 0


def _failed_workers(state: State, job: JobRecord) -> list[SlotKey]:
    """The slots of workers that have failed by their own fault."""
    failed = [slot for slot, phase in job.slots.not_running.items() if phase == _FAILED and slot != LEADER]
    return [slot for slot in failed if not blameless(state.pods[job.bound[slot]])]


def _avoid(of_set: SetRecord, node: str, time_ms: int) -> None:
    before = [(name, since_ms) for name, since_ms in of_set.avoids.items() if name != node]
    of_set.avoids = dict([*before, (node, time_ms)][-_AVOIDED:])


def _stays_finished(job: JobRecord, slot: SlotKey) -> bool:
    """Whether a finished worker isn't run again in the next attempt: one of equals that restart alone."""
    spec = job.spec
    return spec is not None and not spec.has_leader and restart_scope(job, slot[0]) == RestartScope.WORKER


def _failure(owner: PodOwner, node: str, time_ms: int, ended: ContainerEnd) -> Failure:
    name = "" if owner.leader else owner.group_name
    return Failure(name, owner.index, owner.attempt, node, time_ms, ended, owner.failed_before)


def _numbers_of(
    spec: JobSpec, told: tuple[tuple[int, tuple[tuple[int, int, int], ...]], ...]
) -> Iterator[tuple[SlotKey, int]]:
    """Slot → number, of what a status tells by group and runs of indices."""
    for group, runs in told:
        for first, last, number in runs:
            for index in range(first, min(last + 1, spec.groups[group].count)):
                yield (group, index), number


def _workers_of(spec: JobSpec, told: tuple[tuple[int, tuple[tuple[int, int], ...]], ...]) -> list[SlotKey]:
    """The existing worker slots that a status lists by group and runs of indices."""
    slots = expand(tuple(PlacedPods("", group, indices) for group, indices in told))
    return [slot for slot in slots if slot != LEADER and exists(spec, slot)]
