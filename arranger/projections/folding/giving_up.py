"""When a cycle gives a waiting job up, because not even an empty cluster of the present nodes holds its quorum."""

from arranger.model.config import CycleConfig
from arranger.model.queue import DEFAULT_SPEC, ScheduledFailed
from arranger.projections.derived.queue_counts import queue_of
from arranger.projections.folding.provisioning import asks_autoscaler, present_request
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import State


def infeasible_since_ms(job: JobRecord) -> int:
    """Since when it is known that no empty cluster could hold the job's quorum, in milliseconds since 1970; 0 if that
    isn't so. After an edit it is known since the last reason, which isn't recorded again if it is the same."""
    since_ms = job.times.infeasible_ms
    if since_ms or job.placements or job.waits is None:
        return since_ms
    return job.times.waits_ms if job.waits.shortage.infeasible else 0


def gives_up_ms(state: State, job: JobRecord, config: CycleConfig) -> int | None:
    """The time from which on a cycle that finds the job infeasible gives it up, in milliseconds since 1970; None if
    none does now: while an autoscaler is asked for its nodes, or for good. The grace counts from the last answer. A pod
    that somebody else made waits for a node as long as it is there."""
    since_ms = infeasible_since_ms(job)
    if not since_ms or job.of_pods or _never(state, job, config):
        return None
    if asks_autoscaler(state, job, config.provisioning):
        request = present_request(state, job)
        if request is None or request.answer.under_way:
            return None  # it is being asked, or about to be
        since_ms = max(since_ms, request.answered_ms)
    return since_ms + config.infeasible_grace_ms


def _never(state: State, job: JobRecord, config: CycleConfig) -> bool:
    """Whether the job's queue, or else the configuration, lets it wait for good."""
    own = state.queue_tree.specs.get(queue_of(state, job), DEFAULT_SPEC).scheduled_failed
    return (own or config.scheduled_failed) == ScheduledFailed.NEVER
