"""Follows the log from a cursor of its own: each entry after the cursor reaches the receiver, or a gap does.

The fold needs a state, so it begins at a snapshot before the cursor, and what is up to the cursor isn't passed on. If
the log doesn't have that any more, it begins as early as it can, and the receiver gets a `Gap` first.
"""

import logging
from typing import Protocol

import msgspec

from arranger.clock import Clock
from arranger.errors import DamagedEntry, EntriesTrimmed, EpochLost, ForgedEntry, LogError, NoLog
from arranger.events.log import Entry, Log, Position
from arranger.logs import log_event
from arranger.projections.state import Changes, State
from arranger.replay.reading.history import advance
from arranger.workers.flow.backoff import Backoff
from arranger.workers.log.beginning import beginning_before, find_beginning

_log = logging.getLogger(__name__)

#: How long one read waits for entries at most.
_WAIT_S = 1.0


class Cursor(msgspec.Struct, frozen=True):
    """How far a receiver has got: an epoch and an offset."""

    epoch: int
    offset: int


class Gap(msgspec.Struct, frozen=True):
    """Entries up to this offset of this epoch are not passed on; those of them up to `after` were passed on earlier.

    `after` is None for a receiver without a cursor. `time_ms` is the time of the state at the offset, in milliseconds
    since 1970; 0 if the epoch begins there.
    """

    epoch: int
    offset: int
    time_ms: int
    after: Cursor | None


class Receiver(Protocol):
    """Takes what is read. Each method may raise `LogError`: then everything is read again from the cursor."""

    async def cursor(self) -> Cursor | None:
        """Its cursor; None if it has none yet."""
        ...

    async def begin(self, state: State, gap: Gap | None) -> None:
        """The fold is at the cursor, or behind the gap."""
        ...

    async def take(self, state: State, entry: Entry, changes: Changes) -> None:
        """An entry after the cursor was folded."""
        ...

    async def passed(self, offset: int) -> None:
        """Nothing more comes up to this offset; called after each read, also while nothing happens."""
        ...


class Following:
    """One receiver and its log."""

    def __init__(self, log: Log, receiver: Receiver, clock: Clock) -> None:
        self._log = log
        self._receiver = receiver
        self._clock = clock
        #: Why nothing is read, empty if all is well.
        self.problem = "the log is being read"

    async def run(self) -> None:
        """Read until cancelled. Raises `DamagedEntry` at an entry that this version can't read."""
        backoff = Backoff(self._clock)
        while True:
            try:
                state, position = await self._begin()
                while True:
                    position = await self._read(state, position)
                    self.problem = ""
                    backoff.reset()
            except (EpochLost, EntriesTrimmed) as problem:
                log_event(_log, "the log has changed", level=logging.WARNING, problem=problem)
                self.problem = str(problem)
            except (LogError, NoLog) as problem:
                if isinstance(problem, DamagedEntry) and not isinstance(problem, ForgedEntry):
                    raise
                if not self.problem:
                    log_event(_log, "the log can't be read", level=logging.WARNING, problem=problem)
                self.problem = str(problem)
            await backoff.wait()

    async def _begin(self) -> tuple[State, Position]:
        end = await self._log.open()
        cursor = await self._receiver.cursor()
        found = await self._at_cursor(cursor, end)
        if found is not None:
            state, position = found
            while cursor is not None and position.offset < cursor.offset:
                position = await self._skip(state, position, cursor.offset)
            await self._receiver.begin(state, None)
            return state, position
        state, position = await self._behind_gap(cursor, end)
        gap = Gap(position.epoch, position.offset, state.time_ms, cursor)
        if cursor is None:
            log_event(_log, "a feed begins", after=position.offset)
        else:
            log_event(_log, "a feed has a gap", level=logging.WARNING, after=cursor, through=position.offset)
        await self._receiver.begin(state, gap)
        return state, position

    async def _at_cursor(self, cursor: Cursor | None, end: Position) -> tuple[State, Position] | None:
        """Where to fold from to get to the cursor; None if the log doesn't have that."""
        if cursor is None or cursor.epoch != end.epoch:
            return None
        if cursor.offset > end.offset:
            raise EpochLost(f"the log ends at offset {end.offset}; passed on up to {cursor.offset}: its tail was lost")
        return await beginning_before(self._log, cursor.offset)

    async def _behind_gap(self, cursor: Cursor | None, end: Position) -> tuple[State, Position]:
        """As early as the log allows; without a cursor, at its end."""
        if cursor is None:
            state, position = await find_beginning(self._log)
            state.epoch = state.epoch or position.epoch
            while position.offset < end.offset:
                position = await self._skip(state, position, end.offset)
            return state, position
        most = cursor.offset if cursor.epoch == end.epoch else 0
        for offset in (0, *(mark.offset for mark in await self._log.snapshot_marks() if mark.offset > most)):
            found = await beginning_before(self._log, offset)
            if found is not None:
                return found
        return await find_beginning(self._log)

    async def _skip(self, state: State, position: Position, until: int) -> Position:
        """Fold entries up to an offset without passing them on."""
        for entry in await self._log.read(position):
            if entry.first > until:
                break
            advance(state, entry, Changes())
            position = Position(position.epoch, entry.last, entry.chain)
        return position

    async def _read(self, state: State, position: Position) -> Position:
        since_s = self._clock.monotonic_s()
        entries = await self._log.read(position, wait_s=_WAIT_S)
        for entry in entries:
            changes = Changes()
            advance(state, entry, changes)
            await self._receiver.take(state, entry, changes)
            position = Position(position.epoch, entry.last, entry.chain)
        await self._receiver.passed(position.offset)
        if not entries and self._clock.monotonic_s() - since_s < _WAIT_S:
            await self._clock.sleep(_WAIT_S)  # an archive doesn't wait for entries
        return position
