"""The observations of what decides where pods with devices can go: ResourceSlices, DeviceClasses, ResourceClaims, and
which devices their selectors select."""

from typing import Annotated

import msgspec

from arranger.model.devices import ResourceClaimFacts, SliceFacts
from arranger.model.fields import NameOf


class ResourceSliceSeen(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="ResourceSliceSeen.1"):
    """A ResourceSlice."""

    term: int
    name: str
    uid: str
    resource_version: str
    facts: SliceFacts


class DeviceClassSeen(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="DeviceClassSeen.1"):
    """A DeviceClass: its devices are those that each of its selectors selects."""

    term: int
    name: str
    uid: str
    resource_version: str
    selectors: Annotated[tuple[str, ...], NameOf("selector")]


class ResourceClaimSeen(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="ResourceClaimSeen.1"):
    """A ResourceClaim."""

    term: int
    namespace: str
    name: str
    uid: str
    resource_version: str
    facts: ResourceClaimFacts


class ResourceClaimTemplateSeen(
    msgspec.Struct, frozen=True, array_like=True, gc=False, tag="ResourceClaimTemplateSeen.1"
):
    """A ResourceClaimTemplate: what the claims that are made from it ask for."""

    term: int
    namespace: str
    name: str
    uid: str
    resource_version: str
    facts: ResourceClaimFacts


class SliceMatches(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """For each selector of `DevicesMatched`, the indices of the slice's devices that it selects. The slice is that of
    this UID and resourceVersion."""

    slice_uid: str
    resource_version: str
    devices: tuple[tuple[int, ...], ...]


class DevicesMatched(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="DevicesMatched.1"):
    """Which devices the selectors of claims and classes select. A device for which a selector fails isn't selected. It
    follows from slices and selectors alone, so any process may record it. `unread` are the indices of selectors that
    Arranger can't evaluate."""

    selectors: tuple[str, ...]
    slices: tuple[SliceMatches, ...]
    unread: tuple[int, ...] = ()


ObjectSeen = ResourceSliceSeen | DeviceClassSeen | ResourceClaimSeen | ResourceClaimTemplateSeen
