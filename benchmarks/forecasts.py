"""Forecasts: how good they are on a trace, and what one costs in a large cluster.

The trace is that of `fairness`, with a reservation for the first job that lacks room (EASY). Twenty times, equally far
apart, the waiting jobs are forecast, and each forecast is compared with the start that came. Later jobs come meanwhile,
and no forecast knows of them. Jobs say how long they run: exactly, or an estimate that is too high, drawn as for the
simulated EASY of `fairness` (uniform between once and five times the duration; Feitelson and Weil 1998, Mu'alem and
Feitelson 2001, with f = 4).

The large cluster has 5,000 nodes, 100,000 pods of 5,000 running jobs that end within six hours, and 10,000 waiting
jobs.
"""

import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from arranger.events import kinds as k
from arranger.model.job import CleanPodPolicy, JobSpec, PodGroup
from arranger.model.pod import PodShape
from arranger.projections.fold import apply_entry
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import Changes, State
from arranger.replay.forecast.score import HorizonScore, MadeForecast, ScoredStart, by_horizon
from arranger.replay.forecast.starts import forecast
from arranger.scheduling.cycle import VERSIONS, take_cycle
from arranger.settings import Settings
from benchmarks.fairness import Cluster, Ends, Variant, made_up_workload
from benchmarks.report import Figure
from benchmarks.trace_jobs import NEEDED, Workload, read_workload
from benchmarks.workload import TOLD_MS, History, uid
from tests.servers import ServersUnavailable
from tests.traces import openb_folder

_JOBS, _NODES, _LOAD = 4_000, 8, 0.95
#: How many times forecasts are made on the trace.
_TIMES = 20
_FIRST = 1_000
_NAMES = ("less than 1 min", "less than 10 min", "less than 1 h", "less than 6 h", "later")
_VARIANTS = (
    Variant("exact ends", reservations=1, ends=Ends.EXACT),
    Variant("drawn estimates", reservations=1, ends=Ends.DRAWN),
)


def run(*, quick: bool, traces: Sequence[Path] = ()) -> list[Figure]:
    """The benchmark; `quick` takes a small made-up trace and a small cluster. Raises ServersUnavailable without a
    trace."""
    if quick:
        workload = made_up_workload()
    else:
        folder = openb_folder()
        traces = traces or ((folder,) if folder is not None else ())
        if not traces:
            raise ServersUnavailable(f"give {NEEDED}")
        workload = read_workload(traces, jobs=_JOBS, nodes=_NODES, load=_LOAD)
    figures = [figure for variant in _VARIANTS for figure in _errors(workload, variant)]
    return [*figures, *cost(nodes=50 if quick else 5_000)]


# --- errors ------------------------------------------------------------------------------------------------------


def _errors(workload: Workload, variant: Variant) -> list[Figure]:
    came = came_true(workload, variant)
    rows = zip(_NAMES, by_horizon(came), strict=True)
    return [figure for name, row in rows if row.number for figure in _row(f"{variant.name}, {name}", row)]


