"""How long jobs keep the nodes that they have just got: by their queue, or else by the configuration."""

import pytest

from arranger.events.facts import PreemptionKind
from arranger.model.job import Stage
from arranger.scheduling import NoRoomKind, why_no_room
from arranger.scheduling.cycle import Cycles
from tests.unit.test_preemption import preempted, running, waiting, world

#: Longer than `running` passes time, in milliseconds.
LEAST_MS = 120_000


def test_a_job_of_a_queue_that_says_nothing_keeps_its_quorum_for_the_configured_time() -> None:
    of = world(min_runtime_ms=LEAST_MS)
    low = running(of, "low", 4, priority=1)
    high = waiting(of, "high", 4, priority=9)
    assert preempted(of) is None and low.stage == Stage.RUNNING
    [why] = why_no_room(of.state, high, of.config, of.now_ms, lacks=None, infeasible=False)
    assert (why.kind, why.jobs, why.until_ms) == (NoRoomKind.TOO_YOUNG, (low.uid,), low.began_ms + LEAST_MS)
    of.pass_time(110)
    assert preempted(of) is not None


@pytest.mark.parametrize("least_s", [0, 5])
def test_what_a_queue_says_holds_instead_of_the_configured_time(least_s: int) -> None:
    of = world(min_runtime_ms=LEAST_MS)
    of.watch_queues()
    of.queue("default", min_runtime_s=least_s)
    running(of, "low", 4, priority=1)
    waiting(of, "high", 4, priority=9)
    assert preempted(of) is not None


def test_surplus_is_not_kept_by_the_configured_time() -> None:
    """An elastic job that has just filled free nodes would keep others from them, and it runs on without them."""
    of = world(min_runtime_ms=LEAST_MS)
    low = running(of, "low", 4, least=1, priority=1)
    waiting(of, "high", 3, priority=9)
    decision = preempted(of)
    assert decision is not None and [victim.kind for victim in decision.victims] == [PreemptionKind.SURPLUS]
    assert (low.stage, len(low.placements)) == (Stage.RUNNING, 1)


def test_surplus_is_taken_and_not_the_quorum_too() -> None:
    of = world(min_runtime_ms=LEAST_MS)
    running(of, "low", 4, least=1, priority=1)
    waiting(of, "high", 4, priority=9)
    assert preempted(of) is None


def test_who_has_taken_room_keeps_it_for_as_long() -> None:
    """Of 114 jobs in three queues, eight lost room within 2.4 s that they had taken."""
    of = world(min_runtime_ms=LEAST_MS)
    running(of, "low", 4, priority=1)
    of.pass_time(120)
    mid = waiting(of, "mid", 4, priority=5)
    assert preempted(of) is not None
    of.settle()
    waiting(of, "high", 4, priority=9)
    assert preempted(of) is None and mid.stage == Stage.RUNNING
    of.pass_time(120)
    assert preempted(of) is not None


def test_a_process_that_remembers_looks_again_once_the_configured_time_is_over() -> None:
    of = world(min_runtime_ms=LEAST_MS)
    running(of, "low", 4, priority=1)
    waiting(of, "high", 4, priority=9)
    cycles = Cycles()
    while events := cycles.take(of.state, of.config, of.now_ms):
        of.say(*events)
    of.pass_time(110)
    assert cycles.take(of.state, of.config, of.now_ms)
