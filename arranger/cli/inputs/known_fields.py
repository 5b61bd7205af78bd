"""The fields of objects in files, so that a misspelt one isn't dropped without a word.

TYJobs and Queues have checks of their own, and the template of a pod has that of the API server's schema. Of other
kinds, this knows the fields of the object, its spec and its status. A test compares them with an API server's schema.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from arranger.messages.faults import fault_text
from arranger.model.checks import keyed, text
from arranger.model.faults import Fault, FaultKind
from arranger.model.names import GROUP
from arranger.model.schema import definition
from arranger.model.validation import METADATA

_HEAD = frozenset({"apiVersion", "kind", "metadata"})
#: Kind → part of the object ("" for the object itself) → its fields.
FIELDS: Mapping[str, Mapping[str, frozenset[str]]] = {
    "Pod": {"": _HEAD | {"spec", "status"}},
    "Node": {
        "": _HEAD | {"spec", "status"},
        "spec": frozenset(
            {"configSource", "externalID", "podCIDR", "podCIDRs", "providerID", "taints", "unschedulable"}
        ),
        "status": frozenset(
            {
                *("addresses", "allocatable", "capacity", "conditions", "config", "daemonEndpoints"),
                *("declaredFeatures", "features", "images", "nodeInfo", "phase", "runtimeHandlers"),
                *("volumesAttached", "volumesInUse"),
            }
        ),
    },
    "Namespace": {"": _HEAD | {"spec", "status"}, "spec": frozenset({"finalizers"})},
    "ResourceQuota": {
        "": _HEAD | {"spec", "status"},
        "spec": frozenset({"hard", "scopeSelector", "scopes"}),
        "status": frozenset({"hard", "used"}),
    },
    "LimitRange": {"": _HEAD | {"spec"}, "spec": frozenset({"limits"})},
    "PriorityClass": {"": _HEAD | {"description", "globalDefault", "preemptionPolicy", "value"}},
    "RuntimeClass": {"": _HEAD | {"handler", "overhead", "scheduling"}},
    "PersistentVolume": {
        "": _HEAD | {"spec", "status"},
        "spec": frozenset(
            {
                *("accessModes", "awsElasticBlockStore", "azureDisk", "azureFile", "capacity", "cephfs", "cinder"),
                *("claimRef", "csi", "fc", "flexVolume", "flocker", "gcePersistentDisk", "glusterfs", "hostPath"),
                *("iscsi", "local", "mountOptions", "nfs", "nodeAffinity", "persistentVolumeReclaimPolicy"),
                *("photonPersistentDisk", "portworxVolume", "quobyte", "rbd", "scaleIO", "storageClassName"),
                *("storageos", "volumeAttributesClassName", "volumeMode", "vsphereVolume"),
            }
        ),
    },
    "PersistentVolumeClaim": {
        "": _HEAD | {"spec", "status"},
        "spec": frozenset(
            {
                *("accessModes", "dataSource", "dataSourceRef", "resources", "selector", "storageClassName"),
                *("volumeAttributesClassName", "volumeMode", "volumeName"),
            }
        ),
    },
    "StorageClass": {
        "": _HEAD
        | {
            *("allowVolumeExpansion", "allowedTopologies", "mountOptions", "parameters", "provisioner"),
            *("reclaimPolicy", "volumeBindingMode"),
        }
    },
    "CSINode": {"": _HEAD | {"spec"}, "spec": frozenset({"drivers"})},
    "ResourceSlice": {
        "": _HEAD | {"spec"},
        "spec": frozenset(
            {
                *("allNodes", "devices", "driver", "nodeName", "nodeSelector", "perDeviceNodeSelection", "pool"),
                "sharedCounters",
            }
        ),
    },
    "DeviceClass": {"": _HEAD | {"spec"}, "spec": frozenset({"config", "extendedResourceName", "selectors"})},
    "ResourceClaim": {
        "": _HEAD | {"spec", "status"},
        "spec": frozenset({"devices"}),
        "status": frozenset({"allocation", "devices", "reservedFor"}),
    },
    "ResourceClaimTemplate": {"": _HEAD | {"spec"}, "spec": frozenset({"metadata", "spec"})},
    "PodGroup": {"": _HEAD | {"spec", "status"}},
}


_TEXTS = keyed(text())
_TOLD = (FaultKind.UNKNOWN_FIELD, FaultKind.WRONG_TYPE, FaultKind.QUANTITY_OF_WRONG_TYPE)


def wrong_fields(kind: str, group: str, item: Mapping[str, Any]) -> str:
    """The unknown fields of an object that was written by hand, and those of a wrong type as far as this knows the
    types, in words; empty for none."""
    return "; ".join(map(fault_text, (*_unknown(kind, group, item), *_of_wrong_type(kind, item))))


def _unknown(kind: str, group: str, item: Mapping[str, Any]) -> Iterator[Fault]:
    fields = {"metadata": METADATA}
    if group != GROUP:  # Volcano has Queues too
        fields |= FIELDS.get(kind, {})
    for part, known in fields.items():
        found = item.get(part) if part else item
        for name in found if isinstance(found, dict) else ():
            if name not in known:
                field = f"{part}.{name}" if part else str(name)
                yield Fault(field, FaultKind.UNKNOWN_FIELD, limits=tuple(sorted(known)))


def _of_wrong_type(kind: str, item: Mapping[str, Any]) -> Iterator[Fault]:
    """Of labels and annotations, and of the spec of a pod, whose unknown fields are among them."""
    found = [
        fault
        for name in ("labels", "annotations")
        if (pairs := item["metadata"].get(name)) is not None
        for fault in _TEXTS(pairs, f"metadata.{name}")
    ]
    spec = item.get("spec")
    if kind == "Pod" and isinstance(spec, dict):
        # A server adds ephemeral containers only to pods that are there.
        of_template = {name: spec[name] for name in spec if name != "ephemeralContainers"}
        found += definition("PodSpec")(of_template, "spec")
    yield from (of for of in found if of.kind in _TOLD)
