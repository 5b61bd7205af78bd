"""One TYJob in the projection: its observed state, the decisions about it, and the nodes of its pods.

A *placement* is a slot's decided node. Until its pod is observed, the placement itself uses the capacity. From
then on the pod's own requests count, and the placement is *bound* to that pod.
"""

from collections import Counter
from collections.abc import Collection, Sequence, Set
from dataclasses import dataclass, field, fields, is_dataclass
from functools import lru_cache
from operator import itemgetter
from typing import Any

from arranger.events.kinds import EffectFailed, JobSeen, PodSeen, PodsTried, StageDecided, Waits
from arranger.model.faults import Fault
from arranger.model.job import (
    ENDED,
    LEADER_GROUP,
    PREEMPTED,
    READY,
    JobSpec,
    PlacedPods,
    PodGroup,
    ScheduleState,
    Stage,
)
from arranger.model.names import GROUP_PREFIX, POD_PREFIX, name_in_slot
from arranger.model.pod import FAILURES_KEPT, TERMINAL, Failure, Phase, PodOwner
from arranger.model.pods_to_place import group_name, group_uid, pod_of, record_of
from arranger.model.stages import StageReason
from arranger.projections.jobs.parts import (
    LEADER,
    NOT_ITS_DOING,
    NOTHING_REPLACED,
    BackOffs,
    JobTimes,
    LeaderRecord,
    Replaced,
    SetRecord,
    SlotKey,
    SlotTable,
    TakenRoom,
)
from arranger.projections.jobs.worker_groups import only_whole


