"""One log, one Kubernetes cluster: who is connected to another neither claims, nor lists, nor applies."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

import pytest

from arranger.events import kinds as k
from arranger.events.fence import CLAIM, Fence
from arranger.kube.cluster import NAMESPACES, PODS, ApiError, ClusterUnavailable, ListPage, Object, Resource
from arranger.model.job import Stage
from arranger.sandbox.direct import DirectCluster
from arranger.sandbox.store import Store
from arranger.workers.log.identity import SYSTEM, ClusterIdentity, ConfirmedCluster, ForeignCluster
from tests.memory_log import MemoryHome
from tests.unit import test_applier as applying
from tests.unit import test_watcher as watching


def a_store(*pods: str) -> Store:
    """A cluster with some strangers' pods."""
    store = Store(now=time.time)
    for name in pods:
        store.create(PODS, "default", {**watching.POD, "metadata": {"namespace": "default", "name": name}})
    return store


def uid_of(store: Store) -> str:
    uid: str = store.get(NAMESPACES, "", SYSTEM).uid
    return uid


class Connection(DirectCluster):
    """A connection at whose other end another API server may come to answer."""

    refused: ApiError | None = None
    #: What happens once a page of a listing has been answered.
    after_page: Callable[[], None] = staticmethod(lambda: None)

    async def listing(self, resource: Resource, **options: Any) -> AsyncGenerator[ListPage, None]:  # type: ignore[override]
        async for page in super().listing(resource, **options):
            self.after_page()
            yield page

    def to(self, store: Store) -> None:
        """From now on another cluster answers."""
        self._store = store

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Object:
        if self.refused is not None:
            raise self.refused
        return await super().get(resource, namespace, name)


