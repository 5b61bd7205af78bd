"""The filters that depend on the pods on the nodes, with the exact semantics of kube-scheduler.

They cover host ports, required pod affinity and anti-affinity in both directions, and `DoNotSchedule` topology spread.
A node's domain in a topology is the value of its label; a node without the label is in no domain.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from arranger.model.job import Path
from arranger.model.pod import PodShape, SpreadRule
from arranger.model.reasons import Reason, ReasonKind
from arranger.scheduling.cluster.neighbours import (
    Counts,
    Neighbour,
    Neighbours,
    SelectedPods,
    alone_in,
    selected_by,
    within,
)
from arranger.scheduling.cluster.view import ClusterView, Mask
from arranger.scheduling.filters.nodes import NodeAffinity, NodeSelector, PodFilter, TaintToleration, answer

#: More pods than any node takes.
_MANY = 1 << 31

_SELECTOR, _AFFINITY, _TAINTS = NodeSelector(), NodeAffinity(), TaintToleration()


class HostPorts(PodFilter):
    """Every host port that the pod requests is free."""

    name, version = "NodePorts", 1

    def most(self, view: ClusterView, shape: PodShape, pod: Neighbour) -> Counts | None:
        """One per node, because a port can be taken only once."""
        return np.ones(len(view), np.int64) if pod.host_ports else None

    def refusals(
        self, view: ClusterView, neighbours: Neighbours, shape: PodShape, pod: Neighbour
    ) -> Iterator[tuple[Reason, Mask]]:
        for port, taken in neighbours.ports_taken(pod):
            yield Reason(ReasonKind.HOST_PORT, port.protocol, needed=port.port), taken


class PodAffinity(PodFilter):
    """For every term of required pod affinity, the node's domain has a pod that all the terms select.

    As long as no topology has such a pod, a pod that matches its own terms may be the first.
    """

    name, version, eased = "PodAffinity", 1, True

    def refusals(
        self, view: ClusterView, neighbours: Neighbours, shape: PodShape, pod: Neighbour
    ) -> Iterator[tuple[Reason, Mask]]:
        """Nodes outside the topologies, then nodes whose domain has no selected pod, term by term."""
        terms = shape.rules.affinity if shape.rules is not None else ()
        if not terms:
            return
        for term in terms:
            yield Reason(ReasonKind.NO_AFFINITY_LABEL, term.topology_key), domains_of(view, term.topology_key) == 0
        selected = SelectedPods(tuple((within(term, pod.namespace), term.selector) for term in terms))
        there = [_in_domain(view, term.topology_key, neighbours.count(selected)) for term in terms]
        if selected.matches(pod) and not any(counts.any() for counts in there):
            return
        for term, counts in zip(terms, there, strict=True):
            yield Reason(ReasonKind.AFFINITY, term.topology_key), counts == 0


class PodAntiAffinity(PodFilter):
    """Neither the pod's own required anti-affinity nor that of other pods forbids the node."""

    name, version = "PodAntiAffinity", 1

    def most(self, view: ClusterView, shape: PodShape, pod: Neighbour) -> Counts | None:
        """Pods that avoid each other can't share a node that has the label."""
        alone = view.neighbours.alone_in(pod) if view.neighbours is not None else alone_in(pod)
        if not alone:
            return None
        labelled = np.logical_or.reduce([domains_of(view, key) > 0 for key in alone])
        return np.where(labelled, 1, _MANY)

    def refusals(
        self, view: ClusterView, neighbours: Neighbours, shape: PodShape, pod: Neighbour
    ) -> Iterator[tuple[Reason, Mask]]:
        """Nodes of pods that this pod must avoid, then nodes of pods that must avoid it."""
        for term in pod.anti_affinity:
            selected = selected_by(term, pod)
            counts = _in_domain(view, term.topology_key, neighbours.count(selected))
            yield Reason(ReasonKind.ANTI_AFFINITY, term.topology_key), counts > 0
        repelling = neighbours.repelling(pod)
        for key in sorted(repelling):
            counts = np.zeros(len(view), np.int64)
            counts[repelling[key]] = 1
            yield Reason(ReasonKind.AVOIDED, key), _in_domain(view, key, counts) > 0


