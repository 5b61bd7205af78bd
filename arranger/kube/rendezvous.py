"""How the pods of one job find each other: their host names, the variables of torch.distributed, and the members file.

A job in which a worker set has a `rendezvous` gets a headless Service with the job's name. Every pod of the job, the
leader included, then has the host name `{group}-{index}.{job}.{namespace}.svc`, the same in every attempt.
"""

from collections.abc import Mapping
from typing import Any

from arranger.kube.cluster import CONFIG_MAPS, SERVICES, Object
from arranger.kube.owners import owner_reference
from arranger.model.job import LEADER_GROUP, Rendezvous, RendezvousScope
from arranger.model.names import JOB_LABEL, domain, hostname, known_labels, members_name, service_name
from arranger.model.template import worker_sets
from arranger.model.tyjob import rendezvous_of
from arranger.model.validation import counts_of, group_size_of, leaders_of

#: Where pods find the members file. The directory is mounted, not the file: a mounted file would never change.
MEMBERS_DIRECTORY = "/etc/arranger"
MEMBERS_KEY = "members.json"
_VOLUME = "arranger-members"


def leader_service(metadata: Mapping[str, Any], leader: str) -> Object:
    """The headless Service of the leader of the TYJob with this name, namespace and UID."""
    labels = known_labels(metadata["name"], leader, leader=True)
    return _headless(metadata, service_name(metadata["name"], leader), labels)


def job_service(metadata: Mapping[str, Any]) -> Object:
    """The headless Service of all pods of the TYJob with this name, namespace and UID."""
    return _headless(metadata, metadata["name"], {JOB_LABEL: metadata["name"]})


def _headless(metadata: Mapping[str, Any], name: str, labels: dict[str, str]) -> Object:
    """Its names resolve as soon as the pods have addresses: they look each other up before they are ready."""
    return {
        "apiVersion": SERVICES.api_version,
        "kind": SERVICES.kind,
        "metadata": {
            "name": name,
            "namespace": metadata["namespace"],
            "labels": labels,
            "ownerReferences": [owner_reference(metadata)],
        },
        "spec": {"clusterIP": "None", "selector": labels, "publishNotReadyAddresses": True},
    }


def members_map(metadata: Mapping[str, Any], content: str) -> Object:
    """The ConfigMap with the members file of the TYJob with this name, namespace and UID."""
    return {
        "apiVersion": CONFIG_MAPS.api_version,
        "kind": CONFIG_MAPS.kind,
        "metadata": {
            "name": members_name(metadata["name"]),
            "namespace": metadata["namespace"],
            "labels": {JOB_LABEL: metadata["name"]},
            "ownerReferences": [owner_reference(metadata)],
        },
        "data": {MEMBERS_KEY: content},
    }


def names_of(job: Object, group: int, index: int) -> Object:
    """The host name of a pod and its Service, as fields of its spec; empty in a job without a rendezvous."""
    if not any(rendezvous_of(workers) for workers in worker_sets(job["spec"])):
        return {}
    return {"hostname": hostname(_name(job, group), index), "subdomain": job["metadata"]["name"]}


def variables_of(job: Object, group: int, index: int) -> dict[str, str]:
    """The variables by which the pods of a scope find each other; empty for a pod without a rendezvous."""
    found = _of_group(job, group)
    if not found:
        return {}
    rendezvous, metadata, counts = found[0], job["metadata"], counts_of(job["spec"])
    rank_0 = 0
    if rendezvous.scope == RendezvousScope.SET:
        first, rank, size = group, index, counts[group - 1]
    elif rendezvous.scope == RendezvousScope.GROUP:
        size = group_size_of(worker_sets(job["spec"])[group - 1])
        first, rank, rank_0 = group, index % size, index - index % size
    else:
        joining = [_counts_job(rendezvous_of(workers)) for workers in worker_sets(job["spec"])]
        in_world = [count if joins else 0 for count, joins in zip(counts, joining, strict=True)]
        leaders = leaders_of(job["spec"])
        first, size = LEADER_GROUP if leaders else 1 + joining.index(True), leaders + sum(in_world)
        rank = 0 if group == LEADER_GROUP else leaders + sum(in_world[: group - 1]) + index
    variables = {
        "MASTER_ADDR": f"{hostname(_name(job, first), rank_0)}.{domain(metadata['name'], metadata['namespace'])}",
        "MASTER_PORT": str(rendezvous.port),
        "NNODES": str(size),
        "NODE_RANK": str(rank),
    }
    if _has_file(found):
        variables["TYJOB_MEMBERS_FILE"] = f"{MEMBERS_DIRECTORY}/{MEMBERS_KEY}"
    return variables


def with_members_file(pod_spec: Object, job: Object, group: int) -> Object:
    """The pod's spec with the members file in all its containers, if its group has it.

    A template's own volume of that name, or what it mounts there itself, is left to it.
    """
    if not _has_file(_of_group(job, group)):
        return pod_spec
    volumes = pod_spec.get("volumes") or []
    if not any(volume.get("name") == _VOLUME for volume in volumes):
        source = {"name": _VOLUME, "configMap": {"name": members_name(job["metadata"]["name"])}}
        volumes = [*volumes, source]
    kinds = [kind for kind in ("containers", "initContainers") if pod_spec.get(kind)]
    mounted = {kind: [_mounting(container) for container in pod_spec[kind]] for kind in kinds}
    return {**pod_spec, **mounted, "volumes": volumes}


def _mounting(container: Object) -> Object:
    mounts = container.get("volumeMounts") or []
    if any((mount.get("mountPath") or "").rstrip("/") == MEMBERS_DIRECTORY for mount in mounts):
        return container
    ours = {"name": _VOLUME, "mountPath": MEMBERS_DIRECTORY, "readOnly": True}
    return {**container, "volumeMounts": [*mounts, ours]}


def _of_group(job: Object, group: int) -> list[Rendezvous]:
    """The rendezvous that concern a group: its own, or for the leader those that count the whole job."""
    sets = worker_sets(job["spec"])
    if group != LEADER_GROUP:
        own = rendezvous_of(sets[group - 1])
        return [own] if own is not None else []
    return [of for of in map(rendezvous_of, sets) if of is not None and _counts_job(of)]


def _counts_job(rendezvous: Rendezvous | None) -> bool:
    return rendezvous is not None and rendezvous.scope == RendezvousScope.JOB


def _has_file(found: list[Rendezvous]) -> bool:
    return any(rendezvous.members_file for rendezvous in found)


def _name(job: Object, group: int) -> str:
    spec = job["spec"]
    name: str = (spec["leader"] if group == LEADER_GROUP else worker_sets(spec)[group - 1])["name"]
    return name
