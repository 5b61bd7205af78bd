"""The log in Redis: one stream per cluster, one entry per batch with the ID `<last offset>-0`.

All keys begin with `arranger:{<cluster>}:`, so they share a slot. Every change is one script (`redis_scripts`), which
makes it safe to repeat after a lost reply. Each object remembers the furthest position that it has seen, and appends
only to a log that still has that position.

A reader checks in this order: another epoch or none, or a log that ends before the position or has another chain there,
is `EpochLost`; a position before the oldest entry is `EntriesTrimmed`. If the next entry doesn't follow from the
position, the entry at the position decides: if it isn't the one that was read, the tail was written again
(`EpochLost`), else the next entry is damaged (`DamagedEntry`).
"""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import redis.asyncio

from arranger.clock import wall_clock_ms
from arranger.errors import (
    ClockOff,
    DamagedEntry,
    EntriesTrimmed,
    EpochLost,
    LogError,
    LogUnavailable,
    NoLog,
    OutdatedAppend,
    UnknownEvent,
    UsageError,
    WatchSuperseded,
)
from arranger.events.codec import (
    RecentBatches,
    StoredEntry,
    checked_snapshot,
    decode_snapshot,
    encode_batch,
    encode_snapshot,
    signed_snapshot,
    verified_run,
)
from arranger.events.fence import Fence, superseded
from arranger.events.file_log import Copyable
from arranger.events.kinds import Batch, EpochBegun
from arranger.events.log import (
    EPOCH_WRITER,
    EVENTS_A_READ,
    SNAPSHOTS_KEPT,
    Appended,
    Entry,
    Position,
    Seen,
    SnapshotMark,
    StoredSnapshot,
    epoch_after,
)
from arranger.events.log_keys import UNCHECKED, UNKEYED, Authenticity, LogKeys
from arranger.events.redis_connection import connect, of_one_stream, translated
from arranger.events.redis_loading import load_log
from arranger.events.redis_scripts import APPEND, BEGIN_EPOCH, PUT_SNAPSHOT, TRIM, TURN_MS
from arranger.events.redis_urls import redacted

OLDEST_SERVER = (6, 2)
WRITERS_KEPT = 10_000
WAIT_SLICE_S = 1.0
#: The maximum number of entries in one reply to a waiting reader; after that many it reads on by ranges.
NEWS_AT_ONCE = 32
#: How often an append with a key is tried because other writers were faster, and the wait while one has its turn.
_MOVES, _TURN_S = 500, 0.005
#: The fields of the record of the log's ends, in this order.
_ENDS = ("epoch", "end", "chain", "start", "start_chain")
_CLUSTER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


