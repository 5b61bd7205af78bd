"""Checks of JSON values against a declared form, the same as those of the Kubernetes API server.

A check takes a value and its path and yields the faults; it never raises, whatever the JSON. As on the server, a null
for an optional field counts as absent.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from arranger.model.faults import Fault, FaultKind
from arranger.model.near_names import near_names

Faults = Iterator[Fault]
Check = Callable[[Any, str], Faults]

_K = FaultKind

#: JSON schema's type names; a bool is also an int, so it comes first.
_TYPES: tuple[tuple[type, str], ...] = (
    (bool, "boolean"),
    (int, "integer"),
    (float, "number"),
    (str, "string"),
    (dict, "object"),
    (type(None), "null"),
)

#: A quoted value in a message is cut after this many characters.
_QUOTED = 60
#: The name of a field, a label or an annotation is cut if it is longer than this.
_NAMED = 100


def shown(value: object) -> str:
    """A value as quoted in a message: JSON, cut if it is long; objects and lists by their type."""
    if isinstance(value, (dict, list)):
        return json_type(value)
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _QUOTED else f"{text[:_QUOTED]}..."


def json_type(value: object) -> str:
    """The value's type in JSON schema's terms."""
    return next((name for kind, name in _TYPES if isinstance(value, kind)), "array")


def beyond(path: str, kind: FaultKind, value: object, limit: object) -> Fault:
    """The fault of a value beyond a limit."""
    return Fault(path, kind, shown(value), limits=(str(limit),))


def wrong_type(path: str, value: object, expected: str) -> Fault:
    return Fault(path, _K.WRONG_TYPE, json_type(value), limits=(expected,))


def whole(minimum: int, maximum: int) -> Check:
    def check(value: Any, path: str) -> Faults:
        if isinstance(value, bool) or not (isinstance(value, int) or (isinstance(value, float) and value.is_integer())):
            yield wrong_type(path, value, "integer")
        elif value < minimum:
            yield beyond(path, _K.BELOW_MINIMUM, value, minimum)
        elif value > maximum:
            yield beyond(path, _K.ABOVE_MAXIMUM, value, maximum)

    return check


def flag(value: Any, path: str) -> Faults:
    if not isinstance(value, bool):
        yield wrong_type(path, value, "boolean")


def anything(value: Any, path: str) -> Faults:
    """Any JSON value."""
    yield from ()


def text(
    *,
    least: int = 0,
    most: int | None = None,
    form: re.Pattern[str] | None = None,
    fault: FaultKind = _K.WRONG_FORM,
) -> Check:
    """A string of `least` to `most` characters; `form` must match all of it, or `fault` is the fault."""

    def check(value: Any, path: str) -> Faults:
        if not isinstance(value, str):
            yield wrong_type(path, value, "string")
        elif len(value) < least:
            yield beyond(path, _K.TOO_SHORT, value, least)
        elif most is not None and len(value) > most:
            yield Fault(path, _K.TOO_LONG, limits=(str(most),))
        elif form is not None and form.fullmatch(value) is None:
            yield beyond(path, fault, value, form.pattern)

    return check


def one_of(*allowed: str) -> Check:
    def check(value: Any, path: str) -> Faults:
        if not isinstance(value, str):
            yield wrong_type(path, value, "string")
        elif value not in allowed:
            yield Fault(path, _K.NOT_SUPPORTED, shown(value), limits=allowed)

    return check


def items(
    of: Check, *, least: int = 0, most: int | None = None, keys: Sequence[str] = (), unique: bool = False
) -> Check:
    """A list of `least` to `most` items. No two of its objects may have the same values of `keys`, and with `unique` no
    two items may be equal."""

    def check(value: Any, path: str) -> Faults:
        if not isinstance(value, list):
            yield wrong_type(path, value, "array")
            return
        if len(value) < least:
            yield beyond(path, _K.TOO_FEW_ITEMS, len(value), least)
        if most is not None and len(value) > most:
            yield beyond(path, _K.TOO_MANY_ITEMS, len(value), most)
            return
        for position, item in enumerate(value):
            yield from of(item, f"{path}[{position}]")
        if keys:
            yield from _same_keys(value, path, keys)
        elif unique:
            yield from _same_values(value, path)

    return check


def _same_keys(entries: Sequence[Any], path: str, keys: Sequence[str]) -> Faults:
    seen = set()
    for position, item in enumerate(entries):
        names = tuple(item.get(key) for key in keys) if isinstance(item, dict) else ()
        if not names or not all(isinstance(name, str) for name in names):
            continue
        if names in seen:
            told = ", ".join(f"{key} {shown(name)}" for key, name in zip(keys, names, strict=True))
            yield Fault(f"{path}[{position}]", _K.DUPLICATE, told)
        seen.add(names)


def _same_values(entries: Sequence[Any], path: str) -> Faults:
    seen = set()
    for position, item in enumerate(entries):
        if isinstance(item, (dict, list)):
            continue
        if item in seen:
            yield Fault(f"{path}[{position}]", _K.DUPLICATE, shown(item))
        seen.add(item)


def keyed(of: Check, *, most: int | None = None) -> Check:
    """An object with any keys, at most `most`, whose values all pass `of`."""

    def check(value: Any, path: str) -> Faults:
        if not isinstance(value, dict):
            yield wrong_type(path, value, "object")
        elif most is not None and _present(value) > most:
            yield beyond(path, _K.TOO_MANY_ITEMS, _present(value), most)
        else:
            for name in value:
                if value[name] is not None:
                    yield from of(value[name], below(path, name))

    return check


def _present(fields: Mapping[str, Any]) -> int:
    return sum(value is not None for value in fields.values())


def record(
    fields: Mapping[str, Check],
    *,
    required: Sequence[str] = (),
    closed: bool = False,
    least: int = 0,
    most: int | None = None,
) -> Check:
    """An object with `least` to `most` of these fields; `closed` refuses others."""
    order = {name: position for position, name in enumerate(fields)}

    def check(value: Any, path: str) -> Faults:
        if not isinstance(value, dict):
            yield wrong_type(path, value, "object")
            return
        for name in required:
            if value.get(name) is None:
                yield Fault(below(path, name), _K.REQUIRED)
        if least and _present(value) < least:
            yield Fault(path, _K.TOO_FEW_FIELDS, str(_present(value)), limits=(str(least), *fields))
        if most is not None and _present(value) > most:
            yield Fault(path, _K.TOO_MANY_FIELDS, str(_present(value)), limits=(str(most), *fields))
        # Most of a pod's many fields are absent: checking only the present ones takes a fraction of the time.
        for name in sorted((name for name in value if name in order), key=order.__getitem__):
            if value[name] is not None:
                yield from fields[name](value[name], f"{path}.{name}" if path else name)
        if closed and not value.keys() <= order.keys():
            for name in value:
                if name not in fields:
                    known = _nearest_first(str(name), fields)
                    yield Fault(below(path, str(name)), _K.UNKNOWN_FIELD, limits=known)

    return check


def _nearest_first(name: str, known: Iterable[str]) -> tuple[str, ...]:
    """The known names, that with the most similar name first: many of them may be cut."""
    names = tuple(known)
    close = near_names(name, names)
    return (*close, *(of for of in names if of not in close))


def both(first: Check, then: Check) -> Check:
    """`then` checks only values that passed `first`, so it may rely on their types."""

    def check(value: Any, path: str) -> Faults:
        found = list(first(value, path))
        yield from found or then(value, path)

    return check


def below(path: str, name: str) -> str:
    """The path of a field: a long or odd name is cut or quoted."""
    if len(name) > _NAMED:
        name = f"{name[:_QUOTED]}..."
    if not name or " " in name or not name.isprintable():
        name = json.dumps(name)
    return f"{path}.{name}" if path else name
