"""Names and labels of a job's pods, from job, group, index and attempt, and their parsing.

The form is `{job}-{group}-{index}`, with `-r{attempt}` appended from the second attempt on; the leader's index is 0. If
pods of the same slot and attempt failed before it and are kept, `-f{their number}` follows, so that the pods that are
kept and the present one have different names. A pod whose labels and name don't agree is not ours, whatever its owner
reference.
"""

from collections.abc import Mapping

from arranger.model.pod import PodOwner

GROUP = "arranger.dev"
KIND = "TYJob"

#: All labels of a pod with this prefix are Arranger's.
LABEL_PREFIX = "arranger.dev/"
JOB_LABEL = LABEL_PREFIX + "job"
ROLE_LABEL = LABEL_PREFIX + "role"
#: The worker set's name; a leader has no such label.
WORKER_SET_LABEL = LABEL_PREFIX + "worker-set"
INDEX_LABEL = LABEL_PREFIX + "index"
ATTEMPT_LABEL = LABEL_PREFIX + "attempt"
#: In a worker set with worker groups: the number of the pod's worker group, and of the pod in it, both from 0.
WORKER_GROUP_LABEL = LABEL_PREFIX + "worker-group"
GROUP_RANK_LABEL = LABEL_PREFIX + "group-rank"
#: How many pods of its slot and attempt failed before it and were kept; without this label none did.
FAILED_BEFORE_LABEL = LABEL_PREFIX + "failed-before"

#: A resource claim that Arranger made for one pod has the labels of this pod, and this one: the pod's name for it.
CLAIM_LABEL = LABEL_PREFIX + "resource-claim"

#: The label of a TYJob that names its submitter.
USER_LABEL = LABEL_PREFIX + "user"

#: The annotation of a TYJob, or of a pod of one, with the time of the job's last checkpoint (RFC 3339).
CHECKPOINT_ANNOTATION = LABEL_PREFIX + "last-checkpoint"

#: The annotation of a TYJob that says what it is permitted, as words with commas between them, for permits of plugins.
PERMITS_ANNOTATION = LABEL_PREFIX + "permits"

#: The annotations of a TYJob in which the API server writes who created it, and that user's groups, a line each.
CREATED_BY_ANNOTATION = LABEL_PREFIX + "created-by"
CREATED_BY_GROUPS_ANNOTATION = CREATED_BY_ANNOTATION + "-groups"

#: The UID and the name of the record of a pod that no TYJob owns begin with this. No TYJob has a colon in its own.
POD_PREFIX = "pod:"
#: The same of the record of a group of such pods.
GROUP_PREFIX = "group:"

LEADER_ROLE = "leader"
WORKER_ROLE = "worker"

#: The maximum total length of a job's name and a group's name, so that a pod's name fits into 63 characters.
MAX_NAMES_LENGTH = 50


def pod_name(job: str, group_name: str, index: int, attempt: int, failed_before: int = 0) -> str:
    name = f"{job}-{group_name}-{index}"
    name = f"{name}-r{attempt}" if attempt else name
    return f"{name}-f{failed_before}" if failed_before else name


def name_in_slot(job: str, owner: PodOwner) -> str:
    """The name of a job's pod with this owner."""
    return pod_name(job, owner.group_name, owner.index, owner.attempt, owner.failed_before)


def own_claim_name(pod: str, entry: str) -> str:
    """The name of the resource claim that a pod of this name has for itself, by the pod's name for it. No other pod and
    name give the same, because neither has a dot."""
    return f"{pod}.{entry}"


def pod_labels(
    job: str, group_name: str, *, leader: bool, index: int, attempt: int, failed_before: int = 0
) -> dict[str, str]:
    labels = {JOB_LABEL: job, ROLE_LABEL: LEADER_ROLE if leader else WORKER_ROLE}
    if not leader:
        labels[WORKER_SET_LABEL] = group_name
    labels[INDEX_LABEL] = str(index)
    labels[ATTEMPT_LABEL] = str(attempt)
    if failed_before:
        labels[FAILED_BEFORE_LABEL] = str(failed_before)
    return labels


def group_labels(index: int, group_size: int) -> dict[str, str]:
    """The labels that tell the place of the pod in its worker group; none in a set without worker groups."""
    if group_size == 1:
        return {}
    return {WORKER_GROUP_LABEL: str(index // group_size), GROUP_RANK_LABEL: str(index % group_size)}


def service_name(job: str, leader: str) -> str:
    """The name of the Service for a job's leader, the same in every attempt."""
    return f"{job}-{leader}"


def hostname(group_name: str, index: int) -> str:
    """The host name of a slot's pod, the same in every attempt, in a job with a rendezvous."""
    return f"{group_name}-{index}"


def members_name(job: str) -> str:
    """The name of the ConfigMap with a job's members file."""
    return f"{job}-members"


def domain(service: str, namespace: str) -> str:
    """The name under which a Service is found from all namespaces of the cluster."""
    return f"{service}.{namespace}.svc"


def known_labels(job: str, group_name: str, *, leader: bool) -> dict[str, str]:
    """Arranger's labels that all pods of a group have in every attempt: other pods may select by them."""
    labels = pod_labels(job, group_name, leader=leader, index=0, attempt=0)
    del labels[INDEX_LABEL], labels[ATTEMPT_LABEL]
    return labels


def job_name(name: str, owner: PodOwner) -> str:
    """The job's name, from the name of the pod in this slot."""
    return name.removesuffix(name_in_slot("", owner))


def owner_of(name: str, labels: Mapping[str, str], *, job: str, job_uid: str) -> PodOwner | None:
    """The slot of a pod owned by this job; None if its name and labels don't define one."""
    index = _number(labels.get(INDEX_LABEL))
    attempt = _number(labels.get(ATTEMPT_LABEL))
    before = _number(labels.get(FAILED_BEFORE_LABEL, "0"))
    role = labels.get(ROLE_LABEL)
    if index is None or attempt is None or before is None or labels.get(JOB_LABEL) != job:
        return None
    if role == WORKER_ROLE:
        group_name = labels.get(WORKER_SET_LABEL, "")
    elif role == LEADER_ROLE and index == 0:
        ending = f"-0-r{attempt}" if attempt else "-0"
        group_name = name.removeprefix(f"{job}-").removesuffix(ending)
    else:
        return None
    owner = PodOwner(job_uid, attempt, group_name, role == LEADER_ROLE, index, before)
    return owner if group_name and name_in_slot(job, owner) == name else None


def _number(text: str | None) -> int | None:
    if text is None or not text.isascii() or not text.isdigit() or len(text) > 9:
        return None
    number = int(text)
    return number if str(number) == text else None
