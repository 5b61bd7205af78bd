"""The work queue of a role: which keys it looks at next.

A key is looked at when it was touched, when a planned time has come, and periodically in any case: shares change, and
an effect may have been lost. The work on one key never runs twice at once. Namespaces get turns, and in each of them
the keys that were touched and those of the sweep: many keys of one namespace delay those of another one little. A sweep
over many keys is spread over the time until the next one, and over more time for more than 2,500 of them.
"""

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Iterator
from contextlib import suppress
from typing import Any

from arranger.clock import Clock
from arranger.workers.flow.turns import Turns

#: All keys are looked at this often, unless they are very many.
SWEEP_S = 5.0
#: So many keys of a sweep at once: looks at 10,000 would keep all other tasks waiting for a second. The parts of a
#: sweep are this far apart at least, or looks in which nothing is new would take a third of a processor's time.
_SWEPT_AT_ONCE, _SWEPT_APART_S = 50, 0.1


class KeyQueue:
    """The keys of one role. `all_keys` returns every existing key; the queue calls it once in a sweep. `namespace_of`
    says in whose turns a key is looked at.

    `passed` is told of the time that looks have waited or run since it was last told, in seconds, summed over them, in
    each part of a sweep. By Little's law, its increase in a second is the mean number of such looks.
    """

    def __init__(
        self,
        clock: Clock,
        all_keys: Callable[[], Collection[str]],
        *,
        namespace_of: Callable[[str], str] = lambda _: "",
        passed: Callable[[float], None] = lambda _: None,
    ) -> None:
        self._clock = clock
        self._all_keys = all_keys
        self._namespace_of = namespace_of
        self._passed = passed
        #: The looks that waited or ran at a time, and their seconds since `passed` was told.
        self._looks, self._counted_s, self._look_s = 0, clock.monotonic_s(), 0.0
        self._touched: Turns[str, None] = Turns()
        #: The keys that were touched while the work on them ran.
        self._again: dict[str, None] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        #: Key → when it is looked at again, in `monotonic_s`. The heap has these times, and outdated ones.
        self._planned: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []
        self._sweep_at_s = clock.monotonic_s() + SWEEP_S
        #: The keys that the present sweep has still to touch, the time of the next ones, and the time between.
        self._unswept: deque[str] = deque()
        self._next_swept_s, self._swept_apart_s = 0.0, 0.0
        self._woken = asyncio.Event()

    @property
    def pending(self) -> bool:
        return bool(self._touched or self._again)

    def touch(self, keys: Collection[str], *, swept: bool = False) -> None:
        """Look at these keys in their turns, or when the work on them has ended."""
        for key in keys:
            if key in self._running:
                self._again[key] = None
            elif not (swept and key in self._touched):
                self._touched.put((self._namespace_of(key), swept), key, None)
        self._count()
        if keys:
            self._woken.set()

    def look_again(self, key: str, after_s: float) -> None:
        """Look at a key after this delay, or earlier if that is already planned."""
        due_s = self._clock.monotonic_s() + after_s
        planned_s = self._planned.get(key)
        if planned_s is None or due_s < planned_s:
            self._planned[key] = due_s
            heapq.heappush(self._heap, (due_s, key))
            self._woken.set()  # the wait may end sooner now

    def sweep(self) -> None:
        """Begin to touch every key, and drop the plans for keys that no longer exist."""
        keys = dict.fromkeys(self._all_keys())
        for key in self._planned.keys() - keys:
            del self._planned[key]
        if len(self._heap) > 2 * len(self._planned):  # half of the times are outdated, or more
            self._heap = [(due_s, key) for key, due_s in self._planned.items()]
            heapq.heapify(self._heap)
        self._unswept, parts = deque(keys), max(-(-len(keys) // _SWEPT_AT_ONCE), 1)
        self._swept_apart_s = max(SWEEP_S / parts, _SWEPT_APART_S)
        self._sweep_at_s = self._clock.monotonic_s() + parts * self._swept_apart_s
        self._sweep_on()

    def _sweep_on(self) -> None:
        """Touch the next keys of the sweep."""
        self._count()
        self._passed(self._look_s)
        self._look_s = 0.0
        self._next_swept_s = self._clock.monotonic_s() + self._swept_apart_s
        self.touch([self._unswept.popleft() for _ in range(min(len(self._unswept), _SWEPT_AT_ONCE))], swept=True)

    def clear(self) -> None:
        """Forget every key. Running work continues."""
        self._touched.clear()
        self._again.clear()
        self._planned.clear()
        self._heap.clear()
        self._unswept.clear()
        self._count()

    def take(self, at_most: int = 1_000_000) -> Iterator[str]:
        """Take the keys to look at, one by one; after `at_most` of them, other tasks should run before the next ones.
        A key stays while the work on it runs."""
        self._touch_due()
        try:
            for _ in range(min(len(self._touched), at_most)):
                taken = self._touched.take()
                assert taken is not None
                yield taken[0]
        finally:
            self._count()
            if self._touched:
                self._woken.set()

    def start(self, key: str, work: Coroutine[Any, Any, None], *, name: str) -> None:
        """Run the work on a key that was taken."""
        task = self._running[key] = asyncio.create_task(work, name=name)
        task.add_done_callback(lambda _: self._ended(key))
        self._count()

    def _ended(self, key: str) -> None:
        del self._running[key]
        self._count()
        if key in self._again:
            del self._again[key]
            self.touch([key])

    async def wait(self) -> None:
        """Wait until there may be a key to take. Other tasks run in any case."""
        self._touch_due()
        if self._woken.is_set():
            await self._clock.sleep(0)
        while not self._woken.is_set():
            sweeps_at_s = self._next_swept_s if self._unswept else self._sweep_at_s
            until_s = min(self._heap[0][0], sweeps_at_s) if self._heap else sweeps_at_s
            with suppress(TimeoutError):
                async with asyncio.timeout(until_s - self._clock.monotonic_s()):
                    await self._woken.wait()
            self._touch_due()
        self._woken.clear()

    async def finish(self) -> None:
        await asyncio.gather(*self._running.values(), return_exceptions=True)

    def _count(self) -> None:
        """Note how many looks wait or run from now on."""
        now_s = self._clock.monotonic_s()
        self._look_s += (now_s - self._counted_s) * self._looks
        self._looks, self._counted_s = len(self._touched) + len(self._again) + len(self._running), now_s

    def _touch_due(self) -> None:
        now_s = self._clock.monotonic_s()
        while self._heap and self._heap[0][0] <= now_s:
            due_s, key = heapq.heappop(self._heap)
            if self._planned.get(key) == due_s:
                del self._planned[key]
                self.touch([key])
        if self._unswept:
            if now_s >= self._next_swept_s:
                self._sweep_on()
        elif now_s >= self._sweep_at_s:
            self.sweep()
