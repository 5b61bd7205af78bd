"""The places where a log can live, each with the faults that the contract suite inflicts on it."""

import asyncio
import contextlib
import hashlib
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Protocol

import fakeredis
import redis.asyncio

from arranger.clock import SystemClock
from arranger.events.file_log import _FIXED_BYTES, FileLog, _encode_record
from arranger.events.log import Log, Position
from arranger.events.log_keys import UNKEYED, LogKeys, next_chain
from arranger.events.redis_log import RedisLog
from tests.file_writer import FileWriter
from tests.memory_log import MemoryHome, MemoryLog


class Home(Protocol):
    """One home of one log. Faults happen behind the backs of the logs that are open."""

    #: Whether several processes may append (a file has one writer).
    many_writers: bool

    def log(self, *, clock_bound_ms: int | None = None, ahead_ms: int = 0) -> Log:
        """A client of its own, as another process would have it, whose clock is ahead."""
        ...

    async def close(self) -> None: ...

    async def lose_everything(self) -> None: ...

    async def lose_tail(self, after: int) -> None: ...

    async def damage(self, last: int) -> None:
        """Alter one byte of the payload of the entry that ends at this offset."""
        ...

    async def remove(self, last: int) -> None:
        """Take out one entry from the middle."""
        ...

    async def add_raw(self, payload: bytes, count: int) -> None:
        """Append a payload that `append` wouldn't write."""
        ...


def ahead(ms: int) -> Callable[[], int]:
    """A wall clock that is ahead of this machine's."""
    return lambda: SystemClock().now_ms() + ms


class InMemory:
    many_writers = True

    def __init__(self) -> None:
        self._home = MemoryHome()

    def log(self, *, clock_bound_ms: int | None = None, ahead_ms: int = 0) -> Log:
        now_ms = ahead(ahead_ms) if clock_bound_ms is not None else lambda: 1
        return MemoryLog(self._home, now_ms=now_ms, clock_bound_ms=clock_bound_ms)

    async def close(self) -> None:
        return None

    async def lose_everything(self) -> None:
        self._home.lose_everything()

    async def lose_tail(self, after: int) -> None:
        self._home.lose_tail(after)

    async def damage(self, last: int) -> None:
        import msgspec

        for number, entry in enumerate(self._home.stored):
            if entry.last == last:
                payload = entry.payload[:-1] + bytes([entry.payload[-1] ^ 1])
                self._home.stored[number] = msgspec.structs.replace(entry, payload=payload)

    async def remove(self, last: int) -> None:
        self._home.stored = [entry for entry in self._home.stored if entry.last != last]

    async def add_raw(self, payload: bytes, count: int) -> None:
        self._home.add(payload, count)


class InFile:
    many_writers = False

    def __init__(self, folder: Path) -> None:
        self.path = folder / "log"
        self._logs: list[FileLog] = []

    def log(self, *, clock_bound_ms: int | None = None, ahead_ms: int = 0) -> Log:
        self._logs.append(FileWriter(self.path))
        return self._logs[-1]

    async def close(self) -> None:
        for log in self._logs:
            await log.close()

    async def lose_everything(self) -> None:
        self.path.unlink()

    async def _scanned(self) -> FileLog:
        reader = FileLog(self.path)
        await reader.open()
        return reader

    async def lose_tail(self, after: int) -> None:
        reader = await self._scanned()
        number = reader._index.after(_position(reader, after))
        os.truncate(self.path, reader._records[number].at - _FIXED_BYTES)
        await reader.close()

    async def damage(self, last: int) -> None:
        reader = await self._scanned()
        record = reader._records[reader._index.lasts.index(last)]
        with self.path.open("r+b") as file:
            file.seek(record.at + record.payload_bytes - 1)
            byte = file.read(1)[0]
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte ^ 1]))
        await reader.close()

    async def remove(self, last: int) -> None:
        reader = await self._scanned()
        record = reader._records[reader._index.lasts.index(last)]
        content = self.path.read_bytes()
        self.path.write_bytes(content[: record.at - _FIXED_BYTES] + content[record.at + record.payload_bytes :])
        await reader.close()

    async def add_raw(self, payload: bytes, count: int) -> None:
        reader = await self._scanned()
        chain = next_chain(reader._index.end.chain, payload)
        with self.path.open("ab") as file:
            file.write(_encode_record(chain, payload, count))
        await reader.close()


def _position(reader: FileLog, offset: int) -> Position:
    return reader._index.position(reader._index.lasts.index(offset))


