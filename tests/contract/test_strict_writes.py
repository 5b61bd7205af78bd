"""Objects of users are created and patched strictly, against a real API server and the embedded cluster alike: a
misspelt field is refused and named, where Arranger's own writes would lose it."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from arranger.cli.inputs.known_fields import FIELDS, METADATA
from arranger.client import AsyncClient, Client
from arranger.kube.client import HttpCluster
from arranger.kube.cluster import QUEUES, TYJOBS, ApiError, Cluster, Object
from arranger.kube.config import find_access
from arranger.sandbox.direct import DirectCluster
from arranger.sandbox.embedded import EmbeddedCluster
from tests.e2e.harness import job
from tests.servers import CRD_FILES, RealKube

pytestmark = pytest.mark.timeout(120)
_numbers = itertools.count(1)


@contextlib.asynccontextmanager
async def config_of(server: str, request: pytest.FixtureRequest, folder: Path) -> AsyncIterator[Path]:
    """The kubeconfig of a real API server, or of an embedded one."""
    if server == "real":
        yield request.getfixturevalue("kube_server").kubeconfig
        return
    async with EmbeddedCluster(crds=CRD_FILES) as embedded:
        yield embedded.kubeconfig(folder / "kubeconfig")


@contextlib.asynccontextmanager
async def strict(server: str, request: pytest.FixtureRequest, folder: Path) -> AsyncIterator[Cluster]:
    if server == "direct":
        async with EmbeddedCluster(crds=CRD_FILES) as embedded:
            yield DirectCluster(embedded.store, strict=True)
        return
    async with config_of(server, request, folder) as kubeconfig:
        cluster = HttpCluster(find_access(kubeconfig), strict=True)
        try:
            yield cluster
        finally:
            await cluster.close()


Opened = Callable[[], contextlib.AbstractAsyncContextManager[Cluster]]
Configured = Callable[[], contextlib.AbstractAsyncContextManager[Path]]


@pytest.fixture(params=["real", "embedded", "direct"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Opened:
    if request.param == "real":
        request.getfixturevalue("kube_server")
    return partial(strict, request.param, request, tmp_path)


@pytest.fixture(params=["real", "embedded"])
def configured(request: pytest.FixtureRequest, tmp_path: Path) -> Configured:
    if request.param == "real":
        request.getfixturevalue("kube_server")
    return partial(config_of, request.param, request, tmp_path)


def named() -> str:
    return f"strict-{next(_numbers)}"


def misspelt(name: str) -> Object:
    """The job of the report: one worker without GPUs would run."""
    made = job(name)
    spec = made["spec"]
    spec["priorty"] = 3
    workers = spec["workerSets"][0]
    workers["count"] = workers.pop("counts", 2)
    container = workers["template"]["spec"]["containers"][0]
    container["resource"] = {"limits": {"nvidia.com/gpu": 1}}
    return made


async def test_a_creation_names_all_unknown_fields_and_creates_nothing(opened: Opened) -> None:
    name = named()
    async with opened() as cluster:
        with pytest.raises(ApiError) as refused:
            await cluster.create(TYJOBS, "default", misspelt(name))
        assert (refused.value.code, refused.value.reason) == (400, "BadRequest")
        for field in ("priorty", "workerSets[0].count", "workerSets[0].template.spec.containers[0].resource"):
            assert f'unknown field "spec.{field}"' in refused.value.detail
        with pytest.raises(ApiError, match="NotFound"):
            await cluster.get(TYJOBS, "default", name)
        queue = {"apiVersion": QUEUES.api_version, "kind": QUEUES.kind, "metadata": {"name": name}}
        with pytest.raises(ApiError, match=r'unknown field "spec\.wieght"'):
            await cluster.create(QUEUES, None, {**queue, "spec": {"wieght": 2}})


async def test_a_patch_names_an_unknown_field_and_changes_nothing(opened: Opened) -> None:
    name = named()
    async with opened() as cluster:
        created = await cluster.create(TYJOBS, "default", job(name))
        with pytest.raises(ApiError, match=r'unknown field "spec\.suspended"'):
            await cluster.patch(TYJOBS, "default", name, {"spec": {"suspended": True, "priority": 9}})
        assert (await cluster.get(TYJOBS, "default", name))["spec"] == created["spec"]


async def test_an_unknown_field_of_metadata_is_named(opened: Opened) -> None:
    made = job(named())
    made["metadata"]["lables"] = {"team": "rl"}
    async with opened() as cluster:
        with pytest.raises(ApiError, match=r'unknown field "metadata\.lables"'):
            await cluster.create(TYJOBS, "default", made)


async def test_the_clients_submit_names_the_field_and_the_nearest_one(configured: Configured) -> None:
    words = (
        r'unknown field "spec\.priorty".*'
        r"did you mean counts in place of spec\.workerSets\[0\]\.count\?.*"
        r"did you mean priority in place of spec\.priorty\?"
    )

    def blocking(kubeconfig: Path) -> None:
        with Client(kubeconfig=kubeconfig) as client, pytest.raises(ApiError, match=words):
            client.submit(misspelt(named()))

    async with configured() as kubeconfig, AsyncClient(kubeconfig=kubeconfig) as client:
        with pytest.raises(ApiError, match=words):
            await client.submit(misspelt(named()))
        with pytest.raises(ApiError, match=r"spec\.restartLimit"):
            await client.submit(job(named(), restartLimit=-1))
        await asyncio.to_thread(blocking, kubeconfig)
        name = named()
        await client.submit(job(name))
        assert (await client.suspend(name)).object["spec"]["suspend"] is True


# --- fields of objects in files -------------------------------------------------------------------------------------

_GROUPS = {
    "api/v1": (
        *("Pod", "Node", "Namespace", "ResourceQuota", "LimitRange", "PersistentVolume", "PersistentVolumeClaim"),
    ),
    "apis/scheduling.k8s.io/v1": ("PriorityClass",),
    "apis/node.k8s.io/v1": ("RuntimeClass",),
    "apis/storage.k8s.io/v1": ("StorageClass", "CSINode"),
    "apis/resource.k8s.io/v1": ("ResourceSlice", "DeviceClass", "ResourceClaim", "ResourceClaimTemplate"),
}


def _published(schemas: Mapping[str, Any], kind: str, part: str) -> set[str]:
    """The fields of a part of a kind, or of the whole, by the API server's schema."""
    [whole] = [of for of in schemas.values() if kind in [one["kind"] for one in of.get(_KINDS, ())]]
    if not part:
        return set(whole["properties"])
    [reference] = whole["properties"][part]["allOf"]
    return set(schemas[reference["$ref"].rpartition("/")[2]]["properties"])


_KINDS = "x-kubernetes-group-version-kind"


def test_the_known_fields_are_those_that_the_api_server_publishes(kube_server: RealKube) -> None:
    for path, kinds in _GROUPS.items():
        schemas = kube_server.request("GET", f"/openapi/v3/{path}")[1]["components"]["schemas"]
        for kind in kinds:
            for part, known in FIELDS[kind].items():
                assert _published(schemas, kind, part) == known, (kind, part)
        assert set(schemas["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"]["properties"]) == METADATA
    checked = {kind for kinds in _GROUPS.values() for kind in kinds}
    assert checked == FIELDS.keys() - {"PodGroup"}
