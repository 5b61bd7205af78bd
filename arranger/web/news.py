"""Follows the log: one projection that is always up to date, and the newest events for all who watch.

However many clients watch, the log is read and folded once, and each event is encoded once. Nothing is appended: this
follower has no way to write.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import NamedTuple

import msgspec

from arranger.clock import wall_clock_ms
from arranger.errors import DamagedEntry, EntriesTrimmed, EpochLost, LogError, LogUnavailable, UsageError
from arranger.events.log import Log, Position
from arranger.logs import log_event
from arranger.model.config import CycleConfig
from arranger.model.text import safe_json
from arranger.projections import snapshot
from arranger.projections.state import Changes, State
from arranger.replay.reading.describe import as_object
from arranger.replay.reading.history import advance, config_in
from arranger.replay.reading.listing import EventFilter, EventLine, Listing
from arranger.web.damage import until_gone
from arranger.web.naming import named
from arranger.web.refusals import refuse
from arranger.workers.log.beginning import find_beginning
from arranger.workers.log.last_config import last_config

_log = logging.getLogger(__name__)

#: How many of the newest events are kept for clients that come back.
KEPT = 10_000
#: How many bytes they may have.
KEPT_BYTES = 64 << 20
_WAIT_S = 1.0
_RETRY_S = 2.0
#: How long the log is folded without a look at who asks, in seconds.
_SLICE_S = 0.02
#: How long a question waits while the log is read first, in seconds.
_PATIENCE_S = 20.0
_READING = "the log is being read"


class New(msgspec.Struct, frozen=True):
    """One event for clients: its epoch, offset and time, and the line of `events` as JSON."""

    epoch: int
    offset: int
    content: bytes
    time_ms: int = 0

    @property
    def moment(self) -> bytes:
        """The event for those who may not see what it says."""
        return msgspec.json.encode({"offset": self.offset, "timeMs": self.time_ms})


class Present(NamedTuple):
    """The state at the end of a log as its events left it, the same as of now, and the settings of the last cycle.
    Nobody may change them."""

    state: State
    seen: State
    config: CycleConfig


class News:
    """The projection at the end of a log, and the newest events."""

    def __init__(self, log: Log, after: Callable[[], Awaitable[None]] | None = None, pause_s: float = 0.0) -> None:
        """`after`: what the log is folded after, because it needs the processors more; and after a pause in which
        nobody asks for the state."""
        self._log, self._after, self._pause_s = log, after, pause_s
        self._asked = asyncio.Event()
        self._listing: Listing | None = None
        #: The settings of the last cycle in the log; the defaults until the state is known.
        self._config = CycleConfig()
        #: The last position that was folded; before that, the end of the log when it was opened.
        self._position = Position(0, 0, "")
        self._opened = False
        self._kept: deque[New] = deque()
        self._kept_bytes = 0
        #: The offset before the oldest kept event.
        self._kept_after = 0
        self._moved = asyncio.Event()
        #: Why nothing new is read, empty if all is well.
        self.problem = _READING

    @property
    def now_ms(self) -> int | None:
        """The present time, which is that of the end of a log to which others write; None for one that has ended."""
        return wall_clock_ms() if self._log.live else None

    @property
    def epoch(self) -> int:
        return self._position.epoch

    @property
    def offset(self) -> int:
        return self._position.offset

    async def position(self) -> Position:
        """The end of the log, which is known before its state is. Raises `Refusal` if it isn't known soon."""
        await self._until(lambda: self._opened)
        return self._position

    async def state(self) -> State:
        """The state at the end of the log. Nobody may change it. Raises `Refusal` if it isn't known soon."""
        await self._until(lambda: self._listing is not None)
        assert self._listing is not None
        return self._listing.state

    def hurry(self) -> None:
        """Don't pause any more: somebody waits for the state."""
        self._asked.set()

    async def present(self) -> Present:
        """The end of the log as of now. Raises `Refusal` if it isn't known soon."""
        self.hurry()
        state = await self.state()
        return Present(state, state.as_of(state.lapsed_ms(self.now_ms or state.time_ms)), self._config)

    async def _until(self, known: Callable[[], bool]) -> None:
        while not known():
            if self.problem != _READING or not await self.moved(_PATIENCE_S):
                refuse("ServiceUnavailable", self.problem, hint="try again soon")

    async def follow(self) -> None:
        """Read until cancelled. Waits at an entry that can't be read; what is past stays available meanwhile."""
        try:
            await self._follow()
        except Exception as problem:
            self._stop(problem)
            raise

    async def _follow(self) -> None:
        while True:
            try:
                if self._listing is None:
                    await self._begin()
                await self._step()
            except (EpochLost, EntriesTrimmed) as problem:
                self._forget(str(problem))
                self.problem = _READING  # what is asked meanwhile waits for the log that is there now
            except DamagedEntry as problem:
                self._stop(problem)
                await until_gone(self._log, self.epoch, problem)
                self._forget(str(problem))
            except LogUnavailable as problem:
                self._stop(problem)
                await asyncio.sleep(_RETRY_S)
            except LogError as problem:
                self._forget(str(problem))
                await asyncio.sleep(_RETRY_S)
            except UsageError as problem:
                if not self.epoch:
                    raise
                self._stop(problem)  # its file was moved away, or is none: another comes
                await asyncio.sleep(_RETRY_S)

    async def after(self, epoch: int, offset: int) -> AsyncGenerator[New | None, None]:
        """The events after an offset, as they come; None about once a second if there are none.

        Raises `Refusal` if events after the offset aren't kept any more, or if it is of another epoch.
        """
        while True:
            if epoch != self.epoch or offset < self._kept_after:
                hint = "events?from=OFFSET lists older ones"
                refuse(
                    "Expired", f"the events after offset {offset} of epoch {epoch} are no longer kept here", hint=hint
                )
            news = self._since(offset)
            for new in news:
                yield new
                offset = new.offset
            if not news and not await self.moved(_WAIT_S):
                yield None

    async def moved(self, wait_s: float) -> bool:
        """Wait for new events; False if there were none in so many seconds."""
        try:
            async with asyncio.timeout(wait_s):
                await self._moved.wait()
        except TimeoutError:
            return False
        return True

    def _since(self, offset: int) -> list[New]:
        found: list[New] = []
        for new in reversed(self._kept):
            if new.offset <= offset:
                break
            found.append(new)
        return found[::-1]

    async def _begin(self) -> None:
        """Fold up to the present end. What came before isn't news."""
        self._position, self._opened = await self._log.open(), True
        self._wake()
        if self._after is not None:
            await self._after()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pause_s):
                    await self._asked.wait()
        # In a thread, because it takes a second in a large cluster, in which the page is asked for.
        state, position = await find_beginning(self._log, lambda content: asyncio.to_thread(snapshot.restore, content))
        state.epoch = state.epoch or position.epoch
        config: CycleConfig | None = None
        clock_s = asyncio.get_running_loop().time
        since_s = clock_s()
        while entries := await self._log.read(position):
            for entry in entries:
                advance(state, entry, Changes())
                config = config_in(entry, state) or config
                position = Position(position.epoch, entry.last, entry.chain)
                if clock_s() - since_s > _SLICE_S:
                    await asyncio.sleep(0)
                    since_s = clock_s()
        self._config = config or await last_config(self._log, state, position)
        self._position, self._listing, self.problem = position, Listing(state, EventFilter()), ""
        self._kept.clear()
        self._kept_bytes = 0
        self._kept_after = position.offset
        self._wake()

    async def _step(self) -> None:
        clock_s = asyncio.get_running_loop().time
        since_s = clock_s()
        entries = await self._log.read(self._position, wait_s=_WAIT_S)
        if not entries and clock_s() - since_s < _WAIT_S:
            await asyncio.sleep(_WAIT_S)  # an archive doesn't wait for entries
        self.problem = ""
        assert self._listing is not None
        for entry in entries:
            for line in self._listing.feed(entry):
                self._keep(line)
            self._config = config_in(entry, self._listing.state) or self._config
            self._position = Position(self._position.epoch, entry.last, entry.chain)
        if entries:
            self._wake()

    def _keep(self, line: EventLine) -> None:
        new = New(self.epoch, line.offset, encoded(as_object(line)), line.time_ms)
        self._kept.append(new)
        self._kept_bytes += len(new.content)
        while len(self._kept) > KEPT or self._kept_bytes > KEPT_BYTES:
            oldest = self._kept.popleft()
            self._kept_after = oldest.offset
            self._kept_bytes -= len(oldest.content)

    def _stop(self, problem: Exception) -> None:
        if not self.problem:
            log_event(_log, "the log can't be read", level=logging.WARNING, problem=problem)
        self.problem = str(problem)
        self._wake()

    def _forget(self, problem: str) -> None:
        log_event(_log, "the log has changed", level=logging.WARNING, problem=problem)
        self._listing, self._opened, self.problem = None, False, problem
        self._kept.clear()
        self._kept_bytes = 0
        self._wake()

    def _wake(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()


def encoded(value: object, name: Callable[[object], object] = named) -> bytes:
    """A command's JSON value in the API's names, without control characters of terminals."""
    return safe_json(msgspec.json.encode(name(value), enc_hook=str))
