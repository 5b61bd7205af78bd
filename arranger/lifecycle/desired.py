"""The desired state of one TYJob: the pods to create, the pods to delete, and the status.

Appliers reconcile the API server with it. It depends on the present state, not on how that came about
(level-triggered), so after a crash between any two steps the next reconciliation repairs everything.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

import msgspec

from arranger.events.kinds import PodSeen
from arranger.lifecycle.config import LifecycleConfig
from arranger.lifecycle.giving_way import (
    expected_start_ms,
    expected_start_text,
    preempted_text,
    unevicted_text,
    vacated_text,
)
from arranger.lifecycle.hindrances import hindered_text, to_be_replaced_text
from arranger.lifecycle.replacements import closed, spot_of
from arranger.lifecycle.stages import WorkerCounts, leader_pod, worker_counts
from arranger.messages.decisions import dry_run_text, in_vain_text, quorum_text, replaced_text, stage_text
from arranger.messages.departures import earlier_pods_text, hanging_text, left_behind_text
from arranger.messages.prerequisites import prerequisites_text
from arranger.messages.provisioning import request_text
from arranger.messages.readiness import (
    below_quorum_text,
    claims_text,
    crashing_text,
    down_text,
    ending_text,
    finished_text,
    finished_workers,
    given_up_text,
    guest_text,
    held_text,
    refusal_text,
    reserved_text,
    stuck_slots,
    unset_text,
)
from arranger.messages.shortages import waits_text
from arranger.model.allocations import charges_text, encode_allocations, text_of
from arranger.model.job import (
    BELOW_QUORUM,
    ENDING,
    GUEST,
    PREEMPTED,
    READY,
    UNSET_VARIABLES,
    CleanPodPolicy,
    JobSpec,
    ScheduleState,
    Stage,
)
from arranger.model.names import WORKER_GROUP_LABEL, group_labels, known_labels, pod_name
from arranger.model.pod import TERMINAL, Failure, Phase, gpus_of
from arranger.model.text import one_line, rfc3339, rfc3339_from
from arranger.projections.jobs.parts import LEADER, SlotKey
from arranger.projections.jobs.records import JobRecord, compact, runs
from arranger.projections.jobs.worker_groups import parted, with_whole
from arranger.projections.state import State

#: A status message longer than this is cut: a status stays small.
MESSAGE_LIMIT = 1000
#: The condition of a job that has ended, in either way. It follows from the stage, so the fold doesn't record it.
FINISHED = "Finished"
_Of = TypeVar("_Of")
_DEFAULTS = LifecycleConfig()

#: The reason of the condition Ready while it is true.
QUORUM_READY = "QuorumReady"


class Desired(msgspec.Struct):
    """Pods to create (slot → node, leader first) and to delete. Both are done once the status is stored.

    `force` are pods on lost nodes: no kubelet there confirms a deletion, so they are deleted without a grace period.
    """

    create: list[tuple[SlotKey, str]]
    delete: list[PodSeen]
    force: list[PodSeen] = msgspec.field(default_factory=list)


def desired_pods(
    state: State, job: JobRecord, *, now_ms: int = 0, node_lost_after_ms: int = _DEFAULTS.node_lost_after_ms
) -> Desired:
    """The difference between the job's accepted decisions and its observed pods. The later of `now_ms` and the state's
    time decides which nodes have been down for `node_lost_after_ms`."""
    pods = sorted(state.pods_of.get(job.uid, {}).values(), key=_highest_first)
    if not state.synced or job.of_pods:
        return Desired([], [])
    if job.seen.deleting:  # garbage collection deletes its pods by owner reference, except on lost nodes
        return _without([pod for pod in pods if pod.deleting], state, now_ms, node_lost_after_ms)
    if job.ended:
        cleaned = _cleaned(job)
        return _without([pod for pod in pods if cleaned(pod)], state, now_ms, node_lost_after_ms)
    kept = job.kept
    stale = [pod for pod in pods if not (_in_slot(job, pod) or _shows_why(job, pod) or pod.uid in kept)]
    gone = _without(stale, state, now_ms, node_lost_after_ms)
    return Desired(_missing(state, job), gone.delete, gone.force)


def _without(pods: list[PodSeen], state: State, now_ms: int, node_lost_after_ms: int) -> Desired:
    """Delete these pods: on lost nodes by force (even if being deleted), elsewhere unless being deleted."""
    now_ms = max(now_ms, state.time_ms)
    force = [pod for pod in pods if pod.node and state.is_lost(pod.node, node_lost_after_ms, now_ms)]
    forced = {pod.uid for pod in force}
    return Desired([], [pod for pod in pods if not pod.deleting and pod.uid not in forced], force)


def expires_ms(job: JobRecord) -> int | None:
    """When an ended TYJob itself is to be deleted (`ttlSecondsAfterFinished`), in milliseconds; None if it is kept."""
    if not job.ended or job.spec is None or job.spec.ttl_s is None:
        return None
    return job.times.completion_ms + job.spec.ttl_s * 1000


def orphans(
    state: State, job_uid: str, *, now_ms: int = 0, node_lost_after_ms: int = _DEFAULTS.node_lost_after_ms
) -> Desired:
    """The deletion of pods whose TYJob no longer exists, for clusters whose garbage collector is late."""
    if job_uid in state.jobs or not state.synced:
        return Desired([], [])
    pods = sorted(state.pods_of.get(job_uid, {}).values(), key=_highest_first)
    return _without(pods, state, now_ms, node_lost_after_ms)


def _highest_first(pod: PodSeen) -> tuple[int, str, str]:
    """The order of deletion, the same in every process: the leader and the first workers are last."""
    return (-pod.owner.index if pod.owner is not None else 0, pod.name, pod.uid)


def _cleaned(job: JobRecord) -> Callable[[PodSeen], bool]:
    """Which pods of an ended job are deleted: the policy concerns pods of the attempt that ended. Failed ones that are
    kept for their logs stay in any case."""
    policy = job.spec.clean_pod_policy if job.spec is not None else CleanPodPolicy.ALL
    kept = job.kept

    def cleaned(pod: PodSeen) -> bool:
        if pod.owner is None:
            return True
        if policy == CleanPodPolicy.ALL or pod.owner.attempt != job.attempt or job.replaced_before(pod.owner):
            return pod.uid not in kept
        return policy == CleanPodPolicy.RUNNING and pod.phase not in TERMINAL

    return cleaned


def _in_slot(job: JobRecord, pod: PodSeen) -> bool:
    slot = job.slot_of(pod.owner) if pod.owner is not None else None
    return slot is not None and job.bound.get(slot) == pod.uid and pod.uid not in job.retired


def _shows_why(job: JobRecord, pod: PodSeen) -> bool:
    """Whether it is the ended pod of a slot that gets no other, which is kept so that its log can be read."""
    slot = job.slot_of(pod.owner) if pod.owner is not None else None
    return pod.phase in TERMINAL and slot is not None and job.slots.over(slot)


def _missing(state: State, job: JobRecord) -> list[tuple[SlotKey, str]]:
    """Slots with a node and no pod whose group may start: first only the leader, then the workers."""
    if job.stage not in (Stage.STARTING, Stage.RUNNING) or job.refused or job.seen.faults:
        return []  # room was decided for other templates
    if job.begins_again:
        return []
    start = [job.may_start(group) for group in range(len(job.valid_spec.groups))]
    slots = sorted(slot for slot in job.placements if slot not in job.bound and start[slot[0]])
    occupied = _occupied(state, job) if slots else {}
    incomplete = _incomplete_groups(state, job) if slots else set()
    slots = [slot for slot in slots if slot not in occupied and slot not in incomplete]
    fits: dict[tuple[str, SlotKey], bool] = {}
    for slot in slots:
        spot = spot_of(job, slot)
        if spot not in fits:
            fits[spot] = not closed(state, job, slot)
    return [(slot, job.placements[slot]) for slot in slots if fits[spot_of(job, slot)]]


def _incomplete_groups(state: State, job: JobRecord) -> set[SlotKey]:
    """The slots of worker groups that can't begin: others of them have no nodes, or have pods that must go first."""
    spec = job.valid_spec
    if not spec.has_worker_groups:
        return set()
    going = [slot for slot in _going(state, job) if slot is not None]
    return with_whole(spec, going) | set(parted(spec, job.provided))


