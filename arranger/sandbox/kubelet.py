"""Simulated kubelets: they register nodes and run the pods that are bound to them, as a client of any API server.

Annotations (`sandbox.arranger.dev/...`) control a pod's behaviour:

- `run-seconds`: it ends after that long (without: it runs forever); `exit-code`: with this code (0);
  `failures`: only this many first runs of the pod end with that code, the next one with 0
- `start-seconds`: it is Pending that long first; `ready-seconds`: it runs that long before it is Ready
- `fail`: it never starts. `ImagePullBackOff`, `ErrImagePull`, `CreateContainerConfigError` and the like leave it
  Pending and waiting for that reason; `OutOfcpu` or `UnexpectedAdmissionError` make it Failed for that reason

An unknown annotation, or one with a wrong value, counts as absent, and an Event of the pod says so.

Like a real kubelet, they refuse pods that don't fit into the free resources of their node. They start a pod only once
its resource claims have devices and are reserved for it.
"""

import asyncio
import contextlib
import datetime
import itertools
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from arranger.clock import Clock, SystemClock
from arranger.kube.cluster import (
    EVENTS,
    PODS,
    RESOURCE_CLAIMS,
    ApiError,
    Cluster,
    ClusterUnavailable,
    Expired,
    Object,
    WatchEvent,
)
from arranger.model.quantity import amount
from arranger.sandbox.garbage import timestamp
from arranger.sandbox.nodes import RETRY_S, NodeTemplate, Requests, SimulatedNodes
from arranger.sandbox.pod_run import PodRun

log = logging.getLogger(__name__)

_LONGEST_RESTART_S = 60.0
#: How often a resource claim is read that a pod may not use yet.
_CLAIM_S = 0.1
_REFUSALS = ("OutOf", "UnexpectedAdmissionError", "NodeAffinity", "Evicted")


