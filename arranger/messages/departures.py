"""Pods of a job that are being deleted, for which it waits or which hang, in one line."""

from collections.abc import Collection

from arranger.events.kinds import PodSeen
from arranger.model.job import HANGS_AFTER_MS
from arranger.model.text import few, rfc3339
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import State
from arranger.projections.verdicts.ownership import earlier_pods

#: The number of nodes that are named.
_NODES_NAMED = 3


def earlier_pods_text(state: State, job: JobRecord) -> str:
    """The pods of earlier attempts, for which a waiting job waits; empty without any."""
    return _text(state, earlier_pods(state, job))


def deleted_pods_text(state: State, job: JobRecord) -> str:
    """The pods of the present attempt that are being deleted; empty without any."""
    return _text(state, [pod for pod in _deleted(state, job) if _present(job, pod)])


def hanging_text(state: State, job: JobRecord, time_ms: int) -> str:
    """The pods of a job that should be gone, and that it doesn't leave behind; empty without any, and for an ended
    job."""
    found = [
        pod for pod in _deleted(state, job) if not job.ended and 0 < pod.times.leave_by_ms <= time_ms - HANGS_AFTER_MS
    ]
    found = [pod for pod in found if pod.uid not in job.left_behind]
    return f"{_text(state, found)}: it hangs" if found else ""


def left_behind_text(state: State, job: JobRecord) -> str:
    """The pods on lost nodes that a job has left behind and that still exist; empty without any."""
    found = [pod for uid in job.left_behind if (pod := state.pods.get(uid)) is not None]
    return f"left behind: {_text(state, found)}" if found else ""


def _present(job: JobRecord, pod: PodSeen) -> bool:
    return pod.owner is not None and pod.owner.attempt == job.attempt


def _deleted(state: State, job: JobRecord) -> list[PodSeen]:
    pods = state.pods_of.get(job.uid, {})
    uids = pods if len(pods) < len(state.deleting) else state.deleting
    return [state.pods[uid] for uid in uids if uid in pods and uid in state.deleting]


def _text(state: State, pods: Collection[PodSeen]) -> str:
    """The first of the pods, the nodes of all, and when its grace period ends: of those that are deleted, the first to
    go."""
    if not pods:
        return ""
    pod = min(pods, key=lambda of: (not of.deleting, of.times.leave_by_ms, of.name, of.uid))
    named = f"pod {pod.name}{_more(state, pod, [of for of in pods if of is not pod])}"
    if not pod.deleting:
        return named
    until = f", with time to end until {rfc3339(pod.times.leave_by_ms)}" if pod.times.leave_by_ms else ""
    return f"{named} is being deleted{until}"


def _more(state: State, pod: PodSeen, others: Collection[PodSeen]) -> str:
    """The node of a pod, how many others there are, and their nodes if these are not the same."""
    down = bool(pod.node) and state.nodes.down_for_ms(pod.node, state.time_ms) >= 0
    where = f" on {pod.node}{', which is not ready,' if down else ''}" if pod.node else ""
    more = f" and {len(others)} more" if others else ""
    nodes = sorted({of.node for of in others if of.node})
    return f"{where}{more} on {few(nodes, _NODES_NAMED)}" if nodes not in ([], [pod.node]) else f"{more}{where}"
