"""Which workers a job's quorum can spare: by their indices, and on one node."""

import pytest

from arranger.model.job import Rendezvous, RendezvousScope
from arranger.projections.jobs.parts import SlotKey
from arranger.projections.jobs.records import JobRecord
from arranger.scheduling.room.surplus import spare_of, spared, spared_on, units_of
from tests.world import World, shape

ONE = shape(cpu=1, gpus=1)


def placed(sets: list[tuple[str, int]], *, nodes: int = 2, gpus: int = 4, **spec: object) -> JobRecord:
    """A job of equals with a GPU for each pod that has nodes for all of them."""
    of = World()
    for number in range(nodes):
        of.node(f"n{number}", cpu=64, gpus=gpus)
    job = of.job("job", workers=[(name, count, ONE) for name, count in sets], equals=True, **spec)  # type: ignore[arg-type]
    of.settle()
    assert len(job.placements) == sum(count for _, count in sets)
    return job


def surplus(job: JobRecord) -> list[SlotKey]:
    return [slot for unit in spared(job, units_of(job)) for slot in unit]


def test_those_with_the_highest_index_are_surplus_first() -> None:
    assert surplus(placed([("a", 3), ("b", 2)], min_workers=2)) == [(1, 2), (2, 1), (1, 1)]
    assert surplus(placed([("a", 3), ("b", 2)], min_workers=2, minimums={"a": 2})) == [(1, 2), (2, 1), (2, 0)]


def test_worker_groups_are_surplus_as_a_whole() -> None:
    job = placed([("a", 4), ("b", 3)], min_workers=3, group_sizes={"a": 2})
    assert spared(job, units_of(job)) == (((2, 2),), ((1, 2), (1, 3)), ((2, 1),))


def test_a_worker_of_a_set_that_others_start_after_is_needed() -> None:
    """Of several workers with the same index, that of the last set goes first: here `main` would."""
    sets = [("matches", 3), ("main", 2)]
    assert surplus(placed(sets, min_workers=1)) == [(1, 2), (2, 1), (1, 1), (2, 0)]
    assert surplus(placed(sets, min_workers=1, start_after={"matches": 2})) == [(1, 2), (2, 1), (1, 1), (1, 0)]


@pytest.mark.parametrize(
    ("rendezvous", "stays"),
    [(None, False), (Rendezvous(1), True), (Rendezvous(1, RendezvousScope.GROUP), False)],
)
def test_on_a_node_any_workers_can_be_spared_but_whose_address_the_others_have(
    rendezvous: Rendezvous | None, stays: bool
) -> None:
    job = placed([("a", 8)], min_workers=1, rendezvous={"a": rendezvous} if rendezvous is not None else None)
    by_index = spared(job, units_of(job))
    assert [*by_index] == [((1, index),) for index in range(7, 0, -1)]
    spare, first = spare_of(job, by_index), job.placements[1, 0]
    assert spare.more == (() if stays else (first,))
    assert (((1, 0),) in spare.units[first]) != stays
    assert len(spared_on(job, spare, [first])) == 4 - stays
    assert len(spared_on(job, spare, ["n0", "n1"])) == 7


def test_all_on_a_node_can_be_spared_only_if_the_rest_is_a_quorum() -> None:
    job = placed([("a", 8)], min_workers=6)
    spare = spare_of(job, spared(job, units_of(job)))
    assert sorted(map(len, spare.units.values())) == [2, 2]
    assert spare.more == (job.placements[1, 0],)
