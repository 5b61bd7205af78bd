"""What becomes of room that jobs give to others: no preemption is in vain, none answers another, and no other pods
leave.

The record follows the log entry by entry. Each preemption that it accepts ends with the start of the beneficiary, or
with an excuse that the log shows.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

from arranger.events import kinds as k
from arranger.events.facts import NodeClosed, OutOfReach, PreemptionKind
from arranger.events.log import Entry
from arranger.model.job import ENDED, Stage
from arranger.model.node import NodeFacts
from arranger.model.pods_to_place import group_uid
from arranger.model.stages import StageReason
from arranger.projections.cluster.openness import closed_to_next
from arranger.projections.jobs.records import JobRecord, expand, holds, record_uid, requests_of
from arranger.projections.state import State, Verdict
from arranger.projections.verdicts.ownership import attributed
from tests.simulation.gateways import CLOCK_BOUND_MS
from tests.simulation.queue_rules import name_of
from tests.simulation.room_rules import edited, less, spec_of

if TYPE_CHECKING:
    from tests.simulation.world import SimulatedProcess, World

#: In this time, no two jobs give room to each other.
_HOUR_MS = 3_600_000
#: So often may one job lose all its pods to others in that time. Each time serves another beneficiary of a higher
#: priority, or one of a queue below its share. In fifty runs, a job did so four times at most. A beneficiary whose own
#: pods fail again and again takes room for each of its attempts: only the last of them counts. The same is true of its
#: victims, which may take room from others each time.
TIMES = 10
_OWN_FAILURES = (StageReason.WORKERS_LOST, StageReason.LEADER_FAILED, StageReason.WORKER_ENDED)
#: Whoever decides knows after this time that a node is gone or closed.
_KNOWN_SHUT_MS = 30_000
#: The watches of what rules, rather than jobs and nodes, are made of.
_RULES = (k.Watched.QUEUE, k.Watched.NAMESPACE, k.Watched.PRIORITY_CLASS, k.Watched.LIMIT_RANGE)
_WAITING = (Stage.PENDING, Stage.RESCHEDULING)
#: Site of each way in which room is taken.
SITES_OF_KINDS = {kind: f"preempted: {kind.lower()}" for kind in PreemptionKind}
FREED, NOT_FREED = "room is awaited, then free", "room isn't free in time"
PASSED_ON = "a job takes room for which another one waits"
EPOCH = "the log is lost while room is awaited"
TAIL = "the log loses its tail while room is awaited"


@dataclass
class Awaited:
    """A job that has nodes which others are still to leave. `pods` are the UIDs of those that leave, and `excuses` why
    it may not start there."""

    event: k.Preempted
    offset: int
    pods: dict[str, None]
    #: Whether it was decided when nothing delays the deletion of pods any more.
    quiet: bool = False
    excuses: dict[str, None] = field(default_factory=dict)
    #: The nodes that are gone or closed to it, and since when, in milliseconds.
    shut: dict[str, int] = field(default_factory=dict)

    @property
    def nodes(self) -> dict[str, None]:
        """The nodes that it got."""
        return {pods.node: None for pods in self.event.placed.pods}

    @property
    def attempts(self) -> list[tuple[str, int]]:
        """UID and attempt of each job that gives room."""
        return [(victim.job_uid, victim.attempt) for victim in self.event.victims]


@dataclass
class Before:
    """What the record needs to know of the state before an entry."""

    #: Job → pod in one of its slots → whether it is to be deleted already.
    bound: dict[str, dict[str, bool]]
    restarts: dict[str, int]
    seen: dict[str, k.JobSeen]
    facts: dict[str, NodeFacts]
    #: Pod → the record that it has, alone or with its group, empty for none; all by UID.
    pods: dict[str, str]


def _shut(state: State, of: Awaited, node: str) -> bool:
    """Whether a node that a job got is gone, or closed to a pod of it."""
    job = state.jobs.get(of.event.placed.job_uid)
    if job is None or job.spec is None or not state.nodes.has(node):
        return job is not None and job.spec is not None
    groups = {(pods.group, 0): node for pods in of.event.placed.pods if pods.node == node}
    return bool(closed_to_next(state.nodes, job.spec, groups))


class RoomRecord:
    """Follows the preemptions of a run."""

    def __init__(self, world: "World") -> None:
        self._world = world
        #: UID of the beneficiary → what it waits for.
        self.awaited: dict[str, Awaited] = {}
        #: (UID, attempt) of jobs that began on nodes which others had to leave → the pods that left.
        self._began: dict[tuple[str, int], Awaited] = {}
        #: Time, beneficiary, and victims with the kind, of every accepted preemption in any epoch.
        self._accepted: list[tuple[int, k.Preempted]] = []
        #: UID → when the job last took room from others, and the queues of these.
        self.took: dict[str, tuple[int, dict[str, None]]] = {}
        #: Jobs (UIDs) that took room, and other jobs of whose queue got nodes since: it may be above its share now.
        self._grown: dict[str, None] = {}
        #: UID → when the job was last edited, according to the log.
        self._edited_ms: dict[str, int] = {}
        self._generations: dict[str, int] = {}
        #: UID → when the job last lost an attempt by the failure of its own pods, or gave room to such a job.
        self._failed_ms: dict[str, int] = {}
        #: UID → the jobs with reservations in whose room it was told that it is a guest, as long as they have them.
        self._told: dict[str, dict[str, None]] = {}
        #: When queues, namespaces or priority classes last changed; and nodes, or which jobs there are.
        self._rules_ms = self._demand_ms = 0

    # --- entry by entry ------------------------------------------------------------------------------------

    def before(self, state: State, entry: Entry) -> Before | None:
        """Called before an entry is folded."""
        news = any(isinstance(event, k.Preempted) for event in entry.batch.events)
        if not news and not self.awaited:
            return None
        nodes = {node: None for of in self.awaited.values() for node in of.nodes}
        facts = {node: found for node in nodes if (found := state.nodes.facts_of(node)) is not None}
        jobs = state.jobs.items() if news else ()
        bound = {uid: {pod: pod in job.retired for pod in job.bound.values()} for uid, job in jobs}
        restarts = {uid: _restarts(state, job) for uid, job in jobs}
        seen = {uid: state.jobs[uid].seen for uid in self.awaited if uid in state.jobs}
        pods = {uid: record_uid(pod) for uid, pod in state.pods.items()} if nodes else {}
        return Before(bound, restarts, seen, facts, pods)

    def after(self, state: State, entry: Entry, verdicts: Mapping[int, Verdict], before: Before | None) -> str:
        """Called after an entry is folded; returns the first problem, empty if there is none."""
        self._note_edits(state, entry)
        problem = ""
        if before is not None:
            for of in self.awaited.values():
                self._excuse(state, entry, of, before)
            problem = self._resolve(state, entry)
        for number, event in enumerate(entry.batch.events):
            verdict = verdicts.get(entry.first + number)
            if not isinstance(event, k.Placed | k.Preempted) or verdict is None or not verdict.accepted:
                continue
            self._note_growth(state, event)
            placed = event if isinstance(event, k.Placed) else event.placed
            if placed.hosts:
                more = state.jobs[placed.job_uid].placements.keys() - expand(placed.pods).keys()
                earlier = self._told.get(placed.job_uid, {}) if more else {}
                self._told[placed.job_uid] = {**earlier, **dict.fromkeys(placed.hosts)}
            if isinstance(event, k.Preempted) and before is not None:
                problem = problem or self._untold(event) or self._accept(state, entry, event, before)
        for uid, hosts in self._told.items():
            self._told[uid] = {host: None for host in hosts if state.is_host(host)}
        if before is not None and before.bound:
            problem = problem or self._others_lost_nothing(state, entry, before)
        return problem

    def _untold(self, event: k.Preempted) -> str:
        """Whether somebody leaves as a guest for a reservation that it wasn't told of."""
        guests = [of.job_uid for of in event.victims if of.kind.of_guest]
        untold = [uid for uid in guests if event.placed.job_uid not in self._told.get(uid, {})]
        return f"{untold} leave for {event.placed.job_uid}, and were told of no reservation" if untold else ""

    def _note_edits(self, state: State, entry: Entry) -> None:
        for event in entry.batch.events:
            if isinstance(event, k.StageDecided) and event.reason in _OWN_FAILURES:
                self._failed_ms[event.job_uid] = state.time_ms
            if isinstance(event, k.JobSeen) and self._generations.get(event.uid) != event.generation:
                self._generations[event.uid] = event.generation
                self._edited_ms[event.uid] = self._demand_ms = state.time_ms
            elif _is_demand(event):
                self._demand_ms = state.time_ms
            elif isinstance(event, k.WatchRefused) or k.watch_of(event) in _RULES:
                self._rules_ms = state.time_ms

    def _note_growth(self, state: State, event: k.Placed | k.Preempted) -> None:
        """Note whose queue gets more by a decision. The job's own further pods are surplus, which costs no quorum."""
        uid = event.job_uid if isinstance(event, k.Placed) else event.placed.job_uid
        queue = name_of(state, state.jobs[uid])
        others = [of for of in self.took if of in state.jobs and of != uid]
        taken = [of for of in others if name_of(state, state.jobs[of]) == queue]
        self._grown.update(dict.fromkeys(taken))

    def _excuse(self, state: State, entry: Entry, of: Awaited, before: Before) -> None:
        """Note what an entry shows that may keep a job from starting on the nodes it got."""
        uid = of.event.placed.job_uid
        if (job := state.jobs.get(uid)) is not None and job.of_pods and _quorum(job.seen) != _quorum(before.seen[uid]):
            of.excuses["its group needs another number of pods"] = None
        for event in entry.batch.events:
            if k.seen_or_gone(event, k.PodGroupSeen):  # in one entry, it may go and come again
                kind = event.group_kind if isinstance(event, k.PodGroupSeen) else k.GROUP_KINDS[event.kind]
                if group_uid(event.namespace, event.name, kind) == uid:
                    of.excuses["its PodGroup came, went or changed"] = None
            elif k.seen_or_gone(event, k.NodeSeen) and event.name in of.nodes:
                if _shut(state, of, event.name):
                    of.shut.setdefault(event.name, state.time_ms)
                else:
                    of.shut.pop(event.name, None)
                if less(before.facts.get(event.name), state.nodes.facts_of(event.name)):
                    of.excuses["a node is gone, has closed, or is smaller"] = None
            elif isinstance(event, k.JobSeen) and event.uid == uid and edited(before.seen[uid], event):
                of.excuses["the job was edited or deleted"] = None
            elif k.seen_or_gone(event, k.PodSeen) and before.pods.get(event.uid) == uid and _leaves(event, uid):
                of.excuses["a pod that was to be bound is gone"] = None
            elif isinstance(event, k.PodSeen) and before.pods.get(event.uid) == uid and event.node:
                of.excuses["a pod that waited for room was bound before"] = None
            elif isinstance(event, k.PodSeen) and event.node in of.nodes and event.uid not in before.pods:
                owner = attributed(state, event).owner
                if owner is None or (owner.job_uid, owner.attempt) in of.attempts:
                    of.excuses["a pod came that nobody expected"] = None
                    of.pods |= {event.uid: None} if owner is not None else {}

    def _resolve(self, state: State, entry: Entry) -> str:
        """Let go of those that wait no more; returns what is wrong with how one of them ended."""
        decider, before = self._world.writer_of(entry), dict(self.awaited)
        for uid, of in before.items():
            job = state.jobs.get(uid)
            if job is not None and job.slots.room == of.event:
                continue
            del self.awaited[uid]
            if job is not None and job.stage == Stage.STARTING and job.attempt == of.event.placed.attempt:
                self._world.faults.hit(FREED)
                if uid in self.took:
                    self.took[uid] = (state.time_ms, self.took[uid][1])
                self._began[uid, job.attempt] = of
                # A controller that was paused knows nothing of those who got nodes there meanwhile.
                known = decider.follower.state if decider is not None and uid in decider.follower.state.jobs else state
                now_ms = self._world.clock.now_ms() + CLOCK_BOUND_MS  # no clock by which a controller decides is later
                problem = _too_early(state, of, job, now_ms) and _too_early(known, of, known.jobs[uid], now_ms)
                if problem and not of.excuses:
                    return problem
            elif problem := self._in_vain(state, of, job, [each for other, each in before.items() if other != uid]):
                return problem
        return ""

    def _in_vain(self, state: State, of: Awaited, job: JobRecord | None, others: Sequence[Awaited]) -> str:
        """Why a preemption shouldn't have ended without the start of the job that got the room. `others` were awaited
        before this entry, too: several jobs may give up by one."""
        reason = job.decided.reason if job is not None and job.decided is not None else None
        shut = [node for node, since_ms in of.shut.items() if state.time_ms - since_ms > _KNOWN_SHUT_MS]
        if shut and reason == StageReason.ROOM_NOT_FREED:
            return f"a job says that others didn't leave its nodes in time, and {shut} are gone or closed"
        if reason == StageReason.PREEMPTED:  # others leave for somebody else now, and `room_rules` says who may be that
            self._world.faults.hit(PASSED_ON)
            self.took.pop(of.event.placed.job_uid, None)
            return ""
        if job is None or of.excuses or reason in (StageReason.DEADLINE_EXCEEDED, StageReason.INVALID_SPEC):
            if reason == StageReason.ROOM_NOT_FREED:
                self._world.faults.hit(NOT_FREED)
            return ""
        facts = job.decided.facts if job.decided is not None else None
        if isinstance(facts, NodeClosed) and isinstance(facts.how, OutOfReach):
            return ""
        if reason != StageReason.ROOM_NOT_FREED:
            return f"a job lost the room that others gave it: {job.stage}, {reason}"
        self._world.faults.hit(NOT_FREED)
        if state.time_ms < of.event.until_ms - 2 * CLOCK_BOUND_MS:  # either clock may be that far off
            return f"a job gives up waiting for room {of.event.until_ms - state.time_ms} ms too early"
        there = [state.pods[pod].name for pod in of.pods if pod in state.pods and holds(state.pods[pod])]
        foreign = [*self._world.checks.strangers.values(), *self._world.checks.forged]
        if any(pod in foreign for pod in of.pods):  # a forged observation showed another owner's pod as one that leaves
            return ""
        if any(of.nodes.keys() & other.nodes.keys() for other in others):
            return ""  # another job waits for pods on the same node, and room there is counted for all
        if of.quiet or not there:
            return f"a job gives up waiting for room: {there or 'no pods'} haven't left it"
        return ""

    def _accept(self, state: State, entry: Entry, event: k.Preempted, before: Before) -> str:
        """Record an accepted preemption; returns what is wrong with it."""
        offset = entry.first + entry.batch.events.index(event)
        cycle_ms = max(of.time_ms for of in entry.batch.events if isinstance(of, k.CycleTaken))
        job = state.jobs[event.placed.job_uid]
        pods = dict.fromkeys(event.leaving)
        for victim in event.victims:
            self._world.faults.hit(SITES_OF_KINDS[victim.kind])
            of = state.jobs[victim.job_uid]
            pods |= {uid: None for uid in before.bound[of.uid] if uid not in of.bound.values()}
            if _restarts(state, of) != before.restarts[of.uid]:
                return f"{of.seen.name} gave room, and {_restarts(state, of) - before.restarts[of.uid]} restarts count"
            if of.stage in _WAITING and of.back_offs.attempt.until_ms > state.time_ms:
                return f"{of.seen.name} gave room, and backs off"
        self.awaited[job.uid] = Awaited(event, offset, pods, quiet=not self._world.faults.on)
        queues = {victim.job_uid: name_of(state, state.jobs[victim.job_uid]) for victim in event.victims}
        elsewhere = [uid for uid, queue in queues.items() if queue != name_of(state, job)]
        problem = self._again(state.time_ms, event, elsewhere) or self._back_at_once(state, event, cycle_ms)
        self._note_failing(state.time_ms, event)
        self.took[job.uid] = (state.time_ms, dict.fromkeys(queues.values()))
        self._grown.pop(job.uid, None)
        self._accepted.append((state.time_ms, event))
        return problem

    def _others_lost_nothing(self, state: State, entry: Entry, before: Before) -> str:
        """Only the victims' slots lose their pods by the entry of a cycle."""
        if any(isinstance(event, k.Observation) for event in entry.batch.events):
            return ""
        leave = {uid: None for of in self.awaited.values() for uid in of.pods}
        for uid, pods in before.bound.items():
            job = state.jobs.get(uid)
            kept = [pod for pod in pods if job is not None and pod not in job.retired and pod in job.bound.values()]
            if lost := [pod for pod, goes in pods.items() if not goes and pod not in kept and pod not in leave]:
                return f"a cycle takes the pods {lost} of {uid}, which is no victim"
        return ""

    # --- over time -----------------------------------------------------------------------------------------

    def _again(self, time_ms: int, event: k.Preempted, elsewhere: Collection[str] = ()) -> str:
        """Whether a preemption answers another one, or is one too many; empty if not. The victims in `elsewhere` are in
        other queues than the beneficiary."""
        uid, taken = event.placed.job_uid, Counter[str]()
        recent = [(since_ms, of) for since_ms, of in self._accepted if time_ms - since_ms < _HOUR_MS]
        for since_ms, of in recent:
            if self._failed_ms.get(of.placed.job_uid, 0) <= since_ms:
                taken.update(victim.job_uid for victim in of.victims if victim.kind.whole)
            answered = next((victim for victim in of.victims if victim.job_uid == uid), None)
            back = next((victim for victim in event.victims if victim.job_uid == of.placed.job_uid), None)
            if answered is None or back is None or answered.kind.of_guest:
                continue  # a guest had no claim to its room; what its queue may reclaim is another question
            changed_ms = max(self._rules_ms, *(self._edited_ms.get(each, 0) for each in (uid, back.job_uid)))
            of_shares = back.job_uid in elsewhere or PreemptionKind.RECLAIM in (answered.kind, back.kind)
            if of_shares:  # these follow what all jobs ask for
                if back.job_uid in self._grown:
                    continue
                changed_ms = max(changed_ms, self._demand_ms)
            if changed_ms < since_ms:  # at the same time, it may have come afterwards
                return f"{uid} takes room from {back.job_uid}, which took room from it {time_ms - since_ms} ms before"
        for victim in event.victims:
            if victim.kind.whole and taken[victim.job_uid] >= TIMES:
                return f"{victim.job_uid} loses its pods to others for the {taken[victim.job_uid] + 1}th time"
        return ""

    def _note_failing(self, time_ms: int, event: k.Preempted) -> None:
        """Whoever gives room to a job that fails again and again may need room again each time."""
        if time_ms - self._failed_ms.get(event.placed.job_uid, -_HOUR_MS) < _HOUR_MS:
            whole = [victim.job_uid for victim in event.victims if victim.kind.whole]
            self._failed_ms.update(dict.fromkeys(whole, time_ms))

    def _back_at_once(self, state: State, event: k.Preempted, cycle_ms: int) -> str:
        """Whether a queue takes room back from a job that took it from this queue, before that job has had it for the
        least time of its own queue; empty if not. Guests leave for their host whenever that can start."""
        by = state.jobs[event.placed.job_uid]
        for victim in event.victims:
            of = state.jobs[victim.job_uid]
            if victim.kind == PreemptionKind.GUEST:
                continue
            since_ms, queues = self.took.get(of.uid, (0, {}))
            kept_s = spec_of(state, name_of(state, of)).min_runtime_s
            kept = of.slots.took and victim.kind.whole
            kept_ms = kept_s * 1000 if kept_s is not None else self._world.cycle_config.min_runtime_ms * kept
            if max(cycle_ms - since_ms, 0) < kept_ms and name_of(state, by) in queues and self._rules_ms < since_ms:
                return f"{by.seen.name} takes room back from {of.seen.name} after {cycle_ms - since_ms} of {kept_ms} ms"
        return ""

    # --- effects -------------------------------------------------------------------------------------------

    def staying(self, pod: Mapping[str, Any], there: Sequence[str]) -> list[str]:
        """Those of these UIDs that gave the room of a pod, whose attempt has begun."""
        attempt = int((pod["metadata"].get("labels") or {}).get("arranger.dev/attempt", -1))
        of = self._began.get((_job_of(pod), attempt))
        return [one for one in there if of is not None and one in of.pods]

    def deleted(self, process: "SimulatedProcess", uid: str) -> str:
        """Why a process shouldn't delete a pod; empty if it may. It may delete none that fills a slot, according to the
        log that it knows to the end."""
        state, theirs = self._world.oracle.state, process.follower.state
        at = (theirs.epoch, theirs.offset, process.follower.position.chain)
        pod = state.pods.get(uid)
        job = state.jobs.get(pod.owner.job_uid) if pod is not None and pod.owner is not None else None
        if job is None or pod is None or at != (state.epoch, state.offset, self._world.oracle.chain):
            return ""
        fills = uid in job.bound.values() and uid not in job.retired and job.active
        return f"{process.name} deletes {pod.name}, which fills a slot" if fills else ""

    # --- lost logs -----------------------------------------------------------------------------------------

    def forget(self) -> None:
        """Another epoch begins."""
        if self.awaited:
            self._world.faults.hit(EPOCH)
        self.awaited.clear()
        self._told.clear()

    def lose_after(self, state: State) -> None:
        """The log has lost its tail, and this is the state at its end."""
        if any(of.offset > state.offset for of in self.awaited.values()):
            self._world.faults.hit(TAIL)
        for uid, job in state.jobs.items():
            if (room := job.slots.room) is not None:
                known = self.awaited.get(uid)
                pods = known.pods if known is not None and known.event == room else {}
                self.awaited[uid] = Awaited(room, state.offset, pods, excuses={"the log lost its tail": None})
        self.awaited = {uid: of for uid, of in self.awaited.items() if uid in state.awaiting}
        self._told = {
            uid: dict.fromkeys(chain(job.slots.hosts, *job.slots.lent.values())) for uid, job in state.jobs.items()
        }


