"""Claims that wait for their first pod, on both clusters: a volume is made for its node, and the pod comes after it."""

import contextlib
import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from arranger.kube.volumes import SELECTED_NODE
from arranger.sandbox.nodes import NodeTemplate
from tests.e2e.both_clusters import BOTH, Cluster, cluster_of
from tests.e2e.harness import apply, arranger, await_stage, eventually, job, pods_of, status_of, verified
from tests.e2e.test_every_pod import WAIT, pod, runs, there
from tests.provisioner import CLASS, claim, provisioner
from tests.servers import KubeServer

CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
VOLUME = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]


@pytest.fixture(params=BOTH)
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    """A cluster of two nodes, and one process with all roles for which volumes decide."""
    with with_volumes(request, tmp_path) as running:
        yield running


@pytest.fixture(params=BOTH)
def impatient(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    """The same, where claims have to be bound within six seconds."""
    with with_volumes(request, tmp_path, volume_timeout_s="6") as running:
        yield running


@contextlib.contextmanager
def with_volumes(request: pytest.FixtureRequest, folder: Path, **settings: str) -> Iterator[Cluster]:
    nodes = [NodeTemplate(name, cpu="4") for name in ("node-1", "node-2")]
    with cluster_of(request, folder, *nodes, volumes="true", **settings) as running:
        apply(running.kube, CLASS)
        yield running
        running.kube.kubectl("delete", "tyj,pods", "--all", *WAIT)
        for resource in ("pvc", "pv"):  # a lone API server keeps them until somebody removes their finalizers
            for name in running.kube.kubectl("get", resource, "-o", "name").stdout.split():
                running.kube.kubectl("delete", name, "--wait=false")
                patch = ("patch", name, "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
                running.kube.kubectl(*patch, check=False)
        running.kube.kubectl("delete", "storageclass", "fast")


def selected(kube: KubeServer) -> str:
    found: dict[str, Any] = kube.request("GET", f"{CLAIMS}/data")[1]["metadata"]
    return str(found.get("annotations", {}).get(SELECTED_NODE, ""))


def test_a_job_waits_for_its_claim_and_its_volume_and_a_pod_of_others_follows_it(cluster: Cluster) -> None:
    kube, train = cluster.kube, copy.deepcopy(job("train", workers=1, cpu="3"))
    train["spec"]["leader"]["template"]["spec"]["volumes"] = VOLUME
    apply(kube, train)
    words = "claim data doesn't exist: create it"
    eventually("it says what it lacks", lambda: words in status_of(kube, "train").get("message", ""))
    told = arranger("explain", "train", "--log", cluster.redis_url)
    assert words in told.stdout, told.stderr
    apply(kube, claim("data"))
    node = eventually("a node is selected", lambda: selected(kube))
    assert not pods_of(kube, "train"), "no pod before its volume"
    with provisioner(kube):
        await_stage(kube, "Running", "train")
    (leader,) = [of for of in pods_of(kube, "train") if "learner" in of["metadata"]["name"]]
    assert leader["spec"]["nodeName"] == node
    apply(kube, pod("reader", cpu="500m", volumes=VOLUME))
    runs(kube, "reader")
    assert there(kube, "reader")["spec"]["nodeName"] == node
    verified(cluster.redis_url)
    events = arranger("events", "--kind", "ClaimSeen", "--log", cluster.redis_url).stdout
    assert f"to be made for node {node}" in events and "Bound" in events, events


def test_a_node_on_which_no_volume_is_made_in_time_is_given_up_for_another(impatient: Cluster) -> None:
    kube, train = impatient.kube, copy.deepcopy(job("train", workers=0, cpu="3"))
    train["spec"]["leader"]["template"]["spec"]["volumes"] = VOLUME
    apply(kube, claim("data"), train)
    first = eventually("a node is selected", lambda: selected(kube))
    words = f"waits for claim data to be bound on node {first}, since "
    eventually("it says what it waits for", lambda: words in status_of(kube, "train").get("message", ""))
    eventually("another node is selected", lambda: selected(kube) not in ("", first))
    assert not pods_of(kube, "train")
    with provisioner(kube):
        await_stage(kube, "Running", "train")
    verified(impatient.redis_url)
    told = arranger("events", "--kind", "EffectFailed", "--log", impatient.redis_url).stdout
    assert f"claim data wasn't bound on node {first} within 6 s" in told
