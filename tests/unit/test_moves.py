"""Workers that fail repeatedly on one node while others run well elsewhere: they go elsewhere, and the log says why."""

import pytest

from arranger.events import kinds as k
from arranger.events.facts import FailedAgain
from arranger.messages.decisions import replaced_text
from arranger.model.job import RestartPolicy, Stage
from arranger.model.reasons import Reason, ReasonKind, insufficient
from arranger.projections import snapshot
from arranger.projections.jobs.records import JobRecord
from tests.unit.replay_worlds import explained, verified
from tests.unit.test_lifecycle_workers import FIRST_S, decided, fail, later
from tests.world import World

FAILED_THERE = Reason(ReasonKind.FAILED_THERE)


def spread(*, more: float = 1, workers: int = 2, **job: object) -> tuple[World, JobRecord]:
    """A leader on n1, a worker on each further node, and a node with so much more cpu; Running."""
    world = World()
    for number in range(workers + 1):
        world.node(f"n{number + 1}", cpu=1)
    record = world.job("ppo", **{"workers": workers, "min_workers": 1, "restart_limit": 9, **job})  # type: ignore[arg-type]
    world.settle()
    world.node("n9", cpu=more)
    assert record.stage == Stage.RUNNING and record.placements[1, 0] == "n2"
    return world, record


def twice(world: World, job: JobRecord) -> k.WorkersReplaced:
    """The first worker fails twice; the decision on the second failure."""
    fail(world, job, 0)
    later(world)
    assert job.placements[1, 0] == "n2"
    fail(world, job, 0, reason="Error")
    world.pass_time(2 * FIRST_S)
    return decided(world)


def test_a_worker_that_failed_twice_on_a_node_goes_elsewhere_and_its_set_avoids_the_node() -> None:
    world, job = spread()
    decision = twice(world, job)
    [worker], [cause] = decision.workers, decision.causes
    assert (worker.how, worker.failures, worker.counted) == ("Elsewhere", 2, True)
    assert isinstance(cause, FailedAgain) and (cause.node, cause.failures) == ("n2", 2)
    moved = "workers replaced: moved: actors 0 failed 2 times on n2 (Error), and others run well elsewhere"
    assert replaced_text(decision.causes, job.spec) == moved
    assert job.sets["actors"].avoids == {"n2": world.now_ms} and not job.slots.failures
    later(world, 0)
    assert (job.placements[1, 0], job.stage, job.attempt) == ("n9", Stage.RUNNING, 0)
    assert job.spent == {"actors": 2}
    report = verified(world.entries)
    assert report.identical == report.cycles and report.sound


def test_the_first_failure_and_those_on_several_nodes_move_nobody() -> None:
    world, job = spread(more=2)
    twice(world, job)
    later(world, 0)
    world.node("n2", cpu=0)
    fail(world, job, 0)
    later(world, 60)
    assert job.placements[1, 0] == "n9" and job.slots.failures == {(1, 0): 1}


@pytest.mark.parametrize("why", ["no others", "others fail too", "others are not ready", "no room", "closed", "left"])
def test_without_evidence_or_room_elsewhere_a_worker_stays(why: str) -> None:
    world, job = spread(workers=1 if why == "no others" else 2, more=0 if why == "no room" else 1)
    if why == "closed":
        world.node("n9", cpu=1, cordoned=True)
    if why == "left":
        job.of_set("actors").avoids["n9"] = 1
    if why == "others fail too":
        fail(world, job, 1)
    if why == "others are not ready":
        world.change_pod(job.bound[1, 1], ready=False)
    decision = twice(world, job)
    assert {worker.how for worker in decision.workers} == {"SameNode"}
    later(world, 0)
    assert job.placements[1, 0] == "n2" and job.slots.failures[1, 0] == 2


@pytest.mark.parametrize(("room", "moving"), [(1, 1), (2, 2), (3, 2)])
def test_two_workers_of_one_decision_dont_count_on_the_same_room(room: int, moving: int) -> None:
    world, job = spread(workers=3, more=room)
    fail(world, job, 0, 1)
    later(world)
    fail(world, job, 0, 1)
    world.pass_time(2 * FIRST_S)
    hows = [worker.how for worker in decided(world).workers]
    assert hows == ["Elsewhere"] * moving + ["SameNode"] * (2 - moving)
    later(world, 0)
    assert {job.placements[1, index] for index in range(moving)} == {"n9"}


