"""Why a job was restarted, replaced, suspended or failed: each such decision with the event that caused it.

A decision's own message says what the controller saw; here it is led back to the observation, the edit or the decision
that made it so, by offset, and to what it cost of the restart budget.
"""

from collections.abc import Collection, Iterable

import msgspec

from arranger.events import kinds as k
from arranger.events.facts import ShortageFacts
from arranger.messages.decisions import replaced_text, stage_text
from arranger.model.job import LEADER_GROUP
from arranger.model.pod import REFUSALS, Phase
from arranger.model.stages import StageReason
from arranger.model.text import counted
from arranger.projections.jobs import LEADER, JobRecord, SlotKey, expand
from arranger.projections.state import State
from arranger.replay.explain.cluster_context import ClusterContext
from arranger.replay.reading.edits import changed

#: Decisions on a stage that are the way things go: nothing has to be led back.
_USUAL = frozenset(
    {StageReason.SCHEDULED, StageReason.WORKERS_READY, StageReason.LEADER_SUCCEEDED, StageReason.ADOPTED}
)


#: The field of the spec that these decisions are for.
_EDITED = {
    StageReason.SUSPENDED: "suspend",
    StageReason.RESUMED: "suspend",
    StageReason.TERMINATED: "terminating",
    StageReason.INVALID_SPEC: "",
    StageReason.TEMPLATE_EDITED: "",
}

#: Why a consequence is told that no decision stands for.
RECREATED = "PodRecreated"
RESTARTED = "ContainerRestarted"


class Cause(msgspec.Struct, frozen=True):
    """An event that something came of, in words; `offset` is 0 where it lies before what was read."""

    offset: int
    time_ms: int
    text: str


class Consequence(msgspec.Struct, frozen=True):
    """A decision on the job that isn't the usual way of things, and what it came of, oldest first.

    `what` is the stage that it brought, or "Replaced"; `budget` says what of the restart budget is used then.
    "Restarted" is no decision of Arranger's: a kubelet restarted a container, as the pod's restart policy has it. Nor
    is "Replaced" for the reason `RECREATED`: a worker's pod went by no decision, and its slot was filled again.
    """

    offset: int
    time_ms: int
    what: str
    reason: str
    message: str
    causes: tuple[Cause, ...]
    budget: str
    #: The facts of a message that says why there are no nodes.
    shortage: ShortageFacts | None = None


class _PodHistory(msgspec.Struct):
    """What is known of one slot in one attempt: its node, and what happened to its pod that needs an answer."""

    node: str = ""
    cause: Cause | None = None
    pod_uid: str = ""
    restarts: int = 0
    #: Since when the pod is on its way out or gone.
    going: Cause | None = None
    failed: bool = False
    #: A decision replaced the pod.
    answered: bool = False

    def begin_pod(self, uid: str) -> None:
        """Another pod fills the slot."""
        self.pod_uid, self.cause, self.restarts, self.going = uid, None, 0, None
        self.failed = self.answered = False


