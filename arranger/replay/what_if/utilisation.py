"""Figures on a cluster over an interval: waiting times, utilisation, fragmentation, makespan."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from arranger.model.accelerators import is_accelerator
from arranger.model.pod import PodShape, gpus_of
from arranger.model.quantity import CPU
from arranger.projections.cluster.nodes import Amounts, NodeTable
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import State
from arranger.replay.reading.describe import label
from arranger.replay.reading.recording import AttemptKey
from arranger.scheduling import GPU_MILLI, Mix, NodeStates, Request, covering, fragments

#: Typical pods make up this percentage of the pods that ask for GPUs.
_TYPICAL_PERCENT = 95
#: Fragmentation isn't computed for nodes with more GPUs than this, because it counts GPUs one by one.
_MOST_GPUS = 64
#: The maximum number of points of a curve.
CURVE = 400
#: The maximum number of waiting jobs that are named.
WAITING_NAMED = 100


class UtilisationSample(msgspec.Struct, frozen=True):
    """The cluster at one time: GPUs used or placed on, all GPUs, jobs that wait for their quorum, and idle GPUs that
    typical pods with GPUs can't use."""

    time_ms: int
    gpus_used: int
    gpus: int
    waiting: int
    fragmented: float


class Figures(msgspec.Struct, frozen=True):
    """The figures of one variant from `begin_ms` to `end_ms`. A waiting time is from a job's creation, or from when it
    began to wait again, to the placement of its quorum, or to the end if the job still waits then.

    `gpu_utilisation` and `gpu_fragmentation` are means over time, as parts of all GPUs (0 to 1), None without GPUs.
    `makespan_ms` is the time to the last end of a job, None if none ended. `endless` counts attempts without an end in
    the log; `endless_jobs` are their jobs, as far as they have nodes at the end. `started` counts attempts,
    `jobs_started` counts jobs. `waiting_jobs` are the jobs that wait at the end, those that have waited longest first,
    at most `WAITING_NAMED`.
    """

    begin_ms: int
    end_ms: int
    started: int
    ended: int
    waiting_at_end: int
    endless: int
    wait_mean_ms: int
    wait_p50_ms: int
    wait_p95_ms: int
    gpu_utilisation: float | None
    gpu_fragmentation: float | None
    makespan_ms: int | None
    curve: tuple[UtilisationSample, ...]
    jobs_started: int = 0
    endless_jobs: tuple[str, ...] = ()
    waiting_jobs: tuple[str, ...] = ()


class Utilisation(Figures, frozen=True):
    """The figures with all starts: (job UID, attempt) → the time of its placement, and how long it waited until then,
    in milliseconds. `names` are the names of these jobs, as namespace/name."""

    starts: dict[AttemptKey, int] = {}
    waited: dict[AttemptKey, int] = {}
    names: dict[str, str] = {}


class Likeness(msgspec.Struct, frozen=True):
    """How close the unchanged variant is to the log: of the `common` starts, `equal` are within a second, and the
    largest difference is `farthest_ms`. `only_log` and `only_here` count the starts that only one of them has."""

    common: int
    equal: int
    farthest_ms: int
    only_log: int
    only_here: int


def likeness(recorded: dict[AttemptKey, int], here: dict[AttemptKey, int]) -> Likeness:
    """Compare the starts in the log with those of a variant over the same time."""
    apart = [abs(recorded[key] - here[key]) for key in recorded if key in here]
    return Likeness(
        common=len(apart),
        equal=sum(span <= 1000 for span in apart),
        farthest_ms=max(apart, default=0),
        only_log=len(recorded) - len(apart),
        only_here=len(here) - len(apart),
    )


