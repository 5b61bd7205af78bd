"""Whose end a reservation awaits where a quorum lacks more than room on its nodes: each job is needed, together they
are enough, and the last of them says when."""

import msgspec
import pytest

from arranger.events import kinds as k
from arranger.model.pod import PodRules, PodShape, PodTerm
from arranger.projections.jobs.records import JobRecord
from tests.unit.test_filters import APP, ZONE
from tests.unit.test_reservations import CONFIG, end
from tests.world import World, shape

GPUS = "nvidia.com/gpu"


def world(nodes: int = 4, **config: object) -> World:
    """So many nodes of 8 GPUs, and a queue to which 16 are guaranteed."""
    of = World(config=msgspec.structs.replace(CONFIG, **config))
    for number in range(nodes):
        of.node(f"n{number}", cpu=64, gpus=8, labels={"own": str(number)})
    of.queue("vis", guarantee=((GPUS, 16),))
    return of


def running(of: World, name: str, gpus: int, seconds: int | None, queue: str = "", **spec: object) -> JobRecord:
    job = of.job(name, leader=shape(cpu=1, gpus=gpus), of_queue=queue, expected_s=seconds, **spec)  # type: ignore[arg-type]
    of.settle()
    assert job.placements
    of.pass_time(1)
    return job


def reserved(of: World, name: str, gpus: int = 8, **spec: object) -> k.Reserved:
    """What is reserved for a job that comes now."""
    asked = spec.pop("leader", shape(cpu=1, gpus=gpus))
    job = of.job(name, leader=asked, created=of.now_ms, **spec)  # type: ignore[arg-type]
    of.settle()
    assert not job.placements
    return of.state.reservations[job.uid].decided


def only_on(job: JobRecord) -> PodShape:
    """A pod that takes a whole node, the one of this job."""
    (node,) = job.placements.values()
    return shape(cpu=1, gpus=8, selector={"own": node[1:]})


def full(of: World, d1_s: int | None, x1_s: int | None = None) -> list[JobRecord]:
    """Two jobs use what is guaranteed to their queue, and two of another queue use what is left but 2 GPUs."""
    return [
        running(of, "v1", 8, 40, "vis"),
        running(of, "v2", 8, 300, "vis"),
        running(of, "d1", 8, d1_s),
        running(of, "x1", 6, x1_s),
    ]


@pytest.mark.parametrize("d1_s", [None, 70])
@pytest.mark.parametrize("x1_s", [None, 400])
def test_only_who_leaves_room_beside_the_guarantees_is_awaited(d1_s: int | None, x1_s: int | None) -> None:
    of = world()
    _, _, d1, x1 = full(of, d1_s, x1_s)
    decided = reserved(of, "d2")
    first = x1 if d1_s is None and x1_s is not None else d1
    assert decided.awaits == (first.uid,)
    assert [pods.node for pods in decided.pods] == [*first.placements.values()]
    assert decided.start_ms == (
        first.began_ms + (x1_s or 0 if first is x1 else d1_s or 0) * 1000 if d1_s or x1_s else 0
    )


def test_who_leaves_the_nodes_and_who_leaves_the_limit_are_both_awaited() -> None:
    """The quorum may go only where a job within the guarantee is."""
    of = world()
    v1, _, d1, _ = full(of, 70)
    decided = reserved(of, "d2", leader=only_on(v1))
    assert set(decided.awaits) == {v1.uid, d1.uid}
    assert [pods.node for pods in decided.pods] == [*v1.placements.values()]
    assert decided.start_ms == d1.began_ms + 70_000


def test_the_awaited_ends_are_enough_for_the_start() -> None:
    of = world()
    jobs = full(of, None)
    awaits = reserved(of, "d2").awaits
    for job in jobs:
        if job.uid in awaits:
            end(of, job)
    assert of.state.jobs["uid-d2"].placements


def test_guarantees_within_a_parent_count_too() -> None:
    """What the parent may use at most leaves nothing beside the guarantee of its other child."""
    of = world(nodes=5)
    of.queue("vision", capability=((GPUS, 24),))
    of.queue("vis", parent="vision", guarantee=((GPUS, 16),))
    of.queue("own", parent="vision")
    v1, d1 = running(of, "v1", 8, 40, "vis"), running(of, "d1", 8, 60, "own")
    o1 = running(of, "o1", 8, 20)
    decided = reserved(of, "d2", leader=only_on(o1), of_queue="own")
    assert (set(decided.awaits), decided.start_ms) == ({o1.uid, d1.uid}, d1.began_ms + 60_000)
    assert v1.placements


def test_a_job_of_the_same_queue_that_leaves_what_nobody_needs_isnt_awaited() -> None:
    of = World(config=CONFIG)
    of.node("n0", cpu=64, gpus=8)
    of.queue("own", capability=((GPUS, 100),))
    running(of, "small", 2, 10, "own")
    large = running(of, "large", 4, 20, "own")
    assert reserved(of, "waits", 6, of_queue="own").awaits == (large.uid,)


@pytest.mark.parametrize("ends_s", [(100, 200), (200, 100), (100, None)])
def test_who_is_in_the_way_from_other_nodes_is_awaited(ends_s: tuple[int | None, ...]) -> None:
    """Two jobs on other nodes of the zone keep the quorum out of it."""
    of = World(config=CONFIG)
    for number in range(3):
        of.node(f"n{number}", cpu=64, gpus=8, labels={ZONE: "a"})
    there = [
        of.job(f"x{number}", leader=shape(cpu=1, gpus=8, labels={"app": "a"}), expected_s=end_s)
        for number, end_s in enumerate(ends_s)
    ]
    of.settle()
    away = shape(cpu=1, gpus=8, rules=PodRules(anti_affinity=(PodTerm(ZONE, APP),)))
    decided = reserved(of, "waits", leader=away)
    assert set(decided.awaits) == {job.uid for job in there}
    last_s = max(end_s or 0 for end_s in ends_s) if None not in ends_s else 0
    assert decided.start_ms == (there[0].began_ms + last_s * 1000 if last_s else 0)


@pytest.mark.parametrize("own_s", [None, 300])
def test_a_limit_that_any_queue_leaves_is_enough_once_the_first_of_them_has_ended(own_s: int | None) -> None:
    """Nodes have room, but it is guaranteed to another queue; a job of a third queue ends before those of the own."""
    of = world(nodes=5)
    of.queue("third")
    running(of, "d1", 8, own_s)
    running(of, "d2", 8, own_s)
    third = running(of, "t1", 8, 40, "third")
    waits = of.job("waits", leader=shape(cpu=1, gpus=8), created=of.now_ms)
    of.settle()
    kept = of.state.kept_limits[waits.uid].decided
    assert (kept.awaits, kept.start_ms) == ((third.uid,), third.began_ms + 40_000)
