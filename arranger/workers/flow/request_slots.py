"""The requests that a process has in flight at once, shared among namespaces.

A busy API server takes as long for each request as for all that are in flight. So it isn't enough that namespaces get
their slots in turn: the requests of one with much to do must also be few, or the single request of another one lasts as
long as all of those. A namespace has all slots only while no other one has requests.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager

from arranger.clock import Clock
from arranger.workers.flow.turns import Turns

#: While several namespaces have requests, each has at most this part of the slots.
_PART = 8
#: With more than this part of its slots free, a process is idle.
_MOST = 0.75
#: Namespaces share the slots until this long after another one than before had a request.
_SHARED_S = 60.0


class RequestSlots:
    """A number of slots. A request that gets none at once waits for its namespace's turn."""

    def __init__(self, clock: Clock, slots: int) -> None:
        self._clock = clock
        self._free = self._slots = slots
        #: The slots that each namespace has now, and the requests that wait for one.
        self._held: dict[Hashable, int] = {}
        self._waiting: Turns[asyncio.Future[None], str] = Turns()
        #: The namespace of the last request, and until when there is more than one.
        self._last: str | None = None
        self._shared_until_s = -math.inf

    @property
    def idle(self) -> bool:
        """Whether most of the slots are free."""
        return self._free > self._slots * _MOST

    @asynccontextmanager
    async def slot(self, namespace: str) -> AsyncIterator[None]:
        """A slot for one request of a namespace, once it has its turn."""
        if self._last not in (None, namespace):
            self._shared_until_s = self._clock.monotonic_s() + _SHARED_S
        self._last = namespace
        await self._take(namespace)
        try:
            yield
        finally:
            self._give_back(namespace)

    async def _take(self, namespace: str) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.put(namespace, turn, namespace)
        self._give_turns()
        try:
            await turn
        except asyncio.CancelledError:
            if turn in self._waiting:
                self._waiting.drop(turn)
            elif not turn.cancelled():
                self._give_back(namespace)
            raise

    def _give_back(self, namespace: str) -> None:
        self._free += 1
        self._held[namespace] -= 1
        if not self._held[namespace]:
            del self._held[namespace]
        self._give_turns()

    def _give_turns(self) -> None:
        """Give the free slots to those that wait, as far as their namespaces may have more."""
        shared = self._clock.monotonic_s() < self._shared_until_s
        most = max(self._slots // _PART, 1) if shared else self._slots
        while self._free and (next_one := self._waiting.take(lambda lane: self._held.get(lane, 0) < most)) is not None:
            turn, namespace = next_one
            if turn.done():  # cancelled, and its task doesn't know yet
                continue
            self._free -= 1
            self._held[namespace] = self._held.get(namespace, 0) + 1
            turn.set_result(None)
