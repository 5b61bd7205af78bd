"""The stages of a TYJob, the reasons for its transitions, and the one table of allowed transitions.

Controllers decide on a reason and take the stage from the table; the fold judges every decision by it.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from arranger.model.job import Stage


class StageReason(StrEnum):
    """Why a job enters a stage. Status conditions and Kubernetes Events use these values."""

    SCHEDULED = "Scheduled"
    WORKERS_READY = "WorkersReady"
    LEADER_SUCCEEDED = "LeaderSucceeded"
    #: All workers whose end is the job's have finished.
    WORKERS_SUCCEEDED = "WorkersSucceeded"
    TERMINATED = "Terminated"
    SUSPENDED = "Suspended"
    RESUMED = "Resumed"
    #: The leader failed by its own fault; only this reason uses up the leader's restart budget.
    LEADER_FAILED = "LeaderFailed"
    LEADER_EVICTED = "LeaderEvicted"
    LEADER_LOST = "LeaderLost"
    LEADER_MOVED = "LeaderMoved"
    NODE_LOST = "NodeLost"
    NODE_CLOSED = "NodeClosed"
    ROOM_TAKEN = "RoomTaken"
    #: Another job needed its room more.
    PREEMPTED = "Preempted"
    #: The pods that gave it room didn't leave in time.
    ROOM_NOT_FREED = "RoomNotFreed"
    #: The pods of its earlier attempts hang on lost nodes: the next attempt doesn't wait for them.
    PODS_LEFT_BEHIND = "PodsLeftBehind"
    #: The reservation of a pod group was there for as long as its PodGroup allows.
    RESERVATION_OVER = "ReservationOver"
    WORKERS_LOST = "WorkersLost"
    #: A worker ended whose restart policy restarts the whole job.
    WORKER_ENDED = "WorkerEnded"
    QUORUM_INCOMPLETE = "QuorumIncomplete"
    #: The API server refuses pods of its quorum: from then on the job waits behind the other jobs of its priority.
    QUORUM_REFUSED = "QuorumRefused"
    #: Its quorum wasn't ready in time, most often because pods can't start. It is queued as after a refusal.
    START_TIMEOUT = "StartTimeout"
    TEMPLATE_EDITED = "TemplateEdited"
    UNSCHEDULABLE = "Unschedulable"
    #: A job failed that must have succeeded first.
    DEPENDENCY_FAILED = "DependencyFailed"
    WORKERS_FAILED = "WorkersFailed"
    RESTART_LIMIT = "RestartLimit"
    IMAGE_ERROR = "ImageError"
    POD_REFUSED = "PodRefused"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    INVALID_SPEC = "InvalidSpec"
    DELETED = "Deleted"
    #: A new epoch took the job over from a status that gives no reason.
    ADOPTED = "Adopted"
    #: In a hypothetical continuation of a log, the job ends, or starts again, as it did in that log.
    AS_RECORDED = "AsRecorded"
    #: In a hypothetical continuation, the job ends as somebody assumes, and no log shows that: its run time is no fact.
    ASSUMED = "Assumed"
    #: A new epoch took the job over from a status with a reason that this version doesn't have. No decision has this.
    OTHER = "Other"


_BY_WORD = {str(reason): reason for reason in StageReason}


def reason_of(word: str) -> StageReason:
    """The reason that a status names; `OTHER` for one that this version doesn't have."""
    return _BY_WORD.get(word, StageReason.OTHER)


WAITING = (Stage.PENDING, Stage.RESCHEDULING)
_BEGUN = (Stage.STARTING, Stage.RUNNING)
_ACTIVE = (*WAITING, *_BEGUN)

_R = StageReason
#: A job that waits goes on waiting after these, for what it waited before.
WAITS_ON = (_R.ROOM_NOT_FREED, _R.RESERVATION_OVER, _R.PODS_LEFT_BEHIND)
#: The same if its facts say that others were still to leave the node (`StageDecided.awaited`).
LOST_UNBEGUN = (_R.NODE_LOST, _R.NODE_CLOSED)
#: From these stages, for one of these reasons, to this stage.
_RULES: tuple[tuple[tuple[Stage, ...], tuple[StageReason, ...], Stage], ...] = (
    (WAITING, (_R.SCHEDULED,), Stage.STARTING),
    ((Stage.STARTING,), (_R.WORKERS_READY,), Stage.RUNNING),
    (_BEGUN, (_R.LEADER_SUCCEEDED,), Stage.SUCCEEDED),
    (_ACTIVE, (_R.WORKERS_SUCCEEDED, _R.TERMINATED), Stage.SUCCEEDED),
    (_ACTIVE, (_R.SUSPENDED,), Stage.PENDING),
    ((Stage.PENDING,), (_R.RESUMED,), Stage.PENDING),
    (_BEGUN, (_R.LEADER_FAILED, _R.LEADER_EVICTED, _R.LEADER_LOST, _R.LEADER_MOVED), Stage.RESCHEDULING),
    (_BEGUN, (_R.NODE_LOST, _R.NODE_CLOSED, _R.ROOM_TAKEN, _R.WORKERS_LOST, _R.WORKER_ENDED), Stage.RESCHEDULING),
    (_BEGUN, (_R.PREEMPTED,), Stage.RESCHEDULING),
    ((Stage.PENDING,), (*WAITS_ON, *LOST_UNBEGUN), Stage.PENDING),
    ((Stage.RESCHEDULING,), (*WAITS_ON, *LOST_UNBEGUN), Stage.RESCHEDULING),
    ((Stage.STARTING,), (_R.QUORUM_REFUSED, _R.START_TIMEOUT, _R.TEMPLATE_EDITED), Stage.RESCHEDULING),
    (_BEGUN, (_R.QUORUM_INCOMPLETE,), Stage.RESCHEDULING),
    (WAITING, (_R.UNSCHEDULABLE, _R.DEPENDENCY_FAILED), Stage.FAILED),
    (_BEGUN, (_R.RESTART_LIMIT, _R.IMAGE_ERROR), Stage.FAILED),
    (_ACTIVE, (_R.WORKERS_FAILED, _R.POD_REFUSED, _R.DEADLINE_EXCEEDED, _R.INVALID_SPEC, _R.DELETED), Stage.FAILED),
)


#: (the present stage, the reason) → the next stage. Any other transition is invalid.
TRANSITIONS: Mapping[tuple[Stage, StageReason], Stage] = MappingProxyType(
    {(stage, reason): to for stages, reasons, to in _RULES for stage in stages for reason in reasons}
)

#: For a reason that doesn't determine the stage: the allowed next stages of each stage.
_ANYWHERE: Mapping[Stage, tuple[Stage, ...]] = {
    Stage.PENDING: (Stage.PENDING, Stage.STARTING, Stage.SUCCEEDED, Stage.FAILED),
    Stage.RESCHEDULING: (Stage.PENDING, Stage.STARTING, Stage.SUCCEEDED, Stage.FAILED),
    Stage.STARTING: (Stage.PENDING, Stage.RUNNING, Stage.RESCHEDULING, Stage.SUCCEEDED, Stage.FAILED),
    Stage.RUNNING: (Stage.PENDING, Stage.RESCHEDULING, Stage.SUCCEEDED, Stage.FAILED),
}


def may_enter(stage: Stage, reason: StageReason, to: Stage) -> bool:
    if reason == StageReason.ASSUMED:
        return to == Stage.SUCCEEDED and stage in _ACTIVE
    next_stage = TRANSITIONS.get((stage, reason))
    if next_stage is None and reason == StageReason.AS_RECORDED:
        return to in _ANYWHERE.get(stage, ())
    return next_stage == to
