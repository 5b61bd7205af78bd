"""One TYJob in the projection: what was seen of it, what was decided about it, and where its pods are.

A *placement* is a decided place on a node. Until its pod is observed it holds the capacity itself
(architecture rule 7); from then on the pod's own requests count, and the placement is *bound* to that pod.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import msgspec

from arranger.events.facts import EndCause
from arranger.events.kinds import EffectFailed, JobSeen, PodSeen, StageDecided, Waits
from arranger.model.job import ENDED, LEADER_GROUP, JobSpec, PlacedPods, ScheduleState, Stage
from arranger.model.pod import TERMINAL, PodOwner
from arranger.model.stages import StageReason
from arranger.projections.backoff import NO_BACK_OFF, BackOff

#: (group, index): a `Slot` as a plain tuple, because it is a key on the hot path.
SlotKey = tuple[int, int]

LEADER: SlotKey = (LEADER_GROUP, 0)

#: So many of a job's last decisions on its stage are remembered.
STEPS_KEPT = 4


@dataclass(slots=True)
class SlotTable:
    """The slots of one job: without a node, given up, or with a node and there no pod yet, a pod, or a pod that the API
    server refuses. `State.validate` finds a slot in two of these at once. Only the fold writes to it."""

    #: Slot → its node.
    nodes: dict[SlotKey, str] = field(default_factory=dict)
    #: Slot → UID of the pod that fills it in this attempt.
    pods: dict[SlotKey, str] = field(default_factory=dict)
    #: Slot → since when the API server refuses its pod, told in milliseconds; it isn't there yet.
    refused_ms: dict[SlotKey, int] = field(default_factory=dict)
    #: Slots that are not filled again: their set's restarts exceeded the limit.
    given_up: dict[SlotKey, None] = field(default_factory=dict)
    #: Of a job taken over from its status: slots whose pod, if it is there still, was replaced in the epoch before.
    leaving: tuple[SlotKey, ...] = ()

    def place(self, slot: SlotKey, node: str) -> None:
        """It gets a node, or another one."""
        self.nodes[slot] = node

    def fill(self, slot: SlotKey, pod_uid: str) -> None:
        """Its pod is there."""
        self.pods[slot] = pod_uid
        self.refused_ms.pop(slot, None)

    def vacate(self, slot: SlotKey) -> str:
        """Its pod is gone, and its node is kept: the pod's UID."""
        return self.pods.pop(slot)

    def refuse(self, slot: SlotKey, now_ms: int) -> None:
        """The API server refuses its pod."""
        self.refused_ms.setdefault(slot, now_ms)

    def empty(self, slot: SlotKey) -> tuple[str, str | None]:
        """It has no node any more: the node, and the UID of the pod that filled it."""
        self.refused_ms.pop(slot, None)
        return self.nodes.pop(slot), self.pods.pop(slot, None)

    def give_up(self, slots: Iterable[SlotKey]) -> None:
        """They are not filled again."""
        self.given_up.update(dict.fromkeys(slots))

    def left(self, slot: SlotKey) -> None:
        """The pod that was replaced in the epoch before is gone or going."""
        self.leaving = tuple(each for each in self.leaving if each != slot)


@dataclass(slots=True)
class LeaderRecord:
    """The leader: its address as workers are told it, and restarts of its containers and pods over all attempts."""

    address: str = ""
    restarts: int = 0
    #: This attempt's leader as it was last seen, if it had ended and its pod is gone before anybody decided on it.
    ended: PodSeen | None = None


@dataclass(slots=True)
class SetRecord:
    """One worker set. `spent` counts restarts of pods that are gone: of their containers, and re-creations after a
    failure. Times are told in milliseconds."""

    spent: int = 0
    #: When the first failure was seen that may not be answered yet; 0 for none.
    failing_since_ms: int = 0
    #: Replacements in a row, and when the last was decided.
    in_a_row: int = 0
    replaced_ms: int = 0


