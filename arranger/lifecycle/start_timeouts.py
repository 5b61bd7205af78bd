"""Quorums that don't start: when a starting job gives its nodes up, so that others can use them.

A pod whose containers its kubelet can't make (a wrong image, a missing ConfigMap) is unable to start. If the quorum
isn't complete without such pods, the job gives its nodes up after `start_ms`. What is only slow, such as the pull of a
large image or the load of a checkpoint, has `ready_ms`. A job that says `startGraceSeconds` has that for both. No
program failed, so no restart is counted, and the job comes again after a back-off.
"""

from collections.abc import Collection, Iterator

from arranger.events.facts import NeverReady, PodsNotReady
from arranger.events.kinds import PodSeen, StageDecided
from arranger.lifecycle.config import LifecycleConfig
from arranger.lifecycle.deciding import decide
from arranger.model.job import Stage
from arranger.model.stages import StageReason
from arranger.projections.derived.unable_pods import unable_slots
from arranger.projections.jobs.parts import LEADER, SlotKey
from arranger.projections.jobs.records import JobRecord, by_group
from arranger.projections.state import State


def start_timeout(state: State, job: JobRecord, config: LifecycleConfig, time_ms: int) -> StageDecided | None:
    """The decision of a job that has been Starting for too long; None if it hasn't been."""
    if job.stage != Stage.STARTING:
        return None
    known_ms = state.known_ms(time_ms)
    held_ms, longest_ms = known_ms - job.times.stage_ms, _longest_ms(job, config)
    if longest_ms and held_ms >= longest_ms:
        return _timeout(state, job, config, _waited_for(state, job), longest_ms)
    if job.valid_spec.start_grace_s is not None or held_ms < config.start_ms:
        return None
    unable = [slot for slot in unable_slots(state, job) if _due_ms(state, job, slot, config, time_ms) <= known_ms]
    if not unable or _holds_without(job, unable):
        return None
    return _timeout(state, job, config, unable, config.start_ms)


def start_due_ms(state: State, job: JobRecord, config: LifecycleConfig, time_ms: int) -> Iterator[int]:
    """When a starting job may have been so for too long, in milliseconds since 1970."""
    since_ms, longest_ms = job.times.stage_ms, _longest_ms(job, config)
    if longest_ms:
        yield since_ms + longest_ms
    if job.valid_spec.start_grace_s is None and time_ms - since_ms >= config.start_ms:
        for slot in unable_slots(state, job):
            yield _due_ms(state, job, slot, config, time_ms)


def gives_up_ms(state: State, job: JobRecord, config: LifecycleConfig, time_ms: int) -> int:
    """When a starting job gives its nodes up if the pods that can't start now never do, in milliseconds since 1970; 0
    if it never does, or has its quorum without them."""
    unable = unable_slots(state, job) if job.stage == Stage.STARTING else []
    if not unable or _holds_without(job, unable):
        return 0
    longest_ms = _longest_ms(job, config)
    bounds = [job.times.stage_ms + longest_ms] if longest_ms else []
    if job.valid_spec.start_grace_s is None:
        due = {slot: _due_ms(state, job, slot, config, time_ms) for slot in unable}
        over = sorted({*due.values()})
        bounds.append(next(at for at in over if not _holds_without(job, [slot for slot in unable if due[slot] <= at])))
    return min(bounds, default=0)


def _longest_ms(job: JobRecord, config: LifecycleConfig) -> int:
    """How long a job may be Starting, whatever it waits for; 0 for no limit."""
    own_s = job.valid_spec.start_grace_s
    return own_s * 1000 if own_s is not None else config.ready_ms


def _timeout(
    state: State, job: JobRecord, config: LifecycleConfig, slots: list[SlotKey], limit_ms: int
) -> StageDecided:
    back_off_ms = config.back_off_after(job.back_offs.attempt.in_a_row(job.times.stage_ms))
    facts: NeverReady | PodsNotReady = NeverReady(limit_ms // 1000)
    if slots:
        slot = slots[0]
        pod, of = state.pods.get(job.bound.get(slot, "")), job.valid_spec.groups[slot[0]]
        words = (f"{pod.waiting}: {pod.message}" if pod.message else pod.waiting) if pod is not None else ""
        name, node = "" if slot == LEADER else of.name, job.placements.get(slot, "")
        facts = PodsNotReady(limit_ms // 1000, len(slots), name, slot[1], node, words)
    return decide(job, StageReason.START_TIMEOUT, facts, back_off_ms)


def _pod(state: State, job: JobRecord, slot: SlotKey) -> PodSeen:
    return state.pods[job.bound[slot]]


def _waited_for(state: State, job: JobRecord) -> list[SlotKey]:
    """The pods for which the job waits, in order: those that can't start, or else those that aren't ready."""
    return unable_slots(state, job) or sorted(
        job.placements.keys() - job.slots.ready.keys() - job.slots.finished.keys()
    )


def _due_ms(state: State, job: JobRecord, slot: SlotKey, config: LifecycleConfig, time_ms: int) -> int:
    """When a pod has had the chance to start for long enough: since its kubelet took it, and in this stage. A kubelet's
    clock may be ahead."""
    started_ms = _pod(state, job, slot).times.started_ms
    return max(started_ms if started_ms <= time_ms else 0, job.times.stage_ms) + config.start_ms


def _holds_without(job: JobRecord, unable: Collection[SlotKey]) -> bool:
    """Whether the quorum is complete without these pods, and without sets that wait for their sets."""
    spec, held = job.valid_spec, {group for group, _ in unable}
    if LEADER in unable:
        return False
    for _ in spec.groups:
        held |= {
            group
            for group, of in enumerate(spec.groups)
            if of.start_after in held and not job.may_start_after(of)
        }  # fmt: skip
    gone = set(unable) | {slot for slot in job.provided if slot[0] in held and not job.may_start(slot[0])}
    return not spec.workers_missing(by_group(spec, job.provided - gone))
