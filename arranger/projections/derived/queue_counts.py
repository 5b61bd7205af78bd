"""Which queue a job is in, and what jobs and pods add to a state's account of queues (`queues/use`) as they get and
lose their nodes."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from operator import itemgetter

from arranger.events.kinds import PodSeen, QueueSeen
from arranger.model.job import LEADER_GROUP, JobSpec
from arranger.model.queue import DEFAULT_QUEUE
from arranger.projections.cluster.nodes import Requests
from arranger.projections.jobs.parts import SlotKey
from arranger.projections.jobs.records import JobRecord, holds
from arranger.projections.queues.use import ONE_JOB, QueueUse
from arranger.projections.state import State


def queue_of(state: State, job: JobRecord) -> str:
    """The name of the job's queue: the one that its spec names, else its namespace's, else `default`. It may not
    exist."""
    if job.spec is not None and job.spec.queue:
        return job.spec.queue
    namespace = state.namespaces.get(job.seen.namespace)
    return (namespace.queue if namespace is not None else "") or DEFAULT_QUEUE


def count_pods(state: State, job: JobRecord, pods: Mapping[int, int], jobs: int) -> None:
    """Count pods of a job, by group, that have got nodes (or have lost them: negative), and 1 if these are the first of
    the job (-1 if they were the last)."""
    if not job.slots.done:
        _count_pods(state.queue_use, queue_of(state, job), job, pods, jobs)
    if min(pods.values(), default=0) < 0:
        state.note_room()


def count_jobs(state: State, jobs: Iterable[JobRecord], sign: int) -> None:
    """Count all pods with nodes of some jobs in the queues that these have now; with the sign -1 no longer."""
    for job in jobs:
        _count_job(state.queue_use, queue_of(state, job), job, sign)


def end_use(state: State, job: JobRecord) -> None:
    """The pods of a job show that it has succeeded: from now on its queue doesn't count what it has. Else others would
    take the room of its pods before jobs that its queue's limits and shares keep waiting for that end."""
    if not job.slots.done:
        count_jobs(state, [job], -1)
        job.slots.done = True


def begin_use(state: State, job: JobRecord) -> None:
    """Undo `end_use`, as the job enters another stage."""
    if job.slots.done:
        job.slots.done = False
        count_jobs(state, [job], 1)


def hold_pod(state: State, pod: PodSeen) -> None:
    """Count what an observed pod holds on its node from now on."""
    state.nodes.hold(pod.node, pod.requests)
    count_other(state, pod, 1)


def release_pod(state: State, pod: PodSeen) -> None:
    """Undo `hold_pod`."""
    state.nodes.release(pod.node, pod.requests)
    count_other(state, pod, -1)


def count_other(state: State, pod: PodSeen, sign: int) -> None:
    """Count what a pod has on its node if it is another program's; with the sign -1 no longer."""
    if is_other(pod):
        state.queue_use.add_other(pod, sign)
        if sign < 0 and not pod.deleting:
            state.note_room()


def same_use(one: PodSeen, other: PodSeen) -> bool:
    """Whether two observations of a pod that holds its node both times count the same."""
    same = one.node == other.node and one.requests == other.requests
    return same and is_other(one) == is_other(other)


def is_other(pod: PodSeen) -> bool:
    """Whether a pod is another program's: no TYJob owns it, and another scheduler placed it."""
    return pod.owner is None and pod.asks is None


def pods_of_others(state: State) -> Counter[tuple[str, Requests]]:
    """How many pods of other programs hold their node, by the node and what each requests: most of a node request the
    same."""
    return Counter([(pod.node, pod.requests) for pod in state.pods.values() if is_other(pod) and holds(pod)])


def count_all(state: State, others: Mapping[tuple[str, Requests], int]) -> None:
    """Count again what all queues use, and other programs with these pods."""
    found = used(state, others)
    state.queue_use.others, state.queue_use.others_total = found.others, found.others_total
    state.queue_use.replace(found.own)
    state.queue_use.replace_non_preemptible(found.non_preemptible)


def limits_non_preemptible(queue: QueueSeen | None) -> bool:
    """Whether a queue limits what its jobs use that can't be preempted."""
    return queue is not None and queue.spec is not None and bool(queue.spec.most_non_preemptible)


def follow_limits(state: State) -> None:
    """Begin or end to count what can't be preempted, as soon as some queue limits it, or none does any more."""
    if any(map(limits_non_preemptible, state.queues.values())) != (state.queue_use.non_preemptible is not None):
        state.queue_use.replace_non_preemptible(used(state, {}).non_preemptible)


def used(state: State, others: Mapping[tuple[str, Requests], int]) -> QueueUse:
    """What all queues use, counted from the jobs, and other programs with these pods."""
    use = QueueUse(non_preemptible={} if any(map(limits_non_preemptible, state.queues.values())) else None)
    use.add_others(others)
    for job in state.jobs.values():
        _count_job(use, queue_of(state, job), job, 1)
    return use


def sum_of(job: JobRecord, slots: Collection[SlotKey]) -> dict[str, int]:
    """What the pods of these slots request together."""
    return sum_by_group(job, Counter(map(itemgetter(0), slots)))


def sum_by_group(job: JobRecord, pods: Mapping[int, int]) -> dict[str, int]:
    """What so many pods of each group request together."""
    amounts: dict[str, int] = {}
    for group, count in pods.items():
        for resource, amount in job.valid_spec.groups[group].shape.requests:
            amounts[resource] = amounts.get(resource, 0) + amount * count
    return amounts


def least_requested(spec: JobSpec) -> dict[str, int]:
    """What the smallest quorum requests, whichever sets provide its workers."""
    leader, sets = spec.groups[LEADER_GROUP], spec.groups[LEADER_GROUP + 1 :]
    amounts: dict[str, int] = {}
    for group, count in ((leader, leader.count), *((of, of.least) for of in sets)):
        for resource, amount in group.shape.requests:
            amounts[resource] = amounts.get(resource, 0) + amount * count
    more = max(spec.min_workers - sum(of.least for of in sets), 0)
    each = [dict(of.shape.requests) for of in sets]
    for resource in each[0] if each else ():
        amounts[resource] = amounts.get(resource, 0) + more * min(of.get(resource, 0) for of in each)
    return amounts


def _count_job(use: QueueUse, queue: str, job: JobRecord, sign: int) -> None:
    if job.placements and job.spec is not None and not job.slots.done:
        pods: dict[int, int] = {}
        for group, _ in job.placements:
            pods[group] = pods.get(group, 0) + sign
        _count_pods(use, queue, job, pods, sign)


def _count_pods(use: QueueUse, queue: str, job: JobRecord, pods: Mapping[int, int], jobs: int) -> None:
    groups = job.valid_spec.groups
    non_preemptible = use.non_preemptible is not None and not job.valid_spec.preemptible
    for group, count in pods.items():
        use.add(queue, groups[group].shape.requests, count)
        if non_preemptible:
            use.add_non_preemptible(queue, groups[group].shape.requests, count)
    if jobs:
        use.add(queue, ONE_JOB, jobs)