class Replaced(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Accepted decisions on workers that ended alone: how many, why the last of them was, and when it was told."""

    times: int = 0
    causes: tuple[EndCause, ...] = ()
    time_ms: int = 0


NOTHING_REPLACED = Replaced()


@dataclass(slots=True)
class JobTimes:
    """Since when what holds of a job, told in milliseconds; 0 where it doesn't."""

    stage_ms: int = 0
    scheduled_ms: int = 0
    waits_ms: int = 0
    infeasible_ms: int = 0
    #: A starting job lacks nodes for a part of its quorum, or pods of it are refused.
    short_ms: int = 0
    #: The first start and the end.
    start_ms: int = 0
    completion_ms: int = 0
    #: Condition → whether it holds, and since when; one that isn't here doesn't, since the TYJob was created.
    turned: dict[str, tuple[bool, int]] = field(default_factory=dict)


@dataclass(slots=True)
class BackOffs:
    """Before a new attempt, and before nodes are sought for further pods of this one."""

    attempt: BackOff = NO_BACK_OFF
    further: BackOff = NO_BACK_OFF
    #: The API server refused the job's quorum, and no quorum of it has been Running since: it goes behind others of its
    #: priority.
    held_back: bool = False

    def end(self) -> None:
        """The job is scheduled as one of which nothing is known."""
        self.attempt = self.further = NO_BACK_OFF
        self.held_back = False


@dataclass(slots=True)
class JobRecord:
    """What the log says of one TYJob. `version` is the offset of the last change that decisions depend on."""

    seen: JobSeen
    spec: JobSpec | None
    version: int
    stage: Stage = Stage.PENDING
    schedule_state: ScheduleState = ScheduleState.UNSCHEDULED
    attempt: int = 0
    slots: SlotTable = field(default_factory=SlotTable)
    leader: LeaderRecord = field(default_factory=LeaderRecord)
    #: By name; one of which nothing is known needs no record.
    sets: dict[str, SetRecord] = field(default_factory=dict)
    times: JobTimes = field(default_factory=JobTimes)
    back_offs: BackOffs = field(default_factory=BackOffs)
    #: What an edit changed that a started job may not change any more; empty while there was no such edit.
    refused: str = ""
    #: Offset at which a new epoch took the job over from its status; 0 for a job that the log saw begin.
    adopted_at: int = 0
    #: UIDs of pods that an accepted decision replaces: they fill no slot any more, and go.
    retired: dict[str, None] = field(default_factory=dict)
    #: Node → when its kubelet last refused a pod of this job, told in milliseconds.
    refusals: dict[str, int] = field(default_factory=dict)
    replaced: Replaced = NOTHING_REPLACED
    #: The last accepted decisions, for messages and conditions.
    decided: StageDecided | None = None
    #: The last of this epoch's decisions on the stage and when they were told: several may come before anybody is told.
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
        """Restarts of worker pods that are gone, by worker set, where there were any."""
        return {name: of.spent for name, of in self.sets.items() if of.spent}

    @property
    def failing(self) -> dict[str, int]:
        """Worker set → when the first failure was seen that may not be answered yet, told in milliseconds."""
        return {name: of.failing_since_ms for name, of in self.sets.items() if of.failing_since_ms}

    def copy(self) -> "JobRecord":
        """A record that can change without this one."""
        copied: JobRecord = _copied(self)
        return copied

    def of_set(self, name: str) -> SetRecord:
        """The record of a worker set, begun if there is none."""
        return self.sets.setdefault(name, SetRecord())

    @property
    def uid(self) -> str:
        """The TYJob's UID: the identity of a job; a name may be used again."""
        return self.seen.uid

    @property
    def valid_spec(self) -> JobSpec:
        """The spec of a job that has one. One whose spec is invalid has none, and is asked for nothing but its end."""
        assert self.spec is not None, f"job {self.seen.namespace}/{self.seen.name} has no valid spec"
        return self.spec

    @property
    def ended(self) -> bool:
        """Succeeded or Failed: final."""
        return self.stage in ENDED

    @property
    def active(self) -> bool:
        """A valid job that has not ended and is not being deleted."""
        return self.spec is not None and not self.seen.invalid and not self.ended and not self.seen.deleting

    @property
    def stands_still(self) -> bool:
        """Whether its user wants no pods of it: it is to end, or is suspended."""
        return self.spec is not None and (self.spec.terminating or self.spec.suspend)

    def owner_of(self, slot: SlotKey) -> PodOwner:
        """What the pod of a slot of this attempt claims: the inverse of `slot_of`."""
        group, index = slot
        return PodOwner(self.uid, self.attempt, self.valid_spec.groups[group].name, group == LEADER_GROUP, index)

    def slot_of(self, owner: PodOwner) -> SlotKey | None:
        """The slot that a pod claims, None when this attempt of the job has no such slot."""
        if self.spec is None or owner.attempt != self.attempt:
            return None
        name = owner.group_name
        for number, group in enumerate(self.spec.groups):
            if group.name == name and (number == LEADER_GROUP) == owner.leader:
                return (number, owner.index) if owner.index < group.count else None
        return None

    @property
    def suspended(self) -> bool:
        """Whether it stands still because its user suspended it."""
        return self.decided is not None and self.decided.reason == StageReason.SUSPENDED

    def conditions(self) -> tuple[tuple[str, bool], ...]:
        """The conditions of its status, in the order that they are shown in, and which of them hold."""
        return (
            ("Scheduled", self.schedule_state in (ScheduleState.SUCCEED, ScheduleState.PARTLY)),
            ("Running", self.stage == Stage.RUNNING),
            ("Succeeded", self.stage == Stage.SUCCEEDED),
            ("Failed", self.stage == Stage.FAILED),
            ("Suspended", self.suspended),
        )

    def pods_desired(self) -> int:
        """Pods of the whole job, leader included, without workers that are given up."""
        spec = self.spec
        if spec is None:
            return 0
        desired = 1 - len(self.slots.given_up)
        for group in spec.groups[
            1:
        ]:  # a loop costs half of what a sum over a generator does, and every cycle asks this
            desired += group.count
        return desired

    def quorum_placed(self) -> bool:
        """Whether the leader and at least `min_workers` workers have nodes."""
        return self.spec is not None and LEADER in self.placements and len(self.placements) > self.spec.min_workers

    def refusal(self) -> EffectFailed | None:
        """Why the API server refuses a pod that is wanted still; nothing brings news of one that isn't any more."""
        slot = self.failure.slot if self.failure is not None else None
        return self.failure if slot is None or (slot.group, slot.index) in self.placements else None

    @property
    def not_before_ms(self) -> int:
        """Before this no cycle seeks nodes for it, in milliseconds since 1970; 0 where it doesn't back off."""
        begun = self.stage in (Stage.STARTING, Stage.RUNNING)
        return (self.back_offs.further if begun else self.back_offs.attempt).until_ms

    def short(self) -> bool:
        """Whether the job has begun to start and a part of its quorum isn't to be had."""
        if self.stage != Stage.STARTING or self.spec is None:
            return False
        there = LEADER in self.bound and len(self.bound) > self.spec.min_workers
        return not self.quorum_placed() or (self.failure is not None and not there)


def _copied(value: Any) -> Any:
    """A copy of all that can change."""
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


def exists(spec: JobSpec, slot: SlotKey) -> bool:
    """Whether a job of this spec has the slot."""
    group, index = slot
    return 0 <= group < len(spec.groups) and 0 <= index < spec.groups[group].count


def requests_of(job: JobRecord, slot: SlotKey) -> tuple[tuple[str, int], ...]:
    """What the pod of a slot requests, as in `PodShape`."""
    return job.valid_spec.groups[slot[0]].shape.requests
