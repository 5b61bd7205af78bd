"""Queues as kubectl shows them on both clusters, and jobs that wait until they may use theirs."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from arranger.kube.cluster import QUEUES
from arranger.sandbox.nodes import NodeTemplate
from tests.commands import Run
from tests.e2e.both_clusters import BOTH, Cluster, cluster_of
from tests.e2e.harness import apply, arranger, await_stage, eventually, job, pods_of, status_of
from tests.servers import KubeServer, RealKube
from tests.unit.queue_table import GPU, queue


@pytest.fixture(scope="module", params=BOTH)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of one node, and one process with all roles."""
    with cluster_of(request, tmp_path_factory.mktemp("queues"), NodeTemplate("node-1", cpu="8", gpus=8)) as running:
        yield running
        running.kube.kubectl("delete", "queues", "--all")
        running.kube.kubectl("annotate", "namespace", "default", "arranger.dev/queue-")


@pytest.fixture(scope="module")
def kube(cluster: Cluster) -> KubeServer:
    return cluster.kube


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
    says(kube, "annotated", "can't use queue vision: its spec.namespaces doesn't include the job's namespace")
    kube.kubectl("label", "namespace", "default", "team=vision")
    await_stage(kube, "Running", "annotated")
    kube.kubectl("label", "namespace", "default", "team-")
    kube.kubectl("delete", "tyj", "annotated")


def test_a_queue_has_no_more_than_its_capability_and_its_jobs_wait_for_it(kube: KubeServer) -> None:
    apply(kube, queue("small", capability={"cpu": 2}), queue("few", maxRunning=1))
    apply(kube, job("first", workers=1, queue="small"))
    await_stage(kube, "Running", "first")
    apply(kube, job("second", workers=1, queue="small"))
    says(kube, "second", "queue small has too little cpu (needs 2, 0 left of its capability 2)")
    apply(kube, job("one", workers=0, queue="few"))
    await_stage(kube, "Running", "one")
    apply(kube, job("two", workers=0, queue="few"))
    says(kube, "two", "queue few has as many jobs with nodes as its maxRunning (1)")
    kube.kubectl("patch", "queue", "small", "--type=merge", "-p", '{"spec": {"capability": {"cpu": "4"}}}')
    await_stage(kube, "Running", "second")
    kube.kubectl("delete", "tyj", "one")
    await_stage(kube, "Running", "two")
    kube.kubectl("delete", "tyj", "first", "second", "two")


def with_gpus(made: dict[str, Any], gpus: int) -> dict[str, Any]:
    """A job whose pods request so many GPUs each."""
    sets = [made["spec"]["leader"], *made["spec"]["workerSets"]]
    for container in (of["template"]["spec"]["containers"][0] for of in sets):
        container["resources"] = container["resources"] | {"limits": {GPU: str(gpus)}}
    return made


COLUMNS = ["NAME", "STATE", "PARENT", "WEIGHT", "USED GPUS", "SHARE", "WAITING", "RUNNING", "AGE"]


def shown(kube: KubeServer, name: str) -> list[str]:
    """The columns of `kubectl get queue` that have something, without the name and the age."""
    row = kube.columns(f"{QUEUES.path()}/{name}")
    assert list(row) == COLUMNS
    return [cell for cell in row.values() if cell][1:-1]


def stored(kube: KubeServer, name: str) -> dict[str, Any]:
    """The status of a queue."""
    status: dict[str, Any] = kube.request("GET", f"{QUEUES.path()}/{name}")[1]["status"]
    return status


def ready(kube: KubeServer, name: str) -> dict[str, str]:
    """The condition of a queue."""
    found: dict[str, str] = stored(kube, name)["conditions"][0]
    return found


