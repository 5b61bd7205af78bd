"""The cluster at one point of the log, as the console draws it: jobs, nodes with their GPUs, and queues.

Times are in seconds since 1970, and GPUs are those of all vendors.
"""

from collections.abc import Iterator
from functools import lru_cache
from operator import itemgetter
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from arranger.model.job import JobSpec
from arranger.model.pod import gpus_of
from arranger.projections.jobs import JobRecord, expand
from arranger.projections.nodes import Amounts, NodeTable
from arranger.projections.queue_use import queue_of
from arranger.projections.state import State
from arranger.replay.ledger.causes import causes_of
from arranger.replay.reading.describe import label
from arranger.scheduling import QueueView, queues_view

#: Levels of topology that nodes often have, although no job names them.
_USUAL_LEVELS = ("topology.kubernetes.io/region", "topology.kubernetes.io/zone")
_MOST_LEVELS = 4
_GPU = "/gpu"

#: Most pods request one of few combinations.
_gpus = lru_cache(maxsize=1024)(gpus_of)


class Totals(msgspec.Struct, frozen=True, rename="camel"):
    """Sums over the cluster. GPUs are beside used ones if they are free on a node where others are used; reserved ones
    are kept for waiting jobs."""

    gpus: int
    gpus_used: int
    gpus_reserved: int
    gpus_beside_used: int
    jobs_waiting: int
    jobs_running: int
    jobs_ended: int


class MomentJob(msgspec.Struct, frozen=True, rename="camel"):
    """One job. `gpus` are those that all its pods request, `gpus_held` those of the nodes that it has. `wait_cause` is
    the main cause of its waiting; None if it doesn't wait."""

    job: str
    queue: str
    priority: int
    stage: str
    since: float
    submitted: float
    attempt: int
    pods_ready: int
    pods_placed: int
    pods_desired: int = msgspec.field(name="podsWanted")
    pods_minimum: int
    gpus: int
    gpus_held: int
    wait_cause: str | None


class MomentNode(msgspec.Struct, frozen=True, rename="camel"):
    """One node. `topology` has a value for each of `Moment.topology_levels`, `jobs` the jobs that hold its GPUs, as
    indices into `Moment.jobs`, each with its number of GPUs."""

    name: str
    gpus: int
    gpus_free: int
    ready: bool
    schedulable: bool
    topology: tuple[str, ...]
    jobs: tuple[tuple[int, int], ...]


class MomentQueue(msgspec.Struct, frozen=True, rename="camel"):
    """One queue with the queues below it, in GPUs. Without a capability, `cap` is None."""

    name: str
    parent: str
    used: int
    share: int
    cap: int | None
    demand: int


class Moment(msgspec.Struct, frozen=True, rename="camel"):
    """The cluster after the event at the offset `at`. Jobs are sorted by name, nodes by topology and name."""

    at: int
    time: float
    totals: Totals
    jobs: tuple[MomentJob, ...]
    nodes: tuple[MomentNode, ...]
    topology_levels: tuple[str, ...]
    queues: tuple[MomentQueue, ...]


def moment(state: State) -> Moment:
    """The cluster in a state."""
    records = sorted(state.jobs.values(), key=lambda job: (label(job), job.uid))
    holdings = [dict(_held(job)) for job in records]
    levels = topology_levels(state, records)
    placed = [job.quorum_placed() for job in records]
    lines = tuple(_job(state, job, sum(held.values())) for job, held in zip(records, holdings, strict=True))
    return Moment(
        state.offset,
        state.time_ms / 1000,
        _totals(state, records, placed),
        lines,
        _nodes(state.nodes, levels, holdings),
        levels,
        tuple(_queue(view) for view in queues_view(state).queues.values()),
    )


def waits(job: JobRecord) -> bool:
    """Whether a job wants to run and has no quorum of nodes."""
    return not job.ended and job.active and not job.quorum_placed()


def main_cause(state: State, job: JobRecord) -> str | None:
    """The cause of a job's waiting that counts most; None if it doesn't wait."""
    causes = causes_of(state, job)
    return str(max(causes, key=lambda of: of[1])[0]) if causes else None


