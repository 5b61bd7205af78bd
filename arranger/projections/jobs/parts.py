"""The parts of a job's record in the projection: its slots, its leader, its worker sets, times and back-offs.

Only the fold changes them.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum

import msgspec

from arranger.events.facts import EndCause
from arranger.events.kinds import EffectFailed, PodSeen, Preempted, StageDecided
from arranger.model.job import LEADER_GROUP
from arranger.model.pod import DISRUPTED, REFUSALS, STOPPED, Failure, Phase
from arranger.projections.jobs.backoff import NO_BACK_OFF, BackOff

#: (group, index): a `Slot` as a plain tuple, because it is a key on the hot path.
SlotKey = tuple[int, int]

LEADER: SlotKey = (LEADER_GROUP, 0)

#: Prefixes of a pod's reason for an end that its program didn't cause. Such an end doesn't use the restart budget. A
#: program that saves its state and exits successfully because it is stopped hasn't completed its work.
NOT_ITS_DOING = (
    "Evicted", "Preempt", "NodeLost", "NodeShutdown", "Shutdown", "Terminated", DISRUPTED, STOPPED, *REFUSALS,
)  # fmt: skip

#: Replacements in a worker set that are further apart than this are not in a row.
STREAK_MS = 600_000

#: For each of many pods: to look up a member of an enumeration takes as long as the comparison.
_RUNNING = Phase.RUNNING

#: How many of a job's last decisions on its stage are kept, and of its last changes of counts.
STEPS_KEPT = 4


#: The effect of an `EffectFailed` about a claim whose volume is to be made for the node of a slot.
PROVISION = "provision"
#: The effect of an `EffectFailed` about a pod that gives room.
EVICT = "evict"
#: The effect of an `EffectFailed` about a request for nodes, which has no slot either.
ASK = "ask"


@dataclass(slots=True)
class SlotTable:
    """The slots of one job: each has no node, is given up, has finished, or has a node with no pod yet, a pod, or a
    refused pod.
    `consistency.validate` reports a slot in two of these states. Only the fold changes the table."""

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
    #: Slots whose pods have finished and done their part (`JobSpec.keeps_finished`): they need no node and no pod.
    finished: dict[SlotKey, None] = field(default_factory=dict)
    #: The decision by which other jobs gave room for these nodes, until the job starts or loses them.
    room: Preempted | None = None
    #: Why the API server last refused to evict a pod that gives room, until a pod of the job is gone.
    unevicted: EffectFailed | None = None
    #: The slots whose pods are ready, and their number by group: it is needed at each change of one of thousands of
    #: pods. They and `not_running` follow from the pods, so a snapshot doesn't have them.
    ready: dict[SlotKey, None] = field(default_factory=dict)
    ready_counts: dict[int, int] = field(default_factory=dict)
    #: The slots whose pods don't run, with their phases: few of the pods of a cluster, which nobody has to go through.
    not_running: dict[SlotKey, str] = field(default_factory=dict)
    #: Of the record of a group of pods that no TYJob owns: the UID of each pod → its slot. The pod may still wait for a
    #: node, or have finished. `names` are the pods' names by slot; they follow from the pods.
    members: dict[str, SlotKey] = field(default_factory=dict)
    names: dict[SlotKey, str] = field(default_factory=dict)
    #: The UIDs of the jobs in whose reserved room the job is a guest, as long as they have their reservations.
    hosts: tuple[str, ...] = ()
    #: Slots that got such room later, while the job had other nodes → the UIDs of these jobs.
    lent: dict[SlotKey, tuple[str, ...]] = field(default_factory=dict)
    #: The UIDs of the guests that left for the job, until it has been Running. They aren't its guests again before.
    asked: tuple[str, ...] = ()
    #: Whether others gave room for these nodes. A job without nodes keeps it until it gets the next ones.
    took: bool = False
    #: Whether the pods show that the job has succeeded. Its queue counts none of its nodes any more.
    done: bool = False
    #: Counts the observations of the job's pods. It belongs to this process, as `State.scheduling_changes` does.
    pod_changes: int = field(default=0, compare=False)

    def place(self, slot: SlotKey, node: str) -> None:
        self.nodes[slot] = node

    def fill(self, slot: SlotKey, pod: PodSeen) -> None:
        self.pods[slot] = pod.uid
        self.refused_ms.pop(slot, None)
        self.note(slot, pod)

    def note(self, slot: SlotKey, pod: PodSeen) -> None:
        """Record whether the pod in a slot runs, and whether it is ready."""
        if pod.phase != _RUNNING:
            self.not_running[slot] = pod.phase
        elif self.not_running:
            self.not_running.pop(slot, None)
        ready = pod.ready and not pod.deleting  # as `is_ready`, for each of many pods
        if ready != (slot in self.ready):
            self._turn(slot, ready=ready)

    def _forget_pod(self, slot: SlotKey) -> None:
        self.not_running.pop(slot, None)
        if slot in self.ready:
            self._turn(slot, ready=False)

    def _turn(self, slot: SlotKey, *, ready: bool) -> None:
        if ready:
            self.ready[slot] = None
        else:
            del self.ready[slot]
        self.ready_counts[slot[0]] = self.ready_counts.get(slot[0], 0) + (1 if ready else -1)

    def vacate(self, slot: SlotKey) -> str:
        """Detach a slot's deleted pod but keep its node; returns the pod's UID."""
        self._forget_pod(slot)
        return self.pods.pop(slot)

    def refuse(self, slot: SlotKey, now_ms: int) -> None:
        """Record that the API server refuses a slot's pod; the first time is kept."""
        self.refused_ms.setdefault(slot, now_ms)

    def empty(self, slot: SlotKey) -> tuple[str, str | None]:
        """Remove a slot's node and pod; returns the node and the pod's UID."""
        self.refused_ms.pop(slot, None)
        self.failures.pop(slot, None)
        self.lent.pop(slot, None)
        self._forget_pod(slot)
        return self.nodes.pop(slot), self.pods.pop(slot, None)

    def give_up(self, slots: Iterable[SlotKey]) -> None:
        self.given_up.update(dict.fromkeys(slots))

    def over(self, slot: SlotKey) -> bool:
        """Whether a slot gets no further pod: it is given up, or has finished."""
        return slot in self.given_up or slot in self.finished

    def lent_by(self, host: str) -> set[SlotKey]:
        """The slots that were lent room of this job."""
        return {slot for slot, hosts in self.lent.items() if host in hosts} if self.lent else set()

    def lend_again(self, lent: dict[SlotKey, tuple[str, ...]]) -> None:
        """Let those of these slots that have nodes again be lent the same room."""
        self.lent = {slot: hosts for slot, hosts in lent.items() if slot in self.nodes}

    def left(self, slot: SlotKey) -> None:
        """Remove a slot from `leaving`: its replaced pod is deleted or being deleted."""
        self.leaving = tuple(each for each in self.leaving if each != slot)


