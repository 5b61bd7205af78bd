"""The in-memory API over HTTP on a loopback port, as far as real kubectl and client libraries use it.

Every request needs the token: as bearer token or, because kubectl sends none over plain HTTP, as the first part of
the path (a cluster's URL in a kubeconfig may have a path). A watch event is encoded once, however many watches send it.
"""

import asyncio
import contextlib
import hmac
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
import yaml
from aiohttp import web

from arranger.kube.cluster import Object, Resource
from arranger.model.checks import FieldError
from arranger.sandbox import discovery, protobuf, tables
from arranger.sandbox.admission import WriteOptions
from arranger.sandbox.garbage import DeleteOptions
from arranger.sandbox.history import Collection, Event, Stored, Watch
from arranger.sandbox.kinds import Kind
from arranger.sandbox.listing import Listing, Selection
from arranger.sandbox.patching import APPLY
from arranger.sandbox.status import Refusal, bad_request, invalid, no_such_resource, unsupported_media_type
from arranger.sandbox.store import Answer, Store, parsed_version
from arranger.sandbox.validation import required, unsupported

log = logging.getLogger(__name__)

REQUEST_LIMIT_BYTES = 3 * 1024 * 1024
BOOKMARK_S = 30.0
#: How long a watch lives that asks for no timeout; real servers choose 30 to 60 minutes.
WATCH_S = 1800.0
_JSON = "application/json"
_TEXT = "text/plain"
_HEALTH = ("healthz", "livez", "readyz")
_INITIAL_END = {"k8s.io/initial-events-end": "true"}
_RETURNED_WHOLE = ("pods", "namespaces")


class Call(msgspec.Struct):
    """One request to a resource, taken apart."""

    request: web.BaseRequest
    collection: Collection
    namespace: str
    name: str
    subresource: str

    @property
    def resource(self) -> Resource:
        """The resource that is called."""
        return self.collection.kind.resource

    def flag(self, name: str) -> bool:
        """A query parameter that is true or 1."""
        return self.request.query.get(name, "") in ("true", "1")

    def selection(self) -> Selection:
        """Which objects a list, watch or deletion of many means."""
        query = self.request.query
        fields = query.get("fieldSelector", "")
        if self.name:
            fields = f"metadata.name={self.name}"
        return Selection(self.namespace, query.get("labelSelector", ""), fields, self.resource.plural)

    def write_options(self) -> WriteOptions:
        """How to write."""
        query = self.request.query
        return WriteOptions(
            dry_run="All" in query.getall("dryRun", []), strictness=query.get("fieldValidation") or "Warn"
        )


class _Conditions(msgspec.Struct, frozen=True):
    uid: str | None = None
    resourceVersion: str | None = None


class _DeleteBody(msgspec.Struct, frozen=True):
    """`DeleteOptions` as clients send them."""

    gracePeriodSeconds: int | None = None
    preconditions: _Conditions | None = None
    propagationPolicy: str | None = None
    orphanDependents: bool | None = None
    dryRun: list[str] | None = None


_PROPAGATIONS = ("Foreground", "Background", "Orphan")


def _number(query: Mapping[str, str], name: str) -> int | None:
    """A query parameter that is a whole number; `Refusal` 400 when it is something else."""
    text = query.get(name)
    if not text:
        return None
    try:
        return int(text)
    except ValueError as error:
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from error


class _Form(msgspec.Struct, frozen=True):
    """How the client wants objects: as they are, as rows of a table, or metadata only."""

    kind: str = ""


def _form(accept: str) -> _Form:
    for part in accept.split(",") if accept else [_JSON]:
        media, *parameters = (piece.strip() for piece in part.split(";"))
        wanted = dict(piece.partition("=")[::2] for piece in parameters)
        if media in (_JSON, "application/*", "*/*"):
            if wanted.get("as") in (None, "Table", "PartialObjectMetadata", "PartialObjectMetadataList"):
                return _Form(wanted.get("as", "").removesuffix("List"))
        elif media in ("application/yaml", "application/vnd.kubernetes.protobuf", "application/cbor"):
            continue
    raise Refusal(406, "NotAcceptable", f"only the following media types are accepted: {_JSON}")


def _json(body: Any, status: int = 200, warnings: tuple[str, ...] = ()) -> web.Response:
    raw = body if isinstance(body, bytes) else msgspec.json.encode(body)
    response = web.Response(body=raw, status=status, content_type=_JSON)
    for warning in warnings:
        quoted = warning.replace("\\", "\\\\").replace('"', '\\"')
        response.headers.add("Warning", f'299 - "{quoted}"')
    return response


