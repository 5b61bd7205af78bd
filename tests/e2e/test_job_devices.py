"""TYJobs whose pods have or share resource claims, on both clusters: each pod has its devices before it starts, no
device is in use twice, and none is lost when pods, jobs or appliers end."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from arranger.sandbox.nodes import NodeTemplate
from tests.claim_controller import claim_controller
from tests.device_objects import claim, claim_template, device_class, slice_of
from tests.e2e.both_clusters import BOTH, Cluster, cluster_of
from tests.e2e.harness import (
    apply,
    arranger,
    await_stage,
    eventually,
    finish_leader,
    job,
    pods_of,
    status_of,
    verified,
)
from tests.e2e.test_devices import CLAIMS, KINDS, claim_there
from tests.e2e.test_every_pod import WAIT
from tests.servers import REPOSITORY, KubeServer

EXAMPLE = REPOSITORY / "examples" / "devices" / "own-gpus.yaml"
DEVICES = {"node-1": ("gpu-0", "gpu-1"), "node-2": ("gpu-0", "gpu-1", "gpu-2")}


@pytest.fixture(scope="module", params=BOTH)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of two nodes with two and three devices, and one process with all roles that allocates them."""
    nodes = [NodeTemplate(name, cpu="16") for name in DEVICES]
    with cluster_of(request, tmp_path_factory.mktemp("devices"), *nodes, devices="true") as running:
        for name, devices in DEVICES.items():
            running.kube.kubectl("apply", "-f", "-", stdin=json.dumps(slice_of(name, *devices)))
        for name in ("gpu", "gpu.nvidia.com"):
            running.kube.kubectl("apply", "-f", "-", stdin=json.dumps(device_class(name)))
        yield running
        running.kube.kubectl("delete", "resourceslices,deviceclasses", "--all")


@pytest.fixture
def kube(cluster: Cluster) -> Iterator[KubeServer]:
    kube = cluster.kube
    with claim_controller(kube):
        apply(kube, claim_template("gpu"))
        yield kube
        kube.kubectl("delete", "tyj", "--all", *WAIT)
        eventually("all pods are gone", lambda: not kube.kubectl("get", "pods", "-o", "name").stdout.split())
        kube.kubectl("delete", KINDS, "--all", *WAIT)


def claiming(name: str, *, workers: int, own: bool = True, claim: str = "gpu", **spec: Any) -> dict[str, Any]:
    """A TYJob each worker of which has a claim from the template `gpu`, or which all share a claim."""
    of = job(name, workers=workers, **spec)
    entry = {"name": "gpu", "resourceClaimTemplateName" if own else "resourceClaimName": claim}
    template = of["spec"]["workerSets"][0]["template"]["spec"]
    template["resourceClaims"] = [entry]
    template["containers"][0]["resources"]["claims"] = [{"name": "gpu"}]
    return of


def claims(kube: KubeServer) -> dict[str, dict[str, Any]]:
    return {of["metadata"]["name"]: of for of in kube.request("GET", CLAIMS)[1]["items"]}


def devices(kube: KubeServer) -> dict[str, list[tuple[str, str]]]:
    """Claim → its devices, as (pool, device), of all claims that have some. No device is in two of them."""
    allocations = {name: (of.get("status") or {}).get("allocation") for name, of in claims(kube).items()}
    found = {
        name: [(one["pool"], one["device"]) for one in of["devices"]["results"]]
        for name, of in allocations.items()
        if of
    }
    every = [one for of in found.values() for one in of]
    assert len(every) == len(set(every)), found
    return found


def all_in_use(kube: KubeServer, name: str) -> list[dict[str, Any]]:
    """The running pods of a job with claims, after a check that each of them may use all of its claims, and that their
    devices are on its node."""
    has, found = devices(kube), [pod for pod in pods_of(kube, name) if pod["spec"].get("resourceClaims")]
    for pod in found:
        assert pod["status"]["phase"] == "Running", pod["metadata"]["name"]
        for entry in pod["spec"]["resourceClaims"]:
            of = entry["resourceClaimName"]
            reserved = [one["uid"] for one in claim_there(kube, of)["status"]["reservedFor"]]
            assert pod["metadata"]["uid"] in reserved
            assert {pool for pool, _ in has[of]} == {pod["spec"]["nodeName"]}
    return found


