"""Jobs that give room to another one: whether such a decision is still valid, and what it frees.

The room is free only once the victims' pods have left. Until then it counts twice, for these pods and for the quorum
that got it, so no other job gets it.
"""

from collections.abc import Iterator

from arranger.events.facts import PreemptionKind, TakenBy, Victim
from arranger.events.kinds import PodSeen, Preempted
from arranger.model.job import CleanPodPolicy, Stage
from arranger.model.pod import PodOwner
from arranger.projections.cluster.nodes import Amounts, Requests
from arranger.projections.derived.awaited_room import assumed_on, took_in_vain
from arranger.projections.derived.queue_counts import queue_of, sum_of
from arranger.projections.derived.queue_membership import counted_priority
from arranger.projections.jobs.records import JobRecord, expand, holds, is_quorum, requests_of
from arranger.projections.jobs.worker_groups import parted, with_whole
from arranger.projections.queues.use import JOBS, Use
from arranger.projections.state import State
from arranger.projections.verdicts.judging import NOT_OURS, outdated
from arranger.projections.verdicts.placements import Freed

_BEGUN = (Stage.STARTING, Stage.RUNNING)


def no_victims(state: State, job: JobRecord, event: Preempted) -> str:
    """Why the victims of a decision can't give room to the job, or why pods aren't about to leave; empty if they do."""
    if job.placements:
        return "it has nodes already"
    if job.stage in _BEGUN:  # its pods would be created before the others have left
        return f"it is {job.stage}"
    if took_in_vain(job):
        return "it took room in vain, and nothing has changed since"
    named = {job.uid: None}
    for victim in event.victims:
        of = state.jobs.get(victim.job_uid)
        refused = outdated(of, victim.based_on, victim.attempt)
        if not refused and victim.job_uid in named:
            refused = "it is named twice, or is the job itself"
        if not refused and of is not None:
            refused = _keeps(of, victim) or _no_guest(of, victim, job)
        if refused:
            return f"victim {victim.job_uid}: {refused}"
        named[victim.job_uid] = None
    staying = next((uid for uid in event.leaving if uid not in state.pods or not leaves(state, state.pods[uid])), None)
    return f"pod {staying} doesn't leave" if staying is not None else ""


def _keeps(of: JobRecord, victim: Victim) -> str:
    """Why a job doesn't lose the pods of a victim: it doesn't have them, or keeps a part that it can't run with."""
    slots = expand(victim.pods)
    if of.of_pods:
        return NOT_OURS
    if not (of.stage in _BEGUN or (of.awaits_room and victim.kind.whole)) or not slots:
        return f"it is {of.stage}, or loses nothing"
    for slot, node in slots.items():
        if of.placements.get(slot) != node:
            return f"slot {slot} isn't on node {node}"
    rest = of.provided - slots.keys()
    if victim.kind.whole:
        return "it keeps pods" if of.placements.keys() - slots.keys() else ""
    if parted(of.valid_spec, rest) or not is_quorum(of.valid_spec, rest):
        return "the rest isn't a quorum"
    return ""


def _no_guest(of: JobRecord, victim: Victim, host: JobRecord) -> str:
    """Why a job needn't leave as a guest: it isn't one of the job that gets its room."""
    if not victim.kind.of_guest or host.uid in of.slots.hosts:
        return ""
    lent = of.slots.lent_by(host.uid)
    if lent and (victim.kind.whole or expand(victim.pods).keys() <= with_whole(of.valid_spec, lent)):
        return ""
    return f"it is no guest of {host.uid}"


def hosts_of(state: State, job: JobRecord) -> list[JobRecord]:
    """The jobs whose guest a job is now: in their reserved room, or by a limit that is kept for them. Those aren't that
    wait for its end, because it needn't leave for them."""
    if not job.slots.hosts or not job.placements:
        return []
    hosts = [uid for uid in job.slots.hosts if state.is_host(uid) and uid in state.jobs]
    return [state.jobs[uid] for uid in hosts if not state.awaits_end(uid, job.uid)]


