"""Where a waiting job stands in its queue, what keeps it waiting, and the jobs that were placed first."""

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from arranger.messages.queues import passed_text
from arranger.model.quota import SEEK_WITHOUT, LimitKind
from arranger.model.reasons import ReasonKind
from arranger.projections.derived.queue_counts import queue_of
from arranger.projections.derived.queue_membership import counted_priority, kept_out
from arranger.projections.jobs.parts import LEADER, SlotKey
from arranger.projections.jobs.records import JobRecord, expand
from arranger.projections.queues.use import JOBS
from arranger.projections.state import State
from arranger.replay.explain.candidate_changes.case import WaitingCase
from arranger.replay.explain.candidate_changes.queue_objects import kept_by_usage
from arranger.replay.explain.cluster_context import Placement
from arranger.replay.explain.full_nodes import closed_with_room, full_of_others, selects_closed, too_few_if_open
from arranger.replay.explain.shortfall import Shortfall
from arranger.replay.explain.story import Story
from arranger.replay.explain.turns import by_seniority
from arranger.scheduling import QueueStanding, place_alone


class KeptBy(StrEnum):
    """What keeps a job waiting.

    ROOM: no node has room for it; RESERVED: only room that is kept for a job before it; OVERTAKEN: no node has room,
    because of a job that was behind it in the order of a cycle, and got nodes there; LEAVING: pods that leave hold
    the room. SELECTION, CLOSED_NODES and RULES: room isn't what it lacks; it selects none of the nodes, or those that
    it selects are closed to it, or something else rules them out, such as other pods there. INFEASIBLE: even without
    pods, the nodes have too little room for it, those that are closed to it among them.
    PLUGIN: a group check or a permit of another package.
    ORDER: jobs before it in the order get the room; USAGE: the same, only because its queue used more before. The
    others are limits, and why it can't use its queue at all.
    """

    ROOM = "Room"
    RESERVED = "Reserved"
    OVERTAKEN = "Overtaken"
    LEAVING = "Leaving"
    SELECTION = "Selection"
    CLOSED_NODES = "ClosedNodes"
    RULES = "Rules"
    INFEASIBLE = "Infeasible"
    ORDER = "Order"
    USAGE = "Usage"
    QUOTA = "Quota"
    CAPABILITY = "Capability"
    GUARANTEES = "Guarantees"
    MAX_RUNNING = "MaxRunning"
    MAX_WAITING = "MaxWaiting"
    NON_PREEMPTIBLE = "NonPreemptible"
    PLUGIN = "Plugin"
    NO_QUEUE = "NoQueue"
    PROBLEM = "Problem"
    NOT_ADMITTED = "NotAdmitted"
    CLOSED = "Closed"


class QueueAmount(msgspec.Struct, frozen=True):
    """A resource of a queue with those below it, in its unit: what their jobs use, what the queue is entitled to now,
    and its capability, None for no limit."""

    resource: str
    used: int
    share: int
    capability: int | None


class InQueue(msgspec.Struct, frozen=True):
    """A waiting job in its queue: its position among the queue's `waiting` jobs from 1, 0 if it isn't in the order.
    `amounts` are of the resources that it requests. `running` counts the jobs with nodes, of the queues below it, too.
    `kept_by` is None if a cycle would place the job now, or if something beside queues and nodes keeps it. `kept_at` is
    the queue that has the limit, the state or the problem: its own or one above it; empty for none. `no_nodes`: it is a
    limit, and without it the nodes would have too little."""

    queue: str
    position: int
    waiting: int
    running: int
    max_running: int | None
    amounts: tuple[QueueAmount, ...]
    kept_by: KeptBy | None
    kept_at: str = ""
    no_nodes: bool = False


class Passed(msgspec.Struct, frozen=True):
    """Another job that got nodes while this one waited. `amounts` are what it got. `behind`: its turn came after that
    of this one in the cycle that placed it. `times` is how often it got nodes meanwhile; the rest is about the last
    time."""

    offset: int
    time_ms: int
    job: str
    queue: str
    why: str
    amounts: tuple[tuple[str, int], ...]
    nodes: tuple[str, ...]
    behind: bool = True
    times: int = 1


