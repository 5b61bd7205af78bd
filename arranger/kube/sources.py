"""From what each watched kind comes: the resource of the API server, and how one of its objects is observed."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from arranger.events.kinds import GROUP_WATCHES, Watched
from arranger.kube import cluster as c
from arranger.kube.devices import (
    device_class_seen,
    resource_claim_seen,
    resource_claim_template_seen,
    resource_slice_seen,
)
from arranger.kube.pod_groups import pod_group_seen
from arranger.kube.provisioning import provisioning_seen
from arranger.kube.translate import (
    job_seen,
    limit_range_seen,
    namespace_seen,
    node_seen,
    pod_seen,
    priority_class_seen,
    queue_seen,
    quota_seen,
    runtime_class_seen,
)
from arranger.kube.volumes import claim_seen, csi_node_seen, storage_class_seen, volume_seen

_GROUPS = {
    Watched.COSCHEDULING_GROUP: (c.COSCHEDULING_GROUPS,),
    Watched.VOLCANO_GROUP: (c.VOLCANO_GROUPS,),
    Watched.NATIVE_GROUP: c.NATIVE_GROUPS,
}


class ObjectSource(NamedTuple):
    """`observe` makes the observation of an object under a term. Those of pods and TYJobs depend on more. `older` are
    the earlier versions of the resource, newest first, which API servers without `resource` may have."""

    resource: c.Resource
    observe: Callable[..., Any]
    older: tuple[c.Resource, ...] = ()


SOURCES: dict[Watched, ObjectSource] = {
    Watched.NODE: ObjectSource(c.NODES, node_seen),
    Watched.POD: ObjectSource(c.PODS, pod_seen),
    Watched.JOB: ObjectSource(c.TYJOBS, job_seen),
    Watched.QUOTA: ObjectSource(c.QUOTAS, quota_seen),
    Watched.PRIORITY_CLASS: ObjectSource(c.PRIORITY_CLASSES, priority_class_seen),
    Watched.RUNTIME_CLASS: ObjectSource(c.RUNTIME_CLASSES, runtime_class_seen),
    Watched.LIMIT_RANGE: ObjectSource(c.LIMIT_RANGES, limit_range_seen),
    Watched.QUEUE: ObjectSource(c.QUEUES, queue_seen),
    Watched.NAMESPACE: ObjectSource(c.NAMESPACES, namespace_seen),
    **{
        watch: ObjectSource(_GROUPS[watch][0], partial(pod_group_seen, kind), _GROUPS[watch][1:])
        for kind, watch in GROUP_WATCHES.items()
    },
    Watched.CLAIM: ObjectSource(c.CLAIMS, claim_seen),
    Watched.VOLUME: ObjectSource(c.VOLUMES, volume_seen),
    Watched.STORAGE_CLASS: ObjectSource(c.STORAGE_CLASSES, storage_class_seen),
    Watched.CSI_NODE: ObjectSource(c.CSI_NODES, csi_node_seen),
    Watched.RESOURCE_SLICE: ObjectSource(c.RESOURCE_SLICES, resource_slice_seen),
    Watched.DEVICE_CLASS: ObjectSource(c.DEVICE_CLASSES, device_class_seen),
    Watched.RESOURCE_CLAIM: ObjectSource(c.RESOURCE_CLAIMS, resource_claim_seen),
    Watched.RESOURCE_CLAIM_TEMPLATE: ObjectSource(c.RESOURCE_CLAIM_TEMPLATES, resource_claim_template_seen),
    Watched.PROVISIONING: ObjectSource(c.PROVISIONING_REQUESTS, provisioning_seen),
}
