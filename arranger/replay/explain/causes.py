"""Why a job was restarted, replaced, suspended or failed: each such decision with the event that caused it.

A decision's own message says what the controller saw. This module finds the observation, the edit or the decision that
caused it, by offset, and the part of the restart budget that it used.
"""

from collections.abc import Collection, Iterable

import msgspec

from arranger.events import kinds as k
from arranger.events.facts import DeletedPods, NodeLost, OthersOfSet, PreemptedPods, ShortageFacts
from arranger.messages.decisions import disruption_text, failure_text, gives_up, replaced_text, scaled_text, stage_text
from arranger.model.job import LEADER_GROUP, JobSpec, PodGroup, Slot, Stage
from arranger.model.node import NodeFacts
from arranger.model.pod import REFUSALS, Phase
from arranger.model.stages import StageReason
from arranger.model.text import counted, gpu_time
from arranger.projections.jobs.parts import LEADER, SlotKey
from arranger.projections.jobs.records import JobRecord, expand
from arranger.projections.state import State
from arranger.replay.explain.cluster_context import ClusterContext
from arranger.replay.explain.taken_room import Giving
from arranger.replay.reading.describe import names_of
from arranger.replay.reading.edits import changed

#: Stage decisions in a job's normal course, which need no cause.
_USUAL = frozenset(
    {
        StageReason.SCHEDULED,
        StageReason.WORKERS_READY,
        StageReason.LEADER_SUCCEEDED,
        StageReason.WORKERS_SUCCEEDED,
        StageReason.ADOPTED,
    }
)


#: The field of the spec whose edit causes these decisions; empty for any field.
_EDITED = {
    StageReason.SUSPENDED: "suspend",
    StageReason.RESUMED: "suspend",
    StageReason.TERMINATED: "terminating",
    StageReason.INVALID_SPEC: "",
    StageReason.TEMPLATE_EDITED: "",
}

#: The reasons of consequences without a decision.
RECREATED = "PodRecreated"
DELETED = "PodDeleted"
RESTARTED = "ContainerRestarted"
SCALED_DOWN = "ScaledDown"

#: Of pods that leave together, so many are named.
_NAMED = 3


class CausingEvent(msgspec.Struct, frozen=True):
    """A causing event in words; `offset` is 0 if it is before the part of the log that was read."""

    offset: int
    time_ms: int
    text: str


class Consequence(msgspec.Struct, frozen=True):
    """A decision outside the job's normal course, with its causes, oldest first.

    `what` is the new stage, "Replaced" or "GivenUp"; `budget` is the used part of the restart budget at that time.
    "Restarted" is not a decision of Arranger: a kubelet restarted a container by the pod's restart policy. Neither is
    "Replaced" with the reason `RECREATED`: a worker's pod was deleted without a decision, and its slot was filled
    again. "Deleted" is said until then. "Scaled": an edit of the job took pods out of their slots.
    """

    offset: int
    time_ms: int
    what: str
    reason: str
    message: str
    causes: tuple[CausingEvent, ...]
    budget: str
    #: The facts of the message if it explains why the job has no nodes.
    shortage: ShortageFacts | None = None


class _PodHistory(msgspec.Struct):
    """One slot in one attempt: its node, and the event of its pod that calls for a decision (`cause`)."""

    node: str = ""
    cause: CausingEvent | None = None
    pod_uid: str = ""
    restarts: int = 0
    #: The event since which the pod is being deleted or is deleted, and what disrupted it then, in words.
    going: CausingEvent | None = None
    disrupted: str = ""
    failed: bool = False
    #: A decision or an edit took the pod out of its slot, before it was deleted.
    answered: bool = False

    def begin_pod(self, uid: str) -> None:
        """Another pod fills the slot."""
        self.pod_uid, self.cause, self.restarts, self.going, self.disrupted = uid, None, 0, None, ""
        self.failed = self.answered = False


