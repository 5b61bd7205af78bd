"""A placeholder: an unbound pod with the shape of a pod of a waiting quorum, for autoscalers to see.

It is what decides on a node, and nothing more: no environment, no command, no volume that would be made for it. It
names a scheduler that nobody serves, so it never runs.
"""

from arranger.kube.cluster import Object
from arranger.kube.manifests import pod_manifest
from arranger.model.names import known_labels
from arranger.model.provisioning import HOLDS_FOR_LABEL, NO_SCHEDULER, NUMBER_LABEL
from arranger.model.template import worker_sets

#: The fields that decide on nodes, or on whether the API server's admission lets a pod pass.
_OF_POD = (
    "affinity", "hostIPC", "hostNetwork", "hostPID", "imagePullSecrets", "nodeSelector", "os", "overhead",
    "preemptionPolicy", "priority", "priorityClassName", "resources", "runtimeClassName", "securityContext",
    "tolerations", "topologySpreadConstraints",
)  # fmt: skip
_OF_CONTAINER = ("image", "name", "ports", "resources", "restartPolicy", "securityContext")


def placeholder_manifest(job: Object, name: str, *, group: int, number: int) -> Object:
    """The placeholder of this name for a pod of a group of a valid TYJob; `number` is that of the request."""
    pod = pod_manifest(job, group=group, index=0, attempt=0, node="", leader_address=None)["spec"]
    part = worker_sets(job["spec"])[group - 1] if group else job["spec"]["leader"]
    own, of = part["template"].get("metadata") or {}, job["metadata"]
    labels = {**(own.get("labels") or {}), **known_labels(of["name"], part["name"], leader=not group)}
    spec = {
        **{field: pod[field] for field in _OF_POD if pod.get(field)},
        "automountServiceAccountToken": False,
        "containers": [_slim(container) for container in pod["containers"]],
        "restartPolicy": "Never",
        "schedulerName": NO_SCHEDULER,
        "terminationGracePeriodSeconds": 0,
    }
    if pod.get("initContainers"):
        spec["initContainers"] = [_slim(container) for container in pod["initContainers"]]
    claims = [volume for volume in pod.get("volumes") or () if volume.get("persistentVolumeClaim")]
    if claims:
        spec["volumes"] = claims
    owner = {"apiVersion": job["apiVersion"], "kind": job["kind"], "name": of["name"], "uid": of["uid"]}
    metadata = {
        "name": name,
        "namespace": of["namespace"],
        "labels": {**labels, NUMBER_LABEL: str(number), HOLDS_FOR_LABEL: of["uid"]},
        "ownerReferences": [{**owner, "controller": True}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _slim(container: Object) -> Object:
    found = {field: container[field] for field in _OF_CONTAINER if container.get(field)}
    if (found.get("resources") or {}).get("claims"):  # a placeholder has none
        found["resources"] = {name: of for name, of in found["resources"].items() if name != "claims"}
    return found
