"""rq's worker for our jobs, in a thread of this process, without what would let Redis do more than bring them.

It doesn't fork, installs no signal handlers, hears no commands over pub/sub and can't be suspended: anybody may set the
key for that, and a command can end the process. No job has dependents, and what rq cleans up is read by `TableJob` too.
"""

import logging
import sys
import time
import uuid
from typing import Any

import redis
import rq.queue
import rq.registry
import rq.timeouts
import rq.utils
import rq.worker
from redis.exceptions import RedisError, ResponseError
from rq.exceptions import DequeueTimeout, StopRequested
from rq.job import JOB_ID_PATTERN
from rq.serializers import JSONSerializer
from rq.worker_registration import clean_worker_registry

from arranger.workers.jobs.table_jobs import Duty, NoJob, TableJob

#: rq waits for a job for 15 s less, and a stop may have to wait for that.
_WORKER_TTL_S = 16
_LONGEST_WAIT_S = 5.0
#: Problems of Redis are logged at most this often, in seconds.
_TELL_AWAY_S = 60.0
#: Limit of a job's id, in bytes; ours have 32.
_MAX_ID_BYTES = 200
#: So many jobs of killed workers are settled at a time. Nobody has more, unless they were forged.
_MOST_ABANDONED = 100


class _Away(RedisError):
    """Redis is away. It ends the worker, and the next one registers anew: by then Redis may have lost everything."""


class _Queue(rq.queue.Queue):
    duty: Duty

    @classmethod
    def lpop(cls, queue_keys: Any, timeout: int | None, connection: Any = None) -> Any:
        """Take the id of a job, if one may be taken now."""
        duty = cls.duty
        if duty.stopping.is_set():
            raise StopRequested
        if duty.now_ms() is None:  # others may take it
            duty.stopping.wait(1)
            raise DequeueTimeout(1, queue_keys)
        try:
            key, job_id = super().lpop(queue_keys, timeout, connection)
        except redis.exceptions.ConnectionError as problem:
            raise _Away(str(problem)) from None
        duty.queue = key.decode().removeprefix(cls.redis_queue_namespace_prefix)
        if len(job_id) > _MAX_ID_BYTES or not JOB_ID_PATTERN.fullmatch(job_id.decode(errors="replace")):
            duty.drop(NoJob("id"))
            raise DequeueTimeout(1, queue_keys)
        return key, job_id

    @classmethod
    def lmove(cls, connection: Any, queue_key: str, timeout: int | None) -> Any:
        """As from several queues: rq keeps none that was begun for another worker."""
        return cls.lpop([queue_key], timeout, connection)

    def enqueue_dependents(self, *_arguments: Any, **_options: Any) -> None:
        """No job has any."""


class _Begun(rq.registry.StartedJobRegistry):
    """Jobs that were begun, of a queue of ours: rq's own reads dependents of such a job, and puts them into queues."""

    def get_queue(self) -> rq.queue.Queue:
        return _Queue(self.name, connection=self.connection, serializer=self.serializer)

    def get_expired_job_ids(self, timestamp: float | None = None) -> list[str]:
        """So many at a time: anybody may have put names there."""
        until = timestamp if timestamp is not None else rq.utils.current_timestamp()
        found: Any = self.connection.zrangebyscore(self.key, 0, until, start=0, num=_MOST_ABANDONED)
        return [self.parse_job_id(job_id) for job_id in found]

    def abandon(self, duty: Duty) -> None:
        """Count jobs of killed workers as failed, but those that the duty puts back."""
        for job_id in self.get_expired_job_ids():
            if duty.abandoned(self.name, job_id):
                entries: Any = self.connection.zrange(self.key, 0, -1)
                for entry in entries:
                    if entry.startswith(f"{job_id}:".encode()):
                        self.connection.zrem(self.key, entry)
        self.cleanup()


class _NoAlarm(rq.timeouts.BaseDeathPenalty):
    """No signal ends a job in a thread: its function keeps to the limit by itself."""

    def setup_death_penalty(self) -> None: ...

    def cancel_death_penalty(self) -> None: ...


