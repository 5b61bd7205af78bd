"""The scale subresource of a custom resource: a `Scale` instead of the object, for `kubectl scale` and autoscalers."""

from typing import Any

import msgspec

from arranger.kube.cluster import Object, Resource
from arranger.sandbox.history import Stored
from arranger.sandbox.kinds import Column, ScalePaths, ServedKind
from arranger.sandbox.patching import patched
from arranger.sandbox.status import ApiRefusal, bad_request, conflict

#: What a patch finds in place of a missing number, as on a real server.
_ABSENT = -(2**31)
_COPIED = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")

SCALE = ServedKind(
    Resource("autoscaling", "v1", "scales", "Scale"),
    "scale",
    typed=False,
    columns=(
        Column("Desired", "integer", ".spec.replicas"),
        Column("Available", "integer", ".status.replicas"),
        Column("Age", "date", ".metadata.creationTimestamp"),
    ),
)


def scale_of(stored: Stored) -> Stored:
    """The scale of a custom resource. Raises `ApiRefusal` 500 if the object lacks the number."""
    scale = _scale(stored)
    if scale["spec"].get("replicas") == _ABSENT:
        why = f'the spec replicas field "{_paths(stored).spec}" does not exist'
        raise ApiRefusal(500, "InternalError", f"Internal error occurred: {why}", {"causes": [{"message": why}]})
    return Stored(SCALE, scale, stored.version)


def rescaled(old: Stored, body: Any, media_type: str) -> Object:
    """The object with the number of a scale, which replaces the old one or is a patch of a media type.

    Raises `ApiRefusal`: 400 for another object's scale and without a number, 409 after a change since that scale.
    """
    paths = _paths(old)
    new = patched(_scale(old), body, media_type, typed=False) if media_type else body
    metadata, spec = new.get("metadata"), new.get("spec") or {}
    if not media_type and (new.get("kind", "Scale"), new.get("apiVersion", "autoscaling/v1")) != _HEAD:
        raise bad_request("no kind is registered for the type v1.Scale")
    if not isinstance(metadata, dict) or not metadata.get("name"):
        raise bad_request(f"the name of the object ({old.name} based on URL) was undeterminable: name must be provided")
    replicas = spec.get("replicas", 0) if isinstance(spec, dict) else None
    if type(replicas) is not int:
        raise ApiRefusal(422 if media_type else 400, "Invalid" if media_type else "BadRequest", _NO_NUMBER)
    if replicas == _ABSENT:
        raise bad_request(f'the spec replicas field "{paths.spec}" cannot be empty')
    if metadata.get("uid") not in (None, "", old.uid):
        resource, given = old.kind.resource, metadata["uid"]
        why = f"Precondition failed: UID in precondition: {given}, UID in object meta: {old.uid}"
        raise conflict(resource.plural, resource.group, old.name, why)
    named = {name: metadata[name] for name in ("name", "namespace", "resourceVersion") if metadata.get(name)}
    changed: Object = msgspec.json.decode(old.raw)
    changed["metadata"] |= {"resourceVersion": ""} | named
    *above, last = paths.spec.strip(".").split(".")
    into = changed
    for name in above:
        into = into.setdefault(name, {})
    into[last] = replicas
    return changed


_HEAD = ("Scale", "autoscaling/v1")
_NO_NUMBER = "json: cannot unmarshal into Go struct field ScaleSpec.spec.replicas of type int32"


def _paths(stored: Stored) -> ScalePaths:
    assert stored.kind.scale is not None
    return stored.kind.scale


def _scale(stored: Stored) -> Object:
    paths, metadata = _paths(stored), stored.object["metadata"]
    replicas, selector = _at(stored.object, paths.spec), _at(stored.object, paths.selector)
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: metadata[name] for name in _COPIED if name in metadata},
        "spec": {} if replicas == 0 else {"replicas": _ABSENT if replicas is None else replicas},
        "status": {
            "replicas": _at(stored.object, paths.status) or 0,
            **({"selector": selector} if selector else {}),
        },
    }


def _at(obj: Any, path: str) -> Any:
    """The value at a path of fields; None if there is none."""
    for name in path.strip(".").split("."):
        obj = obj.get(name) if isinstance(obj, dict) else None
    return obj