def _going(state: State, job: JobRecord) -> dict[SlotKey | None, None]:
    """Slots whose replaced pod still exists: the next pod has the same name."""
    pods = (state.pods.get(uid) for uid in job.retired)
    return {job.slot_of(pod.owner): None for pod in pods if pod is not None and pod.owner is not None}


def _occupied(state: State, job: JobRecord) -> dict[SlotKey | None, None]:
    """Slots whose name is taken by a pod that doesn't fill them, such as one created for an earlier decision."""
    pods = state.pods_of.get(job.uid, {})
    if len(pods) == len(job.bound):
        return {}
    bound = set(job.bound.values())
    return {job.slot_of(pod.owner): None for uid, pod in pods.items() if uid not in bound and pod.owner is not None}


# --- status ------------------------------------------------------------------------------------------------


def desired_status(state: State, job: JobRecord, config: LifecycleConfig = _DEFAULTS) -> dict[str, Any]:
    """The TYJob's whole status, as JSON. Absent fields are unset. `config` is what a message says bounds by."""
    counts = worker_counts(state, job) if job.spec is not None else []
    ready = sum(of_set.ready for of_set in counts)
    total = sum(of_set.total for of_set in counts)
    leader = leader_pod(state, job)
    restarts = job.leader.restarts + (leader.restarts if leader is not None else 0)
    status: dict[str, Any] = {
        "stage": str(job.stage),
        "scheduleState": str(job.schedule_state),
        "attempt": job.attempt,
        "restarts": restarts + sum(of_set.restarts for of_set in counts),
        "restartsOfEarlierPods": job.leader.restarts,
        "totalWorkers": total,
        "readyWorkers": ready,
        "ready": f"{ready}/{total}",
        "gpus": _gpus(state, job),
        "message": _shown(message_text(state, job, config)),
        "observedGeneration": job.seen.generation,
        "conditions": _conditions(state, job),
    }
    if job.leader.address:
        status["leaderAddress"] = job.leader.address
    if LEADER in job.slots.finished:
        status["leaderFinished"] = True
    if failures := job.last_failures():
        status["lastFailures"] = [_failure(job, failure) for failure in failures]
    status |= _times(state, job)
    if job.spec is not None:
        replacing = _replacing(state, job)
        status["workers"] = [
            _set_status(job, number, of_set, replacing.get(number, ())) for number, of_set in enumerate(counts, start=1)
        ]
        status["allocations"] = encode_allocations(compact(job.placements), [group.name for group in job.spec.groups])
        status |= _scale(state, job) | _resolved(job.spec) | _in_window(job)
    return status


