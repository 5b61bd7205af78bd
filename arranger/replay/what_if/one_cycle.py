"""What-if for one cycle: take a cycle at a point of the log with the recorded inputs and with a variation (another
configuration, added or removed jobs or nodes), and compare the plans.

Additions and removals are folded as one more entry of observations, so they have the same effect as in the log.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from arranger.events import kinds as k
from arranger.events.facts import LostPods, NodeLeft, NodeLost
from arranger.events.log import Entry
from arranger.messages.shortages import shortage_text
from arranger.model.config import CycleConfig
from arranger.model.job import LEADER_GROUP, Replacement, ScheduleState, Slot, Stage
from arranger.model.node import NodeFacts
from arranger.model.quantity import amount_text
from arranger.model.stages import StageReason
from arranger.model.taints import taint_text
from arranger.projections.derived.queue_counts import queue_of, sum_of
from arranger.projections.jobs.parts import LEADER
from arranger.projections.jobs.records import JobRecord, expand, is_quorum
from arranger.projections.jobs.worker_groups import with_whole
from arranger.projections.state import State
from arranger.replay.reading.describe import amounts_text, label, placed_in, pods_text, room_from, told_of, victims_of
from arranger.replay.reading.edits import namespace_changed, queue_changed
from arranger.replay.what_if.hypothesis import (
    answered,
    job_alone_gone,
    pods_gone,
    private_copy,
    queue_gone,
    retold,
    say,
)
from arranger.replay.what_if.overrides import Overrides
from arranger.scheduling import (
    BUILT_IN,
    CycleObserver,
    PlacementTry,
    Policies,
    Shortage,
    facts_of,
    in_order,
    policy_of,
    take_cycle,
    waiting_jobs,
)


class Variation(msgspec.Struct, frozen=True):
    """A variation: another configuration, additional observations (their terms don't matter), removed jobs by UID, and
    removed nodes and queues by name."""

    overrides: Overrides = Overrides()
    added: tuple[k.Event, ...] = ()
    without_jobs: tuple[str, ...] = ()
    without_nodes: tuple[str, ...] = ()
    without_queues: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.overrides or self.added or self.without_jobs or self.without_nodes or self.without_queues)


class JobPlan(msgspec.Struct, frozen=True):
    """The result of a cycle for one job. `queue` is its position, from 1; 0 if the job isn't in the order. There,
    `priority` is the one that counts in its queue. `held` of `desired` pods had nodes before. `nodes` maps the nodes of
    newly placed pods to these pods in words. `waits` says why the rest of the job waits."""

    job: str
    queue: int
    priority: int
    queue_policy: str
    desired: int
    held: int
    placed: int
    nodes: dict[str, str]
    waits: str
    #: The jobs that give it room, in words, in the order in which they do.
    room_from: tuple[str, ...] = ()
    #: Others would give it room, once a dry run has shown that the API server takes its pods.
    untried: bool = False


class CyclePlan(msgspec.Struct, frozen=True):
    """The result of a cycle on the state at `offset` at time `time_ms`: the jobs in queue order with their nodes.
    `given` is the total of the placed pods' requests, in words, and `queues` the same by queue, once there are Queues.
    `preempted` are the jobs that give room to others. `waiting` counts the jobs that wait afterwards, at least in part:
    those that give room wait for it again.
    """

    offset: int
    time_ms: int
    queue_policy: str
    pod_policy: str
    weights: tuple[tuple[str, int], ...]
    pods: int
    given: str
    quorums: int
    waiting: int
    jobs: tuple[JobPlan, ...]
    queues: dict[str, str] = {}
    preempted: tuple[str, ...] = ()


class JobDifference(msgspec.Struct, frozen=True):
    """A job in which two plans differ; None for a plan without it. `differs` names the fields, of `COMPARED`."""

    job: str
    one: JobPlan | None
    other: JobPlan | None
    differs: tuple[str, ...]


_UNTRIED = "; others would give it room, but a dry run has to show first that the API server takes its pods"

#: The fields of a `JobPlan` that are compared.
COMPARED = ("queue", "held", "nodes", "waits", "room_from")


def differences(one: CyclePlan, other: CyclePlan) -> tuple[JobDifference, ...]:
    """The jobs in which two plans differ, in the order of the first plan, then of the second."""
    ones, others = {plan.job: plan for plan in one.jobs}, {plan.job: plan for plan in other.jobs}
    found = []
    for job in dict.fromkeys((*ones, *others)):
        a, b = ones.get(job), others.get(job)
        differs = COMPARED if a is None or b is None else tuple(x for x in COMPARED if getattr(a, x) != getattr(b, x))
        if differs:
            found.append(JobDifference(job, a, b, differs))
    return tuple(found)


def take_plan(
    state: State, config: CycleConfig, time_ms: int, *, policies: Policies = BUILT_IN
) -> tuple[CyclePlan, tuple[k.Event, ...]]:
    """Take a cycle. Returns its plan and the events that it would record."""
    before = {job.uid: len(job.placements) for job in waiting_jobs(state, time_ms)} if state.synced else {}
    turns = TriesByJob()
    events = take_cycle(state, config, time_ms, turns, policies=policies)
    placed = {found.job_uid: found for found in map(placed_in, events) if found is not None}
    preempted = {event.placed.job_uid: event for event in events if isinstance(event, k.Preempted)}
    ordered = {job.uid: job for job in in_order(state, config, policies, time_ms=time_ms)} if before else {}
    uids = dict.fromkeys((*turns.tries, *ordered))
    jobs = [
        _job_plan(
            ordered.get(uid, state.jobs[uid]),
            turns.tries.get(uid),
            placed.get(uid),
            position=position,
            queue_policy=policy_of(state, state.jobs[uid], config, policies),
            room_from=room_from(preempted[uid], state) if uid in preempted else (),
        )
        for position, uid in enumerate(uids, start=1)
    ]
    victims = _known(state, [uid for event in preempted.values() for uid in victims_of(event)])
    jobs += _kept_from_the_order(state, uids, config, policies)
    by_queue = _given(state, placed.values())
    plan = CyclePlan(
        offset=state.offset,
        time_ms=time_ms,
        queue_policy=config.queue_policy,
        pod_policy=config.pod_policy,
        weights=config.weights,
        pods=sum(job.placed for job in jobs),
        given=_in_words(sum(by_queue.values(), Counter())),
        quorums=sum(1 for uid in placed if not state.jobs[uid].quorum_placed()),
        waiting=_waiting(jobs, victims),
        jobs=tuple(jobs),
        queues={name: _in_words(by_queue[name]) for name in sorted(by_queue)} if state.queues else {},
        preempted=tuple(map(label, victims)),
    )
    return plan, events


def _known(state: State, uids: Iterable[str]) -> list[JobRecord]:
    return [state.jobs[uid] for uid in dict.fromkeys(uids) if uid in state.jobs]


def _kept_from_the_order(state: State, uids: Collection[str], config: CycleConfig, policies: Policies) -> list[JobPlan]:
    """The jobs that wait and are not among those with a turn: for their queue, for other jobs, in back-off."""
    waits = [job for _, job in sorted(state.jobs.items()) if state.synced and job.active and not job.stands_still]
    waits = [job for job in waits if job.stage in (Stage.PENDING, Stage.RESCHEDULING) and job.uid not in uids]
    found = []
    for job in waits:
        if job.schedule_state != ScheduleState.FAILED and len(job.placements) < job.pods_desired():
            policy = policy_of(state, job, config, policies)
            plan = _job_plan(job, None, None, position=0, queue_policy=policy, room_from=())
            found.append(msgspec.structs.replace(plan, waits=told_of(state, job) or str(job.stage)))
    return found


def _waiting(jobs: Iterable[JobPlan], victims: Iterable[JobRecord]) -> int:
    """The number of jobs that wait after the cycle. Whoever made a pod that isn't a job's makes another one."""
    return len({job.job for job in jobs if job.waits} | {label(job) for job in victims if not job.of_pods})


def _given(state: State, placed: Iterable[k.Placed]) -> dict[str, Counter[str]]:
    """What the placed pods request, by queue."""
    by_queue: dict[str, Counter[str]] = {}
    for event in placed:
        job = state.jobs[event.job_uid]
        by_queue.setdefault(queue_of(state, job), Counter()).update(sum_of(job, expand(event.pods)))
    return by_queue


def changed_plan(
    state: State, before: State, as_it_was: CyclePlan, config: CycleConfig, policies: Policies
) -> tuple[CyclePlan, tuple[str, ...]]:
    """The plan of the cycle `as_it_was`, which ran on `before`, on that state with changes, to which this adds answers
    (see `answered`). Also returns the names of the jobs whose pods the API server is supposed to take."""
    waits = [job.job for job in as_it_was.jobs if job.untried]
    return _with_answers(state, before, waits, as_it_was.time_ms, config=config, policies=policies)


def _with_answers(
    state: State, before: State, waits: Sequence[str], time_ms: int, *, config: CycleConfig, policies: Policies
) -> tuple[CyclePlan, tuple[str, ...]]:
    """As `changed_plan`, where these jobs wait for their dry runs."""

    def take(of: State) -> tuple[CyclePlan, list[str]]:
        plan, _ = take_plan(of, config, time_ms, policies=policies)
        return plan, [job.job for job in plan.jobs if job.untried]

    def tell(of: State, events: Sequence[k.Event]) -> State:
        say(of, time_ms, events)
        return of

    return answered(state, before, waits, take, tell)


def after_dry_runs(
    changed: State, before: State, as_it_was: CyclePlan, plan: CyclePlan, *, config: CycleConfig, policies: Policies
) -> tuple[JobPlan, ...]:
    """What jobs get with the changes a moment later, if that is something else than in the plan: jobs that get more
    there than as it was, only because others still wait for their dry runs. These are ahead of them, or of their
    further pods."""
    had = {job.job: job.placed for job in as_it_was.jobs}
    gets = {job.job: job for job in plan.jobs if job.placed > had.get(job.job, 0)}
    if not gets or not any(job.untried for job in plan.jobs):
        return ()
    waits = [job.job for job in as_it_was.jobs if job.untried and job.job in gets]
    later, _ = _with_answers(private_copy(changed), before, waits, plan.time_ms, config=config, policies=policies)
    return tuple(
        job
        for job in later.jobs
        if job.job in gets and (job.placed, job.room_from) != (gets[job.job].placed, gets[job.job].room_from)
    )


def _in_words(amounts: Mapping[str, int]) -> str:
    return amounts_text(tuple(sorted((name, amount) for name, amount in amounts.items() if amount)))


def _job_plan(
    job: JobRecord,
    tried: PlacementTry | None,
    placed: k.Placed | None,
    *,
    position: int,
    queue_policy: str,
    room_from: tuple[str, ...],
) -> JobPlan:
    pods = placed.pods if placed is not None else ()
    nodes = dict.fromkeys(one.node for one in pods)
    by_node = {
        node: pods_text(tuple(one for one in pods if one.node == node), job.spec, job.slots.names).partition(": ")[2]
        for node in nodes
    }
    waits, untried = "", False
    if tried is not None and tried.shortage is not None and not room_from:
        waits, untried = shortage_text(facts_of(tried, tried.shortage)), tried.shortage.untried
        waits += _UNTRIED if untried else ""
    return JobPlan(
        job=label(job),
        queue=position,
        priority=job.valid_spec.priority,
        queue_policy=queue_policy,
        desired=job.pods_desired(),
        held=len(job.placements),
        placed=len(expand(pods)),
        nodes=by_node,
        waits=waits,
        room_from=room_from,
        untried=untried,
    )


class TriesByJob(CycleObserver):
    """Collects the placement tries of a cycle by the jobs' UIDs, in the order of the jobs' first turns."""

    def __init__(self) -> None:
        self.tries: dict[str, PlacementTry] = {}

    def placing(self, tried: PlacementTry, group: int, **_: Any) -> None:
        self.tries[tried.job.uid] = tried

    def fell_short(self, tried: PlacementTry, shortage: Shortage, **_: Any) -> None:
        self.tries[tried.job.uid] = tried

    def in_vain(self, tried: PlacementTry) -> None:
        self.tries[tried.job.uid] = tried


# --- variations ----------------------------------------------------------------------------------------------


def vary(state: State, variation: Variation, time_ms: int) -> None:
    """Apply the additions and removals of a variation to a state. The caller applies its configuration.

    A removed job or node also removes its pods, on a node including foreign ones. A job that loses its leader or its
    quorum with a node begins again; other jobs get new nodes for the lost slots.
    """
    added = [k.watch_of(one) for one in variation.added]
    for kind in k.OPTIONAL:
        if kind not in state.terms and kind in added:  # nobody watched it
            say(state, time_ms, [k.WatchClaimed(kind, "what-if")])
            say(state, time_ms, [k.ListingEnded(kind, state.terms.get(kind, 0), "")])
    lost, jobs = frozenset(variation.without_nodes), frozenset(variation.without_jobs)
    term = state.terms.get(k.Watched.NODE, 0)
    rows = [row for name in variation.without_nodes if (row := state.nodes.rows.get(name)) is not None]
    pods = [
        pod
        for _, pod in sorted(state.pods.items())
        if pod.node in lost or (pod.owner is not None and pod.owner.job_uid in jobs)
    ]
    removed = [state.jobs[uid] for uid in variation.without_jobs if uid in state.jobs]
    events = [
        *(k.ObjectGone(k.Watched.NODE, term, "", state.nodes.names[row], state.nodes.uids[row]) for row in rows),
        *pods_gone(state, pods),
        *(gone for job in removed for gone in job_alone_gone(job, state)),
        *(queue_gone(state, name) for name in variation.without_queues if name in state.queues),
        *(retold(one, state) for one in variation.added),
    ]
    say(state, time_ms, events)
    if variation.overrides.every_job:
        for job in state.jobs.values():
            job.spec = variation.overrides.spec(job.spec)
            job.seen = msgspec.structs.replace(job.seen, spec=variation.overrides.spec(job.seen.spec))
    for uid in sorted(state.jobs) if lost else ():
        decided = _decided_for_lost_nodes(state.jobs[uid], lost)
        say(state, time_ms, decided)
        replaced = {of.pod_uid for event in decided if isinstance(event, k.WorkersReplaced) for of in event.workers}
        whole = any(isinstance(event, k.StageDecided) for event in decided)
        pods_of = state.pods_of.get(uid, {}).values()
        say(state, time_ms, pods_gone(state, [pod for pod in pods_of if whole or pod.uid in replaced]))


def _decided_for_lost_nodes(job: JobRecord, lost: frozenset[str]) -> list[k.Event]:
    """The controllers' decisions on a job with slots on lost nodes."""
    slots = [slot for slot, node in sorted(job.placements.items()) if node in lost]
    if not slots or job.spec is None or job.ended:
        return []
    left = job.provided - set(slots)
    if job.stage in (Stage.STARTING, Stage.RUNNING) and not is_quorum(job.spec, left):
        lost_node = job.placements[LEADER if LEADER in slots else slots[0]]
        reason, facts = StageReason.NODE_LOST, NodeLost(lost_node, gone=True)
        return [k.StageDecided(job.uid, job.version, job.attempt, Stage.RESCHEDULING, reason, facts)]
    if LEADER in slots:
        return []  # placed but not started: its controller reverts that, a cycle can't
    workers = tuple(
        k.EndedWorker(Slot(*slot), job.bound.get(slot, ""), Replacement.ELSEWHERE, False)
        for slot in sorted(with_whole(job.spec, slots) & job.placements.keys())
        if slot[0] != LEADER_GROUP
    )
    cause = LostPods(workers[0].slot, len(workers), NodeLeft(job.placements[slots[0]]))
    return [k.WorkersReplaced(job.uid, job.version, job.attempt, workers, (cause,))]


def edit_text(event: k.Event, state: State) -> str:
    """The changes of an added observation to an existing object in words; empty for a new one."""
    if isinstance(event, k.NodeSeen) and state.nodes.has(event.name):
        changes = _node_changes(state.nodes.facts[state.nodes.rows[event.name]], event.facts)
        return f"node {event.name}: " + ("; ".join(changes) or "nothing is changed")
    if isinstance(event, k.QuotaSeen) and event.name in state.quotas.get(event.namespace, {}):
        return f"quota {event.namespace}/{event.name}: its limits are replaced by those in the file"
    if isinstance(event, k.QueueSeen) and (queue := state.queues.get(event.name)) is not None:
        same = queue.spec == event.spec
        return f"queue {event.name}: {'nothing is changed' if same else queue_changed(queue.spec, event.spec)}"
    if isinstance(event, k.NamespaceSeen) and (space := state.namespaces.get(event.name)) is not None:
        same = (space.labels, space.queue) == (event.labels, event.queue)
        return f"namespace {event.name}: {'nothing is changed' if same else namespace_changed(space, event)}"
    if not isinstance(event, k.JobSeen) or event.uid not in state.jobs:
        return ""
    job = state.jobs[event.uid]
    changed = "its spec is replaced by the one in the file" if job.spec != event.spec else "nothing is changed"
    return f"job {label(job)}: {changed}"


def _node_changes(had: NodeFacts, has: NodeFacts) -> list[str]:
    """The differences between two nodes' facts, each as "what: before → after"."""
    amounts = dict(had.allocatable), dict(has.allocatable)
    labels = dict(had.labels), dict(has.labels)
    found = [
        (name, *(amount_text(name, of.get(name, 0)) for of in amounts))
        for name in dict.fromkeys((*amounts[0], *amounts[1]))
    ]
    found += [
        (f"label {name}", *(of.get(name, "-") for of in labels)) for name in dict.fromkeys((*labels[0], *labels[1]))
    ]
    found.append(("taints", _taints(had), _taints(has)))
    found.append(("cordoned", _yes(had.cordoned), _yes(has.cordoned)))
    found.append(("ready", _yes(had.ready), _yes(has.ready)))
    return [f"{what}: {before} → {after}" for what, before, after in found if before != after]


def _taints(facts: NodeFacts) -> str:
    return ", ".join(map(taint_text, facts.taints)) or "none"


def _yes(value: bool) -> str:
    return "yes" if value else "no"


# --- the point -----------------------------------------------------------------------------------------------


class Inputs(msgspec.Struct, frozen=True):
    """The inputs of a cycle: the state at `base`, the configuration and the time. `cycle` is the offset of the cycle's
    record, 0 if the cycle isn't in the log."""

    base: int
    time_ms: int
    config: CycleConfig
    cycle: int = 0


class Scout:
    """Reads entries without folding them, and keeps the last recorded cycle."""

    def __init__(self) -> None:
        self._last: tuple[Entry, int, k.CycleTaken] | None = None
        self._end: Entry | None = None

    def feed(self, entry: Entry) -> bool:
        self._end = entry
        for offset, event in enumerate(entry.batch.events, start=entry.first):
            if type(event) is k.CycleTaken:
                self._last = entry, offset, event
        return True

    def cycle(self, offset: int) -> tuple[Inputs, tuple[k.Event, ...]] | None:
        """The inputs and events of the cycle in the last entry, if this offset is in that entry; None otherwise."""
        if self._last is None or self._end is not self._last[0] or not self._end.first <= offset <= self._end.last:
            return None
        entry, at, taken = self._last
        return Inputs(taken.base, taken.time_ms, taken.config, at), entry.batch.events
