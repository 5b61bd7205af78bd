"""The records of groups of pods that no TYJob owns and that are placed together, followed from the observations of the
pods.

A group has a record while one of its pods is there that hasn't ended. Each pod has a slot of it from its first
observation on, because its name and its UID exist before any decision; one that has succeeded keeps its slot and counts
towards the minimum. A slot is given up while nobody may fill it: its pod is gated or is being deleted, or is gone. The
record waits (Pending), has nodes to which pods are being bound (Starting), and runs once a quorum of them is on nodes
(Running).
"""

from collections import Counter

import msgspec

from arranger.events import kinds as k
from arranger.model.job import JobSpec, PodGroup, ScheduleState, Slot, Stage
from arranger.model.pod import TERMINAL, PodGroupFacts, PodToPlace
from arranger.model.pods_to_place import are_equal, equal_pods, group_spec, group_uid
from arranger.projections.derived import job_indexes
from arranger.projections.derived.awaited_room import await_room, ran
from arranger.projections.derived.queue_counts import count_jobs, count_pods
from arranger.projections.folding.forecasts import forget_start
from arranger.projections.folding.slots import Slots, forget_assumed
from arranger.projections.jobs.parts import JobTimes, SlotKey
from arranger.projections.jobs.records import (
    JobRecord,
    asked_record,
    by_group,
    exists,
    group_of,
    record_name,
    requests_of,
)
from arranger.projections.observed.devices import let_go
from arranger.projections.observed.namespace_terms import resolved_spec
from arranger.projections.observed.priorities import resolved

_WAITING = (Stage.PENDING, Stage.RESCHEDULING)


def follow_member(slots: Slots, offset: int, old: k.PodSeen | None, new: k.PodSeen | None) -> None:
    """Bring the records of a pod's groups up to date: it was `old` and is `new`; None for a pod that isn't there."""
    before, after, state = group_of(old), group_of(new), slots.state
    job = state.jobs.get(before)
    if old is not None and before and before != after:
        _forget_finished(state.finished, before, old.uid)
        if job is not None and old.uid in job.slots.members:
            _leave(slots, job, old)
            _settle(slots, offset, job)
    if new is not None and after:
        if new.phase in TERMINAL:
            state.finished.setdefault(after, {})[new.uid] = None
        else:
            _forget_finished(state.finished, after, new.uid)
        if new.phase not in TERMINAL or after in state.jobs:
            _follow(slots, offset, old, new)


def _forget_finished(finished: dict[str, dict[str, None]], group: str, uid: str) -> None:
    """A pod of a group isn't one of those that have succeeded."""
    if group in finished:
        finished[group].pop(uid, None)
        if not finished[group]:
            del finished[group]


def _follow(slots: Slots, offset: int, old: k.PodSeen | None, pod: k.PodSeen) -> None:
    state, asks = slots.state, _asks(pod)
    job = state.jobs.get(asked_record(pod))
    slot = job.slots.members.get(pod.uid) if job is not None else None
    if job is not None and slot is not None and old is not None and _facts(old) == _facts(pod):
        if slot in job.bound:
            job.slots.note(slot, pod)
        slots.note_ready(job)
        return
    if job is None:
        job = _begin(slots, offset, pod)
    if slot is not None and not are_equal(_raw(job).groups[slot[0]], asks):
        _leave(slots, job, old or pod)  # it was resized, or its labels were edited
        slot = None
    if slot is None:
        slot = _enter(slots, job, pod)
    elif old is None or old.asks != pod.asks:
        _renew(slots, job, list(_raw(job).groups[1:]))
    expected = old is not None and old.asks == pod.asks and job.placements.get(slot, "") == pod.node != ""
    _fill(slots, job, slot, pod)
    _settle(slots, offset, job, as_decided=expected and slot in job.bound)


def _asks(pod: k.PodSeen) -> PodToPlace:
    assert pod.asks is not None
    return pod.asks


