"""When a waiting job is expected to start, and how sure that is: promised by a reservation, forecast, or unknown."""

from collections.abc import Collection
from enum import StrEnum

import msgspec

from arranger.model.job import Stage
from arranger.projections.derived.awaited_room import refused_by_dry_run, refused_when_started
from arranger.projections.derived.jobs_ahead import Way, are_estimated, in_the_way
from arranger.projections.folding.forecasts import expected_start
from arranger.projections.jobs.records import JobRecord, has_started
from arranger.projections.jobs.run_times import usual_run_time_ms
from arranger.projections.state import Forecasted, Reservation, State
from arranger.projections.verdicts.preemption import leaves
from arranger.replay.reading.describe import awaited_labels, label_of


class Certainty(StrEnum):
    """How sure an expected start is."""

    #: Nodes are reserved for it from then on; nobody behind it in its queue may delay that but its guests, by their
    #: grace periods, and only jobs that outlive their end do. It is a promise no more once it was moved
    #: (`Start.first_ms`) or is over, and none while jobs of other queues wait (`Start.contested`), or running ones
    #: ahead of it for further pods, or others for a limit (`Start.ahead`), or guests of other queues are there.
    PROMISED = "Promised"
    #: The scheduler's cycle was run on while jobs end as expected; jobs that come later may delay it.
    FORECAST = "Forecast"
    UNKNOWN = "Unknown"


class NoStart(StrEnum):
    """Why a start is unknown, or has no latest time. Endless, Never, Guarantees, Limit, Queue,
    Infeasible, Refused, DependencyOverdue, DependencyFails and Later are of forecasts."""

    ENDLESS = "Endless"
    #: Its reservation waits for the end of jobs, and of one of them nothing is known.
    AWAITED = "Awaited"
    NEVER = "Never"
    GUARANTEES = "Guarantees"
    LIMIT = "Limit"
    QUEUE = "Queue"
    INFEASIBLE = "Infeasible"
    REFUSED = "Refused"
    #: The API server refused them when the job last got nodes.
    REFUSED_BEFORE = "RefusedBefore"
    #: A job that must not fail first is expected to reach its deadline, or to fail otherwise (`Start.failing`).
    DEPENDENCY_OVERDUE = "DependencyOverdue"
    DEPENDENCY_FAILS = "DependencyFails"
    LATER = "Later"
    #: No process makes forecasts, and none was made for this answer.
    NOT_FORECAST = "NotForecast"
    #: Too many pods, or too many waiting jobs, to make one for this answer.
    TOO_LARGE = "TooLarge"
    TOO_MANY_JOBS = "TooManyJobs"
    #: Something other than room keeps it: it is suspended, or its spec is invalid.
    HELD = "Held"


class Start(msgspec.Struct, frozen=True):
    """When a job starts, in milliseconds since 1970; 0 for unknown. A promise has no range. `made_ms`: when the
    forecast was made. `endless`: the jobs that may never end, of a guess made for this answer, and those for whose
    end a reservation waits until an unknown time, or still waits although its time is over."""

    certainty: Certainty
    expected_ms: int = 0
    earliest_ms: int = 0
    latest_ms: int = 0
    made_ms: int = 0
    why: NoStart | None = None
    endless: tuple[str, ...] = ()
    #: What `arranger forecast` expects: of a promise, if it is another time; of a reservation until an unknown time, a
    #: guess. 0 if there is no such forecast, or none was made.
    forecast_ms: int = 0
    #: What the reservation promised at first, if that was another time; else 0.
    first_ms: int = 0
    #: The pods that still have to leave the reserved nodes, once the promised time is over.
    leaving: tuple[str, ...] = ()
    #: Of a reservation: its time follows from how long earlier runs took, not from what the specs of the jobs say for
    #: whose end it waits. Nobody promised that.
    estimated: bool = False
    #: Of a reservation: jobs of other queues wait, and may get their turns first. Nobody promised that they don't.
    contested: bool = False
    #: Of a reservation: a guest of another queue runs in it, and may stay, as far as that queue is within its share.
    guests: bool = False
    #: Of a reservation: jobs of a higher priority in its queue that wait for nodes for further pods, or for a limit.
    #: They go first, and nobody promised that they don't take what is reserved.
    ahead: tuple[str, ...] = ()
    #: Of the forecast, also of one beside a reservation: it supposes the end of a job of whose end nothing is known.
    guessed: bool = False
    #: How many of `leaving` are pods of the job itself.
    own: int = 0
    #: Of a forecast: the job that is expected to fail, and this one with it.
    failing: str = ""
    #: When a reservation is revised at the latest whose time is over; 0 if the next cycle does that.
    revised_ms: int = 0

    @property
    def guess(self) -> bool:
        """Whether jobs without a known end were taken to end at some time, although they may never do so."""
        return self.certainty == Certainty.FORECAST and (self.guessed or self.why == NoStart.ENDLESS)


