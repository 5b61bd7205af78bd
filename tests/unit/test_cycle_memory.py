"""Cycles that remember: an unchanged question is not evaluated again, and the answer is always that of `take_cycle`."""

import msgspec
from hypothesis import given, settings

from arranger.events import kinds as k
from arranger.model.job import ScheduleState, Stage
from arranger.model.stages import StageReason
from arranger.projections.state import ASSUMED_MS
from arranger.scheduling.cycle import Cycles, take_cycle
from tests.random_worlds import Step, live_through, steps
from tests.world import World, shape, starting


@settings(max_examples=60, print_blob=True)
@given(history=steps())
def test_a_process_that_remembers_says_what_one_that_does_not_would_say(history: list[Step]) -> None:
    cycles = Cycles()
    world = World()
    for step in history:
        live_through([step], world)
        for pause_s in (0, 0, 11, 301):
            time_ms = world.now_ms + pause_s * 1000
            assert cycles.take(world.state, world.config, time_ms) == take_cycle(world.state, world.config, time_ms)


def test_an_unchanged_question_is_not_evaluated_again(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    world = World()
    world.node("n1", gpus=8)
    world.pod("in-the-way", "n1", gpus=4)
    world.job("j", leader=shape(gpus=2), workers=2, min_workers=2)
    cycles = Cycles()
    world.say(*cycles.take(world.state, world.config, world.now_ms))
    assert cycles.take(world.state, world.config, world.now_ms) == ()
    monkeypatch.setattr("arranger.scheduling.cycle._plan", None)
    world.pod("stranger", cpu=1)  # pending: it holds nothing
    world.pass_time(3600)
    assert cycles.take(world.state, world.config, world.now_ms) == ()


def test_a_job_that_nothing_happens_to_still_fails_when_its_grace_is_over() -> None:
    world = World()
    world.node("n1", gpus=4)
    job = world.job("j", leader=shape(gpus=8))
    cycles = Cycles()
    for _ in range(100):
        events = cycles.take(world.state, world.config, world.now_ms)
        if events:
            world.say(*events)
        world.control()
        world.pass_time(5)
    assert (job.schedule_state, job.stage) == (ScheduleState.FAILED, Stage.FAILED)


def test_a_clock_that_was_set_back_asks_another_question() -> None:
    """The quota counts a pod that may still come until its time ends."""
    world, job = starting(cpu=2)
    world.config = msgspec.structs.replace(world.config, reasons_refresh_ms=0)
    world.quota("few", {"pods": 1})
    world.say(k.StageDecided(job.uid, job.version, 0, Stage.FAILED, StageReason.AS_RECORDED))
    world.job("large", workers=1, min_workers=1)
    cycles = Cycles()
    later_ms = world.now_ms + ASSUMED_MS
    world.say(*cycles.take(world.state, world.config, later_ms))
    assert cycles.take(world.state, world.config, later_ms) == ()
    assert cycles.take(world.state, world.config, world.now_ms) != ()
