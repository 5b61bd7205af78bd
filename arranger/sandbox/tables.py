"""Server-side printing: the `Table` that `kubectl get` requests instead of the objects."""

import datetime
import re
from collections.abc import Callable
from typing import Any

import msgspec

from arranger.kube.cluster import Object
from arranger.sandbox.history import Stored
from arranger.sandbox.kinds import Column, ServedKind

#: The value of a cell, from an object and the present time in seconds since 1970.
_Cell = Callable[[Object, float], Any]
_Shown = tuple[Column, _Cell]


def age(since: str | None, now_s: float) -> str:
    """The time since a moment in kubectl's notation (`12s`, `3m4s`, `2h`, `5d`), `<unknown>` without one."""
    if not since:
        return "<unknown>"
    try:
        seconds = int(now_s - datetime.datetime.fromisoformat(since).timestamp())
    except ValueError:
        return "<invalid>"
    if seconds < -1:
        return "<invalid>"
    return duration(max(0, seconds))


def duration(seconds: int) -> str:
    """A duration in kubectl's notation: two units while the smaller one matters, else one."""
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


_STEP = re.compile(
    r"\.([A-Za-z0-9_-]+)|\['([^']+)'\]|\[(\d+)\]|\[\?\(@\.([A-Za-z0-9_.-]+)\s*==\s*[\"']([^\"']*)[\"']\)\]"
)


def _at(value: Any, path: str) -> Any:
    """The value at a JSON path of the forms that printer columns use: fields, indices and one equality filter."""
    for name, quoted, index, tested, expected in _STEP.findall(path.replace("\\.", "\0")):
        if tested:
            items = value if isinstance(value, list) else []
            value = next((item for item in items if str(_at(item, f".{tested}")) == expected), None)
        elif index:
            value = value[int(index)] if isinstance(value, list) and int(index) < len(value) else None
        else:
            key = (name or quoted).replace("\0", ".")
            value = value.get(key) if isinstance(value, dict) else None
    return value


def _field(*paths: str, otherwise: Any = "") -> _Cell:
    """The first non-empty value at one of the paths."""
    return lambda obj, _: next((value for path in paths if (value := _at(obj, path))), otherwise)


def _since(*paths: str) -> _Cell:
    """The age of the first time at one of the paths."""
    found = _field(*paths, otherwise=None)
    return lambda obj, now_s: age(found(obj, now_s), now_s)


def _printed(column: Column) -> _Cell:
    """The cell of a definition's printer column."""

    def cell(obj: Object, now_s: float) -> Any:
        value = _at(obj, column.path)
        if column.type == "date":
            return age(value, now_s) if value or column.path == ".metadata.creationTimestamp" else None
        if value is None or column.type != "string":
            return value
        return value if isinstance(value, str) else msgspec.json.encode(value).decode()

    return cell


def _pod_ready(pod: Object, _: float) -> str:
    ready = sum(bool(each.get("ready")) for each in _containers(pod))
    return f"{ready}/{len(pod['spec'].get('containers') or [])}"


def _containers(pod: Object) -> list[dict[str, Any]]:
    return (pod.get("status") or {}).get("containerStatuses") or []


def _pod_status(pod: Object, _: float) -> str:
    status = pod.get("status") or {}
    shown = status.get("reason") or status.get("phase", "")
    for container in reversed(_containers(pod)):
        state = container.get("state") or {}
        for kind in ("waiting", "terminated"):
            if kind in state:
                exit_code = f"ExitCode:{state[kind]['exitCode']}" if "exitCode" in state[kind] else ""
                shown = state[kind].get("reason") or exit_code or shown
    if pod["metadata"].get("deletionTimestamp") and status.get("phase") not in ("Succeeded", "Failed"):
        shown = "Terminating"
    return str(shown)


def _pod_restarts(pod: Object, _: float) -> str:
    return str(sum(each.get("restartCount", 0) for each in _containers(pod)))


def _pod_gates(pod: Object, _: float) -> str:
    gates = len(pod["spec"].get("readinessGates") or [])
    return f"0/{gates}" if gates else "<none>"


def _node_status(node: Object, _: float) -> str:
    ready = _at(node, '.status.conditions[?(@.type=="Ready")].status')
    shown = {"True": "Ready", "False": "NotReady", "Unknown": "NotReady"}.get(ready, "Unknown")
    return shown + (",SchedulingDisabled" if node["spec"].get("unschedulable") else "")


def _node_roles(node: Object, _: float) -> str:
    prefix = "node-role.kubernetes.io/"
    labels = node["metadata"].get("labels") or {}
    return ",".join(sorted(key.removeprefix(prefix) for key in labels if key.startswith(prefix))) or "<none>"


def _event_object(event: Object, _: float) -> str:
    about = event.get("involvedObject") or {}
    return f"{about.get('kind', '').lower()}/{about.get('name', '')}"


def _entries(*fields: str) -> _Cell:
    return lambda obj, _: sum(len(obj.get(field) or {}) for field in fields)


def _quota(*, limits: bool) -> _Cell:
    def cell(quota: Object, _: float) -> str:
        status = quota.get("status") or {}
        hard, used = status.get("hard") or {}, status.get("used") or {}
        names = [name for name in sorted(hard) if name.startswith("limits") == limits]
        return ", ".join(f"{name}: {used.get(name, '0')}/{hard[name]}" for name in names)

    return cell


def _shows(name: str, description: str, cell: _Cell, kind: str = "string", *, wide: bool = False) -> _Shown:
    return Column(name, kind, "", description, priority=int(wide)), cell


