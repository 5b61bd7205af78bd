"""From claims, volumes, storage classes and CSINodes, as JSON, to observations. Pure functions of the object.

Objects come from the API server, so they are well-typed.
"""

from collections.abc import Mapping
from typing import Any

from arranger.events.volumes import ClaimSeen, CSINodeSeen, StorageClassSeen, VolumeSeen
from arranger.model.pod import NodeTerms, Requirement
from arranger.model.template import node_terms
from arranger.model.volumes import ZONE_LABELS, ClaimFacts, ClassFacts, VolumeFacts

Json = Mapping[str, Any]

#: The annotation of a claim that names the node for which its volume is to be made.
SELECTED_NODE = "volume.kubernetes.io/selected-node"
#: The class in an annotation, which claims of old had before their spec could name it.
_OLD_CLASS = "volume.beta.kubernetes.io/storage-class"
_DEFAULT_CLASS = ("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")
_WAITS = "WaitForFirstConsumer"


def claim_seen(claim: Json, term: int) -> ClaimSeen:
    metadata, spec = claim["metadata"], claim.get("spec") or {}
    annotations = metadata.get("annotations") or {}
    facts = ClaimFacts(
        phase=(claim.get("status") or {}).get("phase") or "",
        volume=spec.get("volumeName") or "",
        storage_class=annotations.get(_OLD_CLASS, spec.get("storageClassName")),
        access_modes=tuple(sorted(spec.get("accessModes") or ())),
        deleting=bool(metadata.get("deletionTimestamp")),
        selected_node=annotations.get(SELECTED_NODE) or "",
    )
    version = metadata.get("resourceVersion") or ""
    return ClaimSeen(term, metadata.get("namespace") or "", metadata["name"], metadata.get("uid") or "", version, facts)


def volume_seen(volume: Json, term: int) -> VolumeSeen:
    metadata, spec = volume["metadata"], volume.get("spec") or {}
    required, csi = (spec.get("nodeAffinity") or {}).get("required"), spec.get("csi") or {}
    labels = metadata.get("labels") or {}
    facts = VolumeFacts(
        affinity=None if required is None else node_terms(required),
        zones=tuple(sorted((key, value) for key, value in labels.items() if key in ZONE_LABELS)),
        driver=csi.get("driver") or "",
        handle=csi.get("volumeHandle") or "",
    )
    return VolumeSeen(*_head(metadata, term), facts)


def storage_class_seen(of_class: Json, term: int) -> StorageClassSeen:
    annotations = of_class["metadata"].get("annotations") or {}
    facts = ClassFacts(
        provisioner=of_class.get("provisioner") or "",
        waits=of_class.get("volumeBindingMode") == _WAITS,
        topologies=_topologies(of_class),
        is_default=any(annotations.get(key) == "true" for key in _DEFAULT_CLASS),
    )
    return StorageClassSeen(*_head(of_class["metadata"], term), facts)


def csi_node_seen(node: Json, term: int) -> CSINodeSeen:
    drivers = (node.get("spec") or {}).get("drivers") or ()
    counts = ((driver["name"], (driver.get("allocatable") or {}).get("count")) for driver in drivers)
    limits = tuple(sorted((name, count) for name, count in counts if isinstance(count, int)))
    return CSINodeSeen(*_head(node["metadata"], term), limits)


def _topologies(of_class: Json) -> NodeTerms | None:
    """The allowed topologies as terms of node affinity; None for any."""
    terms = of_class.get("allowedTopologies")
    if not terms:
        return None
    return tuple(
        tuple(
            Requirement(entry.get("key") or "", "In", tuple(entry.get("values") or ()))
            for entry in term.get("matchLabelExpressions") or ()
        )
        for term in terms
    )


def _head(metadata: Json, term: int) -> tuple[int, str, str, str]:
    """Term, name, UID and resourceVersion."""
    return term, metadata["name"], metadata.get("uid") or "", metadata.get("resourceVersion") or ""
