"""Earlier versions of events: as they were written, and how each becomes an event of the present version.

An upcast loses nothing and invents nothing. Version 1 of the decisions on a job held an English sentence where the
present version holds facts; that sentence is kept as it is (`StageFacts.sentence`), because facts can't be had from it.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from arranger.events.facts import NO_FACTS, EndCause, EndKind, StageFacts
from arranger.events.kinds import EndedWorker, Event, StageDecided, WorkersReplaced
from arranger.model.job import Place, Stage
from arranger.model.stages import StageReason

_REASONS = {str(reason): reason for reason in StageReason}


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
    verdicts: int = 0


def reason_of(word: str) -> StageReason:
    """The reason that a word stands for; `OTHER` for one that isn't known here."""
    return _REASONS.get(word, StageReason.OTHER)


def facts_of(sentence: str) -> StageFacts:
    """What is left of a decision whose facts were put into a sentence."""
    return StageFacts(sentence=sentence) if sentence else NO_FACTS


def causes_of(sentence: str) -> tuple[EndCause, ...]:
    """The same for a replacement of workers."""
    return (EndCause(EndKind.LOST, Place(0, 0), 0, sentence=sentence),) if sentence else ()


def stage_decided(old: StageDecidedV1) -> StageDecided:
    """The present version of a decision on the stage."""
    reason, facts = reason_of(old.reason), facts_of(old.message)
    return StageDecided(old.job_uid, old.based_on, old.attempt, old.stage, reason, facts, old.back_off_ms)


def _workers_replaced(old: WorkersReplacedV1) -> WorkersReplaced:
    causes = causes_of(old.message)
    return WorkersReplaced(old.job_uid, old.based_on, old.attempt, old.workers, causes, old.back_off_ms, old.verdicts)


#: From an earlier version of a kind to the present one. An earlier version is readable for as long as it stands here.
UPCASTS: Mapping[type[Any], Callable[[Any], Event]] = MappingProxyType(
    {StageDecidedV1: stage_decided, WorkersReplacedV1: _workers_replaced}
)
