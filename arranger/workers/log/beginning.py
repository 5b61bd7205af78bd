"""The position where a process begins to fold: the newest usable snapshot, or the start of the log.

A snapshot may be damaged, or of another version. Then an older one is tried, as long as the log still has the entries
after it. If no snapshot is usable, the cause matters. A snapshot of a later version shows that the later version runs,
or ran, and can read the history: then an earlier version must not end the epoch. If no version can read the snapshots,
the history is lost, and the cluster itself is the source of a new epoch (architecture: adoption).
"""

import logging
from collections.abc import Awaitable, Callable

from arranger.errors import DamagedEntry, LogError
from arranger.events.log import Log, Position, StoredSnapshot
from arranger.logs import log_event
from arranger.projections import snapshot
from arranger.projections.state import State

_log = logging.getLogger(__name__)


class HistoryGone(LogError):
    """The log's start was trimmed, and the log has no usable snapshot. `start` is its present start, `cluster` the
    cluster it belongs to, if that could be read."""

    def __init__(self, start: Position, cluster: str) -> None:
        super().__init__(f"no usable snapshot for a log trimmed up to offset {start.offset}")
        self.start = start
        self.cluster = cluster


class LaterVersionAtWork(LogError):
    """The log's start was trimmed, and only a later version can read the remaining history."""

    def __init__(self, start: Position, newest: snapshot.NewerSnapshot) -> None:
        super().__init__(
            f"only a later version can go on with this log: it was trimmed up to offset {start.offset}, and {newest}",
            hint="run that version; docs/operations.md, Upgrades, says how to go back to this one",
        )


async def _restored(content: bytes) -> State:
    return snapshot.restore(content)


async def find_beginning(log: Log, restore: Callable[[bytes], Awaitable[State]] = _restored) -> tuple[State, Position]:
    """The state to begin with and its position. `restore` makes the state of a snapshot's content. Raises
    `HistoryGone`, `LaterVersionAtWork` and what `log` raises."""
    while True:
        tried = await _newest_offset(log)
        try:
            return await _beginning_now(log, restore)
        except (HistoryGone, LaterVersionAtWork):
            # The log is trimmed only behind a stored snapshot. So if a newer one than those tried exists, other
            # processes were merely faster: nothing is lost, however long this process was paused meanwhile.
            if await _newest_offset(log) <= tried:
                raise


async def beginning_before(log: Log, offset: int) -> tuple[State, Position] | None:
    """The state at the newest usable snapshot up to an offset, or at the start of the log, and its position; None if
    the log has neither. Raises what `log` raises."""
    start = await log.start()
    stored = await _newest(log, offset)
    while stored is not None and stored.position.epoch == start.epoch and stored.position.offset >= start.offset:
        try:
            return snapshot.restore(stored.content), stored.position
        except snapshot.UnusableSnapshot as problem:
            log_event(_log, "a snapshot isn't used", level=logging.WARNING, problem=problem)
            stored = await _newest(log, stored.position.offset - 1)
    return (State(epoch=start.epoch), start) if start.offset == 0 else None


async def _newest_offset(log: Log) -> int:
    """The offset of the newest snapshot, -1 if none exists."""
    marks = await log.snapshot_marks()
    return marks[-1].offset if marks else -1


async def _beginning_now(log: Log, restore: Callable[[bytes], Awaitable[State]]) -> tuple[State, Position]:
    newer: snapshot.NewerSnapshot | None = None
    cluster = ""
    stored = await _newest(log, None)
    while stored is not None:
        try:
            state = await restore(stored.content)
        except snapshot.UnusableSnapshot as problem:
            newer = problem if newer is None and isinstance(problem, snapshot.NewerSnapshot) else newer
            log_event(_log, "a snapshot isn't used", level=logging.WARNING, problem=problem)
            stored = await _newest(log, stored.position.offset - 1)
            continue
        start = await log.start()
        if start.epoch != stored.position.epoch or stored.position.offset >= start.offset:
            return state, stored.position
        cluster = state.cluster
        break  # the next entries were trimmed, behind a snapshot that is unusable or was lost with the tail
    start = await log.start()
    if start.offset == 0:
        return State(epoch=start.epoch), start
    if newer is not None:
        raise LaterVersionAtWork(start, newer)
    raise HistoryGone(start, cluster)


async def _newest(log: Log, at_most: int | None) -> StoredSnapshot | None:
    """The newest undamaged snapshot up to an offset."""
    while True:
        try:
            return await log.newest_snapshot(at_most=at_most)
        except DamagedEntry as problem:
            log_event(_log, "a snapshot isn't used", level=logging.WARNING, problem=problem)
            at_most = problem.offset - 1
