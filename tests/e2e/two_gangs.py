"""What the tests of operators share: a cluster on which one of two equal workloads fits as a whole, and how it runs."""

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from arranger.model.pod import GroupKind
from arranger.sandbox.nodes import NodeTemplate
from tests.build_servers import Operator
from tests.conftest import _required
from tests.e2e.harness import PODS, apply, eventually, fleet, kubelets
from tests.e2e.test_every_pod import WAIT
from tests.operators import install_definitions
from tests.pod_groups import CUSTOM, definition
from tests.servers import RealKube, operator_binary, real_kube, real_redis

#: The pods of a workload: one without a GPU, and a worker for each GPU of the cluster.
WORKERS, PODS_OF_ALL = 4, 5
_NODES = [NodeTemplate(f"node-{number}", cpu="16", gpus=2) for number in range(2)]


class Mode(NamedTuple):
    """A row of docs/operators.md: the scheduler that the operator is started with, that of the templates, Arranger's
    setting, and what the pods are grouped by."""

    of_operator: str
    in_templates: str
    scheduler_names: str
    groups: GroupKind


@contextlib.contextmanager
def cluster_with(operator: Operator) -> Iterator[RealKube]:
    """An API server with four GPUs on two nodes, with the kinds of an operator and of both gang schedulers."""
    with _required(), contextlib.ExitStack() as stack:
        operator_binary(operator)
        server = stack.enter_context(real_kube())
        server.install_crd()
        apply(server, *map(definition, CUSTOM))
        for of in CUSTOM.values():
            server.kubectl("wait", "--for=condition=Established", f"crd/{of.plural}.{of.group}", *WAIT)
        install_definitions(server, operator)
        stack.enter_context(kubelets(server, *_NODES, stop_s=0.2))
        yield server


@contextlib.contextmanager
def in_mode(
    kube: RealKube, mode: Mode, start: Callable[[RealKube, str], AbstractContextManager[None]], folder: Path
) -> Iterator[str]:
    """Arranger and the operator in this mode; the URL of the log."""
    with contextlib.ExitStack() as stack:
        redis = stack.enter_context(real_redis())
        workers = fleet(redis_url=redis.url, kube=kube, folder=folder, scheduler_names=mode.scheduler_names)
        stack.enter_context(workers).start()
        stack.enter_context(start(kube, mode.of_operator))
        yield redis.url


def clear(kube: RealKube, plural: str, label: str) -> None:
    """Delete the objects of an operator, whose pods have this label: a bare API server has no garbage collector."""
    kube.kubectl("delete", plural, "--all", *WAIT)
    kube.kubectl("delete", "pods,services", "-l", label, *WAIT)
    for of in CUSTOM.values():
        kube.kubectl("delete", f"{of.plural}.{of.group}", "--all", *WAIT)
    kube.request("DELETE", "/apis/arranger.dev/v1/clusterlogs")  # the next log needn't wait for this one


def template(name: str, mode: Mode, *, container: str, gpus: int = 0, least: int = PODS_OF_ALL) -> dict[str, Any]:
    """The template of a pod of the workload, with labels of its group if they make it, which needs so many pods."""
    amounts = {"cpu": "1"} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
    containers = [{"name": container, "image": "trainer:1", "resources": {"limits": amounts, "requests": amounts}}]
    spec: dict[str, Any] = {"containers": containers}
    spec |= {"schedulerName": mode.in_templates} if mode.in_templates else {}
    group = "pod-group.scheduling.sigs.k8s.io"
    labels = {f"{group}/name": name, f"{group}/min-available": str(least)}
    return {"metadata": {"labels": labels if mode.groups == GroupKind.LABELS else {}}, "spec": spec}


def pods_with(kube: RealKube, label: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = kube.request("GET", f"{PODS}?labelSelector={label}")[1]["items"]
    return found


def runs_whole(kube: RealKube, label: str) -> bool:
    """Whether all pods of a workload run."""
    return [of["status"]["phase"] for of in pods_with(kube, label)] == ["Running"] * PODS_OF_ALL


def waits_whole(kube: RealKube, label: str) -> bool:
    """Whether all pods of a workload are there, and each says that it has no node. Fails if one has."""
    pods = pods_with(kube, label)
    told = [of for pod in pods for of in pod["status"].get("conditions") or () if of["type"] == "PodScheduled"]
    bound = [pod["metadata"]["name"] for pod in pods if "nodeName" in pod["spec"]]
    assert not bound, f"{label} waits, and yet {bound} hold nodes"
    return [of["reason"] for of in told] == ["Unschedulable"] * PODS_OF_ALL


def first_of(kube: RealKube, labels: dict[str, str]) -> tuple[str, str]:
    """Wait until one of two workloads, each with a label of its pods, runs whole, and the other one waits whole; their
    names in that order."""
    first = eventually("one runs whole", lambda: next((of for of in labels if runs_whole(kube, labels[of])), ""))
    (second,) = labels.keys() - {first}
    eventually("the other waits whole", lambda: waits_whole(kube, labels[second]))
    return first, second
