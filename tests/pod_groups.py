"""PodGroups made by hand, with minimal definitions of those kinds that others install, and of Volcano's Job."""

from typing import Any

from arranger.kube.cluster import COSCHEDULING_GROUPS, VOLCANO_GROUPS, VOLCANO_JOBS, Object, Resource
from arranger.model.pod import GroupKind

#: The kinds of training-operator.
TRAINING = tuple(
    Resource("kubeflow.org", "v1", f"{kind.lower()}s", kind)
    for kind in ("TFJob", "PyTorchJob", "MPIJob", "XGBoostJob", "PaddleJob", "JAXJob")
)
TF_JOBS = TRAINING[0]
#: The kinds that a CustomResourceDefinition makes.
CUSTOM: dict[GroupKind, Resource] = {
    GroupKind.COSCHEDULING: COSCHEDULING_GROUPS,
    GroupKind.VOLCANO: VOLCANO_GROUPS,
}


def definition(kind: GroupKind) -> Object:
    """The CustomResourceDefinition of a kind, with no more than a scheduler reads and writes. As in the originals, that
    of Volcano has no status subresource."""
    spec: dict[str, Any] = {"minMember": {"type": "integer", "format": "int32"}}
    amounts = {"type": "object", "additionalProperties": {"x-kubernetes-int-or-string": True}}
    spec |= {"minResources": amounts}
    if kind == GroupKind.VOLCANO:
        tasks = {"type": "object", "additionalProperties": {"type": "integer", "format": "int32"}}
        spec |= {"queue": {"type": "string"}, "priorityClassName": {"type": "string"}, "minTaskMember": tasks}
    else:
        spec |= {"scheduleTimeoutSeconds": {"type": "integer", "format": "int32"}}
    return _definition(CUSTOM[kind], spec, {"status": {}} if kind == GroupKind.COSCHEDULING else {})


def native_definition(resource: Resource) -> Object:
    """Kubernetes' own kind in one version, as if a definition had made it: the embedded cluster doesn't serve it."""
    policy = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return _definition(resource, {"schedulingPolicy": policy}, {"status": {}})


def native_group(resource: Resource, name: str, least: int) -> Object:
    """A PodGroup of that kind."""
    made: Object = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}}
    return made | {"spec": {"schedulingPolicy": {"gang": {"minCount": least}}}}


def job_definition() -> Object:
    """That of Volcano's Jobs."""
    return _definition(VOLCANO_JOBS, {"schedulerName": {"type": "string"}}, {"status": {}})


def _definition(of: Resource, spec: dict[str, Any], subresources: dict[str, Any]) -> Object:
    parts = {
        "spec": {"type": "object", "properties": spec},
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    }
    schema = {"openAPIV3Schema": {"type": "object", "properties": parts}}
    version = {"name": of.version, "served": True, "storage": True, "schema": schema, "subresources": subresources}
    metadata: dict[str, Any] = {"name": f"{of.plural}.{of.group}"}
    if of.group.endswith(".k8s.io") or of.group.endswith(".x-k8s.io"):
        metadata["annotations"] = {"api-approved.kubernetes.io": "unapproved, for tests"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": {
            "group": of.group,
            "scope": "Namespaced",
            "names": {"plural": of.plural, "singular": of.kind.lower(), "kind": of.kind},
            "versions": [version],
        },
    }


def volcano_job(name: str, scheduler: str) -> Object:
    metadata = {"name": name, "namespace": "default"}
    spec = {"schedulerName": scheduler}
    return {"apiVersion": VOLCANO_JOBS.api_version, "kind": "Job", "metadata": metadata, "spec": spec}


def training_definition(of: Resource) -> Object:
    """That of one of training-operator's kinds. Each has its pod templates in a field of another name."""
    replicas = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return _definition(of, {_replicas(of): replicas}, {})


def _replicas(of: Resource) -> str:
    return f"{of.kind.removesuffix('Job').lower()}ReplicaSpecs"


def training_job(name: str, scheduler: str = "", of: Resource = TF_JOBS) -> Object:
    """A TFJob, or a job of another kind, whose templates name this scheduler; none if it is empty."""
    spec = {"containers": [{"name": "main", "image": "i"}], **({"schedulerName": scheduler} if scheduler else {})}
    replicas = {role: {"replicas": 1, "template": {"spec": spec}} for role in ("Master", "Worker")}
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": of.api_version, "kind": of.kind, "metadata": metadata, "spec": {_replicas(of): replicas}}


def owned(group: Object, job: Object) -> Object:
    """The PodGroup, as a controller makes it for a job that the API server has."""
    owner = {"apiVersion": job["apiVersion"], "kind": job["kind"], "controller": True, "name": job["metadata"]["name"]}
    group["metadata"]["ownerReferences"] = [{**owner, "uid": job["metadata"]["uid"]}]
    return group


def pod_group(name: str, kind: GroupKind, least: int, **spec: Any) -> Object:
    return {
        "apiVersion": CUSTOM[kind].api_version,
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"minMember": least, **spec},
    }


def naming(made: Object, name: str, kind: GroupKind) -> Object:
    """The pod, which names this PodGroup."""
    if kind == GroupKind.COSCHEDULING:
        made["metadata"]["labels"] = {"scheduling.x-k8s.io/pod-group": name}
    else:
        made["metadata"]["annotations"] = {"scheduling.k8s.io/group-name": name}
    return made
