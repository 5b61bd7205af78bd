"""Simulate the consequences of other decisions, event by event, with the recorded future of a log.

The state at a point continues with the observations that follow in the log: TYJobs that are created, changed and
deleted, nodes, and foreign pods. A cycle runs at every time at which one of its inputs changed, and whenever passing
time alone may give nodes to jobs: others are no longer kept from giving room, say. A job whose quorum is placed uses
its nodes for as long as the same attempt did in the log: from the placement of the quorum until no pod used a node any
more. It then ends as in the log, or is scheduled again as in the log. So the simulation is approximate:

- All pods of an attempt use their nodes until the last one ends. In the log, some may end earlier.
- Cycles run at once. In the log, they run some milliseconds later, and their number at a time is limited.
- An attempt that ended because of its node runs as long on another node. Single workers are not replaced.
- More or fewer workers make a job neither faster nor slower.
- Pods that give room to another job leave at once. An attempt that was preempted in the log, and isn't here, runs as
  long as the first later attempt that wasn't; one that is preempted here begins again, and runs as long as it would.
- An attempt after the last one in the log has no recorded end, unless the job was preempted here: then it runs as the
  last one did, once.
- An attempt without a recorded end that is assumed to end then succeeds. How long it ran is no evidence for later jobs.
  If its deadline comes before, or is what ends it, it fails at its deadline.

The code of production folds all events and makes all decisions, so everything else is exact.
"""

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from arranger.events import kinds as k
from arranger.lifecycle.config import LifecycleConfig
from arranger.lifecycle.stages import next_decision
from arranger.model.config import CycleConfig
from arranger.model.job import ENDED, ScheduleState, Stage
from arranger.model.stages import StageReason
from arranger.projections.derived.awaited_room import refused_by_dry_run
from arranger.projections.derived.deadlines import deadline_left_ms
from arranger.projections.derived.expected_ends import expected_runtime_ms
from arranger.projections.folding.giving_up import gives_up_ms
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import Changes, State
from arranger.replay.reading.describe import label
from arranger.replay.reading.recording import AttemptInterval, AttemptKey
from arranger.replay.what_if.hypothesis import answers, job_alone_gone, pods_gone, retold, say, with_answers
from arranger.replay.what_if.one_cycle import Variation
from arranger.replay.what_if.quota_account import as_counted
from arranger.replay.what_if.utilisation import Meter, Utilisation
from arranger.scheduling import BUILT_IN, Cycles, Policies, TooLarge

#: The maximum number of successive decisions at one time: placed, started, scheduled again …
_ROUNDS = 8
#: A simulation doesn't record changed reasons.
_NEVER_MS = 1 << 50
#: In place of the number of an attempt: a reservation is to be revised, other decisions may change with time.
_REVISION, _CYCLE = -2, -1
#: Without a horizon, a run goes on for at least so long while nothing but reservations is due, and nothing comes of it.
_IDLE_MS = 86_400_000
#: It ends in any case after so many successive times without that.
_MOST_IDLE = 1_000


class Lasting(NamedTuple):
    """For how many milliseconds an attempt runs whose end isn't recorded, None for ever, and whether its deadline ends
    it then."""

    ms: int | None
    overdue: bool = False


#: (State, job, time) → how the present attempt of the job runs from that time on.
Lasts = Callable[[State, JobRecord, int], Lasting]


class Future(msgspec.Struct, frozen=True):
    """The recorded future for a continuation, see `Recording`. Attempts without a recorded end run for `lasting_ms`;
    None means until the end of the horizon, or until their deadline. Without a recorded future, `lasts` may say how
    each attempt runs."""

    observations: Sequence[tuple[int, k.Event]]
    intervals: Mapping[AttemptKey, AttemptInterval]
    lasting_ms: int | None = None
    lasts: Lasts | None = None


