"""The rules of a pod beyond the types of its fields, by definition: the same as in `crds/source/pod-rules.yaml`.

A rule checks only values that passed the schema. As on the API server, null counts as absent.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from arranger.model.checks import Errors, FieldError, invalid, shown, wrong_type
from arranger.model.names import LABEL_PREFIX
from arranger.model.quantity import PATTERN, exact, is_integer
from arranger.model.template import present

#: The definition whose check is `quantity`.
QUANTITY = "Quantity"

#: Resources that allow fractional requests and no limit; all others are allocated in whole units.
_DIVISIBLE = ("cpu", "memory", "ephemeral-storage")
_HUGE_PAGES = "hugepages-"

_QUANTITY = re.compile(PATTERN, re.ASCII)
_QUANTITY_REASON = "must be a quantity of 0 or more: a number as in 2, or a text as in '500m', '1.5', '16Gi'"


def quantity(value: Any, path: str) -> Errors:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        yield wrong_type(path, value, 'integer or string, as in 2, "500m" or "16Gi"')
    elif isinstance(value, int):
        if value < 0:
            yield invalid(path, value, "should be greater than or equal to 0")
        elif value >= 1 << 63:
            yield invalid(path, value, "should be less than 2^63: write it as a text, as in '10E'")
    elif len(value) > 32:
        yield FieldError(path, "Too long: may not be more than 32 characters", "FieldValueTooLong")
    elif _QUANTITY.fullmatch(value) is None:
        yield invalid(path, value, _QUANTITY_REASON)


def refused(path: str, reason: str) -> FieldError:
    """The error of a rule, whose message includes the values."""
    return FieldError(path, f"Invalid value: {reason}")


def _requests_and_limits(resources: dict[str, Any], path: str) -> Errors:
    requests, limits = present(resources.get("requests")), present(resources.get("limits"))
    unknown = [*_unknown_resources(limits, f"{path}.limits"), *_unknown_resources(requests, f"{path}.requests")]
    if unknown:
        yield from unknown
        return
    for name, limit in limits.items():
        if name not in _DIVISIBLE and not name.startswith(_HUGE_PAGES) and not is_integer(limit):
            yield refused(f"{path}.limits", f"{name} must be a whole number as in 1, here {limit}")
    for name, request in requests.items():
        if name not in limits:
            if name not in _DIVISIBLE:
                message = f"Required value: {name} is requested: it must have an equal limit"
                yield FieldError(f"{path}.limits", message, "FieldValueRequired")
        elif name not in _DIVISIBLE and exact(request) != exact(limits[name]):
            yield refused(f"{path}.requests", f"{name} must be equal to its limit of {limits[name]}, here {request}")
        elif exact(request) > exact(limits[name]):
            yield refused(f"{path}.requests", f"{name} must not be above its limit of {limits[name]}, here {request}")


def _unknown_resources(quantities: Mapping[str, Any], path: str) -> Errors:
    for name in quantities:
        if name not in _DIVISIBLE and not name.startswith(_HUGE_PAGES) and "/" not in name:
            known = "cpu, memory, ephemeral-storage, hugepages-* or one with a domain as in nvidia.com/gpu"
            yield refused(path, f"{name} is no resource: it must be {known}")


def _no_reserved_labels(metadata: dict[str, Any], path: str) -> Errors:
    for name in present(metadata.get("labels")):
        if name.startswith(LABEL_PREFIX):
            reason = f"labels under {LABEL_PREFIX} are set by Arranger and must not be set here"
            yield FieldError(f"{path}.labels", f"Invalid value: {shown(name)}: {reason}")


def _names_of_containers(spec: dict[str, Any], path: str) -> Errors:
    taken = {container["name"] for container in spec["containers"]}
    for container in spec.get("initContainers") or ():
        if container["name"] in taken:
            reason = f"an init container can't have a container's name: '{container['name']}'"
            yield refused(f"{path}.initContainers", reason)


def _one_handler(probe: dict[str, Any], path: str) -> Errors:
    given = [name for name in ("exec", "httpGet", "tcpSocket", "grpc") if probe.get(name) is not None]
    if len(given) != 1:
        yield refused(path, "must have exactly one of exec, httpGet, tcpSocket and grpc")


def _toleration(toleration: dict[str, Any], path: str) -> Errors:
    exists = toleration.get("operator") == "Exists"
    if not toleration.get("key") and not exists:
        yield refused(f"{path}.operator", "must be Exists where the key is empty, which tolerates every taint")
    if exists and toleration.get("value"):
        yield refused(f"{path}.value", "must be empty where the operator is Exists")


def _values_fit(requirement: dict[str, Any], path: str) -> Errors:
    operator, values = requirement["operator"], requirement.get("values")
    if operator in ("In", "NotIn") and not values:
        message = "Required value: must be given where the operator is In or NotIn"
        yield FieldError(f"{path}.values", message, "FieldValueRequired")
    if operator in ("Exists", "DoesNotExist") and values:
        yield refused(f"{path}.values", "must be empty where the operator is Exists or DoesNotExist")


#: By the name of a definition: the rule that relates its fields.
RULES: Mapping[str, Callable[[dict[str, Any], str], Errors]] = {
    "LabelSelectorRequirement": _values_fit,
    "NodeSelectorRequirement": _values_fit,
    "ObjectMeta": _no_reserved_labels,
    "PodSpec": _names_of_containers,
    "Probe": _one_handler,
    "ResourceRequirements": _requests_and_limits,
    "Toleration": _toleration,
}


def mounts_without_volume(template: Mapping[str, Any], kind: str, shared: frozenset[str]) -> list[str]:
    """Names of the containers of this kind (`containers`, `initContainers`) that mount a volume which neither the
    template nor the job has."""
    spec = template["spec"]
    names = shared.union(volume["name"] for volume in spec.get("volumes") or ())
    return [
        container["name"]
        for container in spec.get(kind) or ()
        if any(mount["name"] not in names for mount in container.get("volumeMounts") or ())
    ]
