"""Record what a log has after a point: the observations, and how long each attempt of each job used its nodes.

A what-if continues with them: other decisions meet the same arrivals, the same nodes, and jobs that run as long as they
did. Pods of jobs aren't kept, because they follow from decisions, and those may differ.
"""

from collections.abc import Iterator

import msgspec

from arranger.events import kinds as k
from arranger.events.log import Entry
from arranger.model.pod import PodShape
from arranger.model.stages import StageReason
from arranger.projections.jobs.records import JobRecord, holds
from arranger.projections.state import Changes, State
from arranger.projections.verdicts.preemption import leaves
from arranger.replay.reading.history import advance
from arranger.replay.reading.verdicts import again, void_reasons

#: A job's UID and the number of its attempt.
AttemptKey = tuple[str, int]


class AttemptInterval(msgspec.Struct):
    """One attempt, from the placement of its quorum until its pods used no node any more. Times in milliseconds.

    `released_ms` is 0 if the log doesn't show the end. `stage` is the stage in which the job ended; it is empty if the
    job was scheduled again (`again`) or was deleted while it ran.
    """

    placed_ms: int
    released_ms: int = 0
    stage: str = ""
    again: bool = False
    #: The attempt is over, but its pods still use their nodes.
    going: bool = False
    #: The back-off after its end, before the next attempt.
    back_off_ms: int = 0
    #: It ended because the job gave its room to another one.
    preempted: bool = False


