"""Pods that the API server refuses, because of quota, permissions or admission: when to release their nodes. And pods
that kubelets refuse again and again.

For `refused_ms` the applier retries, because a refusal may be temporary. Then a starting job without its quorum
releases all its nodes and is scheduled again after a back-off. If the quorum exists, the refused workers beyond it
release their nodes, and get none during a back-off of their own.
"""

from collections.abc import Sequence

from arranger.events.facts import PodsRefused, RefusedPods
from arranger.events.kinds import EndedWorker, PodSeen, StageDecided, WorkersReplaced
from arranger.lifecycle.config import LifecycleConfig
from arranger.lifecycle.deciding import decide
from arranger.model.job import GANG, Replacement, Slot, Stage
from arranger.model.pod import REFUSALS
from arranger.model.stages import StageReason
from arranger.projections.jobs.backoff import STEADY_MS
from arranger.projections.jobs.parts import LEADER, SlotKey
from arranger.projections.jobs.records import JobRecord, by_group
from arranger.projections.jobs.worker_groups import with_whole


def refused_quorum(job: JobRecord, config: LifecycleConfig, time_ms: int) -> StageDecided | None:
    """Release all nodes of a starting job if refused pods keep it from its quorum; it backs off."""
    overdue = _overdue(job, config, time_ms)
    if not overdue or job.stage != Stage.STARTING or not job.quorum_placed():
        return None
    if _holds_without(job, overdue):
        return None
    held_ms = time_ms - job.times.stage_ms
    back_off_ms = config.back_off_after(job.back_offs.attempt.in_a_row(time_ms, held_ms=held_ms))
    return decide(job, StageReason.QUORUM_REFUSED, PodsRefused(_words(job)), back_off_ms)


def refused_workers(job: JobRecord, config: LifecycleConfig, time_ms: int) -> WorkersReplaced | None:
    """Release the nodes of refused workers beyond the quorum. Refused workers within the quorum of a running job keep
    their nodes for `quorum_ms`, so that a brief refusal doesn't discard the job's work."""
    overdue = _overdue(job, config, time_ms)
    return _released(job, _spare(job, overdue), config, time_ms) if overdue else None


def refused_pods(job: JobRecord, config: LifecycleConfig, time_ms: int) -> WorkersReplaced | None:
    """Release the nodes of all pods of a group that no TYJob owns whose binding is refused, while others were bound."""
    return _released(job, _overdue(job, config, time_ms), config, time_ms)


def _released(job: JobRecord, given_up: list[SlotKey], config: LifecycleConfig, time_ms: int) -> WorkersReplaced | None:
    if not given_up:
        return None
    workers = tuple(
        EndedWorker(Slot(*slot), job.bound.get(slot, ""), Replacement.ELSEWHERE, False) for slot in given_up
    )
    back_off_ms = config.back_off_after(job.back_offs.further.in_a_row(time_ms))
    cause = RefusedPods(Slot(*given_up[0]), len(given_up), _words(job))
    return WorkersReplaced(job.uid, job.version, job.attempt, workers, (cause,), back_off_ms=back_off_ms)


def refused_by_nodes(job: JobRecord, pods: Sequence[PodSeen], time_ms: int) -> bool:
    """Whether a kubelet refused one of these pods of the job, and that isn't about its node alone: other nodes refused
    the job's pods not long ago, or the job took room from others and never ran with it. Then it backs off; else it goes
    elsewhere at once."""
    if not any(pod.reason.startswith(REFUSALS) for pod in pods):
        return False
    lately = [since_ms for since_ms in job.refusals.values() if time_ms - since_ms < STEADY_MS]
    return len(lately) > 1 or job.taken is not None


def tries_pods(job: JobRecord, *, in_front: bool) -> bool:
    """Whether a dry run should show if the API server takes the pods of a waiting job: others would give it room, or a
    pod was refused before, or it is `in_front`: it has a reservation, and may take room at the next chance. It costs
    requests, so jobs that get free room, or none, are not tried."""
    if job.of_pods or job.spec is None or job.placements or job.stage not in (Stage.PENDING, Stage.RESCHEDULING):
        return False
    if job.stands_still or job.seen.deleting:
        return False
    if job.dry_run is not None:
        return job.dry_run.slot is not None
    return in_front or (job.waits is not None and job.waits.shortage.untried)


def due_ms(job: JobRecord, config: LifecycleConfig) -> int | None:
    """When the first of the refused slots is overdue, in milliseconds; None without any."""
    return min(job.slots.refused_ms.values(), default=0) + config.refused_ms if job.slots.refused_ms else None


def _overdue(job: JobRecord, config: LifecycleConfig, time_ms: int) -> list[SlotKey]:
    """The slots whose pods have been refused for long enough, in order."""
    since = job.slots.refused_ms.items()
    return sorted(slot for slot, since_ms in since if time_ms - since_ms >= config.refused_ms)


def _holds_without(job: JobRecord, overdue: list[SlotKey]) -> bool:
    """Whether a starting job has enough pods without these; one with the policy Gang needs all. If there is no pod at
    all, something may be refused that all of them need."""
    if LEADER in overdue or not job.bound or job.valid_spec.pod_policy == GANG:
        return False
    return not job.valid_spec.workers_missing(by_group(job.valid_spec, job.provided - set(overdue)))


def _spare(job: JobRecord, overdue: list[SlotKey]) -> list[SlotKey]:
    """The last of the refused workers that the quorum doesn't need, in order, each with its whole worker group."""
    spec, left, found = job.valid_spec, by_group(job.valid_spec, job.provided), set[SlotKey]()
    for slot in reversed(overdue):
        if slot != LEADER and slot not in found:
            size = spec.groups[slot[0]].group_size
            left[slot[0]] -= size
            if spec.workers_missing(left):
                left[slot[0]] += size
            else:
                found |= with_whole(spec, [slot])
    return sorted(found & job.placements.keys())


def _words(job: JobRecord) -> str:
    """The last message of the API server."""
    return job.failure.message if job.failure is not None else ""
