"""The observations of Queues, and of the namespaces whose jobs use them."""

import msgspec

from arranger.model.faults import Fault
from arranger.model.pod import Labels
from arranger.model.queue import QueueSpec


class QueueSeen(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="QueueSeen.1"):
    """A Queue. Exactly one of `spec` and `faults` is given; `status_digest` as in `JobSeen`."""

    term: int
    name: str
    uid: str
    resource_version: str
    generation: int
    spec: QueueSpec | None
    faults: tuple[Fault, ...]
    status_digest: str


class NamespaceSeen(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="NamespaceSeen.1"):
    """A namespace: its labels, and its annotation that names the queue of its jobs ("" without one)."""

    term: int
    name: str
    uid: str
    resource_version: str
    labels: Labels
    queue: str
