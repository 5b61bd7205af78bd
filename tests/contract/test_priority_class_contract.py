"""PriorityClasses, and pods that name one, held against a real API server and the embedded one alike."""

from typing import Any

import pytest

from arranger.kube.cluster import PODS, PRIORITY_CLASSES
from tests.contract.test_cluster_contract import (  # noqa: F401 - fixtures
    Subject,
    pod,
    refused,
    subject,
    unique,
)

pytestmark = pytest.mark.timeout(120)
_FORBIDDEN = (403, "Forbidden")


def of_class(name: str, value: int | None = 1000) -> dict[str, Any]:
    given = {} if value is None else {"value": value}
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, **given}


async def test_the_classes_of_the_system_are_there(subject: Subject) -> None:  # noqa: F811
    async with subject.open() as place:
        names = ("system-cluster-critical", "system-node-critical")
        values = [(await place.cluster.get(PRIORITY_CLASSES, None, name))["value"] for name in names]
        assert values == [2_000_000_000, 2_000_001_000]


async def test_a_class_keeps_its_value(subject: Subject) -> None:  # noqa: F811
    async with subject.open() as place:
        name, other = unique("class"), unique("class")
        assert (await place.cluster.create(PRIORITY_CLASSES, None, of_class(name)))["value"] == 1000
        with refused(422, "Invalid", "value: Forbidden: may not be changed in an update."):
            await place.cluster.patch(PRIORITY_CLASSES, None, name, {"value": 5})
        assert (await place.cluster.create(PRIORITY_CLASSES, None, of_class(other, None)))["value"] == 0
        with refused(422, "Invalid", "maximum allowed value of a user defined priority is 1000000000"):
            await place.cluster.create(PRIORITY_CLASSES, None, of_class(unique("class"), 1_000_000_001))
        for made in (name, other):
            await place.cluster.delete(PRIORITY_CLASSES, None, made)


async def test_a_pod_gets_the_value_of_its_class(subject: Subject) -> None:  # noqa: F811
    async with subject.open() as place:
        name = unique("class")
        with refused(*_FORBIDDEN, f"no PriorityClass with name {name} was found"):
            await place.cluster.create(PODS, place.namespace, pod("a", priorityClassName=name))
        await place.cluster.create(PRIORITY_CLASSES, None, of_class(name))
        made = await place.cluster.create(PODS, place.namespace, pod("a", priorityClassName=name))
        assert (made["spec"]["priority"], made["spec"]["priorityClassName"]) == (1000, name)
        with refused(*_FORBIDDEN, "the integer value of priority (5) must not be provided"):
            await place.cluster.create(PODS, place.namespace, pod("b", priorityClassName=name, priority=5))
        await place.cluster.delete(PRIORITY_CLASSES, None, name)
