"""ResourceQuotas of the embedded cluster: admission refuses pods beyond them, and their usage is updated at once.

Admission follows the API server (plugin ResourceQuota), including its wording; the usage follows the quota controller.
Both cover pods only: a quota's limits on other objects are stored, but neither counted nor enforced.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from arranger.kube.cluster import Object
from arranger.model.pod import QosClass
from arranger.model.quantity import QuantityError, quantity
from arranger.model.quota import QuotaScope, quota_amounts, quota_scopes, unit_of, usage
from arranger.model.template import effective_limits, effective_requests, qos_class
from arranger.sandbox.history import Stored
from arranger.sandbox.status import ApiRefusal, forbidden

_ENDED = ("Succeeded", "Failed")
#: Resources that every container must declare if a quota names them.
_DECLARED = {f"{of}{name}" for of in ("", "requests.", "limits.") for name in ("cpu", "memory")}


def admit(quotas: Iterable[Stored], pod: Object) -> list[tuple[Stored, Object]]:
    """The quotas that cover a new pod, with their new state; raises `ApiRefusal` 403 for the first that refuses it."""
    used = _used(pod)
    changed = []
    for stored in quotas:
        status = stored.object.get("status") or {}
        hard, counted = dict(quota_amounts(status.get("hard"))), dict(quota_amounts(status.get("used")))
        if not hard or not _covers(stored.object, pod):
            continue
        _hold_declared(stored, pod, hard)
        if not hard.keys() <= counted.keys():
            raise _refused(pod, f"status unknown for quota: {stored.name}, resources: {','.join(sorted(hard))}")
        asked = {name: used[name] for name in sorted(hard) if used.get(name)}
        over = [name for name, value in asked.items() if counted[name] + value > hard[name]]
        if over:
            parts = (("requested", asked), ("used", counted), ("limited", hard))
            told = ", ".join(f"{what}: {_text({name: amounts[name] for name in over})}" for what, amounts in parts)
            raise _refused(pod, f"exceeded quota: {stored.name}, {told}")
        after = {name: quantity(unit_of(name), counted[name] + value) for name, value in asked.items()}
        new_status = {**status, "used": {**(status.get("used") or {}), **after}}
        changed.append((stored, {**stored.object, "status": new_status}))
    return changed


def counted(quota: Object, pods: Iterable[Object]) -> Object:
    """A quota as its controller updates it: with its spec's `hard`, and the usage of the pods in its namespace."""
    desired = (quota.get("spec") or {}).get("hard") or {}
    try:
        hard = dict(quota_amounts(desired))
    except QuantityError:
        return quota
    used = [_used(pod) for pod in pods if _covers(quota, pod)]
    total = {name: sum(each.get(name, 0) for each in used) for name in hard}
    status = {"hard": desired, "used": {name: quantity(unit_of(name), value) for name, value in total.items()}}
    return {**quota, "status": status}


def _used(pod: Object) -> dict[str, int]:
    if (pod.get("status") or {}).get("phase") in _ENDED:
        return {"count/pods": 1}
    spec = pod["spec"]
    return usage(effective_requests(spec), effective_limits(spec))


def _covers(quota: Object, pod: Object) -> bool:
    return all(_matches(scope, pod["spec"]) for scope in quota_scopes(quota.get("spec") or {}))


def _matches(scope: QuotaScope, spec: dict[str, Any]) -> bool:
    if scope.name in ("Terminating", "NotTerminating"):
        return (spec.get("activeDeadlineSeconds") is not None) == (scope.name == "Terminating")
    if scope.name in ("BestEffort", "NotBestEffort"):
        return (qos_class(spec) == QosClass.BEST_EFFORT) == (scope.name == "BestEffort")
    if scope.name != "PriorityClass":
        return False
    of_class = spec.get("priorityClassName") or ""
    if scope.operator in ("Exists", "DoesNotExist"):
        return bool(of_class) == (scope.operator == "Exists")
    return (of_class in scope.values) == (scope.operator == "In")


def _hold_declared(quota: Stored, pod: Object, hard: Mapping[str, int]) -> None:
    """Require that every container declares the resources in a quota, unless the pod declares resources as a whole."""
    needed = sorted(_DECLARED & hard.keys())
    spec = pod["spec"]
    if not needed or any((spec.get("resources") or {}).values()):
        return
    lacking: dict[str, set[str]] = {}
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        asked = container.get("resources") or {}
        for name in needed:
            side = "limits" if name.startswith("limits.") else "requests"
            if unit_of(name) not in (asked.get(side) or {}):
                lacking.setdefault(name, set()).add(container["name"])
    if lacking:
        told = "; ".join(f"{name} for: {','.join(sorted(lacking[name]))}" for name in sorted(lacking))
        raise _refused(pod, f"failed quota: {quota.name}: must specify {told}")


def _text(amounts: Mapping[str, int]) -> str:
    return ",".join(f"{name}={quantity(unit_of(name), value)}" for name, value in sorted(amounts.items()))


def _refused(pod: Object, why: str) -> ApiRefusal:
    return forbidden("pods", "", pod["metadata"]["name"], why)
