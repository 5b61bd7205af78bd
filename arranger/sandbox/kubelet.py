"""Simulated kubelets: they register nodes and run the pods that are bound to them, as a client of any API server.

What a pod does is said by its annotations (`sandbox.arranger.dev/...`):

- `run-seconds`: it ends after that long (without: it runs for ever); `exit-code`: with this code (0);
  `failures`: only its first so many runs end with that code, the next one with 0
- `start-seconds`: it is Pending that long first; `ready-seconds`: it runs that long before it is Ready
- `fail`: it never starts. `ImagePullBackOff`, `ErrImagePull`, `CreateContainerConfigError` and the like leave it
  Pending and waiting for that reason; `OutOfcpu` or `UnexpectedAdmissionError` make it Failed for that reason

Pods that don't fit into what their node has left are refused, as a kubelet does.
"""

import asyncio
import contextlib
import datetime
import itertools
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec

from arranger.clock import Clock, SystemClock
from arranger.kube.cluster import NODES, PODS, ApiError, Change, Cluster, ClusterUnavailable, Expired, Object
from arranger.model.quantity import amount

log = logging.getLogger(__name__)
_Answer = TypeVar("_Answer")

PREFIX = "sandbox.arranger.dev/"
HEARTBEAT_S = 60.0
STOP_S = 0.2
RESTART_S = 1.0
_LONGEST_RESTART_S = 60.0
_RETRY_S = 0.5
_REFUSALS = ("OutOf", "UnexpectedAdmissionError", "NodeAffinity", "Evicted")


class NodeTemplate(msgspec.Struct, frozen=True):
    """A simulated node: amounts as Kubernetes quantities, further `resources` by name."""

    name: str
    cpu: str = "32"
    memory: str = "128Gi"
    pods: int = 110
    gpus: int = 0
    labels: dict[str, str] = {}
    taints: tuple[dict[str, str], ...] = ()
    resources: dict[str, str] = {}

    def amounts(self) -> dict[str, str]:
        """What the node can hold."""
        amounts = {"cpu": self.cpu, "memory": self.memory, "pods": str(self.pods)}
        if self.gpus:
            amounts["nvidia.com/gpu"] = str(self.gpus)
        return amounts | self.resources


class _Behaviour(msgspec.Struct, frozen=True):
    """What a pod's annotations say."""

    start_s: float
    ready_s: float
    run_s: float | None
    exit_code: int
    failures: int | None
    fail: str

    @staticmethod
    def of(pod: Object) -> "_Behaviour":
        notes = pod["metadata"].get("annotations") or {}

        def number(name: str) -> float | None:
            text = notes.get(PREFIX + name)
            try:
                return None if text is None else float(text)
            except ValueError:
                log.warning("pod %s: annotation %s%s is not a number", pod["metadata"]["name"], PREFIX, name)
                return None

        failures = number("failures")
        return _Behaviour(
            start_s=number("start-seconds") or 0.0,
            ready_s=number("ready-seconds") or 0.0,
            run_s=number("run-seconds"),
            exit_code=int(number("exit-code") or (1 if failures else 0)),
            failures=None if failures is None else int(failures),
            fail=notes.get(PREFIX + "fail", ""),
        )


class _Run:
    """One pod on one of the nodes."""

    __slots__ = (
        "address",
        "behaviour",
        "key",
        "node",
        "pod",
        "requests",
        "restarts",
        "started",
        "stopping",
        "task",
        "uid",
    )

    def __init__(self, pod: Object) -> None:
        metadata = pod["metadata"]
        self.pod = pod
        self.key = (metadata["namespace"], metadata["name"])
        self.uid: str = metadata["uid"]
        self.node: str = pod["spec"]["nodeName"]
        self.behaviour = _Behaviour.of(pod)
        self.requests = requests_of(pod["spec"])
        self.restarts = 0
        self.address = ""
        self.started = ""
        self.stopping = False
        self.task: asyncio.Task[None] | None = None


def _amounts(container: dict[str, Any]) -> dict[str, int]:
    resources = container.get("resources") or {}
    asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {name: amount(name, asked_for) for name, asked_for in asked.items()}


def requests_of(spec: dict[str, Any]) -> dict[str, int]:
    """What a pod takes on its node (millicores, bytes, units): its containers together, or an init container."""
    total: dict[str, int] = {"pods": 1}
    for container in spec.get("containers") or []:
        for name, asked in _amounts(container).items():
            total[name] = total.get(name, 0) + asked
    for container in spec.get("initContainers") or []:
        for name, asked in _amounts(container).items():
            together = total.get(name, 0) + asked
            always = container.get("restartPolicy") == "Always"
            total[name] = together if always else max(total.get(name, 0), asked)
    for name, quantity in (spec.get("overhead") or {}).items():
        total[name] = total.get(name, 0) + amount(name, quantity)
    return total


