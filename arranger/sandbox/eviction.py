"""Evictions of the embedded cluster: deletions of pods that honour PodDisruptionBudgets, as the API server makes them.

What a budget allows is counted at each eviction, where a real cluster has a controller for that. A budget expects the
pods that its selector matches; a real controller asks their owners how many there should be, for percentages and
`maxUnavailable`.
"""

import math
from collections.abc import Iterable
from typing import Any

from arranger.kube.cluster import PODS, Object
from arranger.model.selectors import selector_of, selects
from arranger.sandbox.garbage import DeleteOptions, hold_conditions
from arranger.sandbox.history import Stored
from arranger.sandbox.kinds import POD_DISRUPTION_BUDGETS
from arranger.sandbox.patching import strategic_merge
from arranger.sandbox.status import ApiRefusal, bad_request
from arranger.sandbox.store import Store

_ENDED = ("Succeeded", "Failed")
_TARGET = {
    "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
    "message": "Eviction API: evicting",
}  # fmt: skip
_REFUSED = "Cannot evict pod as it would violate the pod's disruption budget."
_SEVERAL = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."


def evict(store: Store, namespace: str, name: str, body: Object, options: DeleteOptions) -> None:
    """Evict a pod. Raises `ApiRefusal`: 404 without the pod, 409 if it is another one, 429 if its budget doesn't allow
    it, 500 if it has several budgets."""
    if (body.get("metadata") or {}).get("name", name) != name:
        raise bad_request("name in URL does not match name in Eviction object")
    pod = store.get(PODS, namespace, name)
    hold_conditions(pod.kind, pod, options)
    if not _always_allowed(pod.object):
        _hold_budget(store, pod)
        if not options.dry_run:
            status = strategic_merge(pod.object["status"], {"conditions": [_TARGET]})
            store.patch(PODS, namespace, name, {"status": status}, subresource="status")
    store.delete(PODS, namespace, name, DeleteOptions(pod.uid, grace_s=options.grace_s, dry_run=options.dry_run))


def _always_allowed(pod: Object) -> bool:
    """Whether no budget protects a pod: it hasn't begun, has ended, or is being deleted."""
    return pod["status"].get("phase") in ("Pending", *_ENDED) or "deletionTimestamp" in pod["metadata"]


def _hold_budget(store: Store, pod: Stored) -> None:
    """Refuse an eviction that the pod's budget doesn't allow."""
    budgets = store.collection(POD_DISRUPTION_BUDGETS).objects
    found = [of for key, of in sorted(budgets.items()) if key[0] == pod.namespace and _covers(of.object, pod.object)]
    if len(found) > 1:
        raise ApiRefusal(500, "", _SEVERAL)
    for budget in found:
        status = counted(budget.object, [of.object for of in store.collection(PODS).objects.values()])
        store.patch(
            POD_DISRUPTION_BUDGETS, pod.namespace, budget.name, {"status": status}, subresource="status"
        )  # fmt: skip
        if not _is_ready(pod.object) and _may_go_unready(budget.object, status):
            return
        if not status["disruptionsAllowed"]:
            needs, has = status["desiredHealthy"], status["currentHealthy"]
            told = f"The disruption budget {budget.name} needs {needs} healthy pods and has {has} currently"
            causes = [{"reason": "DisruptionBudget", "message": told}]
            raise ApiRefusal(429, "TooManyRequests", _REFUSED, {"causes": causes})


def _may_go_unready(budget: Object, status: dict[str, int]) -> bool:
    """Whether a pod that isn't ready may go whatever the budget still allows."""
    if budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    return status["currentHealthy"] >= status["desiredHealthy"] > 0


def counted(budget: Object, pods: Iterable[Object]) -> dict[str, int]:
    """The status of a budget, as its controller writes it."""
    covered = [pod for pod in pods if _covers(budget, pod) and pod["status"].get("phase") not in _ENDED]
    healthy = sum(_is_ready(pod) and "deletionTimestamp" not in pod["metadata"] for pod in covered)
    spec, expected = budget["spec"], len(covered)
    if "maxUnavailable" in spec:
        desired = max(expected - _scaled(spec["maxUnavailable"], expected), 0)
    else:
        desired = _scaled(spec.get("minAvailable", 1), expected)
    return {
        "observedGeneration": budget["metadata"].get("generation", 1),
        "expectedPods": expected,
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "disruptionsAllowed": max(healthy - desired, 0),
    }


def _scaled(amount: Any, expected: int) -> int:
    """A number of pods, or a percentage of those that are expected, rounded up."""
    if isinstance(amount, str) and amount.endswith("%"):
        return math.ceil(expected * int(amount[:-1]) / 100)
    return int(amount)


def _covers(budget: Object, pod: Object) -> bool:
    selector = budget["spec"].get("selector")
    same = budget["metadata"].get("namespace") == pod["metadata"].get("namespace")
    return same and selector is not None and selects(selector_of(selector), pod["metadata"].get("labels") or {})


def _is_ready(pod: Object) -> bool:
    conditions = pod["status"].get("conditions") or ()
    return any(of.get("type") == "Ready" and of.get("status") == "True" for of in conditions)
