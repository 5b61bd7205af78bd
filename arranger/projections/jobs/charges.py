"""Which restarts count against a limit when a job begins a new attempt."""

from arranger.events.kinds import StageDecided
from arranger.model.job import RestartScope
from arranger.model.stages import StageReason
from arranger.projections.jobs.parts import LEADER, SlotKey
from arranger.projections.jobs.records import JobRecord


def restart_scope(job: JobRecord, group: int) -> RestartScope:
    """What the end of a pod of this group restarts."""
    return job.valid_spec.restart_of(group).scope


def charges(decided: StageDecided) -> bool:
    """Whether the failures of workers that led to this decision count: it restarts the whole job, or the room of the
    failed workers is lost, and so it has a back-off."""
    lost_room = decided.reason == StageReason.WORKERS_LOST and decided.back_off_ms > 0
    return lost_room or decided.reason == StageReason.WORKER_ENDED


def counts_on(job: JobRecord, slot: SlotKey) -> bool:
    """Whether the restarts of a slot count on in the attempt that the last decision begins. Otherwise a job that begins
    an attempt after each failure would never reach its limit."""
    if slot == LEADER or (job.spec is not None and restart_scope(job, slot[0]) == RestartScope.JOB):
        return True
    return job.decided is not None and job.decided.reason == StageReason.WORKERS_LOST and charges(job.decided)
