"""A pod as the scheduler sees it: its requests and rules (`PodShape`), and the slot of a job that it fills.

A shape has everything that determines the nodes a pod may run on, so pods of equal shape can be placed together.
"""

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from arranger.model.accelerators import is_accelerator


class Phase(StrEnum):
    """A pod's phase, in Kubernetes' terms."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


#: A pod in one of these phases uses no resources.
TERMINAL = frozenset({Phase.SUCCEEDED, Phase.FAILED})


#: Beginnings of the reason of a failed pod that its node's kubelet refused: another node may accept it.
REFUSALS = (
    "OutOf", "UnexpectedAdmissionError", "NodeAffinity", "NodeName", "NodePorts", "PodOSNotSupported",
    "TaintToleration", "TopologyAffinityError",
)  # fmt: skip


#: Beginning of the reason of an ended pod that gives none itself and that Kubernetes disrupted: its node was drained or
#: deleted, another pod preempted it, a taint evicted it.
DISRUPTED = "DisruptionTarget"

#: The log keeps the first line of a pod's message, up to this many characters. The rest may be a program's output.
POD_MESSAGE_LIMIT = 200
#: The same limit for its reasons, which are usually one word.
POD_REASON_LIMIT = 100

#: The reason of a pod that succeeded only after its deletion was requested.
STOPPED = "Deleted while it ran"


class Toleration(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One toleration; an empty key with `Exists` tolerates every taint, an empty effect every effect."""

    key: str
    operator: str
    value: str
    effect: str


class Requirement(msgspec.Struct, frozen=True, array_like=True, gc=False, cache_hash=True):
    """One node-selector requirement: operator In, NotIn, Exists, DoesNotExist, Gt or Lt.

    `field` says that `key` is a node field (only `metadata.name` exists) and not a label.
    """

    key: str
    operator: str
    values: tuple[str, ...]
    field: bool = False


#: Requirements of one term are ANDed, terms are ORed; a term without requirements matches no node.
NodeTerms = tuple[tuple[Requirement, ...], ...]


#: Label keys with their values, sorted by key.
Labels = tuple[tuple[str, str], ...]

#: The requirements of a label selector, ANDed; () selects every pod, None selects none.
Selector = tuple[Requirement, ...] | None

#: In `PodTerm.namespaces`: the namespace of the pod that has the term.
OWN_NAMESPACE = ""


class HostPort(msgspec.Struct, frozen=True, array_like=True, gc=False, order=True):
    """A port of the node that a pod uses: TCP, UDP or SCTP, on one address of the node or on all of them ("")."""

    port: int
    protocol: str = "TCP"
    address: str = ""


class PodTerm(msgspec.Struct, frozen=True, array_like=True, gc=False, cache_hash=True):
    """One term of required pod affinity or anti-affinity: pods selected by label, in the topology of a node label.

    `namespaces` are those of the selected pods, None for all of them. Beside them, `namespace_selector` selects
    namespaces by their labels; only the projection knows which, and has their names in `selected`.
    """

    topology_key: str
    selector: Selector
    namespaces: tuple[str, ...] | None = (OWN_NAMESPACE,)
    namespace_selector: Selector = None
    selected: tuple[str, ...] = ()