class Meter:
    """Measures a variant while it continues. Fragmentation is measured for `typical` pods, see `typical_pods`."""

    def __init__(self, typical: Mix | None, begin_ms: int) -> None:
        self.endless = 0
        #: Names of the jobs whose attempts have no end.
        self.endless_jobs: dict[str, None] = {}
        self._begin_ms = begin_ms
        self._typical = typical
        #: (job UID, attempt) → the time since which it waits for its quorum, in milliseconds.
        self._since: dict[AttemptKey, int] = {}
        self._waits: list[int] = []
        self._waited: dict[AttemptKey, int] = {}
        self._starts: dict[AttemptKey, int] = {}
        self._names: dict[str, str] = {}
        self._ended: dict[str, int] = {}
        #: Jobs that had ended before the variant began.
        self._ended_before: dict[str, None] = {}
        self._samples: list[UtilisationSample] = []
        self._changes = -1

    def begin(self, state: State) -> None:
        """Note the jobs that have ended in the first state: their ends don't count."""
        self._ended_before = {uid: None for uid, job in state.jobs.items() if job.ended}

    def look(self, state: State, uid: str, now_ms: int) -> None:
        """Update a job that may have begun or stopped waiting."""
        job = state.jobs.get(uid)
        if job is None or not _waits(job):
            for key in [key for key in self._since if key[0] == uid] if job is None else [(uid, job.attempt)]:
                since_ms = self._since.pop(key, None)
                if since_ms is not None and job is not None and job.quorum_placed():
                    self._waits.append(now_ms - since_ms)
                    self._waited[key] = now_ms - since_ms
                    self._starts[key] = now_ms
                    self._names[uid] = label(job)
            if job is not None and job.ended and uid not in self._ended and uid not in self._ended_before:
                self.ended(uid, now_ms)
            return
        key = (uid, job.attempt)
        if key not in self._since:
            began_ms = job.times.stage_ms if now_ms == self._begin_ms else now_ms
            self._since[key] = min(began_ms, now_ms)

    def ended(self, uid: str, now_ms: int) -> None:
        self._ended[uid] = now_ms

    def sample(self, state: State, now_ms: int) -> None:
        """Record the state from this time on."""
        if state.nodes.changes == self._changes and self._samples and self._samples[-1].waiting == len(self._since):
            return
        self._changes = state.nodes.changes
        used, there, fragmented = self._gpus(state)
        taken = UtilisationSample(now_ms, used, there, len(self._since), fragmented)
        if self._samples and self._samples[-1].time_ms == now_ms:
            self._samples[-1] = taken
        else:
            self._samples.append(taken)

    def utilisation(self, state: State, end_ms: int) -> Utilisation:
        end_ms = max(end_ms, self._begin_ms)
        waits = sorted([*self._waits, *(end_ms - since_ms for since_ms in self._since.values())])
        held = {label(job) for job in state.jobs.values() if job.placements}
        ends = [moment for moment in self._ended.values() if moment <= end_ms]
        return Utilisation(
            begin_ms=self._begin_ms,
            end_ms=end_ms,
            started=len(self._waits),
            ended=len(ends),
            waiting_at_end=len(self._since),
            endless=self.endless,
            wait_mean_ms=sum(waits) // len(waits) if waits else 0,
            wait_p50_ms=_nearest_rank(waits, 50),
            wait_p95_ms=_nearest_rank(waits, 95),
            gpu_utilisation=self._mean([sample.gpus_used for sample in self._samples], end_ms),
            gpu_fragmentation=self._mean([sample.fragmented for sample in self._samples], end_ms),
            makespan_ms=max(ends) - self._begin_ms if ends else None,
            curve=tuple(_thinned(self._samples)),
            starts=self._starts,
            waited=self._waited,
            names=self._names,
            jobs_started=len({uid for uid, _ in self._starts}),
            endless_jobs=tuple(name for name in self.endless_jobs if name in held),
            waiting_jobs=tuple(self._waiting(state)),
        )

    def _waiting(self, state: State) -> Iterator[str]:
        longest = sorted(self._since.items(), key=lambda of: (of[1], of[0]))
        yield from (label(state.jobs[uid]) for (uid, _), _ in longest[:WAITING_NAMED] if uid in state.jobs)

    def _mean(self, amounts: Sequence[float], end_ms: int) -> float | None:
        """The mean over time of `amounts`, one per sample, as a part of all GPUs."""
        moments = [*(sample.time_ms for sample in self._samples[1:]), end_ms]
        spans = [max(until - sample.time_ms, 0) for sample, until in zip(self._samples, moments, strict=True)]
        there = sum(sample.gpus * span for sample, span in zip(self._samples, spans, strict=True))
        return sum(amount * span for amount, span in zip(amounts, spans, strict=True)) / there if there else None

    def _gpus(self, state: State) -> tuple[int, int, float]:
        """The used, total and fragmented GPUs of the present nodes."""
        nodes = state.nodes
        rows, columns = nodes.by_name(), gpu_columns(nodes)
        if not columns or not len(rows):
            return 0, 0, 0.0
        there = nodes.allocatable[rows][:, columns].sum(axis=1)
        free = np.maximum(nodes.free()[rows][:, columns], 0).sum(axis=1)
        fragmented = float(fragmented_gpus(nodes, rows, self._typical).sum())
        return int((there - free).sum()), int(there.sum()), fragmented


