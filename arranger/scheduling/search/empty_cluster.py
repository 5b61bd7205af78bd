"""Whether a quorum would ever fit the present nodes, and if not, what lacks: judged on the nodes as they would be
without pods and all healthy, so that no other job is to blame."""

from collections.abc import Callable, Hashable
from typing import TypeVar

from arranger.model.config import SEARCHES
from arranger.projections.jobs.records import JobRecord
from arranger.scheduling.cluster.view import ClusterView
from arranger.scheduling.filters.nodes import Filters
from arranger.scheduling.placing.needs import lacks_room, quorum_needs
from arranger.scheduling.placing.placement_try import CycleObserver, PlacementTry, Shortage
from arranger.scheduling.placing.pods import Placing
from arranger.scheduling.policies.base import PodPolicy
from arranger.scheduling.policies.binpack import BinPack, Gang
from arranger.scheduling.search import own_rules, together
from arranger.scheduling.search.quorum_search import QuorumSearch

_Found = TypeVar("_Found")


class EmptyCluster:
    """The nodes of one cycle without pods, all healthy, and without limits of queues and namespaces. Jobs of an equal
    `kind` ask the same of them."""

    def __init__(self, placing: Placing, kind: Callable[[JobRecord], Hashable]) -> None:
        self._placing, self._kind = placing, kind
        #: Whether affinity counts there → these nodes.
        self._empty: dict[bool, Placing] = {}
        #: The steps of all proofs of this cycle, whether a process made them or remembers them.
        self._steps = 0
        self._found: dict[Hashable, Shortage | None] = {}
        #: Kind of a quorum → whether its pods together were proved not to fit.
        self._together: dict[Hashable, bool] = {}
        #: The filters, their versions and their order: what a result depends on beside nodes and job.
        filters = tuple((of.name, of.version) for of in placing.policies.filters)
        self._rules = (filters, placing.config.filter_order)

    def shortage(self, tried: PlacementTry, alike: Hashable) -> Shortage | None:
        """Why the quorum of a try certainly wouldn't fit; None if it might. Quorums with equal `alike` have equal
        results, but for what the bound of a cycle's proofs leaves out."""
        # The plainest policies: which nodes a pod gets must depend on no job but its own.
        policy: PodPolicy = Gang() if tried.policy.whole else BinPack()
        if self._placing.observer is not None:
            return self._sought(tried.job, policy, alike)
        key = (alike, _recorded(tried.job))
        if key not in self._found:
            self._found[key] = self._sought(tried.job, policy, alike)
        return self._found[key]

    def _sought(self, job: JobRecord, policy: PodPolicy, alike: Hashable) -> Shortage | None:
        empty = self._nodes(joining=False)
        tried, joining = PlacementTry(job, policy, job.valid_spec.groups), False
        lacks = self._by_facts("lacks", tried, alike, lambda: lacks_room(empty.view, empty.filters, job, policy))
        if not lacks:
            forbidden = self._forbidden(tried, alike)
            if forbidden is None:
                return None
            joining = forbidden
        if self._placing.observer is not None:
            return self._short(tried, joining=joining)
        return self._by_facts("short", tried, alike, lambda: self._short(tried, joining=joining))

    def _by_facts(self, what: str, tried: PlacementTry, alike: Hashable, found: Callable[[], _Found]) -> _Found:
        """Without rules among pods the result depends on the nodes' facts alone, so it is cached: a job may wait
        through many cycles."""
        view = self._placing.view
        if view.neighbours is not None:
            return found()
        key = ("empty cluster", what, self._rules, tried.policy.whole, alike)
        return view.derived(key, lambda: (found(),))[0]

    def _short(self, tried: PlacementTry, *, joining: bool) -> Shortage | None:
        """Why the simple ways don't place a quorum that certainly doesn't fit."""
        empty = self._nodes(joining=joining)
        mark = empty.mark()
        shortage = QuorumSearch(empty).place(tried, quorum_needs(tried.job, tried.policy))
        empty.undo(tried, mark)
        if shortage is not None:
            shortage.searched = 0  # it is proved, however few domains were tried to tell why
        return shortage

    def _nodes(self, *, joining: bool) -> Placing:
        if joining not in self._empty:
            observer = _observer_of(self._placing)
            self._empty[joining] = self._placing.emptied(observer, joining=joining)
        return self._empty[joining]

    def _forbidden(self, tried: PlacementTry, alike: Hashable) -> bool | None:
        """Whether affinity counts in the proof that a quorum's own pods keep each other from these nodes; None without
        a proof. The bound of all proofs of a cycle keeps no job from what was found of it before."""
        job, view = tried.job, self._placing.view
        neighbours = view.neighbours
        by_rules = neighbours is not None and neighbours.complete and own_rules.may_forbid(job)
        joining = by_rules and neighbours is not None and own_rules.joins_nobody(job, neighbours)
        if by_rules and self._may_prove(job):
            bound, whole = self._bound, tried.policy.whole
            empty, pods = self._nodes(joining=False), _pods(job, alike)
            key = ("own rules", self._rules, whole, pods, bound, joining)
            proved, steps = view.derived(key, lambda: own_rules.forbid(empty, tried, bound, joining=joining))
            self._steps += steps
            if proved:
                return joining
        proved = together.may_forbid(job) and self._never_together(tried, alike, rules=by_rules, joining=joining)
        return joining if proved else None

    @property
    def _bound(self) -> int:
        return self._placing.config.search_bound(len(self._placing.view))

    def _may_prove(self, job: JobRecord) -> bool:
        """Whether steps are left for a proof about a job."""
        return bool(self._bound) and (_recorded(job) or self._steps < SEARCHES * self._bound)

    def _never_together(self, tried: PlacementTry, alike: Hashable, *, rules: bool, joining: bool) -> bool:
        """Whether it is proved that the pods of a quorum, for each of which there are nodes, never fit together. What
        is recorded takes no steps of others: a cycle may leave such jobs out."""
        job, empty, bound = tried.job, self._nodes(joining=False), self._bound
        pods: Hashable = _pods(job, alike) if rules else self._kind(job)
        key = ("together", self._rules, tried.policy.whole, pods, bound, rules, joining, together.held(empty, tried))
        if key not in self._together:
            if not self._may_prove(job):
                return False
            self._together[key], steps = self._placing.view.derived(
                key, lambda: self._prove_together(tried, rules=rules, joining=joining)
            )
            self._steps += 0 if _recorded(job) else steps
        return self._together[key]

    def _prove_together(self, tried: PlacementTry, *, rules: bool, joining: bool) -> tuple[bool, int]:
        """As `together.forbid`: most quorums are placed by the simple ways, so nothing is to be proved."""
        empty = self._nodes(joining=False)
        with empty.unobserved():
            mark = empty.mark()
            shortage = QuorumSearch(empty).place(tried, quorum_needs(tried.job, tried.policy))
            empty.undo(tried, mark)
        if shortage is None and not rules:
            return False, 0
        return together.forbid(empty, tried, self._bound, rules=rules, joining=joining)


def _recorded(job: JobRecord) -> bool:
    """Whether a job is recorded as infeasible."""
    return job.waits is not None and job.waits.shortage.infeasible


def _pods(job: JobRecord, alike: Hashable) -> Hashable:
    """What rules among pods may look at: selectors may match the name."""
    return (job.seen.namespace, job.seen.name, alike)


def _observer_of(placing: Placing) -> "_OfShortages | None":
    return _OfShortages(placing.observer) if placing.observer is not None else None


class _OfShortages(CycleObserver):
    """Passes on why pods find no node, and not where others go: that is undone at once."""

    def __init__(self, observer: CycleObserver) -> None:
        self._observer = observer

    def fell_short(self, tried: PlacementTry, shortage: Shortage, *, view: ClusterView, filters: Filters) -> None:
        """Pass it on."""
        self._observer.fell_short(tried, shortage, view=view, filters=filters)
