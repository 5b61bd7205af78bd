"""Time alone takes nodes and pods from no job while the view of pods and nodes is late. Each of these had ended well,
or was well again in time, and the log tells of it only later."""

from collections.abc import Callable

import pytest

from arranger.events import kinds as k
from arranger.lifecycle.desired import desired_pods
from arranger.lifecycle.freshness import awaited_ms
from arranger.model.job import Replacement, Stage
from arranger.projections.jobs.parts import LEADER
from arranger.projections.jobs.records import JobRecord
from tests.unit import test_preemption as rooms
from tests.unit.test_lifecycle_workers import spread_over
from tests.unit.test_start_timeouts import led, unable
from tests.world import World

#: The job, when something is due by time alone, in milliseconds from now, and what had happened before.
Case = tuple[World, JobRecord, float, Callable[[], None]]


def leaders_node() -> Case:
    world, job = spread_over(2)
    world.node("n1", cpu=1, ready=False)
    return world, job, world.lifecycle.node_lost_after_ms, lambda: world.node("n1", cpu=1)


def workers_node() -> Case:
    world, job = spread_over(3)
    world.node("n2", cpu=1, ready=False)
    return world, job, world.lifecycle.node_lost_after_ms, lambda: world.node("n2", cpu=1)


def slow_pods() -> Case:
    world, job = led()
    pods = [world.run_pod(job, (1, index), "n1") for index in range(2)]
    for uid in pods:
        world.change_pod(uid, ready=False)

    def get_ready() -> None:
        for uid in pods:
            world.change_pod(uid, ready=True)

    return world, job, world.lifecycle.ready_ms, get_ready


def pods_without_image() -> Case:
    world, job = led()
    pods = [unable(world, job, index) for index in range(2)]

    def start() -> None:
        for uid in pods:
            world.change_pod(uid, phase="Running", waiting="", message="", ready=True, ip="10.0.0.9")

    return world, job, world.lifecycle.start_ms, start


def awaited_room() -> Case:
    world = rooms.world()
    low = rooms.running(world, "low", 4, priority=1)
    high = rooms.waiting(world, "high", 4, priority=9)
    pods = list(low.bound.values())
    assert rooms.preempted(world) is not None and high.slots.room is not None
    for uid in pods:
        world.change_pod(uid, deleting=True)

    def leave() -> None:
        for uid in pods:
            world.pod_gone(uid)

    return world, high, high.slots.room.until_ms - world.now_ms, leave


LATE = [leaders_node, workers_node, slow_pods, pods_without_image, awaited_room]


@pytest.mark.parametrize("case", LATE, ids=lambda case: case.__name__)
@pytest.mark.parametrize("unheard", [k.Watched.POD, k.Watched.NODE])
def test_time_alone_takes_nothing_from_a_job_on_a_view_that_is_late(
    case: Callable[[], Case], unheard: k.Watched
) -> None:
    world, job, due_ms, well = case()
    world.hears = False
    placements, attempt = dict(job.placements), job.attempt
    world.pass_time(due_ms / 1000)
    heard = k.Watched.NODE if unheard == k.Watched.POD else k.Watched.POD
    world.say(k.WatchHeard(heard, world.terms[heard], world.now_ms))
    assert awaited_ms(world.state, unheard, world.config, world.lifecycle, world.now_ms)
    assert world.control() == []
    well()
    world.settle()
    assert (job.stage, job.placements, job.attempt) == (Stage.RUNNING, placements, attempt)


@pytest.mark.parametrize("case", LATE, ids=lambda case: case.__name__)
def test_it_takes_them_once_everything_is_known_and_nothing_waits_for_that_any_more(
    case: Callable[[], Case],
) -> None:
    world, _, due_ms, _ = case()
    world.pass_time(due_ms / 1000)
    assert world.control()
    for kind in (k.Watched.POD, k.Watched.NODE):
        assert not awaited_ms(world.state, kind, world.config, world.lifecycle, world.now_ms)


def test_a_job_that_runs_without_any_nodes_is_heard_of_and_given_up_too() -> None:
    """All its workers were given up, and there is no room for others."""
    world = World()
    world.node("n1", cpu=2)
    job = world.job("sweep", equals=True, workers=2, min_workers=1)
    world.settle()
    world.node("n1", cpu=2, cordoned=True)
    gone = [
        k.EndedWorker(k.Slot(1, index), job.bound[1, index], how=Replacement.GIVEN_UP, counted=False, failures=0)
        for index in range(2)
    ]
    world.say(k.WorkersReplaced(job.uid, job.version, 0, tuple(gone), ()))
    assert (job.stage, job.placements) == (Stage.RUNNING, {}) and job.times.short_ms
    world.hears = False
    world.pass_time(world.lifecycle.quorum_ms / 1000)
    assert awaited_ms(world.state, k.Watched.POD, world.config, world.lifecycle, world.now_ms)
    world.hears = True
    world.hear()
    world.control()
    assert job.stage != Stage.RUNNING


def test_no_pod_is_deleted_by_force_on_a_view_that_is_late() -> None:
    world, job = spread_over(3)
    world.node("n2", cpu=1, ready=False)
    world.change_pod(job.bound[LEADER], phase="Succeeded", ready=False)
    world.control()
    world.hears = False
    world.pass_time(world.lifecycle.node_lost_after_ms / 1000)
    assert job.ended and desired_pods(world.state, job, now_ms=world.now_ms).force == []
    world.hears = True
    world.hear()
    assert desired_pods(world.state, job, now_ms=world.now_ms).force


def test_a_worker_that_failed_waits_until_it_is_known_whether_the_leader_has_finished() -> None:
    """Workers often fail because their leader is gone: with the end of the leader their failures are nobody's."""
    world, job = spread_over(2, restart_limit=0)
    world.hears = False
    world.change_pod(job.bound[1, 0], phase="Failed", ready=False)
    world.pass_time(60)
    assert world.control() == []
    world.change_pod(job.bound[LEADER], phase="Succeeded", ready=False)
    world.settle()
    assert job.stage == Stage.SUCCEEDED
