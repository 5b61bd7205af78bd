"""The API server's built-in knowledge of kinds: metadata, and the defaults and checks of pods.

It covers only what a scheduler or kubectl can notice; the other fields of a pod are kept unchanged.
"""

import base64
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from arranger.kube.cluster import Object
from arranger.model.schema import definitions
from arranger.model.template import qos_class
from arranger.sandbox import resources
from arranger.sandbox.names import label_errors, name_errors
from arranger.sandbox.status import FieldError, bad_request
from arranger.sandbox.validation import required, unsupported, wrong

#: Pod templates have no ephemeral containers, so the schema of templates lacks the fields that only these have.
_POD_FIELDS = {*definitions()["PodSpec"]["properties"], "ephemeralContainers"}
_CONTAINER_FIELDS = {*definitions()["Container"]["properties"], "targetContainerName"}


class _Owner(msgspec.Struct):
    apiVersion: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    blockOwnerDeletion: bool | None = None


class _Metadata(msgspec.Struct):
    """The types of `metadata`, the same for every kind."""

    name: str | None = None
    generateName: str | None = None
    namespace: str | None = None
    uid: str | None = None
    resourceVersion: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    ownerReferences: list[_Owner] | None = None
    finalizers: list[str] | None = None


METADATA_FIELDS = frozenset(
    (
        *(*_Metadata.__struct_fields__, "creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp"),
        *("generation", "managedFields", "selfLink"),
    )
)


class _Typed(msgspec.Struct):
    metadata: _Metadata


_Quantities = dict[str, str | int | float]


class _Resources(msgspec.Struct):
    requests: _Quantities | None = None
    limits: _Quantities | None = None


class _Container(msgspec.Struct):
    name: str = ""
    image: str = ""
    resources: _Resources | None = None


class _PodSpec(msgspec.Struct):
    containers: list[_Container] | None = None
    initContainers: list[_Container] | None = None
    ephemeralContainers: list[_Container] | None = None
    tolerations: list[dict[str, Any]] | None = None
    nodeSelector: dict[str, str] | None = None
    nodeName: str | None = None
    restartPolicy: str | None = None
    schedulerName: str | None = None
    terminationGracePeriodSeconds: int | None = None
    activeDeadlineSeconds: int | None = None
    priority: int | None = None
    resources: _Resources | None = None
    overhead: _Quantities | None = None


class _Pod(msgspec.Struct):
    spec: _PodSpec | None = None
    status: dict[str, Any] | None = None


_QUANTITY_TEXT = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
#: The limit of a ConfigMap.
_MIB = 1024 * 1024
_CONTAINER_LISTS = ("containers", "initContainers", "ephemeralContainers")
_CLASSES = {
    **{kind: {"apiVersion", "kind", "metadata", "spec", "status"} for kind in ("Pod", "Node", "Namespace")},
    "ConfigMap": {"apiVersion", "kind", "metadata", "data", "binaryData", "immutable"},
}


def without_nulls(value: Any) -> Any:
    """The value without null fields, which mean "absent" in a built-in kind."""
    if isinstance(value, dict):
        return {key: without_nulls(part) for key, part in value.items() if part is not None}
    if isinstance(value, list):
        return [without_nulls(part) for part in value]
    return value


def _owner_errors(references: list[dict[str, Any]]) -> list[FieldError]:
    names = ("apiVersion", "kind", "name", "uid")
    path = "metadata.ownerReferences"
    return [
        wrong(f"{path}.{name}", "", "version must not be empty" if name == "apiVersion" else "must not be empty")
        for reference in references
        for name in names
        if not reference.get(name)
    ]


def metadata_errors(metadata: dict[str, Any], kind: str) -> list[FieldError]:
    name = metadata.get("name") or ""
    if not name:
        return [required("metadata.name", "name or generateName is required")]
    found = [*name_errors(name, "metadata.name", label=kind in ("Namespace", "Service"))]
    found += label_errors(metadata.get("labels") or {})
    return found + _owner_errors(metadata.get("ownerReferences") or [])


