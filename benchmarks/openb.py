"""Placing the pods of the openb trace, against the published table of what each policy allocates.

The trace isn't part of this repository: `OPENB_TRACE` names a folder with its CSV files and the published table.
Orders of arrival are ours, so single seeds can't agree with the published ones; means of ten can. Only deciding is
timed, without reading and preparing, as the time that it had a core to itself: it is one thread that waits for nothing.
"""

import time
from pathlib import Path
from statistics import fmean, median, stdev

from arranger.cli.inputs.trace_files import read_nodes, read_pods
from arranger.scheduling.experiment import POLICIES, Experiment, Outcome, TraceNode, TracePod
from benchmarks.report import Figure
from tests.servers import ServersUnavailable
from tests.traces import OPENB_VARIABLE, made_up, openb_folder, place_by_full_scan, published_openb

_LOAD = 1.3
_SEEDS = range(42, 52)
_DEFAULT, *_OTHERS = "openb_pod_list_default", "openb_pod_list_gpuspec33", "openb_pod_list_multigpu50"
_PUBLISHED = {"FragmentGradient": "06-FGD", "BestFit": "05-BestFit"}
_OURS = ("BinPack", "MinFragment", "LeaderFirst", "JobAntiAffinity")

#: As much as the scan of every node for every pod is given to do.
_SCANNED_LOAD = 0.2


def run(*, quick: bool) -> list[Figure]:
    """The benchmark; `quick` takes a small made-up trace, which nothing is published about."""
    if quick:
        nodes, pods = made_up()
        return [
            *(_allocated(policy, "a made-up trace", _runs(nodes, pods, policy, range(42, 44))) for policy in POLICIES),
            *_against_scan(nodes, pods),
        ]
    folder = openb_folder()
    if folder is None:
        raise ServersUnavailable(f"set {OPENB_VARIABLE} to the folder with the CSV files of the openb trace")
    nodes = read_nodes(folder / "openb_node_list_gpu_node.csv")
    figures: list[Figure] = []
    for name in (_DEFAULT, *_OTHERS):
        figures += _against_published(folder, nodes, name)
    pods = read_pods(folder / f"{_DEFAULT}.csv")
    figures += [_allocated(policy, "default", _runs(nodes, pods, policy, _SEEDS)) for policy in _OURS]
    return [*figures, *_against_scan(nodes, pods)]


def _against_published(folder: Path, nodes: list[TraceNode], name: str) -> list[Figure]:
    pods = read_pods(folder / f"{name}.csv")
    short = name.removeprefix("openb_pod_list_")
    figures: list[Figure] = []
    for policy, published in _PUBLISHED.items():
        runs = _runs(nodes, pods, policy, _SEEDS)
        ours, theirs = _mean(runs), published_openb(folder, pods=name, policy=published)
        goal = 95.4 if (name, policy) == (_DEFAULT, "FragmentGradient") else None
        figures.append(_allocated(policy, short, runs, at_least=goal))
        figures.append(
            Figure(
                name=f"{policy}, {short}, from the published", value=abs(ours - theirs), unit="points", at_most=0.5,
                note=f"{ours:.2f} %, published {theirs:.2f} %",
            )
        )  # fmt: skip
        if name == _DEFAULT:
            speeds = [outcome.arrived_pods / took_s for outcome, took_s in runs]
            goal = 5_000 if policy == "FragmentGradient" else None
            note = f"median of {len(runs)} seeds, {min(speeds):,.0f} to {max(speeds):,.0f}"
            figures.append(Figure(name=f"{policy}, pods", value=median(speeds), unit="/s", at_least=goal, note=note))
    return figures


def _runs(
    nodes: list[TraceNode], pods: list[TracePod], policy: str, seeds: range, *, load: float = _LOAD
) -> list[tuple[Outcome, float]]:
    """Each seed's outcome, and the seconds of a core that deciding took."""
    found: list[tuple[Outcome, float]] = []
    for seed in seeds:
        experiment = Experiment(nodes, pods, policy=policy, score=POLICIES[policy], load=load, seed=seed)
        began_s = time.thread_time()
        outcome = experiment.run()
        found.append((outcome, time.thread_time() - began_s))
    return found


def _mean(runs: list[tuple[Outcome, float]]) -> float:
    return fmean(outcome.allocated_percent for outcome, _ in runs)


def _allocated(policy: str, short: str, runs: list[tuple[Outcome, float]], *, at_least: float | None = None) -> Figure:
    spread = stdev(outcome.allocated_percent for outcome, _ in runs)
    fragmented = fmean(outcome.fragmented_percent for outcome, _ in runs)
    return Figure(
        name=f"{policy}, {short}, allocated", value=_mean(runs), unit="%", at_least=at_least,
        note=f"{len(runs)} seeds, standard deviation {spread:.2f}; {fragmented:.2f} % of all GPUs fragmented",
    )  # fmt: skip


def _against_scan(nodes: list[TraceNode], pods: list[TracePod]) -> list[Figure]:
    """Ours and the scan of every node for every pod, on the same first arrivals."""
    policy = "FragmentGradient"
    ours, scanned = (
        Experiment(nodes, pods, policy=policy, score=POLICIES[policy], load=_SCANNED_LOAD, seed=42) for _ in range(2)
    )
    began_s = time.thread_time()
    ours.run()
    between_s = time.thread_time()
    count = len(list(place_by_full_scan(scanned, nodes, POLICIES[policy])))
    scan_s, ours_s = time.thread_time() - between_s, between_s - began_s
    same = (ours.cluster.devices == scanned.cluster.devices).all()
    return [
        Figure(name="every node scored for every pod", value=count / scan_s, unit="/s", note=f"{count:,} pods, numpy"),
        Figure(name="times faster than that", value=scan_s / ours_s, note="on the same pods"),
        Figure(name="same devices as that", value=float(same), at_least=1.0),
    ]
