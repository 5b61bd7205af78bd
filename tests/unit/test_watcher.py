"""The watcher's term and epoch: whoever holds the lease is heard, whatever others claim or lose."""

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from arranger.clock import Clock, SystemClock
from arranger.errors import WatchSuperseded
from arranger.events import kinds as k
from arranger.events.fence import CLAIM, Fence
from arranger.events.log import Appended
from arranger.kube.cluster import PODS, WatchEvent
from arranger.metrics import Metrics
from arranger.model.faults import Fault, FaultKind
from arranger.model.names import pod_labels
from arranger.model.validation import TYJOB
from arranger.sandbox.direct import DirectCluster
from arranger.sandbox.store import Store
from arranger.workers.log.follower import Follower
from arranger.workers.log.identity import ClusterIdentity
from arranger.workers.log.writer import Writer
from arranger.workers.watching.observed import Translation, ahead_of_log
from arranger.workers.watching.watcher import Watcher
from tests.memory_log import HeldWatch, MemoryHome, MemoryLog
from tests.parts import parts
from tests.world import World

POD = {"metadata": {"namespace": "default"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


class Held:
    """A lease that is held for as long as the test says."""

    def __init__(self) -> None:
        self.ours = True

    async def acquire(self) -> bool:
        return self.ours

    async def release(self) -> None:
        self.ours = False


class Scene:
    """One process's follower and its watcher of pods, on an in-memory log and cluster."""

    def __init__(
        self,
        kind: k.Watched = k.Watched.POD,
        cluster: DirectCluster | None = None,
        *,
        clock: Clock | None = None,
        relist_s: float = 3600,
        home: MemoryHome | None = None,
        identity: ClusterIdentity | None = None,
    ) -> None:
        clock = clock or SystemClock()
        self.kind = kind
        self.cluster = cluster or DirectCluster(Store(now=time.time))
        self.home = home or MemoryHome()
        self.metrics = Metrics(clock)
        self.follower = Follower(MemoryLog(self.home), clock=clock, metrics=self.metrics, reader="test")
        self.stranger = Writer(self.follower, name="stranger", clock=clock, metrics=self.metrics)
        self.lease = Held()
        self.watcher = Watcher(
            kind,
            parts(
                cluster=self.cluster,
                follower=self.follower,
                lease=self.lease,
                clock=clock,
                metrics=self.metrics,
                settings={"lease_s": 0.3, "relist_s": relist_s},
                identity=identity,
            ),
        )

    async def claim(self) -> Appended:
        """Another process takes the watch of pods over."""
        return await self.stranger.append_and_fold(
            [k.WatchClaimed(k.Watched.POD, "stranger")], fence=Fence(k.Watched.POD, CLAIM)
        )

    async def create(self, name: str) -> None:
        await self.cluster.create(PODS, "default", {**POD, "metadata": {"namespace": "default", "name": name}})

    def names(self) -> list[str]:
        return sorted(pod.name for pod in self.follower.state.pods.values())

    async def until(self, holds: Callable[[], bool], *, within_s: float = 20) -> None:
        async with asyncio.timeout(within_s):
            await self.follower.until(lambda _: holds())


@contextlib.asynccontextmanager
async def watching(kind: k.Watched = k.Watched.POD, cluster: DirectCluster | None = None) -> AsyncIterator[Scene]:
    scene = Scene(kind, cluster)
    async with watching_in(scene):
        yield scene


@contextlib.asynccontextmanager
async def watching_in(scene: Scene) -> AsyncIterator[None]:
    await scene.follower.start()
    tasks = [asyncio.create_task(scene.follower.run()), asyncio.create_task(scene.watcher.run())]
    try:
        await scene.until(lambda: bool(scene.follower.state.listed.get(scene.kind) or scene.follower.state.unwatched))
        yield
    finally:
        for task in reversed(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_watch_with_nothing_to_say_notices_a_new_epoch() -> None:
    async with watching() as scene:
        await scene.create("a")
        await scene.until(lambda: scene.names() == ["a"])
        lost = scene.follower.state.epoch
        scene.home.lose_everything()
        await scene.until(lambda: scene.follower.state.epoch != lost and scene.names() == ["a"])
        await scene.create("b")
        await scene.until(lambda: scene.names() == ["a", "b"])


async def test_a_watch_that_is_given_up_is_closed_and_not_left_to_the_garbage_collector() -> None:
    left: list[object] = []
    before = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(finalizer=left.append)
    try:
        async with watching() as scene:
            await scene.create("a")
            await scene.until(lambda: scene.names() == ["a"])
            scene.home.lose_everything()
            await scene.create("b")  # what the watch says of this can't be appended any more
            await scene.until(lambda: scene.names() == ["a", "b"])
    finally:
        sys.set_asyncgen_hooks(*before)
    assert left == []


async def test_the_holder_of_the_lease_claims_again_when_another_claimed_and_left() -> None:
    async with watching() as scene:
        await scene.claim()
        await scene.create("a")
        await scene.until(lambda: scene.names() == ["a"])


async def test_who_has_lost_the_lease_leaves_the_watch_to_the_other() -> None:
    async with watching() as scene:
        scene.lease.ours = False
        claimed = await scene.claim()
        await scene.create("a")
        await asyncio.sleep(0.5)
        assert scene.follower.state.terms[k.Watched.POD] == claimed.first
        assert scene.names() == []


async def test_an_ousted_watchers_append_that_lands_after_the_claim_moves_no_cursor() -> None:
    """What came in it is void, so the next watcher must hear it again."""
    async with watching() as scene:
        term = scene.follower.state.terms[k.Watched.POD]
        scene.lease.ours = False
        await asyncio.sleep(0.5)  # ours has stopped
        await scene.create("missed")
        beyond = (await scene.cluster.get(PODS, "default", "missed"))["metadata"]["resourceVersion"]
        await scene.claim()
        void = k.ObjectGone(k.Watched.POD, term, "default", "nobody", "nobody")
        with pytest.raises(WatchSuperseded):
            await scene.stranger.append_and_fold([void], fence=Fence(k.Watched.POD, term, beyond))
        scene.lease.ours = True
        await scene.until(lambda: scene.names() == ["missed"])


async def test_a_watcher_whose_append_is_refused_stops_its_term_at_once_and_claims_again_with_the_lease() -> None:
    async with watching() as scene:
        term = scene.follower.state.terms[k.Watched.POD]
        # The claim of another is in the log, and this process hasn't folded it yet.
        held = scene.home.watches[k.Watched.POD]
        scene.home.watches[k.Watched.POD] = HeldWatch(term + 1, held.cursor)
        await scene.create("a")
        await scene.until(lambda: scene.names() == ["a"])
        assert scene.follower.state.terms[k.Watched.POD] > term
        assert b'arranger_appends_total{result="superseded"} 1.0' in scene.metrics.exposition()


async def test_a_successor_goes_on_where_the_watcher_before_it_stopped() -> None:
    async with watching() as scene:
        await scene.create("a")
        await scene.until(lambda: scene.names() == ["a"])
        scene.lease.ours = False
        await asyncio.sleep(0.5)
        await scene.create("b")
        scene.lease.ours = True
        await scene.until(lambda: scene.names() == ["a", "b"])
        assert b'reason="first listing"} 1.0' in scene.metrics.exposition()  # no second one


@pytest.mark.parametrize(
    ("shown", "adopts", "ahead"),
    [
        ({"stage": "Pending", "attempt": 0}, False, False),
        ({"stage": "Starting", "attempt": 0}, False, False),
        ({"stage": "Running", "attempt": 0}, False, True),
        ({"stage": "Pending", "attempt": 1}, False, True),
        ({"stage": "Succeeded", "attempt": 0}, False, True),
        ({"stage": "Nonsense", "attempt": 9}, False, False),
        ("nonsense", False, False),
    ],
)
def test_a_status_that_shows_more_than_the_log_holds_is_ahead_of_it(shown: Any, adopts: bool, ahead: bool) -> None:
    world = World()
    world.node("n1")
    job = world.job("j")
    world.cycle()
    world.control()
    item = {"metadata": {"uid": job.uid, "name": "j"}, "status": shown}
    assert job.stage == "Starting"
    assert ahead_of_log(item, world.state, adopts=adopts) == ahead


@pytest.mark.parametrize(("term", "checked"), [(0, False), (1, True)])
def test_only_the_watcher_that_checked_a_spec_relies_on_it(term: int, checked: bool) -> None:
    """After an upgrade, another version may find faults in a TYJob that hasn't changed."""
    world = World()
    job = world.job("j")
    metadata = {"uid": job.uid, "name": "j", "namespace": "default", "generation": job.seen.generation}
    echo = WatchEvent("MODIFIED", {"metadata": metadata, "spec": {}, "status": {"stage": "Pending"}}, "9", 0)
    (event,) = Translation(k.Watched.JOB, job.seen.term + term, TYJOB).news([echo], world.state)
    assert isinstance(event, k.JobSeen) and bool(event.faults) == checked


@pytest.mark.parametrize("adopts", [True, False])
def test_a_job_that_the_log_never_saw_has_a_status_only_if_the_log_lost_its_tail(adopts: bool) -> None:
    item = {"metadata": {"uid": "u", "name": "j"}, "status": {"stage": "Running", "attempt": 0}}
    assert ahead_of_log(item, World().state, adopts=adopts) == (not adopts)


async def test_a_pod_belongs_to_no_job_of_another_namespace_whatever_its_owner_reference_says() -> None:
    """Nobody checks the UID in it: whoever makes pods elsewhere could give the workers a leader of his own."""
    owner = {"apiVersion": "arranger.dev/v1", "kind": "TYJob", "name": "j", "uid": "uid-j", "controller": True}
    labels = pod_labels("j", "learner", leader=True, index=0, attempt=0)
    async with watching() as scene:
        term = (await scene.stranger.append_and_fold([k.WatchClaimed(k.Watched.JOB, "stranger")])).first
        job = k.JobSeen(term, "default", "j", "uid-j", "1", 1, 0, False, None, (Fault("spec", FaultKind.REQUIRED),), "")
        await scene.stranger.append_and_fold([job])
        for namespace in ("kube-public", "default"):
            metadata = {"namespace": namespace, "name": "j-learner-0", "labels": labels, "ownerReferences": [owner]}
            await scene.cluster.create(PODS, namespace, {**POD, "metadata": metadata})
        await scene.until(lambda: len(scene.names()) == 2)
        owned = {pod.namespace: pod.owner is not None for pod in scene.follower.state.pods.values()}
        assert owned == {"kube-public": False, "default": True}
