"""What tests ask of the recorded reason why a job waits."""

from arranger.events.facts import BeyondLimit
from arranger.events.kinds import Waits
from arranger.model.quota import QuotaLack


def lacking_quota(waits: Waits | None) -> QuotaLack | None:
    """The limit that has too little left; None if that isn't the reason."""
    return waits.shortage.quota if waits is not None and isinstance(waits.shortage, BeyondLimit) else None
