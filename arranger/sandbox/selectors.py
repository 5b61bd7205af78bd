"""Label and field selectors: parsed once per request, then matched against stored objects."""

import re
from collections.abc import Callable
from typing import Any

from arranger.kube.cluster import Object
from arranger.sandbox.status import ApiRefusal, bad_request

#: Returns whether an object is selected.
Matches = Callable[[Object], bool]

_KEY = r"[A-Za-z0-9][A-Za-z0-9_./-]*"
_VALUE = r"[A-Za-z0-9_.-]*"
_SET = re.compile(rf"^({_KEY})\s+(in|notin)\s+\(([^)]*)\)$")
_EQUALITY = re.compile(rf"^({_KEY})\s*(==|=|!=|<|>)\s*({_VALUE})$")
_EXISTS = re.compile(rf"^(!?)\s*({_KEY})$")

#: Fields that selectors support, by plural; every resource also has the two of its metadata.
_FIELDS: dict[str, tuple[str, ...]] = {
    "pods": (
        *(f"spec.{name}" for name in ("nodeName", "restartPolicy", "schedulerName", "serviceAccountName")),
        *(f"status.{name}" for name in ("phase", "podIP", "nominatedNodeName")),
    ),
    "nodes": ("spec.unschedulable",),
    "namespaces": ("status.phase",),
    "secrets": ("type",),
    "events": (
        *(f"involvedObject.{name}" for name in ("kind", "namespace", "name", "uid", "apiVersion")),
        *(f"involvedObject.{name}" for name in ("resourceVersion", "fieldPath")),
        *("reason", "reportingComponent", "source", "type"),
    ),
}


def _labels(obj: Object) -> dict[str, str]:
    return obj["metadata"].get("labels") or {}


def _compared(text: str | None, operator: str, bound: int) -> bool:
    try:
        number = int(text or "")
    except ValueError:
        return False
    return number < bound if operator == "<" else number > bound


def _label_requirement(text: str, whole: str) -> Matches:
    if found := _SET.match(text):
        key, inside, values = found[1], found[2] == "in", {part.strip() for part in found[3].split(",")}
        return lambda obj: (_labels(obj).get(key) in values) is inside
    if found := _EQUALITY.match(text):
        key, operator, value = found.groups()
        if operator in "<>":
            bound = int(value)
            return lambda obj: _compared(_labels(obj).get(key), operator, bound)
        return lambda obj: (_labels(obj).get(key) == value) is (operator != "!=")
    if found := _EXISTS.match(text):
        key, present = found[2], not found[1]
        return lambda obj: (key in _labels(obj)) is present
    raise bad_request(f'unable to parse requirement: found {text!r} in label selector "{whole}"')


def _split(text: str) -> list[str]:
    """Split at commas outside parentheses."""
    return [part.strip() for part in re.split(r",(?![^(]*\))", text) if part.strip()]


def label_selector(text: str) -> list[Matches]:
    """The requirements of a label selector, equality- and set-based; raises `ApiRefusal` 400 if it can't be parsed."""
    return [_label_requirement(part, text) for part in _split(text)]


def _field(obj: Object, path: tuple[str, ...]) -> str:
    value: Any = obj
    for part in path:
        value = value.get(part) if isinstance(value, dict) else None
    if value is None:
        return "false" if path[-1] == "unschedulable" else ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _source(obj: Object) -> str:
    return str((obj.get("source") or {}).get("component") or obj.get("reportingComponent") or "")


def _field_requirement(plural: str, part: str) -> Matches:
    found = re.match(r"^([A-Za-z.]+)\s*(==|=|!=)\s*(.*)$", part)
    if found is None:
        raise bad_request(f"invalid selector: '{part}'; can't understand '{part}'")
    name, operator, value = found.groups()
    if name not in (*_FIELDS.get(plural, ()), "metadata.name", "metadata.namespace"):
        raise bad_request(f"field label not supported: {name}")
    equal = operator != "!="
    if name == "source":
        return lambda obj: (_source(obj) == value) is equal
    path = tuple(name.split("."))
    return lambda obj: (_field(obj, path) == value) is equal


def field_selector(plural: str, text: str) -> list[Matches]:
    """The requirements of a field selector; raises `ApiRefusal` 400 for an unsupported field."""
    try:
        return [_field_requirement(plural, part) for part in _split(text)]
    except ApiRefusal as refusal:
        if refusal.detail.startswith("field label"):
            raise
        raise bad_request(f'unable to parse "{text}": {refusal.detail}') from refusal


def every(requirements: list[Matches]) -> Matches | None:
    """The conjunction of the requirements; None without any."""
    if not requirements:
        return None
    if len(requirements) == 1:
        return requirements[0]
    return lambda obj: all(matches(obj) for matches in requirements)
