"""The claims, volumes, storage classes and CSINodes of a cluster, as observed while volumes are watched."""

from dataclasses import dataclass, field

from arranger.events.volumes import ClaimSeen, CSINodeSeen, StorageClassSeen, VolumeSeen
from arranger.model.pod import Attachment
from arranger.model.volumes import BOUND


@dataclass(slots=True)
class VolumeTable:
    """`claims` by namespace and name, everything else by name."""

    claims: dict[tuple[str, str], ClaimSeen] = field(default_factory=dict)
    volumes: dict[str, VolumeSeen] = field(default_factory=dict)
    classes: dict[str, StorageClassSeen] = field(default_factory=dict)
    csi_nodes: dict[str, CSINodeSeen] = field(default_factory=dict)

    def copy(self) -> "VolumeTable":
        """An independent table with the same content."""
        return VolumeTable(dict(self.claims), dict(self.volumes), dict(self.classes), dict(self.csi_nodes))

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