def lenders_of(state: State, job: JobRecord) -> list[JobRecord]:
    """The jobs in whose reserved room some pods of a job are, although it isn't their guest as a whole."""
    uids = dict.fromkeys(uid for hosts in job.slots.lent.values() for uid in hosts)
    return [state.jobs[uid] for uid in uids if uid in state.jobs and uid not in job.slots.hosts]


def leaves(state: State, pod: PodSeen) -> bool:
    """Whether a pod of a TYJob is about to leave the room that it holds: it fills no slot of its job, or that is
    gone."""
    if pod.owner is None or not holds(pod):
        return False
    job = state.jobs.get(pod.owner.job_uid)
    if job is None:
        return True
    return not _fills_slot(job, pod, pod.owner) and (pod.deleting or not _stays(job, pod.owner))


def kept_pods(state: State) -> Iterator[PodSeen]:
    """The pods that hold room and run on although their jobs have ended, by their `cleanPodPolicy`. No queue counts
    them, and nobody deletes them."""
    for uid, pods in state.pods_of.items():
        job = state.jobs.get(uid)
        if job is not None and job.ended and _keeps_pods(job):
            yield from (pod for pod in pods.values() if _outlives(job, pod))


def _outlives(job: JobRecord, pod: PodSeen) -> bool:
    owner = pod.owner
    if owner is None or pod.deleting or not holds(pod):
        return False
    return not _fills_slot(job, pod, owner) and _stays(job, owner)


def _fills_slot(job: JobRecord, pod: PodSeen, owner: PodOwner) -> bool:
    slot = job.slot_of(owner)
    return slot is not None and job.bound.get(slot) == pod.uid


def _keeps_pods(job: JobRecord) -> bool:
    return job.spec is not None and job.spec.clean_pod_policy == CleanPodPolicy.NONE


def _stays(job: JobRecord, owner: PodOwner) -> bool:
    """Whether an ended job keeps a pod that may still run: one of its last attempt, if it cleans none up."""
    if not job.ended or not _keeps_pods(job):
        return False
    return owner.attempt == job.attempt and not job.replaced_before(owner) and not job.seen.deleting


def freed_by(state: State, event: Preempted) -> Freed:
    """The room that a decision frees."""
    nodes: dict[str, Amounts] = {}
    for node, requests in _leaving(state, event):
        if node in state.nodes.rows:
            amounts = state.nodes.vector(requests)
            nodes[node] = nodes[node] + amounts if node in nodes else amounts.copy()
    queues: Use = {}
    for victim in event.victims:
        of, slots = state.jobs[victim.job_uid], expand(victim.pods)
        amounts_of = queues.setdefault(queue_of(state, of), {})
        for resource, amount in sum_of(of, slots.keys()).items():
            amounts_of[resource] = amounts_of.get(resource, 0) + amount
        if len(slots) == len(of.placements):
            amounts_of[JOBS] = amounts_of.get(JOBS, 0) + 1
    return Freed(nodes, queues)


def _leaving(state: State, event: Preempted) -> Iterator[tuple[str, Requests]]:
    """The nodes and requests of all pods that leave, and of those that may still come to the nodes of the quorum: their
    room is kept for them for some seconds at most."""
    for pod in assumed_on(state, {pods.node for pods in event.placed.pods}):
        yield pod.node, pod.requests
    for uid in event.leaving:
        yield state.pods[uid].node, state.pods[uid].requests
    for victim in event.victims:
        of = state.jobs[victim.job_uid]
        for slot, node in expand(victim.pods).items():
            uid = of.bound.get(slot, "")
            if not uid:
                yield node, requests_of(of, slot)
            elif holds(state.pods[uid]):
                yield state.pods[uid].node, state.pods[uid].requests


def taken_by(state: State, job: JobRecord, victim: JobRecord, kind: PreemptionKind) -> TakenBy:
    """The facts about the job that gets the room of a victim."""
    queue, priority = queue_of(state, job), counted_priority(state, job)
    guest = kind.of_guest
    reclaimed = not guest and queue != queue_of(state, victim)
    return TakenBy(job.seen.namespace, job.seen.name, queue, priority, reclaimed, guest)
