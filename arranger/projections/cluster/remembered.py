"""A cache of values that depend on the nodes' facts alone: cycles over unchanged nodes compute each value once.

A node table identifies its present facts by a `Version`, which its copies share until they change. The values of a
version are freed together with the last table that has it.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from arranger.projections.cluster.nodes import Version

_Value = TypeVar("_Value")
#: How many bytes of values one version keeps before those that weren't asked for since the last time are dropped: so
#: twice as much at most. A value without arrays counts as so many.
_KEPT_BYTES, _SMALL_BYTES = 32 << 20, 512


def remembered(version: Version, key: Any, compute: Callable[[], _Value]) -> _Value:
    """The value of `key` for this version, computed on first use."""
    found: _Value | None = version.notes.get(key)
    if found is None:
        found = version.older.pop(key, None)
        if found is None:
            found = compute()
        if version.size > _KEPT_BYTES:
            version.notes, version.older, version.size = {}, version.notes, 0
        version.notes[key] = found
        version.size += _bytes_of(found)
    return found


def _bytes_of(value: object) -> int:
    parts = value if isinstance(value, tuple) else (value,)
    return _SMALL_BYTES + sum(part.nbytes for part in parts if isinstance(part, np.ndarray))
