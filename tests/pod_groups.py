"""PodGroups made by hand, with minimal definitions of those kinds that others install."""

from typing import Any

from arranger.kube.cluster import COSCHEDULING_GROUPS, VOLCANO_GROUPS, Object, Resource
from arranger.model.pod import GroupKind

#: The kinds that a CustomResourceDefinition makes.
CUSTOM: dict[GroupKind, Resource] = {
    GroupKind.COSCHEDULING: COSCHEDULING_GROUPS,
    GroupKind.VOLCANO: VOLCANO_GROUPS,
}


def definition(kind: GroupKind) -> Object:
    """The CustomResourceDefinition of a kind, with no more than a scheduler reads."""
    of = CUSTOM[kind]
    spec = {"type": "object", "properties": {"minMember": {"type": "integer", "format": "int32"}}}
    if kind == GroupKind.VOLCANO:
        spec["properties"] |= {"queue": {"type": "string"}, "priorityClassName": {"type": "string"}}  # type: ignore[index]
    status = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status}}}
    version = {"name": of.version, "served": True, "storage": True, "schema": schema, "subresources": {"status": {}}}
    name = f"{of.plural}.{of.group}"
    metadata: dict[str, Any] = {"name": name}
    if of.group.endswith(".k8s.io") or of.group.endswith(".x-k8s.io"):
        metadata["annotations"] = {"api-approved.kubernetes.io": "unapproved, for tests"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": {
            "group": of.group,
            "scope": "Namespaced",
            "names": {"plural": of.plural, "singular": "podgroup", "kind": of.kind},
            "versions": [version],
        },
    }


def pod_group(name: str, kind: GroupKind, least: int, **spec: Any) -> Object:
    return {
        "apiVersion": CUSTOM[kind].api_version,
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"minMember": least, **spec},
    }


def naming(made: Object, name: str, kind: GroupKind) -> Object:
    """The pod, which names this PodGroup."""
    if kind == GroupKind.COSCHEDULING:
        made["metadata"]["labels"] = {"scheduling.x-k8s.io/pod-group": name}
    else:
        made["metadata"]["annotations"] = {"scheduling.k8s.io/group-name": name}
    return made
