"""Queues of Volcano, which have an equivalent for nearly each field."""

from arranger.convert.fields import Fields
from arranger.convert.names import queue_name
from arranger.convert.queue_parts import QueueHead, amounts_of, weight
from arranger.convert.templates import Json
from arranger.convert.whole_input import HIERARCHY, HIERARCHY_WEIGHTS, VOLCANO_ROOT, Input, hierarchy, written
from arranger.model.checks import flag


def queues_of(root: Fields, around: Input) -> list[Json]:
    """The Queue of a Queue of Volcano; none of its root."""
    head, spec = QueueHead(root), root.record("spec")
    amounts = {"guarantee": amounts_of(spec.record("guarantee"), "resource")}
    amounts |= {name: amounts_of(spec, name) for name in ("deserved", "capability")}
    way = hierarchy(head.annotations.text(HIERARCHY), head.annotations.text(HIERARCHY_WEIGHTS))
    made: Json = {
        "parent": _parent(head, spec, [name for name, _ in way[:-1]], around),
        "weight": _weight(head, spec, way[-1][1] if way else None),
        **{name: written(of) for name, of in amounts.items()},
        "reclaimable": spec.raw("reclaimable", flag),
        "state": "Closed" if _closed(root) else None,
    }
    _no_equivalent(spec)
    if head.source_name == VOLCANO_ROOT:
        words = "no Queue: those whose parent is root have none here. What limits all is what the nodes offer"
        head.metadata.lost("name", words)
        return []
    return [head.queue(made)]


def _weight(head: QueueHead, spec: Fields, of_tree: int | None) -> int | None:
    """The weight; that of the tree counts, because Volcano gives each queue one of its own (1)."""
    own = spec.whole("weight") or 1
    if of_tree is None or HIERARCHY_WEIGHTS not in head.annotations:
        return weight(spec, "weight", own)
    if own not in (1, of_tree):
        spec.lost("weight", f"the last one of {head.annotations.at(HIERARCHY_WEIGHTS)} counts: {of_tree}")
    return weight(head.annotations, HIERARCHY_WEIGHTS, of_tree)


def _parent(head: QueueHead, spec: Fields, above: list[str], around: Input) -> str:
    """The name of the Queue above this one; empty below the root."""
    parent = spec.text("parent")
    if parent in ("", VOLCANO_ROOT):
        parent = above[-1] if above and not parent else ""
        if parent:
            head.annotations.changed(HIERARCHY, f"parent {queue_name(parent)}, with what is above it in the output too")
        return queue_name(parent) if parent else ""
    if parent == head.source_name:
        spec.fault("parent", "a queue can't be its own parent", of=[head.metadata.at("name")])
    if queue_name(parent) not in around.queues:
        words = f"the Queue {queue_name(parent)} has to exist: convert it too, or arranger queue create"
        spec.to_do("parent", f"{words} {queue_name(parent)}")
    return queue_name(parent)


def _closed(root: Fields) -> bool:
    """Whether somebody has closed it, which only its status says."""
    status = root.raw("status")
    return isinstance(status, dict) and status.get("state") in ("Closed", "Closing")


def _no_equivalent(spec: Fields) -> None:
    spec.lost("priority", "queues are ordered by what they use of their share (docs/queues.md, Shares and order)")
    if spec.one_of("dequeueStrategy", "traverse", "fifo") == "fifo":
        spec.lost("dequeueStrategy", "a job that doesn't fit never blocks those behind it")
    spec.lost("affinity", "a pod's template selects its nodes (nodeSelector, affinity)")
    spec.lost("extendClusters", "one Arranger works on one cluster")
    spec.lost("type", "Queues have no types")