def _raw(job: JobRecord) -> JobSpec:
    """The group's spec with shapes as its pods ask for them."""
    assert job.seen.spec is not None
    return job.seen.spec


def _facts(pod: k.PodSeen) -> tuple[object, ...]:
    """What a pod's slot depends on, beside its readiness."""
    return pod.asks, pod.node, pod.phase in TERMINAL, pod.deleting, pod.name


def _begin(slots: Slots, offset: int, pod: k.PodSeen) -> JobRecord:
    """A group without pods, which this one is about to enter."""
    asks, now_ms = _asks(pod), slots.time_ms
    seen = k.JobSeen(
        term=pod.term,
        namespace=pod.namespace,
        name=record_name(pod),
        uid=asked_record(pod),
        resource_version="",
        generation=0,
        created_ms=asks.created_ms,
        deleting=False,
        spec=group_spec((), (asks,), _told(slots, asked_record(pod))),
        faults=(),
        status_digest="",
        user=asks.user,
    )
    job = JobRecord(seen, None, offset, times=JobTimes(stage_ms=now_ms, scheduled_ms=now_ms))
    job.spec = resolved(slots.state, _raw(job))
    slots.state.jobs[seen.uid] = job
    job_indexes.enter(slots.state, job)
    for uid in sorted(slots.state.finished.get(job.uid, {})):
        finished = slots.state.pods[uid]
        _fill(slots, job, _enter(slots, job, finished), finished)
    return job


# --- its PodGroup -------------------------------------------------------------------------------------------------


def see_group(slots: Slots, offset: int, event: k.PodGroupSeen) -> None:
    """A PodGroup is there, or has changed: what it says counts from the next cycle on."""
    uid, groups = group_uid(event.namespace, event.name, event.group_kind), slots.state.pod_groups
    old, groups[uid] = groups.get(uid), event
    if old is None or old.facts != event.facts:
        _bring_up_to_date(slots, offset, uid)


def forget_group(slots: Slots, offset: int, event: k.ObjectGone) -> None:
    """A PodGroup is gone. Its pods that are on nodes stay there, and the others wait."""
    uid, groups = group_uid(event.namespace, event.name, k.GROUP_KINDS[event.kind]), slots.state.pod_groups
    known = groups.get(uid)
    if known is not None and known.uid == event.uid:
        del groups[uid]
        _bring_up_to_date(slots, offset, uid)


def forget_groups(slots: Slots, offset: int, kind: k.Watched) -> None:
    """Forget all PodGroups of a kind that the API server refuses to show, or doesn't have any more."""
    groups = slots.state.pod_groups
    for uid in sorted([uid for uid, of in groups.items() if k.GROUP_WATCHES[of.group_kind] == kind]):
        del groups[uid]
        _bring_up_to_date(slots, offset, uid)


def _bring_up_to_date(slots: Slots, offset: int, uid: str) -> None:
    """Bring the record of a PodGroup up to date, if it has pods."""
    job = slots.state.jobs.get(uid)
    if job is not None:
        _renew(slots, job, list(_raw(job).groups[1:]))
        _settle(slots, offset, job)


# --- which pods it has -------------------------------------------------------------------------------------------


def _enter(slots: Slots, job: JobRecord, pod: k.PodSeen) -> SlotKey:
    """Give a pod the lowest free slot among the pods that are equal to it."""
    asks, table, groups = _asks(pod), job.slots, list(_raw(job).groups[1:])
    if not table.members:
        groups, table.given_up = [], {}
    used = {group for group, _ in table.members.values()}
    alike = [number for number, of in enumerate(groups, 1) if are_equal(of, asks)]
    number = [*alike, *(n for n in range(1, len(groups) + 1) if n not in used), len(groups) + 1][0]
    if not alike:
        groups[number - 1 : number] = [equal_pods(number, asks)]
    taken = {index for group, index in table.members.values() if group == number}
    index = next(index for index in range(len(taken) + 1) if index not in taken)
    table.members[pod.uid] = (number, index)
    of = groups[number - 1]
    groups[number - 1] = msgspec.structs.replace(of, count=max(of.count, index + 1))
    table.given_up.pop((number, index), None)
    if _changes_nothing_else(job, asks, _told(slots, job.uid)):
        spec = msgspec.structs.replace(
            _raw(job), groups=(_raw(job).groups[0], *groups), success=tuple(range(1, len(groups) + 1))
        )
        _take(slots, job, spec, min(job.seen.created_ms, asks.created_ms), asks.user)
    else:
        _renew(slots, job, groups)
    return number, index


