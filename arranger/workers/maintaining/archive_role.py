"""The part of maintenance that archives: one process of a cluster at a time, once enough events have accumulated.

It runs beside the ticks, because a slow archive must not delay a scheduling cycle. The archiving process holds a lease,
which only avoids double work. Events that can't be archived stay in the log (`Maintenance` trims only archived events).
"""

import logging
from collections.abc import Sequence
from contextlib import aclosing

from arranger.errors import LogError
from arranger.events.codec import StoredEntry
from arranger.events.log import Position, StoredSnapshot
from arranger.logs import log_event
from arranger.projections import snapshot
from arranger.workers.log.archive_writer import ArchiveWriter
from arranger.workers.members.problems import ProblemKind
from arranger.workers.parts import Parts

_log = logging.getLogger(__name__)

PERIOD_S = 5.0
#: The delay after a failure is longer, because each try reads and packs a segment.
AGAIN_S = 30.0
#: Failures over this time are reported as a problem: they are no longer likely to be temporary.
_FAILING_S = 120.0


class ArchiveRole:
    """Archives the events beyond the archive's end: after a number of events, or after a time if any exist."""

    def __init__(self, parts: Parts, archive_writer: ArchiveWriter) -> None:
        self._archive_writer = archive_writer
        self._problems = parts.problems
        self._follower = parts.follower
        self._stream = parts.stream
        self._lease = parts.lease("archive")
        self._clock = parts.clock
        self._metrics = parts.metrics
        self._settings = parts.settings
        self._began_ms = parts.clock.now_ms()
        #: The epoch in which the ended epochs were last checked.
        self._looked_back = 0
        self._succeeded_s = parts.clock.monotonic_s()
        self._failed = False
        #: Since when another process has had the lease, as far as is known here.
        self._refused_since_s: float | None = None
        parts.metrics.archive_age.set_function(lambda: self._age_s)

    async def run(self) -> None:
        while True:
            await self._clock.sleep(PERIOD_S if await self.once() else AGAIN_S)

    async def once(self) -> bool:
        """One round; returns False if it failed, which is logged and counted."""
        try:
            if await self._lease.acquire():
                self._refused_since_s = None
                await self._old_epochs()
                await self._present()
            elif self._may_fail_elsewhere():
                return True
        except (LogError, FileNotFoundError) as problem:
            self._metrics.archiving.labels("failed").inc()
            self._failed = True
            self._tell(str(problem))
            log_event(_log, "archiving failed, trying again", level=logging.WARNING, problem=problem)
            return False
        self._succeeded_s = self._clock.monotonic_s()
        self._failed = False
        self._tell("")
        return True

    def _may_fail_elsewhere(self) -> bool:
        """After a failure here, whether the process with the lease may fail as well. That one waits between its rounds,
        so its lease ends, and the processes fail in turn. One that keeps it archives, or tells of its failure."""
        now_s = self._clock.monotonic_s()
        if self._refused_since_s is None:
            self._refused_since_s = now_s
        return self._failed and now_s - self._refused_since_s < AGAIN_S + self._settings.lease_s

    @property
    def _age_s(self) -> float:
        """Seconds since a round last succeeded, or left the work to another process."""
        return max(0.0, self._clock.monotonic_s() - self._succeeded_s)

    def _tell(self, cause: str) -> None:
        """Report a problem because the log grows. The process stays ready: stopping it would not help."""
        there = bool(cause) and self._age_s >= _FAILING_S
        self._problems.tell(ProblemKind.ARCHIVE, there, cause=cause, since_s=self._age_s)

    async def _present(self) -> None:
        epoch = self._follower.state.epoch
        contents = await self._archive_writer.contents(epoch)
        done = contents.segments[-1] if contents.segments else None
        archived = done.last if done is not None else 0
        self._metrics.archived.set(archived)
        position = self._follower.position
        since_ms = done.last_time_ms if done is not None else self._began_ms
        late = self._clock.now_ms() - since_ms >= self._settings.archive_every_s * 1000
        if position.epoch != epoch or position.offset - archived < (1 if late else self._settings.archive_every_events):
            return
        newest = StoredSnapshot(position, snapshot.encode(self._follower.state))
        begin = await self._begin(epoch)

        async def read(after: Position, limit: int) -> Sequence[StoredEntry]:
            return await self._stream.read_stored(after, limit=limit)

        async with aclosing(self._archive_writer.archive(read, begin, position.offset, newest)) as puts:
            async for put in puts:
                self._metrics.archived.set(put.position.offset)
                self._metrics.archived_bytes.inc(put.size)
        self._metrics.archiving.labels("ok").inc()

    async def _begin(self, epoch: int) -> Position:
        """The position where the next segment begins: the archive's end, or the log's start if that is later."""
        start = await self._stream.start()
        end = await self._archive_writer.end(epoch)
        if end is None or start.offset > end.offset:
            if start.offset:
                lacking = f"{end.offset + 1 if end is not None else 1}-{start.offset}"
                log_event(_log, "the archive has a gap", level=logging.WARNING, offsets=lacking)
            return start
        return end

    async def _old_epochs(self) -> None:
        """Archive, once, the ended epochs whose streams still exist."""
        epoch = self._follower.state.epoch
        if self._looked_back == epoch:
            return
        for old in await self._stream.old_epochs():
            before, last = await self._stream.old_end(old)
            begin = await self._archive_writer.end(old) or Position(old, 0, "")
            if begin.offset < before:
                log_event(_log, "an old epoch can't be archived", level=logging.WARNING, epoch=old, trimmed=before)
            elif begin.offset < last:
                async for put in self._archive_writer.archive(self._stream.read_old, begin, last):
                    self._metrics.archived_bytes.inc(put.size)
        self._looked_back = epoch
