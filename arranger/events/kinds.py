"""Every kind of event, typed and versioned, in three families: observations, decisions and outcomes.

An event's tag is `Kind.version`. A field is only ever added at the end, with a default that means what its
absence meant; any other change is a new version of the kind, and the old one stays readable through `events.earlier`.
Events carry no time of their own unless a decision needs it: the time told stands on their `Batch`.

A decision names the job's `version` that it was `based_on`. The fold accepts it only while that version is
current (architecture rule 3), so whoever is first in the log wins and everyone sees the same winner.
"""

from enum import StrEnum
from functools import lru_cache
from typing import TypeVar

import msgspec

from arranger.events.facts import NO_FACTS, EndCause, ShortageFacts, StageFacts
from arranger.model.config import CycleConfig
from arranger.model.job import JobSpec, JobStatusSeen, PlacedPods, Replacement, ScheduleState, Slot, Stage
from arranger.model.node import NodeFacts
from arranger.model.pod import NO_TRAITS, PodOwner, PodTraits
from arranger.model.quota import QuotaScope
from arranger.model.stages import StageReason

_Part = TypeVar("_Part")

#: What has more parts than this isn't remembered to be shared: few pods are so large, and one can be a megabyte.
_LARGE = 64


class Watched(StrEnum):
    """The kinds of Kubernetes objects that are watched."""

    NODE = "node"
    POD = "pod"
    JOB = "tyjob"
    QUOTA = "resourcequota"


# --- observations: what Kubernetes said -------------------------------------------------------------------


class EpochBegun(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="EpochBegun.1"):
    """The first event of an epoch. `previous` is 0 when nothing is known of an earlier one.

    `cluster` is whose log the earlier one was, as in `WatchClaimed`; empty when nothing is known of that.
    """

    epoch: int
    previous: int
    reason: str
    cluster: str = ""


class WatchClaimed(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="WatchClaimed.1"):
    """A watcher takes over one kind. This event's offset is its term; observations under an older term are void.

    `cluster` is the Kubernetes cluster that it watches, by the UID of its namespace kube-system; empty if it doesn't
    tell. The first one told in an epoch is the log's, and the claim of another cluster's watcher is void.

    `exact_slots` counts for pods: from here on, a pod is a job's only in the job's namespace and under the name of its
    slot, and it fills the slot only on the node that was decided. `pod_addresses` counts for pods too: from here on,
    the address of a job's leader is what its pod shows; before, a `LeaderAddressed` gave it. Watchers of earlier
    versions asked for neither.
    """

    kind: Watched
    watcher: str
    cluster: str = ""
    exact_slots: bool = False
    pod_addresses: bool = False


def claim(kind: Watched, watcher: str, cluster: str = "") -> WatchClaimed:
    """A watcher of this version takes over one kind."""
    pods = kind == Watched.POD
    return WatchClaimed(kind, watcher, cluster, exact_slots=pods, pod_addresses=pods)


class ListingBegun(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="ListingBegun.1"):
    """A full listing of one kind begins: until it has ended, absence of an object says nothing."""

    kind: Watched
    term: int


class ListingEnded(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="ListingEnded.1"):
    """A full listing has ended: what the projection holds of this kind is now what the API server holds."""

    kind: Watched
    term: int
    resource_version: str


class NodeSeen(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="NodeSeen.1"):
    """A node as the API server has it."""

    term: int
    name: str
    uid: str
    resource_version: str
    facts: NodeFacts


class NodeGone(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="NodeGone.1"):
    """A node is no longer there."""

    term: int
    name: str
    uid: str


