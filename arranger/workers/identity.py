"""Which Kubernetes cluster this process is connected to, and whether the log is that cluster's.

A cluster is known by the UID of its namespace kube-system, which nobody can delete. A process that observes one cluster
and reads the log of another would take everything for gone, and have it deleted. So the log tells whose it is
(`State.cluster`), and a process of another cluster writes neither to the log nor at its API server.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from arranger.errors import ClusterError, UsageError
from arranger.kube.cluster import NAMESPACES, ApiError, Change, Cluster, ClusterUnavailable, Page, Resource

#: The namespace whose UID tells clusters apart.
SYSTEM = "kube-system"


class ForeignCluster(ClusterError):
    """The API server that answers isn't that of the log's cluster."""

    def __init__(self, connected: str, of_log: str) -> None:
        super().__init__(f"connected to the Kubernetes cluster {connected}, and the log is that of {of_log}")


class ClusterIdentity:
    """The cluster behind one connection, as it was at the last question."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        #: UID of its kube-system; empty while it isn't known.
        self.uid = ""
        #: Why it isn't known, or may have changed since; empty when it was told at the last question.
        self.problem = "not asked yet"

    async def ask(self) -> None:
        """Ask the API server. Raises `ClusterError`; what was known before stays known then."""
        try:
            found = await self._cluster.get(NAMESPACES, None, SYSTEM)
        except ClusterError as problem:
            forbidden = isinstance(problem, ApiError) and problem.code == 403
            self.problem = _FORBIDDEN if forbidden else str(problem)
            raise
        self.uid, self.problem = found["metadata"]["uid"], ""

    def foreign(self, of_log: str) -> bool:
        """Whether the log is known to be another cluster's; `of_log` is whose it is, empty if nobody has told."""
        return bool(self.uid and of_log) and self.uid != of_log

    def ours(self, of_log: str) -> bool:
        """Whether this process may write: its cluster is known, and isn't another than the log's."""
        return bool(self.uid) and not self.foreign(of_log)

    async def confirm(self, of_log: str) -> None:
        """Ask, and raise `ForeignCluster` if it is another cluster's log. Raises `ClusterError` without an answer."""
        await self.ask()
        if self.foreign(of_log):
            raise ForeignCluster(self.uid, of_log)


class ConfirmedCluster:
    """Lists and watches, and makes sure before and after each page, and before and after a watch was opened, that the
    API server which answers is that of the log's cluster: another one at the same address holds none of its objects.

    Raises `ForeignCluster` if it isn't, `ClusterUnavailable` if that can't be told. `of_log` tells whose log it is.
    """

    def __init__(self, cluster: Cluster, identity: ClusterIdentity, of_log: Callable[[], str]) -> None:
        self._cluster = cluster
        self._identity = identity
        self._of_log = of_log

    async def listing(self, resource: Resource, *, limit: int = 500, at: str = "") -> AsyncGenerator[Page, None]:
        await self._confirm()
        async with aclosing(self._cluster.listing(resource, limit=limit, at=at)) as pages:
            async for page in pages:
                await self._confirm()
                yield page

    async def watch(
        self, resource: Resource, resource_version: str, *, timeout_s: float = 300.0
    ) -> AsyncGenerator[list[Change], None]:
        await self._confirm()
        async with aclosing(self._cluster.watch(resource, resource_version, timeout_s=timeout_s)) as batches:
            confirmed = False
            async for changes in batches:
                if not confirmed:  # what was connected then stays so for as long as the watch is open
                    await self._confirm()
                    confirmed = True
                yield changes

    async def _confirm(self) -> None:
        try:
            await self._identity.confirm(self._of_log())
        except ApiError as refused:
            raise ClusterUnavailable(self._identity.problem) from refused


_FORBIDDEN = (
    f"may not read the namespace {SYSTEM}, whose UID tells clusters apart: the right to get it is missing "
    "(apply deploy/ again)"
)


def refusal(name: str, *, connected: str, of_log: str) -> UsageError:
    """Why a process of the Kubernetes cluster `connected` doesn't start on the log `name` of the cluster `of_log`."""
    return UsageError(
        f"cluster: the log {name!r} in this Redis is that of another Kubernetes cluster (UID {of_log} of its {SYSTEM}; "
        f"connected to {connected})",
        hint="give each Kubernetes cluster a name of its own (--cluster), or correct --redis or --kubeconfig; docs/"
        "operations.md says how to let a log go whose cluster is gone for good",
    )
