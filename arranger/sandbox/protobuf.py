"""Decoding of the few objects that kubectl always sends in protobuf: reviews and `create` commands.

A request's body is a magic prefix and an envelope with the object's type and its bytes. Only the fields listed here
are read, and kinds that aren't listed are refused. Every response is JSON.
"""

import base64
from collections.abc import Callable, Iterator
from typing import Any

from arranger.kube.cluster import Object
from arranger.sandbox.status import ApiRefusal, bad_request

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"

#: The type of a field: "text", "number", "flag", "map" (text to text), "bytes map", "quantities" (text to quantity),
#: "number or text", the fields of a message, or in a list, the type of each of several.
_Fields = dict[int, tuple[str, Any]]

_METADATA: _Fields = {
    1: ("name", "text"),
    2: ("generateName", "text"),
    3: ("namespace", "text"),
    11: ("labels", "map"),
    12: ("annotations", "map"),
}
_DELETE: _Fields = {
    1: ("gracePeriodSeconds", "number"),
    2: ("preconditions", {1: ("uid", "text"), 2: ("resourceVersion", "text")}),
    4: ("propagationPolicy", "text"),
}
_RESOURCE: _Fields = {
    1: ("namespace", "text"),
    2: ("verb", "text"),
    3: ("group", "text"),
    5: ("resource", "text"),
    6: ("subresource", "text"),
    7: ("name", "text"),
}
_SELECTOR: _Fields = {
    1: ("matchLabels", "map"),
    2: ("matchExpressions", [{1: ("key", "text"), 2: ("operator", "text"), 3: ("values", ["text"])}]),
}
_BUDGET: _Fields = {
    1: ("minAvailable", "number or text"),
    2: ("selector", _SELECTOR),
    3: ("maxUnavailable", "number or text"),
}
_KINDS: dict[str, _Fields] = {
    "Namespace": {1: ("metadata", _METADATA)},
    "ServiceAccount": {1: ("metadata", _METADATA)},
    "ConfigMap": {1: ("metadata", _METADATA), 2: ("data", "map")},
    "Secret": {1: ("metadata", _METADATA), 2: ("data", "bytes map"), 3: ("type", "text")},
    "PriorityClass": {
        1: ("metadata", _METADATA),
        2: ("value", "number"),
        3: ("globalDefault", "flag"),
        4: ("description", "text"),
        5: ("preemptionPolicy", "text"),
    },
    "ResourceQuota": {1: ("metadata", _METADATA), 2: ("spec", {1: ("hard", "quantities"), 2: ("scopes", ["text"])})},
    "PodDisruptionBudget": {1: ("metadata", _METADATA), 2: ("spec", _BUDGET)},
    "Binding": {1: ("metadata", _METADATA), 2: ("target", {1: ("kind", "text"), 3: ("name", "text")})},
    "Eviction": {1: ("metadata", _METADATA), 2: ("deleteOptions", _DELETE)},
    "DeleteOptions": _DELETE,
    "SelfSubjectAccessReview": {2: ("spec", {1: ("resourceAttributes", _RESOURCE)})},
    "SelfSubjectRulesReview": {2: ("spec", {1: ("namespace", "text")})},
}


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = raw[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def _parts(raw: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message: number and value, in order."""
    at = 0
    while at < len(raw):
        tag, at = _varint(raw, at)
        wire = tag & 7
        if wire == 0:
            value, at = _varint(raw, at)
            yield tag >> 3, value
            continue
        size, at = {1: (8, at), 5: (4, at)}.get(wire) or _varint(raw, at)
        yield tag >> 3, raw[at : at + size]
        at += size


def _number(value: int) -> int:
    """A signed number: those below 0 are written with 64 bits."""
    return value - (1 << 64) if value >= 1 << 63 else value


def _number_or_text(raw: bytes) -> int | str:
    parts = dict(_parts(raw))
    return bytes(parts.get(3, b"")).decode() if parts.get(1) else _number(int(parts.get(2, 0)))


#: Of maps: how the value of an entry is read.
_MAPS: dict[str, Callable[[bytes], str]] = {
    "map": bytes.decode,
    "bytes map": lambda raw: base64.b64encode(raw).decode(),
    "quantities": lambda raw: bytes(dict(_parts(raw)).get(1, b"")).decode(),
}


def _value(value: int | bytes, how: Any) -> Any:
    """The value of a field; None for what is left out."""
    if isinstance(value, int):
        return {"number": _number(value), "flag": bool(value)}.get(how) if isinstance(how, str) else None
    if isinstance(how, dict):
        return _message(value, how)
    if how == "number or text":
        return _number_or_text(value)
    return value.decode() or None if how == "text" else None


def _message(raw: bytes, fields: _Fields) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for number, value in _parts(raw):
        name, how = fields.get(number, ("", ""))
        if isinstance(how, list):
            found.setdefault(name, []).append(_value(value, how[0]))
        elif how in _MAPS if isinstance(how, str) else False:
            entry = dict(_parts(bytes(value)))
            found.setdefault(name, {})[bytes(entry.get(1, b"")).decode()] = _MAPS[how](bytes(entry.get(2, b"")))
        elif (read := _value(value, how)) is not None:
            found[name] = read
    return found


def decode(raw: bytes) -> Object:
    """The object in a protobuf body; raises `ApiRefusal` 415 for an unknown kind, 400 for damage."""
    if not raw.startswith(_MAGIC):
        raise bad_request("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")
    try:
        envelope = dict(_parts(raw[len(_MAGIC) :]))
        head = _message(bytes(envelope[1]), {1: ("apiVersion", "text"), 2: ("kind", "text")})
        fields = _KINDS.get(head["kind"])
        if fields is None:
            message = f"{head['kind']} objects are only taken as application/json here, not as {MEDIA_TYPE}"
            raise ApiRefusal(415, "UnsupportedMediaType", message)
        return head | _message(bytes(envelope.get(2, b"")), fields)
    except (IndexError, KeyError, UnicodeDecodeError, TypeError) as error:
        raise bad_request(f"the protobuf body of the request is damaged: {error!r}") from error
