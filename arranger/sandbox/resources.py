"""The resources that pods may request, as in the API server: names of resources, and consistent requests and limits.

The checks expect a pod with its defaults filled in; the wording is the real server's.
"""

import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from arranger.model.quantity import exact, quantity
from arranger.model.template import effective_requests
from arranger.sandbox.names import DNS_SUBDOMAIN, QUALIFIED, QUALIFIED_TEXT, SUBDOMAIN_TEXT
from arranger.sandbox.status import FieldError
from arranger.sandbox.validation import required, unsupported, wrong

_HUGE = "hugepages-"
_OF_CONTAINERS = ("cpu", "memory", "ephemeral-storage")
_OF_PODS = ("cpu", _HUGE, "memory")
#: Names without a "/" that are valid, though not in a container.
_STANDARD = frozenset(
    {
        *_OF_CONTAINERS,
        *(f"{side}.{name}" for side in ("requests", "limits") for name in _OF_CONTAINERS),
        "requests.storage",
        *("storage", "pods", "services", "replicationcontrollers", "resourcequotas", "secrets", "configmaps"),
        *("persistentvolumeclaims", "services.nodeports", "services.loadbalancers"),
    }
)
_BINARY = ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL = ("k", "M", "G", "T", "P", "E")
#: Digits after a decimal point, and the suffix.
_WRITTEN = re.compile(r"[+-]?[0-9]*(?:\.([0-9]*))?([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+|)")


