"""A log that `arranger serve` passes on, for reading: `log_copies` is its other side.

The server is named by its address, or by the word `cluster`: then it is the Service of deploy/console, reached through
the API server's proxy with the credentials of the kubeconfig. A bearer token is sent only when the server asks for one,
and only by TLS, within this machine, or to the API server.
"""

import asyncio
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

import aiohttp
import msgspec
from yarl import URL

from arranger import __version__
from arranger.errors import LogError, LogUnavailable, UsageError
from arranger.events.codec import StoredEntry, checked_snapshot, decode_snapshot, verified_run
from arranger.events.log import Entry, OnlyRead, Position, SnapshotMark, StoredSnapshot
from arranger.events.log_keys import UNKEYED, Authenticity, LogKeys
from arranger.kube.cluster import ClusterUnavailable
from arranger.kube.config import Access, Credentials
from arranger.web.log_copies import MEDIA_TYPE, MOST_ENTRIES, MOST_WAIT_S, LogPart
from arranger.web.refusals import RefusalBody
from arranger.web.rights import PASSED_TOKEN

#: The name of the server in the cluster.
IN_CLUSTER = "cluster"
_SERVICE = "/api/v1/namespaces/arranger-system/services/arranger-console:http/proxy"
#: A question may take a minute (see the API's limits), and may wait for others.
_TIMEOUT_S = 150.0
_CONNECT_TIMEOUT_S = 5.0
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
#: An older server has no such path, and a server that is still reading has no answer yet.
_ABSENT, _LATER = 404, 503

_T = TypeVar("_T")


class Remote:
    """Requests to one server. Make and use it in one event loop; `close` it there."""

    def __init__(self, server: str, find: Callable[[], Access]) -> None:
        """`find` finds the kubeconfig's credentials, when they are needed."""
        self.name = "arranger serve in the cluster" if server == IN_CLUSTER else server.rstrip("/")
        self._in_cluster = server == IN_CLUSTER
        self._find = find
        self._access: Access | None = find() if self._in_cluster else None
        self._session: aiohttp.ClientSession | None = None
        if not self._in_cluster:
            address = urllib.parse.urlsplit(self.name)
            if address.scheme not in ("http", "https") or not address.hostname:
                raise UsageError(f"{server!r} is no address of a server", hint="for example http://127.0.0.1:8470")
            self._trusted = address.scheme == "https" or address.hostname in _LOOPBACK

    async def get(self, path: str, query: Mapping[str, str]) -> bytes:
        """The body of an answer. Raises `LogUnavailable` without one, and `LogError` with the words of a refusal."""
        status, body = await self.status(path, query)
        if status == 200:
            return body
        reason, told = _words(body)
        if status == _LATER:
            raise LogUnavailable(f"{self.name}: {told}")
        if status == _ABSENT and not self._in_cluster:
            raise LogError(f"{self.name} has no log to pass on: {told}", hint="is it another server, or an older one?")
        raise LogError(f"{self.name} refuses this ({reason}): {told}")

    async def status(self, path: str, query: Mapping[str, str] = MappingProxyType({})) -> tuple[int, bytes]:
        """The HTTP status and the body of an answer. Raises `LogUnavailable` without one."""
        try:
            status, body = await self._answer(path, query)
            if status == 401 and not self._in_cluster and self._access is None:
                self._access = self._credentials_for(_words(body)[1])
                status, body = await self._answer(path, query)
        except (aiohttp.ClientError, OSError, ClusterUnavailable) as error:
            said = " ".join(str(error).split()) or type(error).__name__
            raise LogUnavailable(f"no answer from {self.name}: {said}", hint="is arranger serve running?") from error
        return status, body

    def _credentials_for(self, told: str) -> Access:
        if not self._trusted:
            raise LogError(
                f"{self.name} asks for a token, and anybody on the way could read it",
                hint="give an https:// address, or a port of this machine, for example by kubectl port-forward",
            )
        try:
            return self._find()
        except UsageError as missing:
            raise LogError(f"{self.name}: {told}, and no kubeconfig has one: {missing}") from missing

    async def _answer(self, path: str, query: Mapping[str, str]) -> tuple[int, bytes]:
        headers: dict[str, str] = {}
        server, credentials = self.name, None
        if self._access is not None:
            credentials = await self._access.current()
            headers["Authorization"] = credentials.authorization
            if not credentials.authorization:
                self._refuse_certificate()
        if self._in_cluster and credentials is not None:
            server = credentials.server + _SERVICE
            # The API server's proxy takes the token out of its own header.
            headers[PASSED_TOKEN] = credentials.authorization
        target = URL(f"{server}/api/v1/{path}?{urllib.parse.urlencode(query)}", encoded=True)
        options = _tls(credentials) if self._in_cluster and credentials is not None else {}
        async with self._opened().get(target, headers=headers, allow_redirects=False, **options) as response:
            return response.status, await response.read()

    def _refuse_certificate(self) -> None:
        assert self._access is not None
        raise LogError(
            f"the {self._access.source} has a client certificate and no token, so {self.name} can't know whose it is",
            hint="use a kubeconfig with a token, such as kubectl create token gives",
        )

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S, sock_connect=_CONNECT_TIMEOUT_S)
            self._session = aiohttp.ClientSession(timeout=timeout, headers={"User-Agent": f"arranger/{__version__}"})
        return self._session

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()


