"""The domains in which the quorum of a job is tried whose topology holds for the whole job."""

from collections.abc import Hashable, Iterator
from typing import NamedTuple

import numpy as np

from arranger.events.facts import LevelLack, UnitLack
from arranger.model.job import WHOLE_JOB, Path, Topology, TopologyScope
from arranger.projections.cluster.nodes import Amounts
from arranger.scheduling.cluster.view import Mask
from arranger.scheduling.filters.nodes import Filters
from arranger.scheduling.filters.pods import domains_on, sums_of
from arranger.scheduling.placing.needs import Needs, Quorum, free_indices
from arranger.scheduling.placing.placement_try import PlacementTry
from arranger.scheduling.placing.pods import Placing
from arranger.scheduling.placing.topology import first_rows, outside, rows_of, unit_pods


class Area(NamedTuple):
    """A domain of a level, and the filters for its nodes."""

    level: int
    domain: int
    filters: Filters


class Areas:
    """The areas of one job's quorum, by sums of room and of resources: other domains surely don't hold it."""

    def __init__(self, placing: Placing, tried: PlacementTry, needs: Needs, topology: Topology) -> None:
        self._placing, self._tried, self._topology = placing, tried, topology
        self._paths = topology.paths()
        self._quorum = Quorum.of(tried, needs)
        every = free_indices(tried.job, range(len(tried.groups)))
        least = {group: len(indices) for group, indices in every.items()}
        self._whole = Quorum(every, sum(least.values()), True, least)
        self._rooms = {
            group: placing.filters.room(tried.groups[group].shape, placing.pod(tried.job, group)) for group in every
        }
        self._there = unit_pods(tried, placing.view).of(WHOLE_JOB)

    def __iter__(self) -> Iterator[Area]:
        """First domains for all pods of the job, those of the tightest level first, then domains for its quorum."""
        if self._there is not None and self._there.codes is not None:
            for level, filters in self._placing.units.areas_beside(self._tried, self._topology):
                if level < len(self._topology.levels):
                    yield Area(level, 0, filters)
            return
        met: set[Hashable] = set()  # what one domain doesn't hold, no equal one does
        view, widest = self._placing.view, self._paths[-1]
        for quorum in (self._whole, self._quorum):
            widest_room = self._pods(widest, quorum)
            for level, path in enumerate(self._paths):
                room = self._pods(path, quorum)
                fits = np.flatnonzero(self._holds(path, quorum, room))
                keys: tuple[Amounts, ...] = (room[fits],)
                if quorum is self._quorum:  # the other pods will go to the same domain of the widest level
                    keys = (-room[fits], -widest_room[domains_on(view, widest)[first_rows(view, path)[fits]]])
                for domain in fits[np.lexsort((fits, *keys))].tolist():
                    content = self._content(rows_of(view, path)[domain]) or (level, domain)
                    if content not in met:
                        met.add(content)
                        yield Area(level, domain, self._inside(level, domain))

    def _content(self, rows: Amounts) -> bytes:
        """What a domain has for the job's pods, the same for all domains with equal nodes; empty where more counts."""
        view, spec = self._placing.view, self._tried.job.valid_spec
        if view.neighbours is not None or any(spec.topology_of(group) for group in range(len(spec.groups))):
            return b""
        nodes = np.column_stack([*(room[rows] for room in self._rooms.values()), view.free[rows]])
        return nodes[np.lexsort(nodes.T)].tobytes()

    def _inside(self, level: int, domain: int) -> Filters:
        path = self._paths[level]
        return self._placing.filters.inside(rows_of(self._placing.view, path)[domain], outside=outside(path))

    def _pods(self, path: Path, quorum: Quorum) -> Amounts:
        """How many pods of the quorum's groups find room in each domain, each group counted for itself."""
        found: Amounts = np.sum(
            [sums_of(self._placing.view, path, self._rooms[group]) for group in quorum.indices], axis=0
        )
        return found

    def _holds(self, path: Path, quorum: Quorum, room: Amounts) -> Mask:
        """The domains that may hold the quorum."""
        view, groups = self._placing.view, quorum.indices
        capped = np.zeros_like(room)
        found = room > 0
        for group, indices in groups.items():
            sums = sums_of(view, path, self._rooms[group])
            found &= sums >= quorum.least.get(group, 0)
            capped += np.minimum(sums, len(indices))
        found &= capped >= quorum.asked
        return found & self._has_amounts(path, quorum) if found.any() else found

    def _has_amounts(self, path: Path, quorum: Quorum) -> Mask:
        """The domains whose nodes would hold so many pods if each were as small as the smallest in every resource, and
        have as much as all the pods request together."""
        view = self._placing.view
        usable = np.any([self._rooms[group] > 0 for group in quorum.indices], axis=0)
        every = np.array([view.request(self._tried.groups[group].shape) for group in quorum.indices])
        free = np.maximum(view.free, 0) * usable[:, None]
        least = every.min(axis=0)
        columns = np.flatnonzero(least)  # never empty: every pod requests 1 of `pods`
        smallest = np.floor((free[:, columns] / least[columns]).min(axis=1)).astype(np.int64)
        found: Mask = sums_of(view, path, smallest) >= quorum.asked
        if quorum.exact:
            asked = np.array([len(of) for of in quorum.indices.values()]) @ every
            for column in np.flatnonzero(asked).tolist():
                found &= np.bincount(domains_on(view, path), weights=free[:, column], minlength=1) >= asked[column]
        return found

    def lack(self) -> UnitLack:
        """Why no domain takes the quorum."""
        quorum, beside, levels = self._quorum, 0, []
        for level, path in enumerate(self._paths):
            fits = [
                np.minimum(sums_of(self._placing.view, path, self._rooms[group]), len(indices))
                for group, indices in quorum.indices.items()
            ]
            most: Amounts = np.minimum(np.sum(fits, axis=0), quorum.asked - 1)
            domains = len(rows_of(self._placing.view, path)) - 1
            if self._there is not None and self._there.codes is not None:
                beside, code = self._there.pods, self._there.codes[level]
                most, domains = most[[code]], int(code > 0)
            levels.append(LevelLack(path[0], domains, int(most.max())))
        return UnitLack(TopologyScope.JOB, 0, quorum.asked, beside, tuple(levels))
