"""A job's record while one entry is folded: its stages, edits of its spec, and what is decided on its workers."""

from arranger.events import kinds as k
from arranger.events.facts import PreemptedPods, RefusedPods, TakenBy, Victim
from arranger.model.job import ACTIVE, JobSpec, Replacement, RestartScope, Slot, Stage
from arranger.model.pod import Phase
from arranger.model.stages import StageReason
from arranger.model.tyjob import refused_change
from arranger.projections.derived.awaited_room import await_room, follow_stage
from arranger.projections.derived.deadlines import deadline_of
from arranger.projections.folding import provisioning
from arranger.projections.folding.forecasts import forget_start, note_later_end
from arranger.projections.folding.pods_of_jobs import PodsOfJobs
from arranger.projections.jobs.backoff import NO_BACK_OFF, BackOff
from arranger.projections.jobs.charges import charges, counts_on, restart_scope
from arranger.projections.jobs.parts import LEADER, STEPS_KEPT, STREAK_MS, Replaced, SetRecord, SlotKey
from arranger.projections.jobs.records import JobRecord, blameless, by_group, expand, requests_of
from arranger.projections.jobs.run_times import note_run_time
from arranger.projections.jobs.worker_groups import with_whole
from arranger.projections.observed.namespace_terms import resolved_spec
from arranger.projections.state import State
from arranger.projections.verdicts.ownership import earlier_pods

_FAILED = Phase.FAILED
_PREEMPTED = (Stage.RESCHEDULING, StageReason.PREEMPTED)

#: How many nodes a worker set avoids at most.
_AVOIDED = 8


class JobLife:
    """Applies observations and accepted decisions to the records of jobs."""

    __slots__ = ("changes", "pods", "slots", "state", "time_ms")

    def __init__(self, pods: PodsOfJobs) -> None:
        self.pods, self.slots = pods, pods.slots
        self.state, self.changes, self.time_ms = pods.state, pods.changes, pods.time_ms

    def change_spec(self, job: JobRecord, spec: JobSpec, *, edited: bool) -> None:
        """Adopt a changed spec, unless the user changed a field that is immutable once the job has started.

        Without an edit, another version of Arranger parsed the same TYJob differently; that is never refused.
        """
        spec = resolved_spec(self.state, spec, job.seen.namespace)
        started = job.stage != Stage.PENDING and not job.ended
        if edited and started and job.spec is not None:
            job.refused = refused_change(job.spec, spec, waits=job.stage == Stage.RESCHEDULING)
        if not job.refused:
            left_ms = deadline_of(job) if job.spec is not None else None
            self.slots.take_spec(job, spec)
            note_later_end(self.state, job, left_ms)
        if edited:
            job.back_offs.end()

    def enter(self, job: JobRecord, event: k.StageDecided) -> None:
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
            self.pods.keep_at_end(job)
            job.pods_at_end = len(job.provided) if before in ACTIVE else 0
            self.slots.release_all(job, before)
            job.times.completion_ms = self.time_ms
        self.slots.note_conditions(job)
        self.slots.note_short(job)
        self.slots.note_stage_decided(job)

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
        self.state.scheduling_changes += 1
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
        self.pods.keep_failed(job, job.bound)
        self.slots.unschedule(job, before)
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
            self.slots.take_spec(job, job.seen.spec)

    def _begin_again(self, job: JobRecord, before: Stage) -> None:
        """Clear nodes and start time after suspension or resumption; a job that had started begins a new attempt."""
        if before != Stage.PENDING:
            self._begin_attempt(job, before, failed=False)
        else:
            self.slots.unschedule(job, before)
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
            job.back_offs.end()

    def replace_workers(self, job: JobRecord, spec: JobSpec, event: k.WorkersReplaced) -> None:
        """Take ended workers out of their slots, which get other pods or are given up."""
        failed: dict[str, None] = {}
        leaving = [of.slot for of in event.workers if of.how in (Replacement.SAME_NODE, Replacement.ELSEWHERE)]
        kept = self.pods.keep_failed(job, [(slot.group, slot.index) for slot in leaving])
        for worker in event.workers:
            slot, name = (worker.slot.group, worker.slot.index), spec.groups[worker.slot.group].name
            self._replace(job, slot, worker, kept=slot in kept)
            of_set = job.of_set(name)
            of_set.failing_since_ms = 0
            of_set.spent += worker.counted
            if worker.counted or worker.how == Replacement.GIVEN_UP:
                failed[name] = None
        for name in failed:
            of_set = job.of_set(name)
            of_set.in_a_row = of_set.in_a_row + 1 if self.time_ms - of_set.replaced_ms < STREAK_MS else 1
            of_set.replaced_ms = self.time_ms
        if event.back_off_ms:
            times = job.back_offs.further.in_a_row(self.time_ms)
            job.back_offs.further = BackOff(times + 1, self.time_ms + event.back_off_ms)
            job.waits = job.failure = None  # both concern pods that will be decided on again
        if event.causes and not isinstance(event.causes[0], RefusedPods):
            self._run_again(job, event)
        self.slots.settle_schedule(job)
        job.replaced = Replaced(job.replaced.times + 1, event.causes, self.time_ms)

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
            self.slots.count_restarts(job, slot, self.state.pods[job.slots.vacate(slot)])
            self.state.nodes.hold(job.placements[slot], requests_of(job, slot))
        else:
            self.slots.unplace(job, slot, job.stage)
            if worker.failures:
                _avoid(job.of_set(job.valid_spec.groups[slot[0]].name), node, self.time_ms)
        if worker.how == Replacement.GIVEN_UP:  # with those of its worker group that have lost their nodes before
            job.slots.give_up(sorted(with_whole(job.valid_spec, [slot])))
        elif kept:  # so the next pod needs another name
            job.slots.failed_before[slot] = job.slots.failed_before.get(slot, 0) + 1
        elif worker.pod_uid:
            job.retired[worker.pod_uid] = None

    def give_way(self, job: JobRecord, victim: Victim, taken_by: TakenBy) -> None:
        """Take the pods of a victim out of their slots. The job is scheduled again as a whole, or, if it only loses
        surplus, for these workers."""
        if victim.kind.whole:
            self.enter(job, k.StageDecided(job.uid, job.version, job.attempt, *_PREEMPTED, taken_by))
            return
        slots = expand(victim.pods)
        for slot in slots:
            uid = job.bound.get(slot)
            self.slots.unplace(job, slot, job.stage)
            if uid is not None:
                job.retired[uid] = None
        first = Slot(*next(iter(slots)))
        cause = PreemptedPods(first, len(slots), taken_by)
        job.replaced = Replaced(job.replaced.times + 1, (cause,), self.time_ms)
        self.slots.settle_schedule(job)
        self.changes.jobs[job.uid] = None
        self.changes.schedulable = True

    def _run_again(self, job: JobRecord, event: k.WorkersReplaced) -> None:
        """Run finished workers again whose set is restarted as a whole."""
        sets = {
            worker.slot.group for worker in event.workers if restart_scope(job, worker.slot.group) == RestartScope.SET
        }
        self.slots.unfinish(job, {slot for slot in job.slots.finished if slot[0] in sets})

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
