"""The cluster at one point of the log, as the console draws it: jobs, nodes with their GPUs, and queues.

Times are in seconds since 1970, and GPUs are those of all vendors.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from itertools import repeat
from typing import NamedTuple

import msgspec
import numpy as np

from arranger.lifecycle.hindrances import trouble_of
from arranger.messages.queues import state_text
from arranger.model.accelerators import is_accelerator
from arranger.model.config import CycleConfig
from arranger.model.job import JobSpec, Stage
from arranger.model.pod import Labels, gpus_of
from arranger.projections.cluster.nodes import Amounts, NodeTable
from arranger.projections.derived.queue_counts import queue_of
from arranger.projections.derived.queue_membership import most_priority, own_priority, submitter_of
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import State
from arranger.replay.explain.expected import NoStart, Start, start_of
from arranger.replay.ledger.causes import Cause, every_cause
from arranger.replay.reading.describe import label, pod_counts
from arranger.replay.reading.gpus import gpu_totals, gpu_use
from arranger.scheduling import BUILT_IN, Policies, QueueView, queues_view, recorded_order

#: Levels of topology that nodes often have, although no job names them.
_USUAL_LEVELS = ("topology.kubernetes.io/region", "topology.kubernetes.io/zone")
_MOST_LEVELS = 4

#: Most pods request one of few combinations.
_gpus = lru_cache(maxsize=1024)(gpus_of)

#: Node → the jobs that hold its GPUs, by their place among all, each with its number of GPUs.
_OnNode = dict[str, list[tuple[int, int]]]


class Totals(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Sums over the cluster. GPUs are beside used ones if they are free on a node where others are used; reserved ones
    are kept for waiting jobs."""

    gpus: int
    gpus_used: int
    gpus_reserved: int
    gpus_beside_used: int
    jobs_waiting: int
    jobs_running: int
    jobs_ended: int


