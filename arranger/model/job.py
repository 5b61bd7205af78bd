"""A TYJob as the scheduler and the life cycle need it: counts, requests and rules, without the pod templates.

The templates stay in Kubernetes, which is authoritative for them; the applier reads them there when it creates
pods. These records are written to the log, so they are small, and the meaning of a field never changes.
"""

from enum import StrEnum

import msgspec

from arranger.model.pod import Failure, PodShape

#: Group number of the leader; worker set `i` of the spec is group `i + 1`.
LEADER_GROUP = 0

#: The pod policy under which a job's quorum is all of its pods.
GANG = "Gang"


class Stage(StrEnum):
    """The phase of a job's life, decided by the controller. Ended stages (SUCCEEDED, FAILED) are final."""

    PENDING = "Pending"
    STARTING = "Starting"
    RUNNING = "Running"
    RESCHEDULING = "Rescheduling"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


ENDED = frozenset({Stage.SUCCEEDED, Stage.FAILED})


class ScheduleState(StrEnum):
    """How much of a job has nodes; decided by the scheduler."""

    UNSCHEDULED = "Unscheduled"
    PARTLY = "ScheduledPartly"
    SUCCEED = "ScheduledSucceed"
    FAILED = "ScheduledFailed"


class Replacement(StrEnum):
    """What happens to the slot of a worker that ended alone."""

    SAME_NODE = "SameNode"
    ELSEWHERE = "Elsewhere"
    GIVEN_UP = "GivenUp"


class CleanPodPolicy(StrEnum):
    """Which pods are deleted when the job has ended."""

    RUNNING = "Running"
    ALL = "All"
    NONE = "None"


class QuotaTraits(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The properties of a pod that only a ResourceQuota uses, and no node.

    `limits` are sorted as a shape's requests are; `has_deadline`: the pod has activeDeadlineSeconds of its own;
    `looks_elsewhere`: a term of its pod affinity names or selects namespaces.
    """

    limits: tuple[tuple[str, int], ...] = ()
    has_deadline: bool = False
    priority_class: str = ""
    looks_elsewhere: bool = False


#: For a pod that declares none of them, and for all pods in logs that don't record them.
NO_QUOTA_TRAITS = QuotaTraits()


class PodGroup(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Equal pods: the leader (count 1), or one worker set with `count` workers."""

    name: str
    count: int
    shape: PodShape
    traits: QuotaTraits = NO_QUOTA_TRAITS


class JobSpec(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A valid TYJob's spec. `groups[0]` is the leader, `groups[1:]` the worker sets in the order given.

    `queue_policy` and `pod_policy` are empty if the job names none and the configured default applies. `ttl_s` is how
    long an ended job is kept, `deadline_s` how long it may be active since its start; seconds, None for no limit.
    `leader_service`: workers reach the leader by a fixed name, whatever its address.
    """

    groups: tuple[PodGroup, ...]
    min_workers: int
    priority: int
    queue_policy: str
    pod_policy: str
    restart_limit: int
    clean_pod_policy: CleanPodPolicy
    terminating: bool
    suspend: bool = False
    ttl_s: int | None = None
    deadline_s: int | None = None
    leader_service: bool = False

    @property
    def total_workers(self) -> int:
        return sum(group.count for group in self.groups[1:])


class Slot(msgspec.Struct, frozen=True, array_like=True, gc=False, order=True):
    """One pod's position in its job: the group (0 is the leader) and the index in the group, from 0."""

    group: int
    index: int


class PlacedPods(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Pods of one group on one node. `indices` are inclusive runs `(first, last)`, ascending and disjoint."""

    node: str
    group: int
    indices: tuple[tuple[int, int], ...]


class JobStatusSeen(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The part of a TYJob's status from which a new epoch adopts the job.

    `restarts` are those of deleted leader pods, `worker_restarts` the same by worker set. `given_up` are the slots that
    are not filled again (group and runs of indices), `replacing` those whose ended pod was charged to the budget and
    may still exist. `turned` is for each condition whether it holds and since when, `reason` that of the last decision
    on the stage. `failures` are the last ones, the newest first.
    """

    stage: str
    schedule_state: str
    attempt: int
    restarts: int
    leader_address: str
    allocations: tuple[PlacedPods, ...]
    start_ms: int = 0
    completion_ms: int = 0
    message: str = ""
    worker_restarts: tuple[tuple[str, int], ...] = ()
    given_up: tuple[tuple[int, tuple[tuple[int, int], ...]], ...] = ()
    replacing: tuple[tuple[int, tuple[tuple[int, int], ...]], ...] = ()
    reason: str = ""
    turned: tuple[tuple[str, bool, int], ...] = ()
    failures: tuple[Failure, ...] = ()
