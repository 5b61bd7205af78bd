"""Convert Kubernetes objects in files to the observations that a watcher would make of them.

Objects from an API server are used as they are. Objects written by hand have no UID. They get the values that a server,
a kubelet or the order of `kubectl apply` would add, the same every time:

- all objects: the namespace `default`, and a UID made from the name
- a TYJob without a creation time: one second after the TYJob before it, and later than all given creation times
- a claim: the default class, the volume that is for it, and a phase
- a quota: a status with its limits, and with the use by the pods in the files
- a node: Ready if it has no conditions, its capacity if it has no allocatable, and room for 110 pods
"""

import copy
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from arranger.cli.inputs import device_input, volume_input
from arranger.cli.inputs.cluster_files import Found
from arranger.cli.rendering.output import say
from arranger.errors import UsageError
from arranger.events import kinds as k
from arranger.kube.times import parse_time_ms
from arranger.kube.translate import (
    job_seen,
    namespace_seen,
    node_seen,
    pod_seen,
    priority_class_seen,
    queue_seen,
    quota_seen,
    runtime_class_seen,
)
from arranger.model.checks import Check
from arranger.model.job import PodGroup
from arranger.model.names import GROUP, KIND
from arranger.model.pod import TERMINAL
from arranger.model.quantity import quantity
from arranger.model.queue import QUEUE_KIND
from arranger.model.quota import covers, quota_amounts, quota_scopes, unit_of, used_by
from arranger.model.template import pod_shape, quota_traits
from arranger.replay.what_if.simulation import TERMS

#: The kubelet's default.
_PODS = "110"
_NAMESPACE = "default"
#: (kind, group) of the objects that are read → whether they are namespaced.
_KINDS = {
    ("Node", ""): False,
    ("Pod", ""): True,
    ("ResourceQuota", ""): True,
    ("PriorityClass", "scheduling.k8s.io"): False,
    ("RuntimeClass", "node.k8s.io"): False,
    (QUEUE_KIND, GROUP): False,
    ("Namespace", ""): False,
    (KIND, GROUP): True,
}

#: Kind without a namespace, beside nodes → how it is observed.
_BY_NAME: dict[str, tuple[Callable[..., k.Event], k.Watched]] = {
    "PriorityClass": (priority_class_seen, k.Watched.PRIORITY_CLASS),
    "RuntimeClass": (runtime_class_seen, k.Watched.RUNTIME_CLASS),
    QUEUE_KIND: (queue_seen, k.Watched.QUEUE),
    "Namespace": (namespace_seen, k.Watched.NAMESPACE),
}

Object = dict[str, Any]


class Described(msgspec.Struct, frozen=True):
    """A cluster as files describe it. `time_ms` is a time after all its objects; `ignored` counts other kinds."""

    observations: tuple[k.Event, ...]
    time_ms: int
    ignored: dict[str, int]


