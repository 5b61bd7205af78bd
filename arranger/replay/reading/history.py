"""Time travel: the state at a point of the log, folded from what is fed in.

A point is an offset or a moment. Entries are whole: the state at an offset in the middle of an entry is the state
after that entry, because nobody ever saw half of one. A moment is the end of the last entry before the first that
was told later; writers' clocks differ a little, and this way a point never skips an entry that others built on.
"""

import msgspec

from arranger.errors import DamagedEntry
from arranger.events.log import Entry, Position
from arranger.projections.fold import apply_entry
from arranger.projections.state import Changes, State


class Point(msgspec.Struct, frozen=True):
    """An offset, or a moment in milliseconds since 1970. With neither, the end of the log."""

    offset: int | None = None
    time_ms: int | None = None

    def before(self, entry: Entry) -> bool:
        """Whether the whole entry comes after this point."""
        if self.offset is not None:
            return entry.first > self.offset
        return self.time_ms is not None and entry.batch.time_ms > self.time_ms

    def covers(self, state: State) -> bool:
        """Whether the state lies at or before this point, so that folding can begin with it."""
        if self.offset is not None:
            return state.offset <= self.offset
        return self.time_ms is None or state.time_ms <= self.time_ms


END = Point()


class Span(msgspec.Struct, frozen=True):
    """A stretch of the log, both ends included; `first` is None for the log's beginning."""

    first: Point | None = None
    last: Point = END

    def holds(self, entry: Entry, offset: int) -> bool:
        """Whether the event at this offset, which is in this entry, lies in the stretch."""
        return self._meets(entry, offset, offset)

    def meets(self, entry: Entry) -> bool:
        """Whether any event of the entry lies in the stretch."""
        return self._meets(entry, entry.first, entry.last)

    def _meets(self, entry: Entry, low: int, high: int) -> bool:
        first, last, time_ms = self.first or END, self.last, entry.batch.time_ms
        if first.offset is not None and high < first.offset:
            return False
        if first.time_ms is not None and time_ms < first.time_ms:
            return False
        if last.offset is not None and low > last.offset:
            return False
        return last.time_ms is None or time_ms <= last.time_ms


def advance(state: State, entry: Entry, changes: Changes) -> None:
    """Fold one entry. Raises `DamagedEntry` where a value in it is none that its kind can have."""
    try:
        apply_entry(state, entry, changes)
    except ValueError as error:
        raise DamagedEntry(entry.first, f"it can't be folded: {error}") from error


class Journey:
    """Folds the entries that it is fed until its point is reached; `state` is where it stands."""

    def __init__(self, state: State, point: Point) -> None:
        self.state = state
        self.point = point
        self._last: Entry | None = None

    def feed(self, entry: Entry) -> bool:
        """Fold one entry; False, and nothing folded, when it lies beyond the point."""
        if self.point.before(entry):
            return False
        advance(self.state, entry, Changes())
        self._last = entry
        return True

    def position(self, began: Position) -> Position:
        """The position where it stands, when `began` is the one before the first entry that it was fed."""
        last = self._last
        return Position(began.epoch, last.last, last.chain) if last is not None else began
