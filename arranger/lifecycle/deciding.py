"""A decision on the stage of a job, of its reason and the facts for that."""

from arranger.events.facts import StageFacts
from arranger.events.kinds import StageDecided
from arranger.model.stages import TRANSITIONS, StageReason
from arranger.projections.jobs.records import JobRecord


def decide(job: JobRecord, reason: StageReason, facts: StageFacts | None = None, back_off_ms: int = 0) -> StageDecided:
    """The decision to enter the stage that follows from the present one for this reason."""
    stage = TRANSITIONS[job.stage, reason]
    return StageDecided(job.uid, job.version, job.attempt, stage, reason, facts, back_off_ms)
