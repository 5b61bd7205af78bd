"""Pods with resource claims, on both clusters: a claim has its devices and is reserved before its pod is bound."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from arranger.kube.devices import FINALIZER
from arranger.sandbox.nodes import NodeTemplate
from tests.claim_controller import claim_controller
from tests.device_objects import API, DRIVER, claim, claim_spec, device_class, slice_of
from tests.e2e.both_clusters import BOTH, Cluster, cluster_of
from tests.e2e.harness import apply, arranger, eventually, verified
from tests.e2e.test_every_pod import WAIT, pod, runs, scheduled, there
from tests.servers import KubeServer

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
KINDS = "resourceclaims,resourceclaimtemplates"


@pytest.fixture(scope="module", params=BOTH)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of two nodes, one of them with two devices, and one process with all roles that allocates them."""
    nodes = [NodeTemplate(name, cpu="8") for name in ("node-1", "node-2")]
    with cluster_of(request, tmp_path_factory.mktemp("devices"), *nodes, devices="true") as running:
        running.kube.kubectl("apply", "-f", "-", stdin=json.dumps(slice_of("node-2", "gpu-0", "gpu-1")))
        running.kube.kubectl("apply", "-f", "-", stdin=json.dumps(device_class()))
        yield running
        running.kube.kubectl("delete", "resourceslices,deviceclasses", "--all")


@pytest.fixture
def kube(cluster: Cluster) -> Iterator[KubeServer]:
    with claim_controller(cluster.kube):
        yield cluster.kube
        cluster.kube.kubectl("delete", "pods", "--all", *WAIT)
        cluster.kube.kubectl("delete", KINDS, "--all", *WAIT)


def with_claim(name: str, claim: str, **more: Any) -> dict[str, Any]:
    return pod(name, resourceClaims=[{"name": "gpu", "resourceClaimName": claim}], **more)


def claim_there(kube: KubeServer, name: str) -> dict[str, Any]:
    found: dict[str, Any] = kube.request("GET", f"{CLAIMS}/{name}")[1]
    return found


def devices_of(kube: KubeServer, name: str) -> list[str]:
    allocation = claim_there(kube, name).get("status", {}).get("allocation") or {}
    return [of["device"] for of in allocation.get("devices", {}).get("results", ())]


def test_pods_get_the_nodes_of_their_devices_and_the_next_one_waits(cluster: Cluster, kube: KubeServer) -> None:
    memory = f'device.capacity["{DRIVER}"].memory.compareTo(quantity("40Gi")) >= 0'
    model = f'device.attributes["{DRIVER}"].model == "A100" && {memory}'
    apply(kube, claim("one", expression=model), claim("two", 2), with_claim("first", "one"))
    runs(kube, "first")
    assert there(kube, "first")["spec"]["nodeName"] == "node-2" and devices_of(kube, "one") == ["gpu-0"]
    of = claim_there(kube, "one")
    assert FINALIZER in of["metadata"]["finalizers"]
    assert [one["name"] for one in of["status"]["reservedFor"]] == ["first"]
    apply(kube, with_claim("second", "two"))
    words = "2 insufficient devices for resource claim two (needs 2 of gpu)"
    eventually("its condition says why", lambda: words in scheduled(kube, "second")[2])
    told = arranger("explain", "pod:second", "--log", cluster.redis_url)
    assert words in told.stdout, told.stdout + told.stderr
    kube.kubectl("delete", "pod", "first", *WAIT)
    runs(kube, "second")
    assert devices_of(kube, "two") == ["gpu-0", "gpu-1"] and devices_of(kube, "one") == []
    events = arranger("events", "--kind", "Placed", "--log", cluster.redis_url).stdout
    assert f"resource claim two: devices gpu-0 of {DRIVER} (pool node-2), gpu-1" in events, events
    verified(cluster.redis_url)


def test_pods_share_a_claim_and_have_claims_of_their_own_from_a_template(cluster: Cluster, kube: KubeServer) -> None:
    template = {"apiVersion": API, "kind": "ResourceClaimTemplate", "metadata": {"name": "gpu"}}
    apply(kube, template | {"spec": {"spec": claim_spec()}}, claim("shared"))
    own = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]}
    apply(kube, with_claim("a", "shared"), with_claim("b", "shared"), pod("own", **own))
    runs(kube, "a", "b", "own")
    assert {there(kube, name)["spec"]["nodeName"] for name in ("a", "b", "own")} == {"node-2"}
    assert len(claim_there(kube, "shared")["status"]["reservedFor"]) == 2
    (status,) = there(kube, "own")["status"]["resourceClaimStatuses"]
    assert {*devices_of(kube, "shared"), *devices_of(kube, status["resourceClaimName"])} == {"gpu-0", "gpu-1"}
    verified(cluster.redis_url)


def test_a_claim_deleted_before_its_pod_is_placed_loses_nothing(kube: KubeServer) -> None:
    apply(kube, with_claim("web", "late"))
    words = "resource claim late doesn't exist: create it"
    eventually("it says what it lacks", lambda: words in scheduled(kube, "web")[2])
    apply(kube, claim("late", 3))
    eventually("it says that devices lack", lambda: "insufficient devices" in scheduled(kube, "web")[2])
    kube.kubectl("delete", "resourceclaim", "late", *WAIT)
    eventually("it says what it lacks again", lambda: words in scheduled(kube, "web")[2])
    apply(kube, claim("late"))
    runs(kube, "web")
