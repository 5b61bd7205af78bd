"""Jobs of equals, whose end is the job's, and what starts after what, as kubectl shows them on both clusters."""

from collections.abc import Iterator
from typing import Any

import pytest

from arranger.sandbox.nodes import NodeTemplate
from tests.e2e.both_clusters import BOTH, cluster_of
from tests.e2e.harness import (
    MERGE,
    PODS,
    apply,
    await_stage,
    eventually,
    job,
    pod_template,
    pods_of,
    status_of,
)
from tests.servers import KubeServer


@pytest.fixture(scope="module", params=BOTH)
def kube(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeServer]:
    """A cluster of one node, and one process with all roles."""
    with cluster_of(request, tmp_path_factory.mktemp("equals"), NodeTemplate("node-1", cpu="8")) as cluster:
        yield cluster.kube


def equals(name: str, *sets: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """A job without a leader, which keeps its pods."""
    made = job(name, cleanPodPolicy="Running", workerSets=list(sets), **spec)
    del made["spec"]["leader"], made["spec"]["minWorkersNum"]
    return made


def end(kube: KubeServer, pod: str, phase: str) -> None:
    code, answer = kube.request("PATCH", f"{PODS}/{pod}/status", {"status": {"phase": phase}}, content_type=MERGE)
    assert code == 200, answer


def phases(kube: KubeServer, name: str) -> dict[str, str]:
    return {pod["metadata"]["name"]: pod["status"]["phase"] for pod in pods_of(kube, name)}


def forget(kube: KubeServer, name: str) -> None:
    kube.kubectl("delete", "tyj", name, "--timeout=120s")
    eventually(f"the pods of {name} are gone", lambda: not pods_of(kube, name))


def test_a_sweep_without_a_leader_runs_and_ends_with_its_last_trial(kube: KubeServer) -> None:
    trials = {"name": "trials", "counts": 3, "minCount": 1, "template": pod_template()}
    apply(kube, equals("sweep", trials))
    await_stage(kube, "Running", "sweep")
    eventually("all are ready", lambda: status_of(kube, "sweep")["ready"] == "3/3")
    assert "leaderAddress" not in status_of(kube, "sweep")
    end(kube, "sweep-trials-1", "Succeeded")
    eventually("it says who has finished", lambda: status_of(kube, "sweep")["workers"][0].get("finished") == "1")
    kube.kubectl("delete", "pod", "sweep-trials-1")
    end(kube, "sweep-trials-0", "Succeeded")
    eventually("two have", lambda: status_of(kube, "sweep")["workers"][0].get("finished") == "0-1")
    assert phases(kube, "sweep") == {"sweep-trials-0": "Succeeded", "sweep-trials-2": "Running"}
    kube.kubectl("wait", "tyj/sweep", "--for=condition=Ready", "--timeout=60s")
    end(kube, "sweep-trials-2", "Succeeded")
    kube.kubectl("wait", "tyj/sweep", "--for=condition=Succeeded", "--timeout=60s")
    status = status_of(kube, "sweep")
    assert (status["ready"], status["message"]) == ("3/3", "all workers whose end is the job's have finished")
    eventually("it is told", lambda: "WorkersSucceeded" in kube.kubectl("events", "--for", "tyj/sweep").stdout)
    forget(kube, "sweep")


def test_the_end_of_the_trainers_ends_the_job_and_its_other_pods(kube: KubeServer) -> None:
    made = job("trained", workers=1, successPolicy={"type": "Sets", "sets": ["trainer"]}, cleanPodPolicy="Running")
    made["spec"]["workerSets"] += [{"name": "trainer", "counts": 1, "template": pod_template()}]
    apply(kube, made)
    await_stage(kube, "Running", "trained")
    eventually("all are ready", lambda: status_of(kube, "trained")["ready"] == "2/2")
    end(kube, "trained-learner-0", "Succeeded")
    eventually("the leader has finished", lambda: status_of(kube, "trained").get("leaderFinished") is True)
    assert status_of(kube, "trained")["stage"] == "Running"
    end(kube, "trained-trainer-0", "Succeeded")
    kube.kubectl("wait", "tyj/trained", "--for=condition=Succeeded", "--timeout=60s")
    left = {"trained-learner-0": "Succeeded", "trained-trainer-0": "Succeeded"}
    eventually("the actor is gone", lambda: phases(kube, "trained") == left)
    forget(kube, "trained")


def test_a_set_starts_once_another_is_ready_and_keeps_its_nodes_until_then(kube: KubeServer) -> None:
    engines = {"name": "rollout", "counts": 1, "minCount": 1, "template": pod_template(ready_seconds=3)}
    trainer = {"name": "trainer", "counts": 2, "minCount": 2, "startAfter": "rollout", "template": pod_template()}
    apply(kube, equals("staged", trainer, engines))
    eventually("it says for what it waits", lambda: "starts once set rollout is ready" in message(kube, "staged"))
    assert set(phases(kube, "staged")) <= {"staged-rollout-0"}
    [allocation] = status_of(kube, "staged")["allocations"]
    assert {of["set"]: of["indices"] for of in allocation["workers"]} == {"trainer": "0-1", "rollout": "0"}
    await_stage(kube, "Running", "staged")
    assert set(phases(kube, "staged")) == {"staged-rollout-0", "staged-trainer-0", "staged-trainer-1"}
    forget(kube, "staged")


def message(kube: KubeServer, name: str) -> str:
    return str(status_of(kube, name).get("message", ""))
