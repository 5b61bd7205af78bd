"""The TYJob's stages: the next decision on a job, from the job and its pods.

Each stage has a function that implements its part of the table in `docs/internals/stages.md`. Decisions depend on the
projection and the given time alone. The fold judges them at their own offset, so an outdated decision is void.
"""

from collections.abc import Sequence

import msgspec

from arranger.events import facts as f
from arranger.events.kinds import NodesRequested, PodSeen, StageDecided, Watched, WorkersReplaced, start
from arranger.lifecycle.awaited_room import room_is_free, room_lost, taker
from arranger.lifecycle.config import LifecycleConfig
from arranger.lifecycle.deciding import decide
from arranger.lifecycle.left_behind import left_behind
from arranger.lifecycle.pods_to_place import decision_on_pods
from arranger.lifecycle.provisioning import nodes_requested
from arranger.lifecycle.refusals import refused_by_nodes, refused_quorum, refused_workers
from arranger.lifecycle.replacements import (
    Fallen,
    barred,
    cause_of,
    deletion,
    fallen,
    lost_workers,
    replacement,
    restart_limit,
    room_taken,
)
from arranger.lifecycle.start_timeouts import start_timeout
from arranger.model.job import LEADER_GROUP, JobSpec, Replacement, RestartScope, ScheduleState, Stage
from arranger.model.pod import DISRUPTED, Phase
from arranger.model.stages import StageReason as R
from arranger.projections.derived.deadlines import active_ms, not_overdue, won
from arranger.projections.derived.dependencies import failed_dependency
from arranger.projections.jobs.parts import LEADER, SlotKey
from arranger.projections.jobs.records import JobRecord, blameless, by_group, ended_well, short_set
from arranger.projections.state import State

#: Waiting reasons of a container whose image can't be pulled.
IMAGE_ERRORS = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})


#: What a controller decides on one job.
Decided = StageDecided | WorkersReplaced | NodesRequested


def next_decision(
    state: State, job: JobRecord, config: LifecycleConfig, time_ms: int, *, no_image_ms: int | None = None
) -> Decided | None:
    """The next decision on one job. Call again after folding it, because there may be another.

    `no_image_ms` is the time since which the leader's image can't be pulled, or None (`ImageWaits`).
    """
    if job.of_pods:
        return decision_on_pods(state, job, config, time_ms)
    if job.ended or job.seen.deleting:
        return None if job.ended else _deleted(job)
    if won(state, job):  # whatever else has happened since
        late = _overdue(state, job, time_ms)
        return late or decide(job, R.LEADER_SUCCEEDED if job.valid_spec.ends_with_leader else R.WORKERS_SUCCEEDED)
    if job.seen.faults or job.refused:
        return _unusable(job)
    if job.spec is None:
        return None
    if job.stands_still or job.suspended:
        return _as_asked(state, job, time_ms)
    return _over(state, job, time_ms) or _of_stage(state, job, config, time_ms, no_image_ms)


def _of_stage(
    state: State, job: JobRecord, config: LifecycleConfig, time_ms: int, no_image_ms: int | None
) -> Decided | None:
    if job.stage in (Stage.PENDING, Stage.RESCHEDULING):
        return _pending(state, job, config, time_ms)
    missing = _image_missing(state, job, config, time_ms, no_image_ms)
    decided = missing or _begun(state, job, config, time_ms)
    if decided is not None or pod_without_image(state, job) is not None:
        return decided  # what the job can't run without fails it in time; another attempt would begin that time anew
    return start_timeout(state, job, config, time_ms)


def _unusable(job: JobRecord) -> StageDecided:
    """The spec is invalid, or an edit changed a field that is immutable after the start. An edit at the moment of the
    start is excused: the API server accepts it while the status says Pending, and no pod has been created yet."""
    if not job.seen.faults and job.stage == Stage.STARTING and not job.bound and not job.leader.address:
        return decide(job, R.TEMPLATE_EDITED)
    return decide(job, R.INVALID_SPEC, f.Faulty(job.seen.faults or job.refused))


def _deleted(job: JobRecord) -> StageDecided | None:
    """Kubernetes deletes the job's pods. Slots without a pod are never filled again, so their room is released even
    while a finalizer keeps the TYJob."""
    if len(job.bound) == len(job.placements):
        return None
    return decide(job, R.DELETED)


