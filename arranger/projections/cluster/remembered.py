"""A cache of values that depend on the nodes' facts alone: cycles over unchanged nodes compute each value once.

A node table identifies its present facts by a `Version`, which its copies share until they change. The values of a
version are freed together with the last table that has it.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from arranger.projections.cluster.nodes import Version

_Value = TypeVar("_Value")
#: The limit of values for one version; the cache is then cleared, so that memory stays bounded.
_KEPT = 4096


def remembered(version: Version, key: Any, compute: Callable[[], _Value]) -> _Value:
    """The value of `key` for this version, computed on first use."""
    values = version.notes
    found: _Value | None = values.get(key)
    if found is None:
        if len(values) >= _KEPT:
            values.clear()
        found = values[key] = compute()
    return found
