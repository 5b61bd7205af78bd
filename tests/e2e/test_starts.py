"""Quorums that don't start, and pods that hang in Terminating, as kubectl shows them on both clusters."""

from collections.abc import Iterator
from typing import Any

import pytest

from arranger.sandbox.nodes import NodeTemplate
from tests.e2e.both_clusters import BOTH, Cluster, cluster_of
from tests.e2e.harness import MERGE, PODS, apply, await_stage, eventually, job, pod_template, pods_of, status_of
from tests.servers import KubeServer

#: A finalizer that stands for a kubelet that never confirms a deletion.
KEEPS = "example.com/keeps"


@pytest.fixture(scope="module", params=BOTH)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two nodes, and one process with all roles and short bounds."""
    nodes = [NodeTemplate(name, cpu="4") for name in ("node-1", "node-2")]
    folder = tmp_path_factory.mktemp("starts")
    with cluster_of(request, folder, *nodes, start_grace_s=4, lost_node_s=4) as cluster:
        yield cluster


def of_workers(name: str, template: dict[str, Any], *, count: int = 1, **spec: Any) -> dict[str, Any]:
    """A job without a leader, whose workers restart together."""
    workers = {"name": "w", "counts": count, "minCount": count, "restart": {"scope": "Job"}, "template": template}
    made = job(name, workerSets=[workers], **spec)
    del made["spec"]["leader"], made["spec"]["minWorkersNum"]
    return made


def message(kube: KubeServer, name: str) -> str:
    return str(status_of(kube, name).get("message", ""))


def forget(kube: KubeServer, name: str) -> None:
    kube.kubectl("delete", "tyj", name, "--timeout=120s")
    eventually(f"the pods of {name} are gone", lambda: not pods_of(kube, name))


def keep(kube: KubeServer, pod: str, *finalizers: str) -> None:
    change = {"metadata": {"finalizers": list(finalizers) or None}}
    code, answer = kube.request("PATCH", f"{PODS}/{pod}", change, content_type=MERGE)
    assert code == 200, answer


@pytest.mark.parametrize("why", ["ErrImagePull", "CreateContainerConfigError"])
def test_workers_that_cannot_start_beside_a_good_leader_give_their_nodes_up(cluster: Cluster, why: str) -> None:
    kube, name = cluster.kube, f"stuck-{why.lower()}"
    workers = {"name": "w", "counts": 2, "minCount": 2, "template": pod_template(fail=why)}
    made = job(name, workerSets=[workers])
    del made["spec"]["minWorkersNum"]
    apply(kube, made)
    eventually("it says which pod can't start", lambda: "can't start on" in message(kube, name))
    eventually("it gives its nodes up", lambda: int(status_of(kube, name).get("attempt", 0)) >= 1)
    told = eventually("an Event says why", lambda: [line for line in _events(kube, name) if "StartTimeout" in line])
    assert "worker w-0 and 1 more couldn't start in 4 s on node-" in told[0] and why in told[0], told
    assert status_of(kube, name)["restarts"] == 0
    forget(kube, name)


def test_a_job_says_itself_how_long_its_start_may_take(cluster: Cluster) -> None:
    kube = cluster.kube
    apply(kube, of_workers("patient", pod_template(fail="ErrImagePull"), startGraceSeconds=3600))
    apply(kube, of_workers("hasty", pod_template(fail="CreateContainerError"), startGraceSeconds=1))
    eventually("one gives up", lambda: int(status_of(kube, "hasty").get("attempt", 0)) >= 1)
    assert any("in 1 s on node-" in line for line in _events(kube, "hasty"))
    forget(kube, "hasty")
    assert status_of(kube, "patient")["stage"] == "Starting"
    forget(kube, "patient")


def test_a_set_gets_no_nodes_for_a_quorum_without_the_set_that_it_starts_after(cluster: Cluster) -> None:
    kube = cluster.kube
    sets = [
        {"name": "main", "counts": 1, "template": pod_template(cpu="9")},
        {"name": "exploiters", "counts": 4, "startAfter": "main", "template": pod_template()},
    ]
    made = job("league", workerSets=sets, minWorkersNum=3)
    del made["spec"]["leader"]
    apply(kube, made)
    eventually("it names the set", lambda: "main" in message(kube, "league"))
    assert pods_of(kube, "league") == [] and status_of(kube, "league")["stage"] == "Pending"
    forget(kube, "league")


def test_a_pod_that_hangs_on_a_lost_node_is_left_behind(cluster: Cluster) -> None:
    kube = cluster.kube
    apply(kube, of_workers("gang", pod_template(cpu="3")))
    await_stage(kube, "Running", "gang")
    (pod,) = pods_of(kube, "gang")
    name, node = pod["metadata"]["name"], pod["spec"]["nodeName"]
    keep(kube, name, KEEPS)
    cluster.kubelets.set_ready(node, ready=False)
    kube.kubectl("delete", "pod", name, "--wait=false")
    try:
        eventually("it goes on", lambda: int(status_of(kube, "gang").get("attempt", 0)) == 1)
        await_stage(kube, "Running", "gang")
        on = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in pods_of(kube, "gang")}
        assert on[name] == node and on[f"{name}-r1"] != node
        assert f"left behind: pod {name} on {node}, which is not ready" in message(kube, "gang")
        eventually("an Event tells of it", lambda: any("PodsLeftBehind" in line for line in _events(kube, "gang")))
    finally:
        cluster.kubelets.set_ready(node, ready=True)
        keep(kube, name)
    eventually("the pod is gone", lambda: [of["metadata"]["name"] for of in pods_of(kube, "gang")] == [f"{name}-r1"])
    forget(kube, "gang")


def test_a_pod_that_hangs_on_a_ready_node_is_named_and_waited_for(cluster: Cluster) -> None:
    kube = cluster.kube
    apply(kube, of_workers("hangs", pod_template(cpu="3")))
    await_stage(kube, "Running", "hangs")
    (pod,) = pods_of(kube, "hangs")
    name, node = pod["metadata"]["name"], pod["spec"]["nodeName"]
    keep(kube, name, KEEPS)
    kube.kubectl("delete", "pod", name, "--wait=false")
    try:
        named = f"pod {name} on {node} is being deleted, with time to end until "
        eventually("it is named", lambda: named in message(kube, "hangs"))
    finally:
        keep(kube, name)
    eventually("it runs again", lambda: status_of(kube, "hangs").get("ready") == "1/1")
    forget(kube, "hangs")


def _events(kube: KubeServer, name: str) -> list[str]:
    return kube.kubectl("events", "--for", f"tyj/{name}").stdout.splitlines()
