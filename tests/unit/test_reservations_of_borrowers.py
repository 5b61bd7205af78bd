"""A job that borrows doesn't keep others from their share by its reservation, also where they need a sibling's room.

Research deserves 48 GPUs of twelve nodes, 32 for nlp and 16 for vision, and prod deserves 32. Nlp borrows with an
elastic job, so that research has all of its share, 56. A gang of prod would lift that far above its share. It is ahead
in the order, and its reservation waits for the end of the elastic job.
"""

from typing import Any

import msgspec
import pytest

from arranger.events import kinds as k
from arranger.model.job import Stage
from arranger.projections.consistency import validate
from arranger.projections.jobs.records import JobRecord
from arranger.replay.explain.room_words import takes_none_text
from arranger.replay.explain.taken_room import TakesNone
from arranger.scheduling import NoRoomKind
from tests.unit.test_guests import NODE
from tests.unit.test_preemption import CONFIG
from tests.world import World, shape

GPUS = "nvidia.com/gpu"


def submit(of: World, name: str, queue: str, workers: int = 1, least: int = 0, **spec: Any) -> JobRecord:
    worker = spec.pop("worker", NODE)
    return of.job(
        name, workers=workers, worker=worker, min_workers=least or workers, equals=True, of_queue=queue, **spec
    )


def beside_a_borrower(
    *, nlp: int = 6, free: int = 0, known: bool = True, low: bool = False, gpus: int = 8
) -> tuple[World, JobRecord]:
    """The elastic job of nlp has so many workers, each with so many GPUs, on six nodes, or on five with `low`. Its end
    is known or not. Then vision has all that it deserves, half of it by a job of a low priority, for whose end the gang
    waits as well. So many further nodes are free."""
    of = World(config=msgspec.structs.replace(CONFIG, reservations=1, reservation_refresh_ms=30_000, guests=True))
    for number in range(12 + free):
        of.node(f"n{number:02}", cpu=64, gpus=8)
    of.queue("research", deserved=((GPUS, 48),))
    of.queue("nlp", parent="research", deserved=((GPUS, 32),))
    of.queue("vision", parent="research", deserved=((GPUS, 16),))
    of.queue("prod", deserved=((GPUS, 32),))
    end = {"expected_s": 300} if known else {}
    submit(of, "el", "nlp", nlp, 1, worker=shape(cpu=1, gpus=gpus), **end)
    submit(of, "v1", "vision", preemptible=False)
    if low:
        submit(of, "low", "vision", **end)
    submit(of, "sv", "prod", 5, preemptible=False)
    of.settle()
    wide = submit(of, "wide", "prod", 6 + free)
    of.settle()
    decided = of.state.reservations[wide.uid].decided
    assert "uid-el" in decided.awaits and bool(decided.start_ms) == known
    return of, wide


def victims(of: World) -> list[list[str]]:
    """The jobs that give room in a cycle, by decision."""
    return [[one.job_uid for one in event.victims] for event in of.cycle() if isinstance(event, k.Preempted)]


def used(of: World, queue: str) -> int:
    return of.state.queue_totals[queue].get(GPUS, 0)


@pytest.mark.parametrize("preemptible", [True, False], ids=["preemptible", "not preemptible"])
@pytest.mark.parametrize("known", [True, False], ids=["its end is known", "its end is not known"])
def test_a_sibling_gives_surplus_for_whose_end_a_borrower_waits(known: bool, preemptible: bool) -> None:
    """A job of a team with half of what it deserves waited until the elastic job ended. Where the end wasn't known, it
    was a guest of the gang, in room that its own department had given it."""
    of, wide = beside_a_borrower(known=known)
    v2 = submit(of, "v2", "vision", created=9, preemptible=preemptible)
    of.settle()
    assert (v2.stage, v2.slots.hosts) == (Stage.RUNNING, ())
    assert (used(of, "vision"), used(of, "nlp"), used(of, "research")) == (16, 40, 56)
    assert of.state.jobs["uid-el"].stage == Stage.RUNNING and wide.stage == Stage.PENDING
    validate(of.state)


def test_a_job_that_lifts_its_queue_above_its_share_leaves_the_surplus_to_the_borrower() -> None:
    of, _ = beside_a_borrower()
    both = submit(of, "both", "vision", 2, created=9, preemptible=False)
    of.settle()
    assert both.stage == Stage.PENDING and used(of, "nlp") == 48


