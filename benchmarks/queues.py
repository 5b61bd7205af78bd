"""Queues: what 1,000 of them in four levels add to a cycle with 10,000 waiting jobs, and to the fold.

The arithmetic alone: half of the cluster is used when the cycle begins, and the queues demand more than it has. A cycle
in a full cluster compares the queues once, because no job gets nodes. In the other one each job gets nodes, so that
each compares them again.

Whole cycles, decision only: on one state with the queues and on another without any, by turns, and the difference. The
jobs have two sizes, so that the search for nodes, which is the same on both, takes little time. The fold is that of the
whole life of such jobs. All times are the thread's own.
"""

import gc
import random
import time
from collections.abc import Callable, Iterator
from functools import partial

import msgspec

from arranger.events import kinds as k
from arranger.events.log import Entry
from arranger.model.config import CycleConfig
from arranger.model.job import CleanPodPolicy, JobSpec, PodGroup
from arranger.model.pod import PodShape
from arranger.model.queue import QueueSpec
from arranger.projections.fold import apply_entry
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import Changes, State
from arranger.scheduling.cycle import VERSIONS, Cycles, take_cycle
from arranger.scheduling.queues.fair_shares import ByResource, Claims, QueueClaims
from arranger.scheduling.queues.order import QueueOrder, Seniority
from benchmarks.report import Figure
from benchmarks.workload import GIB, TOLD_MS, History, decoded, uid
from tests.queue_shares import queue_shares

_TIMES = 9
_CYCLES = 5
#: Those of a worker process.
_GC_THRESHOLDS = (10_000, 20, 100)
_SIZES = (5, 30, 200, 765)
_CONFIG = CycleConfig(versions=VERSIONS)
#: The leader of a job that fits, and of one that no node can hold; both have workers like this.
_LEADER = (("cpu", 4_000), ("memory", 16 * GIB), ("nvidia.com/gpu", 1))
_TOO_LARGE = (("cpu", 65_000), ("memory", 16 * GIB), ("nvidia.com/gpu", 1))
_WORKER = (("cpu", 2_000), ("memory", 8 * GIB))
_WORKERS = 3
#: What the jobs of a queue request together, 10 of them and one with nodes, about.
_OF_QUEUE = {"cpu": 400_000, "memory": 11 * 40 * GIB, "nvidia.com/gpu": 11}
_TOTAL = {"cpu": 320_000_000, "memory": 5000 * 256 * GIB, "nvidia.com/gpu": 40_000}


