"""Server-side printing: the `Table` that `kubectl get` asks for instead of the objects."""

import datetime
import re
from collections.abc import Callable
from typing import Any

import msgspec

from arranger.kube.cluster import Object
from arranger.sandbox.history import Stored
from arranger.sandbox.kinds import Column, Kind

_NAME = Column("Name", "string", ".metadata.name", "Name must be unique within a namespace.", "name")
_AGE = Column("Age", "string", "", "Time since the object was created.")


def _wide(name: str, description: str) -> Column:
    return Column(name, "string", "", description, priority=1)


def _plain(name: str, description: str, kind: str = "string") -> Column:
    return Column(name, kind, "", description)


def _moment(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))


def age(since: str | None, now_s: float) -> str:
    """A time since then as kubectl writes it (`12s`, `3m4s`, `2h`, `5d`), `<unknown>` without one."""
    if not since:
        return "<unknown>"
    try:
        seconds = int(now_s - _moment(since).timestamp())
    except ValueError:
        return "<invalid>"
    if seconds < -1:
        return "<invalid>"
    return duration(max(0, seconds))


def duration(seconds: int) -> str:
    """A duration as kubectl writes it: two units while they matter, one later."""
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return _two(minutes, "m", seconds % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _two(days, "d", hours % 24, "h")
    return f"{days}d" if days < 730 else _two(days // 365, "y", days % 365, "d")


def _two(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large}{large_unit}{small}{small_unit}" if small else f"{large}{large_unit}"


def _pod_status(pod: Object) -> str:
    status = pod.get("status") or {}
    shown = status.get("reason") or status.get("phase", "")
    for container in reversed(status.get("containerStatuses") or []):
        state = container.get("state") or {}
        for kind in ("waiting", "terminated"):
            if kind in state:
                shown = state[kind].get("reason") or _exit(state[kind]) or shown
    if pod["metadata"].get("deletionTimestamp") and status.get("phase") not in ("Succeeded", "Failed"):
        shown = "Terminating"
    return str(shown)


def _exit(state: dict[str, Any]) -> str:
    return f"ExitCode:{state['exitCode']}" if "exitCode" in state else ""


def _pod(pod: Object, now_s: float) -> list[Any]:
    spec, status = pod["spec"], pod.get("status") or {}
    containers = status.get("containerStatuses") or []
    ready = sum(bool(each.get("ready")) for each in containers)
    restarts = str(sum(each.get("restartCount", 0) for each in containers))
    gates = len(spec.get("readinessGates") or [])
    return [
        pod["metadata"]["name"],
        f"{ready}/{len(spec.get('containers') or [])}",
        _pod_status(pod),
        restarts,
        age(pod["metadata"].get("creationTimestamp"), now_s),
        status.get("podIP") or "<none>",
        spec.get("nodeName") or "<none>",
        status.get("nominatedNodeName") or "<none>",
        f"0/{gates}" if gates else "<none>",
    ]


def _node_status(node: Object) -> str:
    conditions = {each["type"]: each["status"] for each in (node.get("status") or {}).get("conditions") or []}
    ready = {"True": "Ready", "False": "NotReady"}.get(conditions.get("Ready", ""), "Unknown")
    if "Ready" in conditions and conditions["Ready"] == "Unknown":
        ready = "NotReady"
    return ready + (",SchedulingDisabled" if node["spec"].get("unschedulable") else "")


def _address(node: Object, kind: str) -> str:
    addresses = (node.get("status") or {}).get("addresses") or []
    return next((each["address"] for each in addresses if each["type"] == kind), "<none>")


def _node(node: Object, now_s: float) -> list[Any]:
    prefix = "node-role.kubernetes.io/"
    labels = node["metadata"].get("labels") or {}
    roles = sorted(key.removeprefix(prefix) for key in labels if key.startswith(prefix))
    info = (node.get("status") or {}).get("nodeInfo") or {}
    return [
        node["metadata"]["name"],
        _node_status(node),
        ",".join(roles) or "<none>",
        age(node["metadata"].get("creationTimestamp"), now_s),
        info.get("kubeletVersion", ""),
        _address(node, "InternalIP"),
        _address(node, "ExternalIP"),
        info.get("osImage") or "<unknown>",
        info.get("kernelVersion") or "<unknown>",
        info.get("containerRuntimeVersion") or "<unknown>",
    ]


def _event(event: Object, now_s: float) -> list[Any]:
    about, series = event.get("involvedObject") or {}, event.get("series") or {}
    first = event.get("firstTimestamp") or event.get("eventTime")
    last = series.get("lastObservedTime") or event.get("lastTimestamp") or first
    source = (event.get("source") or {}).get("component") or event.get("reportingComponent") or ""
    return [
        age(last, now_s),
        event.get("type", ""),
        event.get("reason", ""),
        f"{about.get('kind', '').lower()}/{about.get('name', '')}",
        about.get("fieldPath", ""),
        source,
        (event.get("message") or "").strip(),
        age(first, now_s),
        event.get("count") or series.get("count") or 1,
        event["metadata"]["name"],
    ]


def _namespace(namespace: Object, now_s: float) -> list[Any]:
    metadata = namespace["metadata"]
    return [metadata["name"], namespace["status"]["phase"], age(metadata.get("creationTimestamp"), now_s)]


def _config_map(config: Object, now_s: float) -> list[Any]:
    metadata = config["metadata"]
    count = len(config.get("data") or {}) + len(config.get("binaryData") or {})
    return [metadata["name"], count, age(metadata.get("creationTimestamp"), now_s)]


def _secret(secret: Object, now_s: float) -> list[Any]:
    metadata = secret["metadata"]
    count = len(secret.get("data") or {})
    return [metadata["name"], secret.get("type", ""), count, age(metadata.get("creationTimestamp"), now_s)]


def _quota(quota: Object, now_s: float) -> list[Any]:
    metadata, status = quota["metadata"], quota.get("status") or {}
    used = status.get("used") or {}
    shown = {name: f"{name}: {used.get(name, '0')}/{hard}" for name, hard in sorted((status.get("hard") or {}).items())}
    requests = ", ".join(text for name, text in shown.items() if not name.startswith("limits"))
    limits = ", ".join(text for name, text in shown.items() if name.startswith("limits"))
    return [metadata["name"], requests, limits, age(metadata.get("creationTimestamp"), now_s)]


def _lease(lease: Object, now_s: float) -> list[Any]:
    metadata = lease["metadata"]
    holder = (lease.get("spec") or {}).get("holderIdentity", "")
    return [metadata["name"], holder, age(metadata.get("creationTimestamp"), now_s)]


def _named(obj: Object, now_s: float) -> list[Any]:
    return [obj["metadata"]["name"], age(obj["metadata"].get("creationTimestamp"), now_s)]


def _definition(crd: Object, _now_s: float) -> list[Any]:
    return [crd["metadata"]["name"], crd["metadata"].get("creationTimestamp")]


_Row = Callable[[Object, float], list[Any]]
_BUILT_IN: dict[str, tuple[tuple[Column, ...], _Row]] = {
    "Pod": (
        (
            _NAME,
            _plain("Ready", "The aggregate readiness state of this pod for accepting traffic."),
            _plain("Status", "The aggregate status of the containers in this pod."),
            _plain("Restarts", "How often the containers in this pod have been restarted."),
            _AGE,
            _wide("IP", "Address of the pod."),
            _wide("Node", "The node that the pod is bound to."),
            _wide("Nominated Node", "The node that is being cleared for the pod."),
            _wide("Readiness Gates", "Readiness gates that are met."),
        ),
        _pod,
    ),
    "Node": (
        (
            _NAME,
            _plain("Status", "The status of the node"),
            _plain("Roles", "The roles of the node"),
            _AGE,
            _plain("Version", "Kubelet version of the node."),
            _wide("Internal-IP", "Address within the cluster."),
            _wide("External-IP", "Address outside the cluster."),
            _wide("OS-Image", "Operating system of the node."),
            _wide("Kernel-Version", "Kernel of the node."),
            _wide("Container-Runtime", "Container runtime of the node."),
        ),
        _node,
    ),
    "Event": (
        (
            _plain("Last Seen", "When it was last seen."),
            _plain("Type", "Normal or Warning."),
            _plain("Reason", "A short word for the reason."),
            _plain("Object", "What the event is about."),
            _wide("Subobject", "The part of the object that it is about."),
            _wide("Source", "Who reports it."),
            _plain("Message", "What happened."),
            _wide("First Seen", "When it was first seen."),
            _wide("Count", "How often it was seen."),
            Column("Name", "string", "", "Name of the event.", "name", priority=1),
        ),
        _event,
    ),
    "Namespace": ((_NAME, _plain("Status", "The status of the namespace"), _AGE), _namespace),
    "ConfigMap": ((_NAME, _plain("Data", "How many entries it has."), _AGE), _config_map),
    "Secret": ((_NAME, _plain("Type", "Its type."), _plain("Data", "How many entries it has."), _AGE), _secret),
    "ResourceQuota": (
        (_NAME, _plain("Request", "What its requests use."), _plain("Limit", "What its limits use."), _AGE),
        _quota,
    ),
    "Lease": ((_NAME, _plain("Holder", "Who holds the lease."), _AGE), _lease),
    "CustomResourceDefinition": ((_NAME, _plain("Created At", "When it was created.", "date")), _definition),
}

_STEP = re.compile(
    r"\.([A-Za-z0-9_-]+)|\['([^']+)'\]|\[(\d+)\]|\[\?\(@\.([A-Za-z0-9_.-]+)\s*==\s*[\"']([^\"']*)[\"']\)\]"
)


def _filtered(value: Any, path: str, wanted: str) -> Any:
    items = value if isinstance(value, list) else []
    return next((item for item in items if str(_at(item, "." + path)) == wanted), None)


def _at(value: Any, path: str) -> Any:
    """The value at a JSON path of the kinds that printer columns use: fields, indices and one equality filter."""
    for name, quoted, index, tested, wanted in _STEP.findall(path.replace("\\.", "\0")):
        if tested:
            value = _filtered(value, tested, wanted)
        elif index:
            value = value[int(index)] if isinstance(value, list) and int(index) < len(value) else None
        else:
            key = (name or quoted).replace("\0", ".")
            value = value.get(key) if isinstance(value, dict) else None
    return value


def _cell(obj: Object, column: Column, now_s: float) -> Any:
    value = _at(obj, column.path)
    if column.type == "date":
        return age(value, now_s) if value else "<unknown>" if column.path == ".metadata.creationTimestamp" else None
    if value is None or column.type != "string":
        return value
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def columns(kind: Kind) -> tuple[Column, ...]:
    """The columns of a kind's table."""
    if not kind.typed:
        return (_NAME, *kind.columns)
    return _BUILT_IN[kind.resource.kind][0] if kind.resource.kind in _BUILT_IN else (_NAME, _AGE)


def _cells(kind: Kind, obj: Object, now_s: float) -> list[Any]:
    if not kind.typed:
        return [obj["metadata"]["name"], *(_cell(obj, column, now_s) for column in kind.columns)]
    row = _BUILT_IN[kind.resource.kind][1] if kind.resource.kind in _BUILT_IN else _named
    return row(obj, now_s)


def _shown(stored: Stored, include: str) -> Object | None:
    if include == "None":
        return None
    if include == "Object":
        return stored.object
    return partial_metadata(stored)


def partial_metadata(stored: Stored) -> Object:
    """An object reduced to its metadata."""
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": stored.object["metadata"]}


def table(
    kind: Kind,
    items: list[Stored],
    *,
    metadata: dict[str, Any],
    now_s: float,
    include: str = "Metadata",
    headed: bool = True,
) -> Object:
    """The table of some objects. `include` says what each row carries; a watch has its head in the first only."""
    head = [
        {"name": c.name, "type": c.type, "format": c.format, "description": c.description, "priority": c.priority}
        for c in columns(kind)
    ]
    rows = [{"cells": _cells(kind, stored.object, now_s), "object": _shown(stored, include)} for stored in items]
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": head if headed else None,
        "rows": rows,
    }
