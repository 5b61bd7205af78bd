"""A TYJob as the scheduler and the life cycle need it: counts, requests and rules, without the pod templates.

The templates stay in Kubernetes, which is authoritative for them; the applier reads them there when it creates
pods. These records are written to the log, so they are small, and the meaning of a field never changes.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Annotated

import msgspec

from arranger.model.fields import ChangesUntil, DnsLabel, Flag, ManifestField, OneOf, Text, Whole
from arranger.model.pod import DeclaredNeeds, Failure, PodShape, QosClass
from arranger.model.queue import MAX_QUEUE_NAME

#: Group number of the leader; worker set `i` of the spec is group `i + 1`.
LEADER_GROUP = 0

#: The grace period that Kubernetes sets, in seconds, and the longest that counts: what is longer means "never".
DEFAULT_GRACE_S = 30
MAX_GRACE_S = 365 * 86_400
#: A pod that is still there so long after its grace period hangs, in milliseconds.
HANGS_AFTER_MS = 60_000

#: How many restarts a job allows that doesn't say.
DEFAULT_RESTART_LIMIT = 3

#: The maximum number of workers of one job, all sets together.
MAX_WORKERS = 10_000

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
#: The stages in which a job has nodes and pods: only in these the clock of its deadline runs.
ACTIVE = frozenset({Stage.STARTING, Stage.RUNNING})

#: The condition of a running job with as many ready pods as its quorum needs, and its reason while there are fewer.
READY = "Ready"
BELOW_QUORUM = "BelowQuorum"
#: Its reason while the pods leave because the job ends, and no decision says that yet.
ENDING = "Ending"
#: The condition of a job that waits again because another one got its room.
PREEMPTED = "Preempted"
#: The condition of a job that uses room which is reserved for another one.
GUEST = "Guest"
#: The condition of a job whose templates refer to variables that its pods won't have.
UNSET_VARIABLES = "UnsetVariables"


class ScheduleState(StrEnum):
    """How much of a job has nodes; decided by the scheduler."""

    UNSCHEDULED = "Unscheduled"
    PARTLY = "ScheduledPartly"
    SUCCEED = "ScheduledSucceed"
    FAILED = "ScheduledFailed"


class Replacement(StrEnum):
    """What happens to the slot of a worker that ended alone, or that is restarted with others (RESTARTED): then its pod
    is deleted, and the next one gets the same node once it is gone."""

    SAME_NODE = "SameNode"
    ELSEWHERE = "Elsewhere"
    GIVEN_UP = "GivenUp"
    RESTARTED = "Restarted"


#: With these, the slot loses its node.
FREEING = frozenset({Replacement.ELSEWHERE, Replacement.GIVEN_UP})


class RestartScope(StrEnum):
    """What a worker's end restarts beside it: nothing, its worker group, its set, or the whole job."""

    WORKER = "Worker"
    GROUP = "Group"
    SET = "Set"
    JOB = "Job"


class RestartEvent(StrEnum):
    """Which end of a worker restarts others under the scopes Set and Job: any, or only that of a pod that has failed,
    was evicted by its kubelet or was lost with its node, and not a deletion."""

    POD_ENDED = "PodEnded"
    POD_FAILED = "PodFailed"


