"""The API's processing of a requested object before it is stored: identity, fields, defaults, checks.

These functions don't depend on what else is stored; see `store`.
"""

import copy
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from arranger.kube.cluster import CRDS, PODS, ApiError, Object
from arranger.sandbox import builtin, garbage
from arranger.sandbox.history import Stored
from arranger.sandbox.kinds import ServedKind, definition_errors
from arranger.sandbox.status import FieldError, bad_request, forbidden, invalid

_KEPT_METADATA = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")
_EMPTY: tuple[object, ...] = ({}, [], None, "")


class WriteOptions(msgspec.Struct, frozen=True):
    """Options of a write: `dry_run` stores nothing; `strictness` (Ignore, Warn, Strict) applies to unknown fields."""

    dry_run: bool = False
    strictness: str = "Warn"


def identified(kind: ServedKind, body: Object) -> Object:
    """The body with its kind first and a copied metadata; raises `Refusal` 400 for another kind's object."""
    resource = kind.resource
    given = body.get("apiVersion")
    if given not in (None, "", resource.api_version):
        raise bad_request(
            f"the API version in the data ({given}) does not match the expected API version ({resource.api_version})"
        )
    if not kind.typed and not (body.get("kind") and given):
        shown = msgspec.json.encode(body).decode()
        why = f"Object 'Kind' is missing in '{shown}' ({shown[:33]} ...)"
        raise bad_request(f"the object provided is unrecognized (must be of type {resource.kind}): {why}")
    if body.get("kind") not in (None, "", resource.kind):
        name = (body.get("metadata") or {}).get("name", "")
        error = FieldError("kind", f'Invalid value: "{body["kind"]}": must be {resource.kind}')
        raise invalid(body["kind"], resource.group, name, [error])
    metadata = {} if body.get("metadata") is None else body["metadata"]
    builtin.hold_metadata_types(metadata, resource.kind, resource.version)
    head = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": dict(metadata)}
    rest = {name: value for name, value in body.items() if name not in head}
    return head | (builtin.without_nulls(rest) if kind.typed else rest)


def place(kind: ServedKind, namespace: str, metadata: dict[str, Any]) -> None:
    """Put an object into the namespace of the request; raises `Refusal` 400 if it names another."""
    if not kind.resource.namespaced:
        metadata.pop("namespace", None)
    elif metadata.setdefault("namespace", namespace) != namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")


def hold_identity(old: Stored, new: Object) -> None:
    """Refuse, with 400, a write that would change the object's identity."""
    resource, metadata = old.kind.resource, new["metadata"]
    builtin.hold_metadata_types(metadata, resource.kind, resource.version)
    if metadata.get("name", old.name) != old.name:
        message = f"the name of the object ({metadata['name']}) does not match the name on the URL ({old.name})"
        raise bad_request(message)
    if metadata.get("namespace", old.namespace) != old.namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    for name, expected in (("kind", resource.kind), ("apiVersion", resource.api_version)):
        if new.get(name, expected) != expected:
            error = FieldError(name, f'Invalid value: "{new[name]}": must be {expected}')
            raise invalid(resource.kind, resource.group, old.name, [error])


def drop_unknown(kind: ServedKind, body: Object, options: WriteOptions) -> tuple[str, ...]:
    """Remove unknown fields; returns warnings about them, or raises `Refusal` 400 if the request is strict."""
    metadata = body["metadata"]
    unknown = [f"metadata.{name}" for name in metadata if name not in builtin.METADATA_FIELDS]
    for name in ("managedFields", "selfLink", *(path.partition(".")[2] for path in unknown)):
        metadata.pop(name, None)
    if kind.schema is not None:
        unknown += kind.schema.prune(body)
    else:
        unknown += builtin.unknown_fields(kind.resource.kind, body)
    told = tuple(f'unknown field "{path}"' for path in sorted(unknown))
    if told and options.strictness == "Strict":
        name, version = kind.resource.kind, kind.resource.version
        raise bad_request(
            f'{name} in version "{version}" cannot be handled as a {name}: strict decoding error: {", ".join(told)}'
        )
    return told if options.strictness == "Warn" else ()


def prioritise(pod: Object, classes: Mapping[str, Object]) -> None:
    """Give a pod the value of its PriorityClass; refuse it, with 403, if there is no such class."""
    spec = pod.get("spec") or {}
    name = spec.get("priorityClassName")
    if not name:
        return
    of_class = classes.get(name)
    if of_class is None:
        why = f"no PriorityClass with name {name} was found"
        raise forbidden("pods", "", pod["metadata"].get("name", ""), why)
    value = of_class["value"]
    if spec.get("priority") not in (None, value):
        why = (
            f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; priority admission "
        )
        why += f"controller computed {value} from the given PriorityClass name"
        raise forbidden("pods", "", pod["metadata"].get("name", ""), why)
    spec["priority"] = value