def run(*, quick: bool) -> list[Figure]:
    """The benchmark."""
    sizes, nodes = ((2, 3, 5, 10), 50) if quick else (_SIZES, 5_000)
    jobs = 10 * sum(sizes)
    return [
        *_arithmetic(sizes, quick=quick),
        *_cycles(sizes, nodes, jobs, fitting=0),
        *_cycles(sizes, nodes, jobs, fitting=jobs // 10),
        *_cycles(sizes, nodes, jobs, fitting=jobs),
        *_folds(sizes, nodes),
    ]


# --- the arithmetic ---------------------------------------------------------------------------------------------


def _arithmetic(sizes: tuple[int, ...], *, quick: bool) -> list[Figure]:
    queues = _queues(random.Random(1), sizes)
    names = [queue.name for queue in queues if queue.demand]
    used = {queue.name: {name: amount // 3 for name, amount in queue.demand.items()} for queue in queues}
    shares = queue_shares(queues, _TOTAL)
    waiting: dict[str, Seniority] = {name: (at,) for at, name in enumerate(names)}
    order = partial(QueueOrder, Claims(queues), _TOTAL, shares=shares, used=used, waiting=waiting)
    jobs, share = 10_000 // (100 if quick else 1), {"cpu": 8_000, "memory": 32 * GIB, "nvidia.com/gpu": 1}
    shares_ms = _least_ms(lambda: queue_shares(queues, _TOTAL))
    waiting_ms = _least_ms(lambda: _cycle(order(), names, jobs, {}))
    placed_ms = _least_ms(lambda: _cycle(order(), names, jobs, share))
    full = sum(shares[queue.name]["cpu"] for queue in queues if not queue.parent) == _TOTAL["cpu"]
    note = f"{len(queues):,} queues, {len(sizes)} levels, {len(_TOTAL)} resources"
    return [
        Figure(name="shares", value=shares_ms, unit="ms", note=note),
        Figure(name="  they fill the cluster", value=float(full or quick), at_least=1.0),
        Figure(name=f"order of {jobs:,} jobs, none placed", value=waiting_ms, unit="ms"),
        Figure(name="  with the shares", value=shares_ms + waiting_ms, unit="ms", at_most=20),
        Figure(name=f"order of {jobs:,} jobs, all placed", value=placed_ms, unit="ms"),
    ]


def _queues(rng: random.Random, sizes: tuple[int, ...]) -> list[QueueClaims]:
    """Queues of all kinds; those of the last level have jobs, and on average twice what there is for each."""
    queues, above = [], [""]
    for level, size in enumerate(sizes):
        names = [f"queue-{level}-{number:04}" for number in range(size)]
        last = level == len(sizes) - 1
        for number, name in enumerate(names):
            demand = {one: rng.randrange(4 * amount // size) for one, amount in _TOTAL.items()} if last else {}
            queues.append(
                QueueClaims(
                    name=name,
                    parent=above[number % len(above)],
                    weight=rng.randrange(1, 10),
                    guarantee=_some(rng, demand, 20),
                    deserved=_some(rng, demand, 4),
                    capability=_some(rng, demand, 1),
                    demand=demand,
                )
            )
        above = names
    return queues


def _some(rng: random.Random, demand: ByResource, part: int) -> dict[str, int]:
    """For a third of the queues a part of the demand."""
    return {one: amount // part for one, amount in demand.items()} if rng.random() < 1 / 3 else {}


def _cycle(order: QueueOrder, names: list[str], jobs: int, amounts: ByResource) -> None:
    """Each queue gives its turns; with amounts, each of its jobs gets them."""
    left = dict.fromkeys(names, -(-jobs // len(names)))
    while (name := order.head()) is not None:
        if amounts:
            order.give(name, amounts)
        left[name] -= 1
        if not left[name]:
            order.finish(name)


def _least_ms(work: Callable[[], object]) -> float:
    return min(_spent_ms(work) for _ in range(_TIMES))


def _spent_ms(work: Callable[[], object]) -> float:
    began_s = time.thread_time()
    work()
    return 1000 * (time.thread_time() - began_s)


# --- whole cycles -----------------------------------------------------------------------------------------------


def _cycles(sizes: tuple[int, ...], nodes: int, jobs: int, *, fitting: int) -> list[Figure]:
    """What the queues add to a cycle: the first one, one after a new job, and one without any change."""
    sides = [_Side(levels, nodes, jobs, fitting) for levels in ((), sizes)]
    gc.collect()
    gc.freeze()
    thresholds = gc.get_threshold()
    gc.set_threshold(*_GC_THRESHOLDS)
    try:
        for _ in range(_CYCLES):
            for side in sides:
                side.measure()
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()
    without, with_queues = sides
    name = f"{jobs:,} jobs, {fitting:,} fit, without queues"
    note = f"{sum(sizes):,} queues, {nodes:,} nodes"
    figures = [Figure(name=name, value=without.first_ms, unit="ms", note=note)]
    most = 20 if fitting < jobs else None
    for name, added_ms in (
        ("  queues add", with_queues.first_ms - without.first_ms),
        ("  evaluated again after a change, queues add", with_queues.again_ms - without.again_ms),
        *([] if fitting else [("  nothing new, queues add", with_queues.idle_ms - without.idle_ms)]),
    ):
        figures.append(Figure(name=name, value=added_ms, unit="ms", at_most=most))
    same = float(without.placed == with_queues.placed >= fitting)
    return [*figures, Figure(name="  as many jobs placed", value=same, at_least=1.0)]


class _Side:
    """One state, and the least times of cycles on it. Without levels there are no Queues."""

    def __init__(self, sizes: tuple[int, ...], nodes: int, jobs: int, fitting: int) -> None:
        self._history, self._state = History(), State()
        self._history.nodes(nodes)
        self._names = _say_queues(self._history, sizes)
        self._jobs = 0
        self._say_jobs(jobs // 10, _LEADER)  # each queue has one with nodes
        self._history.listed()
        self._fold()
        self._history.say(*take_cycle(self._state, _CONFIG, TOLD_MS))
        self._say_jobs(fitting, _LEADER)
        self._say_jobs(jobs - fitting, _TOO_LARGE)
        self._fold()
        self.first_ms = self.again_ms = self.idle_ms = float("inf")
        self.placed = 0

    def measure(self) -> None:
        """One first cycle, one after a new job has come, and one without a change."""
        state, cycles = self._state, Cycles()
        state.nodes.facts_version.notes.clear()
        for job in state.jobs.values():
            job.waits = None
        self.first_ms = min(self.first_ms, self._spent_ms(cycles))
        self._say_jobs(1, _TOO_LARGE)
        self._fold()
        self.again_ms = min(self.again_ms, self._spent_ms(cycles))
        self.idle_ms = min(self.idle_ms, self._spent_ms(cycles), self._spent_ms(cycles))

    def _spent_ms(self, cycles: Cycles) -> float:
        events: list[k.Event] = []
        spent_ms = _spent_ms(lambda: events.extend(cycles.take(self._state, _CONFIG, TOLD_MS)))
        self.placed = sum(isinstance(event, k.Placed) for event in events)
        for event in events:  # hold the reasons as known, as the fold would, without what it costs
            if isinstance(event, k.Waits):
                self._state.jobs[event.job_uid].waits = event
        return spent_ms

    def _say_jobs(self, count: int, leader: tuple[tuple[str, int], ...]) -> None:
        _say_jobs(self._history, range(self._jobs, self._jobs + count), self._names, leader)
        self._jobs += count

    def _fold(self) -> None:
        _fold(self._state, decoded(self._history.batches, self._state.offset))
        self._history.batches.clear()


def _say_queues(history: History, sizes: tuple[int, ...]) -> list[str]:
    """A tree of queues, a third of them with each kind of amount, and names for jobs: "" without queues."""
    rng, term, above = random.Random(2), history.terms[k.Watched.QUEUE], [""]
    found: list[tuple[str, str, int]] = []
    for level, size in enumerate(sizes):
        names = [f"queue-{level}-{number:04}" for number in range(size)]
        below = sum(sizes[level:]) // size
        found += [(name, above[number % len(above)], below) for number, name in enumerate(names)]
        above = names
    events = [
        k.QueueSeen(term, name, f"uid-{name}", "1", 1, _queue_spec(rng, parent, queues), (), "")
        for name, parent, queues in found
    ]
    for begin in range(0, len(events), 500):
        history.say(*events[begin : begin + 500])
    return [name for name, _, _ in found] or [""]


def _queue_spec(rng: random.Random, parent: str, queues: int) -> QueueSpec:
    """A spec whose limits refuse nothing, so that the same jobs are tried with the queues and without."""
    demand = {one: amount * queues for one, amount in _OF_QUEUE.items()}
    demand["cpu"] *= 2

    def some(part: int) -> tuple[tuple[str, int], ...]:
        return tuple(sorted(_some(rng, demand, part).items()))

    return QueueSpec(parent, rng.randrange(1, 10), some(200), some(4), tuple((o, 4 * a) for o, a in some(1)))


def _say_jobs(history: History, numbers: range, names: list[str], leader: tuple[tuple[str, int], ...]) -> None:
    """Jobs of one leader and three workers, all needed, of each queue in turn."""
    groups = (PodGroup("learner", 1, PodShape(leader)), PodGroup("actors", _WORKERS, PodShape(_WORKER)))
    spec = JobSpec(groups, _WORKERS, 5, "", "", 3, CleanPodPolicy.ALL, False)
    term = history.terms[k.Watched.JOB]
    for begin in range(numbers.start, numbers.stop, 500):
        history.say(
            *(
                k.JobSeen(
                    term, "default", f"job-{n:05}", uid("job", n), str(n), 1, TOLD_MS + n, False,
                    msgspec.structs.replace(spec, queue=names[n % len(names)]), (), "",
                )
                for n in range(begin, min(begin + 500, numbers.stop))
            )
        )  # fmt: skip


def _fold(state: State, entries: Iterator[Entry] | list[Entry]) -> None:
    changes = Changes()
    for entry in entries:
        apply_entry(state, entry, changes)


# --- the fold ---------------------------------------------------------------------------------------------------


def _folds(sizes: tuple[int, ...], nodes: int) -> list[Figure]:
    """The speed of the fold with the queues / without, from the jobs' beginning to their end, by turns."""
    half_life = msgspec.structs.replace(_CONFIG, half_life_ms=3_600_000)
    sides = [((), _CONFIG), (sizes, _CONFIG), (sizes, half_life)]
    histories = [_lives(levels, config, nodes, 5 * sum(sizes)) for levels, config in sides]
    least_ms = [float("inf")] * len(sides)
    gc.collect()
    gc.freeze()
    try:
        for _ in range(_CYCLES):
            for at, (before, after) in enumerate(histories):
                state = State()
                _fold(state, before)
                least_ms[at] = min(least_ms[at], _spent_ms(partial(_fold, state, after)))
                assert not state.jobs and not state.queue_use.own
    finally:
        gc.unfreeze()
    events = sum(entry.last - entry.first + 1 for entry in histories[0][1])
    without_ms, queues_ms, usage_ms = least_ms
    return [
        Figure(name="fold of jobs, without queues", value=1000 * events / without_ms, unit="events/s"),
        Figure(name="  with queues, times as fast", value=without_ms / queues_ms, at_least=0.8),
        Figure(name="  with a half-life too", value=without_ms / usage_ms, at_least=0.8),
    ]


def _lives(sizes: tuple[int, ...], config: CycleConfig, nodes: int, jobs: int) -> tuple[list[Entry], list[Entry]]:
    """Entries until the jobs come, and those of their lives: seen, placed, their pods seen four times, and gone."""
    history, state = History(), State()
    history.nodes(nodes)
    names = _say_queues(history, sizes)
    history.listed()
    before = [*decoded(history.batches, 0)]
    history.batches.clear()
    _fold(state, before)
    for begin in range(0, jobs, 500):
        _say_jobs(history, range(begin, min(begin + 500, jobs)), names, _LEADER)
        _fold(state, decoded(history.batches[-1:], state.offset))
        history.say(*take_cycle(state, config, TOLD_MS))
        _fold(state, decoded(history.batches[-1:], state.offset))
        alive = [job for job in state.jobs.values() if job.placements]
        for round_, phase in enumerate(("Pending", "Running", "Running", "Succeeded")):
            history.say(*(pod for job in alive for pod in _pods_seen(history, job, phase, round_)))
            _fold(state, decoded(history.batches[-1:], state.offset))
        term = history.terms[k.Watched.JOB]
        history.say(*(k.ObjectGone(k.Watched.JOB, term, "default", job.seen.name, job.uid) for job in alive))
        history.say(*_pods_gone(history, state))
        _fold(state, decoded(history.batches[-2:], state.offset))
    return before, [*decoded(history.batches, before[-1].last)]


def _pods_seen(history: History, job: JobRecord, phase: str, round_: int) -> Iterator[k.PodSeen]:
    """The pods of a job's slots."""
    for slot, node in job.placements.items():
        name = job.pod_name(slot)
        yield k.PodSeen(
            history.terms[k.Watched.POD], "default", name, f"uid-{name}", str(round_), node, phase,
            job.valid_spec.groups[slot[0]].shape.requests, job.owner_of(slot), round_ == 2, False, ip="10.0.0.1",
        )  # fmt: skip


def _pods_gone(history: History, state: State) -> Iterator[k.ObjectGone]:
    for pod in state.pods.values():
        yield k.ObjectGone(k.Watched.POD, history.terms[k.Watched.POD], pod.namespace, pod.name, pod.uid)
