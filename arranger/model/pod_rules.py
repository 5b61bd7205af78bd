"""The rules of a pod beyond the types of its fields, by definition: the same as in `crds/source/pod-rules.yaml`.

A rule checks only values that passed the schema. As on the API server, null counts as absent.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from arranger.model.checks import Faults, beyond, json_type, shown
from arranger.model.faults import Fault, FaultKind
from arranger.model.names import LABEL_PREFIX
from arranger.model.quantity import MAX_AMOUNT, PATTERN, exact, is_integer
from arranger.model.template import present

#: The definition whose check is `quantity`.
QUANTITY = "Quantity"

#: Resources that allow fractional requests and no limit; all others are allocated in whole units.
_DIVISIBLE = ("cpu", "memory", "ephemeral-storage")
_HUGE_PAGES = "hugepages-"

_K = FaultKind

_QUANTITY = re.compile(PATTERN, re.ASCII)

#: The most bytes of the names and values of a pod's annotations.
_ANNOTATIONS_BYTES = 256 * 1024
_LABEL_VALUE = re.compile(r"(?!.{64})([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?", re.ASCII)
_DNS_NAME = re.compile(r"(?!.{254})[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)


def quantity(value: Any, path: str) -> Faults:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        yield Fault(path, _K.QUANTITY_OF_WRONG_TYPE, json_type(value))
    elif isinstance(value, int):
        if value < 0:
            yield beyond(path, _K.BELOW_MINIMUM, value, 0)
        elif value >= 1 << 63:
            yield Fault(path, _K.QUANTITY_TOO_LARGE, shown(value))
    elif len(value) > 32:
        yield Fault(path, _K.TOO_LONG, limits=("32",))
    elif _QUANTITY.fullmatch(value) is None:
        yield Fault(path, _K.NO_QUANTITY, shown(value))


def _requests_and_limits(resources: dict[str, Any], path: str) -> Faults:
    requests, limits = present(resources.get("requests")), present(resources.get("limits"))
    unknown = [*_unknown_resources(limits, f"{path}.limits"), *_unknown_resources(requests, f"{path}.requests")]
    if unknown:
        yield from unknown
        return
    yield from _fractions(limits, f"{path}.limits")
    for name, request in requests.items():
        if name not in limits:
            if name not in _DIVISIBLE:
                yield Fault(f"{path}.limits", _K.NO_LIMIT, name=name)
        elif name not in _DIVISIBLE and exact(request) != exact(limits[name]):
            yield Fault(f"{path}.requests", _K.NOT_THE_LIMIT, str(request), name, (str(limits[name]),))
        elif exact(request) > exact(limits[name]):
            yield Fault(f"{path}.requests", _K.ABOVE_THE_LIMIT, str(request), name, (str(limits[name]),))


def _unknown_resources(quantities: Mapping[str, Any], path: str) -> Faults:
    for name in quantities:
        if name not in _DIVISIBLE and not name.startswith(_HUGE_PAGES) and "/" not in name:
            yield Fault(path, _K.NO_RESOURCE, name=name)


def _fractions(quantities: Mapping[str, Any], path: str) -> Faults:
    for name, of in quantities.items():
        divisible = name in _DIVISIBLE or name.startswith(_HUGE_PAGES)
        if not divisible and (not is_integer(of) or exact(of) > MAX_AMOUNT):
            yield Fault(path, _K.LIMIT_NOT_WHOLE, str(of), name, (str(MAX_AMOUNT),))


def amounts_of_nodes(quantities: dict[str, Any], path: str) -> Faults:
    """The rules about quantities by resource: nodes have such resources, in whole units unless these can be divided."""
    given = present(quantities)
    yield from list(_unknown_resources(given, path)) or _fractions(given, path)


def _no_reserved_labels(metadata: dict[str, Any], path: str) -> Faults:
    for name in present(metadata.get("labels")):
        if name.startswith(LABEL_PREFIX):
            yield Fault(f"{path}.labels", _K.RESERVED_LABEL, shown(name))


def _pod(spec: dict[str, Any], path: str) -> Faults:
    if gates := spec.get("schedulingGates"):
        yield Fault(f"{path}.schedulingGates", _K.MUST_BE_EMPTY, f'"{json_type(gates)}"')
    yield from _names_of_containers(spec, path)


def _names_of_containers(spec: dict[str, Any], path: str) -> Faults:
    taken = {container["name"] for container in spec["containers"]}
    for container in spec.get("initContainers") or ():
        if container["name"] in taken:
            yield Fault(f"{path}.initContainers", _K.NAME_OF_A_CONTAINER, name=container["name"])


def _one_handler(probe: dict[str, Any], path: str) -> Faults:
    given = [name for name in ("exec", "httpGet", "tcpSocket", "grpc") if probe.get(name) is not None]
    if len(given) != 1:
        yield Fault(path, _K.NOT_ONE_HANDLER)


def _toleration(toleration: dict[str, Any], path: str) -> Faults:
    exists = toleration.get("operator") == "Exists"
    if not toleration.get("key") and not exists:
        yield Fault(f"{path}.operator", _K.EMPTY_KEY)
    if exists and toleration.get("value"):
        yield Fault(f"{path}.value", _K.VALUE_WITH_EXISTS)


def _values_fit(requirement: dict[str, Any], path: str) -> Faults:
    operator, values = requirement["operator"], requirement.get("values")
    if operator in ("In", "NotIn") and not values:
        yield Fault(f"{path}.values", _K.NO_VALUES)
    if operator in ("Exists", "DoesNotExist") and values:
        yield Fault(f"{path}.values", _K.VALUES_WITH_EXISTS)


#: By the name of a definition: the rule that relates its fields.
RULES: Mapping[str, Callable[[dict[str, Any], str], Faults]] = {
    "LabelSelectorRequirement": _values_fit,
    "NodeSelectorRequirement": _values_fit,
    "ObjectMeta": _no_reserved_labels,
    "PodSpec": _pod,
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


def refused_in_pods(template: Mapping[str, Any], path: str) -> Faults:
    """The faults of a valid template that the API server finds only when a pod is created from it: the job would get
    nodes in vain. Arranger's own labels are valid, and it adds no annotations."""
    metadata = template.get("metadata") or {}
    annotations, labels = present(metadata.get("annotations")), present(metadata.get("labels"))
    selector = present(template["spec"].get("nodeSelector"))
    size = sum(len(name.encode()) + len(value.encode()) for name, value in annotations.items())
    if size > _ANNOTATIONS_BYTES:
        yield Fault(
            f"{path}.metadata.annotations",
            _K.ANNOTATIONS_TOO_LARGE,
            str(size),
            limits=(str(_ANNOTATIONS_BYTES),),
        )
    yield from _names(map(str.lower, annotations), f"{path}.metadata.annotations")
    yield from _names(labels, f"{path}.metadata.labels")
    yield from _names(selector, f"{path}.spec.nodeSelector")
    for value in selector.values():
        if _LABEL_VALUE.fullmatch(value) is None:
            yield Fault(f"{path}.spec.nodeSelector", _K.NO_LABEL_VALUE, shown(value))


def _names(names: Iterable[str], path: str) -> Faults:
    """Names of labels or annotations: a name, which may follow a DNS name and a slash."""
    for whole in names:
        prefix, slash, name = whole.rpartition("/")
        if not name or _LABEL_VALUE.fullmatch(name) is None or (slash and _DNS_NAME.fullmatch(prefix) is None):
            yield Fault(path, _K.NO_QUALIFIED_NAME, shown(whole))
