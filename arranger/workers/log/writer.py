"""The writer: appends the batches of one role to the log, and folds each into the process's projection: at once where
it is the next entry, else the follower does when it reads it.
"""

import asyncio
from collections.abc import Sequence

from arranger.clock import Clock
from arranger.errors import ClockOff, EpochLost, LogUnavailable, WatchSuperseded
from arranger.events.fence import Fence
from arranger.events.kinds import Batch, Event, kind_of
from arranger.events.log import Appended
from arranger.metrics import Metrics
from arranger.workers.flow.backoff import Backoff
from arranger.workers.log.follower import Follower

#: How often a batch is stamped again if the log's server finds it too old or too new: a pause between stamp and arrival
#: is temporary, a wrong clock is refused again.
_LATE_TRIES = 3


class Writer:
    """Appends one role's batches, each once: a batch whose reply was lost is sent again under the same identity.

    Each try is stamped with its own time, because the time a batch waits is no fault of the clock. A batch is never
    sent while the clock is wrong, even if it was decided before: the caller handles `ClockOff`.
    """

    def __init__(self, follower: Follower, *, name: str, clock: Clock, metrics: Metrics) -> None:
        self._follower = follower
        self._name = name
        self._clock = clock
        self._metrics = metrics
        self._seq = 0
        self._turn = asyncio.Lock()

    async def append(self, events: Sequence[Event], *, fence: Fence | None = None) -> Appended:
        """Append in the projection's epoch; retries while the log is unavailable. On return, the batch may be folded
        here or not: `append_and_fold` waits for that.

        Raises `EpochLost`, `WatchSuperseded` for a fence whose term isn't the watch's current one, and `ClockOff` while
        our clock is wrong: an earlier try may have appended the batch.
        """
        epoch = self._follower.state.epoch
        self._clock.now_ms()  # checks the clock first: the events are of this moment
        async with self._turn:
            self._seq += 1
            backoff, refused = Backoff(self._clock), 0
            while True:
                await self._follower.forgery.over()
                batch = Batch(self._name, self._seq, self._clock.now_ms(), tuple(events))
                try:
                    began_s = self._clock.monotonic_s()
                    appended = await self._follower.log.append(batch, epoch=epoch, fence=fence)
                    self._follower.writes.taken()
                    self._metrics.append_seconds.observe(self._clock.monotonic_s() - began_s)
                    self._metrics.appends.labels("duplicate" if appended.duplicate else "ok").inc()
                    self._count(events)
                    self._follower.fold_own(batch, appended, epoch=epoch)
                    return appended
                except LogUnavailable as problem:
                    self._follower.writes.failed(problem)
                    self._metrics.appends.labels("unavailable").inc()
                    await backoff.wait()
                except WatchSuperseded:
                    self._metrics.appends.labels("superseded").inc()
                    raise
                except ClockOff:
                    self._metrics.appends.labels("clock").inc()
                    refused += 1
                    if refused > _LATE_TRIES:
                        raise
                    await backoff.wait()
                except EpochLost as problem:
                    self._metrics.appends.labels("lost").inc()
                    await self._begin_epoch(epoch, str(problem))
                    raise

    def _count(self, events: Sequence[Event]) -> None:
        for event in events:
            self._metrics.events.labels(kind_of(event)).inc()

    async def _begin_epoch(self, lost: int, reason: str) -> None:
        """Begin the next epoch unless one has begun. The fold doesn't notice the loss of a tail that it hadn't folded,
        so a role that waits for the end of the epoch would wait forever."""
        backoff = Backoff(self._clock)
        while True:
            try:
                await self._follower.begin_epoch(lost, reason)
                return
            except (LogUnavailable, ClockOff):
                await backoff.wait()

    async def append_and_fold(self, events: Sequence[Event], *, fence: Fence | None = None) -> Appended:
        """Append, then wait until this process has folded it. Raises what `append` raises."""
        epoch = self._follower.state.epoch
        appended = await self.append(events, fence=fence)
        if not await self._follower.folded(epoch, appended.last):
            raise EpochLost(f"epoch {epoch} ended while offset {appended.last} was awaited")
        return appended
