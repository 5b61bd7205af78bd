"""Guests in reserved room: a trace's jobs through the real cycle, with run times of which nobody knows anything.

Jobs come from the trace as in `fairness`. The settings `backfill: Guests`, `Known` and `Off` are compared with
each other and with a simulated EASY, which knows the run times. A guest that leaves loses all that it did and begins
again, as a job without checkpoints: what it lost is no use of GPUs, and it waits from its submission to its last start.
"""

from collections.abc import Sequence
from pathlib import Path

from benchmarks.backfilling import Rule, drawn_estimates, simulate
from benchmarks.fairness import Cluster, Variant, made_up_workload
from benchmarks.report import Figure
from benchmarks.schedule_measures import Measures, measures
from benchmarks.trace_jobs import NEEDED, read_workload
from tests.servers import ServersUnavailable
from tests.traces import openb_folder

_JOBS, _NODES, _LOAD = 1_200, 4, 0.95
#: Overestimates of up to this many times the duration (`drawn_estimates`).
_FACTOR = 4.0
VARIANTS = (
    Variant("Guests", reservations=1, guests=True),
    Variant("Known", reservations=1),
    Variant("Off"),
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
    used: dict[str, float] = {}
    for variant in VARIANTS:
        cluster = Cluster(workload, variant)
        cluster.run()
        row = f"Arranger, {variant.name}: nothing known of ends"
        found = measures(workload, cluster.starts_s)
        used[variant.name] = found.utilisation_percent
        figures += _row(row, found, cluster.left, cluster.lost_gpu_s)
    more = float(used["Guests"] >= used["Known"])
    figures.append(Figure(name="no fewer GPUs are used with Guests than with Known", value=more, at_least=1.0))
    nodes = [(workload.node.gpus, workload.node.cpu_milli, workload.node.memory_mib)] * workload.nodes
    for name, factor in (("exact", 0.0), ("drawn estimates", _FACTOR)):
        estimates_s = drawn_estimates(workload.jobs, factor=factor)
        starts_s = simulate(workload.jobs, nodes, Rule.EASY, estimates_s=estimates_s).starts_s
        figures += _row(f"Simulated: EASY, {name}", measures(workload, starts_s), 0, 0)
    return figures


def _row(row: str, of: Measures, left: int, lost_gpu_s: float) -> list[Figure]:
    return [
        Figure(row=row, name="makespan", value=of.makespan_h, unit="h"),
        Figure(row=row, name="GPUs used", value=of.utilisation_percent, unit="%"),
        Figure(row=row, name="mean wait", value=of.mean_wait_min, unit="min"),
        Figure(row=row, name="p99 wait", value=of.p99_wait_min, unit="min"),
        Figure(row=row, name="wide jobs' wait", value=of.wide_wait_min, unit="min"),
        Figure(row=row, name="guests that left", value=left),
        Figure(row=row, name="work lost", value=lost_gpu_s / 3600, unit="GPU h"),
    ]
