"""Ticks through rq: "run a scheduling cycle now", and nothing else.

A tick is a hint. It contains the cluster's name and its own, as JSON; rq has no authoritative state, so a lost, late or
duplicate tick is harmless. Each tick name has a queue of its own, `arranger:<cluster>:<name>`, and at most one
tick waits in it, however many processes push and however long no worker runs. A tick that a killed worker had
begun doesn't count as waiting, so it never delays the next.

rq's worker is synchronous. It runs in a side thread and passes each tick to a coroutine on the event loop's thread,
which has the warm projection; a forking worker would lose that. It accepts ticks only: `tick_jobs` checks the raw
hash of each job in its queues, and rq never loads, calls or cleans up a job.
"""

import asyncio
import concurrent.futures
import contextlib
import logging
import threading
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import redis
import redis.asyncio
import rq.queue
import rq.serializers
import rq.worker
import rq.worker_registration
from redis.exceptions import RedisError

from arranger.clock import Clock, SystemClock
from arranger.errors import ClockOff
from arranger.events.log_keys import UNKEYED, LogKeys
from arranger.events.redis_connection import sync_client
from arranger.logs import log_event
from arranger.workers.flow.cancelling import end
from arranger.workers.members.tick_jobs import (
    FORGOTTEN_AFTER_S,
    HANDLER_LIMIT_S,
    MAX_BYTES,
    MAX_FIELDS,
    TAKE,
    NoTick,
    check_tick,
    job_key,
    queue_key,
    queue_name,
    tick_job,
)

_log = logging.getLogger(__name__)

#: The work that a tick triggers.
Handler = Callable[[], Awaitable[None]]

#: How often the side thread checks for a stop while a handler runs.
_LOOK_S = 0.05
_LONGEST_WAIT_S = 5.0
#: Seconds of one blocking pop, which a stop may have to wait for.
_POP_S = 1
#: Time for the worker to finish its blocking pop and to remove its name from Redis.
_GOODBYE_S = 2.0
#: Seconds without a reply after which the connection is closed.
_SILENCE_S = 5
#: A worker renews its record in Redis this often, in seconds; the record expires a minute after a handler's limit.
_BEAT_S = 20.0
_WORKER_TTL_S = HANDLER_LIMIT_S
#: Names of killed workers are removed from rq's sets this often, in seconds.
_TIDY_S = 60.0
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
        job = tick_job(handle_tick, self._cluster, tick, self._unused, keys=self._keys, now_ms=now_ms)
        pairs = [part for pair in job.to_dict().items() for part in pair]
        keys = [queue_key(self._cluster, tick), rq.queue.Queue.redis_queues_keys, job.key]
        try:
            pushed = await self._push(keys=keys, args=[job.id, FORGOTTEN_AFTER_S, *pairs])
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
    """Processes the queues of some ticks in a side thread and runs their handlers on the event loop `loop`."""

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
        self.cluster = cluster
        self.keys = keys
        self._clock = clock or SystemClock()
        self.member_id = member_id
        self._handlers = dict(handlers)
        #: The names of the ticks in the order of their precedence.
        self.names = list(handlers)
        self._loop = loop
        self._told = told
        self._dropped = dropped
        #: Jobs dropped since the last log line about them, and the time of that line.
        self._untold = 0
        self._told_dropped_s = -_TELL_DROPPED_S
        self.stopping = threading.Event()
        self._drain_until_s = 0.0
        self._handling = False
        self._thread = threading.Thread(target=self._work, name="ticks", daemon=True)

    def start(self) -> None:
        """Begin to work; Redis need not be reachable yet."""
        self._thread.start()

    async def stop(self, *, drain_s: float = 10.0) -> None:
        """Take no further tick; a running handler gets `drain_s` seconds to end and is then cancelled.

        Without a running handler it takes about a second, whatever Redis does.
        """
        self._drain_until_s = time.monotonic() + drain_s
        self.stopping.set()
        if self._thread.ident is not None:
            await asyncio.to_thread(self._await_end)

    def _await_end(self) -> None:
        """Wait for the side thread, for a limited time after its last handler.

        A hanging Redis may block the thread longer, but it is a daemon and only unregisters its worker then.
        """
        handled_s = time.monotonic()
        while self._thread.is_alive() and time.monotonic() < handled_s + _GOODBYE_S:
            self._thread.join(_LOOK_S)
            if self._handling:
                handled_s = time.monotonic()

    def _work(self) -> None:
        """The side thread: run an rq worker, and a new one whenever it fails, until stopped."""
        wait_s = 0.1
        while not self.stopping.is_set():
            began_s = time.monotonic()
            try:
                _Worker.listening(self, self._connection).work()
            except Exception as problem:
                if wait_s < _LONGEST_WAIT_S:
                    log_event(_log, "ticks can't be fetched, trying again", level=logging.WARNING, problem=problem)
            finally:
                self._connection.close()
            if time.monotonic() - began_s > _LONGEST_WAIT_S:
                wait_s = 0.1
            self.stopping.wait(wait_s)
            wait_s = min(wait_s * 2, _LONGEST_WAIT_S)

    def now_ms(self) -> int | None:
        """The time by which ticks are checked; None while the clock is wrong."""
        try:
            return self._clock.now_ms()
        except ClockOff:
            return None

    def drop(self, tick: str, problem: NoTick) -> None:
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

    def handle(self, tick: str) -> None:
        """In the side thread: run the handler on the event loop and wait for its end."""
        coroutine = _awaited(self._handlers[tick])
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError:
            # The event loop is closed: the process ends.
            coroutine.close()
            self._told(tick, "stopped")
            return
        self._handling = True
        try:
            outcome = self._outcome(tick, future)
        finally:
            self._handling = False
        self._told(tick, outcome)

    def _outcome(self, tick: str, future: concurrent.futures.Future[None]) -> str:
        until_s = time.monotonic() + HANDLER_LIMIT_S
        try:
            while not concurrent.futures.wait([future], timeout=_LOOK_S).done:
                if self.stopping.is_set() and time.monotonic() > self._drain_until_s:
                    future.cancel()
                    return "stopped"
                if time.monotonic() > until_s:  # the next tick tries again
                    future.cancel()
                    log_event(
                        _log, "a tick's handler took too long", level=logging.ERROR, tick=tick, limit_s=HANDLER_LIMIT_S
                    )
                    return "timeout"
            future.result()
        except concurrent.futures.CancelledError:
            return "stopped"
        except Exception as problem:
            log_event(_log, "a tick's handler failed", level=logging.ERROR, exc_info=problem, tick=tick)
            return "failed"
        return "ok"


