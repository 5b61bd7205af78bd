"""The fields of a Queue in words, under their names in the manifest."""

from arranger.model.fields import declared
from arranger.model.pod import Selector
from arranger.model.queue import DEFAULT_SPEC, NamespaceRule, Preemption, QueueSpec

#: Field → its name in the manifest, of those that are shown as they are, and not with every queue.
_PLAIN = {
    each.attribute: each.name for each in declared(QueueSpec) if each.name not in ("parent", "weight", "state")
} | {"queue_policy": "jobQueuePolicy"}


def other_fields(spec: QueueSpec) -> dict[str, str]:
    """The fields beside parent, weight, state and amounts that differ from their defaults, by name."""
    found = {name: _text(getattr(spec, field)) for field, name in _PLAIN.items() if _differs(spec, field)}
    if spec.namespaces is not None:
        found["namespaces"] = _namespaces(spec.namespaces)
    if _differs(spec, "preemption"):
        found["preemption"] = _preemption(spec.preemption)
    return found


def selector_text(selector: Selector) -> str:
    """A label selector in words: "team In rl,vision and gpu Exists"."""
    parts = [f"{one.key} {one.operator} {','.join(one.values)}".rstrip() for one in selector or ()]
    return " and ".join(parts) or "all"


def _differs(spec: QueueSpec, field: str) -> bool:
    return bool(getattr(spec, field) != getattr(DEFAULT_SPEC, field))


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _namespaces(rule: NamespaceRule) -> str:
    return selector_text(rule.selector) if rule.selector is not None else ", ".join(rule.names) or "none"


def _preemption(of: Preemption) -> str:
    return f"surplus {of.surplus}, priority {of.priority}, reclaim {of.reclaim}"
