"""Checks of JSON values against a declared form, with the wording of the Kubernetes API server.

A check takes a value and its path and yields the errors; it never raises, whatever the JSON. As on the server, a null
for an optional field counts as absent.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

#: The code of an error: Kubernetes' codes, as they appear in `details.causes[].reason` of a refusal.
CauseReason = Literal[
    "FieldValueInvalid",
    "FieldValueRequired",
    "FieldValueNotSupported",
    "FieldValueForbidden",
    "FieldValueDuplicate",
    "FieldValueTooLong",
    "FieldValueTooMany",
    "FieldValueTypeInvalid",
]


class FieldError(msgspec.Struct, frozen=True):
    """One wrong field: its path (`spec.priority`), a message with the allowed values, and the code of the cause."""

    field: str
    message: str
    reason: CauseReason = "FieldValueInvalid"

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


Errors = Iterator[FieldError]
Check = Callable[[Any, str], Errors]

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


def invalid(path: str, value: object, reason: str) -> FieldError:
    """An `Invalid value` error in the API server's wording."""
    return FieldError(path, f"Invalid value: {shown(value)}: {reason}")


def wrong_type(path: str, value: object, expected: str) -> FieldError:
    message = f'Invalid value: "{json_type(value)}": must be of type {expected}'
    return FieldError(path, message, "FieldValueTypeInvalid")


def whole(minimum: int, maximum: int) -> Check:
    def check(value: Any, path: str) -> Errors:
        if isinstance(value, bool) or not (isinstance(value, int) or (isinstance(value, float) and value.is_integer())):
            yield wrong_type(path, value, "integer")
        elif value < minimum:
            yield invalid(path, value, f"should be greater than or equal to {minimum}")
        elif value > maximum:
            yield invalid(path, value, f"should be less than or equal to {maximum}")

    return check


def flag(value: Any, path: str) -> Errors:
    if not isinstance(value, bool):
        yield wrong_type(path, value, "boolean")


def anything(value: Any, path: str) -> Errors:
    """Any JSON value."""
    yield from ()


def text(
    *,
    least: int = 0,
    most: int | None = None,
    form: re.Pattern[str] | None = None,
    reason: str = "",
) -> Check:
    """A string of `least` to `most` characters; `form` must match all of it, or `reason` is the error."""

    def check(value: Any, path: str) -> Errors:
        if not isinstance(value, str):
            yield wrong_type(path, value, "string")
        elif len(value) < least:
            yield invalid(path, value, f"should be at least {least} chars long")
        elif most is not None and len(value) > most:
            yield FieldError(path, f"Too long: may not be more than {most} characters", "FieldValueTooLong")
        elif form is not None and form.fullmatch(value) is None:
            yield invalid(path, value, reason)

    return check


def one_of(*allowed: str) -> Check:
    listed = ", ".join(f'"{value}"' for value in allowed)

    def check(value: Any, path: str) -> Errors:
        if not isinstance(value, str):
            yield wrong_type(path, value, "string")
        elif value not in allowed:
            message = f"Unsupported value: {shown(value)}: supported values: {listed}"
            yield FieldError(path, message, "FieldValueNotSupported")

    return check


def items(
    of: Check, *, least: int = 0, most: int | None = None, keys: Sequence[str] = (), unique: bool = False
) -> Check:
    """A list of `least` to `most` items. No two of its objects may have the same values of `keys`, and with `unique` no
    two items may be equal."""

    def check(value: Any, path: str) -> Errors:
        if not isinstance(value, list):
            yield wrong_type(path, value, "array")
            return
        if len(value) < least:
            yield FieldError(path, f"Invalid value: {len(value)}: should have at least {least} items")
        if most is not None and len(value) > most:
            yield FieldError(path, f"Too many: {len(value)}: must have at most {most} items", "FieldValueTooMany")
            return
        for position, item in enumerate(value):
            yield from of(item, f"{path}[{position}]")
        if keys:
            yield from _same_keys(value, path, keys)
        elif unique:
            yield from _same_values(value, path)

    return check


def _same_keys(entries: Sequence[Any], path: str, keys: Sequence[str]) -> Errors:
    seen = set()
    for position, item in enumerate(entries):
        names = tuple(item.get(key) for key in keys) if isinstance(item, dict) else ()
        if not names or not all(isinstance(name, str) for name in names):
            continue
        if names in seen:
            told = ", ".join(f"{key} {shown(name)}" for key, name in zip(keys, names, strict=True))
            message = f"Duplicate value: {told} must be used once"
            yield FieldError(f"{path}[{position}]", message, "FieldValueDuplicate")
        seen.add(names)


def _same_values(entries: Sequence[Any], path: str) -> Errors:
    seen = set()
    for position, item in enumerate(entries):
        if isinstance(item, (dict, list)):
            continue
        if item in seen:
            message = f"Duplicate value: {shown(item)} must be used once"
            yield FieldError(f"{path}[{position}]", message, "FieldValueDuplicate")
        seen.add(item)


def keyed(of: Check, *, most: int | None = None) -> Check:
    """An object with any keys, at most `most`, whose values all pass `of`."""

    def check(value: Any, path: str) -> Errors:
        if not isinstance(value, dict):
            yield wrong_type(path, value, "object")
        elif most is not None and _present(value) > most:
            message = f"Too many: {_present(value)}: must have at most {most} items"
            yield FieldError(path, message, "FieldValueTooMany")
        else:
            for name in value:
                if value[name] is not None:
                    yield from of(value[name], _below(path, name))

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
    listed = ", ".join(fields)
    order = {name: position for position, name in enumerate(fields)}

    def check(value: Any, path: str) -> Errors:
        if not isinstance(value, dict):
            yield wrong_type(path, value, "object")
            return
        for name in required:
            if value.get(name) is None:
                yield FieldError(_below(path, name), "Required value", "FieldValueRequired")
        if least and _present(value) < least:
            yield FieldError(
                path, f"Invalid value: {_present(value)}: should have at least {least} properties: {listed}"
            )
        if most is not None and _present(value) > most:
            message = f"Too many: {_present(value)}: must have at most {most} items: {listed}"
            yield FieldError(path, message, "FieldValueTooMany")
        # Most of a pod's many fields are absent: checking only the present ones takes a fraction of the time.
        for name in sorted((name for name in value if name in order), key=order.__getitem__):
            if value[name] is not None:
                yield from fields[name](value[name], f"{path}.{name}" if path else name)
        if closed and not value.keys() <= order.keys():
            for name in value:
                if name not in fields:
                    yield FieldError(_below(path, str(name)), f"unknown field, known are: {listed}")

    return check


def both(first: Check, then: Check) -> Check:
    """`then` checks only values that passed `first`, so it may rely on their types."""

    def check(value: Any, path: str) -> Errors:
        found = list(first(value, path))
        yield from found or then(value, path)

    return check


def _below(path: str, name: str) -> str:
    if len(name) > _NAMED:
        name = f"{name[:_QUOTED]}..."
    if not name or " " in name or not name.isprintable():
        name = json.dumps(name)
    return f"{path}.{name}" if path else name
