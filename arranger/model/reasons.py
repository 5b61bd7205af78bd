"""Why a node refuses a pod, as facts: a kind from a closed list, and its parameters.

Amounts are rounded as for display (`amount_text`): a few bytes more or less are no news.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

import msgspec

from arranger.model.near_names import near_names
from arranger.model.node import Taint
from arranger.model.quantity import rounded
from arranger.model.quota import LimitKind, QuotaLack, unit_of

#: Resources of different makers are called alike: `amd.com/gpu` and `nvidia.com/gpu`.
_ALIKE = 0.8


class ReasonKind(StrEnum):
    """Every kind of reason. `FITS` counts nodes that would accept the pod alone; `OTHER` is the reason of a plugin's
    filter."""

    NOT_READY = "NotReady"
    CORDONED = "Cordoned"
    TAINT = "Taint"
    NODE_SELECTOR = "NodeSelector"
    NODE_AFFINITY = "NodeAffinity"
    REFUSED_RECENTLY = "RefusedRecently"
    FAILED_THERE = "FailedThere"
    HOST_PORT = "HostPort"
    NO_AFFINITY_LABEL = "NoAffinityLabel"
    AFFINITY = "Affinity"
    ANTI_AFFINITY = "AntiAffinity"
    AVOIDED = "Avoided"
    NO_SPREAD_LABEL = "NoSpreadLabel"
    TOPOLOGY_SPREAD = "TopologySpread"
    CLAIM_MISSING = "ClaimMissing"
    CLAIM_DELETING = "ClaimDeleting"
    CLAIM_LOST = "ClaimLost"
    CLAIM_UNBOUND = "ClaimUnbound"
    CLAIM_BINDING = "ClaimBinding"
    CLAIM_IN_USE = "ClaimInUse"
    VOLUME_MISSING = "VolumeMissing"
    CLASS_MISSING = "StorageClassMissing"
    NO_PROVISIONER = "NoProvisioner"
    VOLUME_AFFINITY = "VolumeAffinity"
    VOLUME_ZONE = "VolumeZone"
    CLASS_TOPOLOGY = "ClassTopology"
    VOLUME_LIMIT = "VolumeLimit"
    RESOURCE_CLAIM_MISSING = "ResourceClaimMissing"
    RESOURCE_CLAIM_NOT_MADE = "ResourceClaimNotMade"
    RESOURCE_CLAIM_DELETING = "ResourceClaimDeleting"
    RESOURCE_CLAIM_BEYOND = "ResourceClaimBeyond"
    DEVICE_CLASS_MISSING = "DeviceClassMissing"
    DEVICES_UNKNOWN = "DevicesUnknown"
    CLAIM_TEMPLATE_MISSING = "ResourceClaimTemplateMissing"
    DEVICES_OFF = "DevicesOff"
    DEVICES_ELSEWHERE = "DevicesElsewhere"
    INSUFFICIENT_DEVICES = "InsufficientDevices"
    INSUFFICIENT = "Insufficient"
    QUOTA = "Quota"
    CAPABILITY = "Capability"
    GUARANTEES = "Guarantees"
    MAX_RUNNING = "MaxRunning"
    MAX_WAITING = "MaxWaiting"
    NON_PREEMPTIBLE = "NonPreemptible"
    GROUP_CHECK = "GroupCheck"
    PERMIT = "Permit"
    MIN_RESOURCES = "MinResources"
    RESERVED = "Reserved"
    OTHER_DOMAIN = "OtherDomain"
    REST_OF_QUORUM = "RestOfQuorum"
    OTHER_TOPOLOGY = "OtherTopology"
    NO_TOPOLOGY_LABEL = "NoTopologyLabel"
    FITS = "Fits"
    OTHER = "Other"


class Reason(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One reason. `name` is a resource, a label's key, or the protocol of a host port; `taint` is the first untolerated
    one; `quota` the name of a ResourceQuota. `needed` is an amount in the resource's unit, a port or a maxSkew; `free`
    is what the quota or the queue, or the node with the most free, has left. `words` come from a plugin's filter, group
    check or permit; `name` is the plugin's for the last two.
    `queue` and its `limit` are as in `QuotaLack`. For volumes, `name` is a claim, or the CSI driver whose volumes on a
    node reach their number `needed`; `of` is the volume or the StorageClass of the claim. For devices, `name` is a
    resource claim, `of` its DeviceClass or a field of it, and `needed` how many devices it asks for (0: all). `absent`:
    no node has the resource at all; `of` is then the most similar one that some node has, if any is similar. Nodes with
    `NO_TOPOLOGY_LABEL` have none of the labels in `name`, which a required topology asks for.
    """

    kind: ReasonKind
    name: str = ""
    taint: Taint | None = None
    needed: int = 0
    free: int = 0
    quota: str = ""
    words: str = ""
    queue: str = ""
    limit: int = 0
    of: str = ""
    absent: bool = False

    def numberless(self) -> "Reason":
        """The same reason without its amounts: equal for all shortages of one resource."""
        if self.kind != ReasonKind.INSUFFICIENT and self.kind not in OF_LIMITS:
            return self
        return Reason(self.kind, self.name, quota=self.quota, queue=self.queue, of=self.of, absent=self.absent)

    def about(self, text: str) -> bool:
        """Whether each word of a text is its kind or a part of its names, ignoring case."""
        if text.lower().replace(" ", "") == self.kind.lower():
            return True
        taint = self.taint
        named = (
            self.name,
            self.quota,
            self.queue,
            self.words,
            self.of,
            *((taint.key, taint.value) if taint is not None else ()),
        )
        return all(
            word == self.kind.lower() or any(word in of.lower() for of in named) for word in text.lower().split()
        )


