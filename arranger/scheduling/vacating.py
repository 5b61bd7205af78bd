"""Room that pods leave, on one cycle's view: released in order to see what then fits, and taken again.

A pod that leaves uses no node, no capability of its queue, and is in no other pod's way. ResourceQuotas count it until
it is gone.
"""

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

from arranger.events.kinds import PodSeen
from arranger.model.job import DEFAULT_GRACE_S
from arranger.projections.job_parts import SlotKey
from arranger.projections.jobs import JobRecord, holds, requests_of
from arranger.projections.nodes import Amounts, Requests
from arranger.projections.preemption import leaves
from arranger.projections.queue_use import JOBS, queue_of, sum_of
from arranger.projections.state import State
from arranger.scheduling.neighbours import Neighbour, neighbour_of, of_pod
from arranger.scheduling.placing import Placing


class Vacated(NamedTuple):
    """What some pods leave: rows of the view with amounts, the pods as others see them, and the use of a queue."""

    rooms: tuple[tuple[int, Amounts], ...]
    pods: tuple[tuple[Neighbour, int], ...]
    queue: str
    use: tuple[tuple[str, int], ...]


class Vacating:
    """Releases room on the view of one cycle."""

    def __init__(self, state: State, placing: Placing) -> None:
        self._state = state
        self._placing = placing
        #: Requests → the room that one pod with them uses.
        self._each: dict[Requests, Amounts] = {}

    def of_job(self, job: JobRecord, slots: tuple[SlotKey, ...], *, whole: bool) -> Vacated:
        """What these slots of a job leave; with `whole` the job has no nodes any more."""
        counts: dict[tuple[str, Requests], int] = {}
        seen: list[tuple[Neighbour, str]] = []
        bound, pods, others = job.bound, self._state.pods, self._placing.view.neighbours is not None
        for slot in slots:
            uid = bound.get(slot)
            pod = pods[uid] if uid is not None else None
            if pod is not None and not holds(pod):
                continue
            key = (pod.node, pod.requests) if pod is not None else (job.placements[slot], requests_of(job, slot))
            counts[key] = counts.get(key, 0) + 1
            if others:
                seen.append((of_pod(pod) if pod is not None else neighbour_of(job, slot[0]), key[0]))
        use = [*sum_of(job, slots).items(), *([(JOBS, 1)] if whole else [])] if self._placing.quotas.of_queues else []
        return self._vacated(counts, seen, queue_of(self._state, job), tuple(use))

    def of_pods(self, pods: Sequence[PodSeen]) -> Vacated:
        """What pods leave that count in no queue any more."""
        counts: dict[tuple[str, Requests], int] = {}
        for pod in pods:
            counts[pod.node, pod.requests] = counts.get((pod.node, pod.requests), 0) + 1
        return self._vacated(counts, [(of_pod(pod), pod.node) for pod in pods], "", ())

    def _vacated(
        self,
        counts: Mapping[tuple[str, Requests], int],
        seen: Sequence[tuple[Neighbour, str]],
        queue: str,
        use: tuple[tuple[str, int], ...],
    ) -> Vacated:
        view = self._placing.view
        rows, rooms = view.node_index.rows(), dict[int, Amounts]()
        for (node, requests), count in counts.items():
            row = rows.get(node)
            if row is not None:
                each = self._each.get(requests)
                if each is None:
                    each = self._each[requests] = view.amounts(requests)
                amounts = each * count
                rooms[row] = rooms[row] + amounts if row in rooms else amounts
        known, others = [], view.neighbours
        for pod, node in seen if others is not None else ():
            if others is not None and others.knows(pod) and node in rows:
                known.append((pod, rows[node]))
        return Vacated(tuple(rooms.items()), tuple(known), queue, use)

    def helpful_nodes(self, job: JobRecord, others: Iterable[JobRecord]) -> list[str]:
        """The nodes with room for a pod of a job if all these others left, in their order."""
        view, counts = self._placing.view, dict[tuple[str, Requests], int]()
        for of in others:
            for slot, node in of.placements.items():
                key = (node, requests_of(of, slot))
                counts[key] = counts.get(key, 0) + 1
        asked = [view.request(group.shape) for group in job.valid_spec.groups if group.count]
        return [
            view.names[row]
            for row, amounts in self._vacated(counts, [], "", ()).rooms
            if any((view.free[row] + amounts >= each)[each > 0].all() for each in asked)
        ]

    def release(self, vacated: Vacated) -> None:
        """Let the pods leave."""
        self._placing.view.shift(vacated.rooms, vacated.pods, 1)
        self._placing.quotas.release(vacated.queue, vacated.use, 1)

    def take_again(self, vacated: Vacated, *, use: bool = True) -> None:
        """Let the pods be there again; without `use` their queue doesn't count them any more."""
        self._placing.view.shift(vacated.rooms, vacated.pods, -1)
        if use:
            self._placing.quotas.release(vacated.queue, vacated.use, -1)


def grace_ms(state: State, slots: Iterable[tuple[JobRecord, SlotKey]], pods: Iterable[PodSeen]) -> int:
    """The longest grace period, in milliseconds, of pods in these slots and of pods that leave anyway."""
    seconds = [job.valid_spec.groups[slot[0]].grace_s for job, slot in slots]
    seconds += [_grace_of(state, pod) for pod in pods]
    return max(seconds, default=DEFAULT_GRACE_S) * 1000


def _grace_of(state: State, pod: PodSeen) -> int:
    """The grace period of a pod that leaves, in seconds. One that is being deleted has begun its own, which isn't
    longer."""
    job = state.jobs.get(pod.owner.job_uid) if pod.owner is not None else None
    groups = job.spec.groups if job is not None and job.spec is not None else ()
    of_group = (of.grace_s for of in groups if pod.owner is not None and of.name == pod.owner.group_name)
    return next(of_group, DEFAULT_GRACE_S)


def held_by(state: State, job: JobRecord, slots: Iterable[SlotKey]) -> list[PodSeen]:
    """The pods in these slots of a job that hold room."""
    pods = (state.pods[job.bound[slot]] for slot in slots if slot in job.bound)
    return [pod for pod in pods if holds(pod)]


def leaving(state: State) -> list[PodSeen]:
    """Pods of TYJobs that leave anyway, by UID: they fill no slot of their job any more, or it is gone."""
    found: list[PodSeen] = []
    for uid, pods in state.pods_of.items():
        job = state.jobs.get(uid)
        if job is None or len(pods) > len(job.bound):
            found += [pod for pod in pods.values() if leaves(state, pod)]
    return sorted(found, key=by_uid)


by_uid = attrgetter("uid")
