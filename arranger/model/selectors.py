"""Label selectors: from JSON to requirements, and which labels they select, as in Kubernetes."""

from collections.abc import Mapping
from typing import Any

from arranger.model.pod import Requirement, Selector


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