def _times(state: State, job: JobRecord) -> dict[str, Any]:
    """When the job started, ended, or is expected to start, as far as that is known, and how long it was active."""
    times = {
        "startTime": job.times.start_ms,
        "completionTime": job.times.completion_ms,
        "expectedStartTime": expected_start_ms(state, job),
    }
    told: dict[str, Any] = {name: rfc3339(time_ms) for name, time_ms in times.items() if time_ms}
    if starts := expected_start_text(state, job):
        told["expectedStart"] = starts
    if job.spec is not None and job.spec.deadline_s is not None and job.times.start_ms:
        told["activeSecondsOfEarlierAttempts"] = job.times.active_ms // 1000
    return told


def _in_window(job: JobRecord) -> dict[str, Any]:
    count, _ = job.slots.charged.get(LEADER, (0, 0))
    return {"restartsInWindow": count} if count else {}


def _resolved(spec: JobSpec) -> dict[str, Any]:
    """What is known of the PriorityClass and the jobs that the spec names."""
    ends = [{"name": of.name, "stage": str(of.ended)} for of in spec.after if of.ended is not None]
    return ({"priority": spec.priority} if spec.priority_known else {}) | ({"after": ends} if ends else {})


def _scale(state: State, job: JobRecord) -> dict[str, Any]:
    """What the scale subresource shows: the pods of the scaled set, and the selector by which autoscalers find them.
    Of a worker group both count the first pod, because autoscalers multiply their number of pods."""
    number = job.valid_spec.scaled
    if not number:
        return {}
    of = job.valid_spec.groups[number]
    firsts = (uid for (group, index), uid in job.bound.items() if group == number and not index % of.group_size)
    pods = (state.pods[uid] for uid in firsts)
    present = sum(pod.phase not in TERMINAL and not pod.deleting for pod in pods)
    return {"replicas": present, "selector": _selector(job.seen.name, of.name, of.group_size)}


