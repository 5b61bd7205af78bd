"""A world with volumes: claims, volumes, storage classes and CSINodes in one line each."""

from collections.abc import Mapping, Sequence

import msgspec

from arranger.events import kinds as k
from arranger.events import volumes as v
from arranger.model.pod import Ephemeral, NodeTerms, PodClaims, PodShape, PodTraits, Requirement
from arranger.model.volumes import ClaimFacts, ClassFacts, VolumeFacts
from tests.world import World, shape

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
HOST = "kubernetes.io/hostname"


def within(key: str, *values: str) -> NodeTerms:
    """One term: the label has one of these values."""
    return ((Requirement(key, "In", values),),)


def using(*claims: str, ephemeral: Sequence[str | None] = (), **more: float) -> PodShape:
    """A pod of one core that names these claims, and has an ephemeral volume of each of these classes."""
    volumes = tuple(Ephemeral(f"scratch-{at}", of) for at, of in enumerate(ephemeral))
    return msgspec.structs.replace(shape(**({"cpu": 1} | more)), claims=PodClaims(tuple(sorted(claims)), volumes))


class VolumeWorld(World):
    """A world in which volumes decide on nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.with_volumes()

    def with_volumes(self, *, on: bool = True) -> None:
        """Let a watcher with, or without, the setting `volumes` claim the pods and list them."""
        pods = self.terms[k.Watched.POD] = self.say(k.claim(k.Watched.POD, "test", with_volumes=on))
        for kind in k.OF_VOLUMES:
            self._watch(kind)
        self.say(k.ListingEnded(k.Watched.POD, pods, "1"))

    def claim(
        self,
        name: str,
        volume: str = "",
        *,
        of_class: str | None = None,
        phase: str = "",
        modes: tuple[str, ...] = ("ReadWriteOnce",),
        deleting: bool = False,
        selected_node: str = "",
        namespace: str = "default",
        uid: str = "",
    ) -> None:
        """Observe a claim: bound if it has a volume, else pending; call again with the same name to change it."""
        facts = ClaimFacts(
            phase or ("Bound" if volume else "Pending"), volume, of_class, modes, deleting, selected_node
        )
        term, uid = self.terms[k.Watched.CLAIM], uid or f"uid-{name}"
        self.say(v.ClaimSeen(term, namespace, name, uid, self._version(), facts))

    def claim_gone(self, name: str, *, uid: str = "") -> None:
        self.say(k.ObjectGone(k.Watched.CLAIM, self.terms[k.Watched.CLAIM], "default", name, uid or f"uid-{name}"))

    def volume(
        self,
        name: str,
        affinity: NodeTerms | None = None,
        *,
        zones: Mapping[str, str] | None = None,
        driver: str = "",
        handle: str = "",
    ) -> None:
        """Observe a volume."""
        facts = VolumeFacts(affinity, tuple(sorted((zones or {}).items())), driver, handle or name)
        self.say(v.VolumeSeen(self.terms[k.Watched.VOLUME], name, f"uid-{name}", self._version(), facts))

    def storage_class(
        self,
        name: str,
        *,
        provisioner: str = "csi",
        waits: bool = True,
        topologies: NodeTerms | None = None,
        default: bool = False,
    ) -> None:
        """Observe a StorageClass, which waits for the first consumer unless told otherwise."""
        facts = ClassFacts(provisioner, waits, topologies, default)
        self.say(v.StorageClassSeen(self.terms[k.Watched.STORAGE_CLASS], name, f"uid-{name}", self._version(), facts))

    def csi_node(self, name: str, **limits: int) -> None:
        """Observe how many volumes of each driver a node attaches."""
        of = tuple(sorted(limits.items()))
        self.say(v.CSINodeSeen(self.terms[k.Watched.CSI_NODE], name, f"uid-{name}", self._version(), of))

    def user(self, name: str, node: str, *claims: str, **more: object) -> str:
        """A stranger's pod on a node that uses these claims."""
        return self.pod(name, node, traits=PodTraits(claims=claims), **more)  # type: ignore[arg-type]
