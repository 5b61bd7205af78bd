"""The observations of Queues, and of the namespaces whose jobs use them."""

from typing import Annotated

import msgspec

from arranger.model.faults import Fault
from arranger.model.fields import NameOf
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
    status_digest: Annotated[str, NameOf("")]


class NamespaceSeen(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="NamespaceSeen.1"):
    """A namespace: its labels, and its annotation that names the queue of its jobs ("" without one)."""

    term: int
    name: str
    #: The UID of kube-system identifies the cluster.
    uid: Annotated[str, NameOf("cluster")]
    resource_version: str
    labels: Annotated[Labels, NameOf("labels")]
    queue: Annotated[str, NameOf("queue")]