@lru_cache(maxsize=4096)
def _selector(job: str, worker_set: str, group_size: int) -> str:
    labels = known_labels(job, worker_set, leader=False) | group_labels(0, group_size)
    labels.pop(WORKER_GROUP_LABEL, None)
    return ",".join(f"{label}={value}" for label, value in sorted(labels.items()))


def _gpus(state: State, job: JobRecord) -> int:
    """The GPUs that the pods of the job hold on nodes, of any vendor."""
    if job.spec is None:
        return 0
    each = [gpus_of(group.shape.requests) for group in job.spec.groups]
    if not any(each):
        return 0
    return sum(each[slot[0]] for slot in state.slots_in_use(job))


def news_of(state: State, job: JobRecord) -> tuple[object, ...]:
    """What the job's status must show at once: the decisions that a new epoch needs to take the job over, and what
    keeps its pods from running. A status with equal news differs in counts, or in what a starting job waits for.

    The leader's address can wait until the job runs: a new epoch takes it from the leader's pod.
    """
    address = job.leader.address if job.stage != Stage.STARTING else ""
    refusal = job.refusal()
    refused = (refusal.slot, refusal.message) if refusal is not None else None
    stuck = min(stuck_slots(state, job), default=None)
    why = state.pods[job.bound[stuck]].waiting if stuck is not None else ""
    known = (job.version, job.seen.generation, job.schedule_state, address, job.leader.restarts, tuple(job.failing))
    ends = tuple(of.ended for of in job.spec.after) if job.spec is not None else ()
    kept, starts = unevicted_text(state, job), expected_start_text(state, job)
    held = (refused, stuck, why, claims_text(state, job))
    return (
        *known,
        job.waits,
        job.not_before_ms,
        job.taken,
        job.dry_run,
        *held,
        ends,
        kept,
        starts,
        request_text(state, job),
    )


def _replacing(state: State, job: JobRecord) -> dict[int, list[int]]:
    """By group, workers whose ended pod was counted and still exists: a lost log must not count it twice."""
    found: dict[int, list[int]] = {}
    for group, index in sorted(slot for slot in _going(state, job) if slot is not None):
        found.setdefault(group, []).append(index)
    return found


def _of_group(slots: Mapping[SlotKey, _Of], number: int) -> dict[int, _Of]:
    """Index → what a table of slots has of a group, in order."""
    return {index: slots[number, index] for index in sorted(index for group, index in slots if group == number)}


