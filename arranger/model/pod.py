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


class Toleration(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One toleration; an empty key with `Exists` tolerates every taint, an empty effect every effect."""

    key: str
    operator: str
    value: str
    effect: str


class Requirement(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One node-selector requirement: operator In, NotIn, Exists, DoesNotExist, Gt or Lt.

    `field` says that `key` is a node field (only `metadata.name` exists) and not a label.
    """

    key: str
    operator: str
    values: tuple[str, ...]
    field: bool = False


#: Requirements of one term are ANDed, terms are ORed; a term without requirements matches no node.
NodeTerms = tuple[tuple[Requirement, ...], ...]


class PodShape(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What decides where a pod may run.

    `requests` are sorted `(resource name, integer amount)` pairs: cpu in millicores, memory and
    ephemeral-storage in bytes, everything else in units; zero amounts are left out, and `pods` (always 1) is
    not listed. `required_terms` is None where the pod has no required node affinity.
    """

    requests: tuple[tuple[str, int], ...]
    node_selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    required_terms: NodeTerms | None = None


class PodOwner(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The place that a pod of ours fills, from its owner reference and labels."""

    job_uid: str
    attempt: int
    group_name: str
    leader: bool
    index: int
