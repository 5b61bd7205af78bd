"""Workers that end while their job continues: which of them are replaced, on which node, and which are given up.

A worker that failed by its own fault uses its set's restart budget; an evicted, refused or lost worker doesn't. A
decision on failures waits a moment, in case the leader failed too: then a new attempt replaces everything.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from typing import TypeVar

import msgspec
import numpy as np

from arranger.events import facts as f
from arranger.events.kinds import EndedWorker, PodSeen, WorkersReplaced
from arranger.lifecycle.config import LifecycleConfig
from arranger.messages.failures import Again
from arranger.model.job import JobSpec, Replacement, RestartScope, Slot
from arranger.model.pod import TERMINAL, Phase
from arranger.model.taints import given, kept_off_by_cordon, untolerated
from arranger.projections.cluster.nodes import Amounts
from arranger.projections.cluster.openness import open_to
from arranger.projections.derived.awaited_room import overbooked
from arranger.projections.jobs.parts import LEADER, STREAK_MS, SetRecord, SlotKey
from arranger.projections.jobs.records import JobRecord, blameless
from arranger.projections.jobs.worker_groups import parted
from arranger.projections.observed.devices import devices_out_of_reach, needs_of
from arranger.projections.observed.volumes import out_of_reach
from arranger.projections.state import State
from arranger.projections.verdicts.judging import lacking

#: A worker that failed so often on a node goes elsewhere, if others run well there.
FAILURES_BEFORE_MOVE = 2

_Kind = TypeVar("_Kind", bound=f.EndedPods)


class Fallen(msgspec.Struct):
    """Workers whose pods ended by their own fault (`failed`) or without it (`lost`), or exceed the limit (`over`); and
    slots of worker groups of which other slots have no node (`parted`). `deleted` are those whose pods
    somebody deleted, which restarts the whole job."""

    failed: list[tuple[SlotKey, PodSeen]] = msgspec.field(default_factory=list)
    lost: list[tuple[SlotKey, PodSeen | None]] = msgspec.field(default_factory=list)
    over: list[tuple[SlotKey, PodSeen]] = msgspec.field(default_factory=list)
    parted: list[SlotKey] = msgspec.field(default_factory=list)
    deleted: list[SlotKey] = msgspec.field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.failed or self.lost or self.over or self.parted or self.deleted)


def closed(state: State, job: JobRecord, slot: SlotKey) -> bool:
    """Whether the pod of a slot without one can't, or must not, start on the slot's node any more."""
    return (
        not state.nodes.has(job.placements[slot])
        or room_taken(state, job, slot)
        or barred(state, job, slot) is not None
    )


def spot_of(job: JobRecord, slot: SlotKey) -> tuple[str, SlotKey]:
    """What decides whether the node of a slot is closed: the node, and the group, or the slot if its pod has devices of
    its own."""
    own = any([need.own for need in needs_of(job.valid_spec.groups[slot[0]].shape)])
    return job.placements[slot], slot if own else (slot[0], 0)


def room_taken(state: State, job: JobRecord, slot: SlotKey) -> bool:
    """Whether a slot without a pod has lost its room: to a foreign pod, by a smaller node, or because two jobs were
    adopted whose statuses of different times both claim it. The kubelet would refuse the slot's pod."""
    return overbooked(state, job.placements[slot], job.valid_spec.groups[slot[0]].shape.requests)


def barred(state: State, job: JobRecord, slot: SlotKey) -> f.Closed | None:
    """How the existing node of a slot was closed to the slot's new pods; None for an open node.

    A kubelet ignores cordons and taints, so the next pod would start on a node that is being drained. Taints that only
    mark a node as unhealthy don't count, because that may pass: `node_lost_after_ms` covers them.
    """
    facts = state.nodes.facts[state.nodes.rows[job.placements[slot]]]
    shape = job.valid_spec.groups[slot[0]].shape
    if facts.cordoned and kept_off_by_cordon(shape):
        return f.Cordoned()
    taint = untolerated(given(facts.taints), shape)
    if taint is not None:
        return f.Tainted(taint)
    node = job.placements[slot]
    claim = out_of_reach(state, shape, node) or devices_out_of_reach(state, job, slot)
    return f.OutOfReach(claim) if claim else None


