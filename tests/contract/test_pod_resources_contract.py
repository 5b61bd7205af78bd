"""A real API server and the embedded cluster say the same of what pods ask for, and keep it in the same form."""

import itertools
import json
from typing import Any

import pytest

from arranger.kube.cluster import PODS
from arranger.sandbox.status import ApiRefusal
from arranger.sandbox.store import Store
from tests.servers import RealKube

Object = dict[str, Any]
Answer = tuple[int, Any]


def both(name: str, amount: Any) -> Object:
    """A request and a limit alike."""
    return {"requests": {name: amount}, "limits": {name: amount}}


CONTAINERS: list[Object] = [
    {"requests": {"cpu": "500m", "memory": "1.5Gi", "ephemeral-storage": "2G"}, "limits": {"cpu": 2}},
    {"requests": {"cpu": "0.5m", "memory": "0.5", "ephemeral-storage": "1500m"}},
    {"requests": {"cpu": "100u", "memory": "1.50M", "ephemeral-storage": "0.5Ki"}},
    {"requests": {"cpu": 0.5, "memory": "1000m"}},
    {"limits": {"nvidia.com/gpu": "2"}},
    both("nvidia.com/gpu", "1e3"),
    both("nvidia.com/gpu", "1.0"),
    both("nvidia.com/gpu", "1000"),
    both("cpu", 2000),
    both("memory", 1 << 30),
    *(both("memory", text) for text in ("1000000", "1024Mi", "4096Ki", "1000Gi", "+2", "2.", "02", "0Mi", "10000")),
    *(both("memory", text) for text in ("1e3", "1e1", "10e2", "1E3", "1e+3", "1000e3", "10e-1", "1500e-3", "1.5Gi")),
    both("memory", 1500000),
    {"requests": {"nvidia.com/gpu": "1k"}, "limits": {"nvidia.com/gpu": 1000}},
    both("nvidia.com/gpu", "0.5"),
    {"limits": {"nvidia.com/gpu": "0.5"}},
    {"limits": {"nvidia.com/gpu": "1.5k"}},
    {"requests": {"nvidia.com/gpu": "0.0001"}},
    {"requests": {"nvidia.com/gpu": "1"}},
    {"requests": {"nvidia.com/gpu": "0"}},
    {"requests": {"nvidia.com/gpu": "1"}, "limits": {"cpu": "1"}},
    {"requests": {"nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "2"}},
    {"requests": {"nvidia.com/gpu": "3"}, "limits": {"nvidia.com/gpu": "2"}},
    both("nvidia.com/gpu", "-1"),
    {"requests": {"cpu": "3"}, "limits": {"cpu": "2"}},
    {"requests": {"cpu": "1500m"}, "limits": {"cpu": "1"}},
    {"requests": {"memory": "20Ti"}, "limits": {"memory": "19Ti"}},
    {"requests": {"memory": "1"}, "limits": {"memory": "500m"}},
    {"requests": {"ephemeral-storage": "2"}, "limits": {"ephemeral-storage": "1"}},
    {"requests": {"cpu": "-1"}},
    {"limits": {"cpu": "-1", "memory": "-1Gi"}},
    {"requests": {"cpu": "two"}},
    {"limits": {"cpu": 1, "hugepages-2Mi": "4Mi", "hugepages-1Gi": "1Gi"}},
    {"requests": {"hugepages-2Mi": "4Mi"}},
    {"requests": {"hugepages-2Mi": "4Mi", "cpu": 1}, "limits": {"hugepages-2Mi": "8Mi"}},
    {"limits": {"hugepages-2Mi": "4Mi"}},
    {"limits": {"hugepages-2Mi": "3Mi", "cpu": "1"}},
    {"limits": {"hugepages-2Mi": "0.5", "cpu": "1"}},
    {"limits": {"hugepages-some": "4Mi", "memory": "1Gi"}},
    both("gpu", 1),
    {"requests": {"pods": 1, "storage": 1, "limits.cpu": 1}},
    both("kubernetes.io/x", 1),
    both("requests.example.com/x", 1),
    both("Example.com/x", 1),
    both("example.com/", 1),
    both("example.com/x/y", 1),
    {"requests": {"": 1}},
]

PODS_AS_A_WHOLE: list[Object] = [
    {"requests": {"cpu": 4, "memory": "4Gi"}, "limits": {"cpu": 8}},
    {"limits": {"cpu": 8, "memory": "8Gi"}},
    {"limits": {"cpu": 1}},
    {"requests": {"cpu": 1}},
    {"requests": {"cpu": 9}, "limits": {"cpu": 8}},
    {"requests": {"cpu": -1}},
    {"requests": {"ephemeral-storage": 1}},
    both("nvidia.com/gpu", 1),
    {"requests": {"hugepages-2Mi": "4Mi"}},
    {"limits": {"hugepages-2Mi": "3Mi", "cpu": 4}},
]


def a_pod(resources: Object, *, pod_level: Object | None = None, place: str = "containers") -> Object:
    """A pod whose container, or init container, asks for these."""
    container = {"name": "c", "image": "i"}
    spec: Object = {"containers": [container], place: [{**container, "name": "d", "resources": resources}]}
    if pod_level is not None:
        spec["resources"] = pod_level
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}


def from_real(server: RealKube, pod: Object) -> Answer:
    """What the real server keeps, or refuses with."""
    code, answer = server.request("POST", PODS.path("default") + "?dryRun=All", pod, check=False)
    return (code, kept(answer)) if code < 400 else (code, refused(answer))


def from_embedded(pod: Object) -> Answer:
    """What the embedded cluster keeps, or refuses with."""
    numbers = itertools.count(1)
    store = Store(now=lambda: 1_700_000_000.0, new_uid=lambda: f"uid-{next(numbers)}")
    try:
        created = store.create(PODS, "default", pod)
    except ApiRefusal as refusal:
        return refusal.code, refused(refusal.status())
    return 201, kept(json.loads(created.stored.raw))


def kept(pod: Object) -> Object:
    """All that a created pod says of resources."""
    spec = pod["spec"]
    lists = ("containers", "initContainers")
    return {
        "pod": spec.get("resources"),
        **{name: [each["resources"] for each in spec.get(name) or []] for name in lists},
    }


def refused(status: Object) -> Any:
    """What is wrong, in no order: the real server goes through resources in none."""
    causes = (status.get("details") or {}).get("causes")
    if not causes:
        return status["message"]
    return sorted((cause["field"], cause["message"], cause["reason"]) for cause in causes)


@pytest.mark.parametrize("place", ["containers", "initContainers"])
@pytest.mark.parametrize("resources", CONTAINERS, ids=str)
def test_the_resources_of_a_container_are_kept_or_refused_alike(
    kube_server: RealKube, resources: Object, place: str
) -> None:
    pod = a_pod(resources, place=place)
    assert from_embedded(pod) == from_real(kube_server, pod)


@pytest.mark.parametrize("of_container", [{"requests": {"cpu": 2, "memory": "1Gi"}}, {"limits": {"cpu": 2}}], ids=str)
@pytest.mark.parametrize("resources", PODS_AS_A_WHOLE, ids=str)
def test_the_resources_of_a_pod_as_a_whole_are_kept_or_refused_alike(
    kube_server: RealKube, resources: Object, of_container: Object
) -> None:
    pod = a_pod(of_container, pod_level=resources)
    assert from_embedded(pod) == from_real(kube_server, pod)