def _changes_nothing_else(job: JobRecord, asks: PodToPlace, facts: PodGroupFacts | None) -> bool:
    """Whether a new pod changes nothing of a group but its size. Otherwise all its pods must be looked at."""
    ours, alone = _raw(job), group_spec((), (asks,), facts)
    return job.seen.user == asks.user and all(
        getattr(ours, name) == getattr(alone, name) for name in ("queue", "priority", "preempts", "min_workers", "qos")
    )


def _told(slots: Slots, uid: str) -> PodGroupFacts | None:
    """What the PodGroup of a record says; None if it isn't known, or if the group has none."""
    seen = slots.state.pod_groups.get(uid)
    return seen.facts if seen is not None else None


def _renew(slots: Slots, job: JobRecord, groups: list[PodGroup]) -> None:
    """Find the spec again from all pods of the group, of which there is one."""
    members, pods = job.slots.members, slots.state.pods
    last = [0] * len(groups)
    for number, index in members.values():
        last[number - 1] = max(last[number - 1], index + 1)
    while not last[-1]:
        last.pop()
    sized = [msgspec.structs.replace(of, count=count) for of, count in zip(groups, last, strict=False)]
    first = min([(_asks(pods[uid]).created_ms, pods[uid].name, uid) for uid in members])[2]
    asked = [_asks(pods[first]), *(_asks(pods[uid]) for uid in members)]
    before = [of.count for of in _raw(job).groups[1:]]
    shrinks = len(last) < len(before) or any([now < was for now, was in zip(last, before, strict=False)])
    _take(slots, job, group_spec(sized, asked, _told(slots, job.uid)), asked[0].created_ms, asked[0].user)
    if shrinks:
        job.slots.given_up = {slot: None for slot in job.slots.given_up if exists(job.valid_spec, slot)}


def _take(slots: Slots, job: JobRecord, spec: JobSpec, created_ms: int, user: str) -> None:
    state = slots.state
    requeued = bool(job.placements) and spec.queue != job.valid_spec.queue
    if requeued:
        count_jobs(state, [job], -1)
    job.seen = msgspec.structs.replace(job.seen, spec=spec, created_ms=created_ms, user=user)
    before, job.spec = job.spec, resolved_spec(state, resolved(state, spec, job.spec), job.seen.namespace)
    job_indexes.follow(state, job, before)
    if requeued:
        count_jobs(state, [job], 1)


def _leave(slots: Slots, job: JobRecord, pod: k.PodSeen) -> None:
    """A pod is gone, has failed, or is in another group now; it is given as it was before."""
    table, slot = job.slots, job.slots.members.pop(pod.uid)
    if slot in job.bound:
        _empty(slots, job, slot)
    elif slot in job.placements:
        slots.state.nodes.release(job.placements[slot], requests_of(job, slot))
        _empty(slots, job, slot)
    _forget_assumed(slots, job, slot)
    table.names.pop(slot, None)
    table.finished.pop(slot, None)
    table.given_up.pop(slot, None)
    if table.members:
        if not _leaves_the_rest(slots, job, pod, slot):
            _renew(slots, job, list(_raw(job).groups[1:]))
        if exists(job.valid_spec, slot):  # others come after it
            table.given_up[slot] = None


