"""Earlier versions of events: their format, and their conversion to the present version.

There are none yet. When a kind of event gets a new version, its old struct moves here with its old tag, under a name
with its version (`StageDecidedV1`). `UPCASTS` gets the function that makes the present kind of it. An upcast loses
nothing and invents nothing. `tests/unit/test_codec.py` shows one, and `tests/next_release.py` one in a whole release.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from arranger.events.kinds import Event

#: From an earlier version of a kind to the present one. An earlier version is readable as long as it is listed here.
UPCASTS: Mapping[type[Any], Callable[[Any], Event]] = MappingProxyType({})
