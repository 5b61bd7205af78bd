"""What a watch has missed is noticed by comparing, within a minute, and a comparison that finds nothing costs nothing.

On a virtual clock: a test takes as long as its events, not as long as it says.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

import pytest

from arranger.events import kinds as k
from arranger.events.log import entries
from arranger.kube.cluster import PODS, ClusterUnavailable, ListPage, Resource, WatchEvent, always
from arranger.sandbox.direct import DirectCluster
from arranger.sandbox.store import Store
from arranger.workers.watching import observer
from tests.memory_log import HeldWatch
from tests.simulation.loop import SimulatedClock, VirtualLoop
from tests.unit.test_watcher import Scene, watching_in

#: A listing beside the watch is due every minute at the latest, while listing takes little time.
MINUTE_S = 61.0


class Losing(DirectCluster):
    """Loses the changes of which `loses` says so, lists as slowly as `takes_s`, and breaks watches when told to. Counts
    both."""

    takes_s = 0.0
    loses: Callable[[WatchEvent], bool] = staticmethod(lambda _: False)
    breaks = False
    #: Whether watches are accepted, bring nothing, and break for that after 90 s, behind a proxy that keeps all back.
    deaf = False
    #: Whether no watch is accepted.
    away = False
    listings = watches = 0

    async def listing(self, resource: Resource, *, limit: int = 500, at: str = "") -> AsyncGenerator[ListPage, None]:
        self.listings += 1
        await asyncio.sleep(self.takes_s)
        async with aclosing(super().listing(resource, limit=limit, at=at)) as pages:
            async for page in pages:
                yield page

    async def watch(
        self,
        resource: Resource,
        resource_version: str,
        *,
        timeout_s: float = 300.0,
        accepted: Callable[[], object] = always,
    ) -> AsyncGenerator[list[WatchEvent], None]:
        self.watches += 1
        if self.away:
            raise ClusterUnavailable("connection refused")
        if self.deaf:
            accepted()
            await asyncio.sleep(90)
            raise ClusterUnavailable("no answer in time")
        async with aclosing(
            super().watch(resource, resource_version, timeout_s=timeout_s, accepted=accepted)
        ) as batches:
            async for batch in batches:
                if kept := [change for change in batch if not self.loses(change)]:
                    yield kept
                if self.breaks:
                    self.breaks = False
                    raise ClusterUnavailable("the connection was reset")


def run(test: Callable[[Scene, Losing], Awaitable[None]], *, relist_s: int = 3600) -> None:
    """Run a test beside a watcher, in virtual time."""
    loop = VirtualLoop(random.Random(1))
    clock = SimulatedClock(loop)

    async def whole() -> None:
        cluster = Losing(Store(now=loop.time), clock=clock)
        scene = Scene(k.Watched.POD, cluster, clock=clock, relist_s=relist_s)
        async with watching_in(scene):
            await test(scene, cluster)

    try:
        loop.run_until_complete(whole())
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()


def lost_names(*names: str) -> Callable[[WatchEvent], bool]:
    return lambda change: change.type != "BOOKMARK" and change.object["metadata"]["name"] in names


async def events_of(scene: Scene) -> list[k.Event]:
    log = scene.follower.log
    return [event async for entry in entries(log, await log.start()) for event in entry.batch.events]


def missed(scene: Scene) -> float:
    return scene.metrics.registry.get_sample_value("arranger_missed_observations_total", {"kind": "pod"}) or 0.0


def test_an_observation_that_was_lost_is_made_up_for_within_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    async def test(scene: Scene, cluster: Losing) -> None:
        await scene.create("stays")
        await scene.create("goes")
        await scene.until(lambda: scene.names() == ["goes", "stays"])
        cluster.loses = lost_names("lost", "goes")
        await scene.create("lost")
        await cluster.delete(PODS, "default", "goes")
        await scene.create("heard")
        began_s = asyncio.get_running_loop().time()
        await scene.until(lambda: scene.names() == ["heard", "lost", "stays"], within_s=MINUTE_S)
        assert asyncio.get_running_loop().time() - began_s > 1  # not by the watch
        await asyncio.sleep(1)
        assert missed(scene) == 2

    run(test)
    told = [
        record for record in caplog.records if record.getMessage() == "a comparison found what the watch had missed"
    ]
    assert [record.levelname for record in told] == ["WARNING"]


def test_a_broken_watch_is_no_problem_once_it_is_accepted_again_though_nothing_changes() -> None:
    async def test(scene: Scene, cluster: Losing) -> None:
        cluster.breaks = True
        await scene.create("a")
        while not scene.watcher.problem:  # noqa: ASYNC110  # virtual time
            await asyncio.sleep(0.01)
        before = cluster.watches
        while cluster.watches == before:  # noqa: ASYNC110  # virtual time
            await asyncio.sleep(0.1)
        await asyncio.sleep(0.1)
        assert scene.watcher.problem == ""

    run(test)


def test_a_watch_that_is_accepted_again_and_again_and_brings_nothing_is_silent() -> None:
    async def test(scene: Scene, cluster: Losing) -> None:
        cluster.deaf = cluster.breaks = True
        cluster.takes_s = 5000.0  # no comparison hears anything either
        await scene.create("a")  # which ends the watch that was open before
        await asyncio.sleep(1000)
        assert (scene.metrics.heard_age_s(k.Watched.POD) or 0) > 800

    run(test)


def test_a_watch_that_is_accepted_after_the_api_server_was_away_has_been_heard() -> None:
    async def test(scene: Scene, cluster: Losing) -> None:
        cluster.away = cluster.breaks = True
        cluster.takes_s = 5000.0
        await scene.create("a")
        await asyncio.sleep(1000)
        assert (scene.metrics.heard_age_s(k.Watched.POD) or 0) > 800
        cluster.away, before = False, cluster.watches
        while cluster.watches == before:  # noqa: ASYNC110  # virtual time
            await asyncio.sleep(0.1)
        await asyncio.sleep(0.1)
        assert (scene.metrics.heard_age_s(k.Watched.POD) or 0) < 1
        assert scene.watcher.problem == ""

    run(test)


def test_after_listings_that_took_minutes_a_watch_is_made_sure_of_again_within_half_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(observer, "awaited_ms", lambda *_: 1)  # a decision always waits

    async def heard(scene: Scene) -> int:
        return sum(isinstance(event, k.WatchHeard) for event in await events_of(scene))

    async def test(scene: Scene, cluster: Losing) -> None:
        await asyncio.sleep(60)
        assert await heard(scene) > 10, "each few seconds, while the API server answers at once"
        cluster.takes_s = 300.0
        await asyncio.sleep(1000)
        cluster.takes_s = 0.0
        await asyncio.sleep(301)  # the last slow one ends
        before = await heard(scene)
        await asyncio.sleep(32)
        assert await heard(scene) > before

    run(test)


def test_whoever_has_lost_the_lease_has_no_problem_with_a_watch() -> None:
    async def test(scene: Scene, cluster: Losing) -> None:
        scene.watcher.problem = "the connection was reset"
        scene.lease.ours = False
        await asyncio.sleep(1)
        assert scene.watcher.problem == ""

    run(test)


def test_a_cursor_that_stands_behind_what_nobody_recorded_is_made_up_for_within_a_minute() -> None:
    async def test(scene: Scene, cluster: Losing) -> None:
        await scene.create("a")
        await scene.until(lambda: scene.names() == ["a"])
        scene.lease.ours = False
        await asyncio.sleep(1)  # nobody watches
        await scene.create("missed")
        beyond = (await cluster.get(PODS, "default", "missed"))["metadata"]["resourceVersion"]
        held = scene.home.watches[k.Watched.POD]
        scene.home.watches[k.Watched.POD] = HeldWatch(held.term, beyond)
        scene.lease.ours = True
        await scene.until(lambda: scene.names() == ["a", "missed"], within_s=MINUTE_S)

    run(test)


@pytest.mark.parametrize("takes_s", [0.0, 7.0])
def test_comparing_a_cluster_that_changes_all_the_time_finds_nothing_and_costs_the_log_nothing(takes_s: float) -> None:
    async def test(scene: Scene, cluster: Losing) -> None:
        cluster.takes_s = takes_s
        began = len(await events_of(scene))
        for number in range(900):
            await scene.create(f"p{number}")
            await asyncio.sleep(0.5)
            if number >= 3:
                await cluster.delete(PODS, "default", f"p{number - 3}")
        assert cluster.listings >= (7 if not takes_s else 2)
        await asyncio.sleep(1 + takes_s)
        of = [type(event) for event in (await events_of(scene))[began:]]
        assert set(of) == {k.PodSeen, k.ObjectGone}
        assert (of.count(k.PodSeen), of.count(k.ObjectGone)) == (900 + 897, 897)  # each tells that it goes
        assert missed(scene) == 0

    run(test)


def test_a_comparison_that_takes_long_delays_no_observation_and_finds_what_was_lost_before_it() -> None:
    async def test(scene: Scene, cluster: Losing) -> None:
        for name in ("stays", "goes", "changes"):
            await scene.create(name)
        await scene.until(lambda: len(scene.names()) == 3)
        cluster.loses = lost_names("lost")
        await scene.create("lost")
        await scene.create("heard")
        await scene.until(lambda: "heard" in scene.names())
        before, cluster.takes_s = cluster.listings, 30.0
        while cluster.listings == before:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(1)
        await scene.create("new")
        await cluster.delete(PODS, "default", "goes")
        await cluster.patch(PODS, "default", "changes", {"metadata": {"labels": {"a": "b"}}})
        began_s = asyncio.get_running_loop().time()
        await scene.until(lambda: scene.names() == ["changes", "heard", "new", "stays"], within_s=5)
        await scene.until(lambda: "lost" in scene.names(), within_s=40)
        assert asyncio.get_running_loop().time() - began_s > 20
        await asyncio.sleep(2)  # a page is followed by a rest
        assert scene.names() == ["changes", "heard", "lost", "new", "stays"] and missed(scene) == 1

    run(test)


def test_a_quiet_cluster_is_compared_and_the_log_holds_no_more_for_it() -> None:
    async def test(scene: Scene, cluster: Losing) -> None:
        await scene.create("a")
        await scene.until(lambda: scene.names() == ["a"])
        end = await scene.follower.log.end()
        await asyncio.sleep(600)
        assert cluster.listings >= 9
        assert await scene.follower.log.end() == end

    run(test)


@pytest.mark.parametrize(
    ("takes_s", "relist_s", "least", "most"), [(0, 3600, 28, 30), (1.5, 3600, 5, 6), (6, 100, 17, 18)]
)
def test_comparing_takes_little_of_the_time_and_no_longer_than_the_setting_between_two(
    takes_s: float, relist_s: int, least: int, most: int
) -> None:
    async def test(scene: Scene, cluster: Losing) -> None:
        cluster.listings = 0
        cluster.takes_s = takes_s
        await asyncio.sleep(1800)
        assert least <= cluster.listings <= most

    run(test, relist_s=relist_s)


def test_a_comparison_of_what_the_server_has_forgotten_is_a_listing() -> None:
    async def test(scene: Scene, cluster: Losing) -> None:
        await scene.create("a")
        await scene.until(lambda: scene.names() == ["a"])
        cluster.loses = lambda _: True  # bookmarks too: the watch doesn't get ahead
        await scene.create("b")
        cluster._store.compact()
        await scene.until(lambda: scene.names() == ["a", "b"], within_s=MINUTE_S)
        assert missed(scene) == 0  # it may have been on its way

    run(test)


def test_a_watch_that_breaks_off_goes_on_where_it_was() -> None:
    """Older changes heard again would take the projection back, and show jobs that have gone meanwhile."""

    async def test(scene: Scene, cluster: Losing) -> None:
        for name in ("a", "b"):
            await scene.create(name)
            await scene.until(lambda name=name: name in scene.names())  # type: ignore[misc]
        await cluster.delete(PODS, "default", "a")
        await scene.until(lambda: scene.names() == ["b"])
        began = len(await events_of(scene))
        cluster.breaks = True
        await scene.create("c")
        await scene.until(lambda: scene.names() == ["b", "c"])
        await scene.create("d")
        await scene.until(lambda: scene.names() == ["b", "c", "d"])
        seen = [event.name for event in (await events_of(scene))[began:] if k.seen_or_gone(event, k.PodSeen)]
        assert seen == ["c", "d"]

    run(test)


def test_who_takes_over_in_the_middle_of_a_listing_lists_again() -> None:
    """Its pages are ahead of the cursor: going on from that would take the projection back."""

    async def test(scene: Scene, cluster: Losing) -> None:
        await scene.create("a")
        await scene.until(lambda: scene.names() == ["a"])
        cluster.loses = lambda _: True
        cluster.takes_s = 1.0  # long enough for somebody to come into the middle of it
        await scene.create("b")
        cluster._store.compact()
        await scene.until(lambda: scene.home.watches[k.Watched.POD].cursor == "-", within_s=MINUTE_S)
        listings = cluster.listings
        await scene.claim()
        await scene.until(lambda: scene.names() == ["a", "b"])
        assert cluster.listings > listings

    run(test)
