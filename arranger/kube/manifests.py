"""The pod to create for one slot of a job, from the TYJob's own template.

Arranger's settings override the template: name, namespace, owner, labels under arranger.dev/, the node, and in a job
with a rendezvous the host name and its subdomain. Arranger's environment variables come first in each container, so
that a template's own variables and arguments can refer to them as $(TYJOB_NAME); a variable that the template sets
itself is left to it. A template's volume overrides a shared one of the same name. Everything else in the template is
sent to the API server unchanged, but the names of ResourceClaimTemplates: Arranger makes the claims from them.
"""

from arranger.kube.cluster import Object
from arranger.kube.owners import owner_reference
from arranger.kube.rendezvous import names_of, variables_of, with_members_file
from arranger.model.job import LEADER_GROUP
from arranger.model.names import (
    LEADER_ROLE,
    WORKER_ROLE,
    domain,
    group_labels,
    own_claim_name,
    pod_labels,
    pod_name,
    service_name,
)
from arranger.model.pod import gpus_of
from arranger.model.template import effective_requests, worker_sets
from arranger.model.validation import counts_of, group_size_of, leaders_of, sets_text

#: The kubelet starts a failed container again, which `restartLimit` counts.
DEFAULT_RESTART_POLICY = "OnFailure"
#: A kubelet would start the container alone, and a worker group is restarted whole.
RESTART_POLICY_IN_GROUPS = "Never"


def pod_manifest(
    job: Object,
    *,
    group: int,
    index: int,
    attempt: int,
    node: str,
    leader_address: str | None,
    failed_before: int = 0,
) -> Object:
    """The pod of a valid TYJob for this slot, bound to `node`. Workers get `leader_address`, or the leader's name if it
    has a Service. `failed_before` as in `PodOwner`.

    `group` is 0 for the leader and `i + 1` for worker set `i`.
    """
    spec = job["spec"]
    part = spec["leader"] if group == LEADER_GROUP else worker_sets(spec)[group - 1]
    template = part["template"]
    metadata = _metadata(job, part, leader=group == LEADER_GROUP, index=index, attempt=attempt, before=failed_before)
    environment = _environment(job, group=group, index=index, attempt=attempt, leader_address=leader_address)
    pod_spec: Object = {
        **template["spec"],
        "nodeName": node,
        "containers": [_told(container, environment) for container in template["spec"]["containers"]],
    }
    if not pod_spec.get("restartPolicy"):
        pod_spec["restartPolicy"] = RESTART_POLICY_IN_GROUPS if group_size_of(part) > 1 else DEFAULT_RESTART_POLICY
    if (of_class := spec.get("priorityClassName")) and not pod_spec.get("priorityClassName"):
        pod_spec["priorityClassName"] = of_class
    if pod_spec.get("initContainers"):
        pod_spec["initContainers"] = [_told(container, environment) for container in pod_spec["initContainers"]]
    if volumes := _volumes(pod_spec.get("volumes") or [], spec.get("volumes") or []):
        pod_spec["volumes"] = volumes
    if pod_spec.get("resourceClaims"):
        pod_spec["resourceClaims"] = [_claim(entry, metadata["name"]) for entry in pod_spec["resourceClaims"]]
    pod_spec = {**with_members_file(pod_spec, job, group), **names_of(job, group, index)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod_spec}


def _claim(entry: Object, pod: str) -> Object:
    """A pod's entry for a resource claim: the claim that was made for it stands for the template that it names."""
    if not entry.get("resourceClaimTemplateName"):
        return entry
    return {"name": entry["name"], "resourceClaimName": own_claim_name(pod, entry["name"])}


def _metadata(job: Object, part: Object, *, leader: bool, index: int, attempt: int, before: int) -> Object:
    """Name, labels, annotations and owner of the pod of a leader or a worker set."""
    own, name = part["template"].get("metadata") or {}, job["metadata"]["name"]
    labels = pod_labels(name, part["name"], leader=leader, index=index, attempt=attempt, failed_before=before)
    labels |= group_labels(index, group_size_of(part))
    metadata: Object = {
        "name": pod_name(name, part["name"], index, attempt, before),
        "namespace": job["metadata"]["namespace"],
        "labels": {**(own.get("labels") or {}), **labels},
        "ownerReferences": [owner_reference(job["metadata"])],
    }
    if annotations := own.get("annotations"):
        metadata["annotations"] = annotations
    return metadata


def _environment(job: Object, *, group: int, index: int, attempt: int, leader_address: str | None) -> list[Object]:
    """The identity of this pod, and how it finds the others, as `docs/jobs.md` lists them. A leader has no worker set,
    and its worker count is that of the whole job."""
    spec, leader = job["spec"], group == LEADER_GROUP
    sets, counts, leaders = worker_sets(spec), counts_of(spec), leaders_of(spec)
    part = spec["leader"] if leader else sets[group - 1]
    size = group_size_of(part)
    variables = {
        "TYJOB_NAME": job["metadata"]["name"],
        "TYJOB_NAMESPACE": job["metadata"]["namespace"],
        "TYJOB_ATTEMPT": str(attempt),
        "TYJOB_ROLE": LEADER_ROLE if leader else WORKER_ROLE,
        "TYJOB_WORKER_SET": "" if leader else part["name"],
        "TYJOB_WORKER_INDEX": str(index),
        "TYJOB_WORKER_COUNT": str(sum(counts) if leader else counts[group - 1]),
        "TYJOB_GROUP_INDEX": str(index // size),
        "TYJOB_GROUP_RANK": str(index % size),
        "TYJOB_GROUP_SIZE": str(size),
        "TYJOB_RANK": "0" if leader else str(leaders + sum(counts[: group - 1]) + index),
        "TYJOB_WORLD_SIZE": str(leaders + sum(counts)),
        "TYJOB_SETS": sets_text(spec),
        "TYJOB_GPUS": str(gpus_of(effective_requests(part["template"]["spec"]))),
    }
    if spec.get("leaderService"):
        service = service_name(variables["TYJOB_NAME"], spec["leader"]["name"])
        variables["TYJOB_LEADER_ADDRESS"] = domain(service, variables["TYJOB_NAMESPACE"])
    elif leader_address and not leader:
        variables["TYJOB_LEADER_ADDRESS"] = leader_address
    variables |= variables_of(job, group, index)
    return [{"name": name, "value": value} for name, value in variables.items()]


def _told(container: Object, environment: list[Object]) -> Object:
    """The container with Arranger's variables before its own, less those that it sets itself."""
    own = container.get("env") or []
    names = {variable.get("name") for variable in own}
    return {**container, "env": [variable for variable in environment if variable["name"] not in names] + own}


def _volumes(own: list[Object], shared: list[Object]) -> list[Object]:
    taken = {volume.get("name") for volume in own}
    return [*own, *(volume for volume in shared if volume["name"] not in taken)]
