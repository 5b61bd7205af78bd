"""Checks that a decision is still valid at its own offset, judged from the events before it (architecture rule 3).

Each function returns the reason for the verdict as text if it isn't, and an empty text if it is.
"""

import numpy as np

from arranger.events import kinds as k
from arranger.model.config import CycleConfig
from arranger.model.job import GANG, Replacement, Stage
from arranger.model.stages import may_enter
from arranger.projections.jobs import LEADER, JobRecord, SlotKey, exists, requests_of
from arranger.projections.nodes import NOWHERE, Amounts, NodeTable
from arranger.projections.openness import closed_to_next


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
    if spec_needed and not job.active:
        return "the job is being deleted or invalid"
    return ""


def out_of_turn(job: JobRecord | None, event: k.StageDecided) -> str:
    """Why a job can't enter a stage from its present one; empty if it may."""
    if job is None:
        return ""
    if not may_enter(job.stage, event.reason, event.stage):
        return f"a job doesn't go from {job.stage} to {event.stage} for the reason {event.reason}"
    if event.stage in (Stage.STARTING, Stage.RUNNING) and not job.quorum_placed():
        return f"it can't be {event.stage}: its quorum has no nodes"
    return ""


def misplaced(job: JobRecord, desired: dict[SlotKey, str], config: CycleConfig) -> str:
    """Why the pods of a placement have no free slots in their job, or leave its quorum incomplete."""
    spec, nodes_decided = job.valid_spec, len(desired) + len(job.placements)
    for slot in desired:
        if slot in job.placements:
            return f"slot {slot} has a node already"
        if not exists(spec, slot):
            return f"the job has no slot {slot}"
    if not desired.keys() | job.placements.keys() >= {LEADER}:
        return "the quorum is not whole: the leader has no node"
    if nodes_decided <= spec.min_workers:
        return f"the quorum is not whole: {spec.min_workers} workers needed"
    if (spec.pod_policy or config.pod_policy) == GANG and nodes_decided < job.pods_desired():
        return f"the gang is not whole: {job.pods_desired()} pods needed"
    return ""


def irreplaceable(nodes: NodeTable, job: JobRecord, event: k.WorkersReplaced) -> str:
    """Why the workers of a decision don't fill their slots, or why their next pods don't fit the kept nodes."""
    again: dict[SlotKey, str] = {}
    met: set[SlotKey] = set()
    for worker in event.workers:
        slot = (worker.slot.group, worker.slot.index)
        if slot == LEADER or slot not in job.placements or slot in met:
            return f"no worker has slot {slot}, or it is named twice"
        met.add(slot)
        if job.bound.get(slot, "") != worker.pod_uid:
            return f"slot {slot} is filled by another pod"
        if worker.how == Replacement.SAME_NODE:
            if not worker.pod_uid:
                return f"slot {slot} has no pod"
            again[slot] = job.placements[slot]
    refused = lacking(nodes, job, again)
    if not refused and event.verdicts >= 1:
        refused = closed_to_next(nodes, job.valid_spec, again)
    return refused


def lacking(nodes: NodeTable, job: JobRecord, desired: dict[SlotKey, str]) -> str:
    """The first node, in the decision's order, that lacks room for it, as text; empty if the whole decision fits."""
    counts: dict[tuple[str, int], int] = {}
    for (group, _), node in desired.items():
        counts[node, group] = counts.get((node, group), 0) + 1
    need: dict[str, Amounts] = {}
    for (node, group), count in counts.items():
        amounts = nodes.vector(job.valid_spec.groups[group].shape.requests) * count
        need[node] = need[node] + amounts if node in need else amounts
    rows = [nodes.rows[node] for node in need if nodes.has(node)]
    if not rows:
        return f"node {next(iter(need))} is gone" if need else ""
    asked = np.array(list(need.values()))
    if len(rows) == len(need) and not ((nodes.used[rows] + asked > nodes.allocatable[rows]) & (asked > 0)).any():
        return ""
    return _lacking_one_by_one(nodes, job, desired, need)


def _lacking_one_by_one(nodes: NodeTable, job: JobRecord, desired: dict[SlotKey, str], need: dict[str, Amounts]) -> str:
    """The first node that lacks room, found node by node."""
    for node, amounts in need.items():
        if not nodes.has(node):
            return f"node {node} is gone"
        row = nodes.rows[node]
        short = (nodes.used[row] + amounts > nodes.allocatable[row]) & (amounts > 0)
        if short.any():
            names = {name for name, column in nodes.columns.items() if short[column] and name != NOWHERE}
            asked = [requests_of(job, slot) for slot, at in desired.items() if at == node]
            return f"node {node} lacks {min(names.union(name for each in asked for name, _ in nodes.unknown(each)))}"
    return ""