def _leaves_the_rest(slots: Slots, job: JobRecord, pod: k.PodSeen, slot: SlotKey) -> bool:
    """Whether a group is the same without a pod that had this slot, so that its other pods needn't be looked at. That
    is so if another pod is older and asks for the same of the group, and another slot of the shape comes after."""
    group, index = slot
    if index + 1 >= _raw(job).groups[group].count:
        return False
    other = slots.state.pods[next(iter(job.slots.members))]
    ours, theirs = _asks(pod), _asks(other)
    if (theirs.created_ms, other.name, other.uid) > (ours.created_ms, pod.name, pod.uid):
        return False
    return (ours.priority, ours.preempts, ours.group, ours.qos) == (
        theirs.priority,
        theirs.preempts,
        theirs.group,
        theirs.qos,
    )


# --- what its slots have -----------------------------------------------------------------------------------------


def _fill(slots: Slots, job: JobRecord, slot: SlotKey, pod: k.PodSeen) -> None:
    """Bring one slot up to date with its pod."""
    table, over = job.slots, pod.phase in TERMINAL
    table.names[slot] = pod.name
    if slot in job.bound and (over or job.placements[slot] != pod.node):
        _empty(slots, job, slot)
    held_back = not pod.node and (_asks(pod).held_back or pod.deleting)
    if slot in job.placements and slot not in job.bound and (held_back or over):
        slots.unplace(job, slot, job.stage)
    for marked, is_so in ((table.finished, over), (table.given_up, held_back and not over)):
        if is_so:
            marked[slot] = None
        else:
            marked.pop(slot, None)
    if over:
        _forget_assumed(slots, job, slot)
    elif pod.node and slot not in job.bound:
        _bind(slots, job, slot, pod)
    elif slot in job.bound:
        table.note(slot, pod)


def _bind(slots: Slots, job: JobRecord, slot: SlotKey, pod: k.PodSeen) -> None:
    """The pod is on a node, the decided one or another. The room that was decided or assumed for it is its own now."""
    state, node = slots.state, job.placements.get(slot)
    if node is not None:
        state.nodes.release(node, requests_of(job, slot))
    else:
        count_pods(state, job, {slot[0]: 1}, not job.placements)
    _forget_assumed(slots, job, slot)
    job.slots.place(slot, pod.node)
    job.slots.fill(slot, pod)
    if job.failure is not None and job.failure.slot == Slot(*slot):
        job.failure = None


def _empty(slots: Slots, job: JobRecord, slot: SlotKey) -> None:
    job.slots.empty(slot)
    count_pods(slots.state, job, {slot[0]: -1}, -(not job.placements))
    let_go(slots.state, job, slots.time_ms)


def _forget_assumed(slots: Slots, job: JobRecord, slot: SlotKey) -> None:
    """No other room is kept for the pod of a slot."""
    state = slots.state
    if state.assumed:
        here = (job.uid, job.valid_spec.groups[slot[0]].name, slot[1])
        owners = [of for of in state.assumed.values() if of.owner.job_uid == job.uid]
        found = [of for of in owners if (job.uid, of.owner.group_name, of.owner.index) == here]
        forget_assumed(state, found, slots.changes)


# --- where it stands ---------------------------------------------------------------------------------------------


def _settle(slots: Slots, offset: int, job: JobRecord, *, as_decided: bool = False) -> None:
    """Enter the stage that follows from the slots. What was decided on the group before isn't current any more, unless
    all that happened is that a pod is where it was decided."""
    state, before = slots.state, job.stage
    slots.changes.jobs[job.uid] = None
    slots.changes.schedulable |= not as_decided
    state.scheduling_changes += 1
    if len(job.slots.finished) == len(job.slots.members):
        _forget(slots, job)
        return
    _ease_minimum(slots, job)
    _take_minimums(slots, job)
    _unplace_parts(slots, job)
    job.stage = _stage(job)
    if job.stage != before:
        job.times.stage_ms = slots.time_ms
        if job.stage in (Stage.STARTING, Stage.RUNNING) and not job.times.start_ms:
            job.times.start_ms = slots.time_ms
    if job.stage == Stage.RUNNING:
        ran(state, job)
    desired = job.pods_desired()
    whole = ScheduleState.SUCCEED if len(job.placements) == desired else ScheduleState.PARTLY
    slots.enter_schedule(job, whole if job.placements else ScheduleState.UNSCHEDULED)
    if job.placements or job.pods_lacking:
        forget_start(state, job.uid, slots.changes)
    if not desired or job.schedule_state == ScheduleState.SUCCEED or job.pods_lacking:
        job.waits = None
    slots.note_short(job)
    slots.note_conditions(job)
    if not as_decided or job.stage != before:
        job.version = offset


