"""What follows from the nodes' facts alone, kept until a fact changes: a cycle over unchanged nodes computes it once.

A node table names its present facts by a `Version`, and copies of it have the same one until they change. What was
computed for a version goes with the last table that has it.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from arranger.projections.nodes import Version

_Value = TypeVar("_Value")
#: Values kept for one version; beyond that they are computed again, so that memory stays bounded.
_KEPT = 4096


def remembered(version: Version, key: Any, compute: Callable[[], _Value]) -> _Value:
    """The value of `key` for this version."""
    values = version.notes
    found: _Value | None = values.get(key)
    if found is None:
        if len(values) >= _KEPT:
            values.clear()
        found = values[key] = compute()
    return found