class PodHistories:
    """Records the events of one job's pods, and finds the causes of decisions among them."""

    def __init__(self, uid: str, around: ClusterContext) -> None:
        self._uid = uid
        self._around = around
        self._of: dict[tuple[int, SlotKey], _PodHistory] = {}
        self._slot_of_pod: dict[str, tuple[int, SlotKey]] = {}
        self._names: dict[str, str] = {}
        self._started: CausingEvent | None = None
        self._infeasible: CausingEvent | None = None
        self._refused: CausingEvent | None = None
        self._failed: CausingEvent | None = None
        self._created: CausingEvent | None = None
        self._refused_pods: dict[str, None] = {}
        #: Node → the failure of a pod that its kubelet refused. The job avoids the node because of it.
        self.refused_by: dict[str, CausingEvent] = {}
        #: Name of a pod → how often its containers, or the pod itself, have ended and were tried again, or failed.
        self.failures: dict[str, int] = {}

    def begin(self, job: JobRecord, state: State) -> None:
        """Take over a job that existed before the first entry: its pods' nodes and their restarts so far."""
        for slot, node in job.placements.items():
            uid = job.bound.get(slot, "")
            pod = state.pods.get(uid)
            history = _PodHistory(node, None, uid, pod.restarts if pod is not None else 0)
            self._of[job.attempt, slot] = history
            if pod is not None:
                self._slot_of_pod[uid], self._names[uid] = (job.attempt, slot), pod.name
                self._count(pod)

    def placed(self, event: k.Placed) -> None:
        for slot, node in expand(event.pods).items():
            self._of.setdefault((event.attempt, slot), _PodHistory()).node = node

    def seen(self, offset: int, time_ms: int, pod: k.PodSeen, job: JobRecord | None, state: State) -> list[Consequence]:
        """Record an observation of a pod of the job. Returns consequences that have no decision: a container was
        restarted, or a pod was replaced. `job` and `state` are those after the event."""
        owner = pod.owner
        if owner is None or job is None or job.spec is None:
            return []
        number = next((n for n, group in enumerate(job.spec.groups) if group.name == owner.group_name), None)
        if number is None:
            return []
        self._count(pod)
        key = (owner.attempt, (number, owner.index))
        before = pod.uid in self._slot_of_pod
        self._slot_of_pod[pod.uid], self._names[pod.uid] = key, pod.name
        history = self._of.setdefault(key, _PodHistory())
        found: list[Consequence] = []
        # A late applier may create a pod of an earlier attempt. Such a pod fills no slot.
        fills = owner.attempt == job.attempt and job.bound.get(key[1]) == pod.uid
        if history.pod_uid != pod.uid:
            if before and not fills:  # an earlier pod of the slot, seen once more while it goes
                return []
            found += self._next_pod(offset, time_ms, pod, key, job=job if fills else None, state=state)
        history.node = pod.node or history.node
        if fills and pod.restarts > history.restarts:
            budget = budget_text(job, state, (number,), told=key[1])
            found.append(Consequence(offset, time_ms, "Restarted", RESTARTED, _restarted(pod), (), budget))
        self._keep_cause(offset, time_ms, pod, history)
        return found

    def _count(self, pod: k.PodSeen) -> None:
        self.failures[pod.name] = max(self.failures.get(pod.name, 0), pod.restarts + (pod.phase == Phase.FAILED))

    def _next_pod(
        self,
        offset: int,
        time_ms: int,
        pod: k.PodSeen,
        key: tuple[int, SlotKey],
        *,
        job: JobRecord | None,
        state: State,
    ) -> list[Consequence]:
        """Another pod is in the slot, and fills it if there is a `job`: what happened to the one before it."""
        history, group = self._of[key], key[1][0]
        told = job is not None and history.pod_uid and not history.answered and group != LEADER_GROUP
        found = []
        if told and job is not None:
            others, budget = _others_too(job, key[1]), budget_text(job, state, (group,))
            found = [self._recreated(offset, time_ms, pod, key, others=others, budget=budget)]
        history.begin_pod(pod.uid)
        return found

    def leaves(self, pod_uid: str, state: State) -> None:
        """A pod of the job is being deleted or is gone; `state` is as before that. If its slot wasn't its own any more,
        no other client deleted it."""
        key, job = self._slot_of_pod.get(pod_uid), state.jobs.get(self._uid)
        if key is None or job is None or (history := self._of[key]).pod_uid != pod_uid or history.going is not None:
            return
        attempt, slot = key
        stays = attempt == job.attempt and job.bound.get(slot) == pod_uid and pod_uid not in job.retired
        if not stays or job.ended or job.stands_still or job.seen.deleting:
            history.answered = True

    def _recreated(
        self, offset: int, time_ms: int, pod: k.PodSeen, key: tuple[int, SlotKey], *, others: str, budget: str
    ) -> Consequence:
        """The consequence of a new worker pod whose predecessor was deleted without a decision, and which `others`
        restarted with it, in words."""
        history = self._of[key]
        lost = self._node_lost(*key) if pod.node != history.node else None
        cause = lost or history.going
        node = f" on {pod.node or history.node}" if pod.node or history.node else ""
        counted = "" if history.failed else "; no restart counted"
        message = f"{pod.name} {_how(history, lost)}; replaced{node}{others}{counted}"
        causes = (cause,) if cause is not None else ()
        return Consequence(offset, time_ms, "Replaced", RECREATED, message, causes, budget)

    def not_replaced(self, job: JobRecord, state: State) -> list[Consequence]:
        """The workers' pods that were deleted without a decision, and whose successors weren't seen yet."""
        found = []
        for (attempt, slot), history in self._of.items():
            if attempt != job.attempt or slot not in job.placements or slot[0] == LEADER_GROUP:
                continue
            if history.going is None or history.answered or job.bound.get(slot, "") not in ("", history.pod_uid):
                continue
            node = f" on {history.node}" if history.node else ""
            then = "once it is gone, its next pod starts" if slot in job.bound else "its next pod wasn't seen yet"
            message = f"{self._names[history.pod_uid]}{node} {_how(history, self._node_lost(attempt, slot))}; {then}"
            message += _others_too(job, slot) if slot not in job.bound else ""
            going, budget = history.going, budget_text(job, state, (slot[0],))
            found.append(Consequence(going.offset, going.time_ms, "Deleted", DELETED, message, (), budget))
        return found

    def edited(self, offset: int, time_ms: int, job: JobRecord | None, state: State) -> list[Consequence]:
        """The consequence of an edit by which pods lose their slots."""
        edit = next((one for one in self._around.edits.get(self._uid, ()) if one.offset == offset), None)
        if edit is None or edit.before is None or edit.after is None or job is None:
            return []
        fewer, leaving = _scaled_down(edit.before, edit.after), self._without_slot(job)
        if not fewer or not leaving:
            return []
        more = f" and {len(leaving) - _NAMED} more" if len(leaving) > _NAMED else ""
        pods = f"{', '.join(leaving[:_NAMED])}{more} {'leaves' if len(leaving) == 1 else 'leave'}"
        message = f"{scaled_text(fewer, edit.after)}, so {pods}; no restart counted"
        cause = CausingEvent(offset, time_ms, f"its spec was edited: {changed(edit.before, edit.after)}")
        return [Consequence(offset, time_ms, "Scaled", SCALED_DOWN, message, (cause,), budget_text(job, state))]

    def _without_slot(self, job: JobRecord) -> list[str]:
        """The pods of the present attempt that exist, aren't being deleted and have no slot."""
        return [
            self._names[history.pod_uid]
            for (attempt, slot), history in sorted(self._of.items())
            if attempt == job.attempt and history.pod_uid and history.going is None and slot not in job.bound
        ]

    def _keep_cause(self, offset: int, time_ms: int, pod: k.PodSeen, history: _PodHistory) -> None:
        """Keep what happened to a pod as the cause of later decisions."""
        why = failure_text(pod.ended, pod.reason or pod.message)
        said = f" ({why})" if why else ""
        if pod.restarts > history.restarts:
            history.restarts = pod.restarts
            times = counted(pod.restarts, "time")
            history.cause = CausingEvent(offset, time_ms, f"pod {pod.name} restarted {times}{said}")
        words = ""
        if pod.deleting and history.going is None:
            history.disrupted = disruption_text(pod.reason)
            history.going = CausingEvent(offset, time_ms, _deleted(pod, history.disrupted))
        if pod.phase == Phase.FAILED:
            history.failed = True
            words = f"pod {pod.name} failed{said}"
        elif pod.deleting:
            words = _deleted(pod, history.disrupted)
        elif pod.waiting:
            words = f"pod {pod.name} can't start ({pod.waiting})"
        if pod.phase == Phase.FAILED and pod.reason.startswith(REFUSALS) and pod.uid not in self._refused_pods:
            self._refused_pods[pod.uid] = None
            self.refused_by[pod.node] = CausingEvent(offset, time_ms, f"{pod.node} refused pod {pod.name}{said}")
        if words and (
            history.cause is None or (not history.cause.text.startswith(words) and pod.phase == Phase.FAILED)
        ):
            history.cause = CausingEvent(offset, time_ms, words)

    def pod_gone(self, offset: int, time_ms: int, pod_uid: str) -> None:
        """A pod of the job was deleted; an earlier cause remains."""
        key = self._slot_of_pod.get(pod_uid)
        history = self._of.get(key) if key is not None else None
        if history is None or history.pod_uid != pod_uid:
            return
        deleted = CausingEvent(offset, time_ms, f"pod {self._names[pod_uid]} was deleted")
        history.cause, history.going = history.cause or deleted, history.going or deleted

    def job_seen(self, offset: int, time_ms: int) -> None:
        self._created = self._created or CausingEvent(offset, time_ms, "the job was created with this spec")

    def waits(self, offset: int, time_ms: int, event: k.Waits) -> None:
        if not event.shortage.infeasible:
            self._infeasible = None
        elif self._infeasible is None:
            text = "from here on, its quorum doesn't fit even an empty cluster of these nodes"
            self._infeasible = CausingEvent(offset, time_ms, text)

    def effect_failed(self, offset: int, time_ms: int, event: k.EffectFailed) -> None:
        self._failed = CausingEvent(offset, time_ms, f"the API server refused to {event.effect}: {event.message}")
        if event.permanent:
            self._refused = self._failed

    def started(self, offset: int, time_ms: int) -> None:
        """The job starts because its quorum got nodes."""
        self._started = CausingEvent(offset, time_ms, "it was started")

    def decided(
        self,
        offset: int,
        time_ms: int,
        event: k.StageDecided | k.WorkersReplaced,
        job: JobRecord | None,
        state: State,
    ) -> Consequence | None:
        """The consequence of an accepted decision; None in the job's normal course. `job` is as after the event."""
        if isinstance(event, k.WorkersReplaced):
            causes = self._of_workers(event)
            budget = budget_text(job, state)
            words = replaced_text(event.causes, *names_of(job))
            what = "GivenUp" if gives_up(event.causes) else "Replaced"
            return Consequence(offset, time_ms, what, "WorkersReplaced", words, causes, budget)
        if event.reason == StageReason.SCHEDULED:
            self.started(offset, time_ms)
        if event.reason in _USUAL:
            return None
        causes = tuple(cause for cause in self._causes(event, offset) if cause is not None)
        return Consequence(
            offset,
            time_ms,
            event.stage,
            event.reason,
            stage_text(event),
            causes,
            budget_text(job, state),
            shortage_in(event),
        )

    @staticmethod
    def gave_room(offset: int, time_ms: int, gave: Giving, job: JobRecord | None, state: State) -> Consequence:
        """The consequence of a decision that took pods of the job for another one."""
        if gave.whole:
            decided = k.StageDecided("", 0, 0, Stage.RESCHEDULING, StageReason.PREEMPTED, gave.taken_by)
            what, message = str(Stage.RESCHEDULING), stage_text(decided)
        else:
            cause = PreemptedPods(Slot(0, 0), gave.pods, gave.taken_by)
            what, message = "Replaced", replaced_text((cause,), None)
        message += f"; {gpu_time(gave.lost_ms)} of its work are lost; no restart counted"
        return Consequence(offset, time_ms, what, StageReason.PREEMPTED, message, (), budget_text(job, state))

    def _causes(self, event: k.StageDecided, before: int) -> tuple[CausingEvent | None, ...]:
        if isinstance(event.facts, NodeLost) and event.facts.awaited:
            return (self._lost(event.facts.node),)
        match event.reason:
            case StageReason.WORKERS_LOST | StageReason.WORKERS_FAILED | StageReason.WORKER_ENDED:
                return self._of_attempt(event.attempt, before)
            case StageReason.QUORUM_INCOMPLETE:
                return self._of_attempt(event.attempt, before) or (self._failed,)
            case edited if edited in _EDITED:
                return (self._edit(_EDITED[edited]) or self._created,)
            case StageReason.DEADLINE_EXCEEDED:
                return self._deadline()
            case _:
                return (self._cause(event.reason, event.attempt),)

    def _cause(self, reason: StageReason, attempt: int) -> CausingEvent | None:
        """The cause of a decision that has at most one."""
        match reason:
            case StageReason.NODE_LOST:
                return self._node_lost(attempt, LEADER)
            case StageReason.ROOM_TAKEN:
                return self._room_taken(attempt)
            case StageReason.UNSCHEDULABLE:
                return self._infeasible
            case StageReason.POD_REFUSED:
                return self._refused
            case _:
                history = self._of.get((attempt, LEADER))
                return history.cause if history is not None else None

    def _edit(self, field: str) -> CausingEvent | None:
        """The last edit of this field of the spec, or of any field if `field` is empty."""
        for edit in reversed(self._around.edits.get(self._uid, [])):
            before, after = edit.before, edit.after
            if before is None or after is None:
                return CausingEvent(
                    edit.offset, edit.time_ms, f"its spec was edited and is {'in' if after is None else ''}valid"
                )
            if not field or getattr(before, field) != getattr(after, field):
                return CausingEvent(edit.offset, edit.time_ms, f"its spec was edited: {changed(before, after)}")
        return None

    def _deadline(self) -> tuple[CausingEvent | None, ...]:
        for edit in reversed(self._around.edits.get(self._uid, [])):
            if (
                self._started is not None
                and edit.offset > self._started.offset
                and edit.before is not None
                and edit.after is not None
                and edit.before.deadline_s != edit.after.deadline_s
            ):
                text = f"activeDeadlineSeconds was set to {edit.after.deadline_s}"
                return (self._started, CausingEvent(edit.offset, edit.time_ms, text))
        return (self._started,)

    def _room_taken(self, attempt: int) -> CausingEvent | None:
        """The last foreign pod that was seen on the leader's node, or that the node offers less, if that came later."""
        history = self._of.get((attempt, LEADER))
        if history is None:
            return None
        came = self._around.last_on.get(history.node)
        for turn in reversed(self._around.turns.get(history.node, [])):
            if came is not None and turn.offset < came.offset:
                break
            if turn.before is not None and turn.after is not None and _offers_less(turn.before, turn.after):
                return CausingEvent(turn.offset, turn.time_ms, f"node {history.node} offers less than before")
        return (
            CausingEvent(came.offset, came.time_ms, f"pod {came.name} appeared on the node")
            if came is not None
            else None
        )

    def _of_workers(self, event: k.WorkersReplaced) -> tuple[CausingEvent, ...]:
        causes = []
        for worker in event.workers:
            key = (event.attempt, (worker.slot.group, worker.slot.index))
            history = self._of.get(key)
            if history is not None:
                causes.append(history.cause or self._node_lost(*key))
                history.answered = True
        return _in_order(causes)

    def _of_attempt(self, attempt: int, before: int) -> tuple[CausingEvent, ...]:
        """The causes that the workers of an attempt have up to the offset `before`."""
        causes = [
            history.cause or self._node_lost(attempt, slot)
            for (of_attempt, slot), history in self._of.items()
            if of_attempt == attempt and slot[0] != LEADER_GROUP
        ]
        return _in_order(cause for cause in causes if cause is not None and cause.offset < before)

    def _node_lost(self, attempt: int, slot: SlotKey) -> CausingEvent | None:
        history = self._of.get((attempt, slot))
        return self._lost(history.node) if history is not None and history.node else None

    def _lost(self, node: str) -> CausingEvent | None:
        """That a node isn't ready, or is gone; None if it is ready."""
        lost: CausingEvent | None = None
        for turn in self._around.turns.get(node, []):
            if turn.after is not None and turn.after.ready:
                lost = None
            elif lost is None:
                how = "was deleted" if turn.after is None else "became not ready"
                lost = CausingEvent(turn.offset, turn.time_ms, f"node {node} {how}")
        return lost


