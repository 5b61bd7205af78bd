"""What jobs of the simulated world have no leader for, whose end is theirs, and what their sets start after; and the
rules of that, checked against the pods of the API server.
"""

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from arranger.events import kinds as k
from arranger.events.log import Entry
from arranger.kube.cluster import Object
from arranger.kube.translate import pod_seen
from arranger.model.job import LEADER_GROUP, JobSpec
from arranger.model.pod import Phase, PodOwner
from arranger.model.stages import StageReason
from arranger.projections.jobs.records import JobRecord, blameless
from arranger.projections.state import State
from tests.simulation.rogue import Rogue

if TYPE_CHECKING:
    from tests.simulation.world import World

#: A second writer lets a job fail whose success the log has just shown.
RIVAL = "two writers: the failure of a success"
#: What may happen to a job that has succeeded. That a deadline was before is checked elsewhere (`clocks.py`).
_MAY_FOLLOW = (StageReason.LEADER_SUCCEEDED, StageReason.WORKERS_SUCCEEDED, StageReason.TERMINATED,
               StageReason.DELETED, StageReason.DEADLINE_EXCEEDED)  # fmt: skip
#: An applier that is this late may still create what it has planned, in seconds.
_LATE_S = 60.0
#: A job's attempt and the name of a worker set in it; empty for the leader.
_Group = tuple[str, int, str]


