"""Earlier versions of events: their format, and their conversion to the present version.

An upcast loses nothing and invents nothing. Version 1 of the decisions and of `JobSeen` had English sentences where the
present version has facts. Why a cycle found no nodes is parsed from its sentence (`arranger.events.earlier_sentences`),
because `verify` compares it with the same cycle run again. Of the others, a sentence that said no more than its reason
is dropped. Any other is kept as it is (`StageFacts.sentence`, `FaultKind.RECORDED`), because not all facts can be
parsed from it.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from arranger.events.earlier_sentences import shortage_of
from arranger.events.facts import NO_FACTS, EndCause, EndKind, StageFacts
from arranger.events.kinds import EndedWorker, Event, JobSeen, Placed, StageDecided, Waits, WorkersReplaced
from arranger.model.faults import Fault, FaultKind
from arranger.model.job import JobSpec, JobStatusSeen, PlacedPods, ScheduleState, Slot, Stage
from arranger.model.quota import QuotaLack
from arranger.model.stages import StageReason

_REASONS = {str(reason): reason for reason in StageReason}


class JobSeenV1(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="JobSeen.1"):
    """`invalid` was a sentence."""

    term: int
    namespace: str
    name: str
    uid: str
    resource_version: str
    generation: int
    created_ms: int
    deleting: bool
    spec: JobSpec | None
    invalid: str
    status_digest: str
    status: JobStatusSeen | None = None


class StageDecidedV1(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="StageDecided.1"):
    """`reason` was any word, `message` a sentence."""

    job_uid: str
    based_on: int
    attempt: int
    stage: Stage
    reason: str
    message: str
    back_off_ms: int = 0


class WorkersReplacedV1(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="WorkersReplaced.1"):
    """`message` was a sentence."""

    job_uid: str
    based_on: int
    attempt: int
    workers: tuple[EndedWorker, ...]
    message: str
    back_off_ms: int = 0


class PlacedV1(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="Placed.1"):
    """`message` counted the pods and nodes."""

    job_uid: str
    based_on: int
    attempt: int
    schedule_state: ScheduleState
    pods: tuple[PlacedPods, ...]
    message: str


class WaitsV1(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="Waits.1"):
    """`group` was the number of the worker set, whose name was in `message`; `reasons` were phrases."""

    job_uid: str
    based_on: int
    schedule_state: ScheduleState
    infeasible: bool
    group: int
    reasons: tuple[tuple[str, int], ...]
    message: str
    quota: QuotaLack | None = None


def reason_of(word: str) -> StageReason:
    """The reason for a word; `OTHER` for an unknown one."""
    return _REASONS.get(word, StageReason.OTHER)


#: The sentences of version 1 for reasons that need no facts.
_SENTENCES = {
    StageReason.SCHEDULED: "its quorum has nodes; the leader is started first",
    StageReason.WORKERS_READY: "the leader runs and enough workers are ready",
    StageReason.LEADER_SUCCEEDED: "the leader has finished",
    StageReason.LEADER_LOST: "the leader's pod is gone; scheduled again",
    StageReason.TERMINATED: "ended by spec.terminating",
    StageReason.SUSPENDED: "suspended by spec.suspend; it holds no nodes",
    StageReason.RESUMED: "resumed; waits for the next scheduling cycle",
    StageReason.DELETED: "it is being deleted; places without a pod are given up",
    StageReason.TEMPLATE_EDITED: (
        "its template was edited before its status told that it starts; scheduled again with that"
    ),
}


def facts_of(reason: StageReason, sentence: str) -> StageFacts:
    """The facts of a decision of version 1: its sentence, unless that said no more than the reason."""
    plain = not sentence or sentence == _SENTENCES.get(reason)
    return NO_FACTS if plain else StageFacts(sentence=sentence)


def causes_of(sentence: str) -> tuple[EndCause, ...]:
    """The same for a replacement of workers."""
    return (EndCause(EndKind.LOST, Slot(0, 0), 0, sentence=sentence),) if sentence else ()


def job_seen(old: JobSeenV1) -> JobSeen:
    """The observation with the sentence about a wrong spec as its only fault."""
    head = (old.term, old.namespace, old.name, old.uid, old.resource_version, old.generation, old.created_ms)
    faults = (Fault("", FaultKind.RECORDED, old.invalid),) if old.invalid else ()
    return JobSeen(*head, old.deleting, old.spec, faults, old.status_digest, old.status)


def stage_decided(old: StageDecidedV1) -> StageDecided:
    reason = reason_of(old.reason)
    facts = facts_of(reason, old.message)
    return StageDecided(old.job_uid, old.based_on, old.attempt, old.stage, reason, facts, old.back_off_ms)


def waits(old: WaitsV1) -> Waits:
    shortage = shortage_of(old.message, old.reasons, group=old.group, infeasible=old.infeasible, quota=old.quota)
    return Waits(old.job_uid, old.based_on, old.schedule_state, shortage)


def _placed(old: PlacedV1) -> Placed:
    return Placed(old.job_uid, old.based_on, old.attempt, old.schedule_state, old.pods)


def _workers_replaced(old: WorkersReplacedV1) -> WorkersReplaced:
    causes = causes_of(old.message)
    return WorkersReplaced(old.job_uid, old.based_on, old.attempt, old.workers, causes, old.back_off_ms)


#: From an earlier version of a kind to the present one. An earlier version is readable as long as it is listed here.
UPCASTS: Mapping[type[Any], Callable[[Any], Event]] = MappingProxyType(
    {
        JobSeenV1: job_seen,
        StageDecidedV1: stage_decided,
        WorkersReplacedV1: _workers_replaced,
        PlacedV1: _placed,
        WaitsV1: waits,
    }
)