class Watching(watching.Scene):
    """A process that watches pods of the cluster that it is connected to, as it finds it out."""

    def __init__(self, store: Store, home: MemoryHome | None = None) -> None:
        self.connection = Connection(store)
        self.identity = ClusterIdentity(self.connection)
        super().__init__(cluster=self.connection, home=home, identity=self.identity)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["Watching"]:
        await self.follower.start()
        tasks = [asyncio.create_task(self.follower.run()), asyncio.create_task(self.watcher.run())]
        try:
            yield self
        finally:
            for task in reversed(tasks):
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def soon(look: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not look():  # noqa: ASYNC110 - what is looked at knows of no event
            await asyncio.sleep(0.01)


# --- what is known ----------------------------------------------------------------------------------------------


async def test_a_cluster_is_known_by_the_uid_of_its_kube_system() -> None:
    store, other = a_store(), a_store()
    identity = ClusterIdentity(DirectCluster(store))
    assert not identity.ours("") and not identity.foreign(uid_of(other)), "not asked yet"
    await identity.ask()
    assert identity.uid == uid_of(store) and identity.ours(""), "a log of nobody may be taken"
    await identity.confirm(uid_of(store))
    assert identity.foreign(uid_of(other)) and not identity.ours(uid_of(other))
    with pytest.raises(ForeignCluster):
        await identity.confirm(uid_of(other))


async def test_who_may_not_ask_is_told_which_right_is_missing() -> None:
    connection = Connection(a_store())
    identity = ClusterIdentity(connection)
    connection.refused = ApiError(403, "Forbidden", "namespaces is forbidden")
    with pytest.raises(ApiError):
        await identity.ask()
    assert "permission to get it is missing" in identity.problem and not identity.ours("")
    connection.refused = None
    await identity.ask()
    assert identity.problem == "" and identity.ours("")


# --- who watches ------------------------------------------------------------------------------------------------


async def test_a_watcher_waits_until_it_knows_its_cluster_and_claims_for_it() -> None:
    store = a_store("a")
    async with Watching(store).running() as scene:
        await asyncio.sleep(0.3)
        assert scene.follower.state.offset == 1
        await scene.identity.ask()
        await scene.until(lambda: scene.names() == ["a"])
        assert scene.follower.state.cluster == uid_of(store)


async def test_a_watcher_of_another_cluster_leaves_the_watch_and_the_log_alone() -> None:
    ours, theirs = a_store("a", "b"), a_store()
    home = MemoryHome()
    async with Watching(ours, home).running() as scene, Watching(theirs, home).running() as stranger:
        await scene.identity.ask()
        await scene.until(lambda: bool(scene.follower.state.listed))
        end = scene.follower.state.offset
        await stranger.until(lambda: stranger.follower.state.offset == end)
        await stranger.identity.ask()
        await asyncio.sleep(0.5)
        assert scene.follower.state.offset == end and scene.names() == ["a", "b"]


async def test_of_two_clusters_that_claim_an_empty_log_at_once_the_first_keeps_it() -> None:
    """The claim of the other sets the fence's term and is void: who is heard claims again."""
    ours, theirs = a_store("a"), a_store()
    async with Watching(ours).running() as scene:
        await scene.identity.ask()
        await scene.until(lambda: scene.names() == ["a"])
        term = scene.follower.state.terms[k.Watched.POD]
        claim = k.WatchClaimed(k.Watched.POD, "stranger", uid_of(theirs))
        await scene.stranger.append_and_fold([claim], fence=Fence(k.Watched.POD, CLAIM))
        assert scene.follower.state.terms[k.Watched.POD] == term
        await scene.create("b")
        await scene.until(lambda: scene.names() == ["a", "b"])
        assert scene.follower.state.terms[k.Watched.POD] > term and scene.follower.state.cluster == uid_of(ours)


async def test_the_cursor_of_another_clusters_void_claim_is_not_gone_on_from() -> None:
    """The log's fence knows no clusters: it hands the stranger's cursor to who claims the watch after the stranger."""
    ours, theirs = a_store("a"), a_store()
    async with Watching(ours).running() as scene:
        await scene.identity.ask()
        await scene.until(lambda: scene.names() == ["a"])
        claim = k.WatchClaimed(k.Watched.POD, "stranger", uid_of(theirs))
        claimed = await scene.stranger.append_and_fold([claim], fence=Fence(k.Watched.POD, CLAIM))
        gone = k.ObjectGone(k.Watched.POD, claimed.first, "default", "c", "c")
        fence = Fence(k.Watched.POD, claimed.first, f"{uid_of(theirs)}/999999")
        await scene.stranger.append_and_fold([gone], fence=fence)
        await scene.create("b")
        await scene.create("d")
        await scene.until(lambda: scene.names() == ["a", "b", "d"])
        assert scene.home.watches[k.Watched.POD].cursor.startswith(uid_of(ours))


async def test_a_watcher_whose_claim_comes_second_gives_the_lease_back() -> None:
    ours, theirs = a_store("a"), a_store()
    async with Watching(theirs).running() as scene:
        claim = k.WatchClaimed(k.Watched.POD, "stranger", uid_of(ours))
        appending = scene.watcher._writer.append_and_fold

        async def second(*events: object, **options: object) -> object:
            scene.watcher._writer.append_and_fold = appending  # type: ignore[method-assign]
            await scene.stranger.append_and_fold([claim], fence=Fence(k.Watched.POD, CLAIM))
            return await appending(*events, **options)  # type: ignore[arg-type]

        scene.watcher._writer.append_and_fold = second  # type: ignore[method-assign, assignment]
        await scene.identity.ask()
        await soon(lambda: not scene.lease.ours)
        assert scene.follower.state.cluster == uid_of(ours)
        assert scene.follower.state.terms[k.Watched.POD] == 2 and not scene.follower.state.listed


async def test_a_new_log_that_names_no_cluster_is_not_claimed_for_another_one_that_has_come_to_answer() -> None:
    """The log was emptied, and a process that knew nothing of it began it again."""
    ours, theirs = a_store("a"), a_store()
    scene = Watching(theirs)
    await scene.follower.start()
    scene.follower.cluster = uid_of(ours)
    await scene.identity.ask()
    await asyncio.wait_for(scene.watcher._active(), 20)
    assert not scene.follower.state.terms and not scene.follower.state.cluster


async def test_when_another_cluster_answers_at_the_address_nothing_of_ours_is_gone() -> None:
    ours, theirs = a_store("a", "b"), a_store("c")
    async with Watching(ours).running() as scene:
        await scene.identity.ask()
        await scene.until(lambda: scene.names() == ["a", "b"])
        scene.connection.to(theirs)
        scene.home.lose_everything()  # a new epoch: everything is listed again
        await soon(lambda: not scene.lease.ours)
        assert scene.names() == [] and not scene.follower.state.listed
        scene.connection.to(ours)
        await scene.identity.ask()
        scene.lease.ours = True
        await scene.until(lambda: scene.names() == ["a", "b"])
        assert scene.follower.state.cluster == uid_of(ours), "the epoch was begun for the same cluster"


async def test_a_listing_that_another_cluster_answered_has_no_end() -> None:
    ours, theirs = a_store("a", "b"), a_store("c")
    connection = Connection(ours)
    identity = ClusterIdentity(connection)
    confirmed = ConfirmedCluster(connection, identity, lambda: uid_of(ours))
    pages = confirmed.listing(PODS, limit=1)
    assert [item["metadata"]["name"] for item in (await anext(pages)).items] == ["a"]
    connection.after_page = lambda: connection.to(theirs)  # whether it or the page came first nobody knows
    with pytest.raises(ForeignCluster):
        await anext(pages)
    with pytest.raises(ForeignCluster):
        await anext(confirmed.watch(PODS, "1"))
    connection.refused = ApiError(403, "Forbidden", "namespaces is forbidden")
    with pytest.raises(ClusterUnavailable):
        await anext(confirmed.listing(PODS))


# --- who applies ------------------------------------------------------------------------------------------------


async def test_nothing_is_applied_at_another_cluster_than_the_logs() -> None:
    scene = applying.Scene()
    scene.parts.identity = identity = ClusterIdentity(scene.cluster)
    scene.world.state.cluster = uid_of(scene.store)
    scene.world.cycle()
    scene.decide(Stage.STARTING)
    async with scene.running():
        await asyncio.sleep(0.3)
        assert scene.stored_stage() == "" and scene.pods() == [], "it isn't known which cluster this is"
        identity.uid = "uid-of-another"
        await asyncio.sleep(0.3)
        assert scene.stored_stage() == "" and scene.pods() == []
        await identity.ask()
        await applying.until(lambda: len(scene.pods()) == 1)


async def test_what_another_cluster_refuses_is_not_told_of_the_job() -> None:
    scene = applying.Scene()
    scene.parts.identity = identity = ClusterIdentity(scene.cluster)
    scene.world.state.cluster = "uid-of-another"
    assert not identity.uid
    with pytest.raises(ForeignCluster):
        await scene.applier._pods.creation.refused(
            scene.look(), (0, 0), ApiError(422, "Invalid", "another's admission")
        )


async def test_an_effect_that_waited_for_its_turn_is_given_up_at_another_cluster() -> None:
    scene = applying.Scene()
    scene.parts.identity = identity = ClusterIdentity(scene.cluster)
    await identity.ask()
    scene.world.state.cluster = "uid-of-another"

    async def effect() -> bool:
        raise AssertionError("it was carried out")

    with pytest.raises(ForeignCluster):
        await scene.applier._effects.carry_out("delete", "default", effect)
