"""The patch formats, by media type: JSON merge patch (RFC 7386), JSON patch (RFC 6902) and Kubernetes' strategic merge.

None of them modifies its arguments.
"""

from typing import Any

from jsonpatch import JsonPatch, JsonPatchException
from jsonpointer import JsonPointerException

from arranger.sandbox.status import ApiRefusal, bad_request, unsupported_media_type

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"

#: Lists that a strategic merge merges by key, by the field's name, anywhere in a built-in object.
_MERGE_KEYS = {
    **dict.fromkeys(("containers", "initContainers", "ephemeralContainers", "env", "volumes"), "name"),
    **dict.fromkeys(("imagePullSecrets", "resourceClaims", "secrets"), "name"),
    **dict.fromkeys(("conditions", "addresses"), "type"),
    **dict.fromkeys(("hostAliases", "podIPs"), "ip"),
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "ports": "containerPort",
    "topologySpreadConstraints": "topologyKey",
    "ownerReferences": "uid",
}
_MERGED_SETS = frozenset({"finalizers"})
_ORDER = "$setElementOrder/"
_DELETED = "$deleteFromPrimitiveList/"


def merge_patch(target: Any, patch: Any) -> Any:
    """Apply a JSON merge patch: null removes, objects merge, everything else replaces."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def strategic_merge(target: Any, patch: Any) -> Any:
    """Apply a strategic merge patch with the merge keys of the built-in kinds and its `$` directives."""
    if not isinstance(patch, dict):
        return patch
    if patch.get("$patch") == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    if patch.get("$patch") == "delete":
        return {}
    merged = dict(target) if isinstance(target, dict) else {}
    if (retained := patch.get("$retainKeys")) is not None:
        merged = {key: value for key, value in merged.items() if key in retained}
    for key, value in patch.items():
        if key.startswith(_DELETED):
            field = key.removeprefix(_DELETED)
            merged[field] = [item for item in merged.get(field) or [] if item not in value]
        elif not key.startswith("$"):
            _merge_field(merged, key, value, patch.get(_ORDER + key))
    return merged


def _merge_field(merged: dict[str, Any], key: str, value: Any, order: list[Any] | None) -> None:
    if value is None:
        merged.pop(key, None)
    elif isinstance(value, list) and key in _MERGED_SETS:
        merged[key] = list(dict.fromkeys([*(merged.get(key) or []), *value]))
    elif isinstance(value, list) and key in _MERGE_KEYS and all(isinstance(item, dict) for item in value):
        merged[key] = _merge_list(merged.get(key) or [], value, _merge_key(key, value), order)
    else:
        merged[key] = strategic_merge(merged.get(key), value)


def _merge_key(field: str, items: list[dict[str, Any]]) -> str:
    # A Service merges its ports by `port`; nothing else shares a field's name with another key.
    key = _MERGE_KEYS[field]
    return "port" if field == "ports" and any("port" in item and key not in item for item in items) else key


def _merge_list(
    target: list[dict[str, Any]], patch: list[dict[str, Any]], key: str, order: list[Any] | None
) -> list[dict[str, Any]]:
    if any(item.get("$patch") == "replace" for item in patch):
        return [item for item in patch if "$patch" not in item]
    merged = {item.get(key): item for item in target}
    for item in patch:
        if key not in item:
            raise bad_request(f"map: {item} does not contain declared merge key: {key}")
        if item.get("$patch") == "delete":
            merged.pop(item[key], None)
        else:
            merged[item[key]] = strategic_merge(merged.get(item[key]), item)
    if order is None:
        return list(merged.values())
    ranks = {item.get(key): rank for rank, item in enumerate(order) if isinstance(item, dict)}
    return sorted(merged.values(), key=lambda item: ranks.get(item.get(key), len(ranks)))


def json_patch(document: Any, operations: Any) -> Any:
    """Apply a JSON patch; raises `ApiRefusal` 422 if a path doesn't exist or a test fails."""
    if not isinstance(operations, list):
        raise bad_request("error decoding patch: a JSON patch is a list of operations")
    if not all(isinstance(step, dict) and isinstance(step.get("path", ""), str) for step in operations):
        raise bad_request("error decoding patch: each operation is an object with a path")
    try:
        return JsonPatch(operations).apply(document)
    except (JsonPatchException, JsonPointerException) as error:
        message = "the server rejected our request due to an error in our request"
        raise ApiRefusal(422, "Invalid", message, {}) from error


def patched(target: Any, patch: Any, media_type: str, *, typed: bool) -> Any:
    """Apply a patch in the format of its media type to an object; a server-side apply is a merge here.

    Only kinds whose fields the server knows (`typed`) accept a strategic merge. Raises `ApiRefusal` 415 for another
    format, 400 if the result isn't an object.
    """
    if media_type == JSON_PATCH:
        new = json_patch(target, patch)
    elif media_type in (STRATEGIC, APPLY) and typed:
        new = strategic_merge(target, patch)
    elif media_type in (MERGE, APPLY):
        new = merge_patch(target, patch)
    else:
        accepted = [JSON_PATCH, MERGE, STRATEGIC, APPLY] if typed else [JSON_PATCH, MERGE, APPLY]
        raise unsupported_media_type(accepted)
    if not isinstance(new, dict) or not isinstance(new.get("metadata"), dict):
        raise bad_request("the patch leaves no object")
    return new
