"""Whether a snapshot may be stored now, and the log trimmed behind it: not while processes run, or may start, that need
one which they can read.

During a rolling upgrade, processes of two releases share one log. A process of the earlier release that starts then
needs a snapshot that it can read, or a log that still begins at its first event. So in such a log, as that of a fresh
installation or of a new epoch, a snapshot may be stored at once, and only trimming waits. In any other it is enough
that no process stores one of a later layout, because the log is trimmed only behind snapshots. The members report the
layout that they read. A process that is just starting isn't a member yet, so some time must pass after the last one was
seen.
"""

import math
from collections.abc import Sequence

from arranger.errors import DamagedEntry
from arranger.events.log import Log
from arranger.projections.formats.layouts import UnusableSnapshot, layout_of
from arranger.workers.members.problems import ProblemKind
from arranger.workers.parts import Parts


class LayoutGuard:
    """Checks before each snapshot, and reports a problem when the wait is longer than an upgrade should take.

    `grace_s`: after this many seconds without a process of an earlier release, no more of them are expected to start.
    """

    def __init__(self, parts: Parts) -> None:
        self._members = parts.membership
        self._clock = parts.clock
        self._problems = parts.problems
        self.grace_s: float = parts.settings.upgrade_grace_s
        #: When a process of an earlier release last ran, or may have run; None before the first check.
        self._seen_s: float | None = None
        self._waits_since_s = math.inf

    async def allows(self, log: Log) -> bool:
        """Whether a snapshot may be stored: every process that runs or may start can read it, or needs none. Raises the
        errors of the log."""
        older = await self._older(log)
        now_s = self._clock.monotonic_s()
        allowed = not older and (self._passed(now_s) or (await log.start()).offset == 0)
        self._waits_since_s = math.inf if allowed else min(self._waits_since_s, now_s)
        self._tell(older, now_s)
        return allowed

    async def may_trim(self, log: Log) -> bool:
        """Whether every process that runs or may start can read our snapshots. Raises the errors of the log."""
        return not await self._older(log) and self._passed(self._clock.monotonic_s())

    def _passed(self, now_s: float) -> bool:
        """Whether no process of an earlier release is expected to start any more."""
        return self._seen_s is not None and now_s - self._seen_s >= self.grace_s

    async def _older(self, log: Log) -> list[str]:
        """The processes of an earlier release that run; notes when one was last seen."""
        older = [member.id for member in await self._members.live() if member.layout < self._members.layout]
        now_s = self._clock.monotonic_s()
        if older:
            self._seen_s = now_s
        elif self._seen_s is None:
            # One may have run a moment ago, unless this release has already trimmed the log behind its snapshot.
            self._seen_s = -math.inf if await self._goes_on_from_ours(log) else now_s
        return older

    async def _goes_on_from_ours(self, log: Log) -> bool:
        """Whether the log can be read only from a snapshot of this release on."""
        try:
            if (await log.start()).offset == 0:
                return False
            stored = await log.newest_snapshot()
            return stored is not None and layout_of(stored.content) >= self._members.layout
        except (UnusableSnapshot, DamagedEntry):
            return False

    def _tell(self, older: Sequence[str], now_s: float) -> None:
        waits_s = now_s - self._waits_since_s
        there = bool(older) and waits_s >= self.grace_s
        self._problems.tell_one(ProblemKind.SNAPSHOTS_WAIT, older[0] if there else None, since_s=max(0.0, waits_s))
