"""The causes of waiting, from what the log recorded."""

from enum import StrEnum

from arranger.events.facts import BeyondLimit, LackOfNodes, Objected, ShortageFacts, nodes_lack
from arranger.model.job import ScheduleState, Stage
from arranger.model.pod import PodShape
from arranger.model.quota import LimitKind
from arranger.model.reasons import ReasonCounts, ReasonKind
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import State
from arranger.replay.explain.awaited import WISHED, What, awaited, still_standing
from arranger.replay.explain.full_nodes import closed_with_room, full_of_others, shape_of


class Cause(StrEnum):
    """What a job waits for. ROOM is held by others since before the job began to wait; ORDER: they got it while the job
    waited. CLOSED and TAINT are nodes that take no pods, or not its pods; RULES is everything else that a node is
    refused for. CAPABILITY, GUARANTEES, MAX_RUNNING, MAX_WAITING and NON_PREEMPTIBLE are limits of queues, QUOTA one
    of a namespace. PLUGIN: a group check or a permit of another package. RESERVATION: free room that is kept for a job
    before it. PREEMPTED_ROOM: it has nodes, which others are still to leave. INFEASIBLE: no cluster of these nodes has
    room. QUEUE: it can't use its queue. SCHEDULER: a cycle, or a controller. SUSPENDED: its user is to resume it.
    PODS: what keeps pods that no TYJob owns out of the order.
    """

    ROOM = "Room"
    ORDER = "Order"
    RESERVATION = "Reservation"
    PREEMPTED_ROOM = "PreemptedRoom"
    CLOSED = "ClosedNodes"
    TAINT = "Taint"
    RULES = "Rules"
    QUOTA = "Quota"
    CAPABILITY = "Capability"
    GUARANTEES = "Guarantees"
    MAX_RUNNING = "MaxRunning"
    MAX_WAITING = "MaxWaiting"
    NON_PREEMPTIBLE = "NonPreemptible"
    PLUGIN = "Plugin"
    QUEUE = "Queue"
    INFEASIBLE = "Infeasible"
    DEPENDENCY = "Dependency"
    PRIORITY_CLASS = "PriorityClass"
    RUNTIME_CLASS = "RuntimeClass"
    BACK_OFF = "BackOff"
    EARLIER_PODS = "EarlierPods"
    SCHEDULER = "Scheduler"
    SUSPENDED = "Suspended"
    PODS = "Pods"


#: Causes with their weights: one cause, or those of the nodes that refuse a pod, by their number.
Weights = tuple[tuple[Cause, int], ...]

_OF_LIMIT = {
    LimitKind.QUOTA: Cause.QUOTA,
    LimitKind.CAPABILITY: Cause.CAPABILITY,
    LimitKind.GUARANTEES: Cause.GUARANTEES,
    LimitKind.MAX_RUNNING: Cause.MAX_RUNNING,
    LimitKind.MAX_WAITING: Cause.MAX_WAITING,
    LimitKind.NON_PREEMPTIBLE: Cause.NON_PREEMPTIBLE,
    LimitKind.MIN_RESOURCES: Cause.ROOM,
}
_OF_WHAT = {
    What.OTHER_JOBS: Cause.DEPENDENCY,
    What.PRIORITY_CLASS: Cause.PRIORITY_CLASS,
    What.RUNTIME_CLASS: Cause.RUNTIME_CLASS,
    What.QUEUE: Cause.QUEUE,
    What.EARLIER_PODS: Cause.EARLIER_PODS,
    What.BACK_OFF: Cause.BACK_OFF,
    What.ROOM: Cause.PREEMPTED_ROOM,
    What.RESUME: Cause.SUSPENDED,
    **dict.fromkeys(WISHED - {What.RESUME}, Cause.PODS),
}
_OF_REASON = {
    ReasonKind.RESERVED: Cause.RESERVATION,
    ReasonKind.CORDONED: Cause.CLOSED,
    ReasonKind.NOT_READY: Cause.CLOSED,
    ReasonKind.TAINT: Cause.TAINT,
    **dict.fromkeys(
        (
            ReasonKind.INSUFFICIENT,
            ReasonKind.FITS,
            ReasonKind.REST_OF_QUORUM,
            ReasonKind.OTHER_TOPOLOGY,
            ReasonKind.NO_TOPOLOGY_LABEL,
        ),
        Cause.ROOM,
    ),
}
#: Causes whose time isn't counted as waiting.
_NOT_WAITING = frozenset({_OF_WHAT[what] for what in WISHED})
#: What keeps a pod off a closed node, in the order of `closed_with_room`.
_OF_CLOSED = (Cause.CLOSED, Cause.TAINT)
#: Reasons that say nothing of what the job waits for, unless there are no others: its own selection of nodes.
_OWN_CHOICE = (ReasonKind.NODE_SELECTOR, ReasonKind.NODE_AFFINITY)


