"""Whether a job gets nodes in its turn, why it isn't in the queue, and whether it would get nodes if it were."""

from collections.abc import Sequence

from arranger.events.facts import ShortageFacts
from arranger.messages.departures import earlier_pods_text
from arranger.messages.faults import faults_text
from arranger.messages.prerequisites import prerequisites_text
from arranger.model.job import ScheduleState
from arranger.projections.derived.departing import ends_by_itself
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import State
from arranger.projections.verdicts.ownership import awaits_own_pods
from arranger.replay.explain.awaited import awaited, awaited_text
from arranger.replay.explain.candidate_changes.case import WaitingCase
from arranger.scheduling import facts_of, try_empty_cluster


def position_of(state: State, waiting: Sequence[JobRecord], job: JobRecord) -> int:
    """The job's position in the order, from 1; 0 if it gets no nodes there now."""
    if awaits_own_pods(state, job):
        return 0
    return next((number for number, other in enumerate(waiting, start=1) if other.uid == job.uid), 0)


def without_try(state: State, job: JobRecord) -> str:
    """Why a cycle that names no lack gives a job of the queue no nodes."""
    if ends_by_itself(state, job, state.time_ms):
        return "its pods show that it is about to end, so it gets no more nodes"
    return "others would give it room, but a dry run has to show first that the API server takes its pods"


def never_fits(case: WaitingCase) -> ShortageFacts | None:
    """Why an empty cluster couldn't hold the job, whatever it waits for first; None if one might, if the job gets no
    more nodes in any case, and if not all of its pods are known."""
    state, job = case.state, case.job
    over = job.seen.deleting or job.valid_spec.terminating or job.schedule_state == ScheduleState.FAILED
    if over or not state.synced or job.placements or job.pods_lacking:
        return None
    tried = try_empty_cluster(state, job, case.config, case.policies)
    return facts_of(tried, tried.shortage) if tried.shortage is not None else None


def why_not(state: State, job: JobRecord) -> str:
    """Why a job isn't in the queue."""
    if job.seen.faults:
        return f"its spec is invalid: {faults_text(job.seen.faults)}"
    if job.seen.deleting or job.valid_spec.terminating:
        return "it is being ended, so it gets no more nodes"
    if job.valid_spec.suspend:
        return "it is suspended, so it gets no nodes until spec.suspend is false"
    if before := prerequisites_text(state, job):
        return before
    return _why_not_now(state, job)


def _why_not_now(state: State, job: JobRecord) -> str:
    """Why a job with a valid, active spec isn't in the queue."""
    if job.schedule_state == ScheduleState.FAILED:
        return "it was given up, because its quorum doesn't fit even an empty cluster of these nodes"
    left_ms, pods = job.not_before_ms - state.time_ms, earlier_pods_text(state, job)
    if left_ms > 0 and not pods:
        return f"it backs off: it gets no nodes for {left_ms / 1000:g} s more"
    what = awaited_text(awaited(state, job)) or "nothing"
    return f"it gets no nodes yet: it waits for {what}{f' ({pods})' if pods else ''}"