class InRedis:
    many_writers = True
    cluster = "contract"
    prefix = "arranger:{contract}:"

    def __init__(self, client: Callable[[], Any], keys: LogKeys = UNKEYED) -> None:
        self._keys = keys
        self._new_client = client
        self._clients: list[Any] = []
        self.client = self._client()

    def _client(self) -> Any:
        self._clients.append(self._new_client())
        return self._clients[-1]

    def log(self, *, clock_bound_ms: int | None = None, ahead_ms: int = 0) -> Log:
        told = ahead(ahead_ms)
        return RedisLog(self._client(), self.cluster, now_ms=told, clock_bound_ms=clock_bound_ms, keys=self._keys)

    async def close(self) -> None:
        for client in self._clients:
            await client.aclose()

    async def lose_everything(self) -> None:
        await self.client.flushdb()

    async def _rebuild(self, entries: list[tuple[bytes, dict[bytes, bytes]]]) -> None:
        await self.client.delete(self.prefix + "log")
        for entry_id, fields in entries:
            await self.client.xadd(self.prefix + "log", fields, id=entry_id)

    async def lose_tail(self, after: int) -> None:
        entries = await self.client.xrange(self.prefix + "log", max=f"{after}-0")
        await self._rebuild(entries)
        end = {"end": entries[-1][0].partition(b"-")[0], "chain": entries[-1][1][b"c"]}
        await self.client.hset(self.prefix + "meta", mapping=end)
        for writer, mark in (await self.client.hgetall(self.prefix + "writers")).items():
            if int(mark.rpartition(b":")[2]) > after:
                await self.client.hdel(self.prefix + "writers", writer)

    async def damage(self, last: int) -> None:
        entries = await self.client.xrange(self.prefix + "log")
        for entry_id, fields in entries:
            if entry_id == b"%d-0" % last:
                fields[b"p"] = fields[b"p"][:-1] + bytes([fields[b"p"][-1] ^ 1])
        await self._rebuild(entries)

    async def remove(self, last: int) -> None:
        await self.client.xdel(self.prefix + "log", f"{last}-0")

    async def add_raw(self, payload: bytes, count: int) -> None:
        epoch, end, chain = await self.client.hmget(self.prefix + "meta", "epoch", "end", "chain")
        last = int(end) + count
        chain = self._keys.chain(Position(int(epoch), int(end), chain.decode()), count, payload)
        await self.client.xadd(self.prefix + "log", {"p": payload, "c": chain, "n": count}, id=f"{last}-0")
        await self.client.hset(self.prefix + "meta", mapping={"end": last, "chain": chain})


class FakeRedis(fakeredis.FakeAsyncRedis):
    """fakeredis with what it lacks and every real server has: INFO."""

    facts: dict[str, Any] = {"redis_version": "6.2.14", "maxmemory": 0, "maxmemory_policy": "noeviction"}  # noqa: RUF012

    async def info(self, *_: Any, **__: Any) -> dict[str, Any]:
        return self.facts


#: Keys of a log that is signed.
KEYS = LogKeys(["k" * 32])


async def fake_redis(keys: LogKeys = UNKEYED) -> InRedis:
    """A home in fakeredis, and there in the scripts `sha1hex`, which it lacks too."""
    server = fakeredis.FakeServer(version=(6, 2))
    home = InRedis(lambda: FakeRedis(server=server), keys)
    await home.client.eval("return 1", 0)
    server._lua_runtime.globals()[b"redis"][b"sha1hex"] = lambda text: hashlib.sha1(text).hexdigest().encode()
    return home


def in_redis_at(url: str, keys: LogKeys = UNKEYED) -> InRedis:
    """A home on a real server, in the database that the URL names."""
    return InRedis(lambda: redis.asyncio.Redis.from_url(url), keys)


class LossyProxy:
    """A TCP proxy in front of Redis: an answer to a script that is to be dropped closes the connection instead."""

    def __init__(self, port: int) -> None:
        self._target_port = port
        self.drop_answers = 0
        self.port = 0

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["LossyProxy"]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()

    async def _serve(self, client_in: asyncio.StreamReader, client_out: asyncio.StreamWriter) -> None:
        server_in, server_out = await asyncio.open_connection("127.0.0.1", self._target_port)
        asked: list[bytes] = [b""]

        async def requests() -> None:
            while chunk := await client_in.read(65536):
                asked[0] = chunk
                server_out.write(chunk)
                await server_out.drain()

        async def answers() -> None:
            while chunk := await server_in.read(65536):
                if self.drop_answers and b"EVALSHA" in asked[0]:
                    self.drop_answers -= 1
                    return
                client_out.write(chunk)
                await client_out.drain()

        both = [asyncio.create_task(requests()), asyncio.create_task(answers())]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in both:
                task.cancel()
            await asyncio.gather(*both, return_exceptions=True)
            client_out.close()
            server_out.close()
