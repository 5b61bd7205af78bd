"""The content of a response: whole objects, rows of a table, or metadata alone, as the client requested."""

from collections.abc import Callable
from typing import Any

import msgspec
from aiohttp import web

from arranger.kube.cluster import Object
from arranger.sandbox import tables
from arranger.sandbox.call import JSON
from arranger.sandbox.history import Event, Stored
from arranger.sandbox.kinds import ServedKind
from arranger.sandbox.listing import ListedPage


def json_response(body: Any, status: int = 200, warnings: tuple[str, ...] = ()) -> web.Response:
    """A JSON response with warnings in kubectl's format; a body of bytes is JSON already."""
    raw = body if isinstance(body, bytes) else msgspec.json.encode(body)
    response = web.Response(body=raw, status=status, content_type=JSON)
    for warning in warnings:
        quoted = warning.replace("\\", "\\\\").replace('"', '\\"')
        response.headers.add("Warning", f'299 - "{quoted}"')
    return response


class KindView(msgspec.Struct, frozen=True):
    """One client's view of the objects of a kind; all results are JSON.

    `form` is "Table", "PartialObjectMetadata" or empty for whole objects; `include` selects the object in each row of a
    table. `now` returns seconds since 1970, for ages.
    """

    kind: ServedKind
    form: str
    include: str
    now: Callable[[], float]

    def one(self, stored: Stored, *, headed: bool = True) -> bytes:
        """One object; a table has its head only if `headed`."""
        if self.form == "Table":
            return self._table([stored], {"resourceVersion": str(stored.version)}, headed=headed)
        return msgspec.json.encode(tables.partial_metadata(stored)) if self.form else stored.raw

    def many(self, listing: ListedPage) -> bytes:
        """A list; whole objects are joined from their existing encoding."""
        metadata: dict[str, Any] = {"resourceVersion": str(listing.version)}
        if listing.continuation:
            metadata |= {"continue": listing.continuation, "remainingItemCount": listing.remaining}
        if self.form == "Table":
            return self._table(listing.items, metadata)
        head = self._head("List", metadata)
        if self.form:
            return msgspec.json.encode({**head, "items": [tables.partial_metadata(stored) for stored in listing.items]})
        skip = len(self.kind.head) if self.kind.typed else 0
        raws = [b"{" + stored.raw[skip:] if skip else stored.raw for stored in listing.items]
        return msgspec.json.encode(head)[:-1] + b',"items":[' + b",".join(raws) + b"]}"

    def event(self, event: Event, *, headed: bool) -> bytes:
        if not self.form:
            return event.line
        return b'{"type":"%s","object":%s}\n' % (event.type.encode(), self.one(event.stored, headed=headed))

    def bookmark(self, version: int, annotations: dict[str, str] | None = None) -> bytes:
        """A line with the version that a watch has reached."""
        metadata = {"resourceVersion": str(version)} | ({"annotations": annotations} if annotations else {})
        shown = self._head("", metadata)
        if self.form == "Table":
            shown |= {"rows": [], "columnDefinitions": None}
        return msgspec.json.encode({"type": "BOOKMARK", "object": shown}) + b"\n"

    def _table(self, items: list[Stored], metadata: dict[str, Any], *, headed: bool = True) -> bytes:
        now_s = self.now()
        table = tables.table(self.kind, items, metadata=metadata, now_s=now_s, include=self.include, headed=headed)
        return msgspec.json.encode(table)

    def _head(self, suffix: str, metadata: dict[str, Any]) -> Object:
        resource = self.kind.resource
        kind, version = (self.form, "meta.k8s.io/v1") if self.form else (resource.kind, resource.api_version)
        return {"kind": kind + suffix, "apiVersion": version, "metadata": metadata}
