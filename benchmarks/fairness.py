"""Fairness: a trace's jobs through the real cycle over simulated time, with and without queues, beside plain rules.

`trace_jobs` says how jobs, users and load come from the trace, `schedule_measures` what the columns mean, and
`backfilling` what FIFO and EASY are. The variants of Arranger:

    no queues             one line by priority (all equal), then creation; a job that doesn't fit blocks nobody
    queue per user        a Queue for each user, all of weight 1
      with half-life      the same, and the order counts what each queue used before, with a half-life of a day
    userFairness          one Queue, whose submitters take turns
    DRF                   one Queue with the policy DRF among its jobs
    a reservation         as without queues, but the first job that lacks room gets a reservation (EASY), with the ends
                          of all jobs known exactly, with the estimates that the simulated EASY has, or unknown

The real cycle is taken at each submission and each end, and its pods run at once: delays of the API server or of
kubelets aren't part of this. No job has a priority, and none takes room from another.

Without a reservation, jobs of half a node and more (wide jobs) wait long while smaller jobs take each GPU that becomes
free, whatever their queue is entitled to. So the variants are also shown on the same jobs without the wide ones.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from random import Random

import msgspec

from arranger.model.queue import DEFAULT_QUEUE, QueueSpec
from arranger.projections.jobs.records import JobRecord
from arranger.scheduling.cycle import VERSIONS
from arranger.settings import Settings
from benchmarks.backfilling import Amounts, Rule, Seconds, drawn_estimates, simulate
from benchmarks.report import Figure
from benchmarks.schedule_measures import WIDE_GPUS, Measures, measures
from benchmarks.trace_jobs import NEEDED, TimedPod, TraceJob, Workload, from_pods, read_workload
from tests.jobs_over_time import JobsOverTime
from tests.servers import ServersUnavailable
from tests.traces import made_up, openb_folder
from tests.world import shape

_JOBS, _NODES, _LOAD = 4_000, 8, 0.95
_HALF_LIFE_S = 86_400
#: Overestimates of up to this many times the duration (`drawn_estimates`).
_FACTOR = 4.0
_MIB = 1 << 20
_NO_RECORD_MS = 1 << 50


class Ends(StrEnum):
    """What jobs say of their run time: nothing, what it will be, or an estimate that is too high."""

    UNKNOWN = "Unknown"
    EXACT = "Exact"
    DRAWN = "Drawn"


class Variant(msgspec.Struct, frozen=True):
    """Settings and Queues under which the real cycle runs. `per_user`: a Queue for each user, beside `queues`.
    `guests`: jobs behind may use reserved room until it is needed."""

    name: str
    queues: tuple[tuple[str, QueueSpec], ...] = ()
    per_user: bool = False
    half_life_s: int = 0
    reservations: int = 0
    ends: Ends = Ends.UNKNOWN
    guests: bool = False


NO_QUEUES = Variant("no queues")
VARIANTS = (
    NO_QUEUES,
    Variant("queue per user", per_user=True),
    Variant("queue per user, half-life of a day", per_user=True, half_life_s=_HALF_LIFE_S),
    Variant("userFairness", ((DEFAULT_QUEUE, QueueSpec(user_fairness=True)),)),
    Variant("DRF", ((DEFAULT_QUEUE, QueueSpec(queue_policy="DRF")),)),
    Variant("a reservation, exact ends", reservations=1, ends=Ends.EXACT),
    Variant("a reservation, drawn ends", reservations=1, ends=Ends.DRAWN),
    Variant("a reservation, unknown ends", reservations=1),
)


def run(*, quick: bool, traces: Sequence[Path] = ()) -> list[Figure]:
    """The benchmark; `quick` takes a small made-up trace. Raises ServersUnavailable without a trace."""
    if quick:
        workload = made_up_workload()
    else:
        folder = openb_folder()
        traces = traces or ((folder,) if folder is not None else ())
        if not traces:
            raise ServersUnavailable(f"give {NEEDED}")
        workload = read_workload(traces, jobs=_JOBS, nodes=_NODES, load=_LOAD)
    figures = [Figure(name="requested / offered GPU hours", value=workload.load, note=workload.told)]
    figures += _arrangers("Arranger", workload)
    for name, starts_s in simulated(workload).items():
        figures += _row(name, measures(workload, starts_s))
    narrow = msgspec.structs.replace(workload, jobs=tuple(job for job in workload.jobs if job.gpus < WIDE_GPUS))
    if len(narrow.jobs) < len(workload.jobs):
        figures += _arrangers("Arranger, no wide jobs", narrow)
    return [*figures, _against_first_fit(workload)]


def _arrangers(name: str, workload: Workload) -> list[Figure]:
    """The rows of all variants on a workload."""
    return [
        figure
        for variant in VARIANTS
        for figure in _row(f"{name}: {variant.name}", measures(workload, scheduled(workload, variant)))
    ]


def made_up_workload(*, jobs: int = 120, nodes: int = 2, seed: int = 1) -> Workload:
    """A small trace without times of its own: pods as in `tests.traces`, minutes apart, that last minutes."""
    chance = Random(seed)
    kinds, pods = made_up(pods=2 * jobs, seed=seed)
    timed = [TimedPod(pod, "", 60 * number, round(chance.uniform(10, 7200))) for number, pod in enumerate(pods)]
    node = msgspec.structs.replace(next(one for one in kinds if one.gpus == 8), name="")
    return from_pods(timed, jobs=jobs, node=node, nodes=nodes, load=1.2, chance=chance)


def scheduled(workload: Workload, variant: Variant) -> Seconds:
    """Job → the second at which the real cycle gave it a node."""
    cluster = Cluster(workload, variant)
    cluster.run()
    return cluster.starts_s


class Cluster:
    """A workload in the real cycle and the real fold. `world` is the cluster as it is now."""

    def __init__(self, workload: Workload, variant: Variant) -> None:
        settings = Settings(
            fair_share_half_life_s=variant.half_life_s,
            reservations=variant.reservations,
            backfill="Guests" if variant.guests else "Known",
            runtime_quantiles=False,
        )
        # Reasons of waiting jobs aren't looked at here, so unchanged ones aren't refreshed.
        config = msgspec.structs.replace(
            settings.cycle_config(VERSIONS), reasons_refresh_ms=_NO_RECORD_MS, preemption=None, dry_run=False
        )
        self._over_time = JobsOverTime(config, ended=lambda job: None, gave=self._note_left)
        self.world = self._over_time.world
        self._began_ms = self.world.now_ms
        self._per_user = variant.per_user
        self._jobs = workload.jobs
        self._lasts_ms = {job.name: 1000 * job.lasts_s for job in workload.jobs}
        self._expected_s = _expected(workload, variant.ends)
        #: Job → the second of its last start.
        self.starts_s: Seconds = {}
        #: How often a guest left, and the GPU seconds since its start.
        self.left, self.lost_gpu_s = 0, 0
        #: The jobs that left and haven't started again.
        self._away: dict[str, None] = {}
        self._gpus = {job.name: job.gpus for job in workload.jobs}
        node = workload.node
        for number in range(workload.nodes):
            self.world.node(
                f"n{number:04}", cpu=node.cpu_milli / 1000, memory=node.memory_mib * _MIB, gpus=node.gpus, pods=1000
            )
        for name, spec in variant.queues:
            self.world.queue(name, spec)
        if variant.per_user:
            for user in sorted({job.user for job in workload.jobs}):
                self.world.queue(user, QueueSpec())

    def run(self, looks: Callable[[], object] = lambda: None) -> None:
        """Let time pass until every job has had a node. `looks` is called after each moment at which something did."""
        submitted = 0
        while len(self.starts_s) < len(self._jobs) or self._away:
            coming_ms = [self._ms(job) for job in self._jobs[submitted : submitted + 1]]
            end_ms = self._over_time.next_end_ms()
            self.world.now_ms = min([*coming_ms, *([] if end_ms is None else [end_ms])])
            self._over_time.end_due()
            while submitted < len(self._jobs) and self._ms(self._jobs[submitted]) <= self.world.now_ms:
                self._submit(self._jobs[submitted])
                submitted += 1
            left = -1
            while left < self.left:  # who has just left may go elsewhere at once
                left = self.left
                for placed in self._over_time.cycle(self._lasts):
                    self.starts_s[placed.seen.name] = self._now_s
                    self._away.pop(placed.seen.name, None)
            self._over_time.forget()
            looks()

    @property
    def _now_s(self) -> int:
        return (self.world.now_ms - self._began_ms) // 1000

    def _note_left(self, job: JobRecord) -> None:
        name = job.seen.name
        self.left += 1
        self.lost_gpu_s += self._gpus[name] * (self._now_s - self.starts_s[name])
        self._away[name] = None

    def _ms(self, job: TraceJob) -> int:
        return self._began_ms + 1000 * job.submitted_s

    def _submit(self, job: TraceJob) -> None:
        pod = shape(cpu=job.cpu_milli / 1000, memory=job.memory_mib * _MIB, gpus=job.gpus)
        queue = job.user if self._per_user else ""
        expected_s = self._expected_s.get(job.name)
        self.world.job(
            job.name, leader=pod, created=self._ms(job), user=job.user, of_queue=queue, expected_s=expected_s
        )

    def _lasts(self, job: JobRecord) -> int:
        return self._lasts_ms[job.seen.name]


def _expected(workload: Workload, ends: Ends) -> Mapping[str, int]:
    """Job → what it says of its run time, in seconds, at least 1."""
    if ends == Ends.UNKNOWN:
        return {}
    drawn_s = drawn_estimates(workload.jobs, factor=_FACTOR if ends == Ends.DRAWN else 0)
    return {name: max(run_s, 1) for name, run_s in drawn_s.items()}


def simulated(workload: Workload) -> Mapping[str, Seconds]:
    """The same jobs under plain rules, on the nodes, and with all nodes as one."""
    node = workload.node
    nodes: list[Amounts] = [(node.gpus, node.cpu_milli, node.memory_mib)] * workload.nodes
    drawn_s = drawn_estimates(workload.jobs, factor=_FACTOR)
    found: dict[str, Seconds] = {}
    for where, places in (("", nodes), (", one pool", [one_pool(workload)])):
        for name, rule, estimates_s in (
            ("FIFO", Rule.FIFO, None), ("first fit", Rule.FIRST_FIT, None), ("EASY, exact", Rule.EASY, None),
            ("EASY, drawn estimates", Rule.EASY, drawn_s),
        ):  # fmt: skip
            found[f"Simulated: {name}{where}"] = simulate(workload.jobs, places, rule, estimates_s=estimates_s).starts_s
    return found


def one_pool(workload: Workload) -> Amounts:
    """All nodes as one."""
    node, number = workload.node, workload.nodes
    return node.gpus * number, node.cpu_milli * number, node.memory_mib * number


def as_one_pool(workload: Workload) -> Workload:
    """The workload on one node that has what all nodes have."""
    gpus, cpu_milli, memory_mib = one_pool(workload)
    node = msgspec.structs.replace(workload.node, gpus=gpus, cpu_milli=cpu_milli, memory_mib=memory_mib)
    return msgspec.structs.replace(workload, node=node, nodes=1)


def _row(row: str, of: Measures) -> list[Figure]:
    return [
        Figure(row=row, name="makespan", value=of.makespan_h, unit="h"),
        Figure(row=row, name="GPUs used", value=of.utilisation_percent, unit="%"),
        Figure(row=row, name="mean wait", value=of.mean_wait_min, unit="min"),
        Figure(row=row, name="p50 wait", value=of.p50_wait_min, unit="min"),
        Figure(row=row, name="p99 wait", value=of.p99_wait_min, unit="min"),
        Figure(row=row, name="largest user's wait", value=of.large_wait_min, unit="min"),
        Figure(row=row, name="others' wait", value=of.small_wait_min, unit="min"),
        Figure(row=row, name="wide jobs' wait", value=of.wide_wait_min, unit="min"),
        Figure(row=row, name="worst slowdown", value=of.worst_slowdown, note=of.worst_user),
        Figure(row=row, name="Jain, hours", value=of.jain_hour),
        Figure(row=row, name="Jain, days", value=of.jain_day),
        Figure(row=row, name="contended", value=of.contended_percent, unit="%"),
    ]


def _against_first_fit(workload: Workload) -> Figure:
    """Without queues and on one node there is nothing to choose: the real cycle must start what first fit starts."""
    pool = as_one_pool(workload)
    ours, theirs = scheduled(pool, NO_QUEUES), simulate(pool.jobs, [one_pool(pool)], Rule.FIRST_FIT).starts_s
    return Figure(
        name="no queues starts each job when first fit does, on one node", value=float(ours == theirs), at_least=1.0,
        note=f"{len(pool.jobs):,} jobs",
    )  # fmt: skip
