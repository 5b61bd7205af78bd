"""Checks that a decision is still valid at its own offset, judged from the events before it.

Each function returns the reason for the verdict as text if it isn't, and an empty text if it is.
"""

from collections.abc import Mapping, Sequence, Set
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from arranger.events import kinds as k
from arranger.model.config import CycleConfig
from arranger.model.job import FREEING, GANG, WHOLE_JOB, JobSpec, Replacement, Stage, Topology, TopologyMode, Unit
from arranger.model.stages import LOST_UNBEGUN, WAITING, StageReason, may_enter
from arranger.projections.cluster.nodes import NOWHERE, Amounts, NodeTable
from arranger.projections.cluster.openness import closed_to_next
from arranger.projections.derived.deadlines import not_overdue, won
from arranger.projections.derived.dependencies import failed_dependency
from arranger.projections.jobs.parts import LEADER, SlotKey
from arranger.projections.jobs.records import JobRecord, by_group, exists, requests_of
from arranger.projections.jobs.worker_groups import parted
from arranger.projections.state import State
from arranger.projections.verdicts.ownership import earlier_pods

#: Node → room there that will be free.
NOTHING_FREED: Mapping[str, Amounts] = MappingProxyType({})


#: Why no decision takes a pod out of its slot that no TYJob owns: only who made the pod may end it.
NOT_OURS = "its pod isn't a TYJob's"


def outdated(job: JobRecord | None, based_on: int, attempt: int | None, *, spec_needed: bool = True) -> str:
    """Why a decision on a job is no longer current; empty if it is."""
    if job is None:
        return "the job is gone"
    if job.ended:
        return f"the job has ended as {job.stage}"
    if job.version != based_on:
        return f"the job changed at offset {job.version}, the decision is based on {based_on}"
    if attempt is not None and job.attempt != attempt:
        return f"the job is in attempt {job.attempt}, the decision is for {attempt}"
    if spec_needed and (job.spec is None or job.seen.faults or job.seen.deleting):
        return "the job is being deleted or invalid"
    return ""


#: What may happen to a job whose pods have succeeded. It may be deleted, and a continuation of a log repeats it, or
#: assumes it.
_ENDS_SUCCESS = (
    StageReason.LEADER_SUCCEEDED,
    StageReason.WORKERS_SUCCEEDED,
    StageReason.TERMINATED,
    StageReason.DELETED,
    StageReason.AS_RECORDED,
    StageReason.ASSUMED,
)


def out_of_turn(state: State, job: JobRecord | None, event: k.StageDecided) -> str:
    """Why a job can't enter a stage from its present one; empty if it may."""
    if job is None:
        return ""
    if job.of_pods and job.bound:
        return NOT_OURS
    if not may_enter(job.stage, event.reason, event.stage):
        return f"a job doesn't go from {job.stage} to {event.stage} for the reason {event.reason}"
    if job.stage in WAITING and event.reason in LOST_UNBEGUN and not (event.awaited and job.placements):
        return f"it is {job.stage}, and has lost no node that others were to leave"
    if event.stage in (Stage.STARTING, Stage.RUNNING) and not job.quorum_placed():
        return f"it can't be {event.stage}: its quorum has no nodes"
    return _without_ground(state, job, event)


def _without_ground(state: State, job: JobRecord, event: k.StageDecided) -> str:
    """Why the reason for a stage doesn't hold; empty if it may."""
    if event.reason == StageReason.DEPENDENCY_FAILED and failed_dependency(job) is None:
        return "no job has failed that has to succeed first"
    if event.reason == StageReason.WORKERS_SUCCEEDED and not job.succeeded:
        return "it hasn't succeeded: workers whose end is the job's haven't finished"
    if event.reason == StageReason.LEADER_SUCCEEDED and job.spec is not None and not job.spec.ends_with_leader:
        return "it hasn't succeeded: the leader's end isn't the job's"
    if event.reason == StageReason.PODS_LEFT_BEHIND:
        return _not_left_behind(state, job)
    if event.reason == StageReason.DEADLINE_EXCEEDED:
        return not_overdue(state, job)
    return "it has succeeded" if event.reason not in _ENDS_SUCCESS and won(state, job) else ""


def _not_left_behind(state: State, job: JobRecord) -> str:
    """Why a job has to wait for the pods of its earlier attempts; empty if all are being deleted on nodes that are not
    ready."""
    for pod in earlier_pods(state, job):
        if not (pod.deleting and pod.node and state.nodes.down_for_ms(pod.node, state.time_ms) >= 0):
            return f"its pod {pod.name} may go by itself"
    return ""