def _over(state: State, job: JobRecord, time_ms: int) -> StageDecided | None:
    """The end of a job in any stage: its deadline is over, its pods are invalid, or its workers have finished."""
    overdue = _overdue(state, job, time_ms)
    if overdue is not None:
        return overdue
    if job.failure is not None and job.failure.permanent:
        return decide(job, R.POD_REFUSED, f.PodsRefused(job.failure.message))
    return decide(job, R.WORKERS_SUCCEEDED) if job.succeeded else None


def _overdue(state: State, job: JobRecord, time_ms: int) -> StageDecided | None:
    """The deadline counts the time in which the job is active. What succeeded before it has succeeded."""
    limit_s = job.valid_spec.deadline_s
    was_ms = active_ms(job, time_ms)
    if limit_s is None or not was_ms or was_ms < limit_s * 1000 or not_overdue(state, job):
        return None
    return decide(job, R.DEADLINE_EXCEEDED, f.DeadlineOver(limit_s, was_ms // 1000))


def _as_asked(state: State, job: JobRecord, time_ms: int) -> StageDecided | None:
    """Apply the user's request: terminate the job, suspend it in any stage, or resume it."""
    if job.valid_spec.terminating:
        return decide(job, R.TERMINATED)
    # A brief resumption, of which a cycle knew, may have given it nodes or a reason to wait.
    tried_since = job.valid_spec.suspend and (job.placements or job.waits is not None)
    if not job.suspended or tried_since:
        return _overdue(state, job, time_ms) or decide(job, R.SUSPENDED)
    return None if job.valid_spec.suspend else decide(job, R.RESUMED)


def _pending(state: State, job: JobRecord, config: LifecycleConfig, time_ms: int) -> Decided | None:
    failed = failed_dependency(job)
    if failed is not None:
        return decide(job, R.DEPENDENCY_FAILED, f.FailedJob(failed.name))
    beyond = _beyond_quorum(job)
    if beyond is not None:
        return beyond
    behind = left_behind(state, job, config, time_ms)
    if behind is not None:
        return behind
    if job.schedule_state == ScheduleState.FAILED:
        return decide(job, R.UNSCHEDULABLE, _shortage(job))
    if job.schedule_state in (ScheduleState.SUCCEED, ScheduleState.PARTLY) and job.quorum_placed():
        if not room_is_free(state, job, time_ms):
            return room_lost(state, job, time_ms)
        return start(job.uid, job.version, job.attempt, leaderless=not job.valid_spec.has_leader)
    return nodes_requested(state, job, config, time_ms)


def _begun(state: State, job: JobRecord, config: LifecycleConfig, time_ms: int) -> Decided | None:
    """The decision for Starting and Running."""
    led = job.valid_spec.has_leader and LEADER not in job.slots.finished
    return (_with_leader if led else _without_leader)(state, job, config, time_ms)


def _with_leader(state: State, job: JobRecord, config: LifecycleConfig, time_ms: int) -> Decided | None:
    """The decision for Starting and Running: the leader's pod is checked first, then the workers'."""
    leader = leader_pod(state, job)
    if leader is None:
        missing = _leader_missing(state, job) or refused_quorum(job, config, time_ms)
        return missing or _incomplete(state, job, config, time_ms)
    if ended_well(leader):
        return _succeeded(job)
    failed = _leader_failed(job, leader, config, time_ms) or _leader_lost(state, job, leader, config, time_ms)
    failed = failed or refused_quorum(job, config, time_ms) or _incomplete(state, job, config, time_ms)
    if failed is not None or _going(state, leader, time_ms):
        return failed
    ended = _workers_ended(state, job, config, time_ms) or refused_workers(job, config, time_ms)
    return ended or _moved(job, leader) or _ready(job, leader)


def _without_leader(state: State, job: JobRecord, config: LifecycleConfig, time_ms: int) -> Decided | None:
    """The decision for Starting and Running of a job of equals, or one whose leader has finished before its workers."""
    failed = refused_quorum(job, config, time_ms) or _incomplete(state, job, config, time_ms)
    ended = failed or _workers_ended(state, job, config, time_ms) or refused_workers(job, config, time_ms)
    return ended or _ready(job, None)


def _going(state: State, leader: PodSeen, time_ms: int) -> bool:
    """Whether the leader is being deleted or its node is unreachable. Then decisions on workers wait: a deleted leader
    leads to a new attempt, and if its node recovers the workers are checked again."""
    return leader.deleting or state.nodes.down_for_ms(leader.node, time_ms) >= 0


def _succeeded(job: JobRecord) -> StageDecided:
    return decide(job, R.LEADER_SUCCEEDED)


def _leader_missing(state: State, job: JobRecord) -> StageDecided | None:
    ended = job.leader.ended
    if ended is not None and ended_well(ended):
        return _succeeded(job)
    node = job.placements.get(LEADER, "")
    if job.leader.address:
        disruption = ended.reason if ended is not None and ended.reason.startswith(DISRUPTED) else ""
        # One that is drained is cordoned first, but the cordon may be known later than the eviction.
        why = barred(state, job, LEADER) if state.nodes.has(node) else f.NodeTrouble.GONE
        return decide(job, R.LEADER_LOST, f.LeaderGone(disruption, node, why) if why or disruption else f.LeaderGone())
    if not state.nodes.has(node):
        return decide(job, R.NODE_LOST, f.NodeLost(node, gone=True))
    if room_taken(state, job, LEADER):
        return decide(job, R.ROOM_TAKEN, f.RoomTaken(node, taker(state, job, node)))
    how = barred(state, job, LEADER)
    return decide(job, R.NODE_CLOSED, f.NodeClosed(node, how)) if how is not None else None  # not created yet


def _leader_lost(
    state: State, job: JobRecord, leader: PodSeen, config: LifecycleConfig, time_ms: int
) -> StageDecided | None:
    if not state.is_lost(leader.node, config.node_lost_after_ms, time_ms):
        return None
    gone, down_ms = not state.nodes.has(leader.node), state.nodes.down_for_ms(leader.node, time_ms)
    return decide(job, R.NODE_LOST, f.NodeLost(leader.node, gone, down_ms // 1000))


def _moved(job: JobRecord, leader: PodSeen) -> StageDecided | None:
    """Handle another address of the leader's pod. With a Service the workers find it by name. Otherwise the address
    that they have is outdated, and a new attempt starts them with the new one."""
    if leader.ip in ("", job.leader.address) or not job.leader.address or job.valid_spec.leader_service:
        return None
    return decide(job, R.LEADER_MOVED, f.AddressChanged(job.leader.address, leader.ip))


def _ready(job: JobRecord, leader: PodSeen | None) -> StageDecided | None:
    """Whether the starting job runs. Workers that have finished count only if their end is part of its success."""
    if job.stage != Stage.STARTING:
        return None
    if leader is not None and (leader.phase != Phase.RUNNING or not job.leader.address):
        return None
    if job.valid_spec.workers_missing(job.ready_or_finished):
        return None
    return decide(job, R.WORKERS_READY, f.Ready(not job.valid_spec.has_leader))


def _leader_failed(job: JobRecord, leader: PodSeen, config: LifecycleConfig, time_ms: int) -> StageDecided | None:
    spec, words, ended = job.valid_spec, leader.reason or leader.message, leader.ended
    if blameless(leader):
        back_off_ms = _back_off_ms(job, config, time_ms) if refused_by_nodes(job, [leader], time_ms) else 0
        return decide(job, R.LEADER_EVICTED, f.PodEnd(words, ended), back_off_ms)
    policy, used, failed = spec.restart_of(LEADER_GROUP), _restarts_before(job, leader), leader.phase == Phase.FAILED
    if not failed and used <= policy.limit:
        return None
    end, window_s = f.PodEnd(words if failed else "", ended), policy.window_s or 0
    limit = restart_limit(spec, LEADER_GROUP)
    if used + failed > policy.limit:
        return decide(job, R.RESTART_LIMIT, f.LeaderRestarts(end, 0 if failed else used, limit, window_s))
    back_off_ms = _back_off_ms(job, config, time_ms)
    return decide(job, R.LEADER_FAILED, f.LeaderRestarts(end, used + 1, limit, window_s), back_off_ms)


def _restarts_before(job: JobRecord, leader: PodSeen) -> int:
    """The restarts of the leader that count against its limit, without that which a failed pod needs now."""
    if job.valid_spec.restart_of(LEADER_GROUP).window_s is None:
        return job.leader.restarts + leader.restarts
    count, _ = job.slots.charged.get(LEADER, (0, 0))
    return max(count - (leader.phase == Phase.FAILED), 0)


def pod_without_image(state: State, job: JobRecord) -> PodSeen | None:
    """The pod that keeps a job from running because its image can't be pulled: the leader's, or in a starting job
    without a leader that of the first such worker."""
    if job.spec is not None and not job.spec.has_leader:
        bound = sorted(job.bound.items()) if job.stage == Stage.STARTING else []
        return next((state.pods[uid] for _, uid in bound if _lacks_image(state.pods[uid])), None)
    leader = leader_pod(state, job)
    return leader if leader is not None and _lacks_image(leader) else None


def _lacks_image(pod: PodSeen) -> bool:
    """A pod that has run had its image, so the kubelet's own back-off suffices."""
    return pod.phase == Phase.PENDING and pod.waiting in IMAGE_ERRORS


def _image_missing(
    state: State, job: JobRecord, config: LifecycleConfig, time_ms: int, no_image_ms: int | None
) -> StageDecided | None:
    pod = pod_without_image(state, job)
    if pod is None or pod.owner is None or no_image_ms is None:
        return None
    if min(time_ms, state.heard_ms(Watched.POD)) - no_image_ms < config.image_grace_ms:
        return None
    worker = f.NoImage(pod.waiting, pod.owner.group_name, pod.owner.index)
    return decide(job, R.IMAGE_ERROR, f.NoImage(pod.waiting) if pod.owner.leader else worker)


def _incomplete(state: State, job: JobRecord, config: LifecycleConfig, time_ms: int) -> StageDecided | None:
    """Release the nodes of a job that has had only a part of its quorum for too long. Pods that exist and aren't ready
    are no reason: another attempt would discard the work of the others, and may not mend them."""
    if not job.times.short_ms or state.known_ms(time_ms) - job.times.short_ms < config.quorum_ms:
        return None
    words = job.failure.message if job.quorum_placed() and job.failure is not None else ""
    why = f.PodsRefused(words) if words else _shortage(job)
    return decide(job, R.QUORUM_INCOMPLETE, f.QuorumIncomplete(config.quorum_ms // 1000, why))


def _shortage(job: JobRecord) -> f.ShortageFacts | None:
    return job.waits.shortage if job.waits is not None else None


def _beyond_quorum(job: JobRecord) -> StageDecided | None:
    """Fail the job if the workers that aren't given up can never be a quorum, or if all others whose end is the job's
    have finished: the job can't succeed any more, and none of these has anything left to do."""
    spec, given_up = job.valid_spec, by_group(job.valid_spec, job.slots.given_up)
    left = [group.count - gone for group, gone in zip(spec.groups, given_up, strict=True)]
    if not spec.workers_missing(left) and not job.unfinishable:
        return None
    few = _too_few(spec, left, given_up)
    if not spec.workers_missing(left):
        few = f.TooFew(sum(given_up[group] for group in spec.success))
    of_given_up = [group for group, count in enumerate(given_up) if count]
    strictest = min(of_given_up, key=lambda group: spec.restart_of(group).limit, default=LEADER_GROUP)
    last = next((of for of in job.last_failures() if of.worker_set), None)
    ended = last.ended if last is not None else None
    return decide(job, R.WORKERS_FAILED, f.WorkersGivenUp(few, restart_limit(spec, strictest), ended))


def _too_few(spec: JobSpec, left: Sequence[int], lost: Sequence[int]) -> f.TooFew:
    """The facts when pods were lost and too few are left for a quorum, both by group: those of the first worker set
    with fewer than its minimum, or else those of all worker sets."""
    short = short_set(spec, left)
    if short is None:
        return f.TooFew(sum(lost), spec.min_workers)
    return f.TooFew(lost[spec.groups.index(short)], short.min_count // short.group_size, short.name)


def _workers_ended(state: State, job: JobRecord, config: LifecycleConfig, time_ms: int) -> Decided | None:
    """Replace ended workers while enough others remain; otherwise begin a new attempt, or fail the job."""
    beyond = _beyond_quorum(job)
    if beyond is not None:
        return beyond
    ended = fallen(state, job, config, time_ms)
    if ended is None:
        return None
    whole = _restarts_job(state, job, ended, config, time_ms)
    if whole is not None:
        return whole
    decision = _in_their_place(state, job, ended, config, time_ms)
    # One that failed there repeatedly has room elsewhere: until it is there, the job may lack a part of its quorum.
    moving = [worker.slot for worker in decision.workers if worker.how == Replacement.ELSEWHERE and not worker.failures]
    if not moving:
        return decision
    spec, released = job.valid_spec, {(slot.group, slot.index) for slot in moving}
    left = by_group(spec, job.provided - released - {slot for slot, _ in ended.over})
    if not spec.workers_missing(left):
        return decision
    if not ended.over:
        lost = [sum(slot[0] == group for slot in released) for group in range(len(spec.groups))]
        facts = lost_workers(state, job, ended, released, _too_few(spec, left, lost))
        # Others may have the room of those that failed. Without a back-off and a limit it could take that for ever.
        return decide(job, R.WORKERS_LOST, facts, _after_ends_ms(job, ended, config, time_ms))
    return replacement(state, job, Fallen(over=ended.over))  # first decide whether enough workers can remain at all


def _restarts_job(
    state: State, job: JobRecord, ended: Fallen, config: LifecycleConfig, time_ms: int
) -> StageDecided | None:
    """The end of a worker whose policy restarts the whole job: a new attempt, or the job's failure at its limit."""
    spec = job.valid_spec
    kinds = ((ended.over, f.PodsOverLimit), (ended.failed, f.FailedPods), (ended.lost, f.LostPods))
    of_job = [([one for one in pods if _of_whole_job(spec, one[0])], kind) for pods, kind in kinds]
    causes: list[f.EndedPods | f.DeletedPods] = [cause_of(state, job, pods, kind) for pods, kind in of_job if pods]
    deleted = [slot for slot in ended.deleted if _of_whole_job(spec, slot)]
    if not causes and not deleted:
        return None
    cause = causes[0] if causes else deletion(job, deleted)
    group = cause.first.group
    name = spec.groups[group].name
    if isinstance(cause, f.PodsOverLimit):
        return decide(job, R.RESTART_LIMIT, f.WorkerAtLimit(name, cause, restart_limit(spec, group)))
    return decide(job, R.WORKER_ENDED, f.WorkerEnded(name, cause), _after_ends_ms(job, ended, config, time_ms))


def _back_off_ms(job: JobRecord, config: LifecycleConfig, time_ms: int) -> int:
    """How long a job that failed by its own fault waits before its next attempt."""
    return config.back_off_after(job.back_offs.attempt.in_a_row(time_ms, held_ms=time_ms - job.times.stage_ms))


def _after_ends_ms(job: JobRecord, ended: Fallen, config: LifecycleConfig, time_ms: int) -> int:
    """The same for a job whose workers ended: also if kubelets refuse them again and again."""
    return _back_off_ms(job, config, time_ms) if ended.failed or _refused_again(job, ended, time_ms) else 0


def _refused_again(job: JobRecord, ended: Fallen, time_ms: int) -> bool:
    return refused_by_nodes(job, [pod for _, pod in ended.lost if pod is not None], time_ms)


def _in_their_place(
    state: State, job: JobRecord, ended: Fallen, config: LifecycleConfig, time_ms: int
) -> WorkersReplaced:
    """The replacement of workers; if kubelets refuse them again and again, their next pods come after a back-off."""
    decision = replacement(state, job, ended)
    if not _refused_again(job, ended, time_ms):
        return decision
    back_off_ms = config.back_off_after(job.back_offs.further.in_a_row(time_ms))
    return msgspec.structs.replace(decision, back_off_ms=back_off_ms)


def _of_whole_job(spec: JobSpec, slot: SlotKey) -> bool:
    return spec.restart_of(slot[0]).scope == RestartScope.JOB


def leader_pod(state: State, job: JobRecord) -> PodSeen | None:
    """The pod that fills the leader's slot in this attempt."""
    uid = job.bound.get(LEADER)
    return state.pods.get(uid) if uid is not None else None


class WorkerCounts(msgspec.Struct):
    """The pods of one worker set by present state (`failed` includes given-up workers), and the restarts so far."""

    total: int
    ready: int
    failed: int
    restarts: int


def worker_counts(state: State, job: JobRecord) -> list[WorkerCounts]:
    """Counts by worker set, in the spec's order. An ended job has those of its end."""
    spec, ready, failed = job.valid_spec, job.ready, by_group(job.valid_spec, job.slots.given_up)
    for number, of_spec in enumerate(spec.groups):
        of = job.sets.get(of_spec.name) if job.ended and number else None
        if of is not None and of.at_end is not None:
            ready[number], failed[number] = of.at_end
    counts = [
        WorkerCounts(of_spec.count, ready[number], failed[number], job.spent.get(of_spec.name, 0))
        for number, of_spec in enumerate(spec.groups[1:], start=1)
    ]
    pods = state.pods
    for (group, _), uid in job.bound.items():  # thousands of them at every change of a large job
        pod = pods.get(uid) if group else None
        if pod is not None and (pod.restarts or pod.phase == Phase.FAILED):
            of_set = counts[group - 1]
            of_set.failed += pod.phase == Phase.FAILED
            of_set.restarts += pod.restarts
    return counts