def test_kubectl_shows_what_queues_use_and_are_entitled_to(kube: KubeServer) -> None:
    apply(kube, queue("lab", weight=3, guarantee={GPU: 1}), queue("shown", parent="lab", weight=2))
    apply(kube, with_gpus(job("held", workers=1, queue="shown"), 1))
    await_stage(kube, "Running", "held")
    apply(kube, with_gpus(job("large", workers=1, queue="lab"), 4))
    eventually("the queue is shown", lambda: shown(kube, "shown") == ["Open", "lab", "2", "2", "2", "0", "1"])
    eventually("it is counted above", lambda: shown(kube, "lab") == ["Open", "3", "2", "8", "1", "1"])
    # Pods of jobs that are gone are another program's until they have ended.
    eventually("earlier tests' pods are gone", lambda: stored(kube, "lab")["share"] == {"cpu": "4", GPU: "8"})
    head, row = kube.kubectl("get", "queue", "lab").stdout.splitlines()
    assert (head.split(), row.split()[1:-1]) == (" ".join(COLUMNS).split(), shown(kube, "lab"))
    status = stored(kube, "lab")
    assert status["used"] == {"cpu": "2", GPU: "2"} and status["demand"] == {"cpu": "4", GPU: "10"}
    assert status["observedGeneration"] == 1
    opened = ready(kube, "shown")
    assert (opened["type"], opened["status"], opened["reason"]) == ("Ready", "True", "Open")
    kube.kubectl("patch", "queue", "lab", "--type=merge", "-p", '{"spec": {"state": "Closed"}}')
    kube.kubectl("wait", "--for=condition=Ready=false", "queue/shown", "--timeout=60s")
    told = "closed, because lab is: arranger queue open lab opens that one"
    assert (ready(kube, "shown")["reason"], ready(kube, "shown")["message"]) == ("Closed", told)
    kube.kubectl("delete", "queue", "lab")
    eventually("it can't be used", lambda: ready(kube, "shown")["reason"] == "UnknownParent")
    closed = ready(kube, "shown")
    assert closed["message"] == "queue shown is below lab, which doesn't exist: create it, or edit spec.parent"
    kube.kubectl("delete", "tyj", "held", "large")
    eventually("it holds nothing", lambda: shown(kube, "shown") == ["Unusable", "lab", "2", "0", "0", "0", "0"])
    assert kube.request("GET", f"{QUEUES.path()}/shown")[1]["status"]["used"] == {}


def queue_command(kubeconfig: Path, *arguments: str) -> tuple[int, str]:
    """The exit status and the output of `arranger queue`, errors included."""
    done = arranger("queue", *arguments, KUBECONFIG=str(kubeconfig))
    return done.returncode, done.stdout + done.stderr


def test_queues_are_created_closed_opened_and_shown_by_commands(cluster: Cluster, kube: KubeServer) -> None:
    mine, log = kube.kubeconfig, ("--log", cluster.redis_url)
    fields = ("--weight", "2", "--deserved", f"{GPU}=4", "--closed")
    assert queue_command(mine, "create", "made", *fields) == (0, "queue made is created, and closed\n")
    assert queue_command(mine, "create", "made")[1].startswith("arranger: there is a queue made already")
    assert queue_command(mine, "create", "orphan", "--parent", "nosuch") == (
        0,
        "queue orphan is created\n"
        "arranger: queue orphan can't be used until queue nosuch exists (arranger queue create nosuch)\n",
    )
    assert queue_command(mine, "create", "child", "--parent", "made") == (0, "queue child is created\n")
    status, said = queue_command(mine, "create", "wrong", "--deserved", f"{GPU}=4", "--capability", f"{GPU}=2")
    assert status == 1 and "spec.deserved" in said and "must not be above capability, which is 2" in said
    status, said = queue_command(mine, "close", "missing")
    assert status == 1 and "there is no queue missing on the API server (arranger queue create missing)" in said
    apply(kube, with_gpus(job("commanded", workers=1, queue="made"), 1))
    says(kube, "commanded", "waits for queue made, which is closed")
    assert "commanded" in queue_command(mine, "made", *log)[1]
    assert queue_command(mine, "open", "made") == (0, "queue made is open\n")
    await_stage(kube, "Running", "commanded")
    shown = json.loads(queue_command(mine, "made", *log, "-o", "json")[1])
    assert (shown["queue"]["used"][GPU], shown["queue"]["share"][GPU], shown["queue"]["running"]) == (2, 2, 1)
    assert [holder["name"] for holder in shown["holders"]] == ["default/commanded"]
    held = json.loads(arranger("top", "--by", "job", *log, "-o", "json").stdout)["holders"]
    assert held[0]["name"] == "default/commanded" and held[0]["amounts"][GPU] == 2
    assert queue_command(mine, "close", "made")[0] == 0 and status_of(kube, "commanded")["stage"] == "Running"
    kube.kubectl("delete", "tyj", "commanded")


