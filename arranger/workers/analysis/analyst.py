"""The analyst: takes questions from the queues, and answers each by a command in a process of its own.

The command has limits of time and memory. Once a second, the side thread writes how far it is, tells rq that it lives,
and looks whether somebody took the question back. If an analyst is killed, another one finds its job among rq's begun
ones without a heartbeat, and puts it back in front, twice at most. A stopping analyst puts back its own.
"""

import asyncio
import concurrent.futures
import hashlib
import logging
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import redis.asyncio
from redis.exceptions import RedisError

from arranger.clock import Clock
from arranger.events.log_keys import LogKeys
from arranger.logs import log_event
from arranger.metrics import Metrics
from arranger.own_process import AnswerTooLarge, Ended, HowFar, run_command
from arranger.settings import PROGRESS_VARIABLE
from arranger.workers.analysis.work_queue import (
    ANSWER,
    KEPT_S,
    MOST_ANSWER_BYTES,
    MOST_GIVEN_BYTES,
    MOST_TRIES,
    QUEUES,
    WAITS_S,
    WorkKeys,
    packed,
    queue_of,
    signed_result,
)
from arranger.workers.jobs.duty_loop import DutyLoop
from arranger.workers.jobs.table_jobs import TableJob
from arranger.workers.members.membership import ANALYST
from arranger.workers.parts import Answering

_log = logging.getLogger(__name__)

ROLE = ANALYST

#: Seconds: an analyst that isn't heard of for so long is dead; how often this is looked for; how often it is heard.
_DEAD_S, _TIDY_S, _BEAT_S, _LOOK_S = 20, 5, 5.0, 1.0

# KEYS: the record. ARGV: worker, now in ms, time to live. Returns which try this is, 0 if it may not begin.
_BEGIN = """
if redis.call('HGET', KEYS[1], 'state') ~= 'waiting' then
  return 0
end
redis.call('HSET', KEYS[1], 'state', 'running', 'worker', ARGV[1], 'began_ms', ARGV[2], 'percent', 0, 'offset', 0)
redis.call('EXPIRE', KEYS[1], ARGV[3])
return redis.call('HINCRBY', KEYS[1], 'tries', 1)
"""

# KEYS: the record, the cancel key, the queue's list, the job's hash, rq's registry of failed jobs, the input.
# ARGV: id, most tries, now in ms, time to live, that of what has ended, tries to take back, why it failed.
# Returns whether it waits again.
_AGAIN = """
if redis.call('HGET', KEYS[1], 'state') ~= 'running' then
  return 0
end
local tries = redis.call('HINCRBY', KEYS[1], 'tries', -tonumber(ARGV[6]))
local cancelled = redis.call('EXISTS', KEYS[2]) == 1
if cancelled or tries >= tonumber(ARGV[2]) or redis.call('EXISTS', KEYS[4]) == 0 then
  redis.call('HSET', KEYS[1], 'state', cancelled and 'cancelled' or 'failed', 'ended_ms', ARGV[3],
    'reason', cancelled and '' or 'InternalError', 'message', cancelled and 'it was cancelled' or ARGV[7])
  redis.call('EXPIRE', KEYS[1], ARGV[5])
  redis.call('UNLINK', KEYS[6])
  return 0
end
redis.call('HSET', KEYS[1], 'state', 'waiting', 'percent', 0, 'offset', 0)
redis.call('HSET', KEYS[4], 'status', 'queued')
redis.call('HDEL', KEYS[4], 'exc_info', 'result', 'worker_name')
redis.call('EXPIRE', KEYS[4], ARGV[4])
redis.call('ZREM', KEYS[5], ARGV[1])
redis.call('LPUSH', KEYS[3], ARGV[1])
return 1
"""

# KEYS: the record, the result, the input, the cancel key. ARGV: try, time to live, number of parts of the record, the
# record's fields and values, those of the result. Returns whether this try still counted.
_END = """
if redis.call('HGET', KEYS[1], 'tries') ~= ARGV[1] or redis.call('HGET', KEYS[1], 'state') ~= 'running' then
  return 0
end
local parts = tonumber(ARGV[3])
redis.call('HSET', KEYS[1], unpack(ARGV, 4, 3 + parts))
redis.call('EXPIRE', KEYS[1], ARGV[2])
redis.call('UNLINK', KEYS[3], KEYS[4])
if #ARGV > 3 + parts then
  redis.call('HSET', KEYS[2], unpack(ARGV, 4 + parts))
  redis.call('EXPIRE', KEYS[2], ARGV[2])
end
return 1
"""


