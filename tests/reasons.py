"""What tests ask of recorded reasons: why a job waits, and why it entered a stage."""

from types import NoneType
from typing import Any, get_args

from arranger.events.facts import FACTS, BeyondLimit
from arranger.events.kinds import StageDecided, Waits
from arranger.model.quota import QuotaLack
from arranger.model.stages import StageReason


def lacking_quota(waits: Waits | None) -> QuotaLack | None:
    """The limit that has too little left; None if that isn't the reason."""
    return waits.shortage.quota if waits is not None and isinstance(waits.shortage, BeyondLimit) else None


def facts_of(reason: StageReason) -> tuple[type[Any], ...]:
    """The types of the facts that decisions for this reason have; that of None for none."""
    kinds = FACTS.get(reason, NoneType)
    return get_args(kinds) or (kinds,)


def has_its_facts(decided: StageDecided) -> bool:
    """Whether a decision has facts that belong to its reason."""
    return isinstance(decided.facts, facts_of(decided.reason))
