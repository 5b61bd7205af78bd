"""A forecast of one job's start for `arranger explain`, where the log has none and the cluster isn't too large.

Beside a reservation it says what `arranger forecast` expects: both commands name the same times.
"""

import time

import msgspec

from arranger.model.config import CycleConfig
from arranger.plugins import inventory
from arranger.projections.state import State
from arranger.replay.explain.answer import Explanation
from arranger.replay.explain.expected import Certainty, NoStart, Start
from arranger.replay.forecast.starts import forecast, waiting

#: As `arranger forecast` looks at, unless asked otherwise: both answer the same.
FIRST = 1_000
#: With more pods, copies of the state alone take longer than somebody waits for an explanation.
_PODS = 20_000
#: With more waiting jobs it may take longer.
_JOBS = 200
#: The most time that it may take.
_LIMIT_S = 2.0


def with_forecast(answer: Explanation, state: State, config: CycleConfig | None) -> Explanation:
    """The explanation with a forecast of the job's start, made on this state, if the log says nothing of that."""
    start = answer.start
    reserved = start is not None and (start.certainty == Certainty.PROMISED or start.why == NoStart.AWAITED)
    if start is None or not (reserved or start.why == NoStart.NOT_FORECAST) or not state.synced:
        return answer
    made = _made(answer.standing.uid, state, config or CycleConfig())
    if reserved:
        expected_ms = made.expected_ms if made.expected_ms != start.expected_ms else 0
        made = msgspec.structs.replace(start, forecast_ms=expected_ms)
    return msgspec.structs.replace(answer, start=made)


def _made(uid: str, state: State, config: CycleConfig) -> Start:
    policies = inventory().policies.closest(config)
    if len(state.pods) > _PODS or len(waiting(state, policies.usable(config), policies, state.time_ms)) > _JOBS:
        return Start(Certainty.UNKNOWN, why=NoStart.TOO_LARGE)
    until_s = time.monotonic() + _LIMIT_S
    made = forecast(
        state, config, state.time_ms, first=FIRST, policies=policies, enough=lambda: time.monotonic() > until_s
    )  # fmt: skip
    found = next((one for one in made.jobs if one.uid == uid), None)
    if found is None:
        return Start(Certainty.UNKNOWN, why=NoStart.HELD)
    certainty = Certainty.FORECAST if found.expected_ms else Certainty.UNKNOWN
    why = NoStart(found.why.value) if found.why is not None else None
    if why is not None and time.monotonic() > until_s:  # whatever ended the search says nothing then
        why = NoStart.LATER
    endless = made.endless if why == NoStart.ENDLESS else ()
    return Start(
        certainty, found.expected_ms, found.earliest_ms, found.latest_ms, state.time_ms, why, endless
    )  # fmt: skip
