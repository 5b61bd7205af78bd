"""Asking an autoscaler for the nodes of a quorum, by a ProvisioningRequest of Kubernetes' cluster-autoscaler."""

from enum import StrEnum

import msgspec

from arranger.model.pod import PodShape

#: The class of a request that is provided with all of its nodes or with none, as far as the autoscaler can.
DEFAULT_CLASS = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"


class Provisioning(StrEnum):
    """How autoscalers learn of jobs that wait for nodes."""

    NONE = "None"
    REQUEST = "Request"


class Answer(StrEnum):
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
        return self in (Answer.NONE, Answer.ACCEPTED)

    @property
    def in_vain(self) -> bool:
        """Whether there will be no nodes by this request, or none any more."""
        return self in (Answer.FAILED, Answer.BOOKING_EXPIRED, Answer.CAPACITY_REVOKED)


class RequestedPods(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """So many equal pods of a group, for which nodes are requested."""

    group: int
    count: int
    shape: PodShape


def request_name(job: str, uid: str, number: int) -> str:
    """The name of a job's ProvisioningRequest of this number; another job of the same name has other ones."""
    return f"{job}-{uid[:8]}-{number}"