@dataclass(slots=True)
class JobRecord:
    """One TYJob according to the log. `version` is the offset of the last change that decisions depend on."""

    seen: JobSeen
    spec: JobSpec | None
    version: int
    stage: Stage = Stage.PENDING
    schedule_state: ScheduleState = ScheduleState.UNSCHEDULED
    attempt: int = 0
    slots: SlotTable = field(default_factory=SlotTable)
    leader: LeaderRecord = field(default_factory=LeaderRecord)
    #: By name; an unchanged set needs no record.
    sets: dict[str, SetRecord] = field(default_factory=dict)
    times: JobTimes = field(default_factory=JobTimes)
    back_offs: BackOffs = field(default_factory=BackOffs)
    #: The changes of an edit that are forbidden once a job has started; empty without such an edit.
    refused: tuple[Fault, ...] = ()
    #: Offset at which a new epoch adopted the job from its status; 0 for a job whose beginning is in the log.
    adopted_at: int = 0
    #: UIDs of pods that an accepted decision replaces: they fill no slot and are to be deleted.
    retired: dict[str, None] = field(default_factory=dict)
    #: Node → when its kubelet last refused a pod of this job, in milliseconds.
    refusals: dict[str, int] = field(default_factory=dict)
    replaced: Replaced = NOTHING_REPLACED
    #: The last accepted decisions, for messages and conditions.
    decided: StageDecided | None = None
    #: The last decisions on the stage in this epoch, with times: several may precede the next status update.
    steps: tuple[tuple[StageDecided, int], ...] = ()
    waits: Waits | None = None
    failure: EffectFailed | None = None
    #: Slots whose pods somebody else deleted, and whose end restarts the whole job, until that is decided.
    deleted: tuple[SlotKey, ...] = ()
    #: Room that it took from others and hasn't been Running with.
    taken: TakenRoom | None = None
    #: UIDs of pods of earlier attempts that hang on lost nodes: no new attempt waits for them.
    left_behind: tuple[str, ...] = ()
    #: Whether the API server took its pods in the last dry run.
    tried: PodsTried | None = None
    #: Of the slots in `deleted`, those whose pods said by what they are disrupted, as an eviction, with that reason.
    disruptions: tuple[tuple[SlotKey, str], ...] = ()
    #: How many of its pods had nodes, or had finished, when it ended; None before, and if it ended in an earlier epoch.
    pods_at_end: int | None = None

    @property
    def placements(self) -> dict[SlotKey, str]:
        """Slot → its node."""
        return self.slots.nodes

    @property
    def bound(self) -> dict[SlotKey, str]:
        """Slot → UID of the pod that fills it in this attempt."""
        return self.slots.pods

    @property
    def spent(self) -> dict[str, int]:
        """Restarts of former worker pods by worker set; sets without restarts are left out."""
        return {name: of.spent for name, of in self.sets.items() if of.spent}

    @property
    def failing(self) -> dict[str, int]:
        """Worker set → when the first failure was observed that isn't decided on yet, in milliseconds."""
        return {name: of.failing_since_ms for name, of in self.sets.items() if of.failing_since_ms}

    def last_failures(self) -> list[Failure]:
        """The last failures of all its pods, the newest first."""
        found = [*self.leader.failures, *(failure for of in self.sets.values() for failure in of.failures)]
        return sorted(found, key=lambda of: (-of.time_ms, of.worker_set, of.index, of.attempt))[:FAILURES_KEPT]

    def copy(self) -> "JobRecord":
        """A record that can change without this one."""
        copied: JobRecord = _copied(self)
        return copied

    def of_set(self, name: str) -> SetRecord:
        """The record of a worker set, created if necessary."""
        return self.sets.setdefault(name, SetRecord())

    @property
    def uid(self) -> str:
        """The TYJob's UID. It identifies the job, because a name may be reused."""
        return self.seen.uid

    @property
    def of_pods(self) -> bool:
        """Whether this is no TYJob, but the record of a pod, or of a group of pods, that somebody else made and
        Arranger only places."""
        return self.seen.uid.startswith((POD_PREFIX, GROUP_PREFIX))

    @property
    def of_group(self) -> bool:
        """Whether this is the record of a group of such pods."""
        return self.seen.uid.startswith(GROUP_PREFIX)

    @property
    def pods_lacking(self) -> int:
        """How many pods a group lacks for its minimum: those that it has and may get nodes, have one, or have finished,
        are too few. At least one, as long as its PodGroup isn't there."""
        if not self.of_group:
            return 0
        there = self.pods_desired() + len(self.slots.finished)
        of_tasks = sum(self.tasks_lacking.values()) if self.valid_spec.task_minimums else 0
        return max(self.valid_spec.min_workers - there, of_tasks, not self.valid_spec.group_known)

    @property
    def tasks_lacking(self) -> dict[str, int]:
        """The tasks of a group that have fewer pods than they need, with how many they lack."""
        return self.valid_spec.tasks_lacking(group for group, _ in self.slots.given_up)

    @property
    def valid_spec(self) -> JobSpec:
        """The spec of a job that has one. A job with an invalid spec has none, and can only end."""
        assert self.spec is not None, f"job {self.seen.namespace}/{self.seen.name} has no valid spec"
        return self.spec

    @property
    def ended(self) -> bool:
        """Succeeded or Failed: final."""
        return self.stage in ENDED

    @property
    def active(self) -> bool:
        """A valid job that has not ended and is not being deleted."""
        return self.spec is not None and not self.seen.faults and not self.ended and not self.seen.deleting

    @property
    def stands_still(self) -> bool:
        """Whether the spec allows no pods, because it terminates or suspends the job."""
        return self.spec is not None and (self.spec.terminating or self.spec.suspend)

    @property
    def avoids(self) -> bool:
        """Whether it may avoid some nodes."""
        if not (self.refusals or self.sets):  # as of most jobs that wait
            return False
        return bool(self.refusals) or any([of.avoids for of in self.sets.values()])

    def owner_of(self, slot: SlotKey) -> PodOwner:
        """The owner that the pod of a slot of this attempt claims; the inverse of `slot_of`."""
        group, index = slot
        name, before = self.valid_spec.groups[group].name, self.slots.failed_before.get(slot, 0)
        return PodOwner(self.uid, self.attempt, name, group == LEADER_GROUP, index, before)

    def slot_of(self, owner: PodOwner) -> SlotKey | None:
        """The slot that a pod claims; None if this attempt of the job has no such slot, or another pod's name."""
        if self.spec is None or owner.attempt != self.attempt:
            return None
        name, index, before = owner.group_name, owner.index, self.slots.failed_before
        for number, group in enumerate(self.spec.groups):
            if group.name == name and (number == LEADER_GROUP) == owner.leader:
                slot = (number, index)
                present = owner.failed_before == (before.get(slot, 0) if before else 0)
                return slot if present and index < group.count else None
        return None

    def replaced_before(self, owner: PodOwner) -> bool:
        """Whether a pod with this owner failed in the present attempt, and the next pod has another name."""
        groups = self.spec.groups if self.spec is not None else ()
        number = next((number for number, group in enumerate(groups) if group.name == owner.group_name), LEADER_GROUP)
        return owner.failed_before < self.slots.failed_before.get((number, owner.index), 0)

    @property
    def kept(self) -> set[str]:
        """UIDs of failed pods that fill no slot and are kept for their logs."""
        return {uid for of in self.keepers for uid in of.kept}

    @property
    def keepers(self) -> list[LeaderRecord | SetRecord]:
        """The records of its groups, each of which keeps failed pods."""
        return [self.leader, *self.sets.values()]

    def pod_name(self, slot: SlotKey) -> str:
        """The name of the pod of a slot of this attempt."""
        if slot in self.slots.names:
            return self.slots.names[slot]
        if self.of_pods:
            return self.seen.name.removeprefix(POD_PREFIX)
        return name_in_slot(self.seen.name, self.owner_of(slot))

    @property
    def suspended(self) -> bool:
        """Whether the last decision suspended the job."""
        return self.decided is not None and self.decided.reason == StageReason.SUSPENDED

    @property
    def preempted(self) -> bool:
        """Whether the job waits again because another one got its room."""
        waits = self.stage == Stage.RESCHEDULING and self.decided is not None
        return waits and self.decided is not None and self.decided.reason == StageReason.PREEMPTED

    def conditions(self) -> tuple[tuple[str, bool], ...]:
        """The conditions of the status, in display order, and whether each is true. A job that was never preempted has
        none about it."""
        found = _conditions(self.stage, self.schedule_state, self.suspended, self.quorum_ready)
        preempted = self.preempted
        return (*found, (PREEMPTED, preempted)) if preempted or PREEMPTED in self.times.turned else found

    @property
    def ready(self) -> list[int]:
        """How many pods of each group are ready, the leader's first."""
        counts = self.slots.ready_counts
        return [counts.get(group, 0) for group in range(len(self.valid_spec.groups))]

    @property
    def pods_ready(self) -> int:
        """How many of its pods are ready."""
        return len(self.slots.ready)

    @property
    def ready_or_finished(self) -> list[int]:
        """How many pods of each group count towards a ready quorum, the leader's first: of worker groups those that are
        ready or have finished as a whole."""
        ready, finished = self.ready, self.slots.finished
        for group, count in Counter(map(itemgetter(0), finished)).items() if finished else ():
            ready[group] += count
        spec = self.valid_spec
        return only_whole(spec, self.slots.ready.keys() | finished.keys(), ready) if spec.has_worker_groups else ready

    @property
    def quorum_ready(self) -> bool:
        """Whether the job runs and has as many ready or finished pods as its quorum needs."""
        return self._is_running and self._has_quorum(self.ready_or_finished)

    @property
    def below_quorum(self) -> bool:
        """Whether the job runs and has fewer ready or finished pods than its quorum needs."""
        return self._is_running and not self._has_quorum(self.ready_or_finished)

    @property
    def _is_running(self) -> bool:
        return self.stage == Stage.RUNNING and self.spec is not None

    def _has_quorum(self, there: Sequence[int]) -> bool:
        spec = self.valid_spec
        return there[LEADER_GROUP] >= spec.groups[LEADER_GROUP].count and not spec.workers_missing(there)

    @property
    def succeeded(self) -> bool:
        """Whether the job's end is that of workers, and all of them have finished."""
        return self._workers_over(given_up=0)

    @property
    def unfinishable(self) -> bool:
        """Whether the job's end is that of workers, and all of them have finished or are given up, but not all have
        finished."""
        given_up = sum(group in self.spec.success for group, _ in self.slots.given_up) if self.spec is not None else 0
        return bool(given_up) and self._workers_over(given_up=given_up)

    def _workers_over(self, *, given_up: int) -> bool:
        spec = self.spec
        if spec is None or spec.ends_with_leader:
            return False
        finished = sum(group in spec.success for group, _ in self.slots.finished)
        return 0 < finished + given_up == sum(spec.groups[group].count for group in spec.success)

    def may_start(self, group: int) -> bool:
        """Whether pods of a group may be created now: the leader's until the job is led, and those of a worker set
        from then on, once what it starts after is there."""
        if group == LEADER_GROUP or not self.led:
            return (group == LEADER_GROUP) != self.led
        return self.may_start_after(self.valid_spec.groups[group])

    @property
    def begins_again(self) -> bool:
        """Whether the controller has to decide before any pod is created: the leader was lost, or a worker whose end
        restarts the whole job."""
        lost = self.leader.address and LEADER not in self.slots.pods and LEADER not in self.slots.finished
        return bool(self.deleted or lost)

    @property
    def led(self) -> bool:
        """Whether workers wait for no leader: there is none, it has an address, or it has finished. One that finishes
        at once may never be seen with an address."""
        return not self.valid_spec.has_leader or bool(self.leader.address) or LEADER in self.slots.finished

    def may_start_after(self, of: PodGroup) -> bool:
        """Whether the group that a worker set starts after has been ready in this attempt, if there is one."""
        return of.start_after is None or (of.name in self.sets and self.sets[of.name].started)

    def pods_desired(self) -> int:
        """The number of pods of the whole job, including the leader, without those that are given up or have
        finished."""
        spec = self.spec
        if spec is None:
            return 0
        desired = -len(self.slots.given_up) - len(self.slots.finished)
        for group in spec.groups:  # a loop costs half as much as a sum over a generator, and every cycle calls this
            desired += group.count
        return desired

    def pods_told(self) -> int | None:
        """The number of pods as people are told: of an ended job those that it had in the end, None if that isn't
        known."""
        if not self.ended:
            return self.pods_desired()
        return self.pods_at_end if self.times.start_ms else 0

    @property
    def least(self) -> list[int]:
        """How many pods of each group have nodes in each quorum. What others start after isn't needed once it is given
        up."""
        spec = self.valid_spec
        if not self.slots.given_up:
            return [of.least for of in spec.groups]
        gone = Counter(map(itemgetter(0), self.slots.given_up))
        left = [of.count - gone[group] for group, of in enumerate(spec.groups)]
        return [max(of.min_count, min(of.needed, count)) for of, count in zip(spec.groups, left, strict=True)]

    @property
    def provided(self) -> Set[SlotKey]:
        """The slots that count towards a quorum of nodes: those that have one, and those that have finished."""
        nodes, finished = self.slots.nodes.keys(), self.slots.finished.keys()
        return nodes | finished if finished else nodes

    def quorum_placed(self) -> bool:
        """Whether the leader and a quorum's workers have nodes, or have finished."""
        return self.spec is not None and is_quorum(self.spec, self.provided)

    @property
    def dry_run(self) -> PodsTried | None:
        """The result of the last dry run of its pods; None if there was none of the present generation."""
        tried = self.tried
        return tried if tried is not None and tried.generation == self.seen.generation else None

    def refusal(self) -> EffectFailed | None:
        """The last refusal by the API server; None once its slot has no node, because nothing updates it then."""
        slot = self.failure.slot if self.failure is not None else None
        return self.failure if slot is None or (slot.group, slot.index) in self.placements else None

    @property
    def not_before_ms(self) -> int:
        """The end of the job's back-off, in milliseconds since 1970; 0 without one."""
        begun = self.stage in (Stage.STARTING, Stage.RUNNING)
        return (self.back_offs.further if begun else self.back_offs.attempt).until_ms

    @property
    def began_ms(self) -> int:
        """When the job got the nodes of its present attempt, in milliseconds since 1970; 0 if it has none. A new epoch
        knows it from the status."""
        scheduled, since_ms = self.times.turned.get("Scheduled", (False, 0))
        if scheduled and since_ms:
            return since_ms
        return self.times.stage_ms if self.placements else 0

    @property
    def room_since_ms(self) -> int:
        """As `began_ms`, but of nodes that others had to leave first, when they had left."""
        return max(self.began_ms, self.times.active_since_ms)

    @property
    def awaits_room(self) -> bool:
        """Whether the job has nodes that others are still to leave, so it hasn't begun there."""
        return self.slots.room is not None

    def short(self) -> bool:
        """Whether the job has started and a part of its quorum lacks nodes or is refused."""
        if self.stage not in (Stage.STARTING, Stage.RUNNING) or self.spec is None:
            return False
        if not self.quorum_placed():
            return True
        return self.failure is not None and not is_quorum(self.spec, self.bound.keys() | self.slots.finished.keys())


