"""Whether Redis accepts a process's writes, by its appends and heartbeats."""

import asyncio
import random

from arranger.errors import LogUnavailable, WritesRefused
from arranger.metrics import Metrics
from arranger.workers.writes import Writes
from tests.simulation.loop import SimulatedClock, VirtualLoop

FULL = WritesRefused("Redis can't do that now: OOM")


def scene() -> tuple[Writes, VirtualLoop]:
    loop = VirtualLoop(random.Random(1))
    clock = SimulatedClock(loop)
    return Writes(Metrics(clock), clock), loop


def after(loop: VirtualLoop, seconds: float) -> None:
    async def pause() -> None:
        await asyncio.sleep(seconds)

    loop.run_until_complete(pause())


def test_a_heartbeat_that_is_accepted_does_not_hide_that_appends_are_refused() -> None:
    writes, loop = scene()
    writes.failed(FULL)
    for second in range(1, 31):  # an append is tried again after ten seconds at most
        after(loop, 1.0)
        writes.taken(heartbeat=True)
        assert writes.problem is FULL
        if second % 10 == 0:
            writes.failed(FULL)
    writes.taken()
    assert writes.problem is None
    loop.close()


def test_the_refusal_of_an_append_that_nobody_tries_again_ends_with_the_heartbeats() -> None:
    writes, loop = scene()
    writes.failed(FULL)
    after(loop, 20.0)
    writes.taken(heartbeat=True)
    assert writes.problem is None
    loop.close()


def test_a_refused_heartbeat_ends_with_one_that_is_accepted() -> None:
    writes, loop = scene()
    writes.failed(LogUnavailable("Redis doesn't answer"), heartbeat=True)
    assert writes.problem is None
    writes.failed(FULL, heartbeat=True)
    assert writes.problem is FULL
    writes.taken(heartbeat=True)
    assert writes.problem is None
    loop.close()
