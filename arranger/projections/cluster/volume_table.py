"""The claims, volumes, storage classes and CSINodes of a cluster, as observed while volumes are watched."""

from dataclasses import dataclass, field

from arranger.events.volumes import ClaimSeen, CSINodeSeen, StorageClassSeen, VolumeSeen
from arranger.model.pod import Attachment
from arranger.model.volumes import BOUND, LOST


@dataclass(slots=True)
class VolumeTable:
    """`claims` by namespace and name, everything else by name. `selected_ms` says of the claims for which a node was
    selected, and which have no volume yet, since when that is known, in milliseconds since 1970."""

    claims: dict[tuple[str, str], ClaimSeen] = field(default_factory=dict)
    volumes: dict[str, VolumeSeen] = field(default_factory=dict)
    classes: dict[str, StorageClassSeen] = field(default_factory=dict)
    csi_nodes: dict[str, CSINodeSeen] = field(default_factory=dict)
    selected_ms: dict[tuple[str, str], int] = field(default_factory=dict)

    def copy(self) -> "VolumeTable":
        """An independent table with the same content."""
        selected_ms = dict(self.selected_ms)
        return VolumeTable(dict(self.claims), dict(self.volumes), dict(self.classes), dict(self.csi_nodes), selected_ms)

    def note_selected(self, old: ClaimSeen | None, new: ClaimSeen, time_ms: int) -> None:
        """Note since when the node of a claim that was observed is selected."""
        key, facts = (new.namespace, new.name), new.facts
        if not facts.selected_node or facts.phase in (BOUND, LOST):
            self.selected_ms.pop(key, None)
        elif old is None or (old.uid, old.facts.selected_node) != (new.uid, facts.selected_node):
            self.selected_ms[key] = time_ms

    def limits(self, driver: str) -> bool:
        """Whether some node attaches only so many volumes of a driver."""
        return any(driver == name for node in self.csi_nodes.values() for name, _ in node.limits)

    def attachment(self, namespace: str, claim: str) -> Attachment | None:
        """The volume of a claim that a CSI driver attaches, or is to make; None for any other."""
        seen = self.claims.get((namespace, claim))
        if seen is None:
            return None
        if seen.facts.phase == BOUND:
            volume = self.volumes.get(seen.facts.volume)
            driver = volume.facts.driver if volume is not None else ""
            return Attachment(driver, f"/{volume.facts.handle}") if volume is not None and driver else None
        of_class = self.classes.get(seen.facts.storage_class or "")
        return Attachment(of_class.facts.provisioner, f"{namespace}/{claim}") if of_class is not None else None
