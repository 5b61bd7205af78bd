"""Ticks through rq: "take a scheduling cycle now", and nothing else.

A tick is a hint. It holds the cluster's name and its own, as JSON; no truth lives in rq, so a lost, late or
duplicate tick is harmless. Each tick name has a queue of its own, `arranger:<cluster>:<name>`, and at most one
tick waits in it, however many processes push and however long no worker is there. A tick that a killed worker had
begun doesn't count as waiting, so it never holds up the next.

rq's worker is synchronous. It runs in a side thread and hands each tick to a coroutine on the event loop's thread,
where the warm projection lives; a forking worker would lose that.
"""

import asyncio
import concurrent.futures
import logging
import threading
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import redis
import redis.asyncio
import rq.job
import rq.queue
import rq.serializers
import rq.timeouts
import rq.worker
from redis.exceptions import RedisError
from rq.exceptions import StopRequested

from arranger.clock import Clock
from arranger.events.redis_connection import sync_client
from arranger.logs import log_event

_log = logging.getLogger(__name__)

#: What a tick does when it is handled.
Handler = Callable[[], Awaitable[None]]

#: A handler that takes longer is cancelled and logged; the next tick tries again.
_HANDLER_LIMIT_S = 120
#: A tick that nobody fetched for so long, or whose worker was killed, leaves Redis by itself.
_FORGOTTEN_AFTER_S = 300
#: How often the side thread looks whether it shall stop while a handler runs.
_LOOK_S = 0.05
_LONGEST_WAIT_S = 5.0
#: A pop that blocks ends within a second, and then the worker takes its name out of Redis.
_GOODBYE_S = 2.0
#: Seconds without an answer after which the connection is given up.
_SILENCE_S = 5

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


def queue_name(cluster: str, tick: str) -> str:
    """The rq queue of one tick of one cluster."""
    return f"arranger:{cluster}:{tick}"


