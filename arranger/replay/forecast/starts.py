"""When each waiting job would start: the real cycle runs on over a copy of the state, while jobs end as `ends` says.

It runs on three times: jobs end as expected, as early and as late as is likely. The range of a job is from its earliest
start in the three to its latest. The expected start isn't always between those of the other two, because a job that
ends earlier may let another one in first, which then holds the room for longer (Graham, SIAM J. Appl. Math. 17(2),
1969).

If jobs end by a start of whose end nothing is known, the expected case runs on once more, and there they never do. A
start that comes later in it, or not at all, is a guess.

Nothing new comes: no job, no node, no pod of another owner, no edit and no failure. Pods that leave do so within their
grace period. Everything else is as in `what_if.continuation`.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from itertools import chain

import msgspec

from arranger.events import kinds as k
from arranger.events.facts import BeyondLimit, Objected
from arranger.model.config import CycleConfig
from arranger.model.job import Stage
from arranger.model.quota import LimitKind
from arranger.model.stages import StageReason
from arranger.projections.derived.awaited_room import refused_by_dry_run, refused_when_started
from arranger.projections.derived.departing import leave_by_ms
from arranger.projections.derived.dependencies import failed_dependency
from arranger.projections.derived.queue_membership import kept_out
from arranger.projections.jobs.records import JobRecord, has_started
from arranger.projections.state import State
from arranger.projections.verdicts.preemption import leaves
from arranger.replay.forecast.ends import EXACT_UP_TO, Ends, EndScenario
from arranger.replay.reading.describe import label
from arranger.replay.what_if.continuation import Continuation, Future
from arranger.replay.what_if.hypothesis import job_alone_gone, private_copy, say
from arranger.replay.what_if.utilisation import Meter
from arranger.scheduling import BUILT_IN, Policies, TooLarge, in_order

#: With more jobs than `EXACT_UP_TO`, reservations are revised after so many milliseconds at the earliest.
_REFRESH_MS = 1_800_000
#: No forecast looks further ahead than ten years: a job that never ends may be expected to end again and again, each
#: time twice as late.
_FARTHEST_MS = 10 * 365 * 86_400_000


class Unknown(StrEnum):
    """Why a start isn't known."""

    #: Jobs that may run for ever hold room.
    ENDLESS = "Endless"
    #: It has no room even when all other jobs have ended.
    NEVER = "Never"
    #: What is guaranteed to other queues keeps it, whatever ends.
    GUARANTEES = "Guarantees"
    #: A quota or a limit of its queue keeps it, whatever ends.
    LIMIT = "Limit"
    #: Something else than room keeps it, whatever ends: a job that it comes after, or a plugin.
    HELD = "Held"
    #: A job that must not fail first is expected to reach its deadline, so both fail.
    DEPENDENCY_OVERDUE = "DependencyOverdue"
    #: Such a job is expected to fail for another reason.
    DEPENDENCY_FAILS = "DependencyFails"
    #: It can't use its queue: that doesn't exist, say.
    QUEUE = "Queue"
    #: Its quorum would not fit even if nothing else ran.
    INFEASIBLE = "Infeasible"
    #: The API server refuses its pods, as a dry run or its last start showed.
    REFUSED = "Refused"
    #: It comes after the time up to which was looked.
    LATER = "Later"


class JobForecast(msgspec.Struct, frozen=True):
    """When a waiting job starts, in milliseconds since 1970; 0 for unknown. `queue_position` counts from 1 in
    the order of the queue. `why` says why a time is unknown, None if all are known. `promised_ms` is what the job's
    reservation says. `guessed`: the expected start needs the end of a job of whose end nothing is known.
    `failing`: the job that is expected to fail, and this one with it."""

    uid: str
    job: str
    queue_position: int
    expected_ms: int
    earliest_ms: int
    latest_ms: int
    why: Unknown | None
    promised_ms: int = 0
    guessed: bool = False
    failing: str = ""

    @property
    def guess(self) -> bool:
        """Whether jobs without a known end were taken to end at some time, although they may never do so."""
        return bool(self.expected_ms) and (self.guessed or self.why == Unknown.ENDLESS)


