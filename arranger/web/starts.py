"""Forecasts for the console's table of jobs, for which nobody should wait long."""

import time
from collections.abc import Mapping

from arranger.model.config import CycleConfig
from arranger.plugins import installed
from arranger.projections.state import State
from arranger.replay.console.starts_now import starts_now
from arranger.replay.explain.expected import NoStart, Start

#: The most time that a forecast takes, for jobs of whose start the log says nothing.
_LIMIT_S = 0.3


def starts_soon(state: State, config: CycleConfig) -> Mapping[str, Start]:
    """The starts that were found in time, by job UID."""
    until_s = time.monotonic() + _LIMIT_S
    made = starts_now(state, config, installed().closest(config), enough=lambda: time.monotonic() > until_s)
    return {} if isinstance(made, NoStart) else made