def test_a_job_of_the_own_queue_gives_room_though_a_borrower_waits_for_its_end() -> None:
    of, _ = beside_a_borrower(nlp=5, low=True)
    high = submit(of, "high", "vision", priority=9, created=9, preemptible=False)
    of.settle()
    assert high.stage == Stage.RUNNING and of.state.jobs["uid-low"].stage == Stage.RESCHEDULING
    assert used(of, "vision") == 16


def test_what_a_sibling_gives_is_enough_with_free_room_that_is_reserved_for_a_borrower() -> None:
    """A worker of the elastic job has half of a node. The other half is free, and reserved for the gang. Two workers
    would have to leave other nodes if it weren't open to the job."""
    of, _ = beside_a_borrower(nlp=11, gpus=4)
    v2 = submit(of, "v2", "vision", created=9, preemptible=False)
    assert victims(of) == [["uid-el"]]
    of.settle()
    assert v2.stage == Stage.RUNNING and (used(of, "nlp"), used(of, "research")) == (40, 56)


def test_reserved_room_is_not_open_to_who_takes_none_from_siblings() -> None:
    """On the free node, the job would lift research above its share, as the gang would lift prod. So a worker of nlp
    leaves, and the free node stays reserved."""
    of, wide = beside_a_borrower(free=1)
    taken = {node for job in of.state.jobs.values() for node in job.placements.values()}
    v2 = submit(of, "v2", "vision", created=9, preemptible=False)
    assert victims(of) == [["uid-el"]]
    of.settle()
    assert v2.stage == Stage.RUNNING and taken.issuperset(v2.placements.values())
    assert wide.uid in of.state.reservations


def beside_a_limit() -> tuple[World, JobRecord]:
    """As `beside_a_borrower`, with nodes enough for all, in a department that may use one node more than it does. That
    is kept for the gang, which needs as much as that and all that the elastic job has."""
    of = World(config=msgspec.structs.replace(CONFIG, reservations=1, reservation_refresh_ms=30_000, guests=True))
    for number in range(20):
        of.node(f"n{number:02}", cpu=64, gpus=8)
    of.queue("all", capability=((GPUS, 104),))
    of.queue("research", parent="all", deserved=((GPUS, 48),))
    of.queue("nlp", parent="research", deserved=((GPUS, 32),))
    of.queue("vision", parent="research", deserved=((GPUS, 16),))
    of.queue("prod", parent="all", deserved=((GPUS, 32),))
    submit(of, "el", "nlp", 6, 1, expected_s=300)
    submit(of, "v1", "vision", preemptible=False)
    submit(of, "sv", "prod", 5, preemptible=False)
    of.settle()
    wide = submit(of, "wide", "prod", 7)
    of.settle()
    assert of.state.kept_limits[wide.uid].decided.limit is not None
    return of, wide


def test_a_sibling_gives_as_much_of_a_limit_as_is_kept_for_a_borrower() -> None:
    of, wide = beside_a_limit()
    v2 = submit(of, "v2", "vision", created=9, preemptible=False)
    assert victims(of) == [["uid-el"]]
    assert (used(of, "vision"), used(of, "research"), used(of, "all")) == (16, 56, 96)
    of.settle()
    assert v2.stage == Stage.RUNNING
    assert of.state.kept_limits[wide.uid].decided.limit is not None
    validate(of.state)


def test_a_job_that_lifts_its_queue_above_its_share_leaves_the_limit_to_the_borrower() -> None:
    of, _ = beside_a_limit()
    submit(of, "v2", "vision", 2, created=9, preemptible=False)
    assert victims(of) == []


@pytest.mark.parametrize(
    ("hosts", "told"),
    [
        (("prod/wide",), "the reservation of prod/wide waits for the end of nlp/el"),
        (("prod/wide", "prod/more"), "the reservations of prod/wide, prod/more wait for the end of nlp/el"),
    ],
)
def test_a_job_is_told_whose_reservation_waits_for_those_who_give_it_no_room(hosts: tuple[str, ...], told: str) -> None:
    assert takes_none_text(TakesNone(NoRoomKind.AWAITED, ("nlp/el",), 0, hosts=hosts), str) == told
