"""A pod that has failed and isn't replaced yet has its node still. Wherever people read how many pods a job has, it is
told apart from those that run; and the console marks it when it fails, not when it is replaced."""

from collections.abc import Sequence

import msgspec
import pytest

from arranger.cli.rendering.explain_page import _pods
from arranger.cli.rendering.overview_page import _job_cells
from arranger.events import kinds as k
from arranger.events.log import Entry
from arranger.model.job import LEADER_GROUP, Stage
from arranger.model.pod import ContainerEnd
from arranger.projections import snapshot
from arranger.projections.fold import apply_entry
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import Changes, State
from arranger.replay.bisect.job_conditions import facts_of_job
from arranger.replay.console.gantt import GanttIndex
from arranger.replay.console.moment import moment
from arranger.replay.console.series import SeriesIndex
from arranger.replay.console.timeline import Mark, TimelineIndex
from arranger.replay.reading.describe import message_of
from arranger.replay.reading.difference import picture
from arranger.replay.reading.overview import overview
from arranger.replay.reading.queues import queue_list
from arranger.scheduling import queues_view
from tests.unit.replay_worlds import explained
from tests.unit.test_lifecycle_workers import fail, running
from tests.world import World

LEADER = (LEADER_GROUP, 0)


def one_failed() -> tuple[World, JobRecord]:
    world, job = running()
    fail(world, job, 1)
    world.control()
    assert len(job.placements) == 4
    return world, job


def test_the_console_and_the_commands_tell_a_failed_pod_from_those_that_run() -> None:
    world, job = one_failed()
    [shown] = moment(world.state).jobs
    assert (shown.pods_placed, shown.pods_running, shown.pods_failed, shown.pods_desired) == (4, 3, 1, 4)
    [line] = overview(world.state, world.config).jobs
    assert (line.pods_placed, line.pods_running, line.pods_failed) == (4, 3, 1)
    assert "4 of 4 placed, 3 running, 1 failed" in _job_cells(line)
    standing = explained(world.entries, "ppo").standing
    assert (standing.pods_placed, standing.pods_running, standing.pods_failed) == (4, 3, 1)
    assert _pods(standing) == "4 of 4 have nodes, 4 were seen: 3 running, 1 failed"
    assert facts_of_job(world.state, job.uid)["pods"] == "4 of 4 have nodes, 3 running, 1 failed"
    facts = picture(world.state, world.config).jobs[job.uid].facts
    assert (facts["pods with nodes"], facts["pods running"], facts["pods failed"]) == ("4 of 4", "3", "1")


def test_a_job_whose_pods_all_run_is_told_without_failed_ones() -> None:
    world, _ = running()
    assert "4 of 4 placed, 4 running" in _job_cells(overview(world.state, world.config).jobs[0])
    world.job("late", workers=1)
    assert "0 of 2 placed" in _job_cells(overview(world.state, world.config).jobs[0])


def marks(entries: Sequence[Entry], state: State | None = None) -> list[Mark]:
    state = state if state is not None else State(epoch=1)
    index = TimelineIndex(state)
    for entry in entries:
        changes = Changes()
        apply_entry(state, entry, changes)
        index.note(entry, state, changes)
    return list(index.timeline(4, complete=True).marks)


def test_a_pod_is_marked_when_it_fails_and_once() -> None:
    world, job = one_failed()
    failed_at = world.entries[-1].last
    world.change_pod(job.bound[1, 1], restarts=1)
    [found] = marks(world.entries)
    assert (found.kind, found.subjects) == ("podFailed", ("default/ppo",))
    assert found.at <= failed_at
    event = next(one for entry in world.entries if entry.last == found.at for one in entry.batch.events)
    assert isinstance(event, k.PodSeen) and (event.phase, event.uid) == ("Failed", job.bound[1, 1])
    world.pass_time(60)
    world.settle()
    assert [one.kind for one in marks(world.entries)] == ["podFailed", "workersReplaced"]


