"""A Queue as the scheduler needs it: how much of the cluster its jobs may have, and who may use it.

These records are written to the log, so the meaning of a field never changes. `queue_rules` reads them from JSON.
"""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from arranger.model.pod import Selector
from arranger.model.provisioning import Provisioning
from arranger.model.selectors import selects

QUEUE_KIND = "Queue"

#: The queue of jobs that name none, directly or by their namespace. It exists without being created.
DEFAULT_QUEUE = "default"

#: The annotation of a namespace that names the queue of its jobs.
QUEUE_ANNOTATION = "arranger.dev/queue"

#: The maximum length of a queue's name, in characters: names of queues are also values of labels.
MAX_QUEUE_NAME = 63

#: The maximum number of queues on the way from a queue to the root, the queue included.
MAX_DEPTH = 8

#: Amounts by resource, sorted: cpu in millicores, memory in bytes, everything else in units, as in `PodShape.requests`,
#: but an amount of zero is a statement here.
Amounts = tuple[tuple[str, int], ...]


class QueueState(StrEnum):
    """Whether new jobs of a queue get nodes."""

    OPEN = "Open"
    CLOSED = "Closed"


class PreemptionMode(StrEnum):
    """Whether room may be taken back in one of the ways."""

    ALLOWED = "Allowed"
    NEVER = "Never"


class Preemption(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How room may be taken back for the jobs of a queue: surplus workers, by priority in the queue, and from queues
    above their share."""

    surplus: PreemptionMode = PreemptionMode.ALLOWED
    priority: PreemptionMode = PreemptionMode.ALLOWED
    reclaim: PreemptionMode = PreemptionMode.ALLOWED


class ScheduledFailed(StrEnum):
    """When a job whose quorum not even an empty cluster holds becomes ScheduledFailed."""

    AFTER_GRACE = "AfterGrace"
    NEVER = "Never"


class NamespaceRule(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Whose jobs may name a queue: namespaces by name, or by their labels (then `names` is empty)."""

    names: tuple[str, ...] = ()
    selector: Selector = None

    def admits(self, namespace: str, labels: Mapping[str, str]) -> bool:
        return namespace in self.names or selects(self.selector, labels)


class QueueSpec(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A valid Queue's spec. `parent` is empty for a queue below the root. A resource without an amount in `guarantee`
    or `deserved` has none, and one without an amount in `capability` has no limit. `namespaces` is None if all may use
    the queue. `max_priority`, `max_running` and `max_waiting` are None for no limit. `queue_policy` is empty if the
    configured default applies. `min_runtime_s` is in seconds. It, `scheduled_failed` and `provisioning` are
    None if the configured ones apply."""

    parent: str = ""
    weight: int = 1
    guarantee: Amounts = ()
    deserved: Amounts = ()
    capability: Amounts = ()
    reclaimable: bool = True
    namespaces: NamespaceRule | None = None
    max_priority: int | None = None
    max_running: int | None = None
    max_waiting: int | None = None
    queue_policy: str = ""
    user_fairness: bool = False
    min_runtime_s: int | None = None
    preemption: Preemption = Preemption()
    state: QueueState = QueueState.OPEN
    scheduled_failed: ScheduledFailed | None = None
    provisioning: Provisioning | None = None

    @property
    def limited(self) -> bool:
        """Whether its own limits may keep its jobs from getting nodes."""
        return bool(self.capability) or self.max_running is not None


#: The spec of the queue `default` where nobody created it.
DEFAULT_SPEC = QueueSpec()
