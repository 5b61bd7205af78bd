"""The whole life of a large job next to those of small ones: what a worker costs those who decide and apply.

The product's own follower, controller and applier on a virtual clock, with the log in memory and a cluster that keeps
nothing and answers in 60 ms. Kubelets and a watcher are played: each created pod is seen Pending, then Running and
ready, about a thousand of them a second; the leader succeeds, the pods are deleted and gone. What is played, the
scheduling cycle (see `cycle`) among it, isn't counted; all else is, the event loop included.
"""

import asyncio
import gc
import random
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec
import redis.asyncio

from arranger.events import kinds as k
from arranger.kube.cluster import PODS, TYJOB_STATUSES, TYJOBS, Object, Resource
from arranger.kube.translate import job_seen
from arranger.metrics import Metrics
from arranger.model.config import CycleConfig
from arranger.model.job import Stage
from arranger.model.pod import PodOwner
from arranger.projections.state import Changes
from arranger.scheduling.cycle import VERSIONS, take_cycle
from arranger.workers.applying.applier import Applier
from arranger.workers.deciding.controller import Controller
from arranger.workers.flow.cancelling import end
from arranger.workers.log.follower import Follower
from arranger.workers.members.membership import Membership
from benchmarks.parts import tyjob
from benchmarks.report import Figure
from benchmarks.workload import History
from tests.memory_log import MemoryLog
from tests.parts import parts
from tests.simulation.loop import SimulatedClock, VirtualLoop

#: With this many requests in flight, each answered after so long, a thousand pods a second are created.
_IN_FLIGHT, _ANSWER_S = 64, 0.06
_START_S = 0.05
#: A watcher appends what has come in so long together.
_GATHER_S = 0.01
_LIMIT_S = 600.0


def run(*, quick: bool) -> list[Figure]:
    """The benchmark."""
    workers, small = (100, 20) if quick else (5_000, 500)
    one_s = live(1, workers)
    few_s = live(small, 1) / small
    return [
        Figure(name=f"a job of 1+{workers:,}, whole life", value=one_s, unit="s", note="follow, decide, apply"),
        Figure(name="  a worker", value=1e6 * one_s / workers, unit="µs"),
        Figure(name="a job of 1+1, whole life", value=1e6 * few_s, unit="µs", note=f"mean of {small} at once"),
        Figure(name="ratio of one large to as many small", value=one_s / (workers * few_s), at_most=1.0),
    ]


def live(jobs: int, workers: int) -> float:
    """Seconds of the thread that so many jobs take from their TYJobs to their last pod's end."""
    loop = VirtualLoop(random.Random(1))
    scene = _Scene(loop, jobs, workers)
    gc.collect()
    began_s = time.thread_time()
    try:
        loop.run_until_complete(scene.run())
    finally:
        loop.close()
    return time.thread_time() - began_s - scene.played_s


