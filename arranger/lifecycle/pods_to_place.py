"""What a controller decides on a pod that no TYJob owns, or on a group of them: to bind them once their room is free,
and to seek other nodes if they can't be bound to those that they got.

Nothing is decided on a pod that has been bound: its end is a matter of whoever made it. A group of which no pod was
bound gets other nodes as a whole. Later only the pods that can't be bound are placed again.
"""

from arranger.events.facts import LostPods, NodeClosed, NodeLost, ReservationOver, RoomTaken
from arranger.events.kinds import EndedWorker, StageDecided, WorkersReplaced, start
from arranger.lifecycle.awaited_room import room_is_free, room_lost, taker
from arranger.lifecycle.config import LifecycleConfig
from arranger.lifecycle.deciding import decide
from arranger.lifecycle.refusals import refused_pods, refused_quorum
from arranger.lifecycle.replacements import barred, cause_of, room_taken
from arranger.model.job import Replacement, Slot, Stage
from arranger.model.stages import StageReason
from arranger.projections.jobs.parts import SlotKey
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import State


def decision_on_pods(
    state: State, job: JobRecord, config: LifecycleConfig, time_ms: int
) -> StageDecided | WorkersReplaced | None:
    """The next decision on the record of a pod, or of a group; None if there is none now."""
    if (over_ms := reserved_until_ms(state, job)) is not None and time_ms >= over_ms:
        return _reservation_over(job, config, time_ms)
    if job.placements.keys() == job.bound.keys() or job.ended or job.seen.deleting:
        return None
    if job.bound:
        return _placed_again(state, job, config, time_ms)
    if job.stage in (Stage.PENDING, Stage.RESCHEDULING):
        if room_is_free(state, job, time_ms):
            return start(job.uid, job.version, job.attempt, leaderless=True)
        return room_lost(state, job, time_ms)
    return _node_lost(state, job) or refused_quorum(job, config, time_ms)


def reserved_until_ms(state: State, job: JobRecord) -> int | None:
    """When the reservation of a pod group ends by time alone, in milliseconds; None if that isn't so."""
    known, limit_s = state.reservations.get(job.uid), job.valid_spec.schedule_timeout_s
    if known is None or limit_s is None or job.placements:
        return None
    return known.since_ms + limit_s * 1000


def _reservation_over(job: JobRecord, config: LifecycleConfig, time_ms: int) -> StageDecided:
    """End a reservation that keeps others waiting for too long. During the back-off others may get one."""
    facts = ReservationOver(job.valid_spec.schedule_timeout_s or 0)
    back_off_ms = config.back_off_after(job.back_offs.attempt.in_a_row(time_ms))
    return decide(job, StageReason.RESERVATION_OVER, facts, back_off_ms)


def _placed_again(state: State, job: JobRecord, config: LifecycleConfig, time_ms: int) -> WorkersReplaced | None:
    """Seek other nodes for the pods of a group that can't be bound to theirs, while others of it were bound."""
    lost = [slot for slot in _unbound(job) if _is_lost(state, job, slot)]
    if not lost:
        return refused_pods(job, config, time_ms)
    workers = tuple(EndedWorker(Slot(*slot), "", Replacement.ELSEWHERE, False) for slot in lost)
    cause = cause_of(state, job, [(slot, None) for slot in lost], LostPods)
    return WorkersReplaced(job.uid, job.version, job.attempt, workers, (cause,))


def _unbound(job: JobRecord) -> list[SlotKey]:
    return sorted(job.placements.keys() - job.bound.keys())


def _is_lost(state: State, job: JobRecord, slot: SlotKey) -> bool:
    if not state.nodes.has(job.placements[slot]):
        return True
    return room_taken(state, job, slot) or barred(state, job, slot) is not None


def _node_lost(state: State, job: JobRecord) -> StageDecided | None:
    """Give the nodes up if one of them is gone, if its room is taken, or if it was closed to its pod."""
    slot = next((slot for slot in _unbound(job) if _is_lost(state, job, slot)), None)
    if slot is None:
        return None
    node = job.placements[slot]
    if not state.nodes.has(node):
        return decide(job, StageReason.NODE_LOST, NodeLost(node, gone=True, leaderless=True))
    if room_taken(state, job, slot) or (how := barred(state, job, slot)) is None:
        return decide(job, StageReason.ROOM_TAKEN, RoomTaken(node, taker(state, job, node), leaderless=True))
    return decide(job, StageReason.NODE_CLOSED, NodeClosed(node, how, leaderless=True))