class Forecast(msgspec.Struct, frozen=True):
    """The forecast of a state: the first waiting jobs in the order of the queue. `waiting` counts all of them.
    `endless` are the jobs of which nothing is known, so that they may never end, those that begin meanwhile too."""

    offset: int
    time_ms: int
    jobs: tuple[JobForecast, ...]
    waiting: int
    endless: tuple[str, ...]


class JobStart(msgspec.Struct, frozen=True):
    """As `JobForecast`, with None for an unknown time. `guess`: the expected start supposes the end of a job of whose
    end nothing is known."""

    uid: str
    job: str
    queue_position: int
    expected_ms: int | None
    earliest_ms: int | None
    latest_ms: int | None
    why: Unknown | None
    promised_ms: int | None = None
    failing: str | None = None
    guess: bool = False

    @classmethod
    def of(cls, one: JobForecast) -> "JobStart":
        expected_ms, earliest_ms, latest_ms = (ms or None for ms in (one.expected_ms, one.earliest_ms, one.latest_ms))
        promised_ms, failing = one.promised_ms or None, one.failing or None
        return cls(
            one.uid,
            one.job,
            one.queue_position,
            expected_ms,
            earliest_ms,
            latest_ms,
            one.why,
            promised_ms,
            failing,
            one.guess,
        )


class JobStarts(msgspec.Struct, frozen=True):
    """As `Forecast`, of the jobs that were asked for."""

    offset: int
    time_ms: int
    jobs: Sequence[JobStart]
    waiting: int
    endless: tuple[str, ...]


def forecast(
    state: State,
    config: CycleConfig,
    time_ms: int,
    *,
    first: int,
    until_ms: int | None = None,
    policies: Policies = BUILT_IN,
    moved: Callable[[int], object] | None = None,
    enough: Callable[[], bool] = lambda: False,
) -> Forecast:
    """The forecast for the first so many waiting jobs as of `time_ms`. The jobs behind them are left out: what these
    might take in between doesn't count, nor what those would whose pods the API server refuses. The state isn't
    changed. `moved` is called with the number of starts found since its last call, of three times as many as there are
    jobs. Once it is `enough`, the starts that aren't found yet are unknown."""
    config = policies.usable(config)
    jobs = waiting(state, config, policies, time_ms)
    asked = jobs[:first]
    starting = dict.fromkeys(job.uid for job in asked if not _refused(job, config))
    base = _without(state, [job for job in jobs if job.uid not in starting], time_ms)
    exact = sum(bool(job.placements) for job in base.jobs.values()) <= EXACT_UP_TO
    config = _refreshed(config, exact=exact)
    times = [*chain.from_iterable(state.run_times.values())]
    runs: dict[EndScenario, _Starts] = {}
    states: dict[EndScenario, State] = {}
    end_ms = time_ms + _FARTHEST_MS if until_ms is None else until_ms
    for case in EndScenario:
        runs[case] = _Starts([*starting], time_ms, moved, enough)
        ends = Ends(case, config, begin_ms=time_ms, all_times=times, exact=exact)
        states[case] = private_copy(base) if case != EndScenario.WORST else base
        _go_on(states[case], runs[case], ends, config=config, until_ms=end_ms, policies=policies)
        if case == EndScenario.EXPECTED:
            sure = Ends(case, config, begin_ms=time_ms, all_times=times, exact=exact, guesses=False)
            unsure = runs[case].since(ends.guessed_ms)
            runs[case].guessed = _guessed(base, unsure, sure, config=config, policies=policies, enough=enough)
    endless = tuple(runs[EndScenario.WORST].endless_jobs)
    short = until_ms is not None or enough()
    why = Unknown.ENDLESS if endless else Unknown.LATER if short else Unknown.NEVER
    never = _whatever_ends(states[EndScenario.BEST], runs[EndScenario.BEST], config, policies) if not short else {}
    found = [
        _failing(_merged(state, job, number, runs, _why(state, job, config, never.get(job.uid, why))), states)
        for number, job in enumerate(asked, start=1)
    ]
    return Forecast(state.offset, time_ms, tuple(found), len(jobs), endless)


