"""The record of a tick in Redis: an rq job that names `handle_tick` with two strings.

A client that can write to Redis can put any job into a queue. rq would import and call the functions that a job names
(its own, a method, callbacks) and send webhooks. So this module checks the raw hash of a job, and rq never loads it.
The worker drops every job that is not a tick. With a key (`log_keys`) a tick also names when it was made, and has a
signature, so the worker drops ticks that nobody with a key made, and old ones.
"""

import uuid
import zlib
from enum import StrEnum
from typing import Any

import msgspec
import redis
import rq.job
import rq.queue
import rq.serializers

from arranger.events.log_keys import UNKEYED, LogKeys

#: The function that a tick names in Redis. Its name and its arguments never change.
FUNCTION = "arranger.workers.members.ticks.handle_tick"
#: The time limit of a handler in seconds; in the record for people who use rq's tools.
HANDLER_LIMIT_S = 120
#: Redis expires a tick that no worker fetched for this many seconds.
FORGOTTEN_AFTER_S = 300

#: Limits of a tick's hash. The server does not send a larger one.
MAX_FIELDS = 40
MAX_BYTES = 8_192
#: Limit of a job's id, in bytes; ours have 32.
MAX_ID_BYTES = 200
#: Limit of a job's unpacked data, in bytes.
_MAX_DATA_BYTES = 1_024

#: The fields that rq writes for a tick. Every other one must be empty, as rq writes those that it doesn't use.
_FIELDS = frozenset(
    ("created_at", "data", "description", "enqueued_at", "failure_ttl", "origin", "result_ttl", "status", "timeout")
)

# KEYS: the job's hash. ARGV: limits of the number of its fields and of its bytes.
# Returns whether it is such a hash, and then its fields and values, which it deletes.
TAKE = """
local kind = redis.call('TYPE', KEYS[1]).ok
if kind == 'none' then
  return {'missing'}
end
if kind ~= 'hash' or redis.call('HLEN', KEYS[1]) > tonumber(ARGV[1]) then
  return {'not a tick'}
end
local bytes = 0
for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
  bytes = bytes + #field + redis.call('HSTRLEN', KEYS[1], field)
end
if bytes > tonumber(ARGV[2]) then
  return {'not a tick'}
end
local found = redis.call('HGETALL', KEYS[1])
redis.call('UNLINK', KEYS[1])
table.insert(found, 1, 'hash')
return found
"""


class _Signed(msgspec.Struct, forbid_unknown_fields=True):
    """The named arguments of a tick: none without a key."""

    made_ms: int = 0
    signature: str = ""


_data = msgspec.json.Decoder(tuple[str, None, tuple[str, str], _Signed])


class TickFault(StrEnum):
    """Why a job in a queue of ticks is not a tick."""

    ID = "id"
    RECORD = "record"
    FIELDS = "fields"
    DATA = "data"
    FUNCTION = "function"
    ARGUMENTS = "arguments"
    SIGNATURE = "signature"
    AGE = "age"


class NoTick(Exception):
    """A job that is not a tick: `fault` is the wrong part, `named` the function in it (cut; "" if unknown)."""

    def __init__(self, fault: TickFault, named: str = "") -> None:
        super().__init__(fault)
        self.fault = fault
        self.named = named[:100]


def queue_name(cluster: str, tick: str) -> str:
    return f"arranger:{cluster}:{tick}"


def queue_key(cluster: str, tick: str) -> str:
    """The key in Redis of that queue's list."""
    return rq.queue.Queue.redis_queue_namespace_prefix + queue_name(cluster, tick)


def job_key(job_id: bytes) -> bytes:
    """The key in Redis of a job's hash. Raises `NoTick` for an id longer than any of ours."""
    if len(job_id) > MAX_ID_BYTES:
        raise NoTick(TickFault.ID)
    return rq.job.Job.redis_job_namespace_prefix.encode() + job_id


def tick_job(
    function: Any, cluster: str, tick: str, unused: redis.Redis, *, keys: LogKeys = UNKEYED, now_ms: int = 0
) -> rq.job.Job:
    """A new tick as rq's record of a job. `unused` is a client that rq requires and never calls."""
    job_id = uuid.uuid4().hex
    signature = keys.tick_signature(cluster, tick, job_id, str(now_ms))
    return rq.job.Job.create(
        function,
        args=(cluster, tick),
        kwargs={"made_ms": now_ms, "signature": signature} if signature else {},
        connection=unused,
        serializer=rq.serializers.JSONSerializer,
        id=job_id,
        origin=queue_name(cluster, tick),
        description=f"tick {tick} of {cluster}",
        status=rq.job.JobStatus.QUEUED,
        timeout=HANDLER_LIMIT_S,
        result_ttl=0,
        failure_ttl=FORGOTTEN_AFTER_S,
    )


def check_tick(
    answer: list[bytes], *, cluster: str, tick: str, job_id: bytes = b"", keys: LogKeys = UNKEYED, now_ms: int = 0
) -> bool:
    """Whether the reply of `TAKE` is a tick of this cluster and name; False if its record has expired.

    Raises `NoTick` for anything else.
    """
    found = answer[0]
    if found == b"missing":
        return False
    if found != b"hash":
        raise NoTick(TickFault.RECORD)
    fields = {name: value for name, value in zip(answer[1::2], answer[2::2], strict=True) if value}
    function, _, arguments, signed = _called(fields.get(b"data", b""))
    if any(name.decode(errors="replace") not in _FIELDS for name in fields):
        raise NoTick(TickFault.FIELDS, function)
    if function != FUNCTION:
        raise NoTick(TickFault.FUNCTION, function)
    if arguments != (cluster, tick) or (signed.signature and not keys.present):
        raise NoTick(TickFault.ARGUMENTS, function)
    made = (cluster, tick, job_id.decode(errors="replace"), str(signed.made_ms))
    if not keys.accepts_tick(signed.signature, *made):
        raise NoTick(TickFault.SIGNATURE, function)
    # Nobody can make a tick without the key, but anybody could put an old one back.
    if keys.strict and abs(now_ms - signed.made_ms) > FORGOTTEN_AFTER_S * 1000:
        raise NoTick(TickFault.AGE, function)
    return True


def _called(packed: bytes) -> tuple[str, None, tuple[str, str], _Signed]:
    """Function, instance, arguments and named arguments in a job's data, as plain text: no name in it is resolved."""
    try:
        unpacked = zlib.decompressobj().decompress(packed, _MAX_DATA_BYTES)
        return _data.decode(unpacked)
    except (zlib.error, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise NoTick(TickFault.DATA) from None
