"""What would have come of it: the log's future met by other decisions, as a simulation from event to event.

The state at a point goes on with what the log observed after it: TYJobs that come, change and go, nodes, strangers'
pods. A cycle is taken at every moment at which something changed that it may use. A job that gets its quorum holds its
nodes for as long as the same attempt of it did in the log, from the moment at which its quorum had nodes until its last
pod held nothing any more, and ends as it ended there, or is scheduled again as it was there. So:

- The pods of an attempt hold their nodes together, to the end of the last of them. In the log some may go earlier.
- Cycles come at once. In the log they come some milliseconds later, and at most so many at a time.
- An attempt that ended for its node's sake lasts as long on another node. Single workers are not replaced.
- More or fewer workers make a job neither faster nor slower.

Everything is folded and decided by the code that does so in production, so the rest is as it would be.
"""

import heapq
from collections.abc import Callable, Mapping, Sequence

import msgspec

from arranger.events import kinds as k
from arranger.lifecycle.config import LifecycleConfig
from arranger.lifecycle.stages import next_decision
from arranger.model.config import CycleConfig
from arranger.model.job import ScheduleState, Stage
from arranger.model.stages import StageReason
from arranger.projections.jobs import JobRecord
from arranger.projections.state import Changes, State
from arranger.replay.reading.describe import label
from arranger.replay.reading.recording import AttemptInterval, AttemptKey
from arranger.replay.what_if.hypothesis import job_alone_gone, pods_gone, retold, say
from arranger.replay.what_if.one_cycle import Variation
from arranger.replay.what_if.quota_account import as_counted
from arranger.replay.what_if.utilisation import Meter, Utilisation
from arranger.scheduling import BUILT_IN, Policies, take_cycle

#: Decisions of one moment that follow from each other: placed, started, scheduled again …
_ROUNDS = 8
#: Reasons that change are no news in a simulation.
_NEVER_MS = 1 << 50


class Future(msgspec.Struct, frozen=True):
    """What a log's future holds for a continuation: see `Recording`. Attempts that it shows no end of last
    `lasting_ms`, None for until the end of the horizon."""

    observations: Sequence[tuple[int, k.Event]]
    intervals: Mapping[AttemptKey, AttemptInterval]
    lasting_ms: int | None = None