def described(
    objects: Iterable[Found],
    checks: Check,
    *,
    with_volumes: bool = False,
    with_devices: bool = False,
    now_ms: int = 0,
) -> Described:
    """The observations of Nodes, Pods, ResourceQuotas, PriorityClasses, RuntimeClasses, Queues, Namespaces and TYJobs,
    `with_volumes` of claims and volumes, and `with_devices` of devices and resource claims.

    Raises `UsageError`, which names file and line, for a malformed object. An invalid TYJob or Queue is not an error:
    it is observed as invalid, as by the watcher. The cluster is seen at `now_ms`, unless a TYJob is newer.
    """
    ignored: dict[str, int] = {}
    known: dict[tuple[str, str, str], Found] = {}
    kinds = _KINDS | (volume_input.KINDS if with_volumes else {}) | (device_input.KINDS if with_devices else {})
    for found in objects:
        if (found.kind, found.group) not in kinds:
            ignored[found.kind] = ignored.get(found.kind, 0) + 1
            continue
        named = _with_name(found)
        metadata = named.item["metadata"]
        key = (named.kind, metadata.get("namespace", ""), metadata["name"])
        if key in known:
            raise UsageError(f"{named.where}: {_label(named)} is already in {known[key].where}")
        known[key] = named
    jobs = list(_with_times([found for found in known.values() if found.kind == KIND]))
    uids = {
        (job.item["metadata"]["namespace"], job.item["metadata"]["name"]): job.item["metadata"]["uid"] for job in jobs
    }
    pods = [_owned(found, uids) for found in known.values() if found.kind == "Pod"]
    nodes = [found for found in known.values() if found.kind == "Node"]
    seen: list[k.Event] = [_seen(node, node_seen, k.Watched.NODE) for node in nodes]
    seen += [_seen(pod, pod_seen, k.Watched.POD, with_volumes=with_volumes) for pod in pods]
    seen += [_seen(job, job_seen, k.Watched.JOB, with_status=True, checks=checks) for job in jobs]
    quotas = [found for found in known.values() if found.kind == "ResourceQuota"]
    seen += [_seen(one, lambda item, term: quota_seen(_counted(item, pods), term), k.Watched.QUOTA) for one in quotas]
    for kind, (translate, watched) in _BY_NAME.items():
        seen += [_seen(found, translate, watched) for found in known.values() if found.kind == kind]
    for found in _volumes(known.values()):
        seen.append(_seen(found, *volume_input.OBSERVED[found.kind]))
    seen += [_seen(of, *device_input.OBSERVED[of.kind]) for of in known.values() if of.kind in device_input.OBSERVED]
    created = [parse_time_ms(job.item["metadata"]["creationTimestamp"]) for job in jobs]
    return Described(tuple(seen), max(now_ms, max(created, default=0) + 1000), ignored)


def say_ignored(cluster: Described) -> None:
    """Print to standard error the kinds of objects that are ignored."""
    if cluster.ignored:
        kinds = ", ".join(f"{count} {kind}" for kind, count in cluster.ignored.items())
        volumes = cluster.ignored.keys() & volume_input.OBSERVED.keys()
        more = "; with --volumes true, on claims and volumes, too" if volumes else ""
        if cluster.ignored.keys() & device_input.OBSERVED.keys():
            more += "; with --devices true, on devices and resource claims, too"
        say(
            f"arranger: ignored: {kinds} (a plan depends on Nodes, Pods, ResourceQuotas, PriorityClasses, "
            f"RuntimeClasses, Queues, Namespaces and TYJobs{more})",
            err=True,
        )


def _volumes(objects: Iterable[Found]) -> list[Found]:
    """The objects that are about volumes, as they would be on a server."""
    of_volumes = [found for found in objects if found.kind in volume_input.OBSERVED]
    try:
        return volume_input.completed(of_volumes)
    except (ValueError, TypeError, KeyError, AttributeError) as problem:
        raise UsageError(f"a claim, a volume or a StorageClass can't be understood: {problem}") from problem


def _counted(quota: Object, pods: Iterable[Found]) -> Object:
    """The quota with the status that its controller would set with these pods in the cluster."""
    spec = quota.get("spec") or {}
    hard = spec.get("hard") or {}
    total = dict.fromkeys(dict(quota_amounts(hard)), 0)
    namespace, scopes = quota["metadata"]["namespace"], quota_scopes(spec)
    for found in pods:
        pod = found.item
        phase = (pod.get("status") or {}).get("phase")
        if pod["metadata"]["namespace"] != namespace or phase in TERMINAL:
            continue
        of_pod = pod.get("spec") or {}
        group = PodGroup("", 1, pod_shape(of_pod), quota_traits(of_pod))
        if covers(scopes, group):
            for name, value in used_by(group).items():
                if name in total:
                    total[name] += value
    used = {name: quantity(unit_of(name), value) for name, value in total.items()}
    return {**quota, "status": {"hard": hard, "used": used}}


def _seen(found: Found, translate: Callable[..., k.Event], kind: k.Watched, **options: Any) -> k.Event:
    try:
        return translate(found.item, TERMS[kind], **options)
    except (ValueError, TypeError, KeyError, AttributeError) as problem:
        why = f"{problem.args[0]} is missing" if isinstance(problem, KeyError) else str(problem)
        raise UsageError(f"{found.where}: {_label(found)} can't be understood: {why}") from problem


