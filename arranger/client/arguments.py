"""What callers give to the client's methods, checked before anything is sent: an error names the argument and what is
allowed."""

import math
import operator
from collections.abc import Callable
from typing import Any

from arranger.errors import UsageError
from arranger.model.job import Stage
from arranger.model.near_names import near_names

#: How long a shown value may be.
_SHOWN = 60


def whole_number(name: str, value: Any, least: int, most: int) -> int:
    """A whole number, also one of numpy. Raises `UsageError` for anything else, a truth value among it."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or not least <= number <= most:
        raise _wrong(name, f"a whole number from {least} to {most}", value)
    return number


def seconds(name: str, value: Any) -> float | None:
    """A time in seconds; None for none. Raises `UsageError`."""
    try:
        number = None if isinstance(value, str | bytes | bool) else float(value) if value is not None else math.inf
    except (TypeError, ValueError):
        number = None
    if number is None or math.isnan(number):
        raise _wrong(name, "a number of seconds or None", value)
    return None if number == math.inf else number


def text(name: str, value: Any, *, empty: bool = True) -> str:
    """A text, which may be `empty`. Raises `UsageError`."""
    if not isinstance(value, str) or not (value or empty):
        raise _wrong(name, "a text" if empty else "a text that isn't empty", value)
    return value


def function(name: str, value: Callable[..., Any], of: str) -> None:
    """Raise `UsageError` for what can't be called with one `of` these."""
    if not callable(value):
        raise _wrong(name, f"a function of a {of}", value)


def stage(name: Any) -> Stage:
    """The stage of this name. Raises `UsageError`."""
    if isinstance(name, str) and name in [*Stage]:
        return Stage(name)
    close = near_names(name, Stage) if isinstance(name, str) else []
    meant = f"did you mean {close[0]}? " if close else ""
    timeout = "" if isinstance(name, str | list | tuple) else "; timeout_s= is the time to wait"
    raise UsageError(f"there is no stage {_shown(name)}", hint=f"{meant}allowed: {', '.join(Stage)}{timeout}")


def _wrong(name: str, allowed: str, value: Any) -> UsageError:
    return UsageError(f"{name} must be {allowed}, and not {_shown(value)}")


def _shown(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= _SHOWN else f"{shown[: _SHOWN - 3]}..."
