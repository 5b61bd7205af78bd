"""`arranger simulate` on a trace: place pods in random order, and show how many of the cluster's GPUs they get."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean

import msgspec

from arranger.cli.inputs.reading import progress
from arranger.cli.inputs.trace_files import read_nodes, read_pods
from arranger.cli.rendering.output import print_json, print_table
from arranger.scheduling.experiment import POLICIES, Experiment, TraceNode, TraceOutcome, TracePod

#: Every run counts as this many steps of the progress bar, independent of its pods.
_RUN = 1_000_000

#: The fields of a run of which the means are taken.
_FIGURES = ("allocated_percent", "fragmented_percent", "fragmented_idle_percent", "pods_per_s")


class TraceRun(TraceOutcome, frozen=True):
    """The outcome of an experiment, and its speed on this machine."""

    pods_per_s: float


class Mean(msgspec.Struct, frozen=True):
    """The means of one policy's runs over all seeds."""

    policy: str
    seeds: int
    allocated_percent: float
    fragmented_percent: float
    fragmented_idle_percent: float
    pods_per_s: float


def simulate_trace(
    trace_nodes: Path, trace_pods: Path, policies: Sequence[str], *, load: float, seed: int, seeds: int, output: str
) -> None:
    """Run the experiment with each policy and seed, and print the results."""
    nodes, pods = read_nodes(trace_nodes), read_pods(trace_pods)
    policies = tuple(dict.fromkeys(policies))
    runs = [run for policy in policies for run in run_seeds(nodes, pods, policy, load, range(seed, seed + seeds))]
    means = [_mean([run for run in runs if run.policy == policy]) for policy in policies]
    if output == "json":
        print_json({"runs": runs, "means": means})
    else:
        _print(runs, means)


def run_seeds(nodes: list[TraceNode], pods: list[TracePod], policy: str, load: float, seeds: range) -> list[TraceRun]:
    """Run one policy with each seed, with a progress bar. The speed excludes reading and preparation."""
    with progress(policy, len(seeds) * _RUN) as moved:
        return [
            _timed(Experiment(nodes, pods, policy=policy, score=POLICIES[policy], load=load, seed=seed), moved)
            for seed in seeds
        ]


def _timed(experiment: Experiment, moved: Callable[[int], object]) -> TraceRun:
    began_s = time.perf_counter()
    outcome = experiment.run(lambda arrived: moved(arrived * _RUN // len(experiment.arrivals)))
    took_s = time.perf_counter() - began_s
    return TraceRun(**msgspec.structs.asdict(outcome), pods_per_s=outcome.arrived_pods / took_s)


def _mean(runs: list[TraceRun]) -> Mean:
    means = {figure: fmean(getattr(run, figure) for run in runs) for figure in _FIGURES}
    return Mean(policy=runs[0].policy, seeds=len(runs), **means)


def _print(runs: list[TraceRun], means: list[Mean]) -> None:
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


def _shown(figures: TraceRun | Mean) -> tuple[str, str, str, str]:
    return (
        _percent(figures.allocated_percent),
        _percent(figures.fragmented_percent),
        _percent(figures.fragmented_idle_percent),
        f"{figures.pods_per_s:,.0f}",
    )


def _percent(value: float) -> str:
    return f"{value:.2f}%"
