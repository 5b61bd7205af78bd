"""Claims, volumes, storage classes and CSINodes in files, and what a server and the volume controller would add to
claims that were written by hand."""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from arranger.cli.inputs.cluster_files import FoundObject
from arranger.events import kinds as k
from arranger.kube.volumes import claim_seen, csi_node_seen, storage_class_seen, volume_seen
from arranger.model.volumes import BOUND

_CLAIM, _VOLUME, _CLASS, _STORAGE = "PersistentVolumeClaim", "PersistentVolume", "StorageClass", "storage.k8s.io"

#: (kind, group) → whether it is namespaced.
KINDS = {(_CLAIM, ""): True, (_VOLUME, ""): False, (_CLASS, _STORAGE): False, ("CSINode", _STORAGE): False}

#: Kind → how it is observed.
OBSERVED: dict[str, tuple[Callable[..., k.Event], k.Watched]] = {
    _CLAIM: (claim_seen, k.Watched.CLAIM),
    _VOLUME: (volume_seen, k.Watched.VOLUME),
    _CLASS: (storage_class_seen, k.Watched.STORAGE_CLASS),
    "CSINode": (csi_node_seen, k.Watched.CSI_NODE),
}


def completed(objects: Iterable[FoundObject]) -> list[FoundObject]:
    """The objects; a claim without a phase gets the default class, the volume that names it, and the phase `Bound` once
    it has a volume."""
    found = list(objects)
    classes = [storage_class_seen(of.item, 0) for of in found if of.kind == _CLASS]
    default = min([of.name for of in classes if of.facts.is_default], default=None)
    reserved = {_claimed(of.item): of.item["metadata"]["name"] for of in found if of.kind == _VOLUME}
    return [_completed(of, default, reserved) if of.kind == _CLAIM else of for of in found]


def _completed(found: FoundObject, default: str | None, reserved: dict[tuple[str, str] | None, str]) -> FoundObject:
    item, metadata = found.item, found.item["metadata"]
    if (item.get("status") or {}).get("phase"):
        return found
    spec: dict[str, Any] = dict(item.get("spec") or {})
    volume = reserved.get((metadata["namespace"], metadata["name"]))
    if volume is not None:
        spec.setdefault("volumeName", volume)
    if default is not None and claim_seen(item, 0).facts.storage_class is None:
        spec["storageClassName"] = default
    status = {"phase": BOUND if spec.get("volumeName") else "Pending"}
    return msgspec.structs.replace(found, item={**item, "spec": spec, "status": status})


def _claimed(volume: dict[str, Any]) -> tuple[str, str] | None:
    """Namespace and name of the claim that a volume is for."""
    of = (volume.get("spec") or {}).get("claimRef") or {}
    return (str(of.get("namespace") or "default"), str(of["name"])) if of.get("name") else None
