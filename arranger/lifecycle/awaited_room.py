"""Nodes that a job has before it begins, because other pods are still to leave them: whether their room is free, and
how long the job waits for it."""

from collections.abc import Iterator

from arranger.events.facts import NodeClosed, NodeLost, PodsStayed
from arranger.events.kinds import PodSeen, StageDecided
from arranger.lifecycle.deciding import decide
from arranger.lifecycle.replacements import barred, spot_of
from arranger.model.job import Stage
from arranger.model.stages import StageReason as R
from arranger.projections.cluster.nodes import Amounts
from arranger.projections.derived.awaited_room import assumed_on
from arranger.projections.jobs.records import JobRecord, holds, requests_of
from arranger.projections.state import State
from arranger.projections.verdicts.preemption import leaves

#: How long a job waits for which no decision says that, because a new epoch adopted it with its nodes, in milliseconds.
_ADOPTED_MS = 120_000


def awaited_until_ms(job: JobRecord) -> int | None:
    """Until when a job that hasn't begun waits for the room of its nodes, in milliseconds since 1970; None without
    nodes."""
    if job.stage not in (Stage.PENDING, Stage.RESCHEDULING) or not job.placements:
        return None
    return job.slots.room.until_ms if job.slots.room is not None else job.times.scheduled_ms + _ADOPTED_MS


def next_free_ms(state: State, job: JobRecord, time_ms: int) -> int | None:
    """When the next pod that may still come to the nodes of such a job doesn't count any more, in milliseconds since
    1970; None if there is none. No entry says so in a quiet log."""
    if not job.awaits_room or not state.assumed:
        return None
    kept = assumed_on(state, frozenset(job.placements.values()))
    return min((of.until_ms for of in kept if of.until_ms > time_ms), default=None)


def room_is_free(state: State, job: JobRecord, time_ms: int) -> bool:
    """Whether no node of the job has more in use than it can give, the job's pods included, and nothing is in its way.
    Pods that may have come until then and were never seen don't count any more; in a quiet log, no entry drops them."""
    return next(_full(state, job, time_ms), None) is None and not _in_the_way(state, job)


def _in_the_way(state: State, job: JobRecord) -> list[PodSeen]:
    """The pods that are still to leave for a job, if rules among pods may keep its own from starting beside them: a
    port, a claim of one pod, a device or an anti-affinity. A node may have room for both, so amounts don't show it."""
    stay = [pod for pod in awaited_pods(state, job) if holds(pod)]
    if any([job.valid_spec.groups[group].shape.rules is not None for group, _ in job.placements]):
        return stay
    return [pod for pod in stay if pod.traits.anti_affinity]


def _full(state: State, job: JobRecord, time_ms: int) -> Iterator[str]:
    """The nodes that have too little."""
    freed: dict[str, Amounts] = {}
    for pod in state.assumed_until(time_ms):
        amounts = state.nodes.vector(pod.requests)
        freed[pod.node] = freed[pod.node] + amounts if pod.node in freed else amounts
    groups = {(node, slot[0]): slot for slot, node in job.placements.items()}
    for (node, _), slot in groups.items():
        if state.nodes.overbooked(node, requests_of(job, slot), freed.get(node, 0)):
            yield node


def room_lost(state: State, job: JobRecord, time_ms: int) -> StageDecided | None:
    """That a job gives up nodes that others were still to leave: one is gone, isn't ready or was closed, or these pods
    are still there although the job has waited long enough; None if it still waits."""
    for slot in sorted({spot_of(job, slot): slot for slot in job.placements}.values()):
        node = job.placements[slot]
        facts = state.nodes.facts_of(node)
        if facts is None or not facts.ready:
            return decide(job, R.NODE_LOST, NodeLost(node, gone=facts is None, awaited=True))
        if (how := barred(state, job, slot)) is not None:
            return decide(job, R.NODE_CLOSED, NodeClosed(node, how, awaited=True))
    until_ms = awaited_until_ms(job)
    if until_ms is None or state.known_ms(time_ms) < until_ms:
        return None
    return decide(job, R.ROOM_NOT_FREED, _who_stays(state, job, time_ms))


def _who_stays(state: State, job: JobRecord, time_ms: int) -> PodsStayed:
    """The pods that didn't leave the nodes of a job in time."""
    full = dict.fromkeys(_full(state, job, time_ms))
    awaited = [pod for pod in awaited_pods(state, job) if pod.node in full and holds(pod)]
    stays = awaited or _in_the_way(state, job)
    first = min(stays, key=lambda of: (of.namespace, of.name), default=None)
    if first is None:
        return PodsStayed(next(iter(full), ""))
    return PodsStayed(first.node, f"{first.namespace}/{first.name}", len(stays))


def awaited_pods(state: State, job: JobRecord) -> list[PodSeen]:
    """The pods that were to leave the nodes of a job, as far as they exist."""
    room = job.slots.room
    if room is None:
        return []
    leaving = [state.pods[uid] for uid in room.leaving if uid in state.pods]
    of_victims = [pod for of in room.victims for pod in state.pods_of.get(of.job_uid, {}).values()]
    return list({pod.uid: pod for pod in [*leaving, *(pod for pod in of_victims if leaves(state, pod))]}.values())


def taker(state: State, job: JobRecord, node: str) -> str:
    """The pod that came last to a node after the job had got it, with its namespace; empty if none did, because the
    node has become smaller."""
    since_ms = job.times.scheduled_ms - 1000  # kubelets tell whole seconds
    came = [
        (pod.times.started_ms, pod.namespace, pod.name)
        for pod in state.pods.values()
        if pod.node == node and holds(pod) and pod.times.started_ms > since_ms
        if pod.owner is None or pod.owner.job_uid != job.uid
    ]
    return "/".join(max(came)[1:]) if came else ""
