"""Validation of custom resources by the schema in their CRD: pruning, defaults, values and CEL rules.

The wording is the real API server's, because users read it at `kubectl apply`.
"""

import copy
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import msgspec
from msgspec.structs import replace

from arranger.model.checks import json_type
from arranger.sandbox.rules import CelRule, Scope
from arranger.sandbox.status import FieldError

#: Causes that prevent the evaluation of rules, as on the real server.
_BLOCKING = frozenset(f"FieldValue{how}" for how in ("NotSupported", "Required", "TooLong", "TooMany", "TypeInvalid"))
_UNCHECKED = (
    "Invalid value: null: some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation"
)
#: The number of valid values that are cached for one schema.
_GOOD_KEPT = 1024
_METADATA = ("apiVersion", "kind", "metadata")
_ALTERNATIVES = {"anyOf": "at least one schema", "oneOf": "one and only one schema", "allOf": "all the schemas"}


def _child(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _pattern(text: str) -> re.Pattern[str]:
    # Go's `$` matches only at the end of the text; Python's also matches before a final newline.
    ends = text.endswith("$") and not text.endswith("\\$")
    return re.compile(text.removesuffix("$") + r"\Z" if ends else text, re.ASCII)


@lru_cache(maxsize=1024)
def _rule(declared: bytes) -> CelRule:
    """One rule, compiled once: a TYJob's schema contains a pod's rules several times."""
    return CelRule(msgspec.json.decode(declared))


def _same(value: Any, old: Any) -> bool:
    """Whether two JSON values are the same; 1 and true aren't."""
    return bool(value == old) and msgspec.json.encode(value) == msgspec.json.encode(old)


class Schema:
    """A compiled structural schema. Raises `ValueError` for a rule or pattern that can't be compiled."""

    def __init__(self, declared: dict[str, Any]) -> None:
        self.declared = declared
        self.type: str = declared.get("type", "")
        self.properties = {name: Schema(sub) for name, sub in (declared.get("properties") or {}).items()}
        extra = declared.get("additionalProperties")
        self.extra = Schema(extra) if isinstance(extra, dict) else None
        self.preserves = declared.get("x-kubernetes-preserve-unknown-fields", False) or extra is True
        self.embedded = declared.get("x-kubernetes-embedded-resource", False)
        self.items = Schema(declared["items"]) if "items" in declared else None
        self.required: list[str] = declared.get("required") or []
        self.nullable = declared.get("nullable", False)
        self.int_or_string = declared.get("x-kubernetes-int-or-string", False)
        self.list_type: str = declared.get("x-kubernetes-list-type", "")
        self.map_keys: list[str] = declared.get("x-kubernetes-list-map-keys") or []
        self.rules = [_rule(msgspec.json.encode(rule)) for rule in declared.get("x-kubernetes-validations") or []]
        self._scope = Scope(self.rules) if self.rules else None
        self._compares = any(rule.is_transition for rule in self.rules)
        #: What the rules read of values that satisfy all of them; if a rule compares, with the value before.
        self._good: set[bytes] = set()
        self._pattern = _pattern(declared["pattern"]) if "pattern" in declared else None
        self._alternatives = {
            name: [Schema(option) for option in declared[name]] for name in _ALTERNATIVES if name in declared
        }
        below = (*self.properties.values(), self.extra, self.items)
        #: Whether this schema or any below it has rules.
        self.has_rules: bool = bool(self.rules) or any(sub is not None and sub.has_rules for sub in below)

    def _parts(self, value: Any, path: str) -> Iterator[tuple["Schema", Any, str]]:
        """Every part of this value that has a schema, with that and its path."""
        if isinstance(value, dict):
            for name, sub in self.properties.items():
                if name in value:
                    yield sub, value[name], _child(path, name)
            if self.extra is not None:
                for name, part in value.items():
                    if name not in self.properties:
                        yield self.extra, part, _child(path, name)
        elif isinstance(value, list) and self.items is not None:
            for index, part in enumerate(value):
                yield self.items, part, f"{path}[{index}]"

    def prune(self, value: Any, path: str = "") -> list[str]:
        """Remove fields that the schema doesn't have, in place; returns their paths."""
        unknown = []
        if isinstance(value, dict) and not self.preserves and self.extra is None:
            implied = _METADATA if self.embedded or not path else ()
            for name in [name for name in value if name not in self.properties and name not in implied]:
                del value[name]
                unknown.append(_child(path, name))
        for sub, part, where in self._parts(value, path):
            if path or where != "metadata":
                unknown += sub.prune(part, where)
        return unknown

    def default(self, value: Any) -> None:
        """Fill in defaults, in place; a null counts as absent if the field isn't nullable."""
        if isinstance(value, dict):
            for name, sub in self.properties.items():
                if name in value and value[name] is None and not sub.nullable:
                    del value[name]
                if "default" in sub.declared and name not in value:
                    value[name] = copy.deepcopy(sub.declared["default"])
            if self.extra is not None and not self.extra.nullable:
                for name in [name for name, part in value.items() if part is None and name not in self.properties]:
                    del value[name]
        for sub, part, _ in self._parts(value, ""):
            sub.default(part)

    def errors(self, value: Any, path: str = "", old: Any = None) -> list[FieldError]:
        """The errors in the value and everything below it, without rules. Fields that the `old` value has in the same
        way aren't checked again, as on the real server (ratcheting)."""
        if value is None and self.nullable:
            return []
        if not self._right_type(value):
            name = json_type(value)
            expected = self.type or "integer,string"
            text = f'Invalid value: "{name}": {path} in body must be of type {expected}: "{name}"'
            return [FieldError(path, text, "FieldValueTypeInvalid")]
        found = [*self._missing(value, path), *self._wrong_value(value, path), *self._wrong_size(value, path)]
        for sub, part, where in self._parts(value, path):
            name = where.rpartition(".")[2]
            if not (part is None and name in self.required) and not (old is not None and _same(part, old.get(name))):
                found += sub.errors(part, where)
        return [*found, *self._duplicates(value, path), *self._wrong_alternatives(value, path)]

    def _right_type(self, value: Any) -> bool:
        if self.int_or_string:
            # The server parses a number beyond 64 bits as a float.
            return isinstance(value, str) or (type(value) is int and -(1 << 63) <= value < 1 << 63)
        if not self.type:
            return True
        name = json_type(value)
        if isinstance(value, float) and value.is_integer() and self.type == "integer":
            return True
        return name == self.type or (self.type == "number" and name == "integer")

    def _missing(self, value: Any, path: str) -> Iterator[FieldError]:
        for name in self.required if isinstance(value, dict) else ():
            nullable = name in self.properties and self.properties[name].nullable
            if name not in value or (value[name] is None and not nullable):
                yield required(_child(path, name))

    def _wrong_value(self, value: Any, path: str) -> Iterator[FieldError]:
        options = self.declared.get("enum")
        if options is not None and value not in options:
            supported = ", ".join(f'"{option if isinstance(option, str) else _json(option)}"' for option in options)
            text = f"Unsupported value: {_json(value)}: supported values: {supported}"
            yield FieldError(path, text, "FieldValueNotSupported")
        if isinstance(value, str):
            yield from self._wrong_text(value, path)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield from self._out_of_range(value, path)

    def _wrong_text(self, value: str, path: str) -> Iterator[FieldError]:
        rules = self.declared
        if len(value) > rules.get("maxLength", len(value)):
            yield FieldError(path, f"Too long: may not be more than {rules['maxLength']} bytes", "FieldValueTooLong")
        elif len(value) < rules.get("minLength", 0):
            yield wrong(path, value, f"{path} in body should be at least {rules['minLength']} chars long")
        elif self._pattern is not None and self._pattern.search(value) is None:
            yield wrong(path, value, f"{path} in body should match '{rules['pattern']}'")

    def _out_of_range(self, value: float, path: str) -> Iterator[FieldError]:
        low, high = self.declared.get("minimum"), self.declared.get("maximum")
        strict_low = self.declared.get("exclusiveMinimum", False)
        strict_high = self.declared.get("exclusiveMaximum", False)
        if low is not None and (value < low or (strict_low and value == low)):
            limit = f"greater than {low}" if strict_low else f"greater than or equal to {low}"
            yield FieldError(path, f"Invalid value: {value}: {path} in body should be {limit}")
        if high is not None and (value > high or (strict_high and value == high)):
            limit = f"less than {high}" if strict_high else f"less than or equal to {high}"
            yield FieldError(path, f"Invalid value: {value}: {path} in body should be {limit}")
        bits = {"int32": 31, "int64": 63}.get(self.declared.get("format", ""))
        if bits is not None and not -(1 << bits) <= value < 1 << bits:
            why = f"Checked value must be of type integer with format int{bits + 1} in {path}"
            yield FieldError("<nil>", f'Invalid value: "": {why}')
        step = self.declared.get("multipleOf")
        if step and value % step:
            yield FieldError(path, f"Invalid value: {value}: {path} in body should be a multiple of {step}")

    def _wrong_size(self, value: Any, path: str) -> Iterator[FieldError]:
        if not isinstance(value, list | dict):
            return
        what = "items" if isinstance(value, list) else "properties"
        most, least = self.declared.get(f"max{what.title()}"), self.declared.get(f"min{what.title()}")
        if most is not None and len(value) > most:
            yield FieldError(path, f"Too many: {len(value)}: must have at most {most} items", "FieldValueTooMany")
        if least is not None and len(value) < least:
            yield FieldError(path, f"Invalid value: {len(value)}: {path} in body should have at least {least} {what}")

    def _duplicates(self, value: Any, path: str) -> Iterator[FieldError]:
        if not isinstance(value, list) or self.list_type not in ("map", "set"):
            return
        seen: list[Any] = []
        for index, item in enumerate(value):
            key = self._key(item)
            if key in seen:
                yield FieldError(f"{path}[{index}]", f"Duplicate value: {_json(key)}", "FieldValueDuplicate")
            seen.append(key)

    def _key(self, item: Any) -> Any:
        if self.list_type == "map" and isinstance(item, dict):
            return {name: item.get(name) for name in self.map_keys}
        return item

    def _wrong_alternatives(self, value: Any, path: str) -> Iterator[FieldError]:
        if self.int_or_string:
            return
        for name, options in self._alternatives.items():
            fitting = sum(not option.errors(value, path) for option in options)
            enough = {"anyOf": fitting >= 1, "oneOf": fitting == 1, "allOf": fitting == len(options)}[name]
            if not enough:
                text = f"{path} in body must validate {_ALTERNATIVES[name]} ({name})"
                yield FieldError(path, f'Invalid value: "{json_type(value)}": {text}')

    def broken_rules(self, value: Any, old: Any, path: str = "") -> list[FieldError]:
        """The errors of the CEL rules, here and below; `old` is the value before the update, None on create."""
        if not self.has_rules or value is None:
            return []
        found = self._own_rules(value, old, path)
        for sub, part, where in self._parts(value, path):
            found += sub.broken_rules(part, self._before(old, part, where), where)
        return found

    def _own_rules(self, value: Any, old: Any, path: str) -> list[FieldError]:
        scope = self._scope
        if scope is None:
            return []
        read = scope.read(value, old if self._compares else None)
        content = msgspec.json.encode(read)
        if content in self._good:
            return []  # most templates have the same requests as others, and most updates concern other fields
        scope.enter(*read)
        broken = [rule.broken(scope, path, json_type(value)) for rule in self.rules]
        found = [error for error in broken if error is not None]
        if not found:
            if len(self._good) >= _GOOD_KEPT:
                self._good.clear()
            self._good.add(content)
        return found

    def _before(self, old: Any, part: Any, where: str) -> Any:
        """The old value that corresponds to a part: by name in objects, by key in lists of type map."""
        if isinstance(old, dict):
            return old.get(where.rpartition(".")[2])
        if isinstance(old, list) and self.list_type == "map":
            return next((item for item in old if self._key(item) == self._key(part)), None)
        return None

    def verdict(self, value: Any, old: Any, known: list[FieldError]) -> list[FieldError]:
        """All errors in a whole object: the `known` ones, those of its values and, if these allow it, of its rules."""
        found = known + self.errors(value, old=old)
        if not self.has_rules:
            return found
        if any(error.reason in _BLOCKING for error in found):
            return [*found, FieldError("<nil>", _UNCHECKED)]
        broken = self.broken_rules(value, old)
        return found + [replace(error, field=error.field.removeprefix(".") or "<nil>") for error in broken]


def required(path: str, message: str = "") -> FieldError:
    return FieldError(path, f"Required value: {message}" if message else "Required value", "FieldValueRequired")


def wrong(path: str, value: Any, why: str) -> FieldError:
    return FieldError(path, f"Invalid value: {_json(value)}: {why}")


def unsupported(path: str, value: Any, supported: tuple[str, ...]) -> FieldError:
    listed = ", ".join(_json(option) for option in supported)
    text = f"Unsupported value: {_json(value)}: supported values: {listed}"
    return FieldError(path, text, "FieldValueNotSupported")
