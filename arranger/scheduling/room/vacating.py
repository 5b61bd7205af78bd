"""Room that pods leave, on one cycle's view: released in order to see what then fits, and taken again.

A pod that leaves uses no node, no capability of its queue, and is in no other pod's way. ResourceQuotas count it until
it is gone.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from arranger.events.kinds import PodSeen
from arranger.model.job import DEFAULT_GRACE_S
from arranger.projections.cluster.nodes import Amounts, Requests
from arranger.projections.derived.departing import finishes_by_ms, grace_of, hanging, leave_by_ms, next_hanging_ms
from arranger.projections.derived.queue_counts import queue_of, sum_by_group, sum_of
from arranger.projections.jobs.parts import SlotKey
from arranger.projections.jobs.records import JobRecord, holds, requests_of
from arranger.projections.queues.use import JOBS, offered_amounts
from arranger.projections.state import State
from arranger.projections.verdicts.ownership import awaits_own_pods, earlier_gone_ms, earlier_pods
from arranger.projections.verdicts.preemption import leaves
from arranger.scheduling.cluster.neighbours import Neighbour, neighbour_of, of_pod
from arranger.scheduling.cluster.view import Levels, Mask, Rows, add_to
from arranger.scheduling.placing.placement_try import Piece
from arranger.scheduling.placing.pods import Placing
from arranger.scheduling.queues.dominant_shares import pods_by_group
from arranger.scheduling.queues.known_jobs import KnownPart, RowRooms
from arranger.scheduling.queues.offer import closed_nodes


class Vacated(NamedTuple):
    """What some pods leave: rows of the view with amounts, the pods as others see them, and the use of a queue."""

    rooms: RowRooms
    pods: tuple[tuple[Neighbour, int], ...]
    queue: str
    use: tuple[tuple[str, int], ...]


class Departing:
    """Pods that leave one after the other, their rooms also as columns: a row, and amounts."""

    def __init__(self) -> None:
        self._leaving: list[Vacated] = []
        self._rows: Rows = np.zeros(0, np.int64)
        self._amounts: Amounts = np.zeros((0, 0), np.int64)
        #: For each row, the place of the one whose room it is.
        self._whose: Rows = np.zeros(0, np.int64)
        #: The number of rooms of the first so many.
        self._ends: list[int] = [0]
        #: How many are in the columns already.
        self._joined = 0

    def __len__(self) -> int:
        return len(self._leaving)

    def __getitem__(self, at: int) -> Vacated:
        return self._leaving[at]

    def extend(self, vacated: Iterable[Vacated]) -> None:
        """Add the next ones."""
        first = len(self._leaving)
        self._leaving += vacated
        for of in self._leaving[first:]:
            self._ends.append(self._ends[-1] + len(of.rooms.rows))

    def _join(self) -> None:
        if self._joined < len(self._leaving):
            added = [of.rooms for of in self._leaving[self._joined :] if len(of.rooms.rows)]
            self._joined = len(self._leaving)
            self._whose = np.repeat(np.arange(self._joined), np.diff(self._ends))
            parts = added if not len(self._rows) else [RowRooms(self._rows, self._amounts), *added]
            if added:
                self._rows = np.concatenate([of.rows for of in parts])
                self._amounts = np.concatenate([of.amounts for of in parts])

    def rooms(self, first: int, last: int) -> tuple[Rows, Amounts]:
        """Rows and amounts of those from `first` on, before `last`."""
        self._join()
        part = slice(self._ends[first], self._ends[last])
        return self._rows[part], self._amounts[part]

    def of(self, which: Sequence[int]) -> tuple[Rows, Amounts]:
        """Rows and amounts of these."""
        self._join()
        chosen = np.zeros(len(self), np.bool_)
        chosen[which] = True
        rooms = chosen[self._whose]
        return self._rows[rooms], self._amounts[rooms]

    def on(self, rows: Sequence[int], count: int) -> Mask:
        """For each, whether it has room on one of these of so many rows."""
        self._join()
        there = np.zeros(count, np.bool_)
        there[rows] = True
        found = np.zeros(len(self), np.bool_)
        found[self._whose[there[self._rows]]] = True
        return found


class Vacating:
    """Releases room on the view of one cycle."""

    def __init__(self, state: State, placing: Placing) -> None:
        self._state = state
        self._placing = placing
        config = placing.config
        #: The pods that were to be gone and aren't. They leave nothing.
        self.hanging: frozenset[str] = frozenset()
        if state.deleting or state.orphaned:
            self.hanging = hanging(state, placing.time_ms, config.room_bound_ms)
        #: Requests → the room that one pod with them uses.
        self._each: dict[Requests, Amounts] = {}

    @property
    def next_hanging_ms(self) -> float:
        """When the next pod isn't expected to leave any more, in milliseconds since 1970; infinite if none is."""
        placing = self._placing
        return next_hanging_ms(self._state, placing.time_ms, placing.config.room_bound_ms)

    @cached_property
    def leaving(self) -> list[PodSeen]:
        """The pods that leave anyway in this cycle."""
        found = leaving(self._state)
        return [pod for pod in found if pod.uid not in self.hanging] if self.hanging else found

    @cached_property
    def ending(self) -> list[JobRecord]:
        """The jobs that give up all their nodes, whoever wants them."""
        known_jobs = self._placing.jobs
        return [job for job in self._state.jobs.values() if job.placements and known_jobs.of(job).ends]

    @cached_property
    def finishing(self) -> dict[str, int]:
        """UID → jobs that are about to end because some of their workers have finished, and until when that is so, in
        milliseconds since 1970."""
        ending = {job.uid for job in self.ending}
        some = [job for job in self._state.jobs.values() if job.slots.finished and job.placements]
        by_ms = {job.uid: finishes_by_ms(job, self._placing.time_ms) for job in some if job.uid not in ending}
        return {uid: end_ms for uid, end_ms in by_ms.items() if end_ms}

    def deleted(self, counted: Iterable[PodSeen]) -> list[PodSeen]:
        """The pods that are being deleted, but those that are counted and those of jobs that end. Pods of others may
        have any grace period: only those count that are to be gone soon."""
        if not self._state.deleting:
            return []
        without = {pod.uid for pod in counted}.union(self.hanging, *(job.bound.values() for job in self.ending))
        pods = [self._state.pods[uid] for uid in self._state.deleting if uid not in without]
        soon_ms = self._placing.time_ms + self._placing.config.room_bound_ms
        return [pod for pod in pods if holds(pod) and (pod.owner is not None or 0 < pod.times.leave_by_ms <= soon_ms)]

    def own_gone_ms(self, job: JobRecord) -> int:
        """When a job's own pods of an earlier attempt are to have left, for which it waits, in milliseconds since 1970;
        0 if it waits for none."""
        return earlier_gone_ms(self._state, job) if awaits_own_pods(self._state, job) else 0

    def own_pods(self, job: JobRecord) -> list[PodSeen]:
        """These pods, as far as they hold room."""
        return [pod for pod in earlier_pods(self._state, job) if holds(pod)]

    def left_by_ms(self, pods: Iterable[PodSeen]) -> int:
        """When the grace periods of these pods are over if they leave now, in milliseconds since 1970; 0 of none."""
        return max((leave_by_ms(self._state, pod, self._placing.time_ms) for pod in pods), default=0)

    def use_of(self, job: JobRecord) -> tuple[str, tuple[tuple[str, int], ...]]:
        """The queue of a job with nodes, and what it leaves of its limits."""
        known = self._placing.jobs.of(job)
        return known.queue, self._use(job, known.part(known.slots), whole=True)

    def _use(self, job: JobRecord, part: KnownPart, *, whole: bool) -> tuple[tuple[str, int], ...]:
        """What a part of a job leaves of the limits of queues. What it has on nodes that aren't open is then offered no
        more, so nobody gets it on others, out of what is guaranteed."""
        quotas = self._placing.quotas
        if not quotas.of_queues or job.slots.done:
            return ()
        use = (*quotas.counted(job, part.amounts), *(((JOBS, 1),) if whole else ()))
        closed = self._closed
        if not quotas.guarantees or not closed or closed.isdisjoint(job.placements.values()):
            return use
        there = [of for of in part.slots if job.placements.get(of) in closed]
        return (*use, *offered_amounts(sum_of(job, there).items()))

    @cached_property
    def _closed(self) -> frozenset[str]:
        return closed_nodes(self._state.nodes)

    def of_whole(self, job: JobRecord) -> Vacated:
        """What a job leaves that has no nodes any more."""
        return self.of_job(job, self._placing.jobs.of(job).slots, whole=True)

    def of_job(self, job: JobRecord, slots: tuple[SlotKey, ...], *, whole: bool) -> Vacated:
        """What these slots of a job leave; with `whole` the job has no nodes any more."""
        known = self._placing.jobs.of(job)
        part = known.part(slots)
        use = self._use(job, part, whole=whole)
        if self._placing.view.neighbours is None:
            return Vacated(self._rooms_of(job, part), (), known.queue, use)
        held = [*self._held(job, slots)]
        seen = [
            (of_pod(self._state, pod) if pod is not None else neighbour_of(job, group), node)
            for group, pod, node, _ in held
        ]
        return self._vacated([(node, requests, 1) for _, _, node, requests in held], seen, known.queue, use)

    def of_pieces(self, job: JobRecord, pieces: Sequence[Piece]) -> Vacated:
        """What a job leaves of that which it got in this cycle."""
        groups, names, use = job.valid_spec.groups, self._placing.view.names, tuple[tuple[str, int], ...]()
        if self._placing.quotas.of_queues:
            amounts = sum_by_group(job, pods_by_group(pieces))
            use = (*self._placing.quotas.counted(job, amounts), *(((JOBS, 1),) if not job.placements else ()))
        held = [(names[of.row], groups[of.group].shape.requests, len(of.indices)) for of in pieces]
        seen = pieces if self._placing.view.neighbours is not None else ()
        pods = [(neighbour_of(job, of.group), names[of.row]) for of in seen for _ in of.indices]
        return self._vacated(held, pods, queue_of(self._state, job), use)

    def _rooms_of(self, job: JobRecord, part: KnownPart) -> RowRooms:
        """What the pods of a part of a job leave together."""
        if self.hanging and not self.hanging.isdisjoint(job.bound.values()):  # it isn't so for good
            return self._rooms(self._counts(job, part.slots))
        if part.rooms is None:
            part.rooms = self._rooms(self._counts(job, part.slots))
        return part.rooms

    def sum_of(self, jobs: Iterable[JobRecord]) -> Levels:
        """What all pods of these jobs use, by row of the view and resource. Don't modify it."""
        known_jobs = self._placing.jobs
        return known_jobs.sum_of(
            map(known_jobs.of, jobs),
            self._placing.view.free.shape,
            lambda known: self._rooms_of(known.job, known.whole),
        )

    def in_all(self, vacated: Iterable[Vacated]) -> Amounts:
        """What all of these leave together, by row of the view and resource."""
        departing = Departing()
        departing.extend(vacated)
        found = np.zeros_like(self._placing.view.free)
        add_to(found, *departing.rooms(0, len(departing)))
        return found.astype(np.int64)

    def _counts(self, job: JobRecord, slots: tuple[SlotKey, ...]) -> list[tuple[str, Requests, int]]:
        """Nodes and requests with the number of these pods. Most pods request what their group does, and are counted by
        group, because that is cheaper to compare."""
        groups, found = job.valid_spec.groups, list[tuple[str, Requests, int]]()
        counts: dict[tuple[str, int], int] = {}
        for group, _, node, requests in self._held(job, slots):
            if requests == groups[group].shape.requests:
                counts[node, group] = counts.get((node, group), 0) + 1
            else:
                found.append((node, requests, 1))
        return [*found, *((node, groups[group].shape.requests, count) for (node, group), count in counts.items())]

    def _held(self, job: JobRecord, slots: tuple[SlotKey, ...]) -> Iterator[tuple[int, PodSeen | None, str, Requests]]:
        """For each slot whose pod holds room: its group, the pod if there is one, its node and requests."""
        bound, pods = job.bound, self._state.pods
        for slot in slots:
            uid = bound.get(slot)
            if uid is None:
                yield slot[0], None, job.placements[slot], requests_of(job, slot)
            elif holds(pod := pods[uid]) and uid not in self.hanging:
                yield slot[0], pod, pod.node, pod.requests

    def of_pods(self, pods: Sequence[PodSeen]) -> Vacated:
        """What pods leave that count in no queue any more."""
        return self._vacated(
            [(pod.node, pod.requests, 1) for pod in pods],
            [(of_pod(self._state, pod), pod.node) for pod in pods],
            "",
            (),
        )

    def of_assumed(self) -> Iterator[Vacated]:
        """What is kept for pods that may still come, until it is clear that they don't."""
        for pod in self._state.assumed.values():
            if pod.until_ms > self._placing.time_ms:
                rooms = self._rooms([(pod.node, pod.requests, 1)])
                yield Vacated(rooms, (), "", ())

    def _vacated(
        self,
        held: Iterable[tuple[str, Requests, int]],
        seen: Sequence[tuple[Neighbour, str]],
        queue: str,
        use: tuple[tuple[str, int], ...],
    ) -> Vacated:
        view = self._placing.view
        rows, seen_here, others = view.node_index.rows(), [], view.neighbours
        for pod, node in seen if others is not None else ():
            if others is not None and others.knows(pod) and node in rows:
                seen_here.append((pod, rows[node]))
        return Vacated(self._rooms(held), tuple(seen_here), queue, use)

    def _rooms(self, held: Iterable[tuple[str, Requests, int]]) -> RowRooms:
        """What so many pods with these nodes and requests use together, by row."""
        view, rooms = self._placing.view, dict[int, Amounts]()
        rows = view.node_index.rows()
        for node, requests, count in held:
            row = rows.get(node)
            if row is not None:
                each = self._each.get(requests)
                if each is None:
                    each = self._each[requests] = view.amounts(requests)
                amounts = each * count
                rooms[row] = rooms[row] + amounts if row in rooms else amounts
        return RowRooms.of(rooms)

    def helpful_nodes(
        self, job: JobRecord, others: Iterable[tuple[JobRecord, Iterable[SlotKey]]], levels: Levels | None = None
    ) -> list[str]:
        """The nodes with room for a pod of a job if these slots of others left, in the order of jobs and slots; as the
        view is, or with these `levels` of free amounts."""
        view, counts = self._placing.view, dict[tuple[str, Requests], int]()
        free = view.free if levels is None else levels
        for of, slots in others:
            for slot in sorted(slots):  # their own order isn't the same in a restored state
                key = (of.placements[slot], requests_of(of, slot))
                counts[key] = counts.get(key, 0) + 1
        asked = [view.request(group.shape) for group in job.valid_spec.groups if group.count]
        rooms = self._rooms((node, requests, count) for (node, requests), count in counts.items())
        return [
            view.names[row]
            for row, amounts in zip(*rooms, strict=True)
            if any((free[row] + amounts >= each)[each > 0].all() for each in asked)
        ]

    @contextmanager
    def released(self, vacated: Sequence[Vacated]) -> Iterator[None]:
        """The view as if these had left, for a while."""
        for each in vacated:
            self.release(each)
        try:
            yield
        finally:
            for each in vacated:
                self.take_again(each)

    def release(self, vacated: Vacated) -> None:
        """Let the pods leave."""
        self._placing.view.shift(*vacated.rooms, vacated.pods, 1)
        self._placing.quotas.release(vacated.queue, vacated.use, 1)

    @property
    def by_room_alone(self) -> bool:
        """Whether pods that leave change nothing but the free amounts of their nodes."""
        return self._placing.view.neighbours is None and not self._placing.quotas.of_queues

    def take_all_again(self, departing: Departing, which: Sequence[int]) -> None:
        """Let these be there again, if they leave by room alone."""
        self._placing.view.shift_all(*departing.of(which), -1)

    def release_some(self, departing: Departing, first: int, last: int, sign: int = 1) -> None:
        """Let those from `first` on, before `last`, leave, or with the sign -1 be there again."""
        view = self._placing.view
        if self.by_room_alone:
            view.shift_all(*departing.rooms(first, last), sign)
            return
        for at in range(first, last):
            if sign > 0:
                self.release(departing[at])
            else:
                self.take_again(departing[at])

    def take_again(self, vacated: Vacated, *, use: bool = True) -> None:
        """Let the pods be there again; without `use` their queue doesn't count them any more."""
        self._placing.view.shift(*vacated.rooms, vacated.pods, -1)
        if use:
            self._placing.quotas.release(vacated.queue, vacated.use, -1)


def grace_ms(state: State, slots: Iterable[tuple[JobRecord, SlotKey]], pods: Iterable[PodSeen]) -> int:
    """The longest grace period, in milliseconds, of pods in these slots and of pods that leave anyway. A pod that is
    being deleted has begun its own, which isn't longer."""
    seconds = [job.valid_spec.groups[slot[0]].grace_s for job, slot in slots]
    seconds += [grace_of(state, pod) for pod in pods]
    return max(seconds, default=DEFAULT_GRACE_S) * 1000


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
