"""PodGroups made by hand, mixed with TYJobs, on both clusters: all of a group is placed or nothing."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from arranger.kube.cluster import VOLCANO_JOBS
from arranger.model.pod import GroupKind
from arranger.sandbox.nodes import NodeTemplate
from tests.e2e.both_clusters import BOTH, Cluster, cluster_of
from tests.e2e.harness import apply, arranger, await_stage, eventually, finish_jobs, job
from tests.e2e.test_every_pod import WAIT, pod, runs, scheduled, there
from tests.pod_groups import (
    CUSTOM,
    TF_JOBS,
    definition,
    job_definition,
    naming,
    owned,
    pod_group,
    training_definition,
    training_job,
    volcano_job,
)
from tests.servers import KubeServer

NAMES = ("a", "b", "c")
KINDS = list(CUSTOM)
OF_OTHERS = (*CUSTOM.values(), VOLCANO_JOBS, TF_JOBS)


@pytest.fixture(scope="module", params=BOTH)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of one node that has both kinds of PodGroups before its process starts, but no kind of Kubernetes'."""
    with cluster_of(request, tmp_path_factory.mktemp("groups"), NodeTemplate("node-1", cpu="4")) as running:
        apply(running.kube, *map(definition, CUSTOM), job_definition(), training_definition(TF_JOBS))
        for of in OF_OTHERS:
            running.kube.kubectl("wait", "--for=condition=Established", f"crd/{of.plural}.{of.group}", *WAIT)
        running.restart_without_log()
        yield running
        for of in OF_OTHERS:
            running.kube.kubectl("delete", "crd", f"{of.plural}.{of.group}", *WAIT)


@pytest.fixture
def kube(cluster: Cluster) -> Iterator[KubeServer]:
    yield cluster.kube
    cluster.kube.kubectl("delete", "pods,tyj", "--all", *WAIT)
    for of in OF_OTHERS:
        cluster.kube.kubectl("delete", f"{of.plural}.{of.group}", "--all", *WAIT)


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_waits_whole_beside_a_job_and_runs_whole(cluster: Cluster, kube: KubeServer, kind: GroupKind) -> None:
    apply(kube, *[naming(pod(name), "train", kind) for name in NAMES])
    words = f"waits for PodGroup train of {kind}, which doesn't exist: create it"
    eventually("each says what it waits for", lambda: all(scheduled(kube, of)[2] == words for of in NAMES))
    apply(kube, job("ppo", workers=1))
    await_stage(kube, "Running", "ppo")
    apply(kube, pod_group("train", kind, 3))
    eventually("each waits for room", lambda: all("insufficient cpu" in scheduled(kube, of)[2] for of in NAMES))
    assert not any("nodeName" in there(kube, name)["spec"] for name in NAMES), "no part of it holds anything"
    finish_jobs(kube, "ppo")
    kube.kubectl("delete", "tyj", "ppo", *WAIT)
    runs(kube, *NAMES)
    told = arranger("explain", "podgroup/train", "-o", "json", "--log", cluster.redis_url)
    standing = json.loads(told.stdout)["standing"]
    assert (standing["stage"], standing["pods_placed"], standing["min_workers"]) == ("Running", 3, 3), told.stderr
    hint = arranger("explain", "pod:a", "--log", cluster.redis_url).stderr
    assert "arranger explain default/podgroup/train" in hint


@pytest.mark.parametrize("kind", KINDS)
def test_a_minimum_that_changes_counts_at_once(kube: KubeServer, kind: GroupKind) -> None:
    apply(kube, pod_group("train", kind, 5), *[naming(pod(name), "train", kind) for name in NAMES])
    words = "waits for 2 more pods of its group, which needs 5 and has 3"
    eventually("each says how many it lacks", lambda: all(scheduled(kube, of)[2] == words for of in NAMES))
    apply(kube, pod_group("train", kind, 3))
    runs(kube, *NAMES)
    apply(kube, naming(pod("d"), "train", kind))
    runs(kube, "d")


