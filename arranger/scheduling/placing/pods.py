"""Place pods on one cycle's view, and undo placements. The view and the quotas reflect both immediately."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace

import numpy as np

from arranger.events.facts import LackOfNodes, UnitLack
from arranger.model.config import CycleConfig
from arranger.model.job import LEADER_GROUP, TopologyMode
from arranger.model.pod import PodShape
from arranger.model.quota import SEEK_WITHOUT, QuotaLack
from arranger.model.reasons import ReasonCounts, beyond_quota
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import State
from arranger.scheduling.cluster.mix import cluster_mix
from arranger.scheduling.cluster.neighbours import Neighbour, neighbour_of
from arranger.scheduling.cluster.view import Chosen, Part, fitting
from arranger.scheduling.filters.nodes import Filters
from arranger.scheduling.placing.kept import KeptRankings
from arranger.scheduling.placing.needs import free_indices
from arranger.scheduling.placing.placement_try import CycleObserver, Piece, PlacementTry, Shortage, lack_of_nodes
from arranger.scheduling.placing.quotas import Quotas
from arranger.scheduling.placing.topology import Units, with_labels
from arranger.scheduling.policies.base import PlacementRequest, PodPolicy, Typical, Unplaced
from arranger.scheduling.policies.closed_form import Scores
from arranger.scheduling.queues.registry import Policies


class Placing:
    """The view and the quotas of one cycle. Pods of one job group at a time are placed against them."""

    def __init__(
        self,
        state: State,
        config: CycleConfig,
        policies: Policies,
        *,
        time_ms: int,
        observer: CycleObserver | None,
        kept: KeptRankings,
    ) -> None:
        self.time_ms = time_ms
        self.config = config
        self.policies = policies
        self.observer = observer
        self._rankings = kept.rankings(state, config)
        self.view = self._rankings.view
        self.jobs = kept.jobs(state, time_ms)
        for pod in state.assumed_until(time_ms):
            self.view.count_free(pod.node, pod.requests)
        if self.view.neighbours is not None and self.view.neighbours.devices is not None:
            self.view.neighbours.devices.lapse(state, time_ms)
        self.quotas = Quotas(state, time_ms, kept.limits(state))
        self.filters = Filters(self.view, policies.filters, order=config.filter_order)
        self.units = Units(self)
        self._state = state
        self._mix: tuple[Typical, ...] | None = None
        #: Labels → the filters for the nodes that have one of them.
        self._labelled: dict[tuple[str, ...], Filters] = {}
        #: What falls short on this view does so for good.
        self._empty = False

    def emptied(self, observer: CycleObserver | None, *, joining: bool = False) -> "Placing":
        """The same nodes without pods and all healthy, without limits of queues and namespaces, and without complete
        searches. `joining`: no pods of others ease the rules."""
        found = copy(self)
        config = CycleConfig(tried_pods=self.config.tried_pods, filter_order=self.config.filter_order)
        found.config, found.observer, found._empty = config, observer, True
        found.view = self.view.emptied()
        filters, order = self.policies.filters, config.filter_order
        found.filters = Filters(found.view, filters, order=order, ignore_health=True, alone=joining)
        found.quotas, found.units = Quotas(State(), self.time_ms), Units(found)
        found._rankings, found._mix, found._labelled = KeptRankings.on(found.view, config), (), {}
        return found

    @contextmanager
    def unobserved(self) -> Iterator[None]:
        """Try something that the observer isn't shown: it is shown only what a cycle decides by itself."""
        observer, self.observer = self.observer, None
        try:
            yield
        finally:
            self.observer = observer

    def mark(self) -> tuple[int, int]:
        """A point that `undo` can return to."""
        return self.view.mark(), self.quotas.mark()

    def undo(self, tried: PlacementTry, mark: tuple[int, int], pieces: int = 0, taken: int = 0) -> None:
        """Undo all placements of the try but the first ones. `mark` must precede the first of the others."""
        self.view.give_back(mark[0], tried.taken[taken:])
        self.quotas.give_back(mark[1])
        tried.undo(pieces, taken)
        if self.observer is not None:
            self.observer.undone(tried)

    # --- placing -------------------------------------------------------------------------------------------

    def place(self, filters: Filters, tried: PlacementTry, group: int, indices: Sequence[int]) -> int:
        """Place as many of these equal pods as quotas and nodes allow; returns how many."""
        placing = self.units.place if tried.job.valid_spec.has_topology else self.place_on_nodes
        if not self.quotas.limits(tried.job):
            return placing(filters, tried, group, indices)
        indices = indices[: self.quotas.room(tried.job, group, len(indices))]
        placed = placing(filters, tried, group, indices) if indices else 0
        self.quotas.take(tried.job, group, placed)
        return placed

    def place_whole(
        self, tried: PlacementTry, group: int, indices: Sequence[int], before: int, asked: int
    ) -> tuple[int, Shortage | None]:
        """Place as many of these equal pods as quotas and nodes allow in whole worker groups; returns how many, and why
        the next pod found no node, if one didn't. `asked` counts all pods of the group beyond the quorum, and `before`
        those of them that were placed earlier."""
        size, observer, shortage, sure = tried.groups[group].group_size, self.observer, None, False
        while indices:
            mark, pieces, taken = self.mark(), len(tried.pieces), len(tried.taken)
            trying = self.observer = observer if size == 1 or sure else None  # it is shown only what stays
            placed = self.units.further(tried, group, indices)
            self.observer = observer
            if placed < len(indices):
                shortage = shortage or self.short(self.filters, tried, group, found=before + placed, asked=asked)
            if trying is observer and not placed % size:
                return placed, shortage
            self.observer = trying
            self.undo(tried, mark, pieces, taken)
            self.observer = observer
            sure = placed == len(indices)
            indices = indices[: placed - placed % size]
        return 0, shortage

    def place_on_nodes(self, filters: Filters, tried: PlacementTry, group: int, indices: Sequence[int]) -> int:
        """Place as many of these equal pods as nodes allow, regardless of quotas and topologies; returns how many."""
        if not self._one_by_one(tried, group):
            return self._place_equal(filters, tried, group, indices)
        for at in range(len(indices)):
            if not self._place_equal(filters, tried, group, indices[at : at + 1]):
                return at
            tried.steps += 1
        return len(indices)

    def _one_by_one(self, tried: PlacementTry, group: int) -> bool:
        """Whether a placed pod may change which nodes take the next pod of its group, or how a policy scores them.

        Host ports alone don't require it, because they only keep a second pod off a node. Nor do claims that each pod
        has for itself, if no device is reached from two nodes.
        """
        if self.view.neighbours is None:
            return False
        room = self.view.neighbours.devices
        apart = room is not None and room.apart
        groups = tried.groups
        asking = groups if not tried.policy.local else groups[group : group + 1]
        rules = [of.shape.rules for of in asking if of.shape.rules is not None]
        shared = any(not (need.own and apart) for of in rules for need in of.devices)
        return shared or any(of.affinity or of.anti_affinity or of.spread or of.exclusive for of in rules)

    def _place_equal(self, filters: Filters, tried: PlacementTry, group: int, indices: Sequence[int]) -> int:
        """Place equal pods in one step, regardless of rules among them; returns how many."""
        request = self.request(filters, tried, group, len(indices))
        known = filters is self.filters
        chosen = self._choose(tried.policy, request) if known else self._fill(filters, tried.policy, request)
        view = self.view
        if self.observer is not None:
            self.observer.placing(
                tried, group, request=request, indices=indices, chosen=chosen, view=view, filters=filters
            )
        amounts = view.request(request.shape)
        view.take(chosen, amounts, request.pod)
        tried.taken.append((chosen, amounts))
        begin = 0
        for row, count in chosen:
            tried.pieces.append(Piece(row, group, indices[begin : begin + count]))
            begin += count
            if tried.of_job is not None:
                tried.of_job[row] += count
        return begin

    def _fill(self, filters: Filters, policy: PodPolicy, request: PlacementRequest) -> Chosen:
        local = policy.local and not policy.weighs_mix
        if local and filters.rows is not None and not self.concerned(request.shape, request.pod):
            return self._fill_rows(filters, filters.rows, policy, request)
        room = filters.room(request.shape, request.pod)
        return policy.fill(self.view, request, room, self.config) if room.any() else []

    def _fill_rows(self, filters: Filters, rows: Scores, policy: PodPolicy, request: PlacementRequest) -> Chosen:
        """As `_fill`, and looks at these nodes only."""
        part = Part(self.view, rows)
        room = fitting(part, request.shape)
        room *= filters.static(request.shape)[rows]
        if request.preference is not None:
            request = replace(request, preference=request.preference[rows])
        chosen = policy.fill(part, request, room, self.config) if room.any() else []
        return [(int(rows[at]), count) for at, count in chosen]

    def _choose(self, policy: PodPolicy, request: PlacementRequest) -> Chosen:
        """Nodes on this cycle's view. A shape that recurs is ranked once, and its ranking is kept up to date."""
        # The mix changes between cycles, and a ranking may be older than this one.
        ranked = policy.local and policy.rising and not policy.weighs_mix
        if not ranked or self.concerned(request.shape, request.pod):
            return self._fill(self.filters, policy, request)
        ranking = self._rankings.of(self.filters, policy, request)
        return (
            ranking.choose(self.filters, request.count)
            if ranking is not None
            else self._fill(self.filters, policy, request)
        )

    def concerned(self, shape: PodShape, pod: Neighbour | None) -> bool:
        """Whether rules among pods restrict the nodes of such a pod."""
        neighbours = self.view.neighbours
        if neighbours is None or pod is None:
            return False
        return shape.rules is not None or bool(neighbours.repelling(pod))

    # --- requests to policies ------------------------------------------------------------------------------

    def request(self, filters: Filters, tried: PlacementTry, group: int, count: int) -> PlacementRequest:
        shape = tried.groups[group].shape
        unplaced: tuple[Unplaced, ...] = ()
        if not tried.policy.local:
            if tried.of_job is None:
                tried.of_job = self.count_of(tried)
            unplaced = self._unplaced(filters, tried, group)
        leader, typical = group == LEADER_GROUP, self.typical(tried.policy)
        pod, preference = self.pod(tried.job, group), filters.preference(shape)
        return PlacementRequest(shape, count, leader, tried.of_job, unplaced, typical, pod, preference)

    def pod(self, job: JobRecord, group: int) -> Neighbour | None:
        """A pod of the group as other pods see it; None in a cycle without rules among pods."""
        return neighbour_of(job, group) if self.view.neighbours is not None else None

    def typical(self, policy: PodPolicy) -> tuple[Typical, ...]:
        """The cluster's mix, for policies that weigh it; computed on first use."""
        if not policy.weighs_mix:
            return ()
        if self._mix is None:
            mix = cluster_mix(self._state)
            self._mix = tuple(Typical(shape, pods, self.filters.static(shape)) for shape, pods in mix)
        return self._mix

    def count_of(self, tried: PlacementTry) -> Scores:
        """The job's pods by row, including those placed in this cycle."""
        counts = np.zeros(len(self.view), np.int64)
        rows = self.view.node_index.rows()
        for node in tried.job.placements.values():
            if node in rows:
                counts[rows[node]] += 1
        for piece in tried.pieces:
            counts[piece.row] += len(piece.indices)
        return counts

    def _unplaced(self, filters: Filters, tried: PlacementTry, group: int) -> tuple[Unplaced, ...]:
        """The job's pods without a node, those of this group first."""
        groups = tried.groups
        free = free_indices(tried.job, range(len(groups)), tried.pieces)
        in_turn = sorted(free, key=lambda other: other != group)
        return tuple(
            Unplaced(groups[of].shape, len(free[of]), filters.room(groups[of].shape, pod), pod)
            for of in in_turn
            for pod in [self.pod(tried.job, of)]
        )

    # --- shortages -----------------------------------------------------------------------------------------

    def short(self, filters: Filters, tried: PlacementTry, group: int, *, found: int, asked: int) -> Shortage:
        """Why the group's next pod found no node."""
        if filters is not self.filters:
            # Reasons within one of several domains are never recorded.
            return Shortage(group, (), found, asked, infeasible=self._empty)
        topology = tried.lack[1] if tried.lack is not None and tried.lack[0] == group else None
        lack = self.quotas.lack(tried.job, {group: 1})
        if lack is not None and not self._lacks_nodes(tried, group, lack):
            nodes = self._nodes_beside(tried, group, lack, (found, asked))
            return self.short_of_quota(tried, group, lack, found=found, asked=asked, nodes=nodes)
        reasons = self._reasons(tried, group)
        return self.told(tried, Shortage(group, reasons, found, asked, self._empty, topology=topology))

    def _lacks_nodes(self, tried: PlacementTry, group: int, lack: QuotaLack) -> bool:
        """Whether no node would take the group's next pod, and no limit keeps one from it."""
        return self.quotas.of_guarantees(lack) and self._no_room(tried, group)

    def _no_room(self, tried: PlacementTry, group: int) -> bool:
        shape = tried.groups[group].shape
        return not self._in_domains(tried, group).room(shape, self.pod(tried.job, group)).any()

    def seeks_without(self, lack: QuotaLack) -> bool:
        """Whether it is asked what nodes have for a job that this limit keeps waiting."""
        return self.config.beside_limits and lack.limit in SEEK_WITHOUT

    def _nodes_beside(
        self, tried: PlacementTry, group: int, lack: QuotaLack, counts: tuple[int, int]
    ) -> LackOfNodes | None:
        """Why no node would take the group's next pod without that limit either; None if one would."""
        if not self.seeks_without(lack) or not self._no_room(tried, group):
            return None
        return lack_of_nodes(tried, Shortage(group, self._reasons(tried, group), *counts))

    def short_of_quota(
        self,
        tried: PlacementTry,
        group: int,
        lack: QuotaLack,
        *,
        found: int,
        asked: int,
        nodes: LackOfNodes | None = None,
    ) -> Shortage:
        """The shortage for an exhausted quota, and what `nodes` lack as well."""
        return self.told(tried, Shortage(group, ((beyond_quota(lack), 1),), found, asked, quota=lack, nodes=nodes))

    def short_of_domain(self, tried: PlacementTry, group: int, lack: UnitLack) -> Shortage:
        """The shortage of a quorum for which the nodes have room, but no domain."""
        reasons = self._reasons(tried, group)
        found = max(level.most for level in lack.levels)
        return self.told(tried, Shortage(group, reasons, found, lack.pods, self._empty, topology=lack))

    def _reasons(self, tried: PlacementTry, group: int) -> ReasonCounts:
        return self._in_domains(tried, group).reasons(tried.groups[group].shape, self.pod(tried.job, group))

    def _in_domains(self, tried: PlacementTry, group: int) -> Filters:
        """The filters for the nodes that are in a domain of the topology which the group's pods require, if any."""
        spec = tried.job.valid_spec
        topology = spec.whole_topology or spec.topology_of(group)
        if topology is None or topology.mode != TopologyMode.REQUIRED:
            return self.filters
        if topology.levels not in self._labelled:
            self._labelled[topology.levels] = with_labels(self.view, self.filters, topology)
        return self._labelled[topology.levels]

    def told(self, tried: PlacementTry, shortage: Shortage) -> Shortage:
        """The shortage, which the cycle's observer has been told of."""
        if self.observer is not None:
            filters = self._in_domains(tried, shortage.group)
            self.observer.fell_short(tried, shortage, view=self.view, filters=filters)
        return shortage
