"""The facts of decisions. `arranger.messages` turns them into text for people.

`words` in a fact come from another program: a kubelet, an API server, a container.
"""

from enum import StrEnum
from typing import ClassVar

import msgspec

from arranger.model.faults import Fault
from arranger.model.job import PlacedPods, Slot, TopologyScope
from arranger.model.node import Taint
from arranger.model.pod import ContainerEnd
from arranger.model.quota import QuotaLack
from arranger.model.reasons import Reason, ReasonCounts, rank


class LevelLack(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A level of a topology: the number of its domains (for pods that must join others, only theirs), and how many pods
    of the unit the one with the most room takes."""

    key: str
    domains: int
    most: int


class UnitLack(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """No domain takes these `pods` of a topology's unit: of the whole job, of a worker set, or of its group `number`.
    `beside` is how many pods of the unit have nodes already, which the others must join."""

    within: TopologyScope
    number: int
    pods: int
    beside: int
    levels: tuple[LevelLack, ...]


class Objection(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Another package's `plugin` keeps a quorum from its nodes, for a reason in a few `words`. A group check refuses it
    before nodes are looked at. A permit holds it back (`since_ms`) although it fits, until `until_ms` at most
    (milliseconds since 1970; both are 0 for a group check). Until then the room of `pods` is kept for it, if the permit
    says so. `over`: that time has passed, and the quorum still waits for what the permit says, without any room kept.
    """

    plugin: str
    words: str
    since_ms: int = 0
    until_ms: int = 0
    pods: tuple[PlacedPods, ...] = ()
    over: bool = False

    @property
    def hold(self) -> tuple[object, ...]:
        """What later cycles need to know of a hold, and what is new without delay if it changes."""
        return (self.plugin, self.since_ms, self.until_ms, self.pods, self.over) if self.since_ms else ()


class _Shortage(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Why a job, or the rest of it, gets no nodes: `found` of `asked` pods fit, of its quorum or (`further`) of the
    pods beyond it. `reasons` count every node once; of a limit or a plugin they say the same as it does."""

    found: int
    asked: int
    reasons: ReasonCounts = ()

    @property
    def of_nodes(self) -> bool:
        """Whether it is nodes that lack, not a limit or the consent of a plugin."""
        return isinstance(self, LackOfNodes)

    def kinds(self) -> tuple[Reason, ...]:
        """The reasons without their numbers, in a fixed order: the order by frequency depends on numbers, too."""
        return tuple(sorted((reason.numberless() for reason, _ in self.reasons), key=rank))

    def amounts(self) -> tuple[object, ...]:
        """Everything that is reported: equal amounts are no news."""
        return msgspec.structs.astuple(self)


class _Lack(_Shortage, frozen=True):
    """Something that others have, or a limit, is in the way."""

    further: bool = False
    #: The steps after which the complete search gave up, so the quorum may fit; 0 if it ended by itself, or was none.
    searched: int = 0
    #: Others would give room, once a dry run shows that the API server takes the pods.
    untried: bool = False


class LackOfNodes(_Lack, frozen=True, tag="nodes"):
    """The next pod fits no node; it is of the worker set `group`."""

    group: str = ""
    #: Even an empty cluster of the present nodes couldn't hold the quorum.
    infeasible: bool = False
    #: The nodes together have room, and no domain has.
    topology: UnitLack | None = None
    #: The job can't be a guest in reserved room, because it isn't preemptible.
    no_guest: bool = False
    #: The jobs (UIDs) whose reserved room is in its way, if several have reservations.
    kept_by: tuple[str, ...] = ()


class BeyondLimit(_Lack, frozen=True, kw_only=True, tag="limit"):
    """A ResourceQuota or a queue has too little left, so no node was checked."""

    quota: QuotaLack
    infeasible: ClassVar[bool] = False

    def amounts(self) -> tuple[object, ...]:
        """What is left of the limit is in the reasons."""
        return (*msgspec.structs.astuple(self)[:-1], self.quota.never)


class Objected(_Shortage, frozen=True, kw_only=True, tag="plugin"):
    """A plugin keeps the quorum from its nodes."""

    objection: Objection
    further: ClassVar[bool] = False
    searched: ClassVar[int] = 0
    untried: ClassVar[bool] = False
    infeasible: ClassVar[bool] = False


ShortageFacts = LackOfNodes | BeyondLimit | Objected


class PreemptionKind(StrEnum):
    """How room is taken from a job: workers above its quorum (surplus), or all of its pods, for a job of higher
    priority in the same queue or (reclaim) for one of a queue below its share. A guest gives room back that was
    reserved for the job that gets it: all of its pods, or surplus."""

    SURPLUS = "Surplus"
    PRIORITY = "Priority"
    RECLAIM = "Reclaim"
    GUEST = "Guest"
    GUEST_SURPLUS = "GuestSurplus"

    @property
    def whole(self) -> bool:
        """Whether the job loses all of its pods."""
        return self not in (PreemptionKind.SURPLUS, PreemptionKind.GUEST_SURPLUS)

    @property
    def of_guest(self) -> bool:
        """Whether the room was reserved for the job that gets it."""
        return self in (PreemptionKind.GUEST, PreemptionKind.GUEST_SURPLUS)


class Victim(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A job that gives room to another one: `pods` are what it loses. `based_on` and `attempt` as in any decision on
    it. `lost_ms` is the harm: the GPU-milliseconds of work since the last checkpoint of these pods, or else since their
    start."""

    job_uid: str
    based_on: int
    attempt: int
    kind: PreemptionKind
    pods: tuple[PlacedPods, ...]
    lost_ms: int


class Spared(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A job, or its surplus, that might have given room as well. `needless`: it was chosen first, and then the others
    turned out to be enough; if not, those before it in the order were enough. `lost_ms` as in `Victim`."""

    job_uid: str
    kind: PreemptionKind
    lost_ms: int
    needless: bool


class TakenBy(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The job that pods gave room to, its queue and the priority that counts there. `reclaimed`: the pods were of
    another queue, which was above its share. `guest`: the room was reserved for the job when the pods got it."""

    namespace: str
    name: str
    queue: str
    priority: int
    reclaimed: bool
    guest: bool = False


class Cordoned(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="cordoned"):
    """A node takes no new pods, because it is cordoned."""


class Tainted(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="taint"):
    """A node has a taint that its new pod doesn't tolerate."""

    taint: Taint


class OutOfReach(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="claim"):
    """A new pod can't start on a node with this claim of its."""

    claim: str


#: How a node was closed to new pods.
Closed = Cordoned | Tainted | OutOfReach


class NodeTrouble(StrEnum):
    """Why a worker can't stay on a node that is open to its pods: the node is gone or not ready, or has no room."""

    GONE = "Gone"
    NOT_READY = "NotReady"
    NO_ROOM = "NoRoom"


class PodEnd(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="pod"):
    """How a pod ended: the `words` of its kubelet or of the API server, and the container that failed."""

    words: str = ""
    ended: ContainerEnd | None = None


class NodeLeft(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="node"):
    """The node that a worker can't stay on, and why as far as that is known: how it was closed, or its trouble."""

    node: str
    why: Closed | NodeTrouble | None = None


class _Cause(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Why `count` workers are replaced. `first` is the first of them, which everything else is about."""

    first: Slot
    count: int

    @property
    def kind(self) -> str:
        """The kind of cause in one word, as metrics have it."""
        return str(self.__struct_config__.tag)


class FailedPods(_Cause, frozen=True, tag="Failed"):
    """Their pods failed by their own fault."""

    why: PodEnd | NodeLeft


class LostPods(_Cause, frozen=True, tag="Lost"):
    """They were evicted, refused by a kubelet or lost, without a fault of theirs."""

    why: PodEnd | NodeLeft


class PodsOverLimit(_Cause, frozen=True, tag="OverLimit"):
    """They were restarted more often than their limit allows, and are given up."""

    why: PodEnd | NodeLeft


class FailedAgain(_Cause, frozen=True, tag="FailedAgain"):
    """They failed repeatedly on their nodes and go elsewhere: the first of them `failures` times on `node`, last so."""

    end: PodEnd
    node: str
    failures: int


class RefusedPods(_Cause, frozen=True, tag="Refused"):
    """The API server refuses their pods, in these `words`."""

    words: str


class DeletedPods(_Cause, frozen=True, tag="Deleted"):
    """Somebody deleted their pods. `disruption` is the reason of Kubernetes' condition for that, empty without one;
    `node` is where that pod was, as far as it is of interest."""

    disruption: str = ""
    node: str = ""


class PreemptedPods(_Cause, frozen=True, tag="Preempted"):
    """They gave their room to another job."""

    taken_by: TakenBy | None


class OthersOfSet(_Cause, frozen=True, tag="WithSet"):
    """They go with others of their worker set."""


class OthersOfGroup(_Cause, frozen=True, tag="WithGroup"):
    """They go with others of their worker groups."""


EndedPods = FailedPods | LostPods | PodsOverLimit
EndCause = EndedPods | FailedAgain | RefusedPods | DeletedPods | PreemptedPods | OthersOfSet | OthersOfGroup


class StageFacts(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The facts behind a decision on a job's stage. The reason (`StageReason`) determines which fields are set.

    `node` is the leader's; `gone` means that it no longer exists, `closed` how it was closed. `seconds`
    is for how long a node is down, a quorum incomplete or not ready (of which `count` pods are the cause, and the other
    fields describe the first), or how long the job may be active; of a limit of restarts, its window. `count` counts
    restarts of the leader or workers, `limit` is their limit of restarts, `needed` the number of workers that a quorum
    needs. With `worker_set`, `count` and `needed` are that set's, or the decision is about its
    worker `index`. `address` is the leader's, `was` the one before it. `words` come from another program, or are the
    namespace and name of the pod that took the room of the node, or didn't leave it in time (with `count` pods in all);
    of a leader whose pod is gone, they are the reason of its disruption. `ended` is the container that failed, of the
    leader or of that worker. `faults` say what is wrong with the spec. `job` is the one that had to succeed first.
    `leaderless`: the job has none. `cause` is why that worker ended, or the first of the workers that were lost.
    `limit_of` is the group whose own `restart.limit` is the `limit`; empty for the job's `restartLimit`. `taken_by` is
    the job that this one gave its room to. `active_s` is
    how long the job was active, in seconds. `awaited`: others were still to leave that node of the job, so it hadn't
    begun. `adopted_message` is that of the status from which a new epoch took the job over; then no other field is set.
    """

    node: str = ""
    gone: bool = False
    closed: Closed | None = None
    seconds: int = 0
    count: int = 0
    needed: int = 0
    limit: int = 0
    was: str = ""
    address: str = ""
    words: str = ""
    adopted_message: str = ""
    shortage: ShortageFacts | None = None
    faults: tuple[Fault, ...] = ()
    ended: ContainerEnd | None = None
    worker_set: str = ""
    index: int = 0
    job: str = ""
    leaderless: bool = False
    cause: EndCause | None = None
    limit_of: str = ""
    taken_by: TakenBy | None = None
    active_s: int = 0
    awaited: bool = False


#: For a decision without facts beyond its reason.
NO_FACTS = StageFacts()
