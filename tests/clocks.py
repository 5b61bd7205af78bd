"""A wall clock that tests set, and one that was compared with a server whose clock is right."""

import asyncio

from arranger.clock import SystemClock
from arranger.workers.members.timekeeping import Timekeeper

HOUR_MS = 3_600_000


class SetClock(SystemClock):
    """A wall clock that is ahead by a set time; it sleeps only briefly."""

    ahead_ms = 0

    def now_ms(self) -> int:
        """Wall clock, milliseconds since 1970."""
        return super().now_ms() + self.ahead_ms

    async def sleep(self, seconds: float) -> None:
        """Wait, but not for long."""
        await asyncio.sleep(min(seconds, 0.01))


def compared(clock: SetClock, *, bound_ms: int = 10_000) -> Timekeeper:
    """The timekeeper of a process after its first heartbeat."""
    timekeeper = Timekeeper(clock, bound_ms=bound_ms)
    timekeeper.server_said(SystemClock().now_ms(), asked_s=clock.monotonic_s())
    return timekeeper