def came_true(workload: Workload, variant: Variant) -> list[ScoredStart]:
    """The forecasts of a workload, with the starts that came."""
    cluster = Cluster(workload, variant)
    world, made, names = cluster.world, list[MadeForecast](), dict[str, str]()
    began_ms = world.now_ms
    last_s = workload.jobs[-1].submitted_s
    moments = [began_ms + 1000 * last_s * number // _TIMES for number in range(1, _TIMES + 1)]

    def look() -> None:
        if not moments or world.now_ms < moments[0]:
            return
        while moments and moments[0] <= world.now_ms:
            moments.pop(0)
        found = forecast(world.state, world.config, world.now_ms, first=_FIRST)
        names.update((one.uid, one.job.rpartition("/")[2]) for one in found.jobs)
        made.extend(
            MadeForecast(one.uid, world.now_ms, one.expected_ms, one.earliest_ms, one.latest_ms)
            for one in found.jobs
            if one.expected_ms
        )

    cluster.run(look)
    return [ScoredStart(one, began_ms + 1000 * cluster.starts_s[names[one.uid]]) for one in made]


def _row(row: str, of: HorizonScore) -> list[Figure]:
    return [
        Figure(row=row, name="forecasts", value=of.number),
        Figure(row=row, name="median error", value=of.median_ms / 60_000, unit="min"),
        Figure(row=row, name="90 % error", value=of.p90_ms / 60_000, unit="min"),
        Figure(row=row, name="in the range", value=100 * of.inside / of.number, unit="%"),
    ]


# --- cost --------------------------------------------------------------------------------------------------------


def cost(*, nodes: int) -> list[Figure]:
    """The seconds of a forecast of the first 1,000 of twice as many waiting jobs as there are nodes."""
    figures = []
    for kinds, words in ((20, "jobs of 20 sizes"), (0, "no two jobs alike")):
        state = crowded(nodes, kinds=kinds)
        config = msgspec.structs.replace(Settings().cycle_config(VERSIONS))
        first = min(_FIRST, nodes)
        began_s = time.thread_time()
        found = forecast(state, config, TOLD_MS, first=first)
        spent_s = time.thread_time() - began_s
        known = sum(bool(one.latest_ms) for one in found.jobs)
        figures.append(
            Figure(
                name=f"a forecast, {words}", value=spent_s, unit="s", at_most=5,
                note=f"the first {first:,} of {found.waiting:,} jobs, {nodes:,} nodes, {len(state.pods):,} pods; "
                f"{known:,} with a whole range",
            )
        )  # fmt: skip
    return figures


def crowded(nodes: int, *, kinds: int) -> State:
    """Full nodes, and twice as many waiting jobs, of so many sizes; 0: each of another size."""
    history = History()
    history.nodes(nodes)
    spec = _spec(PodShape((("cpu", 3_000), ("nvidia.com/gpu", 0))), 20, 0)
    _submit(history, [_of(spec, 60 + 21_540 * number // nodes) for number in range(nodes)], 0)
    history.listed()
    state = history.state()
    _start(state, history)
    waiting = [_spec(PodShape((("cpu", 3_000 + (n % kinds if kinds else n)),)), 20, 300 + n % 7_000) for n in
               range(2 * nodes)]  # fmt: skip
    _submit(history, waiting, nodes)
    _fold(state, history)
    return state


def _of(spec: JobSpec, expected_s: int) -> JobSpec:
    return msgspec.structs.replace(spec, expected_s=expected_s)


def _spec(shape: PodShape, pods: int, expected_s: int) -> JobSpec:
    groups = (PodGroup("learner", 1, shape), PodGroup("actors", pods - 1, shape))
    spec = JobSpec(groups, pods - 1, 5, "", "", 3, CleanPodPolicy.ALL, False)
    return _of(spec, expected_s) if expected_s else spec


def _submit(history: History, specs: Sequence[JobSpec], first: int) -> None:
    term = history.terms[k.Watched.JOB]
    for number, spec in enumerate(specs, start=first):
        history.say(
            k.JobSeen(
                term, "default", f"job-{number:05}", uid("job", number), str(number), 1, TOLD_MS + number, False, spec,
                (), "",
            )
        )  # fmt: skip


def _fold(state: State, history: History) -> None:
    """Fold what the history has beyond the state."""
    for entry in history.entries():
        if entry.first > state.offset:
            apply_entry(state, entry, Changes())


def _start(state: State, history: History) -> None:
    """Let a cycle place all jobs, and their pods run."""
    config = Settings(reasons_a_second=10_000).cycle_config(VERSIONS)
    history.say(*take_cycle(state, config, TOLD_MS))
    _fold(state, history)
    for job in list(state.jobs.values()):
        history.say(*_pods(job, history.terms[k.Watched.POD]))
    _fold(state, history)


def _pods(job: JobRecord, term: int) -> list[k.PodSeen]:
    return [
        k.PodSeen(
            term, "default", job.pod_name(slot), f"{job.uid}-{slot[0]}-{slot[1]}", "1", node, "Running",
            job.valid_spec.groups[slot[0]].shape.requests, job.owner_of(slot), True, False, ip="10.0.0.1",
        )
        for slot, node in job.placements.items()
    ]  # fmt: skip