def _label(found: Found) -> str:
    metadata = found.item["metadata"]
    return f"{found.kind} {metadata.get('namespace', '')}{'/' if 'namespace' in metadata else ''}{metadata['name']}"


def _with_name(found: Found) -> Found:
    """The object with a namespace, a UID, and other values that only a server would add."""
    item = copy.copy(found.item)
    metadata = item.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(metadata, dict) or not isinstance(name, str) or not name:
        raise UsageError(f"{found.where}: metadata.name is missing", hint=f"every {found.kind} needs a name")
    for field in ("namespace", "uid", "resourceVersion"):
        if not isinstance(metadata.get(field) or "", str):
            raise UsageError(f"{found.where}: metadata.{field} of {found.kind} {name} must be a text")
    by_hand = not metadata.get("uid")
    metadata = dict(metadata)
    if (_KINDS | volume_input.KINDS | device_input.KINDS)[found.kind, found.group]:
        metadata["namespace"] = metadata.get("namespace") or _NAMESPACE
    metadata["uid"] = metadata.get("uid") or "/".join((found.kind.lower(), metadata.get("namespace", ""), name))
    metadata["resourceVersion"] = metadata.get("resourceVersion") or "1"
    item["metadata"] = metadata
    if found.kind != KIND:
        try:
            item = _with_text_amounts(item)
        except RecursionError as problem:
            raise UsageError(f"{found.where}: {found.kind} {name} contains itself") from problem
    if found.kind == "Node" and by_hand:
        item = _with_kubelet(item)
    return msgspec.structs.replace(found, item=item)


def _with_kubelet(node: Object) -> Object:
    """A node as its kubelet would have registered it."""
    status = node.get("status") or {}
    if not isinstance(status, dict):
        return node
    allocatable = status.get("allocatable") or status.get("capacity") or {}
    if isinstance(allocatable, dict):
        allocatable = {"pods": _PODS} | allocatable
    conditions = status.get("conditions") or [{"type": "Ready", "status": "True"}]
    return {**node, "status": {**status, "allocatable": allocatable, "conditions": conditions}}


def _with_text_amounts(value: Any) -> Any:
    """Convert fractions to text: in a Node or a Pod, only amounts are fractions, and Kubernetes reads 0.5 as "0.5"."""
    if isinstance(value, dict):
        return {name: _with_text_amounts(value[name]) for name in value}
    if isinstance(value, list):
        return [_with_text_amounts(entry) for entry in value]
    return f"{value:f}" if isinstance(value, float) else value


def _with_times(jobs: list[Found]) -> Iterator[Found]:
    """The jobs with creation times: jobs without one count as created after the others, in their order. A job that says
    it has nodes, but not since when, counts as having them since its creation."""
    given = [parse_time_ms(job.item["metadata"].get("creationTimestamp")) for job in jobs]
    latest_s = max(given, default=0) // 1000
    for job, created_ms in zip(jobs, given, strict=True):
        latest_s += not created_ms
        created = datetime.fromtimestamp(created_ms / 1000 if created_ms else latest_s, UTC).isoformat()
        metadata = job.item["metadata"] if created_ms else {**job.item["metadata"], "creationTimestamp": created}
        yield msgspec.structs.replace(job, item=_with_nodes_since(created, {**job.item, "metadata": metadata}))


def _with_nodes_since(created: str, job: Object) -> Object:
    status = job.get("status")
    if not isinstance(status, dict) or not status.get("allocations") or "conditions" in status:
        return job
    since = {"type": "Scheduled", "status": "True", "lastTransitionTime": created}
    return {**job, "status": {**status, "conditions": [since]}}


def _owned(pod: Found, uids: dict[tuple[str, str], str]) -> Found:
    """The pod; owner references without a UID get that of the TYJob of that name."""
    metadata = pod.item["metadata"]
    references = metadata.get("ownerReferences")
    if not isinstance(references, list) or not all(isinstance(one, dict) for one in references):
        return pod
    completed = [
        one if one.get("uid") else {**one, "uid": uids.get((metadata["namespace"], str(one.get("name"))), "")}
        for one in references
    ]
    return msgspec.structs.replace(pod, item={**pod.item, "metadata": {**metadata, "ownerReferences": completed}})
