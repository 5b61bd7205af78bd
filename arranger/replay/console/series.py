"""How many GPUs were there and used, and how many jobs waited and ran, over the whole log."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter, itemgetter
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from arranger.model.accelerators import is_accelerator
from arranger.model.job import JobSpec
from arranger.model.pod import gpus_of
from arranger.projections.cluster.nodes import NodeTable
from arranger.projections.state import Assumed, Reservation, State
from arranger.replay.console.moment import runs, waits
from arranger.replay.reading.gpus import gpus_reserved

#: How many samples are kept at most, and into how many parts a log's time is divided when there are first more.
_SAMPLES, _PARTS = 32_768, 4_096
#: Of so many queues, those with the highest peaks, the lowest and highest values are kept; the console draws no more.
_QUEUES = 12


class Series(msgspec.Struct, frozen=True, rename="camel"):
    """The values after each entry that changed any, up to the next one; those of equal index belong together. Where
    there would be too many, each of equal parts of the time has the first, the last, and those in which a line is
    lowest and highest. Times in seconds since 1970; `queues` has the GPUs that each queue, with those below it, uses,
    and `queues_own` those that its own jobs use, both in the tree of queues of then: together the latter are what all
    queues use. Idle GPUs are used by nothing, on nodes that take pods; reserved ones and those beside used ones are
    those of `Totals`."""

    times: tuple[float, ...]
    offsets: tuple[int, ...]
    gpus: tuple[int, ...]
    gpus_used: tuple[int, ...]
    jobs_waiting: tuple[int, ...]
    jobs_running: tuple[int, ...]
    queues: dict[str, tuple[int, ...]]
    queues_own: dict[str, tuple[int, ...]]
    gpus_idle: tuple[int, ...]
    gpus_reserved: tuple[int, ...]
    gpus_beside_used: tuple[int, ...]
    complete: bool = True


class _Values(NamedTuple):
    gpus: int
    used: int
    idle: int
    beside_used: int
    reserved: int
    waiting: int
    running: int


class _Queues(NamedTuple):
    """The GPUs that each queue uses: with the queues below it, and its own jobs alone."""

    totals: Mapping[str, int]
    own: Mapping[str, int]


class _Sample(NamedTuple):
    """The cluster at one offset."""

    time_ms: int
    offset: int
    values: _Values
    queues: _Queues


_time_ms = attrgetter("time_ms")


class SeriesIndex:
    """Call `lapse` before each fold with the time of its entry, and `note` after it with the touched jobs."""

    def __init__(self) -> None:
        self._samples: list[_Sample] = []
        #: The length of the parts in milliseconds; 0 while all samples are kept. The last part begins with this sample.
        self._width_ms, self._part = 0, 0
        #: The UIDs of the jobs that wait, and of those that run.
        self._waiting: dict[str, None] = {}
        self._running: dict[str, None] = {}
        self._nodes = _NodeSums()
        #: Reservation of a job, with its spec and its GPUs.
        self._reserved: dict[str, tuple[Reservation, JobSpec | None, int]] = {}
        self._queues = _Queues({}, {})
        self._totals: Mapping[str, Mapping[str, int]] | None = None
        #: Queue → the most that it has used.
        self._peaks: dict[str, int] = {}
        #: The offset after which most jobs waited or ran, and of several most GPUs were used; 0 if none ever did.
        self.busiest = 0
        self._most = (1, -1)

    def note(self, state: State, touched: Iterable[str]) -> None:
        touched = tuple(touched)
        for uid in touched:
            self._waiting.pop(uid, None)
            self._running.pop(uid, None)
            job = state.jobs.get(uid)
            if job is not None and waits(job):
                self._waiting[uid] = None
            elif job is not None and runs(job):
                self._running[uid] = None
        if self._nodes.follow(state.nodes) or touched or state.queue_totals is not self._totals:
            self._note_queues(state)
        if not state.offset:  # before the first event there is no time
            return
        values = self._values(state)
        if self._samples:
            last = self._samples[-1]
            if last.values == values and (last.queues is self._queues or last.queues == self._queues):
                return
        self._add(_Sample(state.time_ms, state.offset, values, self._queues))

    def lapse(self, state: State, time_ms: int) -> None:
        """Note how assumed pods lapsed before a time, although no event came."""
        if state.assumed:
            for sample in self._lapses(state, time_ms - 1):
                self._add(sample)

    def series(
        self,
        points: int,
        state: State,
        *,
        complete: bool,
        now_ms: int = 0,
        since_ms: int | None = None,
        until_ms: int | None = None,
    ) -> Series:
        """At most so many samples, the last one of them of the present state; or those of a span of time, from the one
        with whose values it begins. `now_ms` is the present time, of a log to which others write."""
        found = self._samples
        if found and found[-1].offset < state.offset:
            found = [*found, found[-1]._replace(time_ms=state.time_ms, offset=state.offset)]
        if found and state.assumed:
            found = [*found, *self._lapses(state, now_ms)]
        if until_ms is not None:
            found = found[: bisect_right(found, until_ms, key=_time_ms) + 1]
        if since_ms is not None:
            found = found[max(bisect_right(found, since_ms, key=_time_ms) - 1, 0) :]
        found, _ = self._thinned(found, points, self._width_ms)
        if len(found) > points:
            found = [*found[: points - 1], found[-1]]
        columns = zip(*(one.values for one in found), strict=True) if found else [()] * len(_Values._fields)
        gpus, used, idle, beside_used, reserved, waiting, running = columns
        return Series(
            times=tuple([one.time_ms / 1000 for one in found]),
            offsets=tuple([one.offset for one in found]),
            gpus=gpus,
            gpus_used=used,
            jobs_waiting=waiting,
            jobs_running=running,
            queues=_lines([one.queues.totals for one in found]),
            queues_own=_lines([one.queues.own for one in found]),
            gpus_idle=idle,
            gpus_reserved=reserved,
            gpus_beside_used=beside_used,
            complete=complete,
        )

    def _lapses(self, state: State, time_ms: int) -> Iterator[_Sample]:
        """The samples from the times on at which assumed pods lapsed, up to a time: no entry is there to be noted."""
        gone: list[Assumed] = []
        for until_ms, pods in groupby(state.assumed_until(time_ms), attrgetter("until_ms")):
            gone += pods
            gpus, used, idle, beside_used = self._nodes.without(state.nodes, gone)
            values = self._values(state)._replace(gpus=gpus, used=used, idle=idle, beside_used=beside_used)
            yield _Sample(until_ms, state.offset, values, self._queues)

    def _add(self, sample: _Sample) -> None:
        busy = sample.values.waiting + sample.values.running, sample.values.used
        if busy > self._most:
            self._most, self.busiest = busy, sample.offset
        samples = self._samples
        if self._width_ms and self._number(sample) > self._number(samples[-1]):
            samples[self._part :] = self._telling(samples[self._part :])
            self._part = len(samples)
        samples.append(sample)
        if len(samples) > _SAMPLES:
            span_ms = samples[-1].time_ms - samples[0].time_ms
            width_ms = max(2 * self._width_ms, span_ms // _PARTS)
            self._samples, self._width_ms = self._thinned(samples, _SAMPLES // 2, width_ms)
            self._part = bisect_left(self._samples, self._number(self._samples[-1]), key=self._number)

    def _number(self, sample: _Sample) -> int:
        """The number of the part in which a sample is."""
        return (sample.time_ms - self._samples[0].time_ms) // self._width_ms

    def _thinned(self, samples: list[_Sample], most: int, width_ms: int) -> tuple[list[_Sample], int]:
        """At most so many of the samples, or those of a single part, and the length of the parts."""
        if len(samples) <= most:
            return samples, width_ms
        first_ms = samples[0].time_ms
        span_ms = samples[-1].time_ms - first_ms
        width_ms = max(width_ms, span_ms // most, 1)
        while True:
            numbers = [(one.time_ms - first_ms) // width_ms for one in samples]
            parts = groupby(zip(numbers, samples, strict=True), itemgetter(0))
            samples = [one for _, part in parts for one in self._telling([one for _, one in part])]
            if len(samples) <= most or width_ms > span_ms:
                return samples, width_ms
            width_ms *= 2  # what a part keeps is among what its halves keep

    def _telling(self, part: list[_Sample]) -> list[_Sample]:
        """The first and the last sample of a part, and those in which any line is lowest and highest."""
        if len(part) <= 2:
            return part
        lines: list[Sequence[int]] = [*zip(*(one.values for one in part), strict=True)]
        for name in self._highest():
            totals = [one.queues.totals.get(name, 0) for one in part]
            own = [one.queues.own.get(name, 0) for one in part]
            lines += [totals] if own == totals else [totals, own]
        kept = {0, len(part) - 1}
        for line in lines:
            low, high = min(line), max(line)
            if low != high:
                kept |= {line.index(low), line.index(high)}
        return [part[number] for number in sorted(kept)]

    def _highest(self) -> list[str]:
        """The queues whose lines are kept."""
        if len(self._peaks) <= _QUEUES:
            return list(self._peaks)
        return sorted(self._peaks, key=lambda name: (-self._peaks[name], name))[:_QUEUES]

    def _values(self, state: State) -> _Values:
        reserved = {}
        for uid, reservation in state.reservations.items():
            job = state.jobs.get(uid)
            spec = job.spec if job is not None else None
            known = self._reserved.get(uid)
            if known is None or known[0] is not reservation or known[1] is not spec:
                known = (reservation, spec, gpus_reserved(state, uid))
            reserved[uid] = known
        self._reserved = reserved
        in_all = sum(gpus for _, _, gpus in reserved.values())
        return _Values(*self._nodes.sums, in_all, len(self._waiting), len(self._running))

    def _note_queues(self, state: State) -> None:
        self._totals = state.queue_totals
        own = {name: gpus_of(amounts.items()) for name, amounts in state.queue_use.own.items()}
        # One without a way to the root has no totals, but its jobs may have nodes, as in `queues_view`.
        totals = own | {name: gpus_of(amounts.items()) for name, amounts in self._totals.items()}
        found = _Queues(totals, own)
        if found == self._queues:  # equal ones are kept once
            return
        self._queues = found
        self._note_peaks(found)

    def _note_peaks(self, queues: _Queues) -> None:
        for name, gpus in queues.totals.items():
            if gpus > self._peaks.get(name, -1):
                self._peaks[name] = gpus


def _lines(of: Sequence[Mapping[str, int]]) -> dict[str, tuple[int, ...]]:
    """The GPUs of each queue in one sample after the other."""
    names = sorted({name for one in of for name in one})
    return {name: tuple([one.get(name, 0) for one in of]) for name in names}


class _NodeSums:
    """`gpu_totals`, kept up to date by the rows that changed."""

    def __init__(self) -> None:
        self._changes = -1
        self._columns: list[int] = []
        self._of_rows: dict[int, tuple[int, int, int, int]] = {}
        #: GPUs, used, idle, and free beside used ones.
        self.sums = (0, 0, 0, 0)

    def follow(self, nodes: NodeTable) -> bool:
        """Whether there were changes."""
        if nodes.changes == self._changes:
            return False
        columns = [column for name, column in nodes.columns.items() if is_accelerator(name)]
        rows: Iterable[int] | None = nodes.changed_since(self._changes) if columns == self._columns else None
        if rows is None:
            self._of_rows, self._columns, rows = {}, columns, range(len(nodes.names))
            self.sums = (0, 0, 0, 0)
        for row in dict.fromkeys(rows):
            gpus, used, idle, beside = _of_row(nodes, row, columns)
            before = self._of_rows.get(row, (0, 0, 0, 0))
            if before != (gpus, used, idle, beside):
                self._of_rows[row] = (gpus, used, idle, beside)
                of = self.sums
                self.sums = (
                    of[0] + gpus - before[0],
                    of[1] + used - before[1],
                    of[2] + idle - before[2],
                    of[3] + beside - before[3],
                )
        self._changes = nodes.changes
        return True

    def without(self, nodes: NodeTable, pods: Iterable[Assumed]) -> tuple[int, int, int, int]:
        """`sums` without these pods, which are counted."""
        freed: dict[int, dict[int, int]] = {}
        for pod in pods:
            of_row = freed.setdefault(nodes.rows[pod.node], {})
            for name, amount in pod.requests:
                column = nodes.columns.get(name, -1)
                of_row[column] = of_row.get(column, 0) + amount
        gpus, used, idle, beside_used = self.sums
        for row, of_row in freed.items():
            before, after = self._of_rows.get(row, (0, 0, 0, 0)), _of_row(nodes, row, self._columns, of_row)
            gpus, used = gpus + after[0] - before[0], used + after[1] - before[1]
            idle, beside_used = idle + after[2] - before[2], beside_used + after[3] - before[3]
        return gpus, used, idle, beside_used


def _of_row(
    nodes: NodeTable, row: int, columns: Sequence[int], freed: Mapping[int, int] = MappingProxyType({})
) -> tuple[int, int, int, int]:
    """The sums of one row; `freed` (by column) doesn't count any more."""
    if not nodes.present(row):
        return 0, 0, 0, 0
    gpus = used = 0
    for column in columns:
        there = int(nodes.allocatable[row, column])
        gpus += there
        used += min(int(nodes.used[row, column]) - freed.get(column, 0), there)
    facts = nodes.facts[row]
    return gpus, used, (gpus - used) * (facts.ready and not facts.cordoned), (gpus - used) * (used > 0)
