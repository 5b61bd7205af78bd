"""Diff: the changes between two points of a log, by job, by queue and by node.

A `Picture` keeps the compared parts of a state, so that one pass over the log can continue to the second point.
"""

from collections.abc import Iterable, Mapping

import msgspec

from arranger.messages.decisions import quorum_text
from arranger.messages.shortages import shortage_text
from arranger.model.config import CycleConfig
from arranger.model.job import JobSpec
from arranger.model.quantity import amount_text
from arranger.model.taints import taint_text
from arranger.projections.derived.queue_membership import known_priority
from arranger.projections.jobs.parts import SlotKey
from arranger.projections.jobs.records import JobRecord, compact
from arranger.projections.state import State
from arranger.replay.reading.describe import (
    amounts_text,
    describe,
    label,
    pod_counts,
    pods_text,
    priority_text,
    why_it_waits,
)
from arranger.replay.reading.queues import QueueLine, queue_list
from arranger.scheduling import BUILT_IN, Policies, recorded_order


class JobPicture(msgspec.Struct, frozen=True):
    """The compared parts of one job: facts by name, and the node of each slot. `label` is its namespace/name."""

    label: str
    facts: dict[str, str]
    spec: JobSpec | None
    placements: dict[SlotKey, str]
    #: As in `SlotTable`.
    names: dict[SlotKey, str]


class Picture(msgspec.Struct, frozen=True):
    """The compared parts of one state. `jobs` are by UID, `nodes` and `queues` by name. `queue` has the labels of the
    waiting jobs in order. The queue `default` is compared only once it is an object or others are."""

    offset: int
    time_ms: int
    jobs: dict[str, JobPicture]
    nodes: dict[str, dict[str, str]]
    queue: tuple[str, ...]
    queues: dict[str, dict[str, str]]


class ChangedFact(msgspec.Struct, frozen=True):
    """One fact of a job, queue or node that differs, before and after; a value is empty if the fact is missing."""

    what: str
    before: str
    after: str


class ChangedObjects(msgspec.Struct, frozen=True):
    """Jobs, queues or nodes with the same changes."""

    names: tuple[str, ...]
    changes: tuple[ChangedFact, ...]


class Difference(msgspec.Struct, frozen=True):
    """The changes between two pictures. `events` counts the events between them by kind. `moved` are the jobs whose
    position changed among the jobs of both queues."""

    before: tuple[int, int]
    after: tuple[int, int]
    events: dict[str, int]
    jobs: tuple[ChangedObjects, ...]
    nodes: tuple[ChangedObjects, ...]
    queue_before: tuple[str, ...]
    queue_after: tuple[str, ...]
    moved: tuple[str, ...]
    queues: tuple[ChangedObjects, ...] = ()


def picture(state: State, config: CycleConfig, policies: Policies = BUILT_IN) -> Picture:
    """The compared parts of a state. `config` has the settings of the last cycle."""
    nodes = state.nodes
    return Picture(
        offset=state.offset,
        time_ms=state.time_ms,
        jobs={uid: _job(state, job) for uid, job in state.jobs.items()},
        nodes={name: _node(state, row) for name, row in sorted(nodes.rows.items()) if nodes.present(row)},
        queue=tuple(label(job) for job in recorded_order(state, config, policies)),
        queues={of.name: _queue(of) for of in queue_list(state).queues} if state.queues else {},
    )


def difference(one: Picture, other: Picture, events: Mapping[str, int]) -> Difference:
    labels = {uid: job.label for uid, job in (one.jobs | other.jobs).items()}
    uids = sorted(labels, key=lambda uid: (labels[uid], uid))
    common_before = [job for job in one.queue if job in set(other.queue)]
    common_after = [job for job in other.queue if job in set(one.queue)]
    return Difference(
        before=(one.offset, one.time_ms),
        after=(other.offset, other.time_ms),
        events=dict(sorted(events.items())),
        jobs=_grouped((labels[uid], _job_changes(one.jobs.get(uid), other.jobs.get(uid))) for uid in uids),
        nodes=_grouped(_changed_facts(one.nodes, other.nodes)),
        queue_before=one.queue,
        queue_after=other.queue,
        moved=tuple(was for was, now in zip(common_before, common_after, strict=True) if was != now),
        queues=_grouped(_changed_facts(one.queues, other.queues)),
    )