class NotAnswered(Exception):
    """A question without an answer: `state` is what became of it, `reason` that of a refusal."""

    def __init__(self, state: str, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.state, self.message, self.reason = state, message, reason


@dataclass
class _Try:
    """What is being answered, and how far it is."""

    number: int
    kind: str
    seen: HowFar = field(default_factory=lambda: HowFar(0))


class Analyst(DutyLoop):
    """Answers questions until it is stopped."""

    def __init__(
        self, redis_url: str, *, cluster: str, member_id: str, answering: Answering,
        loop: asyncio.AbstractEventLoop, keys: LogKeys, clock: Clock, metrics: Metrics,
    ) -> None:  # fmt: skip
        super().__init__(
            redis_url, cluster=cluster, member_id=member_id, functions={ANSWER: self._answer},
            queues={queue_of(cluster, each): each for each in QUEUES},
            loop=loop, dropped=lambda queue: metrics.questions_dropped.labels(queue).inc(), keys=keys, clock=clock,
        )  # fmt: skip
        duty = self._duty
        duty.tidy_s, duty.dead_s = _TIDY_S, _DEAD_S
        duty.begins, duty.abandoned, duty.settled = self._begins, self._abandoned, self._settled
        self._answering, self._keys, self._metrics, self._name = answering, keys, metrics, member_id
        self._environment = {**os.environ, **answering.environment, PROGRESS_VARIABLE: "1"}
        self._names = WorkKeys(cluster)
        client = self._connection
        self._begin, self._again, self._end = (client.register_script(each) for each in (_BEGIN, _AGAIN, _END))
        self._try = _Try(0, "")
        self._put_back = False

    async def run(self, *, drain_s: float) -> None:
        """Answer until this is cancelled; the question that is worked on gets `drain_s` seconds to end."""
        self.start()
        try:
            await asyncio.Event().wait()
        finally:
            await self.stop(drain_s=drain_s)

    def _begins(self, job: TableJob) -> str:
        """Begin it, if it is a question of the table, and one that waits."""
        _cluster, _queue, words, *_ = job.args
        kind = self._answering.question_of(words)
        if not kind:
            return "arguments"
        number = self._begin(
            keys=[self._names.record(job.id)], args=[self._name, self._duty.now_ms() or 0, WAITS_S]
        )  # fmt: skip
        if not number:
            return "again"
        self._try, self._put_back = _Try(int(number), kind), False
        return ""

    def _answer(self, *asked: str, **_signed: object) -> None:
        """In the side thread, the function that a question names. Raises `NotAnswered`: rq counts that as a failure."""
        _cluster, _queue, words, _user, _kind, given = asked
        job_id, began_s, kind = self._duty.job_id, time.monotonic(), self._try.kind
        state = "done"
        try:
            ended = self._awaited(job_id, words, self._given(job_id, given))
            self._store(job_id, ended)
        except concurrent.futures.CancelledError:
            state, self._put_back = "stopped", True  # once rq has written that it failed
            raise
        except NotAnswered as problem:
            state = problem.state
            self._settle(job_id, state, message=problem.message, reason=problem.reason)
            raise
        except Exception as problem:
            state = "failed"
            log_event(_log, "a question can't be answered", level=logging.ERROR, exc_info=problem, question=kind)
            with suppress(RedisError, OSError):
                self._settle(job_id, state, message="the analyst can't answer it", reason="InternalError")
            raise
        finally:
            self.end()
            self._metrics.questions.labels(kind, state).inc()
            self._metrics.question_seconds.labels(kind).observe(time.monotonic() - began_s)

    def _given(self, job_id: str, digest: str) -> bytes:
        """The input. Raises `NotAnswered` for another one than that which was asked about."""
        if not digest:
            return b""
        key = self._names.given(job_id)
        size: Any = self._connection.strlen(key)
        found: Any = self._connection.get(key) if size <= MOST_GIVEN_BYTES else None
        if found is None or hashlib.sha256(found).hexdigest() != digest:
            raise NotAnswered("failed", "the question's input is gone", "InternalError")
        return bytes(found)

    def _awaited(self, job_id: str, words: Sequence[str], given: bytes) -> Ended:
        """Run the command on the event loop until it ends. Raises `NotAnswered`, and `CancelledError` at a stop."""
        future = self.begin(self._run(words, given))
        beaten_s, cancelled = time.monotonic(), False
        while not concurrent.futures.wait([future], _LOOK_S).done:
            with suppress(RedisError, OSError):  # it goes on; whether it counts is seen at its end
                cancelled = self._look(job_id)
                if time.monotonic() - beaten_s >= _BEAT_S:
                    beaten_s = time.monotonic()
                    self._duty.beat()
            if cancelled:
                future.cancel()
        try:
            return future.result()  # type: ignore[no-any-return]
        except concurrent.futures.CancelledError:
            if cancelled:
                raise NotAnswered("cancelled", "it was cancelled") from None
            raise
        except TimeoutError:
            limit = f"an answer may take {self._answering.time_s:g} s"
            raise NotAnswered("failed", f"the answer takes too long: {limit}", "Timeout") from None
        except AnswerTooLarge:
            limit = f"the answer has more than {MOST_ANSWER_BYTES >> 20} MiB"
            raise NotAnswered("failed", limit, "RequestEntityTooLarge") from None

    async def _run(self, words: Sequence[str], given: bytes) -> Ended:
        current = self._try

        def told(progress: HowFar) -> None:
            current.seen = progress

        async with asyncio.timeout(self._answering.time_s):
            return await run_command(
                (*self._answering.program, *words), self._environment, given=given, most_bytes=MOST_ANSWER_BYTES,
                told=told, cpu_s=int(self._answering.time_s) + 5, memory_bytes=self._answering.memory_bytes,
            )  # fmt: skip

    def _look(self, job_id: str) -> bool:
        """Write how far it is; returns whether it shall end."""
        seen = self._try.seen
        pipeline = self._connection.pipeline(transaction=False)
        pipeline.hset(self._names.record(job_id), mapping={"percent": seen.percent, "offset": seen.offset})
        pipeline.exists(self._names.cancel(job_id))
        return bool(pipeline.execute()[1])

    def _store(self, job_id: str, ended: Ended) -> None:
        signature = self._keys.tick_signature(*signed_result(job_id, ended.out, ended.err, ended.status))
        result: list[Any] = [
            "out",
            packed(ended.out),
            "err",
            packed(ended.err),
            "status",
            ended.status,
            "signature",
            signature,
        ]
        self._settle(job_id, "done", percent=100, offset=self._try.seen.offset, result=result)

    def _settle(self, job_id: str, state: str, *, result: Sequence[Any] = (), **fields: Any) -> None:
        """Write how it ended, unless another try has begun."""
        record: list[Any] = ["state", state, "ended_ms", self._duty.now_ms() or 0]
        record += [part for pair in fields.items() for part in pair]
        names = self._names
        self._end(
            keys=[names.record(job_id), names.result(job_id), names.given(job_id), names.cancel(job_id)],
            args=[self._try.number, KEPT_S, len(record), *record, *result],
        )

    def _settled(self, job_id: str) -> None:
        """Rq has written all that it does: put back what was stopped, as if it hadn't been begun."""
        if self._put_back:
            self._put_back = False
            job_queue: Any = self._connection.hget(f"rq:job:{job_id}", "origin")
            if job_queue is not None:
                self._wait_again(job_queue.decode(errors="replace"), job_id, back=1)

    def _abandoned(self, queue: str, job_id: str) -> bool:
        """A job without a heartbeat: its analyst was killed. Put it back, unless that happened too often."""
        again = self._wait_again(queue, job_id, back=0)
        if again:
            self._metrics.questions_retried.inc()
        log_event(_log, "the analyst of a question is gone", level=logging.WARNING, question=job_id, again=again)
        return again

    def _wait_again(self, queue: str, job_id: str, *, back: int) -> bool:
        names = self._names
        why = f"{MOST_TRIES} analysts that worked on it were killed"
        return bool(
            self._again(
                keys=[
                    names.record(job_id), names.cancel(job_id), f"rq:queue:{queue}", f"rq:job:{job_id}",
                    f"rq:failed:{queue}", names.given(job_id),
                ],
                args=[job_id, MOST_TRIES, self._duty.now_ms() or 0, WAITS_S, KEPT_S, back, why],
            )
        )  # fmt: skip

    def _tell_unfetched(self, problem: Exception) -> None:
        log_event(_log, "questions can't be fetched, trying again", level=logging.WARNING, problem=problem)

    def _tell_dropped(self, word: str, **about: object) -> None:
        log_event(_log, "a job that isn't a question was dropped", level=logging.ERROR, queue=word, **about)


async def measure(client: redis.asyncio.Redis, cluster: str, clock: Clock, metrics: Metrics) -> None:
    """Count what waits and what runs, for as long as this is awaited."""
    while True:
        with suppress(RedisError, OSError):
            for queue in QUEUES:
                name = queue_of(cluster, queue)
                metrics.questions_waiting.labels(queue).set(await client.llen(f"rq:queue:{name}"))
                metrics.questions_running.labels(queue).set(await client.zcard(f"rq:wip:{name}"))
        await clock.sleep(_BEAT_S)
