"""Whether the pods of a quorum, for each of which there are nodes, can never fit them together: proved on the nodes
without pods.

The question is wider than that of a cycle, so a proof holds for each way in which one could place the quorum. Each
domain that may hold the whole job is tried, and in it each choice of domains for the units of worker sets, equal ones
once. `packing` then says whether the pods fit the nodes that are left to each, and `own_rules` whether the rules among
them allow it. Nothing is proved where a search ends at its bound, nor for pods that may share volumes or devices. Of a
worker set with many units only the room of domains for that set alone counts, and with several units no rules.
"""

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from arranger.model.job import Topology, TopologyMode
from arranger.projections.cluster.nodes import Amounts
from arranger.projections.jobs.records import JobRecord
from arranger.scheduling.cluster.view import ClusterView
from arranger.scheduling.filters.pods import domains_on
from arranger.scheduling.placing.needs import Quorum, free_indices, least_of, quorum_needs
from arranger.scheduling.placing.placement_try import PlacementTry
from arranger.scheduling.placing.pods import Placing
from arranger.scheduling.search import own_rules
from arranger.scheduling.search.complete_search import PackingQuestion, holds_volumes_or_devices
from arranger.scheduling.search.packing import OVERHEAD, BoundReached, StepCount, pack

#: The steps to look at a domain, and one more of it, and of each question, for so many nodes.
DOMAIN, NODES_A_STEP = 5, 50
#: Of a worker set of more units, the room of domains is counted for the set alone.
MOST_UNITS = 12

_Rooms = dict[int, Amounts]


class _Unit(NamedTuple):
    """Pods of a group that belong into one domain, of the numbered ones by node; `codes` is None if they may go
    anywhere."""

    group: int
    most: int
    least: int
    codes: Amounts | None = None


def may_forbid(job: JobRecord) -> bool:
    """Whether there is something to prove of a job: pods of several kinds, or a domain that is required. One whose
    workers have finished has run."""
    spec = job.valid_spec
    if job.slots.finished or job.placements or sum(spec.groups[group].count for group in _holders(job)) > 1:
        return False
    topologies = [spec.whole_topology, *map(spec.topology_of, range(len(spec.groups)))]
    return sum(of.count > 0 for of in spec.groups) > 1 or any(map(_required, topologies))


def held(empty: Placing, tried: PlacementTry) -> tuple[bytes, ...]:
    """What an answer depends on beside the facts of nodes and the job: the room for a pod with volumes or devices."""
    return tuple(_room(empty, tried, group).tobytes() for group in _holders(tried.job))


def _holders(job: JobRecord) -> list[int]:
    """The groups of a job whose pods have volumes or devices."""
    return [number for number, of in enumerate(job.valid_spec.groups) if holds_volumes_or_devices(of.shape)]


def _room(empty: Placing, tried: PlacementTry, group: int) -> Amounts:
    return empty.filters.room(tried.groups[group].shape, empty.pod(tried.job, group), ever=True)


def forbid(empty: Placing, tried: PlacementTry, bound: int, *, rules: bool, joining: bool) -> tuple[bool, int]:
    """Whether so many steps prove that the quorum fits no nodes without pods, and how many it took. `rules`: those
    among its own pods count, and with `joining` affinity, too."""
    proof = _Proof(empty, tried, StepCount(bound), rules=rules, joining=joining)
    try:
        return not proof.may_fit(), proof.steps.used
    except BoundReached:
        return False, bound


