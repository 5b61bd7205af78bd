"""The HTTP client and a real API server in trouble: wrong credentials, restarts, and a server that hangs."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from arranger.kube.client import HttpCluster
from arranger.kube.cluster import PODS, ApiError, ClusterUnavailable
from arranger.kube.config import find_access
from tests.servers import RealKube


@contextlib.asynccontextmanager
async def client(kubeconfig: Path, **options: Any) -> AsyncIterator[HttpCluster]:
    cluster = HttpCluster(find_access(kubeconfig), **options)
    try:
        yield cluster
    finally:
        await cluster.close()


async def everything(cluster: HttpCluster) -> str:
    return [page.resource_version async for page in cluster.listing(PODS)][-1]


def altered(kube: RealKube, path: Path, *, user: dict[str, Any] | None = None, tls_server_name: str = "") -> Path:
    """The administrator's kubeconfig with another user or another name to expect in the certificate."""
    document = yaml.safe_load(kube.kubeconfig.read_text())
    if tls_server_name:
        document["clusters"][0]["cluster"]["tls-server-name"] = tls_server_name
    document["users"][0]["user"] = user or document["users"][0]["user"]
    path.write_text(yaml.safe_dump(document))
    return path


async def test_who_has_no_right_is_forbidden(kube_server: RealKube) -> None:
    async with client(kube_server.stranger_kubeconfig) as cluster:
        with pytest.raises(ApiError, match='User "stranger" cannot list resource "pods"') as caught:
            await everything(cluster)
    assert (caught.value.code, caught.value.reason) == (403, "Forbidden")


async def test_an_unknown_token_is_unauthorized(kube_server: RealKube, tmp_path: Path) -> None:
    async with client(altered(kube_server, tmp_path / "config", user={"token": "wrong"})) as cluster:
        with pytest.raises(ApiError) as caught:
            await everything(cluster)
    assert caught.value.code == 401


async def test_a_token_file_that_is_replaced_is_read_again(kube_server: RealKube, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("stale")
    async with client(altered(kube_server, tmp_path / "config", user={"tokenFile": str(token)})) as cluster:
        token.write_text(kube_server.token)
        assert await everything(cluster)


async def test_a_certificate_of_an_unknown_authority_is_not_trusted(kube_server: RealKube, tmp_path: Path) -> None:
    config = altered(kube_server, tmp_path / "config")
    document = yaml.safe_load(config.read_text())
    del document["clusters"][0]["cluster"]["certificate-authority-data"]
    config.write_text(yaml.safe_dump(document))
    async with client(config) as cluster:
        with pytest.raises(ClusterUnavailable, match="certificate verify failed"):
            await everything(cluster)
    document["clusters"][0]["cluster"]["insecure-skip-tls-verify"] = True
    config.write_text(yaml.safe_dump(document))
    async with client(config) as cluster:
        assert await everything(cluster)


async def test_a_certificate_of_another_name_needs_that_name(kube_server: RealKube, tmp_path: Path) -> None:
    config = altered(kube_server, tmp_path / "config", tls_server_name="elsewhere")
    async with client(config) as cluster:
        with pytest.raises(ClusterUnavailable, match="certificate"):
            await everything(cluster)
    config = altered(kube_server, tmp_path / "config", tls_server_name="localhost")
    async with client(config) as cluster:
        assert await everything(cluster)


async def test_a_killed_server_breaks_the_watch_and_the_same_client_goes_on_later(kube_server: RealKube) -> None:
    async with client(kube_server.kubeconfig) as cluster:
        version = await everything(cluster)

        async def watch() -> None:
            async for _ in cluster.watch(PODS, version):
                pass

        watching = asyncio.create_task(watch())
        await asyncio.sleep(0.3)
        kube_server.api.stop(kill=True)
        try:
            with pytest.raises(ClusterUnavailable):
                await watching
            with pytest.raises(ClusterUnavailable):
                await everything(cluster)
        finally:
            await asyncio.to_thread(kube_server.api.start)
        assert await everything(cluster)


async def test_a_server_that_hangs_is_noticed_by_calls_and_by_watches(kube_server: RealKube) -> None:
    async with client(kube_server.kubeconfig, request_timeout_s=1.0, silence_s=1.5) as cluster:
        watch = cluster.watch(PODS, await everything(cluster))
        waiting = asyncio.ensure_future(anext(watch))
        await asyncio.sleep(0.3)
        kube_server.api.freeze()
        try:
            with pytest.raises(ClusterUnavailable, match="no answer in time"):
                await everything(cluster)
            with pytest.raises(ClusterUnavailable, match="no answer in time"):
                await waiting
        finally:
            kube_server.api.thaw()
        for _ in range(100):
            with contextlib.suppress(ClusterUnavailable):
                assert await everything(cluster)
                return
        pytest.fail("the client didn't recover")
