"""From pods that name Arranger as their scheduler, and from PodGroups, as JSON, to what the scheduler needs of them."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from arranger.events.pod_groups import PodGroupSeen
from arranger.kube.times import parse_time_ms
from arranger.model.names import USER_LABEL
from arranger.model.pod import GroupAsked, GroupKind, Labels, PodClaims, PodGroupFacts, PodToPlace
from arranger.model.queue import QUEUE_ANNOTATION
from arranger.model.template import grace_of, pod_shape
from arranger.model.text import one_line

#: Limit of a name that a user gives, in characters.
_LONGEST_NAME = 300
#: The labels that make a group of pods without an object, as Coscheduling's first versions had them.
_GROUP_NAME, _GROUP_MINIMUM = "pod-group.scheduling.sigs.k8s.io/name", "pod-group.scheduling.sigs.k8s.io/min-available"
#: By what a pod names a PodGroup: the label of Coscheduling, and the annotations of Volcano, the older one last.
_COSCHEDULING = "scheduling.x-k8s.io/pod-group"
_VOLCANO = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
#: A group that asks for more pods is none: no cluster holds so many.
_MOST = 1_000_000


def pod_to_place(
    pod: Mapping[str, Any], labels: Labels, scheduler: str, *, with_devices: bool = False
) -> PodToPlace | None:
    """What a pod with these labels asks of this scheduler; None if it names another one. `with_devices`: devices are
    allocated for its resource claims."""
    metadata, spec = pod["metadata"], pod.get("spec") or {}
    if not scheduler or spec.get("schedulerName") != scheduler:
        return None
    annotations = metadata.get("annotations") or {}
    shape, entries = pod_shape(spec, labels, name=metadata["name"]), spec.get("resourceClaims") or ()
    if with_devices and entries:
        claims = msgspec.structs.replace(shape.claims or PodClaims(), devices=_resource_claims(pod, entries))
        shape, entries = msgspec.structs.replace(shape, claims=claims), ()
    return PodToPlace(
        shape=shape,
        priority=int(spec.get("priority") or 0),
        gates=tuple(gate.get("name") or "" for gate in spec.get("schedulingGates") or ()),
        created_ms=parse_time_ms(metadata.get("creationTimestamp")),
        queue=_name(annotations.get(QUEUE_ANNOTATION)),
        user=_name(dict(labels).get(USER_LABEL)),
        grace_s=grace_of(spec),
        preempts=spec.get("preemptionPolicy") != "Never",
        group=_pod_group(spec, dict(labels), annotations) or _group(dict(labels)),
        claims=tuple(_name(claim.get("name")) for claim in entries),
    )


def _resource_claims(pod: Mapping[str, Any], entries: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, str], ...]:
    """The pod's name for each resource claim, and the claim: the one that it names, or that was made for it. A pod that
    needs none for a name has a status without one."""
    statuses = (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    made = {status.get("name"): status.get("resourceClaimName") for status in statuses}
    found = [(_name(of.get("name")), of.get("resourceClaimName") or made.get(of.get("name"), "")) for of in entries]
    return tuple((entry, _name(claim)) for entry, claim in found if claim is not None)


def pod_group_seen(kind: GroupKind, group: Mapping[str, Any], term: int) -> PodGroupSeen:
    """The observation of a PodGroup of this kind."""
    metadata, spec = group["metadata"], group.get("spec") or {}
    least, queue = spec.get("minMember"), (metadata.get("annotations") or {}).get(QUEUE_ANNOTATION)
    of_class, priority = spec.get("priorityClassName"), spec.get("priority")
    if kind == GroupKind.NATIVE:
        least = ((spec.get("schedulingPolicy") or {}).get("gang") or {}).get("minCount")
    if kind == GroupKind.VOLCANO:
        queue = queue or spec.get("queue")
    return PodGroupSeen(
        term,
        metadata.get("namespace") or "",
        metadata["name"],
        metadata.get("uid") or "",
        metadata.get("resourceVersion") or "",
        kind,
        PodGroupFacts(_count(least), _name(queue), _name(of_class), priority if isinstance(priority, int) else None),
    )


def _count(least: object) -> int:
    """A minimum, in pods: one of them at least, and without a number."""
    return min(max(least, 1), _MOST) if isinstance(least, int) else 1


def _pod_group(spec: Mapping[str, Any], labels: Mapping[str, str], annotations: Mapping[str, str]) -> GroupAsked | None:
    """The PodGroup that a pod names; None without."""
    of_volcano = [name for key in _VOLCANO if (name := annotations.get(key))]
    named = {
        GroupKind.NATIVE: (spec.get("schedulingGroup") or {}).get("podGroupName"),
        GroupKind.COSCHEDULING: labels.get(_COSCHEDULING),
        GroupKind.VOLCANO: of_volcano[0] if of_volcano else "",
    }
    return next((GroupAsked(_name(name), 0, kind) for kind, name in named.items() if name), None)


def _group(labels: Mapping[str, str]) -> GroupAsked | None:
    """The group that labels name, with a minimum; None without, and with a minimum that is no number of pods: such a
    pod is placed alone, as Coscheduling does."""
    name, least = labels.get(_GROUP_NAME, ""), labels.get(_GROUP_MINIMUM, "")
    if not name or not least.isdecimal() or not least.isascii() or not 0 < int(least) <= _MOST:
        return None
    return GroupAsked(_name(name), int(least))


def _name(text: object) -> str:
    return one_line(text)[:_LONGEST_NAME] if isinstance(text, str) else ""
