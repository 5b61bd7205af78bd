"""The follower: reads the log, folds it into the process's one projection, and notifies the roles of changes.

All roles of a process share its projection. Everything here runs on the event loop's thread, so no role sees half a
batch. A new epoch empties the projection and restarts the fold. A damaged or unknown entry stops the fold permanently,
because a fold that skips an entry is worse than one that stops. At an entry that isn't authentic the process waits,
does nothing and says where, until an operator has removed the entry or the log.
"""

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from arranger.clock import Clock
from arranger.errors import ClockOff, DamagedEntry, EntriesTrimmed, EpochLost, ForgedEntry, LogUnavailable
from arranger.events.fence import Fence
from arranger.events.kinds import Batch
from arranger.events.log import EVENTS_A_READ, Appended, Entry, Log, Position
from arranger.logs import log_event
from arranger.metrics import Metrics
from arranger.projections.fold import apply_entry
from arranger.projections.state import Changes, State
from arranger.workers.flow.backoff import Backoff
from arranger.workers.flow.standstill import Standstill
from arranger.workers.log.beginning import HistoryGone, LaterVersionAtWork, find_beginning
from arranger.workers.log.decision_counts import DecisionCounts
from arranger.workers.log.forgery import Forgery
from arranger.workers.log.own_batches import OwnBatches, not_folded
from arranger.workers.members.writes import Writes

_log = logging.getLogger(__name__)

#: How long one read waits for new entries at most; also the time to notice a lost log.
_WAIT_S = 1.0
#: A projection is fresh for at most this long after a read began. While the log is reachable, reads follow one another,
#: and each takes little more than it waits.
_FRESH_S = 4.0
#: Both as parts of the time after which other processes act for a silent one: after a pause of that length, the
#: projection must not be fresh.
_WAIT_PART, _FRESH_PART = 0.25, 0.9
#: The number of entries folded before other tasks can run.
_AT_ONCE = 256


class Listener(Protocol):
    """A role that follows the projection. Both calls come from the event loop and must return at once."""

    def changed(self, changes: Changes) -> None:
        """Entries were folded."""
        ...

    def epoch_began(self) -> None:
        """The projection was replaced: a new epoch, or a restart from a snapshot. Discard what was derived from it."""
        ...


