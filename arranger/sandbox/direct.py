"""The `Cluster` interface directly on a `Store`: no HTTP, and no waiting except on the given clock."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any

import msgspec

from arranger.clock import Clock, SystemClock
from arranger.kube.cluster import ApiError, ListPage, Object, Resource, WatchEvent, Withdrawn, always
from arranger.sandbox.admission import WriteOptions
from arranger.sandbox.eviction import evict
from arranger.sandbox.garbage import DeleteOptions
from arranger.sandbox.history import Event, Stored
from arranger.sandbox.listing import Selection
from arranger.sandbox.status import ApiRefusal
from arranger.sandbox.store import Store

#: A silent watch sends a bookmark this often.
BOOKMARK_S = 30.0

_decoded = msgspec.json.Decoder(Object).decode


def _own(body: Mapping[str, Any]) -> Object:
    return _decoded(msgspec.json.encode(body))


class DirectCluster:
    """A client of an in-memory cluster. Every object that it returns belongs to the caller. `strict` as for the client
    of an API server."""

    def __init__(self, store: Store, *, clock: Clock | None = None, strict: bool = False) -> None:
        self._store = store
        self._options = WriteOptions(strictness="Strict" if strict else "Warn")
        self._clock = clock or SystemClock()

    async def listing(self, resource: Resource, *, limit: int = 500, at: str = "") -> AsyncGenerator[ListPage, None]:
        continuation = ""
        while True:
            exactly = "" if continuation else at
            page = self._store.page(resource, Selection(), limit=limit, continuation=continuation, exactly=exactly)
            yield ListPage([_listed(stored) for stored in page.items], str(page.version))
            continuation = page.continuation
            if not continuation:
                return

    async def watch(
        self,
        resource: Resource,
        resource_version: str,
        *,
        timeout_s: float = 300.0,
        accepted: Callable[[], object] = always,
    ) -> AsyncGenerator[list[WatchEvent], None]:
        news = asyncio.Event()
        deadline_s = self._clock.monotonic_s() + timeout_s
        store = self._store  # a watch stays with the server that opened it
        with contextlib.closing(store.watch(resource, Selection(), resource_version, news.set)) as watch:
            accepted()
            while (left_s := deadline_s - self._clock.monotonic_s()) > 0:
                events = watch.take()
                if not events:
                    news.clear()
                    silent = not await self._woken(news, min(left_s, BOOKMARK_S))
                    events = watch.take()
                    if silent and not events:
                        yield [self._bookmark(resource, store.version)]
                if events:
                    yield [self._change(event) for event in events]

    async def _woken(self, news: asyncio.Event, seconds: float) -> bool:
        """Whether news arrived in time; False after a timeout, even if there is news by then."""
        late = False

        async def end() -> None:
            nonlocal late
            await self._clock.sleep(seconds)
            late = True
            news.set()

        ending = asyncio.ensure_future(end())
        try:
            await news.wait()
        finally:
            ending.cancel()
        return not late

    def _change(self, event: Event) -> WatchEvent:
        return WatchEvent(event.type, _decoded(event.stored.raw), str(event.stored.version), self._clock.now_ms())

    def _bookmark(self, resource: Resource, version: int) -> WatchEvent:
        metadata = {"resourceVersion": str(version)}
        obj = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}
        return WatchEvent("BOOKMARK", obj, str(version), self._clock.now_ms())

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Object:
        return _decoded(self._store.get(resource, namespace or "", name).raw)

    async def create(
        self, resource: Resource, namespace: str | None, body: Mapping[str, Any], *, still: Callable[[], bool] = always
    ) -> Object:
        if not still():
            raise Withdrawn(f"create {resource.plural}: no longer wanted")
        return _decoded(self._store.create(resource, namespace or "", _own(body), self._options).stored.raw)

    async def try_create(self, resource: Resource, namespace: str | None, body: Mapping[str, Any]) -> None:
        self._store.create(resource, namespace or "", _own(body), WriteOptions(dry_run=True))

    async def patch(
        self, resource: Resource, namespace: str | None, name: str, body: Mapping[str, Any], *, subresource: str = ""
    ) -> Object:
        answer = self._store.patch(
            resource, namespace or "", name, _own(body), subresource=subresource, options=self._options
        )
        return _decoded(answer.stored.raw)

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
        self._store.delete(resource, namespace or "", name, DeleteOptions(uid, resource_version, grace_s))

    async def evict(self, namespace: str, name: str, *, uid: str) -> None:
        try:
            evict(self._store, namespace, name, {}, DeleteOptions(uid))
        except ApiRefusal as refused:  # as the HTTP client does
            causes = (refused.details or {}).get("causes") or ()
            told = [of["message"] for of in causes if of["reason"] == "DisruptionBudget"]
            raise ApiError(refused.code, refused.reason or "Unknown", " ".join([refused.detail, *told])) from refused

    async def bind(self, namespace: str, name: str, *, uid: str, node: str, still: Callable[[], bool] = always) -> None:
        if not still():
            raise Withdrawn("bind pods: no longer wanted")
        self._store.bind(namespace, name, node, uid=uid)

    async def close(self) -> None:
        """Nothing to close."""


def _listed(stored: Stored) -> Object:
    """An item of a listing; built-in kinds omit the fields that all items share, as the real server does."""
    item = _decoded(stored.raw)
    if stored.kind.typed:
        del item["kind"], item["apiVersion"]
    return item
