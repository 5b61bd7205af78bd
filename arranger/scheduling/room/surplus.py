"""Which workers of a job its quorum can spare: those that it can lose and still has a quorum, whichever these are.

The quorum is any leader and workers that satisfy the minimums, also of the sets that others start after. By default the
workers with the lowest indices stay. Where these are in the way, others may stay in their place.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence

from arranger.model.job import LEADER_GROUP, RendezvousScope
from arranger.projections.jobs.parts import SlotKey
from arranger.projections.jobs.records import JobRecord, by_group
from arranger.scheduling.queues.known_jobs import Spare, Units


def units_of(job: JobRecord) -> list[tuple[SlotKey, ...]]:
    """The workers with nodes, one by one or in worker groups that have them as a whole, the highest index first."""
    groups, found = job.valid_spec.groups, dict[tuple[int, int], list[SlotKey]]()
    for group, index in sorted(job.placements):
        if group != LEADER_GROUP:
            found.setdefault((index - index % groups[group].group_size, group), []).append((group, index))
    order = sorted(found, reverse=True)
    return [tuple(found[at]) for at in order if len(found[at]) == groups[at[1]].group_size]


def spared(job: JobRecord, units: Iterable[tuple[SlotKey, ...]]) -> Units:
    """Those of the units that the quorum can spare, one after the other."""
    return _spared(job, by_group(job.valid_spec, job.provided), units) if job.quorum_placed() else ()


def spared_beside(job: JobRecord, units: Iterable[tuple[SlotKey, ...]], given: Collection[SlotKey]) -> Units:
    """As `spared`, of a job that gives up other slots of its surplus as well."""
    rest = [unit for unit in units if unit[0] not in given]
    return _spared(job, by_group(job.valid_spec, {*job.provided}.difference(given)), rest)


def spare_of(job: JobRecord, surplus: Units) -> Spare:
    """What a job with this surplus can spare on each node."""
    there, kept, counted = by_group(job.valid_spec, job.provided), _addressed(job).difference(*surplus), {*surplus}
    units, less = defaultdict[str, list[tuple[SlotKey, ...]]](list), Counter[str]()
    for unit in units_of(job) if surplus else ():
        if unit[0] not in kept:
            for node in {job.placements[slot]: None for slot in unit}:
                units[node].append(unit)
                less[node] += unit in counted
    found = {node: _spared(job, there, units[node]) for node in sorted(units)}
    return Spare(found, tuple([node for node in found if len(found[node]) > less[node]]))


def spared_on(job: JobRecord, spare: Spare, nodes: Iterable[str]) -> Units:
    """What a job can spare on these nodes together, on the first of them first."""
    units = dict.fromkeys(unit for node in nodes for unit in spare.units.get(node, ()))
    return spared(job, units) if units else ()


def _spared(job: JobRecord, there: Sequence[int], units: Iterable[tuple[SlotKey, ...]]) -> Units:
    """As `spared`, of so many pods of each group."""
    least, left, found = job.least, list(there), list[tuple[SlotKey, ...]]()
    spare = sum(left[1:]) - job.valid_spec.min_workers
    for unit in units:
        group, size = unit[0][0], len(unit)
        if size <= min(spare, left[group] - least[group]):
            spare -= size
            left[group] -= size
            found.append(unit)
    return tuple(found)


def _addressed(job: JobRecord) -> set[SlotKey]:
    """The pods whose addresses are given to all others of their worker set, or of the job."""
    groups = enumerate(job.valid_spec.groups)
    found = [(group, of.rendezvous) for group, of in groups if of.rendezvous is not None]
    return {(group, 0) for group, rendezvous in found if rendezvous.scope != RendezvousScope.GROUP}
