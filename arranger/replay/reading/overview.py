"""The cluster in the projection at one point: jobs with their position in the queue, and nodes with their use."""

import heapq
from collections import Counter

import msgspec

from arranger.events.kinds import PodSeen
from arranger.model.config import CycleConfig
from arranger.model.job import Stage
from arranger.model.taints import taint_text
from arranger.projections import snapshot
from arranger.projections.cluster.nodes import PODS
from arranger.projections.derived.queue_membership import known_priority, own_priority
from arranger.projections.jobs.records import JobRecord, holds
from arranger.projections.state import State
from arranger.projections.verdicts.preemption import leaves
from arranger.replay.reading.describe import message_of, pod_counts
from arranger.replay.reading.gpus import gpu_totals
from arranger.scheduling import BUILT_IN, Policies, recorded_order

#: The number of foreign pods that are named.
_LARGEST = 3


class JobLine(msgspec.Struct, frozen=True):
    """One job. `queue` is its position among the jobs that need nodes, from 1; 0 if it needs none. `priority` is
    the one that counts in its queue, `own_priority` the job's own; None if that isn't known. The counts of pods are as
    in `PodCounts`."""

    queue: int
    namespace: str
    name: str
    uid: str
    stage: str
    schedule_state: str
    priority: int | None
    own_priority: int | None
    attempt: int
    restarts: int
    pods_desired: int | None
    pods_placed: int
    pods_seen: int
    pods_running: int
    pods_failed: int
    created_ms: int
    message: str


class NodeLine(msgspec.Struct, frozen=True):
    """One node. `used` and `allocatable` are by resource, units as in `PodShape`. Placements count as used before their
    pods are seen. A node that isn't `present` was deleted, but pods still use it. `leaving` is what of `used` is
    about to be left: the room may be another job's already, so `used` may be more than there is."""

    name: str
    present: bool
    ready: bool
    cordoned: bool
    taints: tuple[str, ...]
    used: dict[str, int]
    allocatable: dict[str, int]
    leaving: dict[str, int] = {}


class OtherPod(msgspec.Struct, frozen=True):
    """A foreign pod that uses resources of a node, units as in `PodShape`."""

    namespace: str
    name: str
    node: str
    holds: dict[str, int]


class OverviewTotals(msgspec.Struct, frozen=True):
    """Sums over the cluster. `jobs` is stage → number of jobs, and `waiting` counts those that need nodes. Open nodes
    take pods. Of the GPUs, idle ones are used by nothing on open nodes, and reserved ones are kept for waiting jobs."""

    jobs: dict[str, int]
    waiting: int
    nodes: int
    nodes_open: int
    gpus: int
    gpus_used: int
    gpus_idle: int
    gpus_reserved: int


class Overview(msgspec.Struct, frozen=True):
    """The cluster at one offset. Two states are equal exactly if their `digest` is. `other_pods` counts foreign pods
    that use resources; `largest_other_pods` are those that use the largest parts of their nodes."""

    offset: int
    epoch: int
    time_ms: int
    digest: str
    synced: bool
    last_cycle: int
    pods: int
    jobs: tuple[JobLine, ...]
    nodes: tuple[NodeLine, ...]
    other_pods: int = 0
    largest_other_pods: tuple[OtherPod, ...] = ()
    totals: OverviewTotals | None = None