def unknown_fields(kind: str, body: Object) -> list[str]:
    """Remove unknown fields of a built-in kind, in place, as far as they are known here; returns their paths."""
    if kind == "Pod":
        hold_pod_types(body)
    unknown = _drop(body, _CLASSES[kind]) if kind in _CLASSES else []
    spec = body.get("spec")
    if kind == "Pod" and isinstance(spec, dict):
        unknown += _drop(spec, _POD_FIELDS, "spec.")
        for field in _CONTAINER_LISTS:
            for index, container in enumerate(spec.get(field) or []):
                unknown += _drop(container, _CONTAINER_FIELDS, f"spec.{field}[{index}].")
    return unknown


def _drop(fields: dict[str, Any], known: set[str], path: str = "") -> list[str]:
    unknown = [name for name in fields if name not in known]
    for name in unknown:
        del fields[name]
    return [path + name for name in unknown]


_TOLERATED = [
    {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for key in ("not-ready", "unreachable")
]
_POD_DEFAULTS: dict[str, Any] = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "securityContext": {},
    "schedulerName": "default-scheduler",
    "priority": 0,
    "enableServiceLinks": True,
    "preemptionPolicy": "PreemptLowerPriority",
}

_GATED = {
    "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
    "message": "Scheduling is blocked due to non-empty scheduling gates",
}  # fmt: skip


def _hold_type(value: Any, expected: type, kind: str, version: str) -> None:
    try:
        msgspec.convert(value, expected)
    except msgspec.ValidationError as error:
        raise bad_request(f'{kind} in version "{version}" cannot be handled as a {kind}: {error}') from error


def hold_metadata_types(metadata: Any, kind: str, version: str) -> None:
    """Refuse metadata (400) with a field whose type isn't Kubernetes' own."""
    _hold_type({"metadata": metadata}, _Typed, kind, version)


def hold_pod_types(pod: Object) -> None:
    """Refuse a pod (400) with a field whose type isn't Kubernetes' own, as far as the types are known here."""
    _hold_type(pod, _Pod, "Pod", "v1")


def _amounts(values: dict[str, Any], kind: str = "Pod") -> dict[str, str]:
    """Quantities as the API server returns them; raises `Refusal` 400 for anything else."""
    try:
        return {name: resources.canonical(quantity) for name, quantity in values.items()}
    except ValueError as error:
        raise bad_request(f'{kind} in version "v1" cannot be handled as a {kind}: {_QUANTITY_TEXT}') from error


def _settle_amounts(asked: dict[str, Any]) -> None:
    for side in ("limits", "requests"):
        if side in asked:
            asked[side] = _amounts(asked[side])


def _default_container(container: dict[str, Any]) -> None:
    image = container.get("image") or ""
    latest = ":" not in image.rpartition("/")[2] or image.endswith(":latest")
    container.setdefault("imagePullPolicy", "Always" if latest else "IfNotPresent")
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    asked = container.setdefault("resources", {})
    _settle_amounts(asked)
    if "limits" in asked:
        asked["requests"] = asked["limits"] | asked.get("requests", {})


def settle_pod(pod: Object) -> None:
    """Convert an updated pod to the form in which the API server stores it, in place."""
    hold_pod_types(pod)
    _settle_spec(pod["spec"])


def _settle_spec(spec: dict[str, Any]) -> None:
    for field in _CONTAINER_LISTS:
        for container in spec.get(field) or []:
            _default_container(container)
    if "overhead" in spec:
        spec["overhead"] = _amounts(spec["overhead"])
    if "resources" in spec:
        _settle_amounts(spec["resources"])
        resources.default_pod_level(spec)


def default_pod(pod: Object) -> None:
    """Fill in the API server's defaults at creation, in place; raises `Refusal` 400 for a malformed quantity."""
    spec = pod.setdefault("spec", {})
    for name, value in _POD_DEFAULTS.items():
        spec.setdefault(name, value)
    _settle_spec(spec)
    tolerations = spec.get("tolerations") or []
    keys = {(each.get("key"), each.get("effect")) for each in tolerations}
    if not any(each.get("operator") == "Exists" and not each.get("key") for each in tolerations):
        missing = [
            each for each in _TOLERATED if (each["key"], "NoExecute") not in keys and (each["key"], None) not in keys
        ]
        spec["tolerations"] = tolerations + missing
    pod["status"] = {"phase": "Pending", "qosClass": str(qos_class(spec))}
    if spec.get("schedulingGates"):
        pod["status"]["conditions"] = [dict(_GATED)]