def too_early(job: JobRecord) -> str:
    """Why a job gets no nodes yet: another one has to end first; empty if none has to."""
    unmet = job.valid_spec.unmet
    return f"job {unmet[0].name} has to end first" if unmet else ""


def misplaced(job: JobRecord, desired: dict[SlotKey, str], config: CycleConfig) -> str:
    """Why the pods of a placement have no free slots in their job, or leave its quorum incomplete."""
    spec, placements = job.valid_spec, job.placements
    provided = job.provided
    if not spec.group_known or job.tasks_lacking:
        return "its tasks have too few pods" if spec.group_known else "its PodGroup isn't there"
    for slot in desired:
        if slot in placements:
            return f"slot {slot} has a node already"
        if slot in provided:
            return f"slot {slot} has finished and needs no node"
        if not exists(spec, slot):
            return f"the job has no slot {slot}"
        if job.of_group and slot in job.slots.given_up:
            return f"no pod may fill slot {slot}"
    if refused := placed_in_part(job, desired) or _not_whole(job, desired, provided):
        return refused
    if (spec.pod_policy or config.pod_policy) == GANG and len(desired) + len(placements) < job.pods_desired():
        return f"the gang is not whole: {job.pods_desired()} pods needed"
    return ""


def _not_whole(job: JobRecord, desired: dict[SlotKey, str], provided: Set[SlotKey]) -> str:
    """What a quorum lacks beside these slots, as text; empty for a whole one."""
    spec, least = job.valid_spec, job.least
    if spec.has_leader and LEADER not in desired and LEADER not in provided:
        return "the quorum is not whole: the leader has no node"
    there = [spec.has_leader, len(desired) + len(provided) - spec.has_leader]
    if any(least) or spec.has_worker_groups:
        there = by_group(spec, [*desired, *provided])
    if sum(there[1:]) < spec.min_workers:
        return f"the quorum is not whole: {spec.min_workers} workers needed"
    for of, count, few in zip(spec.groups, there, least, strict=False):
        if count < few:
            return f"the quorum is not whole: {few} workers of {of.name} needed"
    return ""


def placed_in_part(job: JobRecord, desired: dict[SlotKey, str]) -> str:
    """The first worker group of which only some pods would get nodes, as text; empty if there is none."""
    spec = job.valid_spec
    part = parted(spec, desired.keys() | job.slots.finished.keys()) if spec.has_worker_groups else []
    for group, index in [slot for slot in part if slot in desired][:1]:
        return f"the worker group of slot {(group, index)} is not whole: {spec.groups[group].group_size} pods needed"
    return ""


def replaced_in_part(job: JobRecord, workers: Sequence[k.EndedWorker]) -> str:
    """The first worker group that a decision on its pods would break up, as text; empty if there is none: all of its
    slots lose their nodes or are given up, or else all of its pods are replaced."""
    spec, hows = job.valid_spec, {(of.slot.group, of.slot.index): of.how for of in workers}
    for (group, index), how in hows.items() if spec.has_worker_groups else ():
        for other in spec.groups[group].worker_group(index):
            slot = (group, other)
            uid, of_other = job.bound.get(slot), hows.get(slot)
            if how in FREEING:
                whole = slot not in job.placements or of_other == how
            else:
                whole = of_other not in FREEING if slot in hows else uid is None or uid in job.retired
            if not whole:
                return f"the worker group of slot {(group, index)} is not whole without slot {slot}"
    return ""


def sharing_no_domain(nodes: NodeTable, job: JobRecord, desired: dict[SlotKey, str]) -> str:
    """The first unit of a required topology that would get pods outside the domains of its other pods; empty if none.
    Nodes that don't exist any more are in every domain."""
    spec = job.valid_spec
    if not spec.has_topology:
        return ""
    labels: dict[str, dict[str, str]] = {}
    for (topology, unit), names in _nodes_of_units(spec, desired, job.placements).items():
        for name in names:
            facts = nodes.facts_of(name)
            if name not in labels and facts is not None:
                labels[name] = dict(facts.labels)
        there = [labels[name] for name in names if name in labels]
        if not any(
            all(path[0] in of for of in there) and len({tuple(map(of.get, path)) for of in there}) == 1
            for path in topology.paths()
        ):
            group, number = unit
            of = "the job" if group == WHOLE_JOB else f"unit {number} of {spec.groups[group].name}"
            return f"the pods of {of} share no domain of {', '.join(topology.levels)}"
    return ""


