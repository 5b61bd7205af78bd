"""Back-off: jobs whose pods are refused, and leaders that fail at once, give their nodes up and come again later."""

import msgspec
import pytest

from arranger.events import kinds as k
from arranger.lifecycle.desired import desired_status
from arranger.messages.decisions import stage_text
from arranger.model.job import ScheduleState, Slot, Stage
from arranger.projections import snapshot
from arranger.projections.consistency import validate
from arranger.projections.jobs.backoff import NO_BACK_OFF, QUIET_MS
from arranger.projections.jobs.parts import LEADER
from arranger.projections.jobs.records import JobRecord
from arranger.scheduling.cycle import Cycles
from arranger.scheduling.queues import waiting as queue
from tests.world import World, shape, starting

WHY = 'pods "x" is forbidden: violates PodSecurity "restricted:latest"'


def refuse(world: World, job: JobRecord, slot: tuple[int, int] = LEADER, *, tries: int = 1) -> None:
    """The API server refuses the pod of a place."""
    world.say(k.EffectFailed(job.uid, job.attempt, "create", Slot(*slot), 403, "Forbidden", WHY, False, tries=tries))


def refused_again(world: World, job: JobRecord) -> k.StageDecided:
    """The leader's pod is refused for as long as that may last; what is decided then."""
    refuse(world, job)
    world.pass_time(world.lifecycle.refused_ms / 1000)
    [decision] = world.control()
    assert isinstance(decision, k.StageDecided)
    return decision


def crowd(*, jobs: int = 1) -> tuple[World, list[JobRecord]]:
    """A node of 8 GPUs, and jobs that each ask for all of them, the older first."""
    world = World()
    world.node("n1", gpus=8)
    return world, [world.job(f"j{number}", leader=shape(gpus=8), created=number) for number in range(jobs)]


def test_a_job_whose_quorum_is_refused_gives_its_nodes_up_within_seconds_and_says_why() -> None:
    world, job = starting(cpu=3, workers=2, min_workers=2)
    refuse(world, job)
    world.pass_time(world.lifecycle.refused_ms / 1000 - 0.001)
    assert world.control() == [], "an applier tries again first"
    world.pass_time(0.001)
    [decision] = world.control()
    assert isinstance(decision, k.StageDecided)
    assert (decision.stage, decision.reason) == ("Rescheduling", "QuorumRefused") and WHY in stage_text(decision)
    assert (job.placements, job.attempt, job.leader.restarts) == ({}, 1, 0)
    validate(world.state)


def test_others_that_fit_get_the_room_of_a_job_whose_pods_are_refused() -> None:
    world, [refused, other] = crowd(jobs=2)
    world.cycle()
    world.control()
    refused_again(world, refused)
    world.wait_for_late_pods()
    world.cycle()
    assert (len(refused.placements), len(other.placements)) == (0, 1)


