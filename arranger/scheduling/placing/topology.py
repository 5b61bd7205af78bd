"""Place the pods of a topology's unit (a worker set, or a group of its pods) into one domain.

A unit goes to the tightest level with a domain that has room for all of its pods: near the unit before it, then to the
domain with the least room. Within a domain of a wider level, the pods fill as few of its tighter domains as possible,
so that pods with consecutive indices are near each other. In a domain of the tightest level the job's policy chooses.

Pods of a unit are equal, so the room of a domain is the sum of the room of its nodes. Consecutive units in one domain
are placed in one step, with the same result as one by one.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np

from arranger.events.facts import LevelLack, UnitLack
from arranger.model.job import LEADER_GROUP, WHOLE_JOB, Path, Topology, TopologyMode, TopologyScope
from arranger.model.pod import PodShape
from arranger.model.reasons import Reason, ReasonKind, unlabelled
from arranger.projections.cluster.nodes import Amounts
from arranger.projections.jobs.records import JobRecord
from arranger.scheduling.cluster.neighbours import Neighbour
from arranger.scheduling.cluster.view import ClusterView
from arranger.scheduling.filters.nodes import Filters
from arranger.scheduling.filters.pods import domains_on, sums_of
from arranger.scheduling.placing.needs import free_indices
from arranger.scheduling.placing.placement_try import Piece, PlacementTry, There, UnitPods

#: How many domains are tried for one unit. More than one is needed only for pods with rules about each other.
DOMAINS = 8


class PodPlacing(Protocol):
    """What places pods on nodes, wherever their domains are (`placing.Placing`)."""

    view: ClusterView
    filters: Filters

    @property
    def units(self) -> "Units": ...
    def place(self, filters: Filters, tried: PlacementTry, group: int, indices: Sequence[int]) -> int: ...
    def place_on_nodes(self, filters: Filters, tried: PlacementTry, group: int, indices: Sequence[int]) -> int: ...
    def pod(self, job: JobRecord, group: int) -> Neighbour | None: ...
    def concerned(self, shape: PodShape, pod: Neighbour | None) -> bool: ...
    def mark(self) -> tuple[int, int]: ...
    def undo(self, tried: PlacementTry, mark: tuple[int, int], pieces: int = 0, taken: int = 0) -> None: ...


def outside(path: Path) -> Reason:
    """The reason against the nodes outside the chosen domain of a topology."""
    return Reason(ReasonKind.OTHER_TOPOLOGY, path[0])


def with_labels(view: ClusterView, filters: Filters, topology: Topology) -> Filters:
    """The filters for the nodes that are in a domain of a topology."""
    only = np.any([domains_on(view, path) > 0 for path in topology.paths()], axis=0)
    return filters.inside(only=only, outside=unlabelled(topology.levels))


def rows_of(view: ClusterView, path: Path) -> list[Amounts]:
    """The rows of each domain of a path, ascending; first those of nodes in no domain."""

    def found() -> list[Amounts]:
        codes = domains_on(view, path)
        return np.split(np.argsort(codes, kind="stable"), np.cumsum(np.bincount(codes, minlength=1))[:-1])

    return view.derived(("rows of domains", path), found)


def first_rows(view: ClusterView, path: Path) -> Amounts:
    """The first row of each domain of a path; 0 for no domain."""
    return view.derived(
        ("first rows of domains", path),
        lambda: np.array([int(rows[0]) if len(rows) else 0 for rows in rows_of(view, path)], np.int64),
    )


def unit_pods(tried: PlacementTry, view: ClusterView) -> UnitPods:
    """The try's pods by unit, kept until the try is undone."""
    if tried.units is None:
        tried.units = UnitPods(tried, view)
    return tried.units