def _set_status(job: JobRecord, number: int, counts: WorkerCounts, replacing: Sequence[int]) -> dict[str, Any]:
    name, slots = job.valid_spec.groups[number].name, job.slots
    given_up, finished = [*_of_group(slots.given_up, number)], [*_of_group(slots.finished, number)]
    charged = {index: count for index, (count, _) in _of_group(slots.charged, number).items()}
    before = _of_group(slots.failed_before, number)
    return {
        "name": name,
        "total": counts.total,
        "ready": counts.ready,
        "failed": counts.failed,
        "restarts": counts.restarts,
        "restartsOfEarlierPods": job.spent.get(name, 0),
        **({"restartsByIndex": charges_text(charged)} if charged else {}),
        **({"givenUp": text_of(runs(given_up))} if given_up else {}),
        **({"finished": text_of(runs(finished))} if finished else {}),
        **({"replacing": text_of(runs(list(replacing)))} if replacing else {}),
        **({"failedBefore": charges_text(before)} if before else {}),
    }


def _failure(job: JobRecord, failure: Failure) -> dict[str, Any]:
    ended = failure.ended
    group = failure.worker_set or (job.spec.groups[0].name if job.spec is not None else "")
    return {
        "pod": pod_name(job.seen.name, group, failure.index, failure.attempt, failure.failed_before),
        **({"workerSet": failure.worker_set} if failure.worker_set else {}),
        "index": failure.index,
        "attempt": failure.attempt,
        **({"failedBefore": failure.failed_before} if failure.failed_before else {}),
        "node": failure.node,
        "time": rfc3339(failure.time_ms),
        "container": ended.container,
        "exitCode": ended.exit_code,
        **({"signal": ended.signal} if ended.signal else {}),
        **({"reason": ended.reason} if ended.reason else {}),
        **({"message": _shown(ended.message)} if ended.message else {}),
    }


def _shown(text: str) -> str:
    """A text for display. It may be untrusted: somebody else's status, a forged entry, or a webhook's message."""
    return one_line(text)[:MESSAGE_LIMIT]


def message_text(state: State, job: JobRecord, config: LifecycleConfig | None) -> str:
    """One line that helps users to act: what the job waits for, else the reason for its stage. Without the
    configuration, which readers of a log lack, it doesn't say when a job whose pods can't start fails, and nothing of a
    job that nothing was decided on."""
    undecided = "waits for the next scheduling cycle" if config is not None else ""
    decided = stage_text(job.decided) if job.decided is not None else undecided
    if job.ended:
        return decided
    if refused := refusal_text(job):
        return refused
    behind = left_behind_text(state, job)
    if job.stage in (Stage.PENDING, Stage.RESCHEDULING):
        return _joined(_before_start(state, job, decided), behind)
    waits = waits_text(job) if job.schedule_state != ScheduleState.SUCCEED else ""
    below = below_quorum_text(state, job) or ending_text(state, job)
    kept = unevicted_text(state, job)
    claims, crashing = claims_text(state, job), crashing_text(state, job)
    hanging = "" if below else hanging_text(state, job, state.time_ms)
    said = _joined(
        below,
        claims,
        crashing,
        hindered_text(state, job, config) if crashing and config is not None else "",  # who can't start is told there
        waits,
        kept,
        back_off_text(job),
        to_be_replaced_text(state, job),
        hanging,
    )
    down = "" if below else down_text(state, job)
    told = _joined(said or _awaited(state, job), held_text(job), behind) or decided
    return _joined(told, given_up_text(job), down)


def _joined(*parts: str) -> str:
    return "; ".join([part for part in parts if part])


def _before_start(state: State, job: JobRecord, decided: str) -> str:
    """What a waiting job waits for."""
    if earlier := earlier_pods_text(state, job):
        first = f"the pods of the earlier attempt have to go first: {earlier}"
        return _joined(decided, first, unevicted_text(state, job))
    if job.slots.room is not None:
        return vacated_text(state, job)
    return _and_in_vain(job, _waiting(state, job) or decided)


def _waiting(state: State, job: JobRecord) -> str:
    """Why a waiting job has no nodes."""
    return prerequisites_text(state, job) or _lacks(state, job) or back_off_text(job)