class PodSeen(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="PodSeen.1"):
    """Any pod in the cluster, ours or not. `requests` as in `PodShape`; `owner` is None for a stranger's pod.

    `restarts` counts container restarts. `waiting` is the reason why a container can't start, as the kubelet
    gives it (`ImagePullBackOff`), `reason` and `message` the pod's own. Equal `requests` and `traits` of different
    pods are one object, because most pods of a cluster are like many others.
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

    def __post_init__(self) -> None:
        if len(self.requests) <= _LARGE:
            msgspec.structs.force_setattr(self, "requests", _shared(self.requests))
        traits = self.traits
        small = traits is not NO_TRAITS and len(traits.labels) <= _LARGE
        if small and (not (traits.host_ports or traits.anti_affinity) or not _asks_much(traits)):
            msgspec.structs.force_setattr(self, "traits", _shared(traits))


def _asks_much(traits: PodTraits) -> bool:
    if max(len(traits.host_ports), len(traits.anti_affinity)) > _LARGE:
        return True
    return any(len(asked.values) > _LARGE for term in traits.anti_affinity for asked in term.selector or ())


@lru_cache(maxsize=16384)
def _shared(part: _Part) -> _Part:
    """The one object for all equal ones, as far as it is remembered."""
    return part


class PodGone(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="PodGone.1"):
    """A pod is no longer there."""

    term: int
    namespace: str
    name: str
    uid: str


class JobSeen(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="JobSeen.1"):
    """A TYJob. Exactly one of `spec` and `invalid` (what is wrong with it, for the user) is given.

    `status_digest` names the status that the API server holds, so that an applier can tell whether its own
    differs. `status` comes with listings and new objects only; a new epoch adopts jobs from it.
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
    invalid: str
    status_digest: str
    status: JobStatusSeen | None = None


class JobGone(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="JobGone.1"):
    """A TYJob is no longer there; its pods follow by owner reference."""

    term: int
    namespace: str
    name: str
    uid: str


class QuotaSeen(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="QuotaSeen.1"):
    """A ResourceQuota as the API server holds pods to it. `hard` and `used` are its status's, of what concerns pods,
    in the resources' units (as in `PodShape`); a resource that has no `used` yet isn't counted yet."""

    term: int
    namespace: str
    name: str
    uid: str
    resource_version: str
    hard: tuple[tuple[str, int], ...]
    used: tuple[tuple[str, int], ...]
    scopes: tuple[QuotaScope, ...] = ()


class QuotaGone(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="QuotaGone.1"):
    """A ResourceQuota is no longer there."""

    term: int
    namespace: str
    name: str
    uid: str


class WatchRefused(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="WatchRefused.1"):
    """The API server doesn't let a kind be watched that can be done without: nothing is known of it from here on.
    `code` is the HTTP status."""

    kind: Watched
    term: int
    code: int


#: Failures of workers of one set that lie further apart than this are seen as different ones.
FAILURES_APART_MS = 60_000
#: For so long the room of a slot that was given up is kept for its pod, if that was being created and was never seen.
ASSUMED_MS = 10_000
#: Replacements in a worker set that lie further apart than this are not in a row.
STREAK_MS = 600_000
#: A job that held its nodes for so long in one stage hasn't failed at once: its next back-off is the first of a row.
STEADY_MS = 600_000
#: So is one that comes so long after the end of the last one.
QUIET_MS = 3_600_000


# --- decisions: what a controller or a scheduler wants ------------------------------------------------------


class CycleTaken(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="CycleTaken.1"):
    """One scheduling cycle: its inputs. Its decisions are the other events of the same batch.

    `base` is the offset of the projection that it was taken on, `time_ms` the time that it was told
    (milliseconds since 1970). A cycle whose `base` lies before an earlier cycle in the log is superseded, and
    with it all its decisions.
    """

    base: int
    time_ms: int
    config: CycleConfig


class Placed(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="Placed.2"):
    """Pods of one job get nodes: all of `pods` or none. `schedule_state` is what the job is in then. A job that has not
    begun starts with it (from `CycleConfig.verdicts` 2 on)."""

    job_uid: str
    based_on: int
    attempt: int
    schedule_state: ScheduleState
    pods: tuple[PlacedPods, ...]


