"""The slots of jobs: their decided nodes, the pods that fill them, and the room that each uses.

A placement itself uses the room until its pod is observed; from then on the pod's own requests count. Every change of
a slot passes through this module, so that no room is counted twice or lost.
"""

from collections import Counter
from collections.abc import Sequence
from operator import itemgetter

from arranger.events import kinds as k
from arranger.model.job import READY, JobSpec, ScheduleState, Slot, Stage
from arranger.model.pod import TERMINAL, Phase, PodOwner
from arranger.projections.cluster.nodes import Requests
from arranger.projections.derived.awaited_room import await_room, awaited_on, overbooked
from arranger.projections.derived.deadlines import succeeded_in_time
from arranger.projections.derived.dependencies import tell_dependents, with_ends
from arranger.projections.derived.job_indexes import follow
from arranger.projections.derived.queue_counts import begin_use, count_pods, end_use
from arranger.projections.folding.forecasts import forget_start, note_known_end
from arranger.projections.jobs.parts import LEADER, PROVISION, STEPS_KEPT, Scaled, SlotKey
from arranger.projections.jobs.records import JobRecord, blameless, exists, holds, requests_of
from arranger.projections.jobs.worker_groups import parted
from arranger.projections.observed.devices import hold_devices, let_slot_go
from arranger.projections.observed.namespace_terms import resolved_spec
from arranger.projections.observed.priorities import resolved
from arranger.projections.observed.slot_devices import hold_again, holdings
from arranger.projections.state import ASSUMED_MS, Assumed, Changes, State
from arranger.projections.verdicts.judging import Need, lacking


def forget_assumed(state: State, pods: Sequence[Assumed], changes: Changes) -> None:
    """Drop assumed pods that were observed (and now count themselves) or will not appear."""
    if pods:
        state.forget_assumed(pods)
        changes.schedulable = True


def assumed_of(state: State, owner: PodOwner, node: str) -> list[Assumed]:
    """The assumed pods of a slot that end once its pod is observed on the node, or is assumed there again. Room that it
    may have on another node is kept: that pod may exist, and the one on this node may follow it."""
    pod = state.assumed.get((owner, node))
    return [pod] if pod is not None else []


def _place(state: State, job: JobRecord, slot: SlotKey, node: str) -> None:
    """Give a slot a node, or another one."""
    if slot not in job.placements:
        count_pods(state, job, {slot[0]: 1}, not job.placements)
    job.slots.place(slot, node)


def _empty(state: State, job: JobRecord, slot: SlotKey) -> tuple[str, str | None]:
    """Remove a slot's node and pod; returns the node and the pod's UID."""
    emptied = job.slots.empty(slot)
    count_pods(state, job, {slot[0]: -1}, -(not job.placements))
    return emptied


