"""Whether a quorum would ever fit the present nodes, and if not, what lacks: judged on the nodes as they would be
without pods and all healthy, so that no other job is to blame."""

from collections.abc import Hashable

from arranger.model.config import SEARCHES
from arranger.projections.jobs.records import JobRecord
from arranger.scheduling.cluster.view import ClusterView
from arranger.scheduling.filters.nodes import Filters
from arranger.scheduling.placing.needs import lacks_room, quorum_needs
from arranger.scheduling.placing.placement_try import CycleObserver, PlacementTry, Shortage
from arranger.scheduling.placing.pods import Placing
from arranger.scheduling.policies.base import PodPolicy
from arranger.scheduling.policies.binpack import BinPack, Gang
from arranger.scheduling.search import own_rules
from arranger.scheduling.search.quorum_search import QuorumSearch


class EmptyCluster:
    """The nodes of one cycle without pods, all healthy, and without limits of queues and namespaces."""

    def __init__(self, placing: Placing) -> None:
        self._placing = placing
        #: Whether affinity counts there → these nodes.
        self._empty: dict[bool, Placing] = {}
        #: The steps of all proofs of this cycle, whether a process made them or remembers them.
        self._steps = 0
        self._found: dict[Hashable, Shortage | None] = {}
        #: The filters, their versions and their order: what a result depends on beside nodes and job.
        filters = tuple((of.name, of.version) for of in placing.policies.filters)
        self._rules = (filters, placing.config.filter_order)

    def shortage(self, tried: PlacementTry, alike: Hashable) -> Shortage | None:
        """Why the quorum of a try certainly wouldn't fit; None if it might. Quorums with equal `alike` have equal
        results."""
        # The plainest policies: which nodes a pod gets must depend on no job but its own.
        policy: PodPolicy = Gang() if tried.policy.whole else BinPack()
        if self._placing.observer is not None:
            return self._sought(tried.job, policy, alike)
        if alike not in self._found:
            self._found[alike] = self._by_facts(tried.job, policy, alike)
        return self._found[alike]

    def _by_facts(self, job: JobRecord, policy: PodPolicy, alike: Hashable) -> Shortage | None:
        """Without rules among pods the result depends on the nodes' facts alone, so it is cached: a job may wait
        through many cycles."""
        view = self._placing.view
        if view.neighbours is not None:
            return self._sought(job, policy, alike)
        key = ("empty cluster", self._rules, policy.whole, alike)
        return view.derived(key, lambda: (self._sought(job, policy, alike),))[0]

    def _sought(self, job: JobRecord, policy: PodPolicy, alike: Hashable) -> Shortage | None:
        empty = self._nodes(joining=False)
        tried = PlacementTry(job, policy, job.valid_spec.groups)
        if not lacks_room(empty.view, empty.filters, job, policy):
            forbidden = self._forbidden(tried, alike)
            if forbidden is None:
                return None
            empty = self._nodes(joining=forbidden)
        mark = empty.mark()
        tried.shortage = QuorumSearch(empty).place(tried, quorum_needs(job, policy))
        empty.undo(tried, mark)
        return tried.shortage

    def _nodes(self, *, joining: bool) -> Placing:
        if joining not in self._empty:
            observer = _observer_of(self._placing)
            self._empty[joining] = self._placing.emptied(observer, joining=joining)
        return self._empty[joining]

    def _forbidden(self, tried: PlacementTry, alike: Hashable) -> bool | None:
        """Whether affinity counts in the proof that rules among a quorum's own pods keep it from these nodes; None
        without a proof. The bound of all proofs of a cycle keeps no job from what was found of it before."""
        job, view, config = tried.job, self._placing.view, self._placing.config
        bound, recorded = config.search_bound(len(view)), job.waits is not None and job.waits.shortage.infeasible
        if view.neighbours is None or not view.neighbours.complete or not own_rules.may_forbid(job):
            return None
        if not bound or (not recorded and self._steps >= SEARCHES * bound):
            return None
        joining = own_rules.joins_nobody(job, view.neighbours)
        pods = (job.seen.namespace, job.seen.name, alike)  # selectors may match the name
        key = ("own rules", self._rules, tried.policy.whole, pods, bound, joining)
        empty = self._nodes(joining=False)
        proved, steps = view.derived(key, lambda: own_rules.forbid(empty, tried, bound, joining=joining))
        self._steps += steps
        return joining if proved else None


def _observer_of(placing: Placing) -> "_OfShortages | None":
    return _OfShortages(placing.observer) if placing.observer is not None else None


class _OfShortages(CycleObserver):
    """Passes on why pods find no node, and not where others go: that is undone at once."""

    def __init__(self, observer: CycleObserver) -> None:
        self._observer = observer

    def fell_short(self, tried: PlacementTry, shortage: Shortage, *, view: ClusterView, filters: Filters) -> None:
        """Pass it on."""
        self._observer.fell_short(tried, shortage, view=view, filters=filters)