class TopologySpread(PodFilter):
    """With the pod, no domain has over `maxSkew` more selected pods than the domain with the fewest.

    Domains are counted over the nodes that have the labels of all the constraints and that the pod's selector, affinity
    and tolerations allow, as far as the constraint honours them. Pods that are being deleted don't count.
    """

    name, version, eased = "PodTopologySpread", 1, True

    def refusals(
        self, view: ClusterView, neighbours: Neighbours, shape: PodShape, pod: Neighbour
    ) -> Iterator[tuple[Reason, Mask]]:
        rules = shape.rules.spread if shape.rules is not None else ()
        if not rules:
            return
        for rule in rules:
            domains = domains_of(view, rule.topology_key)
            yield Reason(ReasonKind.NO_SPREAD_LABEL, rule.topology_key), domains == 0
            selected = SelectedPods((((pod.namespace,), rule.selector),), staying=True)
            skew = self._skew(domains, neighbours.count(selected), self.spread_over(view, shape, rule), rule)
            reason = Reason(ReasonKind.TOPOLOGY_SPREAD, rule.topology_key, needed=rule.max_skew)
            yield reason, (domains > 0) & (skew + selected.matches(pod) > rule.max_skew)

    def spread_over(self, view: ClusterView, shape: PodShape, rule: SpreadRule) -> Mask:
        """The nodes that one of the shape's constraints spreads over."""
        keys = tuple(one.topology_key for one in shape.rules.spread) if shape.rules is not None else ()
        found = view.derived(("labelled", keys), lambda: _labelled(view, keys)).copy()
        if rule.honor_affinity:
            found &= answer(view, _SELECTOR, shape) & answer(view, _AFFINITY, shape)
        return found & answer(view, _TAINTS, shape) if rule.honor_taints else found

    def _skew(self, domains: Counts, counts: Counts, counted: Mask, rule: SpreadRule) -> Counts:
        """For each node, the pods in its domain less those in the domain with the fewest."""
        pods = np.bincount(domains, weights=counts * counted, minlength=1).astype(np.int64)
        seen = np.flatnonzero(np.bincount(domains[counted]))
        least = int(pods[seen].min()) if len(seen) >= max(rule.min_domains, 1) else 0
        skew: Counts = pods[domains] - least
        return skew


def domains_of(view: ClusterView, key: str) -> Counts:
    """The domains of a topology, numbered from 1, by node; 0 for nodes without the label. Don't modify the array."""
    return view.node_index.label(key).codes


def domains_on(view: ClusterView, path: Path) -> Counts:
    """As `domains_of`, for the domains of a path. A node without the label of a wider level shares that with others
    without it."""
    if len(path) == 1:
        return domains_of(view, path[0])

    def found() -> Counts:
        numbers: dict[tuple[int, ...], int] = {}
        values = np.column_stack([domains_of(view, key) for key in path]).tolist()
        return np.array([numbers.setdefault(tuple(of), len(numbers) + 1) if of[0] else 0 for of in values], np.int64)

    return view.derived(("domains", path), found)


def sums_of(view: ClusterView, path: Path, room: Counts) -> Counts:
    """Values of nodes, added up by the domains of a path; 0 for nodes in no domain."""
    sums: Counts = np.bincount(domains_on(view, path), weights=room, minlength=1).astype(np.int64)
    sums[0] = 0
    return sums


def _labelled(view: ClusterView, keys: tuple[str, ...]) -> Mask:
    """The nodes that are in a domain of each of these topologies."""
    found = np.ones(len(view), bool)
    for key in keys:
        found &= domains_of(view, key) > 0
    return found


def _in_domain(view: ClusterView, key: str, counts: npt.NDArray[np.int64]) -> Counts:
    """How many of the counted pods are in each node's domain of a topology; 0 for nodes that are in none."""
    domains = domains_of(view, key)
    pods = np.bincount(domains, weights=counts, minlength=1).astype(np.int64)
    pods[0] = 0
    return pods[domains]


#: In the order in which refusals are counted, after the filters that use node facts alone.
POD_FILTERS: tuple[PodFilter, ...] = (HostPorts(), PodAffinity(), PodAntiAffinity(), TopologySpread())
