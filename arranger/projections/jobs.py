"""One TYJob in the projection: its observed state, the decisions about it, and the nodes of its pods.

A *placement* is a slot's decided node. Until its pod is observed, the placement itself uses the capacity (architecture
rule 7). From then on the pod's own requests count, and the placement is *bound* to that pod.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from functools import lru_cache
from typing import Any

import msgspec

from arranger.events.facts import EndCause
from arranger.events.kinds import EffectFailed, JobSeen, PodSeen, StageDecided, Waits
from arranger.model.faults import Fault
from arranger.model.job import ENDED, LEADER_GROUP, READY, JobSpec, PlacedPods, PodGroup, ScheduleState, Stage
from arranger.model.names import name_in_slot
from arranger.model.pod import DISRUPTED, FAILURES_KEPT, REFUSALS, STOPPED, TERMINAL, Failure, Phase, PodOwner
from arranger.model.stages import StageReason
from arranger.projections.backoff import NO_BACK_OFF, BackOff

#: (group, index): a `Slot` as a plain tuple, because it is a key on the hot path.
SlotKey = tuple[int, int]

LEADER: SlotKey = (LEADER_GROUP, 0)

#: Prefixes of a pod's reason for an end that its program didn't cause. Such an end doesn't use the restart budget. A
#: program that saves its state and exits successfully because it is stopped hasn't completed its work.
NOT_ITS_DOING = (
    "Evicted", "Preempt", "NodeLost", "NodeShutdown", "Shutdown", "Terminated", DISRUPTED, STOPPED, *REFUSALS,
)  # fmt: skip

#: How many of a job's last decisions on its stage are kept, and of its last changes of counts.
STEPS_KEPT = 4


@dataclass(slots=True)
class SlotTable:
    """The slots of one job: each has no node, is given up, or has a node with no pod yet, a pod, or a refused pod.
    `State.validate` reports a slot in two of these states. Only the fold changes the table."""

    #: Slot → its node.
    nodes: dict[SlotKey, str] = field(default_factory=dict)
    #: Slot → UID of the pod that fills it in this attempt.
    pods: dict[SlotKey, str] = field(default_factory=dict)
    #: Slot → time in milliseconds since which the API server refuses to create its pod.
    refused_ms: dict[SlotKey, int] = field(default_factory=dict)
    #: Slots that are never filled again, because their set's restarts exceeded the limit.
    given_up: dict[SlotKey, None] = field(default_factory=dict)
    #: For a job adopted from its status: slots whose pod, if it still exists, was replaced in an earlier epoch.
    leaving: tuple[SlotKey, ...] = ()
    #: Slot → its restarts that count against its limit, and the time in milliseconds of the first of them.
    charged: dict[SlotKey, tuple[int, int]] = field(default_factory=dict)
    #: Slot → how many of its pods failed in this attempt, were replaced and kept: a part of the next pod's name. A slot
    #: that an edit removes keeps its number, because it may come back.
    failed_before: dict[SlotKey, int] = field(default_factory=dict)
    #: Slot → how many of its pods failed on its node, as decisions on them counted it.
    failures: dict[SlotKey, int] = field(default_factory=dict)
    #: The slots whose pods are ready, and their number by group: it is needed at each change of one of thousands of
    #: pods. Both follow from the pods, so a snapshot doesn't have them.
    ready: dict[SlotKey, None] = field(default_factory=dict)
    ready_counts: dict[int, int] = field(default_factory=dict)

    def place(self, slot: SlotKey, node: str) -> None:
        self.nodes[slot] = node

    def fill(self, slot: SlotKey, pod: PodSeen) -> None:
        self.pods[slot] = pod.uid
        self.refused_ms.pop(slot, None)
        self.note_ready(slot, is_ready(pod))

    def note_ready(self, slot: SlotKey, ready: bool) -> None:
        """Record whether the pod in a slot is ready."""
        if ready == (slot in self.ready):
            return
        if ready:
            self.ready[slot] = None
        else:
            del self.ready[slot]
        self.ready_counts[slot[0]] = self.ready_counts.get(slot[0], 0) + (1 if ready else -1)

    def vacate(self, slot: SlotKey) -> str:
        """Detach a slot's deleted pod but keep its node; returns the pod's UID."""
        self.note_ready(slot, ready=False)
        return self.pods.pop(slot)

    def refuse(self, slot: SlotKey, now_ms: int) -> None:
        """Record that the API server refuses a slot's pod; the first time is kept."""
        self.refused_ms.setdefault(slot, now_ms)

    def empty(self, slot: SlotKey) -> tuple[str, str | None]:
        """Remove a slot's node and pod; returns the node and the pod's UID."""
        self.refused_ms.pop(slot, None)
        self.failures.pop(slot, None)
        self.note_ready(slot, ready=False)
        return self.nodes.pop(slot), self.pods.pop(slot, None)

    def give_up(self, slots: Iterable[SlotKey]) -> None:
        self.given_up.update(dict.fromkeys(slots))

    def left(self, slot: SlotKey) -> None:
        """Remove a slot from `leaving`: its replaced pod is deleted or being deleted."""
        self.leaving = tuple(each for each in self.leaving if each != slot)


