"""Deletions that the live object allows, whatever the log says.

The log lists the pods to delete, and a forged entry can name any pod. So each deletion first reads the object from the
API server, and deletes it only if it matches the log: a pod only while it belongs to that TYJob. The UID and the
resourceVersion just read are preconditions, so the object can't change in between.
"""

import logging
from collections.abc import Awaitable, Callable

from arranger.events.devices import ResourceClaimSeen
from arranger.events.kinds import PodSeen, ProvisioningSeen
from arranger.kube.cluster import (
    PODS,
    PROVISIONING_REQUESTS,
    RESOURCE_CLAIMS,
    TYJOBS,
    ApiError,
    Cluster,
    Object,
    Resource,
)
from arranger.kube.devices import resource_claim_seen
from arranger.kube.times import parse_time_ms
from arranger.kube.translate import owned_by
from arranger.logs import log_event
from arranger.model.job import ENDED

_log = logging.getLogger(__name__)

#: Reads of an object that keeps changing between reading and deletion, before the deletion is put off.
_TRIES = 4


async def delete_pod(
    cluster: Cluster, pod: PodSeen, job_uid: str, *, force: bool, still: Callable[[], bool] = lambda: True
) -> bool:
    """Delete a pod that belongs to this TYJob by its live owner reference; with `force`, without a grace period.

    `still` is called after the pod was read, because the reason to delete it may no longer apply. Returns whether the
    pod is deleted: False then, for a pod that isn't the job's, and for one that kept changing. Raises `ClusterError`.
    """

    def belongs(live: Object) -> bool:
        return _belongs(live, pod, job_uid) and still()

    key = (pod.namespace, pod.name, pod.uid)
    return await _delete_if(cluster, PODS, key, belongs, grace_s=0 if force else None)


def _belongs(live: Object, pod: PodSeen, job_uid: str) -> bool:
    """Whether the live pod belongs to this TYJob; a warning tells that it doesn't."""
    owned = owned_by(live, job_uid)
    if not owned:
        told = {"pod": f"{pod.namespace}/{pod.name}", "uid": pod.uid, "job": job_uid}
        log_event(_log, "a pod that isn't the job's is not deleted", level=logging.WARNING, **told)
    return owned


async def evict_pod(cluster: Cluster, pod: PodSeen, job_uid: str, *, still: Callable[[], bool]) -> bool:
    """Evict a pod that belongs to this TYJob by its live owner reference, with its own grace period.

    Returns whether the pod is deleted, as `delete_pod`. Raises `ClusterError`, 429 if a PodDisruptionBudget refuses it.
    """
    for _ in range(_TRIES):
        live = await _read(cluster, PODS, pod.namespace, pod.name)
        if live is None or live["metadata"]["uid"] != pod.uid or live["metadata"].get("deletionTimestamp"):
            return True
        if not (_belongs(live, pod, job_uid) and still()):
            return False
        if await _taken(cluster.evict(pod.namespace, pod.name, uid=pod.uid)):
            return True
    return False


async def delete_expired(cluster: Cluster, namespace: str, name: str, uid: str, *, ttl_s: int, now_ms: int) -> bool:
    """Delete a TYJob whose own status shows an end at least `ttl_s` seconds ago, if its spec still has that TTL.

    Returns whether it is deleted. `now_ms` in milliseconds since 1970. Raises `ClusterError`.
    """

    def is_due(live: Object) -> bool:
        status = live.get("status")
        if not isinstance(status, dict):
            return False
        ended_ms = parse_time_ms(status.get("completionTime"))
        return (
            live["spec"].get("ttlSecondsAfterFinished") == ttl_s
            and status.get("stage") in ENDED
            and ended_ms + ttl_s * 1000 <= now_ms
        )

    return await _delete_if(cluster, TYJOBS, (namespace, name, uid), is_due, grace_s=None)


async def delete_request(cluster: Cluster, seen: ProvisioningSeen) -> bool:
    """Delete a ProvisioningRequest that belongs to the TYJob of which the log has it, by its live owner reference.

    Returns whether it is deleted. Raises `ClusterError`.
    """
    key = (seen.namespace, seen.name, seen.uid)
    return await _delete_if(
        cluster, PROVISIONING_REQUESTS, key, lambda live: owned_by(live, seen.job_uid), grace_s=None
    )


async def delete_claim(
    cluster: Cluster, seen: ResourceClaimSeen, job_uid: str, *, still: Callable[[], bool] = lambda: True
) -> bool:
    """Delete a resource claim that was made for a pod of this TYJob, by its live owner reference, and that was reserved
    for no other pods meanwhile. Returns whether it is deleted. Raises `ClusterError`."""

    def may_go(live: Object) -> bool:
        reserved = resource_claim_seen(live, 0).facts.reserved
        return owned_by(live, job_uid) and set(reserved) <= set(seen.facts.reserved) and still()

    return await _delete_if(cluster, RESOURCE_CLAIMS, (seen.namespace, seen.name, seen.uid), may_go, grace_s=None)


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
) -> bool:
    namespace, name, uid = key
    for _ in range(_TRIES):
        live = await _read(cluster, resource, namespace, name)
        if live is None or live["metadata"]["uid"] != uid:
            return True  # it doesn't exist, or another object has its name
        if not may_go(live):
            return False
        version = live["metadata"]["resourceVersion"]
        if await _taken(cluster.delete(resource, namespace, name, uid=uid, resource_version=version, grace_s=grace_s)):
            return True
    return False


async def _read(cluster: Cluster, resource: Resource, namespace: str, name: str) -> Object | None:
    try:
        return await cluster.get(resource, namespace, name)
    except ApiError as refused:
        if refused.code != 404:
            raise
        return None


async def _taken(deletion: Awaitable[None]) -> bool:
    """Whether the object is deleted; False if it has changed since it was read."""
    try:
        await deletion
    except ApiError as refused:
        if refused.code not in (404, 409):
            raise
        return refused.code == 404
    return True
