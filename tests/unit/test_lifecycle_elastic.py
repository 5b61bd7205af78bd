"""Edits of a job that has started: counts, minWorkersNum and priority, also while its pods are on their way."""

import pytest

from arranger.events import kinds as k
from arranger.lifecycle.desired import desired_pods, desired_status
from arranger.model.job import ScheduleState, Stage
from arranger.projections.consistency import validate
from tests.world import Edited, World, shape

LEADER = (0, 0)


class Elastic(Edited):
    """A job with one set of workers on nodes of one kind, and its edits."""

    def __init__(self, *, nodes: int = 2, cpu: float = 4, **job: object) -> None:
        world = World()
        for number in range(nodes):
            world.node(f"n{number}", cpu=cpu)
        super().__init__(world, **{"workers": 2, "min_workers": 1, **job})

    def settle(self) -> None:
        self.world.settle()
        validate(self.world.state)

    @property
    def workers(self) -> list[int]:
        return [index for group, index in sorted(self.job.bound) if group]


def running(**job: object) -> Elastic:
    elastic = Elastic(**job)  # type: ignore[arg-type]
    elastic.settle()
    assert elastic.job.stage == Stage.RUNNING
    return elastic


def test_a_job_grown_from_two_to_six_and_shrunk_to_three_keeps_its_leader_and_its_first_workers() -> None:
    elastic = running()
    job = elastic.job
    first = dict(job.bound)
    elastic.edit(workers=6)
    assert job.schedule_state == ScheduleState.PARTLY
    elastic.settle()
    assert elastic.workers == [0, 1, 2, 3, 4, 5] and job.schedule_state == ScheduleState.SUCCEED
    assert first.items() <= job.bound.items()
    elastic.edit(workers=3)
    assert [pod.owner.index for pod in desired_pods(elastic.world.state, job).delete if pod.owner] == [5, 4, 3]
    elastic.settle()
    assert elastic.workers == [0, 1, 2] and first.items() <= job.bound.items()
    assert (job.stage, job.attempt, job.schedule_state) == (Stage.RUNNING, 0, ScheduleState.SUCCEED)
    status = desired_status(elastic.world.state, job)
    assert (status["ready"], status["observedGeneration"]) == ("3/3", 3)


def test_room_given_up_by_a_shrunk_job_is_anothers_only_once_the_pods_are_gone() -> None:
    elastic = running(nodes=1, cpu=3)
    other = elastic.world.job("other")
    elastic.edit(workers=1)
    elastic.world.cycle()
    assert not other.placements
    elastic.settle()
    assert other.stage == Stage.RUNNING


def test_what_more_workers_lack_room_for_is_told_and_tried_again() -> None:
    elastic = running(nodes=1, cpu=4)
    elastic.edit(workers=6)
    elastic.settle()
    job = elastic.job
    assert elastic.workers == [0, 1, 2] and job.schedule_state == ScheduleState.PARTLY and job.waits is not None
    assert job.stage == Stage.RUNNING and "further pods" in desired_status(elastic.world.state, job)["message"]
    elastic.world.node("n1", cpu=4)
    elastic.settle()
    assert elastic.workers == [0, 1, 2, 3, 4, 5] and job.waits is None


def test_shrinking_below_what_waits_ends_the_waiting() -> None:
    elastic = running(nodes=1, cpu=4)
    elastic.edit(workers=6)
    elastic.settle()
    elastic.edit(workers=3)
    assert (elastic.job.schedule_state, elastic.job.waits) == (ScheduleState.SUCCEED, None)
    assert elastic.world.cycle() == ()


def test_workers_that_are_refused_and_then_not_wanted_any_more_are_told_no_more() -> None:
    elastic = running()
    world, job = elastic.world, elastic.job
    elastic.edit(workers=4)
    world.cycle()
    [*_, (slot, _)] = desired_pods(world.state, job).create
    world.say(k.EffectFailed(job.uid, 0, "create", k.Slot(*slot), 403, "Forbidden", "exceeded quota", False))
    assert desired_status(world.state, job)["message"] == "create refused: exceeded quota"
    elastic.edit(workers=2)
    elastic.settle()
    assert desired_status(world.state, job)["message"] == "the leader runs and enough workers are ready"


def test_a_pod_created_for_a_place_that_was_given_up_meanwhile_is_deleted() -> None:
    elastic = running()
    world, job = elastic.world, elastic.job
    elastic.edit(workers=4)
    world.cycle()
    [_, (slot, node)] = desired_pods(world.state, job).create
    elastic.edit(workers=2)
    world.run_pod(job, slot, node)  # it was on its way
    assert slot not in job.bound
    assert [pod.owner.index for pod in desired_pods(world.state, job).delete if pod.owner] == [slot[1]]
    elastic.settle()
    assert elastic.workers == [0, 1]


