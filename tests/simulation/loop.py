"""An asyncio event loop on a virtual clock: it never waits, and one seed decides the order of all callbacks.

When no callback is ready, time jumps to the next timer; which of the ready callbacks runs next is drawn. Every callback
belongs to an `Owner` (a simulated process), through the context in which it was scheduled. Callbacks of a dead owner
are dropped at once, as after kill -9; those of a paused one wait until it resumes, as after SIGSTOP.
"""

import asyncio
import heapq
import itertools
import random
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any


class Owner:
    """A unit with its own callbacks, which can be killed or paused as a whole."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.dead = False
        self.paused = False
        self.held: list[asyncio.Handle] = []
        self._tasks: list[asyncio.Task[Any]] = []
        self._look_at = 64

    def add(self, task: asyncio.Task[Any]) -> None:
        self._tasks.append(task)
        if len(self._tasks) >= self._look_at:
            self._look_at = max(64, 2 * len(self.running()))

    def running(self) -> list[asyncio.Task[Any]]:
        """The owner's running tasks, in the order of their beginning."""
        self._tasks = [task for task in self._tasks if not task.done()]
        return self._tasks

    def context(self) -> Context:
        """A context in which everything that is scheduled belongs to this owner."""
        context = copy_context()
        context.run(_OWNER.set, self)
        return context


_OWNER: ContextVar[Owner | None] = ContextVar("owner", default=None)


class _Task(asyncio.Task[Any]):
    """A task whose hash is its number: asyncio keeps tasks in sets, whose order must not follow addresses."""

    _numbers = itertools.count()

    def __init__(self, *args: Any, **more: Any) -> None:
        self.number = next(_Task._numbers)
        context = more.get("context")
        self.owner: Owner | None = context.get(_OWNER) if context is not None else _OWNER.get()
        super().__init__(*args, **more)
        if self.owner is not None:
            self.owner.add(self)

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        return self is other


def _task(loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any], **more: Any) -> _Task:
    return _Task(coro, loop=loop, **more)


class VirtualLoop(asyncio.BaseEventLoop):
    """One thread, no file descriptors, no waiting. `time()` begins at 1000 s."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        _Task._numbers = itertools.count()
        self._random = chance.random
        self._now_s = 1000.0
        self._ready: list[asyncio.Handle] = []  # type: ignore[assignment]
        #: (time, sequence number, handle).
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._timer_numbers = itertools.count()
        #: Called after each callback; may raise to end the run.
        self.after_each: Callable[[], None] = lambda: None
        self.turns = 0
        #: After how many seconds the next result of a side thread comes.
        self.thread_takes_s: Callable[[], float] = lambda: 0.0
        self.set_task_factory(_task)  # type: ignore[arg-type]

    def time(self) -> float:
        """Virtual seconds."""
        return self._now_s

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> asyncio.Handle:
        """As asyncio's, reduced to one thread's needs, because it is called ten times for each step."""
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_at(self, when: float, callback: Any, *args: Any, context: Context | None = None) -> asyncio.TimerHandle:
        """As asyncio's."""
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        timer._scheduled = True
        heapq.heappush(self._timers, (when, next(self._timer_numbers), timer))
        return timer

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """The work of a side thread is done at once, and its result comes after a while."""
        future, result, problem = self.create_future(), None, None
        try:
            result = func(*args)
        except Exception as raised:  # it belongs to whoever awaits the result
            problem = raised

        def comes() -> None:
            if future.done():
                return  # nobody awaits it any more
            if problem is not None:
                future.set_exception(problem)
            else:
                future.set_result(result)

        self.call_later(self.thread_takes_s(), comes)
        return future

    def resume(self, owner: Owner) -> None:
        """Resume a paused owner, with all callbacks that became due meanwhile."""
        owner.paused = owner.dead = False
        self._ready.extend(owner.held)
        owner.held.clear()

    def kill(self, owner: Owner) -> None:
        """Drop all callbacks of this owner, present and future."""
        owner.dead = True

    def _run_once(self) -> None:
        if not self._ready:
            self._jump()
        ready = self._ready
        if not ready:
            raise RuntimeError("the simulation has nothing to do any more")
        at = int(self._random() * len(ready)) if len(ready) > 1 else 0
        handle = ready[at]
        ready[at] = ready[-1]
        ready.pop()
        if handle._cancelled:
            return
        owner = handle._context.get(_OWNER)  # type: ignore[attr-defined]
        if owner is not None and (owner.dead or owner.paused):
            owner.held.append(handle)  # also if dead: without a reference its coroutine would be closed, and act
            return
        self.turns += 1
        handle._run()
        self.after_each()

    def _jump(self) -> None:
        """Let time pass until a timer is due; all timers of that moment become ready."""
        timers = self._timers
        while timers and timers[0][2]._cancelled:
            heapq.heappop(timers)
        if not timers:
            return
        self._now_s = now_s = max(self._now_s, timers[0][0])
        while timers and timers[0][0] <= now_s:
            timer = heapq.heappop(timers)[2]
            if not timer._cancelled:
                self._ready.append(timer)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        pass  # it is dropped when its time comes

    def _write_to_self(self) -> None:
        pass  # the loop never waits in a selector

    def _process_events(self, event_list: Any) -> None:
        raise NotImplementedError


class SimulatedClock:
    """A machine's clock: the loop's time, with a wall clock that has its own offset and can jump."""

    def __init__(self, loop: VirtualLoop, *, skew_ms: int = 0) -> None:
        self._loop = loop
        self.skew_ms = skew_ms

    def now_ms(self) -> int:
        """Wall clock, milliseconds since 1970."""
        return 1_700_000_000_000 + round(self._loop.time() * 1000) + self.skew_ms

    def monotonic_s(self) -> float:
        """Seconds since the loop's beginning."""
        return self._loop.time()

    async def sleep(self, seconds: float) -> None:
        """Wait in virtual time."""
        await asyncio.sleep(seconds)