@dataclass(slots=True)
class LeaderRecord:
    """The leader: the address that workers use, and the restarts of its containers and pods over all attempts."""

    address: str = ""
    restarts: int = 0
    #: The last observation of this attempt's leader, if it ended and was deleted before a decision on it.
    ended: PodSeen | None = None
    #: How containers of its pods failed in all attempts, the oldest first; the last few.
    failures: tuple[Failure, ...] = ()
    #: UIDs of its failed pods that are kept for their logs although they fill no slot, the oldest first.
    kept: tuple[str, ...] = ()


@dataclass(slots=True)
class SetRecord:
    """One worker set. `spent` counts restarts of former pods: container restarts, and re-creations after a failure.
    Times are in milliseconds."""

    spent: int = 0
    #: When the first failure was observed that isn't decided on yet; 0 for none.
    failing_since_ms: int = 0
    #: Replacements in a row, and when the last was decided.
    in_a_row: int = 0
    replaced_ms: int = 0
    #: As the leader's.
    failures: tuple[Failure, ...] = ()
    #: When the job ended: how many of its workers were ready or had finished, and how many had failed. None before, and
    #: in logs of versions that didn't record it.
    at_end: tuple[int, int] | None = None
    #: As the leader's.
    kept: tuple[str, ...] = ()
    #: Node → when a worker was last moved away because it failed there repeatedly, in milliseconds; the last few.
    avoids: dict[str, int] = field(default_factory=dict)