#: The reason for each limit beside nodes, and all of them.
_OF_LIMIT = {limit: ReasonKind(limit.value) for limit in LimitKind}
OF_LIMITS = frozenset(_OF_LIMIT.values())
#: The reasons of plugins that keep whole quorums from their nodes.
OF_PLUGINS = frozenset({ReasonKind.GROUP_CHECK, ReasonKind.PERMIT})

#: Reasons with the number of nodes that each applies to, the most frequent first.
ReasonCounts = tuple[tuple[Reason, int], ...]

FITS = Reason(ReasonKind.FITS)
#: The node has room, which is reserved for a job ahead.
RESERVED = Reason(ReasonKind.RESERVED)
#: For a quorum whose pods must run together: the node is outside the topology domain that was tried.
OTHER_DOMAIN = Reason(ReasonKind.OTHER_DOMAIN)
#: For a quorum that the complete search placed: other pods of the quorum need the node's room.
REST_OF_QUORUM = Reason(ReasonKind.REST_OF_QUORUM)


def other(words: str) -> Reason:
    """The reason of a plugin's filter: a few words, the same for all nodes that it refuses for one reason."""
    return Reason(ReasonKind.OTHER, words=words)


def objected(plugin: str, words: str, *, permit: bool) -> Reason:
    """The reason of a plugin that keeps a quorum from its nodes: a permit, or else a group check."""
    return Reason(ReasonKind.PERMIT if permit else ReasonKind.GROUP_CHECK, plugin, words=words)


def unlabelled(levels: Sequence[str]) -> Reason:
    """That a node has none of the labels of a required topology."""
    return Reason(ReasonKind.NO_TOPOLOGY_LABEL, " or ".join(levels))


def insufficient(resource: str, needed: int, free: int) -> Reason:
    free = rounded(resource, max(free, 0))
    return Reason(ReasonKind.INSUFFICIENT, resource, needed=rounded(resource, needed), free=free)


def similar_resource(resource: str, known: Iterable[str]) -> str:
    """The known resource whose name is the most similar; "" if none is similar, whatever the case of
    its letters. It was probably meant."""
    found = near_names(resource, known, alike=_ALIKE)
    return found[0] if found else ""


def absent(resource: str, needed: int, similar: str) -> Reason:
    """That no node has a resource; `similar` as in `Reason.of`."""
    return Reason(ReasonKind.INSUFFICIENT, resource, needed=rounded(resource, needed), of=similar, absent=True)


def beyond_quota(lack: QuotaLack) -> Reason:
    unit, kind = unit_of(lack.resource), _OF_LIMIT[lack.limit]
    needed, left = rounded(unit, lack.needed), rounded(unit, max(lack.left, 0))
    limit = rounded(unit, lack.hard) if lack.limit != LimitKind.QUOTA else 0
    return Reason(kind, lack.resource, needed=needed, free=left, quota=lack.quota, queue=lack.queue, limit=limit)


def most_frequent_first(counts: Mapping[Reason, int]) -> ReasonCounts:
    """Counted reasons, the most frequent first; reasons with equal counts have a fixed order."""
    return tuple(sorted(counts.items(), key=lambda item: (-item[1], rank(item[0]))))


def rank(reason: Reason) -> tuple[object, ...]:
    taint = reason.taint
    of_taint = (taint.key, taint.value, taint.effect) if taint is not None else ()
    return (
        reason.kind,
        reason.name,
        of_taint,
        reason.needed,
        reason.free,
        reason.quota,
        reason.words,
        reason.queue,
        reason.limit,
        reason.of,
    )
