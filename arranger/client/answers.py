"""Questions to `arranger serve` over HTTP, and their answers with the types that the commands use."""

import gc
import re
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from arranger.errors import ArrangerError
from arranger.web.naming import LINES_TYPE, camel
from arranger.web.remote import Remote, Reply

#: Epoch, offset up to which the answer depends on the log, and a digest of the question.
_TAG = re.compile(r'"(\d+)-(\d+)-[0-9a-f]+"')

_decoded_lines = msgspec.json.Decoder(dict[str, Any]).decode_lines

#: What a parameter of a question may be. None leaves it out, and a list gives it repeatedly.
Value = str | int | bool | list[str] | None

_T = TypeVar("_T")


class Refused(ArrangerError):
    """The server refused a question: `code` (HTTP), `reason` (`NotFound`), and its message."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason


class Answer(msgspec.Struct, frozen=True):
    """An answer as decoded JSON. `offset` is the point of the log up to which it depends on it, None if unknown."""

    content: Any
    offset: int | None


async def ask(remote: Remote, question: str, parameters: Mapping[str, Value]) -> Answer:
    """The answer to a question of the API. Raises `Refused`, and `LogUnavailable` without an answer."""
    reply = await _asked(remote, question, parameters, "application/json")
    tag = _TAG.fullmatch(reply.tag)
    return Answer(msgspec.json.decode(reply.body), int(tag[2]) if tag else None)


async def ask_lines(remote: Remote, question: str, parameters: Mapping[str, Value]) -> list[dict[str, Any]]:
    """The lines that the command prints, decoded. Raises as `ask` does."""
    return _lines((await _asked(remote, question, parameters, LINES_TYPE)).body)


async def _asked(remote: Remote, question: str, parameters: Mapping[str, Value], accept: str) -> Reply:
    query = [(name, text) for name, value in parameters.items() for text in _texts(value)]
    reply = await remote.ask(question, query, accept=accept)
    if reply.status != 200:
        raise Refused(reply.status, *reply.refusal)
    return reply


def _lines(body: bytes) -> list[dict[str, Any]]:
    """Decoded without the garbage collector, which would look at all of it again and again: four times as fast."""
    collects = gc.isenabled()
    gc.disable()
    try:
        return _decoded_lines(body)
    finally:
        if collects:
            gc.enable()


def _texts(value: Value) -> list[str]:
    if value is None:
        return []
    if isinstance(value, list):
        return value
    return [str(value).lower() if isinstance(value, bool) else str(value)]


def typed(content: Any, kind: type[_T]) -> _T:
    """The answer as this type. Raises `ArrangerError` if it isn't one: client and server are of different releases."""
    try:
        return msgspec.convert(_as_stored(content, msgspec.inspect.type_info(kind)), kind)
    except msgspec.ValidationError as error:
        raise ArrangerError(
            f"the answer isn't what this release expects: {error}", hint="is the server of another release?"
        ) from error


def _as_stored(value: Any, of: Any) -> Any:
    """An answer in the form that `msgspec.convert` takes: fields with their own names, which the API writes as
    `naming.named` says, and arrays for the facts that the log stores as such. Anything else is left as it is."""
    if isinstance(of, msgspec.inspect.UnionType):
        fitting = [one for one in of.types if isinstance(value, _JSON.get(type(one), ()))]
        return _as_stored(value, min(fitting, key=lambda one: _unlike(value, one))) if fitting else value
    if isinstance(of, msgspec.inspect.StructType) and isinstance(value, dict):
        fields = [one for one in of.fields if camel(one.name) in value]
        own = {one.encode_name: _as_stored(value[camel(one.name)], one.type) for one in fields}
        tag = [] if of.tag is None else [of.tag]
        return [*tag, *own.values()] if of.array_like else own
    if isinstance(of, msgspec.inspect.DictType) and isinstance(value, dict):
        return {key: _as_stored(item, of.value_type) for key, item in value.items()}
    if isinstance(of, msgspec.inspect.ListType | msgspec.inspect.VarTupleType) and isinstance(value, list):
        return [_as_stored(item, of.item_type) for item in value]
    if isinstance(of, msgspec.inspect.TupleType) and isinstance(value, list):
        return [_as_stored(item, kind) for item, kind in zip(value, of.item_types, strict=False)]
    return value


def _unlike(value: Any, of: Any) -> int:
    """How many names an object and a type don't share: the JSON of the facts of one union has no other mark. 0 for any
    other type."""
    if not isinstance(of, msgspec.inspect.StructType):
        return 0
    return len({camel(one.name) for one in of.fields} ^ value.keys())


#: The type of the members of a union → the JSON that one of them is written as.
_JSON: dict[type, tuple[type, ...]] = {
    msgspec.inspect.StructType: (dict,),
    msgspec.inspect.DictType: (dict,),
    msgspec.inspect.ListType: (list,),
    msgspec.inspect.VarTupleType: (list,),
    msgspec.inspect.TupleType: (list,),
}
