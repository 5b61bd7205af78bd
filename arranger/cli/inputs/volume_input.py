"""What a server and the volume controller would add to claims that were written by hand."""

from collections.abc import Iterable
from typing import Any

import msgspec

from arranger.cli.inputs.cluster_files import FoundObject
from arranger.kube.volumes import claim_seen, storage_class_seen
from arranger.model.volumes import BOUND

_CLAIM, _VOLUME, _CLASS = "PersistentVolumeClaim", "PersistentVolume", "StorageClass"


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