class _Rooms:
    """The room for the pods of one group: by node, and by domain of each level."""

    def __init__(self, view: ClusterView, paths: Sequence[Path], room: Amounts) -> None:
        self._view, self._paths = view, paths
        self.room = room
        self.codes = [domains_on(view, path) for path in paths]
        self.sums = [sums_of(view, path, room) for path in paths]

    def take(self, pieces: Sequence[Piece]) -> None:
        """Count pods that were placed."""
        rows = np.array([piece.row for piece in pieces], np.int64)
        pods = np.array([len(piece.indices) for piece in pieces], np.int64)
        np.subtract.at(self.room, rows, pods)
        for codes, sums in zip(self.codes, self.sums, strict=True):
            np.subtract.at(sums, codes[rows], pods)
            sums[0] = 0

    def domains(self, sizes: Sequence[int], near: int | None, *, spacious: bool) -> Iterator[tuple[int, int]]:
        """The domains for so many pods of a new unit, each as level and number, best first; then those for the next
        smaller number of pods. `near` is the row of the pods before them. `spacious`: those with the most room first,
        wherever they are."""
        for number, pods in enumerate(sizes):
            for level, sums in enumerate(self.sums):
                fits = np.flatnonzero(sums >= pods)
                if len(fits) > 1:
                    first = first_rows(self._view, self._paths[level])[fits]
                    if spacious:
                        keys: tuple[Amounts, ...] = (-sums[fits],)
                    elif not number:
                        keys = (sums[fits], -self._nearness(level, first, near))
                    else:  # the others of the unit will go to the same domain of the widest level
                        keys = (-sums[fits], -self.sums[-1][self.codes[-1][first]])
                    fits = fits[np.lexsort((fits, *keys))[:DOMAINS]]
                yield from ((level, domain) for domain in fits.tolist())

    def _nearness(self, level: int, rows: Amounts, near: int | None) -> Amounts:
        """In how many levels, from this one up, each of some rows is in the same domain as another row."""
        same = np.zeros(len(rows), np.int64)
        for codes in self.codes[level:] if near is not None else ():
            if codes[near]:
                same += codes[rows] == codes[near]
        return same


class Units:
    """Places pods of jobs with a topology on one cycle's view."""

    def __init__(self, placing: PodPlacing) -> None:
        self._placing = placing

    def place(self, filters: Filters, tried: PlacementTry, group: int, indices: Sequence[int]) -> int:
        """Place as many of these equal pods as possible; returns how many. Of a group of pods all or none."""
        spec = tried.job.valid_spec
        topology, whole = spec.topology_of(group), spec.whole_topology
        tried.lack = None
        if topology is None:
            paths = whole.paths() if whole is not None else ()
            return self.spread(filters, tried, group, indices, paths=paths, level=tried.area)
        turn = _Turn(self._placing, filters, tried, group, topology)
        placed = 0
        while placed < len(indices):
            end = turn.end_of_unit(indices, placed)
            got = turn.place(indices, placed, end)
            placed += got
            if placed < end:
                break
        return placed

    def further(self, tried: PlacementTry, group: int, indices: Sequence[int]) -> int:
        """Place as many of these pods as possible beside the job's others, in the domains that these share."""
        placing, whole = self._placing, tried.job.valid_spec.whole_topology
        if whole is None:
            return placing.place(placing.filters, tried, group, indices)
        placed, left = 0, indices
        for level, filters in self._areas_of(tried, group, len(indices), whole):
            tried.area = level
            got = placing.place(filters, tried, group, left)
            placed, left = placed + got, left[got:]
            if not left:
                break
        if left and whole.mode == TopologyMode.REQUIRED and tried.lack is None:
            room = placing.filters.room(tried.groups[group].shape, placing.pod(tried.job, group))
            if room.any():
                there = unit_pods(tried, placing.view).of(WHOLE_JOB)
                rooms = _Rooms(placing.view, whole.paths(), room)
                tried.lack = (group, lack_beside(rooms.sums, whole, 0, len(left), there))
        return placed

    def _areas_of(self, tried: PlacementTry, group: int, pods: int, whole: Topology) -> Iterator[tuple[int, Filters]]:
        """Where so many pods may go, one domain after the other, by level. If no pod of the job is there that they have
        to join, because those before them have finished, the tightest domain with room for most comes first."""
        placing = self._placing
        if not self._is_there(tried):
            room = placing.filters.room(tried.groups[group].shape, placing.pod(tried.job, group))
            rooms = _Rooms(placing.view, paths := whole.paths(), room)
            most = min(pods, max(int(sums.max()) for sums in rooms.sums))
            for level, domain in rooms.domains([most] if most else [], None, spacious=False):
                inside = rows_of(placing.view, paths[level])[domain]
                yield level, placing.filters.inside(inside, outside=outside(paths[level]))
                if self._is_there(tried):
                    break
        yield from self.areas_beside(tried, whole)

    def _is_there(self, tried: PlacementTry) -> bool:
        """Whether the job has pods on nodes that are there."""
        there = unit_pods(tried, self._placing.view).of(WHOLE_JOB)
        return there is not None and there.codes is not None

    def areas_beside(self, tried: PlacementTry, whole: Topology) -> Iterator[tuple[int, Filters]]:
        """The domains that the job's pods share, by level; then, if the topology is preferred, all nodes."""
        placing = self._placing
        for level, path in enumerate(whole.paths()):
            there = unit_pods(tried, placing.view).of(WHOLE_JOB)
            if there is not None and there.codes is not None and (code := there.codes[level]):
                yield level, placing.filters.inside(rows_of(placing.view, path)[code], outside=outside(path))
        if whole.mode == TopologyMode.PREFERRED:
            yield len(whole.levels), placing.filters

    def spread(
        self,
        filters: Filters,
        tried: PlacementTry,
        group: int,
        indices: Sequence[int],
        *,
        paths: Sequence[Path],
        level: int,
    ) -> int:
        """Place equal pods within a domain of a level (above the last: on all nodes), in few of its tighter domains."""
        placing = self._placing
        if not level or not indices:
            return placing.place_on_nodes(filters, tried, group, indices)
        path, view = paths[level - 1], placing.view
        sums = sums_of(view, path, filters.room(tried.groups[group].shape, placing.pod(tried.job, group)))
        codes, rest = domains_on(view, path), indices
        while rest and sums.any():
            near = int(codes[tried.pieces[-1].row]) if tried.pieces else 0
            fits = np.flatnonzero(sums >= len(rest))
            if near and sums[near] >= len(rest):
                domain = near
            else:
                domain = int(fits[sums[fits].argmin()]) if len(fits) else int(sums.argmax())
            inside = filters.inside(rows_of(view, path)[domain], outside=outside(path))
            some = rest[: int(sums[domain])]
            got = self.spread(inside, tried, group, some, paths=paths, level=level - 1)
            sums[domain] = 0
            rest = rest[got:]
        if rest:  # nodes that are in no tighter domain, and pods that rules kept off
            rest = rest[placing.place_on_nodes(filters, tried, group, rest) :]
        return len(indices) - len(rest)


