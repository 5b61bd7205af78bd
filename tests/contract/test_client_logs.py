"""Logs of pods by the client: of a real API server, which here has no kubelets, and of the embedded cluster."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from arranger.client import ApiError, ArrangerError, AsyncClient, UsageError
from arranger.kube.client import HttpCluster
from arranger.kube.cluster import PODS, Object
from arranger.kube.config import find_access
from arranger.sandbox.embedded import EmbeddedCluster
from tests.e2e.harness import job
from tests.servers import CRD_FILES

pytestmark = pytest.mark.timeout(120)


@asynccontextmanager
async def scene(
    server: str, request: pytest.FixtureRequest, folder: Path
) -> AsyncIterator[tuple[HttpCluster, AsyncClient]]:
    async with AsyncExitStack() as stack:
        if server == "real":
            kubeconfig = request.getfixturevalue("kube_server").kubeconfig
        else:
            embedded = await stack.enter_async_context(EmbeddedCluster(crds=CRD_FILES))
            kubeconfig = embedded.kubeconfig(folder / "config")
        cluster = HttpCluster(find_access(kubeconfig))
        stack.push_async_callback(cluster.close)
        yield cluster, await stack.enter_async_context(AsyncClient(kubeconfig=kubeconfig))


Opened = Callable[[], AbstractAsyncContextManager[tuple[HttpCluster, AsyncClient]]]


@pytest.fixture(params=["real", "embedded"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Opened:
    if request.param == "real":
        request.getfixturevalue("kube_server")
    return partial(scene, request.param, request, tmp_path)


def pod(name: str, owner: Object, **spec: object) -> Object:
    reference = {"apiVersion": "arranger.dev/v1", "kind": "TYJob", "name": owner["metadata"]["name"]}
    containers = [{"name": of, "image": "x"} for of in ("main", "side")]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {"arranger.dev/role": "leader"},
            "ownerReferences": [{**reference, "uid": owner["metadata"]["uid"]}],
        },
        "spec": {"containers": containers, **spec},
    }


async def test_logs_are_the_api_servers_or_the_error_says_how_to_read_them(opened: Opened) -> None:
    async with opened() as (cluster, client):
        made = await client.submit(job("logged"))
        try:
            with pytest.raises(ArrangerError, match=r"logged has no pods: it is Pending"):
                await client.logs("logged")
            await cluster.create(PODS, "default", pod("logged-a", made.object))
            assert await client.logs("logged", container="main", tail=5) == "", "it has no node"
            for container, words in (
                ("", r"a container name must be specified for pod logged-a, choose one of: \[main side\]"),
                ("nope", "container nope is not valid for pod logged-a"),
            ):
                with pytest.raises(ApiError, match=words) as refused:
                    await client.logs("logged", container=container)
                assert refused.value.code == 400
                assert "(kubectl logs --namespace=default logged-a, where you may read" in str(refused.value)
                assert "the job's pods are logged-a)" in str(refused.value)
            with pytest.raises(UsageError, match=r"logged has no pod 'b' .its pods are logged-a"):
                await client.logs("logged", pod="b")
        finally:
            await cluster.delete(PODS, "default", "logged-a", grace_s=0)
            await client.delete("logged")
