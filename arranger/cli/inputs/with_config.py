"""Where an answer begins, or what it is about, with the settings of the last cycle up to there: who orders jobs, or
takes cycles, needs both."""

from typing import NamedTuple

from arranger.cli.inputs.reading import as_of, begin_at_span, journey_to, opened
from arranger.events.log import Log, Position
from arranger.model.config import CycleConfig
from arranger.projections.state import State
from arranger.replay.reading.history import END, Point, Span
from arranger.settings import Settings
from arranger.workers.log.last_config import last_config


class Stand(NamedTuple):
    """A state, the position from which to continue reading, and the settings of the last cycle up to it."""

    state: State
    position: Position
    config: CycleConfig


class SeenState(NamedTuple):
    """A state as its events left it, with the digest of every fold up to there; the same as of the time up to which an
    answer about the point counts, for people; and the settings of the last cycle up to there."""

    state: State
    seen: State
    config: CycleConfig


async def begin_with_config(log: Log, span: Span) -> Stand:
    """As `begin_at_span`."""
    state, position = await begin_at_span(log, span)
    return Stand(state, position, await last_config(log, state, position))


async def stand_with_config(log: Log, point: Point, *, doing: str) -> Stand:
    """As `stand_at`."""
    journey, position = await journey_to(log, point, doing=doing)
    return Stand(journey.state, position, journey.config or await last_config(log, journey.state, position))


async def seen_at(target: str | None, settings: Settings, point: Point | None) -> SeenState:
    """What the target log, or that of the settings, says at a point, or at its end."""
    async with opened(target, settings) as log:
        state, after, config = await stand_with_config(log, point or END, doing="replaying")
        as_of_ms = await as_of(log, point or END, after)
        return SeenState(state, state.as_of(as_of_ms(state.time_ms)), config)