class Replaced(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Accepted replacements of workers within an attempt: their number, and the causes and time of the last."""

    times: int = 0
    causes: tuple[EndCause, ...] = ()
    time_ms: int = 0


NOTHING_REPLACED = Replaced()


class Scaled(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An edit of the spec that changed how many workers sets have: of each, its group and the counts before and after.
    `generation` is that of the edited TYJob."""

    generation: int
    time_ms: int
    sets: tuple[tuple[int, int, int], ...]


@dataclass(slots=True)
class JobTimes:
    """When each state of a job began, in milliseconds; 0 where it doesn't apply."""

    stage_ms: int = 0
    scheduled_ms: int = 0
    waits_ms: int = 0
    infeasible_ms: int = 0
    #: The job has started and lacks nodes for a part of its quorum, or its pods are refused.
    short_ms: int = 0
    #: The first start and the end.
    start_ms: int = 0
    completion_ms: int = 0
    #: Condition → whether it is true, and since when; a missing one is false since the TYJob's creation.
    turned: dict[str, tuple[bool, int]] = field(default_factory=dict)
    #: The last edits that changed the counts of worker sets.
    scaled: tuple[Scaled, ...] = ()


@dataclass(slots=True)
class BackOffs:
    """The back-off before a new attempt, and the one before further pods of the present attempt get nodes."""

    attempt: BackOff = NO_BACK_OFF
    further: BackOff = NO_BACK_OFF
    #: The API server refused the job's quorum, and the job hasn't been Running since: it is queued behind other jobs of
    #: its priority.
    held_back: bool = False

    def end(self) -> None:
        """Clear all back-offs: the job is scheduled like a new one."""
        self.attempt = self.further = NO_BACK_OFF
        self.held_back = False


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
        name = owner.group_name
        for number, group in enumerate(self.spec.groups):
            if group.name == name and (number == LEADER_GROUP) == owner.leader:
                slot = (number, owner.index)
                present = owner.failed_before == self.slots.failed_before.get(slot, 0)
                return slot if present and owner.index < group.count else None
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
        return name_in_slot(self.seen.name, self.owner_of(slot))

    @property
    def suspended(self) -> bool:
        """Whether the last decision suspended the job."""
        return self.decided is not None and self.decided.reason == StageReason.SUSPENDED

    def conditions(self) -> tuple[tuple[str, bool], ...]:
        """The conditions of the status, in display order, and whether each is true."""
        return _conditions(self.stage, self.schedule_state, self.suspended, self.quorum_ready)

    @property
    def ready(self) -> list[int]:
        """How many pods of each group are ready, the leader's first."""
        counts = self.slots.ready_counts
        return [counts.get(group, 0) for group in range(len(self.valid_spec.groups))]

    @property
    def quorum_ready(self) -> bool:
        """Whether the job runs and has as many ready pods as its quorum needs."""
        return self._is_running and self._has_quorum(self.ready)

    @property
    def below_quorum(self) -> bool:
        """Whether the job runs and has fewer ready pods than its quorum needs."""
        return self._is_running and not self._has_quorum(self.ready)

    @property
    def _is_running(self) -> bool:
        return self.stage == Stage.RUNNING and self.spec is not None

    def _has_quorum(self, there: Sequence[int]) -> bool:
        return there[LEADER_GROUP] > 0 and not self.valid_spec.workers_missing(there)

    def pods_desired(self) -> int:
        """The number of pods of the whole job, including the leader, without workers that are given up."""
        spec = self.spec
        if spec is None:
            return 0
        desired = 1 - len(self.slots.given_up)
        for group in spec.groups[1:]:  # a loop costs half as much as a sum over a generator, and every cycle calls this
            desired += group.count
        return desired

    def quorum_placed(self) -> bool:
        """Whether the leader and a quorum's workers have nodes."""
        return self.spec is not None and is_quorum(self.spec, self.slots.nodes)

    def refusal(self) -> EffectFailed | None:
        """The last refusal by the API server; None once its slot has no node, because nothing updates it then."""
        slot = self.failure.slot if self.failure is not None else None
        return self.failure if slot is None or (slot.group, slot.index) in self.placements else None

    @property
    def not_before_ms(self) -> int:
        """The end of the job's back-off, in milliseconds since 1970; 0 without one."""
        begun = self.stage in (Stage.STARTING, Stage.RUNNING)
        return (self.back_offs.further if begun else self.back_offs.attempt).until_ms

    def short(self) -> bool:
        """Whether the job has started and a part of its quorum lacks nodes or is refused."""
        if self.stage not in (Stage.STARTING, Stage.RUNNING) or self.spec is None:
            return False
        if not self.quorum_placed():
            return True
        return self.failure is not None and not is_quorum(self.spec, self.bound)


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
        deep = is_dataclass(next(iter(value.values()), None))
        return {key: _copied(item) for key, item in value.items()} if deep else dict(value)
    if is_dataclass(value) and not isinstance(value, type):
        return type(value)(*(_copied(getattr(value, of.name)) for of in fields(value)))
    return value


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


def is_ready(pod: PodSeen) -> bool:
    """Whether a pod is ready and stays: one that is being deleted ends soon."""
    return pod.ready and not pod.deleting


def by_group(spec: JobSpec, slots: Iterable[SlotKey]) -> list[int]:
    """How many of the slots each group has, the leader's first."""
    counts = [0] * len(spec.groups)
    for group, _ in slots:
        counts[group] += 1
    return counts


def is_quorum(spec: JobSpec, slots: Collection[SlotKey]) -> bool:
    """Whether the slots are the leader's and those of enough workers, each of which the job has."""
    if LEADER not in slots or len(slots) <= spec.min_workers:
        return False
    return not spec.has_minimums or short_set(spec, by_group(spec, slots)) is None


def short_set(spec: JobSpec, there: Sequence[int]) -> PodGroup | None:
    """The first worker set with fewer pods than its minimum, if these are there (by group, leader first)."""
    return next((group for group, lack in zip(spec.groups, spec.pods_missing(there), strict=True) if lack), None)


def blameless(pod: PodSeen) -> bool:
    """Whether a pod ended through no fault of its program: evicted, refused, lost, or deleted while it ran."""
    if pod.phase == Phase.FAILED and pod.deleting:
        return True
    return pod.phase in TERMINAL and pod.reason.startswith(NOT_ITS_DOING)


def exists(spec: JobSpec, slot: SlotKey) -> bool:
    """Whether a job of this spec has the slot."""
    group, index = slot
    return 0 <= group < len(spec.groups) and 0 <= index < spec.groups[group].count


def requests_of(job: JobRecord, slot: SlotKey) -> tuple[tuple[str, int], ...]:
    """The requests of a slot's pod, as in `PodShape`."""
    return job.valid_spec.groups[slot[0]].shape.requests
