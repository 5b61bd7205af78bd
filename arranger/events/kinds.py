"""Every kind of event, typed and versioned, in three families: observations, decisions and outcomes.

An event's tag is `Kind.version`. A new field is only ever added at the end, with a default that has the meaning of its
absence. Any other change is a new version of the kind, and the old one stays readable through `events.earlier`.
Events have no time of their own unless a decision needs it: their `Batch` has the time.

A decision names the job's `version` that it was `based_on`. The fold accepts it only while that version is current,
so the first decision in the log wins, and every process sees the same winner.
"""

from enum import StrEnum
from typing import Annotated, Any, TypeGuard, TypeVar, get_args

import msgspec

from arranger.events import devices, pod_groups, provisioning, queues, volumes
from arranger.events.facts import Begins, EndCause, OfNode, QuorumIncomplete, ShortageFacts, Spared, StageFacts, Victim
from arranger.events.sharing import asks_little, shared, shared_requests, shared_traits
from arranger.model.config import CycleConfig
from arranger.model.devices import DecidedDevices
from arranger.model.faults import Fault
from arranger.model.fields import NameOf
from arranger.model.job import JobSpec, JobStatusSeen, PlacedPods, Replacement, ScheduleState, Slot, Stage
from arranger.model.node import NodeFacts
from arranger.model.pod import (
    NO_TIMES,
    NO_TRAITS,
    ContainerEnd,
    GroupKind,
    LimitDefaults,
    PodOwner,
    PodTimes,
    PodToPlace,
    PodTraits,
    RuntimeNeeds,
)
from arranger.model.quota import LimitName, QuotaScope
from arranger.model.stages import StageReason

_set = msgspec.structs.force_setattr
_Seen = TypeVar("_Seen", bound=msgspec.Struct)

# Readers of this module have all of its names from here.
PodGroupSeen = pod_groups.PodGroupSeen
QueueSeen = queues.QueueSeen
NamespaceSeen = queues.NamespaceSeen
ProvisioningSeen = provisioning.ProvisioningSeen
NodesRequested = provisioning.NodesRequested


# --- what is watched --------------------------------------------------------------------------------------


class Watched(StrEnum):
    """The kinds of Kubernetes objects that are watched."""

    NODE = "node"
    POD = "pod"
    JOB = "tyjob"
    QUOTA = "resourcequota"
    PRIORITY_CLASS = "priorityclass"
    QUEUE = "queue"
    NAMESPACE = "namespace"
    COSCHEDULING_GROUP = "podgroup.scheduling.x-k8s.io"
    VOLCANO_GROUP = "podgroup.scheduling.volcano.sh"
    NATIVE_GROUP = "podgroup.scheduling.k8s.io"
    CLAIM = "persistentvolumeclaim"
    VOLUME = "persistentvolume"
    STORAGE_CLASS = "storageclass"
    CSI_NODE = "csinode"
    PROVISIONING = "provisioningrequest"
    RESOURCE_SLICE = "resourceslice"
    DEVICE_CLASS = "deviceclass"
    RESOURCE_CLAIM = "resourceclaim"
    RESOURCE_CLAIM_TEMPLATE = "resourceclaimtemplate"
    RUNTIME_CLASS = "runtimeclass"
    LIMIT_RANGE = "limitrange"


#: The watch of the PodGroups of each kind.
GROUP_WATCHES = {
    GroupKind.COSCHEDULING: Watched.COSCHEDULING_GROUP,
    GroupKind.VOLCANO: Watched.VOLCANO_GROUP,
    GroupKind.NATIVE: Watched.NATIVE_GROUP,
}
GROUP_KINDS = {watch: kind for kind, watch in GROUP_WATCHES.items()}

#: The kinds that are watched only with the setting `volumes`.
OF_VOLUMES = (Watched.CLAIM, Watched.VOLUME, Watched.STORAGE_CLASS, Watched.CSI_NODE)
#: The kinds without which no devices are allocated, watched only with the setting `devices`. So are
#: ResourceClaimTemplates, which only TYJobs need.
OF_DEVICES = (Watched.RESOURCE_SLICE, Watched.DEVICE_CLASS, Watched.RESOURCE_CLAIM)
#: Kind → the setting with which alone it is watched.
SETTING_OF = {
    **dict.fromkeys(OF_VOLUMES, "volumes"),
    **dict.fromkeys((*OF_DEVICES, Watched.RESOURCE_CLAIM_TEMPLATE), "devices"),
}