class _Proof:
    """The search for a way that isn't ruled out."""

    def __init__(self, empty: Placing, tried: PlacementTry, steps: StepCount, *, rules: bool, joining: bool) -> None:
        self._empty, self._tried, self.steps = empty, tried, steps
        self._by_rules, self._joining = rules, joining
        self._quorum = _quorum(tried)
        self._units = [unit for group in self._quorum.indices for unit in self._units_of(group)]
        self._together = replace(tried, groups=tuple(tried.groups[unit.group] for unit in self._units))
        self._of_units = Quorum(
            {number: range(unit.most) for number, unit in enumerate(self._units)},
            self._quorum.asked,
            self._quorum.exact,
            {number: unit.least for number, unit in enumerate(self._units) if unit.least},
        )

    def may_fit(self) -> bool:
        """Whether there is such a way. Raises `BoundReached`."""
        rooms = {group: _room(self._empty, self._tried, group) for group in self._quorum.indices}
        return any(self._fits(of_area) for of_area in self._areas(rooms))

    def _units_of(self, group: int) -> list[_Unit]:
        """The units of a group's part of the quorum."""
        indices, spec = self._quorum.indices[group], self._tried.job.valid_spec
        every, least = len(indices), self._quorum.least.get(group, 0)
        topology = spec.topology_of(group)
        if topology is None or not _required(topology):
            return [_Unit(group, every, least)]
        codes = _widest(self._empty.view, topology)
        sizes = Counter(index // spec.unit_size(group) for index in indices).values()
        if len(sizes) > MOST_UNITS:
            return [_Unit(group, every, least)]
        return [_Unit(group, size, max(least - (every - size), 0), codes) for size in sizes]

    def _areas(self, rooms: _Rooms) -> Iterator[_Rooms]:
        """The rooms within each domain that may hold the whole job; all of them if it needs none."""
        whole, quorum = self._tried.job.valid_spec.whole_topology, self._quorum
        if whole is None or not _required(whole):
            yield rooms
            return
        codes = _widest(self._empty.view, whole)
        sums = {group: np.bincount(codes, weights=room).astype(np.int64) for group, room in rooms.items()}
        fits = np.sum([np.minimum(of, len(quorum.indices[group])) for group, of in sums.items()], 0) >= quorum.asked
        for group, of in sums.items():
            fits &= of >= quorum.least.get(group, 0)
        fits[0] = False
        alike = all(unit.codes is None for unit in self._units)
        met = set[Hashable]()
        rows = _rows_by(codes)
        for domain in np.flatnonzero(fits).tolist():
            content = self._content(rooms, rows[domain]) if alike and not self._by_rules else domain
            if content not in met:
                met.add(content)
                yield {group: room * (codes == domain) for group, room in rooms.items()}

    def _content(self, rooms: _Rooms, rows: Amounts) -> bytes:
        """What a domain has for the quorum's pods, the same for all domains with equal nodes."""
        self.steps.spend(DOMAIN + len(rows) // NODES_A_STEP)
        nodes = np.column_stack([*(room[rows] for room in rooms.values()), self._empty.view.free[rows]])
        return nodes[np.lexsort(nodes.T)].tobytes()

    def _spend(self) -> None:
        self.steps.spend(OVERHEAD + len(self._empty.view) // NODES_A_STEP)

    def _fits(self, rooms: _Rooms) -> bool:
        """Whether the quorum may fit these rooms."""
        every = {number: self._everywhere(unit, rooms) for number, unit in enumerate(self._units)}
        if not self._sets_fit(rooms) or not self._packs(every):
            return False
        bound = [number for number, unit in enumerate(self._units) if unit.codes is not None]
        if not bound:
            return self._allowed(rooms)
        choices = self._choices(rooms, every, bound)
        return any(self._packs(chosen) and self._allowed(self._of_groups(chosen)) for chosen in choices)

    def _everywhere(self, unit: _Unit, rooms: _Rooms) -> Amounts:
        room = rooms[unit.group]
        return room if unit.codes is None else room * (unit.codes > 0)

    def _sets_fit(self, rooms: _Rooms) -> bool:
        """Whether domains have room for the units that each set has at least, counted for the set alone."""
        spec = self._tried.job.valid_spec
        for group, least in self._quorum.least.items():
            topology = spec.topology_of(group)
            if topology is not None and _required(topology) and least:
                size = min(spec.unit_size(group), least)
                sums = np.bincount(_widest(self._empty.view, topology), weights=rooms[group]).astype(np.int64)
                if int((sums[1:] // size).sum()) < least // size:
                    return False
        return True

    # --- domains for units ---------------------------------------------------------------------------------

    def _choices(self, rooms: _Rooms, every: _Rooms, bound: Sequence[int]) -> Iterator[_Rooms]:
        """The rooms of the units with each choice of domains."""
        alike = self._alike(rooms, bound)

        def of(at: int, chosen: _Rooms, domains: list[int]) -> Iterator[_Rooms]:
            if at == len(bound):
                yield chosen
                return
            number = bound[at]
            unit, before = self._units[number], self._units[bound[at - 1]] if at else None
            same = before is not None and (before.group, *before[1:3]) == (unit.group, *unit[1:3])
            for domain in self._domains(unit, rooms):
                self.steps.spend(1)
                equal = alike.get(domain, ())
                if (same and domain < domains[-1]) or any(of not in domains for of in equal):
                    continue
                assert unit.codes is not None
                within = rooms[unit.group] * (unit.codes == domain)
                yield from of(at + 1, {**chosen, number: within}, [*domains, domain])

        yield from of(0, every, [])

    def _domains(self, unit: _Unit, rooms: _Rooms) -> list[int]:
        """The domains that may hold a unit, ascending; 0 for none, if it may have no pods."""
        assert unit.codes is not None
        sums = np.bincount(unit.codes, weights=rooms[unit.group])
        sums[0] = 0
        return np.flatnonzero(sums >= max(unit.least, 1)).tolist() or [0] * (not unit.least)

    def _alike(self, rooms: _Rooms, bound: Sequence[int]) -> dict[int, list[int]]:
        """Domain → those before it with equal nodes, which are taken before it. None are if the sets have different
        topologies, or rules may tell such domains apart."""
        codes = self._units[bound[0]].codes
        assert codes is not None
        spec = self._tried.job.valid_spec
        if self._by_rules or len({spec.topology_of(self._units[number].group) for number in bound}) > 1:
            return {}
        found, met = dict[int, list[int]](), dict[bytes, list[int]]()
        for domain, rows in enumerate(_rows_by(codes)[1:], start=1):
            equal = met.setdefault(self._content(rooms, rows), [])
            found[domain] = list(equal)
            equal.append(domain)
        return found

    # --- a single question -----------------------------------------------------------------------------------

    def _packs(self, rooms: _Rooms) -> bool:
        """Whether the units fit these rooms, as far as resources say."""
        if not self._of_units.may_fit(rooms):
            return False
        self._spend()
        question = PackingQuestion(self._empty, self._together, self._of_units, rooms)
        outcome = pack(question.packing, self.steps.limit)  # as a cycle asks it where nothing runs
        self.steps.used += outcome.steps
        if not outcome.complete:
            raise BoundReached
        return outcome.counts is not None

    def _of_groups(self, rooms: _Rooms) -> _Rooms:
        """The rooms by group, if each has one unit; empty if not."""
        found = {unit.group: rooms[number] for number, unit in enumerate(self._units)}
        return found if len(found) == len(self._units) else {}

    def _allowed(self, rooms: _Rooms) -> bool:
        """Whether rules among the quorum's own pods may allow that they fit these rooms."""
        if not self._by_rules or not rooms:
            return True
        self._spend()
        answer = own_rules.arranged(
            self._empty, self._tried, self._quorum, rooms, self.steps.left, joining=self._joining
        )
        if answer is None:
            return True
        self.steps.used += answer.steps
        if not answer.complete:
            raise BoundReached
        return answer.pods is not None


def _quorum(tried: PlacementTry) -> Quorum:
    """The pods that must fit. Which worker groups of several sets these are, changes if some are given up: any will
    do."""
    job, spec = tried.job, tried.job.valid_spec
    needs = quorum_needs(job, tried.policy)
    if not spec.has_worker_groups or len(spec.groups) <= 2:
        return Quorum.of(tried, needs)
    every = free_indices(job, range(len(spec.groups)))
    return Quorum(every, sum(map(len, needs.values())), False, least_of(job, needs))


def _required(topology: Topology | None) -> bool:
    return topology is not None and topology.mode == TopologyMode.REQUIRED


def _widest(view: ClusterView, topology: Topology) -> Amounts:
    """The number of the widest domain of a topology that each node is in, from 1; 0 for none. Others are parts of
    these."""
    codes = np.zeros(len(view), np.int64)
    for path in topology.paths():
        of_level = domains_on(view, path)
        codes = np.where(of_level > 0, of_level + codes.max(initial=0), codes)
    return codes


def _rows_by(codes: Amounts) -> list[Amounts]:
    """The rows of each number."""
    return np.split(np.argsort(codes, kind="stable"), np.cumsum(np.bincount(codes))[:-1])