def _guessed(
    state: State,
    unsure: Mapping[str, int],
    ends: Ends,
    *,
    config: CycleConfig,
    policies: Policies,
    enough: Callable[[], bool],
) -> frozenset[str]:
    """Which of these starts (job UID → time) need an end of which nothing is known: those that don't come by then if
    only known ends come, or of which there was no time to see that. The state isn't changed."""
    if not unsure:
        return frozenset()
    starts = _Starts([*unsure], ends.begin_ms, None, enough)
    _go_on(private_copy(state), starts, ends, config=config, until_ms=max(unsure.values()), policies=policies)
    return frozenset(uid for uid, start_ms in unsure.items() if not 0 < starts.found.get(uid, 0) <= start_ms)


def _whatever_ends(state: State, starts: "_Starts", config: CycleConfig, policies: Policies) -> dict[str, Unknown]:
    """Why jobs have no start although all others have ended that may: UID → the reason. What isn't in the queue is held
    by something other than room, and so is a quorum that a limit or a plugin keeps from the nodes."""
    left = [job for uid in starts.missing() if (job := state.jobs.get(uid)) is not None]
    queued = {job.uid for job in in_order(state, config, policies)} if left else set()
    return {job.uid: _kept(job) if job.uid in queued else Unknown.HELD for job in left}


def _kept(job: JobRecord) -> Unknown:
    """What keeps a job of the queue."""
    match job.waits.shortage if job.waits is not None else None:
        case Objected():
            return Unknown.HELD
        case BeyondLimit(quota=quota):
            return Unknown.GUARANTEES if quota.limit == LimitKind.GUARANTEES else Unknown.LIMIT
        case _:
            return Unknown.NEVER


def _failing(one: JobForecast, states: Mapping[EndScenario, State]) -> JobForecast:
    """The forecast of a job, with the reason if it fails as expected or at worst because another job does first that
    must not. `states` are those at the end."""
    for case in (EndScenario.EXPECTED, EndScenario.WORST) if one.why is not None else ():
        state = states[case]
        job = state.jobs.get(one.uid)
        if job is not None and job.ended and (of := failed_dependency(job)) is not None:
            first = state.find_job(job.seen.namespace, of.name)
            reason = first.decided.reason if first is not None and first.decided is not None else None
            overdue = reason == StageReason.DEADLINE_EXCEEDED
            why = Unknown.DEPENDENCY_OVERDUE if overdue else Unknown.DEPENDENCY_FAILS
            return msgspec.structs.replace(one, why=why, failing=of.name)
    return one


def _without(state: State, jobs: Sequence[JobRecord], time_ms: int) -> State:
    """A copy of the state to begin with, without those of these jobs that have no nodes."""
    base = private_copy(state)
    base.forecasts.clear()  # nothing depends on earlier ones
    say(base, time_ms, [gone for job in jobs if not job.placements for gone in job_alone_gone(job, base)])
    return base


def _refreshed(config: CycleConfig, *, exact: bool) -> CycleConfig:
    """The settings of the forecast's cycles: with many jobs, they revise reservations less often."""
    refresh_ms = config.reservation_refresh_ms if exact else max(config.reservation_refresh_ms, _REFRESH_MS)
    return msgspec.structs.replace(config, reservation_refresh_ms=refresh_ms)


def _refused(job: JobRecord, config: CycleConfig) -> bool:
    """Whether the API server refuses the job's pods."""
    return refused_when_started(job) or (config.dry_run and refused_by_dry_run(job))


def _go_on(
    state: State, starts: "_Starts", ends: Ends, *, config: CycleConfig, until_ms: int, policies: Policies
) -> None:
    """Let one case happen in a state, until all starts are found."""
    begin_ms = ends.begin_ms
    future = Future(_departures(state, ends.case, begin_ms), {}, lasts=ends.lasts)
    too_large = TooLarge([job for job in state.jobs.values() if job.active])
    run = Continuation(
        state, future, config, starts, begin_ms=begin_ms, until_ms=until_ms, policies=policies, too_large=too_large
    )
    run.go_on(enough=starts.complete)


def waiting(state: State, config: CycleConfig, policies: Policies, time_ms: int) -> list[JobRecord]:
    """The jobs that wait to start: those whose nodes others are still to leave, those in the queue in its order, and
    those that something else keeps out of the queue, by the time of their creation."""
    if not state.synced:
        return []
    waits = {uid: job for uid, job in state.jobs.items() if waits_to_start(job)}
    found = {uid: waits[uid] for uid in sorted(state.awaiting) if uid in waits}
    for job in in_order(state, config, policies, time_ms=time_ms):
        if job.uid in waits:
            found.setdefault(job.uid, waits[job.uid])
    rest = sorted(waits.values(), key=lambda job: (job.seen.created_ms, job.uid))
    return list((found | {job.uid: job for job in rest if job.uid not in found}).values())