def fallen(state: State, job: JobRecord, config: LifecycleConfig, time_ms: int) -> Fallen | None:
    """The workers to decide on now; None if there are none, or none of them is due."""
    found = Fallen()
    restarted: list[tuple[SlotKey, PodSeen]] = []
    bound, pods, nodes = job.bound, state.pods, state.nodes
    on = dict.fromkeys(job.placements.values())
    known_ms = state.known_ms(time_ms)
    down = {node for node in on if nodes.down_for_ms(node, known_ms) >= config.node_lost_after_ms}
    shut: dict[tuple[str, SlotKey], bool] = {}
    for slot, node in job.placements.items():  # thousands of them at every change of a large job
        uid = bound.get(slot)
        if uid is None:
            spot = spot_of(job, slot)
            if slot != LEADER and spot not in shut:
                shut[spot] = node in down or closed(state, job, slot)
            if slot != LEADER and shut[spot]:
                found.lost.append((slot, None))
            continue
        pod = pods[uid]
        ended = pod.phase in TERMINAL
        if slot == LEADER or not (ended or pod.restarts or node in down):
            continue
        if uid in job.retired and node not in down:
            continue  # its set is restarted, and its next pod comes once it is gone
        if ended and blameless(pod):
            if not pod.deleting:  # a pod that is being deleted is created again after its deletion
                found.lost.append((slot, pod))
        elif pod.phase == Phase.FAILED:
            found.failed.append((slot, pod))
        elif node in down and not ended:
            found.lost.append((slot, pod))
        elif pod.restarts:
            restarted.append((slot, pod))
    found.over = _over_limit(job, found.failed, restarted)
    over = {slot for slot, _ in found.over}
    found.failed = [one for one in found.failed if one[0] not in over]
    _keep_due(job, found, config, time_ms, known_ms)
    found.deleted = [*job.deleted]
    found.parted = [slot for slot in parted(job.valid_spec, job.provided) if slot in job.placements]
    return found or None


def _over_limit(
    job: JobRecord, failed: list[tuple[SlotKey, PodSeen]], restarted: list[tuple[SlotKey, PodSeen]]
) -> list[tuple[SlotKey, PodSeen]]:
    """The workers to give up: those whose slots have more restarts than their limit."""
    going_on = [one for one in restarted if one[1].phase != Phase.SUCCEEDED]
    return [(slot, pod) for slot, pod in (*failed, *going_on) if beyond_limit(job, slot)]


def beyond_limit(job: JobRecord, slot: SlotKey) -> bool:
    """Whether a slot was restarted more often than its policy allows."""
    count, _ = job.slots.charged.get(slot, (0, 0))
    return count > job.valid_spec.restart_of(slot[0]).limit


def awaits_decision(job: JobRecord, slot: SlotKey, pod: PodSeen) -> bool:
    """Whether it is still to be decided what becomes of a worker that failed: its pod has, or its kubelet restarted it
    more often than it may."""
    if job.valid_spec.groups[slot[0]].name not in job.failing or pod.uid in job.retired:
        return False
    if pod.phase == Phase.FAILED:
        return not blameless(pod)
    return bool(pod.restarts) and pod.phase != Phase.SUCCEEDED and beyond_limit(job, slot)


def restart_limit(spec: JobSpec, group: int) -> f.RestartLimit:
    """The limit of a group's restarts."""
    policy = spec.restart_of(group)
    return f.RestartLimit(policy.limit, spec.groups[group].name if policy.own_limit else "")


def outlook(job: JobRecord, slot: SlotKey, config: LifecycleConfig, time_ms: int) -> tuple[Again, int]:
    """What becomes of a worker that failed by its own fault, and from when that is decided, if the leader hasn't failed
    too."""
    name, whole = job.valid_spec.groups[slot[0]].name, job.valid_spec.restart_of(slot[0]).scope == RestartScope.JOB
    due_ms = job.failing.get(name, 0) + config.settle_ms
    if beyond_limit(job, slot):
        return (Again.ENDS_JOB if whole else Again.TO_BE_GIVEN_UP), due_ms
    return (Again.WITH_JOB if whole else Again.REPLACED), max(due_ms, again_ms(job, name, config, time_ms))


def _keep_due(job: JobRecord, found: Fallen, config: LifecycleConfig, time_ms: int, known_ms: int) -> None:
    """Remove workers that must wait: for observations of the leader, or for the back-off of their set."""
    names = [group.name for group in job.valid_spec.groups]
    settled = {name: known_ms - job.failing.get(name, 0) >= config.settle_ms for name in names}
    ready = {name: settled[name] and time_ms >= again_ms(job, name, config, time_ms) for name in names}
    found.over = [one for one in found.over if settled[names[one[0][0]]]]
    found.failed = [one for one in found.failed if ready[names[one[0][0]]]]