def gpus_held(job: JobRecord) -> int:
    """The GPUs of the slots that have nodes."""
    return sum(count for _, count in _held(job))


def gpu_use(nodes: NodeTable) -> tuple[Amounts, Amounts]:
    """The GPUs of the present nodes in the order of their names, and how many of them are used: never more than are
    there, though pods that leave and those that wait for their room both count on a node."""
    columns = [column for name, column in nodes.columns.items() if name.endswith(_GPU)]
    rows = nodes.by_name()
    there: Amounts = nodes.allocatable[rows][:, columns].sum(axis=1)
    used: Amounts = nodes.used[rows][:, columns].sum(axis=1)
    return there, np.minimum(used, there)


class GpuTotals(NamedTuple):
    """The GPUs of the cluster; see `Totals`. Idle ones are used by nothing, on nodes that take pods."""

    gpus: int
    used: int
    idle: int
    reserved: int
    beside_used: int


def gpu_totals(state: State) -> GpuTotals:
    """The cluster's GPUs in a state."""
    there, used = gpu_use(state.nodes)
    free = there - used
    return GpuTotals(
        int(there.sum()),
        int(used.sum()),
        int(free[_open(state.nodes)].sum()),
        sum(_reserved(state, uid) for uid in state.reservations),
        int(free[used > 0].sum()),
    )


def _open(nodes: NodeTable) -> NDArray[np.bool_]:
    """Whether each of the present nodes, in the order of their names, is ready and schedulable. The answer is kept with
    the version of the nodes' facts, as `_drawn` is."""
    notes = nodes.facts_version.notes
    known: NDArray[np.bool_] | None = notes.get(_open)
    if known is None:
        facts = [nodes.facts[row] for row in nodes.by_name().tolist()]
        known = notes[_open] = np.array([of.ready and not of.cordoned for of in facts], dtype=np.bool_)
    return known


def topology_levels(state: State, jobs: list[JobRecord]) -> tuple[str, ...]:
    """The labels of nodes that jobs name as levels of a topology, and the usual ones; the largest domains first."""
    named = dict.fromkeys(_USUAL_LEVELS)
    for job in jobs:
        if job.spec is not None and job.spec.has_topology:
            topologies = (job.spec.topology, *(group.topology for group in job.spec.groups))
            named.update(dict.fromkeys(key for of in topologies if of is not None for key in of.levels))
    return _present_levels(state.nodes, tuple(named))


def _present_levels(nodes: NodeTable, named: tuple[str, ...]) -> tuple[str, ...]:
    """Those that any node has. They are kept with the version of the nodes' facts, as `_drawn` is."""
    notes = nodes.facts_version.notes
    known: tuple[tuple[str, ...], tuple[str, ...]] | None = notes.get(_present_levels)
    if known is None or known[0] != named:
        domains: dict[str, dict[str, None]] = {key: {} for key in named}
        for row in nodes.by_name().tolist():
            for key, value in nodes.facts[row].labels:
                if key in domains:
                    domains[key][value] = None
        found = sorted((key for key in domains if domains[key]), key=lambda key: (len(domains[key]), key))
        known = notes[_present_levels] = named, tuple(found[:_MOST_LEVELS])
    return known[1]


def _held(job: JobRecord) -> Iterator[tuple[str, int]]:
    """The nodes of a job with its GPUs there."""
    if job.spec is None or not job.placements:
        return
    of_group = [_gpus(group.shape.requests) for group in job.spec.groups]
    found: dict[str, int] = {}
    for (group, _), node in job.placements.items():
        if of_group[group]:
            found[node] = found.get(node, 0) + of_group[group]
    yield from found.items()


def _totals(state: State, jobs: list[JobRecord], placed: list[bool]) -> Totals:
    """`placed` says of each job whether its quorum has nodes."""
    use = gpu_totals(state)
    left = [(job, of) for job, of in zip(jobs, placed, strict=True) if not job.ended]
    return Totals(
        gpus=use.gpus,
        gpus_used=use.used,
        gpus_reserved=use.reserved,
        gpus_beside_used=use.beside_used,
        jobs_waiting=sum(job.active and not of for job, of in left),
        jobs_running=sum(of for _, of in left),
        jobs_ended=len(jobs) - len(left),
    )