#: The kinds without which Arranger can't decide: every API server serves nodes and pods, and whoever installs Arranger
#: defines TYJobs.
NEEDED = (Watched.NODE, Watched.POD, Watched.JOB)
#: All others: an API server may refuse to read them, or not have them, and Arranger works without them.
OPTIONAL = tuple(kind for kind in Watched if kind not in NEEDED)


# --- observations: the state that Kubernetes reported ------------------------------------------------------


class EpochBegun(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="EpochBegun.1"):
    """The first event of an epoch. `previous` is 0 if no earlier one is known.

    `cluster` is that of the earlier epoch, as in `WatchClaimed`; empty if unknown.
    """

    epoch: int
    previous: int
    reason: str
    cluster: str = ""


class WatchClaimed(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="WatchClaimed.1"):
    """A watcher takes over one kind. This event's offset is its term; observations under an older term are void.

    `cluster` is the watched Kubernetes cluster, by the UID of its namespace kube-system; empty if not reported. The
    first one reported in an epoch is the log's, and the claim of another cluster's watcher is void.

    `volumes` and `devices` are settings that only the claim of pods tells; `claim` makes each kind's.
    """

    kind: Watched
    watcher: str
    cluster: str = ""
    #: From here on, the claims of pods are recorded, and what volumes require of nodes counts.
    volumes: bool = False
    #: The same for resource claims and devices.
    devices: bool = False


def claim(
    kind: Watched, watcher: str, cluster: str = "", *, with_volumes: bool = False, with_devices: bool = False
) -> WatchClaimed:
    """The claim of one kind by a watcher with the settings `volumes` and `devices`, or without."""
    of_pods = kind == Watched.POD
    return WatchClaimed(kind, watcher, cluster, with_volumes and of_pods, with_devices and of_pods)


class ListingBegun(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="ListingBegun.1"):
    """A full listing of one kind begins: until it has ended, the absence of an object proves nothing."""

    kind: Watched
    term: int


class ListingEnded(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="ListingEnded.1"):
    """A full listing has ended: the projection now has the same objects of this kind as the API server."""

    kind: Watched
    term: int
    resource_version: str


class WatchHeard(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="WatchHeard.1"):
    """The log has every change of this kind that the API server had until `until_ms` (milliseconds since 1970)."""

    kind: Watched
    term: int
    until_ms: int


class NodeSeen(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="NodeSeen.1"):
    """A node as the API server has it."""

    term: int
    name: str
    uid: str
    resource_version: str
    facts: NodeFacts


class PodSeen(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="PodSeen.1"):
    """Any pod in the cluster, ours or not. `requests` as in `PodShape`; `owner` is None for a foreign pod.

    `restarts` counts container restarts. `waiting` is the kubelet's reason why a container can't start
    (`ImagePullBackOff`), `reason` and `message` are the pod's own. `ended` is known for our pods: the container that
    failed or, of restarted containers, failed last. `checkpoint_ms` is for our pods, as in `JobSeen`. `asks` is for a
    foreign pod that names Arranger as its scheduler; None for all others.
    """

    term: int
    namespace: str
    name: str
    uid: str
    resource_version: str
    node: str
    phase: str
    requests: tuple[tuple[str, int], ...]
    owner: PodOwner | None
    ready: bool
    deleting: bool
    ip: str = ""
    restarts: int = 0
    reason: str = ""
    message: str = ""
    waiting: str = ""
    traits: PodTraits = NO_TRAITS
    ended: ContainerEnd | None = None
    checkpoint_ms: int = 0
    asks: PodToPlace | None = None
    times: PodTimes = NO_TIMES


def share_parts(pod: PodSeen) -> None:
    """Make equal `requests` and `traits` of different pods one object, because most pods of a cluster are like many
    others. For pods from a log or from the API server: a snapshot has each of these parts once."""
    _set(pod, "requests", shared_requests(pod.requests))
    if pod.traits is not NO_TRAITS:
        _set(pod, "traits", shared_traits(pod.traits))


