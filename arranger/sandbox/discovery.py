"""The server's documents about itself: version, groups, resources, and as much OpenAPI as kubectl needs."""

import hashlib
import re
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from arranger.kube.cluster import Object
from arranger.sandbox.kinds import ServedKind

#: The version whose behaviour the embedded server imitates.
VERSION = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.0+arranger.sandbox",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "",
}
_INFO = {"title": "Kubernetes", "version": VERSION["gitVersion"]}
VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_STATUS_VERBS = ["get", "patch", "update"]

#: An OpenAPI v2 document in protobuf with only `swagger: "2.0"`; kubectl then uses its built-in document.
OPENAPI_V2 = b"\x0a\x032.0"
OPENAPI_V2_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
#: The same in JSON.
OPENAPI_V2_JSON: Object = {"swagger": "2.0", "info": _INFO, "paths": {}, "definitions": {}}

_TOP = ("api", "apis", "healthz", "livez", "openapi/v2", "openapi/v3", "readyz", "version")
_REVIEWS = [
    {"name": f"{kind.lower()}s", "singularName": kind.lower(), "namespaced": False, "kind": kind, "verbs": ["create"]}
    for kind in ("SelfSubjectAccessReview", "SelfSubjectRulesReview")
]
_POD_SUBRESOURCES = (
    ("binding", "Binding", "", "v1", ["create"]),
    ("eviction", "Eviction", "policy", "v1", ["create"]),
    ("log", "Pod", "", "", ["get"]),
)


def _resources(kind: ServedKind) -> list[dict[str, Any]]:
    resource = kind.resource
    entry: dict[str, Any] = {
        "name": resource.plural,
        "singularName": kind.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": VERBS,
    }
    if kind.short_names:
        entry["shortNames"] = list(kind.short_names)
    if kind.categories:
        entry["categories"] = list(kind.categories)
    entries = [entry]
    base = {"singularName": "", "namespaced": resource.namespaced}
    if kind.has_status:
        name = f"{resource.plural}/status"
        entries.append({"name": name, **base, "kind": resource.kind, "verbs": _STATUS_VERBS})
    if kind.scale is not None:
        scale = {"group": "autoscaling", "version": "v1", "kind": "Scale", "verbs": _STATUS_VERBS}
        entries.append({"name": f"{resource.plural}/scale", **base, **scale})
    if resource.plural == "pods":
        for name, sub, group, version, verbs in _POD_SUBRESOURCES:
            more = {"group": group, "version": version} if group else {}
            entries.append({"name": f"pods/{name}", **base, "kind": sub, "verbs": verbs, **more})
    return entries


def _order(version: str) -> tuple[object, ...]:
    """The sort key of versions: v2, v1, v1beta1, v1alpha1, then other names alphabetically."""
    known = re.fullmatch(r"v(\d+)(?:(alpha|beta)(\d+))?", version)
    if known is None:
        return (1, version)
    major, stage, minor = known.groups()
    return (0, ("beta", "alpha").index(stage) + 1 if stage else 0, -int(major), -int(minor or 0))


def _groups(kinds: Iterable[ServedKind]) -> dict[str, list[str]]:
    """API groups and the versions of each, the preferred one first, without the core group."""
    found: dict[str, set[str]] = {}
    for kind in kinds:
        found.setdefault(kind.resource.group, set()).add(kind.resource.version)
    found.pop("", None)
    ordered = {group: sorted(versions, key=_order) for group, versions in found.items()}
    return {**ordered, "authorization.k8s.io": ["v1"]}


def _group(name: str, versions: list[str]) -> dict[str, Any]:
    entries = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": entries, "preferredVersion": entries[0]}


def _group_list(kinds: Iterable[ServedKind]) -> Object:
    listed = [_group(name, versions) for name, versions in _groups(kinds).items()]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}


def _one_group(kinds: Iterable[ServedKind], *, group: str) -> Object | None:
    versions = _groups(kinds).get(group)
    return None if versions is None else {"kind": "APIGroup", "apiVersion": "v1", **_group(group, versions)}


