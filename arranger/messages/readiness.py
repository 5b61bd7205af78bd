"""How far a running job is from the quorum that it needs ready, in one line."""

import math
from collections import Counter
from collections.abc import Collection, Sequence

from arranger.events.facts import BeyondLimit, LackOfNodes
from arranger.events.kinds import PodSeen
from arranger.messages.decisions import container_text, failure_text
from arranger.messages.departures import deleted_pods_text
from arranger.messages.failures import Again, waiting_text
from arranger.messages.faults import faults_text
from arranger.model.faults import FaultKind
from arranger.model.job import LEADER_GROUP, Stage
from arranger.model.pod import TERMINAL, Phase
from arranger.model.reasons import ReasonKind
from arranger.model.text import counted, rfc3339, rfc3339_from
from arranger.projections.jobs.parts import LEADER, SlotKey
from arranger.projections.jobs.records import JobRecord, blameless, by_group
from arranger.projections.observed.devices import claim_for, needs_of, uses_devices
from arranger.projections.observed.volumes import claims_to_provision, waits_for_volumes
from arranger.projections.state import State
from arranger.projections.verdicts.preemption import hosts_of, lenders_of

#: Warnings of labels that only another scheduler reads.
_LABELS = (FaultKind.KUEUE_LABEL, FaultKind.KUEUE_LABEL_OF_PODS)


def below_quorum_text(state: State, job: JobRecord) -> str:
    """Which pods of its quorum a running job lacks now; empty for a job that has it, isn't running or ends."""
    if not job.below_quorum or ending_text(state, job):
        return ""
    spec, ready, finished = job.valid_spec, job.ready_or_finished, finished_workers(state, job)
    parts = [] if ready[LEADER_GROUP] or not spec.has_leader else ["the leader isn't ready"]
    for group, lacking in enumerate(spec.pods_missing(ready)):
        if lacking and group != LEADER_GROUP:
            of = spec.groups[group]
            size, what = of.group_size, "worker group" if of.group_size > 1 else "worker"
            counts = ready[group] // size, of.min_count // size, finished[group] // size
            parts.append(_of(*counts, f" of set {of.name}", what))
    if spec.min_workers > sum(ready[1:]):
        parts.append(_of(sum(ready[1:]), spec.min_workers, sum(finished)))
    why = "; ".join(part for part in (deleted_pods_text(state, job), down_text(state, job)) if part)
    return f"running below its quorum: {', '.join(parts)}{f'; {why}' if why else ''}"


def down_text(state: State, job: JobRecord) -> str:
    """The first node with a pod of a job that isn't ready, or is gone; empty if all are ready."""
    nodes, used = state.nodes, {job.placements[slot] for slot in job.bound if slot in job.placements}
    down = sorted(node for node in used if nodes.down_for_ms(node, state.time_ms) >= 0)
    if not down:
        return ""
    more = f" and {len(down) - 1} more" if len(down) > 1 else ""
    how = "not ready" if nodes.has(down[0]) else "gone"
    return f"node {down[0]}{more} of its pods {'is' if len(down) == 1 else 'are'} {how}"


def ending_text(state: State, job: JobRecord) -> str:
    """Why a running job without its quorum has none: it ends, though no decision says so yet. Empty otherwise."""
    if not job.below_quorum:
        return ""
    if job.seen.deleting:
        return "it is being deleted"
    if job.stands_still:
        return "ended by spec.terminating" if job.valid_spec.terminating else "suspended by spec.suspend"
    if job.succeeded:
        return "all workers whose end is the job's have finished"
    leader = state.pods.get(job.bound.get(LEADER, "")) or job.leader.ended
    done = leader is not None and leader.phase == Phase.SUCCEEDED and not blameless(leader)
    return "the leader has finished" if done and job.valid_spec.ends_with_leader else ""


def deleting_text(job: JobRecord) -> str:
    """That the job is being deleted although its pods run on, because a finalizer keeps it; empty otherwise."""
    runs = job.stage in (Stage.STARTING, Stage.RUNNING) and not job.below_quorum
    return "it is being deleted, and a finalizer keeps it" if job.seen.deleting and runs else ""


def held_text(job: JobRecord) -> str:
    """Which worker sets aren't started yet, and what they wait for; empty if none waits for another."""
    groups = job.valid_spec.groups
    held = [of for of in groups if of.start_after is not None and of.count and not job.may_start_after(of)]
    return "; ".join(f"set {of.name} starts once {_awaited(job, of.start_after or LEADER_GROUP)} ready" for of in held)


def refusal_text(job: JobRecord) -> str:
    """What the API server refuses to do for a job, and why; empty for nothing."""
    refusal = job.refusal() if not job.ended else None
    return f"{refusal.effect} refused: {refusal.message}" if refusal is not None else ""


def claims_text(state: State, job: JobRecord) -> str:
    """Which claim of volumes or devices pods that have nodes wait for; empty if they wait for none."""
    return volumes_text(state, job) or devices_text(state, job)