class JobSeen(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="JobSeen.1"):
    """A TYJob. Exactly one of `spec` and `faults` is given.

    `status_digest` identifies the status in the API server, so that an applier can detect whether its own differs.
    `status` comes with listings and new objects only; a new epoch adopts jobs from it. `user` is the submitter whom the
    label `arranger.dev/user` names; "" without it. Equal groups of different jobs are one object, as with pods.

    `checkpoint_ms` is the time in the annotation `arranger.dev/last-checkpoint`, in milliseconds since 1970: 0 if there
    is none, or if it can't be read. The clock of a pod may be ahead, so it may be in the future.

    `created_by` is the user whom the API server saw create the TYJob, and `created_by_groups` identifies that user's
    groups: the first 16 hexadecimal digits of the SHA-256 of their sorted names, joined by line ends. Both are "" if no
    policy of the cluster records them. `permits` are the words of its annotation `arranger.dev/permits`, each once,
    sorted. `unset` are warnings: references of templates to variables that the pods won't have, and labels
    that Kueue reads.
    """

    term: int
    namespace: str
    name: str
    uid: str
    resource_version: str
    generation: int
    created_ms: int
    deleting: bool
    spec: JobSpec | None
    faults: tuple[Fault, ...]
    status_digest: str
    status: JobStatusSeen | None = None
    user: str = ""
    checkpoint_ms: int = 0
    created_by: str = ""
    created_by_groups: str = ""
    permits: tuple[str, ...] = ()
    unset: tuple[Fault, ...] = ()

    def __post_init__(self) -> None:
        if self.spec is not None and asks_little(self.spec):
            _set(self.spec, "groups", shared(self.spec.groups))


class QuotaSeen(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="QuotaSeen.1"):
    """A ResourceQuota that limits pods. `hard` and `used` are from its status, limited to what concerns pods, in the
    resources' units (as in `PodShape`); a resource without `used` isn't counted yet."""

    term: int
    namespace: str
    name: str
    uid: str
    resource_version: str
    hard: Annotated[tuple[tuple[str, int], ...], NameOf("")]
    used: Annotated[tuple[tuple[str, int], ...], NameOf("")]
    scopes: tuple[QuotaScope, ...] = ()


class PriorityClassSeen(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="PriorityClassSeen.1"):
    """A PriorityClass. A job that names it has this value as its priority, from its first observation on."""

    term: int
    name: str
    uid: str
    resource_version: str
    value: int


class RuntimeClassSeen(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="RuntimeClassSeen.1"):
    """A RuntimeClass, with what admission adds to the pods that name it."""

    term: int
    name: str
    uid: str
    resource_version: str
    needs: RuntimeNeeds


class LimitRangeSeen(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="LimitRangeSeen.1"):
    """A LimitRange, with what admission adds to containers in its namespace."""

    term: int
    namespace: str
    name: str
    uid: str
    resource_version: str
    defaults: LimitDefaults


class ObjectGone(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="ObjectGone.1"):
    """An object was deleted. `namespace` is "" for kinds without, and `job_uid` is for a ProvisioningRequest.

    Garbage collection deletes the pods of a TYJob by owner reference. Jobs keep the priority that they have of a
    PriorityClass. Pods that name a RuntimeClass are refused from now on, so jobs that need nodes wait for it. Pods of a
    PodGroup that have nodes keep them, and the others wait for a PodGroup of that name.
    """

    kind: Watched
    term: int
    namespace: str
    name: str
    uid: str
    job_uid: str = ""


class WatchRefused(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="WatchRefused.1"):
    """The API server refuses the watch of an optional kind, whose objects are unknown from here on. `code` is the HTTP
    status."""

    kind: Watched
    term: int
    code: int


# --- decisions: what a controller or a scheduler decides ----------------------------------------------------


class CycleTaken(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="CycleTaken.1"):
    """One scheduling cycle: its inputs. Its decisions are the other events of the same batch.

    `base` is the offset of the projection that the cycle used, `time_ms` its time (milliseconds since 1970). A cycle
    whose `base` is before an earlier cycle in the log is superseded, and with it all its decisions. `search_steps` is
    the number of steps that the cycle's complete searches for quorums took, a result like its decisions.
    """

    base: int
    time_ms: int
    config: CycleConfig
    search_steps: int = 0


class Placed(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="Placed.1"):
    """Pods of one job get nodes: all of `pods` or none. `schedule_state` is the job's new schedule state. The event
    starts a job that has not begun. `devices` are those that its pods' claims get, by the claim's name. `hosts` are the
    UIDs of the jobs in whose reserved room the pods are guests: they leave as soon as one of these can start with their
    room; if the job had no nodes before, it leaves as a whole."""

    job_uid: str
    based_on: int
    attempt: int
    schedule_state: ScheduleState
    pods: tuple[PlacedPods, ...]
    devices: tuple[DecidedDevices, ...] = ()
    hosts: tuple[str, ...] = ()


class Preempted(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="Preempted.1"):
    """Other jobs give room to a quorum: the victims lose their pods, and the quorum gets the nodes of `placed`. It
    starts once the room is free, or gives it back at `until_ms` (milliseconds since 1970). `leaving` are the UIDs of
    other pods that leave anyway and whose room it needs as well."""

    placed: Placed
    victims: tuple[Victim, ...]
    spared: tuple[Spared, ...]
    leaving: tuple[str, ...]
    until_ms: int


