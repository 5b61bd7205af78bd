"""A ResourceQuota as the scheduler needs it: what it limits, which pods it covers, and what one pod of ours uses of it.

The rules are those of the API server's admission plugin ResourceQuota and its evaluator of pods: admission looks at
`status.hard` and `status.used`, and a pod uses 1 of `pods` and `count/pods`, its effective requests, and its limits.
What only the API server knows isn't decided here: a LimitRange that gives a pod requests, limits or the lack of them,
a default PriorityClass. Where a quota can't be decided on for that reason, it is taken as one that leaves room; the API
server's refusal then says what is so.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from arranger.model.job import PodGroup
from arranger.model.quantity import amount

Amounts = tuple[tuple[str, int], ...]

_REQUESTS, _LIMITS, _HUGE_PAGES = "requests.", "limits.", "hugepages-"
#: What a quota can say of pods' compute resources; other names are those of other objects.
_COMPUTE = ("cpu", "memory", "ephemeral-storage")
_OF_PODS = frozenset(
    {"pods", "count/pods", *_COMPUTE, *(f"{of}{name}" for of in (_REQUESTS, _LIMITS) for name in _COMPUTE)}
)


class QuotaScope(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One condition on the pods that a quota covers; `operator` and `values` are those of a PriorityClass."""

    name: str
    operator: str = ""
    values: tuple[str, ...] = ()


class QuotaLack(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a quota doesn't leave for pods: `needed` and `left` of a resource, in its unit, and the quota's `hard`."""

    quota: str
    resource: str
    needed: int
    left: int
    hard: int

    @property
    def never(self) -> bool:
        """Not even an empty namespace would do."""
        return self.needed > self.hard


def unit_of(resource: str) -> str:
    """The resource in whose unit a quota's resource counts: "cpu" for `limits.cpu`."""
    return resource.removeprefix(_REQUESTS).removeprefix(_LIMITS)


def quota_amounts(quantities: Mapping[str, Any] | None) -> Amounts:
    """What of a quota's amounts concerns pods, in the resources' units, sorted by name."""
    found = quantities or {}
    return tuple(sorted((name, amount(unit_of(name), found[name])) for name in found if _concerns_pods(name)))


def usage(requests: Amounts, limits: Amounts = ()) -> dict[str, int]:
    """What a pod with these effective requests and limits uses, by the names that quotas give resources."""
    used = {"pods": 1, "count/pods": 1}
    for name, value in requests:
        used[f"{_REQUESTS}{name}"] = value
        if name in _COMPUTE or name.startswith(_HUGE_PAGES):
            used[name] = value
    return used | {f"{_LIMITS}{name}": value for name, value in limits if name in _COMPUTE}


def _concerns_pods(name: str) -> bool:
    if name in _OF_PODS or name.removeprefix(_REQUESTS).startswith(_HUGE_PAGES):
        return True
    return name.startswith(_REQUESTS) and "/" in name and "kubernetes.io/" not in name


def quota_scopes(spec: Mapping[str, Any]) -> tuple[QuotaScope, ...]:
    """The conditions of a ResourceQuota's spec on the pods that it covers, all of which must hold."""
    expressions = (spec.get("scopeSelector") or {}).get("matchExpressions") or ()
    return (
        *(QuotaScope(name) for name in spec.get("scopes") or ()),
        *(
            QuotaScope(of.get("scopeName") or "", of.get("operator") or "", tuple(of.get("values") or ()))
            for of in expressions
        ),
    )


def covers(scopes: Iterable[QuotaScope], group: PodGroup) -> bool:
    """Whether a quota with these scopes certainly counts the pods of a group."""
    return all(_matches(scope, group) for scope in scopes)


def _matches(scope: QuotaScope, group: PodGroup) -> bool:
    traits = group.traits
    if scope.name in ("Terminating", "NotTerminating"):
        return traits.has_deadline == (scope.name == "Terminating")
    if scope.name == "NotBestEffort":
        # A LimitRange may give a pod requests that declares none, so of that one neither scope is certain.
        return any(name in ("cpu", "memory") for name, _ in (*group.shape.requests, *traits.limits))
    if scope.name == "CrossNamespacePodAffinity":
        return traits.looks_elsewhere
    return scope.name == "PriorityClass" and _of_class(scope, traits.priority_class)


def _of_class(scope: QuotaScope, name: str) -> bool:
    if not name:
        return False  # unless the cluster has a default class, which nobody here knows
    if scope.operator in ("Exists", "DoesNotExist"):
        return scope.operator == "Exists"
    return (name in scope.values) == (scope.operator != "NotIn")


@lru_cache(maxsize=4096)
def used_by(group: PodGroup) -> Mapping[str, int]:
    return usage(group.shape.requests, group.traits.limits)
