"""The records of pods that no TYJob owns and that Arranger places, followed from the observations of these pods.

A pod has a record while it names Arranger as its scheduler and hasn't ended. The record waits like a job (Pending), has
a node to which the pod is being bound (Starting), and runs once the pod was seen on a node (Running), whoever bound it.
Only the pod's own room counts from then on. The record goes with the pod, and whoever made the pod makes the next one.
"""

from arranger.events import kinds as k
from arranger.model.job import ScheduleState, Stage
from arranger.model.pod import PodToPlace
from arranger.model.pods_to_place import SLOT, record_of, spec_of
from arranger.projections.derived import job_indexes
from arranger.projections.derived.awaited_room import await_room, ran
from arranger.projections.derived.queue_counts import count_jobs, count_pods
from arranger.projections.folding.forecasts import forget_start
from arranger.projections.folding.slots import Slots, forget_assumed
from arranger.projections.jobs.parts import JobTimes
from arranger.projections.jobs.records import JobRecord, record_uid, requests_of
from arranger.projections.observed.devices import let_go
from arranger.projections.observed.namespace_terms import resolved_spec


def follow_pod(slots: Slots, offset: int, old: k.PodSeen | None, new: k.PodSeen | None) -> None:
    """Bring the record of a pod up to date: it was `old` and is `new`; None for a pod that isn't there."""
    seen = new if new is not None else old
    assert seen is not None
    job = slots.state.jobs.get(record_of(seen.uid))
    if new is None or new.asks is None or record_uid(new) != record_of(new.uid):
        if job is not None:
            _forget(slots, job)
        return
    if job is None:
        job = _begin(slots, offset, new, new.asks)
    elif old is None or (old.asks, old.deleting) != (new.asks, new.deleting):
        _change(slots, offset, job, new, new.asks)
    if SLOT in job.bound and job.placements[SLOT] != new.node:
        _unbind(slots, offset, job)  # no API server does that, but a forged observation may say so
    if new.node and SLOT not in job.bound and not job.ended:
        _bind(slots, offset, job, new)
    if SLOT in job.bound:
        job.slots.note(SLOT, new)
        slots.note_ready(job)
    elif new.deleting and job.placements:
        slots.unschedule(job, job.stage)  # it will not be bound any more
        job.version = offset


def _begin(slots: Slots, offset: int, pod: k.PodSeen, asks: PodToPlace) -> JobRecord:
    state, seen, now_ms = slots.state, _seen(pod, asks), slots.time_ms
    assert seen.spec is not None
    times = JobTimes(stage_ms=now_ms, scheduled_ms=now_ms)
    job = state.jobs[seen.uid] = JobRecord(seen, resolved_spec(state, seen.spec, seen.namespace), offset, times=times)
    job_indexes.enter(state, job)
    _touch(slots, job)
    return job


def _seen(pod: k.PodSeen, asks: PodToPlace) -> k.JobSeen:
    """The pod as a job is seen."""
    return k.JobSeen(
        term=pod.term,
        namespace=pod.namespace,
        name=record_of(pod.name),
        uid=record_of(pod.uid),
        resource_version="",
        generation=0,
        created_ms=asks.created_ms,
        deleting=pod.deleting,
        spec=spec_of(asks),
        faults=(),
        status_digest="",
        user=asks.user,
    )


def _change(slots: Slots, offset: int, job: JobRecord, pod: k.PodSeen, asks: PodToPlace) -> None:
    """Take the changes of a pod: a gate is gone, it was resized, it is being deleted."""
    state, before = slots.state, job.valid_spec
    job_indexes.leave(state, job)  # no API server renames a pod, but a forged observation may say so
    job.seen = _seen(pod, asks)
    job_indexes.enter(state, job)
    assert job.seen.spec is not None
    spec = resolved_spec(state, job.seen.spec, job.seen.namespace)
    if spec != before:
        node, unbound = job.placements.get(SLOT, ""), SLOT not in job.bound
        held = requests_of(job, SLOT)
        count_jobs(state, [job], -1)
        job.spec = spec
        job_indexes.follow(state, job, before)
        count_jobs(state, [job], 1)
        if node and unbound:
            state.nodes.hold(node, requests_of(job, SLOT))
            state.nodes.release(node, held)
    job.version = offset
    _touch(slots, job)


def _bind(slots: Slots, offset: int, job: JobRecord, pod: k.PodSeen) -> None:
    """The pod is on a node, the decided one or another. The room that was decided or assumed for it is its own now."""
    state, node = slots.state, job.placements.get(SLOT)
    if node is not None:
        state.nodes.release(node, requests_of(job, SLOT))
    else:
        count_pods(state, job, {SLOT[0]: 1}, 1)
    _forget_room(slots, job)
    job.slots.place(SLOT, pod.node)
    job.slots.fill(SLOT, pod)
    job.failure = job.waits = None
    job.stage, job.times.stage_ms, job.times.start_ms = Stage.RUNNING, slots.time_ms, slots.time_ms
    ran(state, job)
    job.times.infeasible_ms = job.times.short_ms = 0
    slots.enter_schedule(job, ScheduleState.SUCCEED)
    slots.note_conditions(job)
    job.version = offset
    _touch(slots, job)


def _unbind(slots: Slots, offset: int, job: JobRecord) -> None:
    """The pod isn't on its node any more; its own room isn't counted there either."""
    _empty(slots, job)
    job.stage, job.times.stage_ms = Stage.PENDING, slots.time_ms
    slots.enter_schedule(job, ScheduleState.UNSCHEDULED)
    slots.note_conditions(job)
    job.version = offset
    _touch(slots, job)


def _empty(slots: Slots, job: JobRecord) -> None:
    job.slots.empty(SLOT)
    count_pods(slots.state, job, {SLOT[0]: -1}, -1)
    let_go(slots.state, job, slots.time_ms)


def _forget(slots: Slots, job: JobRecord) -> None:
    """The pod is gone, has ended, or names another scheduler."""
    state, node = slots.state, job.placements.get(SLOT)
    if node is not None:
        if SLOT not in job.bound:
            state.nodes.release(node, requests_of(job, SLOT))
        _empty(slots, job)
    _forget_room(slots, job)
    job_indexes.leave(state, job)
    del state.jobs[job.uid]
    _touch(slots, job)


def _forget_room(slots: Slots, job: JobRecord) -> None:
    """No other room is kept for a pod: none that it was decided to have before, that others are still to leave, or that
    is reserved."""
    state = slots.state
    forget_assumed(state, [of for of in state.assumed.values() if of.owner.job_uid == job.uid], slots.changes)
    if job.slots.room is not None:
        await_room(state, job, None)
    forget_start(state, job.uid, slots.changes)


def _touch(slots: Slots, job: JobRecord) -> None:
    slots.changes.jobs[job.uid] = None
    slots.changes.schedulable = True
    slots.state.scheduling_changes += 1