def overview(
    state: State, config: CycleConfig, policies: Policies = BUILT_IN, *, seen: State | None = None
) -> Overview:
    """The state in lines: jobs that need nodes in queue order, then the other jobs by namespace and name. `config` has
    the settings of the last cycle. `seen` is the same state as of a later time (`State.as_of`); the digest is that of
    the fold."""
    digest = snapshot.digest(state)
    state = state if seen is None else seen
    waiting = recorded_order(state, config, policies)
    positions = {job.uid: number for number, job in enumerate(waiting, start=1)}
    others = [job for job in state.jobs.values() if job.uid not in positions]
    strangers = [pod for pod in state.pods.values() if pod.owner is None and holds(pod)]
    largest = heapq.nsmallest(
        _LARGEST, strangers, key=lambda pod: (-_part(state, pod), pod.namespace, pod.name, pod.uid)
    )
    leaving = _leaving(state)
    others.sort(key=lambda job: (job.ended, job.seen.namespace, job.seen.name, job.uid))
    return Overview(
        offset=state.offset,
        epoch=state.epoch,
        time_ms=state.time_ms,
        digest=digest,
        synced=state.synced,
        last_cycle=state.last_cycle,
        pods=len(state.pods),
        jobs=tuple(_job_line(state, job, positions.get(job.uid, 0)) for job in [*waiting, *others]),
        nodes=tuple(_node_line(state, name, leaving.get(name, {})) for name in sorted(state.nodes.rows)),
        other_pods=len(strangers),
        largest_other_pods=tuple(OtherPod(pod.namespace, pod.name, pod.node, dict(pod.requests)) for pod in largest),
        totals=_totals(state, len(waiting)),
    )


def _totals(state: State, waiting: int) -> OverviewTotals:
    gpus, nodes = gpu_totals(state), state.nodes
    facts = [nodes.facts[row] for row in nodes.by_name().tolist()]
    stages = Counter(job.stage for job in state.jobs.values())
    return OverviewTotals(
        jobs={str(stage): stages[stage] for stage in Stage if stages[stage]},
        waiting=waiting,
        nodes=len(facts),
        nodes_open=sum(of.takes_pods for of in facts),
        gpus=gpus.gpus,
        gpus_used=gpus.used,
        gpus_idle=gpus.idle,
        gpus_reserved=gpus.reserved,
    )


def _part(state: State, pod: PodSeen) -> float:
    """The largest part that a pod uses of any resource of its node; 0 if the node doesn't exist."""
    nodes = state.nodes
    row = nodes.rows.get(pod.node)
    if row is None:
        return 0.0
    there = nodes.allocatable[row].tolist()
    amounts = [(held, there[nodes.columns[name]]) for name, held in pod.requests if name in nodes.columns]
    return max((held / total for held, total in amounts if total), default=0.0)


def _job_line(state: State, job: JobRecord, position: int) -> JobLine:
    # A waiting job of the queue's order has the priority that counts there, and not its own.
    own, pods = state.jobs[job.uid], pod_counts(job)
    return JobLine(
        queue=position,
        namespace=job.seen.namespace,
        name=job.seen.name,
        uid=job.uid,
        stage=job.stage,
        schedule_state=job.schedule_state,
        priority=known_priority(state, job),
        own_priority=own_priority(own),
        attempt=job.attempt,
        restarts=job.leader.restarts,
        pods_desired=job.pods_told(),
        pods_placed=pods.placed,
        pods_seen=pods.seen,
        pods_running=pods.running,
        pods_failed=pods.failed,
        created_ms=job.seen.created_ms,
        message=message_of(state, job),
    )


def _leaving(state: State) -> dict[str, dict[str, int]]:
    """Node → what pods of jobs use there that are about to leave it."""
    found: dict[str, dict[str, int]] = {}
    for pod in state.pods.values():
        if leaves(state, pod):
            amounts = found.setdefault(pod.node, {})
            for resource, amount in (*pod.requests, (PODS, 1)):
                amounts[resource] = amounts.get(resource, 0) + amount
    return found


def _node_line(state: State, name: str, leaving: dict[str, int]) -> NodeLine:
    nodes = state.nodes
    row = nodes.rows[name]
    facts = nodes.facts[row]
    amounts = nodes.amounts(row)
    return NodeLine(
        name=name,
        present=nodes.present(row),
        ready=facts.ready,
        cordoned=facts.cordoned,
        taints=tuple(map(taint_text, facts.taints)),
        used={resource: used for resource, (used, _) in amounts.items()},
        allocatable={resource: allocatable for resource, (_, allocatable) in amounts.items() if allocatable},
        leaving=leaving,
    )
