"""Simulate the scheduler on a described cluster, with a log in memory.

The description consists of observations as a watcher would append them, and is folded like any log. Cycles then run as
in production, each with the placements of those before. No pod ever starts or ends.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from arranger.events import kinds as k
from arranger.events.log import Entry
from arranger.messages.faults import faults_text
from arranger.messages.readiness import labels_text, unset_text
from arranger.messages.shortages import reason_text
from arranger.model.config import CycleConfig
from arranger.model.job import LEADER_GROUP
from arranger.model.names import LEADER_ROLE, WORKER_ROLE
from arranger.model.quantity import quantity
from arranger.model.reasons import ReasonCounts, ReasonKind
from arranger.model.text import counted
from arranger.projections.fold import apply_entry
from arranger.projections.folding.slots import forget_assumed
from arranger.projections.jobs.parts import SlotKey
from arranger.projections.jobs.records import JobRecord, expand
from arranger.projections.state import Changes, State
from arranger.replay.reading.describe import as_object, decided_for, message_of
from arranger.replay.reading.queues import QueueLine, queue_list
from arranger.replay.what_if.hypothesis import pods_left, say
from arranger.scheduling import (
    BUILT_IN,
    ClusterView,
    CycleObserver,
    Filters,
    PlacementTry,
    Policies,
    Shortage,
    neighbour_of,
    take_cycle,
)

#: Kind of observation → its term in a simulated log.
TERMS = {kind: offset for offset, kind in enumerate(k.Watched, start=2)}

#: The reasons under which an unplaced pod's outcome counts nodes with room for it.
NOT_THE_QUORUM = "have room for it, but not for the whole quorum"
HAS_ROOM = "have room for it"


class PlacedPod(msgspec.Struct, frozen=True, rename="camel"):
    """A pod that the cycles placed. `worker_set` is None for the leader."""

    pod: str
    role: str
    worker_set: str | None
    index: int
    node: str


class UnplacedPod(msgspec.Struct, frozen=True, rename="camel"):
    """A pod without a node. `reasons` count every node of the cluster once: each has a `text`, the number of `nodes`,
    and the fields of a `Reason`."""

    pod: str
    role: str
    worker_set: str | None
    index: int
    reasons: tuple[dict[str, Any], ...]


class JobOutcome(msgspec.Struct, frozen=True, rename="camel"):
    """The outcome of one job. `queue_position` counts from 1; 0 for a job that needed no node or is invalid. If the
    quorum is incomplete, `found_room` of its pods found room, and the reasons of the others count that room as used.
    `faults` have the fields of a `Fault`, as have `warnings`: references to variables that the pods won't have."""

    namespace: str
    name: str
    schedule_state: str
    queue_position: int
    placed: tuple[PlacedPod, ...]
    unplaced: tuple[UnplacedPod, ...]
    message: str
    found_room: int = 0
    faults: tuple[dict[str, Any], ...] = ()
    warnings: tuple[dict[str, Any], ...] = ()


class Named(msgspec.Struct, frozen=True, rename="camel"):
    """A job, or the record of a pod or a group."""

    namespace: str
    name: str


class GivenRoom(msgspec.Struct, frozen=True, rename="camel"):
    """A job that gives room to another one, `to`, and the pods that leave for it, with their nodes. `lost_gpu_seconds`
    is the GPU time of their work since the last checkpoint, or else since their start."""

    namespace: str
    name: str
    kind: str
    to: Named
    pods: tuple[PlacedPod, ...]
    lost_gpu_seconds: float


class NodeOutcome(msgspec.Struct, frozen=True):
    """A node after the cycles, with amounts as Kubernetes writes them. `used` includes the use before the cycles."""

    name: str
    allocatable: dict[str, str]
    used: dict[str, str]


class QueueOutcome(msgspec.Struct, frozen=True):
    """A queue after the cycles, with those below it: amounts as Kubernetes writes them, and counts of jobs."""

    name: str
    parent: str
    depth: int
    state: str
    message: str
    used: dict[str, str]
    share: dict[str, str]
    demand: dict[str, str]
    waiting: int
    running: int


class SimulationOutcome(msgspec.Struct, frozen=True):
    """The plan: jobs in the order of their first turns, then jobs without a turn by name; nodes by name; queues, each
    after its parent, once there are any; and who gives room to whom, in the order of the decisions."""

    jobs: tuple[JobOutcome, ...]
    nodes: tuple[NodeOutcome, ...]
    queues: tuple[QueueOutcome, ...] = ()
    preempted: tuple[GivenRoom, ...] = ()


