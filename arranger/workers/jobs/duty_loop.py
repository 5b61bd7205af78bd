"""The side thread in which rq's worker runs the jobs of a duty.

The worker is synchronous. A function of its jobs passes a coroutine to the event loop, and waits. rq's bookkeeping
stays in the side thread, so a slow Redis delays these jobs and nothing else.
"""

import asyncio
import concurrent.futures
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from arranger.clock import Clock, SystemClock
from arranger.events.log_keys import LogKeys
from arranger.events.redis_connection import sync_client
from arranger.workers.jobs.duty_worker import DutyWorker
from arranger.workers.jobs.table_jobs import Duty, Form, NoJob

_LOOK_S, _LONGEST_WAIT_S = 0.05, 5.0
#: Time for the worker to finish its blocking pop and to remove its name from Redis.
_GOODBYE_S = 2.0
#: Dropped jobs are logged at most this often, in seconds.
_TELL_DROPPED_S = 60.0


class DutyLoop(ABC):
    """Runs rq's worker on some queues in a side thread, with `functions` for the event loop `loop`."""

    def __init__(
        self,
        redis_url: str,
        *,
        cluster: str,
        member_id: str,
        queues: Mapping[str, str],
        functions: Mapping[Form, Callable[..., None]],
        loop: asyncio.AbstractEventLoop,
        dropped: Callable[[str], None],
        keys: LogKeys,
        clock: Clock | None,
    ) -> None:
        """Earlier `queues` have precedence, `keys` check the jobs, and `clock` their age: while it raises `ClockOff`
        none is taken, so that others take them. `dropped(queue's word)` is called in the side thread for each job that
        is none of ours. Raises `UsageError` for an unusable URL.
        """
        self._connection = sync_client(redis_url)
        self._loop, self._dropped = loop, dropped
        #: Jobs dropped since the last log line about them, and the time of that line.
        self._untold, self._told_dropped_s = 0, -_TELL_DROPPED_S
        self._stopping = threading.Event()
        self._running: concurrent.futures.Future[Any] | None = None
        self._duty = Duty(
            cluster=cluster, keys=keys, clock=clock or SystemClock(), stopping=self._stopping, dropped=self._drop,
            queues=queues, functions=functions,
        )  # fmt: skip
        self._thread = threading.Thread(target=self._work, args=[member_id], name=type(self).__name__, daemon=True)

    def start(self) -> None:
        """Begin to work; Redis need not be reachable yet."""
        self._thread.start()

    async def stop(self, *, drain_s: float = 10.0) -> None:
        """Take no further job; a running one gets `drain_s` seconds to end and is then cancelled.

        Without a running one it takes about two seconds, whatever Redis does: a hanging one may block the thread
        longer, but that is a daemon and begins nothing.
        """
        self._stopping.set()
        asked_s = handled_s = time.monotonic()
        while self._thread.is_alive() and time.monotonic() < handled_s + _GOODBYE_S:
            if running := self._running:
                handled_s = time.monotonic()
                if handled_s > asked_s + drain_s:
                    running.cancel()
            await asyncio.sleep(_LOOK_S)

    def begin(self, coroutine: Coroutine[Any, Any, Any]) -> "concurrent.futures.Future[Any]":
        """In the side thread: start a job's work on the event loop. `end` must follow. Raises `CancelledError` at a
        stop, `RuntimeError` if the event loop is closed: the process ends."""
        if self._stopping.is_set():  # since the job was taken
            coroutine.close()
            raise concurrent.futures.CancelledError
        try:
            self._running = future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError:
            coroutine.close()
            raise
        return future

    def end(self) -> None:
        self._running = None

    def _work(self, member_id: str) -> None:
        """The side thread: run an rq worker, and a new one whenever it ends, until stopped."""
        wait_s, level = 0.1, logging.getLevelName(max(logging.WARNING, logging.root.level))
        while not self._stopping.is_set():
            began_s = time.monotonic()
            try:
                DutyWorker.of(self._duty, self._connection, member_id).work(logging_level=level)
            except Exception as problem:
                if wait_s < _LONGEST_WAIT_S:
                    self._tell_unfetched(problem)
            finally:
                self._connection.close()
            if time.monotonic() - began_s > _LONGEST_WAIT_S:
                wait_s = 0.1
            self._stopping.wait(wait_s)
            wait_s = min(wait_s * 2, _LONGEST_WAIT_S)

    def _drop(self, word: str, problem: NoJob) -> None:
        """In the side thread: count a job that is none of ours, and log such jobs at most once a minute."""
        self._dropped(word)
        self._untold += 1
        now_s = time.monotonic()
        if now_s - self._told_dropped_s < _TELL_DROPPED_S:
            return
        self._tell_dropped(word, fault=problem.fault, named=problem.named, dropped=self._untold)
        self._untold, self._told_dropped_s = 0, now_s

    @abstractmethod
    def _tell_unfetched(self, problem: Exception) -> None:
        """Log that the worker ended with a problem, and is started again."""

    @abstractmethod
    def _tell_dropped(self, word: str, **about: object) -> None:
        """Log jobs that are none of ours, and were dropped from the queue that is told as `word`."""