class Continuation:
    """Continues one variant. `state` is that at the point with the variation applied; the continuation changes it.

    `until_ms` is the horizon; None means until nothing more happens: no further event is due, or nothing but revisions
    of reservations, of which nothing came for a day, and which are further away than any waiting job is expected to
    run. (A job that never ends outlives every expectation, so the room that it holds is expected later and later.) With
    `too_large`, the cycles are quicker, and don't find all reasons of waiting jobs.
    """

    def __init__(
        self,
        state: State,
        future: Future,
        config: CycleConfig,
        meter: Meter,
        *,
        begin_ms: int,
        until_ms: int | None,
        variation: Variation | None = None,
        policies: Policies = BUILT_IN,
        too_large: TooLarge | None = None,
    ) -> None:
        self.state = state
        state.hear_all()
        self._future = future
        told = (event for _, event in future.observations if isinstance(event, k.PodsTried))
        #: Whether the API server refuses the pods of some job. Of all other jobs, it is supposed to take them.
        self._refuses = config.dry_run and (
            any(refused_by_dry_run(job) for job in state.jobs.values()) or any(of.slot is not None for of in told)
        )
        config = msgspec.structs.replace(config, dry_run=self._refuses)
        self._config = msgspec.structs.replace(config, reasons_refresh_ms=_NEVER_MS, reasons_a_second=0)
        self._cycles = Cycles(policies, too_large)
        self._too_large = too_large
        self._meter = meter
        self._now_ms = begin_ms
        self._until_ms = until_ms
        varied = variation or Variation()
        self._overrides = varied.overrides
        self._without_nodes = frozenset(varied.without_nodes)
        #: Queues and namespaces that are removed or changed: later observations of them are ignored.
        self._other_queues = {*varied.without_queues, *(e.name for e in varied.added if isinstance(e, k.QueueSeen))}
        self._other_namespaces = {e.name for e in varied.added if isinstance(e, k.NamespaceSeen)}
        self._without_jobs = frozenset(
            (*varied.without_jobs, *(e.uid for e in varied.added if isinstance(e, k.JobSeen)))
        )
        #: The jobs on which controllers haven't decided yet: what was due at the point wasn't decided there.
        self._unseen = dict.fromkeys(state.jobs)
        #: When something last happened: all but that jobs wait and reservations move.
        self._moved_ms = begin_ms
        #: At how many times cycles ran since then.
        self._idle_cycles = 0
        #: Due times: of an attempt's end, of a job to be given up, and of cycles: (time, number, job UID or "", attempt
        #: or `_CYCLE` or `_REVISION`).
        self._due: list[tuple[int, int, str, int]] = []
        self._numbers = 0
        #: The last of these times at which jobs may get nodes although nothing else changes.
        self._nodes_ms = 0.0
        self._ran = dict.fromkeys(uid for uid, _ in future.intervals)
        self._begun: dict[AttemptKey, None] = {}
        #: Attempts that are expected to reach their deadline.
        self._overdue: dict[AttemptKey, None] = {}
        self._whole = _not_preempted(future.intervals)
        #: Jobs that ran for as long as in the last of these attempts: the log says nothing of those that follow.
        self._beyond: dict[str, None] = {}
        #: Jobs that gave room to others in this variant.
        self._preempted: dict[str, None] = {}
        #: Jobs that were deleted in this variant: later observations of them are ignored.
        self._gone: dict[str, None] = {}
        #: Pods of others whose end the log doesn't show, and which ended in this variant: likewise.
        self._ended_pods: dict[str, None] = {}

    def run(self, moved: Callable[[int], object] | None = None, *, cycle_first: bool = False) -> Utilisation:
        """Continue to the end. `moved` is called with the number of observations since its last call.

        `cycle_first`: a cycle ran on exactly this state, before further observations of the same time.
        """
        self.go_on(moved, cycle_first=cycle_first)
        return self._meter.utilisation(self.state, self._until_ms if self._until_ms is not None else self._moved_ms)

    def go_on(
        self,
        moved: Callable[[int], object] | None = None,
        *,
        cycle_first: bool = False,
        enough: Callable[[], bool] = lambda: False,
    ) -> None:
        """As `run`, but without figures, and no further than it is `enough`."""
        if self._refuses:
            self._say(answers(self.state))
        self._meter.begin(self.state)
        for uid in list(self.state.jobs):
            self._meter.look(self.state, uid, self._now_ms)
            self._begin_attempt(uid)
            self._due_to_be_given_up(uid)
            self._due_after_back_off(uid)
        for pod in self.state.assumed.values():
            self._at(max(pod.until_ms, self._now_ms), "", _CYCLE)
        if cycle_first:
            self._settle(dict.fromkeys(self.state.jobs), schedulable=True)
        else:
            self._at(self._now_ms, "", _CYCLE)  # a cycle after all observations of this time
        observations, at, told = self._future.observations, 0, 0
        while not enough():
            next_ms = self._next_ms(observations[at][0] if at < len(observations) else None)
            if next_ms is None or self._is_over(next_ms, last=at == len(observations)):
                break
            self._now_ms = max(self._now_ms, next_ms)
            first = at
            while at < len(observations) and observations[at][0] <= self._now_ms:
                at += 1
            self._moment([event for _, event in observations[first:at]])
            if moved is not None and at - told >= 1000:
                moved(at - told)
                told = at

    def _say(self, events: Sequence[k.Event]) -> Changes:
        changes = say(self.state, self._now_ms, events)
        if self._too_large is not None:
            self._cycles.note(changes.jobs)
        return changes

    def _next_ms(self, observed_ms: int | None) -> int | None:
        due_ms = self._due[0][0] if self._due else None
        return min((moment for moment in (observed_ms, due_ms) if moment is not None), default=None)

    def _is_over(self, next_ms: int, *, last: bool) -> bool:
        """Whether the run ends before `next_ms`, when something is due. `last`: the log shows nothing more. A
        plugin may hold jobs back again and again, so cycles alone end too."""
        if self._until_ms is not None and next_ms > self._until_ms:
            return True
        if last and self._idle_cycles >= _MOST_IDLE and all(attempt < 0 for *_, attempt in self._due):
            return True
        return last and self._until_ms is None and self._idles(next_ms)

    def _idles(self, next_ms: int) -> bool:
        """Whether nothing is due but revisions of reservations, the first at `next_ms`, and nothing will come of them.

        What is kept moves further away each time, so a job that is expected to end before may then go first. Until
        `next_ms`, the last cycle let all jobs go first that are expected to run no longer than until then.
        """
        if any(attempt != _REVISION for *_, attempt in self._due):
            return False
        if next_ms - self._moved_ms <= max(_IDLE_MS, self._config.min_runtime_ms):
            return False
        waits = [job for job in self.state.jobs.values() if job.active and not job.quorum_placed()]
        runs = (expected_runtime_ms(self.state, job, self._config, self._now_ms) or 0 for job in waits)
        return next_ms - self._now_ms >= max(runs, default=0)

    def _happened(self) -> None:
        """Note that something else happened than that jobs wait and reservations move."""
        self._moved_ms, self._idle_cycles = self._now_ms, 0

    def _moment(self, observed: Sequence[k.Event]) -> None:
        """Fold everything that happens at one time, and make the decisions on it."""
        self._idle_cycles += 1
        changes = self._say([event for one in observed for event in self._as_here(one)])
        if observed:
            self._happened()
        touched, schedulable = self._unseen | dict(changes.jobs), changes.schedulable
        self._unseen = {}
        while self._due and self._due[0][0] <= self._now_ms:
            _, _, uid, attempt = heapq.heappop(self._due)
            changes = self._over(uid, attempt)
            touched.update(changes.jobs)
            touched[uid] = None
            schedulable |= changes.schedulable or attempt < 0
            if changes.jobs:
                self._happened()
        self._settle(touched, schedulable=schedulable)

    def _as_here(self, event: k.Event) -> list[k.Event]:
        """The observation in this variant: itself under the present term, or nothing."""
        if k.seen_or_gone(event, k.NodeSeen) and event.name in self._without_nodes:
            return []
        if isinstance(event, k.PodSeen) and (event.node in self._without_nodes or event.uid in self._ended_pods):
            return []
        if k.seen_or_gone(event, k.QueueSeen) and event.name in self._other_queues:
            return []
        if k.seen_or_gone(event, k.NamespaceSeen) and event.name in self._other_namespaces:
            return []
        if k.seen_or_gone(event, k.JobSeen):
            return self._job_as_here(event)
        if isinstance(event, k.QuotaSeen):
            return self._quota_as_here(event)
        if isinstance(event, k.WatchRefused):
            return [msgspec.structs.replace(event, term=self.state.terms.get(event.kind, 0))]
        return [event] if isinstance(event, k.PodsTried) else [retold(event, self.state)]

    def _job_as_here(self, event: k.JobSeen | k.ObjectGone) -> list[k.Event]:
        """Ignore the deletion of a job that ran in the log: here it runs as long as it did there."""
        uid = event.uid
        if uid in self._without_jobs or uid in self._gone:
            return []
        job = self.state.jobs.get(uid)
        runs_on = uid in self._ran and job is not None and not job.ended
        if isinstance(event, k.JobSeen):
            if event.deleting and (job is None or runs_on):
                return []
            spec = self._overrides.spec(event.spec)
            seen = msgspec.structs.replace(retold(event, self.state), spec=spec, status=None)
            return [*with_answers(self.state, [seen])] if self._refuses else [seen]
        if job is None or runs_on:
            return []
        self._gone[uid] = None
        pods = self.state.pods_of.get(uid, {}).values()
        return [*pods_gone(self.state, pods), retold(event, self.state)]

    def _quota_as_here(self, event: k.QuotaSeen) -> list[k.Event]:
        """A quota limits what it did in the log, but its use is counted in this variant."""
        there = self.state.quotas.get(event.namespace, {}).get(event.name)
        if there is None:
            return [retold(event, self.state)]
        counted = as_counted(event, there)
        if (there.hard, there.scopes, there.used) == (counted.hard, counted.scopes, counted.used):
            return []
        return [retold(counted, self.state)]

    # --- jobs --------------------------------------------------------------------------------------------------

    def _over(self, uid: str, attempt: int) -> Changes:
        """End an attempt that has run as long as in the log, or as is assumed, unless it ended before."""
        job = self.state.jobs.get(uid)
        if job is None or attempt < 0 or job.ended or job.attempt != attempt or not job.placements:
            return Changes()
        if job.of_pods and job.bound:
            interval = self._length_of(uid, attempt) if self._future.lasts is None else None
            if interval is not None and interval.released_ms:
                return Changes()  # its observations say when it ends
            self._ended_pods.update(dict.fromkeys(job.bound.values()))
            return self._say(pods_gone(self.state, [self.state.pods[pod] for pod in job.bound.values()]))
        decided = self._end_of(job)
        pods = pods_gone(self.state, self.state.pods_of.get(uid, {}).values())
        if decided is not None:
            changes = self._say([decided, *pods])
            self._due_after_back_off(uid)
        else:
            changes = self._say([*pods, *job_alone_gone(job, self.state)])
            self._gone[uid] = None
        if decided is None or decided.stage != Stage.RESCHEDULING:
            self._meter.ended(uid, self._now_ms)
        return changes

    def _begin_attempt(self, uid: str) -> None:
        """If a job's quorum is placed, schedule the end of its attempt."""
        job = self.state.jobs.get(uid)
        if job is None or job.ended or not job.quorum_placed() or (uid, job.attempt) in self._begun:
            return
        if job.slots.room is not None:
            return  # others are still to leave its nodes
        self._begun[uid, job.attempt] = None
        lasting_ms, overdue = self._lasting(job)
        if overdue:
            self._overdue[uid, job.attempt] = None
        if lasting_ms is None:
            self._meter.endless += 1
            self._meter.endless_jobs[label(job)] = None
        else:
            self._at(self._now_ms + lasting_ms, uid, job.attempt)

    def _lasting(self, job: JobRecord) -> Lasting:
        """For how long the attempt of a job runs from now on, and whether its deadline ends it."""
        interval = self._length_of(job.uid, job.attempt)
        if self._future.lasts is not None:
            return self._future.lasts(self.state, job, self._now_ms)
        if interval is not None and interval.released_ms:
            return Lasting(interval.released_ms - interval.placed_ms)
        lasting_ms = self._future.lasting_ms
        left_ms = deadline_left_ms(job, self._now_ms) if job.spec is not None else None
        if left_ms is not None and (lasting_ms is None or left_ms < lasting_ms):
            return Lasting(left_ms, overdue=True)
        return Lasting(lasting_ms)

    def _end_of(self, job: JobRecord) -> k.StageDecided | None:
        """The end of the job's attempt; at its deadline, what its controller decides."""
        if (job.uid, job.attempt) in self._overdue:
            decided = next_decision(self.state, job, LifecycleConfig(), self._now_ms)
            if isinstance(decided, k.StageDecided) and decided.stage in ENDED:
                return decided
        return _recorded_end(job, self._repeated(job.uid, job.attempt))

    def _length_of(self, uid: str, attempt: int) -> AttemptInterval | None:
        """The attempt in the log from which the length and the end of this one follow: itself, unless it was preempted
        there or didn't exist there; then the next later one that ran to its end, else the last earlier one."""
        intervals, whole = self._future.intervals, self._whole.get(uid, [])
        if (uid, attempt) in intervals:
            later = next((number for number in whole if number >= attempt), None)
            return intervals[uid, later] if later is not None else None
        if uid not in self._preempted or not whole:
            return None
        return intervals[uid, whole[-1]] if uid not in self._beyond else None

    def _repeated(self, uid: str, attempt: int) -> AttemptInterval | None:
        """As `_length_of`, for an attempt that has run for so long."""
        interval = self._length_of(uid, attempt)
        if interval is not None and interval is self._future.intervals[uid, self._whole[uid][-1]]:
            self._beyond[uid] = None
        return interval

    def _leave(self, events: Sequence[k.Event]) -> bool:
        """Delete the pods that give room, and note from when the decisions of cycles may change by themselves. Returns
        whether some gave room: maybe more than was needed."""
        for event in events:
            if isinstance(event, k.Preempted):
                gone = [self.state.pods[uid] for uid in event.leaving if uid in self.state.pods]
                for victim in event.victims:
                    job = self.state.jobs[victim.job_uid]
                    pods = self.state.pods_of.get(job.uid, {})
                    bound = dict.fromkeys(job.bound.values())
                    gone += [pod for pod_uid, pod in sorted(pods.items()) if pod_uid not in bound]
                    self._preempted[job.uid] = None
                self._say(pods_gone(self.state, gone))
            elif isinstance(event, k.Reserved) and event.start_ms > self._now_ms:
                self._at(event.start_ms, "", _REVISION)
        return any(isinstance(event, k.Preempted) for event in events)

    def _at(self, moment_ms: int, uid: str, attempt: int) -> None:
        self._numbers += 1
        heapq.heappush(self._due, (moment_ms, self._numbers, uid, attempt))

    # --- decisions ---------------------------------------------------------------------------------------------

    def _settle(self, touched: dict[str, None], *, schedulable: bool) -> None:
        """Run controllers and cycles until neither has anything more to decide at this time."""
        for _ in range(_ROUNDS):
            schedulable |= self._control(touched)
            for uid in touched:
                self._begin_attempt(uid)
                self._meter.look(self.state, uid, self._now_ms)
            if not schedulable:
                break
            events = self._cycles.take(self.state, self._config, self._now_ms)
            reserved = frozenset(self.state.reservations)
            if not all(map(_changes_nothing, events)):
                self._happened()
            changes = self._say(events)
            # Once a job has used its reservation, the next cycle may make another one.
            touched, schedulable = changes.jobs, bool(reserved - self.state.reservations.keys())
            schedulable |= self._leave(events)
            self._note_infeasible(events)
            if not events:
                break
        self._meter.sample(self.state, self._now_ms)
        nodes_ms = self._cycles.nodes_ms
        if self._now_ms < nodes_ms < math.inf and nodes_ms != self._nodes_ms:
            self._nodes_ms = nodes_ms
            self._at(int(nodes_ms), "", _CYCLE)

    def _control(self, touched: dict[str, None]) -> bool:
        """Make the controllers' decisions that don't depend on pods: start, end, suspend, resume, give up. What these
        touch is touched, too."""
        schedulable = False
        due = sorted(touched)
        for uid in due:
            for _ in range(_ROUNDS):
                job = self.state.jobs.get(uid)
                if job is None or not _controlled(job):
                    break
                decided = next_decision(self.state, job, LifecycleConfig(), self._now_ms)
                if decided is None:
                    break
                pods = self.state.pods_of.get(uid, {}).values()
                starts = isinstance(decided, k.StageDecided) and decided.stage == Stage.STARTING
                gone = () if starts else pods_gone(self.state, pods)
                changes = self._say([decided, *gone])
                schedulable |= changes.schedulable
                touched.update(changes.jobs)
                due += [of for of in changes.jobs if of != uid]  # those that wait for it, say
                self._happened()
                self._meter.look(self.state, uid, self._now_ms)
        return schedulable

    def _due_to_be_given_up(self, uid: str) -> None:
        """If a job is infeasible, schedule the cycle that may give it up."""
        job = self.state.jobs[uid]
        due_ms = gives_up_ms(self.state, job, self._config)
        if not job.ended and job.waits is not None and job.waits.shortage.infeasible and due_ms is not None:
            self._at(max(self._now_ms, due_ms), uid, _CYCLE)

    def _due_after_back_off(self, uid: str) -> None:
        """If a job backs off, schedule a cycle for the end of the back-off."""
        not_before_ms = self.state.jobs[uid].not_before_ms
        if not_before_ms > self._now_ms:
            self._at(not_before_ms, "", _CYCLE)

    def _note_infeasible(self, events: Sequence[k.Event]) -> None:
        for event in events:
            if (
                isinstance(event, k.Waits)
                and event.shortage.infeasible
                and event.schedule_state != ScheduleState.FAILED
            ):
                self._due_to_be_given_up(event.job_uid)


