"""The demo of the article on Coscheduling with the real training-operator: of two TFJobs only one fits as a whole. By
kube-scheduler alone each may get a part of the nodes, and both wait for ever."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from arranger.model.pod import GroupKind
from arranger.model.pods_to_place import group_uid
from arranger.sandbox.nodes import NodeTemplate
from tests.build_servers import TRAINING_OPERATOR
from tests.conftest import _required
from tests.e2e.harness import PODS, apply, eventually, fleet, kubelets
from tests.e2e.test_every_pod import WAIT
from tests.e2e.test_job_controller import Running, first_placed
from tests.operators import install_definitions, training_operator
from tests.pod_groups import CUSTOM, definition
from tests.servers import MERGE, RealKube, operator_binary, real_kube, real_redis

NODES = [NodeTemplate(f"node-{number}", cpu="16", gpus=2) for number in range(2)]
JOBS = "/apis/kubeflow.org/v1/namespaces/default/tfjobs"
OF_JOB = "training.kubeflow.org/job-name"
#: The pods of a TFJob: a parameter server, and a worker for each GPU of the cluster.
WORKERS, PODS_OF_ALL = 4, 5
NAMES = ("tf-smoke-gpu", "tf-smoke-gpu-2")


class Mode(NamedTuple):
    """A row of docs/operators.md: how the operator is started, and what its templates and Arranger's settings say."""

    gang_scheduler: str
    in_templates: str
    scheduler_names: str
    groups: GroupKind


MODES = {
    "labels": Mode("", "arranger", "arranger", GroupKind.LABELS),
    "coscheduling": Mode("arranger", "", "arranger", GroupKind.COSCHEDULING),
    "coscheduling-named": Mode("scheduler-plugins", "arranger", "arranger", GroupKind.COSCHEDULING),
    "coscheduling-unnamed": Mode("scheduler-plugins", "", "arranger,scheduler-plugins", GroupKind.COSCHEDULING),
    "volcano-named": Mode("volcano", "arranger", "arranger", GroupKind.VOLCANO),
    "volcano-unnamed": Mode("volcano", "", "arranger,volcano", GroupKind.VOLCANO),
}


@pytest.fixture(scope="module")
def kube() -> Iterator[RealKube]:
    """An API server with four GPUs on two nodes, with the kinds of the operator and of both gang schedulers."""
    with _required(), contextlib.ExitStack() as stack:
        operator_binary(TRAINING_OPERATOR)
        server = stack.enter_context(real_kube())
        server.install_crd()
        apply(server, *map(definition, CUSTOM))
        for of in CUSTOM.values():
            server.kubectl("wait", "--for=condition=Established", f"crd/{of.plural}.{of.group}", *WAIT)
        install_definitions(server, TRAINING_OPERATOR)
        stack.enter_context(kubelets(server, *NODES, stop_s=0.2))
        yield server


@contextlib.contextmanager
def in_mode(kube: RealKube, mode: Mode, folder: Path) -> Iterator[str]:
    """Arranger and the operator in this mode; the URL of the log."""
    with contextlib.ExitStack() as stack:
        redis = stack.enter_context(real_redis())
        workers = fleet(redis_url=redis.url, kube=kube, folder=folder, scheduler_names=mode.scheduler_names)
        stack.enter_context(workers).start()
        with training_operator(kube, mode.gang_scheduler):
            yield redis.url
        kube.kubectl("delete", "tfjobs", "--all", *WAIT)
        kube.kubectl("delete", "pods,services", "-l", OF_JOB, *WAIT)  # a bare API server has no garbage collector
        for of in CUSTOM.values():
            kube.kubectl("delete", f"{of.plural}.{of.group}", "--all", *WAIT)
    kube.request("DELETE", "/apis/arranger.dev/v1/clusterlogs")  # the next log needn't wait for this one


def tf_job(name: str, mode: Mode) -> dict[str, Any]:
    """A TFJob like that of the article."""
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "runPolicy": {"cleanPodPolicy": "All"},
            "tfReplicaSpecs": {
                "PS": {"replicas": 1, "restartPolicy": "Never", "template": template(name, mode)},
                "Worker": {"replicas": WORKERS, "restartPolicy": "Never", "template": template(name, mode, gpus=1)},
            },
        },
    }


