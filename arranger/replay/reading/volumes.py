"""Observations of claims, volumes, storage classes and CSINodes in words."""

from typing import Any

from arranger.events import volumes as v
from arranger.model.pod import NodeTerms


def _claim(event: v.ClaimSeen, _state: object) -> str:
    facts = event.facts
    parts = [facts.phase or "no phase yet", *facts.access_modes]
    parts += [f"volume {facts.volume}"] if facts.volume else []
    parts += [f"StorageClass {facts.storage_class}"] if facts.storage_class else []
    parts += [f"to be made for node {facts.selected_node}"] if facts.selected_node else []
    return ", ".join([*parts, *(["being deleted"] if facts.deleting else [])])


def _volume(event: v.VolumeSeen, _state: object) -> str:
    facts = event.facts
    parts = ["any node" if facts.affinity is None else f"nodes with {terms_text(facts.affinity)}"]
    parts += [f"{key}={value}" for key, value in facts.zones]
    return ", ".join([*parts, *([f"of CSI driver {facts.driver}"] if facts.driver else [])])


def _storage_class(event: v.StorageClassSeen, _state: object) -> str:
    facts = event.facts
    parts = [f"provisioner {facts.provisioner}", "waits for the first consumer" if facts.waits else "binds immediately"]
    parts += [f"nodes with {terms_text(facts.topologies)}"] if facts.topologies is not None else []
    return ", ".join([*parts, *(["the default"] if facts.is_default else [])])


def _csi_node(event: v.CSINodeSeen, _state: object) -> str:
    return ", ".join(f"{driver}: at most {count} volumes" for driver, count in event.limits) or "no limits"


def terms_text(terms: NodeTerms) -> str:
    """Terms of node affinity in words."""
    said = [" and ".join(f"{one.key} {one.operator} {','.join(one.values)}".strip() for one in term) for term in terms]
    return " or ".join(said) or "nothing"


#: Kind of observation → its words.
WORDS: dict[type, Any] = {
    v.ClaimSeen: _claim,
    v.VolumeSeen: _volume,
    v.StorageClassSeen: _storage_class,
    v.CSINodeSeen: _csi_node,
}
