"""Room that jobs took from others: which of it other pods are still to leave, whether a job has been Running with it,
and whether it may take room again.

Whoever took room and then didn't start has cost others their work for nothing. It takes none again until something has
changed that may have kept it from starting: its spec, one of the nodes that it got, or a quota of its namespace. If
others didn't leave its nodes in time, it is enough that a pod leaves one of them. If one kubelet refused its pods, or
others didn't leave in time, it may take room once more. Free room is open to it all the time.
"""

from collections.abc import Container, Iterator, Mapping

import msgspec

from arranger.events.kinds import ObjectGone, PodsTried, Preempted, QuotaSeen, StageDecided
from arranger.model.config import CycleConfig
from arranger.model.job import ENDED, Stage
from arranger.model.stages import StageReason
from arranger.projections.cluster.nodes import Amounts, Requests
from arranger.projections.jobs.parts import Pardon, TakenRoom
from arranger.projections.jobs.records import JobRecord, requests_of
from arranger.projections.state import Assumed, Changes, State

#: Somebody asked for it, so the next start is a new one.
_ASKED_FOR = (StageReason.SUSPENDED, StageReason.RESUMED)


def await_room(state: State, job: JobRecord, event: Preempted | None) -> None:
    """Record by which decision others are still to leave the job's nodes, if it has some; None if that is over."""
    job.slots.room = event if job.placements else None
    if job.slots.room is not None:
        state.awaiting[job.uid] = None
    else:
        state.awaiting.pop(job.uid, None)


def awaited_on(state: State, node: str) -> Mapping[str, Amounts]:
    """The room on a node that jobs got from others, which are still to leave it, by node. It is no reason to take room
    from the pods that stay."""
    found: dict[str, Amounts] = {}
    for uid in state.awaiting:
        job = state.jobs[uid]
        for slot, at in job.placements.items():
            if at == node:
                amounts = state.nodes.vector(requests_of(job, slot))
                found[node] = found[node] + amounts if node in found else amounts
    return found


def assumed_on(state: State, nodes: Container[str]) -> Iterator[Assumed]:
    """The pods that may still come to these nodes. Who takes room there from others counts on the room that is kept for
    them, as on that of pods that leave: both become free within a known time."""
    return (pod for pod in state.assumed.values() if pod.node in nodes)


def overbooked(state: State, node: str, requests: Requests) -> bool:
    """Whether a node has more in use than it can give of what these requests name, which are counted already. Room that
    jobs still wait for there is not in use: it is for pods that come only once others have left."""
    return state.nodes.overbooked(node, requests, awaited_on(state, node).get(node, 0) if state.awaiting else 0)


# --- room that was taken in vain ------------------------------------------------------------------------------


def took_in_vain(job: JobRecord) -> bool:
    """Whether a job takes no room because it took some in vain."""
    return job.taken is not None and job.taken.in_vain is not None


def refused_by_dry_run(job: JobRecord) -> bool:
    """Whether the API server refused a pod of the job in its last dry run."""
    return job.dry_run is not None and job.dry_run.slot is not None


def refused_when_started(job: JobRecord) -> bool:
    """Whether the API server refused pods of the quorum when the job last got nodes, and nobody edited it since."""
    decided = job.decided
    refused = decided is not None and decided.reason == StageReason.QUORUM_REFUSED and job.stage == Stage.RESCHEDULING
    return refused and job.back_offs.held_back


def untried(job: JobRecord, config: CycleConfig) -> bool:
    """Whether pods of a job are still to be tried before it may take room: then it may do so any moment."""
    return config.dry_run and job.dry_run is None and not job.of_pods


def takes_none(job: JobRecord, config: CycleConfig) -> bool:
    """Whether nobody gives room to a job, and none is reserved for it: it took some in vain, or the API server refuses
    its pods."""
    return took_in_vain(job) or (config.dry_run and refused_by_dry_run(job))


