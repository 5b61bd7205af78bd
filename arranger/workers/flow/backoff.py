"""Growing waits after repeated failures, up to a limit, randomized so that processes don't retry in step."""

import random

from arranger.clock import Clock


class Backoff:
    """0.1 s at first, doubling up to 10 s, each wait shortened at random by up to half."""

    def __init__(self, clock: Clock, *, first_s: float = 0.1, longest_s: float = 10.0) -> None:
        self._clock = clock
        self._first_s = first_s
        self._longest_s = longest_s
        self._next_s = first_s
        # Seeded from the system: it only affects when something happens, never what is decided.
        self._random = random.Random()

    def reset(self) -> None:
        """Return to the first wait, after a success."""
        self._next_s = self._first_s

    def next_s(self) -> float:
        """The wait in seconds; the next one is longer."""
        wait_s = self._next_s * self._random.uniform(0.5, 1.0)
        self._next_s = min(2 * self._next_s, self._longest_s)
        return wait_s

    async def wait(self) -> None:
        await self._clock.sleep(self.next_s())