def causes_of(state: State, job: JobRecord) -> Weights:
    """Why a job has no quorum that runs, as far as its user wants it to; empty if it doesn't wait, or only because of
    that."""
    causes = every_cause(state, job)
    return () if causes and causes[0][0] in _NOT_WAITING else causes


def every_cause(state: State, job: JobRecord) -> Weights:
    """Why a job has no quorum that runs; empty if it doesn't wait."""
    if job.stage not in (Stage.PENDING, Stage.RESCHEDULING) and job.schedule_state != ScheduleState.PARTLY:
        return ()  # it has all that it needs nodes for; most jobs do
    if job.spec is None or job.ended or not job.active or job.spec.terminating:
        return ()
    now = awaited(state, job)
    what = now.what
    if what in (What.QUORUM_NODES, What.CONTROLLER, What.FIRST_CYCLE):
        recorded = job.waits if what == What.QUORUM_NODES and not now.unseen else None
        return _of_shortage(state, job, recorded.shortage) if recorded is not None else ((Cause.SCHEDULER, 1),)
    cause = _OF_WHAT.get(what)
    begun = what == What.BACK_OFF and job.quorum_placed()
    return ((cause, 1),) if cause is not None and not begun else ()


def _of_shortage(state: State, job: JobRecord, shortage: ShortageFacts) -> Weights:
    """The causes that a recorded reason names. A limit beside which the nodes have too little, too, counts half."""
    match shortage:
        case BeyondLimit(quota=quota, nodes=nodes):
            found = _of_nodes(state, job, nodes) if nodes is not None else ()
            return ((_OF_LIMIT[quota.limit], sum(count for _, count in found) or 1), *found)
        case Objected():
            return ((Cause.PLUGIN, 1),)
        case LackOfNodes(infeasible=True):
            return ((Cause.INFEASIBLE, 1),)
    return _of_nodes(state, job, shortage)


def _of_nodes(state: State, job: JobRecord, shortage: LackOfNodes) -> Weights:
    """The causes that nodes refuse the next pod for. Each of them counts the same; where free room is kept from it,
    nodes that others use count nothing, and nodes that are too small for it or full of the job's own pods don't either,
    if there are others. Nor do closed nodes that have no room for it: open, they would be full. Empty if all
    kept room for others that have no reservation any more."""
    reasons = still_standing(state, job, shortage)
    if shortage.reasons and not reasons:
        return ()
    found = _by_cause(reasons)
    if len(found) > 1 and Cause.ROOM in found:
        found[Cause.ROOM] -= _not_of_others(state, job, shortage)
    if len(found) > 1 and not found.keys().isdisjoint(_OF_CLOSED):
        with_room = closed_with_room(state, job, shortage.group)
        for cause, nodes in zip(_OF_CLOSED, with_room or (), strict=with_room is not None):
            if cause in found:
                found[cause] = min(found[cause], nodes)
    return tuple(sorted((cause, nodes) for cause, nodes in found.items() if nodes > 0)) or ((Cause.ROOM, 1),)


def pod_for_closed(state: State, job: JobRecord) -> PodShape | None:
    """The shape of a waiting job's next pod, if its causes change with the room for such pods on nodes that
    are closed to them; None if it doesn't."""
    shortage = job.waits.shortage if job.waits is not None else None
    nodes = nodes_lack(shortage) if shortage is not None else None
    if nodes is None or (nodes is shortage and nodes.infeasible):
        return None
    found = _by_cause(still_standing(state, job, nodes))
    alone = len(found) == 1 or found.keys().isdisjoint(_OF_CLOSED)
    return shape_of(job, nodes.group) if not alone else None


def _by_cause(reasons: ReasonCounts) -> dict[Cause, int]:
    """How many nodes refuse the pod for each cause."""
    counted = [one for one in reasons if one[0].kind not in _OWN_CHOICE] or reasons
    kept = any(reason.kind == ReasonKind.RESERVED for reason, _ in counted)
    found: dict[Cause, int] = {}
    for reason, nodes in counted:
        cause = _OF_REASON.get(reason.kind, Cause.RULES)
        if cause != Cause.ROOM or not kept:  # free room is there for the pod: not those keep it out who hold the rest
            found[cause] = found.get(cause, 0) + nodes
    return found


def _not_of_others(state: State, job: JobRecord, shortage: LackOfNodes) -> int:
    """How many of the nodes that lack resources don't lack them because of what others hold."""
    lacking = sum(nodes for reason, nodes in shortage.reasons if reason.kind == ReasonKind.INSUFFICIENT)
    full = full_of_others(state, job, shortage.group) if lacking else None
    return max(lacking - full, 0) if full is not None else 0
