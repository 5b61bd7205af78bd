"""Sets that others start after belong to the quorum: without them, the others would hold their nodes for nothing."""

import pytest

from arranger.events import kinds as k
from arranger.lifecycle.desired import desired_status
from arranger.model.job import LEADER_GROUP, PlacedPods, PodGroup, RestartPolicy, ScheduleState, Stage, with_needed
from arranger.model.tyjob import NO_LEADER, job_spec
from arranger.projections.consistency import validate
from arranger.projections.jobs.records import JobRecord
from tests.unit.tyjob_table import SETS, tyjob_with
from tests.world import World, shape

MAIN, EXPLOITERS, MATCHES = 1, 2, 3


def league(world: World, *, main: int = 1, min_workers: int = 3, of_main: float = 1, **more: object) -> JobRecord:
    """Sets that start one after the other. Each worker has a GPU, those of main so many."""
    sets = [("main", main, shape(gpus=int(of_main))), ("exploiters", 2, shape(gpus=1)), ("matches", 4, shape(gpus=1))]
    return world.job(
        "league", workers=sets, min_workers=min_workers, equals=True,
        start_after={"exploiters": MAIN, "matches": EXPLOITERS}, **more,  # type: ignore[arg-type]
    )  # fmt: skip


def test_sets_that_wait_for_one_that_never_fits_hold_no_nodes_for_it() -> None:
    world = World()
    world.node("n1", gpus=4)
    job = league(world, of_main=8)
    world.settle()
    assert (job.placements, job.stage) == ({}, Stage.PENDING)
    assert "main" in desired_status(world.state, job)["message"]
    world.node("n2", gpus=8)
    world.settle()
    assert job.stage == Stage.RUNNING and (MAIN, 0) in job.bound


def test_of_room_for_a_part_the_sets_that_others_wait_for_get_theirs_first() -> None:
    world = World()
    world.node("n1", gpus=3)
    job = league(world)
    world.cycle()
    assert {group for group, _ in job.placements} >= {MAIN, EXPLOITERS} and len(job.placements) == 3
    validate(world.state)


def test_a_plan_that_fills_the_quorum_with_sets_that_wait_is_refused_by_the_log() -> None:
    world = World()
    world.node("n1", gpus=4)
    job = league(world)
    pods = (PlacedPods("n1", MATCHES, ((0, 2),)),)
    cycle = k.CycleTaken(world.state.offset, world.now_ms, world.config)
    world.say(cycle, k.Placed(job.uid, job.version, 0, ScheduleState.PARTLY, pods))
    assert not job.placements and "main needed" in world.verdict("Placed").reason


def of(name: str, count: int, after: int | None = None, least: int = 0, size: int = 1) -> PodGroup:
    return PodGroup(name, count, shape(cpu=1), min_count=least, start_after=after, group_size=size)


@pytest.mark.parametrize(
    ("sets", "min_workers", "needed"),
    [
        ([of("main", 1), of("exploiters", 2, 1), of("matches", 4, 2)], 3, [1, 1, 0]),
        ([of("main", 1), of("exploiters", 2, 1), of("matches", 4, 2)], 1, [1, 0, 0]),
        ([of("matches", 4, 2), of("exploiters", 2, 3), of("main", 1)], 2, [0, 1, 1]),
        ([of("main", 3), of("envs", 4, 1, least=2)], 2, [1, 0]),
        ([of("main", 3, least=3), of("envs", 4, 1, least=2)], 5, [0, 0]),
        ([of("main", 4, size=2), of("envs", 4, 1)], 3, [2, 0]),
        ([of("main", 0), of("envs", 4, 1)], 3, [0, 0]),
        ([of("main", 2, LEADER_GROUP), of("envs", 4)], 3, [0, 0]),
    ],
)
def test_how_many_of_each_set_a_quorum_needs_for_the_sets_that_wait(
    sets: list[PodGroup], min_workers: int, needed: list[int]
) -> None:
    assert [group.needed for group in with_needed((NO_LEADER, *sets), min_workers)[1:]] == needed


def test_a_tyjob_is_read_with_that() -> None:
    sets = [SETS[0], {**SETS[1], "startAfter": "actors"}]
    spec = job_spec(tyjob_with({"spec/workerSets": sets, "spec/minWorkersNum": 2}))
    assert [group.needed for group in spec.groups] == [0, 1, 0]


def test_workers_beyond_the_quorum_get_no_nodes_before_the_set_that_they_start_after_has_one() -> None:
    world = World()
    world.node("n1", gpus=7)
    sets = [("main", 1, shape(gpus=1)), ("matches", 4, shape(gpus=1)), ("exploiters", 2, shape(gpus=8))]
    job = world.job("league", workers=sets, min_workers=1, equals=True, start_after={"exploiters": 1, "matches": 3})
    world.settle()
    assert job.stage == Stage.RUNNING and set(job.placements) == {(MAIN, 0)}
    world.node("n2", gpus=16)
    world.settle()
    assert len(job.placements) == 7


def test_a_set_that_others_start_after_and_that_is_given_up_is_needed_no_more() -> None:
    world = World()
    world.node("n1", gpus=3)
    sets = [("main", 1, shape(gpus=1)), ("exploiters", 4, shape(gpus=1))]
    limits = {"main": RestartPolicy(limit=0)}
    job = world.job("league", workers=sets, min_workers=3, equals=True, start_after={"exploiters": 1}, restart=limits)
    world.settle()
    assert job.stage == Stage.RUNNING and len(job.placements) == 3
    world.change_pod(job.bound[(MAIN, 0)], phase="Failed", ready=False)
    world.pass_time(60)
    world.control()
    world.cycle()
    assert (MAIN, 0) in job.slots.given_up
    assert len(job.placements) == 3 and all(verdict.accepted for verdict in world.verdicts)