@dataclass(slots=True)
class LeaderRecord:
    """The leader: the address that workers use, and the restarts of its containers and pods over all attempts."""

    address: str = ""
    restarts: int = 0
    #: The last observation of this attempt's leader, if it was deleted before a decision on it.
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
    #: When the job ended: how many of its workers were ready or had finished, and how many had failed. None before.
    at_end: tuple[int, int] | None = None
    #: As the leader's.
    kept: tuple[str, ...] = ()
    #: Node → when a worker was last moved away because it failed there repeatedly, in milliseconds; the last few.
    avoids: dict[str, int] = field(default_factory=dict)
    #: In this attempt, the group that the set starts after was ready (`PodGroup.start_after`).
    started: bool = False


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


class Pardon(IntEnum):
    """Whether a job that took room in vain may take some once more: GIVEN if the kubelet of one node alone refused its
    pods, or others didn't leave their nodes in time: that may be about those nodes. Then it is USED."""

    NONE = 0
    GIVEN = 1
    USED = 2


class TakenRoom(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Room that a job took from others at `since_ms` (milliseconds since 1970), on these `nodes`, without having been
    Running since. `ended` is the decision by which it first lost that room again: from then on it has taken it in
    vain."""

    since_ms: int
    nodes: tuple[str, ...]
    ended: StageDecided | None = None
    pardon: Pardon = Pardon.NONE

    @property
    def in_vain(self) -> StageDecided | None:
        """`ended`, if the job takes no room therefore."""
        return None if self.pardon == Pardon.GIVEN else self.ended


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
    #: Since when the job is active, that is Starting or Running; 0 while it waits, and if the status that it was
    #: adopted from doesn't tell. `active_ms` is how long it was active before, since its start or its last preemption.
    active_since_ms: int = 0
    active_ms: int = 0
    #: When the last of the pods ended that have done their part, by its kubelet; 0 if that isn't known.
    finished_ms: int = 0


@dataclass(slots=True)
class BackOffs:
    """The back-off before a new attempt, and the one before further pods of the present attempt get nodes."""

    attempt: BackOff = NO_BACK_OFF
    further: BackOff = NO_BACK_OFF
    #: The API server refused the job's quorum, or it didn't start in time, and the job hasn't been Running since: it is
    #: queued behind other jobs of its priority.
    held_back: bool = False

    def end(self) -> None:
        """Clear all back-offs: the job is scheduled like a new one."""
        self.attempt = self.further = NO_BACK_OFF
        self.held_back = False


def is_ready(pod: PodSeen) -> bool:
    """Whether a pod is ready and stays: one that is being deleted ends soon."""
    return pod.ready and not pod.deleting