class Endings:
    """Draws these fields, and remembers which pods were ever ready, and which have finished."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._chance = chance = random.Random(f"{world.seed} endings")
        self._comes = chance.random() < 0.5
        self._rivals = random.Random(f"{world.seed} rivals")
        #: Jobs (UIDs) that have one for sure.
        self.with_rival: dict[str, None] = {}
        self._rival_rate = 1.0 if world.faults.often(RIVAL) else 0.1
        self._were_ready: set[_Group] = set()
        #: (job UID, worker set, index) of workers that have finished in any attempt.
        self._finished: set[tuple[str, str, int]] = set()
        #: The pod of a slot → when the log first showed its success, in seconds of the loop.
        self._told_s: dict[PodOwner, float] = {}

    def draw(self, spec: dict[str, Any]) -> None:
        """Take the leader away, choose whose end is the job's, and what sets start after."""
        chance, sets = self._chance, spec["workerSets"]
        if not self._comes or not sets:
            return
        if chance.random() < 0.4:
            del spec["leader"]
            spec["minWorkersNum"] = max(spec["minWorkersNum"], 1)
            self._world.faults.hit("a job of equals")
        kinds = ["AllWorkers", "Sets", "", *(["Leader"] if "leader" in spec else [])]
        if kind := chance.choice(kinds):
            spec["successPolicy"] = {"type": kind}
        if kind == "Sets":
            spec["successPolicy"]["sets"] = [chance.choice(sets)["name"]]
        for each in sets if kind in ("AllWorkers", "Sets") or "leader" not in spec else ():
            if chance.random() < 0.7:
                notes = each["template"]["metadata"]["annotations"]
                notes.setdefault("sandbox.arranger.dev/run-seconds", f"{chance.uniform(1, 30):.1f}")
        before = ["LeaderAddress", "LeaderReady"] if "leader" in spec else []
        for each in chance.sample(sets, len(sets)):
            if before and chance.random() < 0.4:
                each["startAfter"] = chance.choice(before)
            before.append(each["name"])

    # --- the rules -----------------------------------------------------------------------------------------

    def see(self, pod: Object) -> None:
        """Remember what a pod of the API server shows."""
        seen = pod_seen(pod, 0)
        if (owner := seen.owner) is None:
            return
        finished = seen.phase == Phase.SUCCEEDED and not blameless(seen)
        if seen.ready or finished:
            self._were_ready.add((owner.job_uid, owner.attempt, "" if owner.leader else owner.group_name))
        if finished:
            self._finished.add((owner.job_uid, owner.group_name, owner.index))

    def note(self, event: k.Event) -> None:
        """The log shows an event."""
        if isinstance(event, k.PodSeen) and event.owner is not None and event.phase == Phase.SUCCEEDED:
            self._told_s.setdefault(event.owner, self._world.loop.time())
            drawn = self._world.faults.on and self._rivals.random() < self._rival_rate
            if drawn or event.owner.job_uid in self.with_rival:
                self._world.spawn(Rogue(self._world, self._rivals).too_late(event.owner.job_uid), "a rival")
        uid = event.uid if isinstance(event, k.JobSeen) else getattr(event, "job_uid", "")
        job = self._world.oracle.state.jobs.get(uid)
        for of in job.spec.groups if job is not None and job.spec is not None else ():
            if not of.count:  # nothing waits for a set without pods, and what has started goes on once it has some
                self._were_ready.add((uid, job.attempt, of.name))

    def problem_of_new(self, pod: Object) -> str:
        """Why a pod shouldn't have been created; empty if it may."""
        owner = pod_seen(pod, 0).owner
        job = self._world.oracle.state.jobs.get(owner.job_uid) if owner is not None else None
        if owner is None or job is None or job.spec is None or job.attempt != owner.attempt or job.ended:
            return ""  # an applier that is late doesn't know of the end yet; what it creates is deleted again
        if (slot := job.slot_of(owner)) in job.slots.finished:
            late = self._world.loop.time() - self._told_s.get(owner, 0.0) < _LATE_S
            return "" if late else f"its worker {slot} has finished"
        return self._too_early(owner, job, job.spec)

    def _too_early(self, owner: PodOwner, job: JobRecord, spec: JobSpec) -> str:
        of = next((of for of in spec.groups[1:] if not owner.leader and of.name == owner.group_name), None)
        if of is None or of.start_after is None:
            return ""
        self._world.faults.hit("a set starts after another group")
        after = spec.groups[of.start_after]
        left = after.count - sum(group == of.start_after for group, _ in job.slots.given_up)
        finished = any(group == of.start_after for group, _ in job.slots.finished)  # maybe in an earlier attempt
        name = "" if of.start_after == LEADER_GROUP else after.name
        if left and not finished and (owner.job_uid, owner.attempt, name) not in self._were_ready:
            return f"{of.name} starts after {name or 'the leader'}, which was never ready"
        return ""

    def has_succeeded(self, state: State, uid: str) -> bool:
        """Whether the log shows that the pods of an active job have succeeded whose end is the job's."""
        job = state.jobs.get(uid)
        if job is None or job.spec is None or job.ended:
            return False
        if job.spec.ends_with_leader:
            leader = state.pods.get(job.bound.get((0, 0), ""), job.leader.ended)
            return leader is not None and leader.phase == Phase.SUCCEEDED and not blameless(leader)
        workers = [(group, index) for group in job.spec.success for index in range(job.spec.groups[group].count)]
        return bool(workers) and all(slot in job.slots.finished for slot in workers)

    def successes(self, state: State, entry: Entry) -> list[str]:
        """The jobs (UIDs) that an entry decides on, and that have succeeded already."""
        decided = [event.job_uid for event in entry.batch.events if isinstance(event, k.StageDecided)]
        return [uid for uid in decided if self.has_succeeded(state, uid)]

    def lost_success(self, event: k.StageDecided, succeeded: Sequence[str]) -> str:
        """What is wrong with an accepted decision on one of these jobs; empty if nothing is."""
        if event.job_uid not in succeeded or event.reason in _MAY_FOLLOW:
            return ""
        return f"it had succeeded, and is {event.stage} ({event.reason})"

    def problem_of_end(self, event: k.StageDecided) -> str:
        """Why an accepted end isn't one; empty if it is."""
        job = self._world.oracle.state.jobs.get(event.job_uid)
        if event.reason != StageReason.WORKERS_SUCCEEDED or job is None or job.spec is None:
            return ""
        self._world.faults.hit("the end of workers ends a job")
        sets = [job.spec.groups[group] for group in job.spec.success]
        workers = {(job.uid, of.name, index) for of in sets for index in range(of.count)}
        missing = sorted(workers - self._finished)
        return f"{missing} haven't finished" if missing or not workers else ""
