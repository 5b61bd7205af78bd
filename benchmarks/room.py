"""Room: what preemption, reservations and backfill add to a cycle, and what one search of each kind costs.

A full cluster: on each node run parts of several jobs of ten pods, whose leaders hold all GPUs. Two fifths of these
jobs have a lower priority than those that search; on other two fifths of the nodes, every second job has one, so that
their sum is enough for a quorum of whole nodes that fits nowhere. A third of the jobs are elastic, and all but a
twentieth tell how long they run.

Whole cycles are taken with everything on and with everything off, by turns, while as many jobs wait as there run. The
searches are timed alone, from the failed try of a quorum to the answer, with all that a cycle prepares for its first
search. All times are the thread's own, the least of several.
"""

import gc
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import msgspec

from arranger.events import kinds as k
from arranger.model.config import CycleConfig
from arranger.model.job import CleanPodPolicy, JobSpec, PlacedPods, PodGroup, ScheduleState
from arranger.model.pod import PodShape
from arranger.model.queue import QueueSpec
from arranger.projections.fold import apply_entry
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import Changes, State
from arranger.scheduling.cycle import VERSIONS, Cycles, take_cycle
from arranger.scheduling.placing.kept import KeptRankings
from arranger.scheduling.placing.placement_try import PlacementTry
from arranger.scheduling.queues.registry import BUILT_IN
from arranger.scheduling.queues.waiting import waiting_jobs
from arranger.scheduling.room.preemption import PreemptionSearch
from arranger.scheduling.room.reservations import Reservations
from arranger.scheduling.search.placer import Placer
from arranger.settings import Settings
from benchmarks.report import Figure
from benchmarks.workload import GIB, TOLD_MS, History, decoded, uid

_TIMES = 5
_HOUR_MS = 3_600_000
#: Those of a worker process.
_GC_THRESHOLDS = (10_000, 20, 100)
_ON = msgspec.structs.replace(Settings(min_runtime_s=0).cycle_config(VERSIONS), dry_run=False)
_OFF = msgspec.structs.replace(_ON, preemption=None, reservations=0)
#: The time of the cycles: the jobs run for an hour.
_NOW_MS = TOLD_MS + _HOUR_MS
_OWN, _OTHER = "research", "serving"
#: Pods of jobs that run. Two leaders fill the GPUs of a node, and four fifths of the jobs' cores are those of workers.
_LEADER = PodShape((("cpu", 4_000), ("memory", 16 * GIB), ("nvidia.com/gpu", 4)))
_WORKER = PodShape((("cpu", 3_000), ("memory", 8 * GIB)))
_WORKERS = 9
#: A whole node, and a pod that no node can hold.
_WHOLE = PodShape((("cpu", 12_000), ("memory", 96 * GIB), ("nvidia.com/gpu", 8)))
_PROTECTED, _SEARCHING = 9, 5


def run(*, quick: bool) -> list[Figure]:
    """The benchmark."""
    nodes = 50 if quick else 5_000
    return [*_searches(nodes), *_cycles(nodes)]


# --- searches ---------------------------------------------------------------------------------------------------


