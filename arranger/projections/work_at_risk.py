"""How much work would be lost if pods of a job ended now: GPU time since the last checkpoint, or since the start.

All amounts are whole numbers of GPU-milliseconds.
"""

from collections.abc import Iterable

from arranger.model.accelerators import is_counted
from arranger.model.config import VERDICTS
from arranger.model.pod import TERMINAL, Phase
from arranger.projections.job_parts import SlotKey
from arranger.projections.jobs import JobRecord
from arranger.projections.state import State

#: A pod in one of these phases has no work to lose: it runs no container yet, or none any more.
_IDLE = frozenset({Phase.PENDING, *TERMINAL})


def lost_ms(state: State, job: JobRecord, slots: Iterable[SlotKey], time_ms: int, verdicts: int = VERDICTS) -> int:
    """The GPU-milliseconds that would be lost if the pods in these slots ended at `time_ms`.

    For each pod that runs, this is the time since the job got its nodes or since its last checkpoint, whichever is
    later, times the GPUs of the pod. A slot without such a pod loses nothing. The state doesn't have the times at which
    single pods began, so a worker that joined later counts as if it had run as long as its job.
    """
    gpus = working_gpus(state, job, slots, verdicts)
    return gpus * max(time_ms - max(job.began_ms, checkpoint_ms(state, job, time_ms)), 0) if gpus else 0


def working_gpus(state: State, job: JobRecord, slots: Iterable[SlotKey], verdicts: int = VERDICTS) -> int:
    """The GPUs of those pods in these slots that have work to lose: accelerators, by the rules of a cycle."""
    gpus, each, last, bound = 0, 0, None, job.bound
    for slot in slots:
        uid = bound.get(slot)
        pod = state.pods[uid] if uid is not None else None
        if pod is not None and pod.phase not in _IDLE:
            if pod.requests != last:  # those of a group follow each other, and nearly all request the same
                each = sum(amount for name, amount in pod.requests if is_counted(name, verdicts))
                last = pod.requests
            gpus += each
    return gpus


def checkpoint_ms(state: State, job: JobRecord, time_ms: int) -> int:
    """The time of the job's last checkpoint as of `time_ms`: the newest that its TYJob or one of its pods has, also of
    an earlier attempt; 0 without one. A time in the future counts as the present."""
    return min(newest_checkpoint_ms(state, job), time_ms)


def newest_checkpoint_ms(state: State, job: JobRecord) -> int:
    """The same, also if it is in the future."""
    newest = job.seen.checkpoint_ms
    for pod in state.pods_of.get(job.uid, {}).values():
        newest = max(newest, pod.checkpoint_ms)
    return newest
