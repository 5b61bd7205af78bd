"""The filters for the volumes of pods, with the semantics of kube-scheduler.

`VolumeBinding` needs only what the projection found of the pod's claims and the nodes' facts (kube-scheduler's plugins
VolumeBinding and VolumeZone). `VolumeRestrictions` and `VolumeLimits` depend on the pods on the nodes as well.
"""

from collections.abc import Hashable, Iterator

import numpy as np

from arranger.model.pod import ClaimLack, Labels, PodShape, Reach, VolumeNeeds
from arranger.model.reasons import Reason, ReasonKind
from arranger.model.volumes import ZONE_LABELS, ZONES_APART
from arranger.scheduling.cluster.neighbours import Neighbour, Neighbours
from arranger.scheduling.cluster.requirements import satisfying
from arranger.scheduling.cluster.view import ClusterView, Mask
from arranger.scheduling.filters.nodes import Counts, Filter, PodFilter

_MANY = 1 << 31


class VolumeBinding(Filter):
    """The node reaches the volumes of the pod's claims, and those that are still to be made can be made for it."""

    name, version = "VolumeBinding", 1

    def question(self, shape: PodShape) -> Hashable:
        return shape.volumes

    def passes(self, view: ClusterView, shape: PodShape) -> Mask:
        needs = shape.volumes or VolumeNeeds()
        found = np.full(len(view), self._lack(needs) is None)
        for reach in needs.reaches:
            found &= _in_terms(view, reach) & _in_zones(view, reach.zones)
        return found

    def reasons(self, view: ClusterView, shape: PodShape, refused: Mask) -> dict[Reason, int]:
        """What a claim lacks, it lacks on every node: thousands of jobs may wait for one each."""
        if self._lack(shape.volumes or VolumeNeeds()) is None or not refused.any():
            return super().reasons(view, shape, refused)
        row = int(np.argmax(refused))
        return {self.reason(view, shape, row): int(np.count_nonzero(refused))}

    def reason(self, view: ClusterView, shape: PodShape, row: int) -> Reason:
        """What the claims lack, else the first claim whose volume the node doesn't reach."""
        needs = shape.volumes or VolumeNeeds()
        if (lack := self._lack(needs)) is not None:
            return Reason(ReasonKind(lack.kind.value), lack.claim, of=lack.name)
        for reach in needs.reaches:
            if not _in_terms(view, reach)[row]:
                return Reason(ReasonKind.VOLUME_AFFINITY if reach.bound else ReasonKind.CLASS_TOPOLOGY, reach.claim)
            if not _in_zones(view, reach.zones)[row]:
                return Reason(ReasonKind.VOLUME_ZONE, reach.claim)
        raise ValueError("no claim of the pod refuses this node")

    def _lack(self, needs: VolumeNeeds) -> ClaimLack | None:
        return needs.lack

    def on_healthy_nodes(self) -> Filter | None:
        return _REACHED


class _Reached(VolumeBinding):
    """As `VolumeBinding`, but what claims lack may still come: that never makes a job infeasible."""

    def _lack(self, needs: VolumeNeeds) -> ClaimLack | None:
        return None


_REACHED = _Reached()


class VolumeRestrictions(PodFilter):
    """No other pod uses a claim of the pod that only one may use (ReadWriteOncePod)."""

    name, version, eased = "VolumeRestrictions", 1, True

    def most(self, view: ClusterView, shape: PodShape, pod: Neighbour) -> Counts | None:
        return np.ones(len(view), np.int64) if pod.exclusive else None

    def refusals(
        self, view: ClusterView, neighbours: Neighbours, shape: PodShape, pod: Neighbour
    ) -> Iterator[tuple[Reason, Mask]]:
        for claim in pod.exclusive:
            if neighbours.volumes.used(pod.namespace, claim):
                yield Reason(ReasonKind.CLAIM_IN_USE, claim), np.ones(len(view), bool)


class VolumeLimits(PodFilter):
    """The node may attach as many volumes of each CSI driver as it would have with the pod.

    A volume that several pods of a node use is attached once.
    """

    name, version, eased = "NodeVolumeLimits", 1, True

    def most(self, view: ClusterView, shape: PodShape, pod: Neighbour) -> Counts | None:
        """As many as their own volumes leave room for, after the volumes that they share."""
        if view.neighbours is None or all(of.volume for of in pod.attachments):
            return None
        found = np.full(len(view), _MANY, np.int64)
        for room in view.neighbours.volumes.room(pod.attachments).values():
            if room.own:
                np.minimum(found, room.most(_MANY), out=found)
        return found

    def refusals(
        self, view: ClusterView, neighbours: Neighbours, shape: PodShape, pod: Neighbour
    ) -> Iterator[tuple[Reason, Mask]]:
        for driver, room in neighbours.volumes.room(pod.attachments).items():
            refused = room.refused()
            for limit in np.unique(room.limits[refused]).tolist():
                yield Reason(ReasonKind.VOLUME_LIMIT, driver, needed=limit), refused & (room.limits == limit)


def _in_terms(view: ClusterView, reach: Reach) -> Mask:
    if reach.terms is None:
        return np.ones(len(view), bool)
    found = np.zeros(len(view), bool)
    for term in reach.terms:
        if term:
            found |= satisfying(view, term)
    return found


def _in_zones(view: ClusterView, zones: Labels) -> Mask:
    """The nodes in a volume's zone and region. A node without any label of a zone or region is in all of them: its
    cluster may be a single zone."""
    found = np.ones(len(view), bool)
    if not zones:
        return found
    somewhere = np.logical_or.reduce([view.node_index.label(key).codes > 0 for key in ZONE_LABELS])
    for key, values in zones:
        label, other = view.node_index.label(key), view.node_index.label(ZONE_LABELS[key])
        here = np.zeros(len(view), bool)
        for value in values.split(ZONES_APART):
            here |= label.codes == label.numbers.get(value, -1)
            here |= (label.codes == 0) & (other.codes == other.numbers.get(value, -1))
        found &= here
    found |= ~somewhere
    return found


#: After the filter for node affinity, and after those for other pods.
VOLUME_BINDING = VolumeBinding()
VOLUME_POD_FILTERS: tuple[PodFilter, ...] = (VolumeRestrictions(), VolumeLimits())