def _reserved(state: State, uid: str) -> int:
    job = state.jobs.get(uid)
    if job is None or job.spec is None:
        return 0
    groups = job.spec.groups
    slots = expand(state.reservations[uid].decided.pods)
    return sum(gpus_of(groups[group].shape.requests) for group, _ in slots if group < len(groups))


def _job(state: State, job: JobRecord, held: int) -> MomentJob:
    spec = job.spec
    return MomentJob(
        job=label(job),
        queue=queue_of(state, job),
        priority=spec.priority if spec is not None else 0,
        stage=str(job.stage),
        since=job.times.stage_ms / 1000,
        submitted=job.seen.created_ms / 1000,
        attempt=job.attempt,
        pods_ready=sum(job.ready) if spec is not None else 0,
        pods_placed=len(job.placements),
        pods_desired=job.pods_desired(),
        pods_minimum=_minimum(spec) if spec is not None else 0,
        gpus=sum([group.count * _gpus(group.shape.requests) for group in spec.groups]) if spec is not None else 0,
        gpus_held=held,
        wait_cause=main_cause(state, job),
    )


def _minimum(spec: JobSpec) -> int:
    """How many pods the quorum has at least."""
    return spec.groups[0].count + max(spec.min_workers, sum(group.min_count for group in spec.groups[1:]))


class _Drawn(NamedTuple):
    """What doesn't change with the use of nodes, in the order in which they are drawn: by topology and name. `order`
    has their places in the order of names, `open` whether each is ready, and schedulable."""

    levels: tuple[str, ...]
    order: Amounts
    names: list[str]
    topologies: list[tuple[str, ...]]
    open: list[tuple[bool, bool]]


def _drawn(nodes: NodeTable, levels: tuple[str, ...]) -> _Drawn:
    """It is kept with the version of the nodes' facts: most points of a log have the same nodes."""
    known: _Drawn | None = nodes.facts_version.notes.get(_Drawn)
    if known is not None and known.levels == levels:
        return known
    found = []
    for number, row in enumerate(nodes.by_name().tolist()):
        facts = nodes.facts[row]
        labels = dict(facts.labels) if levels else {}
        topology = tuple([labels.get(key, "") for key in levels])
        found.append((topology, nodes.names[row], number, (facts.ready, facts.ready and not facts.cordoned)))
    found.sort(key=itemgetter(0, 1))
    drawn = _Drawn(
        levels,
        np.array([number for _, _, number, _ in found], np.int64),
        [name for _, name, _, _ in found],
        [topology for topology, _, _, _ in found],
        [of for _, _, _, of in found],
    )
    nodes.facts_version.notes[_Drawn] = drawn
    return drawn


def _nodes(nodes: NodeTable, levels: tuple[str, ...], holdings: list[dict[str, int]]) -> tuple[MomentNode, ...]:
    on_node: dict[str, tuple[tuple[int, int], ...]] = {}
    for number, held in enumerate(holdings):
        for node, gpus in held.items():
            on_node[node] = (*on_node.get(node, ()), (number, gpus))
    drawn = _drawn(nodes, levels)
    there, used = gpu_use(nodes)
    amounts = zip(there[drawn.order].tolist(), (there - used)[drawn.order].tolist(), strict=True)
    lines = zip(drawn.names, amounts, drawn.open, drawn.topologies, strict=True)
    return tuple(
        [
            MomentNode(name, gpus, free, ready, schedulable, topology, on_node.get(name, ()))
            for name, (gpus, free), (ready, schedulable), topology in lines
        ]
    )


def _queue(view: QueueView) -> MomentQueue:
    capability = view.spec.capability if view.spec is not None else ()
    limited = any(name.endswith(_GPU) for name, _ in capability)
    return MomentQueue(
        name=view.name,
        parent=view.spec.parent if view.spec is not None else "",
        used=gpus_of(view.used.items()),
        share=gpus_of(view.share.items()),
        cap=gpus_of(capability) if limited else None,
        demand=gpus_of(view.demand.items()),
    )
