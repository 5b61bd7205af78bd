"""From pods that name Arranger as their scheduler, as JSON, to what the scheduler needs of them."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from arranger.kube.times import parse_time_ms
from arranger.model.names import USER_LABEL
from arranger.model.pod import GroupAsked, GroupKind, Labels, PodClaims, PodToPlace, QosClass
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
#: The annotation with the task of a Volcano Job that a pod is of.
_TASK = "volcano.sh/task-spec"
_QOS = {str(of): of for of in QosClass}
#: A group that asks for more pods is none: no cluster holds so many.
MOST_PODS = 1_000_000


def pod_to_place(
    pod: Mapping[str, Any], labels: Labels, schedulers: tuple[str, ...], *, with_devices: bool = False
) -> PodToPlace | None:
    """What a pod with these labels asks of Arranger; None if it names none of these schedulers. `with_devices`: devices
    are allocated for its resource claims."""
    metadata, spec = pod["metadata"], pod.get("spec") or {}
    if spec.get("schedulerName") not in schedulers:
        return None
    annotations = metadata.get("annotations") or {}
    group = _pod_group(spec, dict(labels), annotations) or _group(dict(labels))
    of_volcano = group is not None and group.kind == GroupKind.VOLCANO
    shape, entries = pod_shape(spec, labels, name=metadata["name"]), spec.get("resourceClaims") or ()
    if with_devices and entries:
        claims = msgspec.structs.replace(shape.claims or PodClaims(), devices=_resource_claims(pod, entries))
        shape, entries = msgspec.structs.replace(shape, claims=claims), ()
    return PodToPlace(
        shape=shape,
        priority=int(spec.get("priority") or 0),
        gates=tuple(gate.get("name") or "" for gate in spec.get("schedulingGates") or ()),
        created_ms=parse_time_ms(metadata.get("creationTimestamp")),
        queue=name_in(annotations.get(QUEUE_ANNOTATION)),
        user=name_in(dict(labels).get(USER_LABEL)),
        grace_s=grace_of(spec),
        preempts=spec.get("preemptionPolicy") != "Never",
        group=group,
        claims=tuple(name_in(claim.get("name")) for claim in entries),
        qos=_QOS.get((pod.get("status") or {}).get("qosClass") or ""),
        task=name_in(annotations.get(_TASK)) if of_volcano else "",
    )


def _resource_claims(pod: Mapping[str, Any], entries: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, str], ...]:
    """The pod's name for each resource claim, and the claim: the one that it names, or that was made for it. A pod that
    needs none for a name has a status without one."""
    statuses = (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    made = {status.get("name"): status.get("resourceClaimName") for status in statuses}
    found = [(name_in(of.get("name")), of.get("resourceClaimName") or made.get(of.get("name"), "")) for of in entries]
    return tuple((entry, name_in(claim)) for entry, claim in found if claim is not None)


def _pod_group(spec: Mapping[str, Any], labels: Mapping[str, str], annotations: Mapping[str, str]) -> GroupAsked | None:
    """The PodGroup that a pod names; None without."""
    of_volcano = [name for key in _VOLCANO if (name := annotations.get(key))]
    named = {
        GroupKind.NATIVE: (spec.get("schedulingGroup") or {}).get("podGroupName"),
        GroupKind.COSCHEDULING: labels.get(_COSCHEDULING),
        GroupKind.VOLCANO: of_volcano[0] if of_volcano else "",
    }
    return next((GroupAsked(name_in(name), 0, kind) for kind, name in named.items() if name), None)


def _group(labels: Mapping[str, str]) -> GroupAsked | None:
    """The group that labels name, with a minimum; None without, and with a minimum that is no number of pods: such a
    pod is placed alone, as Coscheduling does."""
    name, least = labels.get(_GROUP_NAME, ""), labels.get(_GROUP_MINIMUM, "")
    if not name or not least.isdecimal() or not least.isascii() or not 0 < int(least) <= MOST_PODS:
        return None
    return GroupAsked(name_in(name), int(least))


def name_in(text: object) -> str:
    """A name that a user gives, on one line and of limited length; empty without one."""
    return one_line(text)[:_LONGEST_NAME] if isinstance(text, str) else ""