def devices_text(state: State, job: JobRecord) -> str:
    """Which resource claim a pod of a TYJob that has a node waits for; empty if none does."""
    if job.of_pods or job.stage not in (Stage.STARTING, Stage.RUNNING) or not uses_devices(job.valid_spec):
        return ""
    for slot in sorted(job.placements.keys() - job.bound.keys()):
        for need in needs_of(job.valid_spec.groups[slot[0]].shape) if job.may_start(slot[0]) else ():
            claim = claim_for(state, job, slot, need)
            if claim is None or claim.facts.allocation is None:
                of = f" of pod {job.pod_name(slot)}" if need.own else ""
                return f"waits until resource claim {need.claim}{of} has its devices"
    return ""


def volumes_text(state: State, job: JobRecord) -> str:
    """Which claim pods that have nodes wait for, on which node and since when; empty if they wait for none."""
    if job.stage not in (Stage.STARTING, Stage.RUNNING):
        return ""
    waiting = [group for group in range(len(job.valid_spec.groups)) if waits_for_volumes(job, group)]
    empty = [slot for slot in job.placements if slot[0] in waiting and slot not in job.bound] if waiting else []
    slot = min([slot for slot in empty if job.may_start(slot[0])], default=None)
    return _claim_text(state, job, slot[0], job.placements[slot]) if slot is not None else ""


def _claim_text(state: State, job: JobRecord, group: int, node: str) -> str:
    needs = job.valid_spec.groups[group].shape.volumes
    if needs is not None and needs.lack is not None:
        of = needs.lack
        return f"waits for claim {of.claim}, {'whose volume is' if of.name else 'which is'} not known yet"
    claims = claims_to_provision(state, job, group)
    waiting = [(state.volumes.selected_ms.get((of.namespace, of.name), 0), of) for of in claims]
    since_ms, first = min(waiting, key=lambda of: (of[0] or math.inf, of[1].name))
    more = f" (and {len(claims) - 1} more)" if len(claims) > 1 else ""
    if not since_ms:
        return f"waits until claim {first.name}{more} is to be bound on node {node}"
    since = rfc3339(since_ms)
    return f"waits for claim {first.name}{more} to be bound on node {first.facts.selected_node}, since {since}"


def _awaited(job: JobRecord, group: int) -> str:
    return f"set {job.valid_spec.groups[group].name} is" if group != LEADER_GROUP else "the leader is"


def finished_workers(state: State, job: JobRecord) -> list[int]:
    """How many workers have finished that don't count towards the quorum, by group."""
    pods = state.pods
    ended = [slot for slot, uid in job.bound.items() if slot != LEADER and pods[uid].phase == Phase.SUCCEEDED]
    return by_group(job.valid_spec, ended)


def _of(ready: int, needed: int, finished: int, of_set: str = "", what: str = "worker") -> str:
    workers, are = what if needed == 1 else f"{what}s", "is" if 1 in (ready, needed) else "are"
    done = f" ({finished_text(finished)})" if finished else ""
    return f"{ready} of {needed} {workers}{of_set} {are} ready{done}"


def finished_text(finished: int) -> str:
    return f"{finished} {'has' if finished == 1 else 'have'} finished"


def guest_text(state: State, job: JobRecord) -> str:
    """For which jobs the room is reserved, or the limit kept, that a job, or some of its pods, use; empty for no
    guest."""
    lenders, pods = lenders_of(state, job), len(job.slots.lent)
    hosts, told = [of for of in hosts_of(state, job) if of.uid in state.reservations], list[str]()
    limits = [of for of in hosts_of(state, job) if of.uid not in state.reservations]
    if hosts:
        told.append(f"runs in room that is reserved for {_named(hosts)}")
    if limits:
        told.append(f"uses a limit of its queue that is kept for {_named(limits)}")
    if lenders:
        told.append(f"{pods} of its pods {'is' if pods == 1 else 'are'} in room that is reserved for {_named(lenders)}")
    give = "gives" if hosts or limits or pods == 1 else "give"
    return f"{'; '.join(told)}, and {give} it back as soon as that is enough for a start" if told else ""


def _named(jobs: Sequence[JobRecord]) -> str:
    names = [f"{of.seen.namespace}/{of.seen.name}" for of in jobs]
    return f"job {names[0]}" if len(names) == 1 else f"jobs {', '.join(names)}"


def reserved_text(state: State, job: JobRecord) -> str:
    """For which jobs the room is reserved, or the limit kept, that a waiting job would use; empty if neither is in its
    way."""
    short = job.waits.shortage if job.waits is not None else None
    if isinstance(short, BeyondLimit):
        kept = [state.jobs[uid] for uid in short.kept_by if uid in state.jobs]
        return f"the limit is kept for {_named(kept)}" if kept else ""
    return _room_reserved_text(state, job, short) if isinstance(short, LackOfNodes) else ""


