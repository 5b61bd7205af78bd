"""The Kubernetes API over HTTP: raw JSON on one pool of connections.

The typed calls of the `kubernetes` package validate every body and take some 24 ms of CPU each; this client sends and
reads dictionaries and is nearly as fast as bare aiohttp. It implements the list-watch protocol down to the bytes,
because the workers' conclusions depend on it: a silent watch, a truncated line, or an error event in a stream of
changes raises an exception and is never swallowed.
"""

import math
import re
import urllib.parse
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar

import aiohttp
import msgspec
from aiohttp.abc import AbstractStreamWriter
from yarl import URL

from arranger import __version__
from arranger.clock import Clock, SystemClock
from arranger.kube.cluster import (
    PODS,
    ApiError,
    ClusterUnavailable,
    Expired,
    ListPage,
    Object,
    Resource,
    WatchEvent,
    Withdrawn,
    always,
)
from arranger.kube.config import Access, Credentials
from arranger.tls import TlsServer

#: A server sends a bookmark about every minute, so a watch that is silent for longer is dead.
SILENCE_S = 75.0
REQUEST_TIMEOUT_S = 30.0
CONNECT_TIMEOUT_S = 10.0
CONNECTIONS = 128
#: An object has at most some 1.5 MB in etcd; a watch line far beyond that is malformed.
LONGEST_LINE_BYTES = 32 * 1024 * 1024
_READ_BUFFER_BYTES = 1024 * 1024


#: Whether the request that the present task sends is still needed.
_still: ContextVar[Callable[[], bool]] = ContextVar("still", default=always)


class _Body(aiohttp.BytesPayload):
    """The body of a request, which is checked to be needed still when it is written. Before Python 3.12, aiohttp writes
    it in a task of its own, together with the headers. A process that is paused in between may wake up much later."""

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        if not _still.get()():
            raise Withdrawn("no longer wanted")
        await super().write_with_length(writer, content_length)


class _Connector(aiohttp.TCPConnector):
    """Checks again, once a request has its connection, that it is still needed. The connection can be used again then,
    other than when its body isn't written."""

    async def connect(
        self, req: aiohttp.ClientRequest, traces: list[Any], timeout: aiohttp.ClientTimeout
    ) -> aiohttp.connector.Connection:
        connection = await super().connect(req, traces, timeout)
        if not _still.get()():
            connection.release()
            raise Withdrawn(f"{req.method} {req.url.path}: no longer wanted")
        return connection


class OnRequest(Protocol):
    """A callback that counts requests."""

    def __call__(self, *, verb: str, resource: str, code: int, seconds: float) -> None:
        """Called when the response begins: RBAC verb, plural, HTTP code (0: no response), time until then."""


class _Meta(msgspec.Struct):
    resource_version: str = msgspec.field(name="resourceVersion", default="")
    next_page: str = msgspec.field(name="continue", default="")


class _Listing(msgspec.Struct):
    metadata: _Meta
    items: list[Object] | None = None


class _Cause(msgspec.Struct):
    reason: str = ""
    message: str = ""


class _Details(msgspec.Struct):
    causes: list[_Cause] | None = None
    retry_after_s: float = msgspec.field(name="retryAfterSeconds", default=0.0)


class _Status(msgspec.Struct):
    """Kubernetes' representation of an error."""

    code: int | None = None
    reason: str | None = None
    message: str | None = None
    details: _Details | None = None


class _Line(msgspec.Struct):
    type: str
    object: Object


#: HTTP methods by RBAC verb.
_METHODS = {"get": "GET", "list": "GET", "watch": "GET", "create": "POST", "patch": "PATCH", "delete": "DELETE"}
#: The exceptions of a broken connection. A TimeoutError is an OSError.
_FAULTS = (aiohttp.ClientError, OSError)
#: In aiohttp's text of a failed connection: which object checks certificates, which tells nobody anything.
_OF_SSL = re.compile(r" ssl:(default|True|False|<[^>]*>)")
#: Kubernetes' reasons for codes that proxies and overloaded servers send without a Status.
_REASONS = {401: "Unauthorized", 403: "Forbidden", 429: "TooManyRequests", 503: "ServiceUnavailable"}

_T = TypeVar("_T")
_listing = msgspec.json.Decoder(_Listing).decode
_lines = msgspec.json.Decoder(_Line).decode_lines
_object = msgspec.json.Decoder(Object).decode


