"""How long jobs keep the nodes that they have just got: by their queue, or, if they took them, by the configuration."""

from typing import Any

import pytest

from arranger.events.facts import PreemptionKind
from arranger.events.kinds import Preempted, StageDecided
from arranger.model.job import Stage
from arranger.model.stages import StageReason
from arranger.projections import snapshot
from arranger.projections.consistency import validate
from arranger.projections.jobs.records import JobRecord
from arranger.scheduling import NoRoomKind, why_no_room
from arranger.scheduling.cycle import Cycles
from tests.unit.test_preemption import GPU, preempted, running, waiting, world
from tests.world import World

#: Longer than `running` passes time, in milliseconds.
LEAST_MS = 120_000


def taker(of: World, *, least: int = 4) -> JobRecord:
    """A running job of 4 nodes that has just taken them from another one."""
    running(of, "first", 4, priority=1)
    found = of.job("taker", workers=4, worker=GPU, min_workers=least, equals=True, priority=5)
    assert preempted(of) is not None
    of.settle()
    of.job_gone(of.state.jobs["uid-first"])
    of.settle()
    assert (found.stage, len(found.placements)) == (Stage.RUNNING, 4)
    return found


def test_who_has_taken_room_keeps_its_quorum_for_the_configured_time() -> None:
    """Of 114 jobs in three queues, eight lost room within 2.4 s that they had taken."""
    of = world(min_runtime_ms=LEAST_MS)
    mid = taker(of)
    high = waiting(of, "high", 4, priority=9)
    assert preempted(of) is None and mid.stage == Stage.RUNNING
    [why] = why_no_room(of.state, high, of.config, of.now_ms, lacks=None, infeasible=False)
    assert (why.kind, why.jobs, why.until_ms) == (NoRoomKind.JUST_TOOK, (mid.uid,), mid.began_ms + LEAST_MS)
    of.pass_time(120)
    assert preempted(of) is not None


def test_who_got_free_nodes_gives_them_at_once() -> None:
    """It has less to lose now than later, and a low priority would keep a high one waiting."""
    of = world(min_runtime_ms=LEAST_MS)
    running(of, "low", 4, priority=1)
    waiting(of, "high", 4, priority=9)
    assert preempted(of) is not None


def test_room_that_was_taken_is_forgotten_with_the_nodes() -> None:
    of = world(min_runtime_ms=LEAST_MS)
    mid = taker(of)
    of.say(StageDecided(mid.uid, mid.version, mid.attempt, Stage.RESCHEDULING, StageReason.QUORUM_INCOMPLETE))
    of.settle()
    assert (mid.stage, mid.slots.took) == (Stage.RUNNING, False)
    waiting(of, "high", 4, priority=9)
    assert preempted(of) is not None


def test_a_snapshot_knows_who_took_its_nodes() -> None:
    of = world(min_runtime_ms=LEAST_MS)
    mid = taker(of)
    assert snapshot.restore(snapshot.encode(of.state)).jobs[mid.uid].slots.took


@pytest.mark.parametrize("least_s", [0, 5])
def test_what_a_queue_says_holds_instead_of_the_configured_time(least_s: int) -> None:
    of = world(min_runtime_ms=LEAST_MS)
    of.watch_queues()
    of.queue("default", min_runtime_s=least_s)
    taker(of)
    of.pass_time(least_s)
    waiting(of, "high", 4, priority=9)
    assert preempted(of) is not None


def test_what_a_queue_says_holds_for_all_of_its_jobs() -> None:
    of = world(min_runtime_ms=0)
    of.watch_queues()
    of.queue("default", min_runtime_s=120)
    running(of, "low", 4, priority=1)
    waiting(of, "high", 4, priority=9)
    assert preempted(of) is None


def test_surplus_is_not_kept_by_the_configured_time() -> None:
    """An elastic job that has just filled free nodes would keep others from them, and it runs on without them."""
    of = world(min_runtime_ms=LEAST_MS)
    low = taker(of, least=1)
    waiting(of, "high", 3, priority=9)
    decision = preempted(of)
    assert decision is not None and [victim.kind for victim in decision.victims] == [PreemptionKind.SURPLUS]
    assert (low.stage, len(low.placements)) == (Stage.RUNNING, 1)


def test_surplus_is_taken_and_not_the_quorum_too() -> None:
    of = world(min_runtime_ms=LEAST_MS)
    taker(of, least=1)
    waiting(of, "high", 4, priority=9)
    assert preempted(of) is None


