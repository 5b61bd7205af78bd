"""Devices of dynamic resource allocation as the scheduler sees them: what ResourceSlices, DeviceClasses and
ResourceClaims say.

Selectors are CEL expressions. No cycle evaluates them: which devices each of them selects is observed
(`events.devices.DevicesMatched`).
"""

from typing import Annotated

import msgspec

from arranger.model.fields import NameOf
from arranger.model.job import Slot
from arranger.model.pod import NodeTerms, PodOwner, Requirement

#: A claim has at most so many devices.
MOST_DEVICES = 32


class DeviceId(msgspec.Struct, frozen=True, array_like=True, gc=False, order=True, cache_hash=True):
    """A device: unique in its pool, as its pool is among those of its driver."""

    driver: Annotated[str, NameOf("driver")]
    pool: Annotated[str, NameOf("pool")]
    device: Annotated[str, NameOf("device")]


class DeviceValue(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An attribute of a device or an amount that it has, by its name with the domain. `kind` is the field of the API:
    `string`, `int`, `bool`, `version`, or `quantity` for an amount."""

    name: str
    kind: str
    value: str | int | bool


class DeviceFacts(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A device of a slice. `whole`: it can be allocated alone and to one claim. Devices that share counters, that
    several claims use, that have their own nodes or conditions, or that are tainted aren't."""

    name: Annotated[str, NameOf("device")]
    values: tuple[DeviceValue, ...] = ()
    whole: bool = True


class SliceFacts(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a ResourceSlice says: a part of a pool in one of its generations, which has `slices` parts. Its devices can
    be reached from the node `node`, or from the nodes of `terms` (None for all of them)."""

    driver: Annotated[str, NameOf("driver")]
    pool: Annotated[str, NameOf("pool")]
    generation: int
    slices: int
    node: Annotated[str, NameOf("node")] = ""
    terms: NodeTerms | None = None
    devices: tuple[DeviceFacts, ...] = ()

    @property
    def reached_from(self) -> NodeTerms | None:
        """The nodes that reach its devices, as terms of node affinity; None for all of them."""
        return on_node(self.node) if self.node else self.terms


class DeviceRequest(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A request of a claim: so many devices (0 for all that there are) of a DeviceClass that each selector selects."""

    name: Annotated[str, NameOf("request")]
    device_class: Annotated[str, NameOf("deviceclass")]
    selectors: Annotated[tuple[str, ...], NameOf("selector")] = ()
    count: int = 1


class AllocatedDevice(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A device that a claim has for one of its requests."""

    request: Annotated[str, NameOf("request")]
    device: DeviceId


class Allocation(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The devices of a claim, and from which nodes they can be reached (None for all)."""

    devices: tuple[AllocatedDevice, ...]
    terms: NodeTerms | None = None


class ResourceClaimFacts(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a ResourceClaim says, or a ResourceClaimTemplate about its claims. `beyond` names the first field by which
    it asks for more than Arranger allocates, "" without one. `reserved` are the UIDs of the pods that may use it. If
    Arranger made it for one pod of a TYJob, `owner` is that pod's slot, and `entry` the pod's name for the claim."""

    requests: tuple[DeviceRequest, ...]
    beyond: Annotated[str, NameOf("")] = ""
    deleting: bool = False
    allocation: Allocation | None = None
    reserved: Annotated[tuple[str, ...], NameOf("")] = ()
    owner: PodOwner | None = None
    entry: Annotated[str, NameOf("resourceclaim")] = ""


class DecidedDevices(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The devices that were decided for a claim, named with its UID. With a `slot`, it is the claim that the slot's pod
    has for itself: it is made for these devices, so `claim` is the pod's name for it, and the UID that of its
    template."""

    claim: Annotated[str, NameOf("resourceclaim")]
    uid: Annotated[str, NameOf("")]
    allocation: Allocation
    slot: Slot | None = None


def on_node(name: str) -> NodeTerms:
    """The terms that only this node satisfies."""
    return ((Requirement("metadata.name", "In", (name,), field=True),),)
