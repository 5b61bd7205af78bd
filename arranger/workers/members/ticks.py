"""Ticks through rq: "run a scheduling cycle now", as jobs that rq's own worker runs in this process.

A tick is a hint. rq has no authoritative state, so a lost, late or duplicate tick is harmless. Each tick name has a
queue of its own, `arranger:<cluster>:<name>`, and at most one tick waits in it, however many processes push and however
long no worker runs. A tick that a killed worker had begun doesn't count as waiting, so it never delays the next.

The worker is synchronous. It runs in a side thread and passes each tick to a coroutine on the event loop's thread,
which has the warm projection. rq's bookkeeping stays in the side thread, so a slow Redis delays ticks and nothing else.
"""

import asyncio
import concurrent.futures
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Mapping

import redis
import redis.asyncio
import rq.queue
from redis.exceptions import RedisError

from arranger.clock import Clock, SystemClock
from arranger.errors import ClockOff
from arranger.events.log_keys import UNKEYED, LogKeys
from arranger.events.redis_connection import sync_client
from arranger.logs import log_event
from arranger.workers.flow.cancelling import end
from arranger.workers.members.tick_jobs import (
    FORGOTTEN_AFTER_S,
    FUNCTION,
    HANDLER_LIMIT_S,
    Duty,
    NoTick,
    queue_name,
    tick_job,
)
from arranger.workers.members.tick_worker import TickWorker

_log = logging.getLogger(__name__)

#: The work that a tick triggers.
Handler = Callable[[], Awaitable[None]]

_LOOK_S, _LONGEST_WAIT_S = 0.05, 5.0
#: Time for the worker to finish its blocking pop and to remove its name from Redis.
_GOODBYE_S = 2.0
#: Dropped jobs are logged at most this often, in seconds.
_TELL_DROPPED_S = 60.0

# KEYS: the queue's list, rq's set of queues, the job's hash.
# ARGV: job id, the hash's time to live in seconds, then fields and values of the hash.
_PUSH = """
if redis.call('LLEN', KEYS[1]) > 0 then
  return 0
end
redis.call('HSET', KEYS[3], unpack(ARGV, 3))
redis.call('EXPIRE', KEYS[3], ARGV[2])
redis.call('SADD', KEYS[2], KEYS[1])
redis.call('RPUSH', KEYS[1], ARGV[1])
return 1
"""


class Ticker:
    """Pushes ticks. An unavailable Redis or a wrong clock is no error here: the next period pushes again."""

    def __init__(self, client: redis.asyncio.Redis, *, cluster: str, clock: Clock, keys: LogKeys = UNKEYED) -> None:
        """`keys` sign the ticks."""
        self._keys = keys
        self._cluster = cluster
        self._clock = clock
        self._push = client.register_script(_PUSH)
        self._reachable = True
        # rq requires a synchronous client to create its records; this one never connects.
        self._unused = redis.Redis()

    async def push(self, tick: str) -> bool:
        """Put a tick into its queue unless one waits there. False: one waits already, Redis is unavailable, or our
        clock is wrong."""
        try:
            now_ms = self._clock.now_ms()
        except ClockOff:  # others would take it for an old one
            return False
        job = tick_job(self._cluster, tick, self._unused, keys=self._keys, now_ms=now_ms)
        pairs = [part for pair in job.to_dict().items() for part in pair]
        queue = rq.queue.Queue(job.origin, connection=self._unused)
        try:
            pushed = await self._push(
                keys=[queue.key, queue.redis_queues_keys, job.key], args=[job.id, FORGOTTEN_AFTER_S, *pairs]
            )
        except (RedisError, OSError) as problem:
            if self._reachable:
                log_event(_log, "a tick can't be pushed", level=logging.WARNING, tick=tick, problem=problem)
            self._reachable = False
            return False
        self._reachable = True
        return bool(pushed)

    async def run(self, tick: str, period_s: float) -> None:
        while True:
            await self.push(tick)
            await self._clock.sleep(period_s)


