"""No job waits without need: after a cycle, one without an order, of each waiting job alone, finds no nodes for it.

A cycle only ever takes room. So a job that fits after it fitted at its own turn, whatever the order was.
"""

from collections.abc import Collection, Iterator

from arranger.events.kinds import CycleTaken
from arranger.model.job import Stage
from arranger.projections.jobs import JobRecord
from arranger.projections.queue_membership import denied
from arranger.projections.state import State
from arranger.scheduling.placer import Placer
from arranger.scheduling.queue import waiting_jobs
from arranger.scheduling.registry import BUILT_IN
from tests.simulation.queue_rules import crowded, unusable


def needless(state: State, cycle: CycleTaken, begun: Collection[str]) -> Iterator[tuple[str, str]]:
    """(UID, the problem) of each job that waits without need, in the state after a cycle. `begun` are the jobs that got
    their first nodes in it, or that it found infeasible: they counted as waiting jobs of their queues."""
    for job in state.jobs.values():
        if job.active and not job.stands_still and job.stage in (Stage.PENDING, Stage.RESCHEDULING):
            why, denial = unusable(state, job), denied(state, job)
            if bool(why) != (denial is not None):
                yield job.uid, f"is it kept out of its queue? {why or 'no'}; but the projection: {denial}"
    waiting = waiting_jobs(state, cycle.time_ms)
    counted = {*begun, *(job.uid for job in waiting if not job.placements)}
    for job in waiting:
        if not job.placements and job.waits is None:
            yield job.uid, "a job waits without a reason"
        elif _fits(state, cycle, job) and (job.placements or not crowded(state, job, counted)):
            yield job.uid, f"a job waits, though a cycle of this job alone places it: {job.waits}"


def _fits(state: State, cycle: CycleTaken, job: JobRecord) -> bool:
    """Whether a cycle of this job alone gives it nodes."""
    placer = Placer(state, cycle.config, BUILT_IN, time_ms=cycle.time_ms)
    tried = placer.quorum(job)
    if tried.quorum_stands:
        placer.further(tried, None)
    return bool(tried.pieces)