def _others_too(job: JobRecord, slot: SlotKey) -> str:
    """Which other workers restart because somebody deleted the pod of this one, in words; empty for none."""
    match job.replaced.causes:
        case (DeletedPods(first=first), OthersOfSet(count=count)) if (first.group, first.index) == slot:
            return f"; {counted(count, 'other worker')} of {job.valid_spec.groups[slot[0]].name} restarted too"
    return "; the others of its worker group restarted too" if job.valid_spec.groups[slot[0]].group_size > 1 else ""


def _restarted(pod: k.PodSeen) -> str:
    why = f" ({failure_text(pod.ended, '')})" if pod.ended is not None else ""
    return f"a container of {pod.name} was restarted by its kubelet{why}"


def _deleted(pod: k.PodSeen, disrupted: str) -> str:
    return f"pod {pod.name} {disrupted or 'is being deleted'}"


def _offers_less(before: NodeFacts, after: NodeFacts) -> bool:
    """Whether a node has less of some resource."""
    now = dict(after.allocatable)
    return any(now.get(name, 0) < amount for name, amount in before.allocatable)


def _scaled_down(before: JobSpec, after: JobSpec) -> list[tuple[int, int, int]]:
    """The worker sets that have fewer workers, as `scaled_text` takes them."""
    counts = {of.name: of.count for of in before.groups}
    found = ((number, counts.get(of.name, 0), of.count) for number, of in enumerate(after.groups))
    return [of for of in found if of[2] < of[1]]