class MomentJob(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """One job. `priority` is the one that counts in its queue, `own_priority` the job's own, which may be higher.
    `gpus` are those that all its pods request, `gpus_held` those of the nodes that it has. `wait_cause` is the main
    cause of its waiting; None if it doesn't wait. `pods_placed` have nodes: of these, some run, of which some are
    ready, and some failed and aren't replaced yet. `trouble` is what is wrong with the pods of a job that has started,
    in the words of its status; empty for nothing."""

    job: str
    queue: str
    priority: int | None
    own_priority: int | None
    stage: str
    since: float
    submitted: float
    attempt: int
    pods_placed: int
    pods_running: int
    pods_failed: int
    pods_desired: int | None = msgspec.field(name="podsWanted")
    pods_minimum: int
    gpus: int
    gpus_held: int
    wait_cause: str | None
    pods_ready: int
    trouble: str


class MomentNode(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """One node. `topology` has a value for each of `Moment.topology_levels`, `jobs` the jobs that hold its GPUs, as
    indices into `Moment.jobs`, each with its number of GPUs."""

    name: str
    gpus: int
    gpus_free: int
    ready: bool
    schedulable: bool
    topology: tuple[str, ...]
    jobs: tuple[tuple[int, int], ...]


class MomentQueue(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """One queue with the queues below it, in GPUs. Without a capability, `cap` is None. `state` and `message` are as in
    `arranger queue`, `weight` too, 0 of a queue that doesn't exist, `waiting` and `running` numbers of jobs."""

    name: str
    parent: str
    used: int
    share: int
    cap: int | None
    demand: int
    state: str
    weight: int
    waiting: int
    running: int
    message: str


class Standing(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """One job. `position` counts from 1 among the jobs that wait for nodes, in the order of `arranger replay`; 0 if it
    isn't one of them. `expected` (seconds since 1970) is the start that a reservation promises or that was forecast
    last, else that a forecast of this state expects; None if it is unknown. `guess`: that supposes the end of a job of
    whose end nothing is known, or that jobs ahead leave what is reserved. `user` is the submitter's name, else the
    namespace. `gpu_ms` are the GPUs that it held, times milliseconds; None if that is too long ago to be known."""

    job: str
    user: str
    position: int
    expected: float | None
    guess: bool
    gpu_ms: int | None


class Standings(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """All jobs after the event at the offset `at`, by name, and how many of them wait in the queue."""

    at: int
    waiting: int
    jobs: tuple[Standing, ...]
    complete: bool = True


class Moment(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """The cluster after the event at the offset `at`. Jobs are sorted by name, nodes by topology and name. `lapses` is
    when room is given back that was kept for a pod, if no event comes before (seconds since 1970)."""

    at: int
    time: float
    totals: Totals
    jobs: tuple[MomentJob, ...]
    nodes: tuple[MomentNode, ...]
    topology_levels: tuple[str, ...]
    queues: tuple[MomentQueue, ...]
    lapses: float | None = None


def moment(state: State) -> Moment:
    """The cluster in a state."""
    named = sorted([(label(job), job.uid, job) for job in state.jobs.values()])
    records = [job for _, _, job in named]
    labelled = _labelled(state.nodes)
    levels = _topology_levels(labelled, records)
    lines = _Lines(state)
    jobs = tuple([lines.add(name, job) for name, _, job in named])
    return Moment(
        state.offset,
        state.time_ms / 1000,
        _totals(state, lines),
        jobs,
        _nodes(state.nodes, _drawn(state.nodes, labelled, levels), lines.on_node),
        levels,
        tuple(_queue(view) for view in queues_view(state).queues.values()),
        min((pod.until_ms / 1000 for pod in state.assumed.values()), default=None),
    )


def standings(
    state: State,
    config: CycleConfig,
    gpu_ms: Callable[[str, int], int | None],
    policies: Policies = BUILT_IN,
    *,
    complete: bool,
    made: Callable[[], Mapping[str, Start]] = lambda: {},
) -> Standings:
    """Where the jobs of a state stand. `config` has the settings of the last cycle. `gpu_ms` says what a job, by
    its UID, held up to a time: of all that was, unless the answer isn't `complete`. `made` makes a forecast, if
    there is a job of whose start the log says nothing."""
    waiting = recorded_order(state, config, policies)
    positions = {job.uid: number for number, job in enumerate(waiting, start=1)}
    found = []
    starts = {uid: start for uid, job in state.jobs.items() if (start := start_of(state, job)) is not None}
    if state.synced:
        starts |= _forecast(starts, made)
    for job in sorted(state.jobs.values(), key=lambda job: (label(job), job.uid)):
        start = starts.get(job.uid)
        found.append(
            Standing(
                job=label(job),
                user=submitter_of(job),
                position=positions.get(job.uid, 0),
                expected=start.expected_ms / 1000 if start is not None and start.expected_ms else None,
                guess=start is not None and (start.guess or bool(start.ahead)),
                gpu_ms=gpu_ms(job.uid, state.time_ms),
            )
        )
    return Standings(state.offset, len(waiting), tuple(found), complete)


def _forecast(starts: Mapping[str, Start], made: Callable[[], Mapping[str, Start]]) -> dict[str, Start]:
    """UID → the start by a forecast of this state, of those of which the log says nothing, or no more than that jobs
    ahead may take what is reserved."""
    asked = [uid for uid, start in starts.items() if start.why == NoStart.NOT_FORECAST or start.ahead]
    now = made() if asked else {}
    return {uid: now[uid] for uid in asked if uid in now and (now[uid].expected_ms or not starts[uid].ahead)}


def waits(job: JobRecord) -> bool:
    """Whether a job is to start and has no quorum of nodes. One that has started goes on, also if its quorum is raised
    or lost, until it is decided that it starts again, or ends."""
    starts = job.active and job.stage in (Stage.PENDING, Stage.RESCHEDULING)
    return starts and not job.quorum_placed() and len(job.placements) < job.pods_desired()


def runs(job: JobRecord) -> bool:
    """Whether a job has nodes, or has finished with them, and neither waits nor has ended."""
    return not job.ended and bool(job.provided) and not waits(job)


def main_cause(state: State, job: JobRecord, *, waiting: bool) -> str | None:
    """The cause of a job's waiting that counts most; None if it doesn't wait. `waiting` is what `waits` says."""
    causes = every_cause(state, job)
    if not causes and waiting:  # it is to be ended
        return Cause.SCHEDULER
    return str(max(causes, key=lambda of: of[1])[0]) if causes else None


def gpus_held(job: JobRecord) -> int:
    """The GPUs of the slots that have nodes."""
    return sum(_held(job).values())


def nodes_held(job: JobRecord) -> dict[str, int]:
    """The nodes that a job has, each with the GPUs of its slots there."""
    return dict.fromkeys(job.placements.values(), 0) | _held(job)


def user_of(job: JobRecord) -> str:
    """Who submitted a job, as its label says, else who created it; empty if the log doesn't tell."""
    return job.seen.user or job.seen.created_by


def gpus_of_node(nodes: NodeTable, name: str) -> int:
    """The GPUs of a node; 0 of one that isn't there."""
    row = nodes.rows.get(name)
    if row is None:
        return 0
    return sum(int(nodes.allocatable[row, column]) for of, column in nodes.columns.items() if is_accelerator(of))


class _Labelled(NamedTuple):
    """What follows from the nodes' labels alone, in the order of the nodes' names: the levels that any node has, by
    those that were looked for, and what is drawn, by the levels."""

    labels: list[Labels]
    levels: dict[tuple[str, ...], tuple[str, ...]]
    drawn: dict[tuple[str, ...], "_Drawn"]


def _labelled(nodes: NodeTable) -> _Labelled:
    """It is kept with the version of the nodes' names: at most points of a log, nodes and labels are the same."""
    labels = [nodes.facts[row].labels for row in nodes.by_name().tolist()]
    known: _Labelled | None = nodes.names_version.notes.get(_Labelled)
    if known is None or known.labels != labels:
        known = nodes.names_version.notes[_Labelled] = _Labelled(labels, {}, {})
    return known


def _topology_levels(labelled: _Labelled, jobs: list[JobRecord]) -> tuple[str, ...]:
    """The labels of nodes that jobs name as levels of a topology, and the usual ones; the largest domains first."""
    named = dict.fromkeys(_USUAL_LEVELS)
    for job in jobs:
        if job.spec is not None and job.spec.has_topology:
            topologies = (job.spec.topology, *(group.topology for group in job.spec.groups))
            named.update(dict.fromkeys(key for of in topologies if of is not None for key in of.levels))
    keys = tuple(named)
    if keys not in labelled.levels:
        domains: dict[str, dict[str, None]] = {key: {} for key in keys}
        for of_node in labelled.labels:
            for key, value in of_node:
                if key in domains:
                    domains[key][value] = None
        found = sorted((key for key in domains if domains[key]), key=lambda key: (len(domains[key]), key))
        labelled.levels[keys] = tuple(found[:_MOST_LEVELS])
    return labelled.levels[keys]


def _held(job: JobRecord) -> dict[str, int]:
    """The nodes of a job with its GPUs there."""
    found: dict[str, int] = {}
    if job.spec is None or not job.placements:
        return found
    of_group = [_gpus(group.shape.requests) for group in job.spec.groups]
    for (group, _), node in job.placements.items():
        if of_group[group]:
            found[node] = found.get(node, 0) + of_group[group]
    return found


def _totals(state: State, lines: "_Lines") -> Totals:
    use = gpu_totals(state)
    return Totals(
        gpus=use.gpus,
        gpus_used=use.used,
        gpus_reserved=use.reserved,
        gpus_beside_used=use.beside_used,
        jobs_waiting=lines.waiting,
        jobs_running=lines.running,
        jobs_ended=lines.ended,
    )


class _Lines:
    """The lines of the jobs of a state. What they are about is counted on the way: a state may have thousands."""

    def __init__(self, state: State) -> None:
        self._state = state
        #: Queue → the highest priority that counts in it.
        self._most: dict[str, int | None] = {}
        self.on_node: _OnNode = {}
        self.waiting = self.running = self.ended = self._count = 0

    def add(self, name: str, job: JobRecord) -> MomentJob:
        """The line of the next job, by its name."""
        spec, pods, waiting, own = job.spec, pod_counts(job), waits(job), own_priority(job)
        self.ended += job.ended
        self.waiting += waiting
        self.running += not waiting and runs(job)
        of_group = [_gpus(group.shape.requests) for group in spec.groups] if spec is not None else []
        held, queue, times = self._hold(job, of_group), queue_of(self._state, job), job.times
        return MomentJob(
            job=name,
            queue=queue,
            priority=self._counted(own, queue) if own is not None else None,
            own_priority=own,
            stage=str(job.stage),
            since=times.stage_ms / 1000,
            submitted=job.seen.created_ms / 1000,
            attempt=job.attempt,
            pods_placed=pods.placed,
            pods_running=pods.running,
            pods_failed=pods.failed,
            pods_desired=job.pods_told(),
            pods_minimum=_minimum(spec) if spec is not None else 0,
            gpus=sum([of.count * gpus for of, gpus in zip(spec.groups, of_group, strict=True)]) if spec else 0,
            gpus_held=held,
            wait_cause=main_cause(self._state, job, waiting=waiting),
            pods_ready=job.pods_ready,
            trouble=trouble_of(self._state, job),
        )

    def _hold(self, job: JobRecord, of_group: list[int]) -> int:
        """The GPUs of a job's slots, which are added to their nodes. `of_group`: those of a pod of each group."""
        number, held, on_node, slots = self._count, 0, self.on_node, job.placements
        self._count += 1
        # The keys of thousands of slots are in no cache; most nodes of a job have one of its pods.
        if len(set(of_group)) == 1:
            found: Iterable[tuple[str, int]] = zip(slots.values(), repeat(of_group[0]), strict=False)
        else:
            found = [(node, of_group[group]) for (group, _), node in slots.items()] if of_group else ()
        pairs = {gpus: (number, gpus) for gpus in of_group}
        for node, gpus in found:
            if gpus:
                held += gpus
                of_node = on_node.get(node)
                if of_node is None:
                    on_node[node] = [pairs[gpus]]
                elif of_node[-1][0] == number:
                    of_node[-1] = (number, of_node[-1][1] + gpus)
                else:
                    of_node.append(pairs[gpus])
        return held

    def _counted(self, priority: int, queue: str) -> int:
        if queue not in self._most:
            self._most[queue] = most_priority(self._state, queue)
        most = self._most[queue]
        return priority if most is None else min(priority, most)


def _minimum(spec: JobSpec) -> int:
    """How many pods the quorum has at least."""
    return spec.groups[0].count + max(spec.min_workers, sum([group.least for group in spec.groups[1:]]))


class _Drawn(NamedTuple):
    """The nodes in the order in which they are drawn: by topology and name. `order` has their places in the order of
    names."""

    order: Amounts
    names: list[str]
    topologies: list[tuple[str, ...]]


def _drawn(nodes: NodeTable, labelled: _Labelled, levels: tuple[str, ...]) -> _Drawn:
    known = labelled.drawn.get(levels)
    if known is None:
        found = []
        for number, (row, labels) in enumerate(zip(nodes.by_name().tolist(), labelled.labels, strict=True)):
            of_node = dict(labels)
            found.append((tuple([of_node.get(key, "") for key in levels]), nodes.names[row], number))
        found.sort()
        order = np.array([number for _, _, number in found], np.int64)
        known = _Drawn(order, [name for _, name, _ in found], [topology for topology, _, _ in found])
        labelled.drawn[levels] = known
    return known


def _nodes(nodes: NodeTable, drawn: _Drawn, on_node: _OnNode) -> tuple[MomentNode, ...]:
    none: list[tuple[int, int]] = []
    there, used = gpu_use(nodes)
    of_row = nodes.facts
    facts = [of_row[row] for row in nodes.by_name()[drawn.order].tolist()]
    amounts = zip(there[drawn.order].tolist(), (there - used)[drawn.order].tolist(), strict=True)
    lines = zip(drawn.names, amounts, facts, drawn.topologies, strict=True)
    return tuple(
        [
            MomentNode(
                name,
                gpus,
                free,
                of.ready,
                of.ready and not of.cordoned,
                topology,
                tuple(on_node.get(name, none)),
            )
            for name, (gpus, free), of, topology in lines
        ]
    )


def _queue(view: QueueView) -> MomentQueue:
    capability = view.spec.capability if view.spec is not None else ()
    limited = any(is_accelerator(name) for name, _ in capability)
    return MomentQueue(
        name=view.name,
        parent=view.spec.parent if view.spec is not None else "",
        used=gpus_of(view.used.items()),
        share=gpus_of(view.share.items()),
        cap=gpus_of(capability) if limited else None,
        demand=gpus_of(view.demand.items()),
        state=view.state,
        weight=view.spec.weight if view.spec is not None else 0,
        waiting=view.waiting,
        running=view.running,
        message=state_text(view.name, view.problem, closed=view.closed, exists=view.exists),
    )
