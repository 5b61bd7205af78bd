"""From a pod that names Arranger as its scheduler, as JSON, to what the scheduler needs to know of it."""

from collections.abc import Mapping
from typing import Any

from arranger.kube.times import parse_time_ms
from arranger.model.names import USER_LABEL
from arranger.model.pod import GroupAsked, Labels, PodToPlace
from arranger.model.queue import QUEUE_ANNOTATION
from arranger.model.template import grace_of, pod_shape
from arranger.model.text import one_line

#: Limit of a name that a user gives, in characters.
_LONGEST_NAME = 300
#: The labels that make a group of pods without an object, as Coscheduling's first versions had them.
_GROUP_NAME, _GROUP_MINIMUM = "pod-group.scheduling.sigs.k8s.io/name", "pod-group.scheduling.sigs.k8s.io/min-available"
#: A group that asks for more pods is none: no cluster holds so many.
_MOST = 1_000_000


def pod_to_place(pod: Mapping[str, Any], labels: Labels, scheduler: str) -> PodToPlace | None:
    """What a pod with these labels asks of this scheduler; None if it names another one."""
    metadata, spec = pod["metadata"], pod.get("spec") or {}
    if not scheduler or spec.get("schedulerName") != scheduler:
        return None
    annotations = metadata.get("annotations") or {}
    return PodToPlace(
        shape=pod_shape(spec, labels),
        priority=int(spec.get("priority") or 0),
        gates=tuple(gate.get("name") or "" for gate in spec.get("schedulingGates") or ()),
        created_ms=parse_time_ms(metadata.get("creationTimestamp")),
        queue=_name(annotations.get(QUEUE_ANNOTATION)),
        user=_name(dict(labels).get(USER_LABEL)),
        grace_s=grace_of(spec),
        preempts=spec.get("preemptionPolicy") != "Never",
        group=_group(dict(labels)),
    )


def _group(labels: Mapping[str, str]) -> GroupAsked | None:
    """The group that labels name, with a minimum; None without, and with a minimum that is no number of pods: such a
    pod is placed alone, as Coscheduling does."""
    name, least = labels.get(_GROUP_NAME, ""), labels.get(_GROUP_MINIMUM, "")
    if not name or not least.isdecimal() or not least.isascii() or not 0 < int(least) <= _MOST:
        return None
    return GroupAsked(_name(name), int(least))


def _name(text: str | None) -> str:
    return one_line(text or "")[:_LONGEST_NAME]