class Continuation:
    """One variant. The state is at the point already, with what is otherwise in it, and is changed.

    `until_ms` is the horizon; None: until nothing happens any more.
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
    ) -> None:
        self.state = state
        self._future = future
        self._config = msgspec.structs.replace(config, reasons_refresh_ms=_NEVER_MS, reasons_a_second=0)
        self._policies = policies
        self._meter = meter
        self._now_ms = begin_ms
        self._until_ms = until_ms
        varied = variation or Variation()
        self._overrides = varied.overrides
        self._without_nodes = frozenset(varied.without_nodes)
        self._without_jobs = frozenset(
            (*varied.without_jobs, *(e.uid for e in varied.added if isinstance(e, k.JobSeen)))
        )
        #: When attempts end, and when a job may be given up: (time, number, job UID, attempt or -1).
        self._due: list[tuple[int, int, str, int]] = []
        self._numbers = 0
        self._ran = dict.fromkeys(uid for uid, _ in future.intervals)
        self._begun: dict[AttemptKey, None] = {}
        #: Jobs that were deleted here: what the log says of them later is about nothing.
        self._gone: dict[str, None] = {}

    def run(self, moved: Callable[[int], object] | None = None, *, cycle_first: bool = False) -> Utilisation:
        """Go on to the end; `moved` is told how many observations were met since it was last told.

        `cycle_first`: a cycle was taken on this very state, whatever else is told of the same moment.
        """
        self._meter.begin(self.state)
        for uid in list(self.state.jobs):
            self._meter.look(self.state, uid, self._now_ms)
            self._begin_attempt(uid)
            self._due_to_be_given_up(uid)
            self._due_after_back_off(uid)
        if cycle_first:
            self._settle(dict.fromkeys(self.state.jobs), schedulable=True)
        else:
            self._at(self._now_ms, "", -1)  # a cycle once all of this moment is told
        observations, at, told = self._future.observations, 0, 0
        while True:
            next_ms = self._next_ms(observations[at][0] if at < len(observations) else None)
            if next_ms is None or (self._until_ms is not None and next_ms > self._until_ms):
                break
            self._now_ms = max(self._now_ms, next_ms)
            first = at
            while at < len(observations) and observations[at][0] <= self._now_ms:
                at += 1
            self._moment([event for _, event in observations[first:at]])
            if moved is not None and at - told >= 1000:
                moved(at - told)
                told = at
        return self._meter.utilisation(self.state, self._until_ms if self._until_ms is not None else self._now_ms)

    def _next_ms(self, observed_ms: int | None) -> int | None:
        due_ms = self._due[0][0] if self._due else None
        return min((moment for moment in (observed_ms, due_ms) if moment is not None), default=None)

    def _moment(self, observed: Sequence[k.Event]) -> None:
        """Everything that happens at one time, and what is decided on it."""
        changes = say(self.state, self._now_ms, [event for one in observed for event in self._as_here(one)])
        touched, schedulable = dict(changes.jobs), changes.schedulable
        while self._due and self._due[0][0] <= self._now_ms:
            _, _, uid, attempt = heapq.heappop(self._due)
            changes = self._over(uid, attempt)
            touched.update(changes.jobs)
            touched[uid] = None
            schedulable |= changes.schedulable or attempt < 0
        self._settle(touched, schedulable=schedulable)

    def _as_here(self, event: k.Event) -> list[k.Event]:
        """What an observation of the log is in this variant: itself under the present term, or nothing."""
        if isinstance(event, (k.NodeSeen, k.NodeGone)) and event.name in self._without_nodes:
            return []
        if isinstance(event, k.PodSeen) and event.node in self._without_nodes:
            return []
        if isinstance(event, (k.JobSeen, k.JobGone)):
            return self._job_as_here(event)
        if isinstance(event, k.QuotaSeen):
            return self._quota_as_here(event)
        if isinstance(event, k.WatchRefused):
            return [msgspec.structs.replace(event, term=self.state.terms.get(event.kind, 0))]
        return [retold(event, self.state)]

    def _job_as_here(self, event: k.JobSeen | k.JobGone) -> list[k.Event]:
        """A job that ran in the log and was deleted while it did runs as long here, whenever that is."""
        uid = event.uid
        if uid in self._without_jobs or uid in self._gone:
            return []
        job = self.state.jobs.get(uid)
        runs_on = uid in self._ran and job is not None and not job.ended
        if isinstance(event, k.JobSeen):
            if event.deleting and (job is None or runs_on):
                return []
            spec = self._overrides.spec(event.spec)
            return [msgspec.structs.replace(retold(event, self.state), spec=spec, status=None)]
        if job is None or runs_on:
            return []
        self._gone[uid] = None
        pods = self.state.pods_of.get(uid, {}).values()
        return [*pods_gone(self.state, pods), retold(event, self.state)]

    def _quota_as_here(self, event: k.QuotaSeen) -> list[k.Event]:
        """A quota limits what it did in the log; what is used is counted here."""
        there = self.state.quotas.get(event.namespace, {}).get(event.name)
        if there is None:
            return [retold(event, self.state)]
        counted = as_counted(event, there)
        if (there.hard, there.scopes, there.used) == (counted.hard, counted.scopes, counted.used):
            return []
        return [retold(counted, self.state)]

    # --- jobs --------------------------------------------------------------------------------------------------

    def _over(self, uid: str, attempt: int) -> Changes:
        """An attempt has lasted as long as in the log. It may have ended otherwise before."""
        job = self.state.jobs.get(uid)
        if job is None or attempt < 0 or job.ended or job.attempt != attempt or not job.placements:
            return Changes()
        interval = self._future.intervals.get((uid, attempt))
        pods = pods_gone(self.state, self.state.pods_of.get(uid, {}).values())
        stage = interval.stage if interval is not None else str(Stage.SUCCEEDED)
        if interval is not None and interval.again:
            stage = str(Stage.RESCHEDULING)
        if stage:
            back_off_ms = interval.back_off_ms if interval is not None else 0
            decided = k.StageDecided(
                uid, job.version, attempt, Stage(stage), StageReason.AS_RECORDED, back_off_ms=back_off_ms
            )
            changes = say(self.state, self._now_ms, [decided, *pods])
            self._due_after_back_off(uid)
        else:
            changes = say(self.state, self._now_ms, [*pods, job_alone_gone(job, self.state)])
            self._gone[uid] = None
        if stage != Stage.RESCHEDULING:
            self._meter.ended(uid, self._now_ms)
        return changes

    def _begin_attempt(self, uid: str) -> None:
        """A quorum that has its nodes: note when it gives them back."""
        job = self.state.jobs.get(uid)
        if job is None or job.ended or not job.quorum_placed() or (uid, job.attempt) in self._begun:
            return
        self._begun[uid, job.attempt] = None
        interval = self._future.intervals.get((uid, job.attempt))
        lasting_ms = self._future.lasting_ms
        if interval is not None and interval.released_ms:
            lasting_ms = interval.released_ms - interval.placed_ms
        if lasting_ms is None:
            self._meter.endless += 1
            self._meter.endless_jobs[label(job)] = None
        else:
            self._at(self._now_ms + lasting_ms, uid, job.attempt)

    def _at(self, moment_ms: int, uid: str, attempt: int) -> None:
        self._numbers += 1
        heapq.heappush(self._due, (moment_ms, self._numbers, uid, attempt))

    # --- decisions ---------------------------------------------------------------------------------------------

    def _settle(self, touched: dict[str, None], *, schedulable: bool) -> None:
        """Controllers and cycles, until neither has anything more to decide at this moment."""
        for _ in range(_ROUNDS):
            schedulable |= self._control(touched)
            for uid in touched:
                self._begin_attempt(uid)
                self._meter.look(self.state, uid, self._now_ms)
            if not schedulable:
                break
            events = take_cycle(self.state, self._config, self._now_ms, policies=self._policies)
            changes = say(self.state, self._now_ms, events)
            touched, schedulable = changes.jobs, False
            self._note_infeasible(events)
            if not events:
                break
        self._meter.sample(self.state, self._now_ms)

    def _control(self, touched: Mapping[str, None]) -> bool:
        """What controllers decide on jobs that hold no running pods: start, end, suspend, resume, give up."""
        schedulable = False
        for uid in sorted(touched):
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
                schedulable |= say(self.state, self._now_ms, [decided, *gone]).schedulable
                self._meter.look(self.state, uid, self._now_ms)
        return schedulable

    def _due_to_be_given_up(self, uid: str) -> None:
        """A job that a cycle before the point found infeasible: note when another would give it up."""
        job = self.state.jobs[uid]
        if not job.ended and job.waits is not None and job.waits.shortage.infeasible and job.times.infeasible_ms:
            self._at(max(self._now_ms, job.times.infeasible_ms + self._config.infeasible_grace_ms), uid, -1)

    def _due_after_back_off(self, uid: str) -> None:
        """A job that backs off: a cycle may place it once that is over."""
        not_before_ms = self.state.jobs[uid].not_before_ms
        if not_before_ms > self._now_ms:
            self._at(not_before_ms, "", -1)

    def _note_infeasible(self, events: Sequence[k.Event]) -> None:
        for event in events:
            if (
                isinstance(event, k.Waits)
                and event.shortage.infeasible
                and event.schedule_state != ScheduleState.FAILED
            ):
                self._at(self._now_ms + self._config.infeasible_grace_ms, event.job_uid, -1)


def _controlled(job: JobRecord) -> bool:
    """Whether a controller's decision on the job depends on nothing but the job: its pods aren't simulated."""
    if job.ended:
        return False
    if job.stage in (Stage.PENDING, Stage.RESCHEDULING) or job.seen.invalid:
        return True
    return job.spec is not None and (job.spec.suspend or job.spec.terminating)
