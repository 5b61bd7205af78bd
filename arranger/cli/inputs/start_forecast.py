"""A forecast of one job's start for `arranger explain`, where the log has none and the cluster isn't too large.

Beside a reservation it says what `arranger forecast` expects: both commands name the same times.
"""

import time

import msgspec

from arranger.model.config import CycleConfig
from arranger.plugins import inventory
from arranger.projections.state import State
from arranger.replay.console.starts_now import starts_now
from arranger.replay.explain.answer import Explanation
from arranger.replay.explain.expected import Certainty, NoStart, Start

#: The most time that it may take.
_LIMIT_S = 2.0


def with_forecast(answer: Explanation, state: State, config: CycleConfig) -> Explanation:
    """The explanation with a forecast of the job's start, made on this state, if the log says nothing of that."""
    start = answer.start
    reserved = start is not None and (start.certainty == Certainty.PROMISED or start.why == NoStart.AWAITED)
    if start is None or not (reserved or start.why == NoStart.NOT_FORECAST) or not state.synced:
        return answer
    made = _made(answer.standing.uid, state, config)
    if reserved:
        expected_ms = made.expected_ms if made.expected_ms != start.expected_ms else 0
        made = msgspec.structs.replace(start, forecast_ms=expected_ms, guessed=made.guessed)
    return msgspec.structs.replace(answer, start=made)


def _made(uid: str, state: State, config: CycleConfig) -> Start:
    until_s = time.monotonic() + _LIMIT_S
    policies = inventory().policies.closest(config)
    made = starts_now(state, config, policies, enough=lambda: time.monotonic() > until_s)
    if isinstance(made, NoStart):
        return Start(Certainty.UNKNOWN, why=made)
    return made.get(uid) or Start(Certainty.UNKNOWN, why=NoStart.HELD)