class Ticker:
    """Pushes ticks. Redis being away is no error here: the next period pushes again."""

    def __init__(self, client: redis.asyncio.Redis, *, cluster: str, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._push = client.register_script(_PUSH)
        self._reachable = True
        # rq composes its records with a synchronous client in hand; this one never connects.
        self._unused = redis.Redis()

    async def push(self, tick: str) -> bool:
        """Put a tick into its queue unless one waits there. False: one waits already, or Redis is away."""
        name = queue_name(self._cluster, tick)
        job = rq.job.Job.create(
            handle_tick,
            args=(self._cluster, tick),
            connection=self._unused,
            serializer=rq.serializers.JSONSerializer,
            id=uuid.uuid4().hex,
            origin=name,
            description=f"tick {tick} of {self._cluster}",
            status=rq.job.JobStatus.QUEUED,
            timeout=_HANDLER_LIMIT_S,
            result_ttl=0,
            failure_ttl=_FORGOTTEN_AFTER_S,
        )
        pairs = [part for pair in job.to_dict().items() for part in pair]
        queue_key = rq.queue.Queue.redis_queue_namespace_prefix + name
        try:
            pushed = await self._push(
                keys=[queue_key, rq.queue.Queue.redis_queues_keys, job.key], args=[job.id, _FORGOTTEN_AFTER_S, *pairs]
            )
        except (RedisError, OSError) as problem:
            if self._reachable:
                log_event(_log, "a tick can't be pushed", level=logging.WARNING, tick=tick, problem=problem)
            self._reachable = False
            return False
        self._reachable = True
        return bool(pushed)

    async def run(self, tick: str, period_s: float) -> None:
        """Push a tick every period until cancelled."""
        while True:
            await self.push(tick)
            await self._clock.sleep(period_s)


class TickLoop:
    """Works the queues of some ticks in a side thread and runs their handlers on the event loop `loop`."""

    def __init__(
        self,
        redis_url: str,
        *,
        cluster: str,
        member_id: str,
        handlers: Mapping[str, Handler],
        loop: asyncio.AbstractEventLoop,
        told: Callable[[str, str], None] = lambda tick, result: None,
    ) -> None:
        """`handlers` are listened for in their order: the first has precedence. `told(tick, result)` is called in
        the side thread after each tick with `ok`, `failed`, `timeout` or `stopped`.

        Raises `UsageError` for a URL that can't be used."""
        self._connection = sync_client(redis_url)
        self._cluster = cluster
        self._member_id = member_id
        self._handlers = dict(handlers)
        self._loop = loop
        self._told = told
        self._stopping = threading.Event()
        self._drain_until_s = 0.0
        self._handling = False
        self._thread = threading.Thread(target=self._work, name="ticks", daemon=True)

    def start(self) -> None:
        """Begin to work; Redis need not be there yet."""
        self._thread.start()

    async def stop(self, *, drain_s: float = 10.0) -> None:
        """Take no further tick; a handler that runs gets `drain_s` seconds to end and is cancelled then.

        Without one it takes about a second, whatever Redis does.
        """
        self._drain_until_s = time.monotonic() + drain_s
        self._stopping.set()
        if self._thread.ident is not None:
            await asyncio.to_thread(self._await_end)

    def _await_end(self) -> None:
        """Wait for the side thread, for a while after its last handler.

        A Redis that hangs may hold it longer: it is a daemon, and does no more than say goodbye then.
        """
        handled_s = time.monotonic()
        while self._thread.is_alive() and time.monotonic() < handled_s + _GOODBYE_S:
            self._thread.join(_LOOK_S)
            if self._handling:
                handled_s = time.monotonic()

    def _work(self) -> None:
        """The side thread: an rq worker, and another one whenever that gave up, until stopped."""
        _here.ticks = self
        wait_s = 0.1
        while not self._stopping.is_set():
            began_s = time.monotonic()
            try:
                worker = _Worker.listening(self._queues(), self._member_id, self._connection, self._stopping)
                worker.work(logging_level=None)
            except Exception as problem:
                if wait_s < _LONGEST_WAIT_S:
                    log_event(_log, "ticks can't be fetched, trying again", level=logging.WARNING, problem=problem)
            finally:
                self._connection.close()
            if time.monotonic() - began_s > _LONGEST_WAIT_S:
                wait_s = 0.1
            self._stopping.wait(wait_s)
            wait_s = min(wait_s * 2, _LONGEST_WAIT_S)

    def _queues(self) -> list[str]:
        return [queue_name(self._cluster, tick) for tick in self._handlers]

    def handle(self, cluster: str, tick: str) -> None:
        """In the side thread: run the handler on the event loop and wait for its end."""
        handler = self._handlers.get(tick)
        if handler is None or cluster != self._cluster:
            log_event(_log, "a tick that nobody here handles", level=logging.WARNING, tick=tick, cluster=cluster)
            return
        coroutine = _awaited(handler)
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
        try:
            while not concurrent.futures.wait([future], timeout=_LOOK_S).done:
                if self._stopping.is_set() and time.monotonic() > self._drain_until_s:
                    future.cancel()
                    return "stopped"
            future.result()
        except rq.timeouts.JobTimeoutException:
            future.cancel()
            log_event(_log, "a tick's handler took too long", level=logging.ERROR, tick=tick, limit_s=_HANDLER_LIMIT_S)
            return "timeout"
        except concurrent.futures.CancelledError:
            return "stopped"
        except Exception as problem:
            log_event(_log, "a tick's handler failed", level=logging.ERROR, exc_info=problem, tick=tick)
            return "failed"
        return "ok"


async def _awaited(handler: Handler) -> None:
    await handler()


#: The tick loop whose side thread this is.
_here = threading.local()


def handle_tick(cluster: str, tick: str) -> None:
    """The rq job: named in Redis as `arranger.workers.ticks.handle_tick`, so its name and arguments stay."""
    ticks: TickLoop | None = getattr(_here, "ticks", None)
    if ticks is None:
        log_event(_log, "a tick reached an rq worker that isn't Arranger's", level=logging.WARNING, tick=tick)
        return
    ticks.handle(cluster, tick)


class _OnceAMinute(logging.Filter):
    """Lets a message pass once a minute, on one line: rq repeats that Redis is away for every attempt, and shows
    tracebacks of its own bookkeeping when it was emptied."""

    def __init__(self) -> None:
        super().__init__()
        self._last_s: dict[object, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is told: it is the first of its kind for a minute."""
        last_s = self._last_s.get(record.msg)
        if last_s is not None and record.created - last_s < 60:
            return False
        self._last_s[record.msg] = record.created
        lines = record.getMessage().splitlines()
        if len(lines) > 1:
            record.msg, record.args = f"{lines[0]}: {lines[-1]}", None
        return True


_rq_log = logging.getLogger(f"{__name__}.rq")
_rq_log.setLevel(logging.WARNING)
_rq_log.addFilter(_OnceAMinute())


class _Worker(rq.worker.SimpleWorker):
    """rq's worker without a fork, made fit for a side thread: no signals, no second thread, quick to stop."""

    death_penalty_class = rq.timeouts.TimerDeathPenalty
    max_connection_wait_time = 1.0
    log_result_lifespan = False
    stopping: threading.Event

    @classmethod
    def listening(
        cls, queues: list[str], member_id: str, connection: redis.Redis, stopping: threading.Event
    ) -> "_Worker":
        """A worker on these queues under a name of its own: rq refuses a name that a killed worker left behind."""
        worker = cls(
            queues,
            name=f"{member_id}.{uuid.uuid4().hex[:8]}",
            connection=connection,
            serializer=rq.serializers.JSONSerializer,
            default_result_ttl=0,
            worker_ttl=60,
            maintenance_interval=60,
            log_job_description=False,
        )
        worker.stopping = stopping
        worker.log = _rq_log
        return worker

    @property
    def dequeue_timeout(self) -> int:
        """Seconds that one blocking pop lasts: how long a stop may take."""
        return 1

    @property
    def connection_timeout(self) -> int:
        """Seconds without an answer after which the connection is given up."""
        return _SILENCE_S

    def heartbeat(self, timeout: int | None = None, pipeline: Any = None) -> None:
        """Stop here if asked to: rq comes by before every pop and after every job."""
        if pipeline is None and self.stopping.is_set():
            raise StopRequested
        super().heartbeat(timeout, pipeline)

    def _install_signal_handlers(self) -> None:
        """Leave signals alone: they belong to the process, and only its main thread could set them."""

    def subscribe(self) -> None:
        """Take no commands from Redis (rq has one that shuts workers down), and start no thread for them."""

    def procline(self, message: str) -> None:
        """Leave the process's title alone."""
