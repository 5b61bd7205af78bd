"""The in-memory API over HTTP on a loopback port, as far as real kubectl and client libraries use it.

This module defines the paths and the access check. Every request needs the token: as bearer token or, because kubectl
sends none over plain HTTP, as the first part of the path (a cluster's URL in a kubeconfig may have a path).
"""

import hmac
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping

import msgspec
import yaml
from aiohttp import web

from arranger.kube.cluster import Object
from arranger.sandbox import discovery
from arranger.sandbox.call import Call, decoded, one_object
from arranger.sandbox.kinds import ServedKind
from arranger.sandbox.serving import Serving
from arranger.sandbox.status import ApiRefusal, bad_request, no_such_resource
from arranger.sandbox.store import Store
from arranger.sandbox.view import json_response
from arranger.sandbox.watching import BOOKMARK_S

log = logging.getLogger(__name__)

REQUEST_LIMIT_BYTES = 3 * 1024 * 1024
#: How long a running request may take when the server stops; only watches take longer, and they are to end.
_STOP_S = 0.05
_HEALTH = ("/healthz", "/livez", "/readyz")

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_Serve = Callable[[Call], Awaitable[web.StreamResponse]]


class EmbeddedApiServer:
    """Serves a `Store` on 127.0.0.1. `now` returns seconds since 1970, for ages in tables."""

    def __init__(self, store: Store, *, now: Callable[[], float], bookmark_s: float = BOOKMARK_S) -> None:
        self.store = store
        self.token = secrets.token_urlsafe(24)
        self.url = ""
        self._expected = f"Bearer {self.token}".encode()
        app = web.Application(middlewares=[self._guarded], client_max_size=REQUEST_LIMIT_BYTES)
        self._add_documents(app.router)
        self._add_resources(app.router, Serving(store, now=now, bookmark_s=bookmark_s))
        self._runner = web.AppRunner(
            app, access_log=None, handle_signals=False, handler_cancellation=True, shutdown_timeout=_STOP_S
        )

    async def start(self) -> None:
        """Begin to serve on a free port. `url` is set afterwards."""
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        """End every watch and stop serving."""
        await self._runner.cleanup()

    # Routes

    def _add(self, router: web.UrlDispatcher, path: str, handlers: Mapping[str, _Handler]) -> None:
        """Serve a path by method, with or without a trailing slash; the token may precede it."""
        for prefix in ("", f"/{self.token}"):
            resource = router.add_resource((prefix + path or "/") + "{end:/?}")
            for method, handler in {**handlers, "*": handlers.get("*", _not_allowed)}.items():
                resource.add_route(method, handler)

    def _add_documents(self, router: web.UrlDispatcher) -> None:
        """Everything below the root that isn't a resource."""
        for path in _HEALTH:
            self._add(router, path, {"GET": _health})
        for path, describe in discovery.DOCUMENTS.items():
            self._add(router, path, {"GET": self._described(describe)})
        self._add(router, "/openapi/v2", {"GET": _openapi_v2})
        self._add(router, "/apis/authorization.k8s.io/v1/{review}", {"POST": _review})

    def _add_resources(self, router: web.UrlDispatcher, serving: Serving) -> None:
        many = {"GET": serving.list, "POST": serving.create, "DELETE": serving.delete_collection}
        status = {"GET": serving.get, "PUT": serving.update, "PATCH": serving.patch}
        one = {**status, "DELETE": serving.delete}
        scale = {"GET": serving.get_scale, "PUT": serving.update_scale, "PATCH": serving.patch_scale}
        # The status of a namespace comes first: it looks like a resource called "status" within that namespace.
        routes: dict[str, Mapping[str, _Serve]] = {"/{plural:namespaces}/{name}/{subresource:status}": status}
        for scope in ("/namespaces/{namespace}", ""):
            routes[scope + "/{plural}"] = many
            routes[scope + "/{plural}/{name}"] = one
            routes[scope + "/{plural}/{name}/{subresource:status}"] = status
            routes[scope + "/{plural}/{name}/{subresource:scale}"] = scale
        pod = "/namespaces/{namespace}/{plural:pods}/{name}"
        routes |= {f"{pod}/log": {"GET": serving.log}, f"{pod}/binding": {"POST": serving.bind}}
        into = dict.fromkeys(("GET", "POST"), serving.connect)
        routes |= {f"{pod}/{way}": into for way in ("exec", "attach", "portforward")}
        routes |= {f"{pod}/eviction": {"POST": serving.evict}, "/{rest:.+}": {}}
        for group in ("/api/{version}", "/apis/{group}/{version}"):
            for path, served in routes.items():
                handlers = {**served, "*": _not_allowed}
                self._add(router, group + path, {method: self._called(serve) for method, serve in handlers.items()})

    def _called(self, serve: _Serve) -> _Handler:
        async def handler(request: web.Request) -> web.StreamResponse:
            return await serve(self._call(request))

        return handler

    def _call(self, request: web.Request) -> Call:
        """Parse a request; raises `ApiRefusal` 404 for an unknown resource, HTTP's own 404 for an unknown group."""
        path = request.match_info
        group = path.get("group", "")
        collection = self.store.collections.get((group, path.get("plural", "")))
        kind = None if collection is None else collection.version(path["version"])
        if kind is None:
            if discovery.resource_list(self._kinds(), group=group, version=path["version"]) is None:
                raise web.HTTPNotFound
            raise no_such_resource()
        subresource = path.get("subresource", "")
        if subresource and subresource not in kind.subresources:
            raise no_such_resource()
        return Call(request, kind, path.get("namespace", ""), path.get("name", ""), subresource)

    def _kinds(self) -> list[ServedKind]:
        return [kind for collection in self.store.collections.values() for kind in collection.kinds]

    def _described(self, describe: Callable[..., Object | None]) -> _Handler:
        async def handler(request: web.Request) -> web.StreamResponse:
            names = {name: value for name, value in request.match_info.items() if name != "end"}
            document = describe(self._kinds(), **names)
            if document is None:
                raise web.HTTPNotFound
            return json_response(document)

        return handler

    # Every request

    @web.middleware
    async def _guarded(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Admit requests with the token, and report every failure in the API server's wording."""
        try:
            self._hold_token(request)
            return await handler(request)
        except ApiRefusal as refusal:
            return _refused(refusal)
        except web.HTTPNotFound:
            return web.Response(text="404 page not found\n", status=404)
        except web.HTTPRequestEntityTooLarge:
            message = f"Request entity too large: limit is {REQUEST_LIMIT_BYTES}"
            return _refused(ApiRefusal(413, "RequestEntityTooLarge", message))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, yaml.YAMLError) as error:
            return _refused(bad_request(f"the body of the request can't be decoded: {error}"))
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            log.exception("sandbox API failed at %s %s", request.method, request.path)
            return _refused(ApiRefusal(500, "InternalError", f"Internal error occurred: {error!r}"))

    def _hold_token(self, request: web.Request) -> None:
        first = request.path.split("/", 2)[1]
        if hmac.compare_digest(first.encode(), self.token.encode()) or request.path.rstrip("/") in _HEALTH:
            return
        if not hmac.compare_digest(request.headers.get("Authorization", "").encode(), self._expected):
            raise ApiRefusal(401, "Unauthorized", "Unauthorized")


