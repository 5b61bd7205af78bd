"""The job class of all our rq jobs: rq's, but what Redis says of a job is checked, and no name in it is resolved.

A client that can write to Redis can put any job into a queue. rq would import and call the functions that it names (its
own, a method, callbacks), read pickles, and send webhooks. A `TableJob` is read with limits and without the fields of
all that, and it runs a function of a table by its name. With a key (`log_keys`) a job also names when it was made, and
has a signature over that, its id and its arguments, so jobs that nobody with a key made don't run, nor old ones.
"""

import threading
import zlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
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

#: The fields of a job that are read. rq writes the others besides, and any further one is empty.
_READ = frozenset((b"created_at", b"data", b"enqueued_at", b"started_at", b"status"))
_FIELDS = _READ | {b"description", b"ended_at", b"failure_ttl", b"last_heartbeat", b"origin", b"result_ttl", b"timeout"}


class _Signed(msgspec.Struct, forbid_unknown_fields=True):
    """The named arguments of a job: none without a key."""

    made_ms: int = 0
    signature: str = ""


#: A job's fields and values, and nothing larger than so many bytes or with more fields: KEYS: its hash, ARGV: bytes.
#: One script, so that what was measured is what is read. False: it isn't there. "size": it is larger.
_READ_SCRIPT = """
local fields = redis.call('HLEN', KEYS[1])
if fields == 0 then
  return false
end
if fields > 32 then
  return 'size'
end
local all, size = redis.call('HGETALL', KEYS[1]), 0
for _, part in ipairs(all) do
  size = size + #part
end
if size > tonumber(ARGV[1]) then
  return 'size'
end
return all
"""

_data = msgspec.json.Decoder(tuple[str, None, msgspec.Raw, _Signed])


class NoJob(Exception):
    """A job that is none of ours: `fault` is the wrong part, `named` the function in it (cut; "" if unknown)."""

    def __init__(self, fault: str, named: str = "") -> None:
        super().__init__(fault)
        self.fault, self.named = fault, named[:100]


@dataclass(frozen=True, kw_only=True, eq=False)
class Form:
    """What jobs of one function have in common. `arguments` is their msgspec type, the cluster first; `queue` is the
    name of the queue by the arguments, and `signed` what a signature covers besides the id and the time."""

    name: str
    arguments: Any
    queue: Callable[[Any], str]
    signed: Callable[[Any], Sequence[str]]
    #: Seconds: the limit of its work; how long one may wait; how long rq counts one as finished, or failed.
    limit_s: int
    waits_s: int
    finished_s: int
    failed_s: int
    #: Limits of a job's hash in Redis, and of its unpacked data. Nothing larger is read.
    most_bytes: int
    most_data_bytes: int
    #: Whether a process runs a job once at most. Otherwise the function itself knows which it may run again.
    once: bool = True


@dataclass(kw_only=True)
class Duty:
    """What a worker works on: its queues, in this order and with the names by which they are told, and the functions
    that jobs may name."""

    cluster: str
    queues: Mapping[str, str]
    functions: Mapping[Form, Callable[..., None]]
    keys: LogKeys
    clock: Clock
    stopping: threading.Event
    dropped: Callable[[str, NoJob], None]
    #: A job whose worker died is given to this, which may put it back (True). Otherwise rq counts it as failed.
    abandoned: Callable[[str, str], bool] = lambda queue, job_id: False
    #: Begins a job that may run more than once; returns the wrong part of one that may not begin, "" if it may.
    begins: Callable[["TableJob"], str] = lambda job: ""
    #: Hears of a job when rq's bookkeeping of it is done.
    settled: Callable[[str], None] = lambda job_id: None
    #: What killed workers left is removed this often. A worker counts as killed after `dead_s`, if its function beats.
    tidy_s: int = 60
    dead_s: int | None = None
    #: The queue that is looked at, and the last jobs that were begun.
    queue: str = ""
    begun: deque[str] = field(default_factory=lambda: deque(maxlen=1_000))
    #: Problems of Redis aren't logged before this, by the monotonic clock, in seconds.
    quiet_until_s: float = 0.0
    #: Of the job that runs: its id, and what tells rq that it still does.
    job_id: str = ""
    beat: Callable[[], None] = lambda: None

    def now_ms(self) -> int | None:
        """The time by which jobs are checked; None while the clock is wrong."""
        try:
            return self.clock.now_ms()
        except ClockOff:
            return None

    def drop(self, problem: NoJob) -> None:
        self.dropped(self.queues[self.queue], problem)

    def form(self, name: str) -> Form | None:
        return next((form for form in self.functions if form.name == name), None)


