"""Schedules of plain rules, simulated independently of Arranger: what its own schedules are compared with.

    FIFO           The first job waits until it fits, and all others behind it.
    first fit      Jobs are tried in order at each moment, and one that doesn't fit blocks nobody; nothing is reserved.
    EASY           Lifka, "The ANL/IBM SP Scheduling System", JSSPP 1995, as restated by Mu'alem and Feitelson, IEEE
                   TPDS 12(6), 2001: when the first job doesn't fit, it gets the earliest time at which it will
                   (*shadow time*), by the estimates of running jobs. Another job may start now if it ends before that
                   time by its own estimate, or if it takes only what the first job leaves then (*extra*).

The published EASY counts processors of one machine. Here jobs also need several resources at once (GPUs, CPU, memory)
on one node. With one node, this is the published algorithm. With several, the first job's node at the shadow time is
the one that is the first to have room, and other nodes are free for all. A job takes the node that it leaves the
fewest GPUs on (then CPU, memory), as a packing scheduler does.

Estimates are durations, or drawn: uniform in [r, (f + 1) r] for a duration r (f-model; Feitelson and Weil 1998, Mu'alem
and Feitelson 2001). A job never outlives its estimate here.
"""

import heapq
import random
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from itertools import islice
from typing import NamedTuple

from benchmarks.trace_jobs import TraceJob

#: GPUs, CPU in thousandths of a core, memory in MiB: of a job, or what is free on a node.
Amounts = tuple[int, int, int]

#: Job name → seconds.
Seconds = dict[str, int]


class Rule(Enum):
    """Which jobs may start although others are before them."""

    FIFO = "FIFO"
    FIRST_FIT = "first fit"
    EASY = "EASY"


class Promise(NamedTuple):
    """A reservation, as it was first given: the job, when, and the shadow time."""

    job: str
    given_s: int
    shadow_s: int


class Schedule(NamedTuple):
    """The seconds at which jobs started, and under EASY the first reservation of each job that had one."""

    starts_s: Seconds
    promises: tuple[Promise, ...]


class _Running(NamedTuple):
    end_s: int
    expected_end_s: int
    name: str
    node: int
    amounts: Amounts


class _Reservation(NamedTuple):
    """The node and the time for the first job, and what it leaves on that node then."""

    shadow_s: int
    node: int
    extra: Amounts


def amounts_of(job: TraceJob) -> Amounts:
    return job.gpus, job.cpu_milli, job.memory_mib


def drawn_estimates(jobs: Sequence[TraceJob], *, factor: float, seed: int = 1) -> Seconds:
    """Estimates by the f-model with this f, at least the duration, in whole seconds."""
    chance = random.Random(seed)
    return {job.name: round(job.lasts_s * (1 + chance.random() * factor)) for job in jobs}


def simulate(
    jobs: Sequence[TraceJob], nodes: Sequence[Amounts], rule: Rule, *, estimates_s: Mapping[str, int] | None = None
) -> Schedule:
    """Schedule jobs, given in the order of their submission, on empty nodes. Estimates are the durations by default.

    Raises ValueError for a job that no empty node could hold.
    """
    for job in jobs:
        if not any(_fits(amounts_of(job), node) for node in nodes):
            raise ValueError(f"no node can hold {job.name}: {amounts_of(job)}")
    machine = _Machine(nodes, rule, estimates_s or {job.name: job.lasts_s for job in jobs})
    coming = deque(jobs)
    while coming or machine.waiting:
        moments_s = [job.submitted_s for job in islice(coming, 1)] + [one.end_s for one in machine.running[:1]]
        now_s = min(moments_s)
        machine.end_due(now_s)
        while coming and coming[0].submitted_s <= now_s:
            machine.waiting.append(coming.popleft())
        machine.start(now_s)
    return Schedule(machine.starts_s, tuple(machine.promises.values()))


