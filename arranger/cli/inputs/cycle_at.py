"""The cycle that the questions about a point of a log take: the same one for all of them."""

from arranger.cli.inputs.reading import as_of, feed, position_before
from arranger.cli.inputs.with_config import stand_with_config
from arranger.errors import LogError
from arranger.events import kinds as k
from arranger.events.log import Log, Position
from arranger.projections.state import State
from arranger.replay.reading.history import END, Point
from arranger.replay.what_if.one_cycle import Inputs, Scout


async def cycle_at(log: Log, at: Point | None) -> tuple[Inputs, tuple[k.Event, ...] | None, State, Position]:
    """The inputs of the cycle at a point, its record if there is one, the state at its base, and the position there.

    Raises `LogError` if the log doesn't reach the point, or if the listings weren't complete there.
    """
    point = at or END
    scout = Scout()
    just_before = Point(offset=point.offset - 1) if point.offset else point
    await feed(log, await position_before(log, just_before), scout.feed, until=point, doing="going to the point")
    found = scout.cycle(point.event) if point.event is not None else None
    base = Point(offset=found[0].base) if found is not None else point
    state, last, config = await stand_with_config(log, base, doing="going to the point")
    if not state.synced:
        raise LogError(
            f"not everything had been listed yet at offset {state.offset}, so no cycle could run there",
            hint="use a later point",
        )
    if found is not None:
        inputs, record = found
        if state.offset != inputs.base:
            raise LogError(
                f"the cycle's base, offset {inputs.base}, is not the end of an entry, so the cycle can't run again"
            )
        return inputs, record, state, last
    state.time_ms = (await as_of(log, point, last))(state.time_ms)
    return Inputs(state.offset, state.time_ms, config), None, state, last