class TickLoop:
    """Runs rq's worker on the queues of some ticks in a side thread, and their handlers on the event loop `loop`."""

    def __init__(
        self,
        redis_url: str,
        *,
        cluster: str,
        member_id: str,
        handlers: Mapping[str, Handler],
        loop: asyncio.AbstractEventLoop,
        told: Callable[[str, str], None] = lambda tick, result: None,
        dropped: Callable[[str], None] = lambda tick: None,
        keys: LogKeys = UNKEYED,
        clock: Clock | None = None,
    ) -> None:
        """Earlier `handlers` have precedence, `keys` check the ticks, and `clock` their age: while it raises `ClockOff`
        none is taken, so that others take them.

        `told(tick, result)` is called in the side thread after each tick with `ok`, `failed`, `timeout` or `stopped`,
        `dropped(tick)` for each job in that tick's queue that is not a tick. Raises `UsageError` for an unusable URL.
        """
        self._connection = sync_client(redis_url)
        self._handlers, self._loop = dict(handlers), loop
        self._told, self._dropped = told, dropped
        #: Jobs dropped since the last log line about them, and the time of that line.
        self._untold, self._told_dropped_s = 0, -_TELL_DROPPED_S
        self._stopping = threading.Event()
        self._running: concurrent.futures.Future[None] | None = None
        self._duty = Duty(
            cluster=cluster, keys=keys, clock=clock or SystemClock(), stopping=self._stopping, dropped=self._drop,
            ticks={queue_name(cluster, tick): tick for tick in handlers}, functions={FUNCTION: self._handle},
        )  # fmt: skip
        self._thread = threading.Thread(target=self._work, args=[member_id], name="ticks", daemon=True)

    def start(self) -> None:
        """Begin to work; Redis need not be reachable yet."""
        self._thread.start()

    async def stop(self, *, drain_s: float = 10.0) -> None:
        """Take no further tick; a running handler gets `drain_s` seconds to end and is then cancelled.

        Without a running handler it takes about a second, whatever Redis does: a hanging one may block the thread
        longer, but that is a daemon and only unregisters its worker then.
        """
        self._stopping.set()
        asked_s = handled_s = time.monotonic()
        while self._thread.is_alive() and time.monotonic() < handled_s + _GOODBYE_S:
            if running := self._running:
                handled_s = time.monotonic()
                if handled_s > asked_s + drain_s:
                    running.cancel()
            await asyncio.sleep(_LOOK_S)

    def _work(self, member_id: str) -> None:
        """The side thread: run an rq worker, and a new one whenever it ends, until stopped."""
        wait_s = 0.1
        while not self._stopping.is_set():
            began_s = time.monotonic()
            try:
                TickWorker.of(self._duty, self._connection, member_id).work(logging_level="WARNING")
            except Exception as problem:
                if wait_s < _LONGEST_WAIT_S:
                    log_event(_log, "ticks can't be fetched, trying again", level=logging.WARNING, problem=problem)
            finally:
                self._connection.close()
            if time.monotonic() - began_s > _LONGEST_WAIT_S:
                wait_s = 0.1
            self._stopping.wait(wait_s)
            wait_s = min(wait_s * 2, _LONGEST_WAIT_S)

    def _drop(self, tick: str, problem: NoTick) -> None:
        """In the side thread: count a job that is not a tick, and log such jobs at most once a minute."""
        self._dropped(tick)
        self._untold += 1
        now_s = time.monotonic()
        if now_s - self._told_dropped_s < _TELL_DROPPED_S:
            return
        log_event(
            _log, "a job that isn't a tick was dropped", level=logging.ERROR,
            tick=tick, fault=problem.fault, named=problem.named, dropped=self._untold,
        )  # fmt: skip
        self._untold, self._told_dropped_s = 0, now_s

    def _handle(self, cluster: str, tick: str, **_signed: object) -> None:
        """In the side thread, the function that a tick names: run the handler on the event loop and wait for its end.

        Raises what the handler does, `CancelledError` at a stop, and `TimeoutError`: rq counts that as a failure.
        """
        result, coroutine = "stopped", _awaited(self._handlers[tick])
        try:
            self._running = future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError:  # the event loop is closed: the process ends
            coroutine.close()
            raise
        try:
            future.result(HANDLER_LIMIT_S)
            result = "ok"
        except concurrent.futures.CancelledError:
            raise
        except Exception as problem:
            result = "timeout" if future.cancel() else "failed"  # the next tick tries again
            if result == "timeout":
                log_event(_log, "a tick's handler took too long", level=logging.ERROR, tick=tick)
            else:
                log_event(_log, "a tick's handler failed", level=logging.ERROR, exc_info=problem, tick=tick)
            raise
        finally:
            self._running = None
            self._told(tick, result)


async def _awaited(handler: Handler) -> None:
    """Run a handler to its end. If cancelled meanwhile, cancel it until it has ended, even if it misses one."""
    handling = asyncio.ensure_future(handler())
    try:
        await asyncio.wait([handling])
    finally:
        await end([handling])
    handling.result()
