"""How much work would be lost if pods of a job ended now: GPU time since the last checkpoint, or since their start.

All amounts are whole numbers of GPU-milliseconds.
"""

from collections.abc import Iterable, Mapping

from arranger.model.accelerators import is_accelerator
from arranger.model.pod import TERMINAL, Phase
from arranger.projections.jobs.parts import SlotKey
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import State

#: A pod in one of these phases has no work to lose: it runs no container yet, or none any more.
_IDLE = frozenset({Phase.PENDING, *TERMINAL})


def lost_ms(state: State, job: JobRecord, slots: Iterable[SlotKey], time_ms: int) -> int:
    """The GPU-milliseconds that would be lost if the pods in these slots ended at `time_ms`.

    For each pod that runs, this is the time since the job got its nodes, since the pod started or since the job's last
    checkpoint, whichever is latest, times the GPUs of the pod. A slot without such a pod loses nothing.
    """
    safe_ms = max(job.began_ms, checkpoint_ms(state, job, time_ms))
    return lost_since(working(state, job, slots), safe_ms, time_ms)


def lost_since(working: Mapping[int, int], safe_ms: int, time_ms: int) -> int:
    """The GPU-milliseconds of pods, as `working` tells them, up to a time. What was done before `safe_ms` is safe."""
    return sum([gpus * max(time_ms - max(safe_ms, since_ms), 0) for since_ms, gpus in working.items()])


def working_gpus(state: State, job: JobRecord, slots: Iterable[SlotKey]) -> int:
    """The GPUs of those pods in these slots that have work to lose: accelerators."""
    return sum(working(state, job, slots).values())


def working(state: State, job: JobRecord, slots: Iterable[SlotKey]) -> dict[int, int]:
    """When pods in these slots started (milliseconds since 1970, 0 if that isn't known) → the GPUs of those of them
    that have work to lose."""
    found: dict[int, int] = {}
    each, last, bound = 0, None, job.bound
    for slot in slots:
        uid = bound.get(slot)
        pod = state.pods[uid] if uid is not None else None
        if pod is not None and pod.phase not in _IDLE:
            if pod.requests != last:  # those of a group follow each other, and nearly all request the same
                each = sum(amount for name, amount in pod.requests if is_accelerator(name))
                last = pod.requests
            since_ms = pod.times.started_ms
            found[since_ms] = found.get(since_ms, 0) + each
    return found


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
