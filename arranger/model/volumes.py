"""Volumes as the scheduler sees them: what claims, volumes and storage classes say.

A pod names claims. The projection finds what they mean (`projections.volumes`): the nodes that reach the volume of
each, or why no node does.
"""

from typing import Annotated

import msgspec

from arranger.model.fields import NameOf
from arranger.model.pod import Labels, NodeTerms

#: The phases of a claim that matter here; every other one is that of a claim without a volume.
BOUND, LOST = "Bound", "Lost"
#: The access mode of a claim that only one pod may use at a time.
ONE_POD = "ReadWriteOncePod"
#: The provisioner of a class whose volumes are made by hand.
NO_PROVISIONER = "kubernetes.io/no-provisioner"
#: The labels of a volume that name its zone and its region, and under which name of them a node may have the same.
ZONE_LABELS = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region": "topology.kubernetes.io/region",
}
#: Several values of such a label of a volume are separated by this.
ZONES_APART = "__"


class ClaimFacts(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a PersistentVolumeClaim says. `volume` is that of its spec, "" without one. `storage_class` is None if it
    names none, and "" if it wants no class. `selected_node` is the node for which its volume is to be made."""

    phase: Annotated[str, NameOf("")]
    volume: Annotated[str, NameOf("persistentvolume")] = ""
    storage_class: Annotated[str | None, NameOf("storageclass")] = None
    access_modes: Annotated[tuple[str, ...], NameOf("")] = ()
    deleting: bool = False
    selected_node: Annotated[str, NameOf("node")] = ""


class VolumeFacts(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a PersistentVolume says: its required node affinity (None for none), its labels of zones and regions, and
    the CSI driver that attaches it with its handle there ("" for a volume of no CSI driver)."""

    affinity: NodeTerms | None = None
    zones: Annotated[Labels, NameOf("labels")] = ()
    driver: Annotated[str, NameOf("driver")] = ""
    handle: Annotated[str, NameOf("persistentvolume")] = ""


class ClassFacts(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a StorageClass says. `waits`: its volumes are made once a pod that needs them has a node. `topologies` are
    its allowed ones (None for any); `is_default`: a claim that names no class gets it."""

    provisioner: str
    waits: bool = False
    topologies: NodeTerms | None = None
    is_default: bool = False
