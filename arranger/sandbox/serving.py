"""The API's operations on the paths of a resource: one method for each HTTP method, which sends the response."""

from collections.abc import Callable
from typing import Any

from aiohttp import web

from arranger.kube.cluster import Object
from arranger.sandbox.call import Call, decoded, delete_options_of
from arranger.sandbox.eviction import evict
from arranger.sandbox.history import Stored
from arranger.sandbox.listing import ListedPage
from arranger.sandbox.scaling import SCALE, scale_of
from arranger.sandbox.status import bad_request, invalid
from arranger.sandbox.store import Store, WriteResult
from arranger.sandbox.validation import required
from arranger.sandbox.view import KindView, json_response
from arranger.sandbox.watching import stream

_RETURNED_WHOLE = ("pods", "namespaces")


def _success(**more: Any) -> Object:
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", **more}


class Serving:
    """Serves the resources of a store. `now` returns seconds since 1970, for ages in tables."""

    def __init__(self, store: Store, *, now: Callable[[], float], bookmark_s: float) -> None:
        self._store = store
        self._now = now
        self._bookmark_s = bookmark_s

    def _view(self, call: Call) -> KindView:
        return KindView(call.kind, call.form(), call.query.get("includeObject") or "Metadata", self._now)

    def _one(self, call: Call, stored: Stored, status: int = 200, warnings: tuple[str, ...] = ()) -> web.Response:
        return json_response(self._view(call).one(stored), status, warnings)

    def _written(self, call: Call, answer: WriteResult) -> web.Response:
        return self._one(call, answer.stored, 201 if answer.created else 200, answer.warnings)

    async def get(self, call: Call) -> web.StreamResponse:
        if call.flag("watch"):
            return await self._watch(call)
        return self._one(call, self._store.get(call.resource, call.namespace, call.name))

    async def list(self, call: Call) -> web.StreamResponse:
        if call.flag("watch"):
            return await self._watch(call)
        version, exact = call.query.get("resourceVersion", ""), call.query.get("resourceVersionMatch") == "Exact"
        listing = self._store.page(
            call.resource,
            call.selection(),
            limit=max(0, call.number("limit") or 0),
            continuation=call.query.get("continue", ""),
            at_least="" if exact else version,
            exactly=version if exact else "",
        )
        return json_response(self._view(call).many(listing))

    async def _watch(self, call: Call) -> web.StreamResponse:
        return await stream(self._store, call, self._view(call), bookmark_s=self._bookmark_s)

    async def create(self, call: Call) -> web.StreamResponse:
        body = await call.object()
        return self._written(call, self._store.create(call.resource, call.namespace, body, call.write_options()))

    async def update(self, call: Call) -> web.StreamResponse:
        resource, body, options = call.resource, await call.object(), call.write_options()
        answer = self._store.update(
            resource, call.namespace, call.name, body, subresource=call.subresource, options=options
        )
        return self._written(call, answer)

    async def patch(self, call: Call) -> web.StreamResponse:
        answer = self._store.patch(
            call.resource,
            call.namespace,
            call.name,
            await decoded(call.request),
            media_type=call.request.content_type,
            subresource=call.subresource,
            options=call.write_options(),
        )
        return self._written(call, answer)

    async def delete(self, call: Call) -> web.StreamResponse:
        """Delete an object; kubectl expects the last state of some kinds, and a `Status` for others."""
        options = await call.delete_options()
        answer = self._store.delete(call.resource, call.namespace, call.name, options)
        if not answer.removed or call.resource.plural in _RETURNED_WHOLE:
            return self._one(call, answer.stored)
        resource = call.resource
        details = {"name": call.name, "group": resource.group, "kind": resource.plural, "uid": answer.stored.uid}
        return json_response(_success(details={key: value for key, value in details.items() if value}))

    async def delete_collection(self, call: Call) -> web.StreamResponse:
        view, options = self._view(call), await call.delete_options()
        deleted = self._store.delete_collection(call.resource, call.selection(), options)
        return json_response(view.many(ListedPage(deleted, self._store.version)))

    # The scale of a custom resource

    def _scale(self, call: Call, stored: Stored) -> web.Response:
        view = KindView(SCALE, call.form(), call.query.get("includeObject") or "Metadata", self._now)
        return json_response(view.one(scale_of(stored)))

    async def get_scale(self, call: Call) -> web.StreamResponse:
        return self._scale(call, self._store.get(call.resource, call.namespace, call.name))

    async def update_scale(self, call: Call) -> web.StreamResponse:
        return self._rescaled(call, await call.object())

    async def patch_scale(self, call: Call) -> web.StreamResponse:
        return self._rescaled(call, await decoded(call.request), call.request.content_type)

    def _rescaled(self, call: Call, body: Any, media_type: str = "") -> web.Response:
        options = call.write_options()
        answer = self._store.scale(
            call.resource, call.namespace, call.name, body, media_type=media_type, options=options
        )
        return self._scale(call, answer.stored)

    # Subresources of pods

    async def log(self, call: Call) -> web.StreamResponse:
        """Return a text in place of a pod's logs: simulated pods have none. Without a node there is nothing to ask."""
        pod = self._store.get(call.resource, call.namespace, call.name).object
        spec, container = pod["spec"], call.query.get("container", "")
        names = [of["name"] for part in ("containers", "initContainers") for of in spec.get(part) or ()]
        if container and container not in names:
            raise bad_request(f"container {container} is not valid for pod {call.name}")
        if not container and len(spec["containers"]) > 1:
            raise bad_request(
                f"a container name must be specified for pod {call.name}, choose one of: [{' '.join(names)}]"
            )
        if not spec.get("nodeName"):
            return web.Response(status=204)
        return web.Response(text="This pod is simulated: it runs no program and has no logs.\n")

    async def connect(self, call: Call) -> web.StreamResponse:
        """What a kubelet would connect a user with."""
        self._store.get(call.resource, call.namespace, call.name)
        raise bad_request(f"pod {call.name} is simulated: no program runs in it, so there is nothing to connect to")

    async def bind(self, call: Call) -> web.StreamResponse:
        body = await call.object()
        target, uid = body.get("target"), (body.get("metadata") or {}).get("uid")
        if not isinstance(target, dict) or not isinstance(target.get("name"), str):
            raise invalid("Binding", "", call.name, [required("target.name")])
        self._store.bind(call.namespace, call.name, target["name"], uid=uid or None)
        return json_response(_success(code=201), 201)

    async def evict(self, call: Call) -> web.StreamResponse:
        body = await call.object()
        options = delete_options_of(body.get("deleteOptions") or {})
        evict(self._store, call.namespace, call.name, body, options)
        return json_response(_success(code=201), 201)
