"""`arranger simulate`: what the scheduler would do, with no cluster and no log."""

import math
import time
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

import click
import msgspec

from arranger.cli.output import output_option, print_json, print_table
from arranger.cli.reading import progress
from arranger.cli.trace_files import read_nodes, read_pods
from arranger.scheduling.trace import Experiment, Outcome, TraceNode, TracePod
from arranger.scheduling.trace_policies import POLICIES

_FILE = click.Path(path_type=Path)

#: What a progress bar counts each run as, however many pods it has.
_RUN = 1_000_000


class Run(Outcome, frozen=True):
    """An experiment and how fast it was decided on this machine."""

    pods_per_s: float


class Mean(msgspec.Struct, frozen=True):
    """The means of one policy's runs over all seeds."""

    policy: str
    seeds: int
    allocated_percent: float
    fragmented_percent: float
    fragmented_idle_percent: float
    pods_per_s: float


@click.command()
@click.option(
    "--trace-nodes", type=_FILE, metavar="CSV", required=True, help="Nodes: sn,cpu_milli,memory_mib,gpu,model."
)
@click.option(
    "--trace-pods",
    type=_FILE,
    metavar="CSV",
    required=True,
    help="Pods: name,cpu_milli,memory_mib,num_gpu,gpu_milli[,gpu_spec].",
)
@click.option(
    "--policy",
    "policies",
    type=click.Choice(list(POLICIES)),
    multiple=True,
    default=("FragmentGradient",),
    show_default=True,
    help="How nodes are chosen; give it again to compare.",
)
@click.option(
    "--load",
    type=click.FloatRange(0, 10, min_open=True),
    default=1.3,
    show_default=True,
    help="Pods arrive until they ask for this many times the cluster's GPUs.",
)
@click.option(
    "--seed", type=click.IntRange(0, (1 << 30) - 1), default=42, show_default=True, help="Decides the order of arrival."
)
@click.option(
    "--seeds", type=click.IntRange(1, 1000), default=1, show_default=True, help="Run so many seeds from it on."
)
@output_option
def command(
    *, trace_nodes: Path, trace_pods: Path, policies: tuple[str, ...], load: float, seed: int, seeds: int, output: str
) -> None:
    r"""Place the pods of a trace, in random order, and tell how many of the cluster's GPUs they got.

    The traces are CSV files in the format of the openb cluster trace, the experiment is the published one on it. Pods
    arrive on an empty cluster; what fits nowhere is lost. Told are, in percent of all GPUs, what arrived, what was
    allocated and what is idle but too fragmented for typical pods. JSON also has the course of all three.

    \b
      arranger simulate --trace-nodes nodes.csv --trace-pods pods.csv
      arranger simulate --trace-nodes nodes.csv --trace-pods pods.csv --seeds 10 --policy BestFit --policy BinPack
    """
    if math.isnan(load):  # which no comparison with the range refuses
        raise click.BadParameter("nan is not in the range 0<x<=10.", param_hint="--load")
    nodes, pods = read_nodes(trace_nodes), read_pods(trace_pods)
    policies = tuple(dict.fromkeys(policies))
    runs = [run for policy in policies for run in run_seeds(nodes, pods, policy, load, range(seed, seed + seeds))]
    means = [_mean([run for run in runs if run.policy == policy]) for policy in policies]
    if output == "json":
        print_json({"runs": runs, "means": means})
    else:
        _print(runs, means)


def run_seeds(nodes: list[TraceNode], pods: list[TracePod], policy: str, load: float, seeds: range) -> list[Run]:
    """One policy with each seed, with a bar. The speed is of placing alone, without reading and preparing."""
    with progress(policy, len(seeds) * _RUN) as moved:
        return [
            _timed(Experiment(nodes, pods, policy=policy, score=POLICIES[policy], load=load, seed=seed), moved)
            for seed in seeds
        ]


def _timed(experiment: Experiment, moved: Callable[[int], object]) -> Run:
    began_s = time.perf_counter()
    outcome = experiment.run(lambda arrived: moved(arrived * _RUN // len(experiment.arrivals)))
    took_s = time.perf_counter() - began_s
    fields: dict[str, Any] = {name: getattr(outcome, name) for name in outcome.__struct_fields__}
    return Run(**fields, pods_per_s=outcome.arrived_pods / took_s)


def _mean(runs: list[Run]) -> Mean:
    return Mean(
        policy=runs[0].policy,
        seeds=len(runs),
        allocated_percent=fmean(run.allocated_percent for run in runs),
        fragmented_percent=fmean(run.fragmented_percent for run in runs),
        fragmented_idle_percent=fmean(run.fragmented_idle_percent for run in runs),
        pods_per_s=fmean(run.pods_per_s for run in runs),
    )


def _print(runs: list[Run], means: list[Mean]) -> None:
    columns = ("policy", "seed", "pods", "placed", "arrived", "allocated", "fragmented", "of idle", "pods/s")
    rows: list[tuple[object, ...]] = []
    for mean in means:
        of_policy = [run for run in runs if run.policy == mean.policy]
        for run in of_policy:
            counts = run.seed, run.arrived_pods, run.placed_pods, _percent(run.arrived_percent)
            rows.append((run.policy, *counts, *_shown(run)))
        if len(of_policy) > 1:
            rows.append((mean.policy, "mean", None, None, None, *_shown(mean)))
    print_table(columns, rows, right=columns[1:])


def _shown(figures: Run | Mean) -> tuple[str, str, str, str]:
    return (
        _percent(figures.allocated_percent),
        _percent(figures.fragmented_percent),
        _percent(figures.fragmented_idle_percent),
        f"{figures.pods_per_s:,.0f}",
    )


def _percent(value: float) -> str:
    return f"{value:.2f}%"
