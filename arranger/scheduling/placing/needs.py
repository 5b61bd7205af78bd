"""The pods of a job that need nodes, those that must run together, and whether its quorum could ever fit."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np

from arranger.model.job import LEADER_GROUP, JobSpec, PodGroup, TopologyMode
from arranger.projections.cluster.nodes import Amounts
from arranger.projections.jobs.parts import LEADER
from arranger.projections.jobs.records import JobRecord, by_group
from arranger.scheduling.cluster.neighbours import neighbour_of, selected_by
from arranger.scheduling.cluster.view import ClusterView
from arranger.scheduling.filters.nodes import Filters
from arranger.scheduling.filters.pods import sums_of
from arranger.scheduling.placing.placement_try import Piece, PlacementTry
from arranger.scheduling.policies.base import PodPolicy

#: Group → indices of slots that need a node, ascending.
Needs = dict[int, Sequence[int]]


@dataclass(frozen=True, slots=True)
class Quorum:
    """The pods of a quorum that need nodes: `asked` of them, taken from these indices by group, the leader first. If
    not `exact`, the workers may come from any of the sets, at least `least` of each group."""

    indices: Needs
    asked: int
    exact: bool
    least: dict[int, int]

    @classmethod
    def of(cls, tried: PlacementTry, needs: Needs) -> "Quorum":
        """The pods in `needs`, or as many workers of other sets if the policy allows that."""
        asked = sum(len(indices) for indices in needs.values())
        least = least_of(tried.job, needs)
        sets = range(1, len(tried.groups))
        spare = asked - sum(least.values())
        if tried.policy.whole or len(sets) < 2 or spare <= 0 or tried.job.valid_spec.has_worker_groups:
            return cls(needs, asked, True, pods_of(needs))
        free = free_indices(tried.job, sets)
        indices = {group: needs[group] for group in (LEADER_GROUP,) if group in needs}
        indices |= {group: of_group[: least.get(group, 0) + spare] for group, of_group in free.items()}
        return cls(indices, asked, sum(len(of_group) for of_group in indices.values()) == asked, least)

    def may_fit(self, rooms: Mapping[int, Amounts]) -> bool:
        """Whether each group alone finds enough room, as far as it is known (pods by node): if not, the quorum surely
        doesn't fit."""
        alone = {
            group: min(int(rooms[group].sum()), len(indices)) if group in rooms else len(indices)
            for group, indices in self.indices.items()
        }
        lacking = any(alone.get(group, 0) < least for group, least in self.least.items())
        return not lacking and sum(alone.values()) >= self.asked


def least_of(job: JobRecord, needs: Needs) -> dict[int, int]:
    """Group → how many pods of it a quorum lacks, whichever other workers it has; without groups that lack none."""
    spec = job.valid_spec
    least = {LEADER_GROUP: 1} if LEADER_GROUP in needs else {}
    if any([group.least for group in spec.groups]):
        missing = [few - count for few, count in zip(job.least, by_group(spec, job.provided), strict=True)]
        least |= {group: count for group, count in enumerate(missing) if count > 0}
    return least


