"""The kinds of Kubernetes objects that are watched."""

from enum import StrEnum

from arranger.model.pod import GroupKind


class Watched(StrEnum):
    """The kinds of Kubernetes objects that are watched."""

    NODE = "node"
    POD = "pod"
    JOB = "tyjob"
    QUOTA = "resourcequota"
    PRIORITY_CLASS = "priorityclass"
    QUEUE = "queue"
    NAMESPACE = "namespace"
    COSCHEDULING_GROUP = "podgroup.scheduling.x-k8s.io"
    VOLCANO_GROUP = "podgroup.scheduling.volcano.sh"
    NATIVE_GROUP = "podgroup.scheduling.k8s.io"
    CLAIM = "persistentvolumeclaim"
    VOLUME = "persistentvolume"
    STORAGE_CLASS = "storageclass"
    CSI_NODE = "csinode"
    PROVISIONING = "provisioningrequest"
    RESOURCE_SLICE = "resourceslice"
    DEVICE_CLASS = "deviceclass"
    RESOURCE_CLAIM = "resourceclaim"
    RESOURCE_CLAIM_TEMPLATE = "resourceclaimtemplate"
    RUNTIME_CLASS = "runtimeclass"
    LIMIT_RANGE = "limitrange"


#: The watch of the PodGroups of each kind.
GROUP_WATCHES = {
    GroupKind.COSCHEDULING: Watched.COSCHEDULING_GROUP,
    GroupKind.VOLCANO: Watched.VOLCANO_GROUP,
    GroupKind.NATIVE: Watched.NATIVE_GROUP,
}
GROUP_KINDS = {watch: kind for kind, watch in GROUP_WATCHES.items()}

#: The kinds that are watched only with the setting `volumes`.
OF_VOLUMES = (Watched.CLAIM, Watched.VOLUME, Watched.STORAGE_CLASS, Watched.CSI_NODE)
#: The kinds without which no devices are allocated, watched only with the setting `devices`. So are
#: ResourceClaimTemplates, which only TYJobs need.
OF_DEVICES = (Watched.RESOURCE_SLICE, Watched.DEVICE_CLASS, Watched.RESOURCE_CLAIM)
#: Kind → the setting with which alone it is watched.
SETTING_OF = {
    **dict.fromkeys(OF_VOLUMES, "volumes"),
    **dict.fromkeys((*OF_DEVICES, Watched.RESOURCE_CLAIM_TEMPLATE), "devices"),
}

#: The kinds without which Arranger can't decide: every API server serves nodes and pods, and whoever installs Arranger
#: defines TYJobs.
NEEDED = (Watched.NODE, Watched.POD, Watched.JOB)
#: All others: an API server may refuse to read them, or not have them, and Arranger works without them.
OPTIONAL = tuple(kind for kind in Watched if kind not in NEEDED)
