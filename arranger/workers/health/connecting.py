"""Connects a process to the API server of its Kubernetes cluster, and asks there whose the cluster is."""

from collections.abc import Collection

from arranger.kube.client import HttpCluster
from arranger.kube.config import find_access
from arranger.workers.log.cluster_hold import ClusterHold, name_of_log
from arranger.workers.log.identity import SYSTEM, ClusterIdentity
from arranger.workers.parts import Parts


def connect_cluster(parts: Parts, roles: Collection[str]) -> None:
    """Give the parts their cluster, if one of the roles needs it. Raises `UsageError` for an unusable kubeconfig."""
    if not {"watcher", "applier"} & set(roles):
        return
    settings, request = parts.settings, parts.metrics.request
    access = find_access(settings.kubeconfig or None, settings.context or None)
    parts.cluster = HttpCluster(access, on_request=request, clock=parts.clock, namespace=settings.namespace)
    parts.identity = ClusterIdentity(parts.cluster, namespace=settings.namespace or SYSTEM)
    parts.hold = ClusterHold(
        parts.cluster,
        name_of_log(settings.cluster),
        namespace=settings.namespace,
        claims="watcher" in roles,
        log=parts.follower,
        identity=parts.identity,
        clock=parts.clock,
    )
