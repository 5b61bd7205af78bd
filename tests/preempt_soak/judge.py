"""The judge of a run: it compares what happened on the cluster with what the log had decided before.

It knows the cluster only by its own watch and the log only by its bytes. Its rules:

- The pods of a node never hold more GPUs than it has, those that terminate included.
- A pod is deleted only if a `Preempted` before that names its slot and its node, if its job had ended or was deleted,
  or if its leader had failed. Each naming is good for one pod. A victim's pod has its own grace period.
- No pod comes to room that is kept for a job which waits for others to leave.
- No job is scheduled again but after a failure of its leader: no node fails here, and no room may be taken.
- Who gives room is preemptible, and of lower priority in the same queue, or of another queue in a reclaim.
- Who gets room starts, or gives it back with `RoomNotFreed`, unless the job ends first.
- No restart is counted for a job whose leader never failed.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Container, Iterator
from dataclasses import dataclass
from typing import Any

from tests.e2e.history import Event
from tests.preempt_soak.objects import Job, Pod, time_ms
from tests.preempt_soak.record import Record
from tests.trial.readings import LogEvent, LogTail

#: How long after a pod its job may be seen, because each kind has its own watch.
_LAG_S = 15.0
#: Kubernetes gives times in whole seconds.
_SECOND_MS = 1000
#: A pod whose creation was under way when its slot was named may come as late as this.
_COMES_MS = 12_000

#: UID of the job, attempt, group (0 is the leader), index.
Slot = tuple[str, int, int, int]


@dataclass
class Naming:
    """A `Preempted` names this slot on this node."""

    offset: int
    time_ms: int
    node: str
    kind: str
    used: bool = False


@dataclass
class Room:
    """The room that a job got from others, until it starts: node → GPUs."""

    offset: int
    time_ms: int
    until_ms: int
    attempt: int
    gpus: Counter[str]
    leaving: frozenset[str]


@dataclass
class _Squeeze:
    """A new pod on a node where too little is left for those who wait for room there: offset → GPUs that it keeps."""

    text: str
    free: int
    kept: dict[int, int]
    uids: tuple[str, ...]


@dataclass
class _Deletion:
    """A deletion whose reason is still to be judged. `asked_ms` is when it was asked for, at the latest."""

    pod: Pod
    version: int
    asked_ms: int
    at_once: bool
    due_s: float


class Judge:
    """Takes what is new in steps, and collects violations in `faults`."""

    def __init__(self, record: Record, tail: LogTail) -> None:
        self._record = record
        self._tail = tail
        self.faults: list[str] = []
        self.counts: Counter[str] = Counter()
        self.jobs: dict[str, Job] = {}
        self.pods: dict[str, Pod] = {}
        #: For each pod that was deleted to give room: its job, and the offsets of the decisions that name it.
        self._relied_on: list[tuple[str, str, list[int]]] = []
        #: Offsets of decisions that can't have taken effect.
        self._void: set[int] = set()
        self._squeezes: list[_Squeeze] = []
        self.preempted_of: Counter[str] = Counter()
        #: Beneficiary → the room that it waits for.
        self.rooms: dict[str, Room] = {}
        self.longest_room_ms = 0
        self._nodes: dict[str, int] = {}
        self._names: dict[Slot, list[Naming]] = defaultdict(list)
        self._deletions: list[_Deletion] = []
        #: What happened to pods, and is not judged yet.
        self._pods_seen: list[Event] = []
        self._last_cycle = 0
        self._superseded = False

    def step(self) -> None:
        """Judge what happened since the last step.

        The log is read after the cluster, so no pod is ahead of it. Only a job may have been seen a moment later.
        """
        self._take()
        pods, self._pods_seen = self._pods_seen, []
        for logged in self._tail.read():
            self._logged(logged)
        for event in pods:
            self._pod(event)
        due = [of for of in self._deletions if of.due_s <= time.monotonic()]
        self._deletions = [of for of in self._deletions if of.due_s > time.monotonic()]
        for deletion in due:
            self._reasoned(deletion)

    def _take(self) -> None:
        """Take over what happened to jobs and nodes, and put aside what happened to pods."""
        for event in self._record.take():
            if event.kind == "pod":
                self._pods_seen.append(event)
            elif event.kind == "job":
                self._job(event)
            else:
                self._node(event)

    def _seen(self, uid: str) -> Job | None:
        """A job that the log names, as soon as the own watch has shown it; None if it doesn't."""
        until_s = time.monotonic() + _LAG_S
        while uid not in self.jobs and time.monotonic() < until_s:
            time.sleep(0.05)
            self._take()
        return self.jobs.get(uid)

    def finish(self, effective: Container[int]) -> None:
        """Judge everything that is left. `effective` are the offsets of the `Preempted` that took effect."""
        self.step()
        for deletion in self._deletions:
            self._reasoned(deletion)
        for job in self.jobs.values():
            if job.restarts and not job.failures:
                self._fault(f"{job.name} counts {job.restarts} restarts, and its leader never failed", job.uid)
        for uid, room in self.rooms.items():
            if room.offset in effective:
                self._fault(f"the room of offset {room.offset} was neither used nor given back", uid)
        for offset in sorted(self._void):
            if offset in effective:
                self._fault(f"what was decided at offset {offset} took effect, and another decision ignored it")
        for uid, name, offsets in self._relied_on:
            if not any(offset in effective for offset in offsets):
                self._fault(f"pod {name} was deleted for decisions that took no effect, at the offsets {offsets}", uid)
        for squeeze in self._squeezes:
            if sum(gpus for offset, gpus in squeeze.kept.items() if offset in effective) > squeeze.free:
                self._fault(squeeze.text, *squeeze.uids)
        self.faults += self._record.gaps

    def live(self) -> list[str]:
        """The names of the jobs that haven't ended."""
        return [job.name for job in self.jobs.values() if job.live]

    def _fault(self, text: str, *uids: str) -> None:
        self.faults.append("\n".join([text, *(line for uid in uids for line in self._story(uid))]))

    def _story(self, uid: str) -> Iterator[str]:
        job = self.jobs.get(uid)
        yield from (f"    {job.name}: {line}" for line in job.story[-40:]) if job is not None else ()

    def _tell(self, uid: str, line: str) -> None:
        if uid in self.jobs:
            self.jobs[uid].story.append(f"{time.time():.3f} {line}")

    # --- the cluster ---------------------------------------------------------------------------------------

    def _node(self, event: Event) -> None:
        self._nodes[event.name] = int(event.object["status"].get("allocatable", {}).get("nvidia.com/gpu", 0))

    def _job(self, event: Event) -> None:
        uid = event.object["metadata"]["uid"]
        job = self.jobs.setdefault(uid, Job.of(event.object))
        if event.type == "DELETED":
            job.gone_at = event.version
            self._tell(uid, f"gone at {event.version}")
            return
        if job.see(event.object, event.version):
            self._tell(uid, f"{job.stage}, attempt {job.attempt} at {event.version}")

    def _pod(self, event: Event) -> None:
        uid = event.object["metadata"]["uid"]
        if event.type == "DELETED":
            pod = self.pods.pop(uid, None)
            if pod is not None and not pod.deleted_at:
                self._deleted(pod, event, at_once=pod.holds)
            return
        pod = self.pods.get(uid)
        if pod is None:
            pod = self.pods[uid] = Pod.of(event.object)
            self.counts["pods"] += 1
            self._tell(pod.job_uid, f"pod {pod.name} comes to {pod.node} at {event.version}")
            self._comes(pod, event)
        status = event.object.get("status") or {}
        pod.phase = status.get("phase", "")
        if str(status.get("reason", "")).startswith("OutOf"):
            self._fault(f"the kubelet refuses pod {pod.name} at {event.version}: {status.get('message')}", pod.job_uid)
        if not pod.set and pod.job_uid in self.jobs:
            self.jobs[pod.job_uid].see_leader(status, pod.attempt, event.version)
        if "deletionTimestamp" in event.object["metadata"] and not pod.deleted_at:
            self._deleted(pod, event, at_once=False)
        self._fits(pod.node, event)

    def _fits(self, node: str, event: Event) -> None:
        """Check that the pods of a node hold no more GPUs than it has."""
        self.counts["sums_of_nodes"] += 1
        held = sum(pod.gpus for pod in self.pods.values() if pod.node == node and pod.holds)
        if held > self._nodes[node]:
            here = {pod.name: pod.gpus for pod in self.pods.values() if pod.node == node and pod.holds}
            self._fault(f"pods hold {held} of {self._nodes[node]} GPUs of {node} at {event.version}: {here}")

    def _comes(self, pod: Pod, event: Event) -> None:
        """Check that a new pod takes nothing of the room that others wait for on its node."""
        kept = {
            uid: room
            for uid, room in self.rooms.items()
            if room.gpus[pod.node] and uid != pod.job_uid and room.time_ms <= pod.created_ms
        }
        if not kept or self._named(pod):
            return
        self.counts["pods_beside_kept_room"] += 1
        leaving = frozenset().union(*(room.leaving for room in kept.values()))
        stay = [
            of
            for of in self.pods.values()
            if of.node == pod.node and of.holds and not of.deleted_at and of.uid not in leaving
            and of.job_uid not in kept and not self._named(of)
        ]  # fmt: skip
        free = self._nodes[pod.node] - sum(of.gpus for of in stay)
        if sum(room.gpus[pod.node] for room in kept.values()) > free:
            there = {of.name: of.gpus for of in stay}
            text = f"pod {pod.name} at {event.version} comes to room on {pod.node} that is kept: {there} and {kept}"
            by_offset = {room.offset: room.gpus[pod.node] for room in kept.values()}
            self._squeezes.append(_Squeeze(text, free, by_offset, (pod.job_uid, *kept)))

    # --- deletions -----------------------------------------------------------------------------------------

    def _deleted(self, pod: Pod, event: Event, *, at_once: bool) -> None:
        """Note that the deletion of a pod was asked for; `at_once`: it ran and is gone already."""
        metadata = event.object["metadata"]
        pod.deleted_at = event.version
        arrived_ms = round((event.at - time.monotonic() + time.time()) * 1000)
        grace_s = metadata.get("deletionGracePeriodSeconds", 0)
        ends = metadata.get("deletionTimestamp")
        asked_ms = min(arrived_ms, time_ms(ends) - grace_s * 1000 + _SECOND_MS) if ends else arrived_ms
        self._tell(pod.job_uid, f"pod {pod.name} is deleted at {event.version}, with {grace_s} s")
        at_once = at_once or (pod.holds and grace_s != pod.grace_s)
        self._deletions.append(_Deletion(pod, event.version, asked_ms, at_once, time.monotonic() + _LAG_S))

    def _reasoned(self, deletion: _Deletion) -> None:
        """Check that there was a reason to delete a pod before that was asked for."""
        pod, version = deletion.pod, deletion.version
        self.counts["deletions"] += 1
        job = self.jobs.get(pod.job_uid)
        if job is None:
            self._fault(f"pod {pod.name} of an unknown job is deleted")
        elif 0 < job.ended_at < version:
            self.counts["deleted_of_ended_jobs"] += 1
        elif 0 < job.gone_at < version:
            self.counts["deleted_of_deleted_jobs"] += 1
        elif 0 < job.failed_at.get(pod.attempt, 0) <= version:
            self.counts["deleted_after_failures"] += 1
        elif namings := self._namings(pod, deletion.asked_ms):
            for naming in namings:
                naming.used = True
            self._relied_on.append((job.uid, pod.name, [naming.offset for naming in namings]))
            self.counts[f"deleted_for_{namings[-1].kind.lower()}"] += 1
            if deletion.at_once:
                self._fault(f"pod {pod.name} gives room without its grace period of {pod.grace_s} s", pod.job_uid)
        else:
            named = self._names.get(self._slot(pod))
            self._fault(f"pod {pod.name} is deleted at {version} for no reason; its slot: {named}", pod.job_uid)

    def _slot(self, pod: Pod) -> Slot:
        job = self.jobs[pod.job_uid]
        return (job.uid, pod.attempt, job.sets.index(pod.set) + 1 if pod.set else 0, pod.index)

    def _named(self, pod: Pod) -> bool:
        """Whether an unused naming is about a pod."""
        return pod.job_uid in self.jobs and bool(self._namings(pod, round(time.time() * 1000)))

    def _namings(self, pod: Pod, asked_ms: int) -> list[Naming]:
        """The unused namings of a pod before its deletion was asked for. Without any, nobody may delete it."""
        return [
            of
            for of in self._names.get(self._slot(pod), ())
            if not of.used and of.node == pod.node and of.time_ms <= asked_ms
            and pod.created_ms <= of.time_ms + _COMES_MS
        ]  # fmt: skip

    # --- the log -------------------------------------------------------------------------------------------

    def _logged(self, event: LogEvent) -> None:
        self.counts["events"] += 1
        if event.kind == "CycleTaken":
            self.counts["cycles"] += 1
            self._superseded = event.fields[0] < self._last_cycle
            self._last_cycle = self._last_cycle if self._superseded else event.offset
        elif event.kind == "Preempted" and not self._superseded:
            self._preempted(event)
        elif event.kind == "Placed" and not self._superseded:
            self._ignored(event.fields[0], event.fields[1])
        elif event.kind == "StageDecided":
            self._decided(event)
        elif event.kind == "ObjectGone" and self.rooms.pop(event.fields[4], None) is not None:
            self.counts["rooms_of_deleted_jobs"] += 1
        elif event.kind == "Reserved" and event.fields[3]:
            self.counts["reservations"] += 1

    def _decided(self, event: LogEvent) -> None:
        """A decision on a stage: the first one that knows of a room ends the wait for it."""
        uid, based_on, attempt, stage, reason = event.fields[:5]
        self._tell(uid, f"offset {event.offset}: {stage} for {reason}, attempt {attempt}, based on {based_on}")
        if stage == "Rescheduling" and reason not in ("LeaderFailed", "RoomNotFreed"):
            self._fault(f"a job loses its nodes at offset {event.offset} for {reason}", uid)
        room = self.rooms.get(uid)
        if room is None or based_on < room.offset:
            return
        del self.rooms[uid]
        outcome = stage if reason == "Scheduled" else reason
        self.counts[f"rooms_{outcome.lower()}"] += 1
        self.longest_room_ms = max(self.longest_room_ms, event.time_ms - room.time_ms)
        known = ("Starting", "RoomNotFreed", "Deleted", "DeadlineExceeded")
        if outcome not in known:
            self._fault(f"the room of offset {room.offset} ended with {stage} for {reason}", uid)

    def _ignored(self, uid: str, based_on: int) -> None:
        """A cycle gives a job nodes that knows nothing of its room: then it has none."""
        if uid in self.rooms and based_on < self.rooms[uid].offset:
            self._void.add(self.rooms.pop(uid).offset)
            self.counts["rooms_void"] += 1

    def _preempted(self, event: LogEvent) -> None:
        (_, uid, based_on, attempt, _, pods), victims, _, leaving, until_ms = event.fields
        self._ignored(uid, based_on)
        if uid in self.rooms:
            self._fault(f"offset {event.offset}: a job gets room that has some already: {self.rooms[uid]}", uid)
        gpus: Counter[str] = Counter()
        self.rooms[uid] = Room(event.offset, event.time_ms, until_ms, attempt, gpus, frozenset(leaving))
        job = self._seen(uid)
        of_group = job.gpus if job is not None else {}
        for node, group, runs in pods:
            gpus[node] += of_group.get(group, 0) * sum(last - first + 1 for first, last in runs)
        self.counts["preemptions" if victims else "rooms_of_leaving_pods"] += 1
        self._tell(uid, f"offset {event.offset}: gets {dict(gpus)} from {victims}, attempt {attempt}")
        for victim in victims:
            self._victim(event, uid, victim)

    def _victim(self, event: LogEvent, uid: str, victim: list[Any]) -> None:
        of_uid, _, attempt, kind, pods = victim[:5]
        self.counts[f"victims_by_{kind.lower()}"] += 1
        self.preempted_of[of_uid] += kind != "Surplus"
        self._tell(of_uid, f"offset {event.offset}: gives {kind} {pods} of attempt {attempt} to {uid}")
        for node, group, runs in pods:
            for first, last in runs:
                for index in range(first, last + 1):
                    slot = (of_uid, attempt, group, index)
                    self._names[slot].append(Naming(event.offset, event.time_ms, node, kind))
        self._may(event, self._seen(uid), self._seen(of_uid), kind)

    def _may(self, event: LogEvent, job: Job | None, of: Job | None, kind: str) -> None:
        """Check the order of who gives room to whom."""
        if job is None or of is None:
            self._fault(f"offset {event.offset}: a job that nobody has seen gives or gets room")
            return
        why = "" if of.preemptible else "it isn't preemptible"
        if kind == "Reclaim" and of.queue == job.queue:
            why = "it is of the same queue"
        if kind == "Priority" and of.queue != job.queue:
            why = "it is of another queue"
        if of.queue == job.queue and of.priority >= job.priority:
            why = f"its priority is {of.priority}, that of the other {job.priority}"
        if why:
            self._fault(f"offset {event.offset}: {of.name} gives room to {job.name}, though {why}", job.uid, of.uid)
