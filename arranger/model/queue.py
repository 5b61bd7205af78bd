"""A Queue as the scheduler needs it: how much of the cluster its jobs may have, and who may use it.

These records are written to the log, so the meaning of a field never changes. `queue_rules` reads them from JSON.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

import msgspec

from arranger.model.fields import MAX_INT32, DnsLabel, Flag, ManifestField, OneOf, Whole
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

MAX_WEIGHT = 65_535
#: The largest limit of a number of jobs.
_MAX_JOBS = 1_000_000

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


class NonPreemptible(StrEnum):
    """How much of the cluster a queue's jobs may use together that can't be preempted."""

    MAY_BORROW = "MayBorrow"
    WITHIN_DESERVED = "WithinDeserved"


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
    """A valid Queue's spec. Times are in seconds."""

    #: "" for a queue below the root.
    parent: Annotated[
        str,
        ManifestField(
            "parent",
            DnsLabel(MAX_QUEUE_NAME),
            "The queue above this one, whose share is divided among its children; none if unset. The way from a queue "
            "to the root has at most 8 queues.",
            sort="queue",
        ),
    ] = ""
    weight: Annotated[
        int,
        ManifestField(
            "weight",
            Whole(1, MAX_WEIGHT),
            "What nobody is entitled to is divided by weight among the queues with the same parent that want more; 1 "
            "to 65535, 1 if unset.",
            stored=True,
        ),
    ] = 1
    #: A resource without an amount here has none.
    guarantee: Amounts = ()
    #: As `guarantee`.
    deserved: Amounts = ()
    #: A resource without an amount here has no limit.
    capability: Amounts = ()
    reclaimable: Annotated[
        bool,
        ManifestField(
            "reclaimable",
            Flag(),
            "Whether other queues may reclaim what it uses above its share; true if unset.",
        ),
    ] = True
    #: None if all may use the queue.
    namespaces: NamespaceRule | None = None
    max_priority: Annotated[
        int | None,
        ManifestField(
            "maxPriority",
            Whole(-MAX_INT32 - 1),
            "A job of it, or of a queue below it, with a higher priority counts as one with this priority; without a "
            "limit if unset.",
        ),
    ] = None
    max_running: Annotated[
        int | None,
        ManifestField(
            "maxRunning",
            Whole(0, _MAX_JOBS),
            "How many of its jobs and those of the queues below it may have nodes at once, 0 to 1000000; without a "
            "limit if unset.",
        ),
    ] = None
    max_waiting: Annotated[
        int | None,
        ManifestField(
            "maxWaiting",
            Whole(0, _MAX_JOBS),
            "How many of its waiting jobs and those of the queues below it a cycle considers, 0 to 1000000. The "
            "messages of the others say so. Without a limit if unset.",
        ),
    ] = None
    #: "" if the configured default applies.
    queue_policy: str = ""
    user_fairness: Annotated[
        bool,
        ManifestField(
            "userFairness",
            Flag(),
            "Submitters (a job's label arranger.dev/user, else its namespace) take turns, before that order; false if "
            "unset.",
        ),
    ] = False
    min_runtime_s: Annotated[
        int | None,
        ManifestField(
            "minRuntimeSeconds",
            Whole(0),
            "The least time in seconds that its jobs have their nodes before they may be preempted or reclaimed, "
            "including their surplus; if unset, the setting min_runtime_s says it for the quorums of those that took "
            "their nodes from others.",
        ),
    ] = None
    preemption: Preemption = Preemption()
    state: Annotated[
        QueueState,
        ManifestField(
            "state",
            OneOf(QueueState),
            "Closed: its waiting jobs, and those of the queues below it, get no nodes; jobs that have nodes run on. "
            "Open if unset.",
        ),
    ] = QueueState.OPEN
    scheduled_failed: Annotated[
        ScheduledFailed | None,
        ManifestField(
            "scheduledFailed",
            OneOf(ScheduledFailed),
            "When its waiting jobs fail whose quorum doesn't fit even an empty cluster of the present nodes: "
            "AfterGrace, or Never. If unset, as Arranger is configured, by default AfterGrace.",
        ),
    ] = None
    provisioning: Annotated[
        Provisioning | None,
        ManifestField(
            "provisioning",
            OneOf(Provisioning),
            "How autoscalers learn of its jobs that wait for nodes: None, or Request, a ProvisioningRequest for the "
            "quorum, or Pending, unbound placeholders for its pods. If unset, as Arranger is configured, by default "
            "None.",
        ),
    ] = None
    non_preemptible: Annotated[
        NonPreemptible,
        ManifestField(
            "nonPreemptible",
            OneOf(NonPreemptible),
            "How much its jobs and those of the queues below it may use together that can't be preempted "
            "(preemptible: false, and pods without a TYJob): WithinDeserved, at most the amounts in deserved, or "
            "MayBorrow, more of what is free. MayBorrow if unset.",
        ),
    ] = NonPreemptible.MAY_BORROW

    @property
    def most_non_preemptible(self) -> Amounts:
        """What its jobs use at most that can't be preempted; a resource without an amount here has no such limit."""
        return self.deserved if self.non_preemptible == NonPreemptible.WITHIN_DESERVED else ()

    @property
    def limited(self) -> bool:
        """Whether its own limits may keep its jobs from getting nodes."""
        return bool(self.capability or self.most_non_preemptible) or self.max_running is not None


#: The spec of the queue `default` where nobody created it.
DEFAULT_SPEC = QueueSpec()