class RedisLog:
    """A cluster's `Log` in Redis. `server` is a URL or an asyncio client, which the caller must then close.

    `now_ms` numbers the first epoch of a new log. The log refuses a batch or epoch whose time differs from the server's
    by more than `clock_bound_ms`; None accepts any. With `read_only` nothing is ever written: `open` raises
    `UsageError` without a log. `keys` sign and check entries and snapshots; without them, a log that was signed is open
    for reading only, unchecked. Raises `UsageError` for an unusable URL or cluster name.
    """

    live = True

    def __init__(
        self,
        server: "str | redis.asyncio.Redis",
        cluster: str,
        *,
        now_ms: Callable[[], int] = wall_clock_ms,
        read_only: bool = False,
        clock_bound_ms: int | None = None,
        keys: LogKeys = UNKEYED,
    ) -> None:
        if not _CLUSTER.fullmatch(cluster):
            raise UsageError(
                f"cluster name {cluster!r} can't be used", hint="1 to 63 letters, digits, dots, dashes, underscores"
            )
        self._owns_client = isinstance(server, str)
        self._where = redacted(server) if isinstance(server, str) else "the given client"
        self._client: Any = connect(server) if isinstance(server, str) else server
        self._now_ms = now_ms
        self._read_only = read_only
        self.keys = keys
        #: For the scripts: 1 if we sign, 0 if we have a key and don't sign yet, empty without a key.
        self._mark = "1" if keys.signs else "0" if keys.present else ""
        self._clock_bound: int | str = "" if clock_bound_ms is None else clock_bound_ms
        prefix = f"arranger:{{{cluster}}}:"
        self._keys = [prefix + name for name in ("log", "meta", "writers", "cursors", "snapshots")]
        self._stream, self._meta, _, _, self._snapshots = self._keys
        self._scripts = {text: self._client.register_script(text) for text in (APPEND, BEGIN_EPOCH, TRIM, PUT_SNAPSHOT)}
        self._seen = Seen()
        self._recent = RecentBatches()
        self._turn = asyncio.Lock()
        #: The log's end at the last read: a reader that continues there waits at once.
        self._ended_at: Position | None = None

    async def open(self) -> Position:
        with translated(self._where, opening=True):
            await self._check_server()
        end = await self._end(opening=True)
        if end is not None:
            await self._check_keys()
            return end
        if self._read_only:
            raise NoLog(f"there is no log at {self._where}", hint="check the URL and the cluster's name")
        return await self.begin_epoch(lost=0, reason="the log was empty", time_ms=self._now_ms())

    async def _check_server(self) -> None:
        info: Mapping[str, Any] = await self._client.info()
        version = str(info.get("redis_version", ""))
        numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
        if numbers < OLDEST_SERVER:
            raise UsageError(f"Redis at {self._where} is version {version or 'unknown'}", hint="6.2 or newer is needed")
        policy = str(info.get("maxmemory_policy", ""))
        if int(info.get("maxmemory", 0)) and policy.startswith("allkeys-"):
            raise UsageError(
                f"Redis at {self._where} may evict the log (maxmemory-policy {policy})", hint="set it to noeviction"
            )

    @property
    def authenticity(self) -> Authenticity:
        return self.keys.authenticity

    async def _check_keys(self) -> None:
        """Without a key, read a signed log unchecked. Raises `UsageError` if it would be written."""
        if self.keys.present:
            return
        signed = (await self._ask("HGET", self._meta, "keyed")) == b"1"
        if signed and not self._read_only:
            raise _unsigned(self._where)
        self.keys = UNCHECKED if signed else UNKEYED

    async def append(self, batch: Batch, *, epoch: int, fence: Fence | None = None) -> Appended:
        payload = encode_batch(batch)
        if not self.keys.signs:
            return await self._append(batch, payload, epoch, fence)
        async with self._turn:  # those of one process aren't in each other's way
            return await self._append(batch, payload, epoch, fence)

    async def _append(self, batch: Batch, payload: bytes, epoch: int, fence: Fence | None) -> Appended:
        seen = end = self._seen.in_epoch(epoch)
        late = 0
        for _ in range(_MOVES):
            # Redis must not know the key, so the chain is computed here, for the end of the log as it is known here.
            chain = self.keys.chain(end, len(batch.events), payload) if self.keys.signs else ""
            answer = await self._run(
                *(APPEND, epoch, seen.offset, seen.chain, batch.writer, batch.seq, len(batch.events), payload),
                *((fence.watch, fence.term, fence.cursor) if fence is not None else ("", "", "")),
                *(batch.time_ms, self._clock_bound, self._mark, end.offset, end.chain, chain, late, TURN_MS),
            )
            match answer[0]:
                case b"turn":
                    await asyncio.sleep(_TURN_S)
                case b"moved":
                    late, end = late + 1, Position(epoch, int(answer[1]), answer[2].decode())
                case _:
                    return self._answered(answer, batch, payload, fence=fence, seen=seen)
        raise LogUnavailable(f"the log at {self._where} was appended to {_MOVES} times before us")

    def _answered(
        self, answer: Sequence[Any], batch: Batch, payload: bytes, *, fence: Fence | None, seen: Position
    ) -> Appended:
        """The result of an append, or its error."""
        epoch = seen.epoch
        match answer[0]:
            case b"appended":
                return self._appended(batch, payload, epoch, [part.decode() for part in answer[1:]])
            case b"duplicate":
                return Appended(int(answer[1]), int(answer[2]), duplicate=True, cursor=answer[3].decode())
            case b"superseded" if fence is not None:
                raise _superseded(fence, answer[1])
            case b"clock":
                raise ClockOff(int(answer[1]))
            case b"later":
                raise OutdatedAppend(f"writer {batch.writer} appends batch {batch.seq} after {int(answer[1])}")
            case b"tail":
                raise _gone(seen)
            case b"keyed":
                raise _unsigned(self._where)
            case _:
                raise _other_epoch(answer[1], epoch)

    def _appended(self, batch: Batch, payload: bytes, epoch: int, answer: Sequence[str]) -> Appended:
        first, last, chain, cursor, chain_before = int(answer[0]), int(answer[1]), *answer[2:]
        self._seen.passed(Position(epoch, last, chain))
        read = self._recent.decode(StoredEntry(last, len(batch.events), chain, payload))
        entry = Entry(first, last, chain, read)
        return Appended(first, last, duplicate=False, cursor=cursor, entry=entry, chain_before=chain_before)

    async def _ask(self, *command: Any) -> Any:
        with translated(self._where):
            return await self._client.execute_command(*command)

    async def _run(self, script: str, *arguments: Any) -> list[Any]:
        if self._read_only:
            raise LogError(f"the log at {self._where} is open for reading only")
        with translated(self._where):
            try:
                answer: list[Any] = await self._scripts[script](keys=self._keys, args=arguments)
            except redis.exceptions.ResponseError as error:
                # The stream has a later ID than the record of its end: the end went back by itself.
                if "equal or smaller" in str(error):
                    raise EpochLost("the log's end lies before entries that it held once") from error
                raise
        return answer

    async def read(self, after: Position, *, limit: int = 1000, wait_s: float = 0.0) -> Sequence[Entry]:
        self._seen.passed(after)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_s
        while True:
            found = [] if wait_s > 0 and after == self._ended_at else await self._read_now(after, limit)
            left_s = deadline - loop.time()
            if found or left_s <= 0:
                return found
            found = await self._await_news(after, min(limit, NEWS_AT_ONCE), left_s)
            if found:
                return found
            self._ended_at = None  # no entry came, or not the next one: check that it is the same log

    async def _await_news(self, after: Position, limit: int, wait_s: float) -> list[Entry]:
        """Entries after the end of the log as soon as they are appended, in one round trip; empty after a while.

        An entry whose chain follows from the position proves that the log is the one that was read. The wait is in
        slices, because Redis doesn't wake a reader whose stream was deleted or created again.
        """
        wait_ms = max(1, round(min(wait_s, WAIT_SLICE_S) * 1000))
        read = ("XREAD", "COUNT", limit, "BLOCK", wait_ms, "STREAMS", self._stream, f"{after.offset}-0")
        answer = await self._ask(*read)
        stored = (self._stored(entry_id, fields, after) for entry_id, fields in of_one_stream(answer))
        try:
            found = verified_run(stored, after, self._recent.decode, keys=self.keys)
        except DamagedEntry:
            return []
        if found:
            last = Position(after.epoch, found[-1].last, found[-1].chain)
            self._seen.passed(last)
            self._ended_at = last if len(found) < limit else None
        return found

    async def _read_now(self, after: Position, limit: int) -> list[Entry]:
        """Read in one round trip, unless something is wrong."""
        # IDs are offsets, so a range of IDs bounds the events, and with them the memory, of one read.
        meta, raw = await self._fetch(after, f"{after.offset + EVENTS_A_READ}-0", limit)
        end = _check_position(meta, after)
        if not raw and end.offset > after.offset:
            # One entry larger than the range, unless something is missing.
            meta, raw = await self._fetch(after, "+", 1)
            end = _check_position(meta, after)
            if not raw and end.offset > after.offset:
                reason = f"the log ends at offset {end.offset}, and nothing follows here"
                raise self.keys.refusal(after.offset + 1, reason)
        try:
            stored = (self._stored(entry_id, fields, after) for entry_id, fields in raw)
            found = verified_run(stored, after, keys=self.keys)
        except UnknownEvent:
            raise
        except DamagedEntry:
            await self._check_held(after)
            raise
        last = Position(after.epoch, found[-1].last, found[-1].chain) if found else after
        if found:
            self._seen.passed(last)
        self._ended_at = last if last.offset == end.offset else None
        return found

    async def read_stored(self, after: Position, *, limit: int = 1000) -> Sequence[StoredEntry]:
        meta, raw = await self._fetch(after, "+", limit)
        _check_position(meta, after)
        return [self._stored(entry_id, fields, after) for entry_id, fields in raw]

    async def load(self, source: Copyable) -> Position:
        """Copy a log into Redis with its epoch, offsets, chain and snapshots; returns its end.

        It is stored whole or not at all. Every entry is checked. Raises `UsageError` if a log exists already.
        """
        with translated(self._where, opening=True):
            await self._check_server()
            if await self._client.exists(*self._keys):
                raise self._there()
        end = await load_log(self._client, self._keys, source, where=self._where)
        if end is None:
            raise self._there()
        return end

    def _there(self) -> UsageError:
        hint = "give an empty database or another --cluster: nothing is overwritten"
        return UsageError(f"there is a log at {self._where} already", hint=hint)

    async def old_epochs(self) -> Sequence[int]:
        """The epochs that have ended and whose streams are still kept, oldest first."""
        (listed,) = await self._ask("HMGET", self._meta, "old")
        epochs = [int(epoch) for epoch in (listed or b"").decode().split()]
        return [epoch for epoch in epochs if await self._ask("EXISTS", self._old_stream(epoch))]

    def _old_stream(self, epoch: int) -> str:
        return f"{self._stream}:old:{epoch}"

    async def old_end(self, epoch: int) -> tuple[int, int]:
        """Of an ended epoch: the offset before its first entry that still exists, and the offset of its last event."""
        stream = self._old_stream(epoch)
        first = await self._ask("XRANGE", stream, "-", "+", "COUNT", 1)
        last = await self._ask("XREVRANGE", stream, "+", "-", "COUNT", 1)
        if not first or not last:
            return 0, 0
        origin = Position(epoch, 0, "")
        return self._stored(first[0][0], first[0][1], origin).before, int(last[0][0].partition(b"-")[0])

    async def read_old(self, after: Position, limit: int) -> Sequence[StoredEntry]:
        """Entries of an ended epoch as stored, unchecked."""
        stream = self._old_stream(after.epoch)
        raw = await self._ask("XRANGE", stream, f"{after.offset + 1}-0", "+", "COUNT", limit)
        return [self._stored(entry_id, fields, after) for entry_id, fields in raw]

    def _stored(self, entry_id: bytes, fields: Mapping[bytes, bytes] | None, after: Position) -> StoredEntry:
        try:
            last = int(entry_id.partition(b"-")[0])
            present = fields or {}
            return StoredEntry(last, int(present[b"n"]), present[b"c"].decode(), present[b"p"])
        except (KeyError, ValueError) as error:
            reason = f"stream entry {entry_id.decode()} isn't an entry of ours"
            raise self.keys.refusal(after.offset + 1, reason) from error

    async def _fetch(self, after: Position, until: str, limit: int) -> tuple[list[Any], list[Any]]:
        """The record of the log's ends, and then the entries after a position.

        Not in a transaction, which servers before 7.2 refuse when memory is full, even to a reader. So entries may be
        appended, trimmed or lost between the two; `_check_held` handles entries that don't fit.
        """
        with translated(self._where):
            async with self._client.pipeline(transaction=False) as pipe:
                pipe.execute_command("HMGET", self._meta, *_ENDS)
                pipe.execute_command("XRANGE", self._stream, f"{after.offset + 1}-0", until, "COUNT", limit)
                meta, raw = await pipe.execute()
        return meta, raw

    async def _check_held(self, position: Position) -> None:
        """Raise `EpochLost` or `EntriesTrimmed` unless the log still has the entry that ends at this position."""
        exact = f"{position.offset}-0"
        raw = await self._ask("XRANGE", self._stream, exact, exact)
        meta = await self._ask("HMGET", self._meta, *_ENDS)
        _check_position(meta, position)
        if position.offset == int(meta[3]):
            return
        if not raw or (raw[0][1] or {}).get(b"c") != position.chain.encode():
            raise EpochLost(
                f"the log up to offset {position.offset} is not the one that was read: it was written again"
            )

    async def _end(self, *, opening: bool = False) -> Position | None:
        with translated(self._where, opening=opening):
            epoch, end, chain = await self._client.execute_command("HMGET", self._meta, "epoch", "end", "chain")
        if epoch is None:
            return None
        position = _position(epoch, end, chain)
        self._seen.ended(position)
        return position

    async def end(self) -> Position:
        position = await self._end()
        if position is None:
            raise _other_epoch(None, None)
        return position

    async def start(self) -> Position:
        epoch, start, chain = await self._ask("HMGET", self._meta, "epoch", "start", "start_chain")
        if epoch is None:
            raise _other_epoch(None, None)
        return _position(epoch, start, chain)

    async def begin_epoch(
        self, *, lost: int, reason: str, time_ms: int, fence: Fence | None = None, cluster: str = ""
    ) -> Position:
        epoch = epoch_after(lost, time_ms)
        payload = encode_batch(Batch(EPOCH_WRITER, 1, time_ms, (EpochBegun(epoch, lost, reason, cluster),)))
        named = (fence.watch, fence.term) if fence is not None else ("", "")
        chain = self.keys.chain(Position(epoch, 0, ""), 1, payload) if self.keys.signs else ""
        signed = (self._mark, chain)
        answer = await self._run(BEGIN_EPOCH, lost, epoch, payload, *named, time_ms, self._clock_bound, *signed)
        if answer[0] == b"keyed":
            raise _unsigned(self._where)
        if answer[0] == b"clock":
            raise ClockOff(int(answer[1]))
        if fence is not None and answer[0] == b"superseded":
            raise _superseded(fence, answer[1])
        present, end, chain = answer
        position = Position(int(present), int(end), chain.decode())
        self._seen.ended(position)
        return position

    async def put_snapshot(self, snapshot: StoredSnapshot) -> None:
        content = await asyncio.to_thread(lambda: encode_snapshot(signed_snapshot(snapshot, self.keys)))
        position = snapshot.position
        named = (position.epoch, position.offset, position.chain)
        answer = await self._run(PUT_SNAPSHOT, *named, content, SNAPSHOTS_KEPT)
        if answer[0] == b"epoch":
            raise _other_epoch(answer[1], position.epoch)
        if answer[0] == b"tail":
            raise _gone(position)

    async def newest_snapshot(self, *, at_most: int | None = None) -> StoredSnapshot | None:
        while True:
            offsets = [mark.offset for mark in await self.snapshot_marks() if at_most is None or mark.offset <= at_most]
            if not offsets:
                return None
            content = await self._ask("HGET", self._snapshots, offsets[-1])
            # Newer snapshots may have replaced it between the two commands.
            if content is not None:
                try:
                    stored = await asyncio.to_thread(decode_snapshot, content, offsets[-1])
                    stored = await asyncio.to_thread(checked_snapshot, stored, self.keys)
                except DamagedEntry as problem:
                    # Its own words name an offset, and the next older snapshot is the one below its place.
                    raise self.keys.refusal(offsets[-1], problem.reason) from problem
                self._seen.passed(stored.position)
                return stored

    async def snapshot_marks(self) -> Sequence[SnapshotMark]:
        offsets = await self._ask("HKEYS", self._snapshots)
        return [SnapshotMark(offset) for offset in sorted(int(offset) for offset in offsets if offset.isdigit())]

    async def trim(self, before: int, *, epoch: int) -> int:
        answer = await self._run(TRIM, epoch, before, WRITERS_KEPT)
        if answer[0] == b"epoch":
            raise _other_epoch(answer[1], epoch)
        return int(answer[1])

    async def close(self) -> None:
        if self._owns_client:
            await self._client.aclose()