def _job(state: State, job: JobRecord) -> JobPicture:
    facts = {"stage": str(job.stage), "schedule": str(job.schedule_state)}
    facts["attempt"] = str(job.attempt or "")
    pods = pod_counts(job)
    facts["pods with nodes"] = f"{pods.placed} of {job.pods_desired()}"
    facts["pods seen"] = str(pods.seen or "")
    facts["pods running"] = str(pods.running or "")
    facts["pods failed"] = str(pods.failed or "")
    if job.spec is not None:
        facts["priority"] = priority_text(known_priority(state, job), job.spec.priority)
        facts["quorum"] = ("leader and " if job.spec.has_leader else "") + quorum_text(job.spec)
        facts["suspended"] = "yes" if job.spec.suspend else ""
    waits = why_it_waits(job)
    facts["waits"] = shortage_text(waits.shortage) if waits is not None else ""
    reserved = state.reservations.get(job.uid)
    facts["reservation"] = describe(reserved.decided, state) if reserved is not None else ""
    facts["room that others leave"] = "waits for it" if job.slots.room is not None else ""
    return JobPicture(label(job), facts, job.spec, dict(job.placements), dict(job.slots.names))


def _node(state: State, row: int) -> dict[str, str]:
    nodes = state.nodes
    of_node = nodes.facts[row]
    facts = {"health": "ready" if of_node.ready else "not ready", "cordoned": "yes" if of_node.cordoned else ""}
    facts["taints"] = ", ".join(map(taint_text, of_node.taints))
    facts["labels"] = ", ".join(f"{key}={value}" for key, value in of_node.labels)
    for resource, (used, there) in nodes.amounts(row).items():
        facts[resource] = amount_text(resource, there)
        facts[f"{resource} used"] = amount_text(resource, used)
    return facts


def _queue(line: QueueLine) -> dict[str, str]:
    facts = {"state": line.state, "problem": line.message, "parent": line.parent, "weight": str(line.weight or "")}
    facts |= {"waiting jobs": str(line.waiting), "running jobs": str(line.running)}
    for field in ("guarantee", "deserved", "capability", "used", "share", "demand"):
        facts[field] = amounts_text(tuple((name, amount) for name, amount in getattr(line, field).items() if amount))
    return facts | line.fields


def _changed_facts(
    one: Mapping[str, dict[str, str]], other: Mapping[str, dict[str, str]]
) -> Iterable[tuple[str, tuple[ChangedFact, ...]]]:
    return ((name, _fact_changes(one.get(name), other.get(name))) for name in sorted({**one, **other}))


def _job_changes(one: JobPicture | None, other: JobPicture | None) -> tuple[ChangedFact, ...]:
    changes = _fact_changes(one.facts if one else None, other.facts if other else None)
    before = one.placements if one is not None else {}
    after = other.placements if other is not None else {}
    lost = {slot: node for slot, node in before.items() if after.get(slot) != node}
    gained = {slot: node for slot, node in after.items() if before.get(slot) != node}
    where = []
    if lost and one is not None:
        where.append(ChangedFact("leaves", pods_text(compact(lost), one.spec, one.names), ""))
    if gained and other is not None:
        where.append(ChangedFact("gets", "", pods_text(compact(gained), other.spec, other.names)))
    return (*changes, *where)


def _fact_changes(one: dict[str, str] | None, other: dict[str, str] | None) -> tuple[ChangedFact, ...]:
    """The facts that differ. For an object that was created or deleted, that comes first, and all its facts follow."""
    found = []
    if one is None or other is None:
        before, after = ("not there" if facts is None else "there" for facts in (one, other))
        found.append(ChangedFact("it", before, after))
    one, other = one or {}, other or {}
    for what in dict.fromkeys((*one, *other)):
        was, now = one.get(what, ""), other.get(what, "")
        if was != now:
            found.append(ChangedFact(what, was, now))
    return tuple(found)


def _grouped(changed: Iterable[tuple[str, tuple[ChangedFact, ...]]]) -> tuple[ChangedObjects, ...]:
    """Names grouped by equal changes, in the order of the first name of each group."""
    names: dict[tuple[ChangedFact, ...], list[str]] = {}
    for name, changes in changed:
        if changes:
            names.setdefault(changes, []).append(name)
    return tuple(ChangedObjects(tuple(of), changes) for changes, of in names.items())