def _too_early(state: State, of: Awaited, job: JobRecord, now_ms: int) -> str:
    """Why a job shouldn't have begun on its nodes: on one of them are pods that leave, and more than it holds. Others
    that still wait for room there have no pods, and may have got it after the controller decided. Assumed pods that
    nobody has seen until `now_ms` aren't there, though no entry has dropped them yet."""
    gone = [(pod.node, pod.requests) for pod in state.assumed_until(now_ms)]
    waiting = [other for other in state.jobs.values() if other.slots.room is not None and other.uid != job.uid]
    for slot, node in job.placements.items():
        there = [uid for uid in of.pods if uid in state.pods and state.pods[uid].node == node]
        there = [state.pods[uid].name for uid in there if holds(state.pods[uid])]
        asked = [requests_of(other, at) for other in waiting for at, where in other.placements.items() if where == node]
        asked += [requests for where, requests in gone if where == node]
        later = sum((state.nodes.vector(requests) for requests in asked), start=state.nodes.vector(()) * 0)
        if there and state.nodes.overbooked(node, requests_of(job, slot), later):
            return f"{job.seen.name} begins before {there} have left {node}"
    return ""


def _restarts(state: State, job: JobRecord) -> int:
    """All restarts that count for a job: those of earlier pods, and those of the pods in its slots."""
    of_pods = sum(state.pods[uid].restarts for uid in job.bound.values() if uid in state.pods)
    return job.leader.restarts + sum(job.spent.values()) + of_pods


def _job_of(pod: Mapping[str, Any]) -> str:
    owners = pod["metadata"].get("ownerReferences") or ()
    return next((str(of["uid"]) for of in owners if of.get("controller")), "")


def _is_demand(event: k.Event) -> bool:
    """Whether other jobs may want room after an event, or there may be more or less of it."""
    ended = isinstance(event, k.StageDecided) and event.stage in ENDED
    return ended or k.seen_or_gone(event, k.NodeSeen) or k.is_gone(event, k.Watched.JOB)


def _leaves(event: k.PodSeen | k.ObjectGone, record: str) -> bool:
    """Whether a pod leaves its record, or is about to."""
    return isinstance(event, k.ObjectGone) or event.deleting or record_uid(event) != record


def _quorum(seen: k.JobSeen) -> tuple[int, bool] | None:
    """How many workers must run together, and whether the PodGroup that says so is there."""
    return (seen.spec.min_workers, seen.spec.group_known) if seen.spec is not None else None
