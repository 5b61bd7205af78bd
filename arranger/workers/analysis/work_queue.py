"""Questions as rq jobs, seen by those who ask: put one in, look how far it is, take its answer, take it back.

A question is a job that names `arranger.workers.analysis.answer`, in one of three queues; analysts take from the first
one that has any. Who asks the same of the same log gets the same job. In each queue users take turns: a job belongs to
a round, the one after that of its user's last waiting job, and stands before all jobs of later rounds. So its place in
rq's list is its turn, and rq's worker needs to know nothing of users.

What rq keeps of a job is about rq. How far it is, how often it was begun and how it ended stands in a record of ours,
because the job class reads no `meta`, and because rq's records of a killed worker's job are about that worker.

Redis keys, all with a time to live: the hash `arranger:<cluster>:work:<id>` is the record; with `:given` behind it, the
input; `:result`, the answer; `:cancel`, set if it shall end. `arranger:<cluster>:work` is a sorted set of all ids.
"""

import hashlib
import zlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import redis
import redis.asyncio
from msgspec import Meta

from arranger.clock import Clock
from arranger.errors import ArrangerError
from arranger.events.log_keys import LogKeys
from arranger.events.redis_connection import translated
from arranger.workers.jobs.table_jobs import Form, pairs_of, table_job

#: The queues, the most urgent first.
QUEUES = ("interactive", "report", "archive")
#: How many may wait, in all queues together.
MOST_WAITING = 1_000
#: Seconds: how long a question may wait, how long its result is kept, and how long its work may take.
WAITS_S, KEPT_S, LIMIT_S = 86_400, 3_600, 600
#: Limits of what a question brings, and of its answer.
MOST_GIVEN_BYTES, MOST_ANSWER_BYTES = 4 << 20, 32 << 20
#: How often work is begun: once, and twice more after its analyst was killed.
MOST_TRIES = 3
#: A waiting job that is in no queue for this long was lost between its queue and its analyst, in milliseconds.
_LOST_MS = 30_000

_Word = Annotated[str, Meta(max_length=512)]
_Short = Annotated[str, Meta(max_length=256)]


class _Arguments(NamedTuple):
    """What a job says of its question. `given` is the SHA-256 of its input, "" for none."""

    cluster: str
    queue: Literal["interactive", "report", "archive"]
    words: Annotated[list[_Word], Meta(max_length=256)]
    user: _Short
    kind: _Short
    given: Annotated[str, Meta(max_length=64)]


def queue_of(cluster: str, queue: str) -> str:
    """The name of a queue for rq."""
    return f"arranger:{cluster}:{queue}"


#: The function that a question names in Redis. Its name never changes.
ANSWER = Form(
    name="arranger.workers.analysis.answer",
    arguments=_Arguments,
    queue=lambda arguments: queue_of(arguments[0], arguments[1]),
    # Encoded, so that no word of a question can pass for something else that is signed.
    signed=lambda arguments: ("arranger.workers.analysis.answer", msgspec.json.encode([*arguments]).decode()),
    limit_s=LIMIT_S, waits_s=WAITS_S, finished_s=KEPT_S, failed_s=KEPT_S,
    most_bytes=512 << 10, most_data_bytes=256 << 10, once=False,
)  # fmt: skip


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """A question that was asked. Times in milliseconds since 1970, 0 if not yet. `percent` and `offset` say how far it
    is, `tries` how often it was begun. If it failed, `message` says why, and `reason` is that of a refusal."""

    id: str
    kind: str
    queue: str
    user: str
    words: tuple[str, ...]
    state: Literal["waiting", "running", "done", "failed", "cancelled"]
    percent: int = 0
    offset: int = 0
    asked_ms: int = 0
    began_ms: int = 0
    ended_ms: int = 0
    tries: int = 0
    worker: str = ""
    message: str = ""
    reason: str = ""


class Answer(msgspec.Struct, frozen=True):
    """How a command ended: what it printed, what it said on standard error, and its exit status."""

    out: bytes
    err: bytes
    status: int


class TooManyWait(ArrangerError):
    """The queues are full."""


class WorkKeys:
    """The names in Redis of the work of a cluster."""

    def __init__(self, cluster: str) -> None:
        self.all = f"arranger:{cluster}:work"
        self.lists = [f"rq:queue:{queue_of(cluster, each)}" for each in QUEUES]

    def record(self, job_id: str) -> str:
        return f"{self.all}:{job_id}"

    def given(self, job_id: str) -> str:
        return f"{self.all}:{job_id}:given"

    def result(self, job_id: str) -> str:
        return f"{self.all}:{job_id}:result"

    def cancel(self, job_id: str) -> str:
        return f"{self.all}:{job_id}:cancel"

    def of(self, job_id: str) -> list[str]:
        return [self.record(job_id), self.given(job_id), self.result(job_id), self.cancel(job_id)]


def signed_result(job_id: str, out: bytes, err: bytes, status: int) -> tuple[str, ...]:
    """What the signature of an answer covers."""
    digests = (hashlib.sha256(part).hexdigest() for part in (out, err))
    return ("arranger.workers.analysis.result", job_id, *digests, str(status))


