"""Pods that no TYJob owns and that Arranger places: the record among the jobs that each of them has, or its group.

A cycle places a pod as it places a job of equals with one worker, and a group as a job with so many workers as its
minimum. So both have a `JobSpec`, and everything that orders jobs, counts them or explains them holds for them too.
"""

from collections.abc import Sequence

import msgspec

from arranger.model.job import CleanPodPolicy, JobSpec, PodGroup, Topology
from arranger.model.names import GROUP_PREFIX, POD_PREFIX
from arranger.model.pod import GroupKind, PodGroupFacts, PodToPlace, QosClass, lowest_qos
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


def name_of_group(text: str) -> str:
    """The reverse of `group_name`."""
    return text.removeprefix(GROUP_PREFIX)


def group_uid(namespace: str, name: str, kind: GroupKind) -> str:
    """The UID of the record of a group of pods. The group may be no object, so it has only its name and its kind."""
    return f"{GROUP_PREFIX}{namespace}/{name}{f'/{kind}' if kind else ''}"


def group_kind(uid: str) -> GroupKind:
    """The kind of the group that a record with this UID is of. No name in Kubernetes has a slash."""
    return GroupKind("".join(uid.split("/", 2)[2:]))


def equal_pods(number: int, asks: PodToPlace) -> PodGroup:
    """The pods of a group that are like this one, as the group of that number in the group's spec, with none yet."""
    name = GROUP_NAME if number == SLOT[0] else f"{GROUP_NAME}-{number}"
    return PodGroup(name, 0, asks.shape, grace_s=asks.grace_s, task=asks.task)


def are_equal(of: PodGroup, asks: PodToPlace) -> bool:
    """Whether a pod is like these."""
    return of.shape == asks.shape and of.grace_s == asks.grace_s and of.task == asks.task


def spec_of(asks: PodToPlace) -> JobSpec:
    """The spec of the record of a pod. A pod that is held back is suspended."""
    groups = (PodGroup(GROUP_NAME, 1, asks.shape, grace_s=asks.grace_s),)
    return _spec(groups, asks, 1, asks.priority, preempts=asks.preempts, suspend=asks.held_back, qos=asks.qos)


def group_spec(groups: Sequence[PodGroup], pods: Sequence[PodToPlace], facts: PodGroupFacts | None) -> JobSpec:
    """The spec of the record of a group, which has these pods, the oldest of them first, in these groups of equal ones.

    Its queue and user are the oldest pod's. Its priority and QoS class are the lowest of its pods', so that no pod of a
    high priority lifts many others. It needs the highest minimum that a pod names, and takes room of others only if all
    of its pods may. A PodGroup's `facts` go before those of its pods; None if it isn't known, or if the group has none.
    """
    asked = [of.group for of in pods if of.group is not None]
    least = max(1, *(of.min_count for of in asked)) if facts is None else facts.min_count
    preempts, priority = all([of.preempts for of in pods]), min(of.priority for of in pods)
    qos = lowest_qos(of.qos for of in pods)
    spec = _spec(groups, pods[0], least, priority, preempts=preempts, suspend=False, qos=qos)
    if facts is None:
        return spec if asked[0].kind == GroupKind.LABELS else msgspec.structs.replace(spec, group_known=False)
    return msgspec.structs.replace(
        spec,
        queue=facts.queue or spec.queue,
        priority=spec.priority if facts.priority is None else facts.priority,
        priority_class=facts.priority_class if facts.priority is None else "",
        priority_known=facts.priority is not None or not facts.priority_class,
        topology=Topology((facts.topology,)) if facts.topology else None,
        task_minimums=_task_minimums(facts),
        min_resources=facts.min_resources,
        schedule_timeout_s=facts.schedule_timeout_s,
    )


def _task_minimums(facts: PodGroupFacts) -> tuple[tuple[str, int], ...]:
    """As Volcano, this ignores the minimums of tasks that are more pods together than the group needs."""
    return facts.tasks if sum(least for _, least in facts.tasks) <= facts.min_count else ()


def _spec(
    groups: Sequence[PodGroup],
    asks: PodToPlace,
    least: int,
    priority: int,
    *,
    preempts: bool,
    suspend: bool,
    qos: QosClass | None,
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
        qos=qos,
    )