@lru_cache
def _conditions(
    stage: Stage, schedule_state: ScheduleState, suspended: bool, ready: bool
) -> tuple[tuple[str, bool], ...]:
    return (
        ("Scheduled", schedule_state in (ScheduleState.SUCCEED, ScheduleState.PARTLY)),
        ("Running", stage == Stage.RUNNING),
        (READY, ready),
        ("Succeeded", stage == Stage.SUCCEEDED),
        ("Failed", stage == Stage.FAILED),
        ("Suspended", suspended),
    )


def _copied(value: Any) -> Any:
    """A copy of all mutable parts."""
    if isinstance(value, dict):
        deep = bool(value) and bool(_parts_of(next(iter(value.values()))))
        return {key: _copied(item) for key, item in value.items()} if deep else dict(value)
    names = _parts_of(value)
    if not names:
        return value
    parts = [getattr(value, name) for name in names]
    return type(value)(*[part if type(part) in _PLAIN else _copied(part) for part in parts])


#: Types of most parts, which never change: a call for each would take half of the time.
_PLAIN = (int, str, bool, tuple, type(None))


#: Type → the names of its fields if it is a dataclass: to ask for them takes longer than to copy most records.
_PARTS: dict[type, tuple[str, ...]] = {}


def _parts_of(value: Any) -> tuple[str, ...]:
    """The fields of a dataclass object; none of other values."""
    kind = type(value)
    names = _PARTS.get(kind)
    if names is None:
        names = _PARTS[kind] = tuple(of.name for of in fields(kind)) if is_dataclass(kind) else ()
    return names


