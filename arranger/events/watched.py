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


#: The watch of the PodGroups of each kind.
GROUP_WATCHES = {
    GroupKind.COSCHEDULING: Watched.COSCHEDULING_GROUP,
    GroupKind.VOLCANO: Watched.VOLCANO_GROUP,
    GroupKind.NATIVE: Watched.NATIVE_GROUP,
}

#: The kinds that are watched only with the setting `volumes`.
OF_VOLUMES = (Watched.CLAIM, Watched.VOLUME, Watched.STORAGE_CLASS, Watched.CSI_NODE)

#: Kinds that an API server may refuse to read, or not have: Arranger works without them.
OPTIONAL = (
    *(Watched.QUOTA, Watched.PRIORITY_CLASS, Watched.QUEUE, Watched.NAMESPACE),
    *GROUP_WATCHES.values(),
    *OF_VOLUMES,
    Watched.PROVISIONING,
)