def in_queue(case: WaitingCase, waiting: list[JobRecord], shortfall: Shortfall | None, no_room: KeptBy) -> InQueue:
    """The job's standing in its queue; `waiting` is the order of all jobs. `no_room` says why, if no nodes have enough
    for it."""
    state, job = case.state, case.job
    name = queue_of(state, job)
    there = [other.uid for other in waiting if queue_of(state, other) == name]
    spec = state.queue_tree.specs.get(name)
    # A queue without a way to the root has no totals, but its jobs may still have nodes.
    used = state.queue_totals.get(name) or state.queue_use.own.get(name, {})
    shares = QueueStanding(state, waiting, state.time_ms).shares.get(name, {})
    capability = dict(spec.capability) if spec is not None else {}
    asked = {resource for group in job.valid_spec.groups for resource, amount in group.shape.requests if amount}
    kept_by, kept_at = _kept_by(case, shortfall, no_room) if job.uid in there else _kept_out(state, job)
    return InQueue(
        queue=name,
        position=there.index(job.uid) + 1 if job.uid in there else 0,
        waiting=len(there),
        running=used.get(JOBS, 0),
        max_running=spec.max_running if spec is not None else None,
        amounts=tuple(
            QueueAmount(resource, used.get(resource, 0), shares.get(resource, 0), capability.get(resource))
            for resource in sorted(asked)
        ),
        kept_by=kept_by,
        kept_at=kept_at,
        no_nodes=kept_by in _LIMITS and shortfall is not None and shortfall.beside_limit is not None,
    )


def _kept_out(state: State, job: JobRecord) -> tuple[KeptBy | None, str]:
    """Why the job can't use its queue, and the queue that is closed or has a problem."""
    denial = kept_out(state, job)
    if denial is None:
        return None, ""
    problem = denial.problem.queue if denial.problem is not None else ""
    return KeptBy(denial.kind.value), denial.closed or problem or denial.queue


def _kept_by(case: WaitingCase, shortfall: Shortfall | None, no_room: KeptBy) -> tuple[KeptBy | None, str]:
    if shortfall is None:
        return None, ""
    if shortfall.objection is not None:
        return KeptBy.PLUGIN, ""
    if shortfall.quota is not None:
        if not (shortfall.quota.limit in _FIRST_IN_ORDER and shortfall.others and _fits_alone(case)):
            limit = shortfall.quota.limit
            return KeptBy.ROOM if limit == LimitKind.MIN_RESOURCES else KeptBy(limit.value), shortfall.quota.queue
    elif any(of.kind == ReasonKind.RESERVED for of, _ in shortfall.reasons) and _fits_alone(case):
        return KeptBy.RESERVED, ""
    elif not (shortfall.others and (shortfall.further or _fits_alone(case))):
        return _by_nodes(case, shortfall, no_room), ""
    return KeptBy.USAGE if kept_by_usage(case) else KeptBy.ORDER, ""


#: Limits beside which the nodes may have too little.
_LIMITS = frozenset({KeptBy(limit.value) for limit in SEEK_WITHOUT})
#: Limits whose rest goes to the first in the order.
_FIRST_IN_ORDER = (LimitKind.QUOTA, LimitKind.CAPABILITY, LimitKind.GUARANTEES, LimitKind.NON_PREEMPTIBLE)
#: Reasons that are the job's own selection of nodes, that nodes are closed, and that they lack room: a node that would
#: take the next pod alone lacks room for the others, in its domain or by their own rules.
_OF_SELECTION = frozenset({ReasonKind.NODE_SELECTOR, ReasonKind.NODE_AFFINITY})
_OF_CLOSED = frozenset({ReasonKind.NOT_READY, ReasonKind.CORDONED, ReasonKind.TAINT})
_OF_ROOM = frozenset(
    {
        ReasonKind.FITS,
        ReasonKind.INSUFFICIENT,
        ReasonKind.RESERVED,
        ReasonKind.REST_OF_QUORUM,
        ReasonKind.OTHER_DOMAIN,
        ReasonKind.OTHER_TOPOLOGY,
    }
)


def _by_nodes(case: WaitingCase, shortfall: Shortfall, no_room: KeptBy) -> KeptBy:
    """The same as `_without_node`, but closed nodes keep nobody waiting who lacked nodes if they were open, too."""
    kept_by = _without_node(case, shortfall, no_room)
    if kept_by != KeptBy.CLOSED_NODES or not shortfall.infeasible:
        return kept_by
    few = too_few_if_open(case.state, case.job, case.config, case.policies)
    return KeptBy.INFEASIBLE if few else kept_by


