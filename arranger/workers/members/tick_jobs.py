"""The job class of ticks: rq's, but what Redis says of a job is checked, and no name in it is resolved.

A client that can write to Redis can put any job into a queue. rq would import and call the functions that it names (its
own, a method, callbacks), read pickles, and send webhooks. A `TickJob` is read with limits and without the fields of
all that, and it runs a function of a table by its name. With a key (`log_keys`) a tick also names when it was made, and
has a signature over that, its id and its arguments, so ticks that nobody with a key made don't run, nor old ones.
"""

import threading
import uuid
import zlib
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import msgspec
import redis
import rq.job
from redis.exceptions import ResponseError
from rq.exceptions import NoSuchJobError
from rq.job import JobStatus
from rq.serializers import JSONSerializer

from arranger.clock import Clock
from arranger.errors import ClockOff
from arranger.events.log_keys import UNKEYED, LogKeys

#: The function that a tick names in Redis. Its name and its arguments never change.
FUNCTION = "arranger.workers.members.ticks.handle_tick"
#: Seconds: the limit of a handler; how long a tick may wait; how long rq counts one as finished, or failed.
HANDLER_LIMIT_S, FORGOTTEN_AFTER_S, _FINISHED_S, _FAILED_S = 120, 300, 60, 300
#: Limits of a tick's hash in Redis, and of its unpacked data. Nothing larger is read.
_MAX_BYTES, _MAX_DATA_BYTES = 8_192, 1_024
#: The fields of a tick that are read. rq writes the others besides, and any further one is empty.
_READ = frozenset((b"created_at", b"data", b"enqueued_at", b"started_at", b"status"))
_FIELDS = _READ | {b"description", b"ended_at", b"failure_ttl", b"last_heartbeat", b"origin", b"result_ttl", b"timeout"}


class _Signed(msgspec.Struct, forbid_unknown_fields=True):
    """The named arguments of a tick: none without a key."""

    made_ms: int = 0
    signature: str = ""


_data = msgspec.json.Decoder(tuple[str, None, tuple[str, str], _Signed])


class NoTick(Exception):
    """A job that is not a tick: `fault` is the wrong part, `named` the function in it (cut; "" if unknown)."""

    def __init__(self, fault: str, named: str = "") -> None:
        super().__init__(fault)
        self.fault, self.named = fault, named[:100]


@dataclass(kw_only=True)
class Duty:
    """What a worker works on: the tick of each queue, and the functions that ticks may name."""

    cluster: str
    ticks: Mapping[str, str]
    functions: Mapping[str, Callable[..., None]]
    keys: LogKeys
    clock: Clock
    stopping: threading.Event
    dropped: Callable[[str, NoTick], None]
    #: The queue that is looked at, and the last ticks that were begun.
    queue: str = ""
    begun: deque[str] = field(default_factory=lambda: deque(maxlen=1_000))

    def now_ms(self) -> int | None:
        """The time by which ticks are checked; None while the clock is wrong."""
        try:
            return self.clock.now_ms()
        except ClockOff:
            return None

    def drop(self, problem: NoTick) -> None:
        self.dropped(self.ticks[self.queue], problem)


def queue_name(cluster: str, tick: str) -> str:
    return f"arranger:{cluster}:{tick}"


def tick_job(cluster: str, tick: str, unused: redis.Redis, *, keys: LogKeys = UNKEYED, now_ms: int = 0) -> rq.job.Job:
    """A new tick as rq's record of a job. `unused` is a client that rq requires and never calls."""
    job_id = uuid.uuid4().hex
    signature = keys.tick_signature(cluster, tick, job_id, str(now_ms))
    signed = {"made_ms": now_ms, "signature": signature} if signature else {}
    job = rq.job.Job.create(
        FUNCTION, (cluster, tick), signed, unused,
        id=job_id, serializer=JSONSerializer, description=f"tick {tick} of {cluster}", status=JobStatus.QUEUED,
    )  # fmt: skip
    _set_limits(job, cluster, tick)
    return job


def _set_limits(job: rq.job.Job, cluster: str, tick: str) -> None:
    job.origin, job.timeout = queue_name(cluster, tick), HANDLER_LIMIT_S
    job.result_ttl, job.failure_ttl = _FINISHED_S, _FAILED_S


class TickJob(rq.job.Job):
    """A tick that was found in Redis. A subclass sets the duty."""

    duty: ClassVar[Duty]

    def refresh(self) -> None:
        """Read it. Raises `NoSuchJobError` if it isn't there, or no tick and therefore dropped: rq then passes on."""
        size = self.connection.memory_usage(self.key, samples=0)
        if size is None:
            raise NoSuchJobError(self.key)
        try:
            if size > _MAX_BYTES:
                raise NoTick("size")
            found: Any = self.connection.hgetall(self.key)
            self.restore(found)
        except (NoTick, ResponseError) as problem:  # or it isn't a hash
            self.drop(problem if isinstance(problem, NoTick) else NoTick("record"))
            raise NoSuchJobError(self.key) from None

    def restore(self, raw_data: Mapping[bytes, bytes]) -> None:
        """Take a hash for a tick. Raises `NoTick` for anything else."""
        fields = {name: value for name, value in raw_data.items() if value}
        try:
            unpacked = zlib.decompressobj().decompress(fields.get(b"data", b""), _MAX_DATA_BYTES)
            function, _, (cluster, tick), signed = _data.decode(unpacked)
        except (zlib.error, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise NoTick("data") from None
        if not fields.keys() <= _FIELDS | {b"worker_name"}:
            raise NoTick("fields", function)
        if function not in self.duty.functions:
            raise NoTick("function", function)
        if cluster != self.duty.cluster or (signed.signature and not self.duty.keys.present):
            raise NoTick("arguments", function)
        if not self.duty.keys.accepts_tick(signed.signature, cluster, tick, self.id, str(signed.made_ms)):
            raise NoTick("signature", function)
        try:
            # The data as it was checked: what is packed behind it isn't unpacked.
            super().restore({name: fields[name] for name in _READ & fields.keys()} | {b"data": unpacked})
        except ValueError:  # a time or a status
            raise NoTick("fields", function) from None
        _set_limits(self, cluster, tick)

    def check(self, queue: str, now_ms: int) -> None:
        """Begin it. Raises `NoTick` unless it comes from its own queue, was never begun, and isn't old."""
        if self.origin != queue:
            raise NoTick("arguments", FUNCTION)
        if self.get_status(refresh=False) != JobStatus.QUEUED or self.id in self.duty.begun:
            raise NoTick("again", FUNCTION)
        # Nobody can make a tick without the key, but anybody could put an old one back.
        if self.duty.keys.strict and abs(now_ms - self.kwargs["made_ms"]) > FORGOTTEN_AFTER_S * 1000:
            raise NoTick("age", FUNCTION)
        self.duty.begun.append(self.id)

    def drop(self, problem: NoTick) -> None:
        self.connection.unlink(self.key)
        self.duty.drop(problem)

    @property
    def func(self) -> Callable[..., None]:
        """The function of the table that it names."""
        return self.duty.functions[str(self.func_name)]
