"""`x-kubernetes-validations`: a CRD's rules in CEL, with Kubernetes' own functions of lists and quantities."""

import itertools
from collections.abc import Callable
from typing import Any

import cel
import cel.stdlib

from arranger.model.quantity import exact, is_integer
from arranger.sandbox.status import CauseReason, FieldError

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
    """A quantity stays the text that it is written as; `ValueError` for what is none."""
    exact(text)
    return text


def _compare(left: str, right: str) -> int:
    return (exact(left) > exact(right)) - (exact(left) < exact(right))


def _format(text: str, values: list[Any]) -> str:
    """`%s` and `%d` of texts and whole numbers; the clauses for other types are not known here."""
    return text.replace("%d", "%s") % tuple(values)


#: Functions that Kubernetes adds to CEL's own.
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "sum": sum,
    "isSorted": lambda items: all(left <= right for left, right in itertools.pairwise(items)),
    "indexOf": _index_of,
    "lastIndexOf": _last_index_of,
    "distinct": lambda items: [item for place, item in enumerate(items) if item not in items[:place]],
    "format": _format,
    "quantity": _quantity,
    "isInteger": is_integer,
    "compareTo": _compare,
}


def _context() -> cel.Context:
    context = cel.Context()
    cel.stdlib.add_stdlib_to_context(context)
    for name, function in _FUNCTIONS.items():
        context.add_function(name, function)
    return context


class Rule:
    """One compiled rule. Raises `ValueError` when its expression can't be compiled."""

    def __init__(self, declared: dict[str, Any]) -> None:
        self.source: str = declared["rule"]
        self._program = cel.compile(self.source)
        expression = declared.get("messageExpression")
        self._message_program = cel.compile(expression) if expression else None
        self._message: str = declared.get("message") or f"failed rule: {self.source.strip()}"
        self._field: str = declared.get("fieldPath", "")
        self._reason, self._prefix = _REASONS[declared.get("reason", "FieldValueInvalid")]
        self._optional_old: bool = declared.get("optionalOldSelf", False)
        # Registering the functions costs more than most rules do: once, not at every evaluation.
        self._context = _context()
        #: Whether it compares with the value before: then it is asked on updates only.
        self.is_transition = "oldSelf" in self._program.variables()

    def broken(self, value: Any, old: Any, path: str, kind_of: str) -> FieldError | None:
        """What the rule finds wrong with the value at `path`; `old` is None where there was no value before."""
        if self.is_transition and old is None and not self._optional_old:
            return None
        context = self._context
        context.add_variable("self", value)
        if self._optional_old:
            context.add_variable("oldSelf", cel.OptionalValue.none() if old is None else cel.OptionalValue.of(old))
        elif self.is_transition:
            context.add_variable("oldSelf", old)
        try:
            if self._program.execute(context) is True:
                return None
        except (ValueError, TypeError, RuntimeError, KeyError, IndexError) as error:
            why = f"no such key: {error.args[0]}" if isinstance(error, KeyError) else str(error)
            return FieldError(path, f'Invalid value: "{kind_of}": {why} evaluating rule: {self.source.strip()}')
        return FieldError(path + self._field, self._prefix + self._text(), self._reason)

    def _text(self) -> str:
        if self._message_program is None:
            return self._message
        try:
            return str(self._message_program.execute(self._context))
        except (ValueError, TypeError, RuntimeError, KeyError, IndexError):
            return self._message