def _without_node(case: WaitingCase, shortfall: Shortfall, no_room: KeptBy) -> KeptBy:
    """What keeps a job from all nodes: `no_room` if they lack room for it, which says whose doing that is."""
    kinds = {of.kind for of, _ in shortfall.reasons}
    if no_room not in (KeptBy.ROOM, KeptBy.INFEASIBLE) or not kinds:
        return no_room
    closed = not kinds.isdisjoint(_OF_CLOSED) and closed_with_room(case.state, case.job, shortfall.group)
    if not kinds.isdisjoint(_OF_ROOM):
        # Its own pods may be all that fills the open nodes.
        full = full_of_others(case.state, case.job, shortfall.group)
        return KeptBy.CLOSED_NODES if closed and any(closed) and not full else no_room
    if kinds <= _OF_SELECTION:
        return KeptBy.SELECTION
    if not kinds - _OF_SELECTION <= _OF_CLOSED:
        return KeptBy.RULES
    # Some nodes may be closed and not selected either, and those that are may be full too.
    selects_others = kinds.isdisjoint(_OF_SELECTION) or selects_closed(case.state, case.job, shortfall.group)
    return KeptBy.CLOSED_NODES if selects_others else KeptBy.SELECTION


def _fits_alone(case: WaitingCase) -> bool:
    return place_alone(case.state, case.job, case.config, case.policies).quorum_stands


def placed_since(story: Story, job: JobRecord) -> tuple[Passed, ...]:
    """The decisions that gave nodes to other jobs since this one has waited, the newest first."""
    around, found = story.around, []
    for uid, placements in around.placements.items():
        if uid == job.uid:
            continue
        later = around.arrived.get(uid, 0) > around.arrived.get(job.uid, 0)
        for placement in placements:
            slots = expand(placement.pods)
            begins = LEADER in slots or not placement.spec.has_leader
            if begins and placement.time_ms >= job.times.scheduled_ms and placement.offset > story.created_at:
                found.append(_passed(story.state, job, placement, slots, later=later))
    return tuple(sorted(found, key=lambda one: -one.offset))


def once_each(placed: Sequence[Passed]) -> tuple[Passed, ...]:
    """Each job once, by the last time that it got nodes. `placed` has the newest first."""
    found: dict[str, Passed] = {}
    for one in placed:
        last = found.setdefault(one.job, one)
        if last is not one:
            found[one.job] = msgspec.structs.replace(last, times=last.times + 1)
    return tuple(found.values())


def _passed(state: State, job: JobRecord, placement: Placement, slots: dict[SlotKey, str], *, later: bool) -> Passed:
    spec = placement.spec
    amounts: dict[str, int] = {}
    for group, _ in slots:
        for resource, amount in spec.groups[group].shape.requests:
            amounts[resource] = amounts.get(resource, 0) + amount
    queue, why, behind = _in_its_cycle(placement, job) or _as_they_are(state, job, placement, later=later)
    return Passed(
        offset=placement.offset,
        time_ms=placement.time_ms,
        job=placement.job,
        queue=queue,
        why=why,
        amounts=tuple(sorted(amounts.items())),
        nodes=tuple(sorted(set(slots.values()))),
        behind=behind,
    )


def _in_its_cycle(placement: Placement, job: JobRecord) -> tuple[str, str, bool] | None:
    """The queue of a placed job, why it was placed, and whether it was behind, by the order of its cycle; None if not
    both had a turn in it."""
    order = placement.order or {}
    other, own = order.get(placement.job_uid), order.get(job.uid)
    if other is None or own is None:
        return None
    behind, key = other.position > own.position, by_seniority(other.seniority, own.seniority)
    elsewhere = other.queue if other.queue != own.queue else ""
    return other.queue, passed_text(elsewhere, other.policy, key, behind=behind, took=placement.took_room), behind


def _as_they_are(state: State, job: JobRecord, placement: Placement, *, later: bool) -> tuple[str, str, bool]:
    """The same by what is known of both jobs now: where the log begins after the state that the cycle was taken on, and
    where the waiting one had no turn in it. Then nobody was behind."""
    other, spec = state.jobs.get(placement.job_uid), placement.spec
    queue = queue_of(state, other) if other is not None else spec.queue
    priority = counted_priority(state, other) if other is not None and other.spec is not None else spec.priority
    own, unknown = counted_priority(state, job), placement.order is None
    elsewhere = queue if queue != queue_of(state, job) else ""
    behind = unknown and (later if elsewhere else priority < own or (later and priority == own))
    key = "it came earlier" if unknown else "this one asked for no nodes then"
    if priority > own:
        key = f"priority {priority} against {own}"
    return queue, passed_text(elsewhere, "", key, behind=behind, took=placement.took_room), behind
