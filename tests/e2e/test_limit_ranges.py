"""LimitRanges: containers that name no requests get some at creation, and nodes were chosen for that."""

from collections.abc import Iterator

import pytest

from arranger.sandbox.nodes import NodeTemplate
from tests.e2e.both_clusters import BOTH, Cluster, cluster_of
from tests.e2e.harness import apply, await_stage, eventually, job, pods_of, status_of
from tests.servers import MERGE, KubeServer

LIMIT_RANGES = "/api/v1/namespaces/default/limitranges"


@pytest.fixture(scope="module", params=BOTH)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes of 6 cpu, and one process with all roles. Containers request 4 cpu by default."""
    nodes = [NodeTemplate(f"node-{number}", cpu="6") for number in range(3)]
    with cluster_of(request, tmp_path_factory.mktemp("limits"), *nodes) as cluster:
        limits = {"limits": [{"type": "Container", "defaultRequest": {"cpu": "4"}}]}
        body = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "defaults"}, "spec": limits}
        code, answer = cluster.kube.request("POST", LIMIT_RANGES, body)
        assert code == 201, answer
        yield cluster
        cluster.kube.request("DELETE", f"{LIMIT_RANGES}/defaults")


def apply_without_requests(kube: KubeServer, name: str, workers: int) -> None:
    made = job(name, workers=workers)
    for of in (made["spec"]["leader"], *made["spec"]["workerSets"]):
        del of["template"]["spec"]["containers"][0]["resources"]
    apply(kube, made)


def change(kube: KubeServer, cpu: str) -> None:
    limits = {"spec": {"limits": [{"type": "Container", "defaultRequest": {"cpu": cpu}}]}}
    code, answer = kube.request("PATCH", f"{LIMIT_RANGES}/defaults", limits, content_type=MERGE)
    assert code == 200, answer


def forget(kube: KubeServer, name: str) -> None:
    kube.kubectl("delete", "tyj", name, "--timeout=120s")
    eventually(f"the pods of {name} are gone", lambda: not pods_of(kube, name))


def test_pods_without_requests_get_a_node_each_where_no_two_have_room(cluster: Cluster) -> None:
    kube = cluster.kube
    apply_without_requests(kube, "train", 2)
    await_stage(kube, "Running", "train")
    pods = pods_of(kube, "train")
    assert {of["spec"]["containers"][0]["resources"]["requests"]["cpu"] for of in pods} == {"4"}
    assert sorted(of["spec"]["nodeName"] for of in pods) == ["node-0", "node-1", "node-2"]
    assert {of["status"]["phase"] for of in pods} == {"Running"}
    status = status_of(kube, "train")
    assert (status.get("attempt", 0), status["restarts"]) == (0, 0)
    forget(kube, "train")


def test_a_job_waits_for_what_its_containers_would_get_and_starts_when_it_is_less(cluster: Cluster) -> None:
    kube = cluster.kube
    apply_without_requests(kube, "large", 3)
    eventually("it says what is missing", lambda: "cpu" in str(status_of(kube, "large").get("message", "")))
    assert pods_of(kube, "large") == []
    change(kube, "3")
    await_stage(kube, "Running", "large")
    pods = pods_of(kube, "large")
    assert len(pods) == 4 and {of["status"]["phase"] for of in pods} == {"Running"}
    forget(kube, "large")
    change(kube, "4")
