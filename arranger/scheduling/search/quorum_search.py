"""The search for a quorum: as given, by another split over the worker sets, in one topology domain, or completely."""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from arranger.model.job import LEADER_GROUP, JobSpec, Topology, TopologyMode
from arranger.model.reasons import OTHER_DOMAIN
from arranger.projections.jobs.records import JobRecord
from arranger.scheduling.cluster.view import Mask
from arranger.scheduling.filters.nodes import Filters
from arranger.scheduling.filters.pods import domains_of
from arranger.scheduling.placing.areas import Areas
from arranger.scheduling.placing.needs import Needs, free_indices, joining, least_of, pods_of
from arranger.scheduling.placing.placement_try import NOT_SEARCHED, PlacementTry, Shortage
from arranger.scheduling.placing.pods import Placing
from arranger.scheduling.policies.base import weight_of
from arranger.scheduling.search.complete_search import CompleteSearch

#: How many domains of a topology are tried for a quorum whose pods must run together.
DOMAINS_TOGETHER = 8

#: How many splits of a quorum over its worker sets are tried when the given order doesn't fit.
SPLITS = 8


class QuorumSearch:
    """Tries the ways to place a quorum, one after the other, until one succeeds."""

    def __init__(self, placing: Placing) -> None:
        self._placing = placing
        self._complete = CompleteSearch(placing)

    @property
    def steps(self) -> int:
        """The steps of all complete searches so far."""
        return self._complete.steps

    def may_count(self, job: JobRecord) -> bool:
        """As `CompleteSearch.may_count`."""
        return self._complete.may_count(job)

    def place(self, tried: PlacementTry, needs: Needs, key: Hashable = None) -> Shortage | None:
        """Place all of the needs, or as many workers in another split; returns the first shortage if neither fits.

        If the ways that are tried one after the other fail, the complete search follows. Jobs with an equal `key`, if
        it isn't None, have equal results while the view is unchanged.
        """
        whole = tried.job.valid_spec.whole_topology
        if whole is not None and needs:
            return self._in_a_domain(tried, needs, whole, key)
        return self._within(self._placing.filters, tried, needs, key)

    def simply(self, tried: PlacementTry, needs: Needs) -> Shortage | None:
        """As `place`, on all nodes, and only by the simple ways: without a complete search. Returns the shortage, or
        None if the quorum is placed after all; the caller undoes that."""
        whole = tried.job.valid_spec.whole_topology
        if whole is not None:
            tried.area = len(whole.levels)
        return self._one_after_the_other(self._placing.filters, tried, needs)

    def _within(self, filters: Filters, tried: PlacementTry, needs: Needs, key: Hashable) -> Shortage | None:
        """`place` on the nodes that these filters are for."""
        shortage = self._one_after_the_other(filters, tried, needs)
        if shortage is None or self._complete.place(filters, tried, needs, shortage, key):
            return None
        return shortage

    def _in_a_domain(self, tried: PlacementTry, needs: Needs, whole: Topology, key: Hashable) -> Shortage | None:
        """`place` for a job whose pods belong into one domain: the areas are tried until one takes the quorum, and then
        all nodes, if only to tell whether the domains or the cluster are too small."""
        areas, mark = Areas(self._placing, tried, needs, whole), self._placing.mark()
        searched, since = 0, self._complete.steps
        for number, area in enumerate(areas):
            if not self._complete.may_try(area.filters, number, since):
                searched = max(searched, self._complete.bound, NOT_SEARCHED)
                break
            tried.area = area.level
            shortage = self._within(area.filters, tried, needs, key and (key, area.level, area.domain))
            if shortage is None:
                return None
            searched = max(searched, shortage.searched)
        tried.area = len(whole.levels)
        shortage = self._within(self._placing.filters, tried, needs, key and (key, tried.area, 0))
        if shortage is None and whole.mode == TopologyMode.PREFERRED:
            return None
        if shortage is None:  # the nodes together have room
            self._placing.undo(tried, mark)
            tried.by_search = False
            shortage = self._placing.short_of_domain(tried, next(iter(needs)), areas.lack())
            shortage.searched = searched
        return shortage

    def _one_after_the_other(self, base: Filters, tried: PlacementTry, needs: Needs) -> Shortage | None:
        placing = self._placing
        mark = placing.mark()
        shortage = None
        for filters, split in self._ways(base, tried, needs):
            if shortage is not None and 0 < placing.config.tried_pods <= tried.steps:
                break  # the cost recurs in every cycle while the job waits
            failed = self._place_all(filters, tried, needs, split)
            if failed is None:
                tried.as_given = split is None and filters is placing.filters and not tried.job.valid_spec.has_topology
                return None
            shortage = shortage or failed
            placing.undo(tried, mark)
        return shortage

    def _ways(self, base: Filters, tried: PlacementTry, needs: Needs) -> Iterator[tuple[Filters, Sequence[int] | None]]:
        """Every split on all these nodes; then, for pods that must run together, in one topology domain at a time.

        The first pod chooses its node regardless of the pods that must join it, so its domain may be too small.
        """
        placing = self._placing
        for split in self._splits(tried, needs):
            yield base, split
        if placing.view.neighbours is not None and not tried.job.placements:
            asked = sum(len(indices) for indices in needs.values())
            for domain in self._domains_together(tried, asked):
                narrowed = base.inside(only=domain, outside=OTHER_DOMAIN)
                for split in self._splits(tried, needs):
                    yield narrowed, split

    def _domains_together(self, tried: PlacementTry, asked: int) -> Iterator[Mask]:
        """Domains for a quorum with pods that must run together: those with room for `asked` pods, counted shape by
        shape; at most `DOMAINS_TOGETHER`, the domain with the most room for these pods first."""
        found = joining(tried.job)
        if found is None:
            return
        number, key = found
        domains = domains_of(self._placing.view, key)
        filters, groups = self._placing.filters, tried.groups
        rooms = np.array(
            [
                np.bincount(domains, weights=np.minimum(filters.room(group.shape), group.count), minlength=1)
                for group in groups
            ]
        )
        enough = np.minimum(rooms, [[group.count] for group in groups]).sum(axis=0) >= asked
        enough[0] = False  # nodes in no domain
        ranked = np.argsort(-rooms[number], kind="stable")
        for domain in ranked[enough[ranked]][:DOMAINS_TOGETHER].tolist():
            yield domains == domain

    def _splits(self, tried: PlacementTry, needs: Needs) -> Iterator[Sequence[int] | None]:
        """Ways to choose the workers: None for exactly the needs, else an order of sets, each giving what it can.

        The smallest pods first, the largest first, and the given order begun at each set: at most `SPLITS`.
        """
        yield None
        spec = tried.job.valid_spec
        sets = range(1, len(spec.groups))
        least = least_of(tried.job, needs)
        if tried.policy.whole or len(sets) < 2 or spec.has_worker_groups:
            return
        if sum(least.values()) >= sum(map(len, needs.values())):
            return
        by_size = sorted(sets, key=lambda group: (self._size(spec, group), group))
        orders = [by_size, by_size[::-1], *([*sets[at:], *sets[:at]] for at in range(len(sets)))]
        yield from orders[:SPLITS]

    def _size(self, spec: JobSpec, group: int) -> int:
        """The weighted share of the whole cluster that one worker takes; it orders the sets."""
        view, config = self._placing.view, self._placing.config
        total = view.allocatable.sum(axis=0)
        size = 0
        for resource, amount in spec.groups[group].shape.requests:
            column = view.column(resource)
            there = int(total[column]) if column is not None else 0
            size += max(weight_of(resource, config), 1) * (amount * 1_000_000_000 // there if there else 1 << 40)
        return size

    def _place_all(
        self, filters: Filters, tried: PlacementTry, needs: Needs, order: Sequence[int] | None
    ) -> Shortage | None:
        """Place group by group; with an `order`, the needed workers may come from any set, in that order, beside those
        that the minimum of each set needs."""
        asked = sum(len(indices) for indices in needs.values())
        least: Mapping[int, int] = pods_of(needs)
        turns: Iterable[tuple[int, Sequence[int]]] = needs.items()
        if order is not None:
            least, free = least_of(tried.job, needs), free_indices(tried.job, order)
            turns = [(group, needs[group]) for group in (LEADER_GROUP,) if group in needs]
            turns += [(group, free[group]) for group in order if group in free]
        spare = asked - sum(least.values())
        found, shortage = 0, None
        for group, indices in turns:
            needed = least.get(group, 0)
            desired = indices[: needed + spare]
            placed = self._placing.place(filters, tried, group, desired) if desired else 0
            found += placed
            spare -= max(placed - needed, 0)
            if placed < len(desired):
                shortage = shortage or self._placing.short(filters, tried, group, found=found, asked=asked)
                if placed < needed:
                    return shortage
            if found == asked:
                return None
        return shortage