def _room_reserved_text(state: State, job: JobRecord, short: LackOfNodes) -> str:
    if all(of.kind != ReasonKind.RESERVED for of, _ in short.reasons):
        return ""
    others = [uid for uid in state.reservations if uid != job.uid and uid in state.jobs]
    found = [state.jobs[uid].seen for uid in others if uid in short.kept_by]
    found = found or [state.jobs[uid].seen for uid in others]
    if not found:
        return ""
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return f"room is reserved for job {found[0].name} of namespace {found[0].namespace}{more}"


def unset_text(job: JobRecord) -> str:
    """The references of its templates to variables that its pods won't have; empty for none."""
    return faults_text(of for of in job.seen.unset if of.kind not in _LABELS)


def labels_text(job: JobRecord) -> str:
    """Its labels, and those of its templates, that only another scheduler reads; empty for none."""
    return faults_text(of for of in job.seen.unset if of.kind in _LABELS)


def stuck_slots(state: State, job: JobRecord) -> list[SlotKey]:
    """The slots whose pods their kubelets can't start; most often an image can't be pulled."""
    return [slot for slot, uid in job.bound.items() if (pod := state.pods.get(uid)) is not None and pod.waiting]


def stuck_text(state: State, job: JobRecord) -> str:
    """The first pod that its kubelet can't start, and why; empty for none."""
    found = stuck_slots(state, job)
    if not found:
        return ""
    pod = state.pods[job.bound[min(found)]]
    others, nodes = _others(state, job, found)
    restarted = f"; it {of}" if (of := restarted_text(pod)) else ""
    return f"pod {pod.name}{others} can't start on {nodes}: {waiting_text(pod)}{restarted}"


def _others(state: State, job: JobRecord, slots: Collection[SlotKey]) -> tuple[str, str]:
    """How many more pods there are than that of the first slot, and the node of all: or how many nodes they have."""
    nodes = {state.pods[job.bound[slot]].node for slot in slots}
    others = f" and {len(slots) - 1} more" if len(slots) > 1 else ""
    return others, state.pods[job.bound[min(slots)]].node if len(nodes) == 1 else counted(len(nodes), "node")


def crashing_text(state: State, job: JobRecord) -> str:
    """The first pod that its kubelet can't start; or else the first that runs again after its program failed and isn't
    ready, as between two ends of a program that fails at each start. With the reasons; empty for none."""
    if stuck := stuck_text(state, job):
        return stuck
    found = [slot for slot, uid in job.bound.items() if (pod := state.pods.get(uid)) is not None and _crashed(pod)]
    if not found:
        return ""
    pod = state.pods[job.bound[min(found)]]
    others, nodes = _others(state, job, found)
    return f"pod {pod.name}{others} on {nodes} {restarted_text(pod)}"


def _crashed(pod: PodSeen) -> bool:
    """Whether a pod runs again after a failure, and isn't ready."""
    return bool(pod.restarts and pod.ended) and not (pod.ready or pod.deleting or pod.phase in TERMINAL)


def restarted_text(pod: PodSeen) -> str:
    """How often a pod's containers were restarted, and how one of them failed last; empty if none has failed."""
    if not pod.restarts or pod.ended is None:
        return ""
    last = "after" if pod.restarts == 1 else "the last time after"
    return f"was restarted {counted(pod.restarts, 'time')}, {last} {container_text(pod.ended)}"


def failed_workers_text(
    worker_set: str, failed: Sequence[tuple[int, PodSeen]], again: Again, due_ms: int, limit: str, *, led: bool
) -> str:
    """What becomes of failed workers of a set and when, and how the first of these (index, pod) failed. `limit` is that
    of their restarts, in words. If the job is `led`, it is the leader's failure that counts, should there be one."""
    (index, pod), more = failed[0], f" and {len(failed) - 1} more" if len(failed) > 1 else ""
    why = failure_text(pod.ended, pod.reason or pod.message)
    first = f"{worker_set}-{index}{f' ({why})' if why else ''}"
    then = _THEN[again].format(due=rfc3339_from(due_ms), limit=limit)
    unless = ", unless the leader failed too" if led and again in (Again.TO_BE_GIVEN_UP, Again.ENDS_JOB) else ""
    return f"failed workers of {worker_set} {then}{unless}: {first}{more}"


_THEN = {
    Again.REPLACED: "come again from {due}",
    Again.WITH_JOB: "restart the whole job from {due}",
    Again.TO_BE_GIVEN_UP: "are to be given up from {due} ({limit})",
    Again.ENDS_JOB: "end the job from {due} ({limit})",
}


def given_up_text(job: JobRecord) -> str:
    """How many workers of a job that goes on without them are given up, by set; empty for none. Slots of others' pods
    are given up only until the next pod comes."""
    if job.of_pods:
        return ""
    groups, gone = job.valid_spec.groups, Counter(group for group, _ in job.slots.given_up)
    told = [
        f"{gone[group]} of {counted(groups[group].count, 'worker')} of {groups[group].name}" for group in sorted(gone)
    ]
    return f"{', '.join(told)} {'is' if gone.total() == 1 else 'are'} given up" if told else ""
