"""Pods that no TYJob owns and that name Arranger as their scheduler, as kubectl shows them on both clusters."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from arranger.sandbox.nodes import NodeTemplate
from tests.e2e.both_clusters import BOTH, Cluster, cluster_of
from tests.e2e.harness import PODS, apply, arranger, await_stage, eventually, finish_jobs, job, pod_template
from tests.servers import KubeServer

WAIT = ("--timeout=120s",)


@pytest.fixture(scope="module", params=BOTH)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of one node, and one process with all roles."""
    node, names = NodeTemplate("node-1", cpu="4"), "arranger,volcano"
    with cluster_of(request, tmp_path_factory.mktemp("pods"), node, scheduler_names=names) as running:
        yield running


@pytest.fixture
def kube(cluster: Cluster) -> Iterator[KubeServer]:
    yield cluster.kube
    cluster.kube.kubectl("delete", "pods", "--all", *WAIT)


def pod(name: str, *, cpu: str = "1", **spec: Any) -> dict[str, Any]:
    """A pod that somebody makes by hand, for Arranger to place."""
    made = pod_template(cpu=cpu)["spec"] | {"schedulerName": "arranger"} | spec
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": made}


def there(kube: KubeServer, name: str) -> dict[str, Any]:
    found: dict[str, Any] = kube.request("GET", f"{PODS}/{name}")[1]
    return found


def scheduled(kube: KubeServer, name: str) -> tuple[str, str, str]:
    """The condition PodScheduled of a pod: status, reason and message."""
    conditions = {of["type"]: of for of in there(kube, name)["status"].get("conditions") or ()}
    of = conditions.get("PodScheduled", {})
    return of.get("status", ""), of.get("reason", ""), of.get("message", "")


def events(kube: KubeServer, name: str) -> dict[str, str]:
    """Reason → message of the Events on a pod."""
    items = kube.request("GET", "/api/v1/namespaces/default/events")[1]["items"]
    about = [of for of in items if (of["involvedObject"]["kind"], of["involvedObject"]["name"]) == ("Pod", name)]
    return {of["reason"]: of["message"] for of in about}


def runs(kube: KubeServer, *names: str) -> None:
    kube.kubectl("wait", "--for=condition=Ready", *[f"pod/{name}" for name in names], *WAIT)


def test_a_pod_is_bound_and_runs(kube: KubeServer) -> None:
    apply(kube, pod("web"))
    runs(kube, "web")
    assert there(kube, "web")["spec"]["nodeName"] == "node-1"
    assert scheduled(kube, "web")[0] == "True"
    eventually("its Event says where", lambda: events(kube, "web").get("Scheduled") == "bound default/web to node-1")


def test_a_pod_whose_init_container_asks_for_local_storage_runs(kube: KubeServer) -> None:
    """As that of an MPIJob."""
    storage = {"requests": {"ephemeral-storage": "5Gi"}, "limits": {"ephemeral-storage": "5Gi"}}
    apply(kube, pod("mpi", initContainers=[{"name": "deliver", "image": "i", "resources": storage}]))
    runs(kube, "mpi")


def test_the_status_tells_of_another_scheduler_that_binds_pods_of_arrangers_names(
    cluster: Cluster, kube: KubeServer
) -> None:
    def status() -> str:
        return arranger("status", "--log", cluster.redis_url).stdout

    words = "another scheduler binds pods that name volcano"
    apply(kube, pod("mine", schedulerName="volcano"))
    runs(kube, "mine")
    assert words not in status()
    apply(kube, pod("taken", cpu="100", schedulerName="volcano"))
    eventually("Arranger waits", lambda: scheduled(kube, "taken")[:2] == ("False", "Unschedulable"))
    target = {"apiVersion": "v1", "kind": "Node", "name": "node-1"}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "taken"}, "target": target}
    kube.request("POST", f"{PODS}/taken/binding", binding)
    eventually("the status says so", lambda: words in " ".join(status().split()))
    assert "default/taken" in status()


def test_a_pod_waits_says_why_and_runs_once_there_is_room(kube: KubeServer) -> None:
    apply(kube, pod("first", cpu="3"))
    runs(kube, "first")
    apply(kube, pod("second", cpu="2"))
    eventually("its condition says why", lambda: scheduled(kube, "second")[:2] == ("False", "Unschedulable"))
    assert "insufficient cpu (needs 2, at most 1 free)" in scheduled(kube, "second")[2]
    eventually("an Event says why", lambda: "insufficient cpu" in events(kube, "second").get("FailedScheduling", ""))
    kube.kubectl("delete", "pod", "first", *WAIT)
    runs(kube, "second")


def test_a_gated_pod_waits_for_its_gates(kube: KubeServer) -> None:
    apply(kube, pod("gated", schedulingGates=[{"name": "example.com/later"}]), pod("free"))
    runs(kube, "free")
    assert scheduled(kube, "gated")[:2] == ("False", "SchedulingGated")
    kube.kubectl("patch", "pod", "gated", "--type=merge", "-p", '{"spec": {"schedulingGates": null}}')
    runs(kube, "gated")