def _not_found() -> web.Response:
    return web.Response(text="404 page not found\n", status=404, content_type=_TEXT)


def _object_body(body: Any) -> Object:
    if not isinstance(body, dict):
        raise bad_request("the request's body must be one object")
    return body


class ApiServer:
    """Serves a `Store` on 127.0.0.1. `now` gives seconds since 1970, for ages in tables."""

    def __init__(
        self,
        store: Store,
        *,
        now: Callable[[], float],
        token: str | None = None,
        bookmark_s: float = BOOKMARK_S,
    ) -> None:
        self.store = store
        self.token = token or secrets.token_urlsafe(24)
        self.url = ""
        self._now = now
        self._bookmark_s = bookmark_s
        self._expected = f"Bearer {self.token}".encode()
        self._runner: web.ServerRunner | None = None
        self._streams: set[asyncio.Task[Any]] = set()

    async def start(self, *, port: int = 0) -> None:
        """Begin to serve; port 0 takes a free one. `url` is set afterwards."""
        server = web.Server(self._answer, handler_cancellation=True, access_log=None)
        self._runner = web.ServerRunner(server, handle_signals=False, shutdown_timeout=1.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", port).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        """End every watch and stop serving."""
        for task in list(self._streams):
            task.cancel()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            return await self._route(request)
        except Refusal as refusal:
            response = _json(refusal.status(), refusal.code)
            if refusal.code in (429, 504):
                response.headers["Retry-After"] = "1"
            return response
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, yaml.YAMLError) as error:
            return _json(bad_request(f"the body of the request can't be decoded: {error}").status(), 400)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            log.exception("sandbox API failed at %s %s", request.method, request.path)
            return _json(Refusal(500, "InternalError", f"Internal error occurred: {error!r}").status(), 500)

    async def _route(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.path.strip("/")
        first, _, rest = path.partition("/")
        if hmac.compare_digest(first.encode(), self.token.encode()):
            path = rest
        elif path not in _HEALTH and not hmac.compare_digest(
            request.headers.get("Authorization", "").encode(), self._expected
        ):
            raise Refusal(401, "Unauthorized", "Unauthorized")
        if path in _HEALTH:
            return web.Response(text="ok", content_type=_TEXT)
        parts = path.split("/")
        if parts[0] == "apis" and parts[1:2] == ["authorization.k8s.io"] and len(parts) == 4:
            return await self._review(request)
        depth = {"api": 2, "apis": 3}.get(parts[0], len(parts))
        if len(parts) <= depth:
            return self._describe(path, parts, request.headers.get("Accept", ""))
        call = self._call(request, parts[:depth], parts[depth:])
        if call is None:
            return _not_found()
        return await self._serve(call)

    def _kinds(self) -> list[Kind]:
        return [collection.kind for collection in self.store.collections.values()]

    def _describe(self, path: str, parts: list[str], accept: str) -> web.Response:
        """Everything below the root that isn't a resource."""
        kinds = self._kinds()
        if path == "openapi/v2":
            # Clients ask for "...spec.v2@v1.0+protobuf", but can't read an "@" in what they get.
            if "proto-openapi.spec.v2" in accept:
                return web.Response(body=discovery.OPENAPI_V2, headers={"Content-Type": discovery.OPENAPI_V2_TYPE})
            return _json(discovery.OPENAPI_V2_JSON)
        answer: Object | None
        if path == "version":
            answer = discovery.VERSION
        elif path == "openapi/v3":
            answer = discovery.openapi_index(kinds)
        elif path.startswith("openapi/v3/"):
            answer = discovery.openapi(path.removeprefix("openapi/v3/"), kinds)
        else:
            answer = self._described_group(parts, kinds)
        return _json(answer) if answer is not None else _not_found()

    def _described_group(self, parts: list[str], kinds: list[Kind]) -> Object | None:
        match parts:
            case ["api"]:
                return discovery.api_versions()
            case ["apis"]:
                return discovery.group_list(kinds)
            case ["apis", group]:
                return discovery.group(group, kinds)
            case ["api", version]:
                return discovery.resource_list("", version, kinds)
            case ["apis", group, version]:
                return discovery.resource_list(group, version, kinds)
            case [""]:
                return {
                    "paths": [
                        "/api",
                        "/apis",
                        "/healthz",
                        "/livez",
                        "/openapi/v2",
                        "/openapi/v3",
                        "/readyz",
                        "/version",
                    ]
                }
        return None

    def _call(self, request: web.BaseRequest, head: list[str], rest: list[str]) -> Call | None:
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in ("status", "finalize"):
            namespace, rest = rest[1], rest[2:]
        group = head[1] if head[0] == "apis" else ""
        collection = self.store.collections.get((group, rest[0]))
        if collection is None or collection.kind.resource.version != head[-1] or len(rest) > 3:
            if any((kind.resource.group, kind.resource.version) == (group, head[-1]) for kind in self._kinds()):
                raise no_such_resource()
            return None
        name = rest[1] if len(rest) > 1 else ""
        return Call(request, collection, namespace, name, rest[2] if len(rest) > 2 else "")

    async def _serve(self, call: Call) -> web.StreamResponse:
        method = call.request.method
        if call.subresource and call.subresource != "status":
            return await self._pod_subresource(call)
        if call.subresource and not call.collection.kind.has_status:
            raise no_such_resource()
        if method == "GET":
            if call.flag("watch"):
                return await self._watch(call)
            return self._get(call) if call.name else self._list(call)
        writers: dict[tuple[str, bool], Callable[[Call], Awaitable[web.Response]]] = {
            ("POST", False): self._create,
            ("PUT", True): self._update,
            ("PATCH", True): self._patch,
            ("DELETE", True): self._delete,
            ("DELETE", False): self._delete_collection,
        }
        writer = writers.get((method, bool(call.name)))
        if writer is None:
            raise Refusal(
                405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {}
            )
        return await writer(call)

    # Reading

    def _get(self, call: Call) -> web.Response:
        stored = self.store.get(call.resource, call.namespace, call.name)
        return self._one(call, stored)

    def _one(self, call: Call, stored: Stored, status: int = 200, warnings: tuple[str, ...] = ()) -> web.Response:
        form = _form(call.request.headers.get("Accept", ""))
        if form.kind == "Table":
            return _json(self._table(call, [stored], {"resourceVersion": str(stored.version)}), status, warnings)
        if form.kind == "PartialObjectMetadata":
            return _json(tables.partial_metadata(stored), status, warnings)
        return _json(stored.raw, status, warnings)

    def _table(self, call: Call, items: list[Stored], metadata: dict[str, Any], *, headed: bool = True) -> Object:
        include = call.request.query.get("includeObject") or "Metadata"
        kind = call.collection.kind
        return tables.table(kind, items, metadata=metadata, now_s=self._now(), include=include, headed=headed)

    def _list(self, call: Call) -> web.Response:
        query = call.request.query
        wanted, exact = query.get("resourceVersion", ""), query.get("resourceVersionMatch") == "Exact"
        listing = self.store.page(
            call.resource,
            call.selection(),
            limit=max(0, _number(query, "limit") or 0),
            continuation=query.get("continue", ""),
            at_least="" if exact else wanted,
            exactly=wanted if exact else "",
        )
        metadata: dict[str, Any] = {"resourceVersion": str(listing.version)}
        if listing.continuation:
            metadata |= {"continue": listing.continuation, "remainingItemCount": listing.remaining}
        form = _form(call.request.headers.get("Accept", ""))
        if form.kind == "Table":
            return _json(self._table(call, listing.items, metadata))
        if form.kind == "PartialObjectMetadata":
            items = [tables.partial_metadata(stored) for stored in listing.items]
            kind = "PartialObjectMetadataList"
            return _json({"kind": kind, "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "items": items})
        return _json(_listed(call.collection.kind, listing, metadata))

    # Writing

    async def _body(self, request: web.BaseRequest) -> Any:
        raw = await request.content.read()
        if len(raw) > REQUEST_LIMIT_BYTES:
            message = f"Request entity too large: limit is {REQUEST_LIMIT_BYTES}"
            raise Refusal(413, "RequestEntityTooLarge", message)
        if not raw:
            return None
        if request.content_type == protobuf.MEDIA_TYPE:
            return protobuf.decode(raw)
        if request.content_type in (APPLY, "application/yaml"):
            return yaml.load(raw, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        if "json" not in request.content_type and request.content_type != "application/octet-stream":
            accepted = ["application/json", "application/yaml", protobuf.MEDIA_TYPE]
            raise unsupported_media_type(accepted)
        return msgspec.json.decode(raw)

    def _written(self, call: Call, answer: Answer) -> web.Response:
        return self._one(call, answer.stored, 201 if answer.created else 200, answer.warnings)

    async def _create(self, call: Call) -> web.Response:
        body = _object_body(await self._body(call.request))
        return self._written(call, self.store.create(call.resource, call.namespace, body, call.write_options()))

    async def _update(self, call: Call) -> web.Response:
        body = _object_body(await self._body(call.request))
        answer = self.store.update(
            call.resource,
            call.namespace,
            call.name,
            body,
            subresource=call.subresource,
            options=call.write_options(),
        )
        return self._written(call, answer)

    async def _patch(self, call: Call) -> web.Response:
        answer = self.store.patch(
            call.resource,
            call.namespace,
            call.name,
            await self._body(call.request),
            media_type=call.request.content_type,
            subresource=call.subresource,
            options=call.write_options(),
        )
        return self._written(call, answer)

    async def _delete_options(self, call: Call) -> DeleteOptions:
        query = call.request.query
        try:
            body = msgspec.convert(await self._body(call.request) or {}, _DeleteBody)
        except msgspec.ValidationError as error:
            raise bad_request(f"DeleteOptions: {error}") from error
        conditions = body.preconditions or _Conditions()
        grace_s = (
            body.gracePeriodSeconds if body.gracePeriodSeconds is not None else _number(query, "gracePeriodSeconds")
        )
        propagation = body.propagationPolicy or query.get("propagationPolicy")
        if propagation not in (None, *_PROPAGATIONS):
            raise invalid(
                "DeleteOptions", "meta.k8s.io", "", [unsupported("propagationPolicy", propagation, _PROPAGATIONS)]
            )
        return DeleteOptions(
            uid=conditions.uid,
            resource_version=conditions.resourceVersion,
            grace_s=grace_s,
            propagation=propagation or ("Orphan" if body.orphanDependents else "Background"),
            dry_run="All" in [*(body.dryRun or []), *query.getall("dryRun", [])],
        )

    async def _delete(self, call: Call) -> web.Response:
        options = await self._delete_options(call)
        answer = self.store.delete(call.resource, call.namespace, call.name, options)
        if not answer.removed or call.resource.plural in _RETURNED_WHOLE:
            return self._one(call, answer.stored)
        resource = call.resource
        details = {"name": call.name, "group": resource.group, "kind": resource.plural, "uid": answer.stored.uid}
        return _json(_success({key: value for key, value in details.items() if value}))

    async def _delete_collection(self, call: Call) -> web.Response:
        options = await self._delete_options(call)
        deleted = self.store.delete_collection(call.resource, call.selection(), options)
        metadata = {"resourceVersion": str(self.store.version)}
        return _json(_listed(call.collection.kind, Listing(deleted, self.store.version), metadata))

    async def _pod_subresource(self, call: Call) -> web.Response:
        wanted = (call.resource.plural, call.subresource, call.request.method)
        if wanted == ("pods", "log", "GET"):
            self.store.get(call.resource, call.namespace, call.name)
            text = "This pod is simulated: it runs no program and has no logs.\n"
            return web.Response(text=text, content_type=_TEXT)
        if wanted == ("pods", "binding", "POST"):
            body = _object_body(await self._body(call.request))
            target = body.get("target")
            if not isinstance(target, dict) or not isinstance(target.get("name"), str):
                error = required("target.name")
                raise invalid("Binding", "", call.name, [error])
            self.store.bind(call.namespace, call.name, target["name"])
            return _json(_success() | {"code": 201}, 201)
        if wanted == ("pods", "eviction", "POST"):
            body = _object_body(await self._body(call.request) or {})
            grace = (body.get("deleteOptions") or {}).get("gracePeriodSeconds")
            self.store.delete(call.resource, call.namespace, call.name, DeleteOptions(grace_s=grace))
            return _json(_success() | {"code": 201}, 201)
        raise no_such_resource()

    async def _review(self, request: web.BaseRequest) -> web.Response:
        """Whoever holds the token may do everything."""
        body = _object_body(await self._body(request))
        if body.get("kind") == "SelfSubjectRulesReview":
            everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
            paths = {"verbs": ["*"], "nonResourceURLs": ["*"]}
            status = {"resourceRules": [everything], "nonResourceRules": [paths], "incomplete": False}
            return _json(body | {"status": status}, 201)
        return _json(body | {"status": {"allowed": True}}, 201)

    # Watching

    async def _watch(self, call: Call) -> web.StreamResponse:
        query = call.request.query
        initial = call.flag("sendInitialEvents")
        if initial and query.get("resourceVersionMatch") != "NotOlderThan":
            why = "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            error = FieldError("resourceVersionMatch", why, "FieldValueForbidden")
            raise invalid("ListOptions", "meta.k8s.io", "", [error])
        form = _form(call.request.headers.get("Accept", ""))
        call.selection().matches()
        # What can be refused is refused before the answer has begun.
        parsed_version(query.get("resourceVersion", ""))
        _number(query, "timeoutSeconds")
        response = web.StreamResponse(headers={"Content-Type": _JSON})
        await response.prepare(call.request)
        task = asyncio.current_task()
        assert task is not None
        self._streams.add(task)
        try:
            await self._stream(call, response, _Lines(self, call, form.kind), initial=initial)
        except Refusal as refusal:
            await response.write(msgspec.json.encode({"type": "ERROR", "object": refusal.status()}) + b"\n")
        finally:
            self._streams.discard(task)
        with contextlib.suppress(ConnectionError):
            await response.write_eof()
        return response

    async def _stream(self, call: Call, response: web.StreamResponse, lines: "_Lines", *, initial: bool) -> None:
        query = call.request.query
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (_number(query, "timeoutSeconds") or WATCH_S)
        news = asyncio.Event()
        since = query.get("resourceVersion", "")
        bookmarks = call.flag("allowWatchBookmarks")
        watch = self.store.watch(call.resource, call.selection(), since, news.set, initial=initial)
        try:
            if since in ("", "0") or initial:
                await self._send(response, watch, lines)
                if bookmarks:
                    await response.write(lines.bookmark(self.store.version, _INITIAL_END))
            while (left := deadline - loop.time()) > 0:
                await self._send(response, watch, lines)
                news.clear()
                try:
                    async with asyncio.timeout(min(left, self._bookmark_s)):
                        await news.wait()
                except TimeoutError:
                    if bookmarks:
                        await response.write(lines.bookmark(self.store.version))
        finally:
            watch.close()

    async def _send(self, response: web.StreamResponse, watch: Watch, lines: "_Lines") -> None:
        # Writing may wait for a slow client; what came meanwhile is taken by the next round.
        while events := watch.take():
            await response.write(b"".join([lines.event(event) for event in events]))

    def table_of(self, call: Call, event: Event, *, headed: bool) -> Object:
        """One event's object as a table of one row."""
        metadata = {"resourceVersion": str(event.stored.version)}
        return self._table(call, [event.stored], metadata, headed=headed)


class _Lines:
    """Turns events into the lines of one watch, in the form that its client asked for."""

    def __init__(self, server: ApiServer, call: Call, form: str) -> None:
        self._server = server
        self._call = call
        self._form = form
        self._headed = True

    def event(self, event: Event) -> bytes:
        """One line."""
        if not self._form:
            return event.line
        if self._form == "Table":
            shown = self._server.table_of(self._call, event, headed=self._headed)
            self._headed = False
        else:
            shown = tables.partial_metadata(event.stored)
        return msgspec.json.encode({"type": event.type, "object": shown}) + b"\n"

    def bookmark(self, version: int, annotations: dict[str, str] | None = None) -> bytes:
        """A line that says how far the watch has come."""
        metadata: dict[str, Any] = {"resourceVersion": str(version)}
        if annotations:
            metadata["annotations"] = annotations
        resource = self._call.resource
        shown: Object = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}
        if self._form == "Table":
            shown = {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "rows": []}
            shown["columnDefinitions"] = None
        elif self._form:
            shown = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
        return msgspec.json.encode({"type": "BOOKMARK", "object": shown}) + b"\n"


def _listed(kind: Kind, listing: Listing, metadata: dict[str, Any]) -> bytes:
    """A list's JSON, put together from what is already encoded."""
    head = {"kind": kind.resource.kind + "List", "apiVersion": kind.resource.api_version, "metadata": metadata}
    skip = len(kind.head) if kind.typed else 0
    raws = [b"{" + stored.raw[skip:] if skip else stored.raw for stored in listing.items]
    return msgspec.json.encode(head)[:-1] + b',"items":[' + b",".join(raws) + b"]}"


def _success(details: dict[str, Any] | None = None) -> Object:
    body: Object = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    return body | {"details": details} if details else body
