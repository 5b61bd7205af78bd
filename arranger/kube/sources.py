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
    """`observe` makes the observation of an object under a term. Those of pods and TYJobs depend on more. `why` is what
    the right to list and watch them is for, as `deploy/` says it (`python -m tests.rights`). `older` are the earlier
    versions of the resource, newest first, which API servers without `resource` may have."""

    resource: c.Resource
    observe: Callable[..., Any]
    why: str
    older: tuple[c.Resource, ...] = ()


_WHY_GROUPS = (
    "How many pods of a group are needed at once: the PodGroups of Coscheduling, Volcano and Kubernetes, in all "
    "namespaces. Without one of these rights, pods that name such a group wait. A kind that the API server doesn't "
    "have costs nothing."
)

SOURCES: dict[Watched, ObjectSource] = {
    Watched.NODE: ObjectSource(
        c.NODES, node_seen, "Capacity, readiness, cordons, taints and labels decide where pods can go."
    ),
    Watched.POD: ObjectSource(
        c.PODS, pod_seen, "Every pod, Arranger's or not: what runs on a node is not free there."
    ),
    Watched.JOB: ObjectSource(
        c.TYJOBS, job_seen,
        "The jobs themselves, in all namespaces. Readiness asks for one of them every ten seconds.",
    ),
    Watched.QUOTA: ObjectSource(
        c.QUOTAS, quota_seen,
        "What the quotas of namespaces leave: a job whose pods would be refused for them isn't given nodes. Without "
        "this right, Arranger learns of a quota by the refusal of a pod.",
    ),
    Watched.PRIORITY_CLASS: ObjectSource(
        c.PRIORITY_CLASSES, priority_class_seen,
        "The values of the classes that jobs name (spec.priorityClassName). Without this right such jobs wait.",
    ),
    Watched.RUNTIME_CLASS: ObjectSource(
        c.RUNTIME_CLASSES, runtime_class_seen,
        "What admission adds to pods of a RuntimeClass. Without this right, plans don't have it, as if nothing "
        "were added.",
    ),
    Watched.LIMIT_RANGE: ObjectSource(
        c.LIMIT_RANGES, limit_range_seen,
        "What LimitRanges add to containers that name no requests. Without this right, plans don't have it.",
    ),
    Watched.QUEUE: ObjectSource(
        c.QUEUES, queue_seen,
        "The tree of queues, and who may use them. Without this right there is only the queue `default`.",
    ),
    Watched.NAMESPACE: ObjectSource(
        c.NAMESPACES, namespace_seen,
        "The labels of namespaces, by which queues and pod affinity select them, and the annotation that names a "
        "queue. Without this right they have neither.",
    ),
    **{
        watch: ObjectSource(_GROUPS[watch][0], partial(pod_group_seen, kind), _WHY_GROUPS, _GROUPS[watch][1:])
        for kind, watch in GROUP_WATCHES.items()
    },
    Watched.CLAIM: ObjectSource(
        c.CLAIMS, claim_seen, "Whether a claim is there, is bound and to which volume, and who may use it."
    ),
    Watched.VOLUME: ObjectSource(c.VOLUMES, volume_seen, "Which nodes reach a volume."),
    Watched.STORAGE_CLASS: ObjectSource(
        c.STORAGE_CLASSES, storage_class_seen,
        "Whether a class waits for the first pod, and where its volumes can be made.",
    ),
    Watched.CSI_NODE: ObjectSource(c.CSI_NODES, csi_node_seen, "How many volumes a node attaches."),
    Watched.RESOURCE_SLICE: ObjectSource(c.RESOURCE_SLICES, resource_slice_seen, "Which devices nodes have."),
    Watched.DEVICE_CLASS: ObjectSource(c.DEVICE_CLASSES, device_class_seen, "Which devices a class has."),
    Watched.RESOURCE_CLAIM: ObjectSource(
        c.RESOURCE_CLAIMS, resource_claim_seen, "What claims ask for, have, and may be used by."
    ),
    Watched.RESOURCE_CLAIM_TEMPLATE: ObjectSource(
        c.RESOURCE_CLAIM_TEMPLATES, resource_claim_template_seen,
        "What the claims ask for that pods of TYJobs get from templates.",
    ),
    Watched.PROVISIONING: ObjectSource(
        c.PROVISIONING_REQUESTS, provisioning_seen,
        "What the autoscaler answers to the requests of jobs. Those of others are listed too, and left alone.",
    ),
}  # fmt: skip
