"""Names and labels of a job's pods, from job, group, index and attempt, and their parsing.

The form is `{job}-{group}-{index}`, with `-r{attempt}` appended from the second attempt on; the leader's index is 0. A
pod whose labels and name don't agree is not ours, whatever its owner reference.
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

LEADER_ROLE = "leader"
WORKER_ROLE = "worker"

#: The maximum total length of a job's name and a group's name, so that a pod's name fits into 63 characters.
MAX_NAMES_LENGTH = 50


def pod_name(job: str, group_name: str, index: int, attempt: int) -> str:
    name = f"{job}-{group_name}-{index}"
    return f"{name}-r{attempt}" if attempt else name


def pod_labels(job: str, group_name: str, *, leader: bool, index: int, attempt: int) -> dict[str, str]:
    labels = {JOB_LABEL: job, ROLE_LABEL: LEADER_ROLE if leader else WORKER_ROLE}
    if not leader:
        labels[WORKER_SET_LABEL] = group_name
    labels[INDEX_LABEL] = str(index)
    labels[ATTEMPT_LABEL] = str(attempt)
    return labels


def service_name(job: str, leader: str) -> str:
    """The name of the Service for a job's leader, the same in every attempt."""
    return f"{job}-{leader}"


def known_labels(job: str, group_name: str, *, leader: bool) -> dict[str, str]:
    """Arranger's labels that all pods of a group have in every attempt: other pods may select by them."""
    labels = pod_labels(job, group_name, leader=leader, index=0, attempt=0)
    del labels[INDEX_LABEL], labels[ATTEMPT_LABEL]
    return labels


def job_name(name: str, owner: PodOwner) -> str:
    """The job's name, from the name of the pod in this slot."""
    return name.removesuffix(pod_name("", owner.group_name, owner.index, owner.attempt))


def owner_of(name: str, labels: Mapping[str, str], *, job: str, job_uid: str) -> PodOwner | None:
    """The slot of a pod owned by this job; None if its name and labels don't define one."""
    index = _number(labels.get(INDEX_LABEL))
    attempt = _number(labels.get(ATTEMPT_LABEL))
    role = labels.get(ROLE_LABEL)
    if index is None or attempt is None or labels.get(JOB_LABEL) != job:
        return None
    if role == WORKER_ROLE:
        group_name = labels.get(WORKER_SET_LABEL, "")
    elif role == LEADER_ROLE and index == 0:
        ending = f"-0-r{attempt}" if attempt else "-0"
        group_name = name.removeprefix(f"{job}-").removesuffix(ending)
    else:
        return None
    if not group_name or pod_name(job, group_name, index, attempt) != name:
        return None
    return PodOwner(job_uid=job_uid, attempt=attempt, group_name=group_name, leader=role == LEADER_ROLE, index=index)


def _number(text: str | None) -> int | None:
    if text is None or not text.isascii() or not text.isdigit() or len(text) > 9:
        return None
    number = int(text)
    return number if str(number) == text else None