def _and_in_vain(job: JobRecord, said: str) -> str:
    """What is said of a waiting job, and why nobody gives it room: a dry run was refused, or it took some in vain; with
    the cause unless that was said."""
    if job.dry_run is not None and job.dry_run.slot is not None and not job.placements:
        return "; ".join(part for part in (said, dry_run_text(job.dry_run, job.valid_spec)) if part)
    ended = job.taken.in_vain if job.taken is not None and not job.placements else None
    if ended is None:
        return said
    return _joined(said, in_vain_text(ended, said))


def _lacks(state: State, job: JobRecord) -> str:
    """Why a waiting job has no nodes, and what becomes of its request for them."""
    return _joined(waits_text(job), reserved_text(state, job), request_text(state, job))


def back_off_text(job: JobRecord) -> str:
    """Until when the job, or its further pods, get no nodes; empty if a cycle recorded a more specific reason."""
    if not job.not_before_ms or job.waits is not None or job.ended or len(job.placements) >= job.pods_desired():
        return ""
    if job.stage in (Stage.STARTING, Stage.RUNNING):
        replaced = replaced_text(job.replaced.causes, job.spec, job.slots.names)
        return f"{replaced}; placed again from {rfc3339_from(job.not_before_ms)}"
    decided = f"{stage_text(job.decided)}; " if job.decided is not None else ""
    return f"{decided}scheduled again from {rfc3339_from(job.not_before_ms)}"


def _awaited(state: State, job: JobRecord) -> str:
    """What a starting job waits for, without counts: they change often and have their own status fields."""
    leader = leader_pod(state, job)
    if job.stage != Stage.STARTING or job.spec is None:
        return ""
    if leader is None and job.spec.has_leader and LEADER not in job.slots.finished:
        return ""
    if leader is not None and (leader.phase != Phase.RUNNING or not job.leader.address):
        return f"waits for the leader's pod {leader.name} to run on {leader.node}"
    are = "is" if job.spec.min_workers == 1 else "are"
    finished = sum(finished_workers(state, job))
    done = f"; {finished_text(finished)}" if finished else ""
    runs = "the leader runs; " if leader is not None else ""
    return f"{runs}waits until {quorum_text(job.spec)} {are} ready{done}"


def _conditions(state: State, job: JobRecord) -> list[dict[str, Any]]:
    """Standard conditions, so that `kubectl wait --for=condition=…` works; each has its own transition time."""
    decided = (job.decided.reason, stage_text(job.decided)) if job.decided is not None else ("Accepted", "")
    scheduled = (str(job.schedule_state), _and_in_vain(job, _waiting(state, job)))
    told = {"Scheduled": scheduled, "Running": decided, READY: decided}
    if below := below_quorum_text(state, job):
        told |= {"Running": (decided[0], below), READY: (BELOW_QUORUM, below)}
    elif ending := ending_text(state, job):
        told |= {"Running": (decided[0], ending), READY: (ENDING, ending)}
    elif job.quorum_ready:
        told[READY] = (QUORUM_READY, "")
    if job.preempted:
        told[PREEMPTED] = (decided[0], preempted_text(decided[1], expected_start_text(state, job)))
    told[GUEST] = ("ReservedRoom", guest_text(state, job))
    told[UNSET_VARIABLES] = ("NotReplaced", unset_text(job))
    turned = {name: since_ms for name, (_, since_ms) in job.times.turned.items()}
    turned[FINISHED] = job.times.completion_ms or job.seen.created_ms
    shown = []
    turned[GUEST] = job.times.scheduled_ms
    here = [(name, True) for name in (GUEST, UNSET_VARIABLES) if told[name][1]]
    for name, holds in (*job.conditions(), *here, (FINISHED, job.ended)):
        reason, message = told.get(name, decided if holds else (decided[0], ""))
        shown.append(
            {
                "type": name,
                "status": "True" if holds else "False",
                "reason": one_line(reason),
                "message": _shown(message),
                "lastTransitionTime": rfc3339(turned.get(name, job.seen.created_ms)),
                "observedGeneration": job.seen.generation,
            }
        )
    return shown
