"""Queues of Volcano, which have an equivalent for nearly each field."""

from fractions import Fraction

from arranger.convert.fields import Fields
from arranger.convert.names import queue_name
from arranger.convert.queue_parts import QueueHead, amounts_of, weight
from arranger.convert.templates import Json
from arranger.convert.whole_input import HIERARCHY, HIERARCHY_WEIGHTS, VOLCANO_ROOT, Input, hierarchy, written
from arranger.model.checks import flag
from arranger.model.queue import MAX_DEPTH


def queues_of(root: Fields, around: Input) -> list[Json]:
    """The Queue of a Queue of Volcano; none of its root."""
    head, spec = QueueHead(root), root.record("spec")
    amounts = {"guarantee": amounts_of(spec.record("guarantee"), "resource")}
    amounts |= {name: amounts_of(spec, name) for name in ("deserved", "capability")}
    way = _way(head)
    made: Json = {
        "parent": _parent(head, spec, [name for name, _ in way[:-1]], around),
        "weight": _weight(head, spec, way[-1][1] if way else None),
        **{name: written(of) for name, of in amounts.items()},
        "reclaimable": spec.raw("reclaimable", flag),
        "state": "Closed" if _closed(root) else None,
    }
    _no_equivalent(spec)
    if head.source_name == VOLCANO_ROOT:
        head.metadata.lost("name", "no Queue: those whose parent is root have none, and divide what the nodes offer")
        for name in amounts:
            spec.lost(name, "a Queue above all others can have it, if each names that as its parent")
        return []
    return [head.queue(made)]


def _way(head: QueueHead) -> list[tuple[str, Fraction]]:
    """The way from the root to the queue that its annotations give; empty without."""
    path, weights = head.annotations.text(HIERARCHY), head.annotations.text(HIERARCHY_WEIGHTS)
    way = hierarchy(path, weights)
    if path and path != VOLCANO_ROOT and not way:
        words = (
            f"must be at most {MAX_DEPTH} names after root/, each once, and {HIERARCHY_WEIGHTS} a number for each part"
        )
        head.annotations.fault(HIERARCHY, words, of=[head.annotations.at(HIERARCHY_WEIGHTS)])
    return way


def _weight(head: QueueHead, spec: Fields, of_tree: Fraction | None) -> int | None:
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
        if not above:
            return ""
        head.annotations.changed(HIERARCHY, f"parent {queue_name(above[-1])}, with what is above it in the output too")
        return queue_name(above[-1])
    if above and above[-1] != parent:
        head.annotations.lost(HIERARCHY, f"spec.parent counts: {parent}")
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