class SimulatedKubelets:
    """Kubelets of many nodes in one event loop.

    `heartbeat_s` is how often a node renews its conditions; `stop_s` how long a pod takes to stop, at most its
    grace; `restart_s` the first pause before a container restarts, which doubles each time.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        nodes: Sequence[NodeTemplate] = (),
        clock: Clock | None = None,
        heartbeat_s: float = 60.0,
        stop_s: float = 0.2,
        restart_s: float = 1.0,
    ) -> None:
        self._cluster = cluster
        self._clock = clock or SystemClock()
        self._given = nodes
        self._request = Requests(self._clock)
        self._nodes = SimulatedNodes(cluster, clock=self._clock, requests=self._request, heartbeat_s=heartbeat_s)
        self._stop_s = stop_s
        self._restart_s = restart_s
        self._addresses = itertools.count(1)
        self._runs: dict[str, PodRun] = {}
        self._used: dict[str, Counter[str]] = {}
        self._holds: dict[str, dict[str, int]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        await asyncio.gather(*(self.add(node) for node in self._given))
        self._spawn(self._follow())
        self._spawn(self._nodes.heartbeats())

    async def stop(self) -> None:
        """Stop everything; nodes and pods stay unchanged."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def add(self, node: NodeTemplate) -> None:
        self._used.setdefault(node.name, Counter())
        self._holds[node.name] = {name: amount(name, quantity) for name, quantity in node.amounts().items()}
        await self._nodes.register(node)

    async def set_ready(self, name: str, ready: bool) -> None:
        """Make a node Ready or not, with the taints that the node controller would give it.

        Raises `ApiError` if the node was deleted; a kubelet that was cut off looks after its pods all the same.
        """
        was_lost = self._nodes.is_lost(name)
        try:
            await self._nodes.report(name, "True" if ready else "False")
        finally:
            if was_lost:
                await self._list()

    async def lose(self, name: str) -> None:
        """Cut the node off from the network: its pods neither run nor stop until `set_ready` restores it."""
        for run in [run for run in self._runs.values() if run.node == name]:
            self._forget(run.uid)
        await self._nodes.report(name, "Unknown")

    # Tasks

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a simulated kubelet's task failed", exc_info=error)

    # Pods

    async def _follow(self) -> None:
        """List and watch pods until cancelled."""
        version = ""
        while True:
            try:
                if not version:
                    version = await self._list()
                async with contextlib.aclosing(self._cluster.watch(PODS, version)) as batches:
                    async for changes in batches:
                        for change in changes:
                            self._see(change)
                        version = changes[-1].resource_version
            except Expired:
                version = ""
            except (ApiError, ClusterUnavailable) as error:
                log.warning("simulated kubelets: watching pods broke: %s", error)
                await self._clock.sleep(RETRY_S)

    async def _list(self) -> str:
        version, present = "", set()
        async for page in self._cluster.listing(PODS):
            version = page.resource_version
            for pod in page.items:
                present.add(pod["metadata"]["uid"])
                self._see_pod(pod)
        for uid in [uid for uid in self._runs if uid not in present]:
            self._forget(uid)
        return version

    def _see(self, change: WatchEvent) -> None:
        if change.type == "DELETED":
            self._forget(change.object["metadata"]["uid"])
        elif change.type != "BOOKMARK":
            self._see_pod(change.object)

    def _see_pod(self, pod: Object) -> None:
        node = pod["spec"].get("nodeName")
        if node not in self._used or self._nodes.is_lost(node):
            return
        run = self._runs.get(pod["metadata"]["uid"])
        if "deletionTimestamp" in pod["metadata"]:
            self._see_deletion(pod, run)
        elif (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
            if run is not None and run.requests:  # ended from outside: free its resources
                self._release(run)
                if run.task is not None:
                    run.task.cancel()
        elif run is None:
            run = self._runs[pod["metadata"]["uid"]] = PodRun(pod)
            lacking = self._lacking(run)
            if lacking:
                run.requests = {}
            self._used[run.node].update(run.requests)
            if run.behaviour.problems:
                self._spawn(self._guarded(partial(self._warn, run)))
            self._replace(run, partial(self._refuse, run, *lacking) if lacking else partial(self._live, run))

    def _see_deletion(self, pod: Object, run: PodRun | None) -> None:
        if run is None:
            run = self._runs[pod["metadata"]["uid"]] = PodRun(pod)
            run.requests = {}
        if not run.stopping:
            run.stopping = True
            grace_s = pod["metadata"].get("deletionGracePeriodSeconds", 0)
            self._replace(run, partial(self._end, run, grace_s))

    def _replace(self, run: PodRun, work: Callable[[], Awaitable[None]]) -> None:
        if run.task is not None:
            run.task.cancel()
        run.task = self._spawn(self._guarded(work))

    async def _guarded(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except ApiError as error:
            # The pod was deleted or replaced meanwhile: the next change from the watch resolves this.
            if error.code not in (404, 409):
                log.warning("simulated kubelet: %s", error)

    def _release(self, run: PodRun) -> None:
        self._used[run.node].subtract(run.requests)
        run.requests = {}

    def _forget(self, uid: str) -> None:
        run = self._runs.pop(uid, None)
        if run is not None:
            self._release(run)
            if run.task is not None:
                run.task.cancel()

    def _lacking(self, run: PodRun) -> tuple[str, str] | None:
        """The reason and message with which the node refuses the pod; None if it fits."""
        used = self._used[run.node]
        holds = self._holds[run.node]
        for name, asked in run.requests.items():
            taken, room = used[name], holds.get(name, asked if name == "ephemeral-storage" else 0)
            if asked + taken > room:
                numbers = f"requested: {asked}, used: {taken}, capacity: {room}"
                return f"OutOf{name}", f"Node didn't have enough resource: {name}, {numbers}"
        return None

    async def _patch(self, run: PodRun, status: Object) -> None:
        """Write a pod's status, provided that it is still the same pod."""
        namespace, name = run.key
        body = {"metadata": {"uid": run.uid}, "status": status}
        await self._request(lambda: self._cluster.patch(PODS, namespace, name, body, subresource="status"))

    async def _warn(self, run: PodRun) -> None:
        """Tell in Events what is wrong with the pod's annotations, once for each pod."""
        namespace, name = run.key
        about = {"apiVersion": "v1", "kind": PODS.kind, "namespace": namespace, "name": name, "uid": run.uid}
        for number, words in enumerate(run.behaviour.problems):
            moment = self._timestamp()
            event: Object = {
                "apiVersion": "v1",
                "kind": EVENTS.kind,
                "metadata": {"namespace": namespace, "name": f"{name}.{run.uid[:8]}.{number}"},
                "type": "Warning",
                "reason": "InvalidAnnotation",
                "message": words,
                "involvedObject": about,
                "source": {"component": "simulated-kubelet", "host": run.node},
                "firstTimestamp": moment,
                "lastTimestamp": moment,
                "count": 1,
            }
            await self._request(partial(self._cluster.create, EVENTS, namespace, event))

    async def _refuse(self, run: PodRun, reason: str, message: str) -> None:
        status = {"phase": "Failed", "reason": reason, "message": f"Pod was rejected: {message}"}
        await self._patch(run, status | {"startTime": self._timestamp()})

    def _timestamp(self) -> str:
        return timestamp(self._clock.now_ms() // 1000)

    async def _live(self, run: PodRun) -> None:
        """Run the pod from Pending to its end."""
        does, status = run.behaviour, run.pod.get("status") or {}
        run.started = status.get("startTime") or self._timestamp()
        run.address = status.get("podIP") or self._address()
        if does.fail.startswith(_REFUSALS):
            self._release(run)
            await self._refuse(run, does.fail, f"simulated {does.fail}")
            return
        if does.fail:
            await self._patch(run, run.pending(does.fail, self._timestamp()))
            return
        elapsed_s = 0.0
        if status.get("phase") == "Running":
            begun = datetime.datetime.fromisoformat(run.started).timestamp()
            elapsed_s = self._clock.now_ms() / 1000 - begun
            run.restarts = sum(each.get("restartCount", 0) for each in status.get("containerStatuses") or [])
        else:
            for claim in run.claims:
                await self._reserved(run, claim)
            if does.start_s:
                await self._patch(run, run.pending("ContainerCreating", self._timestamp()))
                await self._clock.sleep(does.start_s)
        await self._containers(run, elapsed_s)

    async def _reserved(self, run: PodRun, claim: str) -> None:
        """Wait until a resource claim has devices and is reserved for the pod, which no kubelet starts before."""
        while True:
            try:
                found = await self._request(lambda: self._cluster.get(RESOURCE_CLAIMS, run.key[0], claim))
            except ApiError as error:
                if error.code != 404:
                    raise
                found = {}
            status = found.get("status") or {}
            if status.get("allocation") and run.uid in [of["uid"] for of in status.get("reservedFor") or ()]:
                return
            await self._clock.sleep(_CLAIM_S)

    async def _containers(self, run: PodRun, elapsed_s: float) -> None:
        """Run the containers, again after each failure as the restart policy allows."""
        does = run.behaviour
        policy = run.pod["spec"].get("restartPolicy", "Always")
        while True:
            await self._patch(run, run.running(self._timestamp(), ready=not does.ready_s))
            if does.ready_s:
                await self._clock.sleep(min(does.ready_s, does.run_s or does.ready_s))
                if does.run_s is None or does.run_s > does.ready_s:
                    await self._patch(run, run.running(self._timestamp(), ready=True))
            if does.run_s is None:
                return
            await self._clock.sleep(max(0.0, does.run_s - does.ready_s - elapsed_s))
            failing = does.failures is None or run.restarts < does.failures
            code = does.exit_code if failing else 0
            if policy == "Never" or (policy == "OnFailure" and code == 0):
                self._release(run)
                await self._patch(run, self._ended(run, code))
                return
            pause_s = min(_LONGEST_RESTART_S, self._restart_s * 2**run.restarts)
            run.restarts += 1
            elapsed_s = 0.0
            await self._patch(run, self._backing_off(run, code))
            await self._clock.sleep(pause_s)

    async def _end(self, run: PodRun, grace_s: int) -> None:
        """Stop a pod that is being deleted, and confirm its deletion."""
        await self._clock.sleep(min(self._stop_s, grace_s))
        namespace, name = run.key
        await self._request(lambda: self._cluster.delete(PODS, namespace, name, uid=run.uid, grace_s=0))

    def _ended(self, run: PodRun, code: int) -> Object:
        return run.ended(code, self._timestamp())

    def _backing_off(self, run: PodRun, code: int) -> Object:
        return run.backing_off(code, self._timestamp())

    def _address(self) -> str:
        number = next(self._addresses)
        return f"10.{(128 + (number >> 16)) % 256}.{number >> 8 & 255}.{number & 255}"
