"""What the HTTP client makes of an API server that behaves oddly."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from arranger import __version__
from arranger.kube.client import HttpCluster
from arranger.kube.cluster import NODES, PODS, ApiError, ClusterUnavailable, Expired, ListPage, WatchEvent
from arranger.kube.config import Access, Credentials

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
EVENT = b'{"type":"ADDED","object":{"metadata":{"name":"p%d","resourceVersion":"%d"}}}\n'


class Requests:
    """Remembers what the client told of its requests."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, int]] = []

    def __call__(self, *, verb: str, resource: str, code: int, seconds: float) -> None:
        self.seen.append((verb, resource, code))


def fixed(server: str, authorization: str = "") -> Access:
    """Access to a server whose address and token are known and don't change."""
    credentials = Credentials(server=server, authorization=authorization)
    return Access(lambda: credentials, source=server)


@contextlib.asynccontextmanager
async def serving(handler: Handler, *, access: Access | None = None, **options: Any) -> AsyncIterator[HttpCluster]:
    """A client of a server that answers everything by `handler`."""
    application = web.Application(client_max_size=8 * 1024 * 1024)
    application.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    listener = socket.create_server(("127.0.0.1", 0))
    await web.SockSite(runner, listener).start()
    server = f"http://127.0.0.1:{listener.getsockname()[1]}"
    if access is not None:
        access._credentials = Credentials(server=server, authorization=access._credentials.authorization)
    cluster = HttpCluster(access or fixed(server, "Bearer secret"), **options)
    try:
        yield cluster
    finally:
        await cluster.close()
        await runner.cleanup()


def streaming(*chunks: bytes, then: Callable[[web.StreamResponse], Awaitable[None]] | None = None) -> Handler:
    """A watch that sends these pieces, then ends, or does what `then` says."""

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
            await asyncio.sleep(0.01)
        if then is not None:
            await then(response)
        return response

    return handler