class SpreadRule(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One topology spread constraint with DoNotSchedule.

    `honor_affinity` and `honor_taints`: whether nodes excluded by the pod's nodeSelector and affinity, or by
    untolerated taints, are left out when its domains are counted.
    """

    topology_key: str
    max_skew: int
    selector: Selector
    min_domains: int = 1
    honor_affinity: bool = True
    honor_taints: bool = False


class Attachment(msgspec.Struct, frozen=True, array_like=True, gc=False, order=True):
    """A volume that a pod's node must attach: the CSI driver, and which volume; pods of equal values share it. An empty
    `volume` is one that each pod has for itself."""

    driver: str
    volume: str


class DeviceLackKind(StrEnum):
    """Why no node can have a pod that names a resource claim."""

    MISSING = "ResourceClaimMissing"
    NOT_MADE = "ResourceClaimNotMade"
    DELETING = "ResourceClaimDeleting"
    BEYOND = "ResourceClaimBeyond"
    NO_CLASS = "DeviceClassMissing"
    UNKNOWN = "DevicesUnknown"
    NO_TEMPLATE = "ResourceClaimTemplateMissing"
    OFF = "DevicesOff"


class DevicesAsked(msgspec.Struct, frozen=True, array_like=True, gc=False, cache_hash=True):
    """A request of a resource claim, with the selectors of its DeviceClass before its own. `count` is 0 for all devices
    that there are."""

    request: str
    device_class: str
    selectors: tuple[str, ...]
    count: int


class DeviceNeeds(msgspec.Struct, frozen=True, array_like=True, gc=False, cache_hash=True):
    """What a resource claim of a pod requires of its node: what the claim lacks (with the name that this is about), or
    devices that it asks for, or, if it is `allocated`, a node of `terms` (None for all). `own`: each pod has such a
    claim for itself, made from a template, and `claim` is the pod's name for it, and `name` the template's UID."""

    claim: str
    lack: DeviceLackKind | None = None
    name: str = ""
    asked: tuple[DevicesAsked, ...] = ()
    allocated: bool = False
    terms: NodeTerms | None = None
    own: bool = False


class PodRules(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The rules of a pod about other pods. `exclusive` are the claims of its namespace that no other pod may use, and
    `attachments` the volumes of drivers that attach only so many to a node, and `devices` what its resource claims
    require; only the projection knows these three."""

    host_ports: tuple[HostPort, ...] = ()
    affinity: tuple[PodTerm, ...] = ()
    anti_affinity: tuple[PodTerm, ...] = ()
    spread: tuple[SpreadRule, ...] = ()
    exclusive: tuple[str, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    devices: tuple[DeviceNeeds, ...] = ()


class PodTraits(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The properties of a pod in the cluster that affect other pods: its labels, its ports, and the pods it repels.

    The labels of our pods under arranger.dev/ are left out: they follow from name and slot (`names.known_labels`), so
    that equal pods of many jobs share one `PodTraits`. `claims` are the claims that it names, recorded while volumes
    are watched (`WatchClaimed.volumes`).
    """

    labels: Labels = ()
    host_ports: tuple[HostPort, ...] = ()
    anti_affinity: tuple[PodTerm, ...] = ()
    claims: tuple[str, ...] = ()


#: For a pod that affects no other.
NO_TRAITS = PodTraits()


class Preference(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One term of preferred node affinity: its requirements are ANDed; without any it matches no node."""

    weight: int
    term: tuple[Requirement, ...]


class Ephemeral(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A generic ephemeral volume of a pod template: its name, and the class of the claim that each pod gets for it
    (None if it names none, "" if it wants none)."""

    name: str
    storage_class: str | None = None


class PodClaims(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The claims of its namespace that a pod names, sorted, and the volumes of which each pod of a template has its own
    claim, made with the pod. `devices` are its resource claims: the pod's name for each, and the name of the claim, ""
    while none was made from the template that the pod names. `templates` are the resource claims that each pod of a
    TYJob has for itself: the pod's name for each, and the name of the ResourceClaimTemplate."""

    names: tuple[str, ...] = ()
    ephemeral: tuple[Ephemeral, ...] = ()
    devices: tuple[tuple[str, str], ...] = ()
    templates: tuple[tuple[str, str], ...] = ()


class ClaimLackKind(StrEnum):
    """Why no node can have a pod that names a claim."""

    MISSING = "ClaimMissing"
    DELETING = "ClaimDeleting"
    LOST = "ClaimLost"
    UNBOUND = "ClaimUnbound"
    BINDING = "ClaimBinding"
    NO_VOLUME = "VolumeMissing"
    NO_CLASS = "StorageClassMissing"
    NO_PROVISIONER = "NoProvisioner"


#: These pass by themselves: the claim is being bound, or the watch of volumes is behind that of claims.
PASSING = frozenset({ClaimLackKind.BINDING, ClaimLackKind.NO_VOLUME})


class ClaimLack(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Why no node can have a pod that names this claim; `name` is the class or the volume that it is about."""

    kind: ClaimLackKind
    claim: str
    name: str = ""


class Reach(msgspec.Struct, frozen=True, array_like=True, gc=False, cache_hash=True):
    """The nodes that can reach the volume of a claim: those that satisfy a term of `terms` (None: all) and are in its
    zones. `bound`: it has that volume; else the volume is still to be made, where the class allows it."""

    claim: str
    terms: NodeTerms | None = None
    zones: Labels = ()
    bound: bool = True


class VolumeNeeds(msgspec.Struct, frozen=True, array_like=True, gc=False, cache_hash=True):
    """What the claims of a pod require of its node: the first lack, if there is one, else which nodes reach each."""

    lack: ClaimLack | None = None
    reaches: tuple[Reach, ...] = ()


class RuntimeNeeds(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What the admission of the API server adds to pods of a RuntimeClass, once their node is decided: `overhead` to
    their requests, and a selector and tolerations, with which a node has to have the runtime."""

    overhead: tuple[tuple[str, int], ...] = ()
    node_selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[Toleration, ...] = ()


class ContainerNeeds(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a container of a template names, sorted and with its zeros: its requests, with its limits for missing ones,
    and its limits. `init`: an init container, which is a sidecar if it restarts."""

    requests: tuple[tuple[str, int], ...] = ()
    limits: tuple[tuple[str, int], ...] = ()
    init: bool = False
    sidecar: bool = False


class DeclaredNeeds(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a template names, container by container, and for the whole pod."""

    containers: tuple[ContainerNeeds, ...]
    requests: tuple[tuple[str, int], ...] = ()
    limits: tuple[tuple[str, int], ...] = ()
    overhead: tuple[tuple[str, int], ...] = ()


class LimitDefaults(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What the LimitRanges of a namespace add to containers that name no request or no limit of a resource."""

    requests: tuple[tuple[str, int], ...] = ()
    limits: tuple[tuple[str, int], ...] = ()


NO_DEFAULTS = LimitDefaults()


class OwnNeeds(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a pod itself asks for, without what admission adds to it; fields as in `PodShape`."""

    requests: tuple[tuple[str, int], ...]
    node_selector: tuple[tuple[str, str], ...]
    tolerations: tuple[Toleration, ...]


class PodShape(msgspec.Struct, frozen=True, array_like=True, gc=False, cache_hash=True):
    """Everything that determines where a pod may run, and which nodes it prefers.

    `requests` are sorted `(resource name, integer amount)` pairs: cpu in millicores, memory and
    ephemeral-storage in bytes, everything else in units; zero amounts are left out, and `pods` (always 1) is
    not listed. `required_terms` is None without required node affinity. `labels` are the template's own.
    `rules` is None for a pod without rules about other pods. `claims` is None for a pod that names none. `volumes` is
    what follows from them: only the projection knows that, while volumes are watched. `runtime_class` is the class that
    the template of a TYJob names, "" for none. The projection knows what such a class and LimitRanges add: `own` is
    then what the pod asks for without that, and None otherwise. `overhead` is what the template of such a pod says of
    it itself, as a part of `requests`: admission takes no other one than the class's.
    """

    requests: tuple[tuple[str, int], ...]
    node_selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    required_terms: NodeTerms | None = None
    labels: Labels = ()
    preferred: tuple[Preference, ...] = ()
    rules: PodRules | None = None
    claims: PodClaims | None = None
    volumes: VolumeNeeds | None = None
    runtime_class: str = ""
    own: OwnNeeds | None = None
    overhead: tuple[tuple[str, int], ...] = ()


class QosClass(StrEnum):
    """The QoS class of a pod, in Kubernetes' terms, in the order in which the setting `qos_order` puts equals."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


def lowest_qos(classes: Iterable[QosClass | None]) -> QosClass | None:
    """The class of the pods that are guaranteed least; None if one isn't known."""
    found, ranks = list(classes), list(QosClass)
    known = [ranks.index(of) for of in found if of is not None]
    return ranks[max(known)] if known and len(known) == len(found) else None


class GroupKind(StrEnum):
    """What a group of pods is: labels alone, or a PodGroup of the API group of this name."""

    LABELS = ""
    COSCHEDULING = "scheduling.x-k8s.io"
    VOLCANO = "scheduling.volcano.sh"
    NATIVE = "scheduling.k8s.io"


#: The versions of Kubernetes' own PodGroups that Arranger reads and writes, newest first. An API server has some of
#: them: 1.36 the last one, 1.37 the others.
NATIVE_VERSIONS = ("v1beta1", "v1alpha3", "v1alpha2")


class GroupAsked(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The group of its namespace that a pod names. No pod of it gets a node before so many of them can have one.

    The minimum of a PodGroup is its own (`PodGroupFacts`), and 0 here.
    """

    name: str
    min_count: int
    kind: GroupKind = GroupKind.LABELS


class PodGroupFacts(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a PodGroup says: how many of its pods are needed at once, its queue and its PriorityClass ("" for none),
    and its priority where the API server has filled it in (else None). Without these, they are those of its pods. All
    of its pods belong on nodes with the same value of the label `topology`; "" for any nodes. `tasks` are Volcano's
    tasks, each with how many of its pods are needed, by name. The nodes must have `min_resources` free together, sorted
    by name and in each resource's unit. Room is reserved for it for `schedule_timeout_s` seconds at most; None for no
    limit."""

    min_count: int
    queue: str = ""
    priority_class: str = ""
    priority: int | None = None
    topology: str = ""
    tasks: tuple[tuple[str, int], ...] = ()
    min_resources: tuple[tuple[str, int], ...] = ()
    schedule_timeout_s: int | None = None


class PodGroupStatus(msgspec.Struct, frozen=True):
    """What a scheduler writes into the status of a PodGroup: Volcano's phase and how many of its pods run, have
    succeeded and have failed; and conditions, each with its type, status, reason and message."""

    phase: str = ""
    counts: tuple[int, int, int] = (0, 0, 0)
    conditions: tuple[tuple[str, str, str, str], ...] = ()


class PodToPlace(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What the scheduler needs of a pod that no TYJob owns and that names Arranger as its scheduler.

    `priority` is the value that the API server gave it. It gets no node while it has `gates`, the names of its
    scheduling gates. `queue` is that of its annotation, and `user` that of its label; "" without one. `grace_s` is how
    long it may take to end once it is deleted, in seconds. `preempts`: other jobs may give room to it. `group` is None
    for a pod that is placed alone. It gets no node at all with `claims`, the names of its resource claims, which nobody
    allocates: with the setting `devices`, its shape has them. `qos` is None if its status names none. `task` is that of
    a pod of a Volcano PodGroup; "" for none.
    """

    shape: PodShape
    priority: int = 0
    gates: tuple[str, ...] = ()
    created_ms: int = 0
    queue: str = ""
    user: str = ""
    grace_s: int = 30
    preempts: bool = True
    group: GroupAsked | None = None
    claims: tuple[str, ...] = ()
    qos: QosClass | None = None
    task: str = ""

    @property
    def held_back(self) -> bool:
        """Whether the pod itself keeps Arranger from giving it a node."""
        return bool(self.gates or self.claims)

    def holding(self, requests: tuple[tuple[str, int], ...]) -> "PodToPlace":
        """With what the pod holds, which differs from what it asks for while it is resized. A pod of a group asks as
        the group's others do."""
        if self.group is not None or requests == self.shape.requests:
            return self
        return msgspec.structs.replace(self, shape=msgspec.structs.replace(self.shape, requests=requests))


class ContainerEnd(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How a container of a pod failed: exit code, signal (0 if the runtime names none), reason (`OOMKilled`, `Error`),
    and the first line of its termination message."""

    container: str
    exit_code: int
    signal: int = 0
    reason: str = ""
    message: str = ""


class PodTimes(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """When things happened to a pod by the clocks of API server and kubelet, in milliseconds since 1970; 0 for what
    hasn't happened or isn't known.

    `leave_by_ms`: the end of the grace period of its deletion; a pod without one isn't being deleted. `started_ms`:
    since when its node's kubelet has it. `ended_ms`: when the last container of a pod that has ended finished.
    """

    leave_by_ms: int = 0
    started_ms: int = 0
    ended_ms: int = 0


NO_TIMES = PodTimes()


#: How many failures are kept of the leader and of each worker set, and are shown of a job.
FAILURES_KEPT = 5


class Failure(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A failed container of a job's pod, recorded at `time_ms` (milliseconds since 1970). The pod is that of a worker
    set, or of the leader if `worker_set` is empty, with its index and attempt; `failed_before` as in `PodOwner`."""

    worker_set: str
    index: int
    attempt: int
    node: str
    time_ms: int
    ended: ContainerEnd
    failed_before: int = 0


class PodOwner(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The slot of one of our pods, from its owner reference and labels. `failed_before` counts the kept pods of that
    slot and attempt that failed before it."""

    job_uid: str
    attempt: int
    group_name: str
    leader: bool
    index: int
    failed_before: int = 0


def gpus_of(requests: Iterable[tuple[str, int]]) -> int:
    """The accelerators among some requests, of any vendor and kind."""
    return sum(count for name, count in requests if is_accelerator(name))
