"""The nodes that a pod may run on, and the first reason against each other node.

A filter judges all nodes at once. A node is counted under the first filter that refuses it, and resources come last, so
the counts of one pod always add up to the number of nodes. The filters of node facts come first, in the order of
`FILTERS`, unless `CycleConfig.filter_order` says otherwise; the order changes no result but these counts. The result of
a filter that uses node facts alone is cached for each different question until a fact changes.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import takewhile
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from arranger.model.node import Taint
from arranger.model.pod import PodShape
from arranger.model.reasons import (
    FITS,
    RESERVED,
    Reason,
    ReasonCounts,
    ReasonKind,
    absent,
    insufficient,
    most_frequent_first,
    similar_resource,
)
from arranger.model.taints import given, kept_off_by_cordon, tolerates, untolerated
from arranger.scheduling.cluster.neighbours import Neighbour, Neighbours
from arranger.scheduling.cluster.requirements import NO_VALUE, satisfying
from arranger.scheduling.cluster.view import ClusterView, Levels, Mask, fitting

Counts = npt.NDArray[np.int64]


class Filter(ABC):
    """One reason for which nodes may refuse a pod. Each cycle records `name` and `version`.

    The results must depend on the nodes' facts and on `question(shape)` alone.
    """

    name: ClassVar[str]
    version: ClassVar[int]

    @abstractmethod
    def question(self, shape: PodShape) -> Hashable:
        """The part of the shape that the result depends on; None if the filter refuses no node."""

    @abstractmethod
    def passes(self, view: ClusterView, shape: PodShape) -> Mask:
        """The nodes that don't refuse the pod, by row."""

    @abstractmethod
    def reason(self, view: ClusterView, shape: PodShape, row: int) -> Reason:
        """Why one node refuses the pod; nodes that refuse it for the same reason must give equal values. A filter of
        another package gives its reason as text (`arranger.model.reasons.other`)."""

    def reasons(self, view: ClusterView, shape: PodShape, refused: Mask) -> dict[Reason, int]:
        """The number of nodes by reason among those that the filter refuses."""
        return Counter(self.reason(view, shape, row) for row in np.flatnonzero(refused).tolist())

    def preference(self, view: ClusterView, shape: PodShape) -> Counts | None:
        """The preference of each node among those that a policy scores equally, 0 to `PREFERENCES - 1` over all filters
        together; None for no preference. It may depend on the nodes' facts and the shape alone."""
        return None

    def on_healthy_nodes(self) -> "Filter | None":
        """The filter that judges whether a job could ever run, as if all nodes were healthy; None for none."""
        return self


class _Lenient(Filter):
    """A filter that refuses no node by its facts alone."""

    def question(self, shape: PodShape) -> Hashable:
        return None

    def passes(self, view: ClusterView, shape: PodShape) -> Mask:
        return np.ones(len(view), bool)

    def reason(self, view: ClusterView, shape: PodShape, row: int) -> Reason:
        return FITS


class PodFilter(_Lenient):
    """A filter whose results depend on the pods on the nodes. By node facts alone it refuses no node."""

    #: Further pods may make a node pass, so the filter never makes a job infeasible.
    eased: ClassVar[bool] = False

    def most(self, view: ClusterView, shape: PodShape, pod: Neighbour) -> Counts | None:
        """How many such pods each node takes together at most; None if they don't exclude each other."""
        return None

    @abstractmethod
    def refusals(
        self, view: ClusterView, neighbours: Neighbours, shape: PodShape, pod: Neighbour
    ) -> Iterator[tuple[Reason, Mask]]:
        """Reasons as in `reason`, each with the nodes that refuse the pod for it; a node counts under its first."""


class _OfHealth(Filter):
    """A filter of the nodes' health, the same for all pods."""

    def question(self, shape: PodShape) -> Hashable:
        return ()

    def on_healthy_nodes(self) -> Filter | None:
        return None


class NodeReady(_OfHealth):
    """The node's Ready condition is True."""

    name, version = "NodeReady", 1

    def passes(self, view: ClusterView, shape: PodShape) -> Mask:
        return view.node_index.ready

    def reason(self, view: ClusterView, shape: PodShape, row: int) -> Reason:
        return Reason(ReasonKind.NOT_READY)


