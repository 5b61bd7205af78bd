"""A comparison runs beside the watch. Whatever happens to either of them, no older observation follows a newer one, and
a comparison that fails delays nothing.

On a virtual clock, as in `test_watcher_comparison.py`.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import msgspec
import pytest

from arranger.events import kinds as k
from arranger.events.fence import Fence
from arranger.events.kinds import Batch
from arranger.events.log import Appended
from arranger.kube.cluster import (
    NODES,
    PODS,
    TYJOBS,
    ApiError,
    ClusterUnavailable,
    ListPage,
    Resource,
    WatchEvent,
    always,
)
from arranger.sandbox.direct import DirectCluster
from arranger.sandbox.store import Store
from arranger.workers.watching import observer
from tests.depth import extent
from tests.simulation.loop import SimulatedClock, VirtualLoop
from tests.stores import store_of_jobs
from tests.unit.test_applier import JOB
from tests.unit.test_watcher import Scene, watching_in
from tests.unit.test_watcher_comparison import Losing, events_of, lost_names, missed


class Failing(Losing):
    """A comparison may get no answer after `takes_s`."""

    fails_listing = False

    async def listing(self, resource: Resource, *, limit: int = 500, at: str = "") -> AsyncGenerator[ListPage, None]:
        if at and self.fails_listing:
            self.listings += 1
            await asyncio.sleep(self.takes_s)
            raise ClusterUnavailable("list: no answer in time")
        async with aclosing(super().listing(resource, limit=limit, at=at)) as pages:
            async for page in pages:
                yield page


def run(
    test: Callable[[Scene, Failing], Awaitable[None]],
    kind: k.Watched = k.Watched.POD,
    store_of: Callable[[], Store] | None = None,
) -> None:
    """Run a test beside a watcher of this kind, in virtual time."""
    loop = VirtualLoop(random.Random(1))

    async def whole() -> None:
        clock = SimulatedClock(loop)
        cluster = Failing(store_of() if store_of is not None else Store(now=loop.time), clock=clock)
        scene = Scene(kind, cluster, clock=clock)
        async with watching_in(scene):
            await test(scene, cluster)

    finish(loop, whole())


def finish(loop: VirtualLoop, work: Any) -> None:
    try:
        loop.run_until_complete(work)
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()


async def comparing(cluster: Failing) -> None:
    """Until a comparison has asked for its first page."""
    before = cluster.listings
    while cluster.listings == before:  # noqa: ASYNC110 - virtual time
        await asyncio.sleep(0.1)


def delay(scene: Scene, before_s: Callable[[], float], after_s: Callable[[], float]) -> None:
    """The log takes each batch so late, and its answer comes so much later, as over a network."""
    log: Any = scene.follower.log
    original = log.append

    async def append(batch: Batch, *, epoch: int, fence: Fence | None = None) -> Appended:
        await asyncio.sleep(before_s())
        appended: Appended = await original(batch, epoch=epoch, fence=fence)
        await asyncio.sleep(after_s())
        return appended

    log.append = append


async def begin_comparison_that_fails(scene: Scene, cluster: Failing) -> None:
    """Half a second before it fails; from here on, the log's answers take a second."""
    cluster.takes_s, cluster.fails_listing = 5.0, True
    await comparing(cluster)
    await asyncio.sleep(4.5)
    delay(scene, lambda: 0.0, lambda: 1.0)


def test_a_comparison_that_fails_lets_nothing_be_observed_twice() -> None:
    async def test(scene: Scene, cluster: Failing) -> None:
        await scene.create("a")
        await scene.until(lambda: scene.names() == ["a"])
        await begin_comparison_that_fails(scene, cluster)
        began = len(await events_of(scene))
        await cluster.delete(PODS, "default", "a")  # the watch tells that it goes, then that it is gone
        await asyncio.sleep(20)
        assert [type(event) for event in (await events_of(scene))[began:]] == [k.PodSeen, k.ObjectGone]

    run(test)


def test_a_comparison_that_fails_while_a_job_goes_begins_no_epoch() -> None:
    async def test(scene: Scene, cluster: Failing) -> None:
        await cluster.create(TYJOBS, "default", msgspec.json.decode(msgspec.json.encode(JOB)))
        await scene.until(lambda: len(scene.follower.state.jobs) == 1)
        epoch = scene.follower.state.epoch
        await begin_comparison_that_fails(scene, cluster)
        status = {"stage": "Pending", "attempt": 0}
        await cluster.patch(TYJOBS, "default", "j", {"status": status}, subresource="status")
        await cluster.delete(TYJOBS, "default", "j")
        await asyncio.sleep(20)
        assert not scene.follower.state.jobs and scene.follower.state.epoch == epoch

    run(test, k.Watched.JOB, store_of_jobs)