def again_ms(job: JobRecord, name: str, config: LifecycleConfig, time_ms: int) -> int:
    """When workers of a set that failed by their own fault are replaced: for the first in a row, a back-off after the
    failure; for further ones, a back-off after the previous replacement."""
    of = job.sets.get(name, SetRecord())
    if not of.in_a_row or time_ms - of.replaced_ms >= STREAK_MS:
        return of.failing_since_ms + config.back_off_after(0)
    return of.replaced_ms + config.back_off_after(of.in_a_row)


def settled_ms(job: JobRecord, config: LifecycleConfig) -> list[int]:
    """When the leader's end would be known, if that is why workers failed, by set; in milliseconds since 1970."""
    return [since_ms + config.settle_ms for since_ms in job.failing.values()]


def due_ms(job: JobRecord, config: LifecycleConfig, time_ms: int) -> int | None:
    """When the next decision on failed workers is due, in milliseconds; None if none is pending."""
    failing = job.failing
    if not failing or job.spec is None:
        return None
    found = settled_ms(job, config)
    found += [again_ms(job, name, config, time_ms) for name in failing]
    return min((moment for moment in found if moment > time_ms), default=None)


def replacement(state: State, job: JobRecord, ended: Fallen) -> WorkersReplaced:
    """The decision on these workers. A failed worker keeps its node if that is healthy and still has the room, unless
    it failed there repeatedly while others run well elsewhere. If the restart policy says so, all others of its set are
    restarted with it."""
    workers = [_ended(slot, pod, Replacement.GIVEN_UP, counted=False) for slot, pod in ended.over]
    workers += [_ended(slot, pod, Replacement.ELSEWHERE, counted=False) for slot, pod in ended.lost]
    moved = _moved(state, job, ended)
    kept_off = _kept_off(state, job, ended, moved)
    for slot, pod in sorted(ended.failed, key=lambda one: one[0]):
        failures = failures_there(job, slot) if slot not in kept_off or slot in moved else 0
        how = Replacement.ELSEWHERE if slot in kept_off or slot in moved else Replacement.SAME_NODE
        workers.append(_ended(slot, pod, how, counted=True, failures=failures))
    ended_slots = {worker.slot for worker in workers}
    workers = _in_whole_groups(job, workers, ended.parted)
    with_group = [worker.slot for worker in workers if worker.slot not in ended_slots]
    others = _restarted(job, {worker.slot for worker in workers})
    workers = sorted(workers + others, key=lambda worker: worker.slot)
    causes = _causes(state, job, ended, moved) + _with(f.OthersOfGroup, with_group)
    causes += _with(f.OthersOfSet, [worker.slot for worker in others])
    return WorkersReplaced(job.uid, job.version, job.attempt, tuple(workers), causes)


def _kept_off(
    state: State, job: JobRecord, ended: Fallen, moved: Collection[SlotKey]
) -> dict[SlotKey, f.Closed | f.NodeTrouble]:
    """The failed workers whose next pods can't have their nodes, and why. Those that go elsewhere anyway (`moved`)
    leave room there."""
    found: dict[SlotKey, f.Closed | f.NodeTrouble] = {}
    kept: dict[str, dict[SlotKey, str]] = {}
    for slot in sorted(slot for slot, _ in ended.failed):
        node = job.placements[slot]
        on_node = {**kept.get(node, {}), slot: node}
        if (why := _unfit(state, job, slot)) is not None:
            found[slot] = why
        elif lacking(state.nodes, job, on_node):
            found[slot] = f.NodeTrouble.NO_ROOM
        elif slot not in moved:
            kept[node] = on_node
    return found


def lost_workers(
    state: State, job: JobRecord, ended: Fallen, moving: Collection[SlotKey], few: f.TooFew
) -> f.WorkersLost:
    """The facts of a quorum that loses these workers. Those that failed count as the cause only if they can't have
    their nodes again: others go with their worker groups."""
    kept_off = _kept_off(state, job, ended, _moved(state, job, ended))
    failed = [one for one in ended.failed if one[0] in moving and one[0] in kept_off]
    if failed:
        cause = cause_of(state, job, failed, f.FailedPods)
        slot = (cause.first.group, cause.first.index)
        return f.WorkersLost(few, cause, f.NodeLeft(job.placements[slot], kept_off[slot]))
    lost = [one for one in ended.lost if one[0] in moving]
    return f.WorkersLost(few, cause_of(state, job, lost, f.LostPods) if lost else None)