def template(name: str, mode: Mode, *, gpus: int = 0) -> dict[str, Any]:
    amounts = {"cpu": "1"} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
    container = {"name": "tensorflow", "image": "tf:1", "resources": {"limits": amounts, "requests": amounts}}
    spec = {"containers": [container]} | ({"schedulerName": mode.in_templates} if mode.in_templates else {})
    group = "pod-group.scheduling.sigs.k8s.io"
    labels = {f"{group}/name": name, f"{group}/min-available": str(PODS_OF_ALL)}
    return {"metadata": {"labels": labels if mode.groups == GroupKind.LABELS else {}}, "spec": spec}


def pods_of(kube: RealKube, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = kube.request("GET", f"{PODS}?labelSelector={OF_JOB}={name}")[1]["items"]
    return found


def phases(kube: RealKube, name: str) -> list[str]:
    return [of["status"]["phase"] for of in pods_of(kube, name)]


def runs_whole(kube: RealKube, name: str) -> bool:
    return phases(kube, name) == ["Running"] * PODS_OF_ALL


def waits_whole(kube: RealKube, name: str) -> bool:
    """Whether all pods of a TFJob are there, none has a node, and each says that it has none."""
    pods = pods_of(kube, name)
    told = [of for pod in pods for of in pod["status"].get("conditions") or () if of["type"] == "PodScheduled"]
    bound = [pod["metadata"]["name"] for pod in pods if "nodeName" in pod["spec"]]
    assert not bound, f"{name} waits, and yet {bound} hold nodes"
    return [of["reason"] for of in told] == ["Unschedulable"] * PODS_OF_ALL


def condition(kube: RealKube, name: str) -> str:
    """What training-operator says of a TFJob: the last of its conditions that hold."""
    conditions = kube.request("GET", f"{JOBS}/{name}")[1].get("status", {}).get("conditions") or ()
    return next((of["type"] for of in reversed(conditions) if of["status"] == "True"), "")


def end(kube: RealKube, name: str) -> None:
    """Let the first worker succeed, whose end is that of its TFJob, and wait until the operator has cleaned up."""
    status = {"name": "tensorflow", "image": "tf:1", "imageID": "", "ready": False, "restartCount": 0}
    status |= {"state": {"terminated": {"exitCode": 0}}}
    body = {"status": {"phase": "Succeeded", "containerStatuses": [status]}}
    kube.request("PATCH", f"{PODS}/{name}-worker-0/status", body, content_type=MERGE)
    eventually(f"{name} has succeeded", lambda: condition(kube, name) == "Succeeded")
    eventually(f"the pods of {name} are gone", lambda: not pods_of(kube, name))


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_of_two_tfjobs_that_dont_fit_together_one_runs_whole_and_then_the_other(
    kube: RealKube, mode: Mode, tmp_path: Path
) -> None:
    with in_mode(kube, mode, tmp_path) as redis_url:
        apply(kube, *[tf_job(name, mode) for name in NAMES])
        first = eventually("one runs whole", lambda: next((of for of in NAMES if runs_whole(kube, of)), ""))
        (second,) = set(NAMES) - {first}
        eventually("the other waits whole", lambda: waits_whole(kube, second))
        eventually("the operator says so", lambda: condition(kube, first) == "Running")
        assert condition(kube, second) == "Created"
        end(kube, first)
        eventually("then the other runs whole", lambda: runs_whole(kube, second))
        end(kube, second)
        placed = first_placed(Running(kube, redis_url))
        of_both = {name: placed[group_uid("default", name, mode.groups)] for name in NAMES}
        assert of_both == dict.fromkeys(NAMES, PODS_OF_ALL), "each got all its nodes by one decision"
        what = "the operator has deleted the PodGroups of TFJobs that have ended"
        eventually(what, lambda: not any(kube.request("GET", of.path("default"))[1]["items"] for of in CUSTOM.values()))
