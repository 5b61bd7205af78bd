"""A watch over HTTP: one line of JSON per change, and bookmarks during silence."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncGenerator, Iterator

import msgspec
from aiohttp import web

from arranger.sandbox.call import JSON, Call
from arranger.sandbox.status import ApiRefusal, FieldError, invalid
from arranger.sandbox.store import Store, parsed_version
from arranger.sandbox.view import KindView

BOOKMARK_S = 30.0
#: The duration of a watch without a requested timeout; real servers choose 30 to 60 minutes.
WATCH_S = 1800.0
_INITIAL_END = {"k8s.io/initial-events-end": "true"}


async def stream(store: Store, call: Call, view: KindView, *, bookmark_s: float) -> web.StreamResponse:
    """Serve a watch until its timeout."""
    _hold_options(call)
    response = web.StreamResponse(headers={"Content-Type": JSON})
    await response.prepare(call.request)
    try:
        async with contextlib.aclosing(_lines(store, call, view, bookmark_s)) as lines:
            async for line in lines:
                await response.write(line)
    except ApiRefusal as refusal:
        await response.write(msgspec.json.encode({"type": "ERROR", "object": refusal.status()}) + b"\n")
    with contextlib.suppress(ConnectionError):
        await response.write_eof()
    return response


def _hold_options(call: Call) -> None:
    """Refuse invalid options before the response begins."""
    if call.flag("sendInitialEvents") and call.query.get("resourceVersionMatch") != "NotOlderThan":
        why = "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        error = FieldError("resourceVersionMatch", why, "FieldValueForbidden")
        raise invalid("ListOptions", "meta.k8s.io", "", [error])
    call.selection().matches()
    parsed_version(call.query.get("resourceVersion", ""))
    call.number("timeoutSeconds")


async def _lines(store: Store, call: Call, view: KindView, bookmark_s: float) -> AsyncGenerator[bytes, None]:
    initial, bookmarks = call.flag("sendInitialEvents"), call.flag("allowWatchBookmarks")
    since = call.query.get("resourceVersion", "")
    clock = asyncio.get_running_loop().time
    deadline = clock() + (call.number("timeoutSeconds") or WATCH_S)
    news = asyncio.Event()
    watch = store.watch(call.resource, call.selection(), since, news.set, initial=initial)
    headed = itertools.chain([True], itertools.repeat(False))

    def changes() -> Iterator[bytes]:
        # Sending may wait for a slow client, so more changes may exist afterwards.
        while events := watch.take():
            yield b"".join(view.event(event, headed=next(headed)) for event in events)

    with contextlib.closing(watch):
        if bookmarks and (initial or since in ("", "0")):
            for line in changes():
                yield line
            yield view.bookmark(store.version, _INITIAL_END)
        while (left_s := deadline - clock()) > 0:
            for line in changes():
                yield line
            news.clear()
            try:
                async with asyncio.timeout(min(left_s, bookmark_s)):
                    await news.wait()
            except TimeoutError:
                # A change may have come at the last moment: a bookmark of its version must follow it.
                for line in changes():
                    yield line
                if bookmarks:
                    yield view.bookmark(store.version)
