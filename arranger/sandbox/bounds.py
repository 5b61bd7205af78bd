"""The bounds of LimitRanges on pods: one outside of them is refused in the API server's words (plugin LimitRanger)."""

from collections.abc import Iterable, Iterator, Mapping
from operator import gt, lt
from typing import Any

from arranger.kube.cluster import Object
from arranger.model.quantity import exact, quantity
from arranger.model.template import effective_limits, effective_requests
from arranger.sandbox.status import forbidden

#: Resource → quantity, as an object has it.
_Amounts = Mapping[str, Any]


def hold_bounds(pod: Object, ranges: Iterable[Object]) -> None:
    """Refuse a pod, with 403, whose containers, or all together, have less or more than a LimitRange allows."""
    items = [of for each in ranges for of in (each.get("spec") or {}).get("limits") or ()]
    found = [*dict.fromkeys(why for of in items for why in _beyond(pod["spec"], of))]
    if found:
        told = found[0] if len(found) == 1 else f"[{', '.join(found)}]"
        raise forbidden("pods", "", pod["metadata"]["name"], told)


def _beyond(spec: Object, item: Object) -> Iterator[str]:
    """What in a pod is outside of the bounds of one item, as the API server says it."""
    if item.get("type") == "Container":
        for container in (*spec.get("containers", ()), *spec.get("initContainers", ())):
            resources = container.get("resources") or {}
            yield from _faults(item, resources.get("requests") or {}, resources.get("limits") or {})
    elif item.get("type") == "Pod":
        own = {name: value for name, value in spec.items() if name != "overhead"}
        requests, limits = effective_requests(own), effective_limits(own)
        yield from _faults(item, *({name: quantity(name, n) for name, n in of} for of in (requests, limits)))


def _faults(item: Object, requests: _Amounts, limits: _Amounts) -> Iterator[str]:
    of, request, limit = item["type"], ("request", requests), ("limit", limits)
    for word, field, sides, beyond in (
        ("minimum", "min", (request, limit), lt),
        ("maximum", "max", (limit, request), gt),
    ):
        for name, bound in (item.get(field) or {}).items():
            usage, (needed, amounts) = f"{word} {name} usage per {of} is {bound}", sides[0]
            if name not in amounts:
                yield f"{usage}.  No {needed} is specified"
                continue
            there = [(side, given[name]) for side, given in sides if name in given]
            told = [f"{usage}, but {side} is {given}" for side, given in there if beyond(exact(given), exact(bound))]
            yield from told[:1]
    for name, most in (item.get("maxLimitRequestRatio") or {}).items():
        ratio = f"{name} max limit to request ratio per {of} is {most}"
        asked, given = exact(requests.get(name, 0)), exact(limits.get(name, 0))
        if not asked or not given:
            side = "limit" if asked else "request"
            yield f"{ratio}, but no {side} is specified or {side} is 0"
        elif given / asked > exact(most):
            yield f"{ratio}, but provided ratio is {float(given / asked):f}"
