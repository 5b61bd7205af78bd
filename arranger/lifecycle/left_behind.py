"""Pods of an earlier attempt that a new one doesn't wait for, because they can't be expected to go.

On a lost node no kubelet confirms a deletion. A deletion by force removes most such pods, but not one that a finalizer
keeps, or that an API server can't delete. After its grace period the job goes on without it. The pods of the next
attempt have other names, so no slot is filled twice. If the node comes back, its kubelet stops the pod.
"""

from arranger.events.facts import PodsLeftBehind
from arranger.events.kinds import PodSeen, StageDecided
from arranger.lifecycle.config import LifecycleConfig
from arranger.lifecycle.deciding import decide
from arranger.model.stages import StageReason
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import State
from arranger.projections.verdicts.ownership import earlier_pods


def left_behind(state: State, job: JobRecord, config: LifecycleConfig, time_ms: int) -> StageDecided | None:
    """The decision to wait no longer for the pods of earlier attempts, if all of them hang on lost nodes."""
    pods = earlier_pods(state, job)
    if not pods or not all([_hangs(state, pod, config, time_ms) for pod in pods]):
        return None
    first = min(pods, key=lambda pod: (pod.name, pod.uid))
    down_ms, gone = state.nodes.down_for_ms(first.node, time_ms), not state.nodes.has(first.node)
    facts = PodsLeftBehind(first.node, first.name, len(pods), gone, down_ms // 1000)
    return decide(job, StageReason.PODS_LEFT_BEHIND, facts)


def _hangs(state: State, pod: PodSeen, config: LifecycleConfig, time_ms: int) -> bool:
    """Whether a pod on a lost node should be gone by now."""
    lost = bool(pod.node) and state.is_lost(pod.node, config.node_lost_after_ms, time_ms)
    return lost and pod.deleting and 0 < pod.times.leave_by_ms <= time_ms