class _Scene:
    """The product's parts, and everything around them played."""

    def __init__(self, loop: VirtualLoop, jobs: int, workers: int) -> None:
        self._clock = SimulatedClock(loop)
        self._log = MemoryLog()
        self.played_s = 0.0
        self._objects = {f"uid-{number}": _object(number, workers) for number in range(jobs)}
        self._workers = workers
        self._terms: dict[str, int] = {}
        self._seq = 0
        self._seen: deque[k.Event] = deque()
        #: UID of each pod that is there, with its last sighting; and how many of each job run.
        self._pods: dict[str, k.PodSeen] = {}
        self._running: dict[str, int] = {}
        #: UID of a job → its leader's pod.
        self._leaders: dict[str, str] = {}
        self._finished: set[str] = set()

    @contextmanager
    def _played(self) -> Iterator[None]:
        began_s = time.thread_time()
        try:
            yield
        finally:
            self.played_s += time.thread_time() - began_s

    async def run(self) -> None:
        """Live all the jobs to their end."""
        metrics = Metrics(self._clock)
        follower = self._follower = Follower(self._log, clock=self._clock, metrics=metrics, reader="all")
        await follower.start()
        one = Membership(
            redis.asyncio.Redis(),
            cluster="default",
            member_id="one",
            roles=("controller", "applier"),
            clock=self._clock,
        )  # it never asks
        known = parts(
            cluster=_Cluster(self), follower=follower, membership=one, clock=self._clock, metrics=metrics,
            settings={"api_in_flight": _IN_FLIGHT},
        )  # fmt: skip
        controller, applier = Controller(known), Applier(known)
        for role in (controller, applier, self):
            follower.listen(role)
        with self._played():
            await self._begin()
        tasks = [asyncio.create_task(work) for work in (follower.run(), controller.run(), applier.run(), self._watch())]
        async with asyncio.timeout(_LIMIT_S):
            await follower.until(lambda state: len(self._finished) == len(self._objects) and not state.pods)
        await end(tasks)

    # --- what is played ------------------------------------------------------------------------------------

    async def _begin(self) -> None:
        """Nodes, TYJobs, and the cycle that places them all."""
        history = History()
        history.nodes(max(1, len(self._objects) * (1 + self._workers) // 100 + 1))
        self._terms = history.terms
        history.say(*(job_seen(one, self._terms[k.Watched.JOB], with_status=True) for one in self._objects.values()))
        history.listed()
        config = CycleConfig(versions=VERSIONS)
        history.say(*take_cycle(history.state(), config, self._clock.now_ms()))
        for batch in history.batches[1:]:
            await self._append(*batch.events)

    async def _append(self, *events: k.Event) -> None:
        self._seq += 1
        await self._log.append(k.Batch("outside", self._seq, self._clock.now_ms(), events), epoch=1)

    async def _watch(self) -> None:
        while True:
            await self._clock.sleep(_GATHER_S)
            with self._played():
                if self._seen:
                    await self._append(*self._seen)
                    self._seen.clear()

    def changed(self, changes: Changes) -> None:
        """The leader's program ends well once its job runs and all workers are there."""
        with self._played():
            for uid in changes.jobs:
                job = self._follower.state.jobs.get(uid)
                whole = job is not None and job.stage == Stage.RUNNING and self._running[uid] == 1 + self._workers
                if whole and uid not in self._finished:
                    self._finished.add(uid)
                    self._seen.append(msgspec.structs.replace(self._pods[self._leaders[uid]], phase="Succeeded"))

    def epoch_began(self) -> None:
        """There is one epoch."""

    def create(self, pod: str, uid: str, group: str, index: int, node: str) -> None:
        """A pod of this name was created: it is seen, and runs a moment later. The name is its UID too."""
        owner = PodOwner(uid, 0, group, group == "learner", index)
        if owner.leader:
            self._leaders[uid] = pod
        seen = k.PodSeen(
            self._terms[k.Watched.POD], "default", pod, pod, "1", node, "Pending", (("cpu", 100),), owner, False, False
        )
        self._pods[pod] = seen
        self._seen.append(seen)
        asyncio.get_running_loop().call_later(_START_S, self._start, pod)

    def _start(self, pod: str) -> None:
        with self._played():
            seen = msgspec.structs.replace(self._pods[pod], phase="Running", ready=True, ip="10.0.0.1")
            self._pods[pod] = seen
            self._seen.append(seen)
            assert seen.owner is not None
            self._running[seen.owner.job_uid] = self._running.get(seen.owner.job_uid, 0) + 1

    def pod(self, name: str) -> Object:
        """What the applier reads of a pod before it deletes it."""
        owner = self._pods[name].owner
        assert owner is not None
        job = {"apiVersion": "arranger.dev/v1", "kind": "TYJob", "name": "j", "uid": owner.job_uid, "controller": True}
        return {"metadata": {"uid": name, "resourceVersion": "1", "ownerReferences": [job]}}

    def delete(self, pod: str) -> None:
        """A pod was deleted, and is gone at once."""
        self._seen.append(k.ObjectGone(k.Watched.POD, self._terms[k.Watched.POD], "default", pod, pod))
        del self._pods[pod]

    def store(self, name: str, status: Object) -> Object:
        """A TYJob's status was stored, which the watch brings back."""
        found = self._objects[f"uid-{int(name.removeprefix('job-'))}"]
        found["status"] = {field: value for field, value in status.items() if value is not None}
        found["metadata"]["resourceVersion"] = str(int(found["metadata"]["resourceVersion"]) + 1)
        self._seen.append(job_seen(found, self._terms[k.Watched.JOB], with_status=False))
        return found

    def job(self, name: str) -> Object:
        """A TYJob as it is."""
        return self._objects[f"uid-{int(name.removeprefix('job-'))}"]


class _Cluster:
    """An API server that takes everything."""

    def __init__(self, scene: _Scene) -> None:
        self._scene = scene

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Object:
        await asyncio.sleep(_ANSWER_S)
        return self._scene.job(name) if resource == TYJOBS else self._scene.pod(name)

    async def create(self, resource: Resource, namespace: str | None, body: Mapping[str, Any], **asked: Any) -> Object:
        await asyncio.sleep(_ANSWER_S)
        if resource == PODS:
            with self._scene._played():
                labels, owner = body["metadata"]["labels"], body["metadata"]["ownerReferences"][0]["uid"]
                group = labels.get("arranger.dev/worker-set", "learner")
                index, node = int(labels["arranger.dev/index"]), body["spec"]["nodeName"]
                self._scene.create(body["metadata"]["name"], owner, group, index, node)
        return {}

    async def patch(
        self, resource: Resource, namespace: str | None, name: str, body: Mapping[str, Any], *, subresource: str = ""
    ) -> Object:
        await asyncio.sleep(_ANSWER_S)
        with self._scene._played():
            return self._scene.store(name, body["status"]) if resource == TYJOB_STATUSES else {}

    async def delete(self, resource: Resource, namespace: str | None, name: str, **more: Any) -> None:
        await asyncio.sleep(_ANSWER_S)
        with self._scene._played():
            self._scene.delete(name)


def _object(number: int, workers: int) -> Object:
    found = tyjob(f"job-{number}", workers)
    found["spec"]["cleanPodPolicy"] = "All"  # the end of a job is when its pods are gone
    found["metadata"] |= {
        "uid": f"uid-{number}", "resourceVersion": "1", "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    return found
