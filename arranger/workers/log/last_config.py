"""The settings of a state's last cycle, where whoever asks has a snapshot that was stored after that cycle.

A snapshot has the offset of the last accepted cycle, and the log has the settings in the record of that cycle: it is
read once more, from the snapshot before. Whoever folds entries up to the state knows the settings from them
(`replay.reading.history.config_in`), and needs this only if no cycle was among them.
"""

import asyncio
import logging

from arranger.errors import DamagedEntry
from arranger.events.kinds import CycleTaken
from arranger.events.log import Log, Position
from arranger.logs import log_event
from arranger.model.config import CycleConfig
from arranger.projections.state import State

_log = logging.getLogger(__name__)


async def last_config(log: Log, state: State, after: Position) -> CycleConfig:
    """The settings of the last accepted cycle up to a state, of which `after` is the position. Without one, or if its
    record was trimmed or can't be read, those of the first cycle behind it that the log has; without any, the defaults.

    Raises what `log` raises, but for damage."""
    before = [await _position_before(log, state.last_cycle)] if state.last_cycle else []
    for position in (*before, after):
        try:
            config = await _first_from(log, position, state.last_cycle)
        except DamagedEntry as problem:  # the state is sound, and so is what else is told of it
            log_event(_log, "the settings of the last cycle can't be read", level=logging.WARNING, problem=problem)
            continue
        if config is not None:
            return config
    return CycleConfig()


async def _first_from(log: Log, after: Position, offset: int) -> CycleConfig | None:
    """The settings of the first cycle at or behind an offset that is found after a position."""
    while entries := await log.read(after):
        for entry in entries:
            for at, event in enumerate(entry.batch.events, start=entry.first):
                if at >= offset and type(event) is CycleTaken:
                    return event.config
        after = Position(after.epoch, entries[-1].last, entries[-1].chain)
        await asyncio.sleep(0)  # a file's entries are there at once, and others have work
    return None


async def _position_before(log: Log, offset: int) -> Position:
    """The position of the newest snapshot before an offset from which the log can be read, else its start."""
    start, at_most = await log.start(), offset - 1
    while at_most >= start.offset:
        try:
            stored = await log.newest_snapshot(at_most=at_most)
        except DamagedEntry as problem:
            at_most = problem.offset - 1
            continue
        if stored is None or stored.position.epoch != start.epoch or stored.position.offset < start.offset:
            break
        return stored.position
    return start
