"""Convert Kubernetes objects in files to the observations that a watcher would make of them.

Objects from an API server are used as they are. Objects written by hand have no UID. They get the values that a server,
a kubelet or the order of `kubectl apply` would add, the same every time:

- all objects: the namespace `default`, and a UID made from the name
- a TYJob or a pod to place without a creation time: one second after the one before it, and later than all given
  creation times
- a pod: the priority of its PriorityClass, what LimitRanges and its RuntimeClass add, and its QoS class
- a claim: the default class, the volume that is for it, and a phase
- a quota: a status with its limits, and with the use by the pods in the files
- a node: Ready if it has no conditions, its capacity if it has no allocatable, and room for 110 pods
"""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec

from arranger.cli.inputs import volume_input
from arranger.cli.inputs.cluster_files import FoundObject
from arranger.cli.inputs.known_fields import wrong_fields
from arranger.cli.rendering.output import say
from arranger.errors import UsageError
from arranger.events import kinds as k
from arranger.kube.cluster import ApiError
from arranger.kube.sources import SOURCES
from arranger.kube.times import parse_time_ms
from arranger.kube.translate import controlling_job, job_seen, pod_seen, quota_seen
from arranger.model.checks import Check
from arranger.model.job import PodGroup
from arranger.model.names import KIND
from arranger.model.pod import TERMINAL
from arranger.model.quantity import quantity
from arranger.model.quota import covers, quota_amounts, quota_scopes, unit_of, used_by
from arranger.model.template import pod_shape, qos_class, quota_traits
from arranger.replay.what_if.simulation import TERMS
from arranger.sandbox.admission import limit, limits_as_stored, prioritise, run_in_class

#: The kubelet's default.
_PODS = "110"
_NAMESPACE = "default"
_DEFAULT_SCHEDULER = "default-scheduler"
#: So many names of what is left out are shown.
_SHOWN = 5
#: (kind, group) of the objects of which some are read → their watch.
_WATCHES = {(of.resource.kind, of.resource.group): kind for kind, of in SOURCES.items()}

_ALONE = (
    "a plan depends on Nodes, Pods, PodGroups, ResourceQuotas, LimitRanges, PriorityClasses, RuntimeClasses, Queues, "
    "Namespaces and TYJobs"
)

Object = dict[str, Any]


class LeftOut(msgspec.Struct, frozen=True, rename="camel"):
    """Objects of one kind that have no part in a plan, and why. An object without a name counts, but isn't in `names`,
    which are NAMESPACE/NAME for namespaced kinds. `group` is that of the API, empty for the core group."""

    kind: str
    group: str
    count: int
    names: tuple[str, ...]
    why: str


class Described(msgspec.Struct, frozen=True):
    """A cluster as files describe it. `time_ms` is a time after all its objects."""

    observations: tuple[k.Event, ...]
    time_ms: int
    left_out: tuple[LeftOut, ...]