def _in_whole_groups(job: JobRecord, workers: list[EndedWorker], parted: Sequence[SlotKey]) -> list[EndedWorker]:
    """The workers with the others of their worker groups: all of these are given up, or all lose their nodes and are
    placed again together, or all have their next pods on their nodes. A worker group with `parted` slots is placed
    again."""
    found = {worker.slot: worker for worker in workers}
    hows: dict[tuple[int, range], set[Replacement]] = {}
    for slot, how in [(of.slot, of.how) for of in workers] + [(Slot(*slot), Replacement.ELSEWHERE) for slot in parted]:
        members = job.valid_spec.groups[slot.group].worker_group(slot.index)
        if len(members) > 1:
            hows.setdefault((slot.group, members), set()).add(how)
    for (group, members), of_group in hows.items():
        if any((group, index) in job.slots.finished for index in members):
            of_group.add(Replacement.ELSEWHERE)  # the finished ones begin again too, and need nodes for that
        freed = next((how for how in (Replacement.GIVEN_UP, Replacement.ELSEWHERE) if how in of_group), None)
        for slot in (Slot(group, index) for index in members if (group, index) in job.placements):
            uid = job.bound.get((slot.group, slot.index), "")
            if freed is not None:
                if slot not in found or found[slot].how != freed:
                    again = freed != Replacement.GIVEN_UP and slot in found and found[slot].counted
                    found[slot] = EndedWorker(slot, uid, freed, again)
            elif slot not in found and uid and uid not in job.retired:
                found[slot] = EndedWorker(slot, uid, Replacement.RESTARTED, False)
    return list(found.values())


def _restarted(job: JobRecord, ended: set[Slot]) -> list[EndedWorker]:
    """The other workers of sets that are restarted as a whole, also those that have completed their work."""
    groups = {slot.group for slot in ended if job.valid_spec.restart_of(slot.group).scope == RestartScope.SET}
    others = [(Slot(*slot), uid) for slot, uid in job.bound.items() if slot[0] in groups and uid not in job.retired]
    return [EndedWorker(slot, uid, Replacement.RESTARTED, False) for slot, uid in others if slot not in ended]


def _with(kind: type[f.OthersOfSet | f.OthersOfGroup], slots: list[Slot]) -> tuple[f.EndCause, ...]:
    """One cause for each set of which others go too."""
    counts = Counter(slot.group for slot in slots)
    firsts = {slot.group: slot for slot in sorted(slots, reverse=True)}
    return tuple(kind(firsts[group], counts[group]) for group in sorted(counts))


def _unfit(state: State, job: JobRecord, slot: SlotKey) -> f.Closed | f.NodeTrouble | None:
    """Why the node of a slot can't take the slot's next pod, whatever room it has; None if it can."""
    node = job.placements[slot]
    if not state.nodes.has(node):
        return f.NodeTrouble.GONE
    how = barred(state, job, slot)
    if how is None and not state.nodes.facts[state.nodes.rows[node]].ready:
        return f.NodeTrouble.NOT_READY
    return how


def _healthy(state: State, job: JobRecord, slot: SlotKey) -> bool:
    """Whether the node of a slot exists, is ready, and is open to the slot's pods."""
    return _unfit(state, job, slot) is None


def failures_there(job: JobRecord, slot: SlotKey) -> int:
    """How many pods of a slot have failed on its node, with the one that is decided on now. In a policy with a window,
    only those within it count."""
    count, policy = job.slots.failures.get(slot, 0) + 1, job.valid_spec.restart_of(slot[0])
    return min(count, job.slots.charged.get(slot, (count, 0))[0]) if policy.window_s is not None else count


def _moved(state: State, job: JobRecord, ended: Fallen) -> set[SlotKey]:
    """The workers that failed repeatedly on their nodes while others run well elsewhere, as far as other nodes have
    room for them beside those that must leave their nodes. The scheduler chooses among the nodes."""
    failed = sorted(slot for slot, _ in ended.failed)
    suspects = [slot for slot in failed if _fails_only_there(state, job, slot)]
    if not suspects:
        return set()
    others = _OtherNodes(state, job, failed)
    for slot in [*(slot for slot, _ in ended.lost), *(slot for slot in failed if not _healthy(state, job, slot))]:
        others.take(slot)
    return {slot for slot in suspects if others.take(slot)}


def _fails_only_there(state: State, job: JobRecord, slot: SlotKey) -> bool:
    """Whether a worker failed repeatedly on its healthy node, while another one that never failed where it is runs on
    another node."""
    if failures_there(job, slot) < FAILURES_BEFORE_MOVE or not _healthy(state, job, slot):
        return False
    node, slots = job.placements[slot], job.slots
    return any(of != LEADER and job.placements[of] != node and of not in slots.failures for of in slots.ready)