class _Warnings(logging.LoggerAdapter[logging.Logger]):
    """What rq calls an error, such as a Redis that is away, passes: the next period pushes again. A problem of Redis is
    told without a traceback, because nothing of ours failed, and once in a while."""

    def __init__(self, logger: logging.Logger, duty: Duty) -> None:
        super().__init__(logger, {})
        self._duty = duty

    def log(self, level: int, msg: object, *args: object, **named: Any) -> None:
        problem = sys.exception()
        if isinstance(problem, RedisError | OSError):
            now_s = time.monotonic()
            if now_s < self._duty.quiet_until_s:
                return
            self._duty.quiet_until_s = now_s + _TELL_AWAY_S
            if named.get("exc_info"):
                msg, args, named = f"{msg} %s", (*args, problem), {**named, "exc_info": False}
        super().log(min(level, logging.WARNING), msg, *args, **named)


class DutyWorker(rq.worker.SimpleWorker):
    """rq's worker on the queues of a duty."""

    death_penalty_class = _NoAlarm
    max_connection_wait_time = _LONGEST_WAIT_S
    duty: Duty

    @classmethod
    def of(cls, duty: Duty, connection: redis.Redis, member_id: str) -> "DutyWorker":
        """A worker under a unique name: rq refuses a name that a killed worker left behind."""
        made = cls(
            list(duty.queues),
            name=f"{member_id}.{uuid.uuid4().hex[:8]}",
            connection=connection,
            job_class=type("DutyJob", (TableJob,), {"duty": duty}),
            queue_class=type("DutyQueue", (_Queue,), {"duty": duty}),
            serializer=JSONSerializer,
            worker_ttl=_WORKER_TTL_S,
            maintenance_interval=duty.tidy_s,
            log_job_description=False,
        )
        made.duty = duty
        made.log = _Warnings(made.log, duty)  # type: ignore[assignment]
        return made

    def _leave_out(self, *_arguments: Any, **_options: Any) -> None:
        """Nothing: see above, and failures are logged where they happen."""

    _install_signal_handlers = subscribe = check_for_suspension = procline = handle_exception = _leave_out

    def execute_job(self, job: Any, queue: rq.queue.Queue) -> None:
        """Run a job as rq does, with its bookkeeping, unless it may not run now."""
        now_ms = self.duty.now_ms()
        if now_ms is None or self.duty.stopping.is_set():  # since it was taken: as if it had been lost
            return
        try:
            job.check(queue.name, now_ms)
        except NoJob as problem:
            job.drop(problem)
        else:
            self.duty.job_id, self.duty.beat = job.id, lambda: self.maintain_heartbeats(job)
            super().execute_job(job, queue)
            self.duty.settled(job.id)

    def get_heartbeat_ttl(self, job: Any) -> int:
        """Seconds after which a job counts as abandoned."""
        return self.duty.dead_s or super().get_heartbeat_ttl(job)

    def heartbeat(self, timeout: int | None = None, pipeline: Any = None) -> None:
        """Where functions beat, a worker that doesn't is dead soon."""
        try:
            super().heartbeat(self.duty.dead_s or timeout, pipeline)
        except redis.exceptions.ConnectionError as problem:
            raise _Away(str(problem)) from None

    def run_maintenance_tasks(self) -> None:
        """Settle the jobs of killed workers, and forget what is over."""
        for queue in self.queues:
            self.duty.queue = queue.name
            for registry in (rq.registry.FinishedJobRegistry, rq.registry.FailedJobRegistry, _Begun):
                found = registry(queue=queue, job_class=self.job_class)
                try:
                    found.abandon(self.duty) if isinstance(found, _Begun) else found.cleanup()
                except (ValueError, ResponseError):  # a name that no job of ours has, or no registry
                    self.duty.drop(NoJob("registry"))
                    self.connection.unlink(found.key)
            clean_worker_registry(queue)
        self.last_cleaned_at: Any = rq.utils.now()