class Slots:
    """Changes the slots of all jobs while one entry is folded. `time_ms` is the entry's time."""

    __slots__ = ("changes", "state", "time_ms")

    def __init__(self, state: State, changes: Changes, time_ms: int) -> None:
        self.state = state
        self.changes = changes
        self.time_ms = time_ms

    def bind_waiting(self, job: JobRecord) -> None:
        """Bind the pods of a job that fill no slot yet, in the same order in every process."""
        pods = self.state.pods_of.get(job.uid, {})
        if len(pods) > len(job.bound):
            for uid in sorted(pods):
                self._bind_if_placed(job, pods[uid])

    def _bind_if_placed(self, job: JobRecord, pod: k.PodSeen) -> None:
        assert pod.owner is not None
        slot = job.slot_of(pod.owner)
        if slot is not None and slot not in job.bound:
            self.bind(job, slot, pod)

    def bind(self, job: JobRecord, slot: SlotKey, pod: k.PodSeen, *, counted: bool = True) -> bool:
        """Let a pod fill the empty slot that it claims, if it may. `counted` and the result as in `_end_placement`."""
        if job.ended or not pod.node or pod.uid in job.retired:
            return False
        slots, took_over = job.slots, False
        if slots.leaving and slot in slots.leaving and _was_replaced(job, slot, pod):
            slots.left(slot)
            job.retired[pod.uid] = None
            return False
        node = slots.nodes.get(slot)
        if node is not None:
            if pod.node != node:
                return False  # created for an earlier decision: it must be deleted before the decided pod is created
            took_over = self._end_placement(requests_of(job, slot), pod, counted=counted)
        elif job.adopted_at == job.version and _tells_of_itself(job, slot, pod):
            self.state.scheduling_changes += 1  # adopted with the job: the pod itself is the evidence
            _place(self.state, job, slot, pod.node)
        else:
            return False
        slots.fill(slot, pod)
        if slot == LEADER:
            self.note_address(job, pod)
        elif job.valid_spec.groups[slot[0]].start_after is not None:
            job.of_set(job.valid_spec.groups[slot[0]].name).started = True  # so a new epoch need not know why
        if self.state.quotas and job.seen.namespace in self.state.quotas:
            self.state.scheduling_changes += 1  # from now on the quota counts the pod's usage
            self.changes.schedulable = True
        if job.failure is not None and job.failure.slot == Slot(*slot):
            job.failure = None  # the pod was created after all
        if job.times.short_ms:
            self.note_short(job)
        self.note_finished(job, slot, pod)
        return took_over

    def note_finished(self, job: JobRecord, slot: SlotKey, pod: k.PodSeen) -> None:
        """Take a pod that has done its part out of its slot, which needs no other; it uses no room any more."""
        if pod.phase != Phase.SUCCEEDED or not job.valid_spec.keeps_finished(slot[0]) or blameless(pod):
            return
        self.unplace(job, slot, job.stage)
        job.slots.finished[slot] = None
        job.times.finished_ms = max(job.times.finished_ms, pod.times.ended_ms)
        self.state.scheduling_changes += 1
        self.settle_schedule(job)

    def note_success(self, job: JobRecord) -> None:
        """If a job's pods show that it has succeeded, its queue counts its use no longer, although its stage says so
        later; those that wait for it learn of that."""
        if succeeded_in_time(self.state, job):
            end_use(self.state, job)
            tell_dependents(self.state, job, self.changes)

    def note_stage_decided(self, job: JobRecord) -> None:
        """From a decision on its stage on, a job counts as that stage says, whatever its pods have shown before."""
        begin_use(self.state, job)
        tell_dependents(self.state, job, self.changes)

    def _end_placement(self, requests: Requests, pod: k.PodSeen, *, counted: bool) -> bool:
        """Stop counting the room of a placement, because its pod's own room counts from now on.

        `counted`: the pod's room is counted already. True if it wasn't and is now: a placement with equal requests
        hands its room over, which saves two changes of the table.
        """
        if counted or pod.requests != requests or pod.phase in TERMINAL:
            self.state.nodes.release(pod.node, requests)
            return False
        self.state.scheduling_changes += 1  # rules about other pods may tell the pod from its template
        return True

    def note_address(self, job: JobRecord, leader: k.PodSeen) -> None:
        """Record the first address that the leader's pod shows, for the workers. With a Service they find a later
        address by name; without one a controller decides to start them again with it."""
        if leader.ip in ("", job.leader.address):
            return
        lasts = leader.phase not in TERMINAL and not leader.deleting
        if lasts and (not job.leader.address or job.valid_spec.leader_service):
            job.leader.address = leader.ip

    def hold_slot(self, job: JobRecord, slot: SlotKey, node: str) -> None:
        """Give a slot its decided node, whose capacity it uses until its pod is observed."""
        _place(self.state, job, slot, node)
        self.state.nodes.hold(node, requests_of(job, slot))

    def unplace(self, job: JobRecord, slot: SlotKey, stage: Stage) -> None:
        """Remove the node of a slot, for a job that was in `stage` so far."""
        node, uid = _empty(self.state, job, slot)
        comes = uid is None and may_come(job, slot, stage)
        let_slot_go(self.state, job, slot, self.time_ms, unseen=comes)
        if uid is not None:
            self.count_restarts(job, slot, self.state.pods[uid])
            return
        requests = requests_of(job, slot)
        if comes and not overbooked(self.state, node, requests):
            self._assume(job, slot, node)
        else:  # the pod can't have been created, or its kubelet would refuse it
            self.state.nodes.release(node, requests)

    def _assume(self, job: JobRecord, slot: SlotKey, node: str) -> None:
        """Keep the room of a slot for the pod that may appear there."""
        owner = job.owner_of(slot)
        earlier = assumed_of(self.state, owner, node)  # from an earlier decision on the same slot
        forget_assumed(self.state, earlier, self.changes)
        until_ms = self.time_ms + ASSUMED_MS
        self.state.assumed[owner, node] = Assumed(owner, node, requests_of(job, slot), until_ms)

    def count_restarts(self, job: JobRecord, slot: SlotKey, pod: k.PodSeen) -> None:
        """Add the container restarts of a pod that leaves its slot to the job's record."""
        if slot == LEADER:
            job.leader.restarts += pod.restarts
        elif pod.restarts and job.spec is not None:
            job.of_set(job.spec.groups[slot[0]].name).spent += pod.restarts

    def give_nodes(self, job: JobRecord, event: k.Placed, desired: dict[SlotKey, str], need: Need | None) -> None:
        """Give slots the nodes of an accepted placement. `need` is the room that they ask for."""
        hosts = tuple(uid for uid in event.hosts if self.state.is_host(uid))
        if not job.placements:
            job.slots.hosts = hosts
            job.slots.took = False
        elif hosts:
            job.slots.lent.update(dict.fromkeys(desired, hosts))
        count_pods(self.state, job, Counter(map(itemgetter(0), desired)), not job.placements and bool(desired))
        job.slots.nodes.update(desired)
        if need is not None:
            nodes = self.state.nodes
            nodes.hold_rows([nodes.rows[node] for node in need.nodes], need.amounts)
        hold_devices(self.state, job, event)
        self.enter_schedule(job, event.schedule_state)
        if job.schedule_state == ScheduleState.SUCCEED:
            job.waits = None
        job.times.infeasible_ms = 0
        self.note_short(job)
        forget_start(self.state, job.uid, self.changes)
        if self.state.reservations and not hosts:
            note_known_end(self.state, job, self.time_ms)
        self.changes.jobs[job.uid] = None

    def release_all(self, job: JobRecord, stage: Stage) -> None:
        if job.slots.room is not None:
            await_room(self.state, job, None)
        for slot in sorted(job.placements):  # the order of assumed pods is part of the state
            self.unplace(job, slot, stage)
        self.changes.schedulable = True

    def keep_or_release(self, job: JobRecord, slot: SlotKey, pod: k.PodSeen) -> None:
        """Reserve the room of a slot again after its pod was deleted, or release the slot if the room is taken or the
        job is being deleted."""
        node = job.placements[slot]
        awaited = awaited_on(self.state, node)
        if not job.seen.deleting and (holds(pod) or not lacking(self.state.nodes, job, {slot: node}, freed=awaited)):
            self.state.nodes.hold(node, requests_of(job, slot))
            return
        _empty(self.state, job, slot)
        let_slot_go(self.state, job, slot, self.time_ms, unseen=False)
        self.settle_schedule(job)
        self.changes.schedulable = True

    def take_spec(self, job: JobRecord, spec: JobSpec) -> None:
        """Adopt a changed spec: release slots that no longer exist, and reserve changed requests for the others."""
        before, spec = job.spec, resolved(self.state, resolved_spec(self.state, spec, job.seen.namespace), job.spec)
        spec = with_ends(self.state, job.seen.namespace, spec, before)
        _note_scaling(job, spec, self.time_ms)
        for slot in sorted(slot for slot in job.placements if not exists(spec, slot) and slot not in job.bound):
            self.unplace(job, slot, job.stage)
        kept, filled = dict(job.placements), dict(job.bound)
        restarts, spent, refused = job.leader.restarts, job.spent, dict(job.slots.refused_ms)
        failures, devices = dict(job.slots.failures), holdings(self.state, job)
        lent, room = dict(job.slots.lent), job.slots.room
        if job.spec is not None:
            self.release_all(job, Stage.PENDING)  # reserved again below, so no pod becomes assumed
        job.spec, job.leader.restarts = spec, restarts
        follow(self.state, job, before)
        for name, of_set in job.sets.items():
            of_set.spent = spent.get(name, 0)
        for of in job.keepers:
            of.kept = of.kept[-spec.keep_failed :] if spec.keep_failed else ()
        if job.ended:
            return
        job.slots.given_up = {slot: None for slot in job.slots.given_up if exists(spec, slot)}
        job.slots.finished = {slot: None for slot in job.slots.finished if exists(spec, slot)}
        job.slots.charged = {slot: of for slot, of in job.slots.charged.items() if exists(spec, slot)}
        for slot, node in kept.items():
            if exists(spec, slot):
                self.hold_slot(job, slot, node)
        await_room(self.state, job, room)
        hold_again(self.state, job, devices)
        job.slots.refused_ms = {slot: since_ms for slot, since_ms in refused.items() if slot in job.placements}
        job.slots.failures = {slot: count for slot, count in failures.items() if slot in job.placements}
        job.slots.lend_again(lent)
        retired, job.retired = job.retired, {}  # a pod of a set that is restarted has its slot until it is gone
        for slot, uid in filled.items():
            self._bind_if_placed(job, self.state.pods[uid])
            if slot not in job.bound and slot[0] < len(spec.groups):
                self.count_restarts(job, slot, self.state.pods[uid])
        job.retired = retired | job.retired
        self.bind_waiting(job)
        self.settle_schedule(job)

    def unfinish(self, job: JobRecord, again: set[SlotKey]) -> None:
        """Let finished workers run again."""
        for slot in again:
            del job.slots.finished[slot]
        for uid, pod in self.state.pods_of.get(job.uid, {}).items() if again else ():
            if pod.owner is not None and job.slot_of(pod.owner) in again:
                job.retired[uid] = None

    def settle_schedule(self, job: JobRecord) -> None:
        """Update the schedule state after slots changed. A job that hasn't started never keeps a part of a quorum."""
        if job.spec is not None and not job.ended:  # what has finished of a worker group runs again with the others
            self.unfinish(job, job.slots.finished.keys() & set(parted(job.spec, job.provided)))
        if job.stage in (Stage.PENDING, Stage.RESCHEDULING) and not job.quorum_placed():
            self.unschedule(job, job.stage)
            job.times.infeasible_ms = 0
        elif len(job.placements) == job.pods_desired():
            self.enter_schedule(job, ScheduleState.SUCCEED)
            job.waits = None
        elif job.schedule_state == ScheduleState.SUCCEED:
            self.enter_schedule(job, ScheduleState.PARTLY)
        self.note_short(job)
        self.note_ready(job)

    def unschedule(self, job: JobRecord, before: Stage) -> None:
        self.release_all(job, before)
        self.enter_schedule(job, ScheduleState.UNSCHEDULED)

    def note_short(self, job: JobRecord) -> None:
        """Record since when a job lacks a part of its quorum: it may keep the other part only for a while."""
        if not job.short():
            job.times.short_ms = 0
        elif not job.times.short_ms:
            job.times.short_ms = self.time_ms

    def enter_schedule(self, job: JobRecord, new: ScheduleState) -> None:
        if job.schedule_state != new:
            job.schedule_state = new
            job.times.scheduled_ms = self.time_ms
            self.note_conditions(job)

    def note_conditions(self, job: JobRecord) -> None:
        """Record the time at which conditions changed."""
        for name, is_so in job.conditions():
            if name != READY:
                self.note_condition(job, name, is_so)
        self.note_ready(job)

    def note_ready(self, job: JobRecord) -> None:
        """Record the time at which the condition Ready changed. In a new epoch that is unknown until all pods are."""
        self._note_started(job)
        if self.state.listed.get(k.Watched.POD):
            self.note_condition(job, READY, job.quorum_ready)

    def note_pod(self, job: JobRecord, *, ready: bool) -> None:
        """`note_ready` after one of thousands of pods became ready, or is no longer: with more ready pods a job has no
        less of its quorum, and no set starts because of fewer."""
        turned = job.times.turned.get(READY)
        if (turned is not None and turned[0]) != ready and self.state.listed.get(k.Watched.POD):
            self.note_condition(job, READY, job.quorum_ready)
        if ready:
            self._note_started(job)

    def _note_started(self, job: JobRecord) -> None:
        """Record which worker sets may start, because the group that they start after is ready; they stay started."""
        if job.spec is None or job.stage not in (Stage.STARTING, Stage.RUNNING):
            return
        for of in job.spec.groups:
            if of.start_after is not None and not job.may_start_after(of) and self._is_ready(job, of.start_after):
                job.of_set(of.name).started = True
                self.changes.jobs[job.uid] = None

    def _is_ready(self, job: JobRecord, group: int) -> bool:
        """Whether a group is ready: as many of its pods as its `min_count`, or without one all that have nodes, at
        least one. Pods that have finished count as ready, and those that are given up aren't waited for."""
        of = job.valid_spec.groups[group]
        left = of.count - sum(slot[0] == group for slot in job.slots.given_up)
        phases = [phase for slot, phase in job.slots.not_running.items() if slot[0] == group]
        ended = phases.count(Phase.SUCCEEDED)
        placed = sum(slot[0] == group for slot in job.provided)
        return job.ready_or_finished[group] + ended >= (of.min_count or max(placed, min(1, left)))

    def note_condition(self, job: JobRecord, name: str, is_so: bool) -> None:
        before = job.times.turned.get(name)
        if is_so != bool(before and before[0]):
            job.times.turned[name] = (is_so, self.time_ms)


