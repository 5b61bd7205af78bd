"""The facts of decisions. `arranger.messages` turns them into text for people.

`words` in a fact come from another program: a kubelet, an API server, a container.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, ClassVar

import msgspec

from arranger.model.faults import Fault
from arranger.model.job import PlacedPods, Slot, TopologyScope
from arranger.model.node import Taint
from arranger.model.pod import ContainerEnd
from arranger.model.quota import QuotaLack
from arranger.model.reasons import Reason, ReasonCounts, rank
from arranger.model.stages import StageReason


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
    #: The job can't be a guest in reserved room, because the start there is known and comes before its grace period,
    #: which is longer than usual, would be over.
    leaves_late: bool = False


class BeyondLimit(_Lack, frozen=True, kw_only=True, tag="limit"):
    """A ResourceQuota or a queue has too little left. `nodes`: they have too little as well, so that the job would get
    nothing at once without the limit; None if they have enough, and in older logs."""

    quota: QuotaLack
    #: The jobs (UIDs) for which what is left is kept.
    kept_by: tuple[str, ...] = ()
    nodes: LackOfNodes | None = None
    infeasible: ClassVar[bool] = False

    def amounts(self) -> tuple[object, ...]:
        """What is left of the limit is in the reasons."""
        return (*msgspec.structs.astuple(self)[:-3], self.kept_by, self.nodes, self.quota.never)


class Objected(_Shortage, frozen=True, kw_only=True, tag="plugin"):
    """A plugin keeps the quorum from its nodes."""

    objection: Objection
    further: ClassVar[bool] = False
    searched: ClassVar[int] = 0
    untried: ClassVar[bool] = False
    infeasible: ClassVar[bool] = False


ShortageFacts = LackOfNodes | BeyondLimit | Objected


def nodes_lack(shortage: ShortageFacts) -> LackOfNodes | None:
    """What nodes lack: all that a shortage is, or beside a limit; None if they have enough, or that isn't known."""
    found = shortage.nodes if isinstance(shortage, BeyondLimit) else shortage
    return found if isinstance(found, LackOfNodes) else None


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


class TakenBy(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="job"):
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

    taken_by: TakenBy


class OthersOfSet(_Cause, frozen=True, tag="WithSet"):
    """They go with others of their worker set."""


class OthersOfGroup(_Cause, frozen=True, tag="WithGroup"):
    """They go with others of their worker groups."""


EndedPods = FailedPods | LostPods | PodsOverLimit
EndCause = EndedPods | FailedAgain | RefusedPods | DeletedPods | PreemptedPods | OthersOfSet | OthersOfGroup


# --- the facts of decisions on stages ---------------------------------------------------------------------------


class Begins(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="begins"):
    """A job starts."""

    leaderless: bool


class Ready(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="ready"):
    """Enough of its workers are ready, and its leader if it has one."""

    leaderless: bool