class NodeSchedulable(_OfHealth):
    """The node isn't cordoned, or the pod tolerates that."""

    name, version = "NodeUnschedulable", 1

    def question(self, shape: PodShape) -> Hashable:
        return () if kept_off_by_cordon(shape) else None

    def passes(self, view: ClusterView, shape: PodShape) -> Mask:
        return ~view.node_index.cordoned

    def reason(self, view: ClusterView, shape: PodShape, row: int) -> Reason:
        return Reason(ReasonKind.CORDONED)


class TaintToleration(Filter):
    """Every NoSchedule and NoExecute taint is tolerated."""

    name, version = "TaintToleration", 1

    def question(self, shape: PodShape) -> Hashable:
        return shape.tolerations

    def passes(self, view: ClusterView, shape: PodShape) -> Mask:
        """Each different set of taints is checked once."""
        answers: dict[tuple[Taint, ...], bool] = {}
        found = np.ones(len(view), bool)
        for row, taints in view.node_index.tainted:
            if taints not in answers:
                answers[taints] = untolerated(self._counted(taints), shape) is None
            found[row] = answers[taints]
        return found

    def reason(self, view: ClusterView, shape: PodShape, row: int) -> Reason:
        """The first taint that isn't tolerated."""
        taint = untolerated(self._counted(view.facts[row].taints), shape)
        return Reason(ReasonKind.TAINT, taint=taint)

    def _counted(self, taints: tuple[Taint, ...]) -> Iterable[Taint]:
        return taints

    def on_healthy_nodes(self) -> Filter | None:
        return AdminTaintToleration()


class AdminTaintToleration(TaintToleration):
    """As `TaintToleration`, but ignores the taints that Kubernetes sets on unhealthy nodes."""

    def _counted(self, taints: tuple[Taint, ...]) -> Iterable[Taint]:
        return given(taints)


class NodeSelector(Filter):
    """The node has every label of the pod's nodeSelector."""

    name, version = "NodeSelector", 1

    def question(self, shape: PodShape) -> Hashable:
        return shape.node_selector or None

    def passes(self, view: ClusterView, shape: PodShape) -> Mask:
        found = np.ones(len(view), bool)
        for key, value in shape.node_selector:
            label = view.node_index.label(key)
            found &= label.codes == label.numbers.get(value, NO_VALUE)
        return found

    def reason(self, view: ClusterView, shape: PodShape, row: int) -> Reason:
        return Reason(ReasonKind.NODE_SELECTOR)


class NodeAffinity(Filter):
    """The node satisfies a term of the pod's required node affinity."""

    name, version = "NodeAffinity", 1

    def question(self, shape: PodShape) -> Hashable:
        """The terms; None without required node affinity. An empty list of terms matches no node."""
        return shape.required_terms

    def passes(self, view: ClusterView, shape: PodShape) -> Mask:
        found = np.zeros(len(view), bool)
        for term in shape.required_terms or ():
            if term:
                found |= satisfying(view, term)
        return found

    def reason(self, view: ClusterView, shape: PodShape, row: int) -> Reason:
        return Reason(ReasonKind.NODE_AFFINITY)


class NodePreference(_Lenient):
    """Refuses no node; preferred affinity and `PreferNoSchedule` taints order nodes that a policy scores equally.

    As in kube-scheduler, both are scaled to 0 to 100 (here over all nodes) and weighted 2 and 3. Affinity is the sum of
    the weights of satisfied preferences; taints count if the pod doesn't tolerate them, and fewer are better.
    """

    name, version = "NodePreference", 1

    def preference(self, view: ClusterView, shape: PodShape) -> Counts | None:
        """2 × affinity + 3 × (100 − taints), less the lowest value; None if it is the same for all nodes."""
        if not len(view) or not (shape.preferred or view.node_index.advised):
            return None
        key = (self.name, shape.preferred, shape.tolerations)
        found = view.derived(key, lambda: self._preference(view, shape))
        return found if found.any() else None

    def _preference(self, view: ClusterView, shape: PodShape) -> Counts:
        desired = np.zeros(len(view), np.int64)
        for preferred in shape.preferred:
            if preferred.term:
                desired += preferred.weight * satisfying(view, preferred.term)
        advice = np.array([_advised_against(facts.taints, shape) for facts in view.facts], np.int64)
        found = 2 * _of_hundred(desired) + 3 * (100 - _of_hundred(advice))
        found -= found.min()  # a constant doesn't affect the order
        return found


