"""The pods of jobs while one entry is folded: what their observations say of the slots that they fill, which of them
failed, and which failed ones are kept.
"""

from collections.abc import Iterable

import msgspec

from arranger.events import kinds as k
from arranger.events.facts import DeletedPods, EndCause, OthersOfSet
from arranger.model.job import ACTIVE, CleanPodPolicy, RestartEvent, RestartScope, Slot
from arranger.model.pod import DISRUPTED, FAILURES_KEPT, REFUSALS, TERMINAL, ContainerEnd, Failure, Phase, PodOwner
from arranger.projections.folding.slots import Slots
from arranger.projections.jobs.parts import LEADER, Replaced, SlotKey
from arranger.projections.jobs.records import JobRecord, blameless, ended_well
from arranger.projections.jobs.worker_groups import with_whole
from arranger.projections.verdicts.ownership import disown, is_own

_FAILED = Phase.FAILED

#: Failures of workers of one set that are further apart than this are treated as separate.
_FAILURES_APART_MS = 60_000


class PodsOfJobs:
    """Follows the pods of all jobs."""

    __slots__ = ("changes", "slots", "state", "time_ms")

    def __init__(self, slots: Slots) -> None:
        self.slots = slots
        self.state, self.changes, self.time_ms = slots.state, slots.changes, slots.time_ms

    def keep_failed(self, job: JobRecord, slots: Iterable[SlotKey]) -> set[SlotKey]:
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

    def keep_at_end(self, job: JobRecord) -> None:
        """Keep the failed pods of the last attempt of a job that deletes all others."""
        if not _keeps_only_failed(job):
            return
        kept = job.kept
        pods = [(pod.owner, uid) for uid, pod in self.state.pods_of.get(job.uid, {}).items() if uid not in kept]
        for _, uid in sorted((-of.index, uid) for of, uid in pods if of is not None and of.attempt == job.attempt):
            self._keep_pod(job, self.state.pods[uid])

    def adopt_kept(self, job: JobRecord) -> None:
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

    def note(self, job: JobRecord, owner: PodOwner, old: k.PodSeen | None, pod: k.PodSeen) -> bool:
        """`_note_pod` where the observation says anything new of a slot. Most observations are of a worker's pod that
        fills its slot and goes on: of these only the phase and the readiness count. True if the pod has taken over the
        room of its slot's placement."""
        slots = job.slots
        slots.pod_changes += 1
        if old is not None and old.waiting != pod.waiting:
            self.state.scheduling_changes += 1  # nothing is known of the end of a job whose pods can't start
        slot = job.slot_of(owner)
        if slot is None:
            return False
        if owner.leader or slots.pods.get(slot) != pod.uid or pod.restarts or pod.phase in TERMINAL:
            return self._note_pod(job, slot, old, pod)
        if old is None or old.ready != pod.ready or old.deleting != pod.deleting:
            slots.note(slot, pod)
            self.slots.note_pod(job, ready=pod.ready and not pod.deleting)
        elif old.phase != pod.phase:
            slots.note(slot, pod)
        return False

    def _note_pod(self, job: JobRecord, slot: SlotKey, old: k.PodSeen | None, pod: k.PodSeen) -> bool:
        """Handle an observed pod that claims a slot of the job's present attempt; returns whether a new pod's room is
        counted now, as in `_end_placement`."""
        filled_by, took_over = job.slots.pods.get(slot), False
        if filled_by is None:
            took_over = self.slots.bind(job, slot, pod, counted=old is not None)
        elif slot == LEADER and filled_by == pod.uid:
            self.slots.note_address(job, pod)
        if pod.restarts or pod.phase == _FAILED:
            self._note_failure(job, slot, old, pod)
        if job.bound.get(slot) == pod.uid:
            job.slots.note(slot, pod)
            self.slots.note_finished(job, slot, pod)
            self.slots.note_ready(job)
            if pod.phase == Phase.SUCCEEDED:
                self.slots.note_success(job)
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
            self.keep_failure(job, _failure(pod.owner, pod.node, self.time_ms, pod.ended), first=old is None)
        new = pod.restarts - (old.restarts if old is not None else 0) + (failed and not blameless(pod))
        if old is not None or not job.adopted_at or self.state.listed.get(k.Watched.POD):  # else its status told of it
            self._charge(job, slot, new)
        if failed and pod.reason.startswith(REFUSALS):
            job.refusals[pod.node] = self.time_ms
            self.state.scheduling_changes += 1
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

    def keep_failure(self, job: JobRecord, failure: Failure, *, first: bool) -> None:
        """Add a failure to the last ones; of those at one time, the first workers' count as the newest. `first`: the
        pod is observed for the first time in this epoch, so the status from which the job was adopted may have told of
        it."""
        of = job.of_set(failure.worker_set) if failure.worker_set else job.leader
        if first and any(msgspec.structs.replace(failure, time_ms=known.time_ms) == known for known in of.failures):
            return
        by_age = sorted((*of.failures, failure), key=lambda of: (of.time_ms, -of.index))
        of.failures = tuple(by_age[-FAILURES_KEPT:])

    def first_of(self, uid: str) -> dict[str, k.PodSeen]:
        """The pods of a job of which none was known."""
        if uid not in self.state.jobs:
            self.state.orphaned[uid] = self.time_ms
        return self.state.pods_of.setdefault(uid, {})

    def forget(self, pod: k.PodSeen) -> None:
        assert pod.owner is not None
        uid = pod.owner.job_uid
        self.changes.jobs[uid] = None
        of_job = self.state.pods_of[uid]
        del of_job[pod.uid]
        replaced = self._unretire(uid, pod)
        self.state.scheduling_changes += 1  # a job may now be placed that waited for the deletion of its old pods
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
        self.slots.count_restarts(job, slot, pod)
        self.slots.keep_or_release(job, slot, pod)
        if not replaced:
            self._restart_group(job, slot)
            self._restart_others(job, slot, pod)
        self.slots.bind_waiting(job)  # the next pod of that name may have been observed before this deletion
        self.slots.note_short(job)
        self.slots.note_ready(job)

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
        self.slots.unfinish(job, members & job.slots.finished.keys())

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
            self.slots.unfinish(job, {of for of in job.slots.finished if of[0] == slot[0]})
            causes: list[EndCause] = [DeletedPods(Slot(*slot), 1, disrupted)]
            causes += [OthersOfSet(Slot(*of), len(others)) for of, _ in others[:1]]
            job.replaced = Replaced(job.replaced.times + 1, tuple(causes), self.time_ms)

    def disown_strangers(self, job: JobRecord) -> None:
        """Detach pods that name the job as their owner without being its own."""
        for pod in [pod for pod in self.state.pods_of.get(job.uid, {}).values() if not is_own(job, pod)]:
            self.forget(pod)
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


def _failure(owner: PodOwner, node: str, time_ms: int, ended: ContainerEnd) -> Failure:
    name = "" if owner.leader else owner.group_name
    return Failure(name, owner.index, owner.attempt, node, time_ms, ended, owner.failed_before)
