"""Churn: jobs of three queues that take room from each other, with and without a least time for which they keep it: who
took room, by the setting `min_runtime_s`, or everybody, by the `minRuntimeSeconds` of the queues.

114 jobs of one to four whole nodes, of priorities 1 to 9, come to 16 nodes of 8 GPUs, in three queues of equal weight.
They come in bursts, as the trials of a team do, faster than the cluster can run them. A job that gives its
room begins again from its start. Real cycles and the real fold, once a second of simulated time; pods run and leave at
once, so the figures are about decisions alone.
"""

from itertools import product
from random import Random
from statistics import mean, median

import msgspec

from arranger.events.facts import PreemptionKind
from arranger.events.kinds import Preempted
from arranger.model.job import Stage
from arranger.projections.jobs.records import JobRecord
from arranger.scheduling.cycle import VERSIONS, Cycles
from arranger.settings import Settings
from benchmarks.report import Figure
from tests.world import World, shape

_JOBS, _NODES, _GPUS = 114, 16, 8
_QUEUES = ("research", "training", "serving")
_SEEDS = (1, 2)
#: Name → for how many seconds jobs run, and after how many a burst of them comes.
_PACES = {"minutes": ((10, 180), 20), "a quarter of an hour": ((60, 900), 90)}
_BURST = 6
_WHOLE = shape(cpu=8, gpus=_GPUS)
_SOON_MS = 10_000
#: Who keeps nodes → for how many seconds by the setting, and by each queue.
_KEPT: dict[str, tuple[int, int | None]] = {
    "nobody": (0, None),
    "who took them": (Settings().min_runtime_s, None),
    "everybody": (0, Settings().min_runtime_s),
}


class Planned(msgspec.Struct, frozen=True):
    """A job to come: its times in seconds, its nodes, and where it belongs."""

    name: str
    at_s: int
    runs_s: int
    nodes: int
    priority: int
    queue: str


class Outcome(msgspec.Struct):
    """What happened: for each victim, how long it had its nodes, and whether it had taken them; GPU seconds."""

    ran_ms: list[int] = []
    taken_from_takers: int = 0
    lost_gpu_s: float = 0
    gained_gpu_s: float = 0
    waits_s: list[float] = []
    makespan_s: float = 0


def run(*, quick: bool) -> list[Figure]:
    """The benchmark."""
    figures = []
    seeds, jobs = (_SEEDS[:1], 20) if quick else (_SEEDS, _JOBS)
    for pace, (who, kept) in product(_PACES, _KEPT.items()):
        found = [simulated(planned(seed, jobs, pace), *kept) for seed in seeds]
        row = f"jobs of {pace}, {who} keeps nodes for {Settings().min_runtime_s} s"
        ran_s = [ran_ms / 1000 for of in found for ran_ms in of.ran_ms] or [0]
        lost, gained = sum(of.lost_gpu_s for of in found), sum(of.gained_gpu_s for of in found)
        figures += [
            Figure(name="whole jobs that gave room", value=mean(len(of.ran_ms) for of in found), row=row),
            Figure(name="they had run, median", value=median(ran_s), unit="s", row=row),
            Figure(
                name="lost room within 10 s that they had taken",
                value=mean(of.taken_from_takers for of in found),
                row=row,
            ),
            Figure(name="GPU hours lost", value=lost / 3600 / len(found), row=row),
            Figure(name="lost by gained", value=100 * lost / gained if gained else 0, unit="%", row=row),
            Figure(name="mean wait", value=mean(wait for of in found for wait in of.waits_s), unit="s", row=row),
            Figure(name="all done after", value=mean(of.makespan_s for of in found), unit="s", row=row),
        ]
    return figures


def planned(seed: int, jobs: int, pace: str) -> list[Planned]:
    """The jobs of a seed."""
    chance, (runs_s, burst_s) = Random(seed), _PACES[pace]
    return [
        Planned(
            f"job-{number:03}",
            number // _BURST * burst_s + chance.randrange(10),
            round(chance.uniform(*runs_s)),
            chance.choice((1, 1, 1, 2, 2, 3, 4)),
            chance.randint(1, 9),
            chance.choice(_QUEUES),
        )
        for number in range(jobs)
    ]


