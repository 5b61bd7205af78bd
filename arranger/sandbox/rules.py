"""`x-kubernetes-validations`: a CRD's rules in CEL, with Kubernetes' own functions for lists and quantities."""

import itertools
import logging
import re
from collections.abc import Callable, Iterable
from typing import Any

import cel
import cel.stdlib

from arranger.model.quantity import exact, is_integer
from arranger.sandbox.status import CauseReason, FieldError

# An evaluation error is reported to the author of the object and is no warning for the operator of the server.
logging.getLogger("cel").setLevel(logging.ERROR)

_REASONS: dict[str, tuple[CauseReason, str]] = {
    "FieldValueInvalid": ("FieldValueInvalid", "Invalid value: "),
    "FieldValueForbidden": ("FieldValueForbidden", "Forbidden: "),
    "FieldValueRequired": ("FieldValueRequired", "Required value: "),
    "FieldValueDuplicate": ("FieldValueDuplicate", "Duplicate value: "),
}


def _index_of(items: Any, item: Any) -> int:
    if isinstance(items, str):
        return items.find(item)
    return items.index(item) if item in items else -1


def _last_index_of(items: Any, item: Any) -> int:
    if isinstance(items, str):
        return items.rfind(item)
    return len(items) - 1 - items[::-1].index(item) if item in items else -1


def _quantity(text: str) -> str:
    """Return a quantity as the same text; raises `ValueError` for any other text."""
    exact(text)
    return text


#: Functions that Kubernetes adds to CEL's own.
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "sum": sum,
    "isSorted": lambda items: all(left <= right for left, right in itertools.pairwise(items)),
    "indexOf": _index_of,
    "lastIndexOf": _last_index_of,
    "distinct": lambda items: [item for at, item in enumerate(items) if item not in items[:at]],
    # `%s` and `%d` for texts and whole numbers; clauses for other types aren't supported.
    "format": lambda text, values: text.replace("%d", "%s") % tuple(values),
    "quantity": _quantity,
    "isInteger": is_integer,
    "compareTo": lambda left, right: (exact(left) > exact(right)) - (exact(left) < exact(right)),
    "isGreaterThan": lambda left, right: exact(left) > exact(right),
}


#: Where an expression reads the value or the one before: the fields from there on. Before a parenthesis, the last name
#: is a function.
_READ = re.compile(r"(?<![\w.])(self|oldSelf)\b((?:\s*\.\s*[A-Za-z_]\w*)*)(\s*\()?")
#: The fields that expressions read, by name, each with those that they read of it; None if they read all of it.
_Fields = dict[str, "_Fields | None"]


def _fields_of(expressions: Iterable[str], variable: str) -> _Fields | None:
    """The fields of a variable that any of these expressions may read."""
    fields: _Fields = {}
    for found in itertools.chain.from_iterable(map(_READ.finditer, expressions)):
        names = [name.strip() for name in found[2].split(".")[1:]]
        if found[1] != variable or names == ["hasValue"]:
            continue
        path = names[:-1] if found[3] else names
        if not path:
            return None
        below: _Fields | None = fields
        for name in path[:-1]:
            below = below.setdefault(name, {}) if below is not None else None
        if below is not None:
            below[path[-1]] = None
    return fields


def _read(value: Any, fields: _Fields | None) -> Any:
    """The part of a value that consists of these fields."""
    if fields is None or not isinstance(value, dict):
        return value
    return {name: _read(value[name], below) for name, below in fields.items() if name in value}


class Scope:
    """The context in which the rules of one schema are evaluated: the value, passed to CEL once for all of them.

    Passing a value costs more than most rules, and so does registering the functions: each is done only once. Fields
    that no rule reads aren't passed.
    """

    def __init__(self, rules: "Iterable[CelRule]") -> None:
        expressions = [expression for rule in rules for expression in rule.expressions]
        self._reads = {name: _fields_of(expressions, name) for name in ("self", "oldSelf")}
        self._context = cel.Context()
        cel.stdlib.add_stdlib_to_context(self._context)
        for name, function in _FUNCTIONS.items():
            self._context.add_function(name, function)
        self._old: Any = None
        #: Whether there was no value before.
        self.is_new = True
        #: The form of the old value in the context: "" if it isn't this value's.
        self._held = ""

    def read(self, value: Any, old: Any) -> tuple[Any, Any]:
        """What the rules read of a value and of the one before."""
        return _read(value, self._reads["self"]), _read(old, self._reads["oldSelf"])

    def enter(self, value: Any, old: Any) -> None:
        """Set the value for the rules, as `read` gives it; `old` is None if there was no value before."""
        self._context.add_variable("self", value)
        self._old = old
        self.is_new = old is None
        self._held = ""

    def context(self, rule: "CelRule") -> cel.Context:
        """The context of one rule, with the form of `oldSelf` that it needs."""
        expected = "optional" if rule.optional_old else "plain" if rule.is_transition else self._held
        if expected != self._held:
            old = self._old
            if expected == "optional":
                old = cel.OptionalValue.none() if old is None else cel.OptionalValue.of(old)
            self._context.add_variable("oldSelf", old)
            self._held = expected
        return self._context


#: What an evaluation may raise; an API server refuses the object then.
_FAILURES = (ValueError, TypeError, RuntimeError, KeyError, IndexError, ArithmeticError)


class CelRule:
    """One compiled rule. Raises `ValueError` if its expression can't be compiled."""

    def __init__(self, declared: dict[str, Any]) -> None:
        self.source: str = declared["rule"]
        self._program = cel.compile(self.source)
        expression = declared.get("messageExpression")
        self._message_program = cel.compile(expression) if expression else None
        #: Everything that is evaluated.
        self.expressions = (self.source, *([expression] if expression else []))
        self._message: str = declared.get("message") or f"failed rule: {self.source.strip()}"
        self._field: str = declared.get("fieldPath", "")
        self._reason, self._prefix = _REASONS[declared.get("reason", "FieldValueInvalid")]
        self.optional_old: bool = declared.get("optionalOldSelf", False)
        #: Whether it compares with the value before: then it is evaluated on updates only.
        self.is_transition = "oldSelf" in self._program.variables()

    def broken(self, scope: Scope, path: str, kind_of: str) -> FieldError | None:
        """The rule's error for the scope's value, which is at `path`; None if it holds."""
        if self.is_transition and scope.is_new and not self.optional_old:
            return None
        context = scope.context(self)
        try:
            if self._program.execute(context) is True:
                return None
        except _FAILURES as error:
            why = f"no such key: {error.args[0]}" if isinstance(error, KeyError) else str(error)
            return FieldError(path, f'Invalid value: "{kind_of}": {why} evaluating rule: {self.source.strip()}')
        return FieldError(path + self._field, self._prefix + self._text(context), self._reason)

    def _text(self, context: cel.Context) -> str:
        if self._message_program is None:
            return self._message
        try:
            return str(self._message_program.execute(context))
        except _FAILURES:
            return self._message