def test_a_pod_of_another_scheduler_is_left_alone(kube: KubeServer) -> None:
    apply(kube, pod("theirs", schedulerName="another"), pod("ours"))
    runs(kube, "ours")
    assert "nodeName" not in there(kube, "theirs")["spec"] and scheduled(kube, "theirs") == ("", "", "")


def test_pods_and_jobs_share_the_nodes(kube: KubeServer) -> None:
    apply(kube, pod("web", cpu="2"))
    runs(kube, "web")
    apply(kube, job("ppo", workers=2))
    eventually("the job waits for the pod's room", lambda: "insufficient cpu" in message_of(kube, "ppo"))
    kube.kubectl("delete", "pod", "web", *WAIT)
    await_stage(kube, "Running", "ppo")
    finish_jobs(kube, "ppo")
    kube.kubectl("delete", "tyj", "ppo", *WAIT)


def member(name: str, *, least: int, cpu: str = "1") -> dict[str, Any]:
    """A pod of the group `train`."""
    made = pod(name, cpu=cpu)
    made["metadata"]["labels"] = {
        "pod-group.scheduling.sigs.k8s.io/name": "train",
        "pod-group.scheduling.sigs.k8s.io/min-available": str(least),
    }
    return made


def test_a_group_of_pods_waits_whole_beside_a_job_and_runs_whole(cluster: Cluster, kube: KubeServer) -> None:
    names = ("a", "b", "c")
    apply(kube, *[member(name, least=3) for name in names[:2]])
    words = "waits for 1 more pod of its group, which needs 3 and has 2"
    eventually("each says how many it lacks", lambda: all(scheduled(kube, of)[2] == words for of in names[:2]))
    apply(kube, job("ppo", workers=1))
    await_stage(kube, "Running", "ppo")
    apply(kube, member("c", least=3))
    eventually("each waits for room", lambda: all("insufficient cpu" in scheduled(kube, of)[2] for of in names))
    assert not any("nodeName" in there(kube, name)["spec"] for name in names), "no part of it holds anything"
    finish_jobs(kube, "ppo")
    kube.kubectl("delete", "tyj", "ppo", *WAIT)
    runs(kube, *names)
    told = arranger("explain", "group:train", "-o", "json", "--log", cluster.redis_url)
    standing = json.loads(told.stdout)["standing"]
    assert (standing["stage"], standing["pods_placed"], standing["min_workers"]) == ("Running", 3, 3), told.stderr


def message_of(kube: KubeServer, name: str) -> str:
    status = kube.request("GET", f"/apis/arranger.dev/v1/namespaces/default/tyjobs/{name}")[1].get("status") or {}
    return str(status.get("message", ""))


def test_the_log_explains_a_pods_life(cluster: Cluster, kube: KubeServer) -> None:
    apply(kube, pod("blocker", cpu="4"))
    runs(kube, "blocker")
    apply(kube, pod("story"))
    eventually("it waits", lambda: scheduled(kube, "story")[1] == "Unschedulable")
    told = arranger("explain", "pod:story", "--log", cluster.redis_url)
    assert told.returncode == 0 and "insufficient cpu" in told.stdout, told.stdout + told.stderr
    kube.kubectl("delete", "pod", "blocker", *WAIT)
    runs(kube, "story")
    found = arranger("explain", "pod:story", "-o", "json", "--log", cluster.redis_url)
    standing = json.loads(found.stdout)["standing"]
    assert (standing["stage"], standing["pods_placed"]) == ("Running", 1), found.stderr
    kinds = {moment["kind"] for moment in json.loads(found.stdout)["timeline"]}
    assert {"PodSeen", "Waits", "Placed"} <= kinds
    kube.kubectl("delete", "pod", "story", *WAIT)
    gone = arranger("explain", "pod:story", "--log", cluster.redis_url)
    assert gone.returncode == 0 and "was deleted at" in gone.stdout, gone.stdout


def test_pods_run_on_without_the_log_and_others_are_placed(cluster: Cluster, kube: KubeServer) -> None:
    apply(kube, pod("before", cpu="3"), pod("after", cpu="2"))
    eventually("one of them runs", lambda: any("nodeName" in there(kube, of)["spec"] for of in ("before", "after")))
    names = ["before", "after"]
    first = next(of for of in names if "nodeName" in there(kube, of)["spec"])
    second = next(of for of in names if of != first)
    uid = there(kube, first)["metadata"]["uid"]
    cluster.restart_without_log()
    apply(kube, pod("small"))
    runs(kube, first, "small")
    assert there(kube, first)["metadata"]["uid"] == uid and "nodeName" not in there(kube, second)["spec"]
    kube.kubectl("delete", "pod", first, *WAIT)
    runs(kube, second)