class Follower:
    """One process's warm projection, kept up to date with the log."""

    def __init__(
        self, log: Log, *, clock: Clock, metrics: Metrics, reader: str, gone_s: float = math.inf, member: str = ""
    ) -> None:
        """After `gone_s` without a heartbeat, other processes act for this one, whose ID among them is `member`."""
        self.log = log
        self._wait_s, self._fresh_s = min(_WAIT_S, gone_s * _WAIT_PART), min(_FRESH_S, gone_s * _FRESH_PART)
        self.state = State()
        self.position = Position(0, 0, "")
        #: Why the fold stopped permanently in `run`; None while it hasn't.
        self.stopped: DamagedEntry | None = None
        self.forgery = Forgery(clock, metrics)
        #: Why the fold can't begin: the history belongs to a later version. None while it can.
        self.refused: LaterVersionAtWork | None = None
        #: Whether the log's server accepts this process's writes.
        self.writes = Writes(metrics, clock)
        #: Whether the last read reached the log.
        self.connected = False
        #: Whether a read since the last beginning showed the log's end as it was then.
        self.caught_up = False
        #: The Kubernetes cluster that the log belongs to, according to any epoch read so far (`State.cluster`).
        self.cluster = ""
        self._clock, self._metrics, self._reader = clock, metrics, reader
        self._counts = DecisionCounts(metrics, member)
        self._listeners: list[Listener] = []
        self._advanced = asyncio.Event()
        self._read_s = -math.inf
        #: The lag of the fold at the last measurement, in events and in seconds.
        self.lag: tuple[int, float] = (0, 0.0)
        #: The log's ends at earlier measurements, unless folded by now: epoch, offset, and time of the measurement.
        self._ends: deque[tuple[int, int, float]] = deque()
        self._own = OwnBatches()
        #: While it lasts, nothing is folded: for a reader that needs several turns of the event loop.
        self.still = Standstill()

    def listen(self, listener: Listener) -> None:
        """Notify this role of everything that is folded from now on."""
        self._listeners.append(listener)

    async def start(self) -> None:
        """Restore the newest snapshot and fold the tail; retries until the log is reachable. Raises `DamagedEntry`,
        without setting `stopped`."""
        backoff = Backoff(self._clock)
        while True:
            try:
                await self.log.open()
                await self._begin()
                self.caught_up = False
                while not self.caught_up:
                    await self._step(wait_s=0.0)
                await self._step(wait_s=0.0)  # what is forged or damaged cuts a reply short, too
                return
            except LogUnavailable as problem:
                log_event(_log, "the log can't be reached, trying again", level=logging.WARNING, problem=problem)
                await backoff.wait()
            except ClockOff as problem:
                log_event(_log, "a wrong clock must not begin a log", level=logging.WARNING, problem=problem)
                await backoff.wait()
            except LaterVersionAtWork as problem:
                await self._refuse(problem, backoff)
            except ForgedEntry as problem:
                self.connected = True
                await self.forgery.hold(problem, backoff)
            except (EpochLost, EntriesTrimmed) as problem:
                await self._begin_again(problem)

    async def run(self) -> None:
        """Fold until cancelled. Raises `DamagedEntry` when it can't continue, and sets `stopped`."""
        backoff = Backoff(self._clock)
        while True:
            try:
                await self._step(wait_s=self._wait_s)
                backoff.reset()
            except LogUnavailable as problem:
                if self.connected:
                    log_event(_log, "the log can't be reached, trying again", level=logging.WARNING, problem=problem)
                self.connected = False
                await backoff.wait()
            except (EpochLost, EntriesTrimmed) as problem:
                await self._begin_again(problem)
            except ForgedEntry as problem:
                self.connected, self.caught_up = True, False
                await self.forgery.hold(problem, backoff)
            except DamagedEntry as problem:
                self.stopped = problem
                log_event(_log, "the fold stops", level=logging.ERROR, offset=problem.offset, reason=problem.reason)
                raise

    def fresh(self) -> bool:
        """Whether the log was read recently. A process that was paused has an old state until its next read."""
        return self.forgery.entry is None and self._clock.monotonic_s() - self._read_s < self._fresh_s

    async def folded(self, epoch: int, offset: int) -> bool:
        """Wait until this offset is folded; returns False if its epoch ends first."""
        while self.state.epoch == epoch and self.state.offset < offset:
            await self._advanced.wait()
        return self.state.epoch == epoch

    async def until(self, holds: Callable[[State], bool]) -> None:
        """Wait until the condition holds; it is checked after each step of the fold."""
        while not holds(self.state):
            await self._advanced.wait()

    async def epoch_ended(self, epoch: int) -> None:
        """Wait until the projection is in another epoch."""
        await self.until(lambda state: state.epoch != epoch)

    async def catch_up(self) -> bool:
        """Wait until everything now in the log is folded; returns False if the epoch ends first."""
        end = await self.log.end()
        return await self.folded(end.epoch, end.offset)

    async def measure_lag(self) -> None:
        """Measure how far the fold is behind the end of the log; does nothing while the log is unavailable.

        The lag in seconds is the time since which the log is known to have an unfolded event. An event that was just
        appended is no lag, however long the silence before it.
        """
        with suppress(LogUnavailable, EpochLost):
            end = await self.log.end()
            folded, now_s = self.state, self._clock.monotonic_s()
            # The log has lost the others.
            kept = [known for known in self._ends if known[0] == end.epoch and known[1] <= end.offset]
            self._ends = deque([*kept, (end.epoch, end.offset, now_s)])
            while self._ends and _has_folded(folded, *self._ends[0][:2]):
                self._ends.popleft()
            behind = max(0, end.offset - folded.offset) if end.epoch == folded.epoch else end.offset
            self.lag = (behind, now_s - self._ends[0][2] if self._ends else 0.0)
            self._metrics.lag(self._reader, events=self.lag[0], seconds=self.lag[1])

    async def _begin(self) -> None:
        """Begin at the newest usable snapshot, else at the start of the log. Raises `LaterVersionAtWork`."""
        state, position = await self._beginning()
        state.epoch = state.epoch or position.epoch
        self.state, self.position, self.refused = state, position, None
        self._own.clear()
        self._note_cluster()
        log_event(_log, "projection begins", epoch=position.epoch, offset=position.offset)
        self._wake()
        for listener in self._listeners:
            listener.epoch_began()

    async def _beginning(self) -> tuple[State, Position]:
        while True:
            try:
                return await find_beginning(self.log)
            except HistoryGone as problem:
                await self._begin_without_history(problem)

    async def _begin_without_history(self, gone: HistoryGone) -> None:
        """As a last resort, begin a new epoch from the cluster: no version can fold this log."""
        self.cluster = gone.cluster or self.cluster
        log_event(_log, "the log's history is lost, a new epoch begins", level=logging.WARNING, reason=gone)
        await self.begin_epoch(gone.start.epoch, str(gone))

    async def _refuse(self, problem: LaterVersionAtWork, backoff: Backoff) -> None:
        """Wait for a snapshot that this version can read; until then this process isn't ready and does nothing."""
        if self.refused is None:
            log_event(_log, "a later version is at work", level=logging.WARNING, problem=problem)
        self.refused, self.connected = problem, True
        await backoff.wait()

    async def _begin_again(self, problem: Exception) -> None:
        """The log isn't the one that was read. If its epoch is lost, begin a new one, unless another process has. Then
        restore the newest snapshot and go on from there."""
        log_event(_log, "the log has changed", level=logging.WARNING, problem=problem)
        self.caught_up = False
        backoff = Backoff(self._clock)
        while True:
            try:
                if isinstance(problem, EpochLost):
                    await self.begin_epoch(self.position.epoch, str(problem))
                await self._begin()
                return
            except LogUnavailable:
                self.connected = False
                await backoff.wait()
            except ClockOff:  # another process begins it, or this one once its clock is right
                await backoff.wait()
            except LaterVersionAtWork as newer:
                problem = newer
                await self._refuse(newer, backoff)
            except (EpochLost, EntriesTrimmed) as again:
                problem = again

    async def begin_epoch(self, lost: int, reason: str, *, fence: Fence | None = None) -> None:
        """Begin a new epoch of the same Kubernetes cluster in place of `lost`, unless one has begun.

        Raises `LogUnavailable`, and if none has begun: `ClockOff` if our clock must not number it, `WatchSuperseded` if
        the fence's term isn't current.
        """
        time_ms = self._clock.now_ms()
        await self.log.begin_epoch(lost=lost, reason=reason, time_ms=time_ms, fence=fence, cluster=self.cluster)

    async def _step(self, *, wait_s: float) -> int:
        """Read once and fold what is new; returns the number of entries that were read."""
        asked_s, before = self._clock.monotonic_s(), self.position
        entries = await self.log.read(before, limit=_AT_ONCE, wait_s=wait_s)
        self.connected = True
        self.forgery.gone(before.offset)
        await self.still.over()
        news = not_folded(entries, self.position)
        if news:
            self._fold(news)
        # A read shows the log at the time of the request: after a pause the reply is already old. A reply that a read's
        # limits cut short doesn't show the log's end: near the limit of events, the next entry may have been too large
        # for it. But the reply needn't be empty: that of a log that is always appended to never is.
        if len(entries) < _AT_ONCE and self.position.offset - before.offset < EVENTS_A_READ // 2:
            self._read_s, self.caught_up = asked_s, True
        return len(entries)

    def fold_own(self, batch: Batch, appended: Appended, *, epoch: int) -> None:
        """Fold a batch that this process has just appended, without another read, if it is the next one, the reply has
        its entry (that of a repeated append has none), and the fold doesn't stand still.

        Else it was read already or will be. Raises `EpochLost` if another batch is in its place:
        the log lost ours before it was read here, and other processes have appended since.
        """
        at = self.position
        if at.epoch != epoch or self.state.epoch != epoch:
            return
        if at.offset >= appended.last:
            self._own.check(batch, appended.last)
            return
        if appended.entry is None or at.offset != appended.first - 1 or self.still.lasts:
            self._own.expect(batch, appended.last)
            return
        if at.chain != appended.chain_before:
            raise EpochLost(f"the log up to offset {at.offset} is not the one that was read")
        self._fold([appended.entry])

    def _fold(self, entries: Sequence[Entry]) -> None:
        changes = Changes()
        self._counts.begin(self.state, entries)
        self._own.fold(entries)
        for entry in entries:
            apply_entry(self.state, entry, changes)
        self._note_cluster()
        last = entries[-1]
        self.position = Position(self.state.epoch, last.last, last.chain)
        self._counts.count(self.state, changes)
        self._metrics.epoch.set(self.state.epoch)
        self._metrics.offset.labels(self._reader).set(self.state.offset)
        self._wake()
        for listener in self._listeners:
            listener.changed(changes)

    def _note_cluster(self) -> None:
        """Keep the log's cluster across epochs, and log a change: no cluster should take over another's log."""
        now, before = self.state.cluster, self.cluster
        if now and before and now != before:
            log_event(_log, "the log is another cluster's now", level=logging.WARNING, before=before, now=now)
        self.cluster = now or before

    def _wake(self) -> None:
        self._advanced.set()
        self._advanced = asyncio.Event()


def _has_folded(state: State, epoch: int, offset: int) -> bool:
    return epoch == state.epoch and offset <= state.offset