@pytest.mark.parametrize("room", [1, 2])
def test_a_worker_stays_if_one_that_lost_its_node_needs_the_room_elsewhere(room: int) -> None:
    world, job = spread(workers=3, more=room)
    fail(world, job, 0)
    later(world)
    fail(world, job, 0)
    world.pass_time(2 * FIRST_S)
    world.node("n3", cpu=1, cordoned=True)
    fail(world, job, 1, reason="Evicted")
    assert [worker.how for worker in decided(world).workers] == [["SameNode", "Elsewhere"][room - 1], "Elsewhere"]


def test_a_worker_of_the_quorum_moves_without_a_new_attempt() -> None:
    world, job = spread(min_workers=2, minimums={"actors": 2})
    twice(world, job)
    assert (1, 0) not in job.placements and job.stage == Stage.RUNNING
    later(world, 0)
    assert (job.placements[1, 0], job.attempt, job.stage) == ("n9", 0, Stage.RUNNING)
    assert not job.times.short_ms


def test_a_worker_comes_back_if_the_room_elsewhere_went() -> None:
    world, job = spread()
    twice(world, job)
    world.pod("stranger", "n9", cpu=1)
    [_, waits] = world.cycle()
    assert isinstance(waits, k.Waits)
    assert waits.shortage.reasons == ((insufficient("cpu", 1000, 0), 3), (FAILED_THERE, 1))
    waiting = explained(world.entries, "ppo").waiting
    assert waiting is not None and waiting.remedies[0].text.startswith(
        "in 60 s, when it no longer avoids n2, where workers of actors failed repeatedly"
    )
    world.pass_time(59.999)
    world.cycle()
    assert (1, 0) not in job.placements
    later(world, 0.001)
    assert job.placements[1, 0] == "n2"


def test_with_a_window_only_failures_within_it_count() -> None:
    world, job = spread(restart={"actors": RestartPolicy(limit=9, window_s=100)})
    fail(world, job, 0)
    later(world)
    world.pass_time(101)
    fail(world, job, 0)
    later(world, 2 * FIRST_S)
    assert job.placements[1, 0] == "n2" and job.slots.failures == {(1, 0): 1}
    fail(world, job, 0)
    later(world, 4 * FIRST_S)
    assert job.placements[1, 0] == "n9"


def test_failures_are_kept_over_edits_and_snapshots_and_end_with_the_attempt() -> None:
    world, job = spread()
    fail(world, job, 0)
    later(world)
    edited = world.job("ppo", workers=3, min_workers=1, restart_limit=9, generation=2)
    assert edited.slots.failures == {(1, 0): 1}
    restored = snapshot.restore(snapshot.encode(world.state))
    assert restored.jobs[job.uid].slots.failures == {(1, 0): 1}
    assert snapshot.digest(restored) == world.digest()
    world.change_pod(job.bound[0, 0], phase="Failed", ready=False)
    later(world, 60)
    assert job.attempt == 1 and not job.slots.failures


def test_a_log_of_before_counts_no_failures_on_nodes() -> None:
    world, job = spread()
    [uid] = fail(world, job, 0)
    worker = k.EndedWorker(k.Slot(1, 0), uid, "SameNode", True)  # type: ignore[arg-type]
    world.say(k.WorkersReplaced(job.uid, job.version, 0, (worker,), ()))
    assert world.verdict("WorkersReplaced").accepted and not job.slots.failures


def test_the_memory_of_nodes_is_bounded() -> None:
    world, job = spread(workers=1)
    for number in range(20):
        node, uid = job.placements[1, 0], job.bound[1, 0]
        worker = k.EndedWorker(k.Slot(1, 0), uid, "Elsewhere", True, 2)  # type: ignore[arg-type]
        world.node(f"m{number}", cpu=1)
        world.say(k.WorkersReplaced(job.uid, job.version, 0, (worker,), ()))
        world.settle()
        assert [*job.sets["actors"].avoids][-1] == node
    assert len(job.sets["actors"].avoids) == 8
