"""Pods that the API server refuses, for lack of quota or rights or by admission: when their nodes are given up.

A passing refusal is waited for (`refused_ms`), in which an applier tries again. Then a job that starts and lacks its
quorum for that gives all its nodes up, and comes again after a back-off. Of one whose quorum is there, the refused
workers beyond it give theirs up, and no node is sought for them for as long.
"""

from arranger.events.facts import EndCause, EndKind, StageFacts
from arranger.events.kinds import EndedWorker, StageDecided, WorkersReplaced
from arranger.lifecycle.config import LifecycleConfig
from arranger.model.job import GANG, Replacement, Slot, Stage
from arranger.model.stages import TRANSITIONS, StageReason
from arranger.projections.jobs import LEADER, JobRecord, SlotKey


def refused_quorum(job: JobRecord, config: LifecycleConfig, time_ms: int) -> StageDecided | None:
    """A job that starts can't get its quorum because pods of it are refused: it makes room for others, and waits."""
    overdue = _overdue(job, config, time_ms)
    if not overdue or job.stage != Stage.STARTING or not job.quorum_placed():
        return None
    if LEADER not in overdue and len(job.placements) - len(overdue) > _needed(job):
        return None
    held_ms = time_ms - job.times.stage_ms
    back_off_ms = config.back_off_after(job.back_offs.attempt.in_a_row(time_ms, held_ms=held_ms))
    reason = StageReason.QUORUM_REFUSED
    stage, facts = TRANSITIONS[job.stage, reason], StageFacts(words=_words(job))
    return StageDecided(job.uid, job.version, job.attempt, stage, reason, facts, back_off_ms)


def refused_workers(job: JobRecord, config: LifecycleConfig, time_ms: int) -> WorkersReplaced | None:
    """Workers beyond the quorum that are refused give their nodes up. Those of a running job's quorum keep them: its
    work isn't thrown away for a refusal."""
    overdue = _overdue(job, config, time_ms)
    spare = len(job.placements) - 1 - job.valid_spec.min_workers
    given_up = [slot for slot in overdue if slot != LEADER][-spare:] if spare > 0 else []
    if not given_up:
        return None
    workers = tuple(EndedWorker(Slot(*slot), "", Replacement.ELSEWHERE, False) for slot in given_up)
    back_off_ms = config.back_off_after(job.back_offs.further.in_a_row(time_ms))
    cause = EndCause(EndKind.REFUSED, Slot(*given_up[0]), len(given_up), _words(job))
    return WorkersReplaced(job.uid, job.version, job.attempt, workers, (cause,), back_off_ms=back_off_ms)


def due_ms(job: JobRecord, config: LifecycleConfig) -> int | None:
    """When the first of the refused slots is overdue, told in milliseconds; None without any."""
    return min(job.slots.refused_ms.values(), default=0) + config.refused_ms if job.slots.refused_ms else None


def _overdue(job: JobRecord, config: LifecycleConfig, time_ms: int) -> list[SlotKey]:
    """The slots whose pods have been refused for long enough, in order."""
    since = job.slots.refused_ms.items()
    return sorted(slot for slot, since_ms in since if time_ms - since_ms >= config.refused_ms)


def _needed(job: JobRecord) -> int:
    """The workers that it can't do without while it starts."""
    return job.pods_desired() - 1 if job.valid_spec.pod_policy == GANG else job.valid_spec.min_workers


def _words(job: JobRecord) -> str:
    """What the API server said last."""
    return job.failure.message if job.failure is not None else ""