def answering(body: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> Handler:
    """Answers everything alike."""

    async def handler(request: web.Request) -> web.StreamResponse:
        text = body if isinstance(body, str) else json.dumps(body)
        return web.Response(text=text, status=status, headers=headers, content_type="application/json")

    return handler


async def silence(response: web.StreamResponse) -> None:
    await asyncio.sleep(30)


async def cut(response: web.StreamResponse) -> None:
    assert response._req is not None and response._req.transport is not None
    response._req.transport.abort()


async def watched(cluster: HttpCluster, seen: list[WatchEvent] | None = None) -> list[list[WatchEvent]]:
    """Every list of changes until the watch ends; `seen` keeps them if it ends with an error."""
    lists = []
    async for changes in cluster.watch(PODS, "1"):
        lists.append(changes)
        if seen is not None:
            seen.extend(changes)
    return lists


async def test_a_request_carries_the_token_the_user_agent_and_is_told_of() -> None:
    requests = Requests()
    headers: dict[str, str] = {}

    async def handler(request: web.Request) -> web.StreamResponse:
        headers.update(request.headers)
        return web.json_response({"metadata": {"name": "n"}})

    async with serving(handler, on_request=requests) as cluster:
        assert await cluster.get(NODES, None, "n") == {"metadata": {"name": "n"}}
    assert headers["Authorization"] == "Bearer secret"
    assert headers["User-Agent"] == f"arranger/{__version__}"
    assert requests.seen == [("get", "nodes", 200)]


async def test_a_listing_follows_continue_and_never_asks_a_stale_cache() -> None:
    asked: list[dict[str, str]] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        asked.append(dict(request.query))
        more = "" if "continue" in request.query else "next page/&"
        return web.json_response({"metadata": {"resourceVersion": "7", "continue": more}, "items": [{"page": more}]})

    async with serving(handler) as cluster:
        pages = [page async for page in cluster.listing(PODS, limit=3)]
    assert pages == [ListPage([{"page": "next page/&"}], "7"), ListPage([{"page": ""}], "7")]
    assert asked == [{"limit": "3"}, {"limit": "3", "continue": "next page/&"}]


async def test_a_listing_without_items_is_empty() -> None:
    async with serving(answering({"metadata": {"resourceVersion": "7"}, "items": None})) as cluster:
        assert [page async for page in cluster.listing(PODS)] == [ListPage([], "7")]


async def test_a_listing_whose_continuation_expired_raises_expired() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        if "continue" in request.query:
            return web.json_response({"code": 410, "reason": "Expired", "message": "too old"}, status=410)
        return web.json_response({"metadata": {"resourceVersion": "7", "continue": "x"}, "items": []})

    async with serving(handler) as cluster:
        with pytest.raises(Expired, match="too old"):
            async for _ in cluster.listing(PODS):
                pass


async def test_changes_that_arrive_together_come_together_and_in_order() -> None:
    burst = b"".join(EVENT % (n, n) for n in range(50))
    async with serving(streaming(burst, EVENT % (50, 50))) as cluster:
        lists = await watched(cluster)
    assert [len(changes) for changes in lists] == [50, 1]
    assert [change.resource_version for changes in lists for change in changes] == [str(n) for n in range(51)]


async def test_a_line_in_many_pieces_is_one_change() -> None:
    line = EVENT % (1, 1)
    async with serving(streaming(line[:10], line[10:20], line[20:])) as cluster:
        assert [change.object["metadata"]["name"] for [change] in await watched(cluster)] == ["p1"]


async def test_an_object_of_megabytes_comes_whole() -> None:
    big = json.dumps({"type": "ADDED", "object": {"metadata": {"resourceVersion": "1"}, "x": "y" * 1_400_000}})
    async with serving(streaming(big.encode() + b"\n" + EVENT % (2, 2))) as cluster:
        changes = [change for changes in await watched(cluster) for change in changes]
    assert [len(change.object.get("x", "")) for change in changes] == [1_400_000, 0]


async def test_a_silent_watch_is_unavailable() -> None:
    seen: list[WatchEvent] = []
    async with serving(streaming(EVENT % (1, 1), then=silence), silence_s=0.2) as cluster:
        with pytest.raises(ClusterUnavailable, match="no answer in time"):
            await watched(cluster, seen)
    assert len(seen) == 1


async def test_a_watch_that_ends_between_lines_just_ends() -> None:
    async with serving(streaming(EVENT % (1, 1))) as cluster:
        assert len(await watched(cluster)) == 1


async def test_a_watch_that_ends_within_a_line_is_unavailable() -> None:
    async with serving(streaming(EVENT % (1, 1), b'{"type":"ADD')) as cluster:
        with pytest.raises(ClusterUnavailable, match="middle of a line"):
            await watched(cluster)


async def test_a_watch_whose_connection_breaks_is_unavailable() -> None:
    async with serving(streaming(EVENT % (1, 1), then=cut)) as cluster:
        with pytest.raises(ClusterUnavailable):
            await watched(cluster)


async def test_a_watch_line_that_is_not_an_event_is_unavailable() -> None:
    async with serving(streaming(b"<html>\n")) as cluster:
        with pytest.raises(ClusterUnavailable, match="isn't a watch event"):
            await watched(cluster)


async def test_an_error_event_of_410_is_expired_after_the_changes_before_it() -> None:
    status = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "old"}}
    seen: list[WatchEvent] = []
    async with serving(streaming(EVENT % (1, 1) + json.dumps(status).encode() + b"\n")) as cluster:
        with pytest.raises(Expired):
            await watched(cluster, seen)
    assert [change.type for change in seen] == ["ADDED"]


async def test_another_error_event_is_an_api_error() -> None:
    status = {"type": "ERROR", "object": {"kind": "Status", "code": 500, "reason": "InternalError", "message": "x"}}
    async with serving(streaming(json.dumps(status).encode() + b"\n")) as cluster:
        with pytest.raises(ApiError) as caught:
            await watched(cluster)
    assert (caught.value.code, caught.value.reason) == (500, "InternalError")
    assert not isinstance(caught.value, Expired)


async def test_leaving_a_watch_early_closes_its_connection() -> None:
    ended = asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            for n in range(10_000):
                await response.write(EVENT % (n, n))
                await asyncio.sleep(0.005)
        except (ConnectionError, asyncio.CancelledError):
            ended.set()
        return response

    async with serving(handler) as cluster:
        stream = cluster.watch(PODS, "1")
        await anext(stream)
        await stream.aclose()  # type: ignore[attr-defined]
        await asyncio.wait_for(ended.wait(), 10)