def gpu_columns(nodes: NodeTable) -> list[int]:
    """The columns of accelerators, of all vendors."""
    return [column for name, column in sorted(nodes.columns.items()) if is_accelerator(name)]


def fragmented_gpus(nodes: NodeTable, rows: Amounts, typical: Mix | None) -> npt.NDArray[np.float64]:
    """The idle GPUs of each of these rows that typical pods with GPUs can't use. None are counted where a node has more
    than `_MOST_GPUS`."""
    found, columns = np.zeros(len(rows)), gpu_columns(nodes)
    there = nodes.allocatable[rows][:, columns].sum(axis=1)
    if typical is None or not typical.total_weight or not 0 < int(there.max(initial=0)) <= _MOST_GPUS:
        return found
    with_gpus = there > 0
    free = np.maximum(nodes.free()[rows[with_gpus]], 0)
    devices = (np.arange(int(there.max())) < free[:, columns].sum(axis=1)[:, None]) * GPU_MILLI
    cpu = free[:, nodes.columns["cpu"]]
    states = NodeStates(cpu, devices.astype(np.int64), np.zeros(len(cpu), np.int64))
    found[with_gpus] = fragments(states, typical) / (GPU_MILLI * typical.total_weight)
    return found


def request_of(shape: PodShape) -> Request | None:
    """What a pod's request means for GPUs; None if it asks for none."""
    gpus = gpus_of(shape.requests)
    cpu = next((amount for name, amount in shape.requests if name == CPU), 0)
    return Request(cpu, gpus, GPU_MILLI) if gpus else None


def typical_mix(counts: Mapping[Request, int]) -> Mix:
    """The mix for fragmentation: the most frequent of these requests, which are counted."""
    return Mix(covering(counts, share_percent=_TYPICAL_PERCENT), [""])


def typical_pods(shapes: Iterable[tuple[PodShape, int]]) -> Mix:
    """The mix for fragmentation: the most frequent of those pods that ask for GPUs. `shapes` are pairs of a shape and
    its number.

    In the published measure (`scheduling/cluster/fragmentation.py`), pods without GPUs count too, and every idle GPU is
    a fragment to them. One job of a learner and 64 actors on cpus would then make 98 % of an empty cluster fragments.
    """
    counts: dict[Request, int] = {}
    for shape, count in shapes:
        request = request_of(shape)
        if request is not None:
            counts[request] = counts.get(request, 0) + count
    return typical_mix(counts)


def _waits(job: JobRecord) -> bool:
    """Whether the job waits for its quorum, and not because of its user's wish."""
    if not job.active or job.spec is None or job.spec.suspend or job.spec.terminating:
        return False
    return not job.quorum_placed()


def _nearest_rank(ordered: Sequence[int], percent: int) -> int:
    return ordered[-(-percent * len(ordered) // 100) - 1] if ordered else 0


def _thinned(samples: Sequence[UtilisationSample]) -> Sequence[UtilisationSample]:
    if len(samples) <= CURVE:
        return samples
    step = len(samples) / CURVE
    return [samples[int(number * step)] for number in range(CURVE - 1)] + [samples[-1]]
