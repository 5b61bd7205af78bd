"""Checks that a state is consistent: no room leaks or is counted twice, and every quorum is complete or absent.

The fold keeps a state consistent for every possible log. An inconsistency is a defect of the fold, or of a state that
was built by hand.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import msgspec

from arranger.events.kinds import Watched
from arranger.model.job import READY, Stage
from arranger.model.pod import TERMINAL, Phase
from arranger.model.pods_to_place import SLOT, pod_of
from arranger.projections.derived.queue_counts import pods_of_others, used
from arranger.projections.jobs.parts import is_ready
from arranger.projections.jobs.records import JobRecord, group_of, holds, record_uid, requests_of
from arranger.projections.jobs.run_times import KINDS_KEPT, TIMES_KEPT, RunTimes
from arranger.projections.queues.tree import queue_tree
from arranger.projections.state import State

_WAITING = (Stage.PENDING, Stage.RESCHEDULING)

#: Node → resource → amount used there, in the resource's units; pods are counted as a resource.
_Held = dict[str, dict[str, int]]


class Inconsistency(msgspec.Struct, frozen=True):
    """A defect of a state. If a job is concerned, `story` has the facts about it, one per line."""

    problem: str
    job_uid: str = ""
    story: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n  ".join((self.problem, *self.story))


class InconsistentState(ValueError):
    """A state is inconsistent; `found` has the defects."""

    def __init__(self, found: Sequence[Inconsistency]) -> None:
        super().__init__("\n".join(map(str, found)))
        self.found = found


def validate(state: State) -> None:
    """Raise `InconsistentState` unless the state is consistent; slow for a large one."""
    if found := [*inconsistencies(state)]:
        raise InconsistentState(found)


def inconsistencies(state: State) -> Iterator[Inconsistency]:
    """All defects of a state; none for a consistent one."""
    held: _Held = {}
    for pod in state.pods.values():
        if holds(pod):
            _add(held, pod.node, pod.requests)
    for assumed in state.assumed.values():
        _add(held, assumed.node, assumed.requests)
    for job in state.jobs.values():
        for problem in _of_job(state, job):
            yield Inconsistency(problem, job.uid, _story(job))
        if job.spec is not None:
            for slot, node in job.placements.items():
                if slot not in job.bound:
                    _add(held, node, requests_of(job, slot))
    yield from map(Inconsistency, _of_nodes(state, held))
    yield from map(Inconsistency, _of_derived(state))


def _of_room(state: State) -> tuple[set[str], set[str]]:
    """The jobs that wait for the room that others give them, and those that haven't been Running with it."""
    jobs = state.jobs.items()
    return {uid for uid, job in jobs if job.slots.room is not None}, {uid for uid, job in jobs if job.taken is not None}


def _of_derived(state: State) -> Iterator[str]:
    """What doesn't follow from the rest of the state as it should."""
    if (state.named, state.dependents, set(state.with_rules)) != _indexes(state):
        yield "the indexes of jobs aren't those of the jobs"
    if (set(state.awaiting), set(state.takers)) != _of_room(state):
        yield "the indexes of jobs that took room aren't those of the jobs"
    yield from _of_starts(state)
    if state.queue_tree != queue_tree(state.queues):
        yield "the tree of queues isn't that of the queues"
    use = used(state, pods_of_others(state))
    if state.queue_use != use or state.queue_totals != use.totals(state.queue_tree.paths):
        yield f"queues count {state.queue_use.own} as used, their jobs hold {use.own}"
    if state.repelling != {uid: pod for uid, pod in state.pods.items() if pod.traits.anti_affinity}:
        yield "the index of pods that keep others away isn't that of the pods"
    yield from _of_deleted(state)
    there = {uid for pod in state.pods.values() if (uid := record_uid(pod))}
    if found := sorted(there ^ {uid for uid, job in state.jobs.items() if job.of_pods}):
        yield f"pods to place and their records differ: {found}"
    ended = {pod.uid: group_of(pod) for pod in state.pods.values() if pod.phase in TERMINAL and group_of(pod)}
    if ended != {uid: group for group, uids in state.finished.items() for uid in uids}:
        yield f"the index of finished pods of groups isn't that of the pods: {state.finished}"
    yield from _of_run_times(state.run_times)