class Reserved(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="Reserved.1"):
    """Nobody may delay a waiting job that is expected to get these nodes at `start_ms` (milliseconds since 1970; 0: at
    an unknown time); without pods, that is over. `awaits` are the UIDs of jobs that have to end first, `outlived` those
    of jobs that ran for longer than expected."""

    job_uid: str
    based_on: int
    start_ms: int
    pods: tuple[PlacedPods, ...]
    awaits: tuple[str, ...] = ()
    outlived: tuple[str, ...] = ()


class LimitKept(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="LimitKept.1"):
    """What a waiting job needs of a limit of queues is kept for it; without a `limit`, that is over. Enough of it is
    expected to be left at `start_ms` (milliseconds since 1970; 0: at an unknown time), once the jobs of `awaits` (UIDs)
    have ended."""

    job_uid: str
    based_on: int
    limit: LimitName | None = None
    start_ms: int = 0
    awaits: tuple[str, ...] = ()


class StartForecast(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="StartForecast.1"):
    """When a waiting job would start if nothing new came: as expected, at best and at worst, in milliseconds since
    1970; 0 for unknown. `guess`: what is expected supposes the end of a job of whose end nothing is known."""

    job_uid: str
    based_on: int
    expected_ms: int
    earliest_ms: int
    latest_ms: int
    guess: bool = False


class Waits(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="Waits.1"):
    """Why a job, or the rest of it, still waits."""

    job_uid: str
    based_on: int
    schedule_state: ScheduleState
    shortage: ShortageFacts


class StageDecided(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="StageDecided.1"):
    """A controller moves a job to `stage`. The reason decides which facts there are (`facts.FACTS`). The job is not
    scheduled for `back_off_ms` after that."""

    job_uid: str
    based_on: int
    attempt: int
    stage: Stage
    reason: StageReason
    facts: StageFacts | None = None
    back_off_ms: int = 0

    @property
    def awaited(self) -> bool:
        """Whether others were still to leave the node that the job loses, so it hadn't begun there."""
        return isinstance(self.facts, OfNode) and self.facts.awaited

    @property
    def shortage(self) -> ShortageFacts | None:
        """Why the job has no nodes, if that is why it was decided."""
        why = self.facts.why if isinstance(self.facts, QuorumIncomplete) else self.facts
        return why if isinstance(why, ShortageFacts) else None


def start(job_uid: str, based_on: int, attempt: int, *, leaderless: bool = False) -> StageDecided:
    """A job starts, because its quorum has nodes."""
    return StageDecided(job_uid, based_on, attempt, Stage.STARTING, StageReason.SCHEDULED, Begins(leaderless))


