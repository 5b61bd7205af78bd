"""Room that pods leave, on one cycle's view: released in order to see what then fits, and taken again.

A pod that leaves uses no node, no capability of its queue, and is in no other pod's way. ResourceQuotas count it until
it is gone.
"""

from collections.abc import Iterable
from operator import attrgetter
from typing import NamedTuple

from arranger.events.kinds import PodSeen
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

    def of_job(self, job: JobRecord, slots: tuple[SlotKey, ...], *, whole: bool) -> Vacated:
        """What these slots of a job leave; with `whole` the job has no nodes any more."""
        pods = []
        for slot in slots:
            uid = job.bound.get(slot)
            pod = self._state.pods[uid] if uid is not None else None
            if pod is None:
                pods.append((job.placements[slot], requests_of(job, slot), neighbour_of(job, slot[0])))
            elif holds(pod):
                pods.append((pod.node, pod.requests, of_pod(pod)))
        use = [*sum_of(job, slots).items(), *([(JOBS, 1)] if whole else [])]
        return self._vacated(pods, queue_of(self._state, job), tuple(use))

    def of_pods(self, pods: Iterable[PodSeen]) -> Vacated:
        """What pods leave that count in no queue any more."""
        return self._vacated([(pod.node, pod.requests, of_pod(pod)) for pod in pods], "", ())

    def _vacated(
        self, pods: Iterable[tuple[str, Requests, Neighbour]], queue: str, use: tuple[tuple[str, int], ...]
    ) -> Vacated:
        view = self._placing.view
        rows, rooms, seen = view.node_index.rows(), dict[int, Amounts](), []
        for node, requests, pod in pods:
            row = rows.get(node)
            if row is None:
                continue
            amounts = view.amounts(requests)
            rooms[row] = rooms[row] + amounts if row in rooms else amounts
            if view.neighbours is not None and view.neighbours.knows(pod):
                seen.append((pod, row))
        return Vacated(tuple(rooms.items()), tuple(seen), queue, use)

    def release(self, vacated: Vacated) -> None:
        """Let the pods leave."""
        self._placing.view.shift(vacated.rooms, vacated.pods, 1)
        self._placing.quotas.release(vacated.queue, vacated.use, 1)

    def take_again(self, vacated: Vacated, *, use: bool = True) -> None:
        """Let the pods be there again; without `use` their queue doesn't count them any more."""
        self._placing.view.shift(vacated.rooms, vacated.pods, -1)
        if use:
            self._placing.quotas.release(vacated.queue, vacated.use, -1)


def leaving(state: State) -> list[PodSeen]:
    """Pods of TYJobs that leave anyway, by UID: they fill no slot of their job any more, or it is gone."""
    found: list[PodSeen] = []
    for uid, pods in state.pods_of.items():
        job = state.jobs.get(uid)
        if job is None or len(pods) > len(job.bound):
            found += [pod for pod in pods.values() if leaves(state, pod)]
    return sorted(found, key=_by_uid)


_by_uid = attrgetter("uid")
