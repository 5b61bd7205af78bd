"""When a waiting job is expected to start, and how sure that is: promised by a reservation, forecast, or unknown."""

from enum import StrEnum

import msgspec

from arranger.model.job import Stage
from arranger.projections.awaited_room import refused_by_dry_run
from arranger.projections.forecasts import expected_start
from arranger.projections.jobs import JobRecord
from arranger.projections.state import Forecasted, State
from arranger.replay.reading.describe import label_of


class Certainty(StrEnum):
    """How sure an expected start is."""

    #: Nodes are reserved for it from then on; nobody may delay that, and only jobs that outlive their end do.
    PROMISED = "Promised"
    #: The scheduler's cycle was run on while jobs end as expected; jobs that come later may delay it.
    FORECAST = "Forecast"
    UNKNOWN = "Unknown"


class NoStart(StrEnum):
    """Why a start is unknown, or has no latest time. Endless, Never, Queue, Infeasible,
    Refused and Later are of forecasts."""

    ENDLESS = "Endless"
    #: Its reservation waits for the end of jobs, and of one of them nothing is known.
    AWAITED = "Awaited"
    NEVER = "Never"
    QUEUE = "Queue"
    INFEASIBLE = "Infeasible"
    REFUSED = "Refused"
    LATER = "Later"
    #: No process makes forecasts, and none was made for this answer.
    NOT_FORECAST = "NotForecast"
    #: Too many jobs or pods, to make one for this answer.
    TOO_LARGE = "TooLarge"
    #: Something other than room keeps it: it is suspended, or its spec is invalid.
    HELD = "Held"


class Start(msgspec.Struct, frozen=True):
    """When a job starts, in milliseconds since 1970; 0 for unknown. A promise has no range. `made_ms`: when the
    forecast was made. `endless`: the jobs that may never end, of a forecast made for this answer, and those for whose
    end a reservation waits until an unknown time."""

    certainty: Certainty
    expected_ms: int = 0
    earliest_ms: int = 0
    latest_ms: int = 0
    made_ms: int = 0
    why: NoStart | None = None
    endless: tuple[str, ...] = ()


def start_of(state: State, job: JobRecord) -> Start | None:
    """The start of a job as the log has it; None if it doesn't wait to start."""
    waits = job.stage in (Stage.PENDING, Stage.RESCHEDULING) and not job.quorum_placed()
    if not waits or job.spec is None:
        return None
    if not job.active or job.stands_still:
        return Start(Certainty.UNKNOWN, why=NoStart.HELD)
    if refused_by_dry_run(job):
        return Start(Certainty.UNKNOWN, why=NoStart.REFUSED)
    reservation = state.reservations.get(job.uid)
    if reservation is not None and reservation.decided.awaits and not reservation.decided.start_ms:
        awaited = tuple(label_of(state, uid) for uid in reservation.decided.awaits)
        return Start(Certainty.UNKNOWN, why=NoStart.AWAITED, endless=awaited)  # as a forecast would only guess
    found = expected_start(state, job)
    if found is None:
        return Start(Certainty.UNKNOWN, why=NoStart.NOT_FORECAST)
    if found.forecast is None:
        return Start(Certainty.PROMISED, found.start_ms)
    return _forecast(found.forecast, state.time_ms)


def _forecast(found: Forecasted, now_ms: int) -> Start:
    """The start that a forecast of the log names, unless it didn't come true."""
    made = found.decided
    if made.expected_ms <= now_ms:
        return Start(Certainty.UNKNOWN, why=NoStart.NOT_FORECAST)
    why = None if made.latest_ms else NoStart.ENDLESS
    return Start(Certainty.FORECAST, made.expected_ms, made.earliest_ms, made.latest_ms, found.time_ms, why)