def resource_list(kinds: Iterable[ServedKind], *, version: str, group: str = "") -> Object | None:
    """The resources of a version of a group (empty: the core group); None if it isn't served."""
    if (group, version) == ("authorization.k8s.io", "v1"):
        entries = _REVIEWS
    else:
        served = [kind for kind in kinds if (kind.resource.group, kind.resource.version) == (group, version)]
        entries = [entry for kind in served for entry in _resources(kind)]
    if not entries:
        return None
    group_version = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": entries}


def _documents(kinds: Iterable[ServedKind]) -> dict[str, Object]:
    """The OpenAPI document of each group."""
    groups: dict[str, list[ServedKind]] = {}
    for kind in kinds:
        base = "apis" if kind.resource.group else "api"
        groups.setdefault(f"{base}/{kind.resource.api_version}", []).append(kind)
    return {name: _document(served) for name, served in groups.items()}


def _openapi_index(kinds: Iterable[ServedKind]) -> Object:
    """The location of each group's document, with a hash of its content."""
    paths = {}
    for name, document in _documents(kinds).items():
        digest = hashlib.sha256(msgspec.json.encode(document)).hexdigest().upper()
        paths[name] = {"serverRelativeURL": f"/openapi/v3/{name}?hash={digest}"}
    return {"paths": paths}


def _document(kinds: list[ServedKind]) -> Object:
    paths, schemas = {}, {}
    for kind in kinds:
        paths[kind.resource.path("{namespace}", "{name}")] = _operations(kind)
        if kind.schema is not None:
            schemas[_schema_name(kind)] = _described(kind, kind.schema.declared)
    return {"openapi": "3.0.0", "info": _INFO, "paths": paths, "components": {"schemas": schemas}}


def _schema_name(kind: ServedKind) -> str:
    reverse = ".".join(reversed(kind.resource.group.split(".")))
    return f"{reverse}.{kind.resource.version}.{kind.resource.kind}"


def _gvk(kind: ServedKind) -> dict[str, str]:
    return {"group": kind.resource.group, "version": kind.resource.version, "kind": kind.resource.kind}


def _operations(kind: ServedKind) -> Object:
    """The operations that kubectl checks: whether the server can validate writes."""
    query = [
        {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
        for name in ("dryRun", "fieldManager", "fieldValidation", "force")
    ]
    content: dict[str, Any] = {"application/json": {"schema": {"type": "object"}}}
    if kind.schema is not None:
        content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{_schema_name(kind)}"}}}
    answer = {"200": {"description": "OK", "content": content}}
    return {
        action: {
            "operationId": f"{action}{kind.resource.kind}",
            "parameters": parameters,
            "responses": answer,
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": _gvk(kind),
        }
        for action, parameters in (("get", []), ("put", query), ("patch", query))
    }


def _described(kind: ServedKind, declared: dict[str, Any]) -> dict[str, Any]:
    """A CRD's schema with the fields that every object has."""
    implied = {
        "apiVersion": {"type": "string", "description": "The version of this representation of the object."},
        "kind": {"type": "string", "description": "The kind of resource that this object represents."},
        "metadata": {"type": "object", "description": "Standard object metadata."},
    }
    properties = {**implied, **(declared.get("properties") or {})}
    return {**declared, "properties": properties, "x-kubernetes-group-version-kind": [_gvk(kind)]}


#: The document at each path; a function gets the served kinds and the variable parts of the path.
DOCUMENTS: dict[str, Callable[..., Object | None]] = {
    "": lambda _: {"paths": [f"/{path}" for path in _TOP]},
    "/version": lambda _: VERSION,
    "/api": lambda _: {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []},
    "/apis": _group_list,
    "/apis/{group}": _one_group,
    "/api/{version}": resource_list,
    "/apis/{group}/{version}": resource_list,
    "/openapi/v3": _openapi_index,
    "/openapi/v3/{name:.+}": lambda kinds, name: _documents(kinds).get(name),
}