def run_in_class(pod: Object, classes: Mapping[str, Object]) -> None:
    """Give a pod what its RuntimeClass adds; refuse it, with 403, if there is no such class or it contradicts it."""
    spec = pod.get("spec") or {}
    name = spec.get("runtimeClassName")
    if not name:
        return
    of_class = classes.get(name)
    if of_class is None:
        raise _rejected(pod, f'RuntimeClass "{name}" not found')
    overhead = (of_class.get("overhead") or {}).get("podFixed")
    if overhead:
        if spec.get("overhead") not in (None, overhead):
            raise _rejected(pod, "Pod's Overhead doesn't match RuntimeClass's defined Overhead")
        spec["overhead"] = overhead
    _schedule_in_class(pod, spec, of_class.get("scheduling") or {})


def _schedule_in_class(pod: Object, spec: Object, scheduling: Object) -> None:
    own, more = spec.get("nodeSelector") or {}, scheduling.get("nodeSelector") or {}
    for key, value in more.items():
        if own.get(key, value) != value:
            why = f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; "
            raise _rejected(pod, f"{why}pod.spec.nodeSelector[{key}] = {own[key]}")
    if more:
        spec["nodeSelector"] = {**own, **more}
    tolerations = spec.get("tolerations") or []
    if new := [one for one in scheduling.get("tolerations") or () if one not in tolerations]:
        spec["tolerations"] = [*tolerations, *new]


def limits_as_stored(limits: Object) -> Object:
    """A copy of a LimitRange with the defaults that are stored with it; raises `Refusal` 400 for a malformed amount."""
    stored = copy.deepcopy(limits)
    builtin.default_limit_range(stored)
    return stored


def limit(pod: Object, ranges: Iterable[Object]) -> None:
    """Give the containers of a pod the defaults of the LimitRanges of its namespace, whose bounds are in `bounds`."""
    items = [
        of for each in ranges for of in (each.get("spec") or {}).get("limits") or () if of.get("type") == "Container"
    ]
    if not items or not pod.get("spec"):
        return
    builtin.settle_pod(pod)  # what follows from the pod itself comes first
    for field in ("containers", "initContainers"):
        for container in pod["spec"].get(field) or ():
            for of in items:
                _limit_container(container["resources"], of)


def _limit_container(asked: Object, of: Object) -> None:
    for side, field in (("limits", "default"), ("requests", "defaultRequest")):
        if field in of:
            asked[side] = {**of[field], **asked.get(side, {})}


def _rejected(pod: Object, why: str) -> ApiError:
    return forbidden("pods", "", pod["metadata"].get("name", ""), f"pod rejected: {why}")


def separated(kind: ServedKind, old: Object, new: Object, metadata: dict[str, Any], subresource: str) -> Object:
    """The object to write: status writes change only the status, others everything but the status.

    `metadata` is a copy of that of `new` and is modified.
    """
    if subresource == "status":
        status = new.get("status")
        kept = dict(old) if status is None else {**old, "status": status}
        return {**kept, "metadata": dict(old["metadata"])}
    for name in _KEPT_METADATA:
        metadata.pop(name, None)
        if name in old["metadata"]:
            metadata[name] = old["metadata"][name]
    metadata |= {"name": old["metadata"]["name"], "resourceVersion": old["metadata"]["resourceVersion"]}
    whole = {**new, "kind": old["kind"], "apiVersion": old["apiVersion"], "metadata": clean(metadata)}
    if kind.has_status:
        whole.pop("status", None)
        if "status" in old:
            whole["status"] = old["status"]
    if not kind.typed:
        return whole
    settled: Object = builtin.without_nulls(whole)
    if kind.resource == PODS:
        builtin.settle_pod(settled)
    return settled


def check(kind: ServedKind, new: Object, old: Object | None) -> None:
    """Fill in defaults and refuse, with 422, an invalid object. `old` is the state that it replaces."""
    resource = kind.resource
    found = builtin.metadata_errors(new["metadata"], resource.kind)
    if kind.schema is not None:
        kind.schema.default(new)
        found = kind.schema.verdict(new, old, found)
    elif old is None:
        if resource.kind in builtin.DEFAULTS:
            builtin.DEFAULTS[resource.kind](new)
        if resource.kind in builtin.CHECKS:
            found += builtin.CHECKS[resource.kind](new)
    elif resource.kind == "Pod":
        found += builtin.pod_update_errors(new, old)
    elif resource.kind == "PriorityClass":
        found += builtin.priority_class_update_errors(new, old)
    elif resource.kind == "ConfigMap":
        found += builtin.config_map_errors(new)
    if old is not None and "deletionTimestamp" in old["metadata"]:
        found += garbage.added_finalizers(new, old)
    if resource == CRDS and not found:
        found += definition_errors(new)
    if found:
        raise invalid(resource.kind, resource.group, new["metadata"].get("name", ""), found)


def content(obj: Object, kind: ServedKind) -> Object:
    """The part of an object whose changes a generation counts: the spec, and all else except metadata and status."""
    ignored = ("metadata", "status") if kind.has_status else ("metadata",)
    return {name: value for name, value in obj.items() if name not in ignored}


def clean(metadata: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in metadata.items() if value not in _EMPTY}
