"""The Kubernetes API as the workers use it: a few verbs on a few resources, with objects as raw JSON.

It has two implementations: `kube.client` over HTTP, and `sandbox.direct` in memory for simulations. A contract
suite checks that both, and the embedded HTTP cluster, behave like a real API server.
"""

from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, Protocol

import msgspec

from arranger.errors import ClusterError
from arranger.model.pod import NATIVE_VERSIONS

#: A Kubernetes object as parsed JSON.
Object = dict[str, Any]


class Resource(msgspec.Struct, frozen=True):
    """A REST resource: its API group (empty for the core group), version, plural and kind."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str = "") -> str:
        """The path below the server's root; without a namespace, that of all namespaces."""
        home = ["namespaces", namespace] if self.namespaced and namespace is not None else []
        rest = [part for part in (name, subresource or None) if part is not None]
        return "/".join(["/apis" if self.group else "/api", self.api_version, *home, self.plural, *rest])


NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
PODS = Resource("", "v1", "pods", "Pod")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
SERVICES = Resource("", "v1", "services", "Service")
EVENTS = Resource("", "v1", "events", "Event")
QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota")
LIMIT_RANGES = Resource("", "v1", "limitranges", "LimitRange")
RUNTIME_CLASSES = Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False)
PRIORITY_CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False)
COSCHEDULING_GROUPS = Resource("scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup")
VOLCANO_GROUPS = Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup")
VOLCANO_JOBS = Resource("batch.volcano.sh", "v1alpha1", "jobs", "Job")
NATIVE_GROUPS = tuple([Resource("scheduling.k8s.io", version, "podgroups", "PodGroup") for version in NATIVE_VERSIONS])
CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
VOLUMES = Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)
STORAGE_CLASSES = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False)
CSI_NODES = Resource("storage.k8s.io", "v1", "csinodes", "CSINode", namespaced=False)
RESOURCE_SLICES = Resource("resource.k8s.io", "v1", "resourceslices", "ResourceSlice", namespaced=False)
DEVICE_CLASSES = Resource("resource.k8s.io", "v1", "deviceclasses", "DeviceClass", namespaced=False)
RESOURCE_CLAIMS = Resource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim")
RESOURCE_CLAIM_TEMPLATES = Resource("resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate")
POD_TEMPLATES = Resource("", "v1", "podtemplates", "PodTemplate")
PROVISIONING_REQUESTS = Resource("autoscaling.x-k8s.io", "v1", "provisioningrequests", "ProvisioningRequest")
TYJOBS = Resource("arranger.dev", "v1", "tyjobs", "TYJob")
#: TYJobs in the version for statuses: the API server doesn't check the spec again for each of them.
TYJOB_STATUSES = Resource("arranger.dev", "v1status", "tyjobs", "TYJob")
QUEUES = Resource("arranger.dev", "v1", "queues", "Queue", namespaced=False)
CLUSTER_LOGS = Resource("arranger.dev", "v1", "clusterlogs", "ClusterLog", namespaced=False)
CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False)


class ApiError(ClusterError):
    """The API server refused a request: `code` (HTTP), `reason` (`AlreadyExists`), and its message.

    `retry_after_s` is the delay that the server requested, 0 for none.
    """

    def __init__(self, code: int, reason: str, message: str, *, retry_after_s: float = 0.0) -> None:
        super().__init__(f"{code} {reason}: {message}")
        self.code = code
        self.reason = reason
        self.detail = message
        self.retry_after_s = retry_after_s

    @property
    def busy(self) -> bool:
        """Whether it is due to the API server, which is busy or broken, and not to the request."""
        return self.code == 429 or self.code >= 500


class ClusterUnavailable(ClusterError):
    """No response: connection refused, reset or timed out. Whether a write took effect is unknown."""


class Withdrawn(ClusterError):
    """A request was no longer needed when it was about to be sent: it was not sent."""


def always() -> bool:
    return True


class Expired(ApiError):
    """410: the resourceVersion is too old to watch from; list again."""


class ListPage(msgspec.Struct, frozen=True):
    """One page of a listing and the resourceVersion of the whole listing."""

    items: list[Object]
    resource_version: str


class WatchEvent(msgspec.Struct, frozen=True):
    """One watch event. `type` is ADDED, MODIFIED, DELETED or BOOKMARK (then only `resource_version` counts).

    `received_ms` is when it arrived, on this machine's wall clock.
    """

    type: str
    object: Object
    resource_version: str
    received_ms: int


class Watchable(Protocol):
    """The methods that list and watch. Every method may raise `ApiError` or `ClusterUnavailable`."""

    def listing(self, resource: Resource, *, limit: int = 500, at: str = "") -> AsyncGenerator[ListPage, None]:
        """All objects of a resource, cluster-wide, a consistent listing in pages.

        Never served from a stale cache (no resourceVersion=0). Raises `Expired` if the listing takes longer than its
        continuation is valid: list again. With `at`, returns the objects as of that resourceVersion; raises `Expired`
        if the server no longer has it.
        """

    def watch(
        self,
        resource: Resource,
        resource_version: str,
        *,
        timeout_s: float = 300.0,
        accepted: Callable[[], object] = always,
    ) -> AsyncGenerator[list[WatchEvent], None]:
        """Changes after a resourceVersion, cluster-wide, with bookmarks, in order, in lists as they arrive. `accepted`
        is called once the server has accepted the watch, which may have no changes for a minute.

        Ends when the server ends it. Raises `Expired` on 410, `ClusterUnavailable` if it breaks or stays silent for
        longer than its bookmarks allow.
        """


class Cluster(Watchable, Protocol):
    """The API server's methods for workers. Every method may raise `ApiError` or `ClusterUnavailable`."""

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Object:
        """One object; raises `ApiError` 404 if it doesn't exist."""

    async def create(
        self, resource: Resource, namespace: str | None, body: Mapping[str, Any], *, still: Callable[[], bool] = always
    ) -> Object:
        """Create an object; raises `ApiError` 409 AlreadyExists if the name is taken.

        `still` is called right before the request is sent, and `Withdrawn` is raised if it returns False: a connection
        takes time to open, and the process may be paused meanwhile for any length of time.
        """

    async def try_create(self, resource: Resource, namespace: str | None, body: Mapping[str, Any]) -> None:
        """Ask whether an object would be created, as in `create`, by a dry run: nothing is stored, and no quota counts
        it."""

    async def patch(
        self, resource: Resource, namespace: str | None, name: str, body: Mapping[str, Any], *, subresource: str = ""
    ) -> Object:
        """JSON merge patch (RFC 7386) of an object, or of its `status`."""

    async def delete(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        grace_s: int | None = None,
    ) -> None:
        """Delete; only the object of this UID, or at this version, if one is given (409 Conflict otherwise).

        Raises `ApiError` 404 if it doesn't exist.
        """

    async def evict(self, namespace: str, name: str, *, uid: str) -> None:
        """Delete the pod of this UID with its own grace period, unless a PodDisruptionBudget refuses it.

        Raises `ApiError`: 429 with the budget in its message, 404 if the pod doesn't exist, 409 if it is another one.
        """

    async def bind(self, namespace: str, name: str, *, uid: str, node: str, still: Callable[[], bool] = always) -> None:
        """Bind the pod of this UID to a node. `still` as in `create`.

        Raises `ApiError`: 404 if the pod doesn't exist, 409 if it has a node already, is being deleted, or is another
        one.
        """

    async def close(self) -> None:
        """Close all connections."""
