"""What all kinds of queues have: the name, labels and annotations, the weight and amounts, and the Queue that comes of
them."""

from fractions import Fraction

from arranger.convert.fields import Fields
from arranger.convert.names import queue_name
from arranger.convert.parts import OF_THE_SERVER, kept
from arranger.convert.templates import Json
from arranger.convert.whole_input import Totals, is_resource
from arranger.model.pod_rules import quantity
from arranger.model.quantity import amount, exact
from arranger.model.queue import MAX_WEIGHT

#: Finalizers by which a controller of the source keeps a queue that is in use.
_IN_USE = "kueue.x-k8s.io/resource-in-use"


class QueueHead:
    """The metadata of a queue."""

    def __init__(self, root: Fields) -> None:
        self.metadata = metadata = root.record("metadata")
        self.labels, self.annotations = metadata.record("labels"), metadata.record("annotations")
        #: The name in the source, and that of the Queue.
        self.source_name = metadata.text("name")
        self.name = queue_name(self.source_name) if self.source_name else ""
        self.namespace = metadata.text("namespace")
        metadata.ignore(*OF_THE_SERVER, "generateName")
        if not self.source_name:
            metadata.fault("name", "Required value", of=[metadata.at("generateName")])
        if self.name != self.source_name:
            metadata.changed("name", f"the Queue's name is {self.name}: at most 63 lower-case letters, digits and '-'")
        metadata.lost("ownerReferences", "the Queue has no owner")
        finalizers = metadata.raw("finalizers")
        if finalizers != [_IN_USE]:
            metadata.lost("finalizers", "whoever removes this finalizer doesn't know the Queue")

    def queue(self, spec: Json) -> Json:
        """The Queue with this spec, of which fields that are None or empty are absent."""
        made: Json = {"name": self.name}
        for field, source in (("labels", self.labels), ("annotations", self.annotations)):
            if carried := kept(source):
                made[field] = carried
        return a_queue(made, {name: value for name, value in spec.items() if value not in (None, "", {})})


def a_queue(metadata: Json, spec: Json) -> Json:
    return {"apiVersion": "arranger.dev/v1", "kind": "Queue", "metadata": metadata, "spec": spec}


def weight(fields: Fields, name: str, value: Fraction | int | None) -> int | None:
    """The weight of a Queue, whose source is in this field; None for the default."""
    if value is None:
        return None
    made = min(max(round(value), 1), MAX_WEIGHT)
    if made != value:
        words = f"{made}: weights are whole numbers from 1 to {MAX_WEIGHT}, so give those of one parent in proportion"
        fields.changed(name, words)
    return made if made != 1 else None


def quantity_of(fields: Fields, name: str) -> Fraction | None:
    """A quantity that no resource has."""
    value = fields.raw(name, quantity)
    return None if value is None else exact(value)


def amount_of(fields: Fields, name: str, resource: str) -> int | None:
    """The amount of a resource, in its unit. What can't be divided is rounded up."""
    value = fields.raw(name, quantity)
    if value is None:
        return None
    made = amount(resource, value)
    if is_resource(resource) and resource not in _DIVISIBLE and made != exact(value):
        fields.changed(name, f"{made}: a Queue has whole numbers of {resource}")
    return made


_DIVISIBLE = ("cpu", "memory", "ephemeral-storage")
_NO_RESOURCE = "a Queue has amounts of cpu, memory, ephemeral-storage, hugepages-* and of what has a domain in its name"
_PODS = "a Queue has no number of pods: maxRunning says how many of its jobs may have nodes"


def without_unknown(fields: Fields, name: str, resource: str) -> bool:
    """Whether a Queue can have an amount of a resource; else the field is said to be left out."""
    if is_resource(resource):
        return True
    fields.lost(name, _PODS if resource == "pods" else _NO_RESOURCE)
    return False


def amounts_of(fields: Fields, name: str) -> Totals:
    """The amounts of an object by resource."""
    record = fields.record(name)
    found: dict[str, int] = {}
    for resource in record.names():
        if without_unknown(record, resource, resource):
            value = amount_of(record, resource, resource)
            if value is not None:
                found[resource] = value
    return found
