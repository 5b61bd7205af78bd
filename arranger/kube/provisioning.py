"""ProvisioningRequests of Kubernetes' cluster-autoscaler: their observation, and the objects of a job's request.

A request names a PodTemplate for each group of equal pods. It belongs to the TYJob, and its PodTemplates to it, so they
go with it.
"""

from arranger.events.provisioning import NodesRequested, ProvisioningSeen
from arranger.kube.cluster import PROVISIONING_REQUESTS, Object
from arranger.kube.manifests import pod_manifest
from arranger.kube.owners import owner_reference
from arranger.kube.translate import controlling_job
from arranger.model.names import known_labels
from arranger.model.provisioning import NUMBER_LABEL, NodesAnswer, request_name, request_number
from arranger.model.template import worker_sets
from arranger.model.text import one_line

#: By these annotations a pod says that its node was provided for a request.
CONSUMES, CLASS = (
    "autoscaling.x-k8s.io/consume-provisioning-request",
    "autoscaling.x-k8s.io/provisioning-class-name",
)
#: The conditions that are answers. The first one that is true counts.
_ANSWERS = (
    NodesAnswer.FAILED, NodesAnswer.CAPACITY_REVOKED, NodesAnswer.BOOKING_EXPIRED, NodesAnswer.PROVISIONED,
    NodesAnswer.ACCEPTED,
)  # fmt: skip
#: The limit of a condition's message in the log, in characters.
_LONGEST = 500


def provisioning_seen(item: Object, term: int) -> ProvisioningSeen:
    """The observation of a ProvisioningRequest. One that isn't a TYJob's has no `job_uid`: others make them too."""
    metadata, spec = item["metadata"], item.get("spec") or {}
    job, number = controlling_job(metadata), (metadata.get("labels") or {}).get(NUMBER_LABEL, "")
    ours = job is not None and request_number(number) > 0
    answer, message = _answer(item)
    return ProvisioningSeen(
        term,
        metadata.get("namespace") or "",
        metadata["name"],
        metadata.get("uid") or "",
        metadata.get("resourceVersion") or "",
        job["uid"] if job is not None and ours else "",
        request_number(number) if ours else 0,
        str(spec.get("provisioningClassName") or ""),
        answer,
        message,
    )


def _answer(item: Object) -> tuple[NodesAnswer, str]:
    found = (item.get("status") or {}).get("conditions") or []
    true = {of.get("type"): of for of in found if of.get("status") == "True"}
    for answer in _ANSWERS:
        if answer in true:
            return answer, one_line(str(true[answer].get("message") or ""))[:_LONGEST]
    return NodesAnswer.NONE, ""


def request_manifest(job: Object, decided: NodesRequested) -> Object:
    """The ProvisioningRequest of a TYJob."""
    name = _name(job, decided)
    sets = [{"podTemplateRef": {"name": f"{name}-{of.group}"}, "count": of.count} for of in decided.pods]
    return {
        "apiVersion": PROVISIONING_REQUESTS.api_version,
        "kind": PROVISIONING_REQUESTS.kind,
        "metadata": _metadata(job, name, decided, owner_reference(job["metadata"])),
        "spec": {"provisioningClassName": decided.class_name, "podSets": sets},
    }


def template_manifests(job: Object, decided: NodesRequested, request_uid: str) -> list[Object]:
    """The PodTemplates that a request names: the pods as the job would get them, without a node."""
    owner = {
        "apiVersion": PROVISIONING_REQUESTS.api_version,
        "kind": PROVISIONING_REQUESTS.kind,
        "name": _name(job, decided),
        "uid": request_uid,
        "controller": True,
    }
    found = []
    for of in decided.pods:
        pod = pod_manifest(job, group=of.group, index=0, attempt=decided.attempt, node="", leader_address=None)
        part = worker_sets(job["spec"])[of.group - 1] if of.group else job["spec"]["leader"]
        labels = (part["template"].get("metadata") or {}).get("labels") or {}
        known = dict(known_labels(job["metadata"]["name"], part["name"], leader=not of.group))
        spec = {name: value for name, value in pod["spec"].items() if name not in ("nodeName", "hostname")}
        if claims := part["template"]["spec"].get("resourceClaims"):  # none is made for these pods
            spec["resourceClaims"] = claims
        metadata = _metadata(job, f"{_name(job, decided)}-{of.group}", decided, owner)
        template = {"metadata": {"labels": {**labels, **known}}, "spec": spec}
        found.append({"apiVersion": "v1", "kind": "PodTemplate", "metadata": metadata, "template": template})
    return found


def consuming(pod: Object, name: str, class_name: str) -> Object:
    """The pod with the annotations that its node was provided for this request."""
    metadata = pod["metadata"]
    annotations = {**(metadata.get("annotations") or {}), CONSUMES: name, CLASS: class_name}
    return {**pod, "metadata": {**metadata, "annotations": annotations}}


def _name(job: Object, decided: NodesRequested) -> str:
    return request_name(job["metadata"]["name"], job["metadata"]["uid"], decided.number)


def _metadata(job: Object, name: str, decided: NodesRequested, owner: Object) -> Object:
    return {
        "name": name,
        "namespace": job["metadata"]["namespace"],
        "labels": {NUMBER_LABEL: str(decided.number)},
        "ownerReferences": [owner],
    }
