"""The observations of what decides where pods with volumes can go: claims, volumes, storage classes, and how many
volumes of a CSI driver a node attaches."""

import msgspec

from arranger.model.volumes import ClaimFacts, ClassFacts, VolumeFacts


class ClaimSeen(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="ClaimSeen.1"):
    """A PersistentVolumeClaim."""

    term: int
    namespace: str
    name: str
    uid: str
    resource_version: str
    facts: ClaimFacts


class VolumeSeen(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="VolumeSeen.1"):
    """A PersistentVolume."""

    term: int
    name: str
    uid: str
    resource_version: str
    facts: VolumeFacts


class StorageClassSeen(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="StorageClassSeen.1"):
    """A StorageClass."""

    term: int
    name: str
    uid: str
    resource_version: str
    facts: ClassFacts


class CSINodeSeen(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="CSINodeSeen.1"):
    """A CSINode, which has the name of its node. `limits` are how many volumes each driver attaches to it, in whole
    volumes, by driver; a driver that isn't there has no limit."""

    term: int
    name: str
    uid: str
    resource_version: str
    limits: tuple[tuple[str, int], ...]


SeenByName = VolumeSeen | StorageClassSeen | CSINodeSeen
ObjectSeen = ClaimSeen | SeenByName
