"""Workers that fail by their own fault, and whose room others take before they come again: what that counts."""

import msgspec
import pytest

from arranger.events import kinds as k
from arranger.events.facts import WorkersLost
from arranger.kube.translate import job_status_seen
from arranger.lifecycle.desired import desired_status
from arranger.messages.decisions import stage_text
from arranger.model.job import Stage
from arranger.model.node import Taint
from arranger.model.queue import Preemption
from arranger.model.stages import StageReason
from arranger.projections import snapshot
from arranger.projections.consistency import validate
from arranger.projections.jobs.records import JobRecord
from tests.world import World

_WORKER = (1, 0)


def _running(**job: object) -> tuple[World, JobRecord]:
    """A leader and a worker, which fill the only node; Running."""
    world = World()
    world.node("n1", cpu=2)
    record = world.job("ppo", **{"workers": 1, "min_workers": 1, **job})  # type: ignore[arg-type]
    world.settle()
    assert record.stage == Stage.RUNNING
    return world, record


def _loses_room(world: World, job: JobRecord, **how: object) -> k.StageDecided:
    """The worker's pod ends and another pod takes its room; the decision on that."""
    world.change_pod(job.bound[_WORKER], **{"phase": "Failed", "ready": False, **how})
    world.pod("stranger", "n1", cpu=1)
    world.pass_time(30)
    [decision] = world.control()
    assert isinstance(decision, k.StageDecided)
    return decision


def _comes_again(world: World, job: JobRecord) -> None:
    world.pod_gone("uid-stranger")
    world.wait_for_back_offs()
    world.settle()
    assert job.stage == Stage.RUNNING
    validate(world.state)


def test_a_worker_that_fails_again_and_again_and_loses_its_room_each_time_fails_its_job_at_the_limit() -> None:
    world, job = _running(restart_limit=2)
    waits_ms = []
    for attempt in (1, 2):
        decision = _loses_room(world, job)
        assert (decision.reason, job.stage, job.attempt) == ("WorkersLost", Stage.RESCHEDULING, attempt)
        assert desired_status(world.state, job)["workers"][0]["restartsOfEarlierPods"] == attempt
        assert "1 worker failed (its containers failed), and its node n1 has no room for it any more; " in stage_text(
            decision
        )
        waits_ms.append(decision.back_off_ms)
        _comes_again(world, job)
    assert 0 < waits_ms[0] < waits_ms[1]
    world.change_pod(job.bound[_WORKER], phase="Failed", ready=False)
    world.pass_time(30)
    world.settle()
    assert job.decided is not None
    assert (job.stage, job.decided.reason) == (Stage.FAILED, StageReason.WORKERS_FAILED)


def test_a_worker_that_is_evicted_and_loses_its_room_counts_for_nothing_and_comes_at_once() -> None:
    world, job = _running(restart_limit=0)
    for attempt in (1, 2):
        decision = _loses_room(world, job, reason="Evicted")
        assert (decision.reason, decision.back_off_ms, job.attempt) == ("WorkersLost", 0, attempt)
        assert desired_status(world.state, job)["workers"][0]["restartsOfEarlierPods"] == 0
        _comes_again(world, job)


def test_what_such_a_worker_has_used_of_its_restarts_is_in_snapshots_and_statuses() -> None:
    world, job = _running(restart_limit=2)
    _loses_room(world, job)
    restored = snapshot.restore(snapshot.encode(world.state)).jobs[job.uid]
    assert restored.slots.charged == job.slots.charged and restored.slots.charged[_WORKER][0] == 1
    told = job_status_seen(desired_status(world.state, job), restored.valid_spec)
    assert told is not None and told.charged == ((1, ((0, 0, 1),)),)


def test_room_that_its_next_attempt_never_got_gives_no_restarts_back() -> None:
    world, job = _running(restart_limit=2, priority=9)
    world.config = msgspec.structs.replace(world.config, preemption=Preemption(), room_bound_ms=60_000)
    _loses_room(world, job)
    world.pod_gone("uid-stranger")
    world.job("low", workers=1, min_workers=1, priority=1)
    world.settle()  # takes the room during the back-off
    world.wait_for_back_offs()
    assert any(isinstance(event, k.Preempted) for event in world.cycle()) and job.placements
    world.pass_time(200)
    world.control()
    assert job.decided is not None and (job.decided.reason, job.stage) == ("RoomNotFreed", Stage.RESCHEDULING)
    assert job.slots.charged[_WORKER][0] == 1


# --- what keeps them from their nodes -----------------------------------------------------------------------


def _failed_all(**node: object) -> k.StageDecided:
    """Both workers, which fill their node, have failed; then the node is seen so, or is gone. The decision on that."""
    world = World()
    world.node("n1", cpu=2)
    job = world.job("ppo", workers=2, min_workers=2, equals=True)
    world.settle()
    for uid in job.bound.values():
        world.change_pod(uid, phase="Failed", ready=False)
    if node:
        world.node("n1", **{"cpu": 2, **node})  # type: ignore[arg-type]
    else:
        world.node_gone("n1")
    world.pass_time(30)
    [decision] = [of for of in world.control() if isinstance(of, k.StageDecided)]
    return decision


@pytest.mark.parametrize(
    ("node", "why"),
    [
        ({}, "node n1 of theirs is gone"),
        ({"ready": False}, "node n1 of theirs is not ready"),
        ({"cordoned": True}, "node n1 of theirs is cordoned"),
        ({"taints": [Taint("dedicated", "a", "NoSchedule")]}, "node n1 of theirs has the taint dedicated=a:NoSchedule"),
        ({"cpu": 0.5}, "node n1 of theirs has no room for them any more"),
    ],
)
def test_whose_node_cannot_take_it_again_is_told_what_is_so_of_the_node(node: dict[str, object], why: str) -> None:
    decision = _failed_all(**node)
    assert stage_text(decision).startswith(f"2 workers failed (its containers failed), and {why}; minWorkersNum is 2; ")


def test_a_failed_worker_that_may_come_again_is_not_why_a_quorum_lost_another_one() -> None:
    world = World()
    world.node("n1", cpu=2)
    job = world.job("ppo", workers=2, min_workers=2, equals=True)
    world.settle()
    world.change_pod(job.bound[1, 0], phase="Failed", ready=False)
    world.pass_time(30)
    world.change_pod(job.bound[1, 1], phase="Failed", ready=False, reason="Evicted")
    [decision] = world.control()
    assert stage_text(decision).startswith("1 worker was lost (Evicted), minWorkersNum is 2; ")


def test_where_an_earlier_log_does_not_say_why_the_words_are_true_of_each_cause() -> None:
    decision = _failed_all(ready=False)
    assert isinstance(decision.facts, WorkersLost)
    few, cause, why = msgspec.to_builtins(decision.facts)[1:]
    earlier = msgspec.convert(["workers-lost", few, cause], WorkersLost)
    assert why and earlier == msgspec.structs.replace(decision.facts, why=None)
    told = stage_text(msgspec.structs.replace(decision, facts=earlier))
    assert told.startswith("2 workers failed (its containers failed), and can't come again where they were; minWork")