def test_workers_that_are_given_up_are_not_marked_as_replaced() -> None:
    world, job = running(restart_limit=0, min_workers=1)
    fail(world, job, 1)
    world.pass_time(60)
    world.settle()
    assert job.slots.given_up and [one.kind for one in marks(world.entries)] == ["podFailed", "workersGivenUp"]


def test_a_job_whose_workers_are_given_up_runs_until_it_fails() -> None:
    """Nothing waits for nodes any more, as the commands say too."""
    world, job = running(restart_limit=0, min_workers=1)
    bars, lines = GanttIndex(), SeriesIndex()
    bars.note(world.state, {job.uid: None})
    world.pass_time(5)
    fail(world, job, 0, 1, 2)
    world.pass_time(60)
    assert [type(one) for one in world.control()] == [k.WorkersReplaced]
    lines.note(world.state, [job.uid])
    bars.note(world.state, {job.uid: None})
    shown, listed = moment(world.state).totals, overview(world.state, world.config).totals
    assert listed is not None and (shown.jobs_waiting, shown.jobs_running) == (listed.waiting, 1) == (0, 1)
    drawn = lines.series(9, world.state, complete=True)
    assert (drawn.jobs_waiting[-1], drawn.jobs_running[-1]) == (0, 1)
    queue = queues_view(world.state).queues["default"]
    assert (queue.waiting, queue.running) == (0, 1)
    assert queue_list(world.state).leaving == {}, "what failed has no room"
    world.pass_time(5)
    assert len(job.slots.given_up) == 3 and not job.quorum_placed()
    world.control()
    bars.note(world.state, {job.uid: None})
    assert job.stage == Stage.FAILED
    [row] = bars.gantt(0, world.now_ms, complete=True).jobs
    assert {(bar.kind, bar.outcome) for bar in row.bars} == {("running", "Failed")}


def test_what_pods_that_leave_have_is_told_beside_what_queues_use() -> None:
    world, job = running()
    world.change_pod(job.bound[LEADER], phase="Succeeded", ready=False)
    world.control()
    found = queue_list(world.state)
    assert job.ended and found.queues[0].used == {} and found.leaving["cpu"] == 3 * 1000


@pytest.mark.parametrize("how", ["deleting", "finished", "void", "ended"])
def test_a_pod_that_is_taken_away_or_is_no_trouble_isnt_marked(how: str) -> None:
    """A pod that is deleted often ends as Failed, and those of a job that has ended are of no use any more."""
    world, job = running()
    uid = job.bound[1, 1]
    if how == "void":
        world.say(msgspec.structs.replace(world.state.pods[uid], term=1, phase="Failed"))
        assert world.state.pods[uid].phase == "Running"
    elif how == "ended":
        world.change_pod(job.bound[LEADER], phase="Succeeded")
        world.control()
        assert job.ended
        world.change_pod(uid, phase="Failed")
    else:
        world.change_pod(uid, deleting=how == "deleting", phase="Failed" if how == "deleting" else "Succeeded")
    assert marks(world.entries) == []


def crash(world: World, job: JobRecord, times: int, *indices: int) -> None:
    """The containers of these workers fail once more, and their kubelets start them again in the same pods."""
    killed = ContainerEnd("main", 137, 0, "OOMKilled")
    for index in indices:
        world.change_pod(job.bound[1, index], restarts=times, ended=killed, ready=False)


