"""A ResourceQuota as the scheduler needs it: its limits, the pods that it covers, and what one pod of ours uses of it.

The rules are those of the API server's admission plugin ResourceQuota and its evaluator of pods: admission compares
with `status.hard` and `status.used`, and a pod uses 1 of `pods` and `count/pods`, its effective requests, and its
limits. Some facts may be known to the API server only: LimitRanges, which set a pod's requests and limits and which
not every installation may read, and a default PriorityClass. If the verdict on a quota depends on them, the quota is
assumed to leave room; a refusal by the API server then gives the reason.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Any

import msgspec

from arranger.model.job import PodGroup
from arranger.model.quantity import amount

Amounts = tuple[tuple[str, int], ...]

_REQUESTS, _LIMITS, _HUGE_PAGES = "requests.", "limits.", "hugepages-"
#: A quota's names for pods' compute resources; other names belong to other objects.
_COMPUTE = ("cpu", "memory", "ephemeral-storage")
_OF_PODS = frozenset(
    {"pods", "count/pods", *_COMPUTE, *(f"{of}{name}" for of in (_REQUESTS, _LIMITS) for name in _COMPUTE)}
)


class QuotaScope(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One condition on the pods that a quota covers; `operator` and `values` are those of a PriorityClass."""

    name: str
    operator: str = ""
    values: tuple[str, ...] = ()


class LimitKind(StrEnum):
    """What limits a job beside nodes: a quota of its namespace, or a limit of a queue: its capability, what is
    guaranteed to other queues, how many of its jobs may have nodes, and how many are considered. Or a pod group itself
    says how much the nodes must have free. NON_PREEMPTIBLE: what jobs may use that can't be preempted."""

    QUOTA = "Quota"
    CAPABILITY = "Capability"
    GUARANTEES = "Guarantees"
    MAX_RUNNING = "MaxRunning"
    MAX_WAITING = "MaxWaiting"
    NON_PREEMPTIBLE = "NonPreemptible"
    MIN_RESOURCES = "MinResources"


#: The limits that leave more once jobs of the queue, or of other queues, give room.
LEFT_BY_JOBS = (LimitKind.CAPABILITY, LimitKind.MAX_RUNNING, LimitKind.GUARANTEES)
#: Those that leave more once jobs end. What jobs use that can't be preempted, nobody gives to others before.
LEFT_BY_ENDS = (*LEFT_BY_JOBS, LimitKind.NON_PREEMPTIBLE)
#: The limits without which nodes would be sought for a job: it waits for the others because of jobs before it, or of
#: what nodes have.
SEEK_WITHOUT = (LimitKind.QUOTA, LimitKind.CAPABILITY, LimitKind.MAX_RUNNING, LimitKind.NON_PREEMPTIBLE)
#: The limits that an empty namespace or queue has left in full.
_OF_AMOUNTS = (LimitKind.QUOTA, LimitKind.CAPABILITY, LimitKind.NON_PREEMPTIBLE)


class LimitName(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A limit of a queue on a resource, or on its jobs."""

    queue: str
    resource: str
    limit: LimitKind


class QuotaLack(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A shortage in a quota: `needed` and `left` of a resource, in its unit, and the quota's `hard`.

    Other limits are of a `queue`, and `hard` is the queue's limit. GUARANTEES: the guarantees of other queues leave too
    little of the capability of `queue`, or of what the nodes offer if it is empty. MAX_RUNNING and MAX_WAITING count
    jobs. MIN_RESOURCES: what all nodes together have free, without a limit.
    """

    quota: str
    resource: str
    needed: int
    left: int
    hard: int
    queue: str = ""
    limit: LimitKind = LimitKind.QUOTA

    @property
    def name(self) -> LimitName:
        """The limit of a queue that is too small."""
        return LimitName(self.queue, self.resource, self.limit)

    @property
    def never(self) -> bool:
        """Even an empty namespace, or an empty queue, would not have enough."""
        return self.needed > self.hard and self.limit in _OF_AMOUNTS


def unit_of(resource: str) -> str:
    """The resource whose unit a quota's resource uses: "cpu" for `limits.cpu`."""
    return resource.removeprefix(_REQUESTS).removeprefix(_LIMITS)


def quota_amounts(quantities: Mapping[str, Any] | None) -> Amounts:
    """The amounts of a quota that concern pods, in the resources' units, sorted by name."""
    found = quantities or {}
    return tuple(sorted((name, amount(unit_of(name), found[name])) for name in found if _concerns_pods(name)))


def usage(requests: Amounts, limits: Amounts = ()) -> dict[str, int]:
    """The usage of a pod with these effective requests and limits, by quota resource names."""
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
    """The conditions of a ResourceQuota's spec on the pods that it covers, which are ANDed."""
    expressions = (spec.get("scopeSelector") or {}).get("matchExpressions") or ()
    return (
        *(QuotaScope(name) for name in spec.get("scopes") or ()),
        *(
            QuotaScope(of.get("scopeName") or "", of.get("operator") or "", tuple(of.get("values") or ()))
            for of in expressions
        ),
    )


def covers(scopes: Iterable[QuotaScope], group: PodGroup) -> bool:
    """Whether a quota with these scopes certainly covers the pods of a group."""
    return all(_matches(scope, group) for scope in scopes)


def _matches(scope: QuotaScope, group: PodGroup) -> bool:
    traits = group.traits
    if scope.name in ("Terminating", "NotTerminating"):
        return traits.has_deadline == (scope.name == "Terminating")
    if scope.name == "NotBestEffort":
        # An unknown LimitRange may set requests for a pod that has none, so neither scope is certain for that pod.
        return any(name in ("cpu", "memory") for name, _ in (*group.shape.requests, *traits.limits))
    if scope.name == "CrossNamespacePodAffinity":
        return traits.looks_elsewhere
    return scope.name == "PriorityClass" and _of_class(scope, traits.priority_class)


def _of_class(scope: QuotaScope, name: str) -> bool:
    if not name:
        return False  # unless the cluster has a default class, which is unknown here
    if scope.operator in ("Exists", "DoesNotExist"):
        return scope.operator == "Exists"
    return (name in scope.values) == (scope.operator != "NotIn")


@lru_cache(maxsize=4096)
def used_by(group: PodGroup) -> Mapping[str, int]:
    return usage(group.shape.requests, group.traits.limits)