def _other_epoch(present: bytes | None, mine: int | None) -> EpochLost:
    if present is None or present == b"none":
        return EpochLost("the log is empty: it has no epoch")
    return EpochLost(f"the log is in epoch {int(present)}, not {mine}")


def _gone(position: Position) -> EpochLost:
    return EpochLost(f"the log was read up to offset {position.offset}, and that is no longer in it")


def _superseded(fence: Fence, present: bytes) -> WatchSuperseded:
    return superseded(fence, None if present == b"none" else int(present))


def _unsigned(where: str) -> UsageError:
    return UsageError(
        f"the log at {where} is signed with a key, and this process has none",
        hint="set log_key (ARRANGER_LOG_KEY) as for the other processes",
    )


def _incomplete() -> LogError:
    return LogError("the log's record of its end is incomplete", hint="restore the log from its archive")


def _position(epoch: bytes, offset: bytes | None, chain: bytes | None) -> Position:
    if offset is None or chain is None:
        raise _incomplete()
    return Position(int(epoch), int(offset), chain.decode())


def _check_position(meta: Sequence[bytes | None], after: Position) -> Position:
    """The log's end, after checks that its record doesn't contradict the position."""
    epoch, end, chain, start, start_chain = meta
    if epoch is None or int(epoch) != after.epoch:
        raise _other_epoch(epoch, after.epoch)
    if end is None or chain is None or start is None or start_chain is None:
        raise _incomplete()
    if after.offset < int(start):
        raise EntriesTrimmed(f"events up to offset {int(start)} were trimmed; read up to {after.offset}")
    if after.offset > int(end):
        raise EpochLost(f"the log ends at offset {int(end)}; read up to {after.offset}: its tail was lost")
    for offset, known in ((end, chain), (start, start_chain)):
        if after.offset == int(offset) and after.chain.encode() != known:
            raise EpochLost(f"the log up to offset {after.offset} is not the one that was read: it was written again")
    return Position(after.epoch, int(end), chain.decode())
