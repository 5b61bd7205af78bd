"""Requests for nodes: the decision to ask an autoscaler for those of a quorum, and what it answers."""

import msgspec

from arranger.model.provisioning import NodesAnswer, Provisioning, RequestedPods


class ProvisioningSeen(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="ProvisioningSeen.1"):
    """A ProvisioningRequest of a TYJob, with the number that it has among those of the job. `message` is that of the
    condition that is the answer."""

    term: int
    namespace: str
    name: str
    uid: str
    resource_version: str
    job_uid: str
    number: int
    class_name: str
    answer: NodesAnswer
    message: str = ""


class NodesRequested(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="NodesRequested.1"):
    """An autoscaler is asked for nodes for all these pods of a waiting job, its quorum, at once. `number` counts the
    requests of the job from 1. The request takes the place of an earlier one. `how`: by a ProvisioningRequest of this
    class, or by placeholders, which have no class."""

    job_uid: str
    based_on: int
    attempt: int
    number: int
    class_name: str
    pods: tuple[RequestedPods, ...]
    how: Provisioning = Provisioning.REQUEST
