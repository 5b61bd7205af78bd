"""Time travel: fold entries up to a point of the log, which is an offset or a time.

An offset in the middle of an entry means the state after that entry, because readers never see part of an entry. A time
means the state before the first entry with a later time. The clocks of writers differ a little; with this rule, a point
never skips an entry on which later ones are based.

What grows with time (ages, waits, GPU hours, lost work, the time until a start) counts up to the time that
`Point.as_of_ms` gives, in every answer.
"""

import msgspec

from arranger.errors import DamagedEntry
from arranger.events.kinds import CycleTaken
from arranger.events.log import Entry, Position
from arranger.model.config import CycleConfig
from arranger.projections.fold import apply_entry
from arranger.projections.state import Changes, State


class Point(msgspec.Struct, frozen=True):
    """An offset, or a time in milliseconds since 1970. With neither, the end of the log. With both, the state after the
    event at the offset, as it was seen at that time: nothing had happened since."""

    offset: int | None = None
    time_ms: int | None = None

    def before(self, entry: Entry) -> bool:
        """Whether the entry begins after this point."""
        if self.offset is not None:
            return entry.first > self.offset
        return self.time_ms is not None and entry.batch.time_ms > self.time_ms

    def covers(self, state: State) -> bool:
        """Whether the state is at or before this point, so that a fold can begin with it."""
        if self.offset is not None:
            return state.offset <= self.offset
        return self.time_ms is None or state.time_ms <= self.time_ms

    @property
    def event(self) -> int | None:
        """The offset, if the point is that of an event, and not some time after it."""
        return self.offset if self.time_ms is None else None

    def as_of_ms(self, last_ms: int, *, now_ms: int | None, goes_on: bool) -> int:
        """Up to when an answer about this point counts, in milliseconds since 1970. `last_ms` is the time of the last
        event up to the point. `now_ms` is the present time, of a log to which others write; None of one that has ended.
        `goes_on`: the log has an event after the point.

        That is the time of the point: the given one, or that of its event. The end of a log that has ended is its last
        event, and that of a live one is now."""
        end_ms = last_ms if now_ms is None else now_ms
        if self.offset is not None:
            asked_ms = last_ms if self.time_ms is None else self.time_ms
        elif self.time_ms is not None:
            asked_ms = self.time_ms if goes_on else min(self.time_ms, end_ms)
        else:
            asked_ms = end_ms
        return max(asked_ms, last_ms)


END = Point()


class Span(msgspec.Struct, frozen=True):
    """A segment of the log, including both ends. `first` is None for the beginning of the log."""

    first: Point | None = None
    last: Point = END

    def holds(self, entry: Entry, offset: int) -> bool:
        """Whether the segment includes the event at this offset of the entry."""
        return self._meets(entry, offset, offset)

    def meets(self, entry: Entry) -> bool:
        """Whether the segment includes any event of the entry."""
        return self._meets(entry, entry.first, entry.last)

    def _meets(self, entry: Entry, low: int, high: int) -> bool:
        first, last, time_ms = self.first or END, self.last, entry.batch.time_ms
        if first.offset is not None and high < first.offset:
            return False
        if first.offset is None and first.time_ms is not None and time_ms < first.time_ms:
            return False
        if last.offset is not None:
            return low <= last.offset
        return last.time_ms is None or time_ms <= last.time_ms


def advance(state: State, entry: Entry, changes: Changes) -> None:
    """Fold one entry. Raises `DamagedEntry` if it has a value that its kind doesn't allow."""
    try:
        apply_entry(state, entry, changes)
    except ValueError as error:
        raise DamagedEntry(entry.first, f"it can't be folded: {error}") from error


def config_in(entry: Entry, state: State) -> CycleConfig | None:
    """The settings of the state's last accepted cycle, if that is in this entry, which the state has."""
    if not entry.first <= state.last_cycle <= entry.last:
        return None
    cycle = entry.batch.events[state.last_cycle - entry.first]
    assert isinstance(cycle, CycleTaken)
    return cycle.config


class Journey:
    """Folds entries into `state` until the point is reached. `config` has the settings of the last cycle, None if there
    was none among the entries."""

    def __init__(self, state: State, point: Point) -> None:
        self.state = state
        self.point = point
        self.config: CycleConfig | None = None
        self._last: Entry | None = None

    def feed(self, entry: Entry) -> bool:
        """Fold one entry. Returns False, without folding it, if it is after the point."""
        if self.point.before(entry):
            return False
        advance(self.state, entry, Changes())
        self.config = config_in(entry, self.state) or self.config
        self._last = entry
        return True

    def position(self, began: Position) -> Position:
        """The position after the last folded entry. `began` is the position before the first one."""
        last = self._last
        return Position(began.epoch, last.last, last.chain) if last is not None else began
