"""Which pods are a job's own: by owner, namespace and name, as Arranger gives them.

An owner reference and labels are claims. The API server does not check them, and anyone who may create pods anywhere
can write them. The namespace and the name are checked by the API server: two live pods never share both.
"""

import msgspec

from arranger.events.kinds import PodSeen
from arranger.model.names import pod_name
from arranger.projections.jobs import JobRecord
from arranger.projections.state import State


def is_own(job: JobRecord, pod: PodSeen) -> bool:
    """Whether a pod whose owner reference names this job is the job's: in its namespace, under the name of its slot."""
    owner, seen = pod.owner, job.seen
    return (
        owner is not None
        and owner.job_uid == seen.uid
        and pod.namespace == seen.namespace
        and pod.name == pod_name(seen.name, owner.group_name, owner.index, owner.attempt)
    )


def attributed(state: State, pod: PodSeen) -> PodSeen:
    """The pod as the projection holds it: without its owner if that is a known job and the pod is not its own.

    A pod whose job is not known keeps its owner until that job is seen.
    """
    if pod.owner is None or not state.exact_slots:
        return pod
    job = state.jobs.get(pod.owner.job_uid)
    return pod if job is None or is_own(job, pod) else disowned(pod)


def has_earlier_pods(state: State, job: JobRecord) -> bool:
    """Whether pods of an earlier attempt are still there: a new attempt waits until they are gone."""
    pods = state.pods_of.get(job.uid, {}).values()
    return any(pod.owner is not None and pod.owner.attempt < job.attempt for pod in pods)


def disowned(pod: PodSeen) -> PodSeen:
    """The pod as a stranger's: it holds its room and is nobody's."""
    return msgspec.structs.replace(pod, owner=None)
