"""Questions to `arranger serve` over HTTP, and their answers with the types that the commands use."""

import re
import urllib.parse
from typing import Any, TypeVar

import aiohttp
import msgspec

from arranger import __version__
from arranger.errors import ArrangerError, UsageError
from arranger.kube.config import Access
from arranger.web.naming import camel
from arranger.web.refusals import RefusalBody

#: A question may take a minute (see the API's limits), and may wait for others.
_TIMEOUT_S = 150.0
#: Epoch, offset up to which the answer depends on the log, and a digest of the question.
_TAG = re.compile(r'"(\d+)-(\d+)-[0-9a-f]+"')

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


class Questions:
    """Sends questions to one server. Make and use it in one event loop; `close` it there."""

    def __init__(self, server: str, access: Access | None = None) -> None:
        """`access` has the token that the server gets, if it is reached by TLS or is on this machine."""
        address = urllib.parse.urlsplit(server)
        if address.scheme not in ("http", "https") or not address.hostname:
            raise UsageError(f"{server!r} is no address of a server", hint="for example http://127.0.0.1:8470")
        self._server = server.rstrip("/")
        trusted = address.scheme == "https" or address.hostname in ("127.0.0.1", "::1", "localhost")
        self._access = access if trusted else None
        self._session: aiohttp.ClientSession | None = None

    async def ask(self, question: str, **parameters: Value) -> Answer:
        """The answer to a question of the API. Raises `Refused`, and `ArrangerError` without an answer."""
        query = [(name, text) for name, value in parameters.items() for text in _texts(value)]
        url = f"{self._server}/api/v1/{question}"
        headers = {}
        if self._access is not None:
            headers["Authorization"] = (await self._access.current()).authorization
        if self._session is None:
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=_TIMEOUT_S), headers={"User-Agent": f"arranger/{__version__}"}
            )
        try:
            async with self._session.get(url, params=query, headers=headers, allow_redirects=False) as response:
                body = await response.read()
                tag = _TAG.fullmatch(response.headers.get("ETag", ""))
        except (aiohttp.ClientError, OSError) as error:
            said = " ".join(str(error).split()) or type(error).__name__
            raise ArrangerError(
                f"no answer from {self._server}: {said}", hint="is `arranger serve` running?"
            ) from error
        if response.status != 200:
            raise _refused(response.status, body)
        return Answer(msgspec.json.decode(body), int(tag[2]) if tag else None)

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()


def _texts(value: Value) -> list[str]:
    if value is None:
        return []
    if isinstance(value, list):
        return value
    return [str(value).lower() if isinstance(value, bool) else str(value)]


def _refused(code: int, body: bytes) -> Refused:
    try:
        told = msgspec.json.decode(body, type=RefusalBody)
    except msgspec.MsgspecError:
        return Refused(code, "Unknown", " ".join(body.decode(errors="replace").split())[:300] or f"HTTP {code}")
    return Refused(code, told.reason, told.message)


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
        return _as_stored(value, fitting[0]) if fitting else value
    if isinstance(of, msgspec.inspect.StructType) and isinstance(value, dict):
        fields = {one.name: one.type for one in of.fields if camel(one.name) in value}
        own = {name: _as_stored(value[camel(name)], kind) for name, kind in fields.items()}
        tag = [] if of.tag is None else [of.tag]
        return [*tag, *own.values()] if of.array_like else own
    if isinstance(of, msgspec.inspect.DictType) and isinstance(value, dict):
        return {key: _as_stored(item, of.value_type) for key, item in value.items()}
    if isinstance(of, msgspec.inspect.ListType | msgspec.inspect.VarTupleType) and isinstance(value, list):
        return [_as_stored(item, of.item_type) for item in value]
    if isinstance(of, msgspec.inspect.TupleType) and isinstance(value, list):
        return [_as_stored(item, kind) for item, kind in zip(value, of.item_types, strict=False)]
    return value


#: The type of the members of a union → the JSON that one of them is written as.
_JSON: dict[type, tuple[type, ...]] = {
    msgspec.inspect.StructType: (dict,),
    msgspec.inspect.DictType: (dict,),
    msgspec.inspect.ListType: (list,),
    msgspec.inspect.VarTupleType: (list,),
    msgspec.inspect.TupleType: (list,),
}