def test_who_may_not_change_queues_is_told_which_right_is_missing(kube: KubeServer) -> None:
    if not isinstance(kube, RealKube):
        pytest.skip("the embedded cluster has no rights")
    status, said = queue_command(kube.stranger_kubeconfig, "create", "forbidden")
    assert status == 1 and 'User "stranger" cannot create resource "queues"' in said
    assert "this needs the right to create queues: bind the ClusterRole arranger-queues-edit" in said
    assert "the right to patch queues" in queue_command(kube.stranger_kubeconfig, "close", "made")[1]


def test_a_queues_fields_are_explained(kube: KubeServer) -> None:
    told = kube.kubectl("explain", "queue.spec.guarantee").stdout
    assert "never lent" in " ".join(told.split())


def kept(capsys: pytest.CaptureFixture[str], cluster: Cluster) -> tuple[str, str]:
    """What keeps the job `waits`, and the queue where it does, as `arranger explain` finds it in the log; empty while a
    new log doesn't have the job."""
    told = Run(capsys, "explain", "waits", "--log", cluster.redis_url, "-o", "json")
    there = told.json["waiting"]["in_queue"] if not told.status else {"kept_by": "", "kept_at": ""}
    return there["kept_by"], there["kept_at"]


def edit(kube: KubeServer, name: str, **spec: Any) -> None:
    kube.kubectl("patch", "queue", name, "--type=merge", "-p", json.dumps({"spec": spec}))


def test_whatever_becomes_of_a_queue_its_running_jobs_run_on_and_its_waiting_jobs_know_why(
    cluster: Cluster, kube: KubeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    apply(kube, queue("old"), queue("life", parent="old", capability={"cpu": 3}))
    apply(kube, job("runs", workers=1, queue="life"))
    await_stage(kube, "Running", "runs")
    pods = [pod["metadata"]["uid"] for pod in pods_of(kube, "runs")]
    apply(kube, job("waits", workers=1, queue="life"))
    says(kube, "waits", "queue life has too little cpu (needs 2, 1 left of its capability 3)")
    assert kept(capsys, cluster) == ("Capability", "life")
    edit(kube, "life", capability={"cpu": 1})  # less than it uses
    edit(kube, "old", state="Closed")
    says(kube, "waits", "waits for queue life, which is closed, because old is")
    assert kept(capsys, cluster) == ("Closed", "old")
    kube.kubectl("delete", "queue", "old")  # a queue can't be renamed: another one takes its place
    says(kube, "waits", "queue life is below old, which doesn't exist")
    assert kept(capsys, cluster) == ("Problem", "life")
    apply(kube, queue("new", capability={"cpu": 2}))
    edit(kube, "life", parent="new", capability={"cpu": 4})
    says(kube, "waits", "queue new has too little cpu (needs 2, 0 left of its capability 2)")
    assert kept(capsys, cluster) == ("Capability", "new")
    kube.kubectl("delete", "queue", "life")
    says(kube, "waits", "waits for queue life, which doesn't exist")
    cluster.restart_without_log()
    eventually("the new log says why it waits", lambda: kept(capsys, cluster) == ("NoQueue", "life"))
    apply(kube, queue("life", parent="new", maxRunning=1))
    says(kube, "waits", "queue life has as many jobs with nodes as its maxRunning (1)")
    assert status_of(kube, "runs")["stage"] == "Running"
    edit(kube, "life", maxRunning=2)
    edit(kube, "new", capability=None)
    await_stage(kube, "Running", "waits")
    assert [pod["metadata"]["uid"] for pod in pods_of(kube, "runs")] == pods
    eventually("both are counted", lambda: shown(kube, "life")[-2:] == ["0", "2"])
    kube.kubectl("delete", "tyj", "runs", "waits")