class HttpCluster:
    """A `Cluster` on a Kubernetes API server. Make and use it in one event loop; `close` it there."""

    def __init__(
        self,
        access: Access,
        *,
        on_request: OnRequest | None = None,
        clock: Clock | None = None,
        silence_s: float = SILENCE_S,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
        namespace: str = "",
        strict: bool = False,
    ) -> None:
        """With `namespace`, only its objects are listed and watched, beside those that have no namespace. With
        `strict`, the API server refuses fields that it doesn't know in what is created or patched, as for kubectl; else
        it drops them. That is for objects of users, who may have misspelt one."""
        self._access = access
        self._listed = namespace or None
        self._checked = {"fieldValidation": "Strict"} if strict else None
        self._on_request = on_request
        self._clock = clock or SystemClock()
        self._request_timeout = aiohttp.ClientTimeout(total=request_timeout_s, sock_connect=CONNECT_TIMEOUT_S)
        self._watch_timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=silence_s)
        self._lazy_session: aiohttp.ClientSession | None = None

    async def listing(self, resource: Resource, *, limit: int = 500, at: str = "") -> AsyncGenerator[ListPage, None]:
        next_page = ""
        moment = {"resourceVersion": at, "resourceVersionMatch": "Exact"} if at else {}
        while True:
            # A continuation contains its resourceVersion, and the server refuses another one beside it.
            query = {"limit": str(limit)} | ({"continue": next_page} if next_page else moment)
            raw = await self._call("list", resource, resource.path(self._listed), query=query)
            page = _decoded(_listing, raw)
            yield ListPage(items=page.items or [], resource_version=page.metadata.resource_version)
            next_page = page.metadata.next_page
            if not next_page:
                return

    async def watch(
        self,
        resource: Resource,
        resource_version: str,
        *,
        timeout_s: float = 300.0,
        accepted: Callable[[], object] = always,
    ) -> AsyncGenerator[list[WatchEvent], None]:
        query = {
            "watch": "1",
            "resourceVersion": resource_version,
            "allowWatchBookmarks": "true",
            # At least one second: with 0 the server would choose, up to an hour.
            "timeoutSeconds": str(max(1, math.ceil(timeout_s))),
        }
        response = await self._open("watch", resource, resource.path(self._listed), query=query)
        accepted()
        what = f"the watch of {resource.plural}"
        try:
            async with aclosing(_complete_lines(response.content, what)) as pieces:
                async for raw in pieces:
                    received_ms = self._clock.now_ms()
                    lines = _decoded(_lines, raw, f"{what} sent what isn't a watch event")
                    errors = [index for index, line in enumerate(lines) if line.type == "ERROR"]
                    changes = [_change(line, received_ms) for line in lines[: errors[0] if errors else None]]
                    if changes:
                        yield changes
                    if errors:
                        raise _refusal(_status_of(lines[errors[0]].object), code=500)
        finally:
            # Before the end of the response, this closes the connection.
            response.release()

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Object:
        return _decoded(_object, await self._call("get", resource, resource.path(namespace, name)))

    async def create(
        self, resource: Resource, namespace: str | None, body: Mapping[str, Any], *, still: Callable[[], bool] = always
    ) -> Object:
        before = _still.set(still)
        try:
            path = resource.path(namespace)
            return _decoded(_object, await self._call("create", resource, path, query=self._checked, body=body))
        finally:
            _still.reset(before)

    async def try_create(self, resource: Resource, namespace: str | None, body: Mapping[str, Any]) -> None:
        await self._call("create", resource, resource.path(namespace), query={"dryRun": "All"}, body=body)

    async def patch(
        self, resource: Resource, namespace: str | None, name: str, body: Mapping[str, Any], *, subresource: str = ""
    ) -> Object:
        path = resource.path(namespace, name, subresource)
        return _decoded(_object, await self._call("patch", resource, path, query=self._checked, body=body))

    async def delete(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        grace_s: int | None = None,
    ) -> None:
        # Without it, some kinds would orphan their dependents.
        body: dict[str, Any] = {"propagationPolicy": "Background"}
        conditions = {"uid": uid, "resourceVersion": resource_version}
        if preconditions := {name: value for name, value in conditions.items() if value is not None}:
            body["preconditions"] = preconditions
        if grace_s is not None:
            body["gracePeriodSeconds"] = grace_s
        await self._call("delete", resource, resource.path(namespace, name), body=body)

    async def evict(self, namespace: str, name: str, *, uid: str) -> None:
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        await self._call("create", PODS, PODS.path(namespace, name, "eviction"), body=body)

    async def bind(self, namespace: str, name: str, *, uid: str, node: str, still: Callable[[], bool] = always) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace, "uid": uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        before = _still.set(still)
        try:
            await self._call("create", PODS, PODS.path(namespace, name, "binding"), body=body)
        finally:
            _still.reset(before)

    async def log(self, namespace: str, name: str, *, container: str = "", tail: int | None = None) -> str:
        """The log of a pod's container, or its last lines; empty if the pod has no node. Raises `ApiError`."""
        asked = {"container": container, "tailLines": "" if tail is None else str(tail)}
        query = {name: value for name, value in asked.items() if value}
        raw = await self._call("get", PODS, PODS.path(namespace, name, "log"), query=query)
        return raw.decode(errors="replace")

    async def tls_server(self) -> TlsServer | None:
        """The API server, if a connection goes directly to it and speaks TLS."""
        credentials = await self._access.current()
        address = urllib.parse.urlsplit(credentials.server)
        if credentials.tls is None or credentials.proxy or not address.hostname:
            return None
        return TlsServer(address.hostname, address.port or 443, credentials.tls, credentials.tls_server_name)

    async def close(self) -> None:
        session, self._lazy_session = self._lazy_session, None
        if session is not None:
            await session.close()

    def drop(self) -> None:
        """Close all connections without waiting: what is left to do for those of an owner that nobody has any more."""
        session, self._lazy_session = self._lazy_session, None
        if session is not None:
            drop(session)

    async def _call(
        self,
        verb: str,
        resource: Resource,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> bytes:
        return await _read(await self._open(verb, resource, path, query=query, body=body), f"{verb} {path}")

    async def _open(
        self,
        verb: str,
        resource: Resource,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> aiohttp.ClientResponse:
        """Send a request, and again with fresh credentials if they are rejected; returns a successful response."""
        payload = None if body is None else msgspec.json.encode(body)
        target = path + ("?" + urllib.parse.urlencode(query) if query else "")
        credentials = await self._access.current()
        response = await self._send(verb, resource, target, payload, credentials)
        if response.status == 401:
            try:
                fresh = await self._access.renewed(credentials)
            except ClusterUnavailable:
                response.release()
                raise
            if fresh is not credentials:
                response.release()
                response = await self._send(verb, resource, target, payload, fresh)
        if response.status >= 300:
            status = _status_of(await _read(response, f"{verb} {path}"))
            raise _refusal(status, code=response.status, retry_after=response.headers.get("Retry-After", ""))
        return response

    async def _send(
        self, verb: str, resource: Resource, target: str, payload: bytes | None, credentials: Credentials
    ) -> aiohttp.ClientResponse:
        """Send one request and report it to `on_request`."""
        headers = {"Authorization": credentials.authorization} if credentials.authorization else {}
        if payload is not None:
            headers["Content-Type"] = "application/merge-patch+json" if verb == "patch" else "application/json"
        started_s = self._clock.monotonic_s()
        code = 0
        try:
            response = await self._session().request(
                _METHODS[verb],
                URL(credentials.server + target, encoded=True),
                data=None if payload is None else _Body(payload, content_type=headers["Content-Type"]),
                headers=headers,
                timeout=self._watch_timeout if verb == "watch" else self._request_timeout,
                allow_redirects=False,
                ssl=credentials.tls if credentials.tls is not None else True,
                server_hostname=credentials.tls_server_name,
                proxy=credentials.proxy,
            )
            code = response.status
        except _FAULTS as error:
            if isinstance(error.__cause__, Withdrawn):
                raise Withdrawn(f"{verb} {target}: {error.__cause__}") from error
            raise _unavailable(f"{verb} {target}", error) from error
        finally:
            if self._on_request is not None:
                seconds = self._clock.monotonic_s() - started_s
                self._on_request(verb=verb, resource=resource.plural, code=code, seconds=seconds)
        return response

    def _session(self) -> aiohttp.ClientSession:
        # Created at the first request, because aiohttp needs a running event loop.
        if self._lazy_session is None:
            self._lazy_session = aiohttp.ClientSession(
                connector=_Connector(limit=CONNECTIONS, keepalive_timeout=60),
                cookie_jar=aiohttp.DummyCookieJar(),
                # To a server nearby, compression takes both sides more time than it saves.
                headers={
                    "Accept": "application/json",
                    "Accept-Encoding": "identity",
                    "User-Agent": f"arranger/{__version__}",
                },
                read_bufsize=_READ_BUFFER_BYTES,
            )
        return self._lazy_session


def drop(session: aiohttp.ClientSession) -> None:
    """Close the connections of a session without waiting for their ends, whether or not its event loop still runs."""
    closing = session.close()
    try:
        closing.send(None)  # as far as the waiting
    except (StopIteration, RuntimeError):  # RuntimeError: that of an event loop that is closed
        pass
    finally:
        closing.close()


async def _read(response: aiohttp.ClientResponse, what: str) -> bytes:
    """The whole body of a response; this releases its connection."""
    try:
        return await response.read()
    except _FAULTS as error:
        raise _unavailable(what, error) from error
    finally:
        response.release()


async def _complete_lines(stream: aiohttp.StreamReader, what: str) -> AsyncGenerator[bytes, None]:
    """The complete lines of a stream; those that arrived together form one piece of bytes."""
    pieces: list[bytes] = []
    kept_bytes = 0
    while True:
        try:
            chunk = await stream.readany()
        except _FAULTS as error:
            raise _unavailable(what, error) from error
        if not chunk:
            if pieces:
                raise ClusterUnavailable(f"{what} was cut in the middle of a line")
            return
        end = chunk.rfind(b"\n") + 1
        if end:
            yield b"".join([*pieces, chunk[:end]])
            pieces, kept_bytes = [], 0
        if end < len(chunk):
            pieces.append(chunk[end:])
            kept_bytes += len(chunk) - end
            if kept_bytes > LONGEST_LINE_BYTES:
                raise ClusterUnavailable(f"{what} sent a line of more than {LONGEST_LINE_BYTES} bytes")


def _change(line: _Line, received_ms: int) -> WatchEvent:
    version = (line.object.get("metadata") or {}).get("resourceVersion", "")
    return WatchEvent(type=line.type, object=line.object, resource_version=version, received_ms=received_ms)


def _decoded(
    decode: Callable[[bytes], _T], raw: bytes, problem: str = "the API server's answer isn't what it should be"
) -> _T:
    try:
        return decode(raw)
    except msgspec.MsgspecError as error:
        # Something between us and the API server replied; whether a write took effect is unknown.
        raise ClusterUnavailable(f"{problem}: {error}") from error


def _status_of(body: bytes | Object) -> _Status:
    """The Status in an error's body; the beginning of the body itself if it has none."""
    try:
        return msgspec.json.decode(body, type=_Status) if isinstance(body, bytes) else msgspec.convert(body, _Status)
    except msgspec.MsgspecError:
        text = body.decode(errors="replace") if isinstance(body, bytes) else str(body)
        return _Status(message=" ".join(text.split())[:300])


def _refusal(status: _Status, *, code: int, retry_after: str = "") -> ApiError:
    """The error for a Status; HTTP's `code` and `retry_after` apply where the Status has none."""
    retry_after_s = status.details.retry_after_s if status.details else 0.0
    # A date is meant for caches; API servers send seconds.
    if retry_after.isdecimal():
        retry_after_s = max(retry_after_s, float(retry_after))
    code = status.code or code
    message = " ".join([status.message or "", *_budgets(status.details)]).strip()
    kind = Expired if code == 410 else ApiError
    return kind(code, status.reason or _REASONS.get(code, "Unknown"), message, retry_after_s=retry_after_s)


def _budgets(details: _Details | None) -> list[str]:
    """Which PodDisruptionBudgets refuse an eviction: its message doesn't name them."""
    causes = details.causes if details is not None and details.causes is not None else []
    return [cause.message for cause in causes if cause.reason == "DisruptionBudget"]


def _unavailable(what: str, error: BaseException) -> ClusterUnavailable:
    said = _OF_SSL.sub("", " ".join(str(error).split())) or type(error).__name__
    if isinstance(error, TimeoutError):
        said = f"no answer in time ({said})"
    return ClusterUnavailable(f"{what}: {said}")