def test_a_process_that_remembers_looks_again_once_the_configured_time_is_over() -> None:
    of = world(min_runtime_ms=LEAST_MS)
    taker(of)
    waiting(of, "high", 4, priority=9)
    cycles = Cycles()
    while events := cycles.take(of.state, of.config, of.now_ms):
        of.say(*events)
    of.pass_time(120)
    assert cycles.take(of.state, of.config, of.now_ms)


def awaiting(of: World, *, least_s: int | None = None) -> JobRecord:
    """A job that has taken the room of another one, whose pods are still to leave."""
    if least_s is not None:
        of.watch_queues()
        of.queue("default", min_runtime_s=least_s)
    low = running(of, "low", 4, priority=1)
    of.pass_time(least_s or 0)
    mid = waiting(of, "mid", 4, priority=5, grace_s=600)
    assert preempted(of) is not None
    for pod in of.pods_of(low).values():
        of.change_pod(pod.uid, deleting=True)
    assert of.control() == [] and mid.slots.room is not None and mid.stage == Stage.PENDING
    return mid


@pytest.mark.parametrize("least_s", [None, 600], ids=["by the configuration", "by the queue"])
def test_a_higher_priority_gets_the_room_for_which_another_job_still_waits(least_s: int | None) -> None:
    """The taker lost it 87 ms after it had begun: those who had left for it had lost their work in vain."""
    of = world(min_runtime_ms=LEAST_MS)
    mid = awaiting(of, least_s=least_s)
    high = waiting(of, "high", 4, priority=9)
    decision = preempted(of)
    assert decision is not None
    [victim] = decision.victims
    assert (victim.job_uid, victim.kind, victim.lost_ms) == (mid.uid, PreemptionKind.PRIORITY, 0)
    assert set(decision.leaving) == set(of.state.pods_of["uid-low"])
    assert decision.until_ms == of.now_ms + 30_000 + of.config.room_bound_ms, "no pod of the victim has to leave"
    assert (mid.stage, mid.placements, mid.taken) == (Stage.RESCHEDULING, {}, None)
    assert high.slots.room == decision and high.stage == Stage.PENDING
    assert not [event for event in of.cycle() if isinstance(event, Preempted)]
    of.settle()
    assert (high.stage, mid.stage, mid.leader.restarts, mid.spent) == (Stage.RUNNING, Stage.RESCHEDULING, 0, {})
    validate(of.state)


def test_who_waits_for_room_gives_all_of_it_or_nothing() -> None:
    """It has no surplus: nobody can say yet what it will run with."""
    of = world(min_runtime_ms=LEAST_MS)
    running(of, "low", 4, priority=1)
    mid = of.job("mid", workers=4, worker=GPU, min_workers=2, equals=True, priority=5)
    assert preempted(of) is not None
    took = len(mid.placements)
    of.job("high", workers=took - 1, worker=GPU, min_workers=took - 1, equals=True, priority=9)
    decision = preempted(of)
    assert decision is None or [of.kind for of in decision.victims] == [PreemptionKind.PRIORITY]


@pytest.mark.parametrize("spec", [{"priority": 5}, {"priority": 9, "preemptible": False}])
def test_who_waits_for_room_keeps_it_from_equals_and_if_it_isnt_preemptible(spec: dict[str, Any]) -> None:
    of = world(min_runtime_ms=LEAST_MS)
    running(of, "low", 4, priority=1)
    mid = waiting(of, "mid", 4, **spec)
    assert preempted(of) is not None
    other = waiting(of, "other", 4, priority=min(spec["priority"] * 2 - 5, 9))
    assert preempted(of) is None and mid.slots.room is not None
    kinds = [one.kind for one in why_no_room(of.state, other, of.config, of.now_ms, lacks=None, infeasible=False)]
    assert kinds == [NoRoomKind.NOT_LOWER]


@pytest.mark.parametrize("least_s", [None, 120], ids=["by the configuration", "by the queue"])
def test_the_least_time_counts_from_when_the_others_have_left(least_s: int | None) -> None:
    """With long grace periods, the time was over before the job had begun."""
    of = world(min_runtime_ms=LEAST_MS)
    mid = awaiting(of, least_s=least_s)
    of.pass_time(80)
    of.settle()
    assert mid.stage == Stage.RUNNING and mid.slots.took
    of.pass_time(100)
    high = waiting(of, "high", 4, priority=9)
    assert preempted(of) is None and mid.stage == Stage.RUNNING
    [why] = why_no_room(of.state, high, of.config, of.now_ms, lacks=None, infeasible=False)
    assert why.until_ms == mid.times.stage_ms + LEAST_MS
    of.pass_time(20)
    assert preempted(of) is not None
