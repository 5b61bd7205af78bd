"""Maintenance: snapshots of the projection, and trimming of the log. Its tick comes through rq like the scheduler's.

While processes of an earlier release run or may start, nothing is trimmed that they need (`layout_guard`). The stream
is trimmed only up to an offset that a stored snapshot covers, every live member has folded and the archive, if any, has
reached; the newest `keep_events` events are kept in any case.
"""

import logging

from arranger.errors import EpochLost, LogUnavailable
from arranger.events.log import StoredSnapshot
from arranger.logs import log_event
from arranger.projections import snapshot
from arranger.projections.state import Changes
from arranger.workers.log.archive_writer import ArchiveWriter
from arranger.workers.maintaining.layout_guard import LayoutGuard
from arranger.workers.parts import Parts

_log = logging.getLogger(__name__)

TICK = "maintenance"
PERIOD_S = 5.0
#: The first snapshot of an epoch, or of this process, comes this soon: until then, who starts folds the whole epoch.
_FIRST_S = 30.0


class Maintenance:
    """Stores snapshots and trims when due; one tick at a time in the whole cluster."""

    def __init__(self, parts: Parts, guard: LayoutGuard, archive_writer: ArchiveWriter | None = None) -> None:
        self._follower = parts.follower
        self._membership = parts.membership
        self._clock = parts.clock
        self._metrics = parts.metrics
        self._metrics.snapshots.labels("stored")  # at 0: an alert asks whether any was stored
        self._settings = parts.settings
        self._guard = guard
        self._archive_writer = archive_writer
        #: The newest snapshot that this process stored in this epoch; it trims only behind its own snapshots.
        self._stored_offset = 0
        self._trimmed_offset = 0
        self._stored_ms = parts.clock.now_ms()

    def changed(self, changes: Changes) -> None:
        """Nothing to do: maintenance runs at its ticks only."""

    def epoch_began(self) -> None:
        """No snapshot of this epoch is known yet. Which releases run is known as before."""
        self._stored_offset = self._trimmed_offset = 0
        self._stored_ms = self._clock.now_ms()

    async def maintain(self) -> None:
        """One round: a snapshot if it is due, then trimming behind it."""
        try:
            if self._due():
                await self._snapshot()
            await self._trim()
        except (LogUnavailable, EpochLost) as problem:
            log_event(_log, "maintenance was put off", level=logging.WARNING, why=problem)

    def _due(self) -> bool:
        news = self._follower.state.offset - self._stored_offset
        if not self._follower.state.synced or news <= 0:
            return False
        passed_ms, every_s = self._clock.now_ms() - self._stored_ms, self._settings.snapshot_every_s
        after_s = every_s if self._stored_offset else min(every_s, _FIRST_S)
        return news >= self._settings.snapshot_every_events or passed_ms >= after_s * 1000

    async def _snapshot(self) -> None:
        if not await self._guard.allows(self._follower.log):
            self._metrics.snapshots.labels("waiting").inc()
            return
        position = self._follower.position
        content = snapshot.encode(self._follower.state)
        await self._follower.log.put_snapshot(StoredSnapshot(position, content))
        self._stored_offset, self._stored_ms = position.offset, self._clock.now_ms()
        self._metrics.snapshots.labels("stored").inc()
        log_event(_log, "snapshot stored", offset=position.offset, bytes=len(content))

    async def _trim(self) -> None:
        epoch = self._follower.state.epoch
        kept = self._follower.state.offset - self._settings.keep_events
        if min(self._stored_offset, kept) <= self._trimmed_offset:
            return
        slowest = await self._membership.slowest_offset(epoch)
        before = min(self._stored_offset, kept, slowest if slowest is not None else 0)
        if self._archive_writer is not None and before > self._trimmed_offset:
            archived = await self._archive_writer.end(epoch)
            before = min(before, archived.offset if archived is not None else 0)
        if before > self._trimmed_offset and await self._guard.may_trim(self._follower.log):
            self._metrics.trimmed.inc(await self._follower.log.trim(before, epoch=epoch))
            self._trimmed_offset = before
