"""A small provisioner of volumes, on any cluster: what a CSI driver's provisioner and the volume controller do together
for a claim whose class waits for the first pod.

It makes a volume once a node was selected for the claim, reached from that node alone, and binds the claim to it. For a
node in `full` it makes none: it removes the annotation, as provisioners do.
"""

import asyncio
import contextlib
from collections.abc import Collection, Iterator
from typing import Any

from arranger.kube.client import HttpCluster
from arranger.kube.cluster import CLAIMS, VOLUMES, Cluster, Object
from arranger.kube.config import find_access
from arranger.kube.volumes import SELECTED_NODE
from tests.e2e.harness import LoopThread
from tests.servers import KubeServer

PROVISIONER = "disks.test"
CLASS = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "fast"},
    "provisioner": PROVISIONER,
    "volumeBindingMode": "WaitForFirstConsumer",
}


def claim(name: str) -> Object:
    """A claim of that class."""
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": CLASS["metadata"]["name"],
        "resources": {"requests": {"storage": "1Gi"}},
    }
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


async def provision(cluster: Cluster, *, full: Collection[str] = ()) -> int:
    """Serve the claims that wait now; returns how many were answered."""
    found = [item async for page in cluster.listing(CLAIMS) for item in page.items]
    due = [item for item in found if _node(item) and not item["spec"].get("volumeName")]
    for item in due:
        namespace, name = item["metadata"]["namespace"], item["metadata"]["name"]
        if _node(item) in full:
            await cluster.patch(CLAIMS, namespace, name, {"metadata": {"annotations": {SELECTED_NODE: None}}})
            continue
        volume = _volume(item)
        await cluster.create(VOLUMES, None, volume)
        await cluster.patch(CLAIMS, namespace, name, {"spec": {"volumeName": volume["metadata"]["name"]}})
        await cluster.patch(CLAIMS, namespace, name, {"status": {"phase": "Bound"}}, subresource="status")
    return len(due)


def _node(item: Object) -> str:
    return str((item["metadata"].get("annotations") or {}).get(SELECTED_NODE) or "")


def _volume(item: Object) -> Object:
    only = {"key": "metadata.name", "operator": "In", "values": [_node(item)]}
    name = f"pv-{item['metadata']['uid']}"
    spec: dict[str, Any] = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"},
        "csi": {"driver": PROVISIONER, "volumeHandle": name},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchFields": [only]}]}},
        "storageClassName": CLASS["metadata"]["name"],
    }
    return {"metadata": {"name": name}, "spec": spec}


@contextlib.contextmanager
def provisioner(kube: KubeServer) -> Iterator[None]:
    """A provisioner that runs meanwhile."""
    thread = LoopThread()
    cluster = HttpCluster(find_access(kube.kubeconfig))

    async def begin() -> "asyncio.Task[None]":
        return asyncio.create_task(serve())

    async def serve() -> None:
        while True:
            await provision(cluster)
            await asyncio.sleep(0.1)

    async def end() -> None:
        serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await serving
        await cluster.close()

    serving = thread.call(begin())
    try:
        yield
    finally:
        thread.call(end())
        thread.close()