async def _awaited(handler: Handler) -> None:
    """Run a handler to its end. If cancelled meanwhile, cancel it until it has ended, even if it misses one."""
    handling = asyncio.ensure_future(handler())
    try:
        await asyncio.wait([handling])
    finally:
        await end([handling])
    handling.result()


def handle_tick(cluster: str, tick: str) -> None:
    """The function that a tick names in Redis; only workers that aren't ours call it. Once released, its name stays."""
    log_event(
        _log, "a tick reached an rq worker that isn't Arranger's", level=logging.WARNING, tick=tick, cluster=cluster
    )


class _Worker(rq.worker.SimpleWorker):
    """A worker for rq's tools: registered, alive, on its queues. Nothing else of rq's worker is used.

    It takes no commands over pub/sub, can't be suspended by a key, starts no scheduler and cleans no registries: each
    of these acts on content of Redis, and some of them call functions that it names.
    """

    ticks: TickLoop

    @classmethod
    def listening(cls, ticks: TickLoop, connection: redis.Redis) -> "_Worker":
        """A worker on these queues under a unique name: rq refuses a name that a killed worker left behind."""
        worker = cls(
            [queue_name(ticks.cluster, tick) for tick in ticks.names],
            name=f"{ticks.member_id}.{uuid.uuid4().hex[:8]}",
            connection=connection,
            serializer=rq.serializers.JSONSerializer,
            worker_ttl=_WORKER_TTL_S,
        )
        worker.ticks = ticks
        return worker

    @property
    def connection_timeout(self) -> int:
        """Seconds without a reply after which the connection is closed."""
        return _SILENCE_S

    def work(self, *_arguments: Any, **_options: Any) -> bool:
        """Take ticks until the loop is stopped. Raises `RedisError` when Redis can't be reached."""
        take = self.connection.register_script(TAKE)
        ticks = {queue_key(self.ticks.cluster, tick).encode(): tick for tick in self.ticks.names}
        self.register_birth()  # type: ignore[no-untyped-call]
        beaten_s = time.monotonic()
        tidied_s = beaten_s - _TIDY_S
        try:
            while not self.ticks.stopping.is_set():
                now_s = time.monotonic()
                if now_s - beaten_s > _BEAT_S:
                    self.heartbeat()
                    beaten_s = now_s
                if now_s - tidied_s > _TIDY_S:
                    self.clean_registries()
                    tidied_s = now_s
                if self.ticks.now_ms() is None:
                    self.ticks.stopping.wait(_POP_S)
                    continue
                popped: Any = self.connection.blpop(list(ticks), _POP_S)
                if popped:
                    self._handle(ticks[popped[0]], popped[1], take)
        finally:
            with contextlib.suppress(RedisError):
                self.register_death()  # type: ignore[no-untyped-call]
        return True

    def _handle(self, tick: str, job_id: bytes, take: Callable[..., Any]) -> None:
        """Handle a popped job if it is a tick, else drop it."""
        now_ms = self.ticks.now_ms()
        try:
            answer = take(keys=[job_key(job_id)], args=[MAX_FIELDS, MAX_BYTES])
            if now_ms is None:  # since it was popped; the next period pushes another
                return
            cluster, keys = self.ticks.cluster, self.ticks.keys
            if check_tick(answer, cluster=cluster, tick=tick, job_id=job_id, keys=keys, now_ms=now_ms):
                self.ticks.handle(tick)
        except NoTick as problem:
            self.ticks.drop(tick, problem)

    def clean_registries(self) -> None:
        """Remove the names of killed workers from rq's sets. It reads no job."""
        for queue in self.queues:
            rq.worker_registration.clean_worker_registry(queue)

    def execute_job(self, job: Any, queue: Any) -> None:
        """Refuse: no job is executed by rq's own code."""
        raise NotImplementedError("Arranger's worker executes no jobs")

    def perform_job(self, job: Any, queue: Any) -> bool:
        """Refuse, as `execute_job`."""
        self.execute_job(job, queue)
        return False