def _of_starts(state: State) -> Iterator[str]:
    """What doesn't hold of expected starts."""
    if any(uid not in state.jobs or state.jobs[uid].placements for uid in (*state.reservations, *state.kept_limits)):
        yield "room or a limit is kept for a job that doesn't wait for nodes"
    for job in state.jobs.values():
        if not all(map(state.is_host, (*job.slots.hosts, *chain(*job.slots.lent.values())))):
            yield "a job is a guest of one for which nothing is kept"
        if not job.slots.lent.keys() <= job.placements.keys():
            yield "a slot without a node has room that is reserved for others"
    if any(uid not in state.jobs or state.jobs[uid].placements for uid in state.forecasts):
        yield "a job has a forecast that doesn't wait for nodes"


def _of_run_times(run_times: RunTimes) -> Iterator[str]:
    if len(run_times) > KINDS_KEPT:
        yield f"run times of {len(run_times)} kinds of jobs are kept"
    for kind, times in run_times.items():
        if not kind.image or bool(kind.user) == bool(kind.namespace):
            yield f"run times are kept of jobs without an image or a submitter: {kind}"
        if not 0 < len(times) <= TIMES_KEPT or min(times) < 0:
            yield f"these can't be the run times of the last jobs of {kind}: {times}"


_Names = dict[tuple[str, str], tuple[str, ...]]


def _indexes(state: State) -> tuple[_Names, _Names, set[str]]:
    """Which jobs have each name, which wait for it, and whose pods may have rules about others."""
    named: _Names = {}
    dependents: _Names = {}
    for uid, job in sorted(state.jobs.items()):
        name = (job.seen.namespace, job.seen.name)
        named[name] = (*named.get(name, ()), uid)
        for of in job.spec.after if job.spec is not None else ():
            name = (job.seen.namespace, of.name)
            dependents[name] = (*dependents.get(name, ()), uid)
    with_rules = {uid for uid, job in state.jobs.items() if job.spec is not None and job.spec.may_have_rules}
    return named, dependents, with_rules


def _of_job(state: State, job: JobRecord) -> Iterator[str]:
    if job.ended and (job.placements or job.bound):
        yield "it has ended and has slots"
    if job.placements and job.spec is None:
        yield "it has slots and no spec"
    if job.stage in _WAITING and job.placements and not job.quorum_placed():
        yield "it hasn't started and holds a part of its quorum"
    if job.slots.room is not None and (job.stage not in _WAITING or not job.placements):
        yield "it waits for room, and has begun or has no nodes"
    if state.listed.get(Watched.POD) and job.times.turned.get(READY, (False,))[0] != job.quorum_ready:
        yield f"its condition Ready is as {job.times.turned.get(READY)} says, and its pods say {job.quorum_ready}"
    yield from _of_slots(job)
    if len(set(job.bound.values())) < len(job.bound):
        yield "a pod fills two slots"
    yield from _of_pods(state, job)
    yield from _of_phases(state, job)


def _of_pods(state: State, job: JobRecord) -> Iterator[str]:
    if job.of_group:
        yield from _of_members(state, job)
    elif job.of_pods and (problem := _misbound(state, job)):
        yield problem
    for slot, uid in job.bound.items():
        pod = state.pods.get(uid)
        if pod is None:
            yield f"the pod {uid} in slot {slot} isn't there"
        elif job.of_pods:
            continue
        elif pod.owner is None or pod.owner.job_uid != job.uid or job.slot_of(pod.owner) != slot:
            yield f"the pod {pod.name} in slot {slot} claims another"


def _of_members(state: State, job: JobRecord) -> Iterator[str]:
    """How the slots of a group of pods that no TYJob owns differ from the pods."""
    slots = job.slots
    members = {uid for uid, pod in state.pods.items() if group_of(pod) == job.uid}
    if members != slots.members.keys() or len(dict.fromkeys(slots.members.values())) < len(members):
        yield f"it has the pods {sorted(members)}, and these have slots: {slots.members}"
        return
    if slots.names != {slot: state.pods[uid].name for uid, slot in slots.members.items()}:
        yield f"its slots have the names {slots.names}"
    for uid, slot in sorted(slots.members.items()):
        pod = state.pods[uid]
        held = bool(pod.asks is not None and pod.asks.held_back) or pod.deleting
        is_so = (slots.pods.get(slot) == uid, slot in slots.finished, slot in slots.given_up)
        if is_so != (holds(pod), pod.phase in TERMINAL, not pod.node and held and pod.phase not in TERMINAL):
            yield f"its pod {pod.name} in slot {slot}: filled, finished and given up are {is_so}"
        if holds(pod) and slots.nodes[slot] != pod.node:
            yield f"its pod {pod.name} is on node {pod.node!r}, and its slot on {slots.nodes[slot]}"
    known = {*slots.members.values(), *slots.given_up}
    groups = enumerate(job.valid_spec.groups)
    if {(number, index) for number, of in groups for index in range(of.count)} != known:
        yield f"it has {job.valid_spec.total_workers} slots, and these have pods or are given up: {sorted(known)}"


