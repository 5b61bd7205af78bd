"""Times as Kubernetes and its users write them."""

from datetime import datetime
from functools import lru_cache
from typing import Any

#: An upper bound for a time in RFC 3339 with fractions of a second and an offset, in characters.
_LONGEST_TIME = 64


def parse_time_ms(text: Any) -> int:
    """An RFC 3339 time, as Kubernetes writes it, in milliseconds since 1970; 0 for anything else."""
    return _parse_time_ms(text) if isinstance(text, str) and len(text) <= _LONGEST_TIME else 0


@lru_cache(maxsize=4096)
def _parse_time_ms(text: str) -> int:
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        return 0
    return round(parsed.timestamp() * 1000) if parsed.tzinfo is not None else 0