def described(
    objects: Iterable[FoundObject],
    checks: Check,
    *,
    schedulers: tuple[str, ...] = (),
    priorities: Mapping[str, Object] | None = None,
    with_volumes: bool = False,
    with_devices: bool = False,
    now_ms: int = 0,
) -> Described:
    """The observations of Nodes, Pods, PodGroups, ResourceQuotas, LimitRanges, PriorityClasses, RuntimeClasses, Queues,
    Namespaces and TYJobs, `with_volumes` of claims and volumes, and `with_devices` of devices and resource claims.
    Pods that wait for one of these `schedulers` are to be placed. `priorities` are PriorityClasses beside those in the
    files, by name.

    Raises `UsageError`, which names file and line, for a malformed object. An invalid TYJob or Queue is not an error:
    it is observed as invalid, as by the watcher. The cluster is seen at `now_ms`, unless a TYJob or a pod to place is
    newer.
    """
    aside = _Aside()
    known = _known(objects, aside, with_volumes=with_volumes, with_devices=with_devices)
    known = list(_with_times(_admitted(known, schedulers, priorities or {}, aside), schedulers))
    jobs = [job.item["metadata"] for job in _of(known, KIND)]
    uids = {(job["namespace"], job["name"]): job["uid"] for job in jobs}
    pods = [_owned(found, uids) for found in _of(known, "Pod")]
    for pod in pods:
        if (awaited := _awaited(pod)) and not _is_taken(pod, schedulers):
            aside.put(
                pod,
                f"waits for scheduler {awaited}, and the setting scheduler_names is {', '.join(schedulers) or 'empty'}",
            )
    known = [*(of for of in known if _watch(of) not in (k.Watched.POD, *k.OF_VOLUMES)), *pods, *_volumes(known)]
    ways: dict[k.Watched, Callable[[Object, int], k.Event]] = {of: source.observe for of, source in SOURCES.items()}
    ways[k.Watched.POD] = partial(pod_seen, schedulers=schedulers, with_volumes=with_volumes, with_devices=with_devices)
    ways[k.Watched.JOB] = partial(job_seen, with_status=True, checks=checks)
    ways[k.Watched.QUOTA] = lambda item, term: quota_seen(_counted(item, pods), term)
    seen = _observations(known, ways)
    created = [parse_time_ms(of.item["metadata"].get("creationTimestamp")) for of in known if _is_taken(of, schedulers)]
    return Described(tuple(seen), max(now_ms, max(created, default=0) + 1000), aside.found())


def _observations(
    known: Iterable[FoundObject], ways: Mapping[k.Watched, Callable[[Object, int], k.Event]]
) -> list[k.Event]:
    """The observations of objects, kind by kind in the order of these ways to observe them."""
    order = {kind: number for number, kind in enumerate(ways)}
    return [_seen(found, ways[_watch(found)]) for found in sorted(known, key=lambda of: order[_watch(of)])]


