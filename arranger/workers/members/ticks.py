"""Ticks through rq: "run a scheduling cycle now", as jobs that rq's own worker runs in this process.

A tick is a hint. rq has no authoritative state, so a lost, late or duplicate tick is harmless. Each tick name has a
queue of its own, `arranger:<cluster>:<name>`, and at most one tick waits in it, however many processes push and however
long no worker runs. A tick that a killed worker had begun doesn't count as waiting, so it never delays the next.

The worker runs in a side thread (`jobs/duty_loop.py`) and passes each tick to a coroutine on the event loop's thread,
which has the warm projection.
"""

import asyncio
import concurrent.futures
import logging
from collections.abc import Awaitable, Callable, Mapping

import redis
import redis.asyncio
import rq.queue
from redis.exceptions import RedisError

from arranger.clock import Clock
from arranger.errors import ClockOff
from arranger.events.log_keys import UNKEYED, LogKeys
from arranger.logs import log_event
from arranger.workers.flow.cancelling import end
from arranger.workers.jobs.duty_loop import DutyLoop
from arranger.workers.jobs.table_jobs import pairs_of
from arranger.workers.members.tick_jobs import FORGOTTEN_AFTER_S, FUNCTION, HANDLER_LIMIT_S, queue_name, tick_job

_log = logging.getLogger(__name__)

#: The work that a tick triggers.
Handler = Callable[[], Awaitable[None]]

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
        queue = rq.queue.Queue(job.origin, connection=self._unused)
        try:
            pushed = await self._push(
                keys=[queue.key, queue.redis_queues_keys, job.key], args=[job.id, FORGOTTEN_AFTER_S, *pairs_of(job)]
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


class TickLoop(DutyLoop):
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
        """Earlier `handlers` have precedence. `told(tick, result)` is called in the side thread after each tick with
        `ok`, `failed`, `timeout` or `stopped`. The rest is as of any duty."""
        self._handlers, self._told = dict(handlers), told
        super().__init__(
            redis_url, cluster=cluster, member_id=member_id, functions={FUNCTION: self._handle},
            queues={queue_name(cluster, tick): tick for tick in handlers},
            loop=loop, dropped=dropped, keys=keys, clock=clock,
        )  # fmt: skip

    def _handle(self, cluster: str, tick: str, **_signed: object) -> None:
        """In the side thread, the function that a tick names: run the handler on the event loop and wait for its end.

        Raises what the handler does, `CancelledError` at a stop, and `TimeoutError`: rq counts that as a failure.
        """
        result, future = "stopped", self.begin(_awaited(self._handlers[tick]))
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
            self.end()
            self._told(tick, result)

    def _tell_unfetched(self, problem: Exception) -> None:
        log_event(_log, "ticks can't be fetched, trying again", level=logging.WARNING, problem=problem)

    def _tell_dropped(self, word: str, **about: object) -> None:
        log_event(_log, "a job that isn't a tick was dropped", level=logging.ERROR, tick=word, **about)


async def _awaited(handler: Handler) -> None:
    """Run a handler to its end. If cancelled meanwhile, cancel it until it has ended, even if it misses one."""
    handling = asyncio.ensure_future(handler())
    try:
        await asyncio.wait([handling])
    finally:
        await end([handling])
    handling.result()
