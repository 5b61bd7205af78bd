"""The HTTP server of the API: routes, ETags, the stream of new events, and refusals as JSON."""

import asyncio
import errno
import logging
import re
import ssl
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec
from aiohttp import web

from arranger.errors import UsageError
from arranger.events.log import Position
from arranger.logs import log_event, tell_malformed_requests_briefly
from arranger.plugins import installed
from arranger.replay.reading.overview import overview
from arranger.replay.reading.queues import queue_list
from arranger.web.asking import Asker
from arranger.web.console_questions import CONSOLE
from arranger.web.log_copies import MEDIA_TYPE, LogCopies
from arranger.web.masking import MaskedNames, check, lacking, masked
from arranger.web.moment_process import MomentSource
from arranger.web.naming import EPOCH, LINES_TYPE, LOOPBACK, MANIFESTS_TYPE, PASSED_TOKEN, PREFIX
from arranger.web.news import New, News, Present, encoded
from arranger.web.page import Page
from arranger.web.questions import QUESTIONS, Asked, Question, asked, by_parameters, with_manifests
from arranger.web.refusals import CODES, Refusal, refuse
from arranger.web.rights import Gate, OpenGate, Viewer
from arranger.workers.flow import cancelling

_log = logging.getLogger(__name__)

#: How much of the answers is kept, so that many clients that ask the same cost one answer.
_KEPT_BYTES = 64 << 20
#: How much the objects of a question may be.
_MANIFESTS_BYTES = 256 << 10
#: How many clients may watch at once.
_WATCHERS = 200
_HEARTBEAT_S = 15.0
#: A connection without a whole request is closed after this time, and a body that comes more slowly is refused. Usual
#: proxies keep connections for a shorter time.
_REQUEST_S = 75.0
#: How often the rights of somebody who watches are asked again, in seconds.
_RIGHTS_AGAIN_S = 30.0
_ID = re.compile(r"(\d{1,18})-(\d{1,18})")
_HEADERS = {"Cache-Control": "private, no-cache", "Vary": "Accept, Authorization", "X-Content-Type-Options": "nosniff"}

#: Questions about the present that the projection answers by itself.
_AT_ONCE: dict[str, Callable[[Present], object]] = {
    "replay": lambda now: overview(now.state, now.config, installed(), seen=now.seen),
    "queue": lambda now: queue_list(now.seen),
}


class Explaining(MomentSource, Protocol):
    """Answers the question `explain` about offsets of the log, one after the other."""

    @property
    def idle(self) -> bool:
        """Whether an answer could begin at once."""
        ...


