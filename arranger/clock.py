"""Time as a dependency: all code in the workers that waits or stamps uses a `Clock`.

A real process gets the `SystemClock`; a simulation runs the same code with a clock of its own.
"""

import asyncio
import datetime
import time
from typing import Protocol


class Clock(Protocol):
    """The workers' source of time."""

    def now_ms(self) -> int:
        """Wall clock, milliseconds since 1970 UTC. It may jump, and differs between machines.

        A clock that is compared with the log's server (`Timekeeper`) raises `ClockOff` while it is off.
        """
        ...

    def monotonic_s(self) -> float:
        """Seconds since a fixed moment; never decreases. For durations and deadlines of this process."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait without blocking the event loop; 0 lets other tasks run."""
        ...


def wall_clock_ms() -> int:
    """The wall clock of this machine, milliseconds since 1970 UTC."""
    return time.time_ns() // 1_000_000


def local_time(time_ms: int) -> str:
    """A time in local time, with milliseconds and UTC offset; "-" for 0, which means never."""
    if not time_ms:
        return "-"
    moment = datetime.datetime.fromtimestamp(time_ms / 1000, datetime.UTC).astimezone()
    return moment.isoformat(sep=" ", timespec="milliseconds")


class SystemClock:
    """The clock of the machine that we run on."""

    def now_ms(self) -> int:
        return wall_clock_ms()

    def monotonic_s(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