class Waits(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="Waits.2"):
    """Why a job, or the rest of it, still waits."""

    job_uid: str
    based_on: int
    schedule_state: ScheduleState
    shortage: ShortageFacts


class StageDecided(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="StageDecided.2"):
    """A controller moves a job to `stage`. For `back_off_ms` after it the job is not scheduled."""

    job_uid: str
    based_on: int
    attempt: int
    stage: Stage
    reason: StageReason
    facts: StageFacts = NO_FACTS
    back_off_ms: int = 0


def start(job_uid: str, based_on: int, attempt: int) -> StageDecided:
    """A job starts, because its quorum has nodes."""
    return StageDecided(job_uid, based_on, attempt, Stage.STARTING, StageReason.SCHEDULED)


class LeaderAddressed(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="LeaderAddressed.1"):
    """The leader of this attempt has an address: its workers may now be created and told it. Only older logs have this
    event: since `WatchClaimed.pod_addresses`, the fold takes the address from the leader's pod."""

    job_uid: str
    based_on: int
    attempt: int
    address: str


class EndedWorker(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One worker of `WorkersReplaced`: its slot, the pod that filled it ("" for none), and what comes of the slot.

    `counted`: the pod failed by its own fault, which is a restart of its set.
    """

    slot: Slot
    pod_uid: str
    how: Replacement
    counted: bool


class WorkersReplaced(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="WorkersReplaced.2"):
    """Workers that ended alone: their pods are to go, and their slots are filled again or given up for good. For
    `back_off_ms` after it no node is sought for any pod of the job that has none. `verdicts` are the rules by which it
    is judged, as `CycleConfig` has them."""

    job_uid: str
    based_on: int
    attempt: int
    workers: tuple[EndedWorker, ...]
    causes: tuple[EndCause, ...]
    back_off_ms: int = 0
    verdicts: int = 0


# --- outcomes: what happened when an applier tried ---------------------------------------------------------


class EffectFailed(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="EffectFailed.1"):
    """The API server refused an effect. `permanent`: trying again can't help. `code` is the HTTP status. `tries` is how
    often this applier has tried it in vain, 0 where it doesn't say."""

    job_uid: str
    attempt: int
    effect: str
    slot: Slot | None
    code: int
    reason: str
    message: str
    permanent: bool
    tries: int = 0


Observation = (
    EpochBegun
    | WatchClaimed
    | ListingBegun
    | ListingEnded
    | NodeSeen
    | NodeGone
    | PodSeen
    | PodGone
    | JobSeen
    | JobGone
    | QuotaSeen
    | QuotaGone
    | WatchRefused
)
Decision = CycleTaken | Placed | Waits | StageDecided | LeaderAddressed | WorkersReplaced
Outcome = EffectFailed
Event = Observation | Decision | Outcome

#: Observations of objects, and what their watchers watch: they count in that watcher's term only.
WATCHED: dict[type, Watched] = {
    NodeSeen: Watched.NODE,
    NodeGone: Watched.NODE,
    PodSeen: Watched.POD,
    PodGone: Watched.POD,
    JobSeen: Watched.JOB,
    JobGone: Watched.JOB,
    QuotaSeen: Watched.QUOTA,
    QuotaGone: Watched.QUOTA,
}

# `gc=False` on every struct here and in `model`: they can't form cycles, and the collector's visits cost half the fold.


def kind_of(event: Event) -> str:
    """The event's kind without its version, as the user types and reads it: `NodeSeen`."""
    return type(event).__name__


class Batch(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Events appended in one atomic step, and the identity under which they are appended once.

    `writer` is unique to a running writer; `seq` counts that writer's batches from 1. `time_ms` is the
    writer's clock in milliseconds since 1970: the only time that a fold ever sees.
    """

    writer: str
    seq: int
    time_ms: int
    events: tuple[Event, ...]