def _was_replaced(job: JobRecord, slot: SlotKey, pod: k.PodSeen) -> bool:
    """Whether the pod of a slot in replacement is the old one: it ended, is being deleted, or has another node."""
    return pod.phase in TERMINAL or pod.deleting or pod.node != job.placements.get(slot)


def _note_scaling(job: JobRecord, spec: JobSpec, time_ms: int) -> None:
    """Record changed counts of a TYJob that hasn't ended."""
    if job.spec is None or job.ended or not spec.scaled:
        return
    before = {group.name: group.count for group in job.spec.groups[1:]}
    sets = [(number, before.get(of.name, of.count), of.count) for number, of in enumerate(spec.groups) if number]
    if changed := tuple(of for of in sets if of[1] != of[2]):
        scaled = Scaled(job.seen.generation, time_ms, changed)
        job.times.scaled = (*job.times.scaled[1 - STEPS_KEPT :], scaled)


def may_come(job: JobRecord, slot: SlotKey, stage: Stage) -> bool:
    """Whether a slot may have an unobserved pod in a stage: only if its group may start, and none after the API server
    found a pod invalid."""
    if stage not in (Stage.STARTING, Stage.RUNNING) or (job.failure is not None and job.failure.permanent):
        return False
    return job.may_start(slot[0])


def refuse_slot(slots: Slots, job: JobRecord, slot: SlotKey, event: k.EffectFailed) -> None:
    """Note that the pod of a slot is refused. A provisioner that makes no volume for its node won't do so later: the
    nodes are given back at once, and this one is avoided for a while."""
    if event.effect == PROVISION and not event.code:
        job.refusals[job.placements[slot]] = slots.time_ms
        job.slots.refused_ms[slot] = 0
        slots.state.scheduling_changes += 1
    else:
        job.slots.refuse(slot, slots.time_ms)


def _tells_of_itself(job: JobRecord, slot: SlotKey, pod: k.PodSeen) -> bool:
    """Whether a pod of an adopted job shows that its slot had this node, though the status didn't tell of it. Only a
    job that has started has pods: whoever made another one, it isn't Arranger."""
    started = job.stage not in (Stage.PENDING, Stage.RESCHEDULING)
    return started and not job.slots.over(slot) and pod.phase not in TERMINAL
