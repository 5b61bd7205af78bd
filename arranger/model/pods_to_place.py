"""Pods that no TYJob owns and that Arranger places: the record among the jobs that each of them has, or its group.

A cycle places a pod as it places a job of equals with one worker, and a group as a job with so many workers as its
minimum. So both have a `JobSpec`, and everything that orders jobs, counts them or explains them holds for them too.
"""

from collections.abc import Sequence

from arranger.model.job import CleanPodPolicy, JobSpec, PodGroup
from arranger.model.names import GROUP_PREFIX, POD_PREFIX
from arranger.model.pod import PodToPlace
from arranger.model.tyjob import NO_LEADER

#: The group and the index of a pod that has a record of its own, and the name of that group in messages.
SLOT = (1, 0)
GROUP_NAME = "pod"


def record_of(text: str) -> str:
    """The UID, or the name, of a pod's record."""
    return f"{POD_PREFIX}{text}"


def pod_of(text: str) -> str:
    """The reverse of `record_of`: the UID, or the name, of the pod that a record is of."""
    return text.removeprefix(POD_PREFIX)


def group_name(name: str) -> str:
    """The name of the record of a group of pods."""
    return f"{GROUP_PREFIX}{name}"


def group_uid(namespace: str, name: str) -> str:
    """The UID of the record of a group of pods. The group is no object, so it has only its name."""
    return f"{GROUP_PREFIX}{namespace}/{name}"


def equal_pods(number: int, asks: PodToPlace) -> PodGroup:
    """The pods of a group that are like this one, as the group of that number in the group's spec, with none yet."""
    name = GROUP_NAME if number == SLOT[0] else f"{GROUP_NAME}-{number}"
    return PodGroup(name, 0, asks.shape, grace_s=asks.grace_s)


def are_equal(of: PodGroup, asks: PodToPlace) -> bool:
    """Whether a pod is like these."""
    return of.shape == asks.shape and of.grace_s == asks.grace_s


def spec_of(asks: PodToPlace) -> JobSpec:
    """The spec of the record of a pod. A gated pod is suspended."""
    groups = (PodGroup(GROUP_NAME, 1, asks.shape, grace_s=asks.grace_s),)
    return _spec(groups, asks, 1, asks.priority, preempts=asks.preempts, suspend=bool(asks.gates))


def group_spec(groups: Sequence[PodGroup], pods: Sequence[PodToPlace]) -> JobSpec:
    """The spec of the record of a group, which has these pods, the oldest of them first, in these groups of equal ones.

    Its queue and user are the oldest pod's. Its priority is the lowest of its pods', so that no pod of a high priority
    lifts many others. It needs the highest minimum that a pod names, and takes room of others only if all of its pods
    may.
    """
    least = max(of.group.min_count for of in pods if of.group is not None)
    preempts = all([of.preempts for of in pods])
    return _spec(groups, pods[0], least, min(of.priority for of in pods), preempts=preempts, suspend=False)


def _spec(
    groups: Sequence[PodGroup], asks: PodToPlace, least: int, priority: int, *, preempts: bool, suspend: bool
) -> JobSpec:
    """Such a record gives room to nobody: whoever made the pods may not expect them to be deleted."""
    return JobSpec(
        groups=(NO_LEADER, *groups),
        min_workers=least,
        priority=priority,
        queue_policy="",
        pod_policy="",
        restart_limit=0,
        clean_pod_policy=CleanPodPolicy.NONE,
        terminating=False,
        suspend=suspend,
        success=tuple(range(SLOT[0], SLOT[0] + len(groups))),
        queue=asks.queue,
        preemptible=False,
        preempts=preempts,
    )
