"""What an API server makes of evictions: PodDisruptionBudgets refuse them, in words that Arranger's users read.

A bare API server doesn't count what a budget allows, so these tests write the status that its controller would write.
The embedded cluster counts it by itself.
"""

from typing import Any

import pytest

from arranger.kube.cluster import PODS, Object
from arranger.sandbox.kinds import POD_DISRUPTION_BUDGETS
from tests.contract.test_cluster_contract import Place, Subject, pod, refused, subject  # noqa: F401 - a fixture

pytestmark = pytest.mark.timeout(120)


async def begun(place: Place, name: str, *, ready: bool = True, phase: str = "Running") -> Object:
    """A bound pod with the label app=web in this phase."""
    body = pod(name, nodeName="n1", terminationGracePeriodSeconds=45)
    body["metadata"]["labels"] = {"app": "web"}
    await place.cluster.create(PODS, place.namespace, body)
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    status = {"status": {"phase": phase, "conditions": conditions}}
    return await place.cluster.patch(PODS, place.namespace, name, status, subresource="status")


async def with_budget(place: Place, name: str, *, expected: int, healthy: int, desired: int, **spec: Any) -> None:
    """A budget for app=web, with the status that its controller would give it."""
    selector = {"matchLabels": {"app": "web"}}
    body = {"metadata": {"name": name}, "spec": {"selector": selector, **spec}}
    await place.cluster.create(POD_DISRUPTION_BUDGETS, place.namespace, body)
    status = {
        "observedGeneration": 1, "expectedPods": expected, "currentHealthy": healthy, "desiredHealthy": desired,
        "disruptionsAllowed": max(healthy - desired, 0),
    }  # fmt: skip
    await place.cluster.patch(
        POD_DISRUPTION_BUDGETS, place.namespace, name, {"status": status}, subresource="status"
    )  # fmt: skip


async def going(place: Place, name: str) -> Object:
    """The marks of a deletion and the conditions of a pod."""
    found = await place.cluster.get(PODS, place.namespace, name)
    conditions = {of["type"]: of.get("reason") for of in found["status"]["conditions"]}
    return {"grace": found["metadata"].get("deletionGracePeriodSeconds"), **conditions}


async def test_an_eviction_deletes_a_pod_with_its_own_grace_period(subject: Subject) -> None:  # noqa: F811
    async with subject.open() as place:
        uid = (await begun(place, "one"))["metadata"]["uid"]
        await place.cluster.evict(place.namespace, "one", uid=uid)
        found = await going(place, "one")
        assert (found["grace"], found["DisruptionTarget"]) == (45, "EvictionByEvictionAPI")
        await place.cluster.evict(place.namespace, "one", uid=uid)  # again, for nothing
        assert (await going(place, "one"))["grace"] == 45


async def test_an_eviction_needs_the_very_pod(subject: Subject) -> None:  # noqa: F811
    async with subject.open() as place:
        await begun(place, "one")
        with refused(409, "Conflict", "UID in the precondition (other)"):
            await place.cluster.evict(place.namespace, "one", uid="other")
        assert (await going(place, "one"))["grace"] is None
        with refused(404, "NotFound", 'pods "two" not found'):
            await place.cluster.evict(place.namespace, "two", uid="other")


@pytest.mark.parametrize("spec", [{"minAvailable": 2}, {"maxUnavailable": 0}, {"minAvailable": "100%"}])
async def test_a_budget_refuses_what_would_be_too_much(subject: Subject, spec: dict[str, Any]) -> None:  # noqa: F811
    async with subject.open() as place:
        uid = (await begun(place, "one"))["metadata"]["uid"]
        await begun(place, "two")
        await with_budget(place, "web", expected=2, healthy=2, desired=2, **spec)
        text = "would violate the pod's disruption budget. The disruption budget web needs 2 healthy pods and has 2"
        with refused(429, "TooManyRequests", text):
            await place.cluster.evict(place.namespace, "one", uid=uid)
        assert (await going(place, "one"))["grace"] is None


async def test_a_budget_allows_one_after_the_other(subject: Subject) -> None:  # noqa: F811
    async with subject.open() as place:
        uids = [(await begun(place, name))["metadata"]["uid"] for name in ("one", "two")]
        await with_budget(place, "web", expected=2, healthy=2, desired=1, minAvailable=1)
        await place.cluster.evict(place.namespace, "one", uid=uids[0])
        with refused(429, "TooManyRequests", "The disruption budget web "):
            await place.cluster.evict(place.namespace, "two", uid=uids[1])


@pytest.mark.parametrize(("phase", "ready"), [("Pending", False), ("Failed", False), ("Succeeded", False)])
async def test_no_budget_protects_pods_that_do_not_run(
    subject: Subject,  # noqa: F811
    phase: str,
    ready: bool,
) -> None:
    async with subject.open() as place:
        uid = (await begun(place, "one", phase=phase, ready=ready))["metadata"]["uid"]
        await with_budget(place, "web", expected=1, healthy=0, desired=1, minAvailable=1)
        await place.cluster.evict(place.namespace, "one", uid=uid)


async def test_a_budget_protects_pods_that_are_not_ready_while_it_lacks_others(
    subject: Subject,  # noqa: F811
) -> None:
    async with subject.open() as place:
        uid = (await begun(place, "one", ready=False))["metadata"]["uid"]
        await with_budget(place, "web", expected=1, healthy=0, desired=1, minAvailable=1)
        with refused(429, "TooManyRequests", "needs 1 healthy pods and has 0"):
            await place.cluster.evict(place.namespace, "one", uid=uid)


async def test_several_budgets_of_one_pod_are_an_error(subject: Subject) -> None:  # noqa: F811
    async with subject.open() as place:
        uid = (await begun(place, "one"))["metadata"]["uid"]
        for name in ("first", "second"):
            await with_budget(place, name, expected=1, healthy=1, desired=0, minAvailable=0)
        with refused(500, "Unknown", "has more than one PodDisruptionBudget"):
            await place.cluster.evict(place.namespace, "one", uid=uid)
