"""The demo of the article on Coscheduling with the real training-operator: of two TFJobs only one fits as a whole. By
kube-scheduler alone each may get a part of the nodes, and both wait for ever."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from arranger.model.pod import GroupKind
from arranger.model.pods_to_place import group_uid
from tests.build_servers import TRAINING_OPERATOR
from tests.e2e.harness import PODS, apply, eventually
from tests.e2e.test_job_controller import Running, first_placed
from tests.e2e.two_gangs import (
    PODS_OF_ALL,
    WORKERS,
    Mode,
    clear,
    cluster_with,
    first_of,
    in_mode,
    pods_with,
    runs_whole,
    template,
)
from tests.operators import training_operator
from tests.pod_groups import CUSTOM
from tests.servers import MERGE, RealKube

JOBS = "/apis/kubeflow.org/v1/namespaces/default/tfjobs"
OF_JOB = "training.kubeflow.org/job-name"
NAMES = {name: f"{OF_JOB}={name}" for name in ("tf-smoke-gpu", "tf-smoke-gpu-2")}
CONTAINER = "tensorflow"

MODES = {
    "labels": Mode("", "arranger", "arranger", GroupKind.LABELS),
    "coscheduling": Mode("arranger", "", "arranger", GroupKind.COSCHEDULING),
    "coscheduling-named": Mode("scheduler-plugins", "arranger", "arranger", GroupKind.COSCHEDULING),
    "coscheduling-unnamed": Mode("scheduler-plugins", "", "arranger,scheduler-plugins", GroupKind.COSCHEDULING),
    "volcano-named": Mode("volcano", "arranger", "arranger", GroupKind.VOLCANO),
    "volcano-unnamed": Mode("volcano", "", "arranger,volcano", GroupKind.VOLCANO),
}


@pytest.fixture(scope="module")
def server() -> Iterator[RealKube]:
    with cluster_with(TRAINING_OPERATOR) as kube:
        yield kube


@pytest.fixture
def kube(server: RealKube) -> Iterator[RealKube]:
    yield server
    clear(server, "tfjobs", OF_JOB)


def tf_job(name: str, mode: Mode) -> dict[str, Any]:
    """A TFJob like that of the article."""
    roles = {"PS": (1, 0), "Worker": (WORKERS, 1)}
    replicas = {
        role: {
            "replicas": count,
            "restartPolicy": "Never",
            "template": template(name, mode, container=CONTAINER, gpus=gpus),
        }
        for role, (count, gpus) in roles.items()
    }
    spec = {"runPolicy": {"cleanPodPolicy": "All"}, "tfReplicaSpecs": replicas}
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": metadata, "spec": spec}


def condition(kube: RealKube, name: str) -> str:
    """What training-operator says of a TFJob: the last of its conditions that hold."""
    conditions = kube.request("GET", f"{JOBS}/{name}")[1].get("status", {}).get("conditions") or ()
    return next((of["type"] for of in reversed(conditions) if of["status"] == "True"), "")


def end(kube: RealKube, name: str) -> None:
    """Let the first worker succeed, whose end is that of its TFJob, and wait until the operator has cleaned up."""
    status = {"name": CONTAINER, "image": "trainer:1", "imageID": "", "ready": False, "restartCount": 0}
    status |= {"state": {"terminated": {"exitCode": 0}}}
    body = {"status": {"phase": "Succeeded", "containerStatuses": [status]}}
    kube.request("PATCH", f"{PODS}/{name}-worker-0/status", body, content_type=MERGE)
    eventually(f"{name} has succeeded", lambda: condition(kube, name) == "Succeeded")
    eventually(f"the pods of {name} are gone", lambda: not pods_with(kube, NAMES[name]))


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_of_two_tfjobs_that_dont_fit_together_one_runs_whole_and_then_the_other(
    kube: RealKube, mode: Mode, tmp_path: Path
) -> None:
    with in_mode(kube, mode, training_operator, tmp_path) as redis_url:
        apply(kube, *[tf_job(name, mode) for name in NAMES])
        first, second = first_of(kube, NAMES)
        eventually("the operator says so", lambda: condition(kube, first) == "Running")
        assert condition(kube, second) == "Created"
        end(kube, first)
        eventually("then the other runs whole", lambda: runs_whole(kube, NAMES[second]))
        end(kube, second)
        placed = first_placed(Running(kube, redis_url))
        of_both = {name: placed[group_uid("default", name, mode.groups)] for name in NAMES}
        assert of_both == dict.fromkeys(NAMES, PODS_OF_ALL), "each got all its nodes by one decision"
        what = "the operator has deleted the PodGroups of TFJobs that have ended"
        eventually(what, lambda: not any(kube.request("GET", of.path("default"))[1]["items"] for of in CUSTOM.values()))