def quorum_needs(job: JobRecord, policy: PodPolicy) -> Needs:
    """Group → indices that the quorum still needs, the leader first.

    The quorum is the leader, the minimum of each worker set, and `min_workers` workers in all, worker sets in the given
    order and each in whole worker groups; for a policy with `whole`, all pods of the job.
    """
    spec, provided = job.valid_spec, job.provided
    leaders, led = spec.groups[LEADER_GROUP].count, LEADER in provided
    needs: Needs = {LEADER_GROUP: range(1)} if leaders and not led else {}
    least = least_of(job, {})
    missing = job.pods_desired() + len(job.slots.finished) - leaders if policy.whole else spec.min_workers
    missing -= len(provided) - led
    spare = max(missing - sum(least.values()), 0)
    for group, indices in free_indices(job, range(1, len(spec.groups))).items():
        size = spec.groups[group].group_size
        taken = indices[: -(-(least.get(group, 0) + spare) // size) * size]
        if taken:
            needs[group] = taken
            spare = max(spare - max(len(taken) - least.get(group, 0), 0), 0)
    return needs


def pods_of(needs: Needs) -> dict[int, int]:
    """Group → how many pods of it are needed."""
    return {group: len(indices) for group, indices in needs.items()}


def free_indices(job: JobRecord, groups: Iterable[int], pieces: Iterable[Piece] = ()) -> Needs:
    """Group → ascending indices without a node; groups without any are left out."""
    counts = [group.count for group in _groups(job)]
    free: dict[int, bytearray] = {}
    for slots in (job.provided, job.slots.given_up):
        for group, index in slots:
            if index < counts[group]:
                _mask(free, group, counts)[index] = 0
    for piece in pieces:
        _take(_mask(free, piece.group, counts), piece.indices)
    found = ((group, _set_in(free[group]) if group in free else range(counts[group])) for group in groups)
    return {group: indices for group, indices in found if indices}


def in_start_order(spec: JobSpec) -> list[int]:
    """The groups, each after the one that it starts after, and otherwise in the given order."""
    order: list[int] = []
    for number in range(len(spec.groups)):
        waiting, at = [], number
        while at not in order and at not in waiting:
            waiting.append(at)
            at = spec.groups[at].start_after or LEADER_GROUP
        order += reversed(waiting)
    return order


def awaits_set(job: JobRecord, group: int, pieces: Iterable[Piece]) -> bool:
    """Whether pods of a group would hold their nodes for nothing, because they wait for another worker set of which no
    pod has a node, beside these pieces."""
    of, groups = job.valid_spec.groups[group], _groups(job)
    before = of.start_after or LEADER_GROUP
    given_up = sum(slot[0] == before for slot in job.slots.given_up)
    if before == LEADER_GROUP or groups[before].count <= given_up or job.may_start_after(of):
        return False
    return not any(piece.group == before for piece in pieces) and all(slot[0] != before for slot in job.provided)


def _mask(free: dict[int, bytearray], group: int, counts: Sequence[int]) -> bytearray:
    """A group's mask: one byte for each index, 1 for those without a node."""
    mask = free.get(group)
    if mask is None:
        mask = free[group] = bytearray(b"\1") * counts[group]
    return mask


def _take(mask: bytearray, indices: Sequence[int]) -> None:
    if isinstance(indices, range):
        mask[indices.start : indices.stop] = bytes(len(indices))
        return
    for index in indices:
        mask[index] = 0


def _set_in(mask: bytearray) -> Sequence[int]:
    """The indices whose byte is 1: a range if they follow each other, which is cheaper to cut and to record."""
    first, beyond = mask.find(1), mask.rfind(1) + 1
    if mask.count(1) == beyond - max(first, 0):
        return range(max(first, 0), beyond)
    return list(compress(range(len(mask)), mask))


def joining(job: JobRecord) -> tuple[int, str] | None:
    """The first group whose pods must join pods of the same job, with the topology; None if no group must."""
    groups = _groups(job)
    pods = [neighbour_of(job, number) for number in range(len(groups))]
    for number, group in enumerate(groups):
        for term in group.shape.rules.affinity if group.shape.rules is not None else ():
            selected = selected_by(term, pods[number])
            if any(selected.matches(other) for other in pods):
                return number, term.topology_key
    return None


def lacks_room(view: ClusterView, filters: Filters, job: JobRecord, policy: PodPolicy) -> bool:
    """Whether a quorum certainly doesn't fit. A failed placement doesn't prove it: the policy may have missed a way.

    It certainly doesn't if the nodes take too few pods of a group, or too few pods if all were as small as the smallest
    in every resource, or if the leader and the smallest workers request more than those nodes have in total.
    """
    spec, leaders = job.valid_spec, job.valid_spec.groups[LEADER_GROUP].count
    if job.slots.finished:
        return False  # it has run on these nodes, and needs fewer than then
    workers = job.pods_desired() - leaders if policy.whole else spec.min_workers
    rooms = [filters.room(group.shape, neighbour_of(job, number)) for number, group in enumerate(spec.groups)]
    sets = zip(spec.groups[1:], rooms[1:], strict=True)
    possible = sum(whole_groups(group, min(group.count, int(room.sum()))) for group, room in sets)
    if (leaders and not rooms[LEADER_GROUP].any()) or possible < workers:
        return True
    if any(int(room.sum()) < group.least for group, room in zip(spec.groups, rooms, strict=True)):
        return True
    if spec.has_topology and never_together(view, spec, rooms, workers, whole=policy.whole):
        return True
    requests = np.array([view.request(group.shape) for group in spec.groups])
    counts = np.array([group.count for group in spec.groups[1:]], np.int64)
    smallest = np.sort(np.repeat(requests[1:], counts, axis=0), axis=0)[:workers]
    there = view.allocatable[np.any(np.array(rooms[1 - leaders :]) > 0, axis=0)]
    least = requests[1 - leaders :].min(axis=0)
    asked = np.flatnonzero(least)  # never empty: every pod requests 1 of `pods`
    # Below 2^53 the truncated quotient of two whole doubles is the exact integer quotient, and faster than `//`.
    if int(np.floor((there[:, asked] / least[asked]).min(axis=1)).sum()) < leaders + workers:
        return True
    return bool((requests[LEADER_GROUP] * leaders + smallest.sum(axis=0) > there.sum(axis=0)).any())


def whole_groups(group: PodGroup, pods: int) -> int:
    """How many of so many pods are in whole worker groups."""
    return pods - pods % group.group_size


def _least_of_all(spec: JobSpec, workers: int, *, whole: bool) -> list[int]:
    """How many pods of each group every quorum of so many workers has; all of them if `whole`."""
    counts = [group.count for group in spec.groups]
    least = [count if whole else group.least for group, count in zip(spec.groups, counts, strict=True)]
    others = sum(counts[1:])
    return [
        counts[LEADER_GROUP],
        *(max(few, workers - (others - count)) for few, count in zip(least[1:], counts[1:], strict=True)),
    ]


def never_together(view: ClusterView, spec: JobSpec, rooms: Sequence[Amounts], workers: int, *, whole: bool) -> bool:
    """Whether no domain has enough room for a unit that a quorum of so many workers needs. `whole`: a quorum has all
    pods; `rooms` is the room of each group by node."""
    least, counts = _least_of_all(spec, workers, whole=whole), [group.count for group in spec.groups]
    topology = spec.whole_topology
    if topology is not None and topology.mode == TopologyMode.REQUIRED:
        every = [[sums_of(view, path, room) for room in rooms] for path in topology.paths()]
        if not any(_some_domain_holds(sums, counts, least, workers) for sums in every):
            return True
    return domains_too_small(view, spec, dict(enumerate(rooms)), least)


def domains_too_small(view: ClusterView, spec: JobSpec, rooms: Mapping[int, Amounts], least: Sequence[int]) -> bool:
    """Whether the domains surely have too little room for so many pods of some worker set with a required topology."""
    for group, pods in enumerate(least):
        of_set = spec.topology_of(group)
        if of_set is not None and of_set.mode == TopologyMode.REQUIRED and pods > 0:
            size = min(spec.unit_size(group), pods)
            sums = [sums_of(view, path, rooms[group]) // size for path in of_set.paths()]
            if sum(int(of.sum()) for of in sums) * size < pods:
                return True
    return False


def _some_domain_holds(sums: Sequence[Amounts], counts: Sequence[int], least: Sequence[int], workers: int) -> bool:
    """Whether a domain of a level has room for the least of each group, and for the workers; `sums` by group."""
    fits = np.all([of >= few for of, few in zip(sums, least, strict=True)], axis=0)
    fits &= np.sum([np.minimum(of, count) for of, count in zip(sums[1:], counts[1:], strict=True)], axis=0) >= workers
    return bool(fits.any())


def _groups(job: JobRecord) -> tuple[PodGroup, ...]:
    return job.valid_spec.groups