def start_of(state: State, job: JobRecord, refresh_ms: int = 0) -> Start | None:
    """The start of a job as the log has it; None if it doesn't wait to start. Cycles revise a reservation of that
    age."""
    if job.stage not in (Stage.PENDING, Stage.RESCHEDULING) or has_started(job) or job.spec is None:
        return None
    if not job.active or job.stands_still:
        return Start(Certainty.UNKNOWN, why=NoStart.HELD)
    if refused_by_dry_run(job):
        return Start(Certainty.UNKNOWN, why=NoStart.REFUSED)
    if refused_when_started(job):
        return Start(Certainty.UNKNOWN, why=NoStart.REFUSED_BEFORE)
    return _recorded(state, job, refresh_ms)


def _recorded(state: State, job: JobRecord, refresh_ms: int) -> Start:
    """The start that was forecast for a job, or that its reservation names, also if that forecast didn't come true."""
    reservation, found = state.reservations.get(job.uid), expected_start(state, job)
    if found is not None and found.forecast is not None and found.start_ms > state.time_ms:
        return _forecast(found.forecast)
    if reservation is not None and (reservation.decided.start_ms or reservation.decided.awaits):
        return _reserved(state, job, reservation, refresh_ms)
    return Start(Certainty.UNKNOWN, why=NoStart.NOT_FORECAST)


def _reserved(state: State, job: JobRecord, reservation: Reservation, refresh_ms: int) -> Start:
    """The start that a reservation promises. If that isn't known, a forecast would only guess."""
    decided, first_ms = reservation.decided, reservation.first_ms
    awaited = awaited_labels(state, decided.awaits)
    if not decided.start_ms:
        unknown = awaited_labels(state, [uid for uid in decided.awaits if _may_never_end(state, uid)])
        return Start(Certainty.UNKNOWN, why=NoStart.AWAITED, endless=unknown or awaited)
    moved_ms = first_ms if first_ms != decided.start_ms else 0
    estimated, found = are_estimated(state, decided.awaits), dict[Way, list[str]]()
    for way, other in in_the_way(state, job):
        found.setdefault(way, []).append(other.uid)
    contested, guests = Way.CONTESTS in found, Way.GUEST in found
    ahead = tuple(sorted(label_of(state, uid) for uid in found.get(Way.AHEAD, ())))
    if decided.start_ms > state.time_ms:
        return Start(
            Certainty.PROMISED,
            decided.start_ms,
            first_ms=moved_ms,
            estimated=estimated,
            contested=contested,
            guests=guests,
            ahead=ahead,
        )
    leaving = _leaving(state, {pods.node for pods in decided.pods})
    revised_ms = reservation.time_ms + refresh_ms
    return Start(
        Certainty.PROMISED,
        decided.start_ms,
        endless=awaited,
        first_ms=moved_ms,
        leaving=tuple(sorted(leaving.values())),
        own=len(leaving.keys() & state.pods_of.get(job.uid, {}).keys()),
        estimated=estimated,
        contested=contested,
        guests=guests,
        ahead=ahead,
        revised_ms=revised_ms if revised_ms > state.time_ms else 0,
    )


def _leaving(state: State, nodes: Collection[str]) -> dict[str, str]:
    """The pods that are about to leave these nodes: UID → name."""
    there = (pod for pod in state.pods.values() if pod.node in nodes)
    return {pod.uid: f"{pod.namespace}/{pod.name}" for pod in there if pod.deleting or leaves(state, pod)}


def _may_never_end(state: State, uid: str) -> bool:
    """Whether nothing is known of the end of a job."""
    job = state.jobs.get(uid)
    spec = job.spec if job is not None else None
    known = spec is not None and (spec.expected_s is not None or spec.deadline_s is not None)
    return job is not None and not known and usual_run_time_ms(state.run_times, job) is None


def _forecast(found: Forecasted) -> Start:
    """The start that a forecast of the log names."""
    made = found.decided
    why = None if made.latest_ms else NoStart.ENDLESS
    times = (made.expected_ms, made.earliest_ms, made.latest_ms)
    return Start(Certainty.FORECAST, *times, found.time_ms, why, guessed=made.guess)
