"""The work queue of a role, in virtual time."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from arranger.workers.flow.work_queue import SWEEP_S, KeyQueue
from tests.simulation.loop import SimulatedClock, VirtualLoop


class Scene:
    """A queue, and a role that takes each key and notes when it did."""

    def __init__(self, *keys: str) -> None:
        self.loop = VirtualLoop(random.Random(1))
        self.keys = list(keys)
        self.passed_s = 0.0
        #: The namespace of a key is what stands before its first slash.
        self.queue = KeyQueue(
            SimulatedClock(self.loop),
            lambda: self.keys,
            namespace_of=lambda key: key.rpartition("/")[0],
            passed=self._pass,
        )
        self.began_s = self.loop.time()
        #: Each look: the key, and the seconds since the beginning.
        self.looks: list[tuple[str, float]] = []
        #: How long the work on a key takes, in seconds.
        self.lasts_s = 0.0
        self.at_once: dict[str, int] = {}
        self.turns = 0

    def _pass(self, seconds: float) -> None:
        self.passed_s += seconds

    async def _work(self, key: str) -> None:
        self.at_once[key] = self.at_once.get(key, 0) + 1
        assert self.at_once[key] == 1, "the work on a key never runs twice at once"
        self.looks.append((key, round(self.loop.time() - self.began_s, 3)))
        await asyncio.sleep(self.lasts_s)
        self.at_once[key] -= 1

    async def _role(self) -> None:
        while True:
            await self.queue.wait()
            self.turns += 1
            for key in self.queue.take():
                self.queue.start(key, self._work(key), name=f"work-{key}")

    def run(self, script: Callable[[], Awaitable[None]]) -> None:
        async def main() -> None:
            role = asyncio.create_task(self._role())
            await script()
            role.cancel()
            await asyncio.gather(role, return_exceptions=True)
            await self.queue.finish()

        try:
            self.loop.run_until_complete(main())
        finally:
            self.loop.close()


def test_a_key_that_is_touched_is_looked_at_at_once_and_only_once() -> None:
    scene = Scene()

    async def script() -> None:
        scene.queue.touch(["a", "b"])
        scene.queue.touch(["a"])
        await asyncio.sleep(1)

    scene.run(script)
    assert scene.looks == [("a", 0.0), ("b", 0.0)]


def test_a_key_that_is_touched_while_its_work_runs_is_looked_at_once_that_has_ended() -> None:
    scene = Scene()
    scene.lasts_s = 2.0

    async def script() -> None:
        scene.queue.touch(["a"])
        await asyncio.sleep(0.5)
        scene.queue.touch(["a"])
        scene.queue.touch(["b"])
        await asyncio.sleep(2.5)

    scene.run(script)
    assert scene.looks == [("a", 0.0), ("b", 0.5), ("a", 2.0)]


def test_a_key_is_looked_at_again_after_a_while_or_sooner_if_that_was_planned_before() -> None:
    scene = Scene("a", "b")

    async def script() -> None:
        scene.queue.look_again("a", 3.0)
        scene.queue.look_again("b", 1.0)
        await asyncio.sleep(0.5)
        scene.queue.look_again("a", 1.0)  # sooner than what was planned
        scene.queue.look_again("b", 2.0)  # later than what was planned
        await asyncio.sleep(3.5)

    scene.run(script)
    assert scene.looks == [("b", 1.0), ("a", 1.5)]


def test_a_key_that_is_touched_is_still_looked_at_again_as_planned() -> None:
    scene = Scene("a")

    async def script() -> None:
        scene.queue.look_again("a", 2.0)
        scene.queue.touch(["a"])
        await asyncio.sleep(3)

    scene.run(script)
    assert scene.looks == [("a", 0.0), ("a", 2.0)]


def test_all_keys_are_looked_at_once_in_a_while_however_busy_the_role_is() -> None:
    scene = Scene("a", "b")

    async def script() -> None:
        for _ in range(110):
            scene.queue.touch(["busy"])
            await asyncio.sleep(0.1)

    scene.run(script)
    swept = [second for key, second in scene.looks if key == "a"]
    assert swept == [pytest.approx(SWEEP_S, abs=0.11), pytest.approx(2 * SWEEP_S, abs=0.11)]
    assert [key for key, _ in scene.looks if key != "busy"] == ["a", "b"] * 2


def test_what_was_planned_for_a_key_that_is_gone_is_forgotten_by_the_sweep() -> None:
    scene = Scene("a", "gone")

    async def script() -> None:
        scene.queue.look_again("a", 2 * SWEEP_S + 1)
        scene.queue.look_again("gone", 2 * SWEEP_S + 1)
        scene.keys.remove("gone")
        await asyncio.sleep(2 * SWEEP_S + 2)

    scene.run(script)
    assert [key for key, _ in scene.looks] == ["a"] * 3


def test_the_times_that_are_outdated_do_not_pile_up() -> None:
    scene = Scene("a")

    async def script() -> None:
        for _ in range(200):
            scene.queue.look_again("a", 3600.0)
            scene.queue.look_again("a", 0.1)
            await asyncio.sleep(0.2)

    scene.run(script)
    assert len(scene.queue._heap) <= SWEEP_S / 0.2 + 2


def test_a_queue_that_was_cleared_looks_at_nothing_until_something_is_touched() -> None:
    scene = Scene()

    async def script() -> None:
        scene.queue.look_again("a", 1.0)
        scene.queue.touch(["b"])
        scene.queue.clear()
        await asyncio.sleep(2)
        scene.queue.touch(["c"])
        await asyncio.sleep(1)

    scene.run(script)
    assert scene.looks == [("c", 2.0)]


def test_a_role_that_takes_nothing_now_is_not_asked_again_and_again() -> None:
    """A role whose projection isn't whole takes no key. It waits for news all the same."""
    scene = Scene("a")
    woken = 0

    async def idle() -> None:
        nonlocal woken
        while True:
            await scene.queue.wait()
            woken += 1

    scene._role = idle  # type: ignore[method-assign]

    async def script() -> None:
        scene.queue.touch(["a"])
        scene.queue.look_again("a", 1.0)
        await asyncio.sleep(3)
        assert scene.queue.pending

    scene.run(script)
    assert woken <= 3


