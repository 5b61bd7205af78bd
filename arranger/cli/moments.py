"""The program that `arranger serve` and `arranger ui` run for the console's questions: it reads the log once, keeps an
index and snapshots in memory, and answers each line on standard input with a line on standard output."""

import gc

if __name__ == "__main__":
    gc.disable()  # as `arranger` does: a collection while modules are imported looks at them in vain

import asyncio
import contextlib
import os
import resource
import sys
import traceback
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import click
import msgspec

from arranger.cli.answering import TOO_LARGE, reason_of
from arranger.cli.inputs.log_options import log_options
from arranger.cli.inputs.reading import opened
from arranger.cli.inputs.server import found_server
from arranger.errors import ArrangerError, LogUnavailable
from arranger.model.text import one_line
from arranger.settings import Settings
from arranger.web.moment_process import MomentReply, MomentRequest, MomentSource
from arranger.web.moments import Moments, attended
from arranger.workers.flow import cancelling

#: What it may use, in bytes; the snapshots use a part of it.
_MEMORY_BYTES = 8 << 30
_NICE = 5


@click.command()
@log_options
def command(target: str | None, settings: Settings) -> None:
    """Answer the console's questions on standard input until it ends."""
    gc.freeze()
    gc.enable()
    limited()
    asyncio.run(_answer(target, settings))


def limited() -> None:
    """Limit the memory of this process."""
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    with contextlib.suppress(ValueError, OSError):  # a lower limit is set already
        resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY_BYTES, most))


async def standard_input() -> asyncio.StreamReader:
    """The requests."""
    requests = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(requests), sys.stdin)
    return requests


async def _answer(target: str | None, settings: Settings) -> None:
    requests = await standard_input()
    try:
        async with opened(target, settings) as log:
            here = log.live and not await found_server(target, settings)
            url = target or settings.redis_url
            moments = Moments(log, partial(_attended, url, settings.cluster) if here else attended)
            giving_way = asyncio.create_task(_give_way(moments.ready))
            try:
                await while_followed(serve(requests, moments, write), moments.follow())
            finally:
                await cancelling.end([giving_way])
    except ArrangerError:
        # The server opens the same log, and ends with the same words.
        if await requests.readline():
            raise


async def while_followed(serving: Coroutine[Any, Any, None], following: Coroutine[Any, Any, None]) -> None:
    """Serve until that ends. If the log isn't followed any more before, raise why: this process has to end, because
    another one in its place reads the log that is there then."""
    tasks = [asyncio.create_task(serving), asyncio.create_task(following)]
    try:
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in ended:
            task.result()
    finally:
        await cancelling.end(tasks)


async def _give_way(ready: asyncio.Event) -> None:
    """What is live goes first, once the first picture is there: then the whole log is read."""
    await ready.wait()
    os.nice(_NICE)


async def _attended(url: str, cluster: str) -> bool:
    """Whether a process works on the log, or may do so because Redis doesn't tell."""
    from arranger.events.redis_connection import connect  # the client is slow to import, and files don't need it
    from arranger.workers.members.membership import read_members

    client = connect(url)
    try:
        return bool(await read_members(client, cluster))
    except LogUnavailable:
        return True
    finally:
        await client.aclose()


async def serve(requests: asyncio.StreamReader, moments: MomentSource, write: Callable[[MomentReply], None]) -> None:
    """Reply to each question until the requests end. The next one comes after the reply, or takes the question back."""
    answering: asyncio.Task[None] | None = None
    try:
        while line := await requests.readline():
            request = msgspec.json.decode(line, type=MomentRequest)
            if request.name:
                answering = asyncio.create_task(_answer_one(moments, request, write))
            elif answering is not None and not answering.done():
                await cancelling.end([answering])
                if answering.cancelled():
                    write(MomentReply(request.number, reason="ServiceUnavailable", message="nobody waits for it"))
    finally:
        if answering is not None:
            await cancelling.end([answering])


async def _answer_one(moments: MomentSource, request: MomentRequest, write: Callable[[MomentReply], None]) -> None:
    write(await _reply(moments, request))


def write(reply: MomentReply) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(reply) + b"\n")
    sys.stdout.buffer.flush()


def refusal(request: MomentRequest, problem: ArrangerError) -> MomentReply:
    return MomentReply(request.number, reason=reason_of(problem), message=one_line(str(problem)))


async def _reply(moments: MomentSource, request: MomentRequest) -> MomentReply:
    try:
        content, complete = await moments.answer(request.name, request.values, end=request.end, epoch=request.epoch)
    except ArrangerError as problem:
        return refusal(request, problem)
    except MemoryError:
        return MomentReply(request.number, reason="RequestEntityTooLarge", message=TOO_LARGE)
    except Exception:  # whoever waits is told at once
        traceback.print_exc()
        return MomentReply(request.number, reason="InternalError", message="it failed; the server's output says why")
    return MomentReply(request.number, msgspec.Raw(content), complete=complete)


if __name__ == "__main__":
    command()
