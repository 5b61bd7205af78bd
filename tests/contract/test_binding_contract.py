"""What an API server makes of bindings and of the condition PodScheduled: how pods of others get their nodes."""

from typing import Any

import pytest

from arranger.kube.cluster import PODS, Object
from tests.contract.test_cluster_contract import Place, Subject, pod, refused, subject  # noqa: F401 - a fixture

pytestmark = pytest.mark.timeout(120)

GATES = [{"name": "example.com/later"}]


async def made(place: Place, name: str, **spec: Any) -> str:
    """Create a pod that names another scheduler than the default one; returns its UID."""
    body = pod(name, schedulerName="arranger", **spec)
    created = await place.cluster.create(PODS, place.namespace, body)
    uid: str = created["metadata"]["uid"]
    return uid


async def condition(place: Place, name: str) -> Object:
    """The condition PodScheduled of a pod; empty without one."""
    found = await place.cluster.get(PODS, place.namespace, name)
    conditions = found["status"].get("conditions") or ()
    return next((of for of in conditions if of["type"] == "PodScheduled"), {})


async def test_a_binding_gives_a_pod_its_node_once(subject: Subject) -> None:  # noqa: F811
    async with subject.open() as place:
        uid = await made(place, "one")
        assert await condition(place, "one") == {}
        await place.cluster.bind(place.namespace, "one", uid=uid, node="n1")
        found = await place.cluster.get(PODS, place.namespace, "one")
        assert found["spec"]["nodeName"] == "n1" and (await condition(place, "one"))["status"] == "True"
        with refused(409, "Conflict", 'pod one is already assigned to node "n1"'):
            await place.cluster.bind(place.namespace, "one", uid=uid, node="n1")


async def test_a_binding_needs_the_very_pod(subject: Subject) -> None:  # noqa: F811
    async with subject.open() as place:
        await made(place, "one")
        with refused(409, "Conflict", "UID in precondition: other"):
            await place.cluster.bind(place.namespace, "one", uid="other", node="n1")
        assert "nodeName" not in (await place.cluster.get(PODS, place.namespace, "one"))["spec"]
        with refused(404, "NotFound", 'pods "two" not found'):
            await place.cluster.bind(place.namespace, "two", uid="other", node="n1")


async def test_a_gated_pod_says_so_and_cannot_be_bound(subject: Subject) -> None:  # noqa: F811
    async with subject.open() as place:
        uid = await made(place, "one", schedulingGates=GATES)
        found = await condition(place, "one")
        assert (found["status"], found["reason"]) == ("False", "SchedulingGated")
        with refused(409, "Conflict", "pod one has non-empty .spec.schedulingGates"):
            await place.cluster.bind(place.namespace, "one", uid=uid, node="n1")
        body = {"spec": {"schedulingGates": None}}
        await place.cluster.patch(PODS, place.namespace, "one", body)
        await place.cluster.bind(place.namespace, "one", uid=uid, node="n1")


async def test_a_pod_with_gates_cannot_be_made_with_a_node(subject: Subject) -> None:  # noqa: F811
    """So a webhook that adds a gate to pods (as Kueue's does) keeps those of TYJobs from being made."""
    async with subject.open() as place:
        with refused(422, "Invalid", "spec.nodeName: Forbidden: cannot be set until all schedulingGates have been"):
            await made(place, "one", schedulingGates=GATES, nodeName="n1")


async def test_a_pod_that_is_being_deleted_cannot_be_bound(subject: Subject) -> None:  # noqa: F811
    async with subject.open() as place:
        body = pod("one", schedulerName="arranger")
        body["metadata"]["finalizers"] = ["example.com/keep"]
        uid = (await place.cluster.create(PODS, place.namespace, body))["metadata"]["uid"]
        await place.cluster.delete(PODS, place.namespace, "one", uid=uid)
        with refused(409, "Conflict", "pod one is being deleted, cannot be assigned to a host"):
            await place.cluster.bind(place.namespace, "one", uid=uid, node="n1")
        await place.cluster.patch(PODS, place.namespace, "one", {"metadata": {"finalizers": None}})


async def test_a_status_says_why_a_pod_waits_if_the_pod_is_as_it_was_read(subject: Subject) -> None:  # noqa: F811
    async with subject.open() as place:
        uid = await made(place, "one")
        read = await place.cluster.get(PODS, place.namespace, "one")
        waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}
        known = {"uid": uid, "resourceVersion": read["metadata"]["resourceVersion"]}
        body = {"metadata": known, "status": {"conditions": [waits]}}
        await place.cluster.patch(PODS, place.namespace, "one", body, subresource="status")
        assert (await condition(place, "one"))["message"] == "no room"
        with refused(409, "Conflict", "object has been modified"):
            body["status"] = {"conditions": [{**waits, "message": "late"}]}
            await place.cluster.patch(PODS, place.namespace, "one", body, subresource="status")
