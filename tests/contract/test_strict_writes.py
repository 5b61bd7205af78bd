"""Objects of users are created and patched strictly, against a real API server and the embedded cluster alike: a
misspelt field is refused and named, where Arranger's own writes would lose it."""

import asyncio
import contextlib
import copy
import functools
import itertools
import json
import re
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from arranger.cli.inputs.known_fields import FIELDS
from arranger.client import AsyncClient, Client
from arranger.errors import UsageError
from arranger.kube.client import HttpCluster
from arranger.kube.cluster import QUEUES, TYJOBS, ApiError, Cluster, Object
from arranger.kube.config import find_access
from arranger.model.validation import METADATA
from arranger.sandbox.direct import DirectCluster
from arranger.sandbox.embedded import EmbeddedCluster
from tests.e2e.harness import job
from tests.servers import CRD_FILES, RealKube, ServersUnavailable, kube_assets

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


@pytest.fixture
def kubectl() -> Path:
    try:
        return kube_assets() / "kubectl"
    except ServersUnavailable as missing:
        pytest.skip(str(missing))


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


# --- the client's submit and apply ---


def rich(name: str) -> Object:
    """A job with fields at many depths."""
    made = job(name)
    made["metadata"] |= {"labels": {"team": "rl"}, "annotations": {"note": "first"}}
    spec = made["spec"]
    spec |= {
        "queue": "default",
        "restartLimit": 2,
        "successPolicy": {"type": "Leader"},
        "topology": {"levels": ["rack"], "mode": "Preferred"},
        "priority": 4,
    }
    for part in (spec["leader"], spec["workerSets"][0]):
        part["template"]["metadata"] = {"labels": {"app": "ppo"}}
        part["template"]["spec"] |= {
            "volumes": [{"name": "scratch", "emptyDir": {"sizeLimit": "1Gi"}}],
            "tolerations": [{"key": "gpu", "operator": "Exists"}],
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}]
                    }
                }
            },
        }
        container = part["template"]["spec"]["containers"][0]
        container |= {
            "env": [{"name": "SEED", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
            "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
            "securityContext": {"capabilities": {"drop": ["ALL"]}},
        }
    return made


#: Objects whose keys are the user's.
_MAPS = ("labels", "annotations", "requests", "limits")


def fields_of(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all fields in an object."""
    if isinstance(value, list):
        return [found for number, item in enumerate(value) for found in fields_of(item, (*path, number))]
    if not isinstance(value, dict) or (path and path[-1] in _MAPS):
        return []
    return [found for name, item in value.items() for found in ((*path, name), *fields_of(item, (*path, name)))]


def with_typo(of: Object, path: tuple[Any, ...]) -> tuple[Object, str]:
    """The object with its field's last two letters the other way round, and that field's name."""
    made = copy.deepcopy(of)
    within = functools.reduce(lambda inner, key: inner[key], path[:-1], made)
    name = path[-1]
    wrong = name[:-2] + name[-1] + name[-2] if name[-1] != name[-2] else name + "x"
    within[wrong] = within.pop(name)
    return made, wrong


async def test_a_typo_in_any_field_of_submit_and_apply_is_refused_by_name_and_nothing_is_changed(
    configured: Configured,
) -> None:
    async with configured() as kubeconfig, AsyncClient(kubeconfig=kubeconfig) as client:
        there = await client.apply(rich(named()))
        first, other = rich(named()), rich(there.name)
        other["spec"]["priority"] = 9
        paths = fields_of(first)
        assert len(paths) > 80
        for path in paths:
            for verb, given in ((client.submit, first), (client.apply, first), (client.apply, other)):
                made, wrong = with_typo(given, path)
                with pytest.raises((ApiError, UsageError)) as refused:
                    await verb(made)
                said = str(refused.value)
                assert re.search(rf"\b{wrong}\b", said), (path, said)
                assert f"did you mean {path[-1]} in place of" in said, (path, said)
        with pytest.raises(ApiError, match="NotFound"):
            await client.job(first["metadata"]["name"])
        assert (await client.job(there.name)).object == there.object


async def test_apply_creates_a_job_and_then_changes_it_to_what_is_given(configured: Configured) -> None:
    given = rich(named())
    name = given["metadata"]["name"]
    async with configured() as kubeconfig, AsyncClient(kubeconfig=kubeconfig) as client:
        made = await client.apply(given)
        assert (await client.apply(given)).object == made.object, "nothing was to be changed"
        await client.scale(name, 5)
        given["spec"]["priority"] = 7
        del given["spec"]["restartLimit"], given["metadata"]["labels"], given["metadata"]["annotations"]
        changed = (await client.apply(given)).object
        assert changed["metadata"]["uid"] == made.uid
        assert (changed["spec"]["priority"], changed["spec"]["workerSets"][0]["counts"]) == (7, 2)
        assert changed["spec"].get("restartLimit", 3) == 3, "the default, if any, applies again"
        assert "labels" not in changed["metadata"] or not changed["metadata"]["labels"]
        assert "note" not in changed["metadata"]["annotations"]
        # As it came from the API server, with one field edited.
        changed["spec"]["priority"] = 3
        assert (await client.apply(changed)).object["spec"]["priority"] == 3
        changed["metadata"]["name"] = f"{name}-again"
        assert (await client.submit(changed)).stage == "Pending"


async def test_apply_refuses_counts_that_would_say_nothing_after_the_job_was_scaled(configured: Configured) -> None:
    """`spec.replicas` belongs to whoever scales the job, and counts in place of them."""
    given = rich(named())
    name, sets = given["metadata"]["name"], given["spec"]["workerSets"]
    before = sets[0]["counts"]
    async with configured() as kubeconfig, AsyncClient(kubeconfig=kubeconfig) as client:
        await client.apply(given)
        scaled = await client.scale(name, 5)
        # An autoscaler would be fought by every apply of an unchanged manifest.
        assert (await client.apply(given)).object == scaled.object
        sets[0]["counts"], given["spec"]["priority"] = 4, 7
        words = rf"spec.workerSets\[0\].counts: 4 .*spec.replicas \(5\).*give spec.replicas: 4.*scale\('{name}', 4\)"
        with pytest.raises(UsageError, match=words):
            await client.apply(given)
        assert (await client.job(name)).object == scaled.object, "nothing was changed"
        given["spec"]["replicas"] = 4
        spec = (await client.apply(given)).object["spec"]
        assert (spec["replicas"], spec["workerSets"][0]["counts"], spec["priority"]) == (4, 4, 7)
        # Who gave it can take it away again, and then counts count.
        del given["spec"]["replicas"]
        sets[0]["counts"] = before
        spec = (await client.apply(given)).object["spec"]
        assert (spec.get("replicas"), spec["workerSets"][0]["counts"]) == (None, before)


async def test_apply_takes_counts_that_say_what_the_job_was_scaled_to_and_those_of_other_sets(
    configured: Configured,
) -> None:
    given = rich(named())
    name, sets = given["metadata"]["name"], given["spec"]["workerSets"]
    sets.append({**sets[0], "name": "others", "counts": 2})
    async with configured() as kubeconfig, AsyncClient(kubeconfig=kubeconfig) as client:
        await client.apply(given)
        await client.scale(name, 5)
        sets[0]["counts"], sets[1]["counts"] = 5, 3
        spec = (await client.apply(given)).object["spec"]
        assert (spec["replicas"], [of["counts"] for of in spec["workerSets"]]) == (5, [5, 3])
        del sets[0]["counts"]
        assert (await client.apply(given)).object["spec"]["replicas"] == 5


async def test_apply_and_kubectl_apply_remove_what_the_other_one_gave(
    configured: Configured, kubectl: Path, tmp_path: Path
) -> None:
    given = rich(named())
    name, file = given["metadata"]["name"], tmp_path / "job.json"

    def applied(kubeconfig: Path) -> None:
        file.write_text(json.dumps(given))
        command = [str(kubectl), f"--kubeconfig={kubeconfig}", "apply", "-f", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")

    async with configured() as kubeconfig, AsyncClient(kubeconfig=kubeconfig) as client:
        await asyncio.to_thread(applied, kubeconfig)
        del given["metadata"]["labels"]
        assert "labels" not in (await client.apply(given)).object["metadata"]
        given["metadata"]["labels"] = {"team": "vision"}
        await client.apply(given)
        del given["metadata"]["labels"]
        await asyncio.to_thread(applied, kubeconfig)
        assert "labels" not in (await client.job(name)).object["metadata"]


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