def _container_errors(containers: list[dict[str, Any]], path: str) -> Iterator[FieldError]:
    names: set[str] = set()
    for index, container in enumerate(containers):
        where = f"{path}[{index}]"
        name = container.get("name") or ""
        if not name:
            yield required(f"{where}.name")
        else:
            yield from name_errors(name, f"{where}.name", label=True)
        if name in names:
            yield FieldError(f"{where}.name", f'Duplicate value: "{name}"', "FieldValueDuplicate")
        names.add(name)
        if not container.get("image"):
            yield required(f"{where}.image")
        yield from resources.container_errors(container["resources"], f"{where}.resources")


def pod_errors(pod: Object) -> Iterator[FieldError]:
    spec = pod["spec"]
    if not spec.get("containers"):
        yield required("spec.containers")
    for field in ("containers", "initContainers"):
        yield from _container_errors(spec.get(field) or [], f"spec.{field}")
    if "resources" in spec:
        yield from resources.pod_level_errors(spec)
    if spec["restartPolicy"] not in ("Always", "OnFailure", "Never"):
        yield unsupported("spec.restartPolicy", spec["restartPolicy"], ("Always", "OnFailure", "Never"))
    for field in ("hostname", "subdomain"):
        if name := spec.get(field):
            yield from name_errors(name, f"spec.{field}", label=True)
    if node := spec.get("nodeName"):
        yield from name_errors(node, "spec.nodeName")
        if spec.get("schedulingGates"):
            text = "Forbidden: cannot be set until all schedulingGates have been cleared"
            yield FieldError("spec.nodeName", text, "FieldValueForbidden")


