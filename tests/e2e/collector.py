"""The garbage collector that a real cluster has and a lone API server lacks, for what TYJobs own.

Without it, the pods of a deleted TYJob stay for the ten seconds that the applier leaves to Kubernetes, in each test.
"""

import asyncio
import contextlib
from collections.abc import Iterator

from arranger.kube.client import HttpCluster
from arranger.kube.cluster import CONFIG_MAPS, PODS, RESOURCE_CLAIMS, SERVICES, TYJOBS, ApiError, Resource
from arranger.kube.config import find_access
from tests.e2e.harness import LoopThread
from tests.servers import KubeServer


@contextlib.contextmanager
def garbage_collector(kube: KubeServer) -> Iterator[None]:
    """Delete what deleted TYJobs own, as kube-controller-manager does in the background."""
    thread = LoopThread()
    cluster = HttpCluster(find_access(kube.kubeconfig))
    collecting = thread.call(_started(cluster))
    try:
        yield
    finally:
        thread.call(_stopped(collecting))
        thread.call(cluster.close())
        thread.close()


async def _started(cluster: HttpCluster) -> "asyncio.Task[None]":
    """The collector, which sees every deletion from now on."""
    version = ""
    async for page in cluster.listing(TYJOBS):
        version = page.resource_version
    return asyncio.create_task(_collect(cluster, version))


async def _stopped(collecting: "asyncio.Task[None]") -> None:
    """End it. Raises what it failed with."""
    collecting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await collecting


async def _collect(cluster: HttpCluster, version: str) -> None:
    while True:
        async for changes in cluster.watch(TYJOBS, version):
            for change in changes:
                version = change.resource_version
                if change.type == "DELETED":
                    await _delete_owned(cluster, change.object["metadata"]["uid"])


async def _delete_owned(cluster: HttpCluster, owner: str) -> None:
    for resource in (PODS, SERVICES, CONFIG_MAPS):
        await _delete_of(cluster, resource, owner)
    try:
        await _delete_of(cluster, RESOURCE_CLAIMS, owner)
    except ApiError as refused:
        if refused.code != 404:  # older API servers have none
            raise


async def _delete_of(cluster: HttpCluster, resource: Resource, owner: str) -> None:
    async for page in cluster.listing(resource):
        for found in page.items:
            meta = found["metadata"]
            if any(of["uid"] == owner for of in meta.get("ownerReferences", ())):
                with contextlib.suppress(ApiError):  # somebody else was faster
                    await cluster.delete(resource, meta["namespace"], meta["name"], uid=meta["uid"])
