"""RuntimeClasses, and pods that name one, held against a real API server and the embedded one alike."""

from typing import Any

import pytest

from arranger.kube.cluster import PODS, RUNTIME_CLASSES
from tests.contract.test_cluster_contract import (  # noqa: F401 - fixtures
    Subject,
    pod,
    refused,
    subject,
    unique,
)

pytestmark = pytest.mark.timeout(120)


def of_class(name: str, **more: Any) -> dict[str, Any]:
    return {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name}, "handler": "x", **more}


async def test_a_pod_gets_what_its_class_adds(subject: Subject) -> None:  # noqa: F811
    async with subject.open() as place:
        name = unique("runtime")
        toleration = {"key": "kata", "operator": "Exists", "effect": "NoSchedule"}
        scheduling = {"nodeSelector": {"kata": "true"}, "tolerations": [toleration]}
        given = of_class(name, overhead={"podFixed": {"cpu": "250m"}}, scheduling=scheduling)
        await place.cluster.create(RUNTIME_CLASSES, None, given)
        asked = pod(unique("pod"))
        asked["spec"] |= {"runtimeClassName": name, "nodeSelector": {"disk": "ssd"}}
        spec = (await place.cluster.create(PODS, place.namespace, asked))["spec"]
        assert spec["overhead"] == {"cpu": "250m"}
        assert spec["nodeSelector"] == {"disk": "ssd", "kata": "true"}
        assert toleration in spec["tolerations"]


async def test_a_pod_of_no_class_or_against_it_is_refused(subject: Subject) -> None:  # noqa: F811
    async with subject.open() as place:
        name = unique("runtime")
        scheduling = {"nodeSelector": {"kata": "true"}}
        await place.cluster.create(RUNTIME_CLASSES, None, of_class(name, scheduling=scheduling))
        asked = pod(unique("pod"))
        asked["spec"] |= {"runtimeClassName": unique("none")}
        with refused(403, "Forbidden", "pod rejected: RuntimeClass"):
            await place.cluster.create(PODS, place.namespace, asked)
        asked["spec"] |= {"runtimeClassName": name, "nodeSelector": {"kata": "false"}}
        with refused(403, "Forbidden", "conflict: runtimeClass.scheduling.nodeSelector[kata] = true"):
            await place.cluster.create(PODS, place.namespace, asked)