def _ease_minimum(slots: Slots, job: JobRecord) -> None:
    """A minimum is asked when a group begins. One that runs needs no more pods than it has, so that one of those that
    are left is replaced after the group was made smaller. If none of them is on a node any more, it begins again."""
    if job.stage != Stage.RUNNING:
        return
    if not job.bound:
        _renew(slots, job, list(_raw(job).groups[1:]))
    elif job.pods_lacking and job.valid_spec.group_known:
        least = min(_raw(job).min_workers, job.pods_desired() + len(job.slots.finished))
        spec = msgspec.structs.replace(_raw(job), min_workers=least, task_minimums=())
        _take(slots, job, spec, job.seen.created_ms, job.seen.user)


def _take_minimums(slots: Slots, job: JobRecord) -> None:
    """Give the quorum the pods that tasks need: of each task those of the first shapes. Which pods of a task these are
    makes no difference to Volcano, but a quorum counts pods by shape."""
    spec, left = _raw(job), dict(_raw(job).task_minimums)
    if not left and not spec.has_minimums:
        return
    given_up, groups = Counter([group for group, _ in job.slots.given_up]), list(spec.groups)
    for number, of in enumerate(groups[1:], 1):
        least = min(of.count - given_up[number], left.get(of.task, 0))
        left[of.task] = left.get(of.task, 0) - least
        if least != of.min_count:
            groups[number] = msgspec.structs.replace(of, min_count=least)
    if tuple(groups) != spec.groups:
        _take(slots, job, msgspec.structs.replace(spec, groups=tuple(groups)), job.seen.created_ms, job.seen.user)


def _unplace_parts(slots: Slots, job: JobRecord) -> None:
    """Take the nodes that pods haven't got yet, if a part of the group was bound before it was to begin, or if none was
    and they aren't enough any more. Without nodes it waits for no room on them."""
    enough = job.quorum_placed() and not job.pods_lacking
    too_few = bool(job.placements) and not job.bound and not enough
    ends = too_few or (job.stage in _WAITING and bool(job.bound))
    if job.slots.room is not None and (ends or not job.placements):
        await_room(slots.state, job, None)
    if ends:
        for slot in sorted(job.placements.keys() - job.bound.keys()):
            slots.unplace(job, slot, job.stage)


def _stage(job: JobRecord) -> Stage:
    there = len(job.bound) + len(job.slots.finished)
    if not job.placements:
        return Stage.RESCHEDULING if job.stage == Stage.RESCHEDULING else Stage.PENDING
    if not job.bound:
        return job.stage if job.stage in _WAITING else Stage.STARTING
    spec = job.valid_spec
    enough = there >= spec.min_workers and spec.group_known and not job.tasks_lacking
    if enough and spec.has_minimums:
        enough = not spec.workers_missing(by_group(spec, [*job.bound, *job.slots.finished]))
    runs = job.stage == Stage.RUNNING or enough
    return Stage.RUNNING if runs else Stage.STARTING


def _forget(slots: Slots, job: JobRecord) -> None:
    """No pod is left of the group that hasn't ended."""
    state = slots.state
    forget_assumed(state, [of for of in state.assumed.values() if of.owner.job_uid == job.uid], slots.changes)
    if job.slots.room is not None:
        await_room(state, job, None)
    forget_start(state, job.uid, slots.changes)
    job_indexes.leave(state, job)
    del state.jobs[job.uid]
