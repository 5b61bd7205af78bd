"""Requests to an `arranger serve`, by the commands that read its log and by the client.

The server is named by its address, or by the word `cluster`: then it is the Service of deploy/console, reached through
the API server's proxy with the credentials of the kubeconfig. A bearer token is sent only when the server asks for one,
and only by TLS, within this machine, or to the API server.
"""

import urllib.parse
from collections.abc import Callable, Sequence
from typing import Any

import aiohttp
import msgspec
from yarl import URL

from arranger import __version__
from arranger.errors import LogError, LogUnavailable, UsageError
from arranger.kube.client import drop
from arranger.kube.cluster import ClusterUnavailable
from arranger.kube.config import Access, Credentials
from arranger.web.naming import LOOPBACK, PASSED_TOKEN
from arranger.web.refusals import RefusalBody

#: The name of the server in the cluster.
IN_CLUSTER = "cluster"
_SERVICE = "/api/v1/namespaces/arranger-system/services/{port}/proxy"
#: The Service's port with TLS, and that without it. It has one of them.
_PORTS = ("https:arranger-console:https", "arranger-console:http")
#: A question may take a minute (see the API's limits), and may wait for others.
_TIMEOUT_S = 150.0
_CONNECT_TIMEOUT_S = 5.0
#: An older server has no such path, and a server that is still reading has no answer yet.
_ABSENT, _LATER = 404, 503


class Reply(msgspec.Struct, frozen=True):
    """The answer to a request: HTTP status, body and ETag."""

    status: int
    body: bytes
    tag: str

    @property
    def refusal(self) -> tuple[str, str]:
        """The reason and the message of a refusal: the server's, or the API server's, which has the same fields."""
        try:
            told = msgspec.json.decode(self.body, type=RefusalBody)
        except msgspec.MsgspecError:
            return "Unknown", " ".join(self.body.decode(errors="replace").split())[:300] or "it says nothing"
        return told.reason, told.message

    @property
    def of_api_server(self) -> bool:
        """Whether this refusal comes from the API server, and not from `arranger serve` behind it."""
        try:
            return msgspec.json.decode(self.body, type=_Status).kind == "Status"
        except msgspec.MsgspecError:
            return False


class _Status(msgspec.Struct, frozen=True):
    """What all refusals of an API server have."""

    kind: str


class NoServer(LogUnavailable):
    """The cluster has no Service of `arranger serve`."""


class Remote:
    """Requests to one server. Make and use it in one event loop; `close` it there."""

    def __init__(self, server: str, find: Callable[[], Access]) -> None:
        """`find` finds the kubeconfig's credentials, when they are needed."""
        self.name = "arranger serve in the cluster" if server == IN_CLUSTER else server.rstrip("/")
        self._in_cluster = server == IN_CLUSTER
        self._find = find
        self._access: Access | None = find() if self._in_cluster else None
        self._session: aiohttp.ClientSession | None = None
        #: The ports of the Service that are still possible.
        self._ports: tuple[str, ...] = _PORTS
        if not self._in_cluster:
            address = urllib.parse.urlsplit(self.name)
            if address.scheme not in ("http", "https") or not address.hostname:
                raise UsageError(
                    f"{server!r} is no address of a server",
                    hint=f'give one such as http://127.0.0.1:8470, or "{IN_CLUSTER}" for the server in the cluster',
                )
            self._trusted = address.scheme == "https" or address.hostname in LOOPBACK

    async def get(self, path: str, query: dict[str, str]) -> bytes:
        """The body of an answer. Raises `LogUnavailable` without one, and `LogError` with the words of a refusal."""
        reply = await self.ask(path, [*query.items()])
        if reply.status == 200:
            return reply.body
        reason, told = reply.refusal
        if reply.status == _LATER:
            raise LogUnavailable(f"{self.name}: {told}")
        if reply.status == _ABSENT and not self._in_cluster:
            raise LogError(f"{self.name} has no log to pass on: {told}", hint="is it another server, or an older one?")
        raise LogError(f"{self.name} refuses this ({reason}): {told}")

    async def ask(self, path: str, query: Sequence[tuple[str, str]], *, accept: str = "*/*") -> Reply:
        """The answer, whatever its status. Raises `LogUnavailable` without one, `NoServer` if the cluster has none, and
        `LogError` if the server asks for a token that it can't get."""
        try:
            reply = await self._answer(path, query, accept)
            if self._in_cluster and reply.status == _LATER and reply.of_api_server and len(self._ports) > 1:
                reply = await self._without_tls(path, query, reply, accept)
            if reply.status == 401 and not self._in_cluster and self._access is None:
                self._access = self._credentials_for(reply.refusal[1])
                reply = await self._answer(path, query, accept)
        except (aiohttp.ClientError, OSError, ClusterUnavailable) as error:
            said = " ".join(str(error).split()) or type(error).__name__
            raise LogUnavailable(f"no answer from {self.name}: {said}", hint="is arranger serve running?") from error
        if self._in_cluster and reply.status == _ABSENT and reply.of_api_server:
            hint = "install it with deploy/console, or give the address of another server"
            raise NoServer(f"there is no arranger serve in the cluster: {reply.refusal[1]}", hint=hint)
        return reply

    async def _without_tls(self, path: str, query: Sequence[tuple[str, str]], refused: Reply, accept: str) -> Reply:
        """The answer at the Service's port without TLS, after an answer with status 503 at the one with TLS: the API
        server says of a port that a Service doesn't have just that it has no endpoints."""
        ports, self._ports = self._ports, self._ports[1:]
        reply = await self._answer(path, query, accept)
        if reply.status == _LATER and reply.of_api_server:
            self._ports = ports
            told = f"{self.name}: {refused.refusal[1]}; {reply.refusal[1]}"
            raise LogUnavailable(told, hint="is arranger serve running?")
        return reply

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

    async def _answer(self, path: str, query: Sequence[tuple[str, str]], accept: str) -> Reply:
        headers: dict[str, str] = {"Accept": accept}
        server, credentials = self.name, None
        if self._access is not None:
            credentials = await self._access.current()
            headers["Authorization"] = credentials.authorization
            if not credentials.authorization:
                self._refuse_certificate()
        if self._in_cluster and credentials is not None:
            server = credentials.server + _SERVICE.format(port=self._ports[0])
            # The API server's proxy takes the token out of its own header.
            headers[PASSED_TOKEN] = credentials.authorization
        target = URL(f"{server}/api/v1/{path}?{urllib.parse.urlencode(query)}", encoded=True)
        options = _tls(credentials) if self._in_cluster and credentials is not None else {}
        async with self._opened().get(target, headers=headers, allow_redirects=False, **options) as response:
            return Reply(response.status, await response.read(), response.headers.get("ETag", ""))

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

    def drop(self) -> None:
        """Close all connections without waiting."""
        session, self._session = self._session, None
        if session is not None:
            drop(session)


def _tls(credentials: Credentials) -> dict[str, Any]:
    return {
        "ssl": credentials.tls if credentials.tls is not None else True,
        "server_hostname": credentials.tls_server_name,
        "proxy": credentials.proxy,
    }


async def is_there(server: str, find: Callable[[], Access]) -> bool:
    """Whether there is such a server. One that refuses, or that doesn't answer now, is there."""
    try:
        remote = Remote(server, find)
    except UsageError:  # no kubeconfig
        return False
    try:
        return (await remote.ask("log/start", ())).status != _ABSENT
    except NoServer:
        return False
    except LogError:
        return True
    finally:
        await remote.close()
