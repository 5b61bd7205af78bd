"""A TYJob's status that is ahead of the log means a lost tail, and nothing else does: a pause never begins an epoch."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from typing import Any

from arranger.clock import SystemClock
from arranger.events import kinds as k
from arranger.events.fence import CLAIM, Fence
from arranger.events.log import Appended, Entry, Position, StoredSnapshot
from arranger.kube.cluster import ListPage, Object, Resource, WatchEvent, always
from arranger.kube.translate import job_seen
from arranger.metrics import Metrics
from arranger.model.job import Stage
from arranger.model.stages import StageReason
from arranger.projections import snapshot
from arranger.workers.log.follower import Follower
from arranger.workers.log.writer import Writer
from arranger.workers.watching.watcher import Watcher
from tests.memory_log import MemoryHome, MemoryLog
from tests.parts import parts
from tests.unit.test_watcher import Held

JOB = k.Watched.JOB
UID = "uid-j"


def tyjob(stage: str = "", *, version: int = 5) -> Object:
    metadata = {"name": "j", "namespace": "default", "uid": UID, "resourceVersion": str(version), "generation": 1}
    return {"metadata": metadata, "spec": {}, **({"status": {"stage": stage, "attempt": 0}} if stage else {})}


class Told:
    """A cluster that says what the test tells it, in one batch each time."""

    def __init__(self) -> None:
        self.batches: asyncio.Queue[list[WatchEvent]] = asyncio.Queue()

    async def listing(self, resource: Resource, *, limit: int = 500, at: str = "") -> AsyncGenerator[ListPage, None]:
        yield ListPage([], "1")

    async def watch(
        self,
        resource: Resource,
        resource_version: str,
        *,
        timeout_s: float = 300.0,
        accepted: Callable[[], object] = always,
    ) -> AsyncGenerator[list[WatchEvent], None]:
        while True:
            yield await self.batches.get()

    def say(self, *changes: tuple[str, Object]) -> None:
        told = [WatchEvent(kind, item, item["metadata"]["resourceVersion"], 0) for kind, item in changes]
        self.batches.put_nowait(told)


class Paused(MemoryLog):
    """A client of the log that gets no answers to its reads while it is `held`."""

    def __init__(self, home: MemoryHome) -> None:
        super().__init__(home)
        self.goes = asyncio.Event()
        self.goes.set()

    async def read(self, after: Position, *, limit: int = 1000, wait_s: float = 0.0) -> Sequence[Entry]:
        found = await super().read(after, limit=limit, wait_s=min(wait_s, 0.02))
        if not self.goes.is_set():
            await self.goes.wait()
            found = await super().read(after, limit=limit)
        return found


class Member:
    """A process: its follower and a writer."""

    def __init__(self, log: MemoryLog, name: str) -> None:
        self.clock = SystemClock()
        self.metrics = Metrics(self.clock)
        self.follower = Follower(log, clock=self.clock, metrics=self.metrics, reader=name)
        self.writer = Writer(self.follower, name=name, clock=self.clock, metrics=self.metrics)

    async def say(self, *events: k.Event, term: int | None = None) -> Appended:
        fence = Fence(JOB, term) if term is not None else None
        return await self.writer.append_and_fold(events, fence=fence)


class Scene:
    """A watcher of TYJobs that can be paused, and another process."""

    def __init__(self) -> None:
        self.home = MemoryHome()
        self.log = Paused(self.home)
        self.cluster = Told()
        self.us, self.other = Member(self.log, "us"), Member(MemoryLog(self.home), "other")
        self.watcher = Watcher(
            JOB,
            parts(
                cluster=self.cluster,
                follower=self.us.follower,
                writer=self.us.writer,
                lease=Held(),
                clock=self.us.clock,
                metrics=self.us.metrics,
                settings={"lease_s": 0.3},
            ),
        )

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            await self.us.follower.until(lambda _: holds())

    def term(self) -> int:
        return self.us.follower.state.terms.get(JOB, 0)

    async def decide(self, stage: Stage, **more: Any) -> None:
        """The other process decides on the job."""
        job = self.other.follower.state.jobs[UID]
        await self.other.say(k.StageDecided(UID, job.version, job.attempt, stage, StageReason.AS_RECORDED), **more)


@contextlib.asynccontextmanager
async def watching() -> AsyncIterator[Scene]:
    scene = Scene()
    for member in (scene.us, scene.other):
        await member.follower.start()
    work = (scene.us.follower.run(), scene.other.follower.run(), scene.watcher.run())
    tasks = [asyncio.create_task(each) for each in work]
    try:
        await scene.until(lambda: bool(scene.us.follower.state.listed.get(JOB)))
        yield scene
    finally:
        scene.log.goes.set()
        for task in reversed(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_watcher_that_was_paused_while_another_saw_the_job_run_and_go_begins_no_epoch() -> None:
    async with watching() as scene:
        epoch, term = scene.us.follower.state.epoch, scene.term()
        scene.log.goes.clear()
        other = (await scene.other.say(k.WatchClaimed(JOB, "other"), term=CLAIM)).first
        await scene.other.say(job_seen(tyjob(), other, with_status=False), term=other)
        await scene.decide(Stage.SUCCEEDED)
        await scene.other.say(k.ObjectGone(k.Watched.JOB, other, "default", "j", UID), term=other)
        scene.cluster.say(("ADDED", tyjob()), ("MODIFIED", tyjob("Succeeded", version=6)))
        await asyncio.sleep(0.1)
        scene.log.goes.set()
        await scene.until(lambda: scene.term() not in (term, other))  # ours, with the lease
        await asyncio.sleep(0.1)
        assert scene.home.index is not None and scene.home.index.start.epoch == epoch


async def test_a_projection_that_began_again_from_a_snapshot_meanwhile_is_the_one_that_is_judged_by() -> None:
    async with watching() as scene:
        scene.cluster.say(("ADDED", tyjob()))
        await scene.until(lambda: UID in scene.us.follower.state.jobs)
        epoch, before = scene.us.follower.state.epoch, scene.us.follower.state
        scene.log.goes.clear()
        await scene.decide(Stage.SUCCEEDED)
        position = scene.other.follower.position
        content = snapshot.encode(scene.other.follower.state)
        await scene.other.follower.log.put_snapshot(StoredSnapshot(position, content))
        await scene.other.follower.log.trim(position.offset + 1, epoch=epoch)
        scene.cluster.say(("MODIFIED", tyjob("Succeeded", version=6)))
        await asyncio.sleep(0.1)
        scene.log.goes.set()
        await scene.until(lambda: scene.us.follower.state is not before)
        await asyncio.sleep(0.1)
        assert scene.us.follower.state.jobs[UID].seen.resource_version == "6"
        assert scene.home.index is not None and scene.home.index.start.epoch == epoch


async def test_a_status_that_shows_more_than_a_log_with_everything_folded_begins_an_epoch() -> None:
    async with watching() as scene:
        scene.cluster.say(("ADDED", tyjob()))
        await scene.until(lambda: UID in scene.us.follower.state.jobs)
        epoch = scene.us.follower.state.epoch
        scene.cluster.say(("MODIFIED", tyjob("Running", version=6)))
        await scene.until(lambda: scene.us.follower.state.epoch != epoch)
