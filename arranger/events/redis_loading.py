"""Copies a log of another kind into Redis: first beside the log's keys, and then renamed in one step."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from arranger.errors import LogUnavailable
from arranger.events.codec import encode_snapshot
from arranger.events.file_log import Copyable, stored_entries
from arranger.events.log import Position
from arranger.events.redis_connection import translated
from arranger.events.redis_scripts import LOAD

_LOADED_AT_ONCE = 200


async def load_log(client: Any, keys: Sequence[str], source: Copyable, *, where: str) -> Position | None:
    """Store a log whole under the five keys of a log, or not at all. Every entry is checked. Signatures are copied.

    Returns its end, None if a log exists there already. `where` names the server in errors.
    """
    loading = [f"{keys[0]}:loading", f"{keys[-1]}:loading"]
    try:
        with translated(where):
            await client.unlink(*loading)
        start = await source.start()
        end = await _load_entries(client, source, start, stream=loading[0], where=where)
        await _load_snapshots(client, source, key=loading[1], where=where)
        with translated(where):
            arguments = (end.epoch, end.offset, end.chain, start.offset, start.chain, "1" if source.keys.signed else "")
            script = client.register_script(LOAD)
            answer: list[bytes] = await script(keys=[*keys, *loading], args=arguments)
    finally:
        with suppress(LogUnavailable), translated(where):
            await client.unlink(*loading)
    return end if answer[0] != b"there" else None


async def _load_entries(client: Any, source: Copyable, after: Position, *, stream: str, where: str) -> Position:
    async for stored in stored_entries(source, after, at_once=_LOADED_AT_ONCE):
        with translated(where):
            async with client.pipeline(transaction=False) as pipe:
                for one in stored:
                    pipe.xadd(stream, {"p": one.payload, "c": one.chain, "n": one.count}, id=f"{one.last}-0")
                await pipe.execute()
        after = Position(after.epoch, stored[-1].last, stored[-1].chain)
    return after


async def _load_snapshots(client: Any, source: Copyable, *, key: str, where: str) -> None:
    for mark in await source.snapshot_marks():
        stored = await source.newest_snapshot(at_most=mark.offset)
        if stored is not None:
            content = await asyncio.to_thread(encode_snapshot, stored)
            with translated(where):
                await client.hset(key, str(stored.position.offset), content)