class _Turn:
    """The units of one group of a job, placed one after the other."""

    def __init__(
        self, placing: PodPlacing, filters: Filters, tried: PlacementTry, group: int, topology: Topology
    ) -> None:
        self._placing, self._filters, self._tried = placing, filters, tried
        self._group, self._topology, self._paths = group, topology, topology.paths()
        spec = tried.job.valid_spec
        self._size = spec.unit_size(group)
        self._atomic = topology.within == TopologyScope.GROUP
        self._shape, self._pod = tried.groups[group].shape, placing.pod(tried.job, group)
        self._concerned = placing.concerned(self._shape, self._pod)
        self._there = self._known()
        self._rooms = self._counted()

    def _known(self) -> UnitPods:
        found = unit_pods(self._tried, self._placing.view)
        found.of(self._group)
        return found

    def _counted(self) -> _Rooms:
        return _Rooms(self._placing.view, self._paths, self._filters.room(self._shape, self._pod))

    def end_of_unit(self, indices: Sequence[int], begin: int) -> int:
        """Where the unit ends whose pods begin there."""
        return bisect_left(indices, (indices[begin] // self._size + 1) * self._size, begin)

    def place(self, indices: Sequence[int], begin: int, end: int) -> int:
        """Place the pods of a unit, and maybe of some units after it; returns how many."""
        number, run = indices[begin] // self._size, indices[begin:end]
        there = self._there.begun(self._group, number)
        if there is not None and there.codes is not None:
            return self._beside(number, run)
        sizes = sorted({self._missing(number, run), len(run)}, reverse=True)
        for level, domain in self._rooms.domains(sizes, self._row_before(run[0]), spacious=self._tried.spacious):
            asked = indices[begin : self._end_there(indices, begin, end, int(self._rooms.sums[level][domain]), level)]
            if self._fill(asked, level, domain, whole=True):
                return len(asked)
        if self._topology.mode == TopologyMode.PREFERRED:
            return self._fill(run, len(self._topology.levels), 0, whole=self._atomic)
        self._note_lack(number, len(run), None)
        sums = self._rooms.sums
        level = int(np.argmax([of.max() for of in sums]))
        domain = int(sums[level].argmax())  # 0, which is none, if no domain has room
        return 0 if self._atomic or not domain else self._fill(run, level, domain, whole=False)

    def _end_there(self, indices: Sequence[int], begin: int, end: int, room: int, level: int) -> int:
        """Where the whole units end that fill the domain of the first one: the next one would choose it, too."""
        if level or self._concerned or end - begin < self._size:
            return end
        size, last = self._size, len(indices)
        while end + size <= last and end + size - begin <= room:
            number = indices[end] // size
            if indices[end + size - 1] // size != number or self._there.begun(self._group, number) is not None:
                break
            end += size
        return end

    def _beside(self, number: int, run: Sequence[int]) -> int:
        """Place pods beside others of their unit: in the tightest domain that these share, then in wider ones."""
        rest = run
        for level in range(len(self._topology.levels)):
            there = self._there.of(self._group, number)
            code = there.codes[level] if there is not None and there.codes is not None else 0
            if code and rest and self._rooms.sums[level][code]:
                rest = rest[self._fill(rest, level, code, whole=self._atomic) :]
        if rest and self._topology.mode == TopologyMode.PREFERRED:
            rest = rest[self._fill(rest, len(self._topology.levels), 0, whole=self._atomic) :]
        if rest:
            self._note_lack(number, len(rest), self._there.of(self._group, number))
        return len(run) - len(rest)

    def _fill(self, indices: Sequence[int], level: int, domain: int, *, whole: bool) -> int:
        """Place pods in a domain, if `whole` all or none; returns how many."""
        placing, tried, filters, paths = self._placing, self._tried, self._filters, self._paths
        if whole and level < len(paths) and self._rooms.sums[level][domain] < len(indices):
            return 0
        if level < len(paths):
            filters = filters.inside(rows_of(placing.view, paths[level])[domain], outside=outside(paths[level]))
        mark, begin = placing.mark(), (len(tried.pieces), len(tried.taken))
        placed = placing.units.spread(filters, tried, self._group, indices, paths=paths, level=level)
        if whole and placed < len(indices):
            placing.undo(tried, mark, *begin)
            self._there = self._known()
            return 0
        if self._concerned:
            self._rooms = self._counted()
        else:
            self._rooms.take(tried.pieces[begin[0] :])
        return placed

    def _missing(self, number: int, run: Sequence[int]) -> int:
        """How many pods of the unit have no node, whether or not they are to be placed now."""
        if len(run) == self._size:
            return len(run)
        free = free_indices(self._tried.job, (self._group,), self._tried.pieces)
        return sum(index // self._size == number for index in free[self._group])

    def _row_before(self, index: int) -> int | None:
        """The row of the job's pods before that one, if it is known."""
        tried = self._tried
        if tried.pieces:
            return tried.pieces[-1].row
        placements = tried.job.placements
        node = placements.get((self._group, index - 1)) or placements.get((LEADER_GROUP, 0))
        return self._placing.view.node_index.rows().get(node) if node is not None else None

    def _note_lack(self, number: int, pods: int, there: There | None) -> None:
        """Keep the reason; but that single pods find no nodes says more where the nodes together lack room."""
        enough = self._atomic or int(self._rooms.room.sum()) >= pods
        if self._topology.mode == TopologyMode.REQUIRED and enough:
            self._tried.lack = (self._group, lack_beside(self._rooms.sums, self._topology, number, pods, there))


def lack_beside(sums: Sequence[Amounts], topology: Topology, number: int, pods: int, there: There | None) -> UnitLack:
    """Why no domain takes the pods of a unit, which must join those that are there."""
    beside = there.pods if there is not None and there.codes is not None else 0
    levels = []
    for level, key in enumerate(topology.levels):
        most, domains = int(sums[level].max()), len(sums[level]) - 1
        if there is not None and there.codes is not None:
            code = there.codes[level]
            most, domains = int(sums[level][code]), int(code > 0)
        levels.append(LevelLack(key, domains, min(most, pods)))
    return UnitLack(topology.within, number, pods, beside, tuple(levels))
