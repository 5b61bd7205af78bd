"""How far tests go: `make test` as far as nine minutes of two processors allow, `make soak` further."""

import os
from typing import TypeVar

_Extent = TypeVar("_Extent")

SOAK = os.environ.get("SOAK") == "1"


def extent(test: _Extent, soak: _Extent) -> _Extent:
    """How many seeds, jobs or seconds a test takes with `make test` and with `make soak`."""
    return soak if SOAK else test