def canonical(given: str | int | float) -> str:
    """A quantity in the API server's notation: with the largest suffix that leaves no fraction.

    Fractions are rounded up to the thousandth. Raises `ValueError` for anything that is not a quantity.
    """
    text = str(given)
    milli = -(-exact(text) * 1000 // 1)
    found = _WRITTEN.fullmatch(text)
    fraction, unit = (found.group(1), found.group(2)) if found else (None, "")
    step: int
    units: tuple[str, ...]
    if unit.endswith("i"):
        step, units = 1024, ("m", "", *_BINARY)
    elif len(unit) > 1:
        step, units = 1000, ("e-3", "", *(f"e{power}" for power in range(3, 19, 3)))
        unit = f"e{int(unit[1:])}"
    else:
        step, units = 1000, ("m", "", *_DECIMAL)
    number, best = _shortest(milli, step, units)
    # A text that already has that suffix stays unchanged, as in "+2" or "1e+3".
    return text if isinstance(given, str) and not fraction and unit == best else f"{number}{best}"


def _shortest(milli: int, step: int, units: tuple[str, ...]) -> tuple[int, str]:
    """Thousandths as a whole number of the largest unit; the first unit is thousandths and the second 1."""
    if milli % 1000:
        return milli, units[0]
    number, unit = milli // 1000, 1
    while number and number % step == 0 and unit + 1 < len(units):
        number, unit = number // step, unit + 1
    return number, units[unit]


def _is_native(name: str) -> bool:
    prefix, slash, _ = name.rpartition("/")
    return not slash or "kubernetes.io/" in f"{prefix}/"


def _overcommits(name: str) -> bool:
    return _is_native(name) and not name.startswith(_HUGE)


def _name_errors(name: str) -> Iterator[str]:
    prefix, slash, last = name.rpartition("/")
    if "/" in prefix:
        example = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        yield f"a valid label key {QUALIFIED_TEXT} {example}"
    else:
        if slash and not DNS_SUBDOMAIN.fullmatch(prefix):
            yield f"prefix part {SUBDOMAIN_TEXT}"
        if not last:
            yield "name part must be non-empty"
        if not QUALIFIED.fullmatch(last):
            yield f"name part {QUALIFIED_TEXT}"
    if not slash:
        if name and name not in _STANDARD and not name.startswith(_HUGE):
            yield "must be a standard resource type or fully qualified"
        if name not in _OF_CONTAINERS and not name.startswith(_HUGE):
            yield "must be a standard resource for containers"
    elif not _is_native(name) and (
        name.startswith("requests.")
        or "/" in prefix
        or not (DNS_SUBDOMAIN.fullmatch(prefix) and QUALIFIED.fullmatch(last))
    ):
        yield "doesn't follow extended resource name standard"


def _amount_errors(name: str, amount: str, path: str) -> Iterator[FieldError]:
    value = exact(amount)
    if value < 0:
        yield wrong(path, amount, "must be greater than or equal to 0")
    if not _is_native(name) and value.denominator != 1:
        yield wrong(path, amount, "must be an integer")
    if name.startswith(_HUGE) and not _whole_pages(name, value):
        yield wrong(path, amount, f"{amount} is not positive integer multiple of {name}")


def _whole_pages(name: str, value: Fraction) -> bool:
    try:
        size = exact(name.removeprefix(_HUGE))
    except ValueError:
        return False
    return size > 0 and value >= 0 and value % size == 0


def _together_errors(requests: dict[str, str], limits: dict[str, str], path: str) -> Iterator[FieldError]:
    for name, amount in requests.items():
        if name not in limits:
            if not _overcommits(name):
                yield required(f"{path}.limits", "Limit must be set for non overcommitable resources")
        elif not _overcommits(name) and exact(amount) != exact(limits[name]):
            yield wrong(f"{path}.requests", amount, f"must be equal to {name} limit of {limits[name]}")
        elif exact(amount) > exact(limits[name]):
            yield wrong(f"{path}.requests", amount, f"must be less than or equal to {name} limit of {limits[name]}")
    asked = {*requests, *limits}
    if any(name.startswith(_HUGE) for name in asked) and not asked & {"cpu", "memory"}:
        yield FieldError(path, "Forbidden: HugePages require cpu or memory", "FieldValueForbidden")


def container_errors(resources: dict[str, Any], path: str) -> Iterator[FieldError]:
    for side in ("limits", "requests"):
        for name, amount in (resources.get(side) or {}).items():
            where = f"{path}.{side}[{name}]"
            yield from (wrong(where, name, why) for why in _name_errors(name))
            yield from _amount_errors(name, amount, where)
    yield from _together_errors(resources.get("requests") or {}, resources.get("limits") or {}, path)


def pod_level_errors(spec: dict[str, Any]) -> Iterator[FieldError]:
    resources = spec.get("resources") or {}
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    for side, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            where = f"spec.resources.{side}[{name}]"
            if name not in _OF_PODS and not name.startswith(_HUGE):
                yield unsupported(where, name, _OF_PODS)
            yield from _amount_errors(name, amount, where)
    yield from _together_errors(requests, limits, "spec.resources")
    together = _of_containers(spec)
    for name, amount in requests.items():
        if exact(amount) < exact(together.get(name, "0")):
            why = f"must be greater than or equal to aggregate container requests of {together[name]}"
            yield wrong(f"spec.resources.requests[{name}]", amount, why)
    for index, container in enumerate(spec.get("containers") or []):
        for name, amount in (container["resources"].get("limits") or {}).items():
            if name in limits and exact(amount) > exact(limits[name]):
                why = f"must be less than or equal to pod limits of {limits[name]}"
                yield wrong(f"spec.resources.containers[{index}][{name}].limits", amount, why)


def _of_containers(spec: dict[str, Any]) -> dict[str, str]:
    """The total requests of a pod's containers."""
    asked = effective_requests({name: spec.get(name) for name in ("containers", "initContainers")})
    return {name: quantity(name, amount) for name, amount in asked}


def default_pod_level(spec: dict[str, Any]) -> None:
    """A pod-level limit is the default for a missing request: the total of the containers, or else the whole limit."""
    resources = spec["resources"]
    if limits := resources.get("limits"):
        together = _of_containers(spec)
        requests = resources.setdefault("requests", {})
        for name, amount in limits.items():
            requests.setdefault(name, together.get(name, amount))