class _Machine:
    """The nodes with what is free on each, the running jobs by their ends, and the waiting ones in their order."""

    def __init__(self, nodes: Sequence[Amounts], rule: Rule, estimates_s: Mapping[str, int]) -> None:
        self._free = list(nodes)
        self._rule = rule
        self._estimates_s = estimates_s
        self.running: list[_Running] = []
        self.waiting: list[TraceJob] = []
        self.starts_s: Seconds = {}
        self.promises: dict[str, Promise] = {}

    def end_due(self, now_s: int) -> None:
        while self.running and self.running[0].end_s <= now_s:
            ended = heapq.heappop(self.running)
            self._free[ended.node] = _sum(self._free[ended.node], ended.amounts)

    def start(self, now_s: int) -> None:
        """Start every job that the rule lets start now."""
        first = 0
        while first < len(self.waiting) and (node := self._best(amounts_of(self.waiting[first]))) is not None:
            self._run(self.waiting[first], node, now_s)
            first += 1
        del self.waiting[:first]
        if not self.waiting or self._rule is Rule.FIFO:
            return
        started = set(self._first_fit(now_s) if self._rule is Rule.FIRST_FIT else self._backfill(now_s))
        self.waiting = [job for job in self.waiting if job.name not in started]

    def _first_fit(self, now_s: int) -> Iterator[str]:
        failed: set[Amounts] = set()  # what is free only shrinks within a moment
        for job in self.waiting[1:]:
            amounts = amounts_of(job)
            node = None if amounts in failed else self._best(amounts)
            if node is None:
                failed.add(amounts)
            else:
                self._run(job, node, now_s)
                yield job.name

    def _backfill(self, now_s: int) -> Iterator[str]:
        head = self.waiting[0]
        shadow_s, reserved, extra = self._reservation(amounts_of(head))
        self.promises.setdefault(head.name, Promise(head.name, now_s, shadow_s))
        failed: set[Amounts] = set()
        for job in self.waiting[1:]:
            amounts = amounts_of(job)
            if amounts in failed:
                continue
            if self._best(amounts) is None:
                failed.add(amounts)
                continue
            in_time = now_s + self._estimates_s[job.name] <= shadow_s
            # Without an end in time, the reserved node is one of its nodes only if it takes the extra there.
            node = self._best(amounts, but=None if in_time or _fits(amounts, extra) else reserved)
            if node is None:
                continue
            if node == reserved and not in_time:
                extra = _difference(extra, amounts)
            self._run(job, node, now_s)
            yield job.name

    def _reservation(self, amounts: Amounts) -> _Reservation:
        """The earliest expected time at which a node has room; of several such nodes the first."""
        free = list(self._free)
        ends = sorted(self.running, key=lambda one: one.expected_end_s)
        for at, ended in enumerate(ends):
            free[ended.node] = _sum(free[ended.node], ended.amounts)
            if at + 1 < len(ends) and ends[at + 1].expected_end_s == ended.expected_end_s:
                continue  # all that ends at this time is free then
            for node, there in enumerate(free):
                if _fits(amounts, there):
                    return _Reservation(ended.expected_end_s, node, _difference(there, amounts))
        raise AssertionError("an empty node can hold each job")

    def _best(self, amounts: Amounts, *, but: int | None = None) -> int | None:
        """The node that the job leaves the least free; None if no node has room."""
        nodes = [node for node, free in enumerate(self._free) if node != but and _fits(amounts, free)]
        return min(nodes, key=lambda node: (self._free[node], node), default=None)

    def _run(self, job: TraceJob, node: int, now_s: int) -> None:
        amounts, estimate_s = amounts_of(job), self._estimates_s[job.name]
        self._free[node] = _difference(self._free[node], amounts)
        self.starts_s[job.name] = now_s
        heapq.heappush(self.running, _Running(now_s + job.lasts_s, now_s + estimate_s, job.name, node, amounts))


def _fits(amounts: Amounts, free: Amounts) -> bool:
    return amounts[0] <= free[0] and amounts[1] <= free[1] and amounts[2] <= free[2]


def _sum(one: Amounts, other: Amounts) -> Amounts:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]


def _difference(one: Amounts, other: Amounts) -> Amounts:
    return one[0] - other[0], one[1] - other[1], one[2] - other[2]