class _OtherNodes:
    """The room on the nodes for workers that one decision takes from theirs, each counted once. What the failed pods
    had is no room: their workers stay there, or their set leaves the node."""

    def __init__(self, state: State, job: JobRecord, failed: Sequence[SlotKey]) -> None:
        self._nodes, self._job = state.nodes, job
        self._free = state.nodes.free()
        self._open: dict[int, Amounts] = {}
        for slot in failed:
            if (row := self._row(slot)) >= 0:
                self._free[row] -= self._asked(slot)

    def _row(self, slot: SlotKey) -> int:
        return self._nodes.rows.get(self._job.placements[slot], -1)

    def _asked(self, slot: SlotKey) -> Amounts:
        return self._nodes.vector(self._job.valid_spec.groups[slot[0]].shape.requests)

    def take(self, slot: SlotKey) -> bool:
        """Take the room for a worker on a node that is not its own, and that its set hasn't left because of failures.
        False if there is none."""
        group, asked = slot[0], self._asked(slot)
        if group not in self._open:
            self._open[group] = self._open_to(group)
        rows = self._open[group][self._open[group] != self._row(slot)]
        roomy = rows[((self._free[rows] >= asked) | (asked == 0)).all(axis=1)]
        if len(roomy):
            self._free[roomy[0]] -= asked
        return bool(len(roomy))

    def _open_to(self, group: int) -> Amounts:
        """The rows of the nodes that are open to a worker set, without those that it has left."""
        nodes, of_set = self._nodes, self._job.valid_spec.groups[group]
        left = self._job.sets.get(of_set.name, SetRecord()).avoids
        rows = [
            row
            for name, row in nodes.rows.items()
            if name not in left and nodes.present(row) and open_to(nodes.facts[row], of_set.shape)
        ]
        return np.array(rows, np.int64)


def _ended(slot: SlotKey, pod: PodSeen | None, how: Replacement, *, counted: bool, failures: int = 0) -> EndedWorker:
    return EndedWorker(Slot(*slot), pod.uid if pod is not None else "", how, counted, failures)


def _causes(state: State, job: JobRecord, ended: Fallen, moved: set[SlotKey]) -> tuple[f.EndCause, ...]:
    """The causes of the replacements, with the first worker of each kind."""
    stay = [one for one in ended.failed if one[0] not in moved]
    kinds = ((stay, f.FailedPods), (ended.lost, f.LostPods), (ended.over, f.PodsOverLimit))
    found: list[f.EndCause] = [cause_of(state, job, pods, kind) for pods, kind in kinds if pods]
    if moved:
        slot, pod = min(one for one in ended.failed if one[0] in moved)
        end = f.PodEnd(pod.reason or pod.message, pod.ended)
        found.append(f.FailedAgain(Slot(*slot), len(moved), end, job.placements[slot], failures_there(job, slot)))
    return tuple(found)


def cause_of(state: State, job: JobRecord, pods: Sequence[tuple[SlotKey, PodSeen | None]], kind: type[_Kind]) -> _Kind:
    """Why these workers ended: of the first of them."""
    slot, pod = min(pods, key=lambda one: one[0])
    if pod is not None and (pod.ended is not None or pod.reason or pod.message):
        return kind(Slot(*slot), len(pods), f.PodEnd(pod.reason or pod.message, pod.ended))
    node = job.placements[slot]
    how = barred(state, job, slot) if state.nodes.has(node) else None
    trouble = _trouble(state, job, slot) if how is None and kind is f.LostPods else None
    return kind(Slot(*slot), len(pods), f.NodeLeft(node, how or trouble))


def deletion(job: JobRecord, slots: Sequence[SlotKey]) -> f.DeletedPods:
    """That somebody deleted the pods of these workers."""
    slot = min(slots)
    disruption = dict(job.disruptions).get(slot, "")
    return f.DeletedPods(Slot(*slot), len(slots), disruption, job.placements.get(slot, "") if disruption else "")


def _trouble(state: State, job: JobRecord, slot: SlotKey) -> f.NodeTrouble | None:
    """Why a worker was lost whose node is open to its pods."""
    node = job.placements[slot]
    if not state.nodes.has(node):
        return f.NodeTrouble.GONE
    if slot not in job.bound and room_taken(state, job, slot):  # at once, even if the node hasn't been down for long
        return f.NodeTrouble.NO_ROOM
    return f.NodeTrouble.NOT_READY if state.nodes.down_for_ms(node, state.time_ms) >= 0 else None
