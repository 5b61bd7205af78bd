"""Who may see what: the cluster's own rights decide, and nobody sees more here than with kubectl.

The API server says whose a bearer token is (TokenReview) and what that user may do (SubjectAccessReview). Answers are
kept for half a minute. If the API server can't be asked, nothing is shown.

- Who may `get tyjobs` in a namespace sees the names of its jobs. Other jobs have pseudonyms.
- Who may `list nodes` sees the nodes, and who may `list queues` the queues.
- All other answers may name any job, pod, quota, node and queue. They need the rights to see all of these.
"""

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from arranger.clock import Clock
from arranger.errors import ClusterError
from arranger.kube.cluster import Object, Resource
from arranger.logs import log_event
from arranger.web.refusals import refuse

_log = logging.getLogger(__name__)

TOKEN_REVIEWS = Resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False)
ACCESS_REVIEWS = Resource("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False)

#: The header of a token that comes through the API server's proxy, which takes it out of the header `Authorization`.
PASSED_TOKEN = "X-Arranger-Authorization"
#: How long an answer of the API server is kept, in seconds, and how many are.
_KEPT_S = 30.0
_MOST_KEPT = 20_000
#: How many requests to the API server run at once.
_AT_ONCE = 16
#: The longest token that is passed on, in characters.
_LONGEST_TOKEN = 16_384

_Key = TypeVar("_Key")
_Kept = TypeVar("_Kept")


class Right(msgspec.Struct, frozen=True):
    """A verb on a resource, in one namespace or, without one, in all of the cluster."""

    verb: str
    group: str
    resource: str
    namespace: str = ""

    def __str__(self) -> str:
        where = f" in namespace {self.namespace}" if self.namespace else ""
        return f"{self.verb} {self.resource}{where}"


JOBS = Right("get", "arranger.dev", "tyjobs")
NODES = Right("list", "", "nodes")
QUEUES = Right("list", "arranger.dev", "queues")
#: What the log has names of.
EVERYTHING = (JOBS, NODES, QUEUES, Right("list", "", "pods"), Right("list", "", "resourcequotas"))


class User(msgspec.Struct, frozen=True):
    """A user, as the API server names it. `extra` is the JSON of its further attributes."""

    username: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: str = "{}"


class Viewer(Protocol):
    """Somebody who asks."""

    async def may(self, right: Right) -> bool:
        """Whether the viewer has this right. Raises `Refusal` if that can't be found out."""
        ...


class Gate(Protocol):
    """Decides who asks. `loopback`: it lets everybody in, so only this machine's users may reach it."""

    loopback: bool

    async def viewer(self, authorization: str) -> Viewer:
        """The viewer with this header `Authorization`. Raises `Refusal`."""
        ...


class Creating(Protocol):
    """A connection to an API server that can send reviews."""

    async def create(self, resource: Resource, namespace: str | None, body: dict[str, Any]) -> Object: ...


class OpenGate:
    """Everybody who reaches the server sees everything."""

    loopback = True

    async def viewer(self, authorization: str) -> Viewer:
        return self

    async def may(self, right: Right) -> bool:
        return True


class ClusterGate:
    """Asks the API server."""

    loopback = False

    def __init__(self, cluster: Creating, clock: Clock) -> None:
        self._cluster = cluster
        self._users: _Recent[str, User | None] = _Recent(clock)
        self._rights: _Recent[tuple[User, Right], bool] = _Recent(clock)
        self._turn = asyncio.Semaphore(_AT_ONCE)

    async def viewer(self, authorization: str) -> Viewer:
        kind, _, token = authorization.partition(" ")
        token = token.strip()
        # RFC 6750 allows ASCII alone. Other bytes may not even be text, which no review can be asked about.
        if kind.lower() != "bearer" or not token or not token.isascii() or len(token) > _LONGEST_TOKEN:
            hint = "kubectl create token makes one"
            refuse("Unauthorized", "a bearer token of the cluster is needed", hint=hint)
        digest = hashlib.sha256(token.encode()).hexdigest()
        user = await self._users.get(digest, lambda: self._review(token))
        if user is None:
            refuse("Unauthorized", "the cluster doesn't know this token, or it has expired")
        return _ClusterViewer(self, user)

    async def allowed(self, user: User, right: Right) -> bool:
        return await self._rights.get((user, right), lambda: self._ask(user, right))

    async def _review(self, token: str) -> User | None:
        status = await self._create(TOKEN_REVIEWS, {"token": token})
        if status.get("authenticated") is not True or status.get("error"):
            return None
        user = status.get("user") or {}
        extra = msgspec.json.encode(user.get("extra") or {}).decode()
        return User(user.get("username", ""), user.get("uid", ""), tuple(user.get("groups") or ()), extra)

    async def _ask(self, user: User, right: Right) -> bool:
        spec = {
            "user": user.username,
            "uid": user.uid,
            "groups": list(user.groups),
            "extra": msgspec.json.decode(user.extra),
            "resourceAttributes": msgspec.to_builtins(right),
        }
        status = await self._create(ACCESS_REVIEWS, spec)
        return status.get("allowed") is True and status.get("denied") is not True

    async def _create(self, resource: Resource, spec: dict[str, Any]) -> dict[str, Any]:
        body = {"apiVersion": resource.api_version, "kind": resource.kind, "spec": spec}
        try:
            async with self._turn:
                return (await self._cluster.create(resource, None, body)).get("status") or {}
        except ClusterError as problem:
            # Whoever asks is unknown yet, and the problem may name addresses.
            log_event(_log, "the cluster can't be asked for rights", level=logging.WARNING, problem=problem)
            refuse("ServiceUnavailable", "the cluster can't be asked for rights", hint="try again soon")


class _ClusterViewer:
    def __init__(self, gate: ClusterGate, user: User) -> None:
        self._gate, self._user = gate, user

    async def may(self, right: Right) -> bool:
        return await self._gate.allowed(self._user, right)


class _Recent(Generic[_Key, _Kept]):
    """What was found out lately. The oldest goes first."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        #: Key → the time until which it counts, and what was found.
        self._known: OrderedDict[_Key, tuple[float, _Kept]] = OrderedDict()

    async def get(self, key: _Key, find: Callable[[], Awaitable[_Kept]]) -> _Kept:
        """What is known of the key, or else what `find` returns. What `find` raises isn't kept."""
        known = self._known.get(key)
        if known is not None and self._clock.monotonic_s() < known[0]:
            return known[1]
        found = await find()
        self._known.pop(key, None)
        self._known[key] = (self._clock.monotonic_s() + _KEPT_S, found)
        if len(self._known) > _MOST_KEPT:
            self._known.popitem(last=False)
        return found
