"""The scheduler's trigger: one member answers a change at once without rq, and reads the log again only if it must."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import pytest

from arranger.clock import SystemClock
from arranger.events import kinds as k
from arranger.events.devices import DevicesMatched
from arranger.events.log import Position
from arranger.metrics import Metrics
from arranger.workers.deciding.scheduler import Scheduler
from arranger.workers.flow.cancelling import end
from arranger.workers.log.follower import Follower
from arranger.workers.log.writer import Writer
from tests.devices import OF_DRIVER, DeviceWorld, model
from tests.memory_log import MemoryHome, MemoryLog
from tests.parts import parts
from tests.world import World


class Share:
    """A membership in which the test says whose the changes are."""

    def __init__(self, ours: bool) -> None:
        self.ours = ours

    def owns(self, key: str, role: str) -> bool:
        assert (key, role) == ("cycle", "scheduler")
        return self.ours


class CountedLog(MemoryLog):
    """A log that counts who asks for its end."""

    ends = 0

    async def end(self) -> Position:
        self.ends += 1
        return await super().end()


class Scene:
    """A log with a node, a follower and a scheduler."""

    def __init__(self, *, ours: bool) -> None:
        clock = SystemClock()
        self.metrics = Metrics(clock)
        self.share = Share(ours)
        self.log = CountedLog(MemoryHome())
        self.follower = Follower(self.log, clock=clock, metrics=self.metrics, reader="test")
        self.outside = Writer(self.follower, name="outside", clock=clock, metrics=self.metrics)
        self.scheduler = Scheduler(
            parts(follower=self.follower, membership=self.share, clock=clock, metrics=self.metrics)
        )

    async def job(self, name: str) -> None:
        """A TYJob comes."""
        world = World()
        seen = world.job(name).seen
        await self.outside.append_and_fold([seen_by(seen, self.follower.state.terms[k.Watched.JOB])])

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            await self.follower.until(lambda _: holds())

    def placed(self) -> list[str]:
        return sorted(job.seen.name for job in self.follower.state.jobs.values() if job.placements)


def seen_by(seen: k.JobSeen, term: int) -> k.JobSeen:
    return k.JobSeen(term, *(getattr(seen, name) for name in seen.__struct_fields__ if name != "term"))


@contextlib.asynccontextmanager
async def scheduling(*, ours: bool, world: World | None = None) -> AsyncIterator[Scene]:
    """A scheduler that has read what a world has seen: without one, a node."""
    scene = Scene(ours=ours)
    await scene.follower.start()
    scene.follower.listen(scene.scheduler)
    tasks = [asyncio.create_task(scene.follower.run()), asyncio.create_task(scene.scheduler.run())]
    if world is None:
        world = World()
        world.node("n1", cpu=8)
    try:
        for entry in world.entries[1:]:
            await scene.outside.append_and_fold(entry.batch.events)
        yield scene
    finally:
        await end(reversed(tasks))


async def test_a_change_is_answered_by_the_member_that_owns_it_without_a_tick() -> None:
    async with scheduling(ours=True) as scene:
        await scene.job("a")
        await scene.until(lambda: scene.placed() == ["a"])
        await scene.job("b")
        await scene.until(lambda: scene.placed() == ["a", "b"])


async def test_a_change_is_left_to_its_owner_and_a_tick_answers_it_all_the_same() -> None:
    async with scheduling(ours=False) as scene:
        await scene.job("a")
        await asyncio.sleep(0.2)
        assert scene.placed() == []
        await scene.scheduler.cycle()
        assert scene.placed() == ["a"]


async def test_a_member_without_the_changes_leaves_out_a_tick_soon_after_another_members_cycle() -> None:
    async with scheduling(ours=False) as scene:
        await scene.job("a")
        await scene.scheduler.tick()
        assert scene.placed() == ["a"]
        await scene.job("b")
        await scene.scheduler.tick()
        assert scene.placed() == ["a"]
        scene.scheduler._accepted_s = -1e9  # as a period later
        await scene.scheduler.tick()
        assert scene.placed() == ["a", "b"]


async def test_the_member_with_the_changes_leaves_out_no_tick() -> None:
    async with scheduling(ours=False) as scene:
        await scene.job("a")
        await scene.scheduler.cycle()
        await scene.job("b")
        scene.share.ours = True
        await scene.scheduler.tick()
        assert scene.placed() == ["a", "b"]


async def test_a_projection_that_was_read_a_moment_ago_is_not_compared_with_the_end_of_the_log() -> None:
    async with scheduling(ours=True) as scene:
        await scene.job("a")
        await scene.until(lambda: scene.placed() == ["a"])
        before = scene.log.ends
        await scene.scheduler.cycle()
        assert scene.log.ends == before
        scene.follower._read_s = -1e9  # as after a pause
        await scene.scheduler.cycle()
        assert scene.log.ends == before + 1


async def test_a_tick_that_comes_during_a_cycle_waits_for_its_end() -> None:
    async with scheduling(ours=False) as scene:
        await scene.job("a")
        await asyncio.gather(*(scene.scheduler.cycle() for _ in range(5)))
        assert scene.placed() == ["a"]
        told = scene.metrics.exposition().decode()
        assert 'arranger_cycles_total{result="taken"} 1.0' in told
        assert 'result="superseded"' not in told


async def test_a_cycle_that_fails_is_logged_and_the_next_change_is_answered(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with scheduling(ours=True) as scene:
        take, failed = scene.scheduler._cycles.take, asyncio.Event()

        def failing(*_: object) -> list[k.Event]:
            monkeypatch.setattr(scene.scheduler._cycles, "take", take)
            failed.set()
            raise ValueError("on purpose")

        monkeypatch.setattr(scene.scheduler._cycles, "take", failing)
        await scene.job("a")
        await asyncio.wait_for(failed.wait(), 20)
        await scene.job("b")
        await scene.until(lambda: scene.placed() == ["a", "b"])
    assert [record.message for record in caplog.records if record.exc_info] == ["a cycle failed"]


async def test_what_selectors_select_is_recorded_once_before_the_cycle_that_needs_it() -> None:
    world = DeviceWorld(matching=False)
    world.node("n1", cpu=8)
    world.devices("n1", ["gpu-0", "gpu-1"])
    world.resource_claim("c")
    world.claiming("web", "c")
    async with scheduling(ours=True, world=world) as scene:
        await scene.until(lambda: scene.placed() == ["pod:web"])
        done = len(world.entries)
        world.resource_claim("d", selectors=(model("A100"),))
        world.claiming("other", "d")
        for entry in world.entries[done:]:  # terms are those that the log has as well
            await scene.outside.append_and_fold(entry.batch.events)
        await scene.until(lambda: scene.placed() == ["pod:other", "pod:web"])
        kinds = [event async for event in recorded(scene.log)]
        matched = [of for of in kinds if isinstance(of, DevicesMatched)]
        assert [of.selectors for of in matched] == [(OF_DRIVER,), (model("A100"),)]
        order = [type(of).__name__ for of in kinds if isinstance(of, (DevicesMatched, k.CycleTaken))]
        assert order[0] == "DevicesMatched"


async def recorded(log: MemoryLog) -> AsyncIterator[k.Event]:
    """Every event of a log."""
    start = await log.start()
    for entry in await log.read(start, limit=1000):
        for event in entry.batch.events:
            yield event
