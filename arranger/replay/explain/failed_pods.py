"""The pods of a job whose containers failed last: how often, with which exit code, and when they are tried again.

The facts are those of `status.lastFailures`, which the log has too.
"""

from collections.abc import Mapping

import msgspec

from arranger.events.kinds import PodSeen
from arranger.lifecycle.config import LifecycleConfig
from arranger.lifecycle.replacements import awaits_decision, outlook, restart_limit
from arranger.messages.decisions import limit_text
from arranger.messages.failures import Again, again_text, failed_times_text
from arranger.model.job import LEADER_GROUP, Stage
from arranger.model.names import pod_name
from arranger.model.pod import TERMINAL, ContainerEnd, Failure
from arranger.projections.jobs.parts import SlotKey
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import State


class FailedPod(msgspec.Struct, frozen=True):
    """A pod whose containers failed, `times` times as far as that is known, last at `last_ms` as `ended` says. `again`
    says in words what becomes of it, "" if another pod has its place; `again_ms` is when it, or its job, is tried
    again, or given up, at the earliest, 0 if that isn't known or is past. Times are in milliseconds since 1970."""

    pod: str
    node: str
    times: int
    last_ms: int
    ended: ContainerEnd
    text: str
    again: str
    again_ms: int


def failed_pods(state: State, job: JobRecord, seen: Mapping[str, int]) -> tuple[FailedPod, ...]:
    """The pods of the last failures of a job that hasn't ended, the newest first. `seen`: pod name → how often it has
    failed as far as it was observed; a job keeps only its last failures."""
    if job.ended or job.spec is None:
        return ()
    by_pod: dict[str, list[Failure]] = {}
    for failure in job.last_failures():
        group = failure.worker_set or job.spec.groups[LEADER_GROUP].name
        name = pod_name(job.seen.name, group, failure.index, failure.attempt, failure.failed_before)
        by_pod.setdefault(name, []).append(failure)
    return tuple(_failed_pod(state, job, name, failures, seen.get(name, 0)) for name, failures in by_pod.items())


def _failed_pod(state: State, job: JobRecord, name: str, failures: list[Failure], seen: int) -> FailedPod:
    last, slot, due_ms = failures[0], _slot(job, failures[0]), 0
    pod = state.pods.get(job.bound.get(slot, "")) if slot is not None else None
    pod = pod if pod is not None and pod.name == name else None
    again, due_ms = _again(state, job, last, slot, pod)
    times = max(len(failures), seen)
    limit = limit_text(restart_limit(job.valid_spec, slot[0])) if slot is not None else ""
    text, then = failed_times_text(times, last.ended), again_text(again, due_ms, pod, limit)
    return FailedPod(name, last.node, times, last.time_ms, last.ended, text, then, due_ms)


def _slot(job: JobRecord, failure: Failure) -> SlotKey | None:
    """The slot that the failed pod had, if the job still has it."""
    for number, group in enumerate(job.valid_spec.groups):
        if failure.worker_set == (group.name if number != LEADER_GROUP else "") and failure.index < group.count:
            return (number, failure.index)
    return None


def _again(state: State, job: JobRecord, last: Failure, slot: SlotKey | None, pod: PodSeen | None) -> tuple[Again, int]:
    """What becomes of a pod that failed, and when, if that is known; `pod` is its present state if it has its slot."""
    if job.stage in (Stage.PENDING, Stage.RESCHEDULING):
        waits = job.not_before_ms > state.time_ms and last.attempt == job.attempt - 1
        return (Again.WITH_JOB, job.not_before_ms) if waits else (Again.NOT, 0)
    if last.attempt == job.attempt and slot in job.slots.given_up:
        return Again.GIVEN_UP, 0
    if pod is None:
        return Again.NOT, 0
    if slot is not None and last.worker_set and awaits_decision(job, slot, pod):
        return outlook(job, slot, LifecycleConfig(), state.time_ms)
    if pod.phase in TERMINAL or pod.deleting:
        return Again.NOT, 0
    if pod.waiting:
        return Again.BY_KUBELET, 0
    return Again.READY if pod.ready else Again.RUNS, 0
