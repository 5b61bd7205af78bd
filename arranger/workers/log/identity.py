"""The Kubernetes cluster that this process is connected to, and whether the log belongs to it.

The UID of the namespace kube-system, which can't be deleted, identifies a cluster. If only one namespace is watched,
its UID does, so that no right beyond it is needed, and no log of another namespace is taken for ours.

A process that observes one cluster and reads the log of another would consider every object deleted, and delete what
belongs to it. So the log records its cluster (`State.cluster`), and a process of another cluster writes neither to the
log nor to its API server.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from arranger.errors import ClusterError, UsageError
from arranger.kube.cluster import (
    NAMESPACES,
    ApiError,
    Cluster,
    ClusterUnavailable,
    ListPage,
    Resource,
    WatchEvent,
    always,
)

#: The namespace whose UID identifies a cluster.
SYSTEM = "kube-system"


class ForeignCluster(ClusterError):
    """The connected API server belongs to another cluster than the log."""

    def __init__(self, connected: str, of_log: str) -> None:
        super().__init__(f"connected to the Kubernetes cluster {connected}, but the log belongs to {of_log}")


class ClusterIdentity:
    """The cluster behind one connection, as of the last request."""

    def __init__(self, cluster: Cluster, *, namespace: str = SYSTEM) -> None:
        self._cluster = cluster
        self._namespace = namespace
        #: UID of this namespace; empty while unknown.
        self.uid = ""
        #: Why the UID is unknown or may have changed since; empty if the last request succeeded.
        self.problem = "not asked yet"

    async def ask(self) -> None:
        """Request the UID from the API server. Raises `ClusterError`; the UID known before is kept then."""
        try:
            found = await self._cluster.get(NAMESPACES, None, self._namespace)
        except ClusterError as problem:
            forbidden = isinstance(problem, ApiError) and problem.code == 403
            self.problem = _FORBIDDEN.format(self._namespace) if forbidden else str(problem)
            raise
        self.uid, self.problem = found["metadata"]["uid"], ""

    def foreign(self, of_log: str) -> bool:
        """Whether the log belongs to another cluster; False if unknown. `of_log` is its cluster, empty if not
        recorded."""
        return bool(self.uid and of_log) and self.uid != of_log

    def ours(self, of_log: str) -> bool:
        """Whether this process may write: its cluster is known, and the log doesn't belong to another one."""
        return bool(self.uid) and not self.foreign(of_log)

    async def confirm(self, of_log: str) -> None:
        """Request the UID. Raises `ForeignCluster` if the log belongs to another cluster, and `ClusterError` if the
        request fails."""
        await self.ask()
        if self.foreign(of_log):
            raise ForeignCluster(self.uid, of_log)


class ConfirmedCluster:
    """Lists and watches objects of the log's cluster only. The API server of another cluster at the same address has
    none of them. So this class requests the UID before and after each page, and before and after a watch opens.

    Raises `ForeignCluster` for another cluster, and `ClusterUnavailable` if the UID can't be read. `of_log` returns the
    log's cluster.
    """

    def __init__(self, cluster: Cluster, identity: ClusterIdentity, of_log: Callable[[], str]) -> None:
        self._cluster = cluster
        self._identity = identity
        self._of_log = of_log

    async def listing(self, resource: Resource, *, limit: int = 500, at: str = "") -> AsyncGenerator[ListPage, None]:
        await self._confirm()
        async with aclosing(self._cluster.listing(resource, limit=limit, at=at)) as pages:
            async for page in pages:
                await self._confirm()
                yield page

    async def watch(
        self,
        resource: Resource,
        resource_version: str,
        *,
        timeout_s: float = 300.0,
        accepted: Callable[[], object] = always,
    ) -> AsyncGenerator[list[WatchEvent], None]:
        await self._confirm()
        async with aclosing(
            self._cluster.watch(resource, resource_version, timeout_s=timeout_s, accepted=accepted)
        ) as batches:
            confirmed = False
            async for changes in batches:
                if not confirmed:  # an open watch keeps its connection to the same server
                    await self._confirm()
                    confirmed = True
                yield changes

    async def _confirm(self) -> None:
        try:
            await self._identity.confirm(self._of_log())
        except ApiError as refused:
            raise ClusterUnavailable(self._identity.problem) from refused


_FORBIDDEN = (
    "may not read the namespace {}, whose UID identifies the cluster: the permission to get it is missing "
    "(apply deploy/ again)"
)


def refusal(name: str, *, connected: str, of_log: str) -> UsageError:
    """The error for a process of the Kubernetes cluster `connected` on the log `name` of the cluster `of_log`."""
    return UsageError(
        f"cluster: the log {name!r} in this Redis belongs to another Kubernetes cluster or namespace (whose UID is "
        f"{of_log}; this process is connected to {connected})",
        hint="use another name for each Kubernetes cluster (--cluster), or correct --redis or --kubeconfig; if the "
        "log's cluster no longer exists, docs/operations.md describes how to remove the log",
    )