def expand(pods: tuple[PlacedPods, ...]) -> dict[SlotKey, str]:
    """Slot → node for every pod in a decision, in its order."""
    return {
        (placed.group, index): placed.node
        for placed in pods
        for first, last in placed.indices
        for index in range(first, last + 1)
    }


def compact(placements: dict[SlotKey, str]) -> tuple[PlacedPods, ...]:
    """The inverse of `expand`: sorted by node, then group, indices in runs."""
    by_node: dict[tuple[str, int], list[int]] = {}
    for (group, index), node in placements.items():
        by_node.setdefault((node, group), []).append(index)
    return tuple(PlacedPods(node, group, runs(sorted(by_node[node, group]))) for node, group in sorted(by_node))


def runs(indices: list[int]) -> tuple[tuple[int, int], ...]:
    """Ascending indices as inclusive runs: [0, 1, 2, 5] → ((0, 2), (5, 5))."""
    found: list[tuple[int, int]] = []
    for index in indices:
        if found and found[-1][1] == index - 1:
            found[-1] = (found[-1][0], index)
        else:
            found.append((index, index))
    return tuple(found)


def holds(pod: PodSeen) -> bool:
    """Whether a pod holds resources: bound to a node and not Succeeded or Failed."""
    return pod.node != "" and pod.phase not in TERMINAL