class Simulation:
    """A cluster in memory that consists of these observations, with the terms of `TERMS`, at `time_ms`. Volumes decide
    on nodes `with_volumes`, and devices are allocated `with_devices`."""

    def __init__(
        self,
        observations: Sequence[k.Event],
        config: CycleConfig,
        *,
        time_ms: int,
        policies: Policies = BUILT_IN,
        with_volumes: bool = False,
        with_devices: bool = False,
    ) -> None:
        self.state = State()
        self.state.hear_all()
        self.time_ms = time_ms
        self._config = msgspec.structs.replace(config, dry_run=False)
        self._policies = policies
        self._seq = 0
        self._observer = _Reasons()
        #: Jobs by UID in the order of their first turns.
        self._turns: dict[str, None] = {}
        claims = [
            k.claim(kind, "simulated", with_volumes=with_volumes, with_devices=with_devices) for kind in k.Watched
        ]
        self._say([k.EpochBegun(1, 0, "simulated"), *claims])
        self._say([*observations, *(k.ListingEnded(kind, TERMS[kind], "1") for kind in k.Watched)])
        #: Who gives room to whom.
        self._given: list[GivenRoom] = []
        #: Job UID → its placements before the cycles, as far as it didn't give them up.
        self._before = {uid: dict(job.placements) for uid, job in self.state.jobs.items()}

    def observe(self, events: Sequence[k.Event]) -> None:
        """Fold further facts, if there are any."""
        if events:
            self._say(events)

    def cycle(self) -> tuple[k.Event, ...]:
        """Take one cycle and fold its decisions. Pods that give room are gone at once, but for those that hang. Returns
        its events, none if it decided nothing."""
        events = take_cycle(self.state, self._config, self.time_ms, self._observer, policies=self._policies)
        for event in events:
            if isinstance(event, (k.Placed, k.Preempted, k.Waits)):
                self._turns.setdefault(decided_for(event))
        if not events:
            return events
        preempted = [event for event in events if isinstance(event, k.Preempted)]
        self._given += [given for event in preempted for given in self._give(event)]
        gone = [uid for event in preempted for uid in self._leaving(event)]
        assumed = dict(self.state.assumed)
        self._say(events)
        # No pod exists that isn't in the description.
        late = [pod for of, pod in self.state.assumed.items() if pod != assumed.get(of)]
        forget_assumed(self.state, late, Changes())
        left = pods_left(self.state, gone, self.time_ms, bound_ms=self._config.room_bound_ms)
        say(self.state, self.time_ms, left)
        return events

    def _give(self, event: k.Preempted) -> Iterator[GivenRoom]:
        """Who gives room, before the decision is folded."""
        to = self.state.jobs[event.placed.job_uid].seen
        for victim in event.victims:
            job, slots = self.state.jobs[victim.job_uid], expand(victim.pods)
            pods = tuple(PlacedPod(*_named(job, slot), node) for slot, node in slots.items())
            for slot in slots:
                self._before.get(job.uid, {}).pop(slot, None)
            yield GivenRoom(
                job.seen.namespace,
                job.seen.name,
                str(victim.kind),
                Named(to.namespace, to.name),
                pods,
                victim.lost_ms / 1000,
            )

    def _leaving(self, event: k.Preempted) -> Iterator[str]:
        """The UIDs of the pods that are to leave."""
        yield from (uid for uid in event.leaving if uid in self.state.pods)
        for victim in event.victims:
            job = self.state.jobs[victim.job_uid]
            yield from (job.bound[slot] for slot in expand(victim.pods) if slot in job.bound)

    def outcome(self) -> SimulationOutcome:
        taken = [self.state.jobs[uid] for uid in self._turns]
        others = [job for uid, job in self.state.jobs.items() if uid not in self._turns]
        others.sort(key=lambda job: (job.seen.namespace, job.seen.name))
        view = ClusterView.of(self.state)
        filters = Filters(view, self._policies.filters, order=self._config.filter_order)
        return SimulationOutcome(
            jobs=(
                *(self._job(job, position, filters) for position, job in enumerate(taken, start=1)),
                *(self._job(job, 0, filters) for job in others),
            ),
            nodes=tuple(self._node(name) for name in view.names),
            queues=tuple(map(self._queue, queue_list(self.state).queues)) if self.state.queues else (),
            preempted=tuple(self._given),
        )

    def _say(self, events: Sequence[k.Event]) -> None:
        self._seq += 1
        first = self.state.offset + 1
        batch = k.Batch("simulated", self._seq, self.time_ms, tuple(events))
        apply_entry(self.state, Entry(first, first + len(events) - 1, "", batch), Changes())

    def _job(self, job: JobRecord, position: int, filters: Filters) -> JobOutcome:
        before = self._before[job.uid]
        slots = [] if job.spec is None or not job.active else [
            (number, index) for number, group in enumerate(job.spec.groups) for index in range(group.count)
        ]  # fmt: skip
        placed = tuple(
            PlacedPod(*_named(job, slot), job.placements[slot])
            for slot in slots
            if slot in job.placements and slot not in before
        )
        unplaced = tuple(
            UnplacedPod(*_named(job, slot), self._reasons(job, slot[0], filters))
            for slot in slots
            if slot not in job.placements
        )
        return JobOutcome(
            namespace=job.seen.namespace,
            name=job.seen.name,
            schedule_state=job.schedule_state,
            queue_position=position,
            placed=placed,
            unplaced=unplaced,
            message=_message(self.state, job, placed, unplaced),
            found_room=self._observer.room.get(job.uid, 0) if unplaced else 0,
            faults=tuple(map(as_object, job.seen.faults)),
            warnings=tuple(map(as_object, job.seen.unset)),
        )

    def _reasons(self, job: JobRecord, group: int, filters: Filters) -> tuple[dict[str, Any], ...]:
        """Why a pod of this group has no node: at the job's turn, or now if the job had no turn."""
        found = self._observer.found.get((job.uid, group))
        if found is not None:
            return _told(found, NOT_THE_QUORUM)
        return _told(filters.reasons(job.valid_spec.groups[group].shape, neighbour_of(job, group)), HAS_ROOM)

    def _node(self, name: str) -> NodeOutcome:
        nodes = self.state.nodes
        row = nodes.rows[name]
        amounts = nodes.amounts(row)
        return NodeOutcome(
            name,
            {resource: quantity(resource, allocatable) for resource, (_, allocatable) in amounts.items()},
            {resource: quantity(resource, used) for resource, (used, _) in amounts.items()},
        )

    def _queue(self, line: QueueLine) -> QueueOutcome:
        used, share, demand = (
            {name: quantity(name, amount) for name, amount in amounts.items() if amount}
            for amounts in (line.used, line.share, line.demand)
        )
        seen, jobs = self.state.queues.get(line.name), (line.waiting, line.running)
        message = faults_text(seen.faults) if seen is not None and seen.faults else line.message
        return QueueOutcome(line.name, line.parent, line.depth, line.state, message, used, share, demand, *jobs)


