"""What a job waits for at a point of the log, as a comparable value and in words."""

from enum import StrEnum

import msgspec

from arranger.events.facts import LackOfNodes
from arranger.messages.readiness import claims_text, held_text, volumes_text
from arranger.messages.shortages import kind_text
from arranger.model.job import ScheduleState, Stage
from arranger.model.pods_to_place import pod_of
from arranger.model.reasons import OF_LIMITS, OF_PLUGINS, Reason, ReasonCounts, ReasonKind
from arranger.model.stages import StageReason
from arranger.projections.derived.dependencies import awaited_jobs
from arranger.projections.derived.queue_membership import kept_out
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import State
from arranger.projections.verdicts.ownership import has_earlier_pods

_SECOND_MS = 1000


class What(StrEnum):
    """The things that a job may wait for."""

    NOTHING = "Nothing"
    QUORUM_NODES = "QuorumNodes"
    FURTHER_NODES = "FurtherNodes"
    BACK_OFF = "BackOff"
    RESUME = "Resume"
    OTHER_JOBS = "OtherJobs"
    PRIORITY_CLASS = "PriorityClass"
    RUNTIME_CLASS = "RuntimeClass"
    QUEUE = "Queue"
    EARLIER_PODS = "EarlierPods"
    CONTROLLER = "Controller"
    ROOM = "Room"
    FIRST_CYCLE = "FirstCycle"
    WORKERS = "Workers"
    LEADER_ADDRESS = "LeaderAddress"
    READINESS = "Readiness"
    GATES = "Gates"
    CLAIMS = "Claims"
    VOLUMES = "Volumes"
    DEVICES = "Devices"
    BINDING = "Binding"
    MORE_PODS = "MorePods"
    POD_GROUP = "PodGroup"


#: What the job's user or the owner of its pods has wished: the time until they go on isn't time that it waited.
WISHED = frozenset({What.RESUME, What.GATES, What.CLAIMS, What.MORE_PODS, What.POD_GROUP})


class Awaited(msgspec.Struct, frozen=True):
    """What a job waits for. If it waits for nodes, `reasons` explain without numbers why it has none;
    `infeasible`: these nodes couldn't hold it if they were empty. `unseen`: there are no such reasons any more,
    because the room that was reserved for others isn't, and no cycle has said yet what it finds there."""

    what: What
    reasons: tuple[Reason, ...] = ()
    infeasible: bool = False
    unseen: bool = False


def waits_to_start(stage: str, awaited: Awaited) -> bool:
    """Whether time in this stage, and for this, is time that a job waited to start."""
    return stage in (Stage.PENDING, Stage.RESCHEDULING) and awaited.what not in (What.NOTHING, *WISHED)


def began_ms(job: JobRecord, now_ms: int, log_ms: int) -> int:
    """When a job began to wait that is first seen now: at its creation, if the log began before that, at `log_ms`, and
    nobody watched, because one scheduler had ended and no other had taken over. A creation has whole seconds: only what
    comes after that second is sure. Of a job older than the log, it is now: nothing is known of the time before."""
    created_ms = job.seen.created_ms
    return min(created_ms + _SECOND_MS, now_ms) if 0 < log_ms <= created_ms else now_ms


def given_up(job: JobRecord) -> bool:
    """Whether the job failed because its quorum got no nodes."""
    return job.stage == Stage.FAILED and job.decided is not None and job.decided.reason == StageReason.UNSCHEDULABLE


def awaited(state: State, job: JobRecord) -> Awaited:
    if job.ended or not job.active:
        return Awaited(What.NOTHING)
    if job.stage in (Stage.PENDING, Stage.RESCHEDULING):
        return _before_start(state, job)
    if claims_text(state, job):
        return Awaited(What.VOLUMES if volumes_text(state, job) else What.DEVICES)
    if job.of_pods:
        return _of_pods(state, job)
    if job.stage == Stage.STARTING:
        led = job.spec is None or job.led
        return Awaited(What.WORKERS if led else What.LEADER_ADDRESS)
    if job.schedule_state == ScheduleState.PARTLY and job.waits is not None:
        return _nodes(What.FURTHER_NODES, state, job)
    if job.schedule_state == ScheduleState.PARTLY and job.not_before_ms > state.time_ms:
        return Awaited(What.BACK_OFF)
    return Awaited(What.READINESS if held_text(job) else What.NOTHING)


def _of_pods(state: State, job: JobRecord) -> Awaited:
    """What pods that no TYJob owns wait for, once they, or enough of their group, have nodes."""
    if job.placements.keys() != job.bound.keys():
        return Awaited(What.BINDING)
    if job.pods_lacking:
        return Awaited(_lacking(job))
    further = job.schedule_state == ScheduleState.PARTLY and job.waits is not None
    return _nodes(What.FURTHER_NODES, state, job) if further else Awaited(What.NOTHING)


def _lacking(job: JobRecord) -> What:
    return What.MORE_PODS if job.valid_spec.group_known else What.POD_GROUP


def _held_back(state: State, job: JobRecord) -> What:
    """What keeps a record of pods out of the queue."""
    if job.pods_lacking:
        return _lacking(job)
    pod = state.pods.get(pod_of(job.uid))
    return What.CLAIMS if pod is not None and pod.asks is not None and not pod.asks.gates else What.GATES