def take_room(state: State, job: JobRecord, event: Preempted, time_ms: int) -> None:
    """Others give room to a job."""
    job.slots.took = True
    pardon = Pardon.USED if job.taken is not None and job.taken.pardon else Pardon.NONE
    job.taken = TakenRoom(time_ms, tuple(sorted({pods.node for pods in event.placed.pods})), pardon=pardon)
    state.takers[job.uid] = None


def follow_stage(state: State, job: JobRecord, event: StageDecided) -> None:
    """A job with such room enters a stage. It isn't in vain if the job ran, if another one took the room from it, or
    if a node closed before the job had begun there."""
    taken = job.taken
    if event.stage == Stage.RUNNING or event.stage in ENDED:
        job.slots.asked = ()
    if taken is None or event.stage == Stage.STARTING:
        return
    if (
        event.stage == Stage.RUNNING
        or event.stage in ENDED
        or event.reason in _ASKED_FOR
        or (taken.ended is None and (event.reason == StageReason.PREEMPTED or event.awaited))
    ):
        _forget_taken(state, job)
    elif taken.ended is None:
        job.taken = msgspec.structs.replace(taken, ended=event, pardon=_pardon(job, taken, event.reason))


def _pardon(job: JobRecord, taken: TakenRoom, reason: StageReason) -> Pardon:
    refused = [node for node in taken.nodes if job.refusals.get(node, 0) >= taken.since_ms]
    by_others = len(refused) == 1 or reason == StageReason.ROOM_NOT_FREED
    return Pardon.GIVEN if by_others and taken.pardon == Pardon.NONE else taken.pardon


def ran(state: State, job: JobRecord) -> None:
    """A job is Running."""
    job.slots.asked = ()
    if job.taken is not None:
        _forget_taken(state, job)


def spec_changed(state: State, job: JobRecord, changes: Changes) -> None:
    """Somebody edited a job."""
    _forget([job] if job.taken is not None else [], state, changes)


def pods_tried(state: State, job: JobRecord, event: PodsTried, changes: Changes) -> None:
    """The API server took the pods of a job in a dry run, or refused one. If it refused one before, whatever kept the
    job from starting has changed."""
    before, job.tried = job.dry_run, event
    mended = before is not None and before.slot is not None and event.slot is None and job.taken is not None
    _forget([job] if mended else [], state, changes)
    state.scheduling_changes += 1
    changes.jobs[job.uid] = None
    changes.schedulable = True


def node_changed(state: State, node: str, changes: Changes) -> None:
    """A node has other facts, or is gone."""
    _forget([job for job in _takers(state) if job.taken is not None and node in job.taken.nodes], state, changes)


def pod_left(state: State, node: str, changes: Changes) -> None:
    """A pod has left a node. That counts for jobs whose room didn't come in time."""
    found = []
    for job in _takers(state):
        ended = job.taken.ended if job.taken is not None and node in job.taken.nodes else None
        if ended is not None and ended.reason == StageReason.ROOM_NOT_FREED:
            found.append(job)
    _forget(found, state, changes)


def quota_changed(state: State, event: QuotaSeen | ObjectGone, changes: Changes) -> None:
    """A quota is to be recorded, or forgotten. What is used of it changes with every pod, so only its limits count."""
    old = state.quotas.get(event.namespace, {}).get(event.name)
    if isinstance(event, QuotaSeen) and old is not None and (old.hard, old.scopes) == (event.hard, event.scopes):
        return
    _forget([job for job in _takers(state) if job.seen.namespace == event.namespace], state, changes)


def _takers(state: State) -> list[JobRecord]:
    return [state.jobs[uid] for uid in state.takers]


def _forget(jobs: list[JobRecord], state: State, changes: Changes) -> None:
    for job in jobs:
        _forget_taken(state, job)
        state.scheduling_changes += 1
        changes.jobs[job.uid] = None
        changes.schedulable = True


def _forget_taken(state: State, job: JobRecord) -> None:
    """The job may take room again as if it had taken none."""
    job.taken = None
    state.takers.pop(job.uid, None)