def test_a_pod_on_its_way_when_counts_go_down_and_up_again_goes_before_the_one_where_it_was_decided_comes() -> None:
    elastic = running(nodes=1, cpu=9)
    world, job = elastic.world, elastic.job
    elastic.edit(workers=3)
    world.cycle()
    [(slot, node)] = desired_pods(world.state, job).create
    elastic.edit(workers=2)
    world.node("a", cpu=9)
    world.node("n0", cpu=9, cordoned=True)
    elastic.edit(workers=3)
    world.cycle()
    assert job.placements[slot] == "a"
    late = world.state.pods[world.run_pod(job, slot, node)]
    assert late.node == "n0" and slot not in job.bound
    desired = desired_pods(world.state, job)
    assert (desired.delete, desired.create) == ([late], [])
    elastic.settle()
    assert elastic.workers == [0, 1, 2]
    assert job.placements[slot] == world.state.pods[job.bound[slot]].node == "a"


def test_counts_changed_before_the_workers_are_created_are_the_ones_that_are() -> None:
    elastic = Elastic()
    world = elastic.world
    world.cycle()
    world.control()
    assert elastic.job.stage == Stage.STARTING
    elastic.edit(workers=4)
    elastic.settle()
    assert elastic.workers == [0, 1, 2, 3] and elastic.job.attempt == 0
    other = Elastic(workers=5)
    other.world.cycle()
    other.world.control()
    other.edit(workers=1)
    other.settle()
    assert other.workers == [0] and other.job.schedule_state == ScheduleState.SUCCEED


def test_the_leader_is_never_removed_however_far_the_counts_go_down() -> None:
    elastic = running(workers=6, min_workers=0)
    leader = elastic.job.bound[LEADER]
    elastic.edit(workers=1)
    elastic.settle()
    assert elastic.workers == [0] and elastic.job.bound[LEADER] == leader and elastic.job.stage == Stage.RUNNING


def test_sets_grow_and_shrink_on_their_own() -> None:
    def sets(actors: int, others: int) -> list[tuple[str, int, object]]:
        return [("actors", actors, shape(cpu=1)), ("eval", others, shape(cpu=1))]

    elastic = running(workers=sets(2, 2))
    elastic.edit(workers=sets(1, 4))
    elastic.settle()
    assert sorted(elastic.job.bound) == [(0, 0), (1, 0), (2, 0), (2, 1), (2, 2), (2, 3)]


def test_a_running_job_stays_running_when_its_minimum_is_raised_above_what_fits() -> None:
    elastic = running(nodes=1, cpu=3)
    elastic.edit(workers=6, min_workers=6)
    elastic.settle()
    job = elastic.job
    assert (job.stage, job.attempt, elastic.workers) == (Stage.RUNNING, 0, [0, 1]) and job.waits is not None
    elastic.edit(workers=6, min_workers=1)
    elastic.world.node("n1", cpu=8)
    elastic.settle()
    assert elastic.workers == [0, 1, 2, 3, 4, 5]


def test_a_lowered_minimum_lets_a_starting_job_run() -> None:
    elastic = Elastic(workers=3, min_workers=3)
    world, job = elastic.world, elastic.job
    world.cycle()
    world.control()
    world.run_pod(job, LEADER, "n0")
    world.control()
    world.run_pod(job, (1, 0), "n0")
    world.control()
    assert job.stage == Stage.STARTING
    elastic.edit(min_workers=1)
    world.control()
    assert job.stage == Stage.RUNNING


def test_a_raised_minimum_counts_when_workers_are_lost() -> None:
    elastic = running(workers=3)
    elastic.edit(min_workers=3)
    elastic.world.change_pod(elastic.job.bound[(1, 0)], phase="Failed", ready=False, reason="Evicted")
    elastic.settle()
    assert (elastic.job.stage, elastic.job.attempt) == (Stage.RUNNING, 1)


def test_a_gang_grows_whole_or_not_at_all() -> None:
    elastic = running(nodes=1, cpu=5, policy="Gang")
    elastic.edit(workers=6)
    elastic.settle()
    assert elastic.workers == [0, 1] and elastic.job.stage == Stage.RUNNING
    elastic.edit(workers=4)
    elastic.settle()
    assert elastic.workers == [0, 1, 2, 3]


@pytest.mark.parametrize(("priority", "first"), [(9, "ppo"), (1, "other")])
def test_a_changed_priority_counts_for_what_the_job_still_waits_for(priority: int, first: str) -> None:
    elastic = running(nodes=1, cpu=3)
    world = elastic.world
    elastic.edit(workers=3)
    other = world.job("other", created=1)
    world.cycle()
    elastic.edit(priority=priority)
    world.node("n1", cpu=1)
    elastic.settle()
    assert (elastic.job.placements.get((1, 2)), other.placements.get(LEADER)) == (
        ("n1", None) if first == "ppo" else (None, "n1")
    )


def test_a_failing_worker_that_is_shrunk_away_is_not_replaced_and_its_restarts_stay_counted() -> None:
    elastic = running(workers=3)
    world, job = elastic.world, elastic.job
    world.change_pod(job.bound[(1, 2)], phase="Failed", ready=False, restarts=2)
    elastic.edit(workers=2)
    world.pass_time(100)
    elastic.settle()
    assert elastic.workers == [0, 1] and job.spent == {"actors": 2}
    assert desired_status(world.state, job)["workers"][0]["restarts"] == 2