# KEYS: the queue's list, rq's set of queues, the job's hash, its record, input, result and cancel key, all ids, and the
# lists of all queues.
# ARGV: id, time to live in seconds, most that wait, user, prefix of records, now in ms, ms until one is lost, input,
# number of parts of the record, the record's fields and values, those of the job.
# Returns 1: asked, 0: there is one already, -1: too many wait.
_ASK = """
local id, prefix, now = ARGV[1], ARGV[5], tonumber(ARGV[6])
local waiting, queued = 0, false
for at = 9, #KEYS do
  waiting = waiting + redis.call('LLEN', KEYS[at])
end
local found = redis.call('HMGET', KEYS[4], 'state', 'asked_ms')
if found[1] == 'running' or (found[1] == 'done' and redis.call('EXISTS', KEYS[6]) == 1) then
  return 0
end
if found[1] == 'waiting' then
  if now - (tonumber(found[2]) or 0) < tonumber(ARGV[7]) then
    return 0
  end
  for at = 9, #KEYS do
    for _, each in ipairs(redis.call('LRANGE', KEYS[at], 0, -1)) do
      if each == id then
        return 0
      end
    end
  end
end
if waiting >= tonumber(ARGV[3]) then
  return -1
end
local ids = redis.call('LRANGE', KEYS[1], 0, -1)
local rounds, round = {}, 0
for at, each in ipairs(ids) do
  local about = redis.call('HMGET', prefix .. each, 'round', 'user')
  rounds[at] = tonumber(about[1])
  if rounds[at] then
    if not queued then
      queued, round = true, math.max(round, rounds[at])
    end
    if about[2] == ARGV[4] then
      round = math.max(round, rounds[at] + 1)
    end
  end
end
redis.call('UNLINK', KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7])
local parts = tonumber(ARGV[9])
redis.call('HSET', KEYS[4], 'round', round, unpack(ARGV, 10, 9 + parts))
redis.call('HSET', KEYS[3], unpack(ARGV, 10 + parts))
redis.call('EXPIRE', KEYS[3], ARGV[2])
redis.call('EXPIRE', KEYS[4], ARGV[2])
if ARGV[8] ~= '' then
  redis.call('SET', KEYS[5], ARGV[8], 'EX', ARGV[2])
end
redis.call('ZREMRANGEBYSCORE', KEYS[8], '-inf', now - 2 * 1000 * tonumber(ARGV[2]))
redis.call('ZADD', KEYS[8], now, id)
redis.call('EXPIRE', KEYS[8], 2 * tonumber(ARGV[2]))
redis.call('SADD', KEYS[2], KEYS[1])
for at, each in ipairs(ids) do
  if rounds[at] and rounds[at] > round then
    redis.call('LINSERT', KEYS[1], 'BEFORE', each, id)
    return 1
  end
end
redis.call('RPUSH', KEYS[1], id)
return 1
"""

# KEYS: the record, the cancel key, the job's hash, the lists of all queues. ARGV: id, now in ms, time to live of what
# has ended in seconds. Returns whether it waited or ran.
_CANCEL = """
local state = redis.call('HGET', KEYS[1], 'state')
if state == 'running' then
  redis.call('SET', KEYS[2], '1', 'EX', ARGV[3])
  return 1
end
if state ~= 'waiting' then
  return 0
end
for at = 4, #KEYS do
  redis.call('LREM', KEYS[at], 0, ARGV[1])
end
redis.call('UNLINK', KEYS[3])
redis.call('HSET', KEYS[1], 'state', 'cancelled', 'ended_ms', ARGV[2], 'message', 'it was cancelled while it waited')
redis.call('EXPIRE', KEYS[1], ARGV[3])
return 1
"""