class _Reasons(CycleObserver):
    """Keeps the reasons why pods found no node, by job and group, from the last cycle that tried them."""

    def __init__(self) -> None:
        self.found: dict[tuple[str, int], ReasonCounts] = {}
        #: Job UID → the number of quorum pods that found room although the quorum as a whole didn't.
        self.room: dict[str, int] = {}
        self._last: PlacementTry | None = None

    def fell_short(self, tried: PlacementTry, shortage: Shortage, *, view: ClusterView, filters: Filters) -> None:
        """Keep the reasons. A quorum may be tried in several splits; the first one counts."""
        job = tried.job
        if not tried.quorum_stands and self._last is not tried:
            for group, of in enumerate(job.valid_spec.groups):
                if not shortage.of_nodes:
                    self.found[job.uid, group] = shortage.reasons
                    continue
                self.found[job.uid, group] = filters.reasons(of.shape, neighbour_of(job, group))
        if tried.quorum_stands or self._last is not tried:
            whole = tried.quorum_stands or shortage.objection is not None
            self.room[job.uid] = 0 if whole else shortage.found
            self.found[job.uid, shortage.group] = shortage.reasons
        self._last = tried


def _told(reasons: ReasonCounts, fits: str) -> tuple[dict[str, Any], ...]:
    """Reasons in words and as facts; `fits` are the words for nodes with room for the pod."""
    return tuple(
        {"text": fits if of.kind == ReasonKind.FITS else reason_text(of), "nodes": count, **as_object(of)}
        for of, count in reasons
    )


def _named(job: JobRecord, slot: SlotKey) -> tuple[str, str, str | None, int]:
    number, index = slot
    name = job.valid_spec.groups[number].name
    pod = job.pod_name(slot)
    return (pod, LEADER_ROLE, None, index) if number == LEADER_GROUP else (pod, WORKER_ROLE, name, index)


def _message(state: State, job: JobRecord, placed: Sequence[PlacedPod], unplaced: Sequence[UnplacedPod]) -> str:
    if job.seen.faults or (unplaced and job.waits is not None):
        return message_of(state, job)
    if placed:
        nodes = len({pod.node for pod in placed})
        told = f"{counted(len(placed), 'pod')} placed on {counted(nodes, 'node')}"
        return "; ".join(part for part in (told, unset_text(job), labels_text(job)) if part)
    return message_of(state, job) or ("it gets no nodes now" if unplaced else "it needs no nodes")