_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ApiServer:
    """Serves a log from `start` to `stop`. With a gate that lets everybody in, it takes only requests that name this
    machine as their host, so that no page of another site can read the answers. With `tls`, it speaks HTTPS."""

    def __init__(
        self,
        news: News,
        asker: Asker,
        *,
        host: str,
        port: int,
        gate: Gate | None = None,
        moments: MomentSource | None = None,
        explaining: Explaining | None = None,
        copies: LogCopies | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._news = news
        self._asker = asker
        self._moments = moments
        self._explaining = explaining
        self._gate = gate or OpenGate()
        self._pseudonyms = MaskedNames()
        self._host = host
        self._asked_port = port
        self._tls = tls
        #: The port that it listens on; 0 before `start`.
        self.port = 0
        self._watchers = 0
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._kept_bytes = 0
        self._following: asyncio.Task[None] | None = None
        tell_malformed_requests_briefly()
        # A handler is cancelled when its client goes, and with it the process that works on the answer.
        self._runner = web.AppRunner(
            self._app(copies),
            access_log=None,
            shutdown_timeout=1.0,
            handler_cancellation=True,
            keepalive_timeout=_REQUEST_S,
        )

    def _app(self, copies: LogCopies | None) -> web.Application:
        app = web.Application(middlewares=[self._guarded], client_max_size=0)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/api/openapi.json", self._openapi)
        app.router.add_get(f"{PREFIX}/live", self._live)
        for question in (*QUESTIONS.values(), *(CONSOLE.values() if self._moments is not None else ())):
            app.router.add_get(f"{PREFIX}/{question.name}", self._answering(question))
            if question.manifests:
                app.router.add_post(f"{PREFIX}/{question.name}", self._answering(question))
        if copies is not None:
            for name in copies.parts:
                app.router.add_get(f"{PREFIX}/log/{name}", self._copying(copies, name))
        app.router.add_get("/{path:.*}", Page().serve)
        return app

    async def start(self) -> None:
        """Listen, and follow the log. Raises `UsageError` if the address is unavailable."""
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self._host, self._asked_port, ssl_context=self._tls).start()
        except OSError as problem:
            await self._runner.cleanup()
            used = problem.errno == errno.EADDRINUSE
            why = "it is in use" if used else str(problem.strerror or problem)
            hint = "choose another with --port; 0 takes any free one"
            raise UsageError(f"can't listen on port {self._asked_port} of {self._host}: {why}", hint=hint) from problem
        self.port = self._runner.addresses[0][1]
        self._following = asyncio.create_task(self._news.follow())

    async def stop(self) -> None:
        if self._following is not None:
            await cancelling.end([self._following])  # if it failed, it has said so
        await self._runner.cleanup()

    @web.middleware
    async def _guarded(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Handle a request, and turn what goes wrong into a refusal as JSON."""
        try:
            if self._gate.loopback and _host_of(request) not in LOOPBACK:
                refuse("Forbidden", "this server answers only requests to 127.0.0.1 or localhost")
            return await handler(request)
        except Refusal as problem:
            return _refused(problem)
        except web.HTTPMethodNotAllowed:
            return _refused(Refusal("MethodNotAllowed", f"{request.method} is refused: this API only reads"))
        except web.HTTPNotFound:
            hint = f"/api/openapi.json describes {PREFIX}"
            return _refused(Refusal("NotFound", f"there is nothing at {request.path}", hint=hint))
        except ConnectionError:  # the client went
            raise
        except Exception as problem:
            log_event(_log, "a request failed", level=logging.ERROR, path=request.path, problem=repr(problem))
            return _refused(Refusal("InternalError", "the server failed to answer; its log says why"))

    async def _healthz(self, request: web.Request) -> web.Response:
        self._news.hurry()
        problem = self._news.problem
        body: dict[str, object] = {"ok": not problem}
        if self._gate.loopback:  # a problem may name addresses
            body |= {"problem": problem, "epoch": self._news.epoch, "offset": self._news.offset}
        return _json(msgspec.json.encode(body), status=503 if problem else 200)

    async def _openapi(self, request: web.Request) -> web.Response:
        from arranger.web.openapi import document  # slow to import, and the page doesn't ask for it

        return _json(msgspec.json.encode(document()))

    def _answering(self, question: Question) -> _Handler:
        async def answer(request: web.Request) -> web.Response:
            try:
                return await respond(request)
            except Refusal as problem:
                raise by_parameters(question, problem) from problem

        async def respond(request: web.Request) -> web.Response:
            viewer = await self._viewer(request)
            end = await self._news.position()
            response = await about(request, viewer, end)
            response.headers[EPOCH] = str(end.epoch)
            return response

        async def about(request: web.Request, viewer: Viewer, end: Position) -> web.Response:
            missing = await lacking(viewer)
            query = [*request.query.items()]
            inquiry = asked(question, query, epoch=end.epoch, end=end.offset, now_ms=self._news.now_ms)
            if missing:
                await check(inquiry, viewer, missing)
                whole = msgspec.json.decode((await self._content(inquiry, end))[0])
                part = await masked(inquiry, whole, viewer, self._pseudonyms)
                # Without an ETag: what the viewer may see can change while the log doesn't.
                return _json(encoded(part, name=lambda value: value))
            if request.method == "POST":
                inquiry, given = with_manifests(inquiry), await _manifests(request)
                return _json(encoded(await self._asker.ask(inquiry.arguments, lines=question.lines, given=given)))
            if question.lines and LINES_TYPE in request.headers.get("Accept", ""):
                return _lines(await self._asker.text(inquiry.arguments, lines=True))
            if inquiry.tag and inquiry.tag in request.headers.get("If-None-Match", ""):
                return web.Response(status=304, headers={**_HEADERS, "ETag": inquiry.tag})
            content, final = await self._content(inquiry, end)
            return _json(content, tag=inquiry.tag if final else "")

        return answer

    def _copying(self, copies: LogCopies, name: str) -> _Handler:
        async def part(request: web.Request) -> web.Response:
            if missing := await lacking(await self._viewer(request)):
                hint = "the API's replay and queue show the part that you may see"
                refuse("Forbidden", f"the log names what you may not see: {', '.join(map(str, missing))}", hint=hint)
            content = await copies.part(name, request.query)
            return web.Response(body=content, headers=_HEADERS, content_type=MEDIA_TYPE)

        return part

    async def _viewer(self, request: web.Request) -> Viewer:
        passed = request.headers.get(PASSED_TOKEN, "")
        return await self._gate.viewer(request.headers.get("Authorization", passed))

    async def _sees_all(self, request: web.Request) -> bool:
        return not await lacking(await self._viewer(request))

    async def _content(self, inquiry: Asked, end: Position) -> tuple[bytes, bool]:
        """The answer as JSON: a kept one, one from the projection, or one from another process; and whether it stays
        the same while the log does."""
        if (kept := self._kept.get(inquiry.tag)) is not None:
            self._kept.move_to_end(inquiry.tag)
            return kept, True
        question, final = inquiry.question, True
        if self._moments is not None and question.name in CONSOLE:
            content, final = await self._moments.answer(
                question.name, dict(inquiry.values), end=end.offset, epoch=end.epoch
            )
        elif inquiry.present and question.name in _AT_ONCE:
            now = await self._news.present()
            content = encoded(msgspec.to_builtins(_AT_ONCE[question.name](now)))
            final = now.state.offset == end.offset and not now.seen.assumed
        elif self._explaining is not None and question.name == "explain" and inquiry.tag and self._explaining.idle:
            content, _ = await self._explaining.answer(
                question.name, dict(inquiry.values), end=end.offset, epoch=end.epoch
            )
        else:
            content = encoded(await self._asker.ask(inquiry.arguments, lines=question.lines))
        if inquiry.tag and final and self._news.epoch == end.epoch:
            self._keep(inquiry.tag, content)
        return content, final

    def _keep(self, tag: str, content: bytes) -> None:
        self._kept_bytes += len(content) - len(self._kept.pop(tag, b""))
        self._kept[tag] = content
        while self._kept_bytes > _KEPT_BYTES:
            _, oldest = self._kept.popitem(last=False)
            self._kept_bytes -= len(oldest)

    async def _live(self, request: web.Request) -> web.StreamResponse:
        whole = await self._sees_all(request)
        await self._news.state()
        end = await self._news.position()
        epoch, offset = _begin(request.headers.get("Last-Event-ID", ""), end)
        if self._watchers >= _WATCHERS:
            refuse("TooManyRequests", f"{_WATCHERS} clients watch already", hint="try again later")
        self._watchers += 1
        response = web.StreamResponse(headers={**_HEADERS, EPOCH: str(end.epoch), "Content-Type": "text/event-stream"})
        try:
            await self._stream(request, response, epoch, offset, whole=whole)
        except ConnectionError:  # the client went; aiohttp would log that as an error
            if not response.prepared:
                raise
        finally:
            self._watchers -= 1
        return response

    async def _stream(
        self, request: web.Request, response: web.StreamResponse, epoch: int, offset: int, *, whole: bool
    ) -> None:
        news = self._news.after(epoch, offset)
        first = await anext(news)  # refused before the stream begins
        await response.prepare(request)
        await response.write(_piece(first, whole=whole) or b": begins\n\n")
        clock_s = asyncio.get_running_loop().time
        quiet_since_s = checked_s = clock_s()
        told = ""
        try:
            async for new in news:
                if clock_s() - checked_s > _RIGHTS_AGAIN_S:
                    whole, checked_s = await self._sees_all(request), clock_s()
                piece = _piece(new, whole=whole)
                if self._news.problem != told:
                    told = self._news.problem
                    piece += _problem(told, whole=whole)
                if not piece and clock_s() - quiet_since_s > _HEARTBEAT_S:
                    piece = b": nothing new\n\n"
                if piece:
                    await response.write(piece)
                    quiet_since_s = clock_s()
        except Refusal as problem:  # too slow a client, another epoch, or a right that ended
            await response.write(b"event: refused\ndata: " + msgspec.json.encode(problem.body) + b"\n\n")


async def _manifests(request: web.Request) -> bytes:
    """The body of a request. Raises `Refusal`."""
    if request.content_type != MANIFESTS_TYPE:  # a page of another site can't send this one unasked
        refuse("BadRequest", f"the body is {request.content_type}, not {MANIFESTS_TYPE}")
    content = bytearray()
    try:
        async with asyncio.timeout(_REQUEST_S):
            async for piece in request.content.iter_any():
                content += piece
                if len(content) > _MANIFESTS_BYTES:
                    refuse("RequestEntityTooLarge", f"the objects have more than {_MANIFESTS_BYTES >> 10} KiB")
    except TimeoutError:
        refuse("Timeout", f"the body took longer than {_REQUEST_S:.0f} s")
    if not content.strip():
        refuse("BadRequest", "the body has no objects")
    return bytes(content)


def _begin(last: str, end: Position) -> tuple[int, int]:
    """The epoch and the offset after which a stream begins. Raises `Refusal`."""
    if not last:
        return end.epoch, end.offset
    found = _ID.fullmatch(last)
    if found is None:
        refuse("BadRequest", f"Last-Event-ID: {last[:80]!r} is not EPOCH-OFFSET")
    return int(found[1]), int(found[2])


def _piece(new: New | None, *, whole: bool) -> bytes:
    if new is None:
        return b""
    return b"id: %d-%d\ndata: %b\n\n" % (new.epoch, new.offset, new.content if whole else new.moment)


def _problem(words: str, *, whole: bool) -> bytes:
    """Says why nothing new is read, or, without words, that the log is read again. The words may name addresses."""
    shown = words if whole or not words else "the log can't be read"
    return b"event: problem\ndata: " + msgspec.json.encode({"message": shown}) + b"\n\n"


def _host_of(request: web.Request) -> str:
    host = request.host
    return host[1:].partition("]")[0] if host.startswith("[") else host.rpartition(":")[0] or host


def _refused(problem: Refusal) -> web.Response:
    response = _json(encoded(msgspec.to_builtins(problem.body)), status=CODES[problem.reason])
    if response.status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    return response


def _lines(content: bytes) -> web.Response:
    """Without an ETag: those are of the answers as JSON."""
    return web.Response(body=content, headers=_HEADERS, content_type=LINES_TYPE)


def _json(content: bytes, *, status: int = 200, tag: str = "") -> web.Response:
    headers = {**_HEADERS, "ETag": tag} if tag else _HEADERS
    return web.Response(body=content + b"\n", status=status, headers=headers, content_type="application/json")
