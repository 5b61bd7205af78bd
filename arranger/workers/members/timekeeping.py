"""The offset of this machine's clock from that of the log's server, known at any moment without a request.

Every heartbeat brings the server's time. It is stored relative to this machine's monotonic clock, so a jump of the wall
clock between two heartbeats is noticed at once. A process whose clock is off by more than the bound must not write:
every reader uses the time of an entry, and an effect that falls due by time alone would come at a wrong time.
"""

from arranger.clock import Clock
from arranger.errors import ClockOff

#: A reply that took longer than this says less about the server's time than an earlier one.
_TRIP_S = 1.0


class Timekeeper:
    """A `Clock` that knows whether it is right. It raises `ClockOff` instead of giving a wrong time."""

    def __init__(self, clock: Clock, *, bound_ms: int) -> None:
        self._clock = clock
        self._bound_ms = bound_ms
        #: Minimum and maximum difference between the server's time and this machine's monotonic clock, milliseconds.
        self._between: tuple[float, float] | None = None

    def server_said(self, server_ms: int, *, asked_s: float) -> None:
        """Record the server's time from a reply that has just arrived to a request of monotonic time `asked_s`."""
        heard_s = self._clock.monotonic_s()
        found = (server_ms - heard_s * 1000, server_ms - asked_s * 1000)
        known = self._between
        # A process that was paused reads a reply late. A server with another clock (a failover) is believed at once.
        if known is None or heard_s - asked_s <= _TRIP_S or found[0] > known[1] or found[1] < known[0]:
            self._between = found

    def offset_ms(self) -> int | None:
        """By how much the wall clock is at least ahead of the server's (negative: behind); None before any reply."""
        if self._between is None:
            return None
        wall_ms = self._clock.now_ms() - self._clock.monotonic_s() * 1000
        least, most = wall_ms - self._between[1], wall_ms - self._between[0]
        return round(max(least, min(0.0, most)))

    @property
    def right(self) -> bool:
        """Whether the wall clock is known to be within the bound."""
        offset_ms = self.offset_ms()
        return offset_ms is not None and abs(offset_ms) <= self._bound_ms

    def now_ms(self) -> int:
        """Wall clock, milliseconds since 1970 UTC. Raises `ClockOff` when it isn't known to be within the bound."""
        if not self.right:
            raise ClockOff(self.offset_ms())
        return self._clock.now_ms()

    def monotonic_s(self) -> float:
        return self._clock.monotonic_s()

    async def sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
