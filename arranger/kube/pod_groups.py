"""PodGroups as JSON: how they are observed, and the part of their status that a scheduler writes.

Coscheduling's own controller makes the status of its PodGroups from their pods, whichever scheduler places these. The
schedulers of Volcano and of Kubernetes write those of their kinds, so Arranger does that for groups that it places.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from arranger.events.pod_groups import PodGroupSeen
from arranger.kube.cluster import NATIVE_GROUPS, VOLCANO_GROUPS, VOLCANO_JOBS, Object, Resource
from arranger.kube.pods_to_place import MOST_PODS, name_in
from arranger.kube.translate import status_digest
from arranger.model.pod import GroupKind, PodGroupFacts, PodGroupStatus
from arranger.model.quantity import QuantityError, amount
from arranger.model.queue import QUEUE_ANNOTATION

#: The kinds whose status Arranger writes, in each version, and the subresource by which: Volcano's definition has none.
WRITTEN: dict[GroupKind, tuple[tuple[Resource, ...], str]] = {
    GroupKind.VOLCANO: ((VOLCANO_GROUPS,), ""),
    GroupKind.NATIVE: (NATIVE_GROUPS, "status"),
}
#: The condition of Kubernetes' own kind, in version v1alpha2 and since then.
_SCHEDULED, _INITIALLY = "PodGroupScheduled", "PodGroupInitiallyScheduled"
#: The types of the conditions that a scheduler writes, by kind.
_CONDITIONS = {GroupKind.VOLCANO: ("Unschedulable", "Scheduled"), GroupKind.NATIVE: (_SCHEDULED, _INITIALLY)}
#: The scheduler that pods of Volcano's PodGroups name, unless their templates name another one.
VOLCANO_SCHEDULER = "volcano"
#: The owners that make no pods before their PodGroup was let in, by API group: their resources. Others, such as
#: KubeRay's, needn't be read. `deploy/` has the rights.
_OWNERS = {
    "batch.volcano.sh": ("jobs",),
    "kubeflow.org": ("tfjobs", "pytorchjobs", "mpijobs", "xgboostjobs", "paddlejobs", "jaxjobs"),
}
#: A longer limit is none: a year, in seconds.
_LONGEST_S = 365 * 86_400
_COUNTS = ("running", "succeeded", "failed")
_OF_CONDITION = ("type", "status", "reason", "message")


def pod_group_seen(kind: GroupKind, group: Mapping[str, Any], term: int) -> PodGroupSeen:
    """The observation of a PodGroup of this kind."""
    metadata, spec, status = group["metadata"], group.get("spec") or {}, group.get("status") or {}
    own, (owner, owner_kind) = _own(kind, status), _owner(metadata)
    phase = own.get("phase") or next((of["status"] for of in own.get("conditions") or ()), "")
    return PodGroupSeen(
        term,
        metadata.get("namespace") or "",
        metadata["name"],
        metadata.get("uid") or "",
        metadata.get("resourceVersion") or "",
        kind,
        _facts(kind, metadata, spec),
        phase=name_in(phase),
        status_digest=status_digest(own),
        owner=owner,
        owner_kind=owner_kind,
    )


def _facts(kind: GroupKind, metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> PodGroupFacts:
    least, queue = spec.get("minMember"), (metadata.get("annotations") or {}).get(QUEUE_ANNOTATION)
    of_class, priority = spec.get("priorityClassName"), spec.get("priority")
    if kind == GroupKind.NATIVE:
        least = ((spec.get("schedulingPolicy") or {}).get("gang") or {}).get("minCount")
    if kind == GroupKind.VOLCANO:
        queue = queue or spec.get("queue")
    priority = priority if isinstance(priority, int) else None
    topology = _topology(spec) if kind == GroupKind.NATIVE else ""
    tasks = _tasks(spec) if kind == GroupKind.VOLCANO else ()
    coscheduling = spec if kind == GroupKind.COSCHEDULING else {}
    free, timeout_s = _min_resources(coscheduling), _seconds(coscheduling.get("scheduleTimeoutSeconds"))
    return PodGroupFacts(_count(least), name_in(queue), name_in(of_class), priority, topology, tasks, free, timeout_s)


def _seconds(limit: object) -> int | None:
    """A limit in seconds; None for none."""
    return min(limit, _LONGEST_S) if isinstance(limit, int) and limit > 0 else None


def _min_resources(spec: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
    """What the nodes must have free for a PodGroup of Coscheduling. What isn't a quantity, as a definition may allow,
    counts as nothing."""
    found: dict[str, int] = {}
    for name, quantity in (spec.get("minResources") or {}).items():
        with suppress(QuantityError):
            found[name_in(name)] = amount(name, quantity)
    return tuple(sorted((name, least) for name, least in found.items() if least > 0))


def _tasks(spec: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
    """The tasks of a PodGroup of Volcano that need pods, with how many."""
    found = spec.get("minTaskMember") or {}
    return tuple((name_in(name), _count(least)) for name, least in sorted(found.items()) if least)


def _topology(spec: Mapping[str, Any]) -> str:
    """The label of the only topology constraint that a PodGroup of Kubernetes may have; empty without one."""
    constraints = (spec.get("schedulingConstraints") or {}).get("topology") or ()
    return name_in(constraints[0].get("key")) if constraints else ""


def _count(least: object) -> int:
    """A minimum, in pods: one of them at least, and without a number."""
    return min(max(least, 1), MOST_PODS) if isinstance(least, int) else 1


def _owner(metadata: Mapping[str, Any]) -> tuple[str, str]:
    """The name and the kind of the object to which a PodGroup belongs, its controller if it has one; empty without."""
    owners = sorted(metadata.get("ownerReferences") or (), key=lambda of: not of.get("controller"))
    if not owners:
        return "", ""
    group, _, version = str(owners[0].get("apiVersion") or "").rpartition("/")
    parts = (owners[0].get("kind"), version, group)
    return name_in(owners[0].get("name")), name_in(".".join(str(part) for part in parts if part))


def owner_resource(owner_kind: str) -> Resource | None:
    """The resource of a PodGroup's owner, of which Arranger knows where its pod templates are; None for others."""
    kind, _, rest = owner_kind.partition(".")
    version, _, group = rest.partition(".")
    plural = f"{kind.lower()}s"
    return Resource(group, version, plural, kind) if plural in _OWNERS.get(group, ()) else None


