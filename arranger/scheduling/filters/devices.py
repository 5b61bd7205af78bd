"""The filter for the devices of pods' resource claims: the node reaches those that the claims have, and has enough free
ones for the others (kube-scheduler's plugin DynamicResources, for claims of exact counts and of all devices)."""

from collections.abc import Iterator

import numpy as np

from arranger.model.pod import DeviceNeeds, NodeTerms, PodShape
from arranger.model.reasons import Reason, ReasonKind
from arranger.projections.observed.devices import needs_of
from arranger.scheduling.cluster.neighbours import Neighbour, Neighbours
from arranger.scheduling.cluster.requirements import satisfying
from arranger.scheduling.cluster.view import ClusterView, Mask
from arranger.scheduling.filters.nodes import Counts, PodFilter


class DynamicResources(PodFilter):
    """The node reaches the devices of the pod's resource claims, or has enough for those that have none yet."""

    name, version, eased = "DynamicResources", 1, True

    def most(self, view: ClusterView, shape: PodShape, pod: Neighbour) -> Counts | None:
        """As many as there are devices for the claims that each of them has for itself."""
        own = [need for need in needs_of(shape) if need.own and need.lack is None]
        room = view.neighbours.devices if view.neighbours is not None and own else None
        return room.most(own) if room is not None else None

    def refusals(
        self, view: ClusterView, neighbours: Neighbours, shape: PodShape, pod: Neighbour
    ) -> Iterator[tuple[Reason, Mask]]:
        needs, room = needs_of(shape), neighbours.devices
        for need in needs:
            if need.lack is not None or (room is None and not need.allocated):
                kind = ReasonKind(need.lack.value) if need.lack is not None else ReasonKind.RESOURCE_CLAIM_MISSING
                yield Reason(kind, need.claim, of=need.name), np.ones(len(view), bool)
                return
        still: list[DeviceNeeds] = []
        for need in needs:
            decided = room.of_claim(pod.namespace, need) if room is not None else None
            if need.allocated or decided is not None:
                terms = need.terms if decided is None else decided.terms
                yield Reason(ReasonKind.DEVICES_ELSEWHERE, need.claim), ~_reaching(view, terms)
            else:
                still.append(need)
        if still and room is not None:
            lacking = room.lacking(still)
            for number, need in enumerate(still):
                yield _insufficient(need), lacking == number


def _insufficient(need: DeviceNeeds) -> Reason:
    classes = {of.device_class for of in need.asked}
    needed = sum(of.count for of in need.asked) if all(of.count for of in need.asked) else 0
    of = classes.pop() if len(classes) == 1 else ""
    return Reason(ReasonKind.INSUFFICIENT_DEVICES, need.claim, needed=needed, of=of)


def _reaching(view: ClusterView, terms: NodeTerms | None) -> Mask:
    if terms is None:
        return np.ones(len(view), bool)
    found = np.zeros(len(view), bool)
    for term in terms:
        if term:
            found |= satisfying(view, term)
    return found


DYNAMIC_RESOURCES = DynamicResources()