def _before_start(state: State, job: JobRecord) -> Awaited:
    if job.pods_lacking or (job.spec is not None and job.spec.suspend):
        return Awaited(_held_back(state, job) if job.of_pods else What.RESUME)
    if awaited_jobs(job):
        return Awaited(What.OTHER_JOBS)
    if job.spec is not None and not job.spec.classes_known:
        return Awaited(What.RUNTIME_CLASS if job.spec.priority_known else What.PRIORITY_CLASS)
    if kept_out(state, job) is not None:
        return Awaited(What.QUEUE)
    if has_earlier_pods(state, job):
        return Awaited(What.EARLIER_PODS)
    if job.not_before_ms > state.time_ms:
        return Awaited(What.BACK_OFF)
    if job.schedule_state != ScheduleState.UNSCHEDULED:
        return Awaited(What.CONTROLLER if job.slots.room is None else What.ROOM)
    return _nodes(What.QUORUM_NODES, state, job) if job.waits is not None else Awaited(What.FIRST_CYCLE)


def _nodes(what: What, state: State, job: JobRecord) -> Awaited:
    if job.waits is None:
        return Awaited(what)
    shortage, reasons = job.waits.shortage, standing_reasons(state, job)
    none_left = bool(shortage.reasons) and not reasons
    return Awaited(what, tuple(reason.numberless() for reason, _ in reasons), shortage.infeasible, none_left)


def standing_reasons(state: State, job: JobRecord) -> ReasonCounts:
    """The reasons recorded last why the job's next pod has no node, by the number of nodes; of nodes, those that still
    stand."""
    if job.waits is None:
        return ()
    shortage = job.waits.shortage
    return still_standing(state, job, shortage) if isinstance(shortage, LackOfNodes) else shortage.reasons


def still_standing(state: State, job: JobRecord, shortage: LackOfNodes) -> ReasonCounts:
    """The reasons of what nodes lack for a job's next pod, by the number of nodes; not that room is reserved for others
    that have no reservation any more: the next reason may be recorded some time later."""
    if any(uid in state.reservations and uid != job.uid for uid in shortage.kept_by or state.reservations):
        return shortage.reasons
    return tuple(of for of in shortage.reasons if of[0].kind != ReasonKind.RESERVED)


def awaited_text(awaited: Awaited) -> str:
    """What a job waits for, in words; empty if it waits for nothing."""
    words = _WORDS[awaited.what]
    if awaited.what not in (What.QUORUM_NODES, What.FURTHER_NODES):
        return words
    if awaited.unseen:
        return f"{words}: a scheduling cycle is to look at what isn't reserved any more"
    never = ", which no cluster of these nodes has" if awaited.infeasible and awaited.reasons else ""
    return f"{words}{never}: {reasons_text(awaited.reasons)}"


def waited_text(awaited: Awaited) -> str:
    """What a job waited for, in words: of nodes, only the resources that they lacked, if that was why, and whether
    some had them and kept them for another job."""
    if awaited.what not in (What.QUORUM_NODES, What.FURTHER_NODES):
        return _WORDS[awaited.what]
    if awaited.unseen:
        return "a scheduling cycle"
    lacked = dict.fromkeys(reason.name for reason in awaited.reasons if reason.kind == ReasonKind.INSUFFICIENT)
    if lacked:
        reserved = any(reason.kind == ReasonKind.RESERVED for reason in awaited.reasons)
        return ", ".join(lacked) + (", some of it reserved for a job ahead of it" if reserved else "")
    if not awaited.reasons:
        return "nodes, of which there are none"
    what, kinds = "nodes, none of which would do", {reason.kind for reason in awaited.reasons}
    if kinds & (OF_LIMITS | OF_PLUGINS):
        what = "a plugin" if kinds & OF_PLUGINS else "its queue"
        what = "quota of its namespace" if ReasonKind.QUOTA in kinds else what
    return f"{what}: {reasons_text(awaited.reasons)}"


def reasons_text(reasons: tuple[Reason, ...]) -> str:
    """Why there are no nodes, without numbers."""
    return ", ".join(dict.fromkeys(map(_reason_text, reasons))) or "there are none"


def _reason_text(reason: Reason) -> str:
    """Nodes that fit one pod are named only where they don't take all of them."""
    return "those that fit take too few of them" if reason.kind == ReasonKind.FITS else kind_text(reason)


_WORDS = {
    What.NOTHING: "",
    What.QUORUM_NODES: "nodes for its quorum",
    What.FURTHER_NODES: "nodes for further pods",
    What.BACK_OFF: "its back-off to end",
    What.RESUME: "its user to resume it",
    What.OTHER_JOBS: "other jobs to end",
    What.PRIORITY_CLASS: "the value of its PriorityClass",
    What.RUNTIME_CLASS: "its RuntimeClass",
    What.QUEUE: "a queue that it can use",
    What.EARLIER_PODS: "the pods of its earlier attempt to be gone",
    What.CONTROLLER: "its controller",
    What.ROOM: "others to leave its nodes",
    What.FIRST_CYCLE: "a first scheduling cycle",
    What.WORKERS: "enough ready workers",
    What.LEADER_ADDRESS: "its leader's address",
    What.READINESS: "the leader or set to be ready that other worker sets start after",
    What.GATES: "its scheduling gates to be removed",
    What.CLAIMS: "nothing: the setting devices is off, so its resource claims get none",
    What.VOLUMES: "its claims to be bound",
    What.DEVICES: "its resource claims to have devices",
    What.BINDING: "an applier to bind it",
    What.MORE_PODS: "more pods of its group",
    What.POD_GROUP: "its PodGroup to exist",
}