def _refused(refusal: ApiRefusal) -> web.Response:
    response = json_response(refusal.status(), refusal.code)
    if refusal.code in (429, 504):
        response.headers["Retry-After"] = "1"
    return response


async def _not_allowed(_: web.Request | Call) -> web.StreamResponse:
    raise ApiRefusal(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {})


async def _health(_: web.Request) -> web.StreamResponse:
    return web.Response(text="ok")


async def _openapi_v2(request: web.Request) -> web.StreamResponse:
    # Clients request "...spec.v2@v1.0+protobuf", but can't parse an "@" in the response.
    if "proto-openapi.spec.v2" in request.headers.get("Accept", ""):
        return web.Response(body=discovery.OPENAPI_V2, headers={"Content-Type": discovery.OPENAPI_V2_TYPE})
    return json_response(discovery.OPENAPI_V2_JSON)


async def _review(request: web.Request) -> web.StreamResponse:
    """Allow everything to clients with the token."""
    body = one_object(await decoded(request))
    if body.get("kind") == "SelfSubjectRulesReview":
        everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
        paths = {"verbs": ["*"], "nonResourceURLs": ["*"]}
        status = {"resourceRules": [everything], "nonResourceRules": [paths], "incomplete": False}
        return json_response(body | {"status": status}, 201)
    return json_response(body | {"status": {"allowed": True}}, 201)
