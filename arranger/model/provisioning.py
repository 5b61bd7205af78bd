"""Asking an autoscaler for the nodes of a quorum, by a ProvisioningRequest of Kubernetes' cluster-autoscaler."""

from enum import StrEnum

import msgspec

from arranger.model.names import LABEL_PREFIX
from arranger.model.pod import Labels, PodShape

#: The class of a request that is provided with all of its nodes or with none, as far as the autoscaler can.
DEFAULT_CLASS = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"

#: The label of what is made for a job's request: its number among those of the job.
NUMBER_LABEL = LABEL_PREFIX + "request"
#: The label of a placeholder with the UID of its TYJob.
HOLDS_FOR_LABEL = LABEL_PREFIX + "holds-for"
#: The scheduler that placeholders name. Nobody serves it, so nobody binds them.
NO_SCHEDULER = "arranger-placeholders"


class Provisioning(StrEnum):
    """How autoscalers learn of jobs that wait for nodes."""

    NONE = "None"
    REQUEST = "Request"
    PENDING = "Pending"


class NodesAnswer(StrEnum):
    """An autoscaler's last word on a request: the condition of the ProvisioningRequest that counts."""

    NONE = ""
    ACCEPTED = "Accepted"
    PROVISIONED = "Provisioned"
    FAILED = "Failed"
    BOOKING_EXPIRED = "BookingExpired"
    CAPACITY_REVOKED = "CapacityRevoked"

    @property
    def under_way(self) -> bool:
        """Whether the autoscaler may still provide the nodes."""
        return self in (NodesAnswer.NONE, NodesAnswer.ACCEPTED)

    @property
    def in_vain(self) -> bool:
        """Whether there will be no nodes by this request, or none any more."""
        return self in (
            NodesAnswer.FAILED,
            NodesAnswer.BOOKING_EXPIRED,
            NodesAnswer.CAPACITY_REVOKED,
        )


class RequestedPods(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """So many equal pods of a group, for which nodes are requested."""

    group: int
    count: int
    shape: PodShape


def request_name(job: str, uid: str, number: int) -> str:
    """The name of a job's ProvisioningRequest of this number; another job of the same name has other ones."""
    return f"{job}-{uid[:8]}-{number}"


def placeholder_names(job: str, uid: str, number: int, pods: tuple[RequestedPods, ...]) -> dict[str, int]:
    """The names of the placeholders of a request, each with the group of its pod."""
    name = request_name(job, uid, number)
    return {f"{name}-{of.group}-{index}": of.group for of in pods for index in range(of.count)}


def request_number(text: str) -> int:
    """The number of a request from its label; 0 if it isn't one."""
    return int(text) if text.isdecimal() and text.isascii() and len(text) < 10 else 0


def held_for(labels: Labels) -> str:
    """The UID of the TYJob for which a pod with these labels is a placeholder; empty if it is none."""
    for name, value in labels:
        if name == HOLDS_FOR_LABEL:
            return value
    return ""
