"""Time, as something that is handed in: everything in the workers that waits or stamps asks a `Clock`.

A real process gets the `SystemClock`; a simulation drives the same code on a clock of its own.
"""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """What workers know of time."""

    def now_ms(self) -> int:
        """Wall clock, milliseconds since 1970 UTC. It may jump, and differs between machines.

        A clock that is compared with the log's server (`Timekeeper`) raises `ClockOff` while it is off.
        """
        ...

    def monotonic_s(self) -> float:
        """Seconds since some fixed moment; never goes back. For durations and deadlines of this process."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait without blocking the event loop; 0 lets other tasks run."""
        ...


def wall_clock_ms() -> int:
    """What this machine's clock says, milliseconds since 1970 UTC."""
    return time.time_ns() // 1_000_000


class SystemClock:
    """The clock of the machine that we run on."""

    def now_ms(self) -> int:
        return wall_clock_ms()

    def monotonic_s(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