def table_job(
    form: Form, arguments: Any, unused: redis.Redis, *, job_id: str, description: str,
    keys: LogKeys = UNKEYED, now_ms: int = 0,
) -> rq.job.Job:  # fmt: skip
    """A new job as rq's record of it. `unused` is a client that rq requires and never calls."""
    signature = keys.tick_signature(*form.signed(arguments), job_id, str(now_ms))
    signed = {"made_ms": now_ms, "signature": signature} if signature else {}
    job = rq.job.Job.create(
        form.name, arguments, signed, unused,
        id=job_id, serializer=JSONSerializer, description=description, status=JobStatus.QUEUED,
    )  # fmt: skip
    _set_limits(job, form, arguments)
    return job


def pairs_of(job: rq.job.Job) -> list[Any]:
    """The fields and values of a job's hash, as a script takes them."""
    return [part for pair in job.to_dict().items() for part in pair]


def _set_limits(job: rq.job.Job, form: Form, arguments: Any) -> None:
    job.origin, job.timeout = form.queue(arguments), form.limit_s
    job.result_ttl, job.failure_ttl = form.finished_s, form.failed_s


class TableJob(rq.job.Job):
    """A job that was found in Redis. A subclass sets the duty."""

    duty: ClassVar[Duty]
    form: Form

    def refresh(self) -> None:
        """Read it. Raises `NoSuchJobError` if it isn't there, or not ours and so dropped: rq then passes on."""
        most = max(form.most_bytes for form in self.duty.functions)
        try:
            found: Any = self.connection.register_script(_READ_SCRIPT)(keys=[self.key], args=[most])
            if found is None:
                raise NoSuchJobError(self.key)
            if found == b"size":
                raise NoJob("size")
            self.restore(dict(zip(found[::2], found[1::2], strict=True)))
        except (NoJob, ResponseError) as problem:  # or it isn't a hash
            self.drop(problem if isinstance(problem, NoJob) else NoJob("record"))
            raise NoSuchJobError(self.key) from None

    def restore(self, raw_data: Mapping[bytes, bytes]) -> None:
        """Take a hash for a job of ours. Raises `NoJob` for anything else."""
        fields = {name: value for name, value in raw_data.items() if value}
        most = max(form.most_data_bytes for form in self.duty.functions)
        try:
            unpacked = zlib.decompressobj().decompress(fields.get(b"data", b""), most)
            function, _, raw, signed = _data.decode(unpacked)
            form = self.duty.form(function)
            arguments = msgspec.json.decode(raw, type=form.arguments) if form is not None else ("",)
        except (zlib.error, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise NoJob("data") from None
        if not fields.keys() <= _FIELDS | {b"worker_name"}:
            raise NoJob("fields", function)
        if form is None:
            raise NoJob("function", function)
        if arguments[0] != self.duty.cluster or (signed.signature and not self.duty.keys.present):
            raise NoJob("arguments", function)
        if not self.duty.keys.accepts_tick(signed.signature, *form.signed(arguments), self.id, str(signed.made_ms)):
            raise NoJob("signature", function)
        try:
            # The data as it was checked: what is packed behind it isn't unpacked.
            super().restore({name: fields[name] for name in _READ & fields.keys()} | {b"data": unpacked})
        except ValueError:  # a time or a status
            raise NoJob("fields", function) from None
        self.form = form
        _set_limits(self, form, arguments)

    def check(self, queue: str, now_ms: int) -> None:
        """Begin it. Raises `NoJob` unless it comes from its own queue, waits, and isn't old."""
        if self.origin != queue:
            raise NoJob("arguments", self.form.name)
        begun = self.form.once and self.id in self.duty.begun
        if self.get_status(refresh=False) != JobStatus.QUEUED or begun:
            raise NoJob("again", self.form.name)
        # Nobody can make a job without the key, but anybody could put an old one back.
        if self.duty.keys.strict and abs(now_ms - self.kwargs["made_ms"]) > self.form.waits_s * 1000:
            raise NoJob("age", self.form.name)
        if not self.form.once and (fault := self.duty.begins(self)):
            raise NoJob(fault, self.form.name)
        self.duty.begun.append(self.id)

    def drop(self, problem: NoJob) -> None:
        self.connection.unlink(self.key)
        self.duty.drop(problem)

    @property
    def func(self) -> Callable[..., None]:
        """The function of the table that it names."""
        return self.duty.functions[self.form]
