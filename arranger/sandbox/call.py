"""One parsed request to a resource: its target, its options, its body and the form of its response."""

from collections.abc import Mapping
from typing import Any

import msgspec
import yaml
from aiohttp import web

from arranger.kube.cluster import Object, Resource
from arranger.sandbox import protobuf
from arranger.sandbox.admission import WriteOptions
from arranger.sandbox.garbage import DeleteOptions
from arranger.sandbox.kinds import ServedKind
from arranger.sandbox.listing import Selection
from arranger.sandbox.patching import APPLY
from arranger.sandbox.status import ApiRefusal, bad_request, invalid, unsupported_media_type
from arranger.sandbox.validation import unsupported

JSON = "application/json"
_FORMS = ("", "Table", "PartialObjectMetadata", "PartialObjectMetadataList")
_PROPAGATIONS = ("Foreground", "Background", "Orphan")


class _Conditions(msgspec.Struct, frozen=True, rename="camel"):
    uid: str | None = None
    resource_version: str | None = None


class _DeleteBody(msgspec.Struct, frozen=True, rename="camel"):
    """`DeleteOptions` as clients send them."""

    grace_period_seconds: int | None = None
    preconditions: _Conditions | None = None
    propagation_policy: str | None = None
    orphan_dependents: bool | None = None
    dry_run: list[str] | None = None


def delete_options_of(body: Any) -> DeleteOptions:
    """The options of an eviction's deletion."""
    try:
        asked = msgspec.convert(body, _DeleteBody)
    except msgspec.ValidationError as error:
        raise bad_request(f"DeleteOptions: {error}") from error
    conditions = asked.preconditions or _Conditions()
    return DeleteOptions(
        uid=conditions.uid,
        resource_version=conditions.resource_version,
        grace_s=asked.grace_period_seconds,
        dry_run="All" in (asked.dry_run or []),
    )


async def decoded(request: web.Request) -> Any:
    """The body of a request, None for an empty one; raises `ApiRefusal` 415 for an unknown format."""
    raw = await request.read()
    if not raw:
        return None
    if request.content_type == protobuf.MEDIA_TYPE:
        return protobuf.decode(raw)
    if request.content_type in (APPLY, "application/yaml"):
        return yaml.load(raw, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    if "json" not in request.content_type and request.content_type != "application/octet-stream":
        raise unsupported_media_type([JSON, "application/yaml", protobuf.MEDIA_TYPE])
    return msgspec.json.decode(raw)


def one_object(body: Any) -> Object:
    """A body that must be an object; raises `ApiRefusal` 400 otherwise."""
    if not isinstance(body, dict):
        raise bad_request("the request's body must be one object")
    return body


class Call(msgspec.Struct, frozen=True):
    """A request, the resource that its path names, and the rest of the path; missing parts are empty."""

    request: web.Request
    kind: ServedKind
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def resource(self) -> Resource:
        return self.kind.resource

    @property
    def query(self) -> Mapping[str, str]:
        """The query parameters; the first of each name."""
        return self.request.query

    def flag(self, name: str) -> bool:
        return self.query.get(name) in ("true", "1")

    def number(self, name: str) -> int | None:
        """A query parameter that is a whole number; raises `ApiRefusal` 400 otherwise."""
        text = self.query.get(name)
        if not text:
            return None
        try:
            return int(text)
        except ValueError as error:
            raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from error

    def selection(self) -> Selection:
        """The objects that a list, watch or deletion of a collection selects."""
        fields = f"metadata.name={self.name}" if self.name else self.query.get("fieldSelector", "")
        return Selection(self.namespace, self.query.get("labelSelector", ""), fields, self.resource.plural)

    def form(self) -> str:
        """The requested form of objects: whole (empty), as a Table, or as PartialObjectMetadata."""
        for part in (self.request.headers.get("Accept") or JSON).split(","):
            media, *parameters = (piece.strip() for piece in part.split(";"))
            form = dict(piece.partition("=")[::2] for piece in parameters).get("as", "")
            if media in (JSON, "application/*", "*/*") and form in _FORMS:
                return form.removesuffix("List")
        raise ApiRefusal(406, "NotAcceptable", f"only the following media types are accepted: {JSON}")

    def write_options(self) -> WriteOptions:
        return WriteOptions(dry_run=self._dry_run(), strictness=self.query.get("fieldValidation") or "Warn")

    def _dry_run(self) -> bool:
        return "All" in self.request.query.getall("dryRun", [])

    async def object(self) -> Object:
        return one_object(await decoded(self.request))

    async def delete_options(self) -> DeleteOptions:
        """The options of a deletion, from the body and the query; the body has precedence."""
        try:
            body = msgspec.convert(await decoded(self.request) or {}, _DeleteBody)
        except msgspec.ValidationError as error:
            raise bad_request(f"DeleteOptions: {error}") from error
        conditions = body.preconditions or _Conditions()
        grace_s = body.grace_period_seconds
        propagation = body.propagation_policy or self.query.get("propagationPolicy")
        if propagation not in (None, *_PROPAGATIONS):
            wrong = unsupported("propagationPolicy", propagation, _PROPAGATIONS)
            raise invalid("DeleteOptions", "meta.k8s.io", "", [wrong])
        return DeleteOptions(
            uid=conditions.uid,
            resource_version=conditions.resource_version,
            grace_s=self.number("gracePeriodSeconds") if grace_s is None else grace_s,
            propagation=propagation or ("Orphan" if body.orphan_dependents else "Background"),
            dry_run="All" in (body.dry_run or []) or self._dry_run(),
        )
