"""Where a process begins to fold: at the newest snapshot that it can use, or at the start of the log.

A snapshot may be damaged, or of another version. Then an older one is tried, as long as the log still holds what
follows it. Where nothing is left to begin with, it matters why. A snapshot of a later version says that this version is
at work, or was, and that the history is there for whoever can read it: who can't must not end the epoch. If nobody can
read what is there, the history is gone, and the cluster itself is the source of a new epoch (architecture: adoption).
"""

import logging

from arranger.errors import DamagedEntry, LogError
from arranger.events.log import Log, Position, StoredSnapshot
from arranger.logs import log_event
from arranger.projections import snapshot
from arranger.projections.state import State

_log = logging.getLogger(__name__)


class HistoryGone(LogError):
    """The log's start was trimmed away, and it has no snapshot that can be used. `start` is where it begins now,
    `cluster` whose log it is, if that could be read."""

    def __init__(self, start: Position, cluster: str) -> None:
        super().__init__(f"no usable snapshot for a log trimmed up to offset {start.offset}")
        self.start = start
        self.cluster = cluster


class LaterVersionAtWork(LogError):
    """The log's start was trimmed away, and what is left of its history only a later version can read."""

    def __init__(self, start: Position, newest: snapshot.NewerSnapshot) -> None:
        super().__init__(
            f"only a later version can go on with this log: it was trimmed up to offset {start.offset}, and {newest}",
            hint="run that version; docs/operations.md, Upgrades, says how to go back to this one",
        )


async def find_beginning(log: Log) -> tuple[State, Position]:
    """The state to begin with and its position. Raises `HistoryGone`, `LaterVersionAtWork` and what `log` raises."""
    while True:
        tried = await _newest_offset(log)
        try:
            return await _beginning_now(log)
        except (HistoryGone, LaterVersionAtWork):
            # The log is trimmed behind a stored snapshot only, so while there is a newer one than we have tried, others
            # were merely faster than we: for however long this process was paused meanwhile, nothing is lost.
            if await _newest_offset(log) <= tried:
                raise


async def _newest_offset(log: Log) -> int:
    """The offset of the newest snapshot, -1 if there is none."""
    marks = await log.snapshot_marks()
    return marks[-1].offset if marks else -1


async def _beginning_now(log: Log) -> tuple[State, Position]:
    newer: snapshot.NewerSnapshot | None = None
    cluster = ""
    stored = await _newest(log, None)
    while stored is not None:
        try:
            state = snapshot.restore(stored.content)
        except snapshot.UnusableSnapshot as problem:
            newer = problem if newer is None and isinstance(problem, snapshot.NewerSnapshot) else newer
            log_event(_log, "a snapshot isn't used", level=logging.WARNING, problem=problem)
            stored = await _newest(log, stored.position.offset - 1)
            continue
        start = await log.start()
        if start.epoch != stored.position.epoch or stored.position.offset >= start.offset:
            return state, stored.position
        cluster = state.cluster
        break  # what follows it was trimmed away, behind one that can't be used or that a lost tail took along
    start = await log.start()
    if start.offset == 0:
        return State(epoch=start.epoch), start
    if newer is not None:
        raise LaterVersionAtWork(start, newer)
    raise HistoryGone(start, cluster)


async def _newest(log: Log, at_most: int | None) -> StoredSnapshot | None:
    """The newest snapshot up to an offset that isn't damaged where it is kept."""
    while True:
        try:
            return await log.newest_snapshot(at_most=at_most)
        except DamagedEntry as problem:
            log_event(_log, "a snapshot isn't used", level=logging.WARNING, problem=problem)
            at_most = problem.offset - 1
