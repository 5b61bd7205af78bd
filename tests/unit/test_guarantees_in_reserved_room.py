"""Reserved room is in the way of a job that may be a guest there, and the guarantee of another queue keeps it out all
the same: then the guarantee is what it waits for."""

import msgspec
import pytest

from arranger.model.quota import LimitKind
from arranger.model.reasons import ReasonKind
from arranger.projections.jobs.records import JobRecord
from arranger.replay.explain.in_queue import KeptBy
from arranger.replay.explain.waiting import Waiting
from tests.reasons import lacking_quota
from tests.unit.replay_worlds import explained
from tests.unit.test_guests import NODE
from tests.unit.test_preemption import CONFIG, running
from tests.world import World, shape

GPUS = "nvidia.com/gpu"
FOUR = shape(cpu=1, gpus=4)
GIVEN_UP = "1 nvidia.com/gpu of the guarantee of queue other"


def world() -> World:
    """Four nodes of 8 GPUs. One GPU is used, and a gang of a queue with a guarantee waits for all nodes."""
    of = World(
        config=msgspec.structs.replace(
            CONFIG, preemption=None, reservations=1, reservation_refresh_ms=30_000, guests=True
        )
    )
    for number in range(4):
        of.node(f"n{number}", cpu=64, gpus=8)
    of.queue("other", deserved=((GPUS, 16),), guarantee=((GPUS, 4),))
    running(of, "block", 1, preemptible=False)
    of.job("host", workers=4, worker=NODE, min_workers=4, equals=True, of_queue="other")
    of.settle()
    assert "uid-host" in of.state.reservations
    return of


def without_guarantee(of: World) -> None:
    of.queue("other", deserved=((GPUS, 16),))
    settle(of)


def beside_guests(of: World, workers: int, **spec: object) -> JobRecord:
    """A job that has a node of its own for one pod of four GPUs, and wants more. Guests leave it 7 GPUs of the first
    node and 3 of the guarantee."""
    of.job("guest", workers=6, worker=FOUR, min_workers=6, equals=True)
    settle(of)
    assert of.state.jobs["uid-guest"].slots.hosts == ("uid-host",)
    of.node("n4", cpu=64, gpus=4)
    job = of.job("grows", workers=workers, worker=FOUR, equals=True, **spec)  # type: ignore[arg-type]
    settle(of)
    return job


def settle(of: World) -> None:
    for _ in range(3):
        of.settle()
        of.pass_time(1)


def waiting(of: World, name: str) -> Waiting:
    found = explained(of.entries, name).waiting
    assert found is not None
    return found


def reserved(of: World, name: str) -> int:
    """How many nodes a job could use if they weren't reserved."""
    short = waiting(of, name).shortfall
    assert short is not None
    return sum(nodes for reason, nodes in short.reasons if reason.kind == ReasonKind.RESERVED)


def lacks_the_guarantee(of: World, job: JobRecord) -> None:
    assert job.waits is not None
    lack = lacking_quota(job.waits)
    assert lack is not None and lack.limit == LimitKind.GUARANTEES
    found = waiting(of, job.seen.name)
    assert found.in_queue is not None and found.in_queue.kept_by == KeptBy.GUARANTEES
    assert not found.reserved


def gives_up_the_guarantee(of: World, name: str) -> bool:
    return any(GIVEN_UP in (change.text or "") for change in waiting(of, name).remedies if change.gives)


def test_further_pods_of_a_guest_wait_for_the_guarantee_and_not_for_room_that_they_may_use() -> None:
    of = world()
    job = of.job("elastic", leader=shape(cpu=1), workers=10, worker=FOUR, min_workers=1)
    settle(of)
    assert job.slots.lent and len(job.placements) == 7
    lacks_the_guarantee(of, job)
    assert gives_up_the_guarantee(of, "elastic")
    without_guarantee(of)
    assert len(job.placements) == 8, "without the guarantee, it gets the node"


def test_further_pods_of_who_is_no_guest_yet_wait_for_the_guarantee() -> None:
    of = world()
    job = beside_guests(of, 3, min_workers=1)
    assert len(job.placements) == 1 and not job.slots.lent
    lacks_the_guarantee(of, job)
    assert gives_up_the_guarantee(of, "grows")
    without_guarantee(of)
    assert len(job.placements) == 2


def test_a_quorum_waits_for_the_guarantee_and_not_for_room_in_which_it_may_be_a_guest() -> None:
    of = world()
    of.job("guest", workers=6, worker=FOUR, min_workers=6, equals=True)
    settle(of)
    late = of.job("late", leader=FOUR, priority=1)
    settle(of)
    assert not late.placements
    lacks_the_guarantee(of, late)
    assert gives_up_the_guarantee(of, "late")
    without_guarantee(of)
    assert late.slots.hosts == ("uid-host",)


@pytest.mark.parametrize("least", [1, 2])
def test_who_may_be_no_guest_waits_for_the_room_and_isnt_told_that_it_would_be_one_if_it_were_preemptible(
    least: int,
) -> None:
    """Neither its further pods nor its quorum would get the room then, because of the guarantee."""
    of = world()
    beside_guests(of, 2, min_workers=least, preemptible=False)
    assert reserved(of, "grows") == 1
    short = waiting(of, "grows").shortfall
    assert short is not None and short.quota is None and not short.no_guest
    without_guarantee(of)
    short = waiting(of, "grows").shortfall
    assert short is not None and short.no_guest


def test_whole_worker_groups_dont_wait_for_reserved_room_that_is_too_little_for_one() -> None:
    """The first node would take one worker of two, whether it is reserved or not."""
    of = world()
    without_guarantee(of)
    of.node("n4", cpu=64, gpus=4)
    of.node("n5", cpu=64, gpus=4)
    job = of.job("pairs", workers=10, worker=FOUR, min_workers=2, group_size=2, equals=True)
    settle(of)
    assert len(job.placements) == 8 and job.slots.lent
    short = waiting(of, "pairs").shortfall
    assert short is not None and (short.found, short.asked) == (1, 2)
    assert not reserved(of, "pairs")