def test_a_refused_quorum_comes_again_after_10_s_20_s_and_so_on_up_to_5_minutes() -> None:
    world, [job] = crowd()
    waited = []
    for _ in range(7):
        world.cycle()
        world.control()
        assert job.stage == Stage.STARTING
        waited.append(refused_again(world, job).back_off_ms // 1000)
        world.wait_for_back_offs()
        assert world.now_ms - world.state.time_ms == waited[-1] * 1000
        world.wait_for_late_pods()
    assert waited == [10, 20, 40, 80, 160, 300, 300]


def test_a_job_that_backs_off_is_not_scheduled_before_its_time_and_wakes_a_cycle_that_found_nothing_new() -> None:
    world, [job] = crowd()
    world.cycle()
    world.control()
    refused_again(world, job)
    world.pass_time(9.999)
    assert not job.placements and world.cycle() == ()
    cycles = Cycles()
    assert cycles.take(world.state, world.config, world.now_ms) == ()
    events = cycles.take(world.state, world.config, world.now_ms + 1)
    assert [type(event) for event in events] == [k.CycleTaken, k.Placed]


def test_what_was_refused_last_goes_behind_others_of_its_priority_until_it_has_run() -> None:
    world, [refused, other] = crowd(jobs=2)
    world.job("low", leader=shape(gpus=8), priority=1)

    def order() -> list[str]:
        return [job.seen.name for job in queue.in_order(world.state, world.config, time_ms=world.now_ms)]

    world.cycle()
    world.control()
    refused_again(world, refused)
    assert order() == ["j1", "low"]
    world.wait_for_back_offs()
    assert order() == ["j1", "j0", "low"]
    world.job_gone(other)
    world.wait_for_late_pods()
    world.settle()
    assert refused.stage == Stage.RUNNING and not refused.back_offs.held_back
    assert refused.back_offs.attempt.times == 1, "the next refusal follows in a row, unless it runs for long"


@pytest.mark.parametrize("policy", ["Priority", "DRF"])
def test_whoever_was_refused_goes_behind_in_every_queue(policy: str) -> None:
    world = World()
    world.node("n1", gpus=8)
    old = world.job("old", leader=shape(gpus=8), created=1, queue=policy)
    world.job("new", leader=shape(gpus=8), created=2, queue=policy)
    old.back_offs.held_back = True
    assert [job.seen.name for job in queue.in_order(world.state, world.config)] == ["new", "old"]


def test_a_quorum_that_can_come_together_without_the_refused_pods_is_not_given_up() -> None:
    world, job = starting(cpu=5, workers=4, min_workers=2)
    world.run_pod(job, LEADER, "n1")
    world.control()
    refuse(world, job, (1, 3))
    world.pass_time(60)
    [decision] = world.control()
    assert isinstance(decision, k.WorkersReplaced), "slow pods are no refused ones"
    assert job.stage == Stage.STARTING and (1, 3) not in job.placements and len(job.placements) == 4


def test_a_quorum_of_which_too_many_are_refused_is_given_up_though_others_of_it_run() -> None:
    world, job = starting(cpu=5, workers=4, min_workers=3)
    world.run_pod(job, LEADER, "n1")
    world.control()
    world.run_pod(job, (1, 0), "n1")
    refuse(world, job, (1, 3))
    refuse(world, job, (1, 2))
    world.pass_time(world.lifecycle.refused_ms / 1000)
    [decision] = world.control()
    assert isinstance(decision, k.StageDecided) and decision.reason == "QuorumRefused"
    assert not job.placements and not job.slots.refused_ms
    validate(world.state)


def test_a_gang_is_given_up_as_a_whole() -> None:
    world, job = starting(cpu=4, workers=3, min_workers=1, policy="Gang")
    world.run_pod(job, LEADER, "n1")
    world.control()
    refuse(world, job, (1, 2))
    world.pass_time(world.lifecycle.refused_ms / 1000)
    assert [event.stage for event in world.control() if isinstance(event, k.StageDecided)] == ["Rescheduling"]


def test_a_passing_refusal_costs_nothing() -> None:
    world, job = starting(cpu=3, workers=2, min_workers=2)
    refuse(world, job)
    world.pass_time(2)
    world.settle()
    world.pass_time(600)
    world.settle()
    assert (job.stage, job.attempt, job.back_offs.attempt, job.slots.refused_ms) == (Stage.RUNNING, 0, NO_BACK_OFF, {})


def test_further_workers_of_a_running_job_that_are_refused_hold_no_room_and_come_again_later() -> None:
    world, job = starting(cpu=4, workers=3, min_workers=1)
    world.run_pod(job, LEADER, "n1")
    world.control()
    world.run_pod(job, (1, 0), "n1")
    world.control()
    assert job.stage == Stage.RUNNING
    waited = []
    for _ in range(3):
        for index in (1, 2):
            refuse(world, job, (1, index))
        world.pass_time(world.lifecycle.refused_ms / 1000)
        [decision] = world.control()
        assert isinstance(decision, k.WorkersReplaced)
        waited.append(decision.back_off_ms // 1000)
        assert sorted(job.placements) == [LEADER, (1, 0)] and job.spent == {}
        assert world.cycle() == () and job.schedule_state == ScheduleState.PARTLY
        message = desired_status(world.state, job)["message"]
        assert WHY in message and "placed again from 20" in message
        world.wait_for_late_pods()
        world.wait_for_back_offs()
        world.cycle()
        assert len(job.placements) == 4
    assert waited == [10, 20, 40]
    world.settle()
    assert (job.stage, job.attempt, len(job.bound)) == (Stage.RUNNING, 0, 4)


def test_a_running_job_keeps_the_rooms_of_its_quorum_for_its_grace_whatever_is_refused() -> None:
    world, job = starting(cpu=3, workers=2, min_workers=2)
    world.settle()
    assert job.stage == Stage.RUNNING
    world.pod_gone(job.bound[(1, 1)])
    refuse(world, job, (1, 1))
    world.pass_time(world.lifecycle.quorum_ms / 1000 - 1)
    assert world.control() == [] and len(job.placements) == 3


def test_what_was_refused_by_a_place_that_came_to_be_is_forgotten() -> None:
    world, job = starting(cpu=4, workers=3, min_workers=1)
    world.run_pod(job, LEADER, "n1")
    world.control()
    refuse(world, job, (1, 2))
    assert job.slots.refused_ms == {(1, 2): world.now_ms}
    restored = snapshot.restore(snapshot.encode(world.state))
    assert restored.jobs[job.uid].slots.refused_ms == job.slots.refused_ms
    world.run_pod(job, (1, 2), "n1")
    assert job.slots.refused_ms == {}


def test_who_edits_or_resumes_a_job_ends_its_back_off_at_once() -> None:
    for edits in ({"priority": 6}, {"suspend": True}):
        world, [job] = crowd()
        world.cycle()
        world.control()
        refused_again(world, job)
        world.wait_for_late_pods()
        assert job.back_offs.held_back and job.not_before_ms > 0
        world.job("j0", leader=shape(gpus=8), generation=2, **edits)  # type: ignore[arg-type]
        world.control()
        world.job("j0", leader=shape(gpus=8), generation=3, priority=6)
        world.control()
        assert (job.back_offs.attempt, job.back_offs.held_back) == (NO_BACK_OFF, False)
        world.cycle()
        assert len(job.placements) == 1


def fail_leader(world: World, job: JobRecord) -> int:
    """The leader fails; the back-off that is decided, in seconds."""
    world.change_pod(job.bound[LEADER], phase="Failed", ready=False, reason="Error")
    [decision] = world.control()
    assert isinstance(decision, k.StageDecided) and decision.reason == "LeaderFailed"
    return decision.back_off_ms // 1000


def test_a_leader_that_fails_at_once_comes_again_after_10_s_20_s_up_to_5_minutes_and_holds_no_nodes() -> None:
    world, job = starting(cpu=2, workers=1, min_workers=1, restart_limit=20)
    waited = []
    for _ in range(7):
        world.settle()
        assert job.stage == Stage.RUNNING
        waited.append(fail_leader(world, job))
        world.apply()
        assert not job.placements and world.used("n1") == 0 and world.cycle() == ()
        assert "scheduled again from 20" in desired_status(world.state, job)["message"]
        world.wait_for_back_offs()
    assert waited == [10, 20, 40, 80, 160, 300, 300]


def test_a_leader_that_ran_for_ten_minutes_begins_a_new_row() -> None:
    world, job = starting(cpu=1, restart_limit=20)
    for runs_s, expected in ((1, 10), (599, 20), (600, 10), (1, 20)):
        world.settle()
        world.pass_time(runs_s)
        assert fail_leader(world, job) == expected
        world.apply()
        world.wait_for_back_offs()


def test_a_back_off_long_ago_begins_no_row() -> None:
    world, [job] = crowd()
    world.cycle()
    world.control()
    refused_again(world, job)
    world.wait_for_back_offs()
    world.pass_time(QUIET_MS / 1000)
    world.wait_for_late_pods()
    world.cycle()
    world.control()
    assert refused_again(world, job).back_off_ms == 10_000


def test_what_is_no_fault_of_the_leader_has_no_back_off() -> None:
    world, job = starting(cpu=1)
    world.settle()
    world.change_pod(job.bound[LEADER], phase="Failed", ready=False, reason="Evicted")
    [decision] = world.control()
    assert isinstance(decision, k.StageDecided) and decision.back_off_ms == 0
    world.settle()
    assert (job.stage, job.attempt) == (Stage.RUNNING, 1)


def test_a_log_of_before_has_no_back_offs_and_its_refusals_end_by_the_grace_for_quorums() -> None:
    world, job = starting(cpu=1)
    refuse(world, job, tries=0)
    world.pass_time(world.lifecycle.quorum_ms / 1000 - 1)
    assert world.control() == [] and job.slots.refused_ms == {}
    world.pass_time(1)
    [decision] = world.control()
    assert isinstance(decision, k.StageDecided) and (decision.reason, decision.back_off_ms) == ("QuorumIncomplete", 0)
    old = msgspec.structs.replace(decision, back_off_ms=0)
    assert old == decision and job.back_offs.attempt == NO_BACK_OFF


def test_a_status_says_when_failed_workers_come_again() -> None:
    world, job = starting(cpu=3, workers=2, min_workers=1)
    world.settle()
    world.change_pod(job.bound[(1, 1)], phase="Failed", ready=False)
    assert desired_status(world.state, job)["message"].startswith("failed workers of actors come again from 20")
    world.pass_time(10)
    world.settle()
    assert "come again" not in desired_status(world.state, job)["message"]
