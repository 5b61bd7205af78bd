"""The owner reference by which pods, Services and ConfigMaps belong to a TYJob, and are deleted with it."""

from collections.abc import Mapping
from typing import Any

from arranger.events.kinds import JobSeen
from arranger.kube.cluster import TYJOBS, Object


def owner_reference(metadata: Mapping[str, Any]) -> Object:
    """The reference to the TYJob with this name and UID."""
    return {
        "apiVersion": TYJOBS.api_version,
        "kind": TYJOBS.kind,
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def identity_of(seen: JobSeen) -> dict[str, str]:
    """The name, namespace and UID of an observed TYJob, as in its metadata."""
    return {"name": seen.name, "namespace": seen.namespace, "uid": seen.uid}
