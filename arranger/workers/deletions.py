"""Deletions as the live object allows them, whatever the log says.

The log tells the applier which pods have to go. A forged entry can name any pod. So each deletion first reads the
object from the API server, and deletes it only if it is what the log says: a pod only while it belongs to that TYJob.
The UID and the resourceVersion just read are preconditions, so nothing can change in between.
"""

from collections.abc import Awaitable, Callable
from enum import StrEnum

from arranger.events.kinds import PodSeen
from arranger.kube.cluster import PODS, TYJOBS, ApiError, Cluster, Object, Resource
from arranger.kube.translate import owned_by, time_ms
from arranger.model.job import ENDED

#: How often an object that changes between reading and deleting it is read again before the deletion is put off.
_TRIES = 4


class Deletion(StrEnum):
    """What came of a deletion."""

    DELETED = "deleted"
    #: It is not there, or another object has its name.
    GONE = "gone"
    #: It is not what the log says it is: it stays.
    NOT_OURS = "not ours"
    #: It kept changing while it was read: to be tried again.
    CHANGING = "changing"


async def delete_pod(
    cluster: Cluster, pod: PodSeen, job_uid: str, *, force: bool, still: Callable[[], bool]
) -> Deletion:
    """Delete a pod that belongs to this TYJob by its live owner reference; with `force`, without a grace period.

    `still` is asked once the pod was read: what it was to go for may have changed by then. Raises `ClusterError`.
    """
    return await _delete_if(
        cluster,
        PODS,
        (pod.namespace, pod.name, pod.uid),
        lambda live: still() and owned_by(live, job_uid),
        grace_s=0 if force else None,
    )


async def delete_expired(cluster: Cluster, namespace: str, name: str, uid: str, *, ttl_s: int, now_ms: int) -> Deletion:
    """Delete a TYJob whose own status tells an end at least `ttl_s` seconds ago, if it still asks for that.

    `now_ms` in milliseconds since 1970. Raises `ClusterError`.
    """

    def is_due(live: Object) -> bool:
        status = live.get("status")
        if not isinstance(status, dict):
            return False
        ended_ms = time_ms(status.get("completionTime"))
        return (
            live["spec"].get("ttlSecondsAfterFinished") == ttl_s
            and status.get("stage") in ENDED
            and ended_ms + ttl_s * 1000 <= now_ms
        )

    return await _delete_if(cluster, TYJOBS, (namespace, name, uid), is_due, grace_s=None)


async def is_there(cluster: Cluster, namespace: str, name: str, uid: str) -> bool:
    """Whether the TYJob of this UID exists under this name. Raises `ClusterError`."""
    live = await _read(cluster, TYJOBS, namespace, name)
    return live is not None and live["metadata"]["uid"] == uid


async def _delete_if(
    cluster: Cluster,
    resource: Resource,
    key: tuple[str, str, str],
    may_go: Callable[[Object], bool],
    *,
    grace_s: int | None,
) -> Deletion:
    namespace, name, uid = key
    for _ in range(_TRIES):
        live = await _read(cluster, resource, namespace, name)
        if live is None or live["metadata"]["uid"] != uid:
            return Deletion.GONE
        if not may_go(live):
            return Deletion.NOT_OURS
        version = live["metadata"]["resourceVersion"]
        if await _taken(cluster.delete(resource, namespace, name, uid=uid, resource_version=version, grace_s=grace_s)):
            return Deletion.DELETED
    return Deletion.CHANGING


async def _read(cluster: Cluster, resource: Resource, namespace: str, name: str) -> Object | None:
    try:
        return await cluster.get(resource, namespace, name)
    except ApiError as refused:
        if refused.code != 404:
            raise
        return None


async def _taken(deletion: Awaitable[None]) -> bool:
    """Whether the API server took a deletion; False if the object has changed since it was read."""
    try:
        await deletion
    except ApiError as refused:
        if refused.code not in (404, 409):
            raise
        return refused.code == 404
    return True
