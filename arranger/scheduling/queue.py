"""Which jobs want nodes in this cycle, and by which queue policy each goes."""

from arranger.model.config import CycleConfig
from arranger.model.job import JobSpec, ScheduleState, Stage
from arranger.projections.jobs import JobRecord
from arranger.projections.state import State
from arranger.scheduling.policies.queues import MergedQueues
from arranger.scheduling.registry import BUILT_IN, Policies
from arranger.scheduling.shares import Shares
from arranger.scheduling.view import ClusterView


def waiting(state: State) -> list[JobRecord]:
    """Jobs with places that have no node yet, by UID."""
    # Most jobs have all their nodes: what shows that is asked first, of thousands of jobs in every cycle.
    short = [job for job in state.jobs.values() if len(job.placements) < job.pods_wanted()]
    return sorted([job for job in short if _wants_nodes(state, job)], key=_by_uid)


def _by_uid(job: JobRecord) -> str:
    return job.seen.uid


def queues(jobs: list[JobRecord], config: CycleConfig, policies: Policies, shares: Shares) -> MergedQueues:
    """The jobs' turns. A job that names no policy, or one that isn't installed here, goes by the configured default."""
    by_policy: dict[str, list[JobRecord]] = {}
    for job in jobs:
        by_policy.setdefault(policy_name(job, config, policies), []).append(job)
    return MergedQueues([policies.queue[name].queue(by_policy[name], shares) for name in sorted(by_policy)], shares)


def in_order(state: State, config: CycleConfig, policies: Policies = BUILT_IN) -> list[JobRecord]:
    """The waiting jobs in the order in which they would have their first turns, if nobody got anything."""
    view = ClusterView(state.nodes)
    turns = queues(waiting(state), config, policies, Shares(view))
    order: list[JobRecord] = []
    while (turn := turns.head()) is not None:
        order.append(turn.job)
        turns.taken(more=False)
    return order


def policy_name(job: JobRecord, config: CycleConfig, policies: Policies) -> str:
    """The queue policy that a job goes by."""
    assert job.spec is not None
    return job.spec.queue_policy if job.spec.queue_policy in policies.queue else config.queue_policy


def _wants_nodes(state: State, job: JobRecord) -> bool:
    """Whether a job that lacks nodes is to get some now."""
    if not job.active or job.spec is None or _stands_still(job.spec) or job.schedule_state == ScheduleState.FAILED:
        return False
    return job.stage in (Stage.STARTING, Stage.RUNNING) or not old_pods(state, job)


def _stands_still(spec: JobSpec) -> bool:
    """Whether its user wants no further pods of it."""
    return spec.terminating or spec.suspend


def old_pods(state: State, job: JobRecord) -> bool:
    """Whether pods of an earlier attempt are still there: a new attempt waits until they are gone."""
    pods = state.pods_of.get(job.uid, {}).values()
    return any(pod.owner is not None and pod.owner.attempt < job.attempt for pod in pods)
