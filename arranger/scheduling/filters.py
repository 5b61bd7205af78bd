"""Which nodes a pod may run on, and for those that it may not, the first reason why.

Every filter answers for all nodes at once. A node is counted under the first filter that refuses it, in the order
of `reasons`, so that the counts of one pod always add up to the number of nodes.
"""

from collections.abc import Callable, Iterable

import numpy as np

from arranger.model.node import NodeFacts, Taint
from arranger.model.pod import PodShape, Requirement, Toleration
from arranger.scheduling.view import ClusterView, Mask


class Filters:
    """Filter answers for one view, remembered per shape: equal pods ask once."""

    def __init__(self, view: ClusterView, *, ignore_health: bool = False) -> None:
        self._view = view
        self._ignore_health = ignore_health
        self._static: dict[PodShape, Mask] = {}
        self._static_counts: dict[PodShape, dict[str, int]] = {}
        self._reasons: dict[PodShape, tuple[int, tuple[tuple[str, int], ...]]] = {}

    def static(self, shape: PodShape) -> Mask:
        """Nodes that pass everything but resources, which change as the cycle goes on."""
        found = self._static.get(shape)
        if found is None:
            view = self._view
            found = np.ones(len(view), bool) if self._ignore_health else view.ready & ~view.cordoned
            found &= _per_distinct(view, self._taints, lambda taints: not untolerated(taints, shape))
            if shape.node_selector or shape.required_terms is not None:
                found &= np.array(
                    [matches(facts, name, shape) for facts, name in zip(view.facts, view.names, strict=True)], bool
                )
            self._static[shape] = found
        return found

    def _taints(self, facts: NodeFacts) -> tuple[Taint, ...]:
        """The taints that count; without regard to health, not those by which Kubernetes marks a node as unhealthy."""
        if not self._ignore_health or not facts.taints:
            return facts.taints
        return tuple(taint for taint in facts.taints if not taint.key.startswith(_HEALTH_TAINTS))

    def room(self, shape: PodShape) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
        """How many pods of this shape each node takes now; 0 where a filter refuses."""
        view = self._view
        request = view.request(shape)
        asked = np.flatnonzero(request)
        counts = (view.free[:, asked] // request[asked]).min(axis=1) if len(view) else np.zeros(0, np.int64)
        return np.where(self.static(shape), np.maximum(counts, 0), 0)

    def reasons(self, shape: PodShape) -> tuple[tuple[str, int], ...]:
        """For a pod that fits no node: the number of nodes by reason, most frequent first, then by text."""
        known = self._reasons.get(shape)
        if known is None or known[0] != self._view.content:
            known = (self._view.content, self._count_reasons(shape))
            self._reasons[shape] = known
        return known[1]

    def refusal(self, shape: PodShape, row: int) -> str:
        """Why one node doesn't take a pod of this shape now; "fit" if it does."""
        refused = self._static_refusal(shape, row)
        if refused:
            return refused
        view = self._view
        request = view.request(shape)
        for resource, column in self._scarcest_first(shape):
            free = int(view.free[row, column])
            if free < request[column]:
                need = amount(resource, int(request[column]))
                return f"lacks {resource} (need {need}, free {amount(resource, max(free, 0))})"
        return "fit"

    def _count_reasons(self, shape: PodShape) -> tuple[tuple[str, int], ...]:
        view = self._view
        request = view.request(shape)
        counts = dict(self._count_static(shape))
        rows = np.flatnonzero(self.static(shape))
        for resource, column in self._scarcest_first(shape):
            free = view.free[rows, column]
            short = free < request[column]
            if short.any():
                need, most = int(request[column]), max(int(free[short].max()), 0)
                counts[f"lack {resource} (need {amount(resource, need)}, most free {amount(resource, most)})"] = int(
                    np.count_nonzero(short)
                )
                rows = rows[~short]
        if len(rows):
            counts["fit"] = len(rows)
        return tuple(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

    def _count_static(self, shape: PodShape) -> dict[str, int]:
        """The counts that don't change as the cycle goes on, remembered: they are looked up node by node."""
        found = self._static_counts.get(shape)
        if found is None:
            found = {}
            for row in np.flatnonzero(~self.static(shape)).tolist():
                reason = self._static_refusal(shape, row)
                found[reason] = found.get(reason, 0) + 1
            self._static_counts[shape] = found
        return found

    def _static_refusal(self, shape: PodShape, row: int) -> str:
        view = self._view
        facts = view.facts[row]
        if not self._ignore_health:
            if not facts.ready:
                return "not ready"
            if facts.cordoned:
                return "cordoned"
        taint = untolerated(self._taints(facts), shape)
        if taint is not None:
            return f"taint {taint.key}{'=' if taint.value else ''}{taint.value}:{taint.effect} not tolerated"
        if not _selected(facts, shape):
            return "node selector doesn't match"
        return "" if matches(facts, view.names[row], shape) else "required node affinity doesn't match"

    def _scarcest_first(self, shape: PodShape) -> list[tuple[str, int]]:
        """The requested resources with their columns: named devices say more than cpu and memory, so they come
        first, then by name, whatever order the columns came in."""
        view = self._view
        names = [(view.resource(column), column) for column in np.flatnonzero(view.request(shape)).tolist()]
        return sorted(names, key=lambda item: ("/" not in item[0], item[0]))


#: Taints with these prefixes come and go with a node's state: not-ready, unreachable, unschedulable, disk-pressure …
_HEALTH_TAINTS = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")


def _per_distinct(
    view: ClusterView, key: Callable[[NodeFacts], tuple[Taint, ...]], passes: Callable[[tuple[Taint, ...]], bool]
) -> Mask:
    answers: dict[tuple[Taint, ...], bool] = {}
    found = np.ones(len(view), bool)
    for row, facts in enumerate(view.facts):
        value = key(facts)
        if value:
            if value not in answers:
                answers[value] = passes(value)
            found[row] = answers[value]
    return found


def untolerated(taints: Iterable[Taint], shape: PodShape) -> Taint | None:
    """The first taint that keeps the pod away (NoSchedule, NoExecute), None if it is welcome."""
    for taint in taints:
        if taint.effect != "PreferNoSchedule" and not any(_tolerates(t, taint) for t in shape.tolerations):
            return taint
    return None


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.operator == "Exists":
        return toleration.key in ("", taint.key)
    return toleration.key == taint.key and toleration.value == taint.value


def matches(facts: NodeFacts, name: str, shape: PodShape) -> bool:
    """Whether a node's labels and name satisfy the pod's nodeSelector and required node affinity."""
    if not _selected(facts, shape):
        return False
    if shape.required_terms is None:
        return True
    labels = dict(facts.labels)
    return any(term and all(_holds(r, labels, name) for r in term) for term in shape.required_terms)


def _selected(facts: NodeFacts, shape: PodShape) -> bool:
    labels = dict(facts.labels) if shape.node_selector else {}
    return all(labels.get(key) == value for key, value in shape.node_selector)


def _holds(requirement: Requirement, labels: dict[str, str], name: str) -> bool:
    """Kubernetes' node selector operators; Gt and Lt compare integers and fail on anything else."""
    value = name if requirement.field else labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            left, right = _integer(value), _integer(requirement.values[0] if requirement.values else None)
            if left is None or right is None:
                return False
            return left > right if requirement.operator == "Gt" else left < right
        case _:
            return False


def _integer(text: str | None) -> int | None:
    """A decimal number of 64 bits, else None."""
    digits = text[1:] if text and text[0] in "+-" else text
    if not text or not digits or len(digits) > 32 or not digits.isascii() or not digits.isdigit():
        return None
    number = int(text)
    return number if -(1 << 63) <= number < 1 << 63 else None


def amount(resource: str, value: int) -> str:
    """An amount as people write it: 1500m cpu as 1500m or 2, bytes with a binary suffix where it is exact enough."""
    if resource == "cpu":
        return f"{value // 1000}" if value % 1000 == 0 else f"{value}m"
    if resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-"):
        for suffix, size in (("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)):
            if value >= size:
                return f"{value / size:.1f}".removesuffix(".0") + suffix
    return str(value)