def test_a_volcano_job_gets_its_pods_once_arranger_has_let_its_group_in(kube: KubeServer) -> None:
    which = "podgroups.scheduling.volcano.sh/train"

    def status(field: str) -> str:
        return kube.kubectl("get", which, "-o", f"jsonpath={{.status.{field}}}").stdout

    apply(kube, volcano_job("train", "arranger"))
    of_job = json.loads(kube.kubectl("get", "jobs.batch.volcano.sh", "train", "-o", "json").stdout)
    apply(kube, owned(pod_group("train", GroupKind.VOLCANO, 3), of_job))
    kube.kubectl("wait", "--for=jsonpath={.status.phase}=Inqueue", which, *WAIT)
    apply(kube, *[naming(pod(name), "train", GroupKind.VOLCANO) for name in NAMES[:2]])  # as Volcano's controller does
    eventually("it says what it lacks", lambda: status("conditions[*].reason") == "NotEnoughTasks")
    apply(kube, naming(pod(NAMES[2]), "train", GroupKind.VOLCANO))
    runs(kube, *NAMES)
    kube.kubectl("wait", "--for=jsonpath={.status.running}=3", which, *WAIT)
    assert (status("phase"), status("conditions[*].type")) == ("Running", "Scheduled")


def test_a_tfjob_gets_its_pods_once_arranger_has_let_its_group_in(cluster: Cluster, kube: KubeServer) -> None:
    """As training-operator with Volcano's gang scheduling: it makes no pod while the phase is empty or Pending."""
    apply(kube, *[training_job(name, scheduler) for name, scheduler in (("ours", "arranger"), ("theirs", "volcano"))])
    for name in ("theirs", "ours"):
        owner = json.loads(kube.kubectl("get", "tfjobs.kubeflow.org", name, "-o", "json").stdout)
        apply(kube, owned(pod_group(name, GroupKind.VOLCANO, 3), owner))
    which = "podgroups.scheduling.volcano.sh"
    kube.kubectl("wait", "--for=jsonpath={.status.phase}=Inqueue", f"{which}/ours", *WAIT)
    told = arranger("explain", "podgroup/theirs", "--log", cluster.redis_url)
    assert "has no pods yet; its owner TFJob theirs makes them" in told.stderr, told.stdout
    assert kube.kubectl("get", f"{which}/theirs", "-o", "jsonpath={.status.phase}").stdout == ""
    apply(kube, *[naming(pod(name), "ours", GroupKind.VOLCANO) for name in NAMES])
    runs(kube, *NAMES)


def test_a_group_of_volcano_waits_for_the_pods_of_each_task(kube: KubeServer) -> None:
    def of_task(name: str, task: str) -> dict[str, Any]:
        made = naming(pod(name), "train", GroupKind.VOLCANO)
        made["metadata"]["annotations"]["volcano.sh/task-spec"] = task
        return made

    apply(kube, pod_group("train", GroupKind.VOLCANO, 2, minTaskMember={"ps": 1, "worker": 1}))
    apply(kube, *[of_task(name, "worker") for name in NAMES[:2]])
    words = "waits for 1 more pod of its task ps"
    eventually("each says which task lacks pods", lambda: all(scheduled(kube, of)[2] == words for of in NAMES[:2]))
    apply(kube, of_task(NAMES[2], "ps"))
    runs(kube, *NAMES)


def test_a_group_of_coscheduling_waits_until_the_nodes_have_its_minresources_free(kube: KubeServer) -> None:
    apply(kube, pod_group("train", GroupKind.COSCHEDULING, 2, minResources={"cpu": "9"}, scheduleTimeoutSeconds=5))
    apply(kube, *[naming(pod(name), "train", GroupKind.COSCHEDULING) for name in NAMES])
    words = "less cpu free than the minResources of its group (needs 9, 4 free)"
    eventually("each says what lacks", lambda: all(words in scheduled(kube, of)[2] for of in NAMES))
    apply(kube, pod_group("train", GroupKind.COSCHEDULING, 2, minResources={"cpu": "3500m"}, scheduleTimeoutSeconds=5))
    runs(kube, *NAMES)


def test_the_status_names_the_kind_that_isnt_installed(cluster: Cluster, kube: KubeServer) -> None:
    told = arranger("status", "--log", cluster.redis_url)
    lines = {line.split()[0]: line for line in told.stdout.splitlines() if line.startswith("podgroup.")}
    assert "not installed" in lines["podgroup.scheduling.k8s.io"], told.stdout + told.stderr
    assert not any("not installed" in lines[f"podgroup.{of.group}"] for of in CUSTOM.values())