def test_a_job_that_crashes_within_its_pods_is_told_as_its_status_tells_it() -> None:
    world, job = running(min_workers=2)
    [healthy] = moment(world.state).jobs
    assert (healthy.pods_ready, healthy.trouble) == (4, "")
    crash(world, job, 1, 0, 1)
    [shown] = moment(world.state).jobs
    assert (shown.stage, shown.pods_running, shown.pods_ready) == ("Running", 4, 2)
    assert shown.trouble and shown.trouble == message_of(world.state, job)
    assert shown.trouble.startswith(
        "running below its quorum: 1 of 2 workers is ready; pod ppo-actors-0 and 1 more on "
    )
    world.change_pod(job.bound[1, 0], ready=True)
    [shown] = moment(world.state).jobs
    assert shown.trouble.startswith("pod ppo-actors-1 on ") and "was restarted 1 time, after" in shown.trouble
    world.change_pod(job.bound[1, 1], ready=True)
    assert moment(world.state).jobs[0] == healthy


def test_a_job_that_falls_below_its_quorum_is_marked_and_a_loop_of_crashes_once() -> None:
    world, job = running(min_workers=2)
    for times in range(1, 5):
        crash(world, job, times, 0)
        assert not job.below_quorum
        crash(world, job, times, 1)
        assert job.below_quorum
        for index in (0, 1):
            world.pass_time(3)
            world.change_pod(job.bound[1, index], ready=True)
    assert [(one.kind, one.subjects) for one in marks(world.entries)] == [("belowQuorum", ("default/ppo",))]
    first = next(entry for entry in world.entries if entry.last == marks(world.entries)[0].at)
    assert isinstance(first.batch.events[-1], k.PodSeen) and first.batch.events[-1].restarts == 1
    world.pass_time(600)
    crash(world, job, 5, 0, 1)
    there, began = snapshot.encode(world.state), len(world.entries)
    assert len(marks(world.entries)) == 2
    world.change_pod(job.bound[1, 0], restarts=6)
    assert marks(world.entries[began:], snapshot.restore(there)) == [], "it was below it before"


def test_a_job_that_ends_is_not_marked_as_below_its_quorum() -> None:
    world, job = running(min_workers=2)
    world.change_pod(job.bound[LEADER], phase="Succeeded", ready=False)
    crash(world, job, 1, 0, 1)
    assert job.below_quorum and marks(world.entries) == [] and not moment(world.state).jobs[0].trouble.count("quorum")


@pytest.mark.parametrize("decided", [False, True])
def test_a_job_that_its_user_deletes_is_not_disturbed_by_that(decided: bool) -> None:
    """The watches of pods and of jobs are apart, so the pods' deletion may be known first, and be decided on."""
    world, job = running(min_workers=2)
    other = world.job("other", workers=1, min_workers=1)
    world.settle()
    for uid in [*job.bound.values(), *other.bound.values()]:
        world.change_pod(uid, deleting=True)
    if decided:
        world.control()
    assert {one for mark in marks(world.entries) for one in mark.subjects} == {"default/ppo", "default/other"}
    world.pass_time(0.1)
    world.job_gone(job)
    assert {one for mark in marks(world.entries) for one in mark.subjects} == {"default/other"}
    world.say(msgspec.structs.replace(other.seen, deleting=True))
    assert marks(world.entries) == []


def test_a_job_that_lost_pods_and_is_deleted_later_was_disturbed() -> None:
    world, job = running(min_workers=2)
    world.change_pod(job.bound[LEADER], deleting=True)
    world.pass_time(60)
    world.job_gone(job)
    assert [one.kind for one in marks(world.entries)] == ["belowQuorum"]


def test_what_a_snapshot_has_is_no_news_after_it() -> None:
    """A part of a log begins with a state: what failed, or was cordoned, before it isn't marked in it, and a node that
    was ready before it and is lost in it is."""
    world, job = one_failed()
    world.node("n2", cpu=3, cordoned=True)
    began, there = len(world.entries), snapshot.encode(world.state)
    world.change_pod(job.bound[1, 1], restarts=1)
    world.node("n2", cpu=4, cordoned=True)
    world.node("n1", cpu=3, ready=False)
    found = marks(world.entries[began:], snapshot.restore(there))
    assert [(one.kind, one.subjects) for one in found] == [("nodeLost", ("n1",))]