def schedulers_of(owner: Mapping[str, Any]) -> set[str]:
    """The schedulers that the pods of a Volcano PodGroup's owner will name. Its operator lets those name Volcano's that
    name none themselves."""
    spec = owner.get("spec") or {}
    if owner.get("kind") == VOLCANO_JOBS.kind:  # Volcano writes that of the Job into all of its pods
        return {spec.get("schedulerName") or VOLCANO_SCHEDULER}
    return {of.get("schedulerName") or VOLCANO_SCHEDULER for of in _pod_specs(spec)}


def _pod_specs(within: object) -> Iterator[Mapping[str, Any]]:
    """The specs of the pod templates in a spec, wherever they are."""
    if isinstance(within, Mapping):
        if isinstance(within.get("containers"), list):
            yield within
            return
        within = [*within.values()]
    for part in within if isinstance(within, list) else ():
        yield from _pod_specs(part)


def _own(kind: GroupKind, status: Mapping[str, Any]) -> Object:
    """What of a status is the scheduler's, without times. A condition has one name in all versions of a kind, because
    an object that is observed in one may be written in another."""
    if kind not in _CONDITIONS:
        return {}
    found = [of for of in status.get("conditions") or () if of.get("type") in _CONDITIONS[kind]]
    own: Object = {"conditions": [{name: of.get(name) or "" for name in _OF_CONDITION} for of in found]}
    if kind == GroupKind.NATIVE:
        own["conditions"] = [of | {"type": _SCHEDULED} for of in own["conditions"]]
    if kind == GroupKind.VOLCANO:
        own |= {"phase": status.get("phase"), **{name: status.get(name) or None for name in _COUNTS}}
    return own


def desired_digest(kind: GroupKind, desired: PodGroupStatus) -> str:
    """As `PodGroupSeen.status_digest`, of a status that is to be."""
    return status_digest(_own(kind, _as_json(kind, desired)))


def status_patch(resource: Resource, kind: GroupKind, desired: PodGroupStatus, live: Object, now: str) -> Object:
    """The merge patch of a status that makes it the desired one, in the version of a resource. Conditions of others
    stay; one of ours keeps the time of its transition while its status stays, and gets `now` else."""
    stored = (live.get("status") or {}).get("conditions") or []
    patch = _as_json(kind, desired)
    if kind == GroupKind.NATIVE and resource.version != "v1alpha2":
        patch["conditions"] = [of | {"type": _INITIALLY} for of in patch["conditions"]]
    others = [of for of in stored if of.get("type") not in _CONDITIONS[kind]]
    for of in patch["conditions"]:
        before: Object = next((old for old in stored if old.get("type") == of["type"]), {})
        same = before.get("status") == of["status"] and before.get("lastTransitionTime")
        of["lastTransitionTime"] = same or now
        if kind == GroupKind.NATIVE:
            of["observedGeneration"] = live["metadata"].get("generation") or 0
    return {**patch, "conditions": [*others, *patch["conditions"]]}


def _as_json(kind: GroupKind, desired: PodGroupStatus) -> Object:
    conditions = [dict(zip(_OF_CONDITION, of, strict=True)) for of in desired.conditions]
    if kind == GroupKind.NATIVE:
        return {"conditions": conditions}
    return {"phase": desired.phase, **dict(zip(_COUNTS, desired.counts, strict=True)), "conditions": conditions}