def test_a_caller_that_takes_some_keys_leaves_the_others() -> None:
    scene = Scene()
    scene.queue.touch(["a", "b", "c"])
    assert next(scene.queue.take()) == "a"
    assert list(scene.queue.take()) == ["b", "c"]
    assert not scene.queue.pending
    scene.loop.close()


def test_a_key_of_another_namespace_waits_for_one_key_of_a_storm() -> None:
    scene = Scene()
    scene.queue.touch([f"storm/{number}" for number in range(1_000)])
    scene.queue.touch(["other/a"])
    assert list(scene.queue.take(3)) == ["storm/0", "other/a", "storm/1"]
    scene.loop.close()


def test_a_key_that_was_touched_waits_for_one_key_of_the_sweep_over_its_namespace() -> None:
    scene = Scene(*(f"storm/{number}" for number in range(40)))
    scene.queue.sweep()
    scene.queue.touch(["storm/new", "storm/30"])
    scene.queue.touch(["storm/new"], swept=True)
    assert list(scene.queue.take(4)) == ["storm/0", "storm/new", "storm/1", "storm/30"]
    assert sorted(scene.queue.take()) == sorted(set(scene.keys) - {"storm/0", "storm/1", "storm/30"})
    scene.loop.close()


def test_a_sweep_over_many_keys_is_spread_over_the_time_until_the_next_one() -> None:
    scene = Scene(*map(str, range(1_001)))

    async def script() -> None:
        scene.queue.sweep()
        await asyncio.sleep(2 * SWEEP_S - 0.01)

    scene.run(script)
    assert sorted(key for key, _ in scene.looks) == sorted(scene.keys * 2), "each once in each sweep"
    at = Counter(seconds for _, seconds in scene.looks)
    assert max(at.values()) == 50
    assert len(at) == 2 * 21, "a last part has one key"


def test_a_sweep_over_very_many_keys_takes_longer() -> None:
    scene = Scene(*map(str, range(5_000)))

    async def script() -> None:
        scene.queue.sweep()
        await asyncio.sleep(2 * SWEEP_S - 0.01)

    scene.run(script)
    assert sorted(key for key, _ in scene.looks) == sorted(scene.keys), "each once in ten seconds"


def test_other_tasks_run_after_as_many_looks_as_a_role_takes_at_once() -> None:
    scene = Scene()
    turns: list[int] = []

    async def role() -> None:
        while True:
            await scene.queue.wait()
            turns.append(len(list(scene.queue.take(10))))

    scene._role = role  # type: ignore[method-assign]
    between = 0

    async def script() -> None:
        nonlocal between
        scene.queue.touch([str(number) for number in range(35)])
        while len(turns) < 4:
            await asyncio.sleep(0)
            between += 1
        await asyncio.sleep(1)

    scene.run(script)
    assert turns == [10, 10, 10, 5]
    assert between >= 4


def test_a_role_that_ends_waits_for_the_work_that_runs() -> None:
    scene = Scene()
    scene.lasts_s = 5.0

    async def script() -> None:
        scene.queue.touch(["a"])
        await asyncio.sleep(0.1)

    scene.run(script)
    assert scene.at_once == {"a": 0}


def test_the_seconds_of_looks_that_wait_and_run_are_told() -> None:
    scene = Scene()
    scene.lasts_s = 2.0

    async def script() -> None:
        scene.queue.touch(["a", "b", "c"])
        await asyncio.sleep(0.5)
        scene.queue.touch(["a"])  # waits 1.5 s for the work to end, and then takes 2 s
        await asyncio.sleep(8)

    scene.run(script)
    assert round(scene.passed_s, 3) == 3 * 2 + 1.5 + 2


def test_the_seconds_of_a_look_that_lasts_are_told_meanwhile() -> None:
    scene = Scene()
    scene.lasts_s = 100.0

    async def script() -> None:
        scene.queue.touch(["a"])
        await asyncio.sleep(4 * SWEEP_S)
        assert 3 * SWEEP_S <= scene.passed_s <= 4 * SWEEP_S

    scene.run(script)