class RestartLimit(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A limit of restarts, and the group whose own `restart.limit` it is; empty for the job's `restartLimit`."""

    limit: int
    of: str


class LeaderRestarts(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="leader"):
    """The leader failed, or its containers were restarted, for the time `count`; 0 at the limit if it failed there.
    Failures count in the window of the last `window_s` seconds, or ever since (0)."""

    end: PodEnd
    count: int
    limit: RestartLimit
    window_s: int


class LeaderGone(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="leader-gone"):
    """The pod of the leader is gone. `disruption` as in `DeletedPods`; `why` is what is wrong with its `node`."""

    disruption: str = ""
    node: str = ""
    why: Closed | NodeTrouble | None = None


class AddressChanged(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="address"):
    """The leader's pod has another address."""

    was: str
    now: str


class NodeLost(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="node-lost"):
    """The `node` of the leader or (`leaderless`) of another pod is gone or not ready: for `down_s` seconds, if a pod
    was there. `awaited`: others were still to leave it, so the job hadn't begun."""

    node: str
    gone: bool
    down_s: int = 0
    leaderless: bool = False
    awaited: bool = False


class NodeClosed(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="node-closed"):
    """The same for a node that was closed to the next pod."""

    node: str
    how: Closed
    leaderless: bool = False
    awaited: bool = False


class RoomTaken(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="room-taken"):
    """The same for a node that has no room any more, because a `pod` (with its namespace) came there; empty for a
    smaller node."""

    node: str
    pod: str
    leaderless: bool = False


class PodsStayed(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="stayed"):
    """So many pods, the first of them `pod` (with its namespace) on `node`, didn't leave the job's nodes in time; both
    are empty if unknown."""

    node: str
    pod: str = ""
    count: int = 0


class PodsLeftBehind(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="left-behind"):
    """So many pods of an earlier attempt hang on lost nodes, the first of them `pod` on a `node` that is gone, or not
    ready for `down_s` seconds."""

    node: str
    pod: str
    count: int
    gone: bool
    down_s: int


class ReservationOver(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="reservation"):
    """Room was reserved for a pod group for as long as its PodGroup allows, in seconds."""

    limit_s: int


class TooFew(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """So many workers are lost that fewer are left than `needed`: in the job, or in the `worker_set`. With neither, the
    others whose end is the job's have finished."""

    count: int
    needed: int = 0
    worker_set: str = ""


class WorkersLost(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="workers-lost"):
    """A quorum lost workers that other nodes may take. `cause` is why the first of them ended. If they failed, `why` is
    what keeps the next pod of that one from its node; earlier logs don't say."""

    few: TooFew
    cause: LostPods | FailedPods | None
    why: NodeLeft | None = None


class WorkersGivenUp(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="given-up"):
    """A quorum can never be complete again; `ended` is the container that failed last."""

    few: TooFew
    limit: RestartLimit
    ended: ContainerEnd | None


class WorkerEnded(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="worker-ended"):
    """A worker ended whose end is the job's."""

    worker_set: str
    cause: FailedPods | LostPods | DeletedPods


class WorkerAtLimit(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="worker-limit"):
    """A worker was restarted more often than the limit allows, which ends the job."""

    worker_set: str
    cause: PodsOverLimit
    limit: RestartLimit


class PodsRefused(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="refused"):
    """The API server refuses pods, in these `words`."""

    words: str


class QuorumIncomplete(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="incomplete"):
    """A quorum wasn't complete for so many seconds, and why as far as that is known."""

    limit_s: int
    why: PodsRefused | ShortageFacts | None


class NeverReady(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="never-ready"):
    """A quorum wasn't ready so many seconds after its start, and no pod says why."""

    limit_s: int


class PodsNotReady(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="not-ready"):
    """So many pods weren't ready in time, or couldn't start, as the kubelet says in its `words`: the first, on `node`,
    is the leader's or, with `worker_set`, that of the worker `index`."""

    limit_s: int
    count: int
    worker_set: str
    index: int
    node: str
    words: str


class FailedJob(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="job-failed"):
    """The job of this name failed, which had to succeed first."""

    job: str


class NoImage(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="image"):
    """An image can't be pulled, as the kubelet says in its `words`: the leader's or, with `worker_set`, that of the
    worker `index`."""

    words: str
    worker_set: str = ""
    index: int = 0


class DeadlineOver(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="deadline"):
    """The job was active for longer than it may be; both are in seconds."""

    limit_s: int
    active_s: int


class Faulty(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="faults"):
    """What is wrong with the spec."""

    faults: tuple[Fault, ...]


class AdoptedMessage(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="adopted"):
    """A new epoch took the job over from a status with this message."""

    message: str


OfLeader = Begins | Ready | PodEnd | LeaderRestarts | LeaderGone | AddressChanged
OfNode = NodeLost | NodeClosed
OfRoom = RoomTaken | TakenBy | PodsStayed | PodsLeftBehind | ReservationOver
OfWorkers = WorkersLost | WorkersGivenUp | WorkerEnded | WorkerAtLimit
OfStart = QuorumIncomplete | NeverReady | PodsNotReady | NoImage
OfJob = AdoptedMessage | FailedJob | DeadlineOver | Faulty | PodsRefused
StageFacts = OfLeader | OfNode | OfRoom | OfWorkers | OfStart | OfJob | ShortageFacts

_R = StageReason
#: Reason → its facts; every other reason has none. An adopted job has the message of its status instead.
FACTS: Mapping[StageReason, Any] = MappingProxyType(
    {
        _R.SCHEDULED: Begins,
        _R.WORKERS_READY: Ready,
        _R.LEADER_FAILED: LeaderRestarts,
        _R.LEADER_EVICTED: PodEnd,
        _R.LEADER_LOST: LeaderGone,
        _R.LEADER_MOVED: AddressChanged,
        _R.NODE_LOST: NodeLost,
        _R.NODE_CLOSED: NodeClosed,
        _R.ROOM_TAKEN: RoomTaken,
        _R.PREEMPTED: TakenBy,
        _R.ROOM_NOT_FREED: PodsStayed,
        _R.PODS_LEFT_BEHIND: PodsLeftBehind,
        _R.RESERVATION_OVER: ReservationOver,
        _R.WORKERS_LOST: WorkersLost,
        _R.WORKER_ENDED: WorkerEnded,
        _R.QUORUM_INCOMPLETE: QuorumIncomplete,
        _R.QUORUM_REFUSED: PodsRefused,
        _R.START_TIMEOUT: NeverReady | PodsNotReady,
        _R.UNSCHEDULABLE: ShortageFacts | None,
        _R.DEPENDENCY_FAILED: FailedJob,
        _R.WORKERS_FAILED: WorkersGivenUp,
        _R.RESTART_LIMIT: LeaderRestarts | WorkerAtLimit,
        _R.IMAGE_ERROR: NoImage,
        _R.POD_REFUSED: PodsRefused,
        _R.DEADLINE_EXCEEDED: DeadlineOver,
        _R.INVALID_SPEC: Faulty,
    }
)
