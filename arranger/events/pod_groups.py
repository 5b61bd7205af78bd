"""The observations of PodGroups: objects that say how many pods of a group are needed at once."""

import msgspec

from arranger.model.pod import GroupKind, PodGroupFacts


class PodGroupSeen(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="PodGroupSeen.1"):
    """A PodGroup of one of the kinds that pods may name.

    Of its status, `phase` is Volcano's phase, or the status of Kubernetes' condition PodGroupScheduled, and
    `status_digest` stands for all that Arranger writes. `owner` is the name of the object that made it and makes its
    pods, and `owner_kind` its kind as kubectl takes it, such as `TFJob.v1.kubeflow.org`. All are empty where there is
    none.
    """

    term: int
    namespace: str
    name: str
    uid: str
    resource_version: str
    group_kind: GroupKind
    facts: PodGroupFacts
    phase: str = ""
    status_digest: str = ""
    owner: str = ""
    owner_kind: str = ""
