"""PodGroups of Kubernetes itself on a real API server that serves them, which needs a feature gate: on the usual one,
or on that of the release that KUBERNETES_VERSION names."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from arranger.sandbox.nodes import NodeTemplate
from tests.build_servers import KUBERNETES, release
from tests.conftest import _required
from tests.e2e.harness import apply, arranger, await_stage, eventually, finish_jobs, fleet, job, kubelets
from tests.e2e.test_every_pod import WAIT, pod, runs, scheduled, there
from tests.servers import RealKube, RealRedis, kubernetes_under_test, real_kube, real_redis

RELEASE = kubernetes_under_test(KUBERNETES)
#: 1.37 has other versions than 1.36.
VERSION = "v1alpha2" if release(RELEASE) < (1, 37) else "v1beta1"
CONDITION = "PodGroupScheduled" if VERSION == "v1alpha2" else "PodGroupInitiallyScheduled"
SERVED = (
    "--feature-gates=GenericWorkload=true,TopologyAwareWorkloadScheduling=true",
    f"--runtime-config=scheduling.k8s.io/{VERSION}=true",
)
NAMES = ("a", "b", "c")


@pytest.fixture(scope="module")
def served() -> Iterator[RealKube]:
    """An API server with Kubernetes' own PodGroups."""
    with _required(), real_kube(*SERVED, version=RELEASE) as kube:
        kube.install_crd()
        yield kube


@pytest.fixture
def redis(served: RealKube, tmp_path: Path) -> Iterator[RealRedis]:
    """A cluster of one node of four CPUs and one process with all roles; the Redis of its log."""
    with contextlib.ExitStack() as stack:
        redis = stack.enter_context(real_redis())
        stack.enter_context(kubelets(served, NodeTemplate("node-1", cpu="4"), stop_s=0.2))
        stack.enter_context(fleet(redis_url=redis.url, kube=served, folder=tmp_path)).start()
        yield redis


def gang(name: str, least: int, **spec: Any) -> dict[str, Any]:
    """A PodGroup that needs so many pods at once. Its policy can't be changed."""
    return {
        "apiVersion": f"scheduling.k8s.io/{VERSION}",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": least}}, **spec},
    }


def test_a_gang_waits_whole_beside_a_job_and_runs_whole(served: RealKube, redis: RealRedis) -> None:
    apply(served, *[pod(name, schedulingGroup={"podGroupName": "train"}) for name in NAMES])
    words = "waits for PodGroup train of scheduling.k8s.io, which doesn't exist: create it"
    eventually("each says what it waits for", lambda: all(scheduled(served, of)[2] == words for of in NAMES))
    apply(served, job("ppo", workers=1))
    await_stage(served, "Running", "ppo")
    apply(served, gang("train", 3))
    eventually("each waits for room", lambda: all("insufficient cpu" in scheduled(served, of)[2] for of in NAMES))
    served.kubectl("wait", f"--for=condition={CONDITION}=False", "podgroup/train", *WAIT)
    reason = served.kubectl("get", "podgroup/train", "-o", "jsonpath={.status.conditions[*].reason}").stdout
    assert reason == "Unschedulable"
    assert not any("nodeName" in there(served, name)["spec"] for name in NAMES), "no part of it holds anything"
    finish_jobs(served, "ppo")
    served.kubectl("delete", "tyj", "ppo", *WAIT)
    runs(served, *NAMES)
    served.kubectl("wait", f"--for=condition={CONDITION}", "podgroup/train", *WAIT)
    told = arranger("explain", "podgroup/train", "-o", "json", "--log", redis.url)
    standing = json.loads(told.stdout)["standing"]
    assert (standing["stage"], standing["pods_placed"], standing["min_workers"]) == ("Running", 3, 3), told.stderr


def test_a_gang_with_a_topology_constraint_runs_in_one_domain(served: RealKube, redis: RealRedis) -> None:
    constraint = {"topology": [{"key": "rack"}]}
    nodes = [
        NodeTemplate(f"{rack}-node", cpu=cpu, labels={"rack": rack}) for rack, cpu in (("low", "2"), ("high", "3"))
    ]
    with kubelets(served, *nodes, stop_s=0.2):
        names = [f"r{number}" for number in range(3)]
        apply(served, gang("racked", 3, schedulingConstraints=constraint))
        apply(served, *[pod(name, schedulingGroup={"podGroupName": "racked"}) for name in names])
        runs(served, *names)
        assert {there(served, name)["spec"]["nodeName"] for name in names} == {"high-node"}