def test_a_comparison_that_fails_delays_no_observation() -> None:
    async def test(scene: Scene, cluster: Failing) -> None:
        cluster.takes_s, cluster.fails_listing = 1.0, True
        await comparing(cluster)
        for number in range(60):
            await scene.create(f"p{number}")
            await scene.until(lambda name=f"p{number}": name in scene.names(), within_s=0.1)  # type: ignore[misc]
            await asyncio.sleep(1.0)

    run(test)


def test_comparisons_that_fail_are_as_far_apart_as_others() -> None:
    async def test(scene: Scene, cluster: Failing) -> None:
        cluster.takes_s, cluster.fails_listing = 6.0, True
        await comparing(cluster)
        cluster.listings = 0
        await asyncio.sleep(600)
        assert 8 <= cluster.listings <= 10

    run(test)


def test_a_comparison_that_takes_long_causes_no_further_watches() -> None:
    async def test(scene: Scene, cluster: Failing) -> None:
        cluster.takes_s = 30.0
        await comparing(cluster)
        cluster.watches = 0
        await asyncio.sleep(29)
        assert cluster.watches <= 2

    run(test)


def test_who_goes_on_after_a_comparison_brings_nothing_back() -> None:
    async def test(scene: Scene, cluster: Failing) -> None:
        await scene.create("a")
        await scene.until(lambda: scene.names() == ["a"])
        cluster.loses = lost_names("a")
        await cluster.delete(PODS, "default", "a")
        await scene.until(lambda: scene.names() == [], within_s=61)
        began = len(await events_of(scene))
        cluster.loses = lambda _: False
        await scene.claim()  # another one claims, and leaves
        await asyncio.sleep(5)
        assert {type(event) for event in (await events_of(scene))[began:]} == {k.WatchClaimed}

    run(test)


def test_what_a_comparison_shows_replaces_no_later_object_of_the_same_name() -> None:
    async def test(scene: Scene, cluster: Failing) -> None:
        def uid() -> str:
            nodes = scene.follower.state.nodes
            return nodes.uids[nodes.rows["n"]]

        await cluster.create(NODES, None, {"metadata": {"name": "n"}})
        await scene.until(lambda: "n" in scene.follower.state.nodes.rows)
        old = uid()
        cluster.takes_s = 5.0
        await comparing(cluster)
        cluster.loses = lambda change: change.type == "DELETED"
        await cluster.delete(NODES, None, "n")
        await cluster.create(NODES, None, {"metadata": {"name": "n"}})
        await scene.until(lambda: uid() != old)
        new = uid()
        for _ in range(100):
            await asyncio.sleep(0.1)
            assert uid() == new

    run(test, k.Watched.NODE)


# --- by chance ---------------------------------------------------------------------------------------------


class Shaky(DirectCluster):
    """Answers late, in parts or not at all, except while it is `calm`, and never while it is `down`."""

    def __init__(self, store: Store, clock: SimulatedClock, chance: random.Random) -> None:
        super().__init__(store, clock=clock)
        self.chance = chance
        self.calm, self.down = True, False

    async def _answer(self, *, page: bool = False) -> None:
        if self.calm:
            return
        if self.down:
            raise ClusterUnavailable("connection refused")
        if self.chance.random() < 0.5:
            await asyncio.sleep(self.chance.choice((0.001, 0.01, 0.3, 3.0)))
        if self.chance.random() < 0.05:
            raise ClusterUnavailable("the connection was reset")
        if page and self.chance.random() < 0.02:
            raise ApiError(500, "InternalError", "etcd has no leader")

    async def listing(self, resource: Resource, *, limit: int = 500, at: str = "") -> AsyncGenerator[ListPage, None]:
        await self._answer()
        async with aclosing(super().listing(resource, limit=3, at=at)) as pages:
            async for page in pages:
                await self._answer(page=True)
                yield page

    async def watch(
        self,
        resource: Resource,
        resource_version: str,
        *,
        timeout_s: float = 300.0,
        accepted: Callable[[], object] = always,
    ) -> AsyncGenerator[list[WatchEvent], None]:
        await self._answer()
        async with aclosing(
            super().watch(resource, resource_version, timeout_s=timeout_s, accepted=accepted)
        ) as batches:
            async for batch in batches:
                cut = self.chance.randrange(len(batch))
                for part in (batch[:cut], batch[cut:]):
                    if part:
                        await self._answer()
                        yield part