def test_each_pod_of_the_example_has_devices_of_its_own_and_the_end_of_the_job_frees_them(
    cluster: Cluster, kube: KubeServer
) -> None:
    kube.kubectl("apply", "-f", str(EXAMPLE))
    await_stage(kube, "Running", "own-gpus")
    eventually("all workers run", lambda: status_of(kube, "own-gpus")["readyWorkers"] == 3)
    assert len(all_in_use(kube, "own-gpus")) == 4
    has = devices(kube)
    assert sorted(len(of) for of in has.values()) == [1, 1, 1, 2]
    assert has["own-gpus-learner-0.gpu"] and has["own-gpus-actors-2.gpu"]
    apply(kube, claiming("next", workers=2))
    words = "insufficient devices for resource claim gpu (needs 1 of gpu)"
    eventually("it says why it waits", lambda: words in status_of(kube, "next").get("message", ""))
    told = arranger("explain", "next", "--log", cluster.redis_url)
    assert words in told.stdout, told.stdout + told.stderr
    finish_leader(kube, "own-gpus")
    await_stage(kube, "Succeeded", "own-gpus")
    await_stage(kube, "Running", "next")
    eventually("its own claims are gone", lambda: {of.partition("-")[0] for of in claims(kube)} == {"next"})
    assert len(all_in_use(kube, "next")) == 2
    events = arranger("events", "--kind", "Placed", "--log", cluster.redis_url).stdout
    assert "resource claim gpu of pod 0 of set 1: device gpu-" in events, events
    verified(cluster.redis_url)


def test_a_worker_that_is_gone_or_failed_is_replaced_and_has_devices_again(cluster: Cluster, kube: KubeServer) -> None:
    apply(kube, claiming("heals", workers=5, least=1))
    eventually("all workers run", lambda: status_of(kube, "heals").get("readyWorkers") == 5)
    before = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in all_in_use(kube, "heals")}
    assert sum(len(of) for of in devices(kube).values()) == 5
    kube.kubectl("delete", "pod", "heals-actors-0", "--wait=false")
    failed = kube.request("GET", "/api/v1/namespaces/default/pods/heals-actors-1")[1]
    body = {"status": {"phase": "Failed"}}
    path = f"/api/v1/namespaces/default/pods/{failed['metadata']['name']}/status"
    kube.request("PATCH", path, body, content_type="application/merge-patch+json")

    def again() -> bool:
        pods = [pod for pod in pods_of(kube, "heals") if pod["spec"].get("resourceClaims")]
        running = {pod["metadata"]["uid"] for pod in pods if pod["status"].get("phase") == "Running"}
        return len(running) == 5 and len(running - set(before.values())) == 2

    eventually("two others run", again)
    kube.kubectl("delete", "pod", "--field-selector=status.phase=Failed", *WAIT)
    assert len(all_in_use(kube, "heals")) == 5
    assert sum(len(of) for of in devices(kube).values()) == 5
    verified(cluster.redis_url)


def test_workers_that_share_a_claim_are_on_one_node_and_all_may_use_it(cluster: Cluster, kube: KubeServer) -> None:
    apply(kube, claim("shared", 3), claiming("shares", workers=4, own=False, claim="shared"))
    await_stage(kube, "Running", "shares")
    eventually("all workers run", lambda: status_of(kube, "shares")["readyWorkers"] == 4)
    assert {pod["spec"]["nodeName"] for pod in all_in_use(kube, "shares")} == {"node-2"}
    assert len(claim_there(kube, "shared")["status"]["reservedFor"]) == 4
    finish_leader(kube, "shares")
    await_stage(kube, "Succeeded", "shares")
    eventually("the claim has lost its devices", lambda: not devices(kube))
    verified(cluster.redis_url)


def test_a_process_that_is_killed_at_any_step_loses_and_doubles_nothing(cluster: Cluster, kube: KubeServer) -> None:
    (worker,) = cluster.fleet.workers.values()
    apply(kube, *[claiming(f"killed-{at}", workers=2, least=2) for at in range(3)])
    for after_s in (0.05, 0.3, 0.1, 0.6):
        worker.kill()
        worker.start()
        worker.wait_ready()
        time.sleep(after_s)
        devices(kube)
    names = [f"killed-{at}" for at in range(3)]
    eventually("two of three run", lambda: sum(status_of(kube, of).get("readyWorkers") == 2 for of in names) == 2)
    (waits,) = [of for of in names if status_of(kube, of).get("readyWorkers") != 2]
    assert not pods_of(kube, waits)
    assert sum(len(all_in_use(kube, of)) for of in names) == 4
    assert sum(len(of) for of in devices(kube).values()) == 4
    for of in [of for of in names if of != waits]:
        finish_leader(kube, of)
        await_stage(kube, "Succeeded", of)
    await_stage(kube, "Running", waits)
    eventually("no other claims are left", lambda: all(of.startswith(waits) for of in claims(kube)))
    verified(cluster.redis_url)


def test_without_the_log_jobs_go_on_with_their_claims(cluster: Cluster, kube: KubeServer) -> None:
    apply(kube, claiming("adopted", workers=3, least=1))
    eventually("all workers run", lambda: status_of(kube, "adopted").get("readyWorkers") == 3)
    before, has = {pod["metadata"]["uid"] for pod in all_in_use(kube, "adopted")}, devices(kube)
    cluster.restart_without_log()
    apply(kube, claiming("second", workers=2))
    await_stage(kube, "Running", "second")
    eventually("its workers run", lambda: status_of(kube, "second")["readyWorkers"] == 2)
    assert {pod["metadata"]["uid"] for pod in all_in_use(kube, "adopted")} == before
    assert has.items() <= devices(kube).items() and len(all_in_use(kube, "second")) == 2
    verified(cluster.redis_url)