def _misbound(state: State, job: JobRecord) -> str:
    """How the slot of a pod that no TYJob owns differs from the pod, as text; empty if it doesn't."""
    pod = state.pods.get(pod_of(job.uid))
    if pod is None or job.ended:
        return ""
    if bool(pod.node) != (SLOT in job.bound):
        return f"its pod is on node {pod.node!r}, and its slot is {'filled' if SLOT in job.bound else 'empty'}"
    if pod.node and (job.bound[SLOT], job.placements[SLOT]) != (pod.uid, pod.node):
        return f"its slot on {job.placements[SLOT]} is filled by {job.bound[SLOT]}, and its pod is on {pod.node}"
    return ""


def _of_slots(job: JobRecord) -> Iterator[str]:
    if not job.bound.keys() <= job.placements.keys():
        yield f"pods fill slots without a node: {sorted(job.bound.keys() - job.placements.keys())}"
    if job.slots.given_up.keys() & job.placements.keys():
        yield f"slots are given up and have a node: {sorted(job.slots.given_up.keys() & job.placements.keys())}"
    if not job.slots.failures.keys() <= job.placements.keys():
        yield "failures on their nodes are counted of slots without a node"
    if job.slots.finished.keys() & (job.placements.keys() | job.slots.given_up.keys()):
        yield f"slots have finished and have a node, or are given up: {sorted(job.slots.finished)}"
    if not job.slots.refused_ms.keys() <= job.placements.keys() - job.bound.keys():
        yield "the API server refuses pods of slots that have one, or no node"


def _of_phases(state: State, job: JobRecord) -> Iterator[str]:
    phases = {slot: state.pods[uid].phase for slot, uid in job.bound.items() if uid in state.pods}
    idle = {slot: phase for slot, phase in phases.items() if phase != Phase.RUNNING}
    if job.slots.not_running != idle:
        yield f"pods count as not running in slots {job.slots.not_running}, and those are {idle}"
    ready = {slot for slot, uid in job.bound.items() if uid in state.pods and is_ready(state.pods[uid])}
    if job.slots.ready.keys() != ready:
        yield f"pods count as ready in slots {sorted(job.slots.ready)}, and are in {sorted(ready)}"
    if {of: count for of, count in job.slots.ready_counts.items() if count} != Counter(group for group, _ in ready):
        yield f"the ready pods are counted as {job.slots.ready_counts}"


def _of_nodes(state: State, held: _Held) -> Iterator[str]:
    nodes = state.nodes
    present = {name for name, row in nodes.rows.items() if nodes.present(row)}
    if nodes.rows.keys() != present | held.keys():
        needless = sorted(nodes.rows.keys() ^ (present | held.keys()))
        yield f"a node has a row while it is there or something is on it, and these differ: {needless}"
    for name, row in nodes.rows.items():
        used = {resource: amount for resource, (amount, _) in nodes.amounts(row).items() if amount}
        expected = {resource: amount for resource, amount in held.get(name, {}).items() if amount}
        if used != expected:
            yield f"node {name} counts {used} as used, its pods and slots hold {expected}"


def _add(held: _Held, node: str, amounts: Iterable[tuple[str, int]]) -> None:
    of_node = held.setdefault(node, {})
    for resource, amount in (*amounts, ("pods", 1)):
        of_node[resource] = of_node.get(resource, 0) + amount


def _story(job: JobRecord) -> tuple[str, ...]:
    last = [f"{time_ms}: {step.stage} ({step.reason}), based on {step.based_on}" for step, time_ms in job.steps]
    return (
        f"job {job.seen.namespace}/{job.seen.name}, UID {job.uid}",
        f"{job.stage}, {job.schedule_state}, attempt {job.attempt}, version {job.version}, adopted at {job.adopted_at}",
        f"slots on nodes: {job.placements}",
        f"filled by: {job.bound}; given up: {[*job.slots.given_up]}; finished: {[*job.slots.finished]}; "
        f"pods that go: {[*job.retired]}",
        *last,
    )


def _of_deleted(state: State) -> Iterator[str]:
    if state.deleting.keys() != {uid for uid, pod in state.pods.items() if pod.deleting}:
        yield "the index of pods that are being deleted isn't that of the pods"