class Recording:
    """Folds entries into the state at a point, which it changes, and keeps what happened after the point.

    `observations` are those that a what-if repeats, each with its time: nodes, foreign pods, TYJobs that were
    created, changed or deleted, and whether the API server took their pods in dry runs. `until_time_ms` is the time of
    the event at `until_offset`; 0 before that event.
    """

    def __init__(self, state: State, *, begin_ms: int, until_offset: int | None = None) -> None:
        self.observations: list[tuple[int, k.Event]] = []
        self.intervals: dict[AttemptKey, AttemptInterval] = {}
        self.until_time_ms = 0
        self._until_offset = until_offset
        self._state = state
        #: Job UID → attempts that had nodes.
        self._attempts: dict[str, list[int]] = {}
        #: UIDs of pods that fill no slot of a job any more (of ended jobs, of earlier attempts, or that gave room to
        #: others): their ends are repeated too.
        self._leftovers = dict.fromkeys(uid for uid, pod in state.pods.items() if _left_over(state, pod))
        for uid in state.jobs:
            self._look(uid)
        for interval in self.intervals.values():
            interval.placed_ms = begin_ms  # only the time after the point counts
        self._before = dict.fromkeys(self.intervals)

    def starts(self, until_ms: int) -> dict[AttemptKey, int]:
        """The times of quorum placements after the point, up to `until_ms`."""
        return {
            key: interval.placed_ms
            for key, interval in self.intervals.items()
            if key not in self._before and interval.placed_ms <= until_ms
        }

    def shapes(self, state: State) -> Iterator[tuple[PodShape, int]]:
        """The pods of all jobs in the state at the point and of all that were created later: (shape, number)."""
        specs = {job.uid: job.spec for job in state.jobs.values() if job.active}
        specs |= {event.uid: event.spec for _, event in self.observations if isinstance(event, k.JobSeen)}
        for spec in specs.values():
            for group in spec.groups if spec is not None else ():
                yield group.shape, group.count

    @property
    def end_ms(self) -> int:
        """The time of the last event."""
        return self._state.time_ms

    def feed(self, entry: Entry) -> None:
        """Fold one entry. Raises `DamagedEntry`."""
        time_ms = max(self._state.time_ms, entry.batch.time_ms)
        for event, void in zip(entry.batch.events, void_reasons(self._state, entry), strict=True):
            told = k.watch_of(event) is not None or type(event) is k.PodsTried
            if told and not void and self._repeated(event):
                self.observations.append((time_ms, event))
        changes = Changes()
        advance(self._state, entry, changes)
        for uid in changes.jobs:
            self._look(uid)
        if self._until_offset is not None and not self.until_time_ms and entry.last >= self._until_offset:
            self.until_time_ms = self._state.time_ms

    def _repeated(self, event: k.Event) -> bool:
        """Whether other decisions would meet this observation too, judged by the state before its entry."""
        state = self._state
        if isinstance(event, k.PodSeen):
            ours = event.owner is not None and event.uid not in self._leftovers
            return not ours and _moves(state.pods.get(event.uid), event)
        if k.is_gone(event, k.Watched.POD):
            pod = state.pods.get(event.uid)
            return pod is not None and (pod.owner is None or event.uid in self._leftovers)
        return not again(event, state)

    def _look(self, uid: str) -> None:
        """Update the attempts of a job."""
        job, now_ms = self._state.jobs.get(uid), self._state.time_ms
        for attempt in self._attempts.get(uid, ()):
            if self.intervals[uid, attempt].going:
                self._release(uid, attempt)
        if job is None:
            for attempt in self._open(uid):
                self._over(uid, attempt, stage="", again=False)
            return
        for attempt in [a for a in self._open(uid) if a != job.attempt]:
            interval = self.intervals[uid, attempt]
            interval.back_off_ms = max(job.not_before_ms - now_ms, 0)
            interval.preempted = job.decided is not None and job.decided.reason == StageReason.PREEMPTED
            self._over(uid, attempt, stage="", again=True)
        self._look_at_present(job, now_ms)

    def _look_at_present(self, job: JobRecord, now_ms: int) -> None:
        key = (job.uid, job.attempt)
        interval = self.intervals.get(key)
        if job.ended:
            if interval is not None and not interval.released_ms and not interval.going:
                self._over(job.uid, job.attempt, stage=str(job.stage), again=False)
        elif interval is None and job.quorum_placed():
            self.intervals[key] = AttemptInterval(now_ms)
            self._attempts.setdefault(job.uid, []).append(job.attempt)
        elif interval is not None and not interval.going and not job.quorum_placed() and not job.placements:
            del self.intervals[key]  # it lost its placements before its start
            self._attempts[job.uid].remove(job.attempt)

    def _open(self, uid: str) -> list[int]:
        attempts = self._attempts.get(uid, [])
        return [a for a in attempts if not self.intervals[uid, a].released_ms and not self.intervals[uid, a].going]

    def _over(self, uid: str, attempt: int, *, stage: str, again: bool) -> None:
        interval = self.intervals[uid, attempt]
        interval.stage, interval.again, interval.going = stage, again, True
        self._release(uid, attempt)

    def _release(self, uid: str, attempt: int) -> None:
        """End an interval once none of its pods uses a node."""
        pods = self._state.pods_of.get(uid, {}).values()
        if any(pod.owner is not None and pod.owner.attempt == attempt and holds(pod) for pod in pods):
            return
        interval = self.intervals[uid, attempt]
        interval.released_ms, interval.going = self._state.time_ms, False

    def finish(self) -> None:
        """End the intervals whose pods still use nodes at the end of the log."""
        for interval in self.intervals.values():
            if interval.going:
                interval.released_ms = self.end_ms


def _left_over(state: State, pod: k.PodSeen) -> bool:
    """Whether a pod's job has ended, was deleted, or is in a later attempt, or the pod is about to leave it."""
    if pod.owner is None:
        return False
    job = state.jobs.get(pod.owner.job_uid)
    return job is None or job.ended or pod.owner.attempt < job.attempt or leaves(state, pod)


def _moves(old: k.PodSeen | None, new: k.PodSeen) -> bool:
    """Whether an observation changes the resources that a pod uses, or the traits that other pods depend on."""
    if old is None:
        return True
    return (holds(old), old.node, old.requests, old.traits) != (holds(new), new.node, new.requests, new.traits)