@pytest.mark.parametrize(
    ("body", "headers", "wait_s"),
    [
        ({"code": 429, "reason": "TooManyRequests", "details": {"retryAfterSeconds": 3}}, {}, 3.0),
        ("too many requests", {"Retry-After": "2"}, 2.0),
        ("too many requests", {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}, 0.0),
    ],
)
async def test_how_long_a_busy_server_asks_to_wait_is_told(body: Any, headers: dict[str, str], wait_s: float) -> None:
    async with serving(answering(body, status=429, headers=headers)) as cluster:
        with pytest.raises(ApiError) as caught:
            await cluster.create(PODS, "default", {})
    assert (caught.value.code, caught.value.reason) == (429, "TooManyRequests")
    assert caught.value.retry_after_s == wait_s


async def test_a_refusal_without_a_status_says_what_was_said() -> None:
    async with serving(answering("<html>Bad\n Gateway</html>", status=502)) as cluster:
        with pytest.raises(ApiError, match="502 Unknown: <html>Bad Gateway</html>"):
            await cluster.get(PODS, "default", "p")


@pytest.mark.parametrize("body", ["{", "[1]", "\x00"])
async def test_broken_json_is_no_answer(body: str) -> None:
    async with serving(answering(body)) as cluster:
        with pytest.raises(ClusterUnavailable, match="isn't what it should be"):
            await cluster.get(PODS, "default", "p")


async def test_a_redirect_is_not_followed_with_our_token() -> None:
    async with serving(answering("", status=302, headers={"Location": "http://127.0.0.1:1/"})) as cluster:
        with pytest.raises(ApiError, match="302"):
            await cluster.get(PODS, "default", "p")


async def test_no_server_is_unavailable_and_told_as_code_0() -> None:
    requests = Requests()
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        cluster = HttpCluster(fixed(f"http://127.0.0.1:{unused.getsockname()[1]}"), on_request=requests)
        with pytest.raises(ClusterUnavailable) as caught:
            await cluster.get(PODS, "default", "p")
        await cluster.close()
    assert " ssl:" not in str(caught.value)
    assert requests.seen == [("get", "pods", 0)]


async def test_a_server_that_never_answers_is_unavailable() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(30)
        return web.Response()

    async with serving(handler, request_timeout_s=0.2) as cluster:
        with pytest.raises(ClusterUnavailable, match="no answer in time"):
            await cluster.delete(PODS, "default", "p")


def rotating(tokens: list[str]) -> Access:
    """Access whose token is the next of these each time that it is read; the server is filled in by `serving`."""
    access: Access

    def load() -> Credentials:
        server = "" if len(tokens) == count else access.server
        return Credentials(server=server, authorization=f"Bearer {tokens.pop(0)}")

    count = len(tokens)
    access = Access(load, source="test")
    return access


def accepting(token: str) -> Handler:
    """Answers 401 to every other token."""

    async def handler(request: web.Request) -> web.StreamResponse:
        if request.headers["Authorization"] != f"Bearer {token}":
            return web.json_response({"code": 401, "reason": "Unauthorized", "message": "no"}, status=401)
        await asyncio.sleep(0.01)
        return web.json_response({"metadata": {"name": "n"}})

    return handler


async def test_a_rejected_token_is_read_again_and_the_request_sent_again() -> None:
    requests = Requests()
    async with serving(accepting("new"), access=rotating(["old", "new"]), on_request=requests) as cluster:
        assert await cluster.create(NODES, None, {}) == {"metadata": {"name": "n"}}
    assert [code for _, _, code in requests.seen] == [401, 200]


async def test_many_requests_rejected_together_read_the_token_once() -> None:
    tokens = ["old", "new"]
    async with serving(accepting("new"), access=rotating(tokens)) as cluster:
        await asyncio.gather(*(cluster.get(NODES, None, "n") for _ in range(20)))
    assert tokens == []


async def test_a_token_rejected_twice_is_unauthorized() -> None:
    async with serving(accepting("other"), access=rotating(["old", "new"])) as cluster:
        with pytest.raises(ApiError) as caught:
            await cluster.get(NODES, None, "n")
    assert caught.value.code == 401


async def test_a_fixed_token_that_is_rejected_is_not_sent_again() -> None:
    requests = Requests()
    async with serving(accepting("other"), on_request=requests) as cluster:
        with pytest.raises(ApiError, match="401"):
            await cluster.get(NODES, None, "n")
    assert [code for _, _, code in requests.seen] == [401]


async def test_credentials_that_cannot_be_read_again_are_a_passing_trouble() -> None:
    async with serving(accepting("new"), access=rotating(["old"])) as cluster:
        with pytest.raises(ClusterUnavailable, match="can't be renewed"):
            await cluster.get(NODES, None, "n")