async def disturb(scene: Scene, cluster: Shaky) -> list[str]:
    """Pods come, change and go, the server is away now and then or forgets versions, and others claim the watch.
    Returns the names of the pods that are there at the end."""
    chance, there = cluster.chance, list[str]()
    for number in range(300):
        what = chance.random()
        if what < 0.4 or not there:
            there.append(f"p{number}")
            await scene.create(there[-1])
        elif what < 0.7:
            label = {"metadata": {"labels": {"number": str(number)}}}
            await cluster.patch(PODS, "default", chance.choice(there), label)
        else:
            await cluster.delete(PODS, "default", there.pop(chance.randrange(len(there))))
        if chance.random() < 0.01:
            cluster._store.compact()
        if chance.random() < 0.02:
            cluster.down = not cluster.down
        if chance.random() < 0.02:
            await scene.claim()
        if chance.random() < 0.6:
            await asyncio.sleep(chance.choice((0.0, 0.01, 0.1, 1.0, 5.0)))
    return sorted(there)


def older_after_newer(events: list[k.Event]) -> list[str]:
    """The names of pods of which something older was recorded after something newer."""
    newest: dict[str, float] = {}
    back: list[str] = []
    for event in events:
        if k.seen_or_gone(event, k.PodSeen):
            version = int(event.resource_version) if isinstance(event, k.PodSeen) else float("inf")
            if version < newest.get(event.uid, 0.0):
                back.append(event.name)
            newest[event.uid] = version
    return back


@pytest.mark.parametrize("seed", range(extent(40, soak=400)))
def test_nothing_older_follows_and_nothing_is_missed_or_left_running(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observer, "_COMPARE_S", 2.0)
    monkeypatch.setattr(observer, "_COMPARE_TIMES", 1)
    loop, chance = VirtualLoop(random.Random(seed)), random.Random(seed + 1000)

    def late_s() -> float:
        return chance.choice((0.001, 0.1, 2.0)) if chance.random() < 0.3 else 0.0

    async def whole() -> None:
        clock = SimulatedClock(loop)
        cluster = Shaky(Store(now=loop.time), clock, chance)
        scene = Scene(k.Watched.POD, cluster, clock=clock)
        delay(scene, late_s, late_s)
        async with watching_in(scene):
            cluster.calm = False
            there = await disturb(scene, cluster)
            cluster.down, cluster.calm = False, True
            await asyncio.sleep(100)
            assert scene.names() == there
            assert older_after_newer(await events_of(scene)) == []
            assert missed(scene) == 0
        await asyncio.sleep(0)
        named = [task.get_name() for task in asyncio.all_tasks()]
        assert [name for name in named if name.startswith(("compare-", "changes-", "observe-"))] == []

    finish(loop, whole())


# --- up to when everything is known -----------------------------------------------------------------------------------


@pytest.fixture
def _awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decision waits for the watch of the pods at all times."""
    monkeypatch.setattr(observer, "awaited_ms", lambda *_: 1)


def heard_ms(scene: Scene) -> float:
    return scene.follower.state.heard_ms(k.Watched.POD)


@pytest.mark.usefixtures("_awaited")
def test_a_watch_with_nothing_to_tell_is_heard_within_seconds() -> None:
    async def test(scene: Scene, _: Failing) -> None:
        await scene.create("a")
        await scene.until(lambda: scene.names() == ["a"])
        await asyncio.sleep(30)
        before = heard_ms(scene)
        await asyncio.sleep(5)
        assert heard_ms(scene) > before > 0

    run(test)


@pytest.mark.usefixtures("_awaited")
def test_a_watch_that_misses_a_change_is_not_heard_before_the_log_has_it() -> None:
    async def test(scene: Scene, cluster: Failing) -> None:
        await scene.create("a")
        await scene.until(lambda: scene.names() == ["a"])
        await asyncio.sleep(5)
        cluster.loses = lambda _: True
        await scene.create("b")
        before = heard_ms(scene)
        await asyncio.sleep(20)
        assert scene.names() == ["a"] and heard_ms(scene) == before

    run(test)


@pytest.mark.usefixtures("_awaited")
def test_a_watch_is_not_heard_while_the_log_takes_nothing() -> None:
    async def test(scene: Scene, _: Failing) -> None:
        await scene.create("a")
        await scene.until(lambda: scene.names() == ["a"])
        late_s = 30.0
        delay(scene, lambda: late_s, lambda: 0.0)
        began = len(await events_of(scene))
        await scene.create("b")
        await asyncio.sleep(100)
        told = [event for event in (await events_of(scene))[began:] if isinstance(event, k.PodSeen | k.WatchHeard)]
        after = told.index(next(event for event in told if isinstance(event, k.PodSeen)))
        assert after <= 1, "at most one was under way already"

    run(test)