def record_uid(pod: PodSeen) -> str:
    """The UID of the record among the jobs that a pod has, alone or with its group; "" if it has none. It has one if no
    TYJob owns it, if it names Arranger as its scheduler, and until it ends."""
    return asked_record(pod) if pod.phase not in TERMINAL else ""


def asked_record(pod: PodSeen) -> str:
    """The same for a pod that may have ended."""
    if pod.asks is None:
        return ""
    group = pod.asks.group
    return group_uid(pod.namespace, group.name, group.kind) if group is not None else record_of(pod.uid)


def group_of(pod: PodSeen | None) -> str:
    """The UID of the record that a pod's group has while one of its pods hasn't ended; "" without a group, and for a
    pod that has failed."""
    if pod is None or pod.asks is None or pod.asks.group is None or pod.phase == Phase.FAILED:
        return ""
    return asked_record(pod)


def record_name(pod: PodSeen) -> str:
    """The name of that record."""
    group = pod.asks.group if pod.asks is not None else None
    return group_name(group.name) if group is not None else record_of(pod.name)


def pods_of_record(job: JobRecord) -> tuple[str, ...]:
    """The UIDs of the pods that the record of a pod, or of a group, is of; none for a TYJob."""
    if job.of_group:
        return tuple(sorted(job.slots.members))
    return (pod_of(job.uid),) if job.of_pods else ()


