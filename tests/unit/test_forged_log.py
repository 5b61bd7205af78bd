"""Forged entries under the current term, in a log that an applier follows, delete no pod that isn't the job's.

Without a key in the log nobody can tell a forged entry from a true one. So before the applier deletes a pod, it reads
from the API server whose pod it is.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest

from arranger.clock import SystemClock
from arranger.events import kinds as k
from arranger.events.log import Log
from arranger.events.redis_log import RedisLog
from arranger.kube.cluster import PODS, TYJOBS, ApiError, Object
from arranger.kube.translate import job_seen, node_seen, pod_seen
from arranger.metrics import Metrics
from arranger.model.job import Stage
from arranger.model.names import pod_labels
from arranger.model.pod import PodOwner
from arranger.model.stages import StageReason
from arranger.projections.state import Changes
from arranger.sandbox.direct import DirectCluster
from arranger.workers.applying.applier import Applier
from arranger.workers.flow.cancelling import end
from arranger.workers.log.follower import Follower
from tests.memory_log import MemoryHome, MemoryLog
from tests.parts import parts
from tests.servers import RealRedis
from tests.stores import store_of_jobs
from tests.unit.test_applier import JOB, Everyone

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(autouse=True)
def _late_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kubernetes has no time to delete what jobs left behind."""
    monkeypatch.setattr("arranger.workers.applying.pods.pod_reconciler._COLLECTED_S", 0.0)