class PodHistories:
    """Notes what happened to one job's pods, and leads decisions back to it."""

    def __init__(self, uid: str, around: ClusterContext) -> None:
        self._uid = uid
        self._around = around
        #: By attempt and slot.
        self._of: dict[tuple[int, SlotKey], _PodHistory] = {}
        self._slot_of_pod: dict[str, tuple[int, SlotKey]] = {}
        self._names: dict[str, str] = {}
        self._started: Cause | None = None
        self._infeasible: Cause | None = None
        self._refused: Cause | None = None
        self._failed: Cause | None = None
        self._created: Cause | None = None
        self._refused_pods: dict[str, None] = {}
        #: Failures by node of pods that its kubelet refused: what the job avoids it for.
        self.refused_by: dict[str, Cause] = {}

    def begin(self, job: JobRecord, state: State) -> None:
        """The job was there before what is read: its pods' nodes, and what they have restarted until then."""
        for slot, node in job.placements.items():
            uid = job.bound.get(slot, "")
            pod = state.pods.get(uid)
            history = _PodHistory(node, None, uid, pod.restarts if pod is not None else 0)
            self._of[job.attempt, slot] = history
            if pod is not None:
                self._slot_of_pod[uid], self._names[uid] = (job.attempt, slot), pod.name

    def placed(self, event: k.Placed) -> None:
        for slot, node in expand(event.pods).items():
            self._of.setdefault((event.attempt, slot), _PodHistory()).node = node

    def seen(self, offset: int, time_ms: int, pod: k.PodSeen, job: JobRecord | None, state: State) -> list[Consequence]:
        """A pod of the job was seen: keep what of it is new and needs an answer. What happened without a decision is
        answered: a container that was restarted, a pod that was replaced. `job` and `state` are those after it."""
        owner = pod.owner
        if owner is None or job is None or job.spec is None:
            return []
        number = next((n for n, group in enumerate(job.spec.groups) if group.name == owner.group_name), None)
        if number is None:
            return []
        key = (owner.attempt, (number, owner.index))
        self._slot_of_pod[pod.uid], self._names[pod.uid] = key, pod.name
        history = self._of.setdefault(key, _PodHistory())
        found: list[Consequence] = []
        # A late applier may make a pod of an attempt that is over: it fills no slot.
        fills = owner.attempt == job.attempt and job.bound.get(key[1]) == pod.uid
        if history.pod_uid != pod.uid:
            if fills and history.pod_uid and not history.answered and number != LEADER_GROUP:
                found.append(self._recreated(offset, time_ms, pod, key, budget_text(job, state, (number,))))
            history.begin_pod(pod.uid)
        history.node = pod.node or history.node
        if fills and pod.restarts > history.restarts:
            message = f"a container of {pod.name} was restarted by its kubelet"
            budget = budget_text(job, state, (number,))
            found.append(Consequence(offset, time_ms, "Restarted", RESTARTED, message, (), budget))
        self._keep_cause(offset, time_ms, pod, history)
        return found

    def _recreated(
        self, offset: int, time_ms: int, pod: k.PodSeen, key: tuple[int, SlotKey], budget: str
    ) -> Consequence:
        """The pod of a worker went by no decision, and here is the next one."""
        history = self._of[key]
        lost = self._node_lost(*key) if pod.node != history.node else None
        cause = lost or history.going
        how = "went with its node" if lost is not None else "was deleted by somebody else"
        node = f" on {pod.node or history.node}" if pod.node or history.node else ""
        counted = "" if history.failed else "; no restart counted"
        message = f"{pod.name} {how}; replaced{node}{counted}"
        causes = (cause,) if cause is not None else ()
        return Consequence(offset, time_ms, "Replaced", RECREATED, message, causes, budget)

    def _keep_cause(self, offset: int, time_ms: int, pod: k.PodSeen, history: _PodHistory) -> None:
        """What of a pod needs an answer."""
        why = pod.reason or pod.message
        said = f" ({why})" if why else ""
        if pod.restarts > history.restarts:
            history.restarts = pod.restarts
            times = counted(pod.restarts, "time")
            history.cause = Cause(offset, time_ms, f"pod {pod.name} restarted {times}{said}")
        words = ""
        if pod.deleting and history.going is None:
            history.going = Cause(offset, time_ms, f"pod {pod.name} is being deleted")
        if pod.phase == Phase.FAILED:
            history.failed = True
            words = f"pod {pod.name} failed{said}"
        elif pod.deleting:
            words = f"pod {pod.name} is being deleted"
        elif pod.waiting:
            words = f"pod {pod.name} can't start ({pod.waiting})"
        if pod.phase == Phase.FAILED and pod.reason.startswith(REFUSALS) and pod.uid not in self._refused_pods:
            self._refused_pods[pod.uid] = None
            self.refused_by[pod.node] = Cause(offset, time_ms, f"{pod.node} refused pod {pod.name}{said}")
        if words and (
            history.cause is None or (not history.cause.text.startswith(words) and pod.phase == Phase.FAILED)
        ):
            history.cause = Cause(offset, time_ms, words)

    def pod_gone(self, offset: int, time_ms: int, pod_uid: str) -> None:
        """A pod of the job is gone; what ended it before is kept as the cause."""
        key = self._slot_of_pod.get(pod_uid)
        history = self._of.get(key) if key is not None else None
        if history is None or history.pod_uid != pod_uid:
            return
        deleted = Cause(offset, time_ms, f"pod {self._names[pod_uid]} was deleted")
        history.cause, history.going = history.cause or deleted, history.going or deleted

    def job_seen(self, offset: int, time_ms: int) -> None:
        self._created = self._created or Cause(offset, time_ms, "the job came with this spec")

    def waits(self, offset: int, time_ms: int, event: k.Waits) -> None:
        if not event.shortage.infeasible:
            self._infeasible = None
        elif self._infeasible is None:
            text = "from here on not even an empty cluster of these nodes could hold its quorum"
            self._infeasible = Cause(offset, time_ms, text)

    def effect_failed(self, offset: int, time_ms: int, event: k.EffectFailed) -> None:
        self._failed = Cause(offset, time_ms, f"the API server refused to {event.effect}: {event.message}")
        if event.permanent:
            self._refused = self._failed

    def started(self, offset: int, time_ms: int) -> None:
        """Its quorum got nodes, and the job starts with that."""
        self._started = Cause(offset, time_ms, "it was started")

    def decided(
        self,
        offset: int,
        time_ms: int,
        event: k.StageDecided | k.WorkersReplaced,
        job: JobRecord | None,
        state: State,
    ) -> Consequence | None:
        """An accepted decision, `job` as it stands after it; None for one that is the usual way of things."""
        if isinstance(event, k.WorkersReplaced):
            causes = self._of_workers(event)
            budget = budget_text(job, state)
            words = replaced_text(event.causes, job.spec if job is not None else None)
            return Consequence(offset, time_ms, "Replaced", "WorkersReplaced", words, causes, budget)
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

    def _causes(self, event: k.StageDecided, before: int) -> tuple[Cause | None, ...]:
        match event.reason:
            case StageReason.WORKERS_LOST | StageReason.WORKERS_FAILED:
                return self._of_attempt(event.attempt, before)
            case StageReason.QUORUM_INCOMPLETE:
                return self._of_attempt(event.attempt, before) or (self._failed,)
            case edited if edited in _EDITED:
                return (self._edit(_EDITED[edited]) or self._created,)
            case StageReason.DEADLINE_EXCEEDED:
                return self._deadline()
            case _:
                return (self._cause(event.reason, event.attempt),)

    def _cause(self, reason: StageReason, attempt: int) -> Cause | None:
        """The one cause of a decision that has no more than one."""
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

    def _edit(self, field: str) -> Cause | None:
        """The last edit of this field of the spec, of any where it is empty."""
        for edit in reversed(self._around.edits.get(self._uid, [])):
            before, after = edit.before, edit.after
            if before is None or after is None:
                return Cause(
                    edit.offset, edit.time_ms, f"its spec was edited and is {'in' if after is None else ''}valid"
                )
            if not field or getattr(before, field) != getattr(after, field):
                return Cause(edit.offset, edit.time_ms, f"its spec was edited: {changed(before, after)}")
        return None

    def _deadline(self) -> tuple[Cause | None, ...]:
        for edit in reversed(self._around.edits.get(self._uid, [])):
            if (
                self._started is not None
                and edit.offset > self._started.offset
                and edit.before is not None
                and edit.after is not None
                and edit.before.deadline_s != edit.after.deadline_s
            ):
                text = f"activeDeadlineSeconds was set to {edit.after.deadline_s}"
                return (self._started, Cause(edit.offset, edit.time_ms, text))
        return (self._started,)

    def _room_taken(self, attempt: int) -> Cause | None:
        """Who came onto the leader's node last, of those that nobody here decided on."""
        history = self._of.get((attempt, LEADER))
        came = self._around.last_on.get(history.node) if history is not None else None
        return Cause(came.offset, came.time_ms, f"pod {came.name} came onto the node") if came is not None else None

    def _of_workers(self, event: k.WorkersReplaced) -> tuple[Cause, ...]:
        causes = []
        for worker in event.workers:
            key = (event.attempt, (worker.slot.group, worker.slot.index))
            history = self._of.get(key)
            if history is not None:
                causes.append(history.cause or self._node_lost(*key))
                history.answered = True
        return _in_order(causes)

    def _of_attempt(self, attempt: int, before: int) -> tuple[Cause, ...]:
        """What happened to workers of an attempt that needs an answer still."""
        causes = [
            history.cause or self._node_lost(attempt, slot)
            for (of_attempt, slot), history in self._of.items()
            if of_attempt == attempt and slot[0] != LEADER_GROUP
        ]
        return _in_order(cause for cause in causes if cause is not None and cause.offset < before)

    def _node_lost(self, attempt: int, slot: SlotKey) -> Cause | None:
        history = self._of.get((attempt, slot))
        if history is None or not history.node:
            return None
        lost: Cause | None = None
        for turn in self._around.turns.get(history.node, []):
            if turn.after is not None and turn.after.ready:
                lost = None
            elif lost is None:
                how = "went" if turn.after is None else "became not ready"
                lost = Cause(turn.offset, turn.time_ms, f"node {history.node} {how}")
        return lost


