"""Conditions on a job in a state, and the facts that a state has about a job."""

from collections.abc import Callable

from arranger.events import kinds as k
from arranger.messages.decisions import quorum_text
from arranger.messages.shortages import shortage_text
from arranger.model.stages import StageReason
from arranger.model.text import states_text
from arranger.projections.derived.queue_membership import own_priority
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import State
from arranger.replay.bisect.conditions import Condition, Facts
from arranger.replay.reading.describe import describe, pod_counts, priority_text, why_it_waits


class JobIs(Condition):
    """Holds where a job exists and passes `test`."""

    def __init__(self, job: k.JobSeen, text: str, test: Callable[[JobRecord], bool]) -> None:
        subject = f"job {job.namespace}/{job.name}"
        super().__init__(f"{subject} {text}", subject=subject, job_uid=job.uid)
        self._test = test

    def holds(self, state: State) -> bool:
        job = state.jobs.get(self.job_uid)
        return job is not None and self._test(job)

    def facts(self, state: State) -> Facts:
        return facts_of_job(state, self.job_uid)


def in_stage(job: k.JobSeen, stage: str) -> Condition:
    return JobIs(job, f"is {stage}", lambda job: job.stage == stage)


def in_schedule_state(job: k.JobSeen, schedule_state: str) -> Condition:
    return JobIs(job, f"is {schedule_state}", lambda job: job.schedule_state == schedule_state)


def waits(job: k.JobSeen, reason: str = "") -> Condition:
    """Holds where the job, or a part of it, waits for nodes since a cycle recorded why. With `reason`, one of the
    recorded reasons must be about it (`Reason.about`)."""

    def test(job: JobRecord) -> bool:
        said = why_it_waits(job)
        return said is not None and (not reason or any(of.about(reason) for of, _ in said.shortage.reasons))

    return JobIs(job, f"waits because of {reason!r}" if reason else "waits", test)


def placed(job: k.JobSeen) -> Condition:
    return JobIs(job, "has nodes for its quorum", JobRecord.quorum_placed)


def preempted(job: k.JobSeen) -> Condition:
    """Holds where the job gave all its room to another one and has no nodes again yet."""

    def test(job: JobRecord) -> bool:
        return not job.placements and job.decided is not None and job.decided.reason == StageReason.PREEMPTED

    return JobIs(job, "is preempted", test)


class RoomIsReserved(JobIs):
    """Room is reserved for the job."""

    def __init__(self, job: k.JobSeen) -> None:
        super().__init__(job, "has a reservation", lambda job: True)

    def holds(self, state: State) -> bool:
        return self.job_uid in state.reservations


class Infeasible(JobIs):
    """The last recorded reason of the job says that not even an empty cluster has room for its quorum."""

    def __init__(self, job: k.JobSeen) -> None:
        super().__init__(job, "is infeasible", lambda job: job.waits is not None and job.waits.shortage.infeasible)

    def means_something(self, state: State) -> bool:
        job = state.jobs.get(self.job_uid)
        return job is not None and not job.ended


def there(job: k.JobSeen) -> Condition:
    return JobIs(job, "exists", lambda job: True)


def facts_of_job(state: State, uid: str) -> Facts:
    job = state.jobs.get(uid)
    if job is None:
        return {"job": "not there"}
    pods = pod_counts(job)
    there = states_text(pods.running, pods.failed)
    facts = {
        "job": "there",
        "stage": str(job.stage),
        "schedule": str(job.schedule_state),
        "pods": f"{pods.placed} of {job.pods_desired()} have nodes" + (f", {there}" if there else ""),
        "attempt": str(job.attempt),
    }
    if job.spec is not None:
        own = own_priority(job)
        facts["spec"] = f"priority {priority_text(own, own)}, quorum of the leader and {quorum_text(job.spec)}"
        facts["spec"] += ", suspended" if job.spec.suspend else ""
    if job.waits is not None and len(job.placements) < job.pods_desired():
        facts["waits"] = shortage_text(job.waits.shortage)
    if uid in state.reservations:
        facts["reservation"] = describe(state.reservations[uid].decided, state)
    return facts