class WorkQueue:
    """Asks analysts. Calls raise `LogUnavailable` while Redis can't be used."""

    def __init__(self, client: redis.asyncio.Redis, *, cluster: str, clock: Clock, keys: LogKeys) -> None:
        """`keys` sign questions, and check answers."""
        self._client, self._cluster, self._clock, self._keys = client, cluster, clock, keys
        self._names = WorkKeys(cluster)
        at = client.connection_pool.connection_kwargs
        self._where = f"{at['host']}:{at.get('port', 6379)}" if "host" in at else "its address"
        self._ask, self._cancel = client.register_script(_ASK), client.register_script(_CANCEL)
        # rq requires a synchronous client to create its records; this one never connects.
        self._unused = redis.Redis()

    async def ask(
        self, words: Sequence[str], *, given: bytes = b"", user: str, queue: str = "interactive", kind: str,
        end: str = "",
    ) -> str:  # fmt: skip
        """Ask, unless the same is being answered or was lately: then that one's id. `words` are the command's, `given`
        its input. `end` names the end of the log for a question whose answer depends on more than its words. Raises
        `TooManyWait`, and `ClockOff`."""
        now_ms = self._clock.now_ms()
        digest = hashlib.sha256(given).hexdigest() if given else ""
        asked = _Arguments(self._cluster, queue, list(words), user, kind, digest)  # type: ignore[arg-type]
        try:
            msgspec.json.decode(msgspec.json.encode(asked), type=_Arguments)
        except msgspec.ValidationError as problem:
            raise ArrangerError(f"that can't be asked: {problem}") from None
        if len(given) > MOST_GIVEN_BYTES:
            raise ArrangerError(f"a question may bring at most {MOST_GIVEN_BYTES >> 20} MiB")
        same = msgspec.json.encode([self._cluster, list(words), digest, end])
        job_id = hashlib.sha256(same).hexdigest()[:32]
        job = table_job(
            ANSWER, asked, self._unused, job_id=job_id, description=f"{kind} of {user}", keys=self._keys, now_ms=now_ms
        )
        work = Work(id=job_id, kind=kind, queue=queue, user=user, words=tuple(words), state="waiting", asked_ms=now_ms)
        record = _pairs(work)
        names = self._names
        with translated(self._where):
            done = await self._ask(
                keys=[f"rq:queue:{job.origin}", "rq:queues", job.key, *names.of(job_id), names.all, *names.lists],
                args=[
                    job_id, WAITS_S, MOST_WAITING, user, f"{names.all}:", now_ms, _LOST_MS, given,
                    len(record), *record, *pairs_of(job),
                ],
            )  # fmt: skip
        if done < 0:
            raise TooManyWait(f"{MOST_WAITING} questions wait for an answer", hint="try again soon")
        return job_id

    async def work(self, job_id: str) -> Work | None:
        """How far it is; None if nobody asked, or long ago."""
        with translated(self._where):
            found: Any = await self._client.hgetall(self._names.record(job_id))
        return _work(found)

    async def result(self, job_id: str) -> Answer | None:
        """The answer, for an hour; None if there is none, or one that no analyst with our key signed."""
        with translated(self._where):
            found: Any = await self._client.hgetall(self._names.result(job_id))
        try:
            answer = Answer(_unpacked(found[b"out"]), _unpacked(found[b"err"]), int(found[b"status"]))
            signature = found.get(b"signature", b"").decode()
        except (KeyError, ValueError, zlib.error):
            return None
        said = signed_result(job_id, answer.out, answer.err, answer.status)
        return answer if self._keys.accepts_tick(signature, *said) else None

    async def list(self) -> "list[Work]":
        """What waits, by its queues and in the order of turns; what runs; and what ended, the last first."""
        names = self._names
        with translated(self._where):
            pipeline = self._client.pipeline(transaction=False)
            for each in names.lists:
                pipeline.lrange(each, 0, MOST_WAITING)
            pipeline.zrevrange(names.all, 0, 4 * MOST_WAITING)
            *waiting, known = await pipeline.execute()
            ids = list(dict.fromkeys([job_id for queue in waiting for job_id in queue] + known))
            for job_id in ids:
                pipeline.hgetall(names.record(job_id.decode(errors="replace")))
            found = [work for record in await pipeline.execute() if (work := _work(record)) is not None]
        order = {"waiting": 0, "running": 1}
        return sorted(found, key=lambda work: (order.get(work.state, 2), -work.ended_ms))

    async def cancel(self, job_id: str) -> bool:
        """Take a question back: one that waits at once, one that runs within about a second. False if it does
        neither."""
        names, now_ms = self._names, self._clock.now_ms()
        with translated(self._where):
            return bool(
                await self._cancel(
                    keys=[names.record(job_id), names.cancel(job_id), f"rq:job:{job_id}", *names.lists],
                    args=[job_id, now_ms, KEPT_S],
                )
            )

    async def analysts(self) -> int:
        """How many analysts live, by rq's heartbeats."""
        with translated(self._where):
            found: Any = await self._client.smembers(f"rq:workers:{queue_of(self._cluster, QUEUES[0])}")
            return int(await self._client.exists(*found)) if found else 0


def _pairs(work: Work) -> "list[Any]":
    """The fields and values of a record. Numbers of it are as Redis counts."""
    return [
        part
        for name, value in msgspec.structs.asdict(work).items()
        for part in (name, msgspec.json.encode(value) if isinstance(value, tuple) else value)
    ]


def _work(found: Mapping[bytes, bytes]) -> Work | None:
    """The work of a record; None if it is none."""
    fields: dict[str, Any] = {
        name.decode(errors="replace"): part.decode(errors="replace") for name, part in found.items()
    }
    try:
        fields["words"] = msgspec.json.decode(fields.get("words", "[]"), type=tuple[str, ...])
        return msgspec.convert(fields, Work, strict=False)
    except (msgspec.MsgspecError, ValueError):
        return None


def packed(content: bytes) -> bytes:
    return zlib.compress(content, 1)


def _unpacked(content: bytes) -> bytes:
    """What was packed. Raises `zlib.error` for more than an answer may have."""
    unpacking = zlib.decompressobj()
    unpacked = unpacking.decompress(content, MOST_ANSWER_BYTES + 1)
    if len(unpacked) > MOST_ANSWER_BYTES or not unpacking.eof:
        raise zlib.error
    return unpacked
