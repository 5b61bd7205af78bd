"""When an autoscaler is asked for the nodes of a waiting job's quorum, and for which pods."""

from arranger.events.kinds import NodesRequested
from arranger.lifecycle.config import LifecycleConfig
from arranger.model.job import LEADER_GROUP, ScheduleState, Stage
from arranger.model.provisioning import Provisioning, RequestedPods
from arranger.projections.derived.dependencies import awaited_jobs
from arranger.projections.derived.queue_membership import kept_out
from arranger.projections.folding.provisioning import present_request, way_of
from arranger.projections.jobs.parts import LEADER
from arranger.projections.jobs.records import JobRecord, by_group
from arranger.projections.observed.priorities import lacks_class
from arranger.projections.state import NodesRequest, State


def nodes_requested(state: State, job: JobRecord, config: LifecycleConfig, time_ms: int) -> NodesRequested | None:
    """The decision to ask for nodes, for a job that a cycle found no room for. It asks again when what it needs has
    changed, and with a back-off when it asked in vain."""
    how = way_of(state, job, config.provisioning)
    if how == Provisioning.NONE or job.waits is None or not lacks_nodes(state, job):
        return None
    last, pods = state.requests.get(job.uid), quorum_pods(job)
    present = present_request(state, job)
    if (
        present is not None and present.decided.how == how and present.decided.pods in ((), pods)
    ):  # () for one of an earlier epoch
        due_ms = _again_ms(present, config)
        if due_ms is None or time_ms < due_ms:
            return None
    number = last.decided.number + 1 if last is not None else 1
    of_class = config.provisioning_class if how == Provisioning.REQUEST else ""
    return NodesRequested(job.uid, job.version, job.attempt, number, of_class, pods, how)


def due_ms(state: State, job: JobRecord, config: LifecycleConfig) -> int | None:
    """When a job asks again that asked in vain, in milliseconds since 1970; None if it doesn't."""
    present = present_request(state, job)
    return _again_ms(present, config) if present is not None else None


def _again_ms(request: NodesRequest, config: LifecycleConfig) -> int | None:
    if not request.answer.in_vain:
        return None
    return request.answered_ms + config.back_off_after(request.failures)


def lacks_nodes(state: State, job: JobRecord) -> bool:
    """Whether a job waits for nothing but nodes, as far as is known: not for its queue, a quota, a plugin or other
    jobs. Until a cycle has tried it, that isn't known for sure."""
    if job.stage not in (Stage.PENDING, Stage.RESCHEDULING) or job.placements:
        return False
    if job.schedule_state == ScheduleState.FAILED or (job.waits is not None and not job.waits.shortage.of_nodes):
        return False
    missing = lacks_class(job) or job.valid_spec.missing_runtimes
    return not missing and not awaited_jobs(job) and kept_out(state, job) is None


def quorum_pods(job: JobRecord) -> tuple[RequestedPods, ...]:
    """The pods of a quorum, by group: the leader, the minimum of each worker set, and of the sets in their order as
    many more as it needs, in whole worker groups. It needs `min_workers`, or more if its pod policy asks for all pods,
    which the last cycle said. Pods that have finished need no node."""
    spec, there = job.valid_spec, by_group(job.valid_spec, job.provided)
    gone = by_group(spec, job.slots.given_up)
    counts = [0] * len(spec.groups)
    counts[LEADER_GROUP] = spec.groups[LEADER_GROUP].count - (LEADER in job.provided)
    least = [max(of.least - there[group], 0) for group, of in enumerate(spec.groups)]
    asked = job.waits.shortage.asked - counts[LEADER_GROUP] if job.waits is not None else 0
    spare = max(max(spec.min_workers - sum(there[1:]), asked) - sum(least[1:]), 0)
    for group, of in enumerate(spec.groups[1:], start=1):
        left = of.count - there[group] - gone[group]
        counts[group] = min(-(-(least[group] + spare) // of.group_size) * of.group_size, left)
        spare = max(spare - max(counts[group] - least[group], 0), 0)
    return tuple(
        RequestedPods(group, count, spec.groups[group].shape) for group, count in enumerate(counts) if count > 0
    )
