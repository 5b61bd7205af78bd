"""The annotations of TYJobs and of their pods that Arranger reads, beside those about the creator."""

from collections.abc import Mapping
from typing import Any

from arranger.kube.times import parse_time_ms
from arranger.model.names import CHECKPOINT_ANNOTATION, PERMITS_ANNOTATION
from arranger.model.text import first_line

#: More permits of one TYJob don't count, and longer ones are cut: an annotation may have 256 KiB.
_MOST_PERMITS = 32
_LONGEST_PERMIT = 63


def checkpoint_ms(metadata: Mapping[str, Any]) -> int:
    """The time of the last checkpoint, in milliseconds since 1970; 0 without one."""
    annotations = metadata.get("annotations")
    return max(parse_time_ms(annotations.get(CHECKPOINT_ANNOTATION)), 0) if annotations else 0


def permits_of(metadata: Mapping[str, Any]) -> tuple[str, ...]:
    """What a TYJob is permitted, each word once, sorted. This never raises, whatever the annotation contains."""
    text = (metadata.get("annotations") or {}).get(PERMITS_ANNOTATION)
    if not isinstance(text, str):
        return ()
    words = (first_line(word, _LONGEST_PERMIT) for word in text.split(",", _MOST_PERMITS)[:_MOST_PERMITS])
    return tuple(sorted({word for word in words if word}))
