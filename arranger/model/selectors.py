"""Label selectors: from JSON to requirements, and which labels they select, as in Kubernetes."""

from collections.abc import Mapping
from typing import Any

from arranger.model.pod import NodeTerms, Requirement, Selector


def requirement_of(entry: Mapping[str, Any], *, field: bool = False) -> Requirement:
    """One expression of a selector; `field` as in `Requirement`."""
    return Requirement(
        key=entry.get("key") or "",
        operator=entry.get("operator") or "",
        values=tuple(entry.get("values") or ()),
        field=field,
    )


def selector_of(selector: Mapping[str, Any]) -> tuple[Requirement, ...]:
    """The requirements of a LabelSelector; an empty one has none and selects everything."""
    labels = sorted((selector.get("matchLabels") or {}).items())
    return (
        *(Requirement(key, "In", (value,)) for key, value in labels if value is not None),
        *map(requirement_of, selector.get("matchExpressions") or ()),
    )


def selects(selector: Selector, labels: Mapping[str, str]) -> bool:
    """Whether labels meet all requirements; None selects nothing."""
    return selector is not None and all([_holds(one, labels.get(one.key)) for one in selector])


def _holds(requirement: Requirement, value: str | None) -> bool:
    """Kubernetes' label selector operators on a label's value (None: absent)."""
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            return False


def node_satisfies(terms: NodeTerms, labels: Mapping[str, str], name: str) -> bool:
    """Whether a node with these labels and this name satisfies a term; one without requirements matches no node."""
    return any([bool(term) and all([_on_node(one, labels, name) for one in term]) for term in terms])


def _on_node(requirement: Requirement, labels: Mapping[str, str], name: str) -> bool:
    """Kubernetes' node selector operators: Gt and Lt compare integers only."""
    value = name if requirement.field else labels.get(requirement.key)
    if requirement.operator not in ("Gt", "Lt"):
        return _holds(requirement, value)
    bound = integer(requirement.values[0]) if requirement.values else None
    amount = integer(value) if value is not None else None
    if bound is None or amount is None:
        return False
    return amount > bound if requirement.operator == "Gt" else amount < bound


def integer(text: str) -> int | None:
    """The text as a decimal integer of 64 bits, else None."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits or len(digits) > 32 or not digits.isascii() or not digits.isdigit():
        return None
    number = int(text)
    return number if -(1 << 63) <= number < 1 << 63 else None
