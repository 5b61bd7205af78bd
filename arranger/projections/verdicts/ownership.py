"""A job's own pods: those with the owner, namespace and name that Arranger gives them.

An owner reference and labels are only claims: the API server doesn't check them, and every client that may create pods
can write them. The API server does check namespace and name: two live pods never share both.
"""

import msgspec

from arranger.events.kinds import PodSeen
from arranger.model.job import Stage
from arranger.model.names import name_in_slot
from arranger.projections.derived.departing import grace_of
from arranger.projections.derived.queue_counts import count_other
from arranger.projections.jobs.records import JobRecord, holds
from arranger.projections.observed.namespace_terms import pod_with_selected
from arranger.projections.state import State

#: The stages of an attempt that has begun: pods of an earlier one were gone then, or left behind.
_BEGUN = (Stage.STARTING, Stage.RUNNING)


def is_own(job: JobRecord, pod: PodSeen) -> bool:
    """Whether the pod's owner reference names this job, and its namespace and name are those of its slot."""
    owner, seen = pod.owner, job.seen
    return (
        owner is not None
        and owner.job_uid == seen.uid
        and pod.namespace == seen.namespace
        and pod.name == name_in_slot(seen.name, owner)
    )


def attributed(state: State, pod: PodSeen) -> PodSeen:
    """The pod as the projection stores it: without its owner if that is a known job that doesn't own the pod, and with
    the namespaces that its terms select.

    A pod of an unknown job keeps its owner until the job is observed.
    """
    if pod.traits.anti_affinity:
        pod = pod_with_selected(state, pod)
    if pod.owner is None:
        return pod
    job = state.jobs.get(pod.owner.job_uid)
    return pod if job is None or is_own(job, pod) else disowned(pod)


def namespace_of(state: State, uid: str) -> str:
    """The namespace of a job, or of the pods that a deleted one has left; "" if nothing is known of it."""
    job = state.jobs.get(uid)
    if job is not None:
        return job.seen.namespace
    return next((pod.namespace for pod in state.pods_of.get(uid, {}).values()), "")


def has_earlier_pods(state: State, job: JobRecord) -> bool:
    """Whether pods of an earlier attempt still exist, beside failed ones that are kept and those that the job left
    behind: a new attempt waits until they are deleted."""
    return bool(earlier_pods(state, job))


def earlier_pods(state: State, job: JobRecord) -> list[PodSeen]:
    """These pods."""
    pods = state.pods_of.get(job.uid, {}).values()
    earlier = [pod for pod in pods if pod.owner is not None and pod.owner.attempt < job.attempt]
    if not earlier:
        return []
    kept = job.kept
    return [pod for pod in earlier if pod.uid not in kept and pod.uid not in job.left_behind]


def earlier_gone_ms(state: State, job: JobRecord) -> int:
    """When the grace periods of these pods are over, in milliseconds since 1970; 0 without any. They are deleted when
    the job leaves their attempt."""
    by_ms = [
        pod.times.leave_by_ms
        if pod.deleting and pod.times.leave_by_ms
        else job.times.stage_ms + grace_of(state, pod) * 1000
        for pod in earlier_pods(state, job)
    ]
    return max(by_ms, default=0)


def awaits_own_pods(state: State, job: JobRecord) -> bool:
    """Whether a job gets no nodes before these pods are gone."""
    return job.uid in state.pods_of and job.stage not in _BEGUN and has_earlier_pods(state, job)


def disown(state: State, pod: PodSeen) -> None:
    """Replace an observed pod by itself without its owner."""
    found = state.pods[pod.uid] = disowned(pod)
    if pod.uid in state.repelling:
        state.repelling[pod.uid] = found
    if holds(found):
        count_other(state, found, 1)


def disowned(pod: PodSeen) -> PodSeen:
    """The pod without an owner: it still uses its room, and tells nothing of a job."""
    return msgspec.structs.replace(pod, owner=None, checkpoint_ms=0)