def simulated(jobs: list[Planned], least_s: int, of_queue_s: int | None) -> Outcome:
    """What happens from the first to the last end, with the least times of the setting and of each queue in seconds."""
    return _Cluster(jobs, least_s, of_queue_s).run()


class _Cluster:
    """The cluster as it is at a simulated second."""

    def __init__(self, jobs: list[Planned], least_s: int, of_queue_s: int | None) -> None:
        config = Settings(min_runtime_s=least_s).cycle_config(VERSIONS)
        self._world = World(config=msgspec.structs.replace(config, dry_run=False))  # here is no API server
        self._cycles = Cycles()
        self._world.watch_queues()
        for name in _QUEUES:
            self._world.queue(name, min_runtime_s=of_queue_s)
        for number in range(_NODES):
            self._world.node(f"n{number:02}", cpu=64, gpus=_GPUS)
        self._coming = sorted(jobs, key=lambda one: (one.at_s, one.name))
        self._plans: dict[str, Planned] = {}
        self._jobs: dict[str, JobRecord] = {}
        self._first_start: dict[str, None] = {}
        #: Jobs that took room → since when they have it, in milliseconds.
        self._took: dict[str, int] = {}
        self._found = Outcome()

    def run(self) -> Outcome:
        world, start_ms = self._world, self._world.now_ms
        while self._coming or self._jobs:
            second = (world.now_ms - start_ms) // 1000
            while self._coming and self._coming[0].at_s <= second:
                self._submit(self._coming.pop(0))
            self._end_due()
            self._settle(second)
            world.entries.clear()
            world.verdicts.clear()
            world.pass_time(1)
        self._found.makespan_s = (world.now_ms - start_ms) / 1000
        return self._found

    def _submit(self, one: Planned) -> None:
        job = self._world.job(
            one.name, workers=one.nodes, worker=_WHOLE, min_workers=one.nodes, equals=True, priority=one.priority,
            of_queue=one.queue,
        )  # fmt: skip
        self._plans[job.uid], self._jobs[job.uid] = one, job

    def _end_due(self) -> None:
        world = self._world
        for uid, job in list(self._jobs.items()):
            if job.stage == Stage.RUNNING and world.now_ms - job.times.stage_ms >= self._plans[uid].runs_s * 1000:
                self._gain(uid)
                for pod in list(job.bound.values()):
                    world.change_pod(pod, phase="Succeeded", ready=False)
                    world.pod_gone(pod)
                world.job_gone(job)
                del self._jobs[uid]

    def _settle(self, second: int) -> None:
        """Cycles, decisions and pods, until nothing more happens in this second."""
        world = self._world
        while True:
            began = {uid: (job.began_ms, len(job.placements)) for uid, job in self._jobs.items()}
            events = self._cycles.take(world.state, world.config, world.now_ms)
            if events:
                world.say(*events)
            for event in events:
                if isinstance(event, Preempted):
                    self._note(event, began)
            if not (world.control() or world.apply() or events):
                break
        for uid, job in self._jobs.items():
            if job.stage == Stage.RUNNING and uid not in self._first_start:
                self._first_start[uid] = None
                self._found.waits_s.append(second - self._plans[uid].at_s)

    def _note(self, event: Preempted, began: dict[str, tuple[int, int]]) -> None:
        now_ms, found = self._world.now_ms, self._found
        for victim in event.victims:
            if victim.kind == PreemptionKind.SURPLUS:
                continue
            ran_ms = now_ms - began[victim.job_uid][0]
            found.ran_ms.append(ran_ms)
            found.lost_gpu_s += victim.lost_ms / 1000
            found.taken_from_takers += victim.job_uid in self._took and ran_ms <= _SOON_MS
            self._took.pop(victim.job_uid, None)  # its work is lost: it has gained nothing
        self._took[event.placed.job_uid] = now_ms

    def _gain(self, uid: str) -> None:
        if uid in self._took:
            self._found.gained_gpu_s += self._plans[uid].runs_s * self._plans[uid].nodes * _GPUS
            del self._took[uid]