def _of_hundred(amounts: Counts) -> Counts:
    most = int(amounts.max())
    return amounts * 100 // most if most > 0 else amounts


def _advised_against(taints: tuple[Taint, ...], shape: PodShape) -> int:
    advice = (taint for taint in taints if taint.effect == "PreferNoSchedule")
    return sum(not any(tolerates(t, taint) for t in shape.tolerations) for taint in advice)


#: The filters that use node facts alone, in the order in which refusals are counted.
FILTERS: tuple[Filter, ...] = (
    NodeReady(),
    NodeSchedulable(),
    TaintToleration(),
    NodeSelector(),
    NodeAffinity(),
    NodePreference(),
)

#: Preferences are below this factor, by which a policy's score is multiplied.
PREFERENCES = 512


def answer(view: ClusterView, of: Filter, shape: PodShape, *, scope: bool = False) -> Mask:
    """The nodes that a filter accepts by their facts, cached until a fact changes."""
    question = of.question(shape)
    if question is None:
        return np.ones(len(view), bool)
    return view.derived(("passes", scope, of.name, question), lambda: of.passes(view, shape))


def _in_order(filters: Sequence[Filter], order: Sequence[str]) -> list[Filter]:
    """The filters that are named first, then those of node facts, then those that look at other pods."""
    named = {name: number for number, name in enumerate(order)}
    return sorted(
        filters, key=lambda of: (named.get(of.name, len(named)), of.name not in named and isinstance(of, PodFilter))
    )