def _recorded_end(job: JobRecord, interval: AttemptInterval | None) -> k.StageDecided | None:
    """The end of the job's attempt, as in the log. If the log has no end of it, it is assumed to succeed. None if the
    job is deleted then."""
    if interval is None or not interval.released_ms:
        return k.StageDecided(job.uid, job.version, job.attempt, Stage.SUCCEEDED, StageReason.ASSUMED)
    stage, reason = str(Stage.RESCHEDULING) if interval.again else interval.stage, StageReason.AS_RECORDED
    if not stage:
        return None
    return k.StageDecided(job.uid, job.version, job.attempt, Stage(stage), reason, back_off_ms=interval.back_off_ms)


def _not_preempted(intervals: Mapping[AttemptKey, AttemptInterval]) -> dict[str, list[int]]:
    """Job UID → its attempts in the log that weren't preempted, in their order."""
    found: dict[str, list[int]] = {}
    for uid, attempt in sorted(intervals):
        if not intervals[uid, attempt].preempted:
            found.setdefault(uid, []).append(attempt)
    return found


def _changes_nothing(event: k.Event) -> bool:
    """Whether a cycle's event gives nobody room, takes none and ends no job."""
    if isinstance(event, k.Waits):
        return event.schedule_state != ScheduleState.FAILED
    return isinstance(event, (k.CycleTaken, k.Reserved))


def _controlled(job: JobRecord) -> bool:
    """Whether a controller's decision on the job depends on the job alone. Pods aren't simulated."""
    if job.ended:
        return False
    if job.stage in (Stage.PENDING, Stage.RESCHEDULING) or job.seen.faults:
        return True
    return job.spec is not None and (job.spec.suspend or job.spec.terminating)
