"""Simulated nodes: their registration, and the status that they report while they are ready, unready or lost."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec

from arranger.clock import Clock
from arranger.kube.cluster import NODES, ApiError, Cluster, ClusterUnavailable, Object
from arranger.sandbox.garbage import timestamp

_Answer = TypeVar("_Answer")

RETRY_S = 0.5
_IN_FLIGHT = 128
_PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure")
_REASONS = {"True": "KubeletReady", "False": "KubeletNotReady", "Unknown": "NodeStatusUnknown"}
#: The taints of a node that isn't Ready, by the status of that condition.
_NOT_READY = {"False": "node.kubernetes.io/not-ready", "Unknown": "node.kubernetes.io/unreachable"}
#: Each kubelet names the sizes of its huge pages, of which most nodes have none.
_NO_HUGE_PAGES = {"hugepages-1Gi": "0", "hugepages-2Mi": "0"}
#: What a node says of itself, as far as `kubectl get nodes -o wide` shows it.
_INFO = {
    "kubeletVersion": "v1.36.0-simulated",
    "operatingSystem": "linux",
    "architecture": "amd64",
    "osImage": "simulated",
    "kernelVersion": "simulated",
    "containerRuntimeVersion": "simulated://0",
}


class NodeTemplate(msgspec.Struct, frozen=True):
    """A simulated node: amounts as Kubernetes quantities, further `resources` by name. One with an empty amount of
    `ephemeral_storage` doesn't tell of its own, as a kubelet that doesn't measure it."""

    name: str
    cpu: str = "32"
    memory: str = "128Gi"
    ephemeral_storage: str = "1Ti"
    pods: int = 110
    gpus: int = 0
    labels: dict[str, str] = {}
    taints: tuple[dict[str, str], ...] = ()
    resources: dict[str, str] = {}

    def amounts(self) -> dict[str, str]:
        amounts = {"cpu": self.cpu, "memory": self.memory, "pods": str(self.pods), **_NO_HUGE_PAGES}
        if self.ephemeral_storage:
            amounts["ephemeral-storage"] = self.ephemeral_storage
        if self.gpus:
            amounts["nvidia.com/gpu"] = str(self.gpus)
        return amounts | self.resources


class Requests:
    """Sends requests to a cluster, with limited concurrency, and retries while it is unreachable or overloaded."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._free = asyncio.Semaphore(_IN_FLIGHT)

    async def __call__(self, request: Callable[[], Awaitable[_Answer]]) -> _Answer:
        """The result of the request after any retries. Raises `ApiError` if the cluster refuses it."""
        while True:
            try:
                async with self._free:
                    return await request()
            except ClusterUnavailable:
                await self._clock.sleep(RETRY_S)
            except ApiError as error:
                if error.code not in (429, 500, 503, 504):
                    raise
                await self._clock.sleep(error.retry_after_s or RETRY_S)


class SimulatedNodes:
    """The nodes of simulated kubelets. `heartbeat_s` is how often each renews its conditions."""

    def __init__(self, cluster: Cluster, *, clock: Clock, requests: Requests, heartbeat_s: float) -> None:
        self._cluster = cluster
        self._clock = clock
        self._call = requests
        self._heartbeat_s = heartbeat_s
        self._templates: dict[str, NodeTemplate] = {}
        #: The status of each node's condition Ready: False or, for a lost node, Unknown; True if absent.
        self._ready: dict[str, str] = {}

    def _timestamp(self) -> str:
        return timestamp(self._clock.now_ms() // 1000)

    def is_lost(self, name: str) -> bool:
        """Whether the node is cut off from the network."""
        return self._ready.get(name) == "Unknown"

    def _conditions(self, name: str) -> list[dict[str, str]]:
        moment = self._timestamp()
        ready = self._ready.get(name, "True")
        found = [(kind, "False", f"KubeletHasNo{kind}") for kind in _PRESSURES] + [("Ready", ready, _REASONS[ready])]
        return [
            {"type": kind, "status": state, "reason": reason, "lastHeartbeatTime": moment, "lastTransitionTime": moment}
            for kind, state, reason in found
        ]

    async def register(self, template: NodeTemplate) -> None:
        """Register one node, or update an existing one."""
        name, amounts = template.name, template.amounts()
        labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
        status: Object = {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": self._conditions(name),
            "addresses": [{"type": "Hostname", "address": name}],
            "nodeInfo": _INFO,
        }
        metadata = {"name": name, "labels": {**labels, **template.labels}}
        body = {"metadata": metadata, "spec": {"taints": list(template.taints)}, "status": status}
        self._templates[name] = template
        with contextlib.suppress(ApiError):
            await self._call(lambda: self._cluster.create(NODES, None, body))
        await self._patch_status(name, status)
        await self._retaint(template)

    async def report(self, name: str, ready: str) -> None:
        """Set the status of a node's condition Ready, and the taints that the node controller would set for it."""
        self._ready[name] = ready
        await self._patch_status(name, {"conditions": self._conditions(name)})
        await self._retaint(self._templates[name])

    async def _patch_status(self, name: str, status: Object) -> None:
        await self._call(lambda: self._cluster.patch(NODES, None, name, {"status": status}, subresource="status"))

    async def _retaint(self, template: NodeTemplate) -> None:
        """Set the taints for the node's state; keep those of other clients, but not admission's not-ready."""
        ours = list(template.taints)
        if key := _NOT_READY.get(self._ready.get(template.name, "True")):
            ours += [{"key": key, "effect": effect} for effect in ("NoSchedule", "NoExecute")]
        node = await self._cluster.get(NODES, None, template.name)
        given = node["spec"].get("taints") or []
        keys = {taint["key"] for taint in ours} | set(_NOT_READY.values())
        desired = ours + [taint for taint in given if taint["key"] not in keys]
        if [(t["key"], t["effect"]) for t in given] != [(t["key"], t["effect"]) for t in desired]:
            patch = {"spec": {"taints": desired or None}}
            await self._call(lambda: self._cluster.patch(NODES, None, template.name, patch))

    async def heartbeats(self) -> None:
        """Renew the nodes' conditions, unchanged, until cancelled."""
        while True:
            await self._clock.sleep(self._heartbeat_s)
            for name in [name for name in self._templates if not self.is_lost(name)]:
                # A deleted node stays deleted; everything else is retried at the next heartbeat.
                with contextlib.suppress(ApiError, ClusterUnavailable):
                    await self._beat(name)

    async def _beat(self, name: str) -> None:
        node = await self._cluster.get(NODES, None, name)
        moment = self._timestamp()
        conditions = (node.get("status") or {}).get("conditions") or self._conditions(name)
        status = {"conditions": [{**condition, "lastHeartbeatTime": moment} for condition in conditions]}
        await self._cluster.patch(NODES, None, name, {"status": status}, subresource="status")
