"""Whether a quorum would ever fit the present nodes, and if not, what lacks: judged on the nodes as they would be
without pods and all healthy, so that no other job is to blame."""

from collections.abc import Hashable

from arranger.projections.jobs.records import JobRecord
from arranger.scheduling.cluster.view import ClusterView
from arranger.scheduling.filters.nodes import Filters
from arranger.scheduling.placing.needs import lacks_room, quorum_needs
from arranger.scheduling.placing.placement_try import CycleObserver, PlacementTry, Shortage
from arranger.scheduling.placing.pods import Placing
from arranger.scheduling.policies.base import PodPolicy
from arranger.scheduling.policies.binpack import BinPack, Gang
from arranger.scheduling.search.quorum_search import QuorumSearch


class EmptyCluster:
    """The nodes of one cycle without pods, all healthy, and without limits of queues and namespaces."""

    def __init__(self, placing: Placing) -> None:
        self._placing = placing
        self._empty: Placing | None = None
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
            return self._sought(tried.job, policy)
        if alike not in self._found:
            self._found[alike] = self._by_facts(tried.job, policy, alike)
        return self._found[alike]

    def _by_facts(self, job: JobRecord, policy: PodPolicy, alike: Hashable) -> Shortage | None:
        """Without rules among pods the result depends on the nodes' facts alone, so it is cached: a job may wait
        through many cycles."""
        view = self._placing.view
        if view.neighbours is not None:
            return self._sought(job, policy)
        key = ("empty cluster", self._rules, policy.whole, alike)
        return view.derived(key, lambda: (self._sought(job, policy),))[0]

    def _sought(self, job: JobRecord, policy: PodPolicy) -> Shortage | None:
        empty = self._empty = self._empty or self._placing.emptied(_observer_of(self._placing))
        if not lacks_room(empty.view, empty.filters, job, policy):
            return None
        tried, mark = PlacementTry(job, policy, job.valid_spec.groups), empty.mark()
        tried.shortage = QuorumSearch(empty).place(tried, quorum_needs(job, policy))
        empty.undo(tried, mark)
        return tried.shortage


def _observer_of(placing: Placing) -> "_OfShortages | None":
    return _OfShortages(placing.observer) if placing.observer is not None else None


class _OfShortages(CycleObserver):
    """Passes on why pods find no node, and not where others go: that is undone at once."""

    def __init__(self, observer: CycleObserver) -> None:
        self._observer = observer

    def fell_short(self, tried: PlacementTry, shortage: Shortage, *, view: ClusterView, filters: Filters) -> None:
        """Pass it on."""
        self._observer.fell_short(tried, shortage, view=view, filters=filters)
