"""The requests in flight, shared among namespaces, in virtual time."""

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arranger.workers.flow.request_slots import RequestSlots
from tests.simulation.loop import SimulatedClock, VirtualLoop

SLOTS = 16
PART = SLOTS // 8
TAKES_S = 0.1


class Scene:
    """Slots, and requests of which each takes as long as there are in flight, as on a busy API server."""

    def __init__(self) -> None:
        self.loop = VirtualLoop(random.Random(1))
        self.slots = RequestSlots(SimulatedClock(self.loop), SLOTS)
        self.in_flight: dict[str, int] = {}
        self.most: dict[str, int] = {}
        #: Each request that has ended: its namespace, and the seconds from its beginning until its end.
        self.ended: list[tuple[str, float]] = []
        self.tasks: list[asyncio.Task[None]] = []

    def request(self, namespace: str, times: int = 1, *, takes_s: float = TAKES_S) -> None:
        self.tasks += [asyncio.ensure_future(self._request(namespace, takes_s)) for _ in range(times)]

    async def _request(self, namespace: str, takes_s: float) -> None:
        began_s = self.loop.time()
        async with self.slots.slot(namespace):
            here = self.in_flight[namespace] = self.in_flight.get(namespace, 0) + 1
            self.most[namespace] = max(self.most.get(namespace, 0), here)
            assert sum(self.in_flight.values()) <= SLOTS
            try:
                await asyncio.sleep(takes_s)
            finally:
                self.in_flight[namespace] -= 1
        self.ended.append((namespace, self.loop.time() - began_s))

    async def all_ended(self) -> None:
        await asyncio.gather(*self.tasks, return_exceptions=True)

    def run(self, script: Callable[[], Awaitable[None]]) -> None:
        try:
            self.loop.run_until_complete(script())  # type: ignore[arg-type]
        finally:
            self.loop.close()


def test_a_namespace_that_is_alone_has_all_slots() -> None:
    scene = Scene()

    async def script() -> None:
        scene.request("storm", 100)
        await scene.all_ended()

    scene.run(script)
    assert scene.most == {"storm": SLOTS}
    assert len(scene.ended) == 100


def test_a_request_of_another_namespace_gets_the_next_slot_and_the_storm_keeps_a_part() -> None:
    scene = Scene()

    async def script() -> None:
        scene.request("storm", 1_000)
        await asyncio.sleep(TAKES_S / 2)
        scene.request("other")
        await asyncio.sleep(2 * TAKES_S)
        assert [namespace for namespace, _ in scene.ended].count("other") == 1
        assert scene.in_flight["storm"] == PART
        await scene.all_ended()

    scene.run(script)
    assert dict(scene.ended)["other"] == pytest.approx(TAKES_S * 1.5), "half until one ended, and its own"


def test_a_namespace_has_all_slots_again_once_it_has_been_alone_for_a_minute() -> None:
    scene = Scene()

    async def script() -> None:
        scene.request("other")
        scene.request("storm", 2_000)
        await asyncio.sleep(59)
        assert scene.in_flight["storm"] == PART
        await asyncio.sleep(2)
        assert scene.in_flight["storm"] == SLOTS
        await scene.all_ended()

    scene.run(script)


def test_a_request_that_is_cancelled_while_it_waits_or_runs_leaves_its_slot_to_others() -> None:
    scene = Scene()

    async def script() -> None:
        scene.request("a", 3 * SLOTS)
        await asyncio.sleep(TAKES_S / 2)
        for task in scene.tasks[: 2 * SLOTS]:  # half of them run
            task.cancel()
        await asyncio.sleep(TAKES_S / 2)
        assert scene.in_flight["a"] == SLOTS
        await scene.all_ended()

    scene.run(script)
    assert len(scene.ended) == SLOTS


def test_a_request_that_is_cancelled_as_it_gets_its_slot_gives_it_back() -> None:
    scene = Scene()

    async def script() -> None:
        scene.request("a", SLOTS + 1)
        await asyncio.sleep(TAKES_S / 2)
        scene.slots._give_back("a")  # the last one gets this slot, and is cancelled before it knows
        scene.tasks[-1].cancel()
        await scene.all_ended()
        assert scene.slots._free == SLOTS + 1

    scene.run(script)


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 5), st.booleans()), max_size=80), st.integers())
def test_every_request_has_its_turn_and_every_slot_comes_back(requests: list[tuple[str, int, bool]], seed: int) -> None:
    scene, chance = Scene(), random.Random(seed)

    async def script() -> None:
        for namespace, tenths, cancelled in requests:
            scene.request(namespace, takes_s=tenths / 10)
            if cancelled:
                chance.choice(scene.tasks).cancel()
            await asyncio.sleep(chance.choice((0, 0, 0.05)))
        await scene.all_ended()

    scene.run(script)
    assert len(scene.ended) == sum(not task.cancelled() for task in scene.tasks)
    assert (scene.slots._free, scene.slots._held, len(scene.slots._waiting)) == (SLOTS, {}, 0)