def waits_to_start(job: JobRecord) -> bool:
    """Whether a job still needs nodes for its quorum, and its spec lets it start."""
    return (
        job.active
        and not job.stands_still
        and job.stage in (Stage.PENDING, Stage.RESCHEDULING)
        and not has_started(job)
    )


def _departures(state: State, case: EndScenario, time_ms: int) -> list[tuple[int, k.Event]]:
    """The ends of pods that leave: at once at best, and else at the end of their grace period. Those that should be
    gone by now are expected to take as long again as they are late, and at worst twice as long."""
    term, found = state.terms.get(k.Watched.POD, 0), []
    for _, pod in sorted(state.pods.items()):
        if pod.deleting or leaves(state, pod):
            by_ms = leave_by_ms(state, pod, time_ms)
            late_ms = max(time_ms - by_ms, 0) * (2 if case == EndScenario.WORST else 1)
            leaves_ms = time_ms if case == EndScenario.BEST else max(time_ms, by_ms) + late_ms
            found.append((leaves_ms, k.gone(pod, term)))
    return sorted(found, key=lambda of: of[0])


def _why(state: State, job: JobRecord, config: CycleConfig, otherwise: Unknown) -> Unknown:
    """Why the start of a job is unknown: its own reason, if no end of another job would let it start."""
    if _refused(job, config):
        return Unknown.REFUSED
    if kept_out(state, job) is not None:
        return Unknown.QUEUE
    return Unknown.INFEASIBLE if job.waits is not None and job.waits.shortage.infeasible else otherwise


def _merged(
    state: State, job: JobRecord, position: int, runs: dict[EndScenario, "_Starts"], why: Unknown
) -> JobForecast:
    starts = {case: run.found.get(job.uid, 0) for case, run in runs.items()}
    known = [start_ms for start_ms in starts.values() if start_ms]
    expected_ms = starts[EndScenario.EXPECTED]
    latest_ms = max(known) if expected_ms and starts[EndScenario.WORST] else 0
    earliest_ms = min(known, default=0)
    reservation = state.reservations.get(job.uid)
    promised_ms = reservation.decided.start_ms if reservation is not None else 0
    guessed = job.uid in runs[EndScenario.EXPECTED].guessed
    why_unknown = None if latest_ms else why
    return JobForecast(
        job.uid, label(job), position, expected_ms, earliest_ms, latest_ms, why_unknown, promised_ms, guessed
    )  # fmt: skip


class _Starts(Meter):
    """Notes when some jobs start."""

    def __init__(
        self,
        uids: Sequence[str],
        begin_ms: int,
        moved: Callable[[int], object] | None,
        enough: Callable[[], bool],
    ) -> None:
        super().__init__(None, begin_ms)
        #: Job UID → its start in milliseconds since 1970.
        self.found: dict[str, int] = {}
        #: Those of them that need an end of which nothing is known.
        self.guessed: frozenset[str] = frozenset()
        self._open = dict.fromkeys(uids)
        self._moved = moved
        self._enough = enough

    def look(self, state: State, uid: str, now_ms: int) -> None:
        """Note whether a job has started."""
        job = state.jobs.get(uid)
        if uid in self._open and (job is None or job.ended or has_started(job)):
            del self._open[uid]
            if job is not None and not job.ended:
                self.found[uid] = now_ms
            if self._moved is not None:
                self._moved(1)

    def sample(self, state: State, now_ms: int) -> None:
        """Measure nothing else."""

    def missing(self) -> Sequence[str]:
        """The UIDs of those that have no start yet."""
        return [*self._open]

    def since(self, time_ms: int) -> dict[str, int]:
        """The starts that were found from a time on; none of 0."""
        return {uid: start_ms for uid, start_ms in self.found.items() if 0 < time_ms <= start_ms}

    def complete(self) -> bool:
        """Whether all of them have started or ended, or no more is asked for."""
        return not self._open or self._enough()