_NAME: _Shown = (
    Column("Name", "string", "", "Name must be unique within a namespace.", "name"),
    _field(".metadata.name"),
)
_CREATED = _field(".metadata.creationTimestamp")
_AGE = _shows("Age", "Time since the object was created.", _since(".metadata.creationTimestamp"))
_NOMINATED = _field(".status.nominatedNodeName", otherwise="<none>")
_FIRST_SEEN = (".firstTimestamp", ".eventTime")
_LAST_SEEN = (".series.lastObservedTime", ".lastTimestamp", *_FIRST_SEEN)

_BUILT_IN: dict[str, tuple[_Shown, ...]] = {
    "Pod": (
        _NAME,
        _shows("Ready", "The aggregate readiness state of this pod for accepting traffic.", _pod_ready),
        _shows("Status", "The aggregate status of the containers in this pod.", _pod_status),
        _shows("Restarts", "How often the containers in this pod have been restarted.", _pod_restarts),
        _AGE,
        _shows("IP", "Address of the pod.", _field(".status.podIP", otherwise="<none>"), wide=True),
        _shows("Node", "The node that the pod is bound to.", _field(".spec.nodeName", otherwise="<none>"), wide=True),
        _shows("Nominated Node", "The node that is being cleared for the pod.", _NOMINATED, wide=True),
        _shows("Readiness Gates", "Readiness gates that are met.", _pod_gates, wide=True),
    ),
    "Node": (
        _NAME,
        _shows("Status", "The status of the node", _node_status),
        _shows("Roles", "The roles of the node", _node_roles),
        _AGE,
        _shows("Version", "Kubelet version of the node.", _field(".status.nodeInfo.kubeletVersion")),
        *(
            _shows(name, text, _field(f'.status.addresses[?(@.type=="{kind}")].address', otherwise="<none>"), wide=True)
            for name, text, kind in (
                ("Internal-IP", "Address within the cluster.", "InternalIP"),
                ("External-IP", "Address outside the cluster.", "ExternalIP"),
            )
        ),
        *(
            _shows(name, text, _field(f".status.nodeInfo.{field}", otherwise="<unknown>"), wide=True)
            for name, text, field in (
                ("OS-Image", "Operating system of the node.", "osImage"),
                ("Kernel-Version", "Kernel of the node.", "kernelVersion"),
                ("Container-Runtime", "Container runtime of the node.", "containerRuntimeVersion"),
            )
        ),
    ),
    "Event": (
        _shows("Last Seen", "When it was last seen.", _since(*_LAST_SEEN)),
        _shows("Type", "Normal or Warning.", _field(".type")),
        _shows("Reason", "A short word for the reason.", _field(".reason")),
        _shows("Object", "What the event is about.", _event_object),
        _shows("Subobject", "The part of the object that it is about.", _field(".involvedObject.fieldPath"), wide=True),
        _shows("Source", "Who reports it.", _field(".source.component", ".reportingComponent"), wide=True),
        _shows("Message", "What happened.", lambda event, _: (event.get("message") or "").strip()),
        _shows("First Seen", "When it was first seen.", _since(*_FIRST_SEEN), wide=True),
        _shows("Count", "How often it was seen.", _field(".count", ".series.count", otherwise=1), wide=True),
        (Column("Name", "string", "", "Name of the event.", "name", priority=1), _field(".metadata.name")),
    ),
    "Namespace": (_NAME, _shows("Status", "The status of the namespace", _field(".status.phase")), _AGE),
    "ConfigMap": (_NAME, _shows("Data", "How many entries it has.", _entries("data", "binaryData")), _AGE),
    "Secret": (
        _NAME,
        _shows("Type", "Its type.", _field(".type")),
        _shows("Data", "How many entries it has.", _entries("data")),
        _AGE,
    ),
    "ResourceQuota": (
        _NAME,
        _shows("Request", "What its requests use.", _quota(limits=False)),
        _shows("Limit", "What its limits use.", _quota(limits=True)),
        _AGE,
    ),
    "Lease": (_NAME, _shows("Holder", "Who holds the lease.", _field(".spec.holderIdentity")), _AGE),
    "CustomResourceDefinition": (_NAME, _shows("Created At", "When it was created.", _CREATED, "date")),
}


def _columns(kind: ServedKind) -> tuple[_Shown, ...]:
    if not kind.typed:
        return (_NAME, *((column, _printed(column)) for column in kind.columns))
    return _BUILT_IN.get(kind.resource.kind, (_NAME, _AGE))


def _shown(stored: Stored, include: str) -> Object | None:
    if include == "None":
        return None
    if include == "Object":
        return stored.object
    return partial_metadata(stored)


def partial_metadata(stored: Stored) -> Object:
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": stored.object["metadata"]}


def table(
    kind: ServedKind,
    items: list[Stored],
    *,
    metadata: dict[str, Any],
    now_s: float,
    include: str = "Metadata",
    headed: bool = True,
) -> Object:
    """The table of some objects. `include` selects each row's object; in a watch, only the first table has a head."""
    columns = _columns(kind)
    head = [
        {"name": c.name, "type": c.type, "format": c.format, "description": c.description, "priority": c.priority}
        for c, _ in columns
    ]
    rows = [
        {"cells": [cell(stored.object, now_s) for _, cell in columns], "object": _shown(stored, include)}
        for stored in items
    ]
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": head if headed else None,
        "rows": rows,
    }