def _how(history: _PodHistory, lost: CausingEvent | None) -> str:
    """What happened to a pod that was deleted without a decision."""
    if lost is not None:
        return "was lost with its node"
    return history.disrupted or "was deleted by another client"


def _in_order(causes: Iterable[CausingEvent | None]) -> tuple[CausingEvent, ...]:
    """The known causes, oldest first, one per offset."""
    found = {cause.offset: cause for cause in causes if cause is not None}
    return tuple(found[offset] for offset in sorted(found))


def shortage_in(event: k.Event) -> ShortageFacts | None:
    """The facts of an event that explains why a job has no nodes; None for other events."""
    return event.shortage if isinstance(event, k.Waits | k.StageDecided) else None


def restarts_used(job: JobRecord, state: State) -> dict[str, int]:
    """Group name → restarts that count against the limit: the leader's, and of each worker set those of the worker with
    the most. In logs without restart policies, those of the whole set. A worker's failure counts at once, so beyond the
    limit the last one is no restart."""
    if job.spec is None:
        return {}
    groups = job.spec.groups
    earlier = {group.name: job.spent.get(group.name, 0) for group in groups}
    earlier[groups[LEADER_GROUP].name] = job.leader.restarts
    for (group, _), uid in job.bound.items():
        pod = state.pods.get(uid)
        if pod is not None and pod.restarts:
            earlier[groups[group].name] += pod.restarts
    return {
        group.name: earlier[group.name] if _of_whole_set(group, number) else _most_charged(job, number)[1]
        for number, group in enumerate(groups)
        if number or group.count
    }