class EndedWorker(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One worker of `WorkersReplaced`: its slot, the pod that filled it ("" for none), and what happens to the slot.

    `counted`: the pod failed by its own fault and is replaced, which counts as a restart of its set. `failures`
    is how many pods of the slot failed on its node, this one included; 0 if that has no effect. A worker that goes
    elsewhere with them does so because of them, and its set avoids the node for a while.
    """

    slot: Slot
    pod_uid: str
    how: Replacement
    counted: bool
    failures: int = 0


class WorkersReplaced(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="WorkersReplaced.1"):
    """Workers that ended alone: their pods are to be deleted, and their slots are filled again or given up. For
    `back_off_ms` after that, the scheduler seeks no nodes for the job's pods without one."""

    job_uid: str
    based_on: int
    attempt: int
    workers: tuple[EndedWorker, ...]
    causes: tuple[EndCause, ...]
    back_off_ms: int = 0


# --- outcomes: the results of an applier's effects ---------------------------------------------------------


class EffectFailed(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="EffectFailed.1"):
    """The API server refused an effect. `permanent`: a retry can't succeed. `code` is the HTTP status. `tries` is how
    often this applier has tried it in vain, 0 if not recorded."""

    job_uid: str
    attempt: int
    effect: str
    slot: Slot | None
    code: int
    reason: str
    message: str
    permanent: bool
    tries: int = 0


class PodsTried(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="PodsTried.1"):
    """The API server was asked by a dry run whether it takes the pods of a waiting job in this generation: one pod of
    each group. `slot` is the one that it refuses, with the HTTP status `code`; None if it refuses none."""

    job_uid: str
    generation: int
    slot: Slot | None = None
    code: int = 0
    reason: str = ""
    message: str = ""


_OfTheLog = EpochBegun | WatchClaimed | ListingBegun | ListingEnded | WatchHeard | WatchRefused
_OfJobsAndNodes = NodeSeen | PodSeen | JobSeen
_OfLimits = QuotaSeen | PriorityClassSeen | RuntimeClassSeen | LimitRangeSeen | QueueSeen | NamespaceSeen
#: Observations of objects of which the projection has no more than what was observed.
ObjectSeen = PodGroupSeen | ProvisioningSeen | _OfLimits | volumes.ObjectSeen | devices.ObjectSeen
Observation = _OfTheLog | _OfJobsAndNodes | ObjectSeen | devices.DevicesMatched | ObjectGone
_OfScheduling = CycleTaken | Placed | Preempted | Reserved | LimitKept | StartForecast | Waits
Decision = _OfScheduling | StageDecided | WorkersReplaced | NodesRequested
Outcome = EffectFailed | PodsTried
Event = Observation | Decision | Outcome

#: Observations of objects that are there, but of PodGroups, and their watches: each counts only in the current term of
#: its watch.
WATCHED: dict[type, Watched] = {
    NodeSeen: Watched.NODE,
    PodSeen: Watched.POD,
    JobSeen: Watched.JOB,
    QuotaSeen: Watched.QUOTA,
    PriorityClassSeen: Watched.PRIORITY_CLASS,
    RuntimeClassSeen: Watched.RUNTIME_CLASS,
    LimitRangeSeen: Watched.LIMIT_RANGE,
    QueueSeen: Watched.QUEUE,
    NamespaceSeen: Watched.NAMESPACE,
    ProvisioningSeen: Watched.PROVISIONING,
    volumes.ClaimSeen: Watched.CLAIM,
    volumes.VolumeSeen: Watched.VOLUME,
    volumes.StorageClassSeen: Watched.STORAGE_CLASS,
    volumes.CSINodeSeen: Watched.CSI_NODE,
    devices.ResourceSliceSeen: Watched.RESOURCE_SLICE,
    devices.DeviceClassSeen: Watched.DEVICE_CLASS,
    devices.ResourceClaimSeen: Watched.RESOURCE_CLAIM,
    devices.ResourceClaimTemplateSeen: Watched.RESOURCE_CLAIM_TEMPLATE,
}
#: Watch → how its objects are observed while they are there.
SEEN: dict[Watched, type] = {
    **{kind: seen for seen, kind in WATCHED.items()},
    **dict.fromkeys(GROUP_WATCHES.values(), PodGroupSeen),
}


def watch_of(event: object) -> Watched | None:
    """The watch of an observation of an object; None for other events."""
    if isinstance(event, ObjectGone):
        return event.kind
    if isinstance(event, PodGroupSeen):
        return GROUP_WATCHES.get(event.group_kind)  # none of a group that only labels make
    return WATCHED.get(type(event))


def gone(seen: Any, term: int) -> ObjectGone:
    """The deletion of an object as it was observed last. Raises `TypeError` for what isn't watched."""
    kind = watch_of(seen)
    if kind is None:
        raise TypeError(f"there is no watch of {seen!r}")
    namespace, job_uid = getattr(seen, "namespace", ""), getattr(seen, "job_uid", "")
    return ObjectGone(kind, term, namespace, seen.name, seen.uid, job_uid)


def is_gone(event: object, *kinds: Watched) -> TypeGuard[ObjectGone]:
    """Whether an event is the deletion of an object of one of these kinds."""
    return type(event) is ObjectGone and event.kind in kinds


def seen_or_gone(event: object, seen: type[_Seen]) -> TypeGuard[_Seen | ObjectGone]:
    """Whether an event is about an object that is observed so: it is there, or it is gone."""
    return type(event) is seen or (type(event) is ObjectGone and SEEN[event.kind] is seen)


# `gc=False` on every struct here and in `model`: they can't form cycles, and garbage collection costs half the fold.


#: Watch → the kind of its deletions, as users type and read it.
_GONE = {kind: f"{seen.__name__.removesuffix('Seen')}Gone" for kind, seen in SEEN.items()}


def kind_of(event: Event) -> str:
    """The event's kind without its version, as users type and read it: `NodeSeen`, and `NodeGone` for the deletion of a
    node."""
    return _GONE[event.kind] if type(event) is ObjectGone else type(event).__name__


#: All that `kind_of` may be.
KIND_NAMES = (*(kind.__name__ for kind in get_args(Event) if kind is not ObjectGone), *dict.fromkeys(_GONE.values()))


class Batch(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Events appended in one atomic step, and the identity under which they are appended once.

    `writer` is unique to a running writer; `seq` counts that writer's batches from 1. `time_ms` is the
    writer's clock in milliseconds since 1970: the only time that a fold uses.
    """

    writer: str
    seq: int
    time_ms: int
    events: tuple[Event, ...]