class _Aside:
    """Collects what is left out."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, str, str], list[str]] = {}

    def put(self, found: FoundObject, why: str) -> None:
        self._names.setdefault((found.kind, found.group, why), []).append(_name(found))

    def found(self) -> tuple[LeftOut, ...]:
        return tuple(
            LeftOut(kind, group, len(names), tuple(filter(None, names)), why)
            for (kind, group, why), names in self._names.items()
        )


def left_out_lines(left_out: Iterable[LeftOut]) -> list[str]:
    """What has no part in a plan: one line for each reason, with the first names."""
    by_reason: dict[str, list[LeftOut]] = {}
    for of in left_out:
        by_reason.setdefault(of.why, []).append(of)
    return [f"not simulated: {', '.join(map(_in_words, found))}: {why}" for why, found in by_reason.items()]


def say_left_out(left_out: Iterable[LeftOut]) -> None:
    """Print it to standard error."""
    for line in left_out_lines(left_out):
        say(f"arranger: {line}", err=True)


def _in_words(of: LeftOut) -> str:
    kind = f"{of.kind}.{of.group}" if of.group else of.kind
    more = of.count - len(of.names[:_SHOWN])
    names = ", ".join([*of.names[:_SHOWN], *([f"{more} more"] if more and of.names else [])])
    return f"{of.count} {kind}{f' ({names})' if names else ''}"


def _known(
    objects: Iterable[FoundObject], aside: _Aside, *, with_volumes: bool, with_devices: bool
) -> list[FoundObject]:
    """The objects that are read, with the values that only a server or a kubelet would add. The others go aside."""
    settings = {"volumes": with_volumes, "devices": with_devices}
    known: dict[tuple[str, str, str, str], FoundObject] = {}
    for found in objects:
        watch = _WATCHES.get((found.kind, found.group), k.Watched.PROVISIONING)
        if watch == k.Watched.PROVISIONING or not settings.get(k.SETTING_OF.get(watch, ""), True):
            aside.put(found, _why_left_out(found))
            continue
        named = _with_name(found)
        if _by_hand(found) and (wrong := wrong_fields(found.kind, found.group, named.item)):
            raise UsageError(f"{found.where}: {_label(named)}: {wrong}")
        metadata = named.item["metadata"]
        key = (named.kind, named.group, metadata.get("namespace", ""), metadata["name"])
        if key in known:
            raise UsageError(f"{named.where}: {_label(named)} is already in {known[key].where}")
        known[key] = named
    return list(known.values())


def _why_left_out(found: FoundObject) -> str:
    watch = _WATCHES.get((found.kind, found.group))
    if watch in k.OF_VOLUMES:
        return "only with the setting volumes a plan depends on claims and volumes (arranger simulate --volumes true)"
    if watch in k.SETTING_OF:
        return "only with the setting devices a plan depends on devices (arranger simulate --devices true)"
    if watch == k.Watched.PROVISIONING:
        return "a plan has no autoscaler"
    if found.converted:
        return f"arranger convert makes a {found.converted} of a {found.kind} of {found.group}, which a plan depends on"
    plain = [of for of, kind in _WATCHES.items() if kind not in (*k.SETTING_OF, k.Watched.PROVISIONING)]
    groups = [group or "the core group" for kind, group in plain if kind == found.kind]
    return f"only {found.kind} of {' or '.join(groups)} is read: see apiVersion" if groups else _ALONE


def _watch(found: FoundObject) -> k.Watched:
    return _WATCHES[found.kind, found.group]


def _of(known: Iterable[FoundObject], kind: str) -> list[FoundObject]:
    return [found for found in known if found.kind == kind]


def _awaited(pod: FoundObject) -> str:
    """The scheduler that a pod without a TYJob waits for; empty if it waits for none."""
    with _understood(pod):
        spec, status = pod.item.get("spec") or {}, pod.item.get("status") or {}
        if spec.get("nodeName") or status.get("phase") in TERMINAL or controlling_job(pod.item["metadata"]) is not None:
            return ""
        return str(spec.get("schedulerName") or _DEFAULT_SCHEDULER)


def _is_taken(found: FoundObject, schedulers: tuple[str, ...]) -> bool:
    """Whether the object is in the line of jobs: a TYJob, or a pod that waits for one of these schedulers."""
    return found.kind == KIND or (found.kind == "Pod" and _awaited(found) in schedulers)


def _admitted(
    known: Sequence[FoundObject], schedulers: tuple[str, ...], priorities: Mapping[str, Object], aside: _Aside
) -> Iterator[FoundObject]:
    """The objects; a pod that was written by hand has what an API server would add for LimitRanges and its classes. One
    that waits for one of these schedulers and that an API server would refuse goes aside."""
    of_pods = {of.item["metadata"]["name"]: of.item for of in _of(known, "PriorityClass")}
    priorities = {**priorities, **of_pods}
    runtimes = {of.item["metadata"]["name"]: of.item for of in _of(known, "RuntimeClass")}
    ranges = [_limits(found) for found in _of(known, "LimitRange")]
    for found in known:
        if found.kind != "Pod" or not _by_hand(found):
            yield found
            continue
        try:
            with _understood(found):
                item = _as_created(found.item, priorities, ranges, runtimes)
            if wrong := wrong_fields(found.kind, found.group, item):  # of its RuntimeClass
                raise UsageError(f"{found.where}: {_label(found)}: {wrong}")
            yield msgspec.structs.replace(found, item=item)
        except ApiError as refused:
            if _is_taken(found, schedulers):
                aside.put(found, f"an API server with these objects would refuse it: {refused.message}")
            else:
                yield found


def _limits(found: FoundObject) -> Object:
    """A LimitRange with the defaults that an API server would store."""
    try:
        with _understood(found):
            return limits_as_stored(found.item)
    except ApiError as refused:
        raise UsageError(f"{found.where}: {_label(found)} can't be understood: {refused.message}") from refused


def _as_created(
    pod: Object, priorities: Mapping[str, Object], ranges: Iterable[Object], runtimes: Mapping[str, Object]
) -> Object:
    spec = copy.deepcopy(pod.get("spec") or {})
    pod = {**pod, "spec": spec}
    prioritise(pod, priorities)
    limit(pod, [of for of in ranges if of["metadata"]["namespace"] == pod["metadata"]["namespace"]])
    run_in_class(pod, runtimes)
    return {**pod, "status": {"qosClass": str(qos_class(spec)), **(pod.get("status") or {})}}


def _volumes(objects: Iterable[FoundObject]) -> list[FoundObject]:
    """The objects that are about volumes, as they would be on a server."""
    of_volumes = [found for found in objects if _watch(found) in k.OF_VOLUMES]
    try:
        return volume_input.completed(of_volumes)
    except (ValueError, TypeError, KeyError, AttributeError) as problem:
        raise UsageError(f"a claim, a volume or a StorageClass can't be understood: {problem}") from problem


def _counted(quota: Object, pods: Iterable[FoundObject]) -> Object:
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


def _seen(found: FoundObject, observe: Callable[..., k.Event]) -> k.Event:
    with _understood(found):
        return observe(found.item, TERMS[_watch(found)])


@contextmanager
def _understood(found: FoundObject) -> Iterator[None]:
    """Raise `UsageError` for the errors of reading a malformed object."""
    try:
        yield
    except (ValueError, TypeError, KeyError, AttributeError) as problem:
        why = f"{problem.args[0]} is missing" if isinstance(problem, KeyError) else str(problem)
        raise UsageError(f"{found.where}: {_label(found)} can't be understood: {why}") from problem


def _label(found: FoundObject) -> str:
    return f"{found.kind} {_name(found)}"


def _name(found: FoundObject) -> str:
    """The name with its namespace; empty for an object without a name."""
    metadata = found.item.get("metadata")
    if not isinstance(metadata, dict) or not metadata.get("name"):
        return ""
    return "/".join(str(metadata[part]) for part in ("namespace", "name") if metadata.get(part))


def _by_hand(found: FoundObject) -> bool:
    """Whether an object has no UID but the one that is made from its name, which no server gives."""
    uid = found.item["metadata"].get("uid")
    return not uid or "/" in uid


def _with_name(found: FoundObject) -> FoundObject:
    """The object with a namespace, a UID, and other values that only a server would add."""
    item = copy.copy(found.item)
    metadata = item.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(metadata, dict) or not isinstance(name, str) or not name:
        raise UsageError(f"{found.where}: metadata.name is missing", hint=f"every {found.kind} needs a name")
    for field in ("namespace", "uid", "resourceVersion"):
        if not isinstance(metadata.get(field) or "", str):
            raise UsageError(f"{found.where}: metadata.{field} of {found.kind} {name} must be a text")
    by_hand = _by_hand(found)
    metadata = dict(metadata)
    if SOURCES[_watch(found)].resource.namespaced:
        metadata["namespace"] = metadata.get("namespace") or _NAMESPACE
    if by_hand:
        metadata["uid"] = "/".join((found.kind.lower(), metadata.get("namespace", ""), name))
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


def _with_times(known: Iterable[FoundObject], schedulers: tuple[str, ...]) -> Iterator[FoundObject]:
    """The objects; TYJobs and pods that wait for one of them have creation times: those without one count as created
    after the others, in their order. A job that says it has nodes, but not since when, counts as having them since its
    creation."""
    found = list(known)
    given = [parse_time_ms(of.item["metadata"].get("creationTimestamp")) for of in found if _is_taken(of, schedulers)]
    latest_s = max(given, default=0) // 1000
    for of in found:
        if not _is_taken(of, schedulers):
            yield of
            continue
        created_ms = parse_time_ms(of.item["metadata"].get("creationTimestamp"))
        latest_s += not created_ms
        created = datetime.fromtimestamp(created_ms / 1000 if created_ms else latest_s, UTC).isoformat()
        metadata = of.item["metadata"] if created_ms else {**of.item["metadata"], "creationTimestamp": created}
        item = {**of.item, "metadata": metadata}
        yield msgspec.structs.replace(of, item=_with_nodes_since(created, item) if of.kind == KIND else item)


def _with_nodes_since(created: str, job: Object) -> Object:
    status = job.get("status")
    if not isinstance(status, dict) or not status.get("allocations") or "conditions" in status:
        return job
    since = {"type": "Scheduled", "status": "True", "lastTransitionTime": created}
    return {**job, "status": {**status, "conditions": [since]}}


def _owned(pod: FoundObject, uids: dict[tuple[str, str], str]) -> FoundObject:
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