def _nodes_of_units(
    spec: JobSpec, desired: dict[SlotKey, str], placements: dict[SlotKey, str]
) -> dict[tuple[Topology, Unit], dict[str, None]]:
    """For each unit of a required topology with desired pods: that topology, and the nodes of all of its pods."""
    found: dict[tuple[Topology, Unit], dict[str, None]] = {}
    whole, required = spec.whole_topology, TopologyMode.REQUIRED
    of_group = [spec.topology_of(group) for group in range(len(spec.groups))]
    sizes = [spec.unit_size(group) for group in range(len(spec.groups))]
    for slots in (desired, placements):
        for (group, index), node in slots.items():
            units = [(whole, (WHOLE_JOB, 0)), (of_group[group], (group, index // sizes[group]))]
            for topology, unit in units:
                if topology is not None and topology.mode == required:
                    key = (topology, unit)
                    if slots is desired or key in found:
                        found.setdefault(key, {})[node] = None
    return found


def irreplaceable(nodes: NodeTable, job: JobRecord, event: k.WorkersReplaced) -> str:
    """Why the workers of a decision don't fill their slots, or why their next pods don't fit the kept nodes."""
    if job.of_pods and (not job.of_group or any(of.pod_uid or of.how != Replacement.ELSEWHERE for of in event.workers)):
        return NOT_OURS
    again: dict[SlotKey, str] = {}
    met: set[SlotKey] = set()
    for worker in event.workers:
        slot = (worker.slot.group, worker.slot.index)
        if slot == LEADER or slot not in job.placements or slot in met:
            return f"no worker has slot {slot}, or it is named twice"
        met.add(slot)
        if job.bound.get(slot, "") != worker.pod_uid:
            return f"slot {slot} is filled by another pod"
        if worker.how in (Replacement.SAME_NODE, Replacement.RESTARTED) and not worker.pod_uid:
            return f"slot {slot} has no pod"
        if worker.how == Replacement.SAME_NODE:  # one that is restarted has its room until it is gone
            again[slot] = job.placements[slot]
    refused = replaced_in_part(job, event.workers) or lacking(nodes, job, again)
    if not refused:
        refused = closed_to_next(nodes, job.valid_spec, again)
    return refused


class Need(NamedTuple):
    """The room that pods ask for: the nodes, each once, in the pods' order, and nodes × resources of amounts."""

    nodes: list[str]
    amounts: Amounts


def need_of(nodes: NodeTable, job: JobRecord, desired: dict[SlotKey, str]) -> Need:
    """The room that the pods of these slots ask for."""
    groups = job.valid_spec.groups
    columns: dict[int, int] = {}
    counts: dict[str, dict[int, int]] = {}
    for (group, _), node in desired.items():
        at = counts.get(node)
        if at is None:
            at = counts[node] = {}
        column = columns.setdefault(group, len(columns))
        at[column] = at.get(column, 0) + 1
    each = np.array([nodes.vector(groups[group].shape.requests) for group in columns])
    if len(columns) == 1:
        return Need([*counts], np.array([at[0] for at in counts.values()])[:, None] * each)
    of_group = range(len(columns))
    return Need([*counts], np.array([[at.get(column, 0) for column in of_group] for at in counts.values()]) @ each)


def lacking(
    nodes: NodeTable,
    job: JobRecord,
    desired: dict[SlotKey, str],
    need: Need | None = None,
    freed: Mapping[str, Amounts] = NOTHING_FREED,
) -> str:
    """The first node, in the decision's order, that lacks room for it, as text; empty if the whole decision fits.
    `need` is that of these slots, if it is known. `freed` is room that counts as free already, by node."""
    if not desired:
        return ""
    need = need or need_of(nodes, job, desired)
    rows = [nodes.rows[node] for node in need.nodes if nodes.has(node)]
    if len(rows) == len(need.nodes) and not freed:
        at = np.array(rows)
        free = nodes.allocatable[at]
        free -= nodes.used[at]
        short = need.amounts > free
        if not short.any() or not (short & (need.amounts > 0)).any():
            return ""
    return _lacking_one_by_one(nodes, job, desired, need, freed)


def _lacking_one_by_one(
    nodes: NodeTable, job: JobRecord, desired: dict[SlotKey, str], need: Need, freed: Mapping[str, Amounts]
) -> str:
    """The first node that lacks room, found node by node."""
    for node, amounts in zip(need.nodes, need.amounts, strict=True):
        if not nodes.has(node):
            return f"node {node} is gone"
        row = nodes.rows[node]
        used = nodes.used[row] - freed[node] if node in freed else nodes.used[row]
        short = (used + amounts > nodes.allocatable[row]) & (amounts > 0)
        if short.any():
            names = {name for name, column in nodes.columns.items() if short[column] and name != NOWHERE}
            asked = [requests_of(job, slot) for slot, at in desired.items() if at == node]
            return f"node {node} lacks {min(names.union(name for each in asked for name, _ in nodes.unknown(each)))}"
    return ""
