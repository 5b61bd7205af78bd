"""Queues as kubectl shows them on both clusters, and jobs that wait until they may use theirs."""

import json
from collections.abc import Iterator

import pytest

from arranger.sandbox.nodes import NodeTemplate
from tests.e2e.both_clusters import BOTH, cluster_of
from tests.e2e.harness import apply, await_stage, eventually, job, pods_of, status_of
from tests.servers import KubeServer
from tests.unit.queue_table import queue


@pytest.fixture(scope="module", params=BOTH)
def kube(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeServer]:
    """A cluster of one node, and one process with all roles."""
    with cluster_of(request, tmp_path_factory.mktemp("queues"), NodeTemplate("node-1", cpu="8")) as cluster:
        yield cluster.kube
        cluster.kube.kubectl("delete", "queues", "--all")
        cluster.kube.kubectl("annotate", "namespace", "default", "arranger.dev/queue-")


def says(kube: KubeServer, name: str, text: str) -> None:
    eventually(f"{name} says {text}", lambda: text in status_of(kube, name).get("message", ""))
    assert (status_of(kube, name)["stage"], pods_of(kube, name)) == ("Pending", [])


def test_a_job_waits_until_its_queue_is_there_and_open_and_runs_on_when_it_closes(kube: KubeServer) -> None:
    apply(kube, job("queued", workers=1, queue="robots"))
    says(kube, "queued", "waits for queue robots, which doesn't exist")
    apply(kube, queue("robots", parent="research"))
    says(kube, "queued", "queue robots is below research, which doesn't exist")
    apply(kube, queue("research", state="Closed"))
    says(kube, "queued", "waits for queue robots, which is closed, because research is")
    kube.kubectl("patch", "tyq", "research", "--type=merge", "-p", '{"spec": {"state": "Open"}}')
    await_stage(kube, "Running", "queued")
    kube.kubectl("patch", "queue", "research", "--type=merge", "-p", '{"spec": {"state": "Closed"}}')
    refused = kube.kubectl(
        "patch", "tyj", "queued", "--type=merge", "-p", '{"spec": {"queue": "research"}}', check=False
    )
    assert (
        "spec.queue: Invalid value" in refused.stderr and "can't be changed once the job has started" in refused.stderr
    )
    apply(kube, job("late", queue="research"))
    says(kube, "late", "waits for queue research, which is closed")
    assert status_of(kube, "queued")["stage"] == "Running"
    kube.kubectl("patch", "tyj", "late", "--type=merge", "-p", '{"spec": {"queue": "default"}}')
    await_stage(kube, "Running", "late")
    kube.kubectl("delete", "tyj", "queued", "late")


def test_a_namespace_names_the_queue_of_its_jobs_and_a_queue_its_namespaces(kube: KubeServer) -> None:
    kube.kubectl("annotate", "namespace", "default", "arranger.dev/queue=vision")
    apply(kube, queue("vision", namespaces={"selector": {"matchLabels": {"team": "vision"}}}))
    apply(kube, job("annotated"))
    says(kube, "annotated", "can't use queue vision: its spec.namespaces doesn't have the job's namespace")
    kube.kubectl("label", "namespace", "default", "team=vision")
    await_stage(kube, "Running", "annotated")
    kube.kubectl("label", "namespace", "default", "team-")
    kube.kubectl("delete", "tyj", "annotated")


def test_kubectl_shows_and_explains_queues(kube: KubeServer) -> None:
    apply(kube, queue("shown", parent="research", weight=3))
    status = {"state": "Open", "gpus": 4, "gpuShare": 8, "waiting": 2, "running": 1}
    patch = json.dumps({"status": status})
    kube.kubectl("patch", "queue", "shown", "--subresource=status", "--type=merge", "-p", patch)
    head, row = kube.kubectl("get", "queue", "shown").stdout.splitlines()
    assert head.split() == ["NAME", "STATE", "PARENT", "WEIGHT", "USED", "GPUS", "SHARE", "WAITING", "RUNNING", "AGE"]
    assert row.split()[:8] == ["shown", "Open", "research", "3", "4", "8", "2", "1"]
    told = kube.kubectl("explain", "queue.spec.guarantee").stdout
    assert "never lent" in " ".join(told.split())