def by_group(spec: JobSpec, slots: Collection[SlotKey]) -> list[int]:
    """How many of the slots each group has, the leader's first: of worker groups those that are there as a whole."""
    counts = [0] * len(spec.groups)
    for group, _ in slots:
        counts[group] += 1
    return only_whole(spec, slots, counts) if spec.has_worker_groups else counts


def is_quorum(spec: JobSpec, slots: Collection[SlotKey]) -> bool:
    """Whether the slots are the leader's, if there is one, and those of enough workers, each of which the job has."""
    leaders = spec.groups[LEADER_GROUP].count
    if (leaders and LEADER not in slots) or len(slots) < leaders + spec.min_workers:
        return False
    return not (spec.has_minimums or spec.has_worker_groups) or not spec.workers_missing(by_group(spec, slots))


def short_set(spec: JobSpec, there: Sequence[int]) -> PodGroup | None:
    """The first worker set with fewer pods than its minimum, if these are there (by group, leader first)."""
    return next((group for group, lack in zip(spec.groups, spec.pods_missing(there), strict=True) if lack), None)


def blameless(pod: PodSeen) -> bool:
    """Whether a pod ended through no fault of its program: evicted, refused, lost, or deleted while it ran."""
    if pod.phase == Phase.FAILED and pod.deleting:
        return True
    return pod.phase in TERMINAL and pod.reason.startswith(NOT_ITS_DOING)


def ended_well(pod: PodSeen) -> bool:
    """Whether a pod's program has finished with success."""
    return pod.phase == Phase.SUCCEEDED and not blameless(pod)


def exists(spec: JobSpec, slot: SlotKey) -> bool:
    """Whether a job of this spec has the slot."""
    group, index = slot
    return 0 <= group < len(spec.groups) and 0 <= index < spec.groups[group].count


def requests_of(job: JobRecord, slot: SlotKey) -> tuple[tuple[str, int], ...]:
    """The requests of a slot's pod, as in `PodShape`."""
    return job.valid_spec.groups[slot[0]].shape.requests


def has_started(job: JobRecord) -> bool:
    """Whether a job's quorum has nodes that no other job is still to leave."""
    return job.quorum_placed() and job.slots.room is None
