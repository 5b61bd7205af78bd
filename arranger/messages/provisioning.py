"""A job's request for nodes, and what the autoscaler answered, in one line."""

from arranger.model.provisioning import NodesAnswer, Provisioning
from arranger.model.text import one_line
from arranger.projections.folding.provisioning import name_of, present_request
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import State

_WORDS = {
    NodesAnswer.NONE: "an autoscaler is asked for nodes",
    NodesAnswer.ACCEPTED: "an autoscaler has accepted to provide nodes",
    NodesAnswer.PROVISIONED: "an autoscaler has provided nodes",
    NodesAnswer.FAILED: "an autoscaler has no nodes",
    NodesAnswer.BOOKING_EXPIRED: "the nodes of an autoscaler were kept no longer",
    NodesAnswer.CAPACITY_REVOKED: "the nodes of an autoscaler were taken back",
}


def request_text(state: State, job: JobRecord) -> str:
    """What becomes of the job's request; empty without one."""
    request = present_request(state, job)
    if request is None:
        return ""
    if request.decided.how == Provisioning.PENDING:
        object_of = f"placeholder pods {name_of(job, request)}-*"
    else:
        object_of = f"ProvisioningRequest {name_of(job, request)}"
    said = f": {one_line(request.message)[:200]}" if request.answer.in_vain and request.message else ""
    again = ", it is asked again after a while" if request.answer.in_vain else ""
    return f"{_WORDS[request.answer]} ({object_of}{said}){again}"