def _tls(credentials: Credentials) -> dict[str, Any]:
    return {
        "ssl": credentials.tls if credentials.tls is not None else True,
        "server_hostname": credentials.tls_server_name,
        "proxy": credentials.proxy,
    }


def _words(body: bytes) -> tuple[str, str]:
    """The reason and the message of a refusal: the server's, or the API server's, which has the same fields."""
    try:
        told = msgspec.json.decode(body, type=RefusalBody)
    except msgspec.MsgspecError:
        return "Unknown", " ".join(body.decode(errors="replace").split())[:300] or "it says nothing"
    return told.reason, told.message


class RemoteLog(OnlyRead):
    """A `Log` behind a server, for reading only. `keys` check a log that is signed."""

    def __init__(self, remote: Remote, keys: LogKeys = UNKEYED) -> None:
        self._remote = remote
        self.keys = self._own_keys = keys

    @property
    def authenticity(self) -> Authenticity:
        return self.keys.authenticity

    async def _part(self, name: str, kind: type[_T], **query: object) -> _T:
        body = await self._remote.get(f"log/{name}", {key: str(value) for key, value in query.items()})
        try:
            part = msgspec.msgpack.decode(body, type=LogPart)
            if part.problem is None:
                value = msgspec.msgpack.decode(part.value, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            hint = "is the server of another release?"
            raise LogError(f"the answer of {self._remote.name} isn't {MEDIA_TYPE}: {error}", hint=hint) from error
        # Who has a key accepts nothing else, whatever the server says.
        self.keys = self._own_keys if self._own_keys.present else UNKEYED.of_file(signed=part.signed)
        if part.problem is not None:
            raise part.problem.error
        return value

    async def open(self) -> Position:
        return await self._part("open", Position)

    async def start(self) -> Position:
        return await self._part("start", Position)

    async def end(self) -> Position:
        return await self._part("end", Position)

    async def read(self, after: Position, *, limit: int = 1000, wait_s: float = 0.0) -> Sequence[Entry]:
        deadline = asyncio.get_running_loop().time() + wait_s
        stored = await self._stored(after, limit, wait_s)
        while not stored and (left_s := deadline - asyncio.get_running_loop().time()) > 0:
            stored = await self._stored(after, limit, left_s)
        return verified_run(stored, after, keys=self.keys)

    async def read_stored(self, after: Position, *, limit: int = 1000) -> Sequence[StoredEntry]:
        """Entries as stored, unchecked: for a copy of the log."""
        return await self._stored(after, limit, 0.0)

    async def _stored(self, after: Position, limit: int, wait_s: float) -> Sequence[StoredEntry]:
        return await self._part(
            "entries",
            list[StoredEntry],
            epoch=after.epoch,
            offset=after.offset,
            chain=after.chain,
            limit=min(limit, MOST_ENTRIES),
            wait=min(round(wait_s + 0.5) if wait_s else 0, MOST_WAIT_S),
        )

    async def newest_snapshot(self, *, at_most: int | None = None) -> StoredSnapshot | None:
        if at_most is not None and at_most < 0:
            return None
        limit = {} if at_most is None else {"atMost": at_most}
        (encoded,) = await self._part("snapshot", tuple[bytes | None], **limit)
        if encoded is None:
            return None
        stored = await asyncio.to_thread(decode_snapshot, encoded, at_most or 0)
        return checked_snapshot(stored, self.keys)

    async def snapshot_marks(self) -> Sequence[SnapshotMark]:
        return await self._part("marks", list[SnapshotMark])

    async def close(self) -> None:
        await self._remote.close()

    def read_from(self) -> str:
        return f"the log of {self._remote.name}"


async def is_there(server: str, find: Callable[[], Access]) -> bool:
    """Whether there is such a server. One that refuses, or that doesn't answer now, is there."""
    try:
        remote = Remote(server, find)
    except UsageError:  # no kubeconfig
        return False
    try:
        return (await remote.status("log/start"))[0] != _ABSENT
    except LogError:
        return True
    finally:
        await remote.close()


async def opened_remote(server: str, find: Callable[[], Access], keys: LogKeys) -> RemoteLog:
    """The log of a server, open. Raises `ArrangerError` if it can't be read."""
    log = RemoteLog(Remote(server, find), keys)
    try:
        await log.open()
    except BaseException:
        await log.close()
        raise
    return log