class Filters:
    """The filters' results for one view. `pod` is the pod as other pods see it; without it, rules among pods are
    ignored.

    The filters named in `order` refuse first, in that order; then come the others that use node facts alone, and last
    those that look at other pods."""

    def __init__(
        self,
        view: ClusterView,
        filters: Sequence[Filter] = FILTERS,
        *,
        order: Sequence[str] = (),
        ignore_health: bool = False,
        alone: bool = False,
    ) -> None:
        """`ignore_health`: whether a job could ever run, where further pods may ease rules; not if it is `alone`."""
        self._view = view
        self._scope = ignore_health
        #: The part of the cluster in which a quorum is tried, as of `inside`.
        self._only: Mask | None = None
        #: The rows of `only`, ascending, where they are known and nothing is kept free: few nodes are then looked at.
        self.rows: Counts | None = None
        self._kept: Levels | None = None
        self._outside = FITS
        if ignore_health:
            filters = [lasting for of in filters if (lasting := of.on_healthy_nodes()) is not None]
        eased = ignore_health and not alone
        self._all = [of for of in _in_order(filters, order) if not (eased and isinstance(of, PodFilter) and of.eased)]
        self._of_facts = [of for of in self._all if not isinstance(of, PodFilter)]
        #: Those that refuse before any that looks at other pods.
        self._first = [*takewhile(lambda of: not isinstance(of, PodFilter), self._all)]
        self._preferring = [of for of in filters if type(of).preference is not Filter.preference]
        self._of_pods = [of for of in self._all if isinstance(of, PodFilter)]
        self._reasons: dict[tuple[PodShape, Neighbour | None], tuple[int, ReasonCounts]] = {}

    def inside(
        self, rows: Counts | None = None, *, only: Mask | None = None, kept: Levels | None = None, outside: Reason
    ) -> "Filters":
        """The filters for a part of their part of the cluster, for a quorum that is tried there. `rows` or the mask
        `only` restricts the room to some nodes, and `kept` (nodes × resources) keeps a part of it free. The reason
        `outside` of what lies beyond it counts last."""
        found = Filters.__new__(Filters)
        found.__dict__.update(self.__dict__)
        if rows is not None:
            if self._only is not None:
                rows = rows[self._only[rows]]
            only = np.zeros(len(self._view), bool)
            only[rows] = True
        elif only is not None and self._only is not None:
            only = only & self._only
        found._kept = kept if kept is not None else self._kept
        found._only = only if only is not None else self._only
        found.rows = rows if found._kept is None else None
        found._outside, found._reasons = outside, {}
        return found

    def static(self, shape: PodShape) -> Mask:
        """Nodes that pass all checks except resources and rules among pods, which change during the cycle."""

        def together() -> Mask:
            found = np.ones(len(self._view), bool)
            for of in self._of_facts:
                found &= self._passes(of, shape)
            return found

        return self._view.derived(("static", *self._questions(shape)), together)

    def _questions(self, shape: PodShape) -> tuple[Hashable, ...]:
        """Everything that the filters' results depend on."""
        return (self._scope, *((of.name, of.question(shape)) for of in self._of_facts))

    def _passes(self, of: Filter, shape: PodShape) -> Mask:
        return answer(self._view, of, shape, scope=self._scope)

    def _refusals(self, shape: PodShape, pod: Neighbour | None, *, ever: bool = False) -> Iterator[tuple[Reason, Mask]]:
        """Refusals because of other pods: each reason with its nodes. `ever`: only those that last."""
        for of in self._of_pods if not ever else [of for of in self._of_pods if not of.eased]:
            yield from self._refused_by(of, shape, pod)

    def _refused_by(self, of: PodFilter, shape: PodShape, pod: Neighbour | None) -> Iterator[tuple[Reason, Mask]]:
        neighbours = self._view.neighbours
        if pod is not None and neighbours is not None:
            yield from of.refusals(self._view, neighbours, shape, pod)

    def allowed(self, shape: PodShape, pod: Neighbour | None = None) -> Mask:
        """Nodes that now pass all checks except resources."""
        found = self.static(shape).copy()
        for _, refused in self._refusals(shape, pod):
            found &= ~refused
            if not found.any():
                break  # a pod may have thousands of rules
        return found

    def preference(self, shape: PodShape) -> Counts | None:
        """The preference among nodes that a policy scores equally: 0 to `PREFERENCES - 1`, or None."""
        found: Counts | None = None
        for of in self._preferring:
            more = of.preference(self._view, shape)
            if more is not None:
                found = more if found is None else np.minimum(found + more, PREFERENCES - 1)
        return found

    def room(self, shape: PodShape, pod: Neighbour | None = None, *, ever: bool = False) -> Counts:
        """How many pods of this shape each node takes now, or `ever` beside further pods; 0 where a filter refuses.

        Rules among pods of the shape count only between pods on the same node.
        """
        room = fitting(self._view, shape, self._kept)
        room *= self.static(shape)
        if self._only is not None:
            room *= self._only
        if pod is not None and room.any():
            for _, refused in self._refusals(shape, pod, ever=ever):
                room[refused] = 0
                if not room.any():
                    break
            for of in self._of_pods:
                most = of.most(self._view, shape, pod)
                if most is not None:
                    np.minimum(room, most, out=room)
        return room

    def reasons(self, shape: PodShape, pod: Neighbour | None = None) -> ReasonCounts:
        """The number of nodes by reason, the most frequent first, for a pod that fits no node."""
        known = self._reasons.get((shape, pod))
        if known is None or known[0] != self._view.content:
            known = (self._view.content, self._count_reasons(shape, pod))
            self._reasons[shape, pod] = known
        return known[1]

    def refusal(self, shape: PodShape, row: int, pod: Neighbour | None = None) -> Reason:
        """Why one node doesn't take a pod of this shape now; `FITS` if it does."""
        view = self._view
        for of in self._all:
            if isinstance(of, PodFilter):
                for reason, refused in self._refused_by(of, shape, pod):
                    if refused[row]:
                        return reason
            elif not self._passes(of, shape)[row]:
                return of.reason(view, shape, row)
        if view.held is not None and self._reserved(shape)[row]:
            return RESERVED
        held = self._held()
        for resource, column, need in self._by_scarcity(shape):
            free = int(view.free[row, column] + (held[row, column] if held is not None else 0))
            if free < need:
                return self._lack_of(resource, need, free)
        inside = self._inside(shape)
        return FITS if inside is None or inside[row] else self._outside

    def _count_reasons(self, shape: PodShape, pod: Neighbour | None) -> ReasonCounts:
        view = self._view
        questions = tuple((of.name, of.question(shape)) for of in self._first)
        counts, left = view.derived(("counts", self._scope, *questions), lambda: self._count_first(shape))
        counts, left = dict(counts), left.copy()
        for of in self._all[len(self._first) :] if left.any() else ():
            self._count(of, shape, pod, counts, left)
        if view.held is not None and (reserved := left & self._reserved(shape)).any():
            counts[RESERVED] = int(np.count_nonzero(reserved))
            left &= ~reserved
        held = self._held()
        for resource, column, need in self._by_scarcity(shape):
            if not left.any():
                break
            free = view.free[:, column] if held is None else view.free[:, column] + held[:, column]
            short = left & (free < need)
            if short.any():
                most = int(free.max(where=short, initial=-np.inf))
                counts[self._lack_of(resource, need, most)] = int(np.count_nonzero(short))
                left &= ~short
        inside = self._inside(shape)
        if inside is not None and (left & ~inside).any():
            counts[self._outside] = int(np.count_nonzero(left & ~inside))
            left &= inside
        if left.any():
            counts[FITS] = int(np.count_nonzero(left))
        return most_frequent_first(counts)

    def _lack_of(self, resource: str, need: int, most: int) -> Reason:
        """Why nodes have too little of a resource, of which none has more than `most` free."""
        if resource not in self._view.known:
            return absent(resource, need, similar_resource(resource, self._view.known))
        return insufficient(resource, need, most)

    def _held(self) -> Levels | None:
        """What is reserved for other jobs: it is free on a node that would have too little with it, too."""
        return self._view.held

    def _reserved(self, shape: PodShape) -> Mask:
        """The nodes that have room for a pod only in what is reserved for other jobs."""
        view = self._view
        assert view.held is not None
        reserved: Mask = (fitting(view, shape) == 0) & (fitting(view, shape, -view.held) > 0)
        return reserved

    def _inside(self, shape: PodShape) -> Mask | None:
        """The nodes in the part of the cluster that these filters are for; None if that is all of it."""
        if self._kept is None:
            return self._only
        unkept = fitting(self._view, shape, self._kept) > 0
        return unkept if self._only is None else unkept & self._only

    def _count_first(self, shape: PodShape) -> tuple[dict[Reason, int], Mask]:
        """The nodes by the first reasons, which don't change during the cycle, and the nodes without such a reason."""
        counts: dict[Reason, int] = {}
        left = np.ones(len(self._view), bool)
        for of in self._first:
            self._count(of, shape, None, counts, left)
        return counts, left

    def _count(self, of: Filter, shape: PodShape, pod: Neighbour | None, counts: dict[Reason, int], left: Mask) -> None:
        """Count those of the nodes in `left` that a filter refuses, and take them out of it."""
        if not isinstance(of, PodFilter):
            refused = left & ~self._passes(of, shape)
            for reason, nodes in of.reasons(self._view, shape, refused).items():
                counts[reason] = counts.get(reason, 0) + nodes
            left &= ~refused
            return
        for reason, refused in self._refused_by(of, shape, pod):
            hit = left & refused
            if hit.any():
                counts[reason] = counts.get(reason, 0) + int(np.count_nonzero(hit))
                left &= ~hit
            if not left.any():
                return

    def _by_scarcity(self, shape: PodShape) -> list[tuple[str, int, int]]:
        """The pod's needs. Devices precede cpu and memory, because the scarcest resource explains most."""
        return sorted(self._view.needs(shape), key=lambda need: ("/" not in need[0], need[0]))