def _in_order(causes: Iterable[Cause | None]) -> tuple[Cause, ...]:
    """The causes that there are, oldest first, one of each offset."""
    found = {cause.offset: cause for cause in causes if cause is not None}
    return tuple(found[offset] for offset in sorted(found))


def shortage_in(event: k.Event) -> ShortageFacts | None:
    """Why there are no nodes, where an event says that."""
    if isinstance(event, k.Waits):
        return event.shortage
    return event.facts.shortage if isinstance(event, k.StageDecided) else None


def restarts_used(job: JobRecord, state: State) -> dict[str, int]:
    """Restarts of the leader and of each worker set that count against the limit, by name: those of earlier pods, and
    those of containers in the pods that are there."""
    if job.spec is None:
        return {}
    names = [group.name for group in job.spec.groups]
    used = {name: job.spent.get(name, 0) for name in names}
    used[names[LEADER_GROUP]] = job.leader.restarts
    for (group, _), uid in job.bound.items():
        pod = state.pods.get(uid)
        if pod is not None and pod.restarts:
            used[names[group]] += pod.restarts
    return used


def budget_text(job: JobRecord | None, state: State, about: Collection[int] | None = ()) -> str:
    """What of the restart budget is used, in words: by the leader, by worker sets that used any, and by the groups of
    these numbers, None for all."""
    if job is None or job.spec is None:
        return ""
    limit = job.spec.restart_limit
    parts = []
    for number, (name, count) in enumerate(restarts_used(job, state).items()):
        who = "leader" if number == LEADER_GROUP else name
        if count or number == LEADER_GROUP or about is None or number in about:
            parts.append(f"{who} {count} of {limit}" if count <= limit else f"{who} {count} (limit {limit})")
    parts += [f"{len(job.slots.given_up)} given up"] if job.slots.given_up else []
    return ", ".join(parts)