class RestartPolicy(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How pods of a group are restarted. Each slot may be restarted `limit` times, within `window_s` seconds from the
    first of these restarts; None: within the attempt, or with the scope Job within the job's life. `own_limit`: the
    limit is the group's own, not the job's `restartLimit`. `event` says which ends of a worker restart others."""

    scope: RestartScope = RestartScope.WORKER
    limit: int = 0
    window_s: int | None = None
    own_limit: bool = False
    event: RestartEvent = RestartEvent.POD_FAILED


class RendezvousScope(StrEnum):
    """Whose world a rendezvous counts: the worker set's, the worker group's, or that of the leader and all worker sets
    with this scope."""

    SET = "Set"
    GROUP = "Group"
    JOB = "Job"


class Rendezvous(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How the pods of a worker set find each other: the port of rank 0, and whether they get the members file."""

    port: int
    scope: RendezvousScope = RendezvousScope.SET
    members_file: bool = False


class OnFailure(StrEnum):
    """What the failure of a job means for a job that waits for it: that fails too, or goes on."""

    FAIL = "Fail"
    IGNORE = "Ignore"


class Dependency(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A job of the same namespace that must have succeeded first. `ended` is how a job of that name ended; None if that
    isn't known, and in an observation of a TYJob."""

    name: str
    on_failure: OnFailure = OnFailure.FAIL
    ended: Stage | None = None

    @property
    def met(self) -> bool:
        """Whether nothing waits for it any more."""
        return self.ended == Stage.SUCCEEDED or (self.ended is not None and self.on_failure == OnFailure.IGNORE)


class SuccessType(StrEnum):
    """Whose end with exit code 0 is the job's success: the leader's, that of all workers, or that of some sets."""

    LEADER = "Leader"
    ALL_WORKERS = "AllWorkers"
    SETS = "Sets"


class StartAfter(StrEnum):
    """What workers of a set start after, beside the readiness of another set: that the leader has an address, or is
    ready."""

    LEADER_ADDRESS = "LeaderAddress"
    LEADER_READY = "LeaderReady"


class TopologyMode(StrEnum):
    """Whether a unit of a topology waits until one domain holds it."""

    REQUIRED = "Required"
    PREFERRED = "Preferred"


class TopologyScope(StrEnum):
    """The unit of a topology: the whole job, each worker set, or each group of a worker set."""

    JOB = "Job"
    SET = "Set"
    GROUP = "Group"


#: The labels that the nodes of a domain share: that of its own level, and those of wider ones.
Path = tuple[str, ...]


class Topology(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The pods of a unit (`within`) belong into one domain. `levels` are the keys of labels, those of the smallest
    domains first. A domain of a level is a path of values: nodes with the same value of its label and of the labels of
    all wider levels, because racks may be numbered within their block."""

    levels: tuple[str, ...]
    mode: TopologyMode = TopologyMode.REQUIRED
    within: TopologyScope = TopologyScope.JOB

    def paths(self) -> tuple[Path, ...]:
        """The labels of each level's domains: its own label and those of the wider levels."""
        return tuple(self.levels[at:] for at in range(len(self.levels)))


#: A unit of a topology: the group (`WHOLE_JOB` for the whole job) and the number of the part of it.
Unit = tuple[int, int]
WHOLE_JOB = -1


class CleanPodPolicy(StrEnum):
    """Which pods are deleted when the job has ended: those that still run, all but the failed ones that are kept for
    their logs, or none."""

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


#: For a pod that declares none of them.
NO_QUOTA_TRAITS = QuotaTraits()


class PodGroup(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Equal pods: the leader (count 1), or one worker set with `count` workers.

    A worker set with a `group_size` above 1 has worker groups of so many pods with consecutive indices. `count` and
    `min_count` are numbers of pods nevertheless, and multiples of it.
    """

    name: str
    count: int
    shape: PodShape
    traits: QuotaTraits = NO_QUOTA_TRAITS
    #: How many of the pods a quorum needs, beside what it needs of all worker sets together.
    min_count: int = 0
    #: None for pods of others, and without a leader for that.
    restart: RestartPolicy | None = None
    rendezvous: Rendezvous | None = None
    #: The group that must be ready before pods of this one are created; None for the default: the leader must have an
    #: address, and without a leader there is nothing to wait for.
    start_after: int | None = None
    group_size: int = 1
    #: The worker set's own.
    topology: Topology | None = None
    #: How long its pods may take to end once they are deleted, in seconds.
    grace_s: int = DEFAULT_GRACE_S
    #: The task of pods of a Volcano PodGroup; "" for none.
    task: str = ""
    #: How many of the pods a quorum gets nodes for because other sets of it start after this one (`with_needed`).
    needed: int = 0
    #: What its template names; None for pods that are there.
    declared: DeclaredNeeds | None = None

    @property
    def least(self) -> int:
        """How many of the pods have nodes in each quorum, whichever sets provide the others."""
        return max(self.min_count, self.needed)

    def worker_group(self, index: int) -> range:
        """The indices of the worker group of a pod: the pod's alone in a set without worker groups."""
        first = index - index % self.group_size
        return range(first, first + self.group_size)


def with_needed(groups: tuple[PodGroup, ...], min_workers: int) -> tuple[PodGroup, ...]:
    """The groups, with the sets that each quorum needs because other sets of it start after them: without these, the
    others would hold their nodes and never start.

    They are the sets that a set with a minimum waits for, by itself or through others. While a quorum has further
    workers, which any set may provide, they are all sets that others wait for, in the given order.
    """
    least = [group.least for group in groups]
    for group in groups:
        if group.min_count:
            _add_awaited(groups, group.start_after, least)
    awaited = sorted({group.start_after or LEADER_GROUP for group in groups if group.count} - {LEADER_GROUP})
    for number in awaited:
        if sum(least[1:]) < min_workers:  # the further workers may be of any set
            _add_awaited(groups, number, least)
    return tuple(
        msgspec.structs.replace(group, needed=few) if few > group.min_count else group
        for group, few in zip(groups, least, strict=True)
    )


def _add_awaited(groups: Sequence[PodGroup], number: int | None, least: list[int]) -> None:
    """Add a set to a quorum, and all that it waits for."""
    while number is not None and number != LEADER_GROUP:
        least[number] = max(least[number], min(groups[number].group_size, groups[number].count))
        number = groups[number].start_after


class JobSpec(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A valid TYJob's spec. Times are in seconds."""

    #: The first is the leader, the others are the worker sets in the order given. Without a leader, the first has no
    #: name and the count 0.
    groups: tuple[PodGroup, ...]
    min_workers: Annotated[
        int,
        ManifestField(
            "minWorkersNum",
            Whole(0, MAX_WORKERS),
            "Workers needed to start the job, and to keep it running, of all worker sets together: 0 to their number; "
            "workers in parts of worker groups don't count. If unset, the sum that the minCounts of the sets ask for, "
            "1 if no set has one, and 0 for a leader alone.",
        ),
    ]
    #: That of its class, if it names one: 0 while that isn't known, as in observations.
    priority: Annotated[
        int,
        ManifestField(
            "priority",
            Whole(1, 10),
            "1 to 10, higher goes first and may take room from lower ones of its queue; 5 if unset. Not beside "
            "priorityClassName.",
            unset=5,
        ),
    ]
    #: "" if the configured default applies.
    queue_policy: str
    #: As `queue_policy`.
    pod_policy: str
    restart_limit: Annotated[
        int,
        ManifestField(
            "restartLimit",
            Whole(0, 1_000_000),
            "Restarts allowed for the leader, and for each worker, unless their own restart.limit says otherwise: 0 to "
            "1000000; 3 if unset.",
            ChangesUntil.STARTED,
            unset=DEFAULT_RESTART_LIMIT,
            stored=True,
        ),
    ]
    clean_pod_policy: Annotated[
        CleanPodPolicy,
        ManifestField(
            "cleanPodPolicy",
            OneOf(CleanPodPolicy),
            "Which pods are deleted when the job has ended: those that still run, all but the failed ones that "
            "keepFailedPods keeps, or none; if unset, as the installation says, which is All by default.",
            ChangesUntil.STARTED,
        ),
    ]
    terminating: Annotated[
        bool,
        ManifestField(
            "terminating",
            Flag(),
            "Set to true, it asks the job to end, as Succeeded; false if unset.",
            unset=False,
            stored=True,
        ),
    ]
    suspend: Annotated[
        bool,
        ManifestField(
            "suspend",
            Flag(),
            "The job holds no nodes: its pods are deleted, and it waits in stage Pending until this is false again; "
            "false if unset.",
            stored=True,
        ),
    ] = False
    ttl_s: Annotated[
        int | None,
        ManifestField(
            "ttlSecondsAfterFinished",
            Whole(0),
            "Seconds after which the ended TYJob is deleted, at least 0; it is kept if unset.",
        ),
    ] = None
    deadline_s: Annotated[
        int | None,
        ManifestField(
            "activeDeadlineSeconds",
            Whole(1),
            "Seconds for which the job may be active (Starting or Running); after that it fails with DeadlineExceeded. "
            "A suspension and a preemption let them begin anew. At least 1; without a limit if unset.",
        ),
    ] = None
    leader_service: Annotated[
        bool,
        ManifestField(
            "leaderService",
            Flag(),
            "A headless Service {job}-{leader's name} stands for the leader: workers are told its DNS name, which "
            "stays over attempts, in place of the pod's address; false if unset.",
            ChangesUntil.STARTED,
            stored=True,
        ),
    ] = False
    #: The group that the scale subresource counts; 0 without worker sets.
    scaled: int = 0
    priority_class: Annotated[
        str,
        ManifestField(
            "priorityClassName",
            Text(253, 1, "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"),
            "A PriorityClass, in place of priority: its value when Arranger first sees it for the job is the job's "
            "priority. The pods get it too, unless a template names another.",
            ChangesUntil.STARTED,
            sort="priorityclass",
        ),
    ] = ""
    priority_known: bool = True
    keep_failed: Annotated[
        int,
        ManifestField(
            "keepFailedPods",
            Whole(0, 100),
            "How many failed pods of the leader, and of each worker set, stay for their logs after other pods took "
            "their slots, or the job ended: the newest, 0 to 100; 3 if unset.",
            unset=3,
        ),
    ] = 0
    #: The jobs that it waits for, in the order given.
    after: tuple[Dependency, ...] = ()
    #: The groups whose end is that of the job: the leader, or worker sets.
    success: tuple[int, ...] = (LEADER_GROUP,)
    topology: Topology | None = None
    queue: Annotated[
        str,
        ManifestField(
            "queue",
            DnsLabel(MAX_QUEUE_NAME),
            "The Queue of the job; if unset, the one that the annotation arranger.dev/queue of its namespace names, "
            "else `default`. Can be changed while the job holds no nodes.",
            ChangesUntil.HOLDS_NODES,
            sort="queue",
        ),
    ] = ""
    preemptible: Annotated[
        bool,
        ManifestField(
            "preemptible",
            Flag(),
            "Whether the job may be preempted for other jobs, as far as queues allow it; true if unset. Can be changed "
            "while the job runs.",
        ),
    ] = True
    expected_s: Annotated[
        int | None,
        ManifestField(
            "expectedRuntimeSeconds",
            Whole(1),
            "How many seconds the job is expected to run from its start, at least 1; unknown if unset. Arranger plans "
            "with it and never ends a job for it. Can be changed while the job runs.",
        ),
    ] = None
    #: A digest of the name of the image that the job mainly runs; "" if it isn't known.
    image: str = ""
    #: Other jobs may give room to it. Only pods that no TYJob owns can forbid that (`preemptionPolicy: Never`).
    preempts: bool = True
    #: If its pods name a PodGroup, it is there.
    group_known: bool = True
    #: The lowest QoS class of its pods; None if it isn't known.
    qos: QosClass | None = None
    #: Set by a cycle that orders equals by that class; 0 in all others and in the log.
    qos_rank: int = 0
    #: The tasks of a Volcano PodGroup, each with how many of its pods a quorum needs.
    task_minimums: tuple[tuple[str, int], ...] = ()
    #: What all nodes together must have free before a pod group gets any.
    min_resources: tuple[tuple[str, int], ...] = ()
    #: For how long room may be reserved for a pod group; None for no limit.
    schedule_timeout_s: int | None = None
    start_grace_s: Annotated[
        int | None,
        ManifestField(
            "startGraceSeconds",
            Whole(1),
            "Seconds after which a starting job whose quorum isn't ready gives its nodes up and is scheduled again "
            "after a back-off, at least 1; by default the settings start_grace_s and ready_grace_s say it. Can be "
            "changed while the job runs.",
        ),
    ] = None
    #: The RuntimeClasses that its templates name and that don't exist, while they are watched.
    missing_runtimes: tuple[str, ...] = ()
    #: The job itself names its `clean_pod_policy`.
    clean_named: bool = False

    @property
    def classes_known(self) -> bool:
        """Whether the job waits for no class: priority, or runtime."""
        return self.priority_known and not self.missing_runtimes

    @property
    def unmet(self) -> tuple[Dependency, ...]:
        """The jobs that have to end first."""
        return tuple([of for of in self.after if not of.met]) if self.after else ()

    @property
    def has_leader(self) -> bool:
        """Whether the job has a leader."""
        return self.groups[LEADER_GROUP].count > 0

    @property
    def ends_with_leader(self) -> bool:
        """Whether the leader's end is that of the job."""
        return self.success == (LEADER_GROUP,)

    def keeps_finished(self, group: int) -> bool:
        """Whether a pod of the group that finishes with exit code 0 has done its part: it counts towards the quorum,
        and no other pod takes its slot. That holds where workers' end is the job's: for these, and for the leader."""
        return not self.ends_with_leader and (group == LEADER_GROUP or group in self.success)

    @property
    def may_have_rules(self) -> bool:
        """Whether its pods have rules about other pods, or claims, which may turn out to have some."""
        return any([group.shape.rules is not None or group.shape.claims is not None for group in self.groups])

    @property
    def has_topology(self) -> bool:
        """Whether some pods of the job belong into one domain."""
        return self.topology is not None or any([group.topology for group in self.groups])

    @property
    def whole_topology(self) -> Topology | None:
        """The topology whose unit is the whole job."""
        of = self.topology
        return of if of is not None and of.within == TopologyScope.JOB else None

    def topology_of(self, group: int) -> Topology | None:
        """The topology of a worker set's units: the set's own, or the job's."""
        own = self.groups[group].topology
        of = self.topology if own is None and group != LEADER_GROUP else own
        return of if of is not None and of.within != TopologyScope.JOB else None

    def unit_size(self, group: int) -> int:
        """How many pods of a group one unit of its topology has."""
        of, group_size = self.topology_of(group), self.groups[group].group_size
        return group_size if of is not None and of.within == TopologyScope.GROUP else max(self.groups[group].count, 1)

    def tasks_lacking(self, left_out: Iterable[int]) -> dict[str, int]:
        """The tasks with fewer pods than they need, with how many they lack. One pod of each of these groups is left
        out."""
        there = Counter(left_out)
        lacks = dict(self.task_minimums)
        for number, of in enumerate(self.groups) if lacks else ():
            if of.task in lacks:
                lacks[of.task] -= of.count - there[number]
        return {task: lack for task, lack in lacks.items() if lack > 0}

    @property
    def total_workers(self) -> int:
        return sum(group.count for group in self.groups[1:])

    def restart_of(self, group: int) -> RestartPolicy:
        """The restart policy of a group."""
        return self.groups[group].restart or RestartPolicy(limit=self.restart_limit)

    @property
    def has_rendezvous(self) -> bool:
        """Whether the job's pods have names, under a Service of the job."""
        return any(group.rendezvous is not None for group in self.groups)

    @property
    def has_members_file(self) -> bool:
        """Whether pods of the job get the members file."""
        return any(group.rendezvous is not None and group.rendezvous.members_file for group in self.groups)

    @property
    def has_worker_groups(self) -> bool:
        """Whether workers come in worker groups of more than one."""
        return any([group.group_size > 1 for group in self.groups])  # as below

    @property
    def has_minimums(self) -> bool:
        """Whether a quorum needs workers of certain sets."""
        return any([group.min_count for group in self.groups])  # twice as fast as over a generator

    def pods_missing(self, there: Sequence[int]) -> list[int]:
        """How many pods of each group its own minimum lacks, beside those that are there (by group, leader first)."""
        return [max(group.min_count - count, 0) for group, count in zip(self.groups, there, strict=True)]

    def workers_missing(self, there: Sequence[int]) -> int:
        """How many workers a quorum lacks beside the pods that are there (by group, leader first): as many as each
        set's minimum lacks, and all sets together have `min_workers`."""
        return max(sum(self.pods_missing(there)[1:]), self.min_workers - sum(there[1:]), 0)


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
    may still exist. `charged` has the restarts of slots that count against their limit: by group, runs of indices with
    equal numbers. `turned` is for each condition whether it holds and since when, `reason` that of the last decision on
    the stage. `failures` are the last ones, the newest first. `at_end` has for each worker set of an ended job how many
    workers were ready or had finished when it ended, and how many had failed. `failed_before` has the numbers of failed
    pods of each slot that were replaced in this attempt and kept, in the form of `charged`. `after` are the jobs that
    it waited for and that have ended, each with its stage. `finished` are the slots whose pods have done their part, in
    the form of `given_up`; group 0 is the leader. `active_s` is how long it was active before its present attempt, as
    its deadline counts it, in seconds; None if the status doesn't tell.
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
    charged: tuple[tuple[int, tuple[tuple[int, int, int], ...]], ...] = ()
    at_end: tuple[tuple[str, int, int], ...] = ()
    priority: int | None = None
    failed_before: tuple[tuple[int, tuple[tuple[int, int, int], ...]], ...] = ()
    after: tuple[tuple[str, str], ...] = ()
    finished: tuple[tuple[int, tuple[tuple[int, int], ...]], ...] = ()
    active_s: int | None = None
