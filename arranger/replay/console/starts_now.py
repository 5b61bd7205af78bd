"""A forecast that is made for another answer, such as `arranger explain`: the same as `arranger forecast` makes, if the
cluster isn't too large for somebody who didn't ask for it."""

from collections.abc import Callable, Mapping

from arranger.model.config import CycleConfig
from arranger.projections.state import State
from arranger.replay.explain.expected import Certainty, NoStart, Start
from arranger.replay.forecast.starts import Forecast, JobForecast, forecast, waiting
from arranger.scheduling import Policies

#: As `arranger forecast` looks at, unless asked otherwise: both answer the same.
FIRST = 1_000
#: With more pods, copies of the state alone take longer than somebody waits for an explanation.
_PODS = 20_000
#: With more waiting jobs it may take longer.
_JOBS = 200


def starts_now(
    state: State, config: CycleConfig, policies: Policies, *, enough: Callable[[], bool]
) -> Mapping[str, Start] | NoStart:
    """A forecast of this state, as `arranger forecast` makes it, by job UID: of all jobs that wait to start. For an
    answer that doesn't ask for a forecast alone there may be too many pods or such jobs: then it says which."""
    usable = policies.usable(config)
    if len(state.pods) > _PODS:
        return NoStart.TOO_LARGE
    if len(waiting(state, usable, policies, state.time_ms)) > _JOBS:
        return NoStart.TOO_MANY_JOBS
    made = forecast(state, config, state.time_ms, first=FIRST, policies=policies, enough=enough)
    late = enough()  # whatever ended the search then says nothing
    return {one.uid: _made(one, made, late=late) for one in made.jobs}


def _made(found: JobForecast, made: Forecast, *, late: bool) -> Start:
    certainty = Certainty.FORECAST if found.expected_ms else Certainty.UNKNOWN
    why = NoStart(found.why.value) if found.why is not None else None
    if why is not None and late and not found.failing:
        why = NoStart.LATER
    endless = made.endless if why == NoStart.ENDLESS or found.guess else ()
    return Start(
        certainty,
        found.expected_ms,
        found.earliest_ms,
        found.latest_ms,
        made.time_ms,
        why,
        endless,
        guessed=found.guessed,
        failing=found.failing,
    )
