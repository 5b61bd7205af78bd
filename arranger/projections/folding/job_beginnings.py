"""The beginning of a job's record: as it is observed for the first time, or as its status tells in a new epoch."""

from collections.abc import Iterator

from arranger.events import kinds as k
from arranger.events.facts import AdoptedMessage
from arranger.model.job import ACTIVE, PREEMPTED, READY, JobSpec, JobStatusSeen, PlacedPods, ScheduleState, Stage
from arranger.model.stages import StageReason, reason_of
from arranger.projections.derived import dependencies, job_indexes
from arranger.projections.derived.dependencies import tell_dependents, with_ends
from arranger.projections.folding import provisioning
from arranger.projections.folding.pods_of_jobs import PodsOfJobs
from arranger.projections.jobs.parts import LEADER, JobTimes, SetRecord, SlotKey
from arranger.projections.jobs.records import JobRecord, exists, expand
from arranger.projections.jobs.worker_groups import parted
from arranger.projections.observed.namespace_terms import resolved_spec
from arranger.projections.observed.priorities import resolved, with_priority

#: The values that a status may have; unknown ones, written by another program, are not adopted.
_STAGES = frozenset(Stage)
_SCHEDULE_STATES = frozenset(ScheduleState)


def begin_job(pods: PodsOfJobs, offset: int, event: k.JobSeen) -> None:
    """Begin the record of a job that is observed for the first time."""
    slots, spec = pods.slots, None
    if event.spec is not None:
        selective = resolved_spec(slots.state, event.spec, event.namespace)
        spec = with_ends(slots.state, event.namespace, resolved(slots.state, selective))
    job = JobRecord(event, spec, offset, times=JobTimes(stage_ms=slots.time_ms, scheduled_ms=slots.time_ms))
    slots.state.jobs[event.uid] = job
    job_indexes.enter(slots.state, job)
    slots.state.scheduling_changes += 1
    slots.changes.schedulable = True
    if event.status is not None and event.status.stage in _STAGES:
        _adopt(pods, job, offset, event)
    provisioning.adopt_requests(slots.state, job, slots.time_ms)
    tell_dependents(slots.state, job, slots.changes)
    pods.disown_strangers(job)
    slots.bind_waiting(job)
    slots.note_short(job)
    slots.note_ready(job)
    if slots.state.listed.get(k.Watched.POD):
        job.slots.leaving = ()
        pods.adopt_kept(job)


def _adopt(pods: PodsOfJobs, job: JobRecord, offset: int, event: k.JobSeen) -> None:
    """Go on from the status, which has the decisions of earlier epochs."""
    slots, status = pods.slots, event.status
    assert status is not None
    job.adopted_at = offset
    job.stage = Stage(status.stage)
    if status.schedule_state in _SCHEDULE_STATES:
        job.schedule_state = ScheduleState(status.schedule_state)
    job.attempt, job.leader.restarts = status.attempt, status.restarts
    job.sets = {name: SetRecord(spent) for name, spent in status.worker_restarts if spent}
    job.leader.address = status.leader_address
    job.times.start_ms, job.times.completion_ms = status.start_ms, status.completion_ms
    reason, said = reason_of(status.reason or StageReason.ADOPTED), AdoptedMessage(status.message)
    job.decided = k.StageDecided(event.uid, 0, status.attempt, job.stage, reason, said)
    ours = dict(job.conditions())
    job.times.turned = {of[0]: of[1:] for of in status.turned if of[0] in ours or of[0] == PREEMPTED}
    _adopt_activity(job, status)
    for name, is_so in ours.items():
        if name != READY:  # its pods aren't known yet
            slots.note_condition(job, name, is_so)
    for failure in reversed(status.failures):
        pods.keep_failure(job, failure, first=False)
    for name, ready, failed in status.at_end if job.ended else ():
        job.of_set(name).at_end = (ready, failed)
    if job.spec is None:
        return
    if job.spec.priority_class and job.stage != Stage.PENDING and status.priority is not None:
        job.spec = with_priority(job.spec, status.priority)
    job.spec = dependencies.adopted(job.spec, status)
    _adopt_ends(job, job.spec, status, slots.time_ms)
    if job.ended:
        return
    for slot, node in expand(status.allocations).items():
        if exists(job.spec, slot) and not job.slots.over(slot):
            slots.hold_slot(job, slot, node)
    if (
        job.stage in (Stage.PENDING, Stage.RESCHEDULING) and job.placements and not job.quorum_placed()
    ):  # its spec has changed since
        slots.unschedule(job, job.stage)
    slots.unfinish(job, job.slots.finished.keys() & set(parted(job.spec, job.provided)))
    job.slots.leaving = tuple(_workers_of(job.spec, status.replacing))


def _adopt_ends(job: JobRecord, spec: JobSpec, status: JobStatusSeen, time_ms: int) -> None:
    """Take from a status which workers are given up or have finished, and what is counted for the others."""
    job.slots.give_up(_workers_of(spec, status.given_up))
    finished = expand(tuple(PlacedPods("", group, indices) for group, indices in status.finished))
    kept = [slot for slot in finished if exists(spec, slot) and spec.keeps_finished(slot[0])]
    job.slots.finished = dict.fromkeys(kept)
    for slot, count in _numbers_of(spec, status.charged):
        job.slots.charged[slot] = (count, time_ms)
    job.slots.failed_before = dict(_numbers_of(spec, status.failed_before))


def _adopt_activity(job: JobRecord, status: JobStatusSeen) -> None:
    """Take from a status how long the job was active, and that it is."""
    if status.active_s is not None:
        job.times.active_ms = status.active_s * 1000
        job.times.active_since_ms = job.began_ms if job.stage in ACTIVE else 0


def _numbers_of(
    spec: JobSpec, told: tuple[tuple[int, tuple[tuple[int, int, int], ...]], ...]
) -> Iterator[tuple[SlotKey, int]]:
    """Slot → number, of what a status tells by group and runs of indices."""
    for group, runs in told:
        for first, last, number in runs:
            for index in range(first, min(last + 1, spec.groups[group].count)):
                yield (group, index), number


def _workers_of(spec: JobSpec, told: tuple[tuple[int, tuple[tuple[int, int], ...]], ...]) -> list[SlotKey]:
    """The existing worker slots that a status lists by group and runs of indices."""
    slots = expand(tuple(PlacedPods("", group, indices) for group, indices in told))
    return [slot for slot in slots if slot != LEADER and exists(spec, slot)]