def _searches(nodes: int) -> list[Figure]:
    """One search of each kind in the full cluster."""
    world = _World(nodes)
    world.wait(2 * nodes, priority=0, shape=lambda n: PodShape((("cpu", 65_000 + n),)))
    world.searching(nodes // 2, _OTHER)  # so that the share of its queue is large
    note = f"{nodes:,} nodes, {len(world.state.pods):,} pods, {2 * nodes:,} waiting jobs"
    figures = []
    for name, queue, pods, victims in (
        ("one node", _OWN, 1, True),
        ("12 nodes", _OWN, 12, True),
        ("12 nodes, of another queue", _OTHER, 12, True),
        ("half of the cluster, which nobody has together", _OWN, nodes // 2, False),
        ("all nodes", _OWN, nodes, False),
    ):
        job = world.searching(pods, queue)
        words = "victims for" if victims else "no victims for"
        for known in (True, False):
            spent_ms, found = world.room_ms(job, known=known)
            assert found == victims, f"{name}: {'found' if found else 'none'}"
            figures.append(_figure(f"{words} {name}", spent_ms, known, note))
            note = ""
    for name, pods in (("12 nodes", 12), ("most of the cluster", 9 * nodes // 10)):
        job = world.searching(pods, _OWN)
        for known in (True, False):
            figures.append(_figure(f"a reservation for {name}", world.reservation_ms(job, known=known), known))
    return figures


def _figure(name: str, spent_ms: float, known: bool, note: str = "") -> Figure:
    """In a process that knows the cluster from its last cycle, as nearly all do; or in the first cycle of a process."""
    return Figure(
        name=name if known else "  in a process that begins", value=spent_ms, unit="ms", at_most=100, note=note
    )


# --- whole cycles -----------------------------------------------------------------------------------------------


def _cycles(nodes: int) -> list[Figure]:
    """A cycle with preemption, reservations and backfill, compared with one without."""
    jobs = 2 * nodes
    return [
        *_compared(nodes, f"{jobs:,} jobs, none could ever fit", lambda n: PodShape((("cpu", 65_000 + n),))),
        *_compared(nodes, f"{jobs:,} jobs, all fit", lambda n: PodShape((("cpu", 1 + n % 8),))),
        *_compared(nodes, f"{jobs:,} jobs behind one with a reservation", _gpus, first=True),
    ]


def _gpus(number: int) -> PodShape:
    """Jobs of all sizes that wait for GPUs."""
    return PodShape((("cpu", 100 + number), ("nvidia.com/gpu", 1 + number % 8)))


def _compared(nodes: int, name: str, shape: Callable[[int], PodShape], *, first: bool = False) -> list[Figure]:
    world = _World(nodes)
    if first:
        world.searching(nodes, _OWN, priority=0)
        world.say(*take_cycle(world.state, _ON, _NOW_MS))
        assert world.state.reservations, "the first job has its reservation"
    world.wait(2 * nodes, priority=0, shape=shape)
    first_ms, again_ms = {_OFF: float("inf"), _ON: float("inf")}, {_OFF: float("inf"), _ON: float("inf")}
    with _settled():
        for _ in range(_TIMES):
            for config in (_OFF, _ON):
                spent = world.cycle_ms(config)
                first_ms[config], again_ms[config] = min(first_ms[config], spent[0]), min(again_ms[config], spent[1])
    most = None if first else 1.10  # the target is for cycles with nothing to preempt or to reserve
    ratios = {
        "  all on, times as long": first_ms[_ON] / first_ms[_OFF],
        "  evaluated again after a change, times as long": again_ms[_ON] / again_ms[_OFF],
    }
    return [
        Figure(name=name, value=first_ms[_OFF], unit="ms", note=f"all off; {nodes:,} nodes"),
        *(Figure(name=words, value=ratio, at_most=most) for words, ratio in ratios.items()),
    ]


# --- worlds -----------------------------------------------------------------------------------------------------


class _World:
    """The full cluster, with two queues."""

    def __init__(self, nodes: int) -> None:
        self.history, self.state, self._jobs = History(), State(), 0
        self.history.nodes(nodes)
        term = self.history.terms[k.Watched.QUEUE]
        self.history.say(
            *(k.QueueSeen(term, name, f"uid-{name}", "1", 1, QueueSpec(), (), "") for name in (_OWN, _OTHER))
        )
        self.history.listed()
        self._run(2 * nodes)

    def say(self, *events: k.Event) -> None:
        """Append events, and fold what was said."""
        if events:
            self.history.say(*events)
        changes = Changes()
        for entry in decoded(self.history.batches, self.state.offset):
            apply_entry(self.state, entry, changes)
        self.history.batches.clear()

    def _run(self, jobs: int) -> None:
        """So many jobs with all of their pods."""
        rng = random.Random(1)
        for number in range(jobs):
            part = 5 * number // jobs
            low = part < 2 or (part < 4 and number % 2 == 1)
            least = _WORKERS - 3 * (number % 3 == 0)
            ends_s = rng.randrange(2, 48) * 3600 + rng.randrange(3600) if rng.random() < 0.95 else None
            groups = (PodGroup("learner", 1, _LEADER), PodGroup("actors", _WORKERS, _WORKER))
            self._say_job(groups, least, rng.randrange(1, 5) if low else _PROTECTED, _OWN, ends_s)
        self.say()
        placed = [self._placed(number, job) for number, job in enumerate(self.state.jobs.values())]
        self.say(k.CycleTaken(self.state.offset, TOLD_MS, _OFF), *placed)
        for job in [*self.state.jobs.values()]:
            assert len(job.placements) == 1 + _WORKERS, "all pods have nodes"
            self.say(*_pods_seen(self.history, job))

    def _placed(self, number: int, job: JobRecord) -> k.Placed:
        """The leaders of two jobs on each node, and the workers of each on three nodes."""
        names = self.state.nodes.names
        at = [number // 2, *((number // 2 + third * len(names) // 3 + third) % len(names) for third in range(3))]
        each = _WORKERS // 3
        pods = [PlacedPods(names[at[0]], 0, ((0, 0),))]
        pods += [PlacedPods(names[at[1 + n]], 1, ((each * n, each * (n + 1) - 1),)) for n in range(3)]
        return k.Placed(job.uid, job.version, job.attempt, ScheduleState.SUCCEED, tuple(pods))

    def wait(self, jobs: int, *, priority: int, shape: Callable[[int], PodShape]) -> None:
        """So many jobs that wait, each with three workers."""
        for number in range(jobs):
            groups = (PodGroup("learner", 1, shape(number)), PodGroup("actors", 3, PodShape((("cpu", 1),))))
            self._say_job(groups, 3, priority, _OWN, 600)
        self.say()

    def searching(self, pods: int, queue: str, *, priority: int = _SEARCHING) -> JobRecord:
        """A job that waits for so many whole nodes."""
        groups = (PodGroup("learner", 1, _WHOLE), PodGroup("actors", pods - 1, _WHOLE))
        job_uid = self._say_job(groups, pods - 1, priority, queue, None)
        self.say()
        return self.state.jobs[job_uid]

    def _say_job(self, groups: tuple[PodGroup, ...], least: int, priority: int, queue: str, ends_s: int | None) -> str:
        number, self._jobs = self._jobs, self._jobs + 1
        spec = JobSpec(groups, least, priority, "", "", 3, CleanPodPolicy.ALL, False, queue=queue, expected_s=ends_s)
        term = self.history.terms[k.Watched.JOB]
        self.history.say(
            k.JobSeen(
                term, "default", f"job-{number:05}", uid("job", number), str(number), 1, TOLD_MS + number, False, spec,
                (), "",
            )
        )  # fmt: skip
        return uid("job", number)

    # --- what is timed ------------------------------------------------------------------------------------------

    def cycle_ms(self, config: CycleConfig) -> tuple[float, float]:
        """A first cycle, and one with all reasons known after a new job has come."""
        state, cycles = self.state, Cycles()
        state.nodes.facts_version.notes.clear()
        for job in state.jobs.values():
            job.waits = None
        first_ms = self._taken_ms(cycles, config)
        state.scheduling_changes += 1
        return first_ms, self._taken_ms(cycles, config)

    def _taken_ms(self, cycles: Cycles, config: CycleConfig) -> float:
        events: list[k.Event] = []
        spent_ms = _spent_ms(lambda: events.extend(cycles.take(self.state, config, _NOW_MS)))
        for event in events:  # hold the reasons as known, as the fold would, without what it costs
            if isinstance(event, k.Waits):
                self.state.jobs[event.job_uid].waits = event
        return spent_ms

    def room_ms(self, job: JobRecord, *, known: bool) -> tuple[float, bool]:
        """The search for victims for a job's quorum, and whether it found some."""
        least_ms, found, kept = float("inf"), False, KeptRankings()
        with _settled():
            for _ in range(_TIMES):
                kept = kept if known else KeptRankings()
                placer = Placer(self.state, _ON, BUILT_IN, time_ms=_NOW_MS, kept=kept)
                tried = placer.quorum(job)
                waiting = waiting_jobs(self.state, _NOW_MS)
                preemption = PreemptionSearch(self.state, placer, waiting)
                answers: list[bool] = []
                spent_ms = _spent_ms(partial(_note, answers, preemption, tried))
                least_ms, found = min(least_ms, spent_ms), answers[0]
        return least_ms, found

    def reservation_ms(self, job: JobRecord, *, known: bool) -> float:
        """The search for a reservation for a job's quorum."""
        least_ms, kept = float("inf"), KeptRankings()
        with _settled():
            for _ in range(_TIMES):
                kept = kept if known else KeptRankings()
                placer = Placer(self.state, _ON, BUILT_IN, time_ms=_NOW_MS, kept=kept)
                tried = placer.quorum(job)
                reservations = Reservations(self.state, placer, [])
                least_ms = min(least_ms, _spent_ms(partial(reservations.reserve, tried)))
                assert reservations.events()[0], "there is a reservation"
        return least_ms


def _note(answers: list[bool], preemption: PreemptionSearch, tried: PlacementTry) -> None:
    answers.append(preemption.make_room(tried, tuple) is not None)


def _pods_seen(history: History, job: JobRecord) -> Iterator[k.PodSeen]:
    """The pods of a job's slots."""
    for slot, node in job.placements.items():
        name = job.pod_name(slot)
        yield k.PodSeen(
            history.terms[k.Watched.POD], "default", name, f"uid-{name}", "1", node, "Running",
            job.valid_spec.groups[slot[0]].shape.requests, job.owner_of(slot), True, False, ip="10.0.0.1",
        )  # fmt: skip


@contextmanager
def _settled() -> Iterator[None]:
    """Collect garbage as a worker process does, and none of what is there already."""
    gc.collect()
    gc.freeze()
    thresholds = gc.get_threshold()
    gc.set_threshold(*_GC_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()


def _spent_ms(work: Callable[[], object]) -> float:
    began_s = time.thread_time()
    work()
    return 1000 * (time.thread_time() - began_s)