class Scene:
    """A log with an applier that follows it, a cluster, and someone who appends what he likes."""

    def __init__(self, log: Log) -> None:
        clock = SystemClock()
        self.store = store_of_jobs(time.time)
        self.log = log
        self.cluster = DirectCluster(self.store)
        self.follower = Follower(log, clock=clock, metrics=Metrics(clock), reader="test")
        self.applier = Applier(
            parts(cluster=self.cluster, follower=self.follower, membership=Everyone(), settings={"api_in_flight": 8})
        )
        self.terms: dict[k.Watched, int] = {}
        self._seq = 0

    async def append(self, *events: k.Event) -> int:
        """Append past every rule of Arranger's, and wait until it is folded; answers the first offset."""
        self._seq += 1
        batch = k.Batch("forger", self._seq, time.time_ns() // 1_000_000, events)
        appended = await self.log.append(batch, epoch=self.follower.state.epoch)
        assert await self.follower.folded(self.follower.state.epoch, appended.last)
        return appended.first

    async def begin(self) -> str:
        """Claims, a node and a running TYJob with its leader's pod, all listed; answers the TYJob's UID."""
        for kind in k.Watched:
            self.terms[kind] = await self.append(k.WatchClaimed(kind, "w"))
        job = self.store.create(TYJOBS, "default", msgspec.json.decode(msgspec.json.encode(JOB))).stored.uid
        node = {"metadata": {"name": "n1", "uid": "n1"}, "spec": {}, "status": {"allocatable": {"cpu": "8"}}}
        await self.append(node_seen(node, self.terms[k.Watched.NODE]))
        self.pod("j-learner-0", job=job)
        await self.see("j-learner-0")
        status = {"stage": "Running", "attempt": 0, "scheduleState": "ScheduledSucceed", "leaderAddress": "10.0.0.1"}
        self.store.patch(TYJOBS, "default", "j", {"status": status}, subresource="status")
        await self.append(job_seen(self.live(TYJOBS, "default", "j"), self.terms[k.Watched.JOB], with_status=True))
        await self.append(*(k.ListingEnded(kind, self.terms[kind], "1") for kind in k.Watched))
        return job

    def live(self, resource: Any, namespace: str, name: str) -> Object:
        found: Object = msgspec.json.decode(self.store.get(resource, namespace, name).raw)
        return found

    def pod(self, name: str, *, namespace: str = "default", job: str = "", attempt: int = 0) -> str:
        """Create a pod, of a job if one is given; answers its UID."""
        metadata: Object = {"name": name, "namespace": namespace}
        if job:
            owner = {"apiVersion": "arranger.dev/v1", "kind": "TYJob", "name": "j", "uid": job, "controller": True}
            labels = pod_labels("j", "learner", leader=True, index=0, attempt=attempt)
            metadata |= {"labels": labels, "ownerReferences": [owner]}
        body = {"metadata": metadata, "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]}}
        return self.store.create(PODS, namespace, body).stored.uid

    async def see(self, name: str, namespace: str = "default", **forged: Any) -> None:
        """See a live pod, with some things changed."""
        seen = pod_seen(self.live(PODS, namespace, name), self.terms[k.Watched.POD])
        await self.append(msgspec.structs.replace(seen, **forged))

    def stands(self, name: str, namespace: str = "default") -> bool:
        """Whether a pod is there and nobody has told it to go."""
        try:
            return "deletionTimestamp" not in self.live(PODS, namespace, name)["metadata"]
        except ApiError:
            return False

    async def until(self, look: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not look():  # noqa: ASYNC110 - what is looked at knows of no event
                await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def applying(log: Log) -> AsyncIterator[Scene]:
    scene = Scene(log)
    await scene.follower.start()
    scene.follower.listen(scene.applier)
    tasks = [asyncio.create_task(scene.follower.run()), asyncio.create_task(scene.applier.run())]
    try:
        yield scene
    finally:
        await end(reversed(tasks))
        await log.close()


async def forge_everything(scene: Scene) -> None:
    """One forged entry after the other; then a true one, whose pod has to go."""
    job = await scene.begin()
    owner = PodOwner(job, 0, "learner", True, 0)
    victims = {"kube-system": "dns", "default": "j-learner-0-r7", "kube-public": "j-learner-0"}
    for namespace, name in victims.items():
        scene.pod(name, namespace=namespace)
    # Orphans of a job that never was, in any namespace.
    await scene.see("dns", "kube-system", owner=msgspec.structs.replace(owner, job_uid="never"))
    # A pod of another namespace, and one under a slot's name whose owner is nobody: both of an earlier attempt.
    await scene.see("j-learner-0", "kube-public", owner=owner)
    await scene.see("j-learner-0-r7", owner=msgspec.structs.replace(owner, attempt=7))
    # On a node that is gone, they would go by force.
    await scene.append(k.ObjectGone(k.Watched.NODE, scene.terms[k.Watched.NODE], "", "n1", "n1"))
    # The job is said to have gone, so that its own pods look left behind.
    await scene.append(k.ObjectGone(k.Watched.JOB, scene.terms[k.Watched.JOB], "default", "j", job))
    await scene.until(lambda: job in scene.applier._progress)
    await asyncio.sleep(0.3)
    assert [scene.stands(name, namespace) for namespace, name in victims.items()] == [True] * 3
    assert scene.stands("j-learner-0")
    # And it has ended, and is to be kept for no time: its spec asks for no such thing.
    seen = job_seen(scene.live(TYJOBS, "default", "j"), scene.terms[k.Watched.JOB], with_status=True)
    assert seen.spec is not None
    await scene.append(msgspec.structs.replace(seen, spec=msgspec.structs.replace(seen.spec, ttl_s=0)))
    version = scene.follower.state.jobs[job].version
    await scene.append(k.StageDecided(job, version, 0, Stage.SUCCEEDED, StageReason.AS_RECORDED))
    await scene.until(lambda: scene.live(TYJOBS, "default", "j")["status"]["stage"] == "Succeeded")
    seen = job_seen(scene.live(TYJOBS, "default", "j"), scene.terms[k.Watched.JOB], with_status=True)
    assert seen.spec is not None
    await scene.append(msgspec.structs.replace(seen, spec=msgspec.structs.replace(seen.spec, ttl_s=0)))
    await scene.until(lambda: not scene.stands("j-learner-0"))  # the job's own pod, as its status says
    await asyncio.sleep(0.3)
    assert scene.live(TYJOBS, "default", "j")["metadata"]["uid"] == job
    assert [scene.stands(name, namespace) for namespace, name in victims.items()] == [True] * 3


async def test_forged_entries_delete_no_pod_of_others_in_memory() -> None:
    async with applying(MemoryLog(MemoryHome())) as scene:
        await forge_everything(scene)


async def test_forged_entries_delete_no_pod_of_others_on_a_real_redis(redis_server: RealRedis, cluster: str) -> None:
    async with applying(RedisLog(redis_server.url, cluster)) as scene:
        await forge_everything(scene)


async def test_pods_that_a_deleted_job_left_behind_go() -> None:
    async with applying(MemoryLog(MemoryHome())) as scene:
        job = await scene.begin()
        scene.store.patch(PODS, "default", "j-learner-0", {"metadata": {"finalizers": ["a.b/c"]}})
        scene.store.collection(TYJOBS).objects.pop(("default", "j"))  # and no collector looks after its pods
        await scene.append(k.ObjectGone(k.Watched.JOB, scene.terms[k.Watched.JOB], "default", "j", job))
        await scene.until(lambda: not scene.stands("j-learner-0"))


async def test_a_pod_that_changes_while_it_is_read_is_deleted_all_the_same() -> None:
    async with applying(MemoryLog(MemoryHome())) as scene:
        job = await scene.begin()
        delete, changes = scene.cluster.delete, 0

        async def late(*arguments: Any, **options: Any) -> None:
            nonlocal changes
            changes += 1
            if changes < 3:
                scene.store.patch(PODS, "default", "j-learner-0", {"metadata": {"annotations": {"n": str(changes)}}})
            await delete(*arguments, **options)

        scene.cluster.delete = late  # type: ignore[method-assign]
        version = scene.follower.state.jobs[job].version
        await scene.append(k.StageDecided(job, version, 0, Stage.SUCCEEDED, StageReason.AS_RECORDED))
        await scene.until(lambda: not scene.stands("j-learner-0"))
        assert changes == 3


async def test_pods_of_a_deleted_job_are_left_to_kubernetes_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arranger.workers.applying.pods.pod_reconciler._COLLECTED_S", 3600.0)
    async with applying(MemoryLog(MemoryHome())) as scene:
        job = await scene.begin()
        scene.store.collection(TYJOBS).objects.pop(("default", "j"))
        await scene.append(k.ObjectGone(k.Watched.JOB, scene.terms[k.Watched.JOB], "default", "j", job))
        await scene.until(lambda: scene.applier._progress[job].orphaned_s is not None)
        assert scene.stands("j-learner-0")
        monkeypatch.setattr("arranger.workers.applying.pods.pod_reconciler._COLLECTED_S", 0.0)
        scene.applier.changed(Changes(jobs={job: None}))
        await scene.until(lambda: not scene.stands("j-learner-0"))


async def test_a_pod_whose_job_is_seen_while_its_owner_is_read_is_not_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arranger.workers.applying.pods.pod_reconciler._COLLECTED_S", 0.0)
    async with applying(MemoryLog(MemoryHome())) as scene:
        job = await scene.begin()
        seen = scene.follower.state.jobs[job].seen
        scene.store.collection(TYJOBS).objects.pop(("default", "j"))
        get, read = scene.cluster.get, asyncio.Event()

        async def late(resource: Any, namespace: str, name: str) -> Object:
            found = await get(resource, namespace, name)
            if resource == PODS:  # the TYJob's watch was later than that of the pods, and tells it now
                await scene.append(msgspec.structs.replace(seen, term=scene.terms[k.Watched.JOB]))
                read.set()
            return found

        scene.cluster.get = late  # type: ignore[method-assign]
        await scene.append(k.ObjectGone(k.Watched.JOB, scene.terms[k.Watched.JOB], "default", "j", job))
        await asyncio.wait_for(read.wait(), 20)
        await asyncio.sleep(0.1)
        assert scene.stands("j-learner-0") and job in scene.follower.state.jobs