_POD_UPDATES = (
    "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing "
    "tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def _frozen(spec: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in spec.items() if name not in ("activeDeadlineSeconds", "tolerations")}
    for field in ("containers", "initContainers"):
        if field in kept:
            kept[field] = [{key: part for key, part in each.items() if key != "image"} for each in kept[field]]
    return kept


def pod_update_errors(new: Object, old: Object) -> Iterator[FieldError]:
    asked, there = new["spec"], old["spec"]
    if asked.get("schedulingGates") != there.get("schedulingGates"):
        left, gates = asked.get("schedulingGates") or [], there.get("schedulingGates") or []
        if all(gate in gates for gate in left):  # gates may only go
            there = {**there, "schedulingGates": asked.get("schedulingGates")}
            asked = {**asked, "schedulingGates": asked.get("schedulingGates")}
    if asked != there and _frozen(asked) != _frozen(there):
        yield FieldError("spec", _POD_UPDATES, "FieldValueForbidden")


def default_node(node: Object) -> None:
    """A new node isn't ready until its kubelet reports so: it gets the taint that admission sets."""
    taints = node.setdefault("spec", {}).setdefault("taints", [])
    key = "node.kubernetes.io/not-ready"
    if not any(taint.get("key") == key for taint in taints):
        taints.append({"key": key, "effect": "NoSchedule"})
    node.setdefault("status", {})


def default_namespace(namespace: Object) -> None:
    """A new namespace is active and has its name as a label."""
    metadata = namespace["metadata"]
    metadata["labels"] = {**(metadata.get("labels") or {}), "kubernetes.io/metadata.name": metadata["name"]}
    namespace["spec"] = {"finalizers": ["kubernetes"]}
    namespace["status"] = {"phase": "Active"}


def default_secret(secret: Object) -> None:
    """`stringData` becomes `data`; the default type is Opaque."""
    plain = secret.pop("stringData", None) or {}
    if plain:
        encoded = {key: base64.b64encode(text.encode()).decode() for key, text in plain.items()}
        secret["data"] = {**(secret.get("data") or {}), **encoded}
    secret.setdefault("type", "Opaque")


def default_quota(quota: Object) -> None:
    """A new quota has no status; its amounts are stored in the API server's notation."""
    quota.pop("status", None)
    spec = quota.setdefault("spec", {})
    if "hard" in spec:
        spec["hard"] = _amounts(spec["hard"], "ResourceQuota")


_LIMIT_FIELDS = ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio")


def default_limit_range(limits: Object) -> None:
    """The defaults of containers that follow from each other and from bounds."""
    for of in limits.setdefault("spec", {}).get("limits") or ():
        for field in _LIMIT_FIELDS:
            if field in of:
                of[field] = _amounts(of[field], "LimitRange")
        if of.get("type") == "Container":
            default = {**of.get("max", {}), **of.get("default", {})}
            request = {**of.get("min", {}), **default, **of.get("defaultRequest", {})}
            of |= {field: value for field, value in (("default", default), ("defaultRequest", request)) if value}


def default_priority_class(of_class: Object) -> None:
    value = of_class.setdefault("value", 0)
    if type(value) is not int:
        message = "json: cannot unmarshal into Go struct field PriorityClass.value of type int32"
        raise bad_request(f'PriorityClass in version "v1" cannot be handled as a PriorityClass: {message}')
    of_class.setdefault("preemptionPolicy", "PreemptLowerPriority")


def default_claim(claim: Object) -> None:
    """A new claim has no volume, whatever it says of its status."""
    claim["status"] = {"phase": "Pending"}
    claim.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")


def default_volume(volume: Object) -> None:
    """A new volume is free, whatever it says of its status."""
    volume["status"] = {"phase": "Pending"}
    spec = volume.setdefault("spec", {})
    spec.setdefault("volumeMode", "Filesystem")
    spec.setdefault("persistentVolumeReclaimPolicy", "Retain")


def default_storage_class(of_class: Object) -> None:
    of_class.setdefault("reclaimPolicy", "Delete")
    of_class.setdefault("volumeBindingMode", "Immediate")


#: Defaults at the creation of an object, by kind.
DEFAULTS: dict[str, Callable[[Object], None]] = {
    "Pod": default_pod,
    "Node": default_node,
    "Namespace": default_namespace,
    "Secret": default_secret,
    "ResourceQuota": default_quota,
    "LimitRange": default_limit_range,
    "PriorityClass": default_priority_class,
    "PersistentVolumeClaim": default_claim,
    "PersistentVolume": default_volume,
    "StorageClass": default_storage_class,
}


def event_errors(event: Object) -> Iterator[FieldError]:
    """An event must be in the namespace of its object."""
    about = (event.get("involvedObject") or {}).get("namespace", "")
    where = event["metadata"].get("namespace")
    if about not in ("", where) or (not about and where != "default"):
        yield wrong("involvedObject.namespace", about, "does not match event.namespace")


def priority_class_errors(of_class: Object) -> Iterator[FieldError]:
    """Only the server's own classes are above a bound."""
    if of_class["value"] > _HIGHEST_PRIORITY and not of_class["metadata"]["name"].startswith("system-"):
        why = f"Forbidden: maximum allowed value of a user defined priority is {_HIGHEST_PRIORITY}"
        yield FieldError("value", why, "FieldValueForbidden")


def priority_class_update_errors(new: Object, old: Object) -> Iterator[FieldError]:
    if new.get("value") != old["value"]:
        yield FieldError("value", "Forbidden: may not be changed in an update.", "FieldValueForbidden")


_HIGHEST_PRIORITY = 1_000_000_000


def config_map_errors(config_map: Object) -> Iterator[FieldError]:
    """Its values have at most a mebibyte in all."""
    texts, blobs = config_map.get("data") or {}, config_map.get("binaryData") or {}
    if sum(len(text.encode()) for text in texts.values()) + sum(len(blob) * 3 // 4 for blob in blobs.values()) > _MIB:
        yield FieldError("[]", f"Too long: may not be more than {_MIB} bytes", "FieldValueTooLong")


#: Checks at the creation of an object, by kind.
CHECKS: dict[str, Callable[[Object], Iterator[FieldError]]] = {
    "Pod": pod_errors,
    "Event": event_errors,
    "PriorityClass": priority_class_errors,
    "ConfigMap": config_map_errors,
}
