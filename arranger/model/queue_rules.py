"""Every check of a Queue, on the object as JSON, and its conversion to a `QueueSpec`: the same rules as in the CRD.

As with TYJobs (`validation`), an object can be older than `crds/queue.yaml`, or come from a server without CEL. What
concerns other queues is no fault of the object: `projections.queues.tree` finds that.
"""

from collections.abc import Mapping
from typing import Any

from arranger.model.checks import Check, Faults, anything, both, items, keyed, one_of, record, text
from arranger.model.faults import Fault, FaultKind
from arranger.model.fields import DNS_LABEL, Among, ManifestField, checks, checks_of, read
from arranger.model.pod_rules import amounts_of_nodes, quantity
from arranger.model.quantity import amount, exact
from arranger.model.queue import (
    MAX_QUEUE_NAME,
    Amounts,
    NamespaceRule,
    NonPreemptible,
    Preemption,
    PreemptionMode,
    QueueSpec,
)
from arranger.model.schema import definition
from arranger.model.selectors import selector_of
from arranger.model.template import present
from arranger.model.validation import BUILT_IN_POLICIES

_MAX_NAMESPACES = 256

#: Each of the first is at most each of those after it.
_ASCENDING = ("guarantee", "deserved", "capability")


def validate_queue(queue: Any) -> list[Fault]:
    """The faults in a Queue as JSON, in the order of its fields; empty if it is valid. Never raises."""
    return list(QUEUE(queue, ""))


def _ascending(spec: dict[str, Any], path: str) -> Faults:
    """The rule between amounts of one resource."""
    given = [(field, present(spec.get(field))) for field in _ASCENDING]
    for at, (lower, amounts) in enumerate(given):
        for upper, limits in given[at + 1 :]:
            above = [name for name in amounts if name in limits and exact(amounts[name]) > exact(limits[name])]
            for name in above[:1]:
                limit = (str(limits[name]), upper)
                yield Fault(f"{path}.{lower}", FaultKind.ABOVE_THE_AMOUNT, str(amounts[name]), name, limit)


def _deserves_something(spec: dict[str, Any], path: str) -> Faults:
    if spec.get("nonPreemptible") == NonPreemptible.WITHIN_DESERVED and not present(spec.get("deserved")):
        value = NonPreemptible.WITHIN_DESERVED.value
        yield Fault(f"{path}.nonPreemptible", FaultKind.NOTHING_DESERVED, value)


def _not_its_own_parent(queue: dict[str, Any], path: str) -> Faults:
    if queue["spec"].get("parent") == queue["metadata"]["name"]:
        yield Fault("spec.parent", FaultKind.OWN_PARENT)


_NAME = text(most=MAX_QUEUE_NAME, form=DNS_LABEL, fault=FaultKind.NO_DNS_LABEL)
_AMOUNTS = both(keyed(quantity, most=32), amounts_of_nodes)
_MODE = one_of(*(mode.value for mode in PreemptionMode))
_NAMESPACES = record(
    {
        "names": items(_NAME, least=1, most=_MAX_NAMESPACES, unique=True),
        "selector": definition("LabelSelector"),
    },
    closed=True,
    least=1,
    most=1,
)
#: A Queue may name built-in policies alone.
POLICY = ManifestField(
    "jobQueuePolicy",
    Among(BUILT_IN_POLICIES.queue),
    "The order among its jobs; if unset, what each job's own jobQueuePolicy says, else the policy that Arranger is "
    "configured with, by default Priority.",
)
_SPEC = both(
    record(
        {
            **dict.fromkeys(_ASCENDING, _AMOUNTS),
            "namespaces": _NAMESPACES,
            **checks_of([POLICY]),
            "preemption": record({"surplus": _MODE, "priority": _MODE, "reclaim": _MODE}, closed=True),
            **checks(QueueSpec),
        },
        closed=True,
    ),
    both(_ascending, _deserves_something),
)
#: The table: a Queue, field by field, the same as in `crds/queue.yaml`.
QUEUE: Check = both(
    record(
        {
            "apiVersion": anything,
            "kind": anything,
            "metadata": record({"name": _NAME}, required=("name",)),
            "spec": _SPEC,
            "status": anything,
        },
        required=("metadata", "spec"),
        closed=True,
    ),
    _not_its_own_parent,
)


def queue_spec(queue: Mapping[str, Any]) -> QueueSpec:
    """The spec of a Queue that passes `validate_queue`, with its defaults."""
    spec: Mapping[str, Any] = queue["spec"]
    modes = present(spec.get("preemption"))
    return QueueSpec(
        **read(QueueSpec, spec),
        guarantee=_amounts(spec, "guarantee"),
        deserved=_amounts(spec, "deserved"),
        capability=_amounts(spec, "capability"),
        namespaces=_namespaces(spec.get("namespaces")),
        queue_policy=spec.get("jobQueuePolicy") or "",
        preemption=Preemption(**{name: PreemptionMode(mode) for name, mode in modes.items()}),
    )


def _amounts(spec: Mapping[str, Any], field: str) -> Amounts:
    return tuple(sorted((name, amount(name, value)) for name, value in present(spec.get(field)).items()))


def _namespaces(found: Mapping[str, Any] | None) -> NamespaceRule | None:
    if found is None:
        return None
    names, selector = found.get("names"), found.get("selector")
    return NamespaceRule(tuple(sorted(names)) if names else (), selector_of(selector) if selector is not None else None)