class SimulatedKubelets:
    """Kubelets of many nodes in one event loop. Give each group of nodes that shares a cluster its own `subnet`.

    `heartbeat_s` is how often a node renews its conditions; `stop_s` how long a pod takes to stop, at most its
    grace; `restart_s` the first pause before a container restarts, which doubles each time.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        nodes: Sequence[NodeTemplate] = (),
        clock: Clock | None = None,
        heartbeat_s: float = HEARTBEAT_S,
        stop_s: float = STOP_S,
        restart_s: float = RESTART_S,
        in_flight: int = 128,
        subnet: int = 128,
    ) -> None:
        self._cluster = cluster
        self._clock = clock or SystemClock()
        self._templates = {node.name: node for node in nodes}
        self._heartbeat_s = heartbeat_s
        self._stop_s = stop_s
        self._restart_s = restart_s
        self._requests = asyncio.Semaphore(in_flight)
        self._subnet = subnet
        self._addresses = itertools.count(1)
        self._runs: dict[str, _Run] = {}
        self._used: dict[str, dict[str, int]] = {}
        self._holds: dict[str, dict[str, int]] = {}
        self._lost: set[str] = set()
        self._unready: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Register the nodes and begin to run their pods."""
        await asyncio.gather(*(self._register(node) for node in self._templates.values()))
        self._spawn(self._follow())
        self._spawn(self._heartbeats())

    async def stop(self) -> None:
        """Stop everything; nodes and pods stay as they are."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def add(self, node: NodeTemplate) -> None:
        """Register one more node."""
        self._templates[node.name] = node
        await self._register(node)

    async def set_ready(self, name: str, ready: bool) -> None:
        """Make a node Ready or not, with the taints that the node controller would give it."""
        (self._unready.discard if ready else self._unready.add)(name)
        was_lost = name in self._lost
        self._lost.discard(name)
        await self._report(name)
        if was_lost:
            await self._list()

    async def lose(self, name: str) -> None:
        """The node is gone from the network: nobody runs or stops its pods until `set_ready` brings it back."""
        self._lost.add(name)
        for run in [run for run in self._runs.values() if run.node == name]:
            self._forget(run.uid)
        await self._report(name)

    # Nodes

    def _timestamp(self) -> str:
        moment = datetime.datetime.fromtimestamp(self._clock.now_ms() // 1000, datetime.UTC)
        return moment.strftime("%Y-%m-%dT%H:%M:%SZ")

    def _conditions(self, name: str) -> list[dict[str, str]]:
        moment = self._timestamp()
        ready = "Unknown" if name in self._lost else "False" if name in self._unready else "True"
        reasons = {"True": "KubeletReady", "False": "KubeletNotReady", "Unknown": "NodeStatusUnknown"}
        pressures = ("MemoryPressure", "DiskPressure", "PIDPressure")
        found = [(kind, "False", f"KubeletHasNo{kind}") for kind in pressures] + [("Ready", ready, reasons[ready])]
        return [
            {"type": kind, "status": state, "reason": reason, "lastHeartbeatTime": moment, "lastTransitionTime": moment}
            for kind, state, reason in found
        ]

    def _taints(self, template: NodeTemplate) -> list[dict[str, str]]:
        taints = list(template.taints)
        if template.name in self._lost:
            key = "node.kubernetes.io/unreachable"
        elif template.name in self._unready:
            key = "node.kubernetes.io/not-ready"
        else:
            return taints
        return taints + [{"key": key, "effect": effect} for effect in ("NoSchedule", "NoExecute")]

    async def _register(self, template: NodeTemplate) -> None:
        amounts = template.amounts()
        body = {
            "metadata": {
                "name": template.name,
                "labels": {
                    "kubernetes.io/hostname": template.name,
                    "kubernetes.io/os": "linux",
                    "kubernetes.io/arch": "amd64",
                    **template.labels,
                },
            },
            "spec": {"taints": list(template.taints)},
            "status": {
                "capacity": amounts,
                "allocatable": amounts,
                "conditions": self._conditions(template.name),
                "addresses": [{"type": "Hostname", "address": template.name}],
                "nodeInfo": {
                    "kubeletVersion": "v1.36.0-simulated",
                    "operatingSystem": "linux",
                    "architecture": "amd64",
                },
            },
        }
        self._used.setdefault(template.name, {})
        self._holds[template.name] = {name: amount(name, quantity) for name, quantity in amounts.items()}
        with contextlib.suppress(ApiError):
            await self._call(lambda: self._cluster.create(NODES, None, body))
        await self._call(
            lambda: self._cluster.patch(NODES, None, template.name, {"status": body["status"]}, subresource="status")
        )
        await self._retaint(template)

    async def _retaint(self, template: NodeTemplate) -> None:
        """Set the taints that say how the node is; those of others stay, but not admission's not-ready."""
        ours = self._taints(template)
        node = await self._cluster.get(NODES, None, template.name)
        given = node["spec"].get("taints") or []
        keys = {taint["key"] for taint in ours} | {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}
        wanted = ours + [taint for taint in given if taint["key"] not in keys]
        if [(t["key"], t["effect"]) for t in given] != [(t["key"], t["effect"]) for t in wanted]:
            patch = {"spec": {"taints": wanted or None}}
            await self._call(lambda: self._cluster.patch(NODES, None, template.name, patch))

    async def _report(self, name: str) -> None:
        status = {"status": {"conditions": self._conditions(name)}}
        await self._call(lambda: self._cluster.patch(NODES, None, name, status, subresource="status"))
        await self._retaint(self._templates[name])

    async def _heartbeats(self) -> None:
        while True:
            await self._clock.sleep(self._heartbeat_s)
            for name in [name for name in self._templates if name not in self._lost]:
                # A node that was deleted stays so; everything else is tried again at the next beat.
                with contextlib.suppress(ApiError, ClusterUnavailable):
                    await self._beat(name)

    async def _beat(self, name: str) -> None:
        """Renew a node's conditions as they are."""
        node = await self._cluster.get(NODES, None, name)
        moment = self._timestamp()
        conditions = (node.get("status") or {}).get("conditions") or self._conditions(name)
        status = {"conditions": [{**condition, "lastHeartbeatTime": moment} for condition in conditions]}
        await self._cluster.patch(NODES, None, name, {"status": status}, subresource="status")

    # Requests

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a simulated kubelet's task failed", exc_info=error)

    async def _call(self, request: Callable[[], Awaitable[_Answer]]) -> _Answer:
        """Make a request, again and again while the server can't be reached or is overloaded."""
        while True:
            try:
                async with self._requests:
                    return await request()
            except ClusterUnavailable:
                await self._clock.sleep(_RETRY_S)
            except ApiError as error:
                if error.code not in (429, 500, 503, 504):
                    raise
                await self._clock.sleep(error.retry_after_s or _RETRY_S)

    # Pods

    async def _follow(self) -> None:
        """List and watch pods for ever."""
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
                await self._clock.sleep(_RETRY_S)

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

    def _see(self, change: Change) -> None:
        if change.type == "DELETED":
            self._forget(change.object["metadata"]["uid"])
        elif change.type != "BOOKMARK":
            self._see_pod(change.object)

    def _see_pod(self, pod: Object) -> None:
        node = pod["spec"].get("nodeName")
        if node not in self._used or node in self._lost:
            return
        run = self._runs.get(pod["metadata"]["uid"])
        if "deletionTimestamp" in pod["metadata"]:
            self._see_deletion(pod, run)
        elif (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
            if run is not None and run.requests:  # somebody else ended it: it needs its room no more
                self._release(run)
                if run.task is not None:
                    run.task.cancel()
        elif run is None:
            run = self._runs[pod["metadata"]["uid"]] = _Run(pod)
            lacking = self._lacking(run)
            self._charge(run, 0 if lacking else 1)
            self._replace(run, partial(self._refuse, run, *lacking) if lacking else partial(self._live, run))

    def _see_deletion(self, pod: Object, run: _Run | None) -> None:
        if run is None:
            run = self._runs[pod["metadata"]["uid"]] = _Run(pod)
            run.requests = {}
        if not run.stopping:
            run.stopping = True
            grace_s = pod["metadata"].get("deletionGracePeriodSeconds", 0)
            self._replace(run, partial(self._end, run, grace_s))

    def _replace(self, run: _Run, work: Callable[[], Awaitable[None]]) -> None:
        if run.task is not None:
            run.task.cancel()
        run.task = self._spawn(self._guarded(work))

    async def _guarded(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except ApiError as error:
            # The pod was deleted or changed hands meanwhile: what the watch brings next settles it.
            if error.code not in (404, 409):
                log.warning("simulated kubelet: %s", error)

    def _charge(self, run: _Run, sign: int) -> None:
        """Book (1) or free (-1) what a pod takes; 0 says that it takes nothing."""
        if sign == 0:
            run.requests = {}
        used = self._used[run.node]
        for name, asked in run.requests.items():
            used[name] = used.get(name, 0) + sign * asked

    def _release(self, run: _Run) -> None:
        self._charge(run, -1)
        run.requests = {}

    def _forget(self, uid: str) -> None:
        run = self._runs.pop(uid, None)
        if run is not None:
            self._release(run)
            if run.task is not None:
                run.task.cancel()

    def _lacking(self, run: _Run) -> tuple[str, str] | None:
        """Why the node refuses the pod: reason and message; None when it fits."""
        used = self._used[run.node]
        holds = self._holds[run.node]
        for name, asked in run.requests.items():
            taken, room = used.get(name, 0), holds.get(name, asked if name == "ephemeral-storage" else 0)
            if asked + taken > room:
                numbers = f"requested: {asked}, used: {taken}, capacity: {room}"
                return f"OutOf{name}", f"Node didn't have enough resource: {name}, {numbers}"
        return None

    async def _patch(self, run: _Run, status: Object) -> None:
        """Write a pod's status, only if it is still the same pod."""
        namespace, name = run.key
        body = {"metadata": {"uid": run.uid}, "status": status}
        await self._call(lambda: self._cluster.patch(PODS, namespace, name, body, subresource="status"))

    async def _refuse(self, run: _Run, reason: str, message: str) -> None:
        status = {"phase": "Failed", "reason": reason, "message": f"Pod was rejected: {message}"}
        await self._patch(run, status | {"startTime": self._timestamp()})

    async def _live(self, run: _Run) -> None:
        """From Pending to the end of the pod's life."""
        does, status = run.behaviour, run.pod.get("status") or {}
        run.started = status.get("startTime") or self._timestamp()
        run.address = status.get("podIP") or self._address()
        if does.fail.startswith(_REFUSALS):
            self._release(run)
            await self._refuse(run, does.fail, f"simulated {does.fail}")
            return
        if does.fail:
            await self._patch(run, self._pending(run, does.fail))
            return
        elapsed_s = 0.0
        if status.get("phase") == "Running":
            begun = datetime.datetime.fromisoformat(run.started.replace("Z", "+00:00")).timestamp()
            elapsed_s = self._clock.now_ms() / 1000 - begun
            run.restarts = sum(each.get("restartCount", 0) for each in status.get("containerStatuses") or [])
        elif does.start_s:
            await self._patch(run, self._pending(run, "ContainerCreating"))
            await self._clock.sleep(does.start_s)
        await self._containers(run, elapsed_s)

    async def _containers(self, run: _Run, elapsed_s: float) -> None:
        """Run the containers, again after each failure that the restart policy forgives."""
        does = run.behaviour
        policy = run.pod["spec"].get("restartPolicy", "Always")
        while True:
            await self._patch(run, self._running(run, ready=not does.ready_s))
            if does.ready_s:
                await self._clock.sleep(min(does.ready_s, does.run_s or does.ready_s))
                if does.run_s is None or does.run_s > does.ready_s:
                    await self._patch(run, self._running(run, ready=True))
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

    async def _end(self, run: _Run, grace_s: int) -> None:
        """Stop a pod that is being deleted, and confirm it."""
        await self._clock.sleep(min(self._stop_s, grace_s))
        namespace, name = run.key
        await self._call(lambda: self._cluster.delete(PODS, namespace, name, uid=run.uid, grace_s=0))

    # What is written

    def _address(self) -> str:
        number = next(self._addresses)
        return f"10.{(self._subnet + (number >> 16)) % 256}.{number >> 8 & 255}.{number & 255}"

    def _status(
        self, run: _Run, phase: str, states: dict[str, Any], *, ready: bool, last: Object | None = None
    ) -> Object:
        moment = self._timestamp()
        on = "True" if ready else "False"
        scheduled = [("PodScheduled", "True"), ("Initialized", "True"), ("ContainersReady", on), ("Ready", on)]
        containers = [
            {
                "name": container["name"],
                "image": container.get("image", ""),
                "imageID": "",
                "ready": ready,
                "started": "running" in states,
                "restartCount": run.restarts,
                "state": states,
                "lastState": last or {},
            }
            for container in run.pod["spec"].get("containers") or []
        ]
        status: Object = {
            "phase": phase,
            "startTime": run.started,
            "conditions": [{"type": kind, "status": state, "lastTransitionTime": moment} for kind, state in scheduled],
            "containerStatuses": containers,
        }
        if phase != "Pending":
            status |= {"podIP": run.address, "podIPs": [{"ip": run.address}]}
        return status

    def _pending(self, run: _Run, reason: str) -> Object:
        return self._status(run, "Pending", {"waiting": {"reason": reason}}, ready=False)

    def _running(self, run: _Run, *, ready: bool) -> Object:
        return self._status(run, "Running", {"running": {"startedAt": self._timestamp()}}, ready=ready)

    def _terminated(self, code: int) -> Object:
        reason = "Error" if code else "Completed"
        return {"terminated": {"exitCode": code, "reason": reason, "finishedAt": self._timestamp()}}

    def _ended(self, run: _Run, code: int) -> Object:
        return self._status(run, "Failed" if code else "Succeeded", self._terminated(code), ready=False)

    def _backing_off(self, run: _Run, code: int) -> Object:
        waiting = {"waiting": {"reason": "CrashLoopBackOff"}}
        return self._status(run, "Running", waiting, ready=False, last=self._terminated(code))