def _of_whole_set(group: PodGroup, number: int) -> bool:
    """Whether restarts don't count by slot: the leader's without a window, and those of pods of others."""
    return group.restart is None or (number == LEADER_GROUP and group.restart.window_s is None)


def _most_charged(job: JobRecord, number: int) -> tuple[int, int]:
    """The first worker of a set with the most restarts that count against its limit, and their number."""
    counts = [(index, count) for (group, index), (count, _) in sorted(job.slots.charged.items()) if group == number]
    return max(counts, key=lambda of: of[1], default=(0, 0))


def _worker(job: JobRecord, number: int, told: SlotKey | None) -> tuple[int, int]:
    """The worker that stands for its set, and its restarts that count."""
    if told is not None and told[0] == number and told in job.slots.charged:
        return told[1], job.slots.charged[told][0]
    return _most_charged(job, number)


def _beyond(who: str, count: int, limit: int, number: int) -> str:
    """What is beyond the limit: restarts of the leader, and failures of a worker, the last of which is no restart."""
    told = count if number == LEADER_GROUP else f"failed {counted(count, 'time')}"
    return f"{who} {told} (limit {limit})"


def budget_text(
    job: JobRecord | None, state: State, about: Collection[int] | None = (), *, told: SlotKey | None = None
) -> str:
    """The used part of the restart budget in words: of the leader, of worker sets with restarts, and of the groups with
    the numbers `about` (None: all groups). A set is told of by its worker with the most restarts, but that of the slot
    `told` by this one."""
    if job is None or job.spec is None:
        return ""
    parts = []
    for number, (name, used) in enumerate(restarts_used(job, state).items(), start=not job.spec.has_leader):
        limit, count = job.spec.restart_of(number).limit, used
        who = "leader" if number == LEADER_GROUP else name
        if count and number != LEADER_GROUP and job.spec.groups[number].restart is not None:
            index, count = _worker(job, number, told)
            who = f"{name}-{index}"
        if count or number == LEADER_GROUP or about is None or number in about:
            parts.append(f"{who} {count} of {limit}" if count <= limit else _beyond(who, count, limit, number))
    parts += [f"{len(job.slots.given_up)} given up"] if job.slots.given_up else []
    return ", ".join(parts)
