"""A pod as the scheduler sees it: what it asks for (`PodShape`) and which place of which job it fills.

A shape is everything that decides which nodes a pod may run on, so equal shapes can be placed together.
"""

from enum import StrEnum

import msgspec


class Phase(StrEnum):
    """A pod's phase, in Kubernetes' words."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


#: A pod in one of these phases holds no resources.
TERMINAL = frozenset({Phase.SUCCEEDED, Phase.FAILED})


#: How the reason of a failed pod begins that its node's kubelet refused to run: another node may take it.
REFUSALS = (
    "OutOf", "UnexpectedAdmissionError", "NodeAffinity", "NodeName", "NodePorts", "PodOSNotSupported",
    "TaintToleration", "TopologyAffinityError",
)  # fmt: skip


#: How the reason begins of a pod that ended and gives none itself, where Kubernetes says that it disrupted it: its node
#: is drained or gone, another pod preempts it, a taint drives it away.
DISRUPTED = "DisruptionTarget"

#: What the log keeps of a pod's message: the first line, cut to so many characters. The rest may be a program's output.
POD_MESSAGE_LIMIT = 200
#: And of its reasons, which mostly are one word.
POD_REASON_LIMIT = 100

#: The reason of a pod that ended well only after it was told to go.
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

#: What a label selector asks for, all of it; () selects every pod, None selects none.
Selector = tuple[Requirement, ...] | None

#: In `PodTerm.namespaces` it stands for the namespace of the pod that has the term.
OWN_NAMESPACE = ""


class HostPort(msgspec.Struct, frozen=True, array_like=True, gc=False, order=True):
    """A port of the node that a pod takes: TCP, UDP or SCTP, on one address of the node or on all of them ("")."""

    port: int
    protocol: str = "TCP"
    address: str = ""


class PodTerm(msgspec.Struct, frozen=True, array_like=True, gc=False, cache_hash=True):
    """One term of required pod affinity or anti-affinity: pods selected by label, in the topology of a node label.

    `namespaces` are those where the selected pods live, None for all of them.
    """

    topology_key: str
    selector: Selector
    namespaces: tuple[str, ...] | None = (OWN_NAMESPACE,)


class SpreadRule(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One topology spread constraint that says DoNotSchedule.

    `honor_affinity` and `honor_taints`: whether nodes that the pod's nodeSelector and affinity, or untolerated taints,
    rule out count as places to spread over.
    """

    topology_key: str
    max_skew: int
    selector: Selector
    min_domains: int = 1
    honor_affinity: bool = True
    honor_taints: bool = False


class PodRules(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a pod asks of the other pods around it."""

    host_ports: tuple[HostPort, ...] = ()
    affinity: tuple[PodTerm, ...] = ()
    anti_affinity: tuple[PodTerm, ...] = ()
    spread: tuple[SpreadRule, ...] = ()


class PodTraits(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What of a pod in the cluster concerns other pods: its labels, the ports that it takes, whom it keeps away.

    A pod of ours has no labels under arranger.dev/ here: they follow from its name and its place
    (`names.known_labels`), so that equal pods of many jobs share one `PodTraits`.
    """

    labels: Labels = ()
    host_ports: tuple[HostPort, ...] = ()
    anti_affinity: tuple[PodTerm, ...] = ()


#: Of a pod that concerns no other.
NO_TRAITS = PodTraits()


class Preference(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One term of preferred node affinity: its requirements are ANDed; without any it matches no node."""

    weight: int
    term: tuple[Requirement, ...]


class PodShape(msgspec.Struct, frozen=True, array_like=True, gc=False, cache_hash=True):
    """What decides where a pod may run, and where it would rather.

    `requests` are sorted `(resource name, integer amount)` pairs: cpu in millicores, memory and
    ephemeral-storage in bytes, everything else in units; zero amounts are left out, and `pods` (always 1) is
    not listed. `required_terms` is None where the pod has no required node affinity. `labels` are the template's own.
    `rules` is None for a pod that asks nothing of others.
    """

    requests: tuple[tuple[str, int], ...]
    node_selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    required_terms: NodeTerms | None = None
    labels: Labels = ()
    preferred: tuple[Preference, ...] = ()
    rules: PodRules | None = None


class PodOwner(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The place that a pod of ours fills, from its owner reference and labels."""

    job_uid: str
    attempt: int
    group_name: str
    leader: bool
    index: int
